//! What faults bring: how many pages, from where, with which rights; and that every frame comes back.

use aegis_abi::CapSlot;
use std::sync::Arc;

use super::test_support::{BASE, CachedFile, ENVIRONMENT, PAGE, Setup, load, store};
use super::{
    Access, AddressSpace, Advice, FaultOutcome, FilePage, MapBacking, MapRequest, PageIntent, PageSource, Placement,
    ProtectReach, Protection,
};
use crate::error::Errno;
use crate::fake::{FAKE_BUNDLE_FRAME, FakeAccess};
use crate::mem::Wait;
use crate::platform::LogLevel;

const A: u64 = 0x10_0000_0000;
const CHILD: CapSlot = CapSlot(51);
const CHILD_OF_CHILD: CapSlot = CapSlot(52);

fn read_write() -> Protection {
    Protection::READ | Protection::WRITE
}

fn anonymous(pages: u64) -> MapRequest {
    MapRequest::anonymous(Placement::Fixed(A), pages * PAGE, read_write())
}

fn shared_file(source: Arc<dyn PageSource>, pages: u64) -> MapRequest {
    let backing = MapBacking::File { source, offset_bytes: 0, is_readable: true, is_writable: true };
    MapRequest { is_shared: true, backing, ..anonymous(pages) }
}

#[test]
fn a_walk_through_memory_takes_ever_larger_steps() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(1024)).expect("free");
    for page in 0..1024 {
        store(&setup, &mut space, A + page * PAGE, 1);
    }
    let counts = space.fault_counts();
    assert_eq!(counts.pages, 1024);
    assert!(counts.resolved <= 21, "{counts:?}");
    let (_, entries) = setup.machine.bind_counts();
    assert!(entries <= 24, "neighbouring frames join: {entries}");
}

#[test]
fn whole_pages_of_the_bundle_are_mapped_by_runs_around_what_is_known() {
    let setup = Setup::new();
    let source: Arc<dyn PageSource> = setup.bundle_file(70 * 4096 + 100, 1);
    let mut space = setup.space();
    space.map(MapRequest::file(Placement::Fixed(A), 71 * PAGE, read_write(), source.clone(), 0)).expect("free");
    store(&setup, &mut space, A + 5 * PAGE, 99);
    let (_, entries) = setup.machine.bind_counts();
    assert_eq!(load(&setup, &mut space, A + 9 * PAGE), 10);
    assert_eq!(space.fault_counts().pages, 16, "the block");
    let (_, after) = setup.machine.bind_counts();
    assert!(after - entries <= 2, "a run on either side of the copies: {}", after - entries);
    assert_eq!(load(&setup, &mut space, A + 5 * PAGE), 99);
    // A block across two leaves' border, and the end of the file: its last page is a copy with zeros behind.
    for page in 0..70 {
        let expected = if page == 5 { 99 } else { page as u8 + 1 };
        assert_eq!(load(&setup, &mut space, A + page * PAGE), expected, "{page}");
    }
    assert_eq!(load(&setup, &mut space, A + 70 * PAGE + 99), 0);
    assert_eq!(load(&setup, &mut space, A + 70 * PAGE + 100), 0, "foreign bytes follow in the bundle");
    assert_eq!(space.totals().resident_file + space.totals().resident_anonymous, 71);
    // What was mapped by a run is read-only: a store copies, and nobody else sees it.
    store(&setup, &mut space, A + 30 * PAGE, 77);
    let mut other = setup.space_of(CHILD);
    other.map(MapRequest::file(Placement::Fixed(A), 71 * PAGE, read_write(), source, 0)).expect("free");
    assert_eq!(load(&setup, &mut other, A + 30 * PAGE), 31);
    assert_eq!(load(&setup, &mut space, A + 30 * PAGE), 77);
    // A child that shares the leaf gets a copy of it when it maps more.
    let mut child = space.clone_cow(CHILD_OF_CHILD).expect("memory");
    assert!(child.unmap(A + 20 * PAGE, PAGE).is_ok() && child.unmap_all());
    assert_eq!(load(&setup, &mut child, A + 30 * PAGE), 77);
    assert_eq!(load(&setup, &mut space, A + 20 * PAGE), 21);
    drop((space, other, child));
    assert_eq!(setup.used(), 0, "every frame came back");
    for space in [ENVIRONMENT, CHILD, CHILD_OF_CHILD] {
        assert!(setup.machine.mappings(space).is_empty());
    }
}

