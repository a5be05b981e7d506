//! Which frame is at which page of an address space, and how: the library OS's own copy of its page
//! table's leaves.
//!
//! The kernel's page tables cannot say what owns a frame, nor hold a page that is known but not mapped (after
//! `mprotect(PROT_NONE)`, or in a forked child before its first fault). So an address space keeps one word per known
//! page, in leaves of 64; a leaf exists while it holds an entry.
//!
//! A fork shares the leaves: what a page is stays in the leaf, how this space maps it is two words of bits beside it.
//! So a fork costs a reference for each leaf, whatever the leaf knows, and a space that changes an entry of a shared
//! leaf gets a copy of the leaf first ([`own`]), in which mapping a page is no change.
//!
//! Invariants: a leaf holds one reference to the frame of each of its entries, for all spaces that share it.
//! [`PageFlags::MAPPED`] is set exactly while the page table maps the page, and [`PageFlags::WRITE`] while it maps it
//! writable; no page of a leaf is writable from two spaces unless it is one of shared memory.

pub(crate) mod blocks;
pub(crate) mod census;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::FrameNumber;
use aegis_abi::memory::BindFlags;
use bitflags::bitflags;

use crate::error::Result;
use crate::mem::frames::{FrameCounts, FrameRun};

mod kept;
mod leaves;

pub(crate) use kept::{KeptLeaf, LeafLook};
use leaves::{IntoValues, Leaves};

const LEAF_SHIFT: u32 = 6;
/// A bit each in a word.
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
/// What a look at a leaf counts among pages that are changed.
const LEAF_LOOK_PAGES: u64 = 2;
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
        /// Another space has the entry, too, by a shared leaf, so it has no one owner. Given with an entry, never set.
        const SHARED = 1 << 5;
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

/// How a space maps a page, which is not in the leaf.
const STATE: u64 = PageFlags::MAPPED.union(PageFlags::WRITE).union(PageFlags::SHARED).bits();

/// Known pages, for one space or several.
#[derive(Clone)]
struct Leaf {
    /// Bit n: entry n is in use. So nobody walks over the others, which are most of them.
    known: u64,
    /// Without how they are mapped.
    entries: [u64; LEAF_PAGES],
}

impl Leaf {
    #[inline]
    fn put(&mut self, index: usize, word: u64) {
        self.entries[index] = word;
        self.known = self.known & !(1 << index) | u64::from(word != 0) << index;
    }

    fn frames(&self) -> impl Iterator<Item = FrameNumber> {
        let mut bits = self.known;
        core::iter::from_fn(move || (bits != 0).then(|| PageEntry(self.entries[take_slot(&mut bits)]).frame()))
    }
}

/// A leaf as one space has it.
struct View {
    leaf: Arc<Leaf>,
    /// Bit n: the page table maps page n.
    mapped: u64,
    /// Bit n: it does so writable.
    writable: u64,
}

