//! The allocator's type, and how a long block is found that is just long enough.
//!
//! TLSF keeps free blocks by classes of length, 32 to each doubling, and takes the first block of the first class in
//! which each is long enough. A free block that is as long as the request lies in the class below, and is not looked
//! at: what is freed and asked for again takes new memory, and queues that grow by doubling leave half of it behind. So
//! a long block is taken as short as the class below begins and grown to its length where it is, which the rest of the
//! free block that it was cut from allows. `exos/linux/tests/holes.rs` holds that against the allocator.

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

/// Classes of each doubling of length.
const CLASS_COUNT_LOG2: u32 = 5;
/// What all lengths of blocks are multiples of.
const GRANULE_BYTES: usize = 32;
/// A block's header, which is part of its length.
const HEADER_BYTES: usize = 16;
/// Blocks of which as many bytes are lost as a small block has, and that are quickly copied: where the first block of
/// the class below is too short, the allocator moves what is in it, which is nothing.
const LONG_BYTES: Range<usize> = 64 << 10..2 << 20;

/// First-level classes for blocks of every length: only with all of them does the allocator join what the heap grows by
/// to what it had, and without that no free block would be longer than that.
pub(crate) type Tlsf = rlsf::Tlsf<'static, u64, u32, 59, { 1 << CLASS_COUNT_LOG2 }>;

/// A block for `layout`, of the free ones.
#[inline]
pub(crate) fn take(tlsf: &mut Tlsf, layout: Layout) -> Option<NonNull<u8>> {
    if layout.size() < LONG_BYTES.start { tlsf.allocate(layout) } else { take_long(tlsf, layout) }
}

#[cold]
fn take_long(tlsf: &mut Tlsf, layout: Layout) -> Option<NonNull<u8>> {
    if layout.size() >= LONG_BYTES.end || layout.align() > HEADER_BYTES {
        return tlsf.allocate(layout);
    }
    let length = (layout.size() + HEADER_BYTES).next_multiple_of(GRANULE_BYTES);
    let width = 1_usize << (length.ilog2() - CLASS_COUNT_LOG2);
    let shorter = Layout::from_size_align((length & !(width - 1)) - HEADER_BYTES, layout.align()).ok()?;
    let block = tlsf.allocate(shorter)?;
    // SAFETY: it was just allocated with this alignment.
    let grown = unsafe { tlsf.reallocate(block, layout) };
    if grown.is_none() {
        // SAFETY: as above; it is where it was, and nobody has it.
        unsafe { tlsf.deallocate(block, layout.align()) };
    }
    grown
}
