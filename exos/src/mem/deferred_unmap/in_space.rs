//! Unmapping in two halves as an address space does it.

use alloc::sync::Arc;
use core::ops::Range;

use aegis_abi::layout::PAGE_SHIFT;

use super::{DeferredUnmap, RANGE_COUNT};
use crate::error::Result;
use crate::mem::binder::is_long;
use crate::mem::space::{AddressSpace, checked_range};

impl AddressSpace {
    /// Whether there is another thread that would wait for [`Self::unmap`].
    #[inline]
    #[must_use]
    pub fn unmaps_apart(&self) -> bool {
        self.deferred.is_some()
    }

    /// As [`Self::unmap`]; where threads run on several processors, with a rest that is done without the lock.
    #[inline(never)]
    pub fn unmap_apart(&mut self, start: u64, length: u64) -> Result<Option<DeferredUnmap>> {
        let range = checked_range(start, length)?;
        // A call that unmaps it once more is told that it is gone when it is.
        self.await_left(&range);
        if self.is_batching || !self.binder.is_empty() || is_long(&(range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT))
        {
            return self.unmap(start, length).map(|()| None);
        }
        self.is_batching = true;
        let unmapped = self.unmap(start, length);
        self.is_batching = false;
        let entered = match (unmapped, self.binder.unmap_batch(&range), &self.deferred) {
            (Ok(()), Some(batch), Some(ranges)) => ranges.enter(&range).map(|place| (Arc::clone(ranges), place, batch)),
            _ => None,
        };
        let Some((ranges, place, batch)) = entered else {
            let flushed = self.flush();
            return unmapped.and(flushed).map(|()| None);
        };
        if self.binder.releases() {
            self.handlers.note_release();
        }
        self.binder.clear();
        let (space, pool) = (self.environment, Arc::clone(&self.pool));
        Ok(Some(DeferredUnmap { ranges, place, space, pool, batch }))
    }

    /// Waits until nothing of `range` is leaving. Called before an area is made or grows there.
    #[inline]
    pub(crate) fn await_left(&self, range: &Range<u64>) {
        if let Some(ranges) = &self.deferred {
            ranges.await_left(range);
        }
    }

    /// The highest free range of `length` bytes that ends at or below `top` and of which nothing is leaving; one of
    /// which something is, if there is no other.
    #[inline]
    pub(crate) fn find_hole(&mut self, length: u64, top: u64) -> Option<u64> {
        let found = self.areas.find_hole(length, top)?;
        if self.deferred.is_some() { Some(self.find_quiet_hole(length, found)) } else { Some(found) }
    }

    #[cold]
    fn find_quiet_hole(&mut self, length: u64, found: u64) -> u64 {
        let Some(ranges) = &self.deferred else { return found };
        let mut hole = found;
        for _ in 0..RANGE_COUNT {
            let Some(below) = ranges.touched(&(hole..hole + length)) else { return hole };
            match self.areas.find_other_hole(length, below) {
                Some(next) => hole = next,
                None => break,
            }
        }
        found
    }
}
