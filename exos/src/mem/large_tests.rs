//! Large pages: when there are some, what splits them, and random calls among them against a model of bytes.

use aegis_abi::CapSlot;
use aegis_abi::layout::{LARGE_PAGE_FRAMES, LARGE_PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use proptest::prelude::*;
use std::collections::BTreeMap;

use super::test_support::{PAGE, Setup, load, store};
use super::{
    Access, AddressSpace, Advice, FaultOutcome, MapRequest, Movement, Placement, ProtectReach, Protection, RemapRequest,
};
use crate::fake::FakeAccess;
use crate::mem::Wait;

const BLOCK: u64 = LARGE_PAGE_SIZE;
const START: u64 = 0x1000_0000;
const BOTH: Protection = Protection::READ.union(Protection::WRITE);

fn map(space: &mut AddressSpace, start: u64, length: u64) {
    assert_eq!(space.map(MapRequest::anonymous(Placement::Fixed(start), length, BOTH)), Ok(start));
}

/// Stores to each page of a range, upwards.
fn walk(setup: &Setup, space: &mut AddressSpace, range: core::ops::Range<u64>) {
    for address in range.step_by(PAGE as usize) {
        store(setup, space, address, (address >> 12) as u8);
    }
}

fn large_pages(setup: &Setup, space: &AddressSpace) -> u64 {
    let mapped = setup.machine.mappings(space.environment());
    let count = mapped.iter().filter(|(_, mapping)| mapping.flags.contains(BindFlags::LARGE)).count() as u64;
    assert_eq!(space.totals().large, count, "what is noted is what is there");
    count
}

#[test]
fn a_long_walk_gets_whole_blocks_up_and_down() {
    let setup = Setup::new();
    let mut space = setup.space();
    map(&mut space, START, 4 * BLOCK);
    walk(&setup, &mut space, START..START + BLOCK + 64 * PAGE);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES, "the first block was walked page by page");
    assert_eq!(space.totals().resident_anonymous, 2 * LARGE_PAGE_FRAMES);
    map(&mut space, START + 8 * BLOCK, 4 * BLOCK);
    let before = space.fault_counts().resolved;
    for page in (0..4 * LARGE_PAGE_FRAMES).rev() {
        store(&setup, &mut space, START + 8 * BLOCK + page * PAGE, 1);
    }
    assert!(space.fault_counts().resolved - before < 1000);
    assert_eq!(large_pages(&setup, &space), 4 * LARGE_PAGE_FRAMES, "all but the one walked first");
    // Random stores get pages.
    map(&mut space, START + 16 * BLOCK, 4 * BLOCK);
    let (mut page, count) = (0, 200);
    for _ in 0..count {
        page = (page * 1021 + 331) % (4 * LARGE_PAGE_FRAMES);
        store(&setup, &mut space, START + 16 * BLOCK + page * PAGE, 1);
    }
    assert_eq!(large_pages(&setup, &space), 4 * LARGE_PAGE_FRAMES);
    space.clear();
    assert_eq!((setup.used(), setup.machine.mappings(space.environment())), (0, vec![]));
}

#[test]
fn advice_counts_and_scarce_memory_has_none() {
    let setup = Setup::new();
    let mut space = setup.space();
    map(&mut space, START, 4 * BLOCK);
    space.advise(START, 2 * BLOCK, Advice::Large).unwrap();
    store(&setup, &mut space, START + BLOCK + 77 * PAGE, 9);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES);
    assert_eq!(load(&setup, &mut space, START + BLOCK + 78 * PAGE), 0, "zeros");
    space.advise(START, 4 * BLOCK, Advice::NoLarge).unwrap();
    walk(&setup, &mut space, START + 2 * BLOCK..START + 4 * BLOCK);
    walk(&setup, &mut space, START..START + BLOCK);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES);

    let small = Setup::with_frames(4 * LARGE_PAGE_FRAMES);
    let mut space = small.space();
    map(&mut space, START, 3 * BLOCK);
    space.advise(START, 3 * BLOCK, Advice::Large).unwrap();
    walk(&small, &mut space, START..START + 3 * BLOCK);
    assert!(large_pages(&small, &space) <= 2 * LARGE_PAGE_FRAMES);
    assert_eq!(space.totals().resident_anonymous, 3 * LARGE_PAGE_FRAMES);
}

#[test]
fn a_kernel_that_refuses_leaves_small_pages_or_none() {
    let setup = Setup::new();
    let mut space = setup.space();
    map(&mut space, START, 4 * BLOCK);
    space.advise(START, 4 * BLOCK, Advice::Large).unwrap();
    setup.machine.refuse_binds_after(Some(0));
    assert_eq!(space.handle_fault(START, Access::Write, Wait::Allowed), FaultOutcome::OutOfMemory);
    assert_eq!(large_pages(&setup, &space), 0);
    setup.machine.refuse_binds_after(None);
    walk(&setup, &mut space, START..START + 2 * BLOCK);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES);
    // A split whose small pages are refused.
    setup.machine.refuse_binds_after(Some(0));
    let _ = space.protect(START + BLOCK, PAGE, Protection::READ, ProtectReach::Range);
    setup.machine.refuse_binds_after(None);
    for page in [0, 1, LARGE_PAGE_FRAMES - 1] {
        assert_eq!(load(&setup, &mut space, START + BLOCK + page * PAGE), (((START + BLOCK) >> 12) + page) as u8);
    }
    space.clear();
    assert_eq!((setup.used(), setup.machine.mappings(space.environment())), (0, vec![]));
}