#[test]
fn random_touches_take_single_pages() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(1024)).expect("free");
    for index in 0..100 {
        store(&setup, &mut space, A + (index * 379 % 1024) * PAGE, 1);
    }
    assert!(space.totals().resident_anonymous <= 105, "{:?}", space.totals());
}

#[test]
fn reading_untouched_memory_takes_no_frames() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(512)).expect("free");
    for page in 0..512 {
        assert_eq!(load(&setup, &mut space, A + page * PAGE), 0);
    }
    assert_eq!(setup.used(), 1, "the zero frame");
    assert_eq!(space.totals().resident_anonymous, 0);
    store(&setup, &mut space, A + 5 * PAGE, 1);
    assert_eq!(load(&setup, &mut space, A + 6 * PAGE), 0);
}

#[test]
fn bundle_pages_are_mapped_where_they_lie_and_around() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = setup.bundle_file(40 * 4096, 1);
    let rights = Protection::READ | Protection::EXECUTE;
    let request = MapRequest::file(Placement::Fixed(A), 40 * PAGE, rights, file, 0);
    space.map(request).expect("free");
    let outcome = space.handle_fault(A + 20 * PAGE, Access::Execute, Wait::Allowed);
    assert_eq!(outcome, FaultOutcome::Resolved { pages: 16 });
    let mapping = setup.machine.mapping(ENVIRONMENT, A + 31 * PAGE).expect("mapped around");
    assert_eq!(mapping.frame.0, FAKE_BUNDLE_FRAME + 31);
    assert_eq!(setup.machine.bind_counts(), (1, 1), "one call, one entry");
    assert_eq!(setup.used(), 0);
}

#[test]
fn what_follows_the_end_of_a_file_reads_as_zero_and_then_not_at_all() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = setup.bundle_file(2 * 4096 + 10, 1);
    for is_shared in [false, true] {
        let mut request = MapRequest::file(Placement::Fixed(A), 5 * PAGE, Protection::READ, file.clone(), 0);
        request.is_shared = is_shared;
        space.map(request).expect("free");
        let last = A + 2 * PAGE;
        assert_eq!(load(&setup, &mut space, last), 3);
        assert_eq!(setup.machine.load(ENVIRONMENT, last + 10), Some(0));
        assert_eq!(setup.machine.load(ENVIRONMENT, last + 4095), Some(0));
        assert_eq!(space.handle_fault(last + PAGE, Access::Read, Wait::Allowed), FaultOutcome::Bus);
    }
}

#[test]
fn a_store_to_a_private_file_page_copies_it() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = setup.bundle_file(4 * 4096, 1);
    let request = MapRequest::file(Placement::Fixed(A), 4 * PAGE, read_write(), file, 0);
    space.map(request).expect("free");
    assert_eq!(load(&setup, &mut space, A), 1);
    store(&setup, &mut space, A + 1, 77);
    assert_eq!(load(&setup, &mut space, A), 1);
    assert_eq!(load(&setup, &mut space, A + 1), 77);
    space.advise(A, PAGE, Advice::DontNeed).expect("mapped");
    assert_eq!(load(&setup, &mut space, A + 1), 0, "the file's byte is back");
}

#[test]
fn a_walk_of_stores_copies_no_page_of_a_file_that_can_change_before_its_turn() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = CachedFile::new(&setup.pool, 16);
    let shared = space.map(shared_file(file.clone(), 16)).unwrap();
    for page in 0..16 {
        store(&setup, &mut space, shared + page * PAGE, 1);
    }
    let request = MapRequest::file(Placement::Hint(0), 16 * PAGE, read_write(), file, 0);
    let private = space.map(request).unwrap();
    // A streak: the window of the next faults grows.
    for page in 0..4 {
        store(&setup, &mut space, private + page * PAGE, 9);
    }
    for page in 4..16 {
        store(&setup, &mut space, shared + page * PAGE, 2);
        assert_eq!(load(&setup, &mut space, private + page * PAGE), 2, "page {page}");
    }
}

