//! Memory whose "program" is a test: it loads and stores by calls, which say when a fault would have been taken.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use crate::memory::{Access, Memory, MemoryError, PAGE_BYTES, Page};

/// Bytes that regions of one segment share.
type Shared = Rc<RefCell<Vec<Page>>>;

/// A region's pages. Clones are the same region; [`Pages::sharing`] makes another address space's.
#[derive(Clone, Debug)]
pub struct Pages {
    shared: Shared,
    own: Rc<RefCell<Own>>,
}

#[derive(Debug)]
struct Own {
    access: Vec<Access>,
    dirty: Vec<bool>,
    shadows: BTreeMap<usize, Box<Page>>,
    shadow_count_max: usize,
}

impl Pages {
    /// A region of zeros without access.
    pub fn new(page_count: usize) -> Self {
        Self::over(Rc::new(RefCell::new(alloc::vec![[0; PAGE_BYTES]; page_count])))
    }

    /// The same pages in another address space.
    pub fn sharing(&self) -> Self {
        Self::over(Rc::clone(&self.shared))
    }

    fn over(shared: Shared) -> Self {
        let page_count = shared.borrow().len();
        let own = Own {
            access: alloc::vec![Access::None; page_count],
            dirty: alloc::vec![false; page_count],
            shadows: BTreeMap::new(),
            shadow_count_max: usize::MAX,
        };
        Self { shared, own: Rc::new(RefCell::new(own)) }
    }

    /// How many shadows there may be.
    pub fn limit_shadows(&self, count: usize) {
        self.own.borrow_mut().shadow_count_max = count;
    }

    /// What the program may do with a page now.
    pub fn access(&self, page: usize) -> Access {
        self.own.borrow().access[page]
    }

    /// How many shadows there are.
    pub fn shadow_count(&self) -> usize {
        self.own.borrow().shadows.len()
    }

    /// The program loads bytes of one page.
    ///
    /// # Errors
    /// A fault that wants this access.
    pub fn load(&self, page: usize, offset: usize, into: &mut [u8]) -> Result<(), Access> {
        if self.access(page) < Access::Read {
            return Err(Access::Read);
        }
        into.copy_from_slice(&self.shared.borrow()[page][offset..offset + into.len()]);
        Ok(())
    }

    /// The program stores bytes into one page.
    ///
    /// # Errors
    /// A fault that wants this access.
    pub fn store(&self, page: usize, offset: usize, from: &[u8]) -> Result<(), Access> {
        if self.access(page) < Access::Write {
            return Err(Access::Write);
        }
        self.shared.borrow_mut()[page][offset..offset + from.len()].copy_from_slice(from);
        self.own.borrow_mut().dirty[page] = true;
        Ok(())
    }
}

impl Memory for Pages {
    fn page_count(&self) -> usize {
        self.shared.borrow().len()
    }

    fn protect(&mut self, pages: Range<usize>, access: Access) -> Result<(), MemoryError> {
        self.own.borrow_mut().access[pages].fill(access);
        Ok(())
    }

    fn read(&self, page: usize, into: &mut Page) {
        into.copy_from_slice(&self.shared.borrow()[page]);
    }

    fn write(&mut self, page: usize, offset: usize, from: &[u8]) {
        self.shared.borrow_mut()[page][offset..offset + from.len()].copy_from_slice(from);
    }

    fn make_shadow(&mut self, page: usize) -> Result<(), MemoryError> {
        let mut own = self.own.borrow_mut();
        if own.shadows.len() >= own.shadow_count_max {
            return Err(MemoryError::NoMemory);
        }
        let shadow = Box::new(self.shared.borrow()[page]);
        own.shadows.insert(page, shadow);
        Ok(())
    }

    fn read_shadow(&self, page: usize, into: &mut Page) -> bool {
        self.own.borrow().shadows.get(&page).map(|shadow| into.copy_from_slice(&shadow[..])).is_some()
    }

    fn drop_shadow(&mut self, page: usize) {
        self.own.borrow_mut().shadows.remove(&page);
    }

    fn evict(&mut self, pages: Range<usize>) {
        // What is there afterwards must not matter.
        self.shared.borrow_mut()[pages].fill([0xee; PAGE_BYTES]);
    }

    fn dirty(&mut self, pages: Range<usize>, bits: &mut [u64], clears: bool) -> Result<(), MemoryError> {
        let mut own = self.own.borrow_mut();
        for (index, page) in pages.enumerate() {
            let bit = 1 << (index % 64);
            if own.dirty[page] {
                bits[index / 64] |= bit
            } else {
                bits[index / 64] &= !bit
            }
            own.dirty[page] &= !clears;
        }
        Ok(())
    }
}
