//! Rewritten sites of a small ELF file, through the page table only: patched, forked, made writable, cut off.

use std::sync::Arc;

use super::rewrite::TRAMPOLINE_ROOM_BYTES;
use super::test_support::{BASE, ENVIRONMENT, PAGE, Setup, load, store};
use super::{
    AddressSpace, AreaLabel, FileIdentity, FilePage, FramePool, FrameRef, MapBacking, MapRequest, PageError,
    PageIntent, PageSource, Placement, ProtectReach, Protection, SpaceLimits,
};
use crate::mem::Wait;
use crate::reserve::{self, Level};
use crate::rewrite::Refusal;
use aegis_abi::CapSlot;

const TEXT: u64 = BASE - 0x10_0000;
/// `mov $39,%eax; syscall; ret`, twice, on the second page.
const CODE: [u8; 8] = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];
const SITES: [u64; 2] = [0x1000, 0x1040];
/// One in the page before.
const LONE_SITE: u64 = 0x800;
const ENTRY: u32 = 0x3b0;
const CODE_RIGHTS: Protection = Protection::READ.union(Protection::EXECUTE);

/// A file of two pages.
struct Program(Vec<FrameRef>);

impl PageSource for Program {
    fn page(&self, index: u64, _: PageIntent) -> Result<FilePage, PageError> {
        self.resident_page(index).ok_or(PageError::BeyondEnd)
    }
    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.0.get(index as usize)?.clone();
        Some(FilePage { frame, valid_bytes: 4096 })
    }
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 8, inode: 3 }
    }
    fn path(&self) -> String {
        "/program".into()
    }
}

/// An ELF file with a symbol for each site's function.
fn program_bytes() -> Vec<u8> {
    let mut bytes = vec![0; 2 * PAGE as usize];
    let mut put = |offset: usize, value: u64, length: usize| {
        bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
    };
    put(0, 0x0001_0102_464c_457f, 8);
    put(32, 64, 8); // program headers
    put(40, 0x200, 8); // section headers
    put(54, 56, 2);
    put(56, 1, 2);
    put(58, 64, 2);
    put(60, 1, 2);
    put(64, 1, 4); // loadable, all of it, at 0
    put(64 + 32, 2 * PAGE, 8);
    put(0x200 + 4, 2, 4); // symbols
    put(0x200 + 24, 0x300, 8);
    put(0x200 + 32, 3 * 24, 8);
    for (index, site) in SITES.into_iter().chain([LONE_SITE]).enumerate() {
        let symbol = 0x300 + index * 24;
        put(symbol + 4, 2, 1);
        put(symbol + 8, site, 8);
        put(symbol + 16, CODE.len() as u64, 8);
    }
    for site in SITES.into_iter().chain([LONE_SITE]) {
        bytes[site as usize..site as usize + CODE.len()].copy_from_slice(&CODE);
    }
    bytes
}

/// The same in the page cache.
fn program(pool: &Arc<FramePool>) -> Arc<dyn PageSource> {
    let bytes = program_bytes();
    let frames = bytes.chunks(PAGE as usize).map(|page| {
        let frame = pool.allocate_ref().expect("room");
        pool.bytes().write(frame.frame(), 0, page);
        frame
    });
    Arc::new(Program(frames.collect()))
}

fn map(space: &mut AddressSpace, source: &Arc<dyn PageSource>, protection: Protection, is_shared: bool) {
    let backing = MapBacking::File { source: source.clone(), offset_bytes: 0, is_readable: true, is_writable: true };
    let request =
        MapRequest { backing, is_shared, ..MapRequest::anonymous(Placement::Fixed(TEXT), 2 * PAGE, protection) };
    space.map(request).expect("free");
}

fn rewrite(space: &mut AddressSpace, site: u64) -> Option<Result<(), Refusal>> {
    space.rewrite_site(TEXT + site + 7, ENTRY, Wait::Allowed).expect("waits")
}

/// The first touch of text, by executing it.
fn fetch(space: &mut AddressSpace, address: u64) {
    let outcome = space.handle_fault(address, super::Access::Execute, Wait::Allowed);
    assert!(matches!(outcome, super::FaultOutcome::Resolved { .. }), "{outcome:?}");
}

