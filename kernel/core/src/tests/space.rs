//! Address spaces as objects: what they share, what they do not, and how they end.

use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, Call, CapDerive, CapDrop, CapGrant, CapRevoke, CounterRead, EnvironmentCreate, EnvironmentDestroy,
    EnvironmentReclaim, FrameAllocate, FrameDonate, FrameFree, FrameSplit, GateCreate, ProcessorStart, ProcessorStop,
    SpaceCreate, SpaceEnter,
};
use aegis_abi::counter::Counter;
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::memory::{BindEntry, BindFlags, BindOperation};
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF, Status};
use aegis_abi::upcall::UpcallKind;

use super::random::Random;
use super::share::share;
use super::world::{CODE, S, SCRATCH, World, cpu};
use crate::id::{EnvironmentId, Id, SPACE_COUNT_MAX, SpaceId};
use crate::machine::Holders;
use crate::object::capability::SPACE_SLOT_END;
use crate::object::{CapRef, SLOT_COUNT_MAX, Tables};

const VA: u64 = 0x4000_0000;
/// In a part of the window where nothing is at the start.
const FAR: u64 = LIBOS_BASE + (5 << 39);

fn map_at(address: u64, frame: u64, slot: u32) -> BindEntry {
    BindEntry {
        operation: BindOperation::Map as u32,
        flags: BindFlags::WRITE.bits(),
        virtual_address: address,
        frame,
        page_count: 1,
        slot,
    }
}

fn unmap_at(address: u64) -> BindEntry {
    BindEntry {
        operation: BindOperation::Unmap as u32,
        page_count: 1,
        virtual_address: address,
        ..BindEntry::default()
    }
}

fn create(slot: u32) -> Call {
    Call::SpaceCreate(SpaceCreate { slot: CapSlot(slot) })
}

fn enter(slot: u32) -> Call {
    Call::SpaceEnter(SpaceEnter { slot: CapSlot(slot) })
}

fn drop(slot: u32) -> Call {
    Call::CapDrop(CapDrop { slot: CapSlot(slot) })
}

impl World {
    /// Makes a space of the first environment in a slot; its tables.
    fn space(&mut self, slot: u32) -> Tables {
        self.ok(create(slot));
        let at = CapRef { environment: self.first, slot };
        let capability = self.state.capability(at).expect("it was made");
        let id = SpaceId::from_index((capability.object & 0xffff) as usize).expect("a space");
        self.state.space_tables(id, self.first).expect("of its maker")
    }

    fn seen(&self, root: FrameNumber, address: u64) -> Option<u64> {
        self.state.translate(root, (address & 0xffff_ffff_ffff) >> 12).map(|frame| frame.0)
    }

    /// Donates `count` frames to the environment in a slot.
    fn donate(&mut self, environment: u32, count: u64) {
        self.frames(S + 99, count);
        self.ok(Call::FrameDonate(FrameDonate { slot: CapSlot(S + 99), environment: CapSlot(environment) }));
    }
}

#[test]
fn spaces_have_a_half_of_their_own_and_share_the_window() {
    let mut world = World::new();
    let home = world.state.environments[world.first].root;
    let [a, b] = [S + 10, S + 11].map(|slot| world.space(slot).root);
    let frame = world.frames(S, 4);
    for (number, slot) in [SLOT_SELF.0, S + 10, S + 11].into_iter().enumerate() {
        let entry = map_at(VA, frame + number as u64, S);
        assert_eq!(world.bind_in(CapSlot(slot), &[entry]), (Status::Ok, 1));
    }
    assert_eq!([home, a, b].map(|root| world.seen(root, VA)), [Some(frame), Some(frame + 1), Some(frame + 2)]);
    for (binder, address) in [(S + 10, FAR), (SLOT_SELF.0, FAR + (1 << 39)), (S + 11, LIBOS_BASE + 0x9000)] {
        assert_eq!(world.bind_in(CapSlot(binder), &[map_at(address, frame + 3, S)]).0, Status::Ok);
        assert_eq!([home, a, b].map(|root| world.seen(root, address)), [Some(frame + 3); 3]);
    }
    let late = world.space(S + 12).root;
    assert_eq!((world.seen(late, FAR), world.seen(late, VA)), (Some(frame + 3), None));
    assert_eq!(world.bind_in(CapSlot(S + 12), &[unmap_at(FAR)]).0, Status::Ok);
    assert_eq!([home, a, b, late].map(|root| world.seen(root, FAR)), [None; 4]);
    assert_eq!(world.seen(late, SCRATCH), world.seen(home, SCRATCH));
}

