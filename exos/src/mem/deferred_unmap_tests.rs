//! Unmapping without the lock: what is seen between its two halves, and which calls wait for the second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{DeferredRanges, RANGE_COUNT};
use crate::error::Errno;
use crate::fake::FakeAccess;
use crate::mem::test_support::{ENVIRONMENT, PAGE, Setup, numbers};
use crate::mem::{
    Access, AddressSpace, DeferredUnmap, FaultOutcome, MapRequest, Movement, Placement, Protection, RemapRequest, Wait,
};
use crate::sync::Mutex;

const PAGES: u64 = 16;

fn request(placement: Placement, pages: u64) -> MapRequest {
    MapRequest::anonymous(placement, pages * PAGE, Protection::READ | Protection::WRITE)
}

fn touch(space: &mut AddressSpace, start: u64, pages: u64) {
    for page in 0..pages {
        let outcome = space.handle_fault(start + page * PAGE, Access::Write, Wait::Allowed);
        assert!(matches!(outcome, FaultOutcome::Resolved { .. }), "{outcome:?}");
    }
}

/// A space of threads, with `PAGES` pages at the address.
fn mapped(setup: &Setup) -> (AddressSpace, u64) {
    let mut space = setup.space();
    space.note_threads(true);
    let start = space.map(request(Placement::Hint(0), PAGES)).expect("free");
    touch(&mut space, start, PAGES);
    (space, start)
}

fn leave(space: &mut AddressSpace, start: u64, pages: u64) -> DeferredUnmap {
    space.unmap_apart(start, pages * PAGE).expect("is a range").expect("apart")
}

fn is_mapped(setup: &Setup, address: u64) -> bool {
    setup.machine.allows(ENVIRONMENT, address, FakeAccess::Load)
}

#[test]
fn between_the_halves_the_area_is_gone_and_the_frames_are_not() {
    let setup = Setup::new();
    let (mut space, start) = mapped(&setup);
    let leaving = leave(&mut space, start, PAGES);
    assert_eq!(space.areas().count(), 0);
    assert!(matches!(space.handle_fault(start, Access::Read, Wait::Allowed), FaultOutcome::Segv(_)));
    assert!(is_mapped(&setup, start) && setup.used() == PAGES, "nobody else gets a frame that is still reached");
    // A mapping at any address is placed elsewhere, and does not wait.
    let other = space.map(request(Placement::Hint(0), PAGES)).expect("free");
    assert_eq!(other, start - PAGES * PAGE);
    touch(&mut space, other, PAGES);
    leaving.finish().expect("the kernel does it");
    assert_eq!((is_mapped(&setup, start), setup.used()), (false, PAGES));
    assert!((0..PAGES).all(|page| is_mapped(&setup, other + page * PAGE)));
    assert_eq!(space.map(request(Placement::Hint(0), PAGES)), Ok(start), "the place is free again");
}

#[test]
fn what_is_not_there_or_long_or_of_one_thread_is_done_at_once() {
    let setup = Setup::new();
    let (mut space, start) = mapped(&setup);
    assert_eq!(space.unmap_apart(start, 3).err(), None, "is rounded up");
    assert_eq!(space.unmap_apart(start + 1, PAGE).err(), Some(Errno::EINVAL));
    assert!(space.unmap_apart(start - 64 * PAGE, PAGE).expect("is a range").is_none(), "nothing is there");
    let long = space.map(request(Placement::Hint(0), 4096)).expect("free");
    assert!(space.unmap_apart(long, 4096 * PAGE).expect("is a range").is_none());
    let mut alone = setup.space_of(aegis_abi::CapSlot(ENVIRONMENT.0 + 1));
    let start = alone.map(request(Placement::Hint(0), 1)).expect("free");
    touch(&mut alone, start, 1);
    assert!(!alone.unmaps_apart() && alone.unmap_apart(start, PAGE).expect("is a range").is_none());
}

#[test]
fn more_ranges_than_there_is_room_for_leave_under_the_lock() {
    let setup = Setup::new();
    let (mut space, start) = mapped(&setup);
    let page_at = |index: usize| start + index as u64 * PAGE;
    let leaving: Vec<_> = (0..RANGE_COUNT).map(|index| leave(&mut space, page_at(index), 1)).collect();
    assert!(space.unmap_apart(page_at(RANGE_COUNT), PAGE).expect("is a range").is_none());
    assert!(!is_mapped(&setup, page_at(RANGE_COUNT)) && is_mapped(&setup, page_at(0)));
    leaving.into_iter().for_each(|leaving| leaving.finish().expect("the kernel does it"));
    assert_eq!(setup.used(), PAGES - RANGE_COUNT as u64 - 1);
    leave(&mut space, page_at(RANGE_COUNT + 1), 1).finish().expect("there is room again");
}

