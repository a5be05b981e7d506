//! Every short sequence of operations on the ownership table and on the tree of capabilities, against models that are
//! too simple to be wrong.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{Call, CapRevoke};
use aegis_abi::types::{CapSlot, FrameNumber, Rights, Status};

use super::world::{S, World};
use crate::object::capability::FRAME_RIGHTS;
use crate::object::{BlockEntry, CapRef, Capability, FrameEntry, FrameKind, FrameTable};

/// Frames at the border of two blocks, which the table sums up apart.
const FRAMES: [u64; 3] = [510, 511, 512];

/// Calls `visit` with every sequence of `length` numbers below `count`.
fn sequences(count: usize, length: u32, mut visit: impl FnMut(&[usize])) {
    let mut sequence = Vec::new();
    for number in 0..count.pow(length) {
        let mut rest = number;
        sequence.clear();
        for _ in 0..length {
            sequence.push(rest % count);
            rest /= count;
        }
        visit(&sequence);
    }
}

/// A frame as the model sees it.
#[derive(Clone, Copy, Default)]
struct Simple {
    is_free: bool,
    maps: u32,
    pins: u32,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Map,
    Unmap,
    Pin,
    Unpin,
    Free,
    Own,
}

const OPERATIONS: [Operation; 6] =
    [Operation::Map, Operation::Unmap, Operation::Pin, Operation::Unpin, Operation::Free, Operation::Own];

fn apply(table: &mut FrameTable<'_>, model: &mut [Simple; 3], operation: Operation, at: usize) {
    let frame = FrameNumber(FRAMES[at]);
    let simple = &mut model[at];
    match operation {
        Operation::Map if !simple.is_free => {
            assert!(table.count_mapping(frame));
            simple.maps += 1;
        }
        // Only what was counted is uncounted.
        Operation::Unmap if simple.maps != 0 => {
            table.uncount_mapping(frame);
            simple.maps -= 1;
        }
        Operation::Pin if !simple.is_free => {
            assert!(table.pin(frame));
            simple.pins += 1;
        }
        Operation::Unpin if simple.pins != 0 => {
            table.unpin(frame);
            simple.pins -= 1;
        }
        // The core frees nothing that is in use.
        Operation::Free if simple.maps + simple.pins == 0 => {
            table.set(frame, FrameKind::Free, 1);
            simple.is_free = true;
        }
        Operation::Own if simple.is_free => {
            table.set(frame, FrameKind::Owned, 1);
            simple.is_free = false;
        }
        _ => {}
    }
}

fn compare(table: &mut FrameTable<'_>, model: &[Simple; 3], sequence: &[usize]) {
    for first in 0..3 {
        for end in first + 1..=3 {
            let part = &model[first..end];
            let (at, count) = (FRAMES[first], (end - first) as u64);
            assert_eq!(table.any_mapped(at, count), part.iter().any(|f| f.maps != 0), "{sequence:?}");
            assert_eq!(table.any_pinned(at, count), part.iter().any(|f| f.pins != 0), "{sequence:?}");
            assert_eq!(table.all_free(at, count), part.iter().all(|f| f.is_free), "{sequence:?}");
        }
    }
    let free = model.iter().filter(|f| f.is_free).count() as u64;
    assert_eq!(table.free_count(), free, "{sequence:?}");
    for count in 1..=3u64 {
        let fits = |first: &u64| (*first..first + count).all(|f| f < 3 && model[f as usize].is_free);
        let mut search = table.new_search(count);
        let found = loop {
            match table.find_free(count, 1, &mut search) {
                Err(Status::Again) => {}
                found => break found.ok(),
            }
        };
        assert_eq!(found.is_some(), (0..3).any(|first| fits(&first)), "{sequence:?}");
        assert!(found.is_none_or(|found| fits(&(found.0 - FRAMES[0]))), "{sequence:?} {found:?}");
    }
}

#[test]
fn the_ownership_table_is_right_after_every_four_operations() {
    let mut frames = vec![FrameEntry::RESERVED; 513];
    let mut blocks = vec![BlockEntry::EMPTY; 2];
    sequences(OPERATIONS.len() * 3, 4, |sequence| {
        let mut table = FrameTable::EMPTY;
        // Only what a sequence touches is set back: the others stay reserved.
        assert!(table.install(&mut frames, &mut blocks));
        let mut model = [Simple { is_free: true, ..Simple::default() }; 3];
        for frame in FRAMES {
            table.set(FrameNumber(frame), FrameKind::Free, 0);
        }
        for operation in sequence {
            apply(&mut table, &mut model, OPERATIONS[operation / 3], operation % 3);
        }
        compare(&mut table, &model, sequence);
    });
}

