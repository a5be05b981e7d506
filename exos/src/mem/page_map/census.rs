//! What is known of a range of pages: looks that change nothing, for `/proc/PID/smaps` and `/proc/PID/pagemap`.

use core::ops::Range;

use super::{LEAF_PAGES, LEAF_SHIFT, PageEntry, PageFlags, PageMap, bits_of, slots_in, take_slot};
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

    /// How many pages of a range there are. Takes as long as there are leaves in it, not pages.
    pub(crate) fn count_present(&self, pages: &Range<u64>) -> PresentPages {
        let mut counts = PresentPages::default();
        let numbers = pages.start >> LEAF_SHIFT..pages.end.div_ceil(LEAF_PAGES as u64);
        for (number, view) in self.leaves.range(numbers) {
            let mut bits = view.leaf.known & bits_of(&slots_in(*number, pages).1);
            while bits != 0 {
                let entry = PageEntry(view.leaf.entries[take_slot(&mut bits)]);
                counts.anonymous += u64::from(entry.has(PageFlags::OWNED));
                counts.file += u64::from(entry.has(PageFlags::FILE));
            }
        }
        let mut block = 0;
        while let Some((found, _)) = self.next_large(block, pages) {
            let end = ((found + 1) * BLOCK_PAGES).min(pages.end);
            counts.large += end - (found * BLOCK_PAGES).max(pages.start);
            block = found + 1;
        }
        counts
    }
}

fn kind_of(entry: PageEntry) -> PresentPage {
    if entry.has(PageFlags::FILE) { PresentPage::File } else { PresentPage::Anonymous }
}

#[cfg(test)]
mod tests {
    use aegis_abi::FrameNumber;

    use super::super::{PageEntry, PageFlags, PageMap};
    use super::{PresentPage, PresentPages};
    use crate::fake::FakeMachine;
    use crate::mem::frames::FramePool;

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
        let count = |pages| map.count_present(&pages);
        assert_eq!(count(0..1000), PresentPages { anonymous: 2, file: 1, large: 0 });
        assert_eq!(count(63..500), PresentPages { anonymous: 0, file: 1, large: 0 });
        assert_eq!(count(501..1 << 40), PresentPages::default());
        let found = [61, 62, 63, 64].map(|page| map.present(page));
        assert_eq!(found, [None, Some(PresentPage::Anonymous), Some(PresentPage::File), Some(PresentPage::Anonymous)]);
    }
}
