//! What one kernel entry may cost, whatever others have prepared, and that repeating it ends.
//!
//! `World` asserts at every entry that few words were read and written; the tests here prepare what
//! is dearest.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{
    Bind, Call, CapDerive, CapDrop, CapGrant, CapRevoke, DeviceMap, EnvironmentDestroy, EnvironmentReclaim,
    FrameAllocate, FrameDonate, FrameFree, ProcessorCreate, ProcessorStart, StopReason,
};
use aegis_abi::layout::{LIBOS_BASE, PROGRAM_BASE};
use aegis_abi::memory::{BindEntry, BindFlags, BindOperation};
use aegis_abi::types::{CapSlot, FrameNumber, Rights, SLOT_DEVICE_FIRST, SLOT_SELF, Status};

use super::frame::split;
use super::world::{CODE, S, World};
use crate::id::{EnvironmentId, ProcessorId};
use crate::object::{BlockEntry, FrameEntry, FrameKind, FrameTable};

const CHILD_SCRATCH: u64 = LIBOS_BASE + 0x60_0000;
const VA: u64 = 0x4000_0000;
const FAR: u32 = 4000;
const LAST: u32 = 4095;

fn allocate(slot: u32, count: u64) -> Call {
    Call::FrameAllocate(FrameAllocate { slot: CapSlot(slot), count, frame: FrameNumber(u64::MAX), alignment_log2: 0 })
}

fn derive(source: u32, target: u32, offset: u64, count: u64) -> Call {
    let (source, target) = (CapSlot(source), CapSlot(target));
    Call::CapDerive(CapDerive { source, target, rights: Rights::all().bits(), offset, count })
}

fn grant(source: u32, environment: u32, target: u32) -> Call {
    let (source, environment, target) = (CapSlot(source), CapSlot(environment), CapSlot(target));
    Call::CapGrant(CapGrant { source, environment, target, rights: Rights::all().bits() })
}

fn revoke(slot: u32) -> Call {
    Call::CapRevoke(CapRevoke { slot: CapSlot(slot) })
}

fn item(operation: BindOperation, flags: BindFlags, va: u64, frame: u64, page_count: u32, slot: u32) -> BindEntry {
    BindEntry { operation: operation as u32, flags: flags.bits(), virtual_address: va, frame, page_count, slot }
}

fn map(va: u64, frame: u64, page_count: u32, slot: u32) -> BindEntry {
    item(BindOperation::Map, BindFlags::WRITE, va, frame, page_count, slot)
}

/// How many calls it takes until one is `Ok`.
fn calls_until_ok(world: &mut World, mut call: impl FnMut(&mut World) -> Status) -> u32 {
    for count in 1..20_000 {
        match call(world) {
            Status::Ok => return count,
            Status::Again => {}
            status => panic!("{status:?}"),
        }
    }
    panic!("it does not end");
}

/// A child that runs on processor 1 and can bind.
struct Child {
    environment: EnvironmentId,
    processor: ProcessorId,
    scratch: u64,
}

impl Child {
    /// In slots `S` to `S + 21`.
    fn new(world: &mut World, quota: u64) -> Self {
        let environment = world.environment(S, quota);
        let processor = world.processor(S + 10, S);
        let scratch = world.frames(S + 20, 1);
        world.ok(grant(S + 20, S, 6));
        assert_eq!(world.bind_in(CapSlot(S), &[map(CHILD_SCRATCH, scratch, 1, S + 20)]).0, Status::Ok);
        world.start(S + 10);
        world.kick(1);
        assert_eq!(world.current(1), Some(processor));
        Self { environment, processor, scratch }
    }

    fn donate(&self, world: &mut World, slot: u32, count: u64) {
        world.frames(slot, count);
        world.ok(Call::FrameDonate(FrameDonate { slot: CapSlot(slot), environment: CapSlot(S) }));
    }