fn code(setup: &Setup, space: &mut AddressSpace, site: u64) -> Vec<u8> {
    (0..CODE.len() as u64).map(|offset| load(setup, space, TEXT + site + offset)).collect()
}

/// Where the jump at a site goes.
fn target(setup: &Setup, space: &mut AddressSpace, site: u64) -> u64 {
    let bytes = code(setup, space, site);
    assert_eq!((bytes[0], &bytes[5..]), (0xe9, &CODE[5..]), "the call itself stays");
    let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    (TEXT + site + 5).wrapping_add_signed(i64::from(distance))
}

#[test]
fn a_site_becomes_a_jump_to_a_copy_of_what_stood_there() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut space = setup.space();
    map(&mut space, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Ok(())));
    assert_eq!(rewrite(&mut space, SITES[0]), None, "once");
    let first = target(&setup, &mut space, SITES[0]);
    let copy: Vec<u8> = (0..5).map(|offset| load(&setup, &mut space, first + offset)).collect();
    assert_eq!(copy, CODE[..5]);
    assert_eq!(space.sites().original(first), Some(TEXT + SITES[0]));
    assert_eq!(code(&setup, &mut space, SITES[1]), CODE, "the other is as it was");
    assert_eq!(rewrite(&mut space, SITES[1]), Some(Ok(())));
    assert_ne!(target(&setup, &mut space, SITES[1]), first);
    assert_eq!(target(&setup, &mut space, SITES[0]), first);
    let mut file = [0; 8];
    crate::load::read_file(&setup.pool, &source, SITES[0], &mut file).expect("there");
    assert_eq!(file, CODE, "the file knows nothing");
}

#[test]
fn a_forked_space_has_the_patches_and_its_own_trampolines() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut parent = setup.space();
    map(&mut parent, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut parent, SITES[0]), Some(Ok(())));
    let mut child = parent.clone_cow(CapSlot(ENVIRONMENT.0 + 1)).expect("room");
    let first = target(&setup, &mut parent, SITES[0]);
    assert_eq!(target(&setup, &mut child, SITES[0]), first);
    assert_eq!(rewrite(&mut child, SITES[1]), Some(Ok(())));
    let second = target(&setup, &mut child, SITES[1]);
    assert_eq!(load(&setup, &mut child, second), CODE[0]);
    assert_eq!(code(&setup, &mut parent, SITES[1]), CODE);
    assert_ne!(load(&setup, &mut parent, second), CODE[0], "the parent's page is its own");
}

#[test]
fn what_is_made_writable_is_the_files_again() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut space = setup.space();
    map(&mut space, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Ok(())));
    let all = CODE_RIGHTS | Protection::WRITE;
    space.protect(TEXT, 2 * PAGE, all, ProtectReach::Range).expect("allowed");
    assert_eq!(code(&setup, &mut space, SITES[0]), CODE);
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Err(Refusal::Writable)));
    space.protect(TEXT, 2 * PAGE, CODE_RIGHTS, ProtectReach::Range).expect("allowed");
    assert_eq!(rewrite(&mut space, SITES[0]), None, "decided");
    assert_eq!(rewrite(&mut space, SITES[1]), Some(Ok(())));
}

#[test]
fn a_trampoline_that_goes_takes_its_patches_along() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut space = setup.space();
    map(&mut space, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Ok(())));
    let trampolines = space.areas().find(|area| area.label() == AreaLabel::Trampolines).expect("is there").start();
    space.unmap(trampolines, PAGE).expect("mapped");
    assert_eq!(code(&setup, &mut space, SITES[0]), CODE);
    assert!(space.sites().is_empty());
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Ok(())), "tried again");
    let before = setup.used();
    space.clear();
    assert!(space.sites().is_empty() && setup.used() < before);
}