/// `work` needs a range that is leaving: it goes on only when that has left, and what it maps stays.
fn waits_for(work: impl FnOnce(&mut AddressSpace, u64) -> u64 + Send) {
    let setup = Setup::new();
    let (mut space, start) = mapped(&setup);
    let leaving = leave(&mut space, start, PAGES);
    let (space, is_done) = (Mutex::new(space), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut space = space.lock();
            let address = work(&mut space, start);
            is_done.store(true, Ordering::SeqCst);
            touch(&mut space, address, 1);
            address
        });
        // A worker that does not wait would be done by then; one that does never is.
        std::thread::sleep(Duration::from_millis(30));
        assert!(!is_done.load(Ordering::SeqCst), "the range has not left");
        leaving.finish().expect("the kernel does it");
        let address = worker.join().expect("goes on");
        assert!(is_mapped(&setup, address), "the change came before the new mapping");
    });
}

#[test]
fn who_needs_the_range_waits_until_it_has_left() {
    waits_for(|space, start| space.map(request(Placement::Fixed(start), PAGES)).expect("free"));
    waits_for(|space, start| space.map(request(Placement::FixedNoReplace(start + PAGE), 1)).expect("free"));
    waits_for(|space, start| {
        let low = space.map(request(Placement::Fixed(start - PAGE), 1)).expect("free");
        let grown = RemapRequest {
            address: low,
            old_length: PAGE,
            new_length: 2 * PAGE,
            movement: Movement::Never,
            keeps_old: false,
        };
        space.remap(grown).expect("there is room") + PAGE
    });
    waits_for(|space, start| {
        let low = space.map(request(Placement::Fixed(start - 4 * PAGE), 1)).expect("free");
        let movement = Movement::To(start + 2 * PAGE);
        let moved = RemapRequest { address: low, old_length: PAGE, new_length: PAGE, movement, keeps_old: false };
        space.remap(moved).expect("there is room")
    });
    waits_for(|space, start| {
        space.unmap(start, PAGE).expect("is a range");
        assert!(space.unmap_apart(start, PAGES * PAGE).expect("is a range").is_none(), "it has left");
        space.map(request(Placement::Hint(0), 1)).expect("free")
    });
}

#[test]
fn a_refused_change_keeps_the_frames_and_frees_the_place() {
    let setup = Setup::new();
    let (mut space, start) = mapped(&setup);
    let leaving = leave(&mut space, start, PAGES);
    setup.machine.refuse_unmaps(true);
    assert_eq!(leaving.finish(), Err(Errno::ENOMEM));
    setup.machine.refuse_unmaps(false);
    assert_eq!(setup.used(), PAGES, "they may still be mapped");
    assert_eq!(setup.machine.log_lines().len(), 1);
    space.await_left(&(start..start + PAGE));
}

#[test]
fn ranges_touch_what_overlaps_them_and_nothing_else() {
    let (ranges, mut inside) = (DeferredRanges::default(), Vec::new());
    let mut random = numbers(7);
    for _ in 0..5000 {
        let start = random(64);
        let range = start..start + 1 + random(8);
        let expected = inside
            .iter()
            .filter(|(_, other): &&(usize, core::ops::Range<u64>)| other.start < range.end && range.start < other.end);
        assert_eq!(ranges.touched(&range), expected.map(|(_, other)| other.start).min());
        if random(2) == 0 && !inside.is_empty() {
            let (place, _) = inside.swap_remove(random(inside.len() as u64) as usize);
            ranges.leave(place);
        } else if let Some(place) = ranges.enter(&range) {
            inside.push((place, range));
        } else {
            assert_eq!(inside.len(), RANGE_COUNT);
        }
    }
}

#[test]
fn threads_that_map_touch_and_unmap_find_their_own_pages_and_leave_nothing() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.note_threads(true);
    let space = Mutex::new(space);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let start = space.lock().map(request(Placement::Hint(0), PAGES)).expect("free");
                    for page in 0..PAGES {
                        let address = start + page * PAGE;
                        touch(&mut space.lock(), address, 1);
                        assert!(is_mapped(&setup, address), "nobody else's change hit it");
                    }
                    let leaving = space.lock().unmap_apart(start, PAGES * PAGE).expect("is a range");
                    leaving.map_or(Ok(()), DeferredUnmap::finish).expect("the kernel does it");
                }
            });
        }
    });
    assert_eq!((setup.used(), setup.machine.mappings(ENVIRONMENT).len()), (0, 0));
}