    /// Puts something into every table of its capabilities, so that a search of it takes an entry's whole budget.
    fn fill_table(&self, world: &mut World) {
        self.donate(world, S + 30, 100);
        for index in 1..64 {
            world.ok(grant(S + 20, S, index * 64));
        }
        // Of what is searched: spaces' slots are not.
        let searched = &world.state.environments[self.environment].table[..64];
        assert!(searched.iter().all(Option::is_some));
    }

    fn bind(&self, world: &mut World, entry: BindEntry) -> Status {
        let words = [
            u64::from(entry.operation) | u64::from(entry.flags) << 32,
            entry.virtual_address,
            entry.frame,
            u64::from(entry.page_count) | u64::from(entry.slot) << 32,
        ];
        world.state.machine.memory[self.scratch as usize][..4].copy_from_slice(&words);
        let bind = Bind { space: SLOT_SELF, entries: CHILD_SCRATCH, entry_count: 1 };
        world.call_on(1, Call::Bind(bind)).0
    }

    fn processor_count(&self, world: &World) -> usize {
        world.state.processors.iter().filter(|(_, p)| p.environment == Some(self.environment)).count()
    }

    fn is_mapped(&self, world: &World, va: u64) -> bool {
        world.state.translate(world.state.environments[self.environment].root, va >> 12).is_some()
    }
}

#[test]
fn revoking_pinned_frames_looks_at_no_table_of_another() {
    let mut world = World::new();
    world.check_after_entry = false;
    let child = Child::new(&mut world, 0);
    child.donate(&mut world, S + 30, 70);
    // Every table of the child's capabilities is there, and nearly every processor that there can be.
    world.frames(S + 40, 1);
    for slot in 1..64 {
        world.ok(grant(S + 40, S, slot * 64));
    }
    world.frames(400, 200);
    world.ok(Call::FrameDonate(FrameDonate { slot: CapSlot(400), environment: SLOT_SELF }));
    for index in 0..200 {
        world.processor(500 + index * 2, SLOT_SELF.0);
    }
    // The child makes a processor in frames that it was granted, and many more capabilities for them.
    world.frames(S + 50, 3);
    world.ok(grant(S + 50, S, 7));
    let make = Call::ProcessorCreate(ProcessorCreate {
        slot: CapSlot(8),
        environment: SLOT_SELF,
        frames: CapSlot(7),
        save_area_frame_count: 2,
        control_address: LIBOS_BASE + 0x1000,
        save_area_base: LIBOS_BASE + 0x2000,
    });
    assert_eq!(world.call_on(1, make).0, Status::Ok);
    for slot in (100..230).filter(|slot| slot % 64 != 0) {
        assert_eq!(world.call_on(1, derive(7, slot, 0, 3)).0, Status::Ok);
    }
    world.words_max = 0;
    let calls = calls_until_ok(&mut world, |world| world.call(revoke(S + 50)).0);
    assert!(calls < 200, "{calls}");
    assert!(world.words_max < 20_000, "{}", world.words_max);
    world.check();
}

#[test]
fn protecting_pages_of_another_needs_no_search_for_each() {
    const COUNT: u32 = 256;
    let mut world = World::new();
    world.check_after_entry = false;
    let child = Child::new(&mut world, 0);
    child.donate(&mut world, S + 30, 80);
    // The child's capabilities are one for each frame, at the end of a table that is all there.
    let first = world.frames(S + 40, u64::from(COUNT));
    for index in 0..COUNT {
        world.ok(derive(S + 40, 1000 + index, u64::from(index), 1));
        world.ok(grant(1000 + index, S, FAR - index));
    }
    for slot in 1..55 {
        world.ok(grant(S + 20, S, slot * 64 + 1));
    }
    for index in 0..COUNT {
        let entry = map(VA + u64::from(index) * 4096, first + u64::from(index), 1, S + 40);
        assert_eq!(world.bind_in(CapSlot(S), &[entry]).0, Status::Ok);
    }
    world.words_max = 0;
    let protect = |flags: BindFlags| item(BindOperation::Protect, flags, VA, 0, COUNT, S + 40);
    let calls = calls_until_ok(&mut world, |world| world.bind_in(CapSlot(S), &[protect(BindFlags::empty())]).0);
    assert!(calls > 1 && calls <= COUNT, "{calls}");
    assert!(world.words_max < 32_000, "{}", world.words_max);
    // One capability for all of them: one search.
    world.ok(grant(S + 40, S, 9));
    assert_eq!(world.bind_in(CapSlot(S), &[protect(BindFlags::WRITE)]).0, Status::Ok);
    world.check();
}