#[test]
fn flushes_reach_who_can_see_the_page() {
    let mut world = World::new();
    let space = world.space(S + 10);
    let frame = world.frames(S, 64);
    let everywhere = Holders::Environment(world.first);
    let holders = |world: &mut World, address: u64, count: u32| {
        let entry = BindEntry { page_count: count, ..map_at(address, frame, S) };
        assert_eq!(world.bind_in(CapSlot(S + 10), &[entry]).0, Status::Ok);
        world.state.machine.holders = Vec::new();
        assert_eq!(world.bind_in(CapSlot(S + 10), &[entry]).0, Status::Ok);
        let mut holders = core::mem::take(&mut world.state.machine.holders);
        holders.dedup();
        holders
    };
    // One by one, and too many for that.
    for count in [1, 64] {
        assert_eq!(holders(&mut world, VA, count), [Holders::Root(space.root)]);
        assert_eq!(holders(&mut world, FAR, count), [everywhere]);
    }
    let mixed = [map_at(VA, frame, S), BindEntry { page_count: 40, ..map_at(FAR, frame, S) }];
    world.state.machine.holders = Vec::new();
    assert_eq!(world.bind_in(CapSlot(S + 10), &mixed).0, Status::Ok);
    assert_eq!(world.state.machine.holders, [everywhere]);
}

#[test]
fn a_processor_goes_on_where_it_entered_and_starts_at_home() {
    let mut world = World::new();
    let home = world.state.environments[world.first].root;
    let space = world.space(S + 10).root;
    let context = |world: &World| world.state.context(world.first_processor);
    assert_eq!(context(&world).root, home);
    world.ok(enter(S + 10));
    assert_eq!(world.state.machine.entered_root, Some(space));
    assert_eq!((context(&world).root, context(&world).environment), (space, Some(world.first)));
    // What it reads is what it sees there.
    let frame = world.frames(S, 2);
    assert_eq!(world.bind_in(CapSlot(S + 10), &[map_at(VA, frame, S)]).0, Status::Ok);
    world.write(VA, &[1 << 32, FAR, frame + 1, 1 | u64::from(S) << 32]);
    let bind = |address| Call::Bind(aegis_abi::call::Bind { space: SLOT_SELF, entries: address, entry_count: 1 });
    assert_eq!(world.call(bind(VA)), (Status::Ok, 1));
    world.ok(enter(SLOT_SELF.0));
    assert_eq!(world.state.machine.entered_root, Some(home));
    assert_eq!(world.call(bind(VA)).0, Status::BadAddress);
    // Another processor is somewhere else, and starts at home again.
    let other = world.processor(S + 20, SLOT_SELF.0);
    for _ in 0..2 {
        world.start(S + 20);
        world.kick(1);
        assert_eq!(world.state.context(other).root, home);
        assert_eq!(world.call_on(1, enter(S + 10)), (Status::Ok, 0));
        assert_eq!(world.state.context(other).root, space);
        assert_eq!(context(&world).root, home);
        world.ok(Call::ProcessorStop(aegis_abi::call::ProcessorStop { slot: CapSlot(S + 20) }));
        world.kick(1);
    }
}

