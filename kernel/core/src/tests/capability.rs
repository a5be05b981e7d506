//! Calls 1 to 5, and the tree of derivation against a naive model.

use std::collections::BTreeMap;
use std::vec::Vec;

use aegis_abi::call::{Call, CapDerive, CapDrop, CapGrant, CapRead, CapRevoke};
use aegis_abi::types::{CapSlot, Rights, SLOT_BUNDLE, SLOT_MACHINE, SLOT_SELF, Status};
use proptest::prelude::{Strategy, prop, proptest};

use super::world::{BUNDLE, S, World};
use crate::object::{DEPTH_MAX, SLOT_COUNT_MAX};

fn derive(source: u32, target: u32, rights: Rights, offset: u64, count: u64) -> Call {
    Call::CapDerive(CapDerive {
        source: CapSlot(source),
        target: CapSlot(target),
        rights: rights.bits(),
        offset,
        count,
    })
}

fn grant(source: u32, environment: u32, target: u32, rights: Rights) -> Call {
    Call::CapGrant(CapGrant {
        source: CapSlot(source),
        environment: CapSlot(environment),
        target: CapSlot(target),
        rights: rights.bits(),
    })
}

fn revoke(slot: u32) -> Call {
    Call::CapRevoke(CapRevoke { slot: CapSlot(slot) })
}

fn drop(slot: u32) -> Call {
    Call::CapDrop(CapDrop { slot: CapSlot(slot) })
}

fn read(slot: u32, field: u32) -> Call {
    Call::CapRead(CapRead { slot: CapSlot(slot), field })
}

#[test]
fn a_derived_capability_has_fewer_rights_and_a_part_of_the_range() {
    let mut world = World::new();
    let first = world.frames(S, 10);
    world.ok(derive(S, S + 1, Rights::READ | Rights::RING, 3, 4));
    let expected = u64::from(Rights::READ.bits()) << 32 | 1;
    assert_eq!(world.ok(read(S + 1, 0)), expected);
    assert_eq!(world.ok(read(S + 1, 1)), first + 3);
    assert_eq!(world.ok(read(S + 1, 2)), 4);
}

#[test]
fn every_bad_derivation_is_refused() {
    let mut world = World::new();
    world.frames(S, 10);
    let all = Rights::all();
    assert_eq!(world.refused(derive(0, S + 1, all, 0, 1)), Status::BadSlot);
    assert_eq!(world.refused(derive(S + 9, S + 1, all, 0, 1)), Status::BadSlot);
    assert_eq!(world.refused(derive(u32::MAX, S + 1, all, 0, 1)), Status::BadSlot);
    assert_eq!(world.refused(derive(S, 0, all, 0, 1)), Status::BadSlot);
    assert_eq!(world.refused(derive(S, SLOT_COUNT_MAX, all, 0, 1)), Status::BadSlot);
    assert_eq!(world.refused(derive(S, S, all, 0, 1)), Status::SlotInUse);
    assert_eq!(world.call(derive(S, S + 1, all, 10, 1)), (Status::BadArgument, 3));
    assert_eq!(world.call(derive(S, S + 1, all, u64::MAX, 1)), (Status::BadArgument, 3));
    assert_eq!(world.call(derive(S, S + 1, all, 3, 8)), (Status::BadArgument, 4));
    assert_eq!(world.call(derive(S, S + 1, all, 3, 0)), (Status::BadArgument, 4));
    let call =
        Call::CapDerive(CapDerive { source: CapSlot(S), target: CapSlot(S + 1), rights: 1 << 31, offset: 0, count: 1 });
    assert_eq!(world.call(call), (Status::BadArgument, 2));
}