#[test]
fn what_is_not_a_private_unwritable_file_is_refused() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    for (protection, is_shared, refusal) in
        [(CODE_RIGHTS | Protection::WRITE, false, Refusal::Writable), (CODE_RIGHTS, true, Refusal::NotFileText)]
    {
        let mut space = setup.space();
        map(&mut space, &source, protection, is_shared);
        assert_eq!(rewrite(&mut space, SITES[0]), Some(Err(refusal)));
    }
    let mut space = setup.space();
    space.map(MapRequest::anonymous(Placement::Fixed(TEXT), 2 * PAGE, CODE_RIGHTS)).expect("free");
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Err(Refusal::NotFileText)));
    map(&mut space, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut space, 0x1010), Some(Err(Refusal::NoFunction)), "no symbol covers it");
}

/// As [`map`], at another place.
fn map_at(space: &mut AddressSpace, source: &Arc<dyn PageSource>, address: u64) {
    let backing = MapBacking::File { source: source.clone(), offset_bytes: 0, is_readable: true, is_writable: true };
    let request = MapRequest { backing, ..MapRequest::anonymous(Placement::Fixed(address), 2 * PAGE, CODE_RIGHTS) };
    space.map(request).expect("free");
}

/// Patches both sites in a space and offers them to others.
fn offered(setup: &Setup, source: &Arc<dyn PageSource>) -> AddressSpace {
    let mut space = setup.space();
    map(&mut space, source, CODE_RIGHTS, false);
    for site in SITES {
        assert_eq!(rewrite(&mut space, site), Some(Ok(())));
        space.offer_rewrites(TEXT + site + 7);
    }
    space
}

#[test]
fn what_one_process_patched_is_there_at_the_first_touch_of_another_wherever_it_is() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut first = offered(&setup, &source);
    let used = setup.used();
    for (slot, address) in [(CapSlot(60), TEXT), (CapSlot(61), TEXT - 0x234_5000)] {
        let mut second = setup.space_of(slot);
        map_at(&mut second, &source, address);
        assert!(
            second.handle_fault(address + SITES[0], super::Access::Execute, Wait::Allowed) != super::FaultOutcome::Bus
        );
        for site in SITES {
            let entry = |space: &AddressSpace, address: u64| space.pages.get(address >> 12).map(|entry| entry.frame());
            assert_eq!(entry(&second, address + site), entry(&first, TEXT + site), "one page for both");
            assert_eq!(
                second.rewrite_site(address + site + 7, ENTRY, Wait::Allowed).expect("waits"),
                None,
                "nothing is left to do"
            );
            let theirs = first.sites().patched(TEXT + site + 5).expect("patched");
            let ours = second.sites().patched(address + site + 5).expect("taken");
            assert_eq!(ours.trampoline.wrapping_sub(address), theirs.trampoline.wrapping_sub(TEXT));
            assert_eq!(entry(&second, ours.trampoline), entry(&first, theirs.trampoline), "and one of trampolines");
            assert_eq!(second.sites().original(ours.trampoline), Some(address + site));
        }
        assert_eq!(setup.used(), used, "no frame for the second");
        // Text that becomes writable is the file's again, for this process only.
        second
            .protect(address, 2 * PAGE, Protection::READ | Protection::WRITE, ProtectReach::Range)
            .expect("a private mapping");
        let bytes: Vec<u8> = (0..8)
            .map(|offset| {
                let mut byte = [0];
                second.read_exact(address + SITES[0] + offset, &mut byte).expect("readable");
                byte[0]
            })
            .collect();
        assert_eq!(bytes, CODE);
    }
    assert_ne!(code(&setup, &mut first, SITES[0]), CODE);
    assert_eq!(setup.shared.patched_text().taken_count(), 4);
}

#[test]
fn text_of_the_bundle_is_taken_with_the_run_around_it() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let first = offered(&setup, &source);
    let frame = |space: &AddressSpace, address: u64| space.frame_at(address).map(|(frame, _)| frame);
    let bundle = |page: u64| source.resident_page(page).map(|page| page.frame.frame());
    for (slot, touched) in [(60, 0), (61, PAGE)] {
        let mut second = setup.space_of(CapSlot(slot));
        map_at(&mut second, &source, TEXT);
        assert_eq!(
            second.handle_fault(TEXT + touched, super::Access::Execute, Wait::Allowed),
            resolved(2),
            "one from either"
        );
        assert_eq!(frame(&second, TEXT), bundle(0));
        assert_eq!(frame(&second, TEXT + PAGE), frame(&first, TEXT + PAGE), "patched");
        assert_ne!(frame(&second, TEXT + PAGE), bundle(1));
        assert_eq!(code(&setup, &mut second, SITES[0])[0], 0xe9);
        assert_eq!(
            second.rewrite_site(TEXT + SITES[1] + 7, ENTRY, Wait::Allowed).expect("waits"),
            None,
            "nothing is left to do"
        );
    }
    // Text that can be written is the file's own.
    let mut writable = setup.space_of(CapSlot(62));
    map(&mut writable, &source, CODE_RIGHTS | Protection::WRITE, false);
    assert_eq!(writable.handle_fault(TEXT, super::Access::Execute, Wait::Allowed), resolved(2));
    assert_eq!(frame(&writable, TEXT + PAGE), bundle(1));
    assert_eq!(code(&setup, &mut writable, SITES[0]), CODE);
}

