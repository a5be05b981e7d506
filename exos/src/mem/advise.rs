//! Calls over ranges that say something about pages: `madvise`, `msync`, `mincore`, `mlock` and its
//! family.
//!
//! All walk the areas of a range; what they have in common is that a hole in the range is `ENOMEM`,
//! told after the rest was done.

use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};

use crate::error::{Errno, Result};
use crate::mem::area::{Access, AreaFlags, Protection};
use crate::mem::fault::FaultOutcome;
use crate::mem::page_map::PageFlags;
use crate::mem::source::Wait;
use crate::mem::space::{AddressSpace, page_align};
use crate::preempt::{self, Pace};
use crate::reserve;

/// Parts of a range that there is always memory for: a call that gives a few areas' pages back is not refused for want
/// of it.
const FEW_PARTS: usize = 64;

/// What `madvise` says. The personality maps numbers; a number without a meaning is its `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// A hint without effect here: `NORMAL`, `RANDOM`, `SEQUENTIAL`, `WILLNEED`, merging, dumping.
    Hint,
    /// `COLD`, `PAGEOUT`: a hint too, but not for locked memory.
    LeaveEarly,
    /// `HUGEPAGE`: large pages at the first store.
    Large,
    /// `NOHUGEPAGE`: none.
    NoLarge,
    /// `DONTNEED`: private anonymous pages read as zero again, file pages are read again.
    DontNeed,
    /// `DONTNEED_LOCKED`: the same, of locked memory too.
    DontNeedLocked,
    /// `FREE`: as `DontNeed`, allowed for private anonymous memory only.
    Free,
    /// `REMOVE`: a hole in the shared file.
    Remove,
    /// `DONTFORK` and back.
    DontFork,
    /// `DOFORK`.
    DoFork,
    /// `WIPEONFORK` and back.
    WipeOnFork,
    /// `KEEPONFORK`.
    KeepOnFork,
    /// `POPULATE_READ`.
    PopulateRead,
    /// `POPULATE_WRITE`.
    PopulateWrite,
}

/// What `msync` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// `MS_ASYNC`, or no mode: nothing, as written pages are the file's already.
    Later,
    /// `MS_SYNC`: waits for the source.
    Now,
}

