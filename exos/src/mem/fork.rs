//! Cloning an address space by copy on write, for `fork`.
//!
//! Nothing is copied and the child's page table is not touched: the child knows its private pages
//! ([`super::page_map`]) and maps them by blocks when it faults, so that a child that calls
//! `execve` at once pays for few of them. Pages of files and of shared memory it does not even know:
//! they come from their source again, as on Linux. The parent's private pages become read-only in one
//! batch; the first store of either side copies, the last user of a frame gets it back without a copy.

use core::ops::Range;

use aegis_abi::CapSlot;
use aegis_abi::layout::PAGE_SHIFT;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Result;
use crate::mem::area::{AreaFlags, Protection};
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::space::{AddressSpace, bind_flags};

impl AddressSpace {
    /// A copy of this space over the empty page table of `environment`, sharing all frames. Limits
    /// and heap are inherited, locks are not, nor areas with `DONT_FORK`; areas with `WIPE_ON_FORK`
    /// come without their pages.
    ///
    /// `ENOMEM` if the kernel refuses the batch; then the parent is whole and the copy is dropped.
    pub fn clone_cow(&mut self, environment: CapSlot) -> Result<AddressSpace> {
        let pool = Arc::clone(&self.pool);
        let mut child = AddressSpace::new(pool, environment, self.mapping_base, self.limits);
        child.break_start = self.break_start;
        child.break_end = self.break_end;
        child.sites = self.sites.clone();
        child.handlers = self.handlers.clone();
        let mut inherited: Vec<(Range<u64>, Protection)> = Vec::new();
        for area in self.areas.iter() {
            if area.flags.contains(AreaFlags::DONT_FORK) {
                continue;
            }
            let mut copy = area.clone();
            copy.flags.remove(AreaFlags::LOCKED);
            if !area.flags.contains(AreaFlags::WIPE_ON_FORK) && !area.is_shared() {
                inherited.push((area.pages(), area.protection));
            }
            child.areas.insert(copy);
        }
        child.note_peak();
        for (pages, protection) in inherited {
            self.share_with(&mut child, pages, protection);
        }
        self.flush()?;
        Ok(child)
    }

    /// Gives `child` the private pages of a private area.
    fn share_with(&mut self, child: &mut AddressSpace, pages: Range<u64>, protection: Protection) {
        let binder = &mut self.binder;
        let mut frames = self.pool.lock();
        self.pages.share(pages, &mut child.pages, |page, entry| {
            if entry.has(PageFlags::FILE) {
                return (entry, None);
            }
            let (frame, read_only) = (entry.frame(), entry.without(PageFlags::WRITE));
            frames.retain(frame);
            if entry.has(PageFlags::WRITE) {
                binder.protect(page, frames.slot_of(frame), bind_flags(read_only, protection));
            }
            (read_only, Some(read_only.without(PageFlags::MAPPED)))
        });
    }

    /// The entry of a page, for tests and diagnosis: its frame and whether it is writable now.
    #[must_use]
    pub fn frame_at(&self, address: u64) -> Option<(aegis_abi::FrameNumber, bool)> {
        let entry: PageEntry = self.pages.get(address >> PAGE_SHIFT)?;
        Some((entry.frame(), entry.has(PageFlags::WRITE)))
    }
}