/// A run of the program, in a space that was kept if there is one.
fn start_of(setup: &Setup, source: &Arc<dyn PageSource>, before_start: &dyn Fn(&mut AddressSpace)) -> AddressSpace {
    let program = source.identity();
    let made = AddressSpace::make(&setup.shared, BASE, SpaceLimits::default(), Some(program));
    let mut space = made.expect("memory");
    map_at(&mut space, source, TEXT);
    before_start(&mut space);
    space.keep_for_start(program, [TEXT..TEXT + 2 * PAGE, 0..0]);
    space.adopt_start();
    space.flush().expect("room for tables");
    space
}

#[test]
fn the_next_run_has_the_patches_of_the_last_with_their_trampolines() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let mut first = offered(&setup, &source);
    let trampoline = target(&setup, &mut first, SITES[0]);
    let start = |before_start: &dyn Fn(&mut AddressSpace)| start_of(&setup, &source, before_start);
    let end = |mut space: AddressSpace| {
        assert!(space.unmap_all() && space.keep());
        space.abandon();
    };
    let mut run = start(&|_| ());
    fetch(&mut run, TEXT);
    let slot = run.environment();
    let mapped = setup.machine.mappings(slot);
    assert_eq!(mapped.len(), 3, "text and trampolines");
    end(run);
    let taken = setup.shared.patched_text().taken_count();
    for _ in 0..3 {
        let mut run = start(&|_| ());
        assert_eq!((run.environment(), setup.machine.mappings(slot)), (slot, mapped.clone()));
        assert_eq!(target(&setup, &mut run, SITES[0]), trampoline);
        assert_eq!(
            run.rewrite_site(TEXT + SITES[1] + 7, ENTRY, Wait::Allowed).expect("waits"),
            None,
            "nothing is left to do"
        );
        assert_eq!(run.area_at(trampoline).map(|area| area.label()), Some(AreaLabel::Trampolines));
        let mut child = run.fork().expect("memory");
        assert_eq!(target(&setup, &mut child, SITES[1]) & !(PAGE - 1), trampoline & !(PAGE - 1));
        end(child);
        end(run);
    }
    assert_eq!(setup.shared.patched_text().taken_count(), taken + 3 * SITES.len() as u64);
    // Where something else lies, there are neither trampolines nor jumps to them.
    let page = trampoline & !(PAGE - 1);
    let mut run = start(&|space| {
        let rights = Protection::READ | Protection::WRITE;
        space.map(MapRequest::anonymous(Placement::Fixed(page), PAGE, rights)).expect("free");
    });
    assert!(setup.machine.mapping(slot, page).is_none() && run.sites().is_empty());
    assert_eq!(load(&setup, &mut run, page), 0);
    fetch(&mut run, TEXT + PAGE);
    assert_eq!(code(&setup, &mut run, SITES[0]), CODE);
    drop((run, first));
    setup.shared.end_kept_spaces();
    assert!(setup.machine.mappings(slot).is_empty());
}

