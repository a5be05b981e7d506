//! Blocks of 2 MiB that the page table maps by one large page, and leaves that come and go as a whole.
//!
//! What is known of a block's pages stays in its leaves, as of all pages; beside them stands how the block is mapped.
//! So a question about a page is answered as ever, and only a change of how some pages of a block are mapped has to do
//! with it ([`crate::mem::large`]).
//!
//! Invariants: all pages of such a block are known, private, mapped, writable all or none, and their frames lie one
//! behind the other from a multiple of [`BLOCK_PAGES`] on.

use alloc::sync::Arc;
use core::ops::Range;

use aegis_abi::FrameNumber;
use aegis_abi::layout::LARGE_PAGE_FRAMES;
use aegis_abi::memory::BindFlags;

use super::{FRAME_SHIFT, LEAF_PAGES, LEAF_SHIFT, Leaf, PageEntry, PageFlags, PageMap, View, note_table};
use crate::mem::frames::{FrameCounts, FrameRun};

/// Pages of a block.
pub(crate) const BLOCK_PAGES: u64 = LARGE_PAGE_FRAMES;
/// Leaves of a block.
const BLOCK_LEAVES: u64 = BLOCK_PAGES >> LEAF_SHIFT;

/// The pages of a block.
pub(crate) fn pages_of(block: u64) -> Range<u64> {
    block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES
}

fn leaves_of(block: u64) -> Range<u64> {
    block * BLOCK_LEAVES..(block + 1) * BLOCK_LEAVES
}

/// What becomes of blocks that lie in a range as a whole.
#[derive(Clone, Copy)]
pub(crate) enum Whole {
    /// They are not mapped any more.
    Unmap,
    /// They stay if all their pages are going to be mapped so, which the caller does.
    Keep(BindFlags),
    /// As those that only a part of lies in it: they are split.
    Split,
}

impl PageMap {
    /// Whether any block is mapped by a large page.
    #[inline]
    pub(crate) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// The first such block from `block` on that reaches into `pages`, and how it is mapped.
    pub(crate) fn next_large(&self, block: u64, pages: &Range<u64>) -> Option<(u64, BindFlags)> {
        let (first, end) = (block.max(pages.start / BLOCK_PAGES), pages.end.div_ceil(BLOCK_PAGES));
        let found = self.large.range(first..end.max(first)).next();
        found.map(|(block, flags)| (*block, *flags))
    }

    /// How the block that `page` lies in is mapped, if by a large page.
    pub(crate) fn large_at(&self, page: u64) -> Option<BindFlags> {
        self.large.get(&(page / BLOCK_PAGES)).copied()
    }

    /// Pages that large pages map.
    pub(crate) fn large_page_count(&self) -> u64 {
        self.large.len() as u64 * BLOCK_PAGES
    }

    /// Whether no page of a block is known.
    pub(crate) fn is_block_unknown(&self, block: u64) -> bool {
        self.leaves.range(leaves_of(block)).next().is_none()
    }

    /// The frame of a block's first page.
    pub(crate) fn block_frame(&self, block: u64) -> Option<FrameNumber> {
        self.get(block * BLOCK_PAGES).map(PageEntry::frame)
    }

    /// Whether nobody else has anything of what is known of a block, so that its frames have this map's references.
    pub(crate) fn is_block_alone(&self, block: u64) -> bool {
        self.leaves.range(leaves_of(block)).all(|(_, view)| Arc::strong_count(&view.leaf) == 1)
    }

    /// Makes all pages of a block known of which none is, private, and mapped by a large page to the frames from
    /// `first` on.
    pub(crate) fn fill_block(&mut self, block: u64, first: FrameNumber, flags: BindFlags) {
        let mut word = PageEntry::new(first, PageFlags::OWNED).0;
        for number in leaves_of(block) {
            let mut leaf = Leaf { known: u64::MAX, entries: [0; LEAF_PAGES] };
            for entry in &mut leaf.entries {
                *entry = word;
                word += 1 << FRAME_SHIFT;
            }
            let before = self.leaves.insert(number, View { leaf: Arc::new(leaf), mapped: 0, writable: 0 });
            debug_assert!(before.is_none(), "none of them is known");
        }
        self.counts.owned += BLOCK_PAGES;
        self.note_peak();
        self.set_large(block, flags);
    }