/// Two worlds get the same entries; in one of them nothing goes a way of its own.
#[test]
fn a_space_is_entered_by_the_short_way_as_by_the_long_one() {
    let derive = |source: u32, target: u32, rights: Rights| {
        let (source, target) = (CapSlot(source), CapSlot(target));
        Call::CapDerive(CapDerive { source, target, rights: rights.bits(), offset: 0, count: 0 })
    };
    let stop = Call::ProcessorStop(ProcessorStop { slot: CapSlot(S + 20) });
    let seen = |at_once: bool| {
        let mut world = World::new();
        world.transfers_at_once = at_once;
        world.check_after_entry = false;
        let other = world.processor(S + 20, SLOT_SELF.0);
        world.start(S + 20);
        world.kick(1);
        world.space(S + 10);
        world.ok(derive(S + 10, S + 11, Rights::all()));
        world.ok(derive(S + 10, S + 12, Rights::READ));
        world.frames(S, 1);
        world.environment(S + 13, 0);
        world.donate(SLOT_SELF.0, 300);
        let frame = world.frames(S + 1, 1);
        world.space(S + 14);
        for number in 0..200 {
            let entry = map_at(VA + (number << 21), frame, S + 1);
            assert_eq!(world.bind_in(CapSlot(S + 14), &[entry]).0, Status::Ok);
        }
        assert_eq!(world.call(drop(S + 14)).0, Status::Again);
        let good = [S + 10, SLOT_SELF.0, S + 11].map(u64::from);
        let bad = [S, S + 12, S + 13, S + 14, S + 30, 0, 4095, 4096, SPACE_SLOT_END - 1, SPACE_SLOT_END, u32::MAX]
            .map(u64::from);
        let mut order = Vec::new();
        for slot in bad.into_iter().chain([1 << 32 | good[0], u64::MAX]) {
            order.extend([good[order.len() % 3], slot, slot]);
        }
        let mut answers = Vec::new();
        for (number, slot) in order.into_iter().enumerate() {
            // Now and then something is due, or the deadline is another.
            match number % 7 {
                2 => world.state.cpus[cpu(1)].is_deadline_stale = true,
                4 => world.state.processors[other].due = 1 << UpcallKind::SliceBegin as u32,
                _ => {}
            }
            let decision = world.enter_raw(1, SpaceEnter::NUMBER, [slot, 2, 3, 4, 5, 6]);
            let frame = &world.frame[1];
            let registers = [frame.rax, frame.rdx, frame.rdi, frame.rsi, frame.r10, frame.rip, frame.rsp];
            let due = world.state.processors[other].due;
            answers.push((decision, registers, world.state.machine.entered_root, world.state.context(other), due));
        }
        assert!(answers.iter().any(|(_, registers, ..)| registers[0] == Status::Ok as u64));
        // Stopped from elsewhere: it goes nowhere any more.
        world.ok(stop);
        let decision = world.enter_raw(1, SpaceEnter::NUMBER, [good[0], 0, 0, 0, 0, 0]);
        assert_eq!(decision.next, None);
        let calls = CounterRead { environment: SLOT_SELF, index: Counter::KernelCalls as u32 };
        (answers, world.state.machine.entered_root, world.ok(Call::CounterRead(calls)))
    };
    assert_eq!(seen(true), seen(false));
}

#[test]
fn a_space_that_is_entered_does_not_end() {
    let mut world = World::new();
    world.space(S + 10);
    world.processor(S + 20, SLOT_SELF.0);
    let start = Call::ProcessorStart(ProcessorStart { slot: CapSlot(S + 20), rip: CODE, rsp: 0, argument: 0 });
    world.ok(start);
    world.kick(1);
    assert_eq!(world.call_on(1, enter(S + 10)), (Status::Ok, 0));
    assert_eq!(world.refused(drop(S + 10)), Status::Busy);
    // Stopped, but its physical processor has not left it yet.
    world.ok(Call::ProcessorStop(aegis_abi::call::ProcessorStop { slot: CapSlot(S + 20) }));
    assert_eq!(world.refused(drop(S + 10)), Status::Busy);
    world.kick(1);
    world.ok(drop(S + 10));
    assert_eq!(world.refused(enter(S + 10)), Status::BadSlot);
    // A derived capability ends with what it comes from, and takes nothing with it.
    world.space(S + 11);
    let derive = |target: u32, rights: Rights| {
        let target = CapSlot(target);
        Call::CapDerive(CapDerive { source: CapSlot(S + 11), target, rights: rights.bits(), offset: 0, count: 0 })
    };
    world.ok(derive(S + 12, Rights::all()));
    world.ok(derive(S + 13, Rights::READ));
    assert_eq!(world.refused(enter(S + 13)), Status::MissingRight);
    assert_eq!(world.refused(drop(S + 11)), Status::Busy);
    world.ok(enter(S + 12));
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 11) }));
    assert_eq!(world.refused(drop(S + 11)), Status::Busy);
    world.ok(enter(SLOT_SELF.0));
    world.ok(drop(S + 11));
    world.ok(start);
}

