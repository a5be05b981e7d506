//! What must end ends, whatever others do between two of its calls.
//!
//! The first environment repeats a call on processor 0 while its children do anything on the others. How often it may
//! be told to repeat is bounded by what there was when it began, not by what the others do.

use aegis_abi::call::{Call, CapRevoke, EnvironmentDestroy, EnvironmentReclaim};
use aegis_abi::types::{CapSlot, Status};

use super::random::Arena;
use super::world::{S, World};

/// Entries of others before, and between two calls.
const BEFORE_COUNT: usize = 400;
const BETWEEN_COUNT: usize = 6;
/// Calls that anything may take. A child has some hundred frames and capabilities, of which one call ends dozens.
const CALL_COUNT_MAX: usize = 200;

/// Others act, on processors that the first environment does not run on.
fn others(arena: &mut Arena, count: usize) {
    for step in 0..count {
        let index = 1 + step % 2;
        if arena.world.current(index) != Some(arena.world.first_processor) {
            arena.step_on(index);
        }
    }
}

/// Repeats a call for as long as it is told to; how often it was, and what it said at last.
fn repeat(arena: &mut Arena, call: Call) -> (usize, Status) {
    for count in 1..=CALL_COUNT_MAX {
        assert_eq!(arena.world.current(0), Some(arena.world.first_processor));
        match arena.world.call_on(0, call) {
            (Status::Again, _) => others(arena, BETWEEN_COUNT),
            (status, _) => return (count, status),
        }
    }
    panic!("{call:?} does not end");
}

#[test]
fn environments_end_whatever_others_do() {
    for seed in 1..=12 {
        let mut arena = Arena::set_up(World::new(), seed);
        arena.world.state.machine.caches.begin(seed);
        others(&mut arena, BEFORE_COUNT);
        for child in 0..3 {
            let slot = CapSlot(S + child * 10);
            let (_, status) = repeat(&mut arena, Call::EnvironmentDestroy(EnvironmentDestroy { slot }));
            assert_eq!(status, Status::Ok, "seed {seed}, child {child}");
        }
        arena.world.check();
    }
}

#[test]
fn revocations_end_whatever_others_do() {
    for seed in 1..=12 {
        let mut arena = Arena::set_up(World::new(), seed);
        arena.world.state.machine.caches.begin(seed);
        others(&mut arena, BEFORE_COUNT);
        for child in 0..3 {
            let slot = CapSlot(S + child * 10 + 4);
            let (_, status) = repeat(&mut arena, Call::CapRevoke(CapRevoke { slot }));
            // Busy: the other has pinned them.
            assert!(matches!(status, Status::Ok | Status::Busy), "seed {seed}, child {child}: {status:?}");
        }
        arena.world.check();
    }
}

/// How many passes of a repossession, which come by themselves, anything may take: a frame is taken by one, mostly
/// dozens are, and the walks over tables that a pass leaves half done go on in the next.
const PASS_COUNT_MAX: usize = 400;
const PASS_NS: u64 = 100_000;

/// Frames that were asked for and did not come are taken, or their owner ends, whatever the owner and others do between
/// two passes: map them again, grant, split, pin and free them.
#[test]
fn repossessions_end_whatever_others_do() {
    for seed in 1..=12 {
        let mut arena = Arena::set_up(World::new(), seed);
        arena.world.state.machine.caches.begin(seed);
        others(&mut arena, BEFORE_COUNT);
        for child in 0..3 {
            let slot = CapSlot(S + child * 10);
            let environment = arena.children[child as usize];
            let frame_count = arena.world.state.environments[environment].frame_quota - seed % 3 * 20;
            let deadline_ns = arena.world.state.machine.now_ns + PASS_NS;
            arena.world.state.machine.now_ns = deadline_ns;
            arena.world.ok(Call::EnvironmentReclaim(EnvironmentReclaim { slot, frame_count, deadline_ns }));
            let mut count = 0;
            while {
                let object = &arena.world.state.environments[environment];
                object.reclaim.deadline_ns != 0 && !object.is_stopped()
            } {
                count += 1;
                assert!(count <= PASS_COUNT_MAX, "seed {seed}, child {child}: a repossession does not end");
                arena.world.state.machine.now_ns += PASS_NS;
                arena.world.timer(1);
                others(&mut arena, BETWEEN_COUNT);
            }
            let object = &arena.world.state.environments[environment];
            assert!(object.is_stopped() || object.excess() == 0, "seed {seed}, child {child}");
        }
        arena.world.check();
    }
}
