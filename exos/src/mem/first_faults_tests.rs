//! Which faults become known, what is mapped with them, and which are foreseen where nothing was mapped yet.

use alloc::sync::Arc;

use super::{
    Ahead, Anchor, Fault, FirstFaults, LOOK_COUNT, PROGRAM_COUNT_MAX, START_FAULT_COUNT, StartFaults, StartPlaces,
    TOUCHED_PAGE_COUNT_MAX, Touched, TouchedPages,
};
use crate::mem::area::Access;
use crate::mem::source::{FileIdentity, PageIntent, PageSource};
use crate::mem::test_support::{CachedFile, PAGE, Setup, load, store};
use crate::mem::{AddressSpace, MapRequest, Placement, Protection};

fn fault(page: u64, access: Access, run: u64) -> Fault {
    Fault::new(Anchor::Image, (page << 12) + page % 7, access, run, false)
}

#[test]
fn two_runs_one_after_the_other_make_a_fault_known_and_others_are_forgotten() {
    let mut faults = FirstFaults { count_max: START_FAULT_COUNT, ..FirstFaults::default() };
    let runs: [&[(u64, Access)]; 4] = [
        &[(1, Access::Execute), (2, Access::Read), (3, Access::Read)],
        &[(1, Access::Execute), (2, Access::Write), (4, Access::Read)],
        &[(3, Access::Read)],
        &[(3, Access::Write), (4, Access::Read)],
    ];
    for places in runs {
        let run = faults.begin();
        places.iter().for_each(|(page, access)| faults.note(fault(*page, *access, run)));
    }
    let known = faults.faults.iter().filter(|fault| fault.is_known);
    let known: alloc::vec::Vec<_> = known.map(|fault| (fault.distance() >> 12, fault.access)).collect();
    assert_eq!(known, [(1, Access::Execute), (2, Access::Write), (3, Access::Write)]);
    let run = faults.begin();
    (0..1000).for_each(|page| faults.note(fault(page, Access::Read, run)));
    assert_eq!(faults.faults.len(), START_FAULT_COUNT);
}

#[test]
fn what_was_touched_is_mapped_with_what_lies_between() {
    let mut pages = TouchedPages::default();
    [0, 3, 10, 63, 64, 70, 130, TOUCHED_PAGE_COUNT_MAX].into_iter().for_each(|page| pages.add(page));
    assert_eq!(pages.0.len(), 3, "what is far is not noted");
    assert_eq!(pages.from(60) & 0xffff, 1 << 3 | 1 << 4 | 1 << 10);
    assert_eq!(pages.from(128), 1 << 2);
    let mut few = TouchedPages::default();
    few.add(0);
    let touched = Touched { parts: [pages, few, TouchedPages::default()].into(), look_count: LOOK_COUNT };
    let loaded = [0x40_0000..0x50_0000, 0x7000_0000..0x7001_0000];
    let ahead =
        Ahead { touched: Arc::new(touched), loaded, mappings: core::iter::once(0x8000_0000..0x8010_0000).collect() };
    assert_eq!(ahead.of(&(0x400..0x410), 0x405) & 0xffff, 0b100_0011_1111, "0 and 3, 5, 10, and what lies between");
    assert_eq!(ahead.of(&(0x3fe..0x410), 0x400) & 0xff, 0b0011_1100);
    assert_eq!(ahead.of(&(0x7_0000..0x7_0010), 0x7_0008), 1 << 8 | 1, "little was touched there");
    assert_eq!(ahead.of(&(0x8_0000..0x8_0040), 0x8_0015), 0xffff << 16, "nobody has looked: as a fault has them");
    assert_eq!(ahead.of(&(0x8_0003..0x8_0040), 0x8_0008), 0x1fff);
    assert_eq!(ahead.of(&(0x1000..0x1010), 0x1008), u64::MAX, "other files have all neighbours");
    assert_eq!(super::bridged(0b1_0001), 0b1_0001);
}

