//! An address space: areas, known pages, and the mapping calls that make and unmake areas.
//!
//! The other calls are in the neighbours: [`super::protect`] (`mprotect`), [`super::remap`] (`mremap`),
//! [`super::advise`] (`madvise` and other calls over ranges), [`super::fault`], [`super::fork`], [`super::user`]
//! (bytes). All take `&mut self`: a space that threads share is locked outside.
//!
//! Errors and their order are Linux 6.1's; where a function names an error without a reason, the
//! manual page has it. Every change of page tables goes through one [`Binder`] batch per call.

use alloc::sync::Arc;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::memory::BindFlags;
use aegis_abi::{CapSlot, FrameNumber};

use crate::error::{Errno, Result};
use crate::mem::area::{
    AREA_COUNT_MAX, Area, AreaFlags, AreaLabel, AreaTotals, Backing, FileBacking, Protection, is_data,
};
use crate::mem::area_list::AreaList;
use crate::mem::binder::{Binder, MapRun, PIECE_PAGES, is_long};
use crate::mem::deferred_unmap::DeferredRanges;
use crate::mem::first_faults::{Ahead, FirstFaults, Notes, Start};
use crate::mem::frames::{FrameCounts, FramePool};
use crate::mem::handlers::Handlers;
use crate::mem::kept::Kept;
use crate::mem::page_map::blocks::Whole;
use crate::mem::page_map::census::{PresentPage, PresentPages};
use crate::mem::page_map::{PageEntry, PageFlags, PageMap};
use crate::mem::shared::SharedState;
use crate::mem::source::{FileIdentity, PageSource, SharedMemory};
use crate::mem::window::FaultWindow;
use crate::rewrite::sites::SiteTable;
use crate::sync::Mutex;

/// Resource limits that address spaces keep, in bytes; `u64::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLimits {
    /// `RLIMIT_AS`.
    pub address_space_bytes: u64,
    /// `RLIMIT_DATA`.
    pub data_bytes: u64,
    /// `RLIMIT_STACK`.
    pub stack_bytes: u64,
    /// `RLIMIT_MEMLOCK`.
    pub locked_bytes: u64,
}

impl Default for SpaceLimits {
    /// Linux's: an 8 MiB stack, 8 MiB locked, else none.
    fn default() -> Self {
        Self { address_space_bytes: u64::MAX, data_bytes: u64::MAX, stack_bytes: 8 << 20, locked_bytes: 8 << 20 }
    }
}

/// Where `MAP_32BIT` ends.
const LOW_END: u64 = 1 << 31;

/// How the address of a mapping is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Here if it is free, else anywhere below the mapping base; 0 asks for anywhere.
    Hint(u64),
    /// Exactly here, in place of what is there (`MAP_FIXED`).
    Fixed(u64),
    /// Exactly here if it is free (`MAP_FIXED_NOREPLACE`), else `EEXIST`.
    FixedNoReplace(u64),
    /// Anywhere in the first 2 GiB (`MAP_32BIT`).
    Low,
}

/// The backing of a mapping.
#[derive(Clone)]
pub enum MapBacking {
    /// Zeros.
    Anonymous,
    /// A file from `offset_bytes` on.
    File {
        /// The file.
        source: Arc<dyn PageSource>,
        /// Page-aligned, else `EINVAL`.
        offset_bytes: u64,
        /// The descriptor is open for reading, else `EACCES`.
        is_readable: bool,
        /// The descriptor is open for writing; a shared mapping without it is never writable.
        is_writable: bool,
    },
}

/// The arguments of `mmap`.
#[derive(Clone)]
pub struct MapRequest {
    /// Address that is asked for.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub length: u64,
    /// Rights.
    pub protection: Protection,
    /// `MAP_SHARED` rather than `MAP_PRIVATE`.
    pub is_shared: bool,
    /// `GROWS_DOWN`, `NO_RESERVE`, `LOCKED`.
    pub flags: AreaFlags,
    /// `MAP_POPULATE`: resolve all pages now, as far as possible.
    pub populate: bool,
    /// Memory or file behind it.
    pub backing: MapBacking,
    /// Name for `/proc/self/maps`.
    pub label: AreaLabel,
}

