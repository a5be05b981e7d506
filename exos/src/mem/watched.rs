//! Watched memory: the program's handler is told of the first touch of each page, and the touch goes through.
//!
//! What tracks stores (transactions over mapped data, checkpoints, collectors) could protect a range and give each page
//! its rights back from a handler; each page is then an area of its own for a while, and costs a system call. Watching
//! leaves areas and rights as they are. It takes the *page table's* rights away; a touch is resolved as ever, for that
//! page alone, and then the handler of the range ([`super::handlers`]) is entered, before the access is repeated.
//!
//! Invariants:
//! - A page that was watched for stores has no store go through before the handler was entered since; likewise for
//!   any access. It may be entered more than once (a fork took rights away, two threads touched at once).
//! - exos touches watched pages for the program only where the program could: a call that would resolve one fails with
//!   `EFAULT`, as for protected memory, as nobody could be told.
//!
//! The kernel's extension can open and close pages of a watched range by itself (ADR 0100): [`AreaFlags::WITHHELD`].
//! What it does not answer comes here, and is resolved and told as ever.
//!
//! Another process that writes to the memory (`process_vm_writev`, a shared mapping of its own) is not seen.
//!
//! Neighbours: [`super::native`] (the batch that asks), [`super::fault`] (which resolves), [`super::protect`] (which
//! takes rights away).

use aegis_abi::layout::PAGE_SHIFT;

use crate::error::{Errno, Result};
use crate::mem::area::{Access, Area, AreaFlags, Protection};
use crate::mem::handlers::Handler;
use crate::mem::page_map::blocks::Whole;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::space::{AddressSpace, checked_range};
use crate::preempt::Pace;

/// What a program is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The next store to each page. A load may be told too, where the page was not mapped.
    Stores,
    /// The next access of each page, and the next store after a load.
    Accesses,
    /// Nothing more. Pages keep what the page table says of them.
    Nothing,
}

impl Area {
    /// Whether faults in it are told and resolved one by one.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.flags.contains(AreaFlags::WATCHED)
    }
}

impl AddressSpace {
    /// Watches a range. `EINVAL` no range of whole pages, a growing stack; `ENOMEM` a page is in no area, too many
    /// areas; nothing is changed then.
    pub(crate) fn watch(&mut self, start: u64, length: u64, watch: Watch) -> Result<()> {
        let range = checked_range(start, length)?;
        let mut next = range.start;
        while next < range.end {
            let area = self.areas.find(next).ok_or(Errno::ENOMEM)?;
            if area.flags.contains(AreaFlags::GROWS_DOWN) {
                return Err(Errno::EINVAL);
            }
            let part = next..area.end.min(range.end);
            if area.is_watched() != (watch != Watch::Nothing) && !self.areas.can_be_cut(&part) {
                return Err(Errno::ENOMEM);
            }
            next = part.end;
        }
        self.handlers.has_watched = true;
        let mut pace = Pace::default();
        next = range.start;
        while next < range.end {
            let area = self.areas.find(next).ok_or(Errno::ENOMEM)?;
            let part = next..area.end.min(range.end);
            let (is_watched, protection) = (area.is_watched(), area.protection);
            next = part.end;
            if is_watched != (watch != Watch::Nothing) {
                self.areas.change(part.clone(), |area| {
                    area.flags.toggle(AreaFlags::WATCHED);
                    area.flags.remove(AreaFlags::WITHHELD);
                });
            }
            let pages = part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT;
            if !is_watched {
                self.settle_large(&pages, Whole::Split);
            }
            match watch {
                Watch::Stores => self.protect_pages(pages, protection.difference(Protection::WRITE))?,
                Watch::Accesses => self.protect_pages(pages, Protection::empty())?,
                Watch::Nothing => {}
            }
            pace.offer();
        }
        Ok(())
    }

    /// The kernel's extension opens and closes pages of a watched range from now on: the page table can have fewer
    /// rights than the map. `EINVAL` no range of whole pages, all of them watched and of shared mappings: private ones
    /// change rights by themselves, after a fork, and can stay in a space that is kept for another process.
    pub fn place_watched(&mut self, start: u64, length: u64) -> Result<()> {
        let range = checked_range(start, length)?;
        let mut next = range.start;
        while next < range.end {
            let area = self.areas.find(next).filter(|area| area.is_watched() && area.is_shared());
            next = area.ok_or(Errno::EINVAL)?.end;
        }
        if !self.areas.can_be_cut(&range) {
            return Err(Errno::ENOMEM);
        }
        next = range.start;
        while let Some(area) = self.areas.find(next).filter(|_| next < range.end) {
            let part = next..area.end.min(range.end);
            next = part.end;
            self.areas.change(part, |area| area.flags.insert(AreaFlags::WITHHELD));
        }
        Ok(())
    }

    /// Whether all of a range is watched and placed in the kernel.
    #[must_use]
    pub fn is_placed(&self, start: u64, length: u64) -> bool {
        let Ok(range) = checked_range(start, length) else { return false };
        let mut next = range.start;
        while next < range.end {
            let is_it = |area: &&Area| area.is_watched() && area.flags.contains(AreaFlags::WITHHELD);
            let Some(area) = self.areas.find(next).filter(is_it) else { return false };
            next = area.end;
        }
        true
    }

    /// What [`Self::place_watched`] has said is not so: the kernel has refused.
    pub fn leave_unplaced(&mut self, start: u64, length: u64) {
        let Ok(range) = checked_range(start, length) else { return };
        let mut next = range.start;
        while let Some(area) = self.areas.find(next).filter(|_| next < range.end) {
            let part = next..area.end.min(range.end);
            next = part.end;
            self.areas.change(part, |area| area.flags.remove(AreaFlags::WITHHELD));
        }
    }

    /// The handler that is told of a fault that was resolved: that of watched memory.
    #[inline]
    #[must_use]
    pub fn watcher(&self, address: u64) -> Option<Handler> {
        if !self.handlers.has_watched {
            return None;
        }
        let handler = self.handlers.at(address)?;
        self.areas.find(address).filter(|area| area.is_watched()).map(|_| handler)
    }

    /// Whether the program is still to be told of such an access: it has not touched the page so since it was watched.
    pub(super) fn is_untold(&self, address: u64, access: Access) -> bool {
        let is_open =
            |entry: PageEntry| entry.has(PageFlags::MAPPED) && (access != Access::Write || entry.has(PageFlags::WRITE));
        let is_withheld = || self.areas.find(address).is_some_and(|area| area.flags.contains(AreaFlags::WITHHELD));
        let is_known_open = || self.pages.get(address >> PAGE_SHIFT).is_some_and(is_open) && !is_withheld();
        self.is_watched(address) && !is_known_open()
    }

    /// Whether exos may not resolve a fault there for the program: nobody would be told.
    #[must_use]
    pub fn is_watched(&self, address: u64) -> bool {
        self.watcher(address).is_some()
    }
}
