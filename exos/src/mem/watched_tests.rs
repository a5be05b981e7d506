//! Watched memory against a naive model: what is told, what goes through, and that neighbours stay watched.

use proptest::prelude::{prop, prop_assert, proptest};

use super::test_support::{CachedFile, ENVIRONMENT, PAGE, Setup, store};
use super::{
    AddressSpace, Advice, Change, FaultOutcome, Handler, MapBacking, MapRequest, Placement, Protection, Wait, Watch,
};
use crate::error::Errno;
use crate::fake::FakeAccess;
use crate::mem::Access;
use crate::mem::pinned::PinnedMemory;
use crate::mem::protect::ProtectReach;

const A: u64 = 0x10_0000_0000;
const PAGES: u64 = 24;
const ALL: Protection = Protection::READ.union(Protection::WRITE);
const HANDLER: Handler = Handler { entry: 0x40_0000, function: 0x40_1000, argument: 7 };

/// Touches as the processor and the glue do: whether the handler was told.
fn touch(setup: &Setup, space: &mut AddressSpace, page: u64, access: Access) -> bool {
    let address = A + page * PAGE;
    let wanted = if access == Access::Write { FakeAccess::Store } else { FakeAccess::Load };
    let mut is_told = false;
    for _ in 0..3 {
        if setup.machine.allows(ENVIRONMENT, address, wanted) {
            return is_told;
        }
        let outcome = space.handle_fault(address, access, Wait::Allowed);
        assert!(matches!(outcome, FaultOutcome::Resolved { .. }), "{outcome:?}");
        is_told |= space.watcher(address).is_some();
    }
    panic!("page {page} is not resolved");
}

fn watched(setup: &Setup, is_file: bool) -> AddressSpace {
    let mut space = setup.space();
    let request = MapRequest::anonymous(Placement::Fixed(A), PAGES * PAGE, ALL);
    let request = match is_file {
        true => {
            let source = CachedFile::new(&setup.pool, PAGES);
            MapRequest::file(request.placement, request.length, ALL, source, 0)
        }
        false => request,
    };
    space.map(request).expect("free");
    space.set_fault_handler(A, PAGES * PAGE, Some(HANDLER)).expect("room");
    space
}

fn watch(space: &mut AddressSpace, first: u64, count: u64, watch: Watch) {
    let change = (A + first * PAGE, count * PAGE, Change::Watch(watch));
    assert_eq!(space.apply(core::iter::once(change)), (1, Ok(())));
}

#[derive(Clone, Debug)]
enum Step {
    Load(u64),
    Store(u64),
    Watch(u64, u64, Watch),
    Fork,
}

fn step() -> impl prop::strategy::Strategy<Value = Step> {
    use prop::strategy::Strategy as _;
    let watch = prop::sample::select(vec![Watch::Stores, Watch::Accesses, Watch::Nothing]);
    prop::strategy::Union::new_weighted(vec![
        (6, (0..PAGES).prop_map(Step::Load).boxed()),
        (6, (0..PAGES).prop_map(Step::Store).boxed()),
        (
            3,
            (0..PAGES, 1..9_u64, watch)
                .prop_map(|(at, count, watch)| Step::Watch(at, count.min(PAGES - at), watch))
                .boxed(),
        ),
        (1, prop::strategy::Just(Step::Fork).boxed()),
    ])
}

proptest! {
    #[test]
    fn no_store_goes_through_untold(steps in prop::collection::vec(step(), 1..120), is_file: bool) {
        let setup = Setup::new();
        let mut space = watched(&setup, is_file);
        // Of each page: whether it is watched, and whether a load, a store must be told.
        let mut model = [(false, false, false); PAGES as usize];
        let mut children = Vec::new();
        for step in steps {
            match step {
                Step::Load(page) => {
                    let is_told = touch(&setup, &mut space, page, Access::Read);
                    let (is_watched, must, _) = model[page as usize];
                    prop_assert!(is_told || !must, "a load of page {page}");
                    prop_assert!(!is_told || is_watched);
                    model[page as usize].1 = false;
                }
                Step::Store(page) => {
                    let is_told = touch(&setup, &mut space, page, Access::Write);
                    let (is_watched, _, must) = model[page as usize];
                    prop_assert!(is_told || !must, "a store to page {page}");
                    prop_assert!(!is_told || is_watched);
                    model[page as usize] = (is_watched, false, false);
                }
                Step::Watch(first, count, kind) => {
                    watch(&mut space, first, count, kind);
                    for state in &mut model[first as usize..(first + count) as usize] {
                        let is_watched = kind != Watch::Nothing;
                        *state = (is_watched, kind == Watch::Accesses, is_watched);
                    }
                }
                Step::Fork => children.push(space.fork().expect("memory")),
            }
        }
    }
}

