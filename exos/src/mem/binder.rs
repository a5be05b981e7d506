//! A batch of page-table changes: collected, joined to few entries, given to the kernel in one
//! call.
//!
//! Neighbouring pages join: maps with consecutive frames of one capability, protects of one capability, unmaps also
//! across pages that are not mapped (the kernel passes over them; an unmapping takes every mapped page of a span, so
//! none is hit unseen). Frames that lose their mapping are released only after the kernel has done the batch, so that
//! nobody gets a frame which a stale mapping still reaches.
//!
//! When the kernel refuses an entry, the page map is put right: pages that are not surely mapped
//! lose [`PageFlags::MAPPED`] (the next fault tries again), and frames of unmaps that were not done
//! are kept rather than released.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{LARGE_PAGE_FRAMES, PAGE_SHIFT};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags, BindOperation};
use aegis_abi::{CapSlot, FrameNumber};

use crate::error::{Errno, Result};
use crate::mem::frames::{FramePool, FrameRun};
use crate::mem::page_map::{PageFlags, PageMap};
use crate::platform::LogLevel;

/// Widest hole of unmapped pages that an unmap entry bridges.
const BRIDGE_PAGES: u64 = 512;

/// Pages of one piece: some 100,000 instructions where all are there.
pub(crate) const PIECE_PAGES: u64 = 1024;

/// Whether there may be more pages than one piece has.
#[inline]
pub(crate) fn is_long(pages: &Range<u64>) -> bool {
    pages.end.saturating_sub(pages.start) > PIECE_PAGES
}

/// The batch.
pub(crate) struct Binder {
    entries: Vec<BindEntry>,
    release: Vec<FrameRun>,
    /// Entries before this one join no more.
    sealed_count: usize,
}

/// Entries of most batches.
const ENTRY_COUNT_USUAL: usize = 16;

