//! Page faults: what a touch of an address means, and the pages that it brings.
//!
//! One fault makes one bind batch of as many pages as are worth it: neighbours in the file that
//! need neither input nor copying ([`FAULT_AROUND_PAGES`]), a growing window for a program that
//! walks ([`super::window`]), or the known but unmapped pages around (a forked child, a range that
//! was `PROT_NONE`). The page that faulted decides the outcome; the others are only taken when they
//! are free of cost and risk.

use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};
use aegis_abi::{CapSlot, FrameNumber};

use crate::error::Result;
use crate::mem::area::{Access, Area, AreaFlags, FileBacking, Protection, STACK_GUARD_BYTES};
use crate::mem::binder::MapRun;
use crate::mem::frames::{FramePool, GROUP_FRAMES};
use crate::mem::page_map::blocks::BLOCK_PAGES;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::patched_text::is_text;
use crate::mem::source::{FilePage, PageError, PageIntent, Wait, WantedPage};
use crate::mem::space::{AddressSpace, is_exclusive, rights};
use crate::mem::window::{FAULT_AROUND_PAGES, WINDOW_PAGES_MAX};
use crate::preempt::Pace;

/// The same as [`FAULT_AROUND_PAGES`] where a program reads on.
const FAULT_ON_PAGES: u64 = 64;
/// File pages looked at around one that is resolved ahead: as many as a word has bits.
const AHEAD_PAGES: u64 = 64;
/// Known pages of no file mapped around a fault.
const KNOWN_AROUND_PAGES: u64 = 64;
/// Of the bytes behind a file's end, so many are looked at at a time.
const TAIL_PART_BYTES: usize = 512;
/// Below this many frames left, nothing is resolved ahead.
pub(crate) const SCARCE_FRAMES: u64 = 512;

/// Why an access is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegvReason {
    /// Nothing is mapped there (`SEGV_MAPERR`).
    NotMapped,
    /// Not with these rights (`SEGV_ACCERR`).
    NotAllowed,
}

/// What became of a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultOutcome {
    /// Repeat the access.
    Resolved {
        /// Pages mapped, at least one.
        pages: u32,
    },
    /// SIGSEGV.
    Segv(SegvReason),
    /// SIGBUS (`BUS_ADRERR`): behind the end of a file, or a page that cannot be read.
    Bus,
    /// No frames: the limit of the pod or the machine's end.
    OutOfMemory,
    /// This page of a file first, which may not be waited for ([`Wait::Refused`]).
    Wants(WantedPage),
}

impl AddressSpace {
    /// Why [`Self::handle_fault`] would refuse the access, where the areas say so at once: then it is not needed.
    #[inline]
    #[must_use]
    pub fn refuses(&self, address: u64, access: Access) -> Option<SegvReason> {
        match self.areas.find_at_or_above(address) {
            Some(area) if area.start <= address => (!area.protection.allows(access)).then_some(SegvReason::NotAllowed),
            Some(area) if area.flags.contains(AreaFlags::GROWS_DOWN) => None,
            _ => Some(SegvReason::NotMapped),
        }
    }

    /// More than one thread is going to use it, maybe at once.
    pub fn note_threads(&mut self, is_parallel: bool) {
        self.areas.keep_walks();
        if is_parallel {
            self.deferred.get_or_insert_default();
        }
    }

    /// Resolves a page fault at `address` of the program's half.
    pub fn handle_fault(&mut self, address: u64, access: Access, wait: Wait) -> FaultOutcome {
        let is_resolved = self.notes.is_some() && {
            self.note_first_fault(address, access);
            self.has_pending_notes() && self.repeat_in_mappings(address, access)
        };
        let resolved = if is_resolved { Ok(1) } else { self.resolve(address, access, wait) };
        let outcome = match resolved {
            Ok(pages) => match self.flush() {
                Ok(()) => FaultOutcome::Resolved { pages },
                Err(_) => FaultOutcome::OutOfMemory,
            },
            Err(outcome) => {
                // What was resolved before the failure is bound all the same; `outcome` tells of the failure.
                let _ = self.flush();
                outcome
            }
        };
        if let FaultOutcome::Resolved { pages } = outcome {
            self.fault_counts.resolved += 1;
            self.fault_counts.pages += u64::from(pages);
        }
        outcome
    }