impl MapRequest {
    /// A private anonymous mapping without flags.
    #[must_use]
    pub fn anonymous(placement: Placement, length: u64, protection: Protection) -> Self {
        Self {
            placement,
            length,
            protection,
            is_shared: false,
            flags: AreaFlags::empty(),
            populate: false,
            backing: MapBacking::Anonymous,
            label: AreaLabel::None,
        }
    }

    /// A private mapping of a file that is open for reading.
    #[must_use]
    pub fn file(
        placement: Placement,
        length: u64,
        protection: Protection,
        source: Arc<dyn PageSource>,
        offset_bytes: u64,
    ) -> Self {
        let backing = MapBacking::File { source, offset_bytes, is_readable: true, is_writable: false };
        Self { backing, ..Self::anonymous(placement, length, protection) }
    }
}

/// Figures for `/proc/self/{status,statm}`, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceTotals {
    /// Sums over areas.
    pub areas: AreaTotals,
    /// The most that `areas.total` has been.
    pub total_peak: u64,
    /// Private pages present.
    pub resident_anonymous: u64,
    /// File and shared pages present.
    pub resident_file: u64,
    /// The most pages present at once.
    pub resident_peak: u64,
    /// Private pages that large pages map.
    pub large: u64,
}

/// Counts of faults by how they ended, for `getrusage` and `--stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Faults resolved.
    pub resolved: u64,
    /// Pages mapped by them.
    pub pages: u64,
    /// Pages that were copied, of those.
    pub copied: u64,
}

/// One program's memory.
pub struct AddressSpace {
    pub(crate) pool: Arc<FramePool>,
    pub(crate) shared: Arc<SharedState>,
    /// The environment whose page table this is.
    pub(crate) environment: CapSlot,
    pub(crate) areas: AreaList,
    pub(crate) pages: PageMap,
    pub(crate) binder: Binder,
    pub(crate) limits: SpaceLimits,
    /// Top of the search for free ranges.
    pub(crate) mapping_base: u64,
    pub(crate) break_start: u64,
    pub(crate) break_end: u64,
    pub(crate) lock_future: bool,
    /// `PR_SET_THP_DISABLE`.
    pub(crate) has_no_large_pages: bool,
    pub(crate) total_peak: u64,
    pub(crate) fault_counts: FaultCounts,
    /// Rewritten system-call sites, which a copy of this space may have too.
    pub(crate) sites: Arc<SiteTable>,
    /// What the program is asked itself ([`super::native`]).
    pub(crate) handlers: Handlers,
    /// Page tables are changed at the end of the batch.
    pub(crate) is_batching: bool,
    /// Behind the last block of a file that was mapped at a fault.
    pub(crate) file_end: u64,
    /// What children do first ([`super::first_faults`]).
    pub(crate) child_faults: Arc<Mutex<FirstFaults>>,
    /// Where its own first faults are noted.
    pub(crate) notes: Option<Notes>,
    /// While a program's first faults are resolved: which neighbours are, too.
    pub(crate) ahead: Option<Ahead>,
    /// The program that was loaded, if what it touches is to be looked at when it ends.
    pub(crate) start: Option<Start>,
    /// What its page tables have from others and leave to others.
    pub(crate) kept: Kept,
    pub(crate) deferred: Option<Arc<DeferredRanges>>,
}

impl AddressSpace {
    /// An empty space over the page table of `environment`; mappings are placed below `mapping_base`, trampolines in
    /// the [`super::TRAMPOLINE_ROOM_BYTES`] above it.
    #[must_use]
    pub fn new(shared: Arc<SharedState>, environment: CapSlot, mapping_base: u64, limits: SpaceLimits) -> Self {
        Self {
            pool: Arc::clone(shared.pool()),
            shared,
            environment,
            areas: AreaList::new(),
            pages: PageMap::default(),
            binder: Binder::new(),
            limits,
            mapping_base: mapping_base.min(PROGRAM_END) & !(PAGE_SIZE - 1),
            break_start: 0,
            break_end: 0,
            lock_future: false,
            has_no_large_pages: false,
            total_peak: 0,
            fault_counts: FaultCounts::default(),
            sites: Arc::default(),
            handlers: Handlers::default(),
            is_batching: false,
            file_end: 0,
            child_faults: Arc::default(),
            notes: None,
            ahead: None,
            start: None,
            kept: Kept::default(),
            deferred: None,
        }
    }