impl AddressSpace {
    /// `madvise`. `EINVAL` misaligned, length overflow, advice that does not fit the memory;
    /// `ENOMEM` a hole in the range.
    pub fn advise(&mut self, start: u64, length: u64, advice: Advice) -> Result<()> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let length = page_align(length).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
        let (parts, has_holes) = self.parts(start..end)?;
        let mut pace = Pace::default();
        for part in parts {
            self.advise_part(part, advice)?;
            pace.offer();
        }
        if has_holes { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    fn advise_part(&mut self, part: Range<u64>, advice: Advice) -> Result<()> {
        let area = self.areas.find(part.start).ok_or(Errno::ENOMEM)?;
        let is_private_anonymous = area.is_anonymous();
        let pages = part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT;
        match advice {
            Advice::LeaveEarly if area.flags.contains(AreaFlags::LOCKED) => Err(Errno::EINVAL),
            Advice::Hint | Advice::LeaveEarly => Ok(()),
            Advice::DontNeed | Advice::Free => {
                let is_misfit = advice == Advice::Free && !is_private_anonymous;
                if is_misfit || area.flags.contains(AreaFlags::LOCKED) {
                    return Err(Errno::EINVAL);
                }
                self.drop_pages(pages)
            }
            Advice::DontNeedLocked => self.drop_pages(pages),
            Advice::Remove => self.punch_hole(part, pages),
            Advice::DontFork => self.change_flags(part, AreaFlags::DONT_FORK, AreaFlags::empty()),
            Advice::DoFork => self.change_flags(part, AreaFlags::empty(), AreaFlags::DONT_FORK),
            Advice::WipeOnFork if is_private_anonymous => {
                self.change_flags(part, AreaFlags::WIPE_ON_FORK, AreaFlags::empty())
            }
            Advice::WipeOnFork => Err(Errno::EINVAL),
            Advice::KeepOnFork => self.change_flags(part, AreaFlags::empty(), AreaFlags::WIPE_ON_FORK),
            Advice::Large => self.change_flags(part, AreaFlags::LARGE, AreaFlags::NO_LARGE),
            Advice::NoLarge => self.change_flags(part, AreaFlags::NO_LARGE, AreaFlags::LARGE),
            Advice::PopulateRead => self.populate_part(pages, Access::Read),
            Advice::PopulateWrite => self.populate_part(pages, Access::Write),
        }
    }

    fn punch_hole(&mut self, part: Range<u64>, pages: Range<u64>) -> Result<()> {
        let area = self.areas.find(part.start).ok_or(Errno::ENOMEM)?;
        if area.flags.contains(AreaFlags::LOCKED) {
            return Err(Errno::EINVAL);
        }
        let Some(file) = area.file() else {
            return Err(Errno::EINVAL);
        };
        if !file.is_shared || !area.maximum.contains(Protection::WRITE) {
            return Err(Errno::EACCES);
        }
        let first_index = area.file_index(pages.start);
        let source = file.source.clone();
        self.drop_pages(pages.clone())?;
        source.remove(first_index, pages.end - pages.start)
    }

    fn populate_part(&mut self, pages: Range<u64>, access: Access) -> Result<()> {
        let mut pace = Pace::default();
        for page in pages {
            pace.page_unless_killed()?;
            let is_there = self.pages.get(page).is_some_and(|entry| {
                entry.has(PageFlags::MAPPED) && (access == Access::Read || entry.has(PageFlags::WRITE))
            });
            if is_there {
                continue;
            }
            match self.handle_fault(page << PAGE_SHIFT, access, Wait::Allowed) {
                FaultOutcome::Resolved { .. } => {}
                FaultOutcome::Segv(_) => return Err(Errno::EINVAL),
                FaultOutcome::OutOfMemory => return Err(Errno::ENOMEM),
                _ => return Err(Errno::EFAULT),
            }
        }
        Ok(())
    }

    /// `msync`. `EINVAL` misaligned; `ENOMEM` a hole in the range; `EIO` and others from the source; `EBUSY` locked
    /// memory with `invalidates`.
    pub fn sync(&mut self, start: u64, length: u64, mode: SyncMode, invalidates: bool) -> Result<()> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        // As on Linux, a length that wraps when it is rounded up is none.
        let length = page_align(length).unwrap_or(0);
        let end = start.checked_add(length).ok_or(Errno::ENOMEM)?;
        let (parts, has_holes) = self.parts(start..end)?;
        for part in parts {
            let Some(area) = self.areas.find(part.start) else {
                continue;
            };
            if invalidates && area.flags.contains(AreaFlags::LOCKED) {
                return Err(Errno::EBUSY);
            }
            if let Some(file) = area.file().filter(|file| file.is_shared && mode == SyncMode::Now) {
                let first = area.file_index(part.start >> PAGE_SHIFT);
                file.source.sync(first, (part.end - part.start) >> PAGE_SHIFT)?;
            }
        }
        if has_holes { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// `mincore`: one byte a page, 1 if it is present. `EINVAL` misaligned; `ENOMEM` a hole in the range.
    pub fn resident(&self, start: u64, length: u64) -> Result<Vec<u8>> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let length = page_align(length).ok_or(Errno::ENOMEM)?;
        let end = start.checked_add(length).ok_or(Errno::ENOMEM)?;
        let (parts, has_holes) = self.parts(start..end)?;
        if has_holes {
            return Err(Errno::ENOMEM);
        }
        let (mut present, mut pace) = (Vec::new(), Pace::default());
        for part in parts {
            let Some(area) = self.areas.find(part.start) else {
                continue;
            };
            for page in part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT {
                let is_present = self.pages.get(page).is_some()
                    || area.file().is_some_and(|file| file.source.resident_page(area.file_index(page)).is_some());
                present.push(u8::from(is_present));
                pace.unless_killed()?;
            }
        }
        Ok(present)
    }

    /// `mlock`; with `on_fault` (`MLOCK_ONFAULT`) pages are not resolved now. `ENOMEM` the limit, a
    /// hole in the range, or pages that cannot be had; `EPERM` the limit is 0; `EINVAL` the range
    /// wraps.
    pub fn lock(&mut self, start: u64, length: u64, on_fault: bool) -> Result<()> {
        if self.limits.locked_bytes == 0 {
            return Err(Errno::EPERM);
        }
        let Some(range) = lock_range(start, length)? else {
            return Ok(());
        };
        let (parts, has_holes) = self.parts(range.clone())?;
        let already: u64 = self
            .areas
            .overlapping(range.clone())
            .filter(|area| area.flags.contains(AreaFlags::LOCKED))
            .map(|area| area.end.min(range.end) - area.start.max(range.start))
            .sum();
        let locked = self.areas.totals().locked << PAGE_SHIFT;
        if locked + (range.end - range.start) - already > self.limits.locked_bytes {
            return Err(Errno::ENOMEM);
        }
        for part in parts {
            self.change_flags(part.clone(), AreaFlags::LOCKED, AreaFlags::empty())?;
            if !on_fault {
                if self.areas.find(part.start).is_some_and(|area| area.protection().is_empty()) {
                    return Err(Errno::ENOMEM);
                }
                self.populate(part)?;
            }
            preempt::unless_killed()?;
        }
        if has_holes { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// `munlock`. `ENOMEM` a hole in the range; `EINVAL` the range wraps.
    pub fn unlock(&mut self, start: u64, length: u64) -> Result<()> {
        let Some(range) = lock_range(start, length)? else {
            return Ok(());
        };
        let (parts, has_holes) = self.parts(range)?;
        for part in parts {
            self.change_flags(part, AreaFlags::empty(), AreaFlags::LOCKED)?;
        }
        if has_holes { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// `mlockall`: what is mapped (`current`), what will be (`future`). `ENOMEM` the limit; `EPERM` the limit is 0;
    /// both only for those that may not exceed it (`CAP_IPC_LOCK`).
    pub fn lock_all(&mut self, current: bool, future: bool, on_fault: bool, may_exceed: bool) -> Result<()> {
        if self.limits.locked_bytes == 0 && !may_exceed {
            return Err(Errno::EPERM);
        }
        if current && !may_exceed && self.areas.totals().total << PAGE_SHIFT > self.limits.locked_bytes {
            return Err(Errno::ENOMEM);
        }
        self.lock_future = future;
        if current {
            let (parts, _) = self.parts(0..!(PAGE_SIZE - 1))?;
            for part in parts {
                self.change_flags(part.clone(), AreaFlags::LOCKED, AreaFlags::empty())?;
                if !on_fault {
                    // As on Linux, pages that cannot be had do not fail the call.
                    let _ = self.populate(part);
                }
            }
        }
        Ok(())
    }

    /// `munlockall`.
    pub fn unlock_all(&mut self) -> Result<()> {
        self.lock_future = false;
        let (parts, _) = self.parts(0..!(PAGE_SIZE - 1))?;
        parts.into_iter().try_for_each(|part| self.change_flags(part, AreaFlags::empty(), AreaFlags::LOCKED))
    }

    /// The range cut into parts that lie in one area each, and whether something is mapped nowhere. `ENOMEM`: there is
    /// no memory for so many.
    fn parts(&self, range: Range<u64>) -> Result<(Vec<Range<u64>>, bool)> {
        let mut parts = Vec::new();
        let mut next = range.start;
        let mut has_holes = false;
        for area in self.areas.overlapping(range.clone()) {
            has_holes |= area.start > next;
            if parts.len() >= FEW_PARTS {
                reserve::reserve(&mut parts, 1)?;
            }
            parts.push(area.start.max(range.start)..area.end.min(range.end));
            next = area.end;
        }
        Ok((parts, has_holes || next < range.end))
    }

    fn change_flags(&mut self, part: Range<u64>, set: AreaFlags, clear: AreaFlags) -> Result<()> {
        let area = self.areas.find(part.start).ok_or(Errno::ENOMEM)?;
        let flags = (area.flags | set) - clear;
        if flags == area.flags {
            return Ok(());
        }
        if !self.areas.can_be_cut(&part) {
            return Err(Errno::ENOMEM);
        }
        self.areas.change(part, |area| area.flags = flags);
        Ok(())
    }
}

/// The pages that `mlock` touches; `None` for no bytes.
fn lock_range(start: u64, length: u64) -> Result<Option<Range<u64>>> {
    let first = start & !(PAGE_SIZE - 1);
    if page_align(length).is_none() {
        // As on Linux, a length that wraps when it is rounded up is none.
        return Ok(None);
    }
    let end = start.checked_add(length).and_then(page_align).ok_or(Errno::EINVAL)?;
    Ok((length > 0).then_some(first..end))
}