#[test]
fn dropping_what_a_late_capability_covers_too_searches_once() {
    let mut world = World::new();
    world.check_after_entry = false;
    let first = world.frames(S, 512);
    world.ok(derive(S, FAR, 0, 512));
    world.ok(derive(S, 200, 0, 512));
    for slot in 4..62 {
        world.ok(derive(FAR, slot * 64, 0, 512));
        world.ok(Call::CapDrop(CapDrop { slot: CapSlot(slot * 64) }));
    }
    assert_eq!(world.bind(&[map(VA, first, 512, S)]).0, Status::Ok);
    world.words_max = 0;
    let drop = Call::CapDrop(CapDrop { slot: CapSlot(200) });
    let calls = calls_until_ok(&mut world, |world| world.call(drop).0);
    assert!(calls <= 2 && world.words_max < 20_000, "{calls} {}", world.words_max);
    let root = world.state.environments[world.first].root;
    assert_eq!(world.state.translate(root, VA >> 12), Some(FrameNumber(first)));
    world.check();
}

#[test]
fn a_walk_through_empty_tables_is_cut_too() {
    let mut world = World::new();
    let frame = world.frames(S, 1);
    world.frames(S + 1, 300);
    world.ok(Call::FrameDonate(FrameDonate { slot: CapSlot(S + 1), environment: SLOT_SELF }));
    // A directory for each GiB, with nothing in it but empty page tables.
    for gib in 1..100u64 {
        let va = (PROGRAM_BASE + (gib << 30)) & !0xfff;
        assert_eq!(world.bind(&[map(va, frame, 1, S)]).0, Status::Ok);
        if gib < 99 {
            let unmap = item(BindOperation::Unmap, BindFlags::empty(), va, 0, 1, 0);
            assert_eq!(world.bind(&[unmap]).0, Status::Ok);
        }
    }
    world.words_max = 0;
    let drop = Call::CapDrop(CapDrop { slot: CapSlot(S) });
    let calls = calls_until_ok(&mut world, |world| world.call(drop).0);
    assert!(calls > 2 && world.words_max < 20_000, "{calls} {}", world.words_max);
}

/// Asks for frames at once, and for all that the child does not own.
fn reclaim(world: &World, child: &Child, frame_count: u64) -> Call {
    let frame_count = world.state.environments[child.environment].frames_left() + frame_count;
    Call::EnvironmentReclaim(EnvironmentReclaim { slot: CapSlot(S), frame_count, deadline_ns: 1 })
}

#[test]
fn what_is_being_taken_cannot_be_mapped_again() {
    let mut world = World::new();
    let child = Child::new(&mut world, 300);
    child.donate(&mut world, S + 30, 80);
    let first = world.call_on(1, allocate(5, 4)).1;
    let places: Vec<u64> = (0..40).map(|index| VA + (index << 21)).collect();
    for va in &places {
        assert_eq!(child.bind(&mut world, map(*va, first + 3, 1, 5)), Status::Ok);
    }
    // A copy, a donation, a part: nothing of it keeps the frame.
    let call = reclaim(&world, &child, 2);
    world.ok(call);
    let mut passes = 0;
    while child.is_mapped(&world, places[39]) {
        world.state.machine.now_ns += 1_000_000;
        world.timer(0);
        world.kick(1);
        passes += 1;
        assert!(passes < 10, "a repossession that is worked against does not end");
        assert_eq!(child.bind(&mut world, map(places[0], first + 3, 1, 5)), Status::MissingRight);
        assert_eq!(child.bind(&mut world, map(places[1], first, 1, 5)), Status::Ok);
    }
    world.state.machine.now_ns += 1_000_000;
    world.timer(0);
    assert!(passes > 1, "the walk was cut");
    assert!((2..4).all(|n| world.state.frames.kind(FrameNumber(first + n)) == FrameKind::Free));
    assert_eq!(world.state.environments[child.environment].stop.reason, StopReason::Running);
}

