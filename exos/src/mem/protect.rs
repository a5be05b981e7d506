//! `mprotect`: rights of areas, and of the pages in them.
//!
//! Taking a right away is done at once, in the page table. Giving one is done at once where a page
//! is the program's alone, and left to the next fault otherwise (shared frames, pages that are not
//! mapped), as a copy or a dirty mark is due then.

use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::types::SLOT_NONE;

use crate::error::{Errno, Result};
use crate::mem::area::{Area, AreaFlags, Protection, is_data};
use crate::mem::binder::is_long;
use crate::mem::page_map::PageFlags;
use crate::mem::page_map::blocks::Whole;
use crate::mem::space::{AddressSpace, is_exclusive, page_align, rights};
use crate::preempt::Pace;

/// What `mprotect` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectReach {
    /// The pages of the range alone.
    Range,
    /// Down to the start of the growing stack that the range lies in (`PROT_GROWSDOWN`).
    GrowsDown,
}

impl AddressSpace {
    /// `mprotect`. `EINVAL` misaligned; `ENOMEM` a page is not mapped (what precedes it is
    /// changed), a limit; `EACCES` a shared mapping of a file that is not open for writing. Unknown
    /// bits of `prot` are the caller's `EINVAL`.
    pub fn protect(&mut self, start: u64, length: u64, protection: Protection, reach: ProtectReach) -> Result<()> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        let length = page_align(length).ok_or(Errno::ENOMEM)?;
        let end = start.checked_add(length).ok_or(Errno::ENOMEM)?;
        let mut next = start;
        if reach == ProtectReach::GrowsDown {
            let area = self.areas.find_at_or_above(start).filter(|area| area.start < end);
            let area = area.ok_or(Errno::ENOMEM)?;
            if !area.flags.contains(AreaFlags::GROWS_DOWN) {
                return Err(Errno::EINVAL);
            }
            next = area.start;
        }
        let mut pace = Pace::default();
        while next < end {
            let area = self.areas.find(next).ok_or(Errno::ENOMEM)?;
            let part = next..area.end.min(end);
            self.check_protect(area, &part, protection)?;
            next = part.end;
            if area.protection != protection {
                self.protect_part(part, protection)?;
            }
            pace.offer();
        }
        Ok(())
    }

    fn check_protect(&self, area: &Area, part: &Range<u64>, protection: Protection) -> Result<()> {
        if !area.maximum.contains(protection) {
            return Err(Errno::EACCES);
        }
        if is_data(protection, area.flags, area.is_shared()) && !area.is_data() {
            let bytes = part.end - part.start;
            let data = self.areas.totals().data << PAGE_SHIFT;
            if data.saturating_add(bytes) > self.limits.data_bytes {
                return Err(Errno::ENOMEM);
            }
            if !area.flags.contains(AreaFlags::NO_RESERVE) {
                self.check_promise(bytes)?;
            }
        }
        if area.protection != protection && !self.areas.can_be_cut(part) {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    /// Changes a range that lies in one area.
    fn protect_part(&mut self, part: Range<u64>, protection: Protection) -> Result<()> {
        self.unpatch_unless(protection, &part);
        self.areas.set_protection(&part, protection);
        let pages = part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT;
        let is_withheld = |area: &Area| area.flags.contains(AreaFlags::WITHHELD);
        if self.handlers.has_watched && self.areas.find(part.start).is_some_and(is_withheld) {
            // The map does not say what is withheld of them: the next touch of each is told.
            self.protect_pages(pages.clone(), Protection::empty())?;
        }
        self.protect_pages(pages, protection)
    }

    /// Gives the known ones of `pages` these rights, or fewer, whatever their areas have.
    #[inline(always)]
    pub(super) fn protect_pages(&mut self, pages: Range<u64>, protection: Protection) -> Result<()> {
        if is_long(&pages) {
            return self.in_pieces(pages, |space, pages| space.protect_pages(pages, protection));
        }
        let whole = if protection.is_empty() {
            Whole::Unmap
        } else {
            Whole::Keep(rights(protection.contains(Protection::WRITE), protection))
        };
        self.settle_large(&pages, whole);
        let binder = &mut self.binder;
        let mut frames = self.pool.lock();
        if protection.is_empty() {
            self.pages.update(pages, &mut frames, |_, page, entry| {
                if entry.has(PageFlags::MAPPED) {
                    binder.unmap(page);
                }
                Some(entry.without(PageFlags::MAPPED | PageFlags::WRITE))
            });
        } else {
            let can_write = protection.contains(Protection::WRITE);
            // Most pages are neighbours of the one before, and like it.
            let (mut run, mut run_kind) = (pages.start..pages.start, (SLOT_NONE, false));
            self.pages.set_writable(pages, |page, entry| {
                let is_writable = can_write && (entry.has(PageFlags::WRITE) || is_exclusive(&frames, entry));
                let kind = (frames.slot_of(entry.frame()), is_writable);
                if page != run.end || kind != run_kind {
                    let run = core::mem::replace(&mut run, page..page);
                    let (slot, is_writable) = core::mem::replace(&mut run_kind, kind);
                    binder.protect_run(run, slot, rights(is_writable, protection));
                }
                run.end = page + 1;
                is_writable
            });
            binder.protect_run(run, run_kind.0, rights(run_kind.1, protection));
        }
        drop(frames);
        self.flush()
    }
}
