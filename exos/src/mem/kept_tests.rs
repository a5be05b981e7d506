//! Spaces that pass from one process to the next with what they map: only what the next one would map itself.

use std::sync::Arc;

use aegis_abi::CapSlot;

use super::kept::OWNED_COUNT_MAX;
use super::test_support::{BASE, BundleFile, ENVIRONMENT, PAGE, Setup, load, store};
use super::{Access, AddressSpace, FaultOutcome, FileIdentity, MapRequest, Placement, Protection, SpaceLimits};
use crate::mem::Wait;

const A: u64 = 0x10_0000_0000;
const TEXT_PAGES: u64 = 100;
const DATA: u64 = A + TEXT_PAGES * PAGE;
const PROGRAM: FileIdentity = FileIdentity { device: 8, inode: 1 };
const OTHER: FileIdentity = FileIdentity { device: 8, inode: 77 };
const TEXT: Protection = Protection::READ.union(Protection::EXECUTE);

fn make(setup: &Setup, program: FileIdentity) -> AddressSpace {
    AddressSpace::make(&setup.shared, BASE, SpaceLimits::default(), Some(program)).expect("memory")
}

/// Text of a file at `A`, with these rights and from this page of the file on, and data behind it.
fn load_program(space: &mut AddressSpace, file: &Arc<BundleFile>, protection: Protection, first_page: u64) {
    let text = MapRequest::file(Placement::Fixed(A), TEXT_PAGES * PAGE, protection, file.clone(), first_page * PAGE);
    space.map(text).expect("free");
    let rights = Protection::READ | Protection::WRITE;
    space.map(MapRequest::anonymous(Placement::Fixed(DATA), 10 * PAGE, rights)).expect("free");
    space.keep_for_start(PROGRAM, [A..DATA + 64 * PAGE, 0..0]);
    space.adopt_start();
    space.flush().expect("room for tables");
}

/// As the end of a process does.
fn end(mut space: AddressSpace) {
    assert!(space.unmap_all() && space.keep());
    space.abandon();
}

/// What the page table maps is what is known of the space, and nothing else.
fn check(setup: &Setup, space: &AddressSpace) -> usize {
    let mappings = setup.machine.mappings(space.environment());
    for (address, mapping) in &mappings {
        let (frame, is_writable) = space.frame_at(*address).expect("mapped and not known");
        let area = space.area_at(*address).expect("mapped outside of areas");
        assert_eq!(frame, mapping.frame, "{address:#x}");
        assert_eq!(is_writable, setup.machine.allows(space.environment(), *address, crate::fake::FakeAccess::Store));
        let fetches = setup.machine.allows(space.environment(), *address, crate::fake::FakeAccess::Fetch);
        assert_eq!(fetches, area.protection().contains(Protection::EXECUTE), "{address:#x}");
    }
    mappings.len()
}

fn fetch(space: &mut AddressSpace, address: u64) {
    assert!(matches!(space.handle_fault(address, Access::Execute, Wait::Allowed), FaultOutcome::Resolved { .. }));
}

#[test]
fn the_next_run_finds_the_text_mapped_and_nothing_else() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let mut first = make(&setup, PROGRAM);
    load_program(&mut first, &file, TEXT, 0);
    [0, 40, 99].into_iter().for_each(|page| fetch(&mut first, A + page * PAGE));
    store(&setup, &mut first, DATA, 1);
    let (slot, before) = (first.environment(), check(&setup, &first));
    end(first);
    let left = setup.machine.mappings(slot).len();
    assert!(left > 0 && left < before && setup.used() == 0, "{left} of {before}: the data went, with its frames");
    // Another program gets another space, or one of which nothing is left.
    let other = make(&setup, OTHER);
    assert_eq!(setup.machine.mappings(other.environment()).len(), 0);
    assert_ne!(other.environment(), slot);
    let mut second = make(&setup, PROGRAM);
    assert_eq!(second.environment(), slot);
    let (_, entries) = setup.machine.bind_counts();
    load_program(&mut second, &file, TEXT, 0);
    assert_eq!(setup.machine.bind_counts().1, entries, "nothing was mapped anew");
    assert_eq!(check(&setup, &second), left);
    assert_eq!(second.totals().resident_file as usize, left);
    assert_eq!(load(&setup, &mut second, A + 40 * PAGE), 41);
    assert_eq!(load(&setup, &mut second, DATA), 0);
    end(second);
    drop(other);
    setup.shared.end_kept_spaces();
    assert_eq!((setup.shared.kept_space_count(), setup.machine.mappings(slot).len()), (0, 0));
}