#[test]
fn what_is_told_goes_through_and_neighbours_stay() {
    let setup = Setup::new();
    let mut space = watched(&setup, false);
    for page in 0..PAGES {
        store(&setup, &mut space, A + page * PAGE, page as u8);
    }
    watch(&mut space, 0, PAGES, Watch::Stores);
    assert!(!touch(&setup, &mut space, 3, Access::Read), "loads are not watched, and the page is there");
    assert!(touch(&setup, &mut space, 3, Access::Write));
    assert!(!touch(&setup, &mut space, 3, Access::Write));
    assert_eq!(setup.machine.load(ENVIRONMENT, A + 3 * PAGE), Some(3), "the handler sees it as it was");
    for page in [2, 4] {
        assert!(!setup.machine.allows(ENVIRONMENT, A + page * PAGE, FakeAccess::Store));
    }
    watch(&mut space, 0, PAGES, Watch::Accesses);
    assert!(touch(&setup, &mut space, 3, Access::Read));
    assert!(!setup.machine.allows(ENVIRONMENT, A + 4 * PAGE, FakeAccess::Load));
    assert!(touch(&setup, &mut space, 3, Access::Write));
    assert!(space.is_watched(A));
    watch(&mut space, 0, PAGES, Watch::Nothing);
    assert!(!space.is_watched(A) && !touch(&setup, &mut space, 4, Access::Write));
}

/// A page of shared memory that was stored to before is opened without its source, one that is not there is not.
#[test]
fn shared_pages_are_opened_again_as_they_are() {
    let setup = Setup::new();
    let mut space = setup.space();
    let request = MapRequest::anonymous(Placement::Fixed(A), PAGES * PAGE, ALL);
    space.map(MapRequest { is_shared: true, ..request }).expect("free");
    space.set_fault_handler(A, PAGES * PAGE, Some(HANDLER)).expect("room");
    for round in 1..4 {
        for page in 0..3 {
            store(&setup, &mut space, A + page * PAGE, round);
        }
        watch(&mut space, 0, PAGES, Watch::Stores);
        assert!(!setup.machine.allows(ENVIRONMENT, A, FakeAccess::Store));
        assert!(touch(&setup, &mut space, 0, Access::Write), "round {round}");
        assert_eq!(setup.machine.load(ENVIRONMENT, A), Some(round));
        assert!(!setup.machine.allows(ENVIRONMENT, A + PAGE, FakeAccess::Store), "neighbours stay watched");
    }
    space.advise(A + PAGE, PAGE, Advice::Remove).expect("it is shared");
    assert!(touch(&setup, &mut space, 1, Access::Write));
    assert_eq!(setup.machine.load(ENVIRONMENT, A + PAGE), Some(0), "what was there is gone");
}

#[test]
fn a_watch_that_cannot_be_kept_changes_nothing() {
    let setup = Setup::new();
    let mut space = watched(&setup, false);
    store(&setup, &mut space, A, 1);
    let change = |length, watch| core::iter::once((A, length, Change::Watch(watch)));
    assert_eq!(space.apply(change((PAGES + 1) * PAGE, Watch::Stores)), (0, Err(Errno::ENOMEM)));
    assert_eq!(space.apply(change(5, Watch::Stores)).0, 1, "lengths are whole pages upwards, as those of munmap");
    assert!(space.is_watched(A) && !space.is_watched(A + PAGE));
    assert!(!setup.machine.allows(ENVIRONMENT, A, FakeAccess::Store));
}

