//! Ranges that a thread is unmapping without the lock of its space.
//!
//! On several processors the longest part of `munmap` is the wait until every one of them has forgotten the pages, and
//! nobody else has to wait for that: neither a fault in another area nor the next `mmap`. So where a process has
//! threads on several processors, the areas and what is known of the pages go under the lock, and the page table is
//! changed after it was given back ([`DeferredUnmap::finish`]). `munmap` returns when both are done, as ever
//! (`docs/adr/0062-what-threads-unmap-leaves-without-the-lock.md`).
//!
//! What makes that right:
//!
//! - Until the change is done nothing is mapped in the range: a call that makes or grows an area looks at
//!   [`DeferredRanges`] under the space's lock, places it elsewhere or waits. So the change cannot hit a new mapping,
//!   and no new mapping is seen through an old translation. (Nothing else maps pages, as pages are mapped where there
//!   is an area only.)
//! - The batch changes nothing outside of its range; one that does is done under the lock.
//! - The frames keep their references until the kernel has done the batch, so nobody gets one that is still reached.
//! - A range is entered under the lock and taken out without it, by one bit that goes after the kernel's answer. A
//!   thread that sees it still waits too long at most; one that does not comes after the change (`Release`, `Acquire`).
//! - The waiting thread holds the space's lock, and the one that it waits for does not need it: only the pool's and the
//!   kernel.
//!
//! Neighbours: [`super::binder`], whose batch it is; `exos/linux/src/task/memory.rs`, which has the lock.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::CapSlot;

use crate::error::Result;
use crate::mem::binder::UnmapBatch;
use crate::mem::frames::FramePool;
use crate::sync;

mod in_space;

/// DeferredRanges that leave at once; what comes beyond is done under the lock.
const RANGE_COUNT: usize = 8;

/// The ranges that are leaving a space.
#[derive(Default)]
pub(crate) struct DeferredRanges {
    /// A bit for each place that has one.
    taken: AtomicU64,
    places: [(AtomicU64, AtomicU64); RANGE_COUNT],
}

impl DeferredRanges {
    /// Enters a range, under the space's lock; its place.
    fn enter(&self, range: &Range<u64>) -> Option<usize> {
        // Acquire: the last owner of the place has done with it.
        let index = self.taken.load(Ordering::Acquire).trailing_ones() as usize;
        let (start, end) = self.places.get(index)?;
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
        self.taken.fetch_or(1 << index, Ordering::Release);
        Some(index)
    }

    /// Takes a range out, when it has left.
    fn leave(&self, index: usize) {
        self.taken.fetch_and(!(1 << index), Ordering::Release);
    }

    /// Waits until none of them touches `range`.
    #[cold]
    fn await_left(&self, range: &Range<u64>) {
        while self.touched(range).is_some() {
            sync::relax();
        }
    }

    /// Where the lowest of the ranges begins that `range` touches. Under the space's lock.
    fn touched(&self, range: &Range<u64>) -> Option<u64> {
        let (mut taken, mut lowest) = (self.taken.load(Ordering::Acquire), None);
        while taken != 0 {
            let (start, end) = &self.places[taken.trailing_zeros() as usize];
            let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
            taken &= taken - 1;
            if end > range.start && start < range.end {
                lowest = Some(lowest.map_or(start, |lowest: u64| lowest.min(start)));
            }
        }
        lowest
    }
}

/// A range whose areas are gone and whose page table entries are about to go.
#[must_use = "its pages are mapped until it is finished"]
pub struct DeferredUnmap {
    ranges: Arc<DeferredRanges>,
    place: usize,
    space: CapSlot,
    pool: Arc<FramePool>,
    batch: UnmapBatch,
}

impl DeferredUnmap {
    /// Changes the page table and releases the frames, without the space's lock. `ENOMEM` if the kernel refuses.
    pub fn finish(self) -> Result<()> {
        let outcome = self.batch.run(&self.pool, self.space);
        self.ranges.leave(self.place);
        outcome
    }
}

#[cfg(test)]
#[path = "deferred_unmap_tests.rs"]
mod tests;