impl View {
    /// With nothing known, in a leaf of which that is so.
    fn empty(leaf: Option<Arc<Leaf>>) -> Self {
        let leaf = leaf.unwrap_or_else(|| Arc::new(Leaf { known: 0, entries: [0; LEAF_PAGES] }));
        debug_assert!(leaf.known == 0 && leaf.entries.iter().all(|&word| word == 0));
        Self { leaf, mapped: 0, writable: 0 }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<PageEntry> {
        let word = self.leaf.entries[index];
        // A holder that shared the leaf and let go of it did so after all else, under the pool's lock: see `own`.
        let shared = if Arc::strong_count(&self.leaf) > 1 { PageFlags::SHARED.bits() } else { 0 };
        (word != 0).then_some(PageEntry(word | state_at((self.mapped, self.writable), index) | shared))
    }

    /// Sets or forgets an entry.
    #[inline]
    fn set(&mut self, index: usize, entry: Option<PageEntry>, frames: &mut FrameCounts<'_>) {
        let all = entry.map_or(0, |entry| entry.0);
        let word = all & !STATE;
        if self.leaf.entries[index] != word {
            let leaf = match Arc::get_mut(&mut self.leaf) {
                Some(leaf) => leaf,
                None => own(&mut self.leaf, frames),
            };
            leaf.put(index, word);
        }
        (self.mapped, self.writable) = with_state((self.mapped, self.writable), index, all);
    }

    /// See [`PageMap::set_writable`].
    #[inline]
    fn set_writable(&mut self, number: u64, range: &Range<u64>, is_writable: &mut impl FnMut(u64, PageEntry) -> bool) {
        let (first, slots) = slots_in(number, range);
        let shared = if Arc::strong_count(&self.leaf) > 1 { PageFlags::SHARED.bits() } else { 0 };
        let reached = self.mapped & bits_of(&slots);
        let (before, mut after, mut bits) = (self.writable, 0, reached);
        while bits != 0 {
            let index = take_slot(&mut bits);
            let entry = PageEntry(self.leaf.entries[index] | shared | state_at((u64::MAX, before), index));
            after |= u64::from(is_writable(first + index as u64, entry)) << index;
        }
        self.writable = before & !reached | after;
    }
}

/// How page `index` is mapped, of the bits of a view's two words, as flags of an entry.
#[inline]
fn state_at((mapped, writable): (u64, u64), index: usize) -> u64 {
    let [mapped, writable] = [mapped, writable].map(|bits| bits >> index & 1);
    mapped << PageFlags::MAPPED.bits().trailing_zeros() | writable << PageFlags::WRITE.bits().trailing_zeros()
}

/// The two words with page `index` mapped as the flags of `entry` say: without a case, as every page comes here.
#[inline]
fn with_state((mapped, writable): (u64, u64), index: usize, entry: u64) -> (u64, u64) {
    let moved =
        |bits: u64, flag: PageFlags| bits & !(1 << index) | (entry >> flag.bits().trailing_zeros() & 1) << index;
    (moved(mapped, PageFlags::MAPPED), moved(writable, PageFlags::WRITE))
}

/// A copy of a leaf that others share, in its place, with a reference to each frame.
#[cold]
fn own<'a>(leaf: &'a mut Arc<Leaf>, frames: &mut FrameCounts<'_>) -> &'a mut Leaf {
    leaf.frames().for_each(|frame| frames.retain(frame));
    let mut copy = Arc::clone(leaf);
    // There are two references at least, so this makes the copy, where it will be.
    Arc::make_mut(&mut copy);
    // The others may have let go of it just now.
    if_last(core::mem::replace(leaf, copy), |last| last.frames().for_each(|frame| frames.release(frame)));
    Arc::get_mut(leaf).expect("INV: a copy that nobody else has seen")
}

/// Shows a leaf that is let go to `last` if nobody else has it: to exactly one of those that let go at the same time.
fn if_last(mut leaf: Arc<Leaf>, last: impl FnOnce(&Leaf)) {
    // The only reference's holder is the only one that could make another.
    if let Some(leaf) = Arc::get_mut(&mut leaf) {
        last(leaf);
    } else if let Some(leaf) = Arc::into_inner(leaf) {
        last(&leaf);
    }
}

/// Takes the lowest slot out of some.
fn take_slot(bits: &mut u64) -> usize {
    let slot = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    slot
}

/// The slots of a part that is not empty, a bit each.
fn bits_of(slots: &Range<usize>) -> u64 {
    u64::MAX << slots.start & u64::MAX >> (LEAF_PAGES - slots.end)
}

/// What [`PageMap::fill`] is given, where it is no great matter how it is called.
type Change<'a> = dyn FnMut(&FrameCounts<'_>, u64, Option<PageEntry>) -> Option<PageEntry> + 'a;

/// Known pages by what they are.
#[derive(Clone, Copy, Default)]
struct PageCounts {
    owned: u64,
    file: u64,
}

/// Known pages by page number (address / 4096).
#[derive(Default)]
pub(crate) struct PageMap {
    leaves: Leaves<View>,
    counts: PageCounts,
    resident_peak: u64,
    /// See [`Self::table_bound`].
    table_bound: u64,
    /// The page table that the last leaf lies in that got its first mapped page.
    last_table: Option<u64>,
    /// One that was emptied last, for the next page that is far from all others.
    spare: Option<Arc<Leaf>>,
    /// Which blocks are mapped by a large page, and how ([`blocks`]).
    large: BTreeMap<u64, BindFlags>,
}

impl PageMap {
    pub(crate) fn get(&self, page: u64) -> Option<PageEntry> {
        self.leaves.get(&(page >> LEAF_SHIFT))?.get(slot(page))
    }

    /// The first known page of `range`.
    pub(crate) fn next_known(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        self.leaves.range(leaf_numbers(&range)).find_map(|(number, view)| {
            let (first, slots) = slots_in(*number, &range);
            let bits = view.leaf.known & bits_of(&slots);
            (bits != 0).then(|| first + u64::from(bits.trailing_zeros()))
        })
    }