#[test]
fn who_reads_a_file_on_has_more_of_it_at_once_and_who_jumps_does_not() {
    const PAGES: u64 = 200;
    let setup = Setup::new();
    let mut space = setup.space();
    let file = CachedFile::new(&setup.pool, PAGES);
    for index in 0..PAGES {
        file.page(index, PageIntent::Read).expect("there is memory");
    }
    let faults_of = |space: &mut AddressSpace, pages: &mut dyn Iterator<Item = u64>| {
        let start = space.map(shared_file(file.clone(), PAGES)).expect("mapped");
        let before = space.fault_counts();
        for page in pages {
            assert_eq!(load(&setup, space, start + page * PAGE), page as u8 + 1);
        }
        let after = space.fault_counts();
        space.unmap(start, PAGES * PAGE).expect("is a range");
        (after.resolved - before.resolved, after.pages - before.pages)
    };
    // 16, the rest of that leaf, two leaves, and what is left.
    assert_eq!(faults_of(&mut space, &mut (0..PAGES)), (5, PAGES));
    assert_eq!(faults_of(&mut space, &mut (0..PAGES).rev()), (PAGES.div_ceil(16), PAGES));
    assert_eq!(faults_of(&mut space, &mut [100, 3, 180].into_iter()), (3, 16 + 16 + 16));
    assert_eq!(setup.used(), PAGES, "the file's own");
    drop(file);
    assert_eq!(setup.used(), 0);
}

#[test]
fn walks_through_mappings_that_were_joined_do_not_hinder_each_other() {
    let setup = Setup::new();
    let mut space = setup.space();
    let request = MapRequest::anonymous(Placement::Hint(0), 16 * PAGE, read_write());
    let walk_alone = {
        let start = space.map(request.clone()).expect("free");
        (0..16).for_each(|page| store(&setup, &mut space, start + page * PAGE, 1));
        space.unmap(start, 16 * PAGE).expect("is a range");
        space.fault_counts().resolved
    };
    assert_eq!(walk_alone, 4);
    space.note_threads(false);
    // As threads do it that each map, walk and unmap: the second mapping lies below the first, and is one area with it.
    for count in [2, 4, 8] {
        let before = space.fault_counts().resolved;
        let starts: Vec<u64> = (0..count).map(|_| space.map(request.clone()).expect("free")).collect();
        assert_eq!(space.areas().count(), 1);
        for page in 0..16 {
            for start in &starts {
                store(&setup, &mut space, start + page * PAGE, 1);
            }
        }
        // Fewer, where the end of one walk reaches the start of another.
        assert!(space.fault_counts().resolved - before <= count * walk_alone, "{count} walks");
        starts.iter().for_each(|start| space.unmap(*start, 16 * PAGE).expect("is a range"));
    }
    // Walks in the middle of one mapping find each other, too, and those that jump are none.
    let start = space.map(MapRequest { length: 1024 * PAGE, ..request }).expect("free");
    let before = space.fault_counts();
    for page in 0..16 {
        store(&setup, &mut space, start + (100 + page) * PAGE, 1);
        store(&setup, &mut space, start + (500 - page) * PAGE, 1);
    }
    let after = space.fault_counts();
    assert_eq!((after.resolved - before.resolved, after.pages - before.pages), (10, 62));
    for page in 0..32 {
        store(&setup, &mut space, start + (600 + page * 7) * PAGE, 1);
    }
    assert_eq!(space.fault_counts().pages - after.pages, 32);
}

#[test]
fn truncating_a_mapped_file_takes_its_pages() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = CachedFile::new(&setup.pool, 8);
    space.map(shared_file(file.clone(), 8)).expect("free");
    for page in 0..8 {
        store(&setup, &mut space, A + page * PAGE, 9);
    }
    file.truncate(3);
    let source: Arc<dyn PageSource> = file;
    space.drop_file_pages(source.identity(), &(3..u64::MAX), false);
    assert_eq!(load(&setup, &mut space, A + 2 * PAGE), 9);
    assert_eq!(space.handle_fault(A + 3 * PAGE, Access::Read, Wait::Allowed), FaultOutcome::Bus);
    assert_eq!(setup.used(), 3);
}

