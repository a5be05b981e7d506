//! Holes of the heap as blocks of the TLSF allocator: aligned to a large page and of whole large pages.
//!
//! A block's header lies before it and the next block's behind it, so nothing of a hole itself is looked at, and it
//! need not be bound. `exos/linux/tests/holes.rs` holds that against the allocator.

use aegis_abi::layout::LARGE_PAGE_SIZE;
use core::alloc::Layout;
use core::ptr::NonNull;

use super::classes::Tlsf;

/// A block for so many large pages.
fn layout_of(count: u64) -> Option<Layout> {
    Layout::from_size_align((count * LARGE_PAGE_SIZE) as usize, LARGE_PAGE_SIZE as usize).ok()
}

/// The most that is free one behind the other of a power of two of large pages, of at most 2^`most_log2`: where, and
/// how many.
pub(crate) fn cut(tlsf: &mut Tlsf, most_log2: u32) -> Option<(NonNull<u8>, u64)> {
    (0..=most_log2).rev().map(|log2| 1 << log2).find_map(|count| Some((tlsf.allocate(layout_of(count)?)?, count)))
}

/// Leaves `count` large pages of a hole, from its first on: the others are free memory.
///
/// # Safety
/// The hole came from [`cut`], or was left here, and has more than `count` pages. Those behind are bound, and nobody
/// uses them.
pub(crate) unsafe fn shorten(tlsf: &mut Tlsf, start: NonNull<u8>, count: u64) {
    // SAFETY: by the contract it is a block with this alignment. A shorter block stays where it is, and what is behind
    // it begins with a header in a page that is bound.
    unsafe {
        match layout_of(count).filter(|layout| layout.size() > 0) {
            Some(layout) => {
                let _ = tlsf.reallocate(start, layout);
            }
            None => tlsf.deallocate(start, LARGE_PAGE_SIZE as usize),
        }
    }
}
