//! Handlers by range, shortages, and batches that reach the kernel as one call and no further than they say.

use aegis_abi::CapSlot;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::test_support::{ENVIRONMENT, PAGE, Setup, load, store};
use super::{Change, Handler, MapRequest, Placement, Protection};
use crate::error::Errno;
use crate::fake::FakeAccess;
use crate::mem::handlers::FAULT_RANGE_COUNT_MAX;

const A: u64 = 0x10_0000_0000;
const ALL: Protection = Protection::READ.union(Protection::WRITE);

fn handler(number: u64) -> Handler {
    Handler { entry: 0x40_0000, function: 0x40_1000, argument: number }
}

#[test]
fn a_batch_is_one_kernel_call_and_touches_nothing_in_between() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(MapRequest::anonymous(Placement::Fixed(A), 64 * PAGE, ALL)).expect("free");
    for page in 0..64 {
        store(&setup, &mut space, A + page * PAGE, page as u8 + 1);
    }
    let (calls, _) = setup.machine.bind_counts();
    let changes = (0..64).filter(|page| page % 2 == 0).map(|page| {
        let change = match page % 8 {
            0 => Change::Unmap,
            2 => Change::Discard,
            4 => Change::Protect(Protection::READ),
            _ => Change::Map(ALL),
        };
        (A + page * PAGE, PAGE, change)
    });
    assert_eq!(space.apply(changes), (32, Ok(())));
    assert_eq!(setup.machine.bind_counts().0, calls + 1);
    for page in 0..64 {
        let address = A + page * PAGE;
        let kept = page as u8 + 1;
        match page % 8 {
            0 => assert!(space.area_at(address).is_none() && setup.machine.load(ENVIRONMENT, address).is_none()),
            2 | 6 => assert_eq!(load(&setup, &mut space, address), 0),
            4 => {
                assert_eq!(setup.machine.load(ENVIRONMENT, address), Some(kept));
                assert!(!setup.machine.allows(ENVIRONMENT, address, FakeAccess::Store));
            }
            _ => assert_eq!(setup.machine.load(ENVIRONMENT, address), Some(kept), "page {page} was not named"),
        }
    }
}

#[test]
fn a_batch_stops_at_what_is_refused() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(MapRequest::anonymous(Placement::Fixed(A), 2 * PAGE, ALL)).expect("free");
    store(&setup, &mut space, A, 1);
    let changes = [
        (A, PAGE, Change::Protect(Protection::READ)),
        (A + 4 * PAGE, PAGE, Change::Protect(Protection::READ)),
        (A, PAGE, Change::Unmap),
    ];
    assert_eq!(space.apply(changes.into_iter()), (1, Err(Errno::ENOMEM)));
    assert_eq!(setup.machine.load(ENVIRONMENT, A), Some(1));
    assert!(!setup.machine.allows(ENVIRONMENT, A, FakeAccess::Store));
}

#[test]
fn a_shortage_is_told_again_only_after_something_was_given_back() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(MapRequest::anonymous(Placement::Fixed(A), 4 * PAGE, ALL)).expect("free");
    store(&setup, &mut space, A, 1);
    space.map(MapRequest::anonymous(Placement::Fixed(A + 64 * PAGE), PAGE, ALL)).expect("free");
    assert_eq!(space.take_shortage_handler(), None);
    space.set_shortage_handler(Some(handler(1)));
    assert_eq!(space.take_shortage_handler(), Some(handler(1)));
    assert_eq!(space.take_shortage_handler(), None);
    assert_eq!(space.apply([(A + 64 * PAGE, PAGE, Change::Discard)].into_iter()), (1, Ok(())));
    assert_eq!(space.take_shortage_handler(), None, "an untouched page gives nothing back");
    assert_eq!(space.apply([(A, PAGE, Change::Discard)].into_iter()), (1, Ok(())));
    assert_eq!(space.take_shortage_handler(), Some(handler(1)));
}

#[test]
fn handlers_go_with_a_fork_and_end_with_the_program() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.set_fault_handler(A, PAGE, Some(handler(1))).expect("whole pages");
    let child = space.clone_cow(CapSlot(51)).expect("memory");
    space.clear();
    assert_eq!((space.fault_handler(A), child.fault_handler(A)), (None, Some(handler(1))));
    for (start, length) in [(A + 1, PAGE), (A, 0), (u64::MAX - 4095, PAGE), (A, u64::MAX)] {
        assert_eq!(space.set_fault_handler(start, length, None), Err(Errno::EINVAL), "{start:#x} {length:#x}");
    }
}

#[test]
fn there_is_a_limit_of_ranges() {
    let setup = Setup::new();
    let mut space = setup.space();
    for index in 0..FAULT_RANGE_COUNT_MAX as u64 {
        space.set_fault_handler(A + 2 * index * PAGE, PAGE, Some(handler(index))).expect("below the limit");
    }
    assert_eq!(space.set_fault_handler(A - PAGE, PAGE, Some(handler(99))), Err(Errno::ENOSPC));
    assert_eq!(space.fault_handler(A), Some(handler(0)), "nothing was lost");
    space.set_fault_handler(A, 3 * PAGE, Some(handler(99))).expect("two ranges became one");
}

proptest! {
    /// Against an array that says for each page which handler was set last.
    #[test]
    fn the_last_who_was_set_for_a_page_is_asked(
        steps in proptest::collection::vec((0_u64..40, 1_u64..12, proptest::option::of(0_u64..5)), 1..40),
        probes in proptest::collection::vec((0_u64..52, 0..PAGE), 20),
    ) {
        let setup = Setup::new();
        let mut space = setup.space();
        let mut model = [None; 52];
        for (first, count, number) in steps {
            let set = space.set_fault_handler(A + first * PAGE, count * PAGE, number.map(handler));
            prop_assert!(set.is_ok());
            model[first as usize..(first + count) as usize].fill(number);
        }
        for (page, byte) in probes {
            let found = space.fault_handler(A + page * PAGE + byte);
            prop_assert_eq!(found, model[page as usize].map(handler));
        }
    }
}