    /// `mmap`: the address of the new mapping.
    ///
    /// `EINVAL` length 0, misaligned offset or fixed address, a growing stack of a file or shared;
    /// `ENOMEM` length or place beyond the address space, too many areas, a limit; `EOVERFLOW` file
    /// offset; `EEXIST`; `EPERM` a fixed address below `PROGRAM_BASE`; `EACCES` the descriptor's
    /// mode; `EAGAIN` the lock limit.
    pub fn map(&mut self, request: MapRequest) -> Result<u64> {
        if request.length == 0 {
            return Err(Errno::EINVAL);
        }
        let length = page_align(request.length).ok_or(Errno::ENOMEM)?;
        if let MapBacking::File { offset_bytes, .. } = &request.backing {
            if !offset_bytes.is_multiple_of(PAGE_SIZE) {
                return Err(Errno::EINVAL);
            }
            offset_bytes.checked_add(length).ok_or(Errno::EOVERFLOW)?;
        }
        if self.areas.len() > AREA_COUNT_MAX {
            return Err(Errno::ENOMEM);
        }
        let start = self.place(request.placement, length)?;
        let range = start..start + length;
        let mut flags = request.flags;
        if self.lock_future {
            flags |= AreaFlags::LOCKED;
        }
        self.check_lock(flags, length)?;
        let (backing, maximum) = self.backing_of(&request)?;
        self.check_growth(request.protection, flags, request.is_shared, &range)?;
        if !self.areas.can_be_cut(&range) {
            return Err(Errno::ENOMEM);
        }
        self.await_left(&range);
        self.remove_range(range.clone())?;
        let grows_down = flags.contains(AreaFlags::GROWS_DOWN);
        let pages = start >> PAGE_SHIFT..range.end >> PAGE_SHIFT;
        self.note_mapping(&range, (request.protection, request.label), &backing);
        self.areas.insert(Area {
            start,
            end: range.end,
            protection: request.protection,
            maximum,
            flags,
            label: request.label,
            backing,
            window: FaultWindow::new(&pages, grows_down),
        });
        self.repeat_in_mapping();
        self.note_peak();
        if request.populate || flags.contains(AreaFlags::LOCKED) {
            // As on Linux, a mapping that cannot be populated is a mapping all the same.
            let _ = self.populate(range);
        }
        Ok(start)
    }

    /// `munmap`. `EINVAL` misaligned, empty or beyond the address space; `ENOMEM` a cut would make too many areas.
    pub fn unmap(&mut self, start: u64, length: u64) -> Result<()> {
        let range = checked_range(start, length)?;
        if self.areas.len() >= AREA_COUNT_MAX && self.areas.splits_at_ends(&range) == 2 {
            return Err(Errno::ENOMEM);
        }
        self.remove_range(range)
    }

    /// `brk`: the break after the call, which is the old one if the new one cannot be had.
    pub fn set_break(&mut self, address: u64) -> u64 {
        if address >= self.break_start && self.try_set_break(address).is_ok() {
            self.break_end = address;
        }
        self.break_end
    }

    /// Fixes where the heap begins (page-aligned); the loader calls it once.
    pub fn set_break_start(&mut self, address: u64) {
        self.break_start = address;
        self.break_end = address;
    }

