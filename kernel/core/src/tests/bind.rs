//! Call 10, and the page tables against a naive map.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use aegis_abi::call::{Bind, BindOne, Call, CapDerive, CapDrop, CapGrant, CapRevoke, FrameAllocate, FrameFree};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, PAGE_TABLE_WINDOW, PROGRAM_BASE, PROGRAM_END, SYSTEM_PAGE_BASE};
use aegis_abi::memory::{BIND_ENTRY_COUNT_MAX, BindEntry, BindFlags, BindOperation, entry};
use aegis_abi::types::{CapSlot, FrameNumber, Rights, SLOT_SELF, Status};
use proptest::prelude::{Strategy, prop, proptest};

use super::check::check;
use super::frame::split;
use super::world::{S, SCRATCH, World};
use crate::space::Directory;

const VA: u64 = 0x4000_0000;

fn item(operation: BindOperation, flags: BindFlags, va: u64, frame: u64, count: u32) -> BindEntry {
    BindEntry {
        operation: operation as u32,
        flags: flags.bits(),
        virtual_address: va,
        frame,
        page_count: count,
        slot: S,
    }
}

fn map(flags: BindFlags, va: u64, frame: u64, count: u32) -> BindEntry {
    item(BindOperation::Map, flags, va, frame, count)
}

fn unmap(va: u64, count: u32) -> BindEntry {
    item(BindOperation::Unmap, BindFlags::empty(), va, 0, count)
}

/// The leaf entry for an address.
fn leaf(world: &World, va: u64) -> u64 {
    let root = world.state.environments[world.first].root;
    let page = (va & 0xffff_ffff_ffff) >> 12;
    match world.state.directory(root, page) {
        Directory::Table(table) => world.state.machine.memory[table.0 as usize][page as usize % 512],
        _ => 0,
    }
}

fn aligned_block(world: &mut World, slot: u32) -> u64 {
    world.ok(Call::FrameAllocate(FrameAllocate {
        slot: CapSlot(slot),
        count: 512,
        frame: FrameNumber(u64::MAX),
        alignment_log2: 9,
    }))
}

