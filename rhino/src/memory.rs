//! The pages of a mapped region: what a store asks of the system that it runs on.
//!
//! A back end is one of four: `mprotect` and SIGSEGV on Linux, exos's native fault interface, the kernel extension, and
//! [`crate::fake`] for tests. It brings faults to [`crate::Store::fault`] and does here what the store answers.
//!
//! # Invariants
//!
//! - MEM-1 The program sees what was written last through any region of the same segment: regions share pages.
//! - MEM-2 [`Memory::read`], [`Memory::write`] and shadows work whatever the access of the program is; they do not
//!   change it, and set no dirty bit that the program did not set.
//! - MEM-3 A page whose access was lowered is not touched by any thread of the program after [`Memory::protect`] has
//!   returned, without a fault.
#![forbid(unsafe_code)]

use core::ops::Range;

/// Bytes of a page: what locks, faults and shadows count in.
pub const PAGE_BYTES: usize = 4096;

/// The bytes of a page.
pub type Page = [u8; PAGE_BYTES];

/// What the program may do with a page without a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing: the next touch is a fault.
    None,
    /// Load.
    Read,
    /// Load and store.
    Write,
}

/// Why memory did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// No frame, no shadow, no table is left.
    NoMemory,
    /// The system refused the change.
    Refused,
    /// The back end cannot do this ([`Memory::dirty`] on Linux).
    Unsupported,
}

/// A touch that the back end has answered by itself, without [`crate::Store::fault`]: the kernel extension makes the
/// shadow and opens the page in ring 0, and notes it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The page, counted from the region's first.
    pub page: usize,
    /// What was opened: with [`Access::Write`] there is a shadow.
    pub access: Access,
}

/// The pages of one region of one address space. Pages are counted from 0 and below [`Memory::page_count`]; the store
/// names no others.
pub trait Memory {
    /// Pages of the region.
    fn page_count(&self) -> usize;

    /// Sets what the program may do with pages.
    ///
    /// # Errors
    /// [`MemoryError::Refused`], [`MemoryError::NoMemory`]; the pages have their old access or the new one.
    fn protect(&mut self, pages: Range<usize>, access: Access) -> Result<(), MemoryError>;

    /// True if [`Memory::protect`] closes pages at once. A service's programs close their pages themselves when their
    /// transaction ends: what one has touched stays in memory until then.
    fn can_close(&self) -> bool {
        true
    }

    /// Copies a page's bytes out.
    fn read(&self, page: usize, into: &mut Page);

    /// Copies some of a page's bytes out: `into` fits into it at `offset`.
    fn read_part(&self, page: usize, offset: usize, into: &mut [u8]) {
        let mut whole = [0; PAGE_BYTES];
        self.read(page, &mut whole);
        into.copy_from_slice(&whole[offset..offset + into.len()]);
    }

    /// Copies bytes into a page: `from` fits into it at `offset`.
    fn write(&mut self, page: usize, offset: usize, from: &[u8]);

    /// Copies the page to its shadow; a page has at most one, and an older one is replaced.
    ///
    /// # Errors
    /// [`MemoryError::NoMemory`].
    fn make_shadow(&mut self, page: usize) -> Result<(), MemoryError>;

    /// Copies the page's shadow out; false if it has none.
    fn read_shadow(&self, page: usize, into: &mut Page) -> bool;

    /// Gives the page's shadow back, if it has one.
    fn drop_shadow(&mut self, page: usize);

    /// The pages' contents are not needed any more and may be given back: the store has them on the medium, and will
    /// write them again before it opens the pages. They are closed already.
    fn evict(&mut self, _pages: Range<usize>) {}

    /// Sets bit *n* of `bits` (64 in a word) if page `pages.start + n` was stored to since it was last cleared, clears
    /// the bit otherwise; and clears the pages' own bits if `clears`.
    ///
    /// # Errors
    /// [`MemoryError::Unsupported`] where no dirty bits are to be had.
    fn dirty(&mut self, _pages: Range<usize>, _bits: &mut [u64], _clears: bool) -> Result<(), MemoryError> {
        Err(MemoryError::Unsupported)
    }

    /// Whether touches may be answered without the store ([`Memory::take_touched`]); for good.
    fn answers_touches(&self) -> bool {
        false
    }

    /// Tells the touches that were answered without the store since the last call, each once, in their order.
    fn take_touched(&mut self, _each: &mut dyn FnMut(Touched)) {}

    /// The transaction that changed these pages has committed: where a program works on private copies, they become
    /// everybody's now.
    fn publish(&mut self, _pages: &[usize]) {}
}

impl<M: Memory + ?Sized> Memory for alloc::boxed::Box<M> {
    fn page_count(&self) -> usize {
        (**self).page_count()
    }
    fn protect(&mut self, pages: Range<usize>, access: Access) -> Result<(), MemoryError> {
        (**self).protect(pages, access)
    }
    fn can_close(&self) -> bool {
        (**self).can_close()
    }
    fn read(&self, page: usize, into: &mut Page) {
        (**self).read(page, into);
    }
    fn read_part(&self, page: usize, offset: usize, into: &mut [u8]) {
        (**self).read_part(page, offset, into);
    }
    fn write(&mut self, page: usize, offset: usize, from: &[u8]) {
        (**self).write(page, offset, from);
    }
    fn make_shadow(&mut self, page: usize) -> Result<(), MemoryError> {
        (**self).make_shadow(page)
    }
    fn read_shadow(&self, page: usize, into: &mut Page) -> bool {
        (**self).read_shadow(page, into)
    }
    fn drop_shadow(&mut self, page: usize) {
        (**self).drop_shadow(page);
    }
    fn evict(&mut self, pages: Range<usize>) {
        (**self).evict(pages);
    }
    fn dirty(&mut self, pages: Range<usize>, bits: &mut [u64], clears: bool) -> Result<(), MemoryError> {
        (**self).dirty(pages, bits, clears)
    }
    fn answers_touches(&self) -> bool {
        (**self).answers_touches()
    }
    fn take_touched(&mut self, each: &mut dyn FnMut(Touched)) {
        (**self).take_touched(each);
    }
    fn publish(&mut self, pages: &[usize]) {
        (**self).publish(pages);
    }
}