    /// First address and current end of the heap.
    #[must_use]
    pub fn heap(&self) -> Range<u64> {
        self.break_start..self.break_end
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> SpaceLimits {
        self.limits
    }

    /// Changes the limits; what exceeds them already stays.
    pub fn set_limits(&mut self, limits: SpaceLimits) {
        self.limits = limits;
    }

    /// Moves the top of the search for free ranges, as `execve` does when the stack limit has changed.
    pub fn set_mapping_base(&mut self, mapping_base: u64) {
        self.mapping_base = mapping_base.min(PROGRAM_END) & !(PAGE_SIZE - 1);
    }

    /// The pool that the pages come from.
    #[must_use]
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    /// The environment whose page table this is.
    #[must_use]
    pub fn environment(&self) -> CapSlot {
        self.environment
    }

    /// The areas in ascending order, for `/proc/self/maps`.
    pub fn areas(&self) -> impl Iterator<Item = &Area> {
        self.areas.iter()
    }

    /// The areas that end behind `address`, in ascending order: where a look at them goes on that gave the space back.
    pub fn areas_from(&self, address: u64) -> impl Iterator<Item = &Area> {
        self.areas.overlapping(address..u64::MAX)
    }

    /// The area that holds `address`.
    #[must_use]
    pub fn area_at(&self, address: u64) -> Option<&Area> {
        self.areas.find(address)
    }

    /// Sums for `/proc`.
    #[must_use]
    pub fn totals(&self) -> SpaceTotals {
        SpaceTotals {
            areas: self.areas.totals(),
            total_peak: self.total_peak,
            resident_anonymous: self.pages.owned_count(),
            resident_file: self.pages.file_count(),
            resident_peak: self.pages.resident_peak(),
            large: self.pages.large_page_count(),
        }
    }

    /// How many pages there are in the first part of a range of pages, and where the rest begins.
    #[must_use]
    pub fn present_in(&self, pages: &Range<u64>) -> (PresentPages, Option<u64>) {
        self.pages.count_present(pages, &self.pool.lock())
    }

    /// How a page of an area is there, if it is.
    #[must_use]
    pub fn present_page(&self, page: u64) -> Option<PresentPage> {
        self.areas.find(page << PAGE_SHIFT)?;
        self.pages.present(page)
    }

    /// What the faults did.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.fault_counts
    }

    /// Removes everything, as `execve` does before it loads.
    pub fn clear(&mut self) {
        self.drop_residue();
        self.forget_adopted();
        // A refused unmap keeps its frames; there is nobody to tell.
        let _ = self.flush();
        let _ = self.remove_range(PROGRAM_BASE..PROGRAM_END);
        self.break_start = 0;
        self.break_end = 0;
        self.lock_future = false;
        self.total_peak = 0;
        self.handlers = Handlers::default();
    }

    /// No fewer than the page tables that were made for this space.
    #[must_use]
    pub fn page_table_bound(&self) -> u64 {
        self.pages.table_bound()
    }

    /// Forgets the pages `indices` of a file in every mapping, because they are not the file's any more; the next touch
    /// faults. Private copies go too (`truncate`) or stay (a hole).
    pub fn drop_file_pages(&mut self, file: FileIdentity, indices: &Range<u64>, keeps_copies: bool) {
        // In the order of addresses, and found anew after each: nothing is allocated for it.
        let mut from = 0;
        while let Some((pages, is_shared)) = self.next_pages_of(file, indices, from) {
            from = pages.end << PAGE_SHIFT;
            if !keeps_copies || is_shared {
                // See `clear`.
                let _ = self.drop_pages(pages);
                continue;
            }
            for page in pages {
                if self.pages.get(page).is_some_and(|entry| entry.has(PageFlags::FILE)) {
                    let _ = self.drop_pages(page..page + 1);
                }
            }
        }
    }

    /// The file that is mapped at `address`, and the index of the page there.
    #[must_use]
    pub fn file_pages(&self, address: u64) -> Option<(FileIdentity, u64)> {
        let area = self.areas.find(address)?;
        Some((area.file()?.source.identity(), area.file_index(address >> PAGE_SHIFT)))
    }

    /// The first mapped pages at or above `from` that show pages `indices` of a file, and whether they are shared.
    fn next_pages_of(&self, file: FileIdentity, indices: &Range<u64>, from: u64) -> Option<(Range<u64>, bool)> {
        self.areas.overlapping(from..PROGRAM_END).find_map(|area| {
            let backing = area.file().filter(|backing| backing.source.identity() == file)?;
            let pages = area.pages();
            let first_index = area.file_index(pages.start);
            let page_of = |index: u64| pages.start.saturating_add(index.saturating_sub(first_index)).min(pages.end);
            let found = page_of(indices.start)..page_of(indices.end);
            (found.start < found.end && found.start >= from >> PAGE_SHIFT).then_some((found, backing.is_shared))
        })
    }