    /// Queues the mappings for a fault; answers how many pages.
    pub(crate) fn resolve(
        &mut self,
        address: u64,
        access: Access,
        wait: Wait,
    ) -> core::result::Result<u32, FaultOutcome> {
        if !(PROGRAM_BASE..PROGRAM_END).contains(&address) {
            return Err(FaultOutcome::Segv(SegvReason::NotMapped));
        }
        let found = self.areas.find(address).cloned();
        let found = match found {
            None if self.grow_stack(address) => self.areas.find(address).cloned(),
            _ => found,
        };
        let area = found.ok_or(FaultOutcome::Segv(SegvReason::NotMapped))?;
        self.resolve_in(&area, address >> PAGE_SHIFT, access, wait)
    }

    /// The same where it is known in which area the page lies.
    pub(crate) fn resolve_in(
        &mut self,
        area: &Area,
        page: u64,
        access: Access,
        wait: Wait,
    ) -> core::result::Result<u32, FaultOutcome> {
        if !area.protection.allows(access) {
            return Err(FaultOutcome::Segv(SegvReason::NotAllowed));
        }
        let is_write = access == Access::Write;
        match self.pages.get(page) {
            Some(entry) if is_write && !entry.has(PageFlags::WRITE) => self.make_writable(area, page, entry, wait),
            Some(entry) if !is_write && area.flags.contains(AreaFlags::WITHHELD) => {
                // The store after the load is to be told, too.
                self.set_page(page, entry.without(PageFlags::WRITE), area.protection);
                Ok(1)
            }
            Some(entry) => Ok(self.remap_around(area, page, entry)),
            None => match area.file() {
                None if is_write => self.fill_anonymous(area, page),
                None => self.map_zeros(area, page),
                Some(file) if is_write && file.is_shared => self.share_pages(area, file, page, wait),
                Some(file) if is_write => self.copy_pages(area, file, page, wait),
                Some(file) => self.map_file_around(area, file, page, (access, wait)),
            },
        }
    }

    /// Extends the stack above `address` down to it, if there is one, the limit allows it and the guard gap stays.
    fn grow_stack(&mut self, address: u64) -> bool {
        let Some(area) = self.areas.find_at_or_above(address) else {
            return false;
        };
        if !area.flags.contains(AreaFlags::GROWS_DOWN) {
            return false;
        }
        let (old_start, end, flags) = (area.start, area.end, area.flags);
        let protection = area.protection;
        let start = address & !(PAGE_SIZE - 1);
        if end - start > self.limits.stack_bytes {
            return false;
        }
        let is_close = self.areas.find_below(old_start).is_some_and(|below| {
            let is_barrier = !below.protection.is_empty() && !below.flags.contains(AreaFlags::GROWS_DOWN);
            below.end > start || (is_barrier && start - below.end < STACK_GUARD_BYTES)
        });
        let bytes = old_start - start;
        if is_close
            || self.check_limits(protection, flags, false, bytes).is_err()
            || self.check_lock(flags, bytes).is_err()
        {
            return false;
        }
        self.await_left(&(start..old_start));
        self.areas.set_start(old_start, start);
        self.note_peak();
        true
    }

    /// A store to a page that is known but not writable.
    fn make_writable(
        &mut self,
        area: &Area,
        page: u64,
        entry: PageEntry,
        wait: Wait,
    ) -> core::result::Result<u32, FaultOutcome> {
        if let Some(file) = area.file().filter(|file| file.is_shared) {
            // Of watched pages each is one that was stored to before, as a rule.
            if area.is_watched() && file.source.owns(area.file_index(page), entry.frame()) {
                self.set_page(page, entry.with(PageFlags::WRITE), area.protection);
                return Ok(1);
            }
            return self.share_pages(area, file, page, wait);
        }
        if self.pages.has_large() && self.reclaim_large(area, page) {
            return Ok(BLOCK_PAGES as u32);
        }
        if self.is_exclusive(entry) {
            return Ok(self.reclaim_around(area, page));
        }
        if self.pool.is_zero_frame(entry.frame()) {
            return self.fill_anonymous(area, page);
        }
        let frame = self.pool.allocate_copy(entry.frame()).map_err(|_| FaultOutcome::OutOfMemory)?;
        self.fault_counts.copied += 1;
        self.set_page(page, owned(frame), area.protection);
        Ok(1)
    }