#[test]
fn no_device_touches_what_was_not_told() {
    let setup = Setup::new();
    let mut space = watched(&setup, false);
    for page in 0..4 {
        store(&setup, &mut space, A + page * PAGE, 1);
    }
    let pinned = |space: &mut AddressSpace, access| {
        let mut memory = PinnedMemory::new(setup.pool.clone());
        space.pin(A, 4 * PAGE, access, &mut memory).expect("memory")
    };
    assert_eq!(pinned(&mut space, Access::Write), 4 * PAGE);
    watch(&mut space, 0, PAGES, Watch::Stores);
    assert_eq!((pinned(&mut space, Access::Read), pinned(&mut space, Access::Write)), (4 * PAGE, 0));
    assert!(touch(&setup, &mut space, 0, Access::Write) && touch(&setup, &mut space, 1, Access::Write));
    assert_eq!(pinned(&mut space, Access::Write), 2 * PAGE);
    watch(&mut space, 0, PAGES, Watch::Accesses);
    assert_eq!((pinned(&mut space, Access::Read), pinned(&mut space, Access::Write)), (0, 0));
}

/// A shared mapping that is watched, with pages stored to, and placed in the kernel.
fn placed(setup: &Setup) -> AddressSpace {
    let mut space = setup.space();
    let source = CachedFile::new(&setup.pool, PAGES);
    let backing = MapBacking::File { source, offset_bytes: 0, is_readable: true, is_writable: true };
    let request =
        MapRequest { is_shared: true, backing, ..MapRequest::anonymous(Placement::Fixed(A), PAGES * PAGE, ALL) };
    space.map(request).expect("free");
    space.set_fault_handler(A, PAGES * PAGE, Some(HANDLER)).expect("room");
    for page in 0..4 {
        assert!(!touch(setup, &mut space, page, Access::Write));
    }
    watch(&mut space, 0, PAGES, Watch::Stores);
    space.place_watched(A, PAGES * PAGE).expect("watched, and shared");
    space
}

#[test]
fn what_the_kernel_has_closed_is_opened_for_what_was_asked_and_told() {
    let setup = Setup::new();
    let mut space = placed(&setup);
    assert!(touch(&setup, &mut space, 0, Access::Write));
    // The extension closes the page, of which the map says that it is writable, and leaves the fault to us.
    let fault = |space: &mut AddressSpace, access| {
        let outcome = space.handle_fault(A, access, Wait::Allowed);
        assert!(matches!(outcome, FaultOutcome::Resolved { .. }), "{outcome:?}");
        (space.watcher(A).is_some(), setup.machine.allows(ENVIRONMENT, A, FakeAccess::Store))
    };
    assert_eq!(fault(&mut space, Access::Read), (true, false), "a load does not let stores through");
    assert_eq!(fault(&mut space, Access::Write), (true, true));
    let mut memory = PinnedMemory::new(setup.pool.clone());
    assert_eq!(space.pin(A, PAGE, Access::Read, &mut memory), Ok(0), "nobody knows whether it was told");
    assert!(space.is_placed(A, PAGES * PAGE) && !space.is_placed(A, (PAGES + 1) * PAGE));
    // Other rights do not open what is withheld.
    space.protect(A, PAGE, Protection::READ, ProtectReach::Range).expect("its own");
    assert!(!setup.machine.allows(ENVIRONMENT, A, FakeAccess::Load));
    // The kernel does not do it after all.
    space.leave_unplaced(A, PAGES * PAGE);
    assert!(!space.is_placed(A, PAGE));
    let mut memory = PinnedMemory::new(setup.pool.clone());
    assert!(touch(&setup, &mut space, 1, Access::Write));
    assert_eq!(space.pin(A + PAGE, PAGE, Access::Write, &mut memory), Ok(PAGE));
}

#[test]
fn private_or_unwatched_memory_is_not_placed_in_the_kernel() {
    let setup = Setup::new();
    for is_file in [false, true] {
        let mut space = watched(&setup, is_file);
        assert_eq!(space.place_watched(A, PAGES * PAGE), Err(Errno::EINVAL));
        watch(&mut space, 0, PAGES, Watch::Stores);
        assert_eq!(space.place_watched(A, PAGES * PAGE), Err(Errno::EINVAL), "private");
    }
    let mut space = placed(&setup);
    for (start, length) in [(A + 1, PAGE), (A, 0), (A, (PAGES + 1) * PAGE), (A - PAGE, 2 * PAGE), (A, u64::MAX)] {
        assert_eq!(space.place_watched(start, length), Err(Errno::EINVAL), "{start:#x} {length:#x}");
    }
    watch(&mut space, 0, PAGES, Watch::Nothing);
    assert_eq!(space.place_watched(A, PAGE), Err(Errno::EINVAL));
}
