//! Areas: ranges of an address space with one backing and one set of rights, and the tree that
//! holds them.
//!
//! Areas are page-aligned, not empty and do not overlap; neighbours that could be one area are
//! joined where they are made, as Linux joins them, because programs see areas in
//! `/proc/self/maps`, count against [`AREA_COUNT_MAX`], and `mremap` works on one. The tree keeps
//! the sums that limits and `/proc` need, so that no call walks all areas for them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};
use bitflags::bitflags;

use crate::mem::source::{FileIdentity, PageSource};
use crate::mem::window::FaultWindow;

/// Most areas of an address space (Linux's `vm.max_map_count`).
pub const AREA_COUNT_MAX: usize = 65_530;
/// Bytes kept free below a growing stack (Linux's `stack_guard_gap`, 256 pages).
pub const STACK_GUARD_BYTES: u64 = 256 * PAGE_SIZE;

bitflags! {
    /// What a program may do with memory; the bits are `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Protection: u8 {
        /// Loads. On this processor, granted with any other right as well.
        const READ = 1 << 0;
        /// Stores.
        const WRITE = 1 << 1;
        /// Instruction fetches.
        const EXECUTE = 1 << 2;
    }
}

bitflags! {
    /// Properties of an area.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AreaFlags: u16 {
        /// A stack: grows downwards when the page below is touched (`MAP_GROWSDOWN`).
        const GROWS_DOWN = 1 << 0;
        /// Not counted as a promise of memory (`MAP_NORESERVE`).
        const NO_RESERVE = 1 << 1;
        /// Counted as locked (`mlock`, `MAP_LOCKED`). Nothing is ever paged out, so this is accounting.
        const LOCKED = 1 << 2;
        /// Not inherited by a forked child (`MADV_DONTFORK`).
        const DONT_FORK = 1 << 3;
        /// Zero in a forked child (`MADV_WIPEONFORK`).
        const WIPE_ON_FORK = 1 << 4;
    }
}

/// What an area is for, where `/proc/self/maps` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AreaLabel {
    /// A mapping of the program.
    #[default]
    None,
    /// The memory of `brk`.
    Heap,
    /// The first thread's stack.
    Stack,
    /// The vDSO's code.
    Vdso,
    /// The vDSO's data.
    Vvar,
    /// Where rewritten system-call sites jump to.
    Trampolines,
}

/// Where an area's pages come from.
#[derive(Clone)]
pub enum Backing {
    /// Zeros, private to the address space.
    Anonymous,
    /// A file, or shared memory.
    File(FileBacking),
}

/// A part of a file.
#[derive(Clone)]
pub struct FileBacking {
    /// The file.
    pub source: Arc<dyn PageSource>,
    /// Its page at the area's start.
    pub first_index: u64,
    /// Stores go to the file (else to private copies).
    pub is_shared: bool,
}

/// One range.
#[derive(Clone)]
pub struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    pub(crate) maximum: Protection,
    pub(crate) flags: AreaFlags,
    pub(crate) label: AreaLabel,
    pub(crate) backing: Backing,
    pub(crate) window: FaultWindow,
}

impl Area {
    /// First address.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// First address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Current rights.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Properties.
    #[must_use]
    pub fn flags(&self) -> AreaFlags {
        self.flags
    }

    /// What it is for.
    #[must_use]
    pub fn label(&self) -> AreaLabel {
        self.label
    }