#[test]
fn frames_in_hand_go_with_an_environment_that_ends() {
    let mut world = World::new();
    let child = Child::new(&mut world, 300);
    child.donate(&mut world, S + 30, 80);
    let free_count = world.state.frames.free_count();
    let first = world.call_on(1, allocate(5, 4)).1;
    for index in 0..40 {
        assert_eq!(child.bind(&mut world, map(VA + (index << 21), first + 3, 1, 5)), Status::Ok);
    }
    let call = reclaim(&world, &child, 2);
    world.ok(call);
    world.state.machine.now_ns += 1_000_000;
    world.timer(0);
    assert_ne!(world.state.environments[child.environment].reclaim.in_hand.1, 0);
    for _ in 0..100 {
        world.kick(1);
        if world.call(Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S) })).0 == Status::Ok {
            break;
        }
    }
    assert!(world.state.frames.free_count() >= free_count, "nothing leaks");
}

/// Makes a processor of the child's from what it has in slot 5.
fn pin_three_frames(world: &mut World) {
    let make = Call::ProcessorCreate(ProcessorCreate {
        slot: CapSlot(8),
        environment: SLOT_SELF,
        frames: CapSlot(5),
        save_area_frame_count: 2,
        control_address: LIBOS_BASE + 0x1000,
        save_area_base: LIBOS_BASE + 0x2000,
    });
    assert_eq!(world.call_on(1, make).0, Status::Ok);
}

#[test]
fn pinned_frames_are_taken_when_nothing_else_is_left() {
    let mut world = World::new();
    let child = Child::new(&mut world, 300);
    let first = world.call_on(1, allocate(5, 3)).1;
    pin_three_frames(&mut world);
    let donated = world.state.environments[child.environment].donated_count;
    let call = reclaim(&world, &child, donated + 3);
    world.ok(call);
    for _ in 0..10 {
        world.state.machine.now_ns += 1_000_000;
        world.timer(0);
        world.kick(1);
    }
    assert!((0..3).all(|n| world.state.frames.kind(FrameNumber(first + n)) == FrameKind::Free));
    assert_eq!(child.processor_count(&world), 1);
    assert_eq!(world.state.processors[child.processor].environment, Some(child.environment));
}

#[test]
fn an_allocation_left_half_way_is_taken() {
    let mut world = World::new();
    let child = Child::new(&mut world, 1000);
    assert_eq!(world.call_on(1, allocate(5, 400)).0, Status::Again);
    let owned = world.state.environments[child.environment].frames_owned;
    let call = reclaim(&world, &child, 64);
    world.ok(call);
    for _ in 0..4 {
        world.state.machine.now_ns += 1_000_000;
        world.timer(0);
        world.kick(1);
    }
    assert!(world.state.environments[child.environment].frames_owned <= owned - 64);
}

#[test]
fn nothing_is_split_below_what_is_being_revoked() {
    let mut world = World::new();
    world.frames(S, 200);
    for slot in 1..150 {
        world.ok(derive(S, S + slot, 0, 200));
    }
    world.ok(derive(S + 1, S + 300, 0, 200));
    assert_eq!(world.call(revoke(S)).0, Status::Again);
    let left: Vec<u32> = (2..150).filter(|slot| world.call(split(S + slot, S + 400, 1)).0 != Status::BadSlot).collect();
    assert!(!left.is_empty());
    for slot in left {
        assert_eq!(world.refused(split(S + slot, S + 400, 1)), Status::WrongState);
    }
    world.ok(revoke(S));
    world.ok(split(S, S + 400, 1));
}