    /// Forgets the pages whose frames are among these, ascending, which are not there any more: whether there were any.
    pub fn forget_taken(&mut self, taken: &[FrameNumber]) -> bool {
        self.forget_adopted();
        self.unmap_taken_blocks(taken);
        let (binder, mut has_lost) = (&mut self.binder, false);
        self.pages.update(0..PROGRAM_END >> PAGE_SHIFT, &mut self.pool.lock(), |_, page, entry| {
            if taken.binary_search(&entry.frame()).is_err() {
                return Some(entry);
            }
            has_lost = true;
            if entry.has(PageFlags::MAPPED) {
                binder.unmap(page);
            }
            binder.release(entry.frame());
            None
        });
        // See `clear`.
        let _ = self.flush();
        has_lost
    }

    /// Unmaps and forgets the pages of files that nothing locks, a part at a time, until the next touch; how many.
    pub fn forget_file_pages(&mut self) -> u64 {
        let (before, mut next) = (self.pages.file_count(), 0);
        let is_wanted = |area: &&Area| area.file().is_some() && !area.flags.contains(AreaFlags::LOCKED);
        let found = |space: &Self, next: u64| space.areas_from(next << PAGE_SHIFT).find(is_wanted).map(Area::pages);
        while let Some(area) = found(self, next) {
            while let Some(start) = self.pages.next_known(next.max(area.start)..area.end) {
                next = area.end.min(start + PIECE_PAGES);
                let binder = &mut self.binder;
                self.pages.update(start..next, &mut self.pool.lock(), |_, page, entry| {
                    if entry.has(PageFlags::FILE) {
                        let _ = entry.has(PageFlags::MAPPED).then(|| binder.unmap(page));
                        binder.release(entry.frame());
                    }
                    (!entry.has(PageFlags::FILE)).then_some(entry)
                });
                // See `clear`.
                let _ = self.flush();
            }
            next = area.end;
        }
        before - self.pages.file_count()
    }

    /// Takes the areas and pages of `range` away.
    pub(crate) fn remove_range(&mut self, range: Range<u64>) -> Result<()> {
        let pages = range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT;
        if is_long(&pages) {
            return self.remove_long(range);
        }
        if self.areas.remove(range) { self.drop_pages(pages) } else { Ok(()) }
    }

    /// Unmaps and forgets the pages; their areas stay.
    pub(crate) fn drop_pages(&mut self, pages: Range<u64>) -> Result<()> {
        self.withdraw_rewrites(&pages);
        self.drop_known_pages(pages)
    }

    /// Records `entry` for `page` and queues its mapping; an entry that was there loses its
    /// reference after the flush.
    pub(crate) fn set_page(&mut self, page: u64, entry: PageEntry, protection: Protection) {
        self.settle_large(&(page..page + 1), Whole::Split);
        let mut frames = self.pool.lock();
        let shown = if protection.is_empty() {
            entry.without(PageFlags::MAPPED | PageFlags::WRITE)
        } else {
            let (slot, flags) = (frames.slot_of(entry.frame()), bind_flags(entry, protection));
            self.binder.map(&MapRun::of_page(page, entry.frame(), slot, flags));
            entry.with(PageFlags::MAPPED)
        };
        let before = self.pages.replace(page, shown, &mut frames);
        if let Some(before) = before.filter(|before| before.frame() != entry.frame()) {
            self.binder.release(before.frame());
        }
    }

