//! What a program decides about its own memory through the native interface: handlers of its faults, of a shortage of
//! memory, and changes by batch.
//!
//! A handler is asked after the areas: a fault that exos can resolve (untouched memory, copy on write) never reaches
//! it, one that would be SIGSEGV or SIGBUS does. So a program protects or unmaps what it wants to hear of. Handlers
//! belong to the address space: `fork` copies them with it, `execve` ends them with it.
//!
//! A shortage is told once, and again only after memory was given back since: a handler that gives nothing back does
//! not hold up the end of a process that cannot go on.
//!
//! Neighbour: [`super::handlers`], the handlers themselves. Limits: [`super::handlers::FAULT_RANGE_COUNT_MAX`] ranges
//! of a space.

use aegis_abi::layout::PAGE_SHIFT;

use crate::error::Result;
use crate::mem::advise::Advice;
use crate::mem::area::Protection;
use crate::mem::handlers::Handler;
use crate::mem::page_map::blocks::Whole;
use crate::mem::protect::ProtectReach;
use crate::mem::space::{AddressSpace, MapRequest, Placement, checked_range};
use crate::mem::watched::Watch;

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Zeros with these rights, in place of what is there.
    Map(Protection),
    /// Other rights.
    Protect(Protection),
    /// Nothing there any more.
    Unmap,
    /// The contents are given back; private memory is zeros again.
    Discard,
    /// The handler of the range is told of touches.
    Watch(Watch),
}

impl AddressSpace {
    /// Has a handler asked about faults in a range, or nobody. `EINVAL` no range of whole pages; `ENOSPC`.
    pub fn set_fault_handler(&mut self, start: u64, length: u64, handler: Option<Handler>) -> Result<()> {
        let range = checked_range(start, length)?;
        self.handlers.set(range, handler)
    }

    /// The handler that is asked about a fault that the areas do not resolve.
    #[must_use]
    pub fn fault_handler(&self, address: u64) -> Option<Handler> {
        self.handlers.at(address)
    }

    /// Has a handler asked to give memory back when there is none left, or nobody.
    pub fn set_shortage_handler(&mut self, handler: Option<Handler>) {
        self.handlers.shortage = handler;
        self.handlers.may_tell = true;
    }

    /// The handler to be told now that there is no memory left.
    pub fn take_shortage_handler(&mut self) -> Option<Handler> {
        let handler = self.handlers.shortage?;
        core::mem::take(&mut self.handlers.may_tell).then_some(handler)
    }

    /// Makes changes in their order, with one kernel call for the page tables; how many were made, and what the next
    /// one was refused with: as `mmap` at a fixed address, `mprotect`, `munmap` and `madvise(MADV_DONTNEED)` refuse, or
    /// [`Self::watch`].
    pub fn apply(&mut self, changes: impl Iterator<Item = (u64, u64, Change)>) -> (u64, Result<()>) {
        self.is_batching = true;
        let mut count = 0;
        let mut result = Ok(());
        for (start, length, change) in changes {
            result = self.apply_one(start, length, change);
            if result.is_err() {
                break;
            }
            count += 1;
        }
        self.is_batching = false;
        let flushed = self.flush();
        (count, result.and(flushed))
    }

    fn apply_one(&mut self, start: u64, length: u64, change: Change) -> Result<()> {
        match change {
            Change::Map(protection) => {
                self.map(MapRequest::anonymous(Placement::Fixed(start), length, protection)).map(|_| ())
            }
            Change::Protect(protection) => self.protect(start, length, protection, ProtectReach::Range),
            Change::Unmap => self.unmap(start, length),
            Change::Discard => self.advise(start, length, Advice::DontNeed),
            Change::Watch(watch) => self.watch(start, length, watch),
        }
    }

    /// Clears the accessed and dirty bits of a range in the page table. `EINVAL` no range of whole pages.
    pub fn clean(&mut self, start: u64, length: u64) -> Result<()> {
        let range = checked_range(start, length)?;
        // A program that asks for the bits asks page by page.
        self.settle_large(&(range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT), Whole::Split);
        self.binder.clean(range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT);
        self.flush()
    }
}