#[test]
fn a_search_in_a_fragmented_machine_goes_on_where_it_was() {
    const COUNT: u64 = 100_000;
    let mut frames = vec![FrameEntry::RESERVED; COUNT as usize];
    let mut blocks = vec![BlockEntry::EMPTY; COUNT.div_ceil(512) as usize];
    let mut table = FrameTable::EMPTY;
    assert!(table.install(&mut frames, &mut blocks));
    for frame in (1..COUNT).filter(|frame| frame % 3 != 0) {
        table.set(FrameNumber(frame), FrameKind::Free, 0);
    }
    for (count, is_there) in [(3, false), (2, true), (3, true)] {
        if count == 3 && is_there {
            table.set(FrameNumber(90_000), FrameKind::Free, 0);
        }
        let mut search = table.new_search(count);
        let mut calls = 0;
        let found = loop {
            calls += 1;
            assert!(calls < 200, "it does not end");
            // Whatever others take and give meanwhile moves it nowhere.
            table.set(FrameNumber(1 + calls * 3), FrameKind::Owned, 1);
            match table.find_free(count, 1, &mut search) {
                Err(Status::Again) => {}
                other => break other,
            }
        };
        assert_eq!(found.is_ok(), is_there, "{count}");
        assert!(count == 2 || calls > 3);
    }
}

#[test]
fn a_processor_that_is_started_again_ends_all_the_same() {
    let mut world = World::new();
    let child = Child::new(&mut world, 0);
    world.frames(S + 50, 3);
    world.ok(grant(S + 50, S, 7));
    let make = Call::ProcessorCreate(ProcessorCreate {
        slot: CapSlot(8),
        environment: SLOT_SELF,
        frames: CapSlot(7),
        save_area_frame_count: 2,
        control_address: LIBOS_BASE + 0x1000,
        save_area_base: LIBOS_BASE + 0x2000,
    });
    assert_eq!(world.call_on(1, make).0, Status::Ok);
    let start = Call::ProcessorStart(ProcessorStart { slot: CapSlot(8), rip: CODE, rsp: 0, argument: 0 });
    assert_eq!(world.call_on(1, start).0, Status::Ok);
    world.kick(2);
    assert_ne!(world.current(2), None);
    // It has to leave its physical processor first, and is not let on another meanwhile.
    assert_eq!(world.call(revoke(S + 50)).0, Status::Again);
    assert_eq!(world.call_on(1, start).0, Status::WrongState);
    world.kick(2);
    assert_eq!(world.call(revoke(S + 50)).0, Status::Ok);
    assert_eq!(child.processor_count(&world), 1);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S + 50) }));
}

#[test]
fn a_device_is_taken_back_from_a_full_table() {
    let mut world = World::new();
    let child = Child::new(&mut world, 0);
    child.fill_table(&mut world);
    for slot in [7, 8] {
        world.ok(grant(SLOT_DEVICE_FIRST.0, S, slot));
    }
    let map_device = Call::DeviceMap(DeviceMap { slot: CapSlot(7), region: 0, virtual_address: VA });
    assert_eq!(world.call_on(1, map_device).0, Status::Ok);
    world.words_max = 0;
    let drop = Call::CapDrop(CapDrop { slot: CapSlot(8) });
    let calls = calls_until_ok(&mut world, |world| world.call_on(1, drop).0);
    assert!(calls < 10 && child.is_mapped(&world, VA), "{calls}");
    let calls = calls_until_ok(&mut world, |world| world.call(revoke(SLOT_DEVICE_FIRST.0)).0);
    assert!(calls < 10 && !child.is_mapped(&world, VA), "{calls}");
    assert!(world.words_max < 20_000, "{}", world.words_max);
}