    /// Which of the 64 pages from `page` on are known, a bit each.
    pub(crate) fn known_from(&self, page: u64) -> u64 {
        let known = |number: u64| self.leaves.get(&number).map_or(0, |view| view.leaf.known);
        let (number, index) = (page >> LEAF_SHIFT, slot(page) as u32);
        match index {
            0 => known(number),
            _ => known(number) >> index | known(number + 1) << (LEAF_PAGES as u32 - index),
        }
    }

    /// How many pages from the start of `range` on are not known, or wanted as they are.
    #[inline]
    pub(crate) fn count_up(&self, range: Range<u64>, wants: impl Fn(PageEntry) -> bool) -> u64 {
        let mut page = range.start;
        while page < range.end {
            let number = page >> LEAF_SHIFT;
            if let Some(view) = self.leaves.get(&number) {
                let (first, slots) = slots_in(number, &(page..range.end));
                let mut bits = view.leaf.known & bits_of(&slots);
                while bits != 0 {
                    let index = take_slot(&mut bits);
                    if !view.get(index).is_none_or(&wants) {
                        return first + index as u64 - range.start;
                    }
                }
            }
            page = (number + 1) << LEAF_SHIFT;
        }
        range.end.saturating_sub(range.start)
    }

    /// The same from the end of `range` downwards.
    #[inline]
    pub(crate) fn count_down(&self, range: Range<u64>, wants: impl Fn(PageEntry) -> bool) -> u64 {
        let mut end = range.end;
        while range.start < end {
            let number = (end - 1) >> LEAF_SHIFT;
            if let Some(view) = self.leaves.get(&number) {
                let (first, slots) = slots_in(number, &(range.start..end));
                let mut bits = view.leaf.known & bits_of(&slots);
                while bits != 0 {
                    let index = LEAF_PAGES - 1 - bits.leading_zeros() as usize;
                    bits &= !(1 << index);
                    if !view.get(index).is_none_or(&wants) {
                        return range.end - (first + index as u64 + 1);
                    }
                }
            }
            end = number << LEAF_SHIFT;
        }
        range.end.saturating_sub(range.start)
    }

    /// Sets an entry where there is none.
    pub(crate) fn insert(&mut self, page: u64, entry: PageEntry, frames: &mut FrameCounts<'_>) {
        self.replace(page, entry, frames);
    }

    /// Sets an entry; the one before, whose reference the caller takes over.
    pub(crate) fn replace(&mut self, page: u64, entry: PageEntry, frames: &mut FrameCounts<'_>) -> Option<PageEntry> {
        let (number, index, spare) = (page >> LEAF_SHIFT, slot(page), &mut self.spare);
        let view = self.leaves.get_or_insert_with(number, || View::empty(spare.take()));
        let was_unmapped = view.mapped == 0;
        let before = view.get(index);
        view.set(index, Some(entry), frames);
        if was_unmapped && view.mapped != 0 {
            note_table(&mut self.last_table, &mut self.table_bound, number);
        }
        if !before.is_some_and(|before| entry.counts_as(before)) {
            adjust(&mut self.counts, before, Some(entry));
            self.note_peak();
        }
        before
    }

