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

    /// Whether both are in the same sums of a map.
    fn counts_as(self, other: Self) -> bool {
        (self.0 ^ other.0) & (PageFlags::OWNED | PageFlags::FILE).bits() == 0
    }
}

struct Leaf {
    count: u32,
    /// Bit n: slot n is in use. So nobody walks over the others, which are most of them.
    used: [u64; LEAF_PAGES / 64],
    entries: [u64; LEAF_PAGES],
}

impl Default for Leaf {
    fn default() -> Self {
        Self { count: 0, used: [0; LEAF_PAGES / 64], entries: [0; LEAF_PAGES] }
    }
}

impl Leaf {
    fn get(&self, index: usize) -> Option<PageEntry> {
        let word = self.entries[index];
        (word != 0).then_some(PageEntry(word))
    }

    /// Sets or forgets an entry; the one before.
    fn set(&mut self, index: usize, entry: Option<PageEntry>) -> Option<PageEntry> {
        let previous = self.get(index);
        self.entries[index] = entry.map_or(0, |entry| entry.0);
        let (group, bit) = (&mut self.used[index / 64], 1 << (index % 64));
        *group = if entry.is_some() { *group | bit } else { *group & !bit };
        self.count = self.count + u32::from(entry.is_some()) - u32::from(previous.is_some());
        previous
    }

    /// The slots of a group of 64 that are in use and lie in `slots`, a bit each.
    fn used_in(&self, group: usize, slots: &Range<usize>) -> u64 {
        let first = group * 64;
        let below = slots.start.saturating_sub(first);
        let above = (first + 64).saturating_sub(slots.end);
        self.used[group] & u64::MAX << below & u64::MAX >> above
    }
}

/// The groups of 64 slots that a part which is not empty reaches.
fn groups(slots: &Range<usize>) -> Range<usize> {
    slots.start / 64..slots.end.div_ceil(64)
}

/// Takes the lowest slot out of those of a group.
fn take_slot(group: usize, bits: &mut u64) -> usize {
    let slot = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    group * 64 + slot
}

/// Known pages by what they are.
#[derive(Clone, Copy, Default)]
struct PageCounts {
    owned: u64,
    file: u64,
}

/// Known pages by page number (address / 4096).
#[derive(Default)]
pub(crate) struct PageMap {
    leaves: BTreeMap<u64, Box<Leaf>>,
    counts: PageCounts,
    resident_peak: u64,
}

impl PageMap {
    pub(crate) fn get(&self, page: u64) -> Option<PageEntry> {
        let word = self.leaves.get(&(page >> LEAF_SHIFT))?.entries[slot(page)];
        (word != 0).then_some(PageEntry(word))
    }

    /// Sets or replaces an entry; the caller takes over the reference of the one returned.
    pub(crate) fn insert(&mut self, page: u64, entry: PageEntry) -> Option<PageEntry> {
        let leaf = self.leaves.entry(page >> LEAF_SHIFT).or_default();
        let previous = leaf.set(slot(page), Some(entry));
        adjust(&mut self.counts, previous, Some(entry));
        self.note_peak();
        previous
    }

    /// Changes every known page of `range`, ascending: `change` gives the entry that replaces it,
    /// or `None` to forget it (the caller then has its reference).
    pub(crate) fn update(&mut self, range: Range<u64>, mut change: impl FnMut(u64, PageEntry) -> Option<PageEntry>) {
        if range.is_empty() {
            return;
        }
        let mut emptied = Vec::new();
        let numbers = leaf_numbers(&range);
        let (mut one, mut several);
        // Finding one is half the work of finding a range's ends.
        let leaves: &mut dyn Iterator<Item = (u64, &mut Leaf)> = if numbers.start() == numbers.end() {
            let number = *numbers.start();
            one = self.leaves.get_mut(&number).into_iter().map(move |leaf| (number, &mut **leaf));
            &mut one
        } else {
            several = self.leaves.range_mut(numbers).map(|(number, leaf)| (*number, &mut **leaf));
            &mut several
        };
        for (number, leaf) in leaves {
            let (first, slots) = slots_in(number, &range);
            for group in groups(&slots) {
                let mut bits = leaf.used_in(group, &slots);
                while bits != 0 {
                    let index = take_slot(group, &mut bits);
                    let entry = PageEntry(leaf.entries[index]);
                    match change(first + index as u64, entry) {
                        Some(changed) if changed.counts_as(entry) => leaf.entries[index] = changed.0,
                        changed => {
                            leaf.set(index, changed);
                            adjust(&mut self.counts, Some(entry), changed);
                        }
                    }
                }
            }
            emptied.extend((leaf.count == 0).then_some(number));
        }
        for number in emptied {
            self.leaves.remove(&number);
        }
    }