#[test]
fn what_a_process_stored_to_its_trampolines_goes_to_no_other_run() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let mut first = offered(&setup, &source);
    let trampoline = target(&setup, &mut first, SITES[0]);
    let page = trampoline & !(PAGE - 1);
    let start = || start_of(&setup, &source, &|_| ());
    let mut run = start();
    fetch(&mut run, TEXT);
    let slot = run.environment();
    assert!(setup.machine.mapping(slot, page).is_some());
    let rights = Protection::READ | Protection::WRITE;
    run.protect(page, PAGE, rights, ProtectReach::Range).expect("mapped");
    store(&setup, &mut run, trampoline, 0xcc);
    run.protect(page, PAGE, CODE_RIGHTS, ProtectReach::Range).expect("mapped");
    fetch(&mut run, page);
    // A child that lives on shares the page.
    let child = run.fork().expect("memory");
    assert!(run.unmap_all() && run.keep());
    run.abandon();
    assert!(setup.machine.mapping(slot, page).is_none(), "it stays mapped for whoever comes");
    let mut next = start();
    assert_eq!(next.environment(), slot);
    fetch(&mut next, TEXT + PAGE);
    assert_eq!(target(&setup, &mut next, SITES[0]), trampoline);
    assert_ne!(load(&setup, &mut next, trampoline), 0xcc);
    drop((next, child, first));
}

#[test]
fn no_jump_goes_to_the_next_run_without_its_trampoline() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let mut run = start_of(&setup, &source, &|_| ());
    let slot = run.environment();
    for site in SITES {
        assert_eq!(rewrite(&mut run, site), Some(Ok(())));
        run.offer_rewrites(TEXT + site + 7);
    }
    let trampoline = target(&setup, &mut run, SITES[0]);
    let first_byte = load(&setup, &mut run, trampoline);
    // Others have its page of text, and another page of trampolines, which lacks one.
    assert_eq!(rewrite(&mut run, LONE_SITE), Some(Ok(())));
    fetch(&mut run, trampoline);
    fetch(&mut run, TEXT + SITES[0]);
    assert!(run.unmap_all() && run.keep());
    run.abandon();
    assert!(setup.machine.mapping(slot, trampoline & !(PAGE - 1)).is_none());
    assert!(setup.machine.mapping(slot, TEXT + SITES[0]).is_none(), "it would jump to what is not there");
    let mut next = start_of(&setup, &source, &|_| ());
    assert_eq!(next.environment(), slot);
    fetch(&mut next, TEXT + PAGE);
    assert_eq!(target(&setup, &mut next, SITES[0]), trampoline);
    assert_eq!(load(&setup, &mut next, trampoline), first_byte);
}

#[test]
fn areas_beyond_the_limit_take_no_trampoline_from_a_jump_that_stays() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let mut first = offered(&setup, &source);
    let trampoline = target(&setup, &mut first, SITES[0]);
    let mut run = start_of(&setup, &source, &|_| ());
    fetch(&mut run, TEXT);
    let slot = run.environment();
    assert!(setup.machine.mapping(slot, trampoline & !(PAGE - 1)).is_some());
    // More areas than are looked at, between the text and its trampolines.
    let other = TEXT + 4 * PAGE;
    for index in 0..70 {
        let place = Placement::Fixed(other + 2 * index * PAGE);
        run.map(MapRequest::file(place, PAGE, Protection::READ, setup.bundle_file(4096, 1), 0)).expect("free");
    }
    run.keep_for_start(source.identity(), [TEXT..other + 140 * PAGE, 0..0]);
    assert!(run.unmap_all() && run.keep());
    run.abandon();
    let mut next = start_of(&setup, &source, &|_| ());
    assert_eq!(next.environment(), slot);
    fetch(&mut next, TEXT + PAGE);
    assert_eq!(target(&setup, &mut next, SITES[0]), trampoline);
    assert_eq!(next.area_at(trampoline).map(|area| area.label()), Some(AreaLabel::Trampolines));
    assert!(setup.machine.mapping(slot, trampoline & !(PAGE - 1)).is_some(), "the jump leads nowhere");
}

