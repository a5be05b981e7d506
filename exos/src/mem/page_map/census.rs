//! What is known of a range of pages: looks that change nothing, for `/proc/PID/smaps` and `/proc/PID/pagemap`.

use core::ops::{AddAssign, Range};

use alloc::sync::Arc;

use super::{LEAF_PAGES, LEAF_SHIFT, PageEntry, PageFlags, PageMap, bits_of, slots_in, take_slot};
use crate::mem::frames::{FrameCounts, PINNED};
use crate::mem::page_map::blocks::BLOCK_PAGES;

/// Pages that are present in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentPages {
    /// Private ones.
    pub anonymous: u64,
    /// Of files and of shared memory.
    pub file: u64,
    /// Private ones that large pages map.
    pub large: u64,
    /// Private ones, until they are written to, that other spaces have too.
    pub shared: u64,
    /// The part of the private ones that falls to this space where each that has a page has an equal part, in pages of
    /// `1 << SHARE_SHIFT`.
    pub share: u64,
}

/// Of [`PresentPages::share`].
pub const SHARE_SHIFT: u32 = 12;
/// Leaves that are counted at a time.
const LEAF_COUNT_AT_ONCE: usize = 16;

impl AddAssign for PresentPages {
    fn add_assign(&mut self, other: Self) {
        self.anonymous += other.anonymous;
        self.file += other.file;
        self.large += other.large;
        self.shared += other.shared;
        self.share += other.share;
    }
}

/// How a page is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresentPage {
    /// A private page, or the zeros that one begins with.
    Anonymous,
    /// A page of a file or of shared memory.
    File,
}

impl PageMap {
    /// How a page is there, if it is.
    pub(crate) fn present(&self, page: u64) -> Option<PresentPage> {
        self.get(page).map(kind_of)
    }

    /// How many pages there are in the first part of a range, and where the rest begins: a part takes a bounded time,
    /// and no faults wait for more.
    pub(crate) fn count_present(&self, pages: &Range<u64>, frames: &FrameCounts<'_>) -> (PresentPages, Option<u64>) {
        let mut counts = PresentPages::default();
        let numbers = pages.start >> LEAF_SHIFT..pages.end.div_ceil(LEAF_PAGES as u64);
        let mut leaves = self.leaves.range(numbers);
        for (number, view) in leaves.by_ref().take(LEAF_COUNT_AT_ONCE) {
            let by_leaf = Arc::strong_count(&view.leaf) as u64;
            let mut bits = view.leaf.known & bits_of(&slots_in(*number, pages).1);
            while bits != 0 {
                let entry = PageEntry(view.leaf.entries[take_slot(&mut bits)]);
                counts.file += u64::from(entry.has(PageFlags::FILE));
                if entry.has(PageFlags::OWNED) {
                    // The holders of the leaf, and the other leaves with the frame.
                    let by_frame = match frames.reference_count(entry.frame()) {
                        PINNED => 1,
                        count => u64::from(count),
                    };
                    let holders = (by_leaf + by_frame).saturating_sub(1).max(1);
                    counts.anonymous += 1;
                    counts.shared += u64::from(holders > 1);
                    counts.share += (1 << SHARE_SHIFT) / holders;
                }
            }
        }
        let rest = leaves.next().map(|(number, _)| (*number << LEAF_SHIFT).max(pages.start));
        let counted = pages.start..rest.unwrap_or(pages.end);
        let mut block = 0;
        while let Some((found, _)) = self.next_large(block, &counted) {
            let end = ((found + 1) * BLOCK_PAGES).min(counted.end);
            counts.large += end - (found * BLOCK_PAGES).max(counted.start);
            block = found + 1;
        }
        (counts, rest)
    }
}

fn kind_of(entry: PageEntry) -> PresentPage {
    if entry.has(PageFlags::FILE) { PresentPage::File } else { PresentPage::Anonymous }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use aegis_abi::FrameNumber;

    use super::super::{LEAF_PAGES, PageEntry, PageFlags, PageMap};
    use super::{LEAF_COUNT_AT_ONCE, PresentPage, PresentPages, SHARE_SHIFT};
    use crate::fake::FakeMachine;
    use crate::mem::frames::{FrameCounts, FramePool};

    #[test]
    fn what_is_there_is_counted_within_the_range() {
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine, 64 << 20);
        let (mut map, mut frames) = (PageMap::default(), pool.lock());
        for (page, flags) in
            [(62, PageFlags::OWNED), (63, PageFlags::FILE), (64, PageFlags::empty()), (500, PageFlags::OWNED)]
        {
            map.insert(page, PageEntry::new(FrameNumber(page), flags), &mut frames);
        }
        let count = |pages, frames: &FrameCounts<'_>| map.count_present(&pages, frames);
        let counts = |anonymous, file| {
            let share = anonymous << SHARE_SHIFT;
            (PresentPages { anonymous, file, share, ..PresentPages::default() }, None)
        };
        assert_eq!(count(0..1000, &frames), counts(2, 1));
        assert_eq!(count(63..500, &frames), counts(0, 1));
        assert_eq!(count(501..1 << 40, &frames), counts(0, 0));
        let found = [61, 62, 63, 64].map(|page| map.present(page));
        assert_eq!(found, [None, Some(PresentPage::Anonymous), Some(PresentPage::File), Some(PresentPage::Anonymous)]);
    }

    #[test]
    fn a_part_is_counted_at_a_time_and_who_else_has_a_page_counts() {
        const LEAF_COUNT: u64 = LEAF_COUNT_AT_ONCE as u64 + 1;
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine, 64 << 20);
        let own: Vec<_> = (0..LEAF_COUNT).map(|_| pool.allocate().expect("there is room")).collect();
        pool.retain(own[1]);
        pool.retain(own[1]);
        let (mut map, mut frames) = (PageMap::default(), pool.lock());
        for (leaf, frame) in (0..).zip(&own) {
            map.insert(leaf * LEAF_PAGES as u64 + 3, PageEntry::new(*frame, PageFlags::OWNED), &mut frames);
        }
        let (first, rest) = map.count_present(&(0..1 << 30), &frames);
        let whole = 1 << SHARE_SHIFT;
        let anonymous = LEAF_COUNT - 1;
        let share = (anonymous - 1) * whole + whole / 3;
        assert_eq!(first, PresentPages { anonymous, shared: 1, share, ..PresentPages::default() });
        assert_eq!(rest, Some((LEAF_COUNT - 1) * LEAF_PAGES as u64));
        let (last, rest) = map.count_present(&(rest.unwrap()..1 << 30), &frames);
        assert_eq!((last.anonymous, last.share, rest), (1, whole, None));
    }
}