#[test]
fn pages_are_mapped_protected_and_unmapped() {
    let mut world = World::new();
    let frame = world.frames(S, 4);
    assert_eq!(world.bind(&[map(BindFlags::WRITE, VA, frame, 3)]), (Status::Ok, 1));
    let user = entry::PRESENT | entry::USER;
    assert_eq!(leaf(&world, VA + 0x1000), (frame + 1) << 12 | user | entry::WRITE | entry::NO_EXECUTE);
    let protect = item(BindOperation::Protect, BindFlags::EXECUTE, VA, 0, 10);
    assert_eq!(world.bind(&[protect]), (Status::Ok, 1));
    assert_eq!(leaf(&world, VA + 0x2000), (frame + 2) << 12 | user);
    assert!(world.state.machine.flushed.contains(&(VA + 0x2000)));
    assert_eq!(world.bind(&[unmap(VA, 512)]), (Status::Ok, 1));
    assert_eq!(leaf(&world, VA), 0);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

#[test]
fn accessed_and_dirty_bits_survive_protection_and_are_cleaned_on_request() {
    let mut world = World::new();
    let frame = world.frames(S, 1);
    world.bind(&[map(BindFlags::WRITE, VA, frame, 1)]);
    let root = world.state.environments[world.first].root;
    let Directory::Table(table) = world.state.directory(root, VA >> 12) else {
        panic!("a table");
    };
    let index = (VA >> 12) as usize % 512;
    world.state.machine.memory[table.0 as usize][index] |= entry::ACCESSED | entry::DIRTY;
    world.bind(&[item(BindOperation::Protect, BindFlags::empty(), VA, 0, 1)]);
    assert_ne!(leaf(&world, VA) & entry::DIRTY, 0);
    world.bind(&[item(BindOperation::Clean, BindFlags::empty(), VA, 0, 1)]);
    assert_eq!(leaf(&world, VA) & (entry::ACCESSED | entry::DIRTY), 0);
}

#[test]
fn every_bad_entry_is_refused() {
    let mut world = World::new();
    let frame = world.frames(S, 600);
    let none = BindFlags::empty();
    let mut bad = |entry: BindEntry| {
        let (status, value) = world.bind(&[map(none, VA, frame, 1), entry]);
        assert_eq!(value, 1, "one entry was done");
        status
    };
    assert_eq!(bad(map(none, VA, frame, 0)), Status::BadArgument);
    assert_eq!(bad(map(none, VA, frame, 4097)), Status::BadArgument);
    assert_eq!(bad(map(none, VA + 1, frame, 1)), Status::BadAddress);
    for va in [
        0,
        PROGRAM_BASE - 0x1000,
        PROGRAM_END,
        PROGRAM_END - 0x1000,
        1 << 47,
        LIBOS_BASE - 0x1000,
        LIBOS_END - 0x1000,
        PAGE_TABLE_WINDOW,
        0xffff_ffff_8000_0000,
        !0xfff,
    ] {
        assert_eq!(bad(map(none, va, frame, 2)), Status::BadAddress, "{va:#x}");
    }
    let other = |change: &dyn Fn(&mut BindEntry)| {
        let mut entry = map(none, VA, frame, 1);
        change(&mut entry);
        entry
    };
    assert_eq!(bad(other(&|e| e.operation = 4)), Status::BadArgument);
    assert_eq!(bad(other(&|e| e.flags = 16)), Status::BadArgument);
    assert_eq!(bad(other(&|e| e.slot = 0)), Status::BadSlot);
    assert_eq!(bad(other(&|e| e.slot = SLOT_SELF.0)), Status::WrongType);
    assert_eq!(bad(other(&|e| e.frame -= 1)), Status::MissingRight);
    assert_eq!(bad(other(&|e| e.frame = u64::MAX)), Status::MissingRight);
    assert_eq!(bad(map(none, VA, frame + 100, 502)), Status::MissingRight);
    assert_eq!(bad(map(BindFlags::LARGE, VA, frame | 1, 512)), Status::BadArgument);
    assert_eq!(bad(map(BindFlags::LARGE, VA, 512, 511)), Status::BadArgument);
    assert_eq!(bad(map(BindFlags::LARGE, VA + 0x1000, 512, 512)), Status::BadAddress);
    let system = item(BindOperation::Protect, BindFlags::WRITE, SYSTEM_PAGE_BASE, 0, 1);
    assert_eq!(bad(system), Status::MissingRight);
}

#[test]
fn the_batch_itself_is_checked() {
    let mut world = World::new();
    let mut bind = |entries: u64, entry_count: u32, space: u32| {
        world.call(Call::Bind(Bind { space: CapSlot(space), entries, entry_count }))
    };
    assert_eq!(bind(SCRATCH, 0, 1), (Status::Ok, 0));
    assert_eq!(bind(SCRATCH, BIND_ENTRY_COUNT_MAX + 1, 1), (Status::BadArgument, 2));
    assert_eq!(bind(SCRATCH + 4, 1, 1).0, Status::BadAddress);
    assert_eq!(bind(u64::MAX - 7, 1, 1).0, Status::BadAddress);
    assert_eq!(bind(0xffff_ffff_8000_0000, 1, 1).0, Status::BadAddress);
    assert_eq!(bind(VA, 1, 1).0, Status::BadAddress, "not mapped");
    assert_eq!(bind(SCRATCH, 1, 2).0, Status::WrongType);
    assert_eq!(bind(SCRATCH, 1, 0).0, Status::BadSlot);
}

#[test]
fn rights_limit_how_pages_are_mapped() {
    let mut world = World::new();
    let frame = world.frames(S + 1, 2);
    world.ok(Call::CapDerive(CapDerive {
        source: CapSlot(S + 1),
        target: CapSlot(S),
        rights: Rights::READ.bits(),
        offset: 0,
        count: 2,
    }));
    assert_eq!(world.bind(&[map(BindFlags::WRITE, VA, frame, 1)]).0, Status::MissingRight);
    assert_eq!(world.bind(&[map(BindFlags::EXECUTE, VA, frame, 1)]).0, Status::MissingRight);
    assert_eq!(world.bind(&[map(BindFlags::empty(), VA, frame, 1)]).0, Status::Ok);
    let protect = item(BindOperation::Protect, BindFlags::WRITE, VA, 0, 1);
    assert_eq!(world.bind(&[protect]).0, Status::MissingRight);
}

#[test]
fn large_pages_are_whole() {
    let mut world = World::new();
    let frame = aligned_block(&mut world, S);
    let large = BindFlags::LARGE | BindFlags::WRITE;
    assert_eq!(world.bind(&[map(large, VA, frame, 512)]).0, Status::Ok);
    let small = BindFlags::empty();
    assert_eq!(world.bind(&[map(small, VA, frame, 1)]).0, Status::WrongState);
    assert_eq!(world.bind(&[unmap(VA, 1)]).0, Status::WrongState);
    assert_eq!(world.bind(&[unmap(VA + 0x1000, 511)]).0, Status::WrongState);
    let protect = item(BindOperation::Protect, small, VA, 0, 511);
    assert_eq!(world.bind(&[protect]).0, Status::WrongState);
    let protect = item(BindOperation::Protect, BindFlags::LARGE, VA, 0, 512);
    assert_eq!(world.bind(&[protect]).0, Status::Ok);
    assert_eq!(world.refused(Call::FrameFree(FrameFree { slot: CapSlot(S) })), Status::Busy);
    let unmap_large = item(BindOperation::Unmap, BindFlags::LARGE, VA, 0, 512);
    assert_eq!(world.bind(&[unmap_large]).0, Status::Ok);
    // The first frame of a large page was visible in the page-table window.
    assert!(world.state.machine.flushed.contains(&(PAGE_TABLE_WINDOW + (VA >> 12 >> 9 << 12))));
    // Small pages in its place, then a large one again, once the table is empty.
    assert_eq!(world.bind(&[map(small, VA, frame, 2)]).0, Status::Ok);
    assert_eq!(world.bind(&[map(large, VA, frame, 512)]).0, Status::WrongState);
    assert_eq!(world.bind(&[unmap_large]).0, Status::WrongState);
    assert_eq!(world.bind(&[unmap(VA, 512)]).0, Status::Ok);
    assert_eq!(world.bind(&[map(large, VA, frame, 512)]).0, Status::Ok);
    assert_eq!(world.bind(&[unmap(VA, 512)]).0, Status::Ok);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

/// Its parts have the authority together: with the first that goes, the page does.
#[test]
fn a_large_page_outlives_the_split_of_its_capability_and_no_part_of_it() {
    for dropped in [S, S + 1] {
        let mut world = World::new();
        let frame = aligned_block(&mut world, S);
        assert_eq!(world.bind(&[map(BindFlags::LARGE | BindFlags::WRITE, VA, frame, 512)]).0, Status::Ok);
        world.ok(split(S, S + 1, 12));
        check(&world.state);
        // It is there still, and a small one has no place beside it.
        let kept = BindEntry { slot: if dropped == S { S + 1 } else { S }, ..map(BindFlags::empty(), VA, 0, 1) };
        let kept = BindEntry { frame: if dropped == S { frame + 12 } else { frame }, ..kept };
        assert_eq!(world.bind(&[kept]).0, Status::WrongState);
        while world.call(Call::CapDrop(CapDrop { slot: CapSlot(dropped) })).0 == Status::Again {}
        check(&world.state);
        assert_eq!(world.bind(&[kept]).0, Status::Ok);
    }
}

#[test]
fn a_batch_is_bounded() {
    let mut world = World::new();
    let frame = world.frames(S, 250);
    let entry = |n: u64| map(BindFlags::empty(), VA + (n << 24), frame, 250);
    let entries: Vec<BindEntry> = (0..5).map(entry).collect();
    assert_eq!(world.bind(&entries), (Status::Again, 2));
    assert_eq!(world.bind(&entries[2..]), (Status::Again, 2));
    assert_eq!(world.bind(&entries[4..]), (Status::Ok, 1));
}

#[test]
fn without_donated_frames_there_are_no_tables() {
    let mut world = World::new();
    let frame = world.frames(S, 1);
    let mut status = Status::Ok;
    for n in 0..200 {
        status = world.bind(&[map(BindFlags::empty(), VA + (n << 30), frame, 1)]).0;
        if status != Status::Ok {
            break;
        }
    }
    assert_eq!(status, Status::NoTables);
    world.frames(S + 1, 8);
    world.ok(Call::FrameDonate(aegis_abi::call::FrameDonate { slot: CapSlot(S + 1), environment: SLOT_SELF }));
    assert_eq!(world.bind(&[map(BindFlags::empty(), VA + (300 << 30), frame, 1)]).0, Status::Ok);
}

#[test]
fn dropping_a_capability_breaks_what_only_it_covered() {
    let mut world = World::new();
    let frame = world.frames(S + 1, 4);
    world.ok(Call::CapDerive(CapDerive {
        source: CapSlot(S + 1),
        target: CapSlot(S),
        rights: Rights::all().bits(),
        offset: 0,
        count: 4,
    }));
    world.ok(Call::CapDerive(CapDerive {
        source: CapSlot(S + 1),
        target: CapSlot(S + 2),
        rights: Rights::READ.bits(),
        offset: 0,
        count: 4,
    }));
    world.bind(&[map(BindFlags::empty(), VA, frame, 2), map(BindFlags::WRITE, VA + 0x2000, frame, 2)]);
    world.ok(Call::CapDrop(CapDrop { slot: CapSlot(S) }));
    assert_ne!(leaf(&world, VA + 0x2000), 0, "the original covers it");
    // Foreign authority: only the child's own capability counts there.
    let child = world.environment(S + 10, 50);
    let grant = |slot: u32, rights: Rights| {
        Call::CapGrant(CapGrant {
            source: CapSlot(S + 1),
            environment: CapSlot(S + 10),
            target: CapSlot(slot),
            rights: rights.bits(),
        })
    };
    let mut foreign = map(BindFlags::WRITE, VA, frame, 2);
    foreign.slot = S + 1;
    assert_eq!(world.bind_in(CapSlot(S + 10), &[foreign]).0, Status::MissingRight);
    world.ok(grant(5, Rights::READ));
    assert_eq!(world.bind_in(CapSlot(S + 10), &[foreign]).0, Status::MissingRight);
    world.ok(grant(6, Rights::READ | Rights::WRITE));
    assert_eq!(world.bind_in(CapSlot(S + 10), &[foreign]).0, Status::Ok);
    let root = world.state.environments[child].root;
    assert_eq!(world.state.translate(root, VA >> 12), Some(FrameNumber(frame)));
    world.state.machine.flushed = vec![];
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 1) }));
    assert_eq!(world.state.translate(root, VA >> 12), None);
    assert!(world.state.machine.flushed.contains(&VA));
    assert_ne!(leaf(&world, VA), 0, "the revoker's own mapping stays");
}