    /// Makes the private pages around `page` writable that nobody else references any more.
    fn reclaim_around(&mut self, area: &Area, page: u64) -> u32 {
        self.set_pages(block_around(area, page, FAULT_AROUND_PAGES), area.protection, |frames, _, entry| {
            let entry = entry.filter(|entry| !entry.has(PageFlags::WRITE) && is_exclusive(frames, *entry))?;
            Some(entry.with(PageFlags::WRITE))
        })
    }

    /// Maps the known pages around `page` that are not mapped; `page` itself in any case.
    fn remap_around(&mut self, area: &Area, page: u64, entry: PageEntry) -> u32 {
        let is_mapped = entry.has(PageFlags::MAPPED);
        if is_mapped || area.is_watched() {
            // The page table has it already: another thread was faster, or the processor's view was old. Of watched
            // memory each page comes on its own, readable.
            if !(is_mapped && self.repeat_large(page)) {
                self.set_page(page, entry, area.protection);
            }
            return 1;
        }
        let count = if area.file().is_some() { FAULT_AROUND_PAGES } else { KNOWN_AROUND_PAGES };
        self.set_pages(block_around(area, page, count), area.protection, |frames, _, entry| {
            let entry = entry.filter(|entry| !entry.has(PageFlags::MAPPED))?;
            let is_writable = area.protection.contains(Protection::WRITE) && is_exclusive(frames, entry);
            Some(if is_writable { entry.with(PageFlags::WRITE) } else { entry })
        })
    }

    /// Loads from untouched anonymous memory see the zero frame.
    fn map_zeros(&mut self, area: &Area, page: u64) -> core::result::Result<u32, FaultOutcome> {
        let zero = self.pool.zero_frame().map_err(|_| FaultOutcome::OutOfMemory)?;
        let range = self.plan(page, |_, _| false);
        let entry = PageEntry::new(zero, PageFlags::empty());
        Ok(self.set_pages(range, area.protection, |_, _, _| Some(entry)))
    }

    /// Stores to untouched anonymous memory get frames of zeros.
    fn fill_anonymous(&mut self, area: &Area, page: u64) -> core::result::Result<u32, FaultOutcome> {
        if let Some(count) = self.fill_large(area, page) {
            return Ok(count);
        }
        let range = self.plan(page, |pool, entry| pool.is_zero_frame(entry.frame()));
        if range.end - range.start == 1 {
            let frame = self.pool.allocate_zeroed().map_err(|_| FaultOutcome::OutOfMemory)?;
            self.set_page(page, owned(frame), area.protection);
            return Ok(1);
        }
        self.fill_many(area, page, range)
    }

    /// The same for the pages of a range, which holds `page`, or for fewer.
    fn fill_many(&mut self, area: &Area, page: u64, range: Range<u64>) -> core::result::Result<u32, FaultOutcome> {
        let mut frames = [FrameNumber(0); WINDOW_PAGES_MAX as usize];
        let wanted = &mut frames[..(range.end - range.start) as usize];
        let count = self.pool.allocate_many(wanted).map_err(|_| FaultOutcome::OutOfMemory)?;
        // With fewer frames than planned, the pages from the one that faulted on come first.
        let start = if count < wanted.len() { page } else { range.start };
        let range = start..range.end.min(start + count as u64);
        let (used, spare) = frames[..count].split_at((range.end - range.start) as usize);
        for neighbours in used.chunk_by(|low, high| low.0 + 1 == high.0) {
            self.pool.bytes().zero(neighbours[0], neighbours.len());
        }
        // There are no more than a word has bits.
        if self.pages.known_from(start) & u64::MAX >> (u64::BITS as usize - used.len()) != 0 {
            self.set_pages(range, area.protection, |_, page, _| used.get((page - start) as usize).map(|&it| owned(it)));
        } else {
            self.fill_fresh(start, used, area.protection);
        }
        self.pool.release_all(spare);
        Ok(used.len() as u32)
    }

