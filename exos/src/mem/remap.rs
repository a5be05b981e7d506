//! `mremap`: growing, shrinking and moving a part of one area.
//!
//! Moved pages keep their frames: the page map's entries go to the new place, and the page table
//! follows in one batch. No byte is copied.

use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};

use crate::error::{Errno, Result};
use crate::mem::area::{AREA_COUNT_MAX, Area, AreaFlags, Backing, lower_bound};
use crate::mem::page_map::blocks::Whole;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::space::{AddressSpace, Placement, page_align};
use crate::mem::window::FaultWindow;
use crate::preempt::Pace;

/// Whether `mremap` may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// No: `ENOMEM` if it cannot grow where it is.
    Never,
    /// If it must (`MREMAP_MAYMOVE`).
    Anywhere,
    /// To this address, in place of what is there (`MREMAP_MAYMOVE | MREMAP_FIXED`).
    To(u64),
}

/// The arguments of `mremap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// Start of the old range.
    pub address: u64,
    /// Its length; 0 duplicates a shared mapping.
    pub old_length: u64,
    /// The length wanted.
    pub new_length: u64,
    /// Whether it may move.
    pub movement: Movement,
    /// `MREMAP_DONTUNMAP`: the old range stays, empty. Only private anonymous memory, lengths equal.
    pub keeps_old: bool,
}

impl AddressSpace {
    /// `mremap`: the address of the range after the call.
    ///
    /// `EINVAL` misaligned, new length 0, ranges that overlap, arguments that do not go together;
    /// `EFAULT` the old range is not inside one area; `ENOMEM` no room, a limit; `EAGAIN` the lock
    /// limit; `EPERM` below `PROGRAM_BASE`.
    pub fn remap(&mut self, request: RemapRequest) -> Result<u64> {
        let RemapRequest { address, movement, keeps_old, .. } = request;
        let is_contradiction = keeps_old && (movement == Movement::Never || request.old_length != request.new_length);
        if !address.is_multiple_of(PAGE_SIZE) || is_contradiction {
            return Err(Errno::EINVAL);
        }
        let old_length = page_align(request.old_length).ok_or(Errno::EINVAL)?;
        let new_length = page_align(request.new_length).ok_or(Errno::EINVAL)?;
        if new_length == 0 {
            return Err(Errno::EINVAL);
        }
        self.areas.find(address).ok_or(Errno::EFAULT)?;
        if let Movement::To(target) = movement {
            return self.remap_to(address, old_length, new_length, target, keeps_old);
        }
        if keeps_old {
            self.check_resize(address, old_length, new_length, keeps_old)?;
            let target = self.place(Placement::Hint(0), new_length)?;
            return self.move_range(address, old_length, new_length, target, keeps_old);
        }
        if old_length >= new_length {
            if old_length > new_length {
                self.unmap(address + new_length, old_length - new_length)?;
            }
            return Ok(address);
        }
        self.check_resize(address, old_length, new_length, keeps_old)?;
        if old_length > 0 && self.grow_in_place(address, old_length, new_length) {
            return Ok(address);
        }
        if movement == Movement::Never {
            return Err(Errno::ENOMEM);
        }
        let target = self.place(Placement::Hint(0), new_length)?;
        self.move_range(address, old_length, new_length, target, keeps_old)
    }

    fn remap_to(
        &mut self,
        address: u64,
        mut old_length: u64,
        new_length: u64,
        target: u64,
        keeps_old: bool,
    ) -> Result<u64> {
        let is_outside = new_length > PROGRAM_END || target > PROGRAM_END - new_length;
        if !target.is_multiple_of(PAGE_SIZE) || is_outside {
            return Err(Errno::EINVAL);
        }
        let old_end = address.checked_add(old_length).ok_or(Errno::EINVAL)?;
        if old_end > target && target + new_length > address {
            return Err(Errno::EINVAL);
        }
        if target < PROGRAM_BASE {
            return Err(Errno::EPERM);
        }
        if self.areas.len() + 2 >= AREA_COUNT_MAX {
            return Err(Errno::ENOMEM);
        }
        self.remove_range(target..target + new_length)?;
        if old_length > new_length {
            self.unmap(address + new_length, old_length - new_length)?;
            old_length = new_length;
        }
        self.check_resize(address, old_length, new_length, keeps_old)?;
        self.move_range(address, old_length, new_length, target, keeps_old)
    }