    /// Whether stores are seen by others.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(&self.backing, Backing::File(file) if file.is_shared)
    }

    /// Whether it is private anonymous memory.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous)
    }

    /// Offset in the file; 0 for anonymous memory.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.file().map_or(0, |file| file.first_index << PAGE_SHIFT)
    }

    /// The file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&FileBacking> {
        match &self.backing {
            Backing::Anonymous => None,
            Backing::File(file) => Some(file),
        }
    }

    /// The file's identity; zeros for anonymous memory.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.file().map_or_else(FileIdentity::default, |file| file.source.identity())
    }

    /// The name in `/proc/self/maps`, empty if there is none.
    #[must_use]
    pub fn name(&self) -> String {
        match self.label {
            AreaLabel::Heap => String::from("[heap]"),
            AreaLabel::Stack => String::from("[stack]"),
            AreaLabel::Vdso => String::from("[vdso]"),
            AreaLabel::Vvar => String::from("[vvar]"),
            AreaLabel::Trampolines => String::from("[exos]"),
            AreaLabel::None => self.file().map_or_else(String::new, |file| file.source.path()),
        }
    }

    /// Its page numbers.
    pub(crate) fn pages(&self) -> Range<u64> {
        self.start >> PAGE_SHIFT..self.end >> PAGE_SHIFT
    }

    pub(crate) fn page_count(&self) -> u64 {
        (self.end - self.start) >> PAGE_SHIFT
    }

    /// Page of the file that lies at `page`.
    pub(crate) fn file_index(&self, page: u64) -> u64 {
        self.file().map_or(0, |file| file.first_index + (page - (self.start >> PAGE_SHIFT)))
    }

    /// Counted under `RLIMIT_DATA`: private, writable, no stack (Linux's `is_data_mapping`).
    pub(crate) fn is_data(&self) -> bool {
        is_data(self.protection, self.flags, self.is_shared())
    }

    /// Cuts at `address`; returns the upper part.
    fn split_off(&mut self, address: u64) -> Area {
        let mut upper = self.clone();
        if let Backing::File(file) = &mut upper.backing {
            file.first_index += (address - self.start) >> PAGE_SHIFT;
        }
        upper.start = address;
        self.end = address;
        upper
    }

    /// Whether `upper`, which begins where this one ends, continues it in every respect.
    fn continues_in(&self, upper: &Area) -> bool {
        let same_backing = match (&self.backing, &upper.backing) {
            (Backing::Anonymous, Backing::Anonymous) => true,
            (Backing::File(low), Backing::File(high)) => {
                Arc::ptr_eq(&low.source, &high.source)
                    && low.is_shared == high.is_shared
                    && low.first_index + self.page_count() == high.first_index
            }
            _ => false,
        };
        self.end == upper.start
            && self.protection == upper.protection
            && self.maximum == upper.maximum
            && self.flags == upper.flags
            && self.label == upper.label
            && same_backing
    }
}

/// See [`Area::is_data`].
pub(crate) fn is_data(protection: Protection, flags: AreaFlags, is_shared: bool) -> bool {
    protection.contains(Protection::WRITE) && !is_shared && !flags.contains(AreaFlags::GROWS_DOWN)
}

/// Sums over all areas, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaTotals {
    /// All.
    pub total: u64,
    /// Private writable, without stacks.
    pub data: u64,
    /// Stacks.
    pub stack: u64,
    /// Executable and not writable.
    pub code: u64,
    /// Locked.
    pub locked: u64,
}

/// What is known about free ranges, so that placing many areas costs O(1) each: every hole that
/// ends above `below` (and under the top of the search) is at most `largest_hole` long.
#[derive(Clone, Copy, Debug)]
struct SearchHint {
    top: u64,
    below: u64,
    largest_hole: u64,
}

/// The areas of an address space by start address.
pub(crate) struct AreaTree {
    areas: BTreeMap<u64, Area>,
    totals: AreaTotals,
    hint: SearchHint,
}