#[test]
fn programs_that_were_not_run_for_long_are_forgotten() {
    let all = StartFaults::default();
    let program = |inode| FileIdentity { device: 1, inode };
    let first = all.of(program(0));
    for inode in 1..PROGRAM_COUNT_MAX as u64 {
        all.of(program(inode));
    }
    assert!(Arc::ptr_eq(&first, &all.of(program(0))), "used last now");
    let second = all.of(program(1));
    all.of(program(1000));
    all.of(program(1001));
    assert!(Arc::ptr_eq(&first, &all.of(program(0))) && Arc::ptr_eq(&second, &all.of(program(1))));
    assert_eq!(all.programs.lock().len(), PROGRAM_COUNT_MAX);
    assert!(!all.programs.lock().iter().any(|(other, _)| [2, 3].contains(&other.inode)));
}

const PROGRAM: FileIdentity = FileIdentity { device: 1, inode: 77 };
const LIBRARY_PAGES: u64 = 40;

/// A run that maps a library, then its data and zeros over it, at `base`: how many faults it had.
fn run(setup: &Setup, library: &Arc<dyn PageSource>, base: u64, zero_pages: u64) -> u64 {
    let mut space = setup.space();
    space.start_as_before(PROGRAM, StartPlaces::default());
    let part = |space: &mut AddressSpace, first: u64, count: u64, rights| {
        let place = Placement::Fixed(base + first * PAGE);
        let request = MapRequest::file(place, count * PAGE, rights, library.clone(), first * PAGE);
        space.map(request).expect("free");
    };
    part(&mut space, 0, LIBRARY_PAGES, Protection::READ);
    part(&mut space, 32, 8, Protection::READ | Protection::WRITE);
    let zeros = Placement::Fixed(base + LIBRARY_PAGES * PAGE);
    let rights = Protection::READ | Protection::WRITE;
    space.map(MapRequest::anonymous(zeros, zero_pages * PAGE, rights)).expect("free");
    assert_eq!(load(setup, &mut space, base + 2 * PAGE), 3);
    assert_eq!(load(setup, &mut space, base + 20 * PAGE), 21);
    store(setup, &mut space, base + 33 * PAGE, 200);
    assert_eq!(load(setup, &mut space, base + 34 * PAGE), 35);
    store(setup, &mut space, base + LIBRARY_PAGES * PAGE, 7);
    assert_eq!(load(setup, &mut space, base + 33 * PAGE), 200);
    assert_eq!(load(setup, &mut space, base + (LIBRARY_PAGES + 1) * PAGE), 0);
    space.note_touched(|_| true);
    space.fault_counts().resolved
}

#[test]
fn what_two_runs_did_in_a_library_is_there_when_the_third_touches_it() {
    let setup = Setup::new();
    let library: Arc<dyn PageSource> = setup.bundle_file(LIBRARY_PAGES as usize * 4096, 1);
    let counts: Vec<u64> = (0..4).map(|number| run(&setup, &library, 0x10_0000_0000 + (number << 30), 4)).collect();
    assert!(counts[0] >= 4 && counts[1] == counts[0], "{counts:?}");
    assert_eq!(counts[2..], [0, 0], "wherever it lies: {counts:?}");
    // Another mapping in the last place: what came before it stays known.
    let other = run(&setup, &library, 0x20_0000_0000, 5);
    assert!((1..counts[0]).contains(&other), "{other} of {counts:?}");
}

#[test]
fn another_library_of_the_same_length_shows_its_own_pages() {
    let setup = Setup::new();
    let library: Arc<dyn PageSource> = setup.bundle_file(LIBRARY_PAGES as usize * 4096, 1);
    (0..3).for_each(|number| {
        run(&setup, &library, 0x10_0000_0000 + (number << 30), 4);
    });
    // Files that do not say where they lie are taken for the same: what was noted is a hint, whichever file it is
    // about.
    let other = CachedFile::new(&setup.pool, LIBRARY_PAGES);
    (0..LIBRARY_PAGES).for_each(|index| assert!(other.page(index, PageIntent::Read).is_ok()));
    let before = setup.used();
    let mut space = setup.space();
    space.start_as_before(PROGRAM, StartPlaces::default());
    let base = 0x30_0000_0000;
    let request = MapRequest::file(Placement::Fixed(base), LIBRARY_PAGES * PAGE, Protection::READ, other.clone(), 0);
    space.map(request).expect("free");
    assert_eq!(load(&setup, &mut space, base + 7 * PAGE), 8);
    drop(space);
    assert_eq!(setup.used(), before, "every frame came back");
}