/// Maps one frame at `table_count` addresses with a page table each.
fn fill(world: &mut World, slot: u32, frame: u64, table_count: u64) {
    for number in 0..table_count {
        let (status, _) = world.bind_in(CapSlot(slot), &[map_at(VA + (number << 21), frame, S)]);
        assert_eq!(status, Status::Ok);
    }
}

#[test]
fn a_space_ends_in_bounded_steps_and_gives_its_tables_back() {
    let mut world = World::new();
    world.donate(SLOT_SELF.0, 300);
    let frame = world.frames(S, 1);
    world.space(S + 9);
    let donated = world.state.environments[world.first].donated_count;
    world.space(S + 10);
    fill(&mut world, S + 10, frame, 200);
    assert_eq!(world.state.environments[world.first].donated_count, donated - 203);
    assert_eq!(world.call(drop(S + 10)).0, Status::Again);
    // From then on it has no owner.
    for call in [enter(S + 10), create(S + 10)] {
        assert!([Status::WrongState, Status::SlotInUse].contains(&world.refused(call)));
    }
    assert_eq!(world.bind_in(CapSlot(S + 10), &[unmap_at(VA)]).0, Status::WrongState);
    // The window goes on changing under it.
    assert_eq!(world.bind(&[map_at(FAR, frame, S), unmap_at(FAR)]).0, Status::Ok);
    world.ok(drop(S + 10));
    assert_eq!(world.state.environments[world.first].donated_count, donated - 3);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

#[test]
fn a_capability_goes_from_all_spaces_in_bounded_steps() {
    let mut world = World::new();
    world.donate(SLOT_SELF.0, 600);
    let frame = world.frames(S, 1);
    let spaces: Vec<Tables> = (0..60).map(|number| world.space(S + 100 + number)).collect();
    for number in 0..60 {
        fill(&mut world, S + 100 + number, frame, 5);
    }
    assert_eq!(world.bind(&[map_at(VA, frame, S), map_at(FAR, frame, S)]).0, Status::Ok);
    let mut steps = 1;
    while world.call(drop(S)).0 == Status::Again {
        steps += 1;
    }
    assert!((3..30).contains(&steps), "{steps} steps");
    assert!(spaces.iter().all(|tables| world.seen(tables.root, VA).is_none()));
    assert_eq!(world.seen(spaces[0].root, FAR), None);
    assert!(world.state.frames.all_free(frame, 1));
    let roots = world.state.machine.holders.iter().filter(|holders| matches!(holders, Holders::Root(_)));
    assert!(roots.count() >= 60, "each space is flushed");
}

#[test]
fn spaces_are_limited_by_donation_share_and_table() {
    let mut world = World::new();
    let made = |world: &mut World, index: usize| {
        (0..).map(|number| world.call_on(index, create(1000 + number)).0).find(|status| *status != Status::Ok)
    };
    assert_eq!(made(&mut world, 0), Some(Status::NoTables));
    let spaces =
        |world: &World, environment: EnvironmentId| world.state.environments[environment].used[Table::Spaces as usize];
    assert!(spaces(&world, world.first) < 128);
    for number in 0..20 {
        world.ok(drop(1000 + number));
    }
    // One has all but these, and makes none: the fake machine has no frames for so many.
    const LEFT: usize = 1024;
    world.environment(S + 90, 0);
    world.ok(share(S + 90, Table::Spaces, (SPACE_COUNT_MAX - LEFT) as u32));
    // Each further environment makes as many as it may, until the rest is used up.
    let mut total = usize::from(spaces(&world, world.first));
    for number in 1..4 {
        let slot = S + 20 * number;
        let environment = world.environment(slot, 0);
        world.donate(slot, 700);
        world.ok(share(slot, Table::Spaces, if number == 3 { (LEFT - total) as u32 } else { 400 }));
        world.processor(slot + 2, slot);
        world.start(slot + 2);
        world.check_after_entry = false;
        world.kick(number as usize);
        let status = made(&mut world, number as usize);
        assert_eq!(status, Some(Status::TableFull));
        total += usize::from(spaces(&world, environment));
        assert!(spaces(&world, environment) == 400 || total == LEFT);
    }
    assert_eq!(total, LEFT);
    world.check();
    // An environment ends with its spaces, one bounded step after the other.
    let destroy = Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S + 20) });
    let mut steps = 1;
    while world.call(destroy).0 == Status::Again {
        (1..4).for_each(|index| drop_in(&mut world, index));
        world.check();
        steps += 1;
    }
    assert!(steps > 4, "{steps} steps");
    assert_eq!(world.state.spaces.iter().filter(|(_, space)| space.serial != 0).count(), total - 400);
}