#[test]
fn what_maps_a_device_in_many_places_goes_by_and_by() {
    let mut world = World::new();
    world.check_after_entry = false;
    let child = Child::new(&mut world, 0);
    child.fill_table(&mut world);
    child.donate(&mut world, S + 31, 200);
    world.ok(grant(SLOT_DEVICE_FIRST.0, S, 7));
    let places: Vec<u64> = (0..150).map(|index| VA + (index << 21)).collect();
    for virtual_address in places.clone() {
        let map_device = Call::DeviceMap(DeviceMap { slot: CapSlot(7), region: 0, virtual_address });
        assert_eq!(world.call_on(1, map_device).0, Status::Ok);
    }
    // Capabilities for the device in all of the table: looking at them costs no more than at others.
    for slot in (100..LAST).filter(|slot| slot % 64 != 0) {
        assert_eq!(world.call_on(1, derive(7, slot, 0, 0)).0, Status::Ok);
    }
    world.words_max = 0;
    let drop = Call::CapDrop(CapDrop { slot: CapSlot(200) });
    let calls = calls_until_ok(&mut world, |world| world.call_on(1, drop).0);
    assert!(calls > 2 && calls < 200 && world.words_max < 20_000, "{calls} {}", world.words_max);
    assert!(places.iter().all(|va| child.is_mapped(&world, *va)));
    world.check();
}

#[test]
fn everything_is_taken_from_an_environment_with_a_full_table() {
    let mut world = World::new();
    let child = Child::new(&mut world, 300);
    child.fill_table(&mut world);
    let pinned = world.call_on(1, allocate(5, 3)).1;
    pin_three_frames(&mut world);
    let last = world.call_on(1, allocate(LAST, 3)).1;
    let owned = world.state.environments[child.environment].frames_owned;
    let call = reclaim(&world, &child, owned);
    world.ok(call);
    world.words_max = 0;
    let mut passes = 0;
    while world.state.environments[child.environment].stop.reason != StopReason::FramesKept {
        world.state.machine.now_ns += 1_000_000;
        world.timer(0);
        world.kick(1);
        passes += 1;
        assert!(passes < 20, "a repossession does not go on");
    }
    assert!((0..3).all(|n| world.state.frames.kind(FrameNumber(last + n)) == FrameKind::Free));
    assert!((0..3).all(|n| world.state.frames.kind(FrameNumber(pinned + n)) == FrameKind::Free));
    // What its processor's end gave back came after the others.
    assert!(world.state.environments[child.environment].donated_count <= 1);
    assert!(world.words_max < 20_000, "{}", world.words_max);
}

/// As many large pages' frames, aligned.
fn large_frames(world: &mut World, slot: u32, count: u64) -> u64 {
    world.ok(Call::FrameAllocate(FrameAllocate {
        slot: CapSlot(slot),
        count: count * 512,
        frame: FrameNumber(u64::MAX),
        alignment_log2: 9,
    }))
}

#[test]
fn large_pages_are_mapped_where_the_last_capability_of_a_full_table_allows_it() {
    const COUNT: u64 = 6;
    let mut world = World::new();
    let child = Child::new(&mut world, 0);
    child.fill_table(&mut world);
    let first = large_frames(&mut world, S + 40, COUNT);
    world.ok(grant(S + 40, S, LAST));
    // An empty page table is in the place of each.
    for index in 0..COUNT {
        let va = VA + (index << 21);
        assert_eq!(world.bind_in(CapSlot(S), &[map(va, first, 1, S + 40)]).0, Status::Ok);
        let unmap = item(BindOperation::Unmap, BindFlags::empty(), va, 0, 1, 0);
        assert_eq!(world.bind_in(CapSlot(S), &[unmap]).0, Status::Ok);
    }
    let all = |operation, flags| item(operation, flags | BindFlags::LARGE, VA, first, COUNT as u32 * 512, S + 40);
    let map_all = all(BindOperation::Map, BindFlags::WRITE);
    world.words_max = 0;
    let calls = calls_until_ok(&mut world, |world| world.bind_in(CapSlot(S), &[map_all]).0);
    assert!(calls <= COUNT as u32 && world.words_max < 20_000, "{calls} {}", world.words_max);
    // One capability for all of them: one search, whatever it left.
    let protect = all(BindOperation::Protect, BindFlags::empty());
    assert_eq!(world.bind_in(CapSlot(S), &[protect]).0, Status::Ok);
    world.check();
}
