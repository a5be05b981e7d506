//! Which frame is at which page of an address space, and how: the library OS's own copy of its page
//! table's leaves.
//!
//! The kernel's page tables cannot say who owns a frame, nor hold a page that is known but not
//! mapped (after `mprotect(PROT_NONE)`, or in a forked child before its first fault). So an address
//! space keeps one word per known page, in leaves of 512 as the hardware does; a leaf exists while
//! it holds an entry.
//!
//! Invariant: an entry holds one reference to its frame. [`PageFlags::MAPPED`] is set exactly while
//! the page table maps the page, and [`PageFlags::WRITE`] while it maps it writable.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::FrameNumber;
use bitflags::bitflags;

const LEAF_SHIFT: u32 = 9;
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
const FRAME_SHIFT: u32 = 12;

bitflags! {
    /// State of a known page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct PageFlags: u64 {
        /// The page table maps it.
        const MAPPED = 1 << 0;
        /// The page table lets stores through.
        const WRITE = 1 << 1;
        /// A private page of the program, as opposed to a page of a file; writable in place if
        /// nobody else references the frame.
        const OWNED = 1 << 2;
        /// A page of a file or of shared memory.
        const FILE = 1 << 3;
        /// The entry is in use (the frame number may be 0).
        const KNOWN = 1 << 4;
    }
}

/// A known page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageEntry(u64);

impl PageEntry {
    pub(crate) fn new(frame: FrameNumber, flags: PageFlags) -> Self {
        Self(frame.0 << FRAME_SHIFT | (flags | PageFlags::KNOWN).bits())
    }

    pub(crate) fn frame(self) -> FrameNumber {
        FrameNumber(self.0 >> FRAME_SHIFT)
    }

    pub(crate) fn has(self, flags: PageFlags) -> bool {
        self.0 & flags.bits() == flags.bits()
    }

    pub(crate) fn with(self, flags: PageFlags) -> Self {
        Self(self.0 | flags.bits())
    }

    pub(crate) fn without(self, flags: PageFlags) -> Self {
        Self(self.0 & !flags.bits())
    }
}

struct Leaf {
    count: u32,
    entries: [u64; LEAF_PAGES],
}

/// Known pages by page number (address / 4096).
#[derive(Default)]
pub(crate) struct PageMap {
    leaves: BTreeMap<u64, Box<Leaf>>,
    owned_count: u64,
    file_count: u64,
    resident_peak: u64,
}

impl PageMap {
    pub(crate) fn get(&self, page: u64) -> Option<PageEntry> {
        let word = self.leaves.get(&(page >> LEAF_SHIFT))?.entries[slot(page)];
        (word != 0).then_some(PageEntry(word))
    }

    /// Sets or replaces an entry; the caller takes over the reference of the one returned.
    pub(crate) fn insert(&mut self, page: u64, entry: PageEntry) -> Option<PageEntry> {
        let leaf = self
            .leaves
            .entry(page >> LEAF_SHIFT)
            .or_insert_with(|| Box::new(Leaf { count: 0, entries: [0; LEAF_PAGES] }));
        let word = &mut leaf.entries[slot(page)];
        let previous = (*word != 0).then_some(PageEntry(*word));
        *word = entry.0;
        if previous.is_none() {
            leaf.count += 1;
        }
        self.uncount(previous);
        self.count(entry);
        previous
    }

    /// Changes every known page of `range`, ascending: `change` gives the entry that replaces it,
    /// or `None` to forget it (the caller then has its reference).
    pub(crate) fn update(&mut self, range: Range<u64>, mut change: impl FnMut(u64, PageEntry) -> Option<PageEntry>) {
        if range.is_empty() {
            return;
        }
        let mut emptied = Vec::new();
        let mut counts = (self.owned_count, self.file_count);
        let leaves = range.start >> LEAF_SHIFT..=(range.end - 1) >> LEAF_SHIFT;
        for (&number, leaf) in self.leaves.range_mut(leaves) {
            let first = number << LEAF_SHIFT;
            let start = range.start.max(first) - first;
            let end = range.end.min(first + LEAF_PAGES as u64) - first;
            for index in start..end {
                let word = leaf.entries[index as usize];
                if word == 0 {
                    continue;
                }
                let entry = PageEntry(word);
                let changed = change(first + index, entry);
                leaf.entries[index as usize] = changed.map_or(0, |entry| entry.0);
                if changed.is_none() {
                    leaf.count -= 1;
                }
                adjust(&mut counts, Some(entry), changed);
            }
            if leaf.count == 0 {
                emptied.push(number);
            }
        }
        (self.owned_count, self.file_count) = counts;
        for number in emptied {
            self.leaves.remove(&number);
        }
    }

    /// Private pages of the program that take a frame.
    pub(crate) fn owned_count(&self) -> u64 {
        self.owned_count
    }

    /// Pages of files and shared memory.
    pub(crate) fn file_count(&self) -> u64 {
        self.file_count
    }

    /// The most pages of both kinds that there have been.
    pub(crate) fn resident_peak(&self) -> u64 {
        self.resident_peak
    }

    fn count(&mut self, entry: PageEntry) {
        let mut counts = (self.owned_count, self.file_count);
        adjust(&mut counts, None, Some(entry));
        (self.owned_count, self.file_count) = counts;
        self.resident_peak = self.resident_peak.max(self.owned_count + self.file_count);
    }

    fn uncount(&mut self, entry: Option<PageEntry>) {
        let mut counts = (self.owned_count, self.file_count);
        adjust(&mut counts, entry, None);
        (self.owned_count, self.file_count) = counts;
    }
}

/// Corrects (owned, file) counts for an entry that became another.
fn adjust(counts: &mut (u64, u64), before: Option<PageEntry>, after: Option<PageEntry>) {
    let is = |entry: Option<PageEntry>, flag| u64::from(entry.is_some_and(|e| e.has(flag)));
    counts.0 = counts.0 + is(after, PageFlags::OWNED) - is(before, PageFlags::OWNED);
    counts.1 = counts.1 + is(after, PageFlags::FILE) - is(before, PageFlags::FILE);
}

fn slot(page: u64) -> usize {
    page as usize % LEAF_PAGES
}