/// A step of the model: operation, page, count, frame offset, writable.
type Step = (u32, u64, u32, u64, bool);

fn step() -> impl Strategy<Value = Step> {
    (0u32..3, 500u64..530, 1u32..8, 0u64..32, prop::bool::ANY)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn page_tables_match_a_naive_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        world.check_after_entry = false;
        let base = world.frames(S, 40);
        let mut model: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        for (operation, page, count, frame, is_writable) in steps {
            let flags = if is_writable { BindFlags::WRITE } else { BindFlags::empty() };
            let va = VA + (page << 12);
            let operation = match operation {
                0 => BindOperation::Map,
                1 => BindOperation::Unmap,
                _ => BindOperation::Protect,
            };
            for offset in 0..u64::from(count) {
                match operation {
                    BindOperation::Map => {
                        model.insert(page + offset, (base + frame + offset, is_writable));
                    }
                    BindOperation::Unmap => {
                        model.remove(&(page + offset));
                    }
                    _ => {
                        if let Some(entry) = model.get_mut(&(page + offset)) {
                            entry.1 = is_writable;
                        }
                    }
                }
            }
            let result = world.bind(&[item(operation, flags, va, base + frame, count)]);
            assert_eq!(result, (Status::Ok, 1));
        }
        world.check();
        for page in 500..540 {
            let word = leaf(&world, VA + (page << 12));
            let seen = (word != 0).then_some((
                (word & entry::FRAME_MASK) >> 12,
                word & entry::WRITE != 0,
            ));
            assert_eq!(seen, model.get(&page).copied());
        }
    }
}

