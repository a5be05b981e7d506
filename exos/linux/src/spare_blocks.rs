//! Freed blocks of the heap that are kept for the next request of as many bytes.
//!
//! Nearly all blocks are small, short-lived and of few sizes. The allocator behind splits and joins free memory for
//! each of them, which costs more than most of what they are used for. Here a block of at most [`BYTES_MAX`] is rounded
//! up to a [`SizeClass`], and when it is freed it waits in its class for the next one. Sizes are those that the
//! allocator would take for a block of the class anyway: whole granules less a header.
//!
//! Limits: [`KEPT_COUNT_MAX`] blocks of each class, half a MiB in all; what is beyond goes back to the allocator.
//! Neighbour: `exos/linux/src/glue/heap.rs`, which locks it and knows what a block is.

use core::alloc::Layout;

/// Bytes from one class to the next: the allocator's granule.
const GRANULE_BYTES: usize = 32;
/// Bytes of a granule that the allocator keeps for itself.
const HEADER_BYTES: usize = 16;
/// Largest alignment that every block has.
const ALIGNMENT: usize = 16;
/// Classes: sizes up to [`BYTES_MAX`].
pub const CLASS_COUNT: usize = 32;
/// Largest block that is kept.
pub const BYTES_MAX: usize = CLASS_COUNT * GRANULE_BYTES - HEADER_BYTES;
/// Most blocks of a class that are kept.
pub const KEPT_COUNT_MAX: usize = 32;

/// A size that blocks are rounded up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass(usize);

impl SizeClass {
    /// The class that `layout` belongs to, unless it is too large or asks for a rare alignment.
    #[must_use]
    #[inline]
    pub fn of(layout: Layout) -> Option<Self> {
        let is_kept = layout.size() <= BYTES_MAX && layout.align() <= ALIGNMENT;
        is_kept.then(|| Self((layout.size() + HEADER_BYTES - 1) / GRANULE_BYTES))
    }

    /// Its number: below [`CLASS_COUNT`].
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0
    }

    /// What a block of this class is allocated as.
    ///
    /// # Panics
    /// Never: a class's size is small and its alignment a power of two.
    #[must_use]
    #[inline]
    pub const fn layout(self) -> Layout {
        let bytes = (self.0 + 1) * GRANULE_BYTES - HEADER_BYTES;
        match Layout::from_size_align(bytes, ALIGNMENT) {
            Ok(layout) => layout,
            Err(_) => panic!("a class has a layout"),
        }
    }
}

#[derive(Clone, Copy)]
struct Kept<T> {
    count: usize,
    blocks: [Option<T>; KEPT_COUNT_MAX],
}

/// The kept blocks; a block is a `T`.
pub struct SpareBlocks<T> {
    classes: [Kept<T>; CLASS_COUNT],
}

impl<T: Copy> SpareBlocks<T> {
    /// No block kept yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { classes: [Kept { count: 0, blocks: [None; KEPT_COUNT_MAX] }; CLASS_COUNT] }
    }

    /// A block of `class`: the one that was kept last.
    #[inline]
    pub fn take(&mut self, class: SizeClass) -> Option<T> {
        let kept = self.classes.get_mut(class.0)?;
        let last = kept.count.checked_sub(1)?;
        let block = kept.blocks.get_mut(last)?.take();
        kept.count = last;
        block
    }

    /// Any kept block, and its class.
    pub fn take_any(&mut self) -> Option<(SizeClass, T)> {
        let index = self.classes.iter().position(|kept| kept.count > 0)?;
        self.take(SizeClass(index)).map(|block| (SizeClass(index), block))
    }

    /// Keeps a block of `class`; false if there are enough.
    #[must_use]
    #[inline]
    pub fn keep(&mut self, class: SizeClass, block: T) -> bool {
        let Some(kept) = self.classes.get_mut(class.0) else { return false };
        let Some(place) = kept.blocks.get_mut(kept.count) else { return false };
        *place = Some(block);
        kept.count += 1;
        true
    }
}

impl<T: Copy> Default for SpareBlocks<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, KEPT_COUNT_MAX, SizeClass, SpareBlocks};
    use core::alloc::Layout;

    fn class(bytes: usize, alignment: usize) -> Option<SizeClass> {
        SizeClass::of(Layout::from_size_align(bytes, alignment).unwrap())
    }

    #[test]
    fn a_class_holds_every_layout_that_belongs_to_it_and_wastes_less_than_a_granule() {
        for bytes in 1..=BYTES_MAX {
            let own = class(bytes, 8).unwrap().layout();
            assert!(own.size() >= bytes && own.size() - bytes < 32 && own.align() >= 8, "{bytes}");
            assert_eq!(SizeClass::of(own), class(bytes, 8), "a class's own layout is of the class");
        }
        assert_eq!((class(16, 16), class(17, 16)), (Some(SizeClass(0)), Some(SizeClass(1))));
        assert_eq!((class(BYTES_MAX + 1, 8), class(8, 32)), (None, None));
    }

    #[test]
    fn what_is_kept_last_is_taken_first_and_only_by_its_class() {
        let mut spare = SpareBlocks::new();
        let [small, large] = [class(1, 1), class(BYTES_MAX, 1)].map(Option::unwrap);
        assert_eq!(spare.take(small), None);
        for number in 0..KEPT_COUNT_MAX {
            assert!(spare.keep(small, number));
        }
        assert!(!spare.keep(small, 99), "there are enough");
        assert!(spare.keep(large, 7));
        for number in (0..KEPT_COUNT_MAX).rev() {
            assert_eq!(spare.take(small), Some(number));
        }
        assert_eq!((spare.take(small), spare.take(large), spare.take(large)), (None, Some(7), None));
        assert!(spare.keep(large, 8) && spare.keep(small, 9));
        assert_eq!((spare.take_any(), spare.take_any(), spare.take_any()), (Some((small, 9)), Some((large, 8)), None));
    }
}