/// Slots that the tree is made in.
const SLOT_COUNT: usize = 4;

fn place(world: &World, slot: usize) -> CapRef {
    CapRef { environment: world.first, slot: S + slot as u32 }
}

/// A capability as the model sees it: frames and the slot that it comes from.
type Simples = [Option<(u64, u64, Option<usize>)>; SLOT_COUNT];

/// Derives (the second half), or splits (the first one), where it makes sense.
fn grow(world: &mut World, model: &mut Simples, is_split: bool, from: usize, to: usize) {
    let (Some((first, count, parent)), None) = (model[from], model[to]) else {
        return;
    };
    let (source, target) = (place(world, from), place(world, to));
    if !is_split {
        let part = (first + count / 2, count - count / 2);
        assert!(world.state.derive(source, target, Rights::all(), part.0, part.1).is_ok());
        model[to] = Some((part.0, part.1, Some(from)));
    } else if count > 1 && !model.iter().flatten().any(|c| c.2 == Some(from)) {
        world.state.split(source, target, 1);
        model[from] = Some((first, 1, parent));
        model[to] = Some((first + 1, count - 1, parent));
    }
}

/// Takes one out that nothing comes from.
fn cut(world: &mut World, model: &mut Simples, slot: usize) {
    if model[slot].is_some() && slot != 0 && !model.iter().flatten().any(|c| c.2 == Some(slot)) {
        world.state.unlink(place(world, slot));
        model[slot] = None;
    }
}

fn compare_tree(world: &World, model: &Simples, sequence: &[usize]) {
    for (slot, simple) in model.iter().enumerate() {
        let found = world.state.capability(place(world, slot));
        let found = found.map(|c| (c.object, c.count, c.parent.map(|p| (p.slot - S) as usize)));
        assert_eq!(found, *simple, "{sequence:?}");
        // Its children are those that name it, each once.
        let mut children: Vec<usize> = Vec::new();
        let mut next = world.state.capability(place(world, slot)).and_then(|c| c.child);
        while let Some(at) = next {
            assert!(children.len() < SLOT_COUNT, "{sequence:?}: a ring");
            children.push((at.slot - S) as usize);
            next = world.state.capability(at).expect("a child is there").next;
        }
        children.sort_unstable();
        let expected: Vec<usize> =
            (0..SLOT_COUNT).filter(|other| model[*other].is_some_and(|c| c.2 == Some(slot))).collect();
        assert_eq!(children, expected, "{sequence:?}");
    }
}

#[test]
fn the_tree_of_capabilities_is_right_after_every_three_operations() {
    let mut world = World::new();
    world.check_after_entry = false;
    let first = world.frames(S, 6);
    let original = world.state.capability(place(&world, 0)).expect("it was made");
    assert_eq!(original, Capability::frames(FrameNumber(first), 6));
    assert_eq!(original.rights, FRAME_RIGHTS);
    // Deriving and splitting by pairs of slots, cutting by slot.
    let pairs = SLOT_COUNT * SLOT_COUNT;
    sequences(2 * pairs + SLOT_COUNT, 3, |sequence| {
        let mut model: Simples = [Some((first, 6, None)), None, None, None];
        for operation in sequence {
            match operation.checked_sub(2 * pairs) {
                Some(slot) => cut(&mut world, &mut model, slot),
                None => {
                    let pair = operation % pairs;
                    grow(&mut world, &mut model, operation / pairs == 0, pair / SLOT_COUNT, pair % SLOT_COUNT);
                }
            }
        }
        compare_tree(&world, &model, sequence);
        // Revoking takes exactly what descends.
        let root = place(&world, 0);
        world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S) }));
        for slot in 0..SLOT_COUNT {
            let mut top = slot;
            while let Some((_, _, Some(parent))) = model[top] {
                top = parent;
            }
            let stays = model[slot].is_some() && (slot == 0 || top != 0);
            let is_there = world.state.capability(place(&world, slot)).is_some();
            assert_eq!(is_there, stays, "{sequence:?}, slot {slot}");
        }
        for slot in (1..SLOT_COUNT).rev() {
            world.state.store_capability(place(&world, slot), &original);
            world.state.unlink(place(&world, slot));
        }
        world.state.store_capability(root, &original);
    });
}