impl Binder {
    /// With room for a start's batch.
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::with_capacity(ENTRY_COUNT_USUAL),
            release: Vec::with_capacity(ENTRY_COUNT_USUAL),
            sealed_count: 0,
        }
    }

    /// What follows joins nothing that came before: a span ends here.
    pub(crate) fn seal(&mut self) {
        self.sealed_count = self.entries.len();
    }

    /// Whether there is nothing to do.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.release.is_empty()
    }

    /// Whether frames are to be released with this batch.
    pub(crate) fn releases(&self) -> bool {
        !self.release.is_empty()
    }

    /// Clears the accessed and dirty bits of `pages`.
    pub(crate) fn clean(&mut self, pages: Range<u64>) {
        let mut first = pages.start;
        while first < pages.end {
            let count = count_of_entry(first, pages.end);
            self.entries.push(BindEntry::clean(first << PAGE_SHIFT, count));
            first += u64::from(count);
        }
    }

    /// Maps a run of pages, which may join what came before.
    pub(crate) fn map(&mut self, run: &MapRun) {
        if run.page_count == 0 {
            return;
        }
        if let Some(last) = self.entries[self.sealed_count..].last_mut()
            && last.operation == BindOperation::Map as u32
            && last.flags == run.flags.bits()
            && last.slot == run.slot.0
            && end_page(last) == run.page
            && last.frame + u64::from(last.page_count) == run.frame
            && last.page_count + run.page_count <= BIND_PAGE_COUNT_MAX
        {
            last.page_count += run.page_count;
            return;
        }
        self.entries.push(BindEntry {
            operation: BindOperation::Map as u32,
            flags: run.flags.bits(),
            virtual_address: run.page << PAGE_SHIFT,
            frame: run.frame,
            page_count: run.page_count,
            slot: run.slot.0,
        });
    }

    /// Maps a few pages to frames that lie one behind the other, the first of them `frame`, all of the capability
    /// `slot`. Joins nothing.
    pub(crate) fn map_run(&mut self, pages: Range<u64>, frame: FrameNumber, slot: CapSlot, flags: BindFlags) {
        self.entries.push(BindEntry {
            operation: BindOperation::Map as u32,
            flags: flags.bits(),
            virtual_address: pages.start << PAGE_SHIFT,
            frame: frame.0,
            page_count: (pages.end - pages.start) as u32,
            slot: slot.0,
        });
    }

    /// Unmaps `page`.
    pub(crate) fn unmap(&mut self, page: u64) {
        self.unmap_run(page..page + 1);
    }

    /// Unmaps what is mapped of a few pages.
    pub(crate) fn unmap_run(&mut self, pages: Range<u64>) {
        self.extend_or_push(BindOperation::Unmap, pages, BRIDGE_PAGES, CapSlot(0), BindFlags::empty());
    }

    /// Sets the rights of `page`, mapped to a frame of `slot`.
    pub(crate) fn protect(&mut self, page: u64, slot: CapSlot, flags: BindFlags) {
        self.extend_or_push(BindOperation::Protect, page..page + 1, 0, slot, flags);
    }

    /// Sets the rights of `pages`, mapped to frames of `slot`; joins nothing that came before.
    pub(crate) fn protect_run(&mut self, pages: Range<u64>, slot: CapSlot, flags: BindFlags) {
        let mut first = pages.start;
        while first < pages.end {
            let page_count = count_of_entry(first, pages.end);
            self.entries.push(BindEntry {
                operation: BindOperation::Protect as u32,
                flags: flags.bits(),
                virtual_address: first << PAGE_SHIFT,
                frame: 0,
                page_count,
                slot: slot.0,
            });
            first += u64::from(page_count);
        }
    }

    /// Releases one reference to `frame` once the batch is done.
    pub(crate) fn release(&mut self, frame: FrameNumber) {
        match self.release.last_mut() {
            Some(run) if run.first + u64::from(run.count) == frame.0 => run.count += 1,
            _ => self.release.push(FrameRun { first: frame.0, count: 1 }),
        }
    }

    /// The same for frames that lie one behind the other.
    pub(crate) fn release_run(&mut self, run: FrameRun) {
        self.release.push(run);
    }

    /// Does the batch. `ENOMEM` if the kernel refused a mapping; the page map then says what is mapped.
    pub(crate) fn flush(&mut self, pool: &Arc<FramePool>, space: CapSlot, pages: &mut PageMap) -> Result<()> {
        let mut outcome = Ok(());
        let mut start = 0;
        while start < self.entries.len() {
            let Err(fault) = pool.kernel().bind(space, &self.entries[start..]) else {
                break;
            };
            let failed = start + fault.entry_index;
            outcome = Err(Errno::ENOMEM);
            let mut entry = self.entries[failed];
            let range = entry.virtual_address >> PAGE_SHIFT..end_page(&entry);
            while let Some((block, _)) = pages.next_large(0, &range) {
                // Refused, or about to be: what the page table has of it goes below, or with the batch's rest.
                pages.unmap_large(block);
            }
            pages
                .update(range, &mut pool.lock(), |_, _, page| Some(page.without(PageFlags::MAPPED | PageFlags::WRITE)));
            let was_unmap = entry.operation == BindOperation::Unmap as u32;
            (entry.operation, entry.flags) = (BindOperation::Unmap as u32, 0);
            if was_unmap || pool.kernel().bind(space, &[entry]).is_err() {
                self.keep_frames(pool);
            }
            start = failed + 1;
        }
        self.entries.clear();
        self.sealed_count = 0;
        if !self.release.is_empty() {
            pool.release_runs(&self.release);
            self.release.clear();
        }
        outcome
    }

    /// An unmap failed, which only a lost address space explains: the frames may still be mapped,
    /// so nobody else gets them.
    fn keep_frames(&mut self, pool: &Arc<FramePool>) {
        tell_of_kept(pool, &self.release);
        self.release.clear();
    }

    /// The batch, if it is short and unmaps pages of `range` and does nothing else.
    pub(crate) fn unmap_batch(&self, range: &Range<u64>) -> Option<UnmapBatch> {
        let pages = range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT;
        let is_within = |entry: &BindEntry| {
            entry.operation == BindOperation::Unmap as u32
                && entry.virtual_address >= range.start
                && end_page(entry) <= pages.end
        };
        let (entry_count, run_count) = (self.entries.len(), self.release.len());
        let fits = entry_count <= BATCH_ENTRY_COUNT && run_count <= BATCH_RUN_COUNT;
        if entry_count == 0 || !fits || !self.entries.iter().all(is_within) {
            return None;
        }
        let mut batch = UnmapBatch {
            entries: [BindEntry::clean(0, 0); BATCH_ENTRY_COUNT],
            entry_count,
            runs: [FrameRun { first: 0, count: 0 }; BATCH_RUN_COUNT],
            run_count,
        };
        batch.entries[..entry_count].copy_from_slice(&self.entries);
        batch.runs[..run_count].copy_from_slice(&self.release);
        Some(batch)
    }

    /// Forgets the batch: somebody else has it.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.release.clear();
        self.sealed_count = 0;
    }

    fn extend_or_push(
        &mut self,
        operation: BindOperation,
        pages: Range<u64>,
        bridge: u64,
        slot: CapSlot,
        flags: BindFlags,
    ) {
        let added_count = pages.end - pages.start;
        if let Some(last) = self.entries[self.sealed_count..].last_mut() {
            // What the entry would have with these pages; too much if they lie before it.
            let page_count = pages.end.wrapping_sub(last.virtual_address >> PAGE_SHIFT);
            let gap = page_count.wrapping_sub(u64::from(last.page_count) + added_count);
            if gap <= bridge
                && page_count <= u64::from(BIND_PAGE_COUNT_MAX)
                && (last.operation, last.flags, last.slot) == (operation as u32, flags.bits(), slot.0)
            {
                last.page_count = page_count as u32;
                return;
            }
        }
        self.entries.push(BindEntry {
            operation: operation as u32,
            flags: flags.bits(),
            virtual_address: pages.start << PAGE_SHIFT,
            frame: 0,
            page_count: added_count as u32,
            slot: slot.0,
        });
    }
}