#[test]
fn the_tree_has_a_greatest_depth() {
    let mut world = World::new();
    world.frames(S, 1);
    for depth in 0..u32::from(DEPTH_MAX) {
        world.ok(derive(S + depth, S + depth + 1, Rights::all(), 0, 1));
    }
    let last = S + u32::from(DEPTH_MAX);
    assert_eq!(world.refused(derive(last, last + 1, Rights::all(), 0, 1)), Status::TableFull);
    world.ok(revoke(S));
    assert_eq!(world.refused(read(S + 1, 0)), Status::BadSlot);
    assert_eq!(world.refused(read(last, 0)), Status::BadSlot);
}

#[test]
fn a_grant_needs_both_sides() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    world.frames(S + 2, 4);
    world.ok(derive(S + 2, S + 3, Rights::READ, 0, 4));
    assert_eq!(world.refused(grant(S + 3, S, 5, Rights::READ)), Status::MissingRight);
    world.ok(derive(S, S + 4, Rights::READ, 0, 0));
    assert_eq!(world.refused(grant(S + 2, S + 4, 5, Rights::READ)), Status::MissingRight);
    assert_eq!(world.refused(grant(S + 2, S + 2, 5, Rights::READ)), Status::WrongType);
    assert_eq!(world.refused(grant(S + 2, S, 1, Rights::READ)), Status::SlotInUse);
    world.ok(grant(S + 2, S, 5, Rights::READ | Rights::WRITE));
    let at = crate::object::CapRef { environment: child, slot: 5 };
    let capability = world.state.capability(at).expect("granted");
    assert_eq!(capability.rights, Rights::READ | Rights::WRITE);
    assert_eq!(world.refused(drop(S + 2)), Status::Busy);
    world.ok(revoke(S + 2));
    assert_eq!(world.state.capability(at), None);
}

#[test]
fn a_grant_pays_for_the_table_with_the_receivers_frames() {
    let mut world = World::new();
    let child = world.environment(S, 100);
    while world.state.environments[child].donated_count != 0 {
        world.state.take_donated(child, crate::object::FrameKind::VectorState);
    }
    world.check_after_entry = false;
    assert_eq!(world.refused(grant(SLOT_MACHINE.0, S, 64, Rights::all())), Status::NoTables);
    world.ok(grant(SLOT_MACHINE.0, S, 63, Rights::all()));
}

#[test]
fn dropping_an_original_frees_its_frames() {
    let mut world = World::new();
    let free = world.state.frames.free_count();
    world.frames(S, 10);
    world.ok(drop(S));
    assert_eq!(world.state.frames.free_count(), free);
    assert_eq!(world.refused(drop(S)), Status::BadSlot);
    assert_eq!(world.refused(drop(SLOT_SELF.0)), Status::Busy);
    assert_eq!(world.refused(drop(2)), Status::Busy);
    world.ok(drop(SLOT_MACHINE.0));
}

#[test]
fn fields_are_readable_and_others_are_not() {
    let mut world = World::new();
    assert_eq!(world.ok(read(SLOT_BUNDLE.0, 1)), BUNDLE);
    assert_eq!(world.call(read(SLOT_BUNDLE.0, 3)), (Status::BadArgument, 1));
    assert_eq!(world.refused(read(0, 0)), Status::BadSlot);
    assert_eq!(world.refused(read(50, 0)), Status::BadSlot);
}

#[test]
fn revocation_of_many_is_done_in_pieces_during_which_nothing_is_derived() {
    let mut world = World::new();
    world.frames(S, 1);
    for slot in 1..200 {
        world.ok(derive(S, S + slot, Rights::all(), 0, 1));
    }
    assert_eq!(world.refused(revoke(S)), Status::Again);
    assert_eq!(world.refused(derive(S, S + 500, Rights::all(), 0, 1)), Status::WrongState);
    let survivor = (1..200).find(|slot| world.call(read(S + slot, 0)).0 == Status::Ok).expect("not all are gone");
    assert_eq!(world.refused(derive(S + survivor, S + 500, Rights::all(), 0, 1)), Status::WrongState);
    world.ok(revoke(S));
    for slot in 1..200 {
        assert_eq!(world.refused(read(S + slot, 0)), Status::BadSlot);
    }
    world.ok(derive(S, S + 500, Rights::all(), 0, 1));
}