#[test]
fn a_mapping_needs_a_capability_with_its_rights_not_just_any() {
    let mut world = World::new();
    let frame = world.frames(S + 1, 2);
    let child = world.environment(S + 10, 50);
    for (target, rights) in [(5, Rights::READ), (6, Rights::READ | Rights::WRITE)] {
        world.ok(Call::CapDerive(CapDerive {
            source: CapSlot(S + 1),
            target: CapSlot(S + target),
            rights: (rights | Rights::GRANT).bits(),
            offset: 0,
            count: 2,
        }));
        world.ok(Call::CapGrant(CapGrant {
            source: CapSlot(S + target),
            environment: CapSlot(S + 10),
            target: CapSlot(target),
            rights: rights.bits(),
        }));
    }
    let mut entries = [map(BindFlags::empty(), VA, frame, 1), map(BindFlags::WRITE, VA + 0x1000, frame, 1)];
    for entry in &mut entries {
        entry.slot = S + 6;
    }
    assert_eq!(world.bind_in(CapSlot(S + 10), &entries).0, Status::Ok);
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 6) }));
    let root = world.state.environments[child].root;
    assert_eq!(world.state.translate(root, VA >> 12), Some(FrameNumber(frame)));
    assert_eq!(world.state.translate(root, (VA >> 12) + 1), None, "it was writable");
}

