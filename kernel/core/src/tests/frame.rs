//! Calls 6 to 9, and the ownership table by itself.

use aegis_abi::call::{Call, CapDrop, FrameAllocate, FrameDonate, FrameFree, FrameSplit};
use aegis_abi::types::{CapSlot, FrameNumber, SLOT_BUNDLE, SLOT_MACHINE, SLOT_SELF, Status};

use super::world::{FRAME_COUNT, S, World};
use crate::object::{BlockEntry, FrameEntry, FrameKind, FrameTable};

fn allocate(slot: u32, count: u64, frame: u64, alignment_log2: u32) -> Call {
    Call::FrameAllocate(FrameAllocate { slot: CapSlot(slot), count, frame: FrameNumber(frame), alignment_log2 })
}

fn free(slot: u32) -> Call {
    Call::FrameFree(FrameFree { slot: CapSlot(slot) })
}

pub(super) fn split(slot: u32, target: u32, count: u64) -> Call {
    Call::FrameSplit(FrameSplit { slot: CapSlot(slot), target: CapSlot(target), count })
}

fn donate(slot: u32, environment: u32) -> Call {
    Call::FrameDonate(FrameDonate { slot: CapSlot(slot), environment: CapSlot(environment) })
}

#[test]
fn frames_by_name_and_by_alignment() {
    let mut world = World::new();
    assert_eq!(world.ok(allocate(S, 3, 2000, 0)), 2000);
    assert_eq!(world.refused(allocate(S + 1, 1, 2001, 0)), Status::NoFrames);
    assert_eq!(world.refused(allocate(S + 1, 1, 2003, 1)), Status::NoFrames);
    let first = world.ok(allocate(S + 1, 512, u64::MAX, 9));
    assert_eq!(first % 512, 0);
    assert_eq!(world.refused(allocate(S + 2, 1, FRAME_COUNT, 0)), Status::NoFrames);
    assert_eq!(world.refused(allocate(S + 2, 1, u64::MAX - 1, 0)), Status::NoFrames);
    assert_eq!(world.refused(allocate(S + 2, 2, FRAME_COUNT - 1, 0)), Status::NoFrames);
    assert_eq!(world.refused(allocate(S + 2, 1, 1, 0)), Status::NoFrames, "the kernel's");
    assert_eq!(world.call(allocate(S + 2, 0, u64::MAX, 0)), (Status::BadArgument, 1));
    assert_eq!(world.call(allocate(S + 2, u64::MAX, u64::MAX, 0)), (Status::BadArgument, 1));
    assert_eq!(world.call(allocate(S + 2, 1, u64::MAX, 64)), (Status::BadArgument, 3));
    assert_eq!(world.refused(allocate(S, 1, u64::MAX, 0)), Status::SlotInUse);
    assert_eq!(world.refused(allocate(0, 1, u64::MAX, 0)), Status::BadSlot);
}

#[test]
fn frames_are_zeroed_when_they_cross_environments_and_only_then() {
    let mut world = World::new();
    let first = world.frames(S, 4);
    assert_eq!(world.state.machine.memory[first as usize][7], 0);
    world.state.machine.memory[first as usize][7] = 1;
    world.ok(free(S));
    assert_eq!(world.ok(allocate(S, 4, first, 0)), first);
    assert_eq!(world.state.machine.memory[first as usize][7], 1, "it was ours");
    world.ok(donate(S, SLOT_SELF.0));
    // Back from the kernel's own use: page tables and capability tables are nobody's data.
    let child = world.environment(S + 2, 50);
    assert_ne!(child, world.first);
}

#[test]
fn a_large_allocation_is_zeroed_in_pieces_and_authorises_nothing_until_then() {
    let mut world = World::new();
    let call = allocate(S, 3000, u64::MAX, 0);
    assert_eq!(world.refused(call), Status::Again);
    assert_eq!(world.refused(split(S, S + 1, 5)), Status::WrongState);
    assert_eq!(world.refused(free(S)), Status::WrongState);
    let first = world.ok(call);
    for frame in first..first + 3000 {
        assert_eq!(world.state.machine.memory[frame as usize], [0; 512]);
    }
    world.ok(free(S));
}

#[test]
fn a_large_allocation_that_is_dropped_half_way_leaks_nothing() {
    let mut world = World::new();
    let call = allocate(S, 3000, u64::MAX, 0);
    assert_eq!(world.refused(call), Status::Again);
    world.ok(Call::CapDrop(CapDrop { slot: CapSlot(S) }));
    let first = world.ok(call);
    for frame in first..first + 3000 {
        assert_eq!(world.state.machine.memory[frame as usize], [0; 512]);
    }
}