    /// Maps fresh frames, whose references come with them, at the pages from `page` on, of which none is known.
    fn fill_fresh(&mut self, mut page: u64, fresh: &[FrameNumber], protection: Protection) {
        let (binder, frames) = (&mut self.binder, &mut self.pool.lock());
        let (flags, mut run) = (rights(true, protection), MapRun::new());
        for neighbours in fresh.chunk_by(|low, high| low.0 + 1 == high.0) {
            let (first, last) = (neighbours[0], neighbours[neighbours.len() - 1]);
            // A capability is for frames that lie one behind the other.
            let is_of_one = frames.slot_of(first) == frames.slot_of(last);
            let entry = (first, PageFlags::OWNED | PageFlags::WRITE);
            self.pages.fill_unknown(page..page + neighbours.len() as u64, entry, frames, |_| {});
            for part in neighbours.chunk_by(|_, high| is_of_one || !high.0.is_multiple_of(GROUP_FRAMES as u64)) {
                let end = page + part.len() as u64;
                run.add_pages(binder, page..end, part[0], frames.slot_of(part[0]), flags);
                page = end;
            }
        }
        binder.map(&run);
    }

    /// Stores to untouched pages of a private file mapping get copies.
    fn copy_pages(
        &mut self,
        area: &Area,
        file: &FileBacking,
        page: u64,
        wait: Wait,
    ) -> core::result::Result<u32, FaultOutcome> {
        let target = file_page(file, area.file_index(page), PageIntent::Read, wait)?;
        let frame = self.copy_of(&target).map_err(|_| FaultOutcome::OutOfMemory)?;
        self.set_page(page, owned(frame), area.protection);
        let mut count = 1;
        for neighbour in self.plan(page, |_, _| false) {
            if neighbour == page {
                continue;
            }
            // A page of a file that can change shows the changes until it is stored to.
            let resident = file.source.resident_page(area.file_index(neighbour));
            let resident = resident.filter(|found| self.pool.is_immutable(found.frame.frame()));
            let Some(copy) = resident.and_then(|page| self.copy_of(&page).ok()) else {
                continue;
            };
            self.set_page(neighbour, owned(copy), area.protection);
            count += 1;
        }
        Ok(count)
    }

    /// Stores to a shared mapping change the file: the source is told of each page.
    fn share_pages(
        &mut self,
        area: &Area,
        file: &FileBacking,
        page: u64,
        wait: Wait,
    ) -> core::result::Result<u32, FaultOutcome> {
        let mut count = 0;
        let range = self.plan(page, |_, _| false);
        for neighbour in core::iter::once(page).chain(range.filter(|&other| other != page)) {
            let answer = file_page(file, area.file_index(neighbour), PageIntent::WriteShared, wait);
            match answer {
                Ok(found) if !self.pool.is_immutable(found.frame.frame()) => {
                    let flags = PageFlags::FILE | PageFlags::WRITE;
                    self.set_file_page(neighbour, found, flags, area.protection);
                    count += 1;
                }
                Ok(_) if neighbour == page => return Err(FaultOutcome::Bus),
                Err(outcome) if neighbour == page => return Err(outcome),
                _ => break,
            }
        }
        Ok(count)
    }