    /// Whether the part of an area may become `new_length` long.
    fn check_resize(&self, address: u64, old_length: u64, new_length: u64, keeps_old: bool) -> Result<()> {
        let area = self.areas.find(address).ok_or(Errno::EFAULT)?;
        if (old_length == 0 && !area.is_shared()) || (keeps_old && !area.is_anonymous()) {
            return Err(Errno::EINVAL);
        }
        if old_length > area.end - address {
            return Err(Errno::EFAULT);
        }
        let growth = if keeps_old { new_length } else { new_length - old_length };
        if growth == 0 {
            return Ok(());
        }
        let file_offset = area.offset_bytes() + (address - area.start);
        file_offset.checked_add(new_length).ok_or(Errno::EINVAL)?;
        self.check_lock(area.flags, growth)?;
        self.check_limits(area.protection, area.flags, area.is_shared(), growth)?;
        let is_promise = area.is_data() && !area.flags.contains(AreaFlags::NO_RESERVE);
        self.check_promise(if is_promise { growth } else { 0 })
    }

    fn grow_in_place(&mut self, address: u64, old_length: u64, new_length: u64) -> bool {
        let Some(area) = self.areas.find(address) else {
            return false;
        };
        let (start, old_end, flags) = (area.start, area.end, area.flags);
        let Some(new_end) = address.checked_add(new_length) else {
            return false;
        };
        let next = self.areas.find_at_or_above(old_end);
        let is_blocked = next.is_some_and(|area| new_end > lower_bound(area));
        if old_length != old_end - address || new_end > PROGRAM_END || is_blocked {
            return false;
        }
        self.await_left(&(old_end..new_end));
        self.areas.set_end(start, new_end);
        self.note_peak();
        if flags.contains(AreaFlags::LOCKED) {
            // The range is there even if its pages cannot be had now.
            let _ = self.populate(old_end..new_end);
        }
        true
    }

    /// Moves `old_length` bytes of one area to the free range of `new_length` bytes at `target`.
    fn move_range(
        &mut self,
        address: u64,
        old_length: u64,
        new_length: u64,
        target: u64,
        keeps_old: bool,
    ) -> Result<u64> {
        let old = address..address + old_length;
        if !self.areas.can_be_cut(&old) {
            return Err(Errno::ENOMEM);
        }
        let area = self.areas.find(address).ok_or(Errno::EFAULT)?;
        let moved = moved_area(area, address, old_length, target, new_length);
        let flags = moved.flags;
        if !keeps_old && old_length > 0 {
            self.areas.remove(old.clone());
        }
        self.await_left(&(target..target + new_length));
        self.areas.insert(moved);
        self.note_peak();
        self.move_pages(&old, target)?;
        if flags.contains(AreaFlags::LOCKED) {
            // See `grow_in_place`.
            let _ = self.populate(target + old_length..target + new_length);
        }
        Ok(target)
    }

    fn move_pages(&mut self, old: &Range<u64>, target: u64) -> Result<()> {
        let mut moving: Vec<(u64, PageEntry)> = Vec::new();
        let first = old.start >> PAGE_SHIFT;
        self.unpatch(&(first..old.end >> PAGE_SHIFT));
        self.settle_large(&(first..old.end >> PAGE_SHIFT), Whole::Split);
        let binder = &mut self.binder;
        self.pages.update(first..old.end >> PAGE_SHIFT, &mut self.pool.lock(), |_, page, entry| {
            if entry.has(PageFlags::MAPPED) {
                binder.unmap(page);
            }
            moving.push((page - first + (target >> PAGE_SHIFT), entry));
            None
        });
        let area = self.areas.find(target).ok_or(Errno::EFAULT)?;
        // What the kernel's extension withheld of a page is known to its old place alone: the next touch is told.
        let (protection, is_withheld) = (area.protection, area.flags.contains(AreaFlags::WITHHELD));
        let mut pace = Pace::default();
        for (page, entry) in moving {
            pace.offer();
            if entry.has(PageFlags::MAPPED) && !is_withheld {
                self.set_page(page, entry, protection);
            } else {
                let entry = entry.without(PageFlags::MAPPED | PageFlags::WRITE);
                self.pages.insert(page, entry, &mut self.pool.lock());
            }
        }
        self.flush()
    }
}

/// The part of `area` from `address` on, as it is at `target`.
fn moved_area(area: &Area, address: u64, old_length: u64, target: u64, new_length: u64) -> Area {
    let mut moved = area.clone();
    if let Backing::File(file) = &mut moved.backing {
        file.first_index += (address - area.start) >> PAGE_SHIFT;
    }
    moved.start = target;
    moved.end = target + new_length;
    // A program that grows a block writes behind its old end next.
    let expected = (target + old_length) >> PAGE_SHIFT..moved.end >> PAGE_SHIFT;
    moved.window = FaultWindow::new(&expected, moved.flags.contains(AreaFlags::GROWS_DOWN));
    moved
}