/// What [`UnmapBatch`] has room for: a range that few faults filled.
const BATCH_ENTRY_COUNT: usize = 2;
const BATCH_RUN_COUNT: usize = 16;

/// A batch that unmaps and does nothing else, and the frames to release after it.
pub(crate) struct UnmapBatch {
    entries: [BindEntry; BATCH_ENTRY_COUNT],
    entry_count: usize,
    runs: [FrameRun; BATCH_RUN_COUNT],
    run_count: usize,
}

impl UnmapBatch {
    /// Does the batch. `ENOMEM` if the kernel refuses: the frames are kept then, as in [`Binder::flush`].
    pub(crate) fn run(&self, pool: &FramePool, space: CapSlot) -> Result<()> {
        let (entries, runs) = (&self.entries[..self.entry_count], &self.runs[..self.run_count]);
        let (mut outcome, mut start) = (Ok(()), 0);
        while let Err(fault) = pool.kernel().bind(space, &entries[start..]) {
            outcome = Err(Errno::ENOMEM);
            start = (start + fault.entry_index + 1).min(entries.len());
        }
        if outcome.is_ok() {
            pool.release_runs(runs);
        } else {
            tell_of_kept(pool, runs);
        }
        outcome
    }
}

fn tell_of_kept(pool: &FramePool, runs: &[FrameRun]) {
    let count: u32 = runs.iter().map(|run| run.count).sum();
    pool.kernel().log(LogLevel::Warning, format_args!("mem: unmap refused; {count} frames are kept unused"));
}

/// Pages of the next entry of a range: as many as it can have, and no part of a large page unless the range has it.
fn count_of_entry(first: u64, end: u64) -> u32 {
    let most = u64::from(BIND_PAGE_COUNT_MAX) - first % LARGE_PAGE_FRAMES;
    (end - first).min(most) as u32
}

/// Pages that are mapped one after the other: neighbours, with neighbouring frames of one capability.
pub(crate) struct MapRun {
    page: u64,
    frame: u64,
    page_count: u32,
    slot: CapSlot,
    flags: BindFlags,
}

impl MapRun {
    /// Without a page.
    pub(crate) fn new() -> Self {
        Self { page: 0, frame: 0, page_count: 0, slot: CapSlot(0), flags: BindFlags::empty() }
    }

    /// One page.
    pub(crate) fn of_page(page: u64, frame: FrameNumber, slot: CapSlot, flags: BindFlags) -> Self {
        Self { page, frame: frame.0, page_count: 1, slot, flags }
    }

    /// As [`Self::add`], for pages and frames that lie one behind the other, no more than [`BIND_PAGE_COUNT_MAX`].
    pub(crate) fn add_pages(
        &mut self,
        binder: &mut Binder,
        pages: Range<u64>,
        first: FrameNumber,
        slot: CapSlot,
        flags: BindFlags,
    ) {
        let count = u64::from(self.page_count);
        let added = (pages.end - pages.start) as u32;
        if pages.start == self.page + count
            && first.0 == self.frame + count
            && (slot, flags) == (self.slot, self.flags)
            && (1..=BIND_PAGE_COUNT_MAX - added).contains(&self.page_count)
        {
            self.page_count += added;
            return;
        }
        binder.map(self);
        *self = Self { page: pages.start, frame: first.0, page_count: added, slot, flags };
    }

    /// Takes `page` on, mapped to `frame`, whose capability is `slot`; what it does not continue goes to the batch.
    #[inline]
    pub(crate) fn add(&mut self, binder: &mut Binder, page: u64, frame: FrameNumber, slot: CapSlot, flags: BindFlags) {
        let count = u64::from(self.page_count);
        if page == self.page + count
            && frame.0 == self.frame + count
            && (slot, flags) == (self.slot, self.flags)
            && self.page_count.wrapping_sub(1) < BIND_PAGE_COUNT_MAX - 1
        {
            self.page_count += 1;
            return;
        }
        binder.map(self);
        *self = Self { page, frame: frame.0, page_count: 1, slot, flags };
    }
}

fn end_page(entry: &BindEntry) -> u64 {
    (entry.virtual_address >> PAGE_SHIFT) + u64::from(entry.page_count)
}