    /// Loads and fetches from a file mapping: the page, and its neighbours that are at hand. A program that loads from
    /// text for the first time sees the file's bytes: a program that translates code reads it and never fetches it.
    /// Neighbours that another process has patched are left for the touch that decides.
    fn map_file_around(
        &mut self,
        area: &Area,
        file: &FileBacking,
        page: u64,
        (access, wait): (Access, Wait),
    ) -> core::result::Result<u32, FaultOutcome> {
        // What is to be resolved ahead is known page by page, so that there may be more at once; what is going to be
        // stored to is better copied than mapped first.
        let is_known = self.ahead.is_some() && !area.protection.contains(Protection::WRITE);
        let reach = if is_known { AHEAD_PAGES } else { FAULT_AROUND_PAGES };
        if let Some(count) = self.map_fixed_run(area, file, (page, access), block_around(area, page, reach)) {
            return Ok(count);
        }
        let goes_on = page == self.file_end && access != Access::Execute && !is_text(area);
        let target = file_page(file, area.file_index(page), PageIntent::Read, wait)?;
        let target = match access {
            Access::Execute => self.text_entry(area, page, target),
            _ => self.clean_entry(area, target),
        };
        let target = target.ok_or(FaultOutcome::OutOfMemory)?;
        Ok(if goes_on {
            self.map_resident::<{ FAULT_ON_PAGES as usize }>(area, file, (page, target), access)
        } else {
            self.map_resident::<{ FAULT_AROUND_PAGES as usize }>(area, file, (page, target), access)
        })
    }

    /// Maps `page` to its entry, and of the `COUNT` pages around those that are at hand. A program that goes on where
    /// the last such block ended reads the file from its start to its end, and has more at once.
    fn map_resident<const COUNT: usize>(
        &mut self,
        area: &Area,
        file: &FileBacking,
        (page, target): (u64, PageEntry),
        access: Access,
    ) -> u32 {
        let block = block_around(area, page, COUNT as u64);
        self.file_end = block.end;
        let wanted = self.worth_ahead(&block, page) & !self.pages.known_from(block.start);
        let is_text = is_text(area);
        let mut entries = [None; COUNT];
        let (first, first_index) = (block.start, area.file_index(block.start));
        let mut special = [const { None }; COUNT];
        let mut has_special = false;
        file.source.resident_pages(first_index..first_index + (block.end - first), &mut |index, found| {
            let place = index - first_index;
            if wanted >> place & 1 == 0 || first + place == page {
                return;
            }
            if is_text || found.valid_bytes < PAGE_SIZE as usize {
                special[place as usize] = Some(found);
                has_special = true;
            } else {
                entries[place as usize] = Some(PageEntry::new(found.frame.into_frame(), PageFlags::FILE));
            }
        });
        if has_special {
            for ((place, neighbour), found) in entries.iter_mut().zip(block.clone()).zip(special) {
                let Some(found) = found else { continue };
                *place = match access {
                    Access::Execute => self.text_entry(area, neighbour, found),
                    _ if self.is_offered(area, &found) => None,
                    _ => self.clean_entry(area, found),
                };
            }
        }
        entries[(page - first) as usize] = Some(target);
        self.set_pages(block, area.protection, |_, page, _| entries[(page - first) as usize])
    }

    /// The same for a block that begins with whole pages of the boot bundle, `page` among them: they need no counting,
    /// and one bind entry maps many. `None`: it does not.
    fn map_fixed_run(
        &mut self,
        area: &Area,
        file: &FileBacking,
        (page, access): (u64, Access),
        block: Range<u64>,
    ) -> Option<u32> {
        let first_index = area.file_index(block.start);
        let run = file.source.fixed_run(first_index..first_index + (block.end - block.start))?;
        let pages = block.start..block.start + run.count;
        if !pages.contains(&page) {
            return None;
        }
        let slot = self.pool.lock().borrowed_slot(run)?;
        let worth = self.worth_ahead(&pages, page) & u64::MAX >> (64 - run.count.min(64));
        let offered = if is_text(area) { self.shared.patched_text().offered_of(run) } else { 0 };
        if access == Access::Execute {
            let count = self.take_offers(area, offered & worth, run.first, &pages);
            return Some(count + self.fill_fixed(area, (run.first, slot), &pages, worth));
        }
        let left_out = offered & !(1 << (page - pages.start));
        Some(self.fill_fixed(area, (run.first, slot), &pages, worth & !left_out))
    }