#[test]
fn quota_is_a_limit() {
    let mut world = World::new();
    let left = world.state.environments[world.first].frames_left();
    assert_eq!(left, world.state.frames.free_count());
    world.environment(S, left - 64 - 10);
    assert_eq!(world.refused(allocate(S + 4, 11, u64::MAX, 0)), Status::NoFrames);
    world.ok(allocate(S + 4, 10, u64::MAX, 0));
    assert_eq!(world.refused(allocate(S + 5, 1, u64::MAX, 0)), Status::NoFrames);
}

#[test]
fn only_whole_unused_originals_are_freed() {
    let mut world = World::new();
    world.frames(S, 4);
    world.ok(Call::CapDerive(aegis_abi::call::CapDerive {
        source: CapSlot(S),
        target: CapSlot(S + 1),
        rights: 1,
        offset: 0,
        count: 1,
    }));
    assert_eq!(world.refused(free(S)), Status::Busy);
    assert_eq!(world.refused(free(S + 1)), Status::WrongState);
    assert_eq!(world.refused(free(SLOT_MACHINE.0)), Status::WrongType);
    assert_eq!(world.refused(free(5)), Status::Busy, "pages of a processor");
    assert_eq!(world.refused(free(SLOT_BUNDLE.0)), Status::Busy, "mapped");
    assert_eq!(world.refused(split(S, S + 2, 1)), Status::Busy);
    assert_eq!(world.refused(donate(S, SLOT_SELF.0)), Status::Busy);
}

#[test]
fn splitting_makes_two_of_one() {
    let mut world = World::new();
    let first = world.frames(S, 10);
    world.ok(split(S, S + 1, 4));
    assert_eq!(world.call(split(S, S + 2, 4)), (Status::BadArgument, 2));
    assert_eq!(world.call(split(S, S + 2, 0)), (Status::BadArgument, 2));
    assert_eq!(world.refused(split(S, S + 1, 1)), Status::SlotInUse);
    assert_eq!(world.refused(split(SLOT_SELF.0, S + 2, 1)), Status::WrongType);
    world.ok(free(S));
    assert_eq!(world.ok(allocate(S, 4, first, 0)), first);
    world.ok(free(S + 1));
}

#[test]
fn donated_frames_are_counted_and_move_quota() {
    let mut world = World::new();
    let child = world.environment(S, 10);
    let before = world.state.environments[child].donated_count;
    world.frames(S + 2, 20);
    assert_eq!(world.ok(donate(S + 2, S)), before + 20);
    let object = &world.state.environments[child];
    assert_eq!((object.frames_owned, object.frame_quota), (84, 94));
    world.frames(S + 3, 2);
    assert_eq!(world.refused(donate(S + 3, S + 3)), Status::WrongType);
    assert_eq!(world.refused(donate(S + 2, S)), Status::BadSlot);
}

#[test]
fn the_table_finds_what_is_free_whatever_the_blocks_say() {
    let mut frames = [FrameEntry::RESERVED; 1300];
    let mut blocks = [BlockEntry::EMPTY; 3];
    let mut table = FrameTable::EMPTY;
    assert!(table.install(&mut frames, &mut blocks));
    table.set_range(10, 1290, FrameKind::Free, 0);
    let find = |table: &mut FrameTable<'_>, count: u64, alignment: u64| {
        let mut search = table.new_search(count);
        loop {
            match table.find_free(count, alignment, &mut search) {
                Err(Status::Again) => {}
                found => return found.ok().map(|frame| frame.0),
            }
        }
    };
    assert_eq!(find(&mut table, 512, 512), Some(512));
    assert_eq!(find(&mut table, 513, 512), Some(512));
    assert_eq!(find(&mut table, 1290, 1), Some(10));
    assert_eq!(find(&mut table, 1291, 1), None);
    assert!(table.all_free(10, 1290) && !table.all_free(9, 1290) && !table.all_free(11, 1290));
    table.set(FrameNumber(600), FrameKind::Owned, 1);
    assert!(table.all_free(601, 699) && !table.all_free(512, 512));
    assert_eq!(find(&mut table, 512, 512), None);
    assert_eq!(find(&mut table, 700, 1), None);
    assert_eq!(find(&mut table, 699, 1), Some(601));
    assert_eq!(find(&mut table, 590, 1), Some(10));
    assert_eq!(find(&mut table, 591, 1), Some(601));
    assert!(table.summaries_hold());
}