#[test]
fn a_forked_child_shares_until_someone_stores() {
    let setup = Setup::new();
    let mut parent = setup.space();
    parent.map(anonymous(64)).expect("free");
    for page in 0..64 {
        store(&setup, &mut parent, A + page * PAGE, 1);
    }
    let before = setup.used();
    let mut child = parent.clone_cow(CHILD).expect("memory");
    assert_eq!(setup.used(), before, "nothing is copied");
    assert_eq!(setup.machine.mappings(CHILD), vec![], "nothing is mapped");
    assert_eq!(load(&setup, &mut child, A), 1);
    assert_eq!(setup.machine.mappings(CHILD).len(), 64, "one fault maps the block");
    store(&setup, &mut child, A, 2);
    assert_eq!(load(&setup, &mut parent, A), 1);
    store(&setup, &mut parent, A + PAGE, 3);
    assert_eq!(load(&setup, &mut child, A + PAGE), 1);
    assert_eq!(setup.used(), before + 2);
    let copied = parent.fault_counts().copied;
    drop(child);
    assert_eq!(setup.used(), before);
    for page in 0..64 {
        store(&setup, &mut parent, A + page * PAGE, 4);
    }
    assert_eq!(parent.fault_counts().copied, copied, "a last user writes in place");
}

#[test]
fn a_forked_child_knows_the_pages_of_files_that_its_parent_knows() {
    let setup = Setup::new();
    let file = CachedFile::new(&setup.pool, 40);
    let mut parent = setup.space();
    let shared = parent.map(shared_file(file.clone(), 40)).expect("mapped");
    let request = MapRequest::file(Placement::Hint(0), 40 * PAGE, read_write(), file.clone(), 0);
    let private = parent.map(request).expect("mapped");
    store(&setup, &mut parent, shared, 50);
    store(&setup, &mut parent, private + PAGE, 51);
    assert_eq!(load(&setup, &mut parent, private + 2 * PAGE), 3);
    let mut child = parent.clone_cow(CHILD).expect("memory");
    let known = |space: &AddressSpace, address| space.frame_at(address).is_some();
    assert!(known(&child, shared) && known(&child, private + 2 * PAGE) && known(&child, private + PAGE));
    assert_eq!(child.frame_at(shared).map(|(_, is_writable)| is_writable), Some(false));
    assert_eq!(parent.frame_at(shared).map(|(_, is_writable)| is_writable), Some(true));
    assert_eq!(load(&setup, &mut child, private + PAGE), 51);
    assert_eq!(load(&setup, &mut child, private + 2 * PAGE), 3);
    store(&setup, &mut child, shared, 60);
    store(&setup, &mut child, private + PAGE, 61);
    assert_eq!([load(&setup, &mut parent, shared), load(&setup, &mut parent, private + PAGE)], [60, 51]);
    child.abandon();
    assert_eq!(load(&setup, &mut parent, private + PAGE), 51);
    store(&setup, &mut parent, private + PAGE, 52);
    drop((parent, child));
    assert_eq!(setup.used(), file.cached() as u64);
}

#[test]
fn leaves_that_a_fork_shares_are_given_back_by_the_last_in_any_order() {
    for order in 0..6 {
        let setup = Setup::new();
        let mut parent = setup.space();
        parent.map(anonymous(200)).expect("free");
        for page in (0..200).step_by(3) {
            store(&setup, &mut parent, A + page * PAGE, 1);
        }
        let before = setup.used();
        let mut child = parent.clone_cow(CHILD).expect("memory");
        let mut grandchild = child.clone_cow(CHILD_OF_CHILD).expect("memory");
        assert_eq!(setup.used(), before, "a fork takes no frame");
        store(&setup, &mut child, A + 3 * PAGE, 2);
        store(&setup, &mut grandchild, A + 6 * PAGE, 3);
        store(&setup, &mut parent, A + 9 * PAGE, 4);
        let bytes = |space: &mut AddressSpace| [3, 6, 9, 12].map(|page| load(&setup, space, A + page * PAGE));
        assert_eq!(bytes(&mut parent), [1, 1, 4, 1]);
        assert_eq!(bytes(&mut child), [2, 1, 1, 1]);
        assert_eq!(bytes(&mut grandchild), [1, 3, 1, 1]);
        let mut spaces = vec![parent, child, grandchild];
        for place in [order % 3, order / 3, 0] {
            spaces.remove(place).abandon();
        }
        assert_eq!(setup.used(), 0, "order {order}");
    }
}