    /// Maps what is offered, a bit each, of `pages`, whose frames begin with `first`.
    fn take_offers(&mut self, area: &Area, mut offered: u64, first: FrameNumber, pages: &Range<u64>) -> u32 {
        let mut count = 0;
        while offered != 0 {
            let place = u64::from(offered.trailing_zeros());
            offered &= offered - 1;
            let page = pages.start + place;
            let frame = self.pool.adopt(FrameNumber(first.0 + place));
            let found = FilePage { frame, valid_bytes: PAGE_SIZE as usize };
            if self.pages.get(page).is_none()
                && let Some(patched) = self.take_offer(area, page, &found)
            {
                self.set_page(page, patched, area.protection);
                count += 1;
            }
        }
        count
    }

    /// Maps the unknown ones of `pages` that are `wanted`, a bit each; their frames begin with `first`.
    fn fill_fixed(
        &mut self,
        area: &Area,
        (first, slot): (FrameNumber, CapSlot),
        pages: &Range<u64>,
        mut wanted: u64,
    ) -> u32 {
        let frame_of = |page: u64| FrameNumber(first.0 + (page - pages.start));
        let flags = rights(false, area.protection);
        let (binder, frames) = (&mut self.binder, &mut self.pool.lock());
        let mut count = 0;
        while wanted != 0 {
            let start = pages.start + u64::from(wanted.trailing_zeros());
            let length = u64::from((!(wanted >> wanted.trailing_zeros())).trailing_zeros());
            wanted &= wanted.wrapping_add(1 << wanted.trailing_zeros());
            let part = start..start + length;
            count += self.pages.fill_unknown(part, (frame_of(start), PageFlags::FILE), frames, |part| {
                let frame = frame_of(part.start);
                binder.map_run(part, frame, slot, flags);
            });
        }
        count as u32
    }

    /// The entry for a file's page that is executed: what another process has patched, or the page itself.
    fn text_entry(&mut self, area: &Area, page: u64, found: FilePage) -> Option<PageEntry> {
        match self.take_offer(area, page, &found) {
            Some(patched) => Some(patched),
            None => self.clean_entry(area, found),
        }
    }

    /// The entry for a file's page that is only read, with the page's reference; the last page of an immutable file is
    /// copied if foreign bytes follow the file's end in it. `None`: no frame for that.
    fn clean_entry(&mut self, area: &Area, found: FilePage) -> Option<PageEntry> {
        if self.has_clean_tail(&found) {
            return Some(PageEntry::new(found.frame.into_frame(), PageFlags::FILE));
        }
        let frame = self.copy_of(&found).ok()?;
        // In a shared area it stands for the file's page: a later store asks the source, and never keeps this copy.
        let flags = if area.is_shared() { PageFlags::FILE } else { PageFlags::OWNED };
        Some(PageEntry::new(frame, flags))
    }

    fn set_file_page(&mut self, page: u64, found: FilePage, flags: PageFlags, protection: Protection) {
        let frame = found.frame.into_frame();
        if self.pages.get(page).is_some_and(|entry| entry.frame() == frame) {
            // The known page holds a reference already.
            self.binder.release(frame);
        }
        self.set_page(page, PageEntry::new(frame, flags), protection);
    }

    fn has_clean_tail(&self, found: &FilePage) -> bool {
        let frame = found.frame.frame();
        if found.valid_bytes >= PAGE_SIZE as usize || !self.pool.is_immutable(frame) {
            return true;
        }
        let mut part = [0; TAIL_PART_BYTES];
        (found.valid_bytes..PAGE_SIZE as usize).step_by(TAIL_PART_BYTES).all(|start| {
            let part = &mut part[..TAIL_PART_BYTES.min(PAGE_SIZE as usize - start)];
            self.pool.bytes().read(frame, start, part);
            has_only_zeros(part)
        })
    }

    /// A private copy of a file's page, with zeros behind the file's end.
    fn copy_of(&mut self, found: &FilePage) -> Result<FrameNumber> {
        let frame = self.pool.allocate_copy(found.frame.frame())?;
        if found.valid_bytes < PAGE_SIZE as usize {
            static ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
            self.pool.bytes().write(frame, found.valid_bytes, &ZEROS[found.valid_bytes..]);
        }
        self.fault_counts.copied += 1;
        Ok(frame)
    }