#[test]
fn frames_in_use_are_not_donated() {
    let mut world = World::new();
    let frame = world.frames(S, 2);
    world.bind(&[map(BindFlags::empty(), VA, frame + 1, 1)]);
    let donate = Call::FrameDonate(aegis_abi::call::FrameDonate { slot: CapSlot(S), environment: SLOT_SELF });
    assert_eq!(world.refused(donate), Status::Busy);
    world.bind(&[unmap(VA, 1)]);
    // What was in them does not become a page table.
    for donated in [frame, frame + 1] {
        world.state.machine.memory[donated as usize] = [u64::MAX; 512];
    }
    world.ok(donate);
    world.frames(S, 1);
    let bound = world.frames(S + 1, 1);
    let mut entry = map(BindFlags::empty(), VA + (9 << 39), bound, 1);
    entry.slot = S + 1;
    assert_eq!(world.bind(&[entry]).0, Status::Ok);
}

#[test]
fn one_entry_goes_in_registers_as_in_a_batch() {
    let mut world = World::new();
    let frame = world.frames(S, 2);
    let one = |operation, flags: BindFlags, virtual_address, frame, slot: u32| {
        let operation = operation as u64 | u64::from(flags.bits()) << 32;
        let pages = 1 | u64::from(slot) << 32;
        Call::BindOne(BindOne { space: SLOT_SELF, operation, virtual_address, frame, pages })
    };
    let write = BindFlags::WRITE;
    assert_eq!(world.call(one(BindOperation::Map, write, VA, frame, S)), (Status::Ok, 0));
    world.write(VA, &[7]);
    assert_eq!(world.state.machine.memory[frame as usize][0], 7);
    assert_eq!(world.call(one(BindOperation::Protect, BindFlags::empty(), VA, 0, S)), (Status::Ok, 0));
    assert_eq!(world.call(one(BindOperation::Map, write, VA, frame + 2, S)), (Status::MissingRight, 0));
    assert_eq!(world.call(one(BindOperation::Map, write, VA + 1, frame, S)), (Status::BadAddress, 0));
    assert_eq!(world.call(one(BindOperation::Map, write, VA, frame, S + 3)), (Status::BadSlot, 0));
    assert_eq!(world.call(one(BindOperation::Unmap, write, VA, 0, 0)), (Status::Ok, 0));
    assert!(world.state.translate(world.state.environments[world.first].root, VA >> 12).is_none());
}