#[test]
fn what_differs_in_the_next_run_is_unmapped_before_it_can_be_reached() {
    for (protection, first_page, pages) in [(Protection::READ, 0, 0), (TEXT, 16, 0), (TEXT, 0, 48)] {
        let setup = Setup::new();
        let file = setup.bundle_file(200 * 4096, 1);
        let mut first = make(&setup, PROGRAM);
        load_program(&mut first, &file, TEXT, 0);
        (0..TEXT_PAGES).step_by(16).for_each(|page| fetch(&mut first, A + page * PAGE));
        end(first);
        let mut second = make(&setup, PROGRAM);
        load_program(&mut second, &file, protection, first_page);
        let count = check(&setup, &second);
        assert_eq!(count > 0, pages > 0, "{count} pages of another place or other rights");
        assert_eq!(load(&setup, &mut second, A + 50 * PAGE), (51 + first_page) as u8);
        check(&setup, &second);
    }
}

#[test]
fn a_run_that_does_not_come_to_its_areas_leaves_nothing_mapped() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let mut first = make(&setup, PROGRAM);
    load_program(&mut first, &file, TEXT, 0);
    fetch(&mut first, A);
    end(first);
    let second = make(&setup, PROGRAM);
    let slot = second.environment();
    assert!(!setup.machine.mappings(slot).is_empty());
    drop(second);
    assert!(setup.machine.mappings(slot).is_empty());
}

#[test]
fn the_next_child_has_what_its_parent_still_has() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let mut parent = setup.space_of(ENVIRONMENT);
    load_program(&mut parent, &file, TEXT, 0);
    (0..TEXT_PAGES).step_by(16).for_each(|page| fetch(&mut parent, A + page * PAGE));
    store(&setup, &mut parent, DATA, 7);
    let mut child = parent.fork().expect("memory");
    fetch(&mut child, A + 3 * PAGE);
    fetch(&mut child, A + 70 * PAGE);
    assert_eq!(load(&setup, &mut child, DATA), 7);
    let slot = child.environment();
    end(child);
    let left = setup.machine.mappings(slot).len();
    assert!(left >= 32, "{left}");
    // The parent's page is its own again.
    assert_eq!(load(&setup, &mut parent, DATA), 7);
    let before = parent.fault_counts().copied;
    store(&setup, &mut parent, DATA, 8);
    assert_eq!(parent.fault_counts().copied, before);
    let mut child = parent.fork().expect("memory");
    assert_eq!(child.environment(), slot);
    assert!(check(&setup, &child) >= left);
    assert_eq!(load(&setup, &mut child, A + 3 * PAGE), 4);
    end(child);
    // Some of the text goes, and some becomes the parent's own.
    parent.unmap(A + 64 * PAGE, 16 * PAGE).expect("mapped");
    let rights = Protection::READ | Protection::WRITE;
    parent.protect(A, 8 * PAGE, rights, super::ProtectReach::Range).expect("mapped");
    store(&setup, &mut parent, A + 3 * PAGE, 99);
    let mut child = parent.fork().expect("memory");
    assert_eq!(child.environment(), slot);
    check(&setup, &child);
    assert_eq!(load(&setup, &mut child, A + 3 * PAGE), 99);
    assert!(!setup.machine.allows(slot, A + 70 * PAGE, crate::fake::FakeAccess::Load));
    drop((child, parent));
    setup.shared.end_kept_spaces();
    assert_eq!(setup.used(), 0);
}

#[test]
fn runs_that_do_the_same_leave_the_same_and_what_one_changes_goes_with_it() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let run = |pages: &[u64], poked: Option<u64>| {
        let mut space = make(&setup, PROGRAM);
        load_program(&mut space, &file, TEXT, 0);
        for page in pages {
            fetch(&mut space, A + page * PAGE);
            assert_eq!(load(&setup, &mut space, A + page * PAGE), *page as u8 + 1);
        }
        if let Some(page) = poked {
            let rights = Protection::READ | Protection::WRITE;
            space.protect(A + page * PAGE, PAGE, rights, super::ProtectReach::Range).expect("mapped");
            store(&setup, &mut space, A + page * PAGE, 222);
            space.protect(A + page * PAGE, PAGE, TEXT, super::ProtectReach::Range).expect("mapped");
            fetch(&mut space, A + page * PAGE);
        }
        store(&setup, &mut space, DATA, 1);
        // As a loader does with what it has relocated: read-only when it ends, writable when the next one begins.
        let rights = Protection::READ | Protection::WRITE;
        let place = Placement::Fixed(DATA + 16 * PAGE);
        space.map(MapRequest::file(place, 16 * PAGE, rights, file.clone(), 150 * PAGE)).expect("free");
        assert_eq!(load(&setup, &mut space, DATA + 17 * PAGE), 152);
        space.protect(DATA + 16 * PAGE, 16 * PAGE, Protection::READ, super::ProtectReach::Range).expect("mapped");
        check(&setup, &space);
        let slot = space.environment();
        end(space);
        assert_eq!(setup.used(), 0, "private pages stay");
        setup.machine.mappings(slot).iter().map(|(address, _)| *address).collect::<Vec<u64>>()
    };
    let left: Vec<usize> = (0..5).map(|_| run(&[0, 40], None).len()).collect();
    // From the third on, they leave what all of them take over.
    assert!(left[4] > 0 && left[4] < left[0] && left[2..].iter().all(|count| *count == left[4]), "{left:?}");
    // What a run stores to its text goes with it, whether others left all as it was before or not.
    for _ in 0..3 {
        let poked = run(&[0, 40], Some(40));
        assert!(!poked.contains(&(A + 40 * PAGE)) && poked.contains(&A));
        assert!(run(&[0], None).contains(&A));
        assert!((0..40).any(|_| run(&[0, 40], None).contains(&(A + 40 * PAGE))));
    }
    // What they have begun to touch is left after a while.
    assert!((0..40).any(|_| run(&[0, 40, 99], None).contains(&(A + 99 * PAGE))));
    setup.shared.end_kept_spaces();
    assert_eq!(setup.shared.kept_space_count(), 0);
}