#[test]
fn a_fork_that_fails_gives_back_what_the_child_before_it_left() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let source: Arc<dyn PageSource> = setup.bundle_of(&bytes, bytes.len());
    let mut parent = offered(&setup, &source);
    let data = TEXT + 8 * PAGE;
    let rights = Protection::READ | Protection::WRITE;
    parent.map(MapRequest::anonymous(Placement::Fixed(data), PAGE, rights)).expect("free");
    store(&setup, &mut parent, data, 1);
    let references = |setup: &Setup, parent: &AddressSpace| {
        let (frame, _) = parent.frame_at(TEXT + SITES[0]).expect("patched");
        setup.pool.lock().reference_count(frame)
    };
    let before = references(&setup, &parent);
    for _ in 0..4 {
        let mut child = parent.fork().expect("memory");
        fetch(&mut child, TEXT + SITES[0]);
        assert!(child.unmap_all() && child.keep());
        child.abandon();
        assert!(references(&setup, &parent) > before, "the space that is kept has the page, too");
        store(&setup, &mut parent, data, 2);
        reserve::set_level(Level::Low);
        assert!(parent.fork().is_err());
        reserve::set_level(Level::Whole);
        assert_eq!((references(&setup, &parent), setup.shared.kept_space_count()), (before, 0));
    }
}

#[test]
fn who_loads_from_text_sees_the_file_and_who_fetches_beside_it_takes_the_offer() {
    let setup = Setup::new();
    let bytes = program_bytes();
    let sources: [Arc<dyn PageSource>; 2] = [program(&setup.pool), setup.bundle_of(&bytes, bytes.len())];
    for (source, slot) in sources.iter().zip([60, 62]) {
        let first = offered(&setup, source);
        let frame = |space: &AddressSpace, address: u64| space.frame_at(address).map(|(frame, _)| frame);
        let file = |page: u64| source.resident_page(page).map(|page| page.frame.frame());
        // A load beside the patched page leaves that one for its own first touch.
        let mut second = setup.space_of(CapSlot(slot));
        map_at(&mut second, source, TEXT);
        assert_eq!(second.handle_fault(TEXT, super::Access::Read, Wait::Allowed), resolved(1));
        assert_eq!((frame(&second, TEXT), frame(&second, TEXT + PAGE)), (file(0), None));
        assert_eq!(second.handle_fault(TEXT + PAGE, super::Access::Execute, Wait::Allowed), resolved(1));
        assert_eq!(frame(&second, TEXT + PAGE), frame(&first, TEXT + PAGE), "patched");
        // A load from it shows what the file says, and a fetch afterwards, too.
        let mut reader = setup.space_of(CapSlot(slot + 1));
        map_at(&mut reader, source, TEXT);
        assert_eq!(reader.handle_fault(TEXT + SITES[0], super::Access::Read, Wait::Allowed), resolved(2));
        assert_eq!(frame(&reader, TEXT + PAGE), file(1));
        assert_eq!(code(&setup, &mut reader, SITES[0]), CODE);
        assert_eq!(
            reader.rewrite_site(TEXT + SITES[0] + 7, ENTRY, Wait::Allowed).expect("waits"),
            Some(Ok(())),
            "its own patch"
        );
    }
}

fn resolved(pages: u32) -> super::FaultOutcome {
    super::FaultOutcome::Resolved { pages }
}

#[test]
fn an_offer_is_not_taken_where_it_does_not_fit_or_is_not_true() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let first = offered(&setup, &source);
    let trampoline = first.sites().patched(TEXT + SITES[0] + 5).expect("patched").trampoline;
    let code_at = |space: &mut AddressSpace, address: u64| {
        let mut bytes = [0; 8];
        fetch(space, address);
        space.read_exact(address, &mut bytes).expect("readable");
        bytes
    };
    let bytes_of = |space: &mut AddressSpace| code_at(space, TEXT + SITES[0]);
    // Something else lies where the trampolines would be.
    let mut second = setup.space_of(CapSlot(60));
    let blocking = Placement::Fixed(trampoline & !(PAGE - 1));
    second.map(MapRequest::anonymous(blocking, PAGE, Protection::READ)).expect("free");
    map_at(&mut second, &source, TEXT);
    assert_eq!(bytes_of(&mut second), CODE);
    assert_eq!(
        second.rewrite_site(TEXT + SITES[0] + 7, ENTRY, Wait::Allowed).expect("waits"),
        Some(Ok(())),
        "its own patch"
    );
    // Their place, counted from the file's first byte, is one where the program may have something of its own.
    let mut far = setup.space_of(CapSlot(64));
    map_at(&mut far, &source, TEXT - TRAMPOLINE_ROOM_BYTES);
    assert_eq!(code_at(&mut far, TEXT - TRAMPOLINE_ROOM_BYTES + SITES[0]), CODE);
    // The file was changed in place.
    let page = source.resident_page(1).expect("there");
    setup.pool.bytes().write(page.frame.frame(), 0x80, &[1]);
    let mut third = setup.space_of(CapSlot(61));
    map_at(&mut third, &source, TEXT);
    assert_eq!(bytes_of(&mut third), CODE);
    // Text that can be written, and mappings that are shared, stay the file's.
    setup.pool.bytes().write(page.frame.frame(), 0x80, &[0]);
    for (slot, rights, is_shared) in [(62, CODE_RIGHTS | Protection::WRITE, false), (63, CODE_RIGHTS, true)] {
        let mut other = setup.space_of(CapSlot(slot));
        map(&mut other, &source, rights, is_shared);
        assert_eq!(bytes_of(&mut other), CODE);
    }
    assert_eq!(setup.shared.patched_text().taken_count(), 0);
}

