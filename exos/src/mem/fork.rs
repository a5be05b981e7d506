//! Cloning an address space by copy on write, for `fork`.
//!
//! Nothing is copied and the child's page table is not touched: the child knows its pages
//! ([`super::page_map`]) and maps them by blocks when it faults, so that a child that calls
//! `execve` at once pays for few of them. The parent's private pages become read-only in one batch;
//! the first store of either side copies, the last user of a frame gets it back without a copy.

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
        let mut inherited: Vec<(Range<u64>, bool, Protection)> = Vec::new();
        for area in self.areas.iter() {
            if area.flags.contains(AreaFlags::DONT_FORK) {
                continue;
            }
            let mut copy = area.clone();
            copy.flags.remove(AreaFlags::LOCKED);
            if !area.flags.contains(AreaFlags::WIPE_ON_FORK) {
                inherited.push((area.pages(), area.is_shared(), area.protection));
            }
            child.areas.insert(copy);
        }
        child.note_peak();
        for (pages, is_shared, protection) in inherited {
            self.share_with(&mut child, pages, is_shared, protection);
        }
        self.flush()?;
        Ok(child)
    }

    fn share_with(&mut self, child: &mut AddressSpace, pages: Range<u64>, is_shared: bool, protection: Protection) {
        let (binder, pool) = (&mut self.binder, &self.pool);
        let mut frames = Vec::new();
        self.pages.update(pages, |page, entry| {
            frames.push(entry.frame());
            let unmapped = entry.without(PageFlags::MAPPED | PageFlags::WRITE);
            child.pages.insert(page, unmapped);
            Some(if is_shared || !entry.has(PageFlags::WRITE) {
                entry
            } else {
                let entry = entry.without(PageFlags::WRITE);
                binder.protect(page, pool.slot_of(entry.frame()), bind_flags(entry, protection));
                entry
            })
        });
        self.pool.retain_all(frames.into_iter());
    }

    /// The entry of a page, for tests and diagnosis: its frame and whether it is writable now.
    #[must_use]
    pub fn frame_at(&self, address: u64) -> Option<(aegis_abi::FrameNumber, bool)> {
        let entry: PageEntry = self.pages.get(address >> PAGE_SHIFT)?;
        Some((entry.frame(), entry.has(PageFlags::WRITE)))
    }
}