    /// Visits every page of `range`, known or not, ascending; what `change` gives becomes its entry, `None` leaves the
    /// page as it is. The caller takes over the reference of an entry that it replaces. For short ranges: each page
    /// takes time, and so does each leaf.
    pub(crate) fn fill(
        &mut self,
        range: Range<u64>,
        mut change: impl FnMut(u64, Option<PageEntry>) -> Option<PageEntry>,
    ) {
        if range.is_empty() {
            return;
        }
        for number in leaf_numbers(&range) {
            let leaf = self.leaves.entry(number).or_default();
            let (first, slots) = slots_in(number, &range);
            for index in slots {
                let entry = leaf.get(index);
                if let Some(changed) = change(first + index as u64, entry) {
                    leaf.set(index, Some(changed));
                    adjust(&mut self.counts, entry, Some(changed));
                }
            }
            if leaf.count == 0 {
                self.leaves.remove(&number);
            }
        }
        self.note_peak();
    }

    /// As [`Self::update`], where `change` gives what becomes of the page here and what `other` gets, which knew none
    /// of these pages. The caller makes a reference for each that `other` gets.
    pub(crate) fn share(
        &mut self,
        range: Range<u64>,
        other: &mut Self,
        mut change: impl FnMut(u64, PageEntry) -> (PageEntry, Option<PageEntry>),
    ) {
        if range.is_empty() {
            return;
        }
        for (&number, leaf) in self.leaves.range_mut(leaf_numbers(&range)) {
            let other_leaf = other.leaves.entry(number).or_default();
            let (first, slots) = slots_in(number, &range);
            for group in groups(&slots) {
                let mut bits = leaf.used_in(group, &slots);
                while bits != 0 {
                    let index = take_slot(group, &mut bits);
                    let (changed, given) = change(first + index as u64, PageEntry(leaf.entries[index]));
                    leaf.entries[index] = changed.0;
                    if given.is_some() {
                        other_leaf.set(index, given);
                        adjust(&mut other.counts, None, given);
                    }
                }
            }
            if other_leaf.count == 0 {
                other.leaves.remove(&number);
            }
        }
        other.note_peak();
    }

    /// Forgets all pages; `release` gets each one's frame, and its reference.
    pub(crate) fn clear(&mut self, mut release: impl FnMut(FrameNumber)) {
        for leaf in core::mem::take(&mut self.leaves).into_values() {
            for (group, mut bits) in leaf.used.into_iter().enumerate() {
                while bits != 0 {
                    release(PageEntry(leaf.entries[take_slot(group, &mut bits)]).frame());
                }
            }
        }
        self.counts = PageCounts::default();
    }

    /// Private pages of the program that take a frame.
    pub(crate) fn owned_count(&self) -> u64 {
        self.counts.owned
    }

    /// Pages of files and shared memory.
    pub(crate) fn file_count(&self) -> u64 {
        self.counts.file
    }

    /// The most pages of both kinds that there have been.
    pub(crate) fn resident_peak(&self) -> u64 {
        self.resident_peak
    }

    fn note_peak(&mut self) {
        self.resident_peak = self.resident_peak.max(self.counts.owned + self.counts.file);
    }
}

/// Corrects the counts for an entry that became another.
fn adjust(counts: &mut PageCounts, before: Option<PageEntry>, after: Option<PageEntry>) {
    let is = |entry: Option<PageEntry>, flag| u64::from(entry.is_some_and(|e| e.has(flag)));
    counts.owned = counts.owned + is(after, PageFlags::OWNED) - is(before, PageFlags::OWNED);
    counts.file = counts.file + is(after, PageFlags::FILE) - is(before, PageFlags::FILE);
}

/// The leaves that a range which is not empty reaches.
fn leaf_numbers(range: &Range<u64>) -> core::ops::RangeInclusive<u64> {
    range.start >> LEAF_SHIFT..=(range.end - 1) >> LEAF_SHIFT
}

/// The first page of a leaf, and the part of the leaf that lies in `range`.
fn slots_in(number: u64, range: &Range<u64>) -> (u64, Range<usize>) {
    let first = number << LEAF_SHIFT;
    let end = range.end.min(first + LEAF_PAGES as u64) - first;
    (first, (range.start.max(first) - first) as usize..end as usize)
}

fn slot(page: u64) -> usize {
    page as usize % LEAF_PAGES
}