#[test]
fn a_process_that_took_an_offer_forks_and_patches_more_like_any_other() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut first = setup.space();
    map(&mut first, &source, CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut first, SITES[0]), Some(Ok(())));
    first.offer_rewrites(TEXT + SITES[0] + 7);
    let mut second = setup.space_of(CapSlot(60));
    map_at(&mut second, &source, TEXT);
    let mut byte = [0];
    fetch(&mut second, TEXT + SITES[0]);
    second.read_exact(TEXT + SITES[0], &mut byte).expect("readable");
    assert_eq!(byte, [0xe9]);
    assert_eq!(second.rewrite_site(TEXT + SITES[1] + 7, ENTRY, Wait::Allowed).expect("waits"), Some(Ok(())));
    let child = second.clone_cow(CapSlot(61)).expect("memory");
    for space in [&second, &child] {
        assert!(SITES.iter().all(|site| space.sites().patched(TEXT + site + 5).is_some()));
    }
    // The newer offer has both, and the older trampolines as they were.
    second.offer_rewrites(TEXT + SITES[1] + 7);
    let mut third = setup.space_of(CapSlot(62));
    map_at(&mut third, &source, TEXT);
    fetch(&mut third, TEXT + SITES[0]);
    assert!(SITES.iter().all(|site| third.sites().patched(TEXT + site + 5).is_some()));
    assert_eq!(rewrite(&mut first, SITES[1]), Some(Ok(())), "who was there before patches for himself");
}

#[test]
fn newer_trampolines_take_the_place_of_older_ones_that_they_hold() {
    let setup = Setup::new();
    let (one, two) = (program(&setup.pool), program(&setup.pool));
    let other = TEXT + 2 * PAGE;
    let mut first = setup.space();
    map(&mut first, &one, CODE_RIGHTS, false);
    map_at(&mut first, &two, other);
    // Two files, whose trampolines are in one page: what the first offered lacks what the second needs.
    assert_eq!(rewrite(&mut first, SITES[0]), Some(Ok(())));
    first.offer_rewrites(TEXT + SITES[0] + 7);
    assert_eq!(first.rewrite_site(other + SITES[0] + 7, ENTRY, Wait::Allowed).expect("waits"), Some(Ok(())));
    first.offer_rewrites(other + SITES[0] + 7);
    let page_of = |address: u64| first.sites().patched(address + SITES[0] + 5).expect("patched").trampoline >> 12;
    assert_eq!(page_of(TEXT), page_of(other));
    let mut second = setup.space_of(CapSlot(60));
    map_at(&mut second, &one, TEXT);
    map_at(&mut second, &two, other);
    for address in [TEXT, other] {
        fetch(&mut second, address + SITES[0]);
        let site = second.sites().patched(address + SITES[0] + 5).expect("taken");
        let copy: Vec<u8> = (0..5).map(|offset| load(&setup, &mut second, site.trampoline + offset)).collect();
        assert_eq!(copy, CODE[..5]);
    }
    assert_eq!(setup.shared.patched_text().taken_count(), 2);
}