#[test]
fn nothing_is_taken_over_that_was_left_before_frames_were_taken() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let begin = || {
        let mut space = make(&setup, PROGRAM);
        load_program(&mut space, &file, TEXT, 0);
        space
    };
    for _ in 0..2 {
        let mut space = begin();
        fetch(&mut space, A);
        end(space);
    }
    let frame = setup.pool.allocate_ref().expect("memory");
    let slot = setup.pool.slot_of(frame.frame());
    let space = begin();
    assert!(check(&setup, &space) > 0);
    end(space);
    // As it is while a space is with neither a process nor those that are kept.
    setup.machine.take_by_force(slot, 512);
    assert!(setup.pool.forget_taken().contains(&frame.frame()));
    let mut space = begin();
    assert_eq!(check(&setup, &space), 0);
    fetch(&mut space, A);
    assert_eq!(load(&setup, &mut space, A), 1);
    end(space);
}

#[test]
fn few_spaces_are_kept_and_the_oldest_go_first() {
    let setup = Setup::new();
    let file = setup.bundle_file(200 * 4096, 1);
    let spaces: Vec<AddressSpace> = (0..40).map(|_| make(&setup, PROGRAM)).collect();
    let slots: Vec<CapSlot> = spaces.iter().map(AddressSpace::environment).collect();
    for mut space in spaces {
        load_program(&mut space, &file, TEXT, 0);
        fetch(&mut space, A);
        end(space);
    }
    let kept: Vec<bool> = slots.iter().map(|slot| !setup.machine.mappings(*slot).is_empty()).collect();
    let count = setup.shared.kept_space_count();
    assert!(count < 20 && kept[..40 - count].iter().all(|kept| !kept) && kept[40 - count..].iter().all(|kept| *kept));
    // A process that runs something else takes an old one, and has nothing of it.
    let other = make(&setup, OTHER);
    assert_eq!(other.environment(), slots[40 - count]);
    assert!(setup.machine.mappings(other.environment()).is_empty());
}

#[test]
fn a_child_leaves_few_of_the_pages_that_were_its_parents() {
    const PAGES: u64 = OWNED_COUNT_MAX as u64 + 72;
    let setup = Setup::new();
    let file = setup.bundle_file(PAGES as usize * 4096, 1);
    let mut parent = setup.space_of(ENVIRONMENT);
    parent.map(MapRequest::file(Placement::Fixed(A), PAGES * PAGE, TEXT, file, 0)).expect("free");
    let rights = Protection::READ | Protection::WRITE;
    parent.protect(A, PAGES * PAGE, rights, super::ProtectReach::Range).expect("mapped");
    (0..PAGES).for_each(|page| store(&setup, &mut parent, A + page * PAGE, 200));
    parent.protect(A, PAGES * PAGE, TEXT, super::ProtectReach::Range).expect("mapped");
    let mut child = parent.fork().expect("memory");
    (0..PAGES).for_each(|page| fetch(&mut child, A + page * PAGE));
    // What the parent changes has it copy what both knew of the pages around, so that these are both's.
    for page in (0..PAGES).step_by(64) {
        parent.protect(A + page * PAGE, PAGE, rights, super::ProtectReach::Range).expect("mapped");
        store(&setup, &mut parent, A + page * PAGE, 201);
    }
    let slot = child.environment();
    end(child);
    let left = setup.machine.mappings(slot).len();
    assert!((1..=OWNED_COUNT_MAX).contains(&left), "{left}");
    drop(parent);
    assert!(setup.used() <= OWNED_COUNT_MAX as u64, "{}", setup.used());
    setup.shared.end_kept_spaces();
    assert_eq!(setup.used(), 0);
}