#[test]
fn slots_behind_the_searched_ones_hold_spaces_alone() {
    let mut world = World::new();
    world.donate(SLOT_SELF.0, 100);
    world.environment(S, 0);
    world.frames(S + 1, 8);
    let [first, last] = [SLOT_COUNT_MAX, SPACE_SLOT_END - 1];
    for slot in [first, last] {
        let root = world.space(slot).root;
        assert_eq!(world.refused(create(slot)), Status::SlotInUse);
        world.ok(enter(slot));
        assert_eq!(world.state.machine.entered_root, Some(root));
    }
    assert_eq!(world.refused(create(SPACE_SLOT_END)), Status::BadSlot);
    assert_eq!(world.refused(create(u32::MAX)), Status::BadSlot);
    let free = CapSlot(first + 1);
    let rights = Rights::all().bits();
    let derive =
        |target: CapSlot| Call::CapDerive(CapDerive { source: CapSlot(last), target, rights, offset: 0, count: 0 });
    let (source, environment, processor) = (CapSlot(S + 1), CapSlot(S), SLOT_FIRST_PROCESSOR);
    let others = [
        derive(free),
        Call::CapGrant(CapGrant { source, environment, target: free, rights }),
        Call::FrameAllocate(FrameAllocate { slot: free, count: 1, frame: FrameNumber(u64::MAX), alignment_log2: 0 }),
        Call::FrameSplit(FrameSplit { slot: source, target: free, count: 1 }),
        Call::BellCreate(BellCreate { slot: free, processor: SLOT_NONE }),
        Call::GateCreate(GateCreate { slot: free, processor, rip: CODE, badge: 0 }),
        Call::EnvironmentCreate(EnvironmentCreate { slot: free, frames: source, frame_quota: 0 }),
    ];
    for call in others {
        assert_eq!(world.refused(call), Status::BadSlot, "{call:?}");
    }
    // What is derived of one is where all is, and goes with it.
    world.ok(derive(CapSlot(S + 10)));
    world.ok(enter(S + 10));
    world.ok(enter(SLOT_SELF.0));
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(last) }));
    assert_eq!(world.refused(enter(S + 10)), Status::BadSlot);
    world.ok(drop(last));
    assert_eq!(world.refused(enter(last)), Status::BadSlot);
    world.space(last);
    world.check();
}

/// Entries of the table are used and given back in every order.
#[test]
fn free_entries_are_found_at_once_and_each_once() {
    const COUNT: u32 = 300;
    let mut world = World::new();
    world.donate(SLOT_SELF.0, u64::from(COUNT) + 20);
    world.check_after_entry = false;
    let mut random = Random::new(5);
    let mut is_made = [false; COUNT as usize];
    for round in 0..4 * COUNT {
        let number = random.below(u64::from(COUNT)) as usize;
        let slot = SLOT_COUNT_MAX + number as u32;
        is_made[number] = !is_made[number];
        world.ok(if is_made[number] { create(slot) } else { drop(slot) });
        if round % 16 == 0 {
            world.check();
        }
    }
    world.words_max = 0;
    let free = is_made.iter().position(|is_made| !is_made).expect("one is free");
    world.ok(create(SLOT_COUNT_MAX + free as u32));
    assert!(world.words_max < 2_000, "{}", world.words_max);
}