#[test]
fn trampolines_are_where_a_program_that_maps_and_unmaps_does_not_meet_them() {
    let setup = Setup::new();
    let source = program(&setup.pool);
    let mut space = setup.space();
    // What a program has just unmapped is free, and stays so, whatever is patched, lost and taken back meanwhile.
    let hole = TEXT - 64 * PAGE..TEXT;
    map(&mut space, &source, CODE_RIGHTS, false);
    for _ in 0..2 {
        let _ = rewrite(&mut space, SITES[0]);
        space.offer_rewrites(TEXT + SITES[0] + 7);
        let trampoline = space.sites().patched(TEXT + SITES[0] + 5).expect("patched or taken").trampoline;
        assert!((BASE..BASE + TRAMPOLINE_ROOM_BYTES).contains(&trampoline), "{trampoline:#x}");
        assert!(space.areas().all(|area| area.start() >= hole.end));
        // The program puts something else there, and takes it away.
        let place = trampoline & !(PAGE - 1);
        space.map(MapRequest::anonymous(Placement::Fixed(place), PAGE, Protection::READ)).expect("free");
        assert_eq!(code(&setup, &mut space, SITES[0]), CODE);
        space.unmap(place, PAGE).expect("aligned");
        space.unmap(TEXT, 2 * PAGE).expect("aligned");
        map(&mut space, &source, CODE_RIGHTS, false);
        fetch(&mut space, TEXT + SITES[0]);
        assert_ne!(code(&setup, &mut space, SITES[0]), CODE, "taken back at the first touch");
    }
    let anywhere = space.map(MapRequest::anonymous(Placement::Hint(0), PAGE, Protection::READ)).expect("room");
    assert!(anywhere < BASE);
    // The program itself has its trampolines below it.
    space.set_break_start(TEXT + 2 * PAGE);
    space.unmap(TEXT, 2 * PAGE).expect("aligned");
    map(&mut space, &program(&setup.pool), CODE_RIGHTS, false);
    assert_eq!(rewrite(&mut space, SITES[0]), Some(Ok(())));
    assert!(space.sites().patched(TEXT + SITES[0] + 5).expect("patched").trampoline < TEXT);
}

#[test]
fn all_that_one_process_patched_in_a_real_library_is_taken_by_another() {
    const LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";
    const SITE_COUNT: usize = 200;
    let Ok(bytes) = std::fs::read(LIBRARY) else { return };
    let setup = Setup::new();
    let frames = bytes.chunks(PAGE as usize).map(|page| {
        let frame = setup.pool.allocate_ref().expect("room");
        setup.pool.bytes().write(frame.frame(), 0, page);
        frame
    });
    let source: Arc<dyn PageSource> = Arc::new(Program(frames.collect()));
    let length = (bytes.len() as u64).next_multiple_of(PAGE);
    let map_it = |space: &mut AddressSpace, address: u64| {
        let request = MapRequest::file(Placement::Fixed(address), length, CODE_RIGHTS, source.clone(), 0);
        space.map(request).expect("free");
    };
    let base = BASE - 2 * length;
    let mut first = setup.space();
    map_it(&mut first, base);
    let mut patched = Vec::new();
    for site in (0..bytes.len() - 1).filter(|at| bytes[*at..*at + 2] == [0x0f, 0x05]).take(SITE_COUNT) {
        let return_address = base + site as u64 + 2;
        match first.rewrite_site(return_address, ENTRY, Wait::Allowed).expect("waits") {
            Some(Ok(())) => {
                first.offer_rewrites(return_address);
                patched.push(site as u64);
            }
            outcome => assert_ne!(outcome, Some(Err(Refusal::NoReach)), "{site:#x}"),
        }
    }
    let trampolines = first.areas().filter(|area| area.label() == AreaLabel::Trampolines);
    assert!(trampolines.map(|area| area.start()).all(|address| address >= BASE));
    for (slot, address) in [(CapSlot(60), base), (CapSlot(61), base - length)] {
        let mut second = setup.space_of(slot);
        map_it(&mut second, address);
        for site in &patched {
            fetch(&mut second, address + site);
            assert!(second.sites().patched(address + site).is_some(), "{site:#x}");
        }
    }
    assert_eq!(setup.shared.patched_text().taken_count(), 2 * patched.len() as u64);
}