/// What one page of the caller's own comes to by its short way, with everything that can be wrong about it, and by the
/// long one.
#[test]
fn one_page_goes_by_the_short_way_as_by_the_long_one() {
    use BindOperation::{Clean, Map, Protect, Unmap};
    let outcomes = |is_batch: bool| {
        let mut world = World::new();
        let (own, other) = (world.frames(S, 2), world.frames(S + 1, 1));
        let derive =
            CapDerive { source: CapSlot(S), target: CapSlot(S + 2), rights: Rights::READ.bits(), offset: 0, count: 2 };
        world.ok(Call::CapDerive(derive));
        let (none, write) = (BindFlags::empty(), BindFlags::WRITE);
        let steps = [
            (Protect, write, VA, 0, S),
            (Map, write, VA, 0, S),
            (Map, write, VA, own, S),
            (Protect, write, VA + 0x1000, 0, S),
            (Map, write, VA + 0x1000, 0, S),
            (Map, write, VA + 0x1000, u64::MAX, S),
            (Map, write, VA + 0x1000, other, S),
            (Map, write, VA + 0x1000, own + 1, S + 2),
            (Map, none, VA + 0x1000, own + 1, S + 2),
            (Protect, write, VA + 0x1000, 0, S + 2),
            (Protect, write, VA + 0x1000, 0, S + 1),
            (Protect, write, VA + 0x1000, 0, S),
            (Map, write, VA + 0x1000, other, S + 1),
            (Clean, none, VA + 0x1000, 0, 0),
            (Unmap, none, VA, 0, 0),
            (Unmap, none, VA, 0, 0),
            (Unmap, none, VA + (1 << 39), 0, 0),
        ];
        let root = world.state.environments[world.first].root;
        let step = |(operation, flags, virtual_address, frame, slot): (BindOperation, BindFlags, u64, u64, u32)| {
            let status = if is_batch {
                let operation = operation as u32;
                let flags = flags.bits();
                world.bind(&[BindEntry { operation, flags, virtual_address, frame, page_count: 1, slot }]).0
            } else {
                let operation = operation as u64 | u64::from(flags.bits()) << 32;
                let pages = 1 | u64::from(slot) << 32;
                world.call(Call::BindOne(BindOne { space: SLOT_SELF, operation, virtual_address, frame, pages })).0
            };
            let leaf = |page: u64| match world.state.directory(root, page) {
                Directory::Table(table) => Some(world.state.machine.memory[table.0 as usize][page as usize % 512]),
                _ => None,
            };
            (status, leaf(VA >> 12), leaf((VA >> 12) + 1))
        };
        let seen = steps.map(step);
        // One of them is still mapped, and both count so.
        (seen, world.call(Call::FrameFree(FrameFree { slot: CapSlot(S + 1) })).0)
    };
    assert_eq!(outcomes(false), outcomes(true));
}