#[test]
fn a_child_has_what_the_child_before_it_touched_first() {
    let setup = Setup::new();
    let mut parent = setup.space();
    parent.map(anonymous(300)).expect("free");
    for page in 0..300 {
        store(&setup, &mut parent, A + page * PAGE, 1);
    }
    let (written, read) = (A + 10 * PAGE, A + 250 * PAGE);
    let mut first = parent.clone_cow(CHILD).expect("memory");
    store(&setup, &mut first, written, 2);
    assert_eq!(load(&setup, &mut first, read), 1);
    assert!(first.fault_counts().resolved >= 2);
    first.abandon();
    let mut second = parent.clone_cow(CHILD_OF_CHILD).expect("memory");
    assert_eq!(second.frame_at(written).map(|(_, is_writable)| is_writable), Some(true));
    assert_ne!(second.frame_at(written).map(|(frame, _)| frame), parent.frame_at(written).map(|(frame, _)| frame));
    store(&setup, &mut second, written, 3);
    assert_eq!([load(&setup, &mut second, written), load(&setup, &mut second, read)], [3, 1]);
    assert_eq!(second.fault_counts().resolved, 0);
    assert_eq!(load(&setup, &mut parent, written), 1);
}

#[test]
fn fork_flags_are_kept() {
    let setup = Setup::new();
    let mut parent = setup.space();
    parent.map(anonymous(3)).expect("free");
    for page in 0..3 {
        store(&setup, &mut parent, A + page * PAGE, 1);
    }
    parent.advise(A, PAGE, Advice::DontFork).expect("mapped");
    parent.advise(A + PAGE, PAGE, Advice::WipeOnFork).expect("private");
    let mut child = parent.clone_cow(CHILD).expect("memory");
    assert!(child.area_at(A).is_none());
    assert_eq!(load(&setup, &mut child, A + PAGE), 0);
    assert_eq!(load(&setup, &mut child, A + 2 * PAGE), 1);
}

#[test]
fn memory_that_runs_out_is_an_outcome_and_comes_back() {
    let setup = Setup::with_frames(64);
    let mut space = setup.space();
    space.map(anonymous(64)).expect("as much as there is");
    let mut stored = 0;
    let outcome = loop {
        let outcome = space.handle_fault(A + stored * PAGE, Access::Write, Wait::Allowed);
        if !matches!(outcome, FaultOutcome::Resolved { .. }) {
            break outcome;
        }
        stored += 1;
        if stored == 64 {
            break space.handle_fault(A + 63 * PAGE, Access::Write, Wait::Allowed);
        }
    };
    assert!(stored >= 63, "{stored}");
    assert!(matches!(outcome, FaultOutcome::OutOfMemory | FaultOutcome::Resolved { .. }));
    drop(space);
    assert_eq!(setup.used(), 0);
    assert_eq!(setup.pool.give_back(64), 64);
    assert_eq!(setup.machine.frames_free(), 64);
}

#[test]
fn a_refused_bind_leaves_no_wrong_mapping() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(256)).expect("free");
    for page in 0..8 {
        store(&setup, &mut space, A + page * PAGE, page as u8);
    }
    for allowed in 0..4 {
        setup.machine.refuse_binds_after(Some(allowed));
        for page in [8, 100, 101, 102] {
            let outcome = space.handle_fault(A + page * PAGE, Access::Write, Wait::Allowed);
            let is_mapped = setup.machine.allows(ENVIRONMENT, A + page * PAGE, FakeAccess::Store);
            let is_resolved = matches!(outcome, FaultOutcome::Resolved { .. });
            assert_eq!(is_mapped, is_resolved, "{outcome:?}");
        }
        setup.machine.refuse_binds_after(None);
    }
    store(&setup, &mut space, A + 8 * PAGE, 5);
    assert_eq!(load(&setup, &mut space, A + 8 * PAGE), 5);
    let mut child = space.clone_cow(CHILD).expect("protects are not refused");
    setup.machine.refuse_binds_after(Some(0));
    assert_eq!(child.handle_fault(A, Access::Read, Wait::Allowed), FaultOutcome::OutOfMemory);
    setup.machine.refuse_binds_after(None);
    assert_eq!(load(&setup, &mut child, A + 3 * PAGE), 3);
    drop((space, child));
    assert_eq!(setup.used(), 0);
    assert!(setup.machine.log_lines().iter().all(|(level, _)| *level != LogLevel::Warning));
}

