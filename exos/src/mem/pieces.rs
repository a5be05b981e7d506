//! Changes of ranges with many pages, piece by piece (`crate::preempt`).
//!
//! A range is told by its areas at once; what is done to its pages, which are as many as memory holds, is done for some
//! of them at a time: their entries and frames under the pool's lock, the page table in one batch, and then a
//! preemption point. The address space stays locked over it, so nobody sees half of a change but programs, which see
//! pages go or become read-only one after the other, as on every machine.

use core::cell::RefCell;
use core::ops::Range;

use aegis_abi::layout::PAGE_SHIFT;

use crate::error::Result;
use crate::mem::binder::{PIECE_PAGES, is_long};
use crate::mem::page_map::PageFlags;
use crate::mem::page_map::blocks::BLOCK_PAGES;
use crate::mem::space::AddressSpace;
use crate::preempt;

/// Areas that are taken away at a time: as many pages have to be there.
const PIECE_AREAS: usize = PIECE_PAGES as usize;

impl AddressSpace {
    /// The most pages that were present at once.
    #[must_use]
    #[inline]
    pub fn resident_peak(&self) -> u64 {
        self.pages.resident_peak()
    }

    /// Does `work` with one change of the page tables at its end. `ENOMEM` if the kernel refuses that.
    pub(crate) fn in_one_batch<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.is_batching = true;
        let done = work(self);
        self.is_batching = false;
        let flushed = self.flush();
        done.and_then(|value| flushed.map(|()| value))
    }

    /// Does what was queued, unless a batch goes on.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.is_batching {
            self.binder.seal();
            return Ok(());
        }
        if self.binder.is_empty() {
            return Ok(());
        }
        if self.binder.releases() {
            self.handlers.note_release();
        }
        self.binder.flush(&self.pool, self.environment, &mut self.pages)
    }

    /// As [`Self::drop_pages`], for pages without rewritten sites.
    pub(crate) fn drop_known_pages(&mut self, pages: Range<u64>) -> Result<()> {
        if is_long(&pages) {
            return self.in_pieces(pages, Self::drop_known_pages);
        }
        self.drop_large(&pages);
        let binder = RefCell::new(&mut self.binder);
        let mut frames = self.pool.lock();
        let (unmap, release) =
            (|pages| binder.borrow_mut().unmap_run(pages), |run| binder.borrow_mut().release_run(run));
        self.pages.take_whole(&pages, &mut frames, unmap, release);
        let binder = binder.into_inner();
        self.pages.update(pages, &mut frames, |_, page, entry| {
            if entry.has(PageFlags::MAPPED) {
                binder.unmap(page);
            }
            binder.release(entry.frame());
            None
        });
        drop(frames);
        self.flush()
    }

    /// [`AddressSpace::remove_range`] for a range that may have many areas.
    #[cold]
    pub(crate) fn remove_long(&mut self, range: Range<u64>) -> Result<()> {
        let (mut outcome, mut start) = (Ok(()), range.start);
        while start < range.end {
            let last = self.areas.overlapping(start..range.end).nth(PIECE_AREAS - 1);
            let end = last.map_or(range.end, |area| area.end().min(range.end));
            if self.areas.remove(start..end) {
                outcome = outcome.and(self.drop_pages(start >> PAGE_SHIFT..end >> PAGE_SHIFT));
            }
            if !self.is_batching && end < range.end {
                preempt::offer();
            }
            start = end;
        }
        outcome
    }

    /// Does `work` for all known pages of `pages`, ascending, piece by piece. `ENOMEM` if the kernel refuses one; the
    /// others are done.
    #[cold]
    pub(crate) fn in_pieces(
        &mut self,
        pages: Range<u64>,
        mut work: impl FnMut(&mut Self, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let mut next = pages.start;
        while let Some(start) = self.pages.next_known(next..pages.end) {
            // Pieces end where blocks do.
            next = pages.end.min(start.saturating_add(PIECE_PAGES) / BLOCK_PAGES * BLOCK_PAGES);
            outcome = outcome.and(work(self, start..next));
            if !self.is_batching {
                preempt::offer();
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Errno;
    use crate::mem::binder::PIECE_PAGES;
    use crate::mem::test_support::{BASE, ENVIRONMENT, PAGE, Setup};
    use crate::mem::{
        Access, AddressSpace, Advice, AreaFlags, FaultOutcome, MapRequest, Placement, ProtectReach, Protection, Wait,
    };
    use crate::preempt::test_support::interrupted_after;
    use crate::preempt::{Interruption, PIECE_COUNT};
    use crate::reserve::{Level, set_level};
    use aegis_abi::CapSlot;

    const LENGTH: u64 = 5 * PIECE_PAGES * PAGE;
    const CHILD: CapSlot = CapSlot(ENVIRONMENT.0 + 1);

    /// All of `LENGTH` from `BASE` down is there, and writable.
    fn filled(setup: &Setup) -> (AddressSpace, u64) {
        let mut space = setup.space();
        let request = MapRequest {
            populate: true,
            flags: AreaFlags::NO_LARGE,
            ..MapRequest::anonymous(Placement::Hint(0), LENGTH, Protection::READ | Protection::WRITE)
        };
        let start = space.map(request).unwrap();
        assert!(start + LENGTH <= BASE && setup.used() == LENGTH / PAGE);
        (space, start)
    }

    #[test]
    fn all_of_a_long_range_is_unmapped_with_points_in_between() {
        let setup = Setup::new();
        let (mut space, start) = filled(&setup);
        let unmap = || space.unmap(start, LENGTH);
        let (outcome, point_count) = interrupted_after(0, Interruption::Kill, unmap);
        assert_eq!((outcome, setup.used()), (Ok(()), 0));
        assert!(point_count >= 5, "{point_count}");
        // Nothing is there: nothing takes time.
        let (outcome, point_count) = interrupted_after(0, Interruption::Kill, || space.unmap(PAGE * 16, 1 << 46));
        assert_eq!((outcome, point_count), (Ok(()), 0));
    }

    #[test]
    fn many_areas_go_piece_by_piece_and_all_of_them() {
        let setup = Setup::new();
        let mut space = setup.space();
        let count = 3 * PIECE_PAGES + 7;
        let start = BASE - count * PAGE;
        for number in 0..count {
            let rights = if number % 2 == 0 { Protection::READ } else { Protection::READ | Protection::WRITE };
            let place = start + number * PAGE;
            assert_eq!(space.map(MapRequest::anonymous(Placement::Fixed(place), PAGE, rights)), Ok(place));
        }
        assert_eq!(space.areas().count() as u64, count);
        // All but the first and the last.
        let unmap = || space.unmap(start + PAGE, (count - 2) * PAGE);
        let (outcome, point_count) = interrupted_after(0, Interruption::Kill, unmap);
        assert_eq!((outcome, point_count), (Ok(()), 3));
        assert!(space.areas().map(|area| area.start()).eq([start, start + (count - 1) * PAGE]));
    }

    #[test]
    fn a_fork_that_is_killed_leaves_the_parent_whole() {
        let setup = Setup::new();
        let (mut space, start) = filled(&setup);
        let (outcome, _) = interrupted_after(1, Interruption::Kill, || space.clone_cow(CHILD).map(|_| ()));
        assert_eq!(outcome, Err(Errno::EINTR));
        for page in [0, PIECE_PAGES, 5 * PIECE_PAGES - 1] {
            let outcome = space.handle_fault(start + page * PAGE, Access::Write, Wait::Allowed);
            assert!(matches!(outcome, FaultOutcome::Resolved { .. }));
        }
        assert_eq!(setup.used(), LENGTH / PAGE);
    }

    #[test]
    fn what_a_child_does_not_inherit_goes_piece_by_piece() {
        for advice in [Advice::DontFork, Advice::WipeOnFork] {
            let setup = Setup::new();
            let (mut space, start) = filled(&setup);
            let clone = |space: &mut AddressSpace| space.clone_cow(CHILD).map(|_| ());
            // From now on a store to any page faults, and cloning takes nothing away from the parent.
            clone(&mut space).unwrap();
            space.advise(start, LENGTH, advice).unwrap();
            let (outcome, point_count) = interrupted_after(0, Interruption::None, || clone(&mut space));
            assert_eq!((outcome, setup.used()), (Ok(()), LENGTH / PAGE));
            assert!(point_count >= 4, "{point_count}");
            let (outcome, _) = interrupted_after(point_count - 1, Interruption::Kill, || clone(&mut space));
            assert_eq!((outcome, setup.used()), (Err(Errno::EINTR), LENGTH / PAGE));
            let child = space.clone_cow(CHILD).unwrap();
            assert_eq!(child.areas().count(), usize::from(advice == Advice::WipeOnFork));
            assert_eq!(child.frame_at(start + PAGE), None);
            assert!(space.frame_at(start + LENGTH - PAGE).is_some());
        }
    }

    #[test]
    fn many_areas_that_a_child_does_not_inherit_are_left_out_one_by_one() {
        let setup = Setup::new();
        let (mut space, start) = filled(&setup);
        let count = LENGTH / PAGE;
        space.limits.locked_bytes = LENGTH;
        // Of each four pages the second is not there, the third is wiped, and the fourth was locked with the third.
        for page in (0..count).step_by(4) {
            let at = |number: u64| start + (page + number) * PAGE;
            space.advise(at(1), PAGE, Advice::DontFork).unwrap();
            space.advise(at(2), PAGE, Advice::WipeOnFork).unwrap();
            space.lock(at(2), 2 * PAGE, false).unwrap();
        }
        let (child, point_count) = interrupted_after(0, Interruption::None, || space.clone_cow(CHILD).unwrap());
        assert!(point_count as usize >= count as usize * 3 / 4 / PIECE_COUNT, "{point_count}");
        for page in 0..count {
            let address = start + page * PAGE;
            let is_there = child.areas().any(|area| (area.start()..area.end()).contains(&address));
            assert_eq!(is_there, page % 4 != 1, "{page}");
            assert_eq!(child.frame_at(address).is_some(), matches!(page % 4, 0 | 3), "{page}");
        }
        assert_eq!(child.totals().areas.locked, 0);
        drop(child);
        set_level(Level::Short);
        let few = space.advise(start, 16 * PAGE, Advice::KeepOnFork);
        let many = space.advise(start, LENGTH, Advice::KeepOnFork);
        set_level(Level::Whole);
        assert_eq!((few, many, setup.used()), (Ok(()), Err(Errno::ENOMEM), count));
    }

    #[test]
    fn rights_are_changed_and_pages_are_had_piece_by_piece() {
        let setup = Setup::new();
        let (mut space, start) = filled(&setup);
        let protect = || space.protect(start, LENGTH, Protection::READ, ProtectReach::Range);
        let (outcome, point_count) = interrupted_after(0, Interruption::Kill, protect);
        assert_eq!((outcome, point_count >= 5), (Ok(()), true));
        assert!(!space.frame_at(start + LENGTH - PAGE).unwrap().1);
        space.unmap(start, LENGTH).unwrap();
        let request = MapRequest::anonymous(Placement::Hint(0), LENGTH, Protection::READ | Protection::WRITE);
        let start = space.map(request).unwrap();
        let populate = || space.populate(start..start + LENGTH);
        assert_eq!(interrupted_after(3, Interruption::Kill, populate).0, Err(Errno::EINTR));
        assert!(setup.used() < PIECE_PAGES);
    }
}