impl AreaTree {
    pub(crate) fn new() -> Self {
        Self {
            areas: BTreeMap::new(),
            totals: AreaTotals::default(),
            hint: SearchHint { top: 0, below: 0, largest_hole: u64::MAX },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.areas.len()
    }

    pub(crate) fn totals(&self) -> AreaTotals {
        self.totals
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Area> {
        self.areas.values()
    }

    /// The area that holds `address`.
    pub(crate) fn find(&self, address: u64) -> Option<&Area> {
        let (_, area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some(area)
    }

    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut Area> {
        let (_, area) = self.areas.range_mut(..=address).next_back()?;
        (address < area.end).then_some(area)
    }

    /// The first area that ends above `address`.
    pub(crate) fn find_at_or_above(&self, address: u64) -> Option<&Area> {
        self.find(address).or_else(|| self.areas.range(address..).next().map(|(_, area)| area))
    }

    /// The last area that ends at or below `address`, which lies in no area or at the start of one.
    pub(crate) fn find_below(&self, address: u64) -> Option<&Area> {
        self.areas.range(..address).next_back().map(|(_, area)| area)
    }

    /// Areas that touch `range`, ascending.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Area> {
        let first = self.find(range.start).map_or(range.start, |area| area.start);
        self.areas.range(first..range.end.max(first)).map(|(_, area)| area)
    }

    pub(crate) fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Adds an area to a free range, joining it with its neighbours where they continue each other.
    pub(crate) fn insert(&mut self, mut area: Area) {
        debug_assert!(area.start < area.end && self.is_free(area.start..area.end));
        if let Some(lower) = self.find_below(area.start)
            && lower.continues_in(&area)
        {
            let lower = self.take(lower.start);
            area.backing = lower.backing;
            area.window = lower.window;
            area.start = lower.start;
        }
        if let Some(upper) = self.areas.get(&area.end)
            && area.continues_in(upper)
        {
            let upper = self.take(upper.start);
            area.end = upper.end;
        }
        self.put(area);
    }

    /// Removes the range from all areas; those that straddle its ends are cut.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Vec<Area> {
        self.split_at(range.start);
        self.split_at(range.end);
        let starts: Vec<u64> = self.areas.range(range.clone()).map(|(&start, _)| start).collect();
        let removed: Vec<Area> = starts.into_iter().map(|start| self.take(start)).collect();
        if !removed.is_empty() {
            let low = self.find_below(range.start).map_or(PROGRAM_BASE, |area| area.end);
            let high = self.areas.range(range.end..).next().map_or(PROGRAM_END, |(&start, _)| start);
            self.note_hole(low..high);
        }
        removed
    }

    /// How many areas cutting at both ends of `range` would add.
    pub(crate) fn splits_at_ends(&self, range: &Range<u64>) -> usize {
        let cuts = |address| self.find(address).is_some_and(|area| area.start < address);
        usize::from(cuts(range.start)) + usize::from(cuts(range.end))
    }

    /// Changes the parts of all areas inside `range`, then joins what continues. Start and end stay as they are.
    pub(crate) fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut Area)) {
        for mut area in self.remove(range) {
            change(&mut area);
            self.insert(area);
        }
        // `remove` noted a hole that is filled again; the hint stays true because it bounds holes from above.
    }

    /// Moves the end of the area that starts at `start`.
    pub(crate) fn set_end(&mut self, start: u64, end: u64) {
        let mut area = self.take(start);
        area.end = end;
        self.insert(area);
    }

    /// Moves the start of a growing stack down.
    pub(crate) fn set_start(&mut self, start: u64, new_start: u64) {
        let mut area = self.take(start);
        area.start = new_start;
        self.put(area);
    }

    /// The highest free range of `length` bytes that ends at or below `top`, keeping the guard gap below stacks.
    pub(crate) fn find_hole(&mut self, length: u64, top: u64) -> Option<u64> {
        let known = self.hint.top == top && length > self.hint.largest_hole;
        let mut hole_end = if known { self.hint.below.min(top) } else { top };
        let mut largest = if known { self.hint.largest_hole } else { 0 };
        let mut found = None;
        // A stack just above the starting point keeps its gap, too.
        if let Some((_, above)) = self.areas.range(hole_end..).next() {
            hole_end = hole_end.min(lower_bound(above));
        }
        for (_, area) in self.areas.range(..hole_end).rev() {
            let hole = hole_end.saturating_sub(area.end);
            if hole >= length {
                found = Some(hole_end - length);
                break;
            }
            largest = largest.max(hole);
            hole_end = hole_end.min(lower_bound(area));
        }
        if found.is_none() && hole_end >= PROGRAM_BASE && hole_end - PROGRAM_BASE >= length {
            found = Some(hole_end - length);
        }
        self.hint = SearchHint { top, below: hole_end, largest_hole: largest };
        found
    }

    fn note_hole(&mut self, hole: Range<u64>) {
        if hole.end > self.hint.below {
            self.hint.largest_hole = self.hint.largest_hole.max(hole.end - hole.start);
        }
    }

    fn split_at(&mut self, address: u64) {
        let Some(area) = self.find(address) else {
            return;
        };
        if area.start == address {
            return;
        }
        let mut lower = self.take(area.start);
        let upper = lower.split_off(address);
        self.put(lower);
        self.put(upper);
    }

    fn take(&mut self, start: u64) -> Area {
        let area = self.areas.remove(&start).expect("INV: the caller found an area here");
        self.account(&area, u64::wrapping_sub);
        area
    }

    fn put(&mut self, area: Area) {
        self.account(&area, u64::wrapping_add);
        self.areas.insert(area.start, area);
    }

    fn account(&mut self, area: &Area, apply: impl Fn(u64, u64) -> u64) {
        let pages = area.page_count();
        let totals = &mut self.totals;
        totals.total = apply(totals.total, pages);
        if area.is_data() {
            totals.data = apply(totals.data, pages);
        }
        if area.flags.contains(AreaFlags::GROWS_DOWN) {
            totals.stack = apply(totals.stack, pages);
        } else if area.protection.contains(Protection::EXECUTE) && !area.protection.contains(Protection::WRITE) {
            totals.code = apply(totals.code, pages);
        }
        if area.flags.contains(AreaFlags::LOCKED) {
            totals.locked = apply(totals.locked, pages);
        }
    }
}

/// Where a hole below `area` must end.
pub(crate) fn lower_bound(area: &Area) -> u64 {
    if area.flags.contains(AreaFlags::GROWS_DOWN) { area.start.saturating_sub(STACK_GUARD_BYTES) } else { area.start }
}