#[test]
fn exclusive_pages_get_their_rights_back_without_a_fault() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(4)).expect("free");
    store(&setup, &mut space, A, 1);
    space.protect(A, PAGE, Protection::READ, ProtectReach::Range).expect("mapped");
    assert_eq!(setup.machine.store(ENVIRONMENT, A, 2), None);
    space.protect(A, PAGE, Protection::all(), ProtectReach::Range).expect("mapped");
    assert_eq!(setup.machine.store(ENVIRONMENT, A, 2), Some(()));
    assert!(setup.machine.allows(ENVIRONMENT, A, FakeAccess::Fetch));
}

#[test]
fn bytes_go_to_and_from_unmapped_pages_with_the_program_s_rights() {
    let setup = Setup::new();
    let mut space = setup.space();
    space.map(anonymous(2)).expect("free");
    let mut read_only = anonymous(1);
    read_only.placement = Placement::Fixed(A + 2 * PAGE);
    read_only.protection = Protection::READ;
    space.map(read_only).expect("free");
    let text: Vec<u8> = (0..5000).map(|index| index as u8 | 1).collect();
    assert_eq!(space.write(A + 100, &text), Ok(5000));
    let mut back = vec![0; 5000];
    space.read_exact(A + 100, &mut back).expect("mapped");
    assert_eq!(back, text);
    assert_eq!(space.write(A + 2 * PAGE - 10, &text), Ok(10), "up to the read-only page");
    assert_eq!(space.write(A + 2 * PAGE, &text), Err(Errno::EFAULT));
    assert_eq!(space.read(A + 3 * PAGE - 10, &mut back), Ok(10));
    assert_eq!(space.read(A + 3 * PAGE, &mut back), Err(Errno::EFAULT));
    space.write_all(A + PAGE - 3, b"path\0").expect("mapped");
    assert_eq!(space.read_string(A + PAGE - 3, 100), Ok(b"path".to_vec()));
    assert_eq!(space.read_string(A + PAGE - 3, 4), Err(Errno::ENAMETOOLONG));
    assert_eq!(space.write(u64::MAX - 2, b"xyzzy"), Err(Errno::EFAULT));
    assert_eq!(space.write(BASE, b""), Ok(0));
}

#[test]
fn a_file_page_outlives_its_file_while_it_is_mapped() {
    let setup = Setup::new();
    let mut space = setup.space();
    let file = CachedFile::new(&setup.pool, 2);
    space.map(shared_file(file.clone(), 2)).expect("free");
    store(&setup, &mut space, A, 8);
    let FilePage { frame, .. } = file.resident_page(0).expect("cached");
    drop((frame, file));
    assert_eq!(load(&setup, &mut space, A), 8);
    space.unmap(A, 2 * PAGE).expect("mapped");
    assert_eq!(setup.used(), 0);
}

#[test]
fn a_page_that_has_to_be_waited_for_is_named_and_fetched_without_the_space() {
    let setup = Setup::new();
    let private = |source: Arc<dyn PageSource>| MapRequest { is_shared: false, ..shared_file(source, 4) };
    for (is_shared, access) in
        [(false, Access::Read), (false, Access::Write), (true, Access::Read), (true, Access::Write)]
    {
        let mut space = setup.space();
        let file = CachedFile::new(&setup.pool, 4);
        space.map(if is_shared { shared_file(file.clone(), 4) } else { private(file.clone()) }).expect("free");
        let address = A + 2 * PAGE;
        let FaultOutcome::Wants(wanted) = space.handle_fault(address, access, Wait::Refused) else { panic!("waits") };
        assert_eq!((file.cached(), space.totals().resident_peak), (0, 0), "nothing was asked, nothing was mapped");
        let _fetched = wanted.fetch().expect("the file has it");
        let outcome = space.handle_fault(address, access, Wait::Refused);
        assert!(matches!(outcome, FaultOutcome::Resolved { .. }), "{outcome:?}");
        assert_eq!(file.cached(), 1, "neighbours are not waited for");
        assert_eq!(load(&setup, &mut space, address), 3);
        // Behind the file's end there is nothing to wait for twice.
        file.truncate(1);
        let outcome = space.handle_fault(A + 3 * PAGE, access, Wait::Refused);
        assert!(matches!(outcome, FaultOutcome::Wants(wanted) if wanted.fetch().is_err()));
        assert_eq!(space.handle_fault(A + 3 * PAGE, access, Wait::Allowed), FaultOutcome::Bus);
    }
}