#[test]
fn a_fork_keeps_blocks_and_gives_them_back() {
    let setup = Setup::new();
    let mut space = setup.space();
    map(&mut space, START, 2 * BLOCK);
    space.advise(START, 2 * BLOCK, Advice::Large).unwrap();
    walk(&setup, &mut space, START..START + 2 * BLOCK);
    let (_, entries) = setup.machine.bind_counts();
    let mut child = space.clone_cow(CapSlot(70)).unwrap();
    assert_eq!(setup.machine.bind_counts().1 - entries, 2, "an entry for each block");
    assert_eq!(large_pages(&setup, &space), 2 * LARGE_PAGE_FRAMES);
    assert!(!setup.machine.allows(space.environment(), START, FakeAccess::Store));
    store(&setup, &mut child, START + 5 * PAGE, 250);
    store(&setup, &mut space, START + BLOCK + PAGE, 251);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES, "one is split for a copy");
    assert_eq!(load(&setup, &mut space, START + 5 * PAGE), ((START >> 12) + 5) as u8);
    assert_eq!(load(&setup, &mut child, START + BLOCK + PAGE), (((START + BLOCK) >> 12) + 1) as u8);
    child.clear();
    drop(child);
    store(&setup, &mut space, START + 9 * PAGE, 252);
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES);
    assert!(setup.machine.allows(space.environment(), START + 100 * PAGE, FakeAccess::Store), "all of it again");
    assert_eq!(setup.used(), 2 * LARGE_PAGE_FRAMES);
}

#[test]
fn frames_that_are_taken_by_force_unmap_their_block_only() {
    let setup = Setup::new();
    let mut space = setup.space();
    map(&mut space, START, 2 * BLOCK);
    space.advise(START, 2 * BLOCK, Advice::Large).unwrap();
    walk(&setup, &mut space, START..START + 2 * BLOCK);
    let (frame, _) = space.frame_at(START).unwrap();
    setup.machine.take_by_force(setup.pool.slot_of(frame), 8);
    let taken = setup.pool.forget_taken();
    assert_eq!(taken.len(), 8);
    assert!(space.forget_taken(&taken));
    assert_eq!(large_pages(&setup, &space), LARGE_PAGE_FRAMES);
    assert_eq!(load(&setup, &mut space, START), (START >> 12) as u8, "the others are still there");
}

#[derive(Clone, Debug)]
enum Op {
    Walk { block: u64 },
    Store { page: u64, value: u8 },
    Unmap { page: u64, count: u64 },
    Map { page: u64, count: u64 },
    Protect { page: u64, count: u64, protection: u8 },
    DontNeed { page: u64, count: u64 },
    Move { page: u64, count: u64, to: u64 },
    Fork,
    Switch,
    Exit,
}

const BLOCKS: u64 = 4;

fn operations() -> impl Strategy<Value = Vec<Op>> {
    // Whole blocks as often as any part.
    let edge = || prop_oneof![(0..BLOCKS).prop_map(|block| block * LARGE_PAGE_FRAMES), 0..BLOCKS * LARGE_PAGE_FRAMES,];
    let count = || prop_oneof![Just(1_u64), Just(LARGE_PAGE_FRAMES), Just(2 * LARGE_PAGE_FRAMES), 1..1400_u64];
    let operation = prop_oneof![
        4 => (0..BLOCKS).prop_map(|block| Op::Walk { block }),
        6 => (edge(), any::<u8>()).prop_map(|(page, value)| Op::Store { page, value }),
        2 => (edge(), count()).prop_map(|(page, count)| Op::Unmap { page, count }),
        3 => (edge(), count()).prop_map(|(page, count)| Op::Map { page, count }),
        4 => (edge(), count(), 0..4_u8).prop_map(|(page, count, protection)| Op::Protect { page, count, protection }),
        1 => (edge(), count()).prop_map(|(page, count)| Op::DontNeed { page, count }),
        1 => (edge(), count(), edge()).prop_map(|(page, count, to)| Op::Move { page, count, to }),
        3 => Just(Op::Fork),
        2 => Just(Op::Switch),
        2 => Just(Op::Exit),
    ];
    prop::collection::vec(operation, 1..30)
}

/// What is at a page: its rights, and its byte.
type Model = BTreeMap<u64, (Protection, u8)>;