/// What the model does.
#[derive(Clone, Debug)]
enum Step {
    Derive(u32, u32, u32, u64, u64),
    Revoke(u32),
    Drop(u32),
    Split(u32, u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || 0u32..12;
    (0u32..8, slot(), slot(), 0u32..64, 0u64..8, 1u64..8).prop_map(|(kind, a, b, rights, offset, count)| match kind {
        0 => Step::Revoke(a),
        1 => Step::Drop(a),
        2 => Step::Split(a, b, count),
        _ => Step::Derive(a, b, rights, offset, count),
    })
}

/// A capability of the model: parent's slot, rights, first frame, count.
type Entry = (Option<u32>, u32, u64, u64);

fn children(model: &BTreeMap<u32, Entry>, slot: u32) -> Vec<u32> {
    model.iter().filter(|(_, entry)| entry.0 == Some(slot)).map(|(child, _)| *child).collect()
}

fn model_revoke(model: &mut BTreeMap<u32, Entry>, slot: u32) {
    for child in children(model, slot) {
        model_revoke(model, child);
        model.remove(&child);
    }
}

fn model_step(model: &mut BTreeMap<u32, Entry>, step: &Step) -> bool {
    match *step {
        Step::Derive(source, target, rights, offset, count) => {
            let Some(entry) = model.get(&source).copied() else {
                return false;
            };
            if model.contains_key(&target) || offset + count > entry.3 {
                return false;
            }
            model.insert(target, (Some(source), entry.1 & rights, entry.2 + offset, count));
        }
        Step::Revoke(slot) => {
            if !model.contains_key(&slot) {
                return false;
            }
            model_revoke(model, slot);
        }
        Step::Drop(slot) => {
            if !model.contains_key(&slot) || !children(model, slot).is_empty() {
                return false;
            }
            model.remove(&slot);
        }
        Step::Split(slot, target, count) => {
            let Some(entry) = model.get(&slot).copied() else {
                return false;
            };
            if model.contains_key(&target) || !children(model, slot).is_empty() || count >= entry.3 {
                return false;
            }
            model.insert(slot, (entry.0, entry.1, entry.2, count));
            model.insert(target, (entry.0, entry.1, entry.2 + count, entry.3 - count));
        }
    }
    true
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn derivation_and_revocation_match_a_naive_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        world.check_after_entry = false;
        let mut model: BTreeMap<u32, Entry> = BTreeMap::new();
        for slot in 0..3 {
            let first = world.frames(S + slot, 8);
            let rights = crate::object::capability::FRAME_RIGHTS.bits();
            model.insert(slot, (None, rights, first, 8));
        }
        for step in &steps {
            let call = match *step {
                Step::Derive(source, target, rights, offset, count) => {
                    derive(S + source, S + target, Rights::from_bits_truncate(rights), offset, count)
                }
                Step::Revoke(slot) => revoke(S + slot),
                Step::Drop(slot) => drop(S + slot),
                Step::Split(slot, target, count) => super::frame::split(S + slot, S + target, count),
            };
            let expected = model_step(&mut model, step);
            let (status, _) = world.call(call);
            assert_eq!(status == Status::Ok, expected, "{step:?}: {status:?}");
        }
        world.check();
        for slot in 0..12 {
            let read_field = |world: &mut World, field| world.call(read(S + slot, field));
            match model.get(&slot) {
                None => assert_eq!(read_field(&mut world, 0).0, Status::BadSlot),
                Some((_, rights, first, count)) => {
                    assert_eq!(read_field(&mut world, 0), (Status::Ok, 1 | u64::from(*rights) << 32));
                    assert_eq!(read_field(&mut world, 1), (Status::Ok, *first));
                    assert_eq!(read_field(&mut world, 2), (Status::Ok, *count));
                }
            }
        }
    }
}