    /// Takes a block out that nobody else has anything of: its frames, with their references.
    pub(crate) fn take_block(&mut self, block: u64) -> Option<FrameRun> {
        let first = self.block_frame(block)?;
        self.large.remove(&block);
        for number in leaves_of(block) {
            self.leaves.remove(&number);
        }
        self.counts.owned -= BLOCK_PAGES;
        Some(FrameRun { first: first.0, count: BLOCK_PAGES as u32 })
    }

    /// Notes how a block is mapped by a large page.
    pub(crate) fn set_large(&mut self, block: u64, flags: BindFlags) {
        self.large.insert(block, flags);
        self.set_state(block, u64::MAX, if flags.contains(BindFlags::WRITE) { u64::MAX } else { 0 });
    }

    /// Notes that a block is mapped by no large page any more but by small ones, as it was.
    pub(crate) fn forget_large(&mut self, block: u64) {
        if self.large.remove(&block).is_some() {
            note_table(&mut self.last_table, &mut self.table_bound, block * BLOCK_LEAVES);
        }
    }

    /// Notes that a block is not mapped any more.
    pub(crate) fn unmap_large(&mut self, block: u64) {
        self.large.remove(&block);
        self.set_state(block, 0, 0);
    }

    fn set_state(&mut self, block: u64, mapped: u64, writable: u64) {
        for (_, view) in self.leaves.range_mut(leaves_of(block)) {
            (view.mapped, view.writable) = (mapped, writable);
        }
    }

    /// Takes the leaves out that lie in `pages` as a whole. `unmap` gets pages among which are all of theirs that the
    /// page table maps, ascending, and `release` the frames that no other map knows by them, with their references.
    pub(crate) fn take_whole(
        &mut self,
        pages: &Range<u64>,
        _frames: &mut FrameCounts<'_>,
        mut unmap: impl FnMut(Range<u64>),
        mut release: impl FnMut(FrameRun),
    ) {
        let numbers = pages.start.div_ceil(LEAF_PAGES as u64)..pages.end >> LEAF_SHIFT;
        if numbers.start >= numbers.end {
            return;
        }
        let mut from = numbers.start;
        while let Some(number) = self.leaves.first_number_in(from..numbers.end) {
            from = number + 1;
            let Some(view) = self.leaves.remove(&number) else { continue };
            if view.mapped != 0 {
                unmap(view.mapped_pages(number));
            }
            view.leaf.runs(|run, flags| {
                if flags.contains(PageFlags::OWNED) {
                    self.counts.owned -= u64::from(run.count);
                }
                if flags.contains(PageFlags::FILE) {
                    self.counts.file -= u64::from(run.count);
                }
            });
            // Under the pool's lock, as in `own`.
            if let Some(leaf) = Arc::into_inner(view.leaf) {
                leaf.runs(|run, _| release(run));
            }
        }
    }
}

impl View {
    /// From the first page that the page table maps to the last.
    pub(super) fn mapped_pages(&self, number: u64) -> Range<u64> {
        let first = number << LEAF_SHIFT;
        let length = LEAF_PAGES as u64;
        first + u64::from(self.mapped.trailing_zeros())..first + length - u64::from(self.mapped.leading_zeros())
    }
}

impl Leaf {
    /// Its pages by runs whose frames lie one behind the other and that are alike.
    #[inline]
    pub(super) fn runs(&self, mut visit: impl FnMut(FrameRun, PageFlags)) {
        let mut bits = self.known;
        while bits != 0 {
            let first = bits.trailing_zeros() as usize;
            let word = self.entries[first];
            let mut next = word;
            let mut count = 0;
            for &entry in &self.entries[first..] {
                // What is not known is 0, which follows nothing.
                if entry != next {
                    break;
                }
                next += 1 << FRAME_SHIFT;
                count += 1;
            }
            bits &= u64::MAX.checked_shl(first as u32 + count).unwrap_or(0);
            visit(FrameRun { first: PageEntry(word).frame().0, count }, PageFlags::from_bits_truncate(word));
        }
    }
}