    /// Changes every known page of `range`, ascending: `change` gives the entry that replaces it,
    /// or `None` to forget it (the caller then has its reference).
    pub(crate) fn update(
        &mut self,
        range: Range<u64>,
        frames: &mut FrameCounts<'_>,
        mut change: impl FnMut(&FrameCounts<'_>, u64, PageEntry) -> Option<PageEntry>,
    ) {
        if range.is_empty() {
            return;
        }
        let mut emptied = Vec::new();
        let numbers = leaf_numbers(&range);
        {
            let (mut one, mut several);
            // Finding one is half the work of finding a range's ends.
            let leaves: &mut dyn Iterator<Item = (u64, &mut View)> = if numbers.start() == numbers.end() {
                let number = *numbers.start();
                one = self.leaves.get_mut(&number).into_iter().map(move |view| (number, view));
                &mut one
            } else {
                several = self.leaves.range_mut(numbers).map(|(number, view)| (*number, view));
                &mut several
            };
            for (number, view) in leaves {
                let (first, slots) = slots_in(number, &range);
                let mut bits = view.leaf.known & bits_of(&slots);
                while bits != 0 {
                    let index = take_slot(&mut bits);
                    let Some(entry) = view.get(index) else { continue };
                    let changed = change(frames, first + index as u64, entry);
                    view.set(index, changed, frames);
                    if !changed.is_some_and(|changed| changed.counts_as(entry)) {
                        adjust(&mut self.counts, Some(entry), changed);
                    }
                }
                emptied.extend((view.leaf.known == 0).then_some(number));
            }
        }
        for number in emptied {
            self.drop_empty(number);
        }
    }

    /// Lets stores through at the mapped pages of `range` for which `is_writable` says so, ascending, and at no other.
    /// What a page is does not change, so that a shared leaf stays shared.
    #[inline]
    pub(crate) fn set_writable(&mut self, range: Range<u64>, mut is_writable: impl FnMut(u64, PageEntry) -> bool) {
        if range.is_empty() {
            return;
        }
        let numbers = leaf_numbers(&range);
        // Finding one is half the work of finding a range's ends.
        if numbers.start() == numbers.end() {
            let number = *numbers.start();
            if let Some(view) = self.leaves.get_mut(&number) {
                view.set_writable(number, &range, &mut is_writable);
            }
            return;
        }
        for (number, view) in self.leaves.range_mut(numbers) {
            view.set_writable(*number, &range, &mut is_writable);
        }
    }

    /// [`Self::fill`] in a leaf that others share.
    #[cold]
    fn fill_shared(
        view: &mut View,
        counts: &mut PageCounts,
        (first, slots): (u64, Range<usize>),
        frames: &mut FrameCounts<'_>,
        change: &mut Change<'_>,
    ) {
        for index in slots {
            let entry = view.get(index);
            let Some(changed) = change(frames, first + index as u64, entry) else { continue };
            view.set(index, Some(changed), frames);
            if !entry.is_some_and(|entry| changed.counts_as(entry)) {
                adjust(counts, entry, Some(changed));
            }
        }
    }

    /// Visits every page of `range`, known or not, ascending; what `change` gives becomes its entry, `None` leaves the
    /// page as it is. The caller takes over the reference of an entry that it replaces. For short ranges: each page
    /// takes time, and so does each leaf.
    pub(crate) fn fill(
        &mut self,
        range: Range<u64>,
        frames: &mut FrameCounts<'_>,
        mut change: impl FnMut(&FrameCounts<'_>, u64, Option<PageEntry>) -> Option<PageEntry>,
    ) {
        if range.is_empty() {
            return;
        }
        for number in leaf_numbers(&range) {
            let spare = &mut self.spare;
            let view = self.leaves.get_or_insert_with(number, || View::empty(spare.take()));
            let was_unmapped = view.mapped == 0;
            let (first, slots) = slots_in(number, &range);
            if let Some(leaf) = Arc::get_mut(&mut view.leaf) {
                let mut state = (view.mapped, view.writable);
                for index in slots {
                    let word = leaf.entries[index];
                    let entry = (word != 0).then(|| PageEntry(word | state_at(state, index)));
                    let Some(changed) = change(frames, first + index as u64, entry) else { continue };
                    leaf.put(index, changed.0 & !STATE);
                    state = with_state(state, index, changed.0);
                    if !entry.is_some_and(|entry| changed.counts_as(entry)) {
                        adjust(&mut self.counts, entry, Some(changed));
                    }
                }
                (view.mapped, view.writable) = state;
            } else {
                Self::fill_shared(view, &mut self.counts, (first, slots), frames, &mut change);
            }
            if was_unmapped && view.mapped != 0 {
                note_table(&mut self.last_table, &mut self.table_bound, number);
            }
            if view.leaf.known == 0 {
                self.drop_empty(number);
            }
        }
        self.note_peak();
    }

    /// Maps every page of `range` that is not known to the frame that belongs to it, as `flags` say: `first` is that of
    /// the first page, and they lie one behind the other. For frames that need no counting: they are a file's and are
    /// never counted, or their references come with them. `mapped` gets the pages by runs, ascending. Answers how many
    /// they are.
    pub(crate) fn fill_unknown(
        &mut self,
        range: Range<u64>,
        (first, flags): (FrameNumber, PageFlags),
        frames: &mut FrameCounts<'_>,
        mut mapped: impl FnMut(Range<u64>),
    ) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut count = 0;
        for number in leaf_numbers(&range) {
            let spare = &mut self.spare;
            let view = self.leaves.get_or_insert_with(number, || View::empty(spare.take()));
            let (first_page, slots) = slots_in(number, &range);
            let mut bits = bits_of(&slots) & !view.leaf.known;
            if bits == 0 {
                continue;
            }
            if view.mapped == 0 {
                note_table(&mut self.last_table, &mut self.table_bound, number);
            }
            view.mapped |= bits;
            view.writable = view.writable & !bits | if flags.contains(PageFlags::WRITE) { bits } else { 0 };
            count += u64::from(bits.count_ones());
            let leaf = match Arc::get_mut(&mut view.leaf) {
                Some(leaf) => leaf,
                None => own(&mut view.leaf, frames),
            };
            leaf.known |= bits;
            while bits != 0 {
                let start = bits.trailing_zeros();
                let length = (!(bits >> start)).trailing_zeros();
                let run = first_page + u64::from(start)..first_page + u64::from(start + length);
                let frame = FrameNumber(first.0 + (run.start - range.start));
                let mut word = PageEntry::new(frame, flags).0 & !STATE;
                for entry in &mut leaf.entries[start as usize..(start + length) as usize] {
                    *entry = word;
                    word += 1 << FRAME_SHIFT;
                }
                bits &= bits.wrapping_add(1 << start);
                mapped(run);
            }
        }
        if flags.contains(PageFlags::OWNED) {
            self.counts.owned += count;
        } else {
            self.counts.file += count;
        }
        self.note_peak();
        count
    }

    /// Visits the mapped pages of `range`, ascending.
    pub(crate) fn mapped_in(&self, range: Range<u64>, mut visit: impl FnMut(u64)) {
        if range.is_empty() {
            return;
        }
        for (number, view) in self.leaves.range(leaf_numbers(&range)) {
            let (first, slots) = slots_in(*number, &range);
            let mut bits = view.mapped & bits_of(&slots);
            while bits != 0 {
                visit(first + take_slot(&mut bits) as u64);
            }
        }
    }

    /// Takes a leaf out in which nothing is known any more; others may share it.
    fn drop_empty(&mut self, number: u64) {
        let leaf = self.leaves.remove(&number).map(|view| view.leaf);
        self.spare = leaf.filter(|leaf| Arc::strong_count(leaf) == 1).or_else(|| self.spare.take());
    }

    /// Each page that is writable, from `start` on, becomes read-only if `protect` says so. Ends behind some
    /// `count` pages; the page to go on from is answered.
    pub(crate) fn protect_for_fork(
        &mut self,
        start: u64,
        count: u64,
        mut protect: impl FnMut(u64, PageEntry) -> bool,
    ) -> Option<u64> {
        let mut left = count;
        for (number, view) in self.leaves.range_mut(start >> LEAF_SHIFT..) {
            if left == 0 {
                return Some(number << LEAF_SHIFT);
            }
            let mut bits = view.writable;
            // A look at a leaf takes time, too.
            left = left.saturating_sub(u64::from(bits.count_ones()).max(LEAF_LOOK_PAGES));
            while bits != 0 {
                let index = take_slot(&mut bits);
                let page = (number << LEAF_SHIFT) + index as u64;
                if view.get(index).is_some_and(|entry| protect(page, entry)) {
                    view.writable &= !(1 << index);
                }
            }
        }
        None
    }

    /// All that is known, for another space, which maps nothing of it yet. `ENOMEM`.
    pub(crate) fn share(&mut self) -> Result<Self> {
        let mut other = Self { counts: self.counts, ..Self::default() };
        other.note_peak();
        let shared = |view: &View| View { leaf: Arc::clone(&view.leaf), mapped: 0, writable: 0 };
        other.leaves = self.leaves.copy_with(shared)?;
        Ok(other)
    }

    /// Forgets all pages; the caller releases their frames.
    pub(crate) fn take_leaves(&mut self) -> TakenLeaves {
        self.counts = PageCounts::default();
        self.large.clear();
        TakenLeaves(core::mem::take(&mut self.leaves).into_values())
    }

    /// How often a leaf got its first mapped page in another page table than the leaf before: no fewer than the page
    /// tables of the lowest level that were made for them.
    pub(crate) fn table_bound(&self) -> u64 {
        self.table_bound
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

/// Leaves that no page map has any more.
pub(crate) struct TakenLeaves(IntoValues<View>);

impl TakenLeaves {
    /// Lets go of the leaves of some `count` pages; `release` gets the frames of the pages that no other space shares,
    /// and their references. False: there are none left.
    pub(crate) fn release_some(&mut self, count: u64, mut release: impl FnMut(FrameRun)) -> bool {
        let leaves = self.0.by_ref().take(count as usize / LEAF_PAGES);
        leaves.for_each(|view| if_last(view.leaf, |leaf| leaf.runs(|run, _| release(run))));
        self.0.len() > 0
    }
}

/// Leaves in a page table.
const TABLE_LEAVES: u64 = 512 / LEAF_PAGES as u64;

/// Notes that leaf `number` got its first mapped page.
fn note_table(last: &mut Option<u64>, bound: &mut u64, number: u64) {
    let table = Some(number / TABLE_LEAVES);
    *bound += u64::from(core::mem::replace(last, table) != table);
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

#[cfg(test)]
mod tests {
    use aegis_abi::FrameNumber;
    use alloc::sync::Arc;

    use super::{PageEntry, PageFlags, PageMap};
    use crate::fake::FakeMachine;
    use crate::mem::frames::FramePool;

    fn pool() -> Arc<FramePool> {
        let machine = FakeMachine::with_frames(64);
        FramePool::new(machine.clone(), machine, 64 << 12)
    }

    fn entry(frame: FrameNumber) -> PageEntry {
        PageEntry::new(frame, PageFlags::OWNED | PageFlags::MAPPED | PageFlags::WRITE)
    }

    #[test]
    fn counts_end_where_a_walk_page_by_page_ends() {
        let pool = pool();
        let mut map = PageMap::default();
        let wanted = pool.allocate().expect("there are frames");
        let known = [3, 63, 64, 65, 130, 250].map(|page| (page, pool.allocate().expect("there are frames")));
        for (page, frame) in known.into_iter().chain([4, 62, 66, 127, 128, 249].map(|page| (page, wanted))) {
            map.insert(page, entry(frame), &mut pool.lock());
        }
        let wants = |entry: PageEntry| entry.frame() == wanted;
        let is_free = |map: &PageMap, page: u64| map.get(page).is_none_or(wants);
        for start in (0..300).step_by(3) {
            for end in (start..330).step_by(11) {
                let up = (start..end).take_while(|&page| is_free(&map, page)).count() as u64;
                assert_eq!(map.count_up(start..end, wants), up, "{start}..{end}");
                let down = (start..end).rev().take_while(|&page| is_free(&map, page)).count() as u64;
                assert_eq!(map.count_down(start..end, wants), down, "{start}..{end}");
            }
        }
    }

    #[test]
    fn the_known_pages_of_a_stretch() {
        let pool = pool();
        let mut map = PageMap::default();
        for page in [3, 63, 64, 100, 127, 130] {
            map.insert(page, entry(pool.allocate().expect("there are frames")), &mut pool.lock());
        }
        for start in 0..140 {
            let expected = (0..64).fold(0, |bits, place| bits | u64::from(map.get(start + place).is_some()) << place);
            assert_eq!(map.known_from(start), expected, "{start}");
        }
        let mut mapped = alloc::vec::Vec::new();
        map.mapped_in(63..128, |page| mapped.push(page));
        assert_eq!(mapped, [63, 64, 100, 127]);
        assert_eq!(map.table_bound(), 1, "leaves of one page table");
    }

    #[test]
    fn a_leaf_that_was_emptied_serves_again() {
        let pool = pool();
        let mut map = PageMap::default();
        let frame = pool.allocate().expect("there are frames");
        for turn in 0..4 {
            let pages = turn * 1000..turn * 1000 + 64;
            map.fill(pages.clone(), &mut pool.lock(), |_, page, before| {
                assert_eq!(before, None);
                (page % 3 == 0).then_some(entry(frame))
            });
            assert_eq!(map.protect_for_fork(0, u64::MAX, |_, _| true), None);
            let other = map.share().expect("there is memory");
            let of_both = [&mut map, &mut { other }].map(|map| {
                let mut count = 0;
                map.update(pages.clone(), &mut pool.lock(), |_, page, entry| {
                    assert_eq!((page % 3, entry.frame()), (0, frame));
                    count += 1;
                    None
                });
                count
            });
            assert!(of_both == [21, 21] || of_both == [22, 22], "{of_both:?}");
            assert_eq!((map.owned_count(), map.get(pages.start + 3 - pages.start % 3)), (0, None));
        }
    }
}
