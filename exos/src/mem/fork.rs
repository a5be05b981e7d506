//! Cloning an address space by copy on write, for `fork`.
//!
//! Nothing is copied and the child's page table is not touched: the child shares what the parent knows of its pages
//! ([`super::page_map`]) and maps them by blocks when it faults, so that a child that calls `execve` at once pays for
//! few of them, and a parent with much memory for its leaves only. The pages that the parent has written since its last
//! fork become read-only, some at a time; the first store of either side copies, the last user of a frame gets it back
//! without a copy. Pages of files and of shared memory stay what they are: for a store, their source is asked again.

use aegis_abi::CapSlot;
use aegis_abi::layout::PAGE_SHIFT;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use crate::error::Result;
use crate::mem::area::AreaFlags;
use crate::mem::binder::PIECE_PAGES;
use crate::mem::kept::Residue;
use crate::mem::page_map::blocks::BLOCK_PAGES;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::space::{AddressSpace, bind_flags};
use crate::preempt::{self, Pace};
use crate::reserve;
use crate::rewrite::sites::SiteTable;

impl AddressSpace {
    /// A copy of this space over the empty page table of `environment`, sharing all frames. Limits
    /// and heap are inherited, locks are not, nor areas with `DONT_FORK`; areas with `WIPE_ON_FORK`
    /// come without their pages.
    ///
    /// `ENOMEM` if the kernel refuses a batch, or where there is no memory for what is known of the pages; `EINTR` if
    /// the process ends meanwhile. Then the parent is whole and the copy is dropped.
    pub fn clone_cow(&mut self, environment: CapSlot) -> Result<AddressSpace> {
        self.clone_into(environment, &mut None)
    }

    /// As [`Self::clone_cow`], over a page table that maps what a child before it left, which the copy takes over.
    pub(crate) fn clone_into(&mut self, environment: CapSlot, left: &mut Option<Box<Residue>>) -> Result<AddressSpace> {
        let shared = Arc::clone(&self.shared);
        let mut child = AddressSpace::new(shared, environment, self.mapping_base, self.limits);
        child.break_start = self.break_start;
        child.break_end = self.break_end;
        child.has_no_large_pages = self.has_no_large_pages;
        child.sites = SiteTable::share(&self.sites)?;
        child.handlers = self.handlers.clone();
        child.areas = self.areas.copy()?;
        self.protect_pages_for_fork()?;
        child.pages = self.pages.share()?;
        child.leave_out_areas()?;
        child.keep_for_child(&self.child_faults, left.take());
        child.note_peak();
        child.adopt_child();
        child.start_as_child(Arc::clone(&self.child_faults));
        Ok(child)
    }

    /// The private pages become read-only, piece by piece.
    fn protect_pages_for_fork(&mut self) -> Result<()> {
        if self.pages.has_large() {
            self.protect_blocks_for_fork()?;
        }
        let mut next = 0;
        loop {
            let (binder, areas, frames) = (&mut self.binder, &self.areas, self.pool.lock());
            let rest = self.pages.protect_for_fork(next, PIECE_PAGES, |page, entry| {
                let Some(area) = areas.find(page << PAGE_SHIFT).filter(|area| !area.is_shared()) else { return false };
                let read_only = entry.without(PageFlags::WRITE);
                binder.protect(page, frames.slot_of(entry.frame()), bind_flags(read_only, area.protection));
                true
            });
            drop(frames);
            self.flush()?;
            let Some(rest) = rest else { return Ok(()) };
            preempt::unless_killed()?;
            next = rest;
        }
    }

    /// In a child: takes away what it does not inherit, area by area: they are as many as the program likes. Nothing is
    /// mapped here yet. `ENOMEM`, `EINTR`.
    fn leave_out_areas(&mut self) -> Result<()> {
        let special = AreaFlags::DONT_FORK | AreaFlags::WIPE_ON_FORK | AreaFlags::LOCKED;
        let (mut next, mut pace) = (0, Pace::default());
        loop {
            let found = self.areas.overlapping(next..u64::MAX).find(|area| area.flags.intersects(special));
            // It may have been joined to the one before, which has been dealt with.
            let Some((flags, range)) = found.map(|area| (area.flags, area.start.max(next)..area.end)) else {
                return Ok(());
            };
            next = range.end;
            let pages = range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT;
            if flags.contains(AreaFlags::DONT_FORK) {
                self.areas.remove(range);
            } else if flags.contains(AreaFlags::LOCKED) {
                self.areas.change(range, |area| area.flags.remove(AreaFlags::LOCKED));
            }
            if flags.intersects(AreaFlags::DONT_FORK | AreaFlags::WIPE_ON_FORK) {
                self.leave_out_pages(pages)?;
            }
            pace.unless_killed()?;
        }
    }

    /// Lets go of pages, piece by piece. A leaf that does not go as a whole is copied, so that there may be no memory.
    fn leave_out_pages(&mut self, pages: Range<u64>) -> Result<()> {
        let mut next = pages.start;
        while let Some(start) = self.pages.next_known(next..pages.end) {
            reserve::check()?;
            // Pieces end where leaves do, as in `in_pieces`.
            next = pages.end.min(start.saturating_add(PIECE_PAGES) / BLOCK_PAGES * BLOCK_PAGES);
            self.drop_known_pages(start..next)?;
            if next < pages.end {
                preempt::unless_killed()?;
            }
        }
        Ok(())
    }

    /// The entry of a page, for tests and diagnosis: its frame and whether it is writable now.
    #[must_use]
    pub fn frame_at(&self, address: u64) -> Option<(aegis_abi::FrameNumber, bool)> {
        let entry: PageEntry = self.pages.get(address >> PAGE_SHIFT)?;
        Some((entry.frame(), entry.has(PageFlags::WRITE)))
    }
}