fn apply(setup: &Setup, spaces: &mut Vec<(AddressSpace, Model)>, next: &mut u32, operation: &Op) {
    let space_count = spaces.len();
    let (space, model) = &mut spaces[0];
    let at = |page: u64| START + page * PAGE;
    let end = BLOCKS * LARGE_PAGE_FRAMES;
    match *operation {
        Op::Walk { block } => {
            for page in block * LARGE_PAGE_FRAMES..(block + 1) * LARGE_PAGE_FRAMES {
                if let Some(entry) = model.get_mut(&page).filter(|entry| entry.0.contains(Protection::WRITE)) {
                    entry.1 = page as u8;
                    store(setup, space, at(page), page as u8);
                }
            }
        }
        Op::Store { page, value } => {
            if let Some(entry) = model.get_mut(&page).filter(|entry| entry.0.contains(Protection::WRITE)) {
                entry.1 = value;
                store(setup, space, at(page), value);
            }
        }
        Op::Unmap { page, count } => {
            space.unmap(at(page), count * PAGE).expect("nothing wrong with it");
            model.retain(|other, _| !(page..page + count).contains(other));
        }
        Op::Map { page, count } => {
            let count = count.min(end - page);
            map(space, at(page), count * PAGE);
            space.advise(at(page), count * PAGE, Advice::Large).expect("it was just mapped");
            model.extend((page..page + count).map(|page| (page, (BOTH, 0))));
        }
        Op::Protect { page, count, protection } => {
            let protection = Protection::from_bits_truncate(protection);
            let reached = (page..page + count).take_while(|page| model.contains_key(page)).count() as u64;
            let answer = space.protect(at(page), count * PAGE, protection, ProtectReach::Range);
            assert_eq!(answer.is_ok(), reached == count);
            model.range_mut(page..page + reached).for_each(|(_, entry)| entry.0 = protection);
        }
        Op::DontNeed { page, count } => {
            let _ = space.advise(at(page), count * PAGE, Advice::DontNeed);
            model.range_mut(page..page + count).for_each(|(_, entry)| entry.1 = 0);
        }
        Op::Move { page, count, to } => move_pages(space, model, (page, count, to)),
        Op::Fork if space_count < 3 => {
            *next += 1;
            let child = space.clone_cow(CapSlot(*next)).expect("memory");
            let model = model.clone();
            spaces.push((child, model));
        }
        Op::Fork => {}
        Op::Switch => spaces.rotate_left(1),
        Op::Exit if spaces.len() > 1 => drop(spaces.remove(0)),
        Op::Exit => {}
    }
}

fn move_pages(space: &mut AddressSpace, model: &mut Model, (page, count, to): (u64, u64, u64)) {
    let at = |page: u64| START + page * PAGE;
    let end = BLOCKS * LARGE_PAGE_FRAMES;
    let length = count * PAGE;
    let request = RemapRequest {
        address: at(page),
        old_length: length,
        new_length: length,
        movement: Movement::To(at(to)),
        keeps_old: false,
    };
    let is_whole = (page..page + count).all(|page| model.contains_key(&page));
    let overlaps = page + count > to && to + count > page;
    // Areas of several rights are several: such a move is refused, after what lay at its end went.
    let rights = |page| model.get(&page).map(|entry| entry.0);
    let is_one = (page..page + count).all(|other| rights(other) == rights(page));
    if !is_whole || overlaps || !is_one || to + count > end {
        return;
    }
    if space.remap(request).is_ok() {
        let moved: Vec<_> = (page..page + count).filter_map(|page| model.remove(&page)).collect();
        model.extend((to..).zip(moved));
    } else {
        model.retain(|other, _| !(to..to + count).contains(other));
    }
}

fn check(setup: &Setup, spaces: &[(AddressSpace, Model)]) {
    for (space, model) in spaces {
        large_pages(setup, space);
        for (address, mapping) in setup.machine.mappings(space.environment()) {
            let page = (address - START) / PAGE;
            let (protection, byte) = *model.get(&page).unwrap_or_else(|| panic!("{page} still mapped"));
            assert!(!protection.is_empty(), "{page} without rights");
            assert!(!mapping.flags.contains(BindFlags::WRITE) || protection.contains(Protection::WRITE), "{page}");
            assert_eq!(setup.machine.load(space.environment(), address), Some(byte), "{page}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn large_pages_behave_as_their_pages_do(operations in operations()) {
        let setup = Setup::with_frames(64 * 1024);
        let mut space = setup.space();
        map(&mut space, START, BLOCKS * BLOCK);
        space.advise(START, BLOCKS * BLOCK, Advice::Large).unwrap();
        let model = (0..BLOCKS * LARGE_PAGE_FRAMES).map(|page| (page, (BOTH, 0))).collect();
        let (mut spaces, mut next) = (vec![(space, model)], 70);
        for operation in &operations {
            apply(&setup, &mut spaces, &mut next, operation);
            check(&setup, &spaces);
        }
        for (space, model) in &mut spaces {
            for (&page, &(protection, byte)) in model.iter().filter(|(page, _)| *page % 97 == 0) {
                if !protection.is_empty() {
                    prop_assert_eq!(load(&setup, space, START + page * PAGE), byte);
                }
            }
        }
        spaces.clear();
        let zero_frame = u64::from(setup.used() > 0);
        assert!(setup.used() == zero_frame && zero_frame <= 1);
    }
}