/// Every root gets a table that the window gains, so a batch that makes several goes by and by.
#[test]
fn what_the_window_gains_is_stored_to_many_roots_within_the_budget() {
    const COUNT: u32 = 1500;
    let mut world = World::new();
    world.donate(SLOT_SELF.0, u64::from(COUNT) + 50);
    world.check_after_entry = false;
    (0..COUNT).for_each(|number| {
        world.ok(create(SLOT_COUNT_MAX + number));
    });
    let frame = world.frames(S, 1);
    let entries: Vec<BindEntry> = (3..8).map(|slot| map_at(LIBOS_BASE + (slot << 39), frame, S)).collect();
    let (mut done, mut calls) = (0, 0);
    while done < entries.len() {
        let (status, count) = world.bind_in(SLOT_SELF, &entries[done..]);
        done += count as usize;
        calls += 1;
        assert!(status == Status::Ok && done == entries.len() || status == Status::Again && count > 0, "{status:?}");
    }
    assert!(calls > 1, "the batch was cut");
    let last = CapRef { environment: world.first, slot: SLOT_COUNT_MAX + COUNT - 1 };
    let object = world.state.capability(last).expect("it was made").object;
    let id = SpaceId::from_index((object & 0xffff) as usize).expect("a space");
    let root = world.state.space_tables(id, world.first).expect("of its maker").root;
    for slot in 3..8 {
        assert_eq!(world.seen(root, LIBOS_BASE + (slot << 39)), Some(frame));
    }
    world.check();
}

/// A physical processor looks again.
fn drop_in(world: &mut World, index: usize) {
    world.check_after_entry = false;
    world.kick(index);
    world.check_after_entry = true;
}

#[test]
fn frames_are_taken_out_of_spaces_by_force() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    world.processor(S + 10, S);
    let scratch = world.frames(S + 20, 1);
    let grant = aegis_abi::call::CapGrant {
        source: CapSlot(S + 20),
        environment: CapSlot(S),
        target: CapSlot(6),
        rights: Rights::all().bits(),
    };
    world.ok(Call::CapGrant(grant));
    assert_eq!(world.bind_in(CapSlot(S), &[map_at(FAR, scratch, S + 20)]).0, Status::Ok);
    world.start(S + 10);
    world.kick(1);
    assert_eq!(world.call_on(1, create(9)).0, Status::Ok);
    let allocate = FrameAllocate { slot: CapSlot(5), count: 4, frame: FrameNumber(u64::MAX), alignment_log2: 0 };
    let (_, first) = world.call_on(1, Call::FrameAllocate(allocate));
    let words = [1 << 32, VA, first, 4 | 5 << 32];
    world.state.machine.memory[scratch as usize][..4].copy_from_slice(&words);
    let bind = Call::Bind(aegis_abi::call::Bind { space: CapSlot(9), entries: FAR, entry_count: 1 });
    assert_eq!(world.call_on(1, bind), (Status::Ok, 1));
    let frame_count = world.state.environments[child].frames_left() + 2;
    world.ok(Call::EnvironmentReclaim(EnvironmentReclaim { slot: CapSlot(S), frame_count, deadline_ns: 5_000 }));
    world.state.machine.now_ns = 5_000;
    world.timer(0);
    let tables = world.state.spaces.ids().find_map(|space| world.state.space_tables(space, child)).expect("one");
    let seen = |number: u64| world.seen(tables.root, VA + (number << 12));
    assert_eq!([seen(0), seen(1), seen(2), seen(3)], [Some(first), Some(first + 1), None, None]);
}

#[test]
fn a_space_is_only_its_own_environments() {
    let mut world = World::new();
    world.environment(S, 0);
    world.space(S + 10);
    let grant = |rights: Rights| {
        Call::CapGrant(aegis_abi::call::CapGrant {
            source: CapSlot(S + 10),
            environment: CapSlot(S),
            target: CapSlot(6),
            rights: rights.bits(),
        })
    };
    for rights in [Rights::all(), Rights::empty()] {
        assert_eq!(world.refused(grant(rights)), Status::MissingRight);
    }
    assert_eq!(world.refused(enter(S)), Status::WrongState, "another's home");
    assert_eq!(world.refused(enter(2)), Status::WrongType, "a processor");
    let read = |field| Call::CapRead(aegis_abi::call::CapRead { slot: CapSlot(S + 10), field });
    let rights = u64::from(Rights::CONTROL.bits());
    assert_eq!(world.call(read(0)), (Status::Ok, CapType::Space as u64 | rights << 32));
}