    /// The pages to resolve together with `page`: as its area's window plans, inside the area, as
    /// far as they are not known, or `wants` holds, without a gap.
    fn plan(&mut self, page: u64, wants: impl Fn(&FramePool, PageEntry) -> bool) -> Range<u64> {
        let Some(live) = self.areas.find_walked(page).filter(|live| !live.is_watched()) else {
            return page..page + 1;
        };
        let planned = live.window.plan(page);
        let bounds = live.pages();
        let mut range = page..page + 1;
        if planned.end - planned.start > 1 && self.pool.frames_available() >= SCARCE_FRAMES {
            let (pages, wants) = (&self.pages, |entry| wants(&self.pool, entry));
            let ahead = page + 1..planned.end.min(bounds.end);
            let behind = planned.start.max(bounds.start)..page;
            range.end += pages.count_up(ahead, wants);
            range.start -= pages.count_down(behind, wants);
        }
        live.window.resolved(&range);
        range
    }

    /// Resolves every page of `range` that is mapped nowhere yet: writable where the area is
    /// private and writable, else readable. `ENOMEM` if one could not be; pages of no area or
    /// without rights are passed over.
    pub fn populate(&mut self, range: Range<u64>) -> Result<()> {
        let mut address = range.start;
        let (mut outcome, mut pace) = (Ok(()), Pace::default());
        while address < range.end {
            let Some(area) = self.areas.find_at_or_above(address) else {
                break;
            };
            let start = address.max(area.start);
            let end = area.end.min(range.end);
            let is_private_write = area.protection.contains(Protection::WRITE) && !area.is_shared();
            let access = if is_private_write { Access::Write } else { Access::Read };
            let is_reachable = !area.protection.is_empty();
            for page in start >> PAGE_SHIFT..end >> PAGE_SHIFT {
                let known = self.pages.get(page);
                let is_done = known.is_some_and(|entry| {
                    entry.has(PageFlags::MAPPED) && (!is_private_write || entry.has(PageFlags::WRITE))
                });
                if is_reachable && !is_done && !self.fault_in(page << PAGE_SHIFT, access) {
                    outcome = Err(crate::error::Errno::ENOMEM);
                    break;
                }
                pace.page_unless_killed()?;
            }
            address = end.max(address + PAGE_SIZE);
        }
        outcome
    }

    fn fault_in(&mut self, address: u64, access: Access) -> bool {
        matches!(self.handle_fault(address, access, Wait::Allowed), FaultOutcome::Resolved { .. })
    }
}

/// By words: most of a page is behind the end of a small file.
fn has_only_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word)) == 0 && rest.iter().all(|byte| *byte == 0)
}

fn owned(frame: FrameNumber) -> PageEntry {
    PageEntry::new(frame, PageFlags::OWNED | PageFlags::WRITE)
}

/// The aligned block of `count` pages that holds `page`, as far as it lies in the area; one page of watched memory.
fn block_around(area: &Area, page: u64, count: u64) -> Range<u64> {
    let count = if area.is_watched() { 1 } else { count };
    let start = page & !(count - 1);
    let bounds = area.pages();
    start.max(bounds.start)..(start + count).min(bounds.end)
}

/// A page of a mapped file for a fault.
fn file_page(
    file: &FileBacking,
    index: u64,
    intent: PageIntent,
    wait: Wait,
) -> core::result::Result<FilePage, FaultOutcome> {
    if wait == Wait::Refused && file.source.may_wait() {
        match file.source.resident_page(index) {
            Some(page) if intent == PageIntent::Read => return Ok(page),
            Some(_) => {}
            None => return Err(FaultOutcome::Wants(WantedPage::new(&file.source, index))),
        }
    }
    file.source.page(index, intent).map_err(outcome_of)
}

fn outcome_of(error: PageError) -> FaultOutcome {
    match error {
        PageError::BeyondEnd | PageError::Failed => FaultOutcome::Bus,
        PageError::OutOfMemory => FaultOutcome::OutOfMemory,
    }
}