    /// As [`Self::set_page`] for the pages of a short range to which `entry_of` gives an entry: how many. It gets the
    /// page's entry so far, and must not come to the pool in another way than by the counts that it gets.
    #[inline(always)]
    pub(crate) fn set_pages(
        &mut self,
        range: Range<u64>,
        protection: Protection,
        mut entry_of: impl FnMut(&FrameCounts<'_>, u64, Option<PageEntry>) -> Option<PageEntry>,
    ) -> u32 {
        self.settle_large(&range, Whole::Split);
        let (binder, mut run, mut count) = (&mut self.binder, MapRun::new(), 0);
        self.pages.fill(range, &mut self.pool.lock(), |frames, page, before| {
            let entry = entry_of(frames, page, before)?;
            count += 1;
            if let Some(before) = before
                && before.frame() != entry.frame()
            {
                binder.release(before.frame());
            }
            if protection.is_empty() {
                return Some(entry.without(PageFlags::MAPPED | PageFlags::WRITE));
            }
            run.add(binder, page, entry.frame(), frames.slot_of(entry.frame()), bind_flags(entry, protection));
            Some(entry.with(PageFlags::MAPPED))
        });
        binder.map(&run);
        count
    }

    /// Whether the frame is the program's alone, so that it may be written in place.
    pub(crate) fn is_exclusive(&self, entry: PageEntry) -> bool {
        is_exclusive(&self.pool.lock(), entry)
    }

    pub(crate) fn note_peak(&mut self) {
        self.total_peak = self.total_peak.max(self.areas.totals().total);
    }

    /// Whether `range`, of which parts may be mapped already, may become an area: `ENOMEM` for a
    /// limit, or for more memory than the pod has (what Linux's heuristic overcommit refuses).
    pub(crate) fn check_growth(
        &self,
        protection: Protection,
        flags: AreaFlags,
        is_shared: bool,
        range: &Range<u64>,
    ) -> Result<()> {
        let bytes = range.end - range.start;
        let inside = |area: &Area| area.end.min(range.end) - area.start.max(range.start);
        let is_free = self.areas.is_free(range.clone());
        let replaced = if is_free { 0 } else { self.areas.overlapping(range.clone()).map(inside).sum() };
        self.check_limits(protection, flags, is_shared, bytes - replaced)?;
        let is_promise = is_data(protection, flags, is_shared) && !flags.contains(AreaFlags::NO_RESERVE);
        self.check_promise(if is_promise { bytes } else { 0 })
    }

    pub(crate) fn check_promise(&self, bytes: u64) -> Result<()> {
        let frames = bytes >> PAGE_SHIFT;
        // The limit as it was last is no promise either, and needs no kernel call to say yes.
        if frames <= self.pool.limit_at_last() || frames <= self.pool.limit_at_most() {
            return Ok(());
        }
        Err(Errno::ENOMEM)
    }

    /// `RLIMIT_AS` and `RLIMIT_DATA` for `bytes` more.
    pub(crate) fn check_limits(
        &self,
        protection: Protection,
        flags: AreaFlags,
        is_shared: bool,
        bytes: u64,
    ) -> Result<()> {
        let totals = self.areas.totals();
        let exceeds = |pages: u64, limit: u64| (pages << PAGE_SHIFT).saturating_add(bytes) > limit;
        if exceeds(totals.total, self.limits.address_space_bytes) {
            return Err(Errno::ENOMEM);
        }
        if is_data(protection, flags, is_shared) && exceeds(totals.data, self.limits.data_bytes) {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// `EAGAIN` if locking `bytes` more would exceed `RLIMIT_MEMLOCK`; `EPERM` if that is 0.
    pub(crate) fn check_lock(&self, flags: AreaFlags, bytes: u64) -> Result<()> {
        if !flags.contains(AreaFlags::LOCKED) {
            return Ok(());
        }
        if self.limits.locked_bytes == 0 {
            return Err(Errno::EPERM);
        }
        let locked = (self.areas.totals().locked << PAGE_SHIFT).saturating_add(bytes);
        if locked > self.limits.locked_bytes { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Where a mapping of `length` bytes goes. A fixed place may be occupied.
    pub(crate) fn place(&mut self, placement: Placement, length: u64) -> Result<u64> {
        if length > PROGRAM_END {
            return Err(Errno::ENOMEM);
        }
        match placement {
            Placement::Hint(hint) => self.place_near(hint, length),
            Placement::Low => self.find_hole(length, LOW_END).ok_or(Errno::ENOMEM),
            Placement::Fixed(start) => check_fixed(start, length).map(|()| start),
            Placement::FixedNoReplace(start) => {
                check_fixed(start, length)?;
                if self.areas.is_free(start..start + length) { Ok(start) } else { Err(Errno::EEXIST) }
            }
        }
    }

    fn place_near(&mut self, hint: u64, length: u64) -> Result<u64> {
        if hint >= PAGE_SIZE {
            let start = (hint & !(PAGE_SIZE - 1)).max(PROGRAM_BASE);
            let fits = start.checked_add(length).is_some_and(|end| {
                let next = self.areas.find_at_or_above(start);
                end <= PROGRAM_END && next.is_none_or(|area| end <= crate::mem::area::lower_bound(area))
            });
            if fits {
                return Ok(start);
            }
        }
        let found = self.find_hole(length, self.mapping_base).or_else(|| self.find_hole(length, PROGRAM_END));
        found.ok_or(Errno::ENOMEM)
    }

    /// Backing and maximum rights.
    fn backing_of(&self, request: &MapRequest) -> Result<(Backing, Protection)> {
        let grows_down = request.flags.contains(AreaFlags::GROWS_DOWN);
        match &request.backing {
            MapBacking::Anonymous if !request.is_shared => Ok((Backing::Anonymous, Protection::all())),
            _ if grows_down => Err(Errno::EINVAL),
            MapBacking::Anonymous => {
                let source = SharedMemory::new(Arc::clone(&self.pool));
                let file = FileBacking { source, first_index: 0, is_shared: true };
                Ok((Backing::File(file), Protection::all()))
            }
            MapBacking::File { source, offset_bytes, is_readable, is_writable } => {
                let mut maximum = Protection::all();
                if request.is_shared && !is_writable {
                    maximum.remove(Protection::WRITE);
                }
                if !is_readable || !maximum.contains(request.protection) {
                    return Err(Errno::EACCES);
                }
                let file = FileBacking {
                    source: Arc::clone(source),
                    first_index: offset_bytes >> PAGE_SHIFT,
                    is_shared: request.is_shared,
                };
                Ok((Backing::File(file), maximum))
            }
        }
    }

    fn try_set_break(&mut self, address: u64) -> Result<()> {
        let data_bytes = address - self.break_start;
        if data_bytes > self.limits.data_bytes {
            return Err(Errno::ENOMEM);
        }
        let old_end = page_align(self.break_end).ok_or(Errno::ENOMEM)?;
        let new_end = page_align(address).ok_or(Errno::ENOMEM)?;
        if new_end <= old_end {
            return if new_end < old_end { self.remove_range(new_end..old_end) } else { Ok(()) };
        }
        let guarded = new_end.checked_add(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
        let next = self.areas.find_at_or_above(old_end);
        let is_blocked = next.is_some_and(|area| guarded > crate::mem::area::lower_bound(area));
        if guarded > PROGRAM_END || is_blocked {
            return Err(Errno::ENOMEM);
        }
        let mut request =
            MapRequest::anonymous(Placement::Fixed(old_end), new_end - old_end, Protection::READ | Protection::WRITE);
        request.label = AreaLabel::Heap;
        self.map(request).map(|_| ())
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `address` rounded up to a page; `None` beyond the last.
pub(crate) fn page_align(address: u64) -> Option<u64> {
    Some(address.checked_add(PAGE_SIZE - 1)? & !(PAGE_SIZE - 1))
}

/// The pages of a range as `munmap` checks it: `EINVAL` otherwise.
pub fn checked_range(start: u64, length: u64) -> Result<Range<u64>> {
    if !start.is_multiple_of(PAGE_SIZE) || start > PROGRAM_END || length > PROGRAM_END - start {
        return Err(Errno::EINVAL);
    }
    match page_align(length) {
        Some(length) if length > 0 => Ok(start..start + length),
        _ => Err(Errno::EINVAL),
    }
}

fn check_fixed(start: u64, length: u64) -> Result<()> {
    if start > PROGRAM_END - length {
        return Err(Errno::ENOMEM);
    }
    if !start.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if start < PROGRAM_BASE {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// See [`AddressSpace::is_exclusive`].
pub(crate) fn is_exclusive(frames: &FrameCounts<'_>, entry: PageEntry) -> bool {
    entry.has(PageFlags::OWNED) && !entry.has(PageFlags::SHARED) && frames.reference_count(entry.frame()) == 1
}

/// How `entry` is mapped in an area with these rights.
pub(crate) fn bind_flags(entry: PageEntry, protection: Protection) -> BindFlags {
    rights(entry.has(PageFlags::WRITE), protection)
}

/// How a page is mapped in an area with these rights, where stores go through or not.
pub(crate) fn rights(is_writable: bool, protection: Protection) -> BindFlags {
    let mut flags = BindFlags::empty();
    if is_writable {
        flags |= BindFlags::WRITE;
    }
    if protection.contains(Protection::EXECUTE) {
        flags |= BindFlags::EXECUTE;
    }
    flags
}
