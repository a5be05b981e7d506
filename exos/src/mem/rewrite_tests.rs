//! Rewritten sites of a small ELF file, through the page table only: patched, forked, made writable, cut off.

use std::sync::Arc;

use super::test_support::{BASE, ENVIRONMENT, PAGE, Setup, load};
use super::{
    AddressSpace, AreaLabel, FileIdentity, FilePage, FramePool, FrameRef, MapBacking, MapRequest, PageError,
    PageIntent, PageSource, Placement, ProtectReach, Protection,
};
use crate::rewrite::Refusal;
use aegis_abi::CapSlot;

const TEXT: u64 = BASE - 0x10_0000;
/// `mov $39,%eax; syscall; ret`, twice, on the second page.
const CODE: [u8; 8] = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];
const SITES: [u64; 2] = [0x1000, 0x1040];
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
fn program(pool: &Arc<FramePool>) -> Arc<dyn PageSource> {
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
    put(0x200 + 32, 2 * 24, 8);
    for (index, site) in SITES.into_iter().enumerate() {
        let symbol = 0x300 + index * 24;
        put(symbol + 4, 2, 1);
        put(symbol + 8, site, 8);
        put(symbol + 16, CODE.len() as u64, 8);
    }
    for site in SITES {
        bytes[site as usize..site as usize + CODE.len()].copy_from_slice(&CODE);
    }
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
    space.rewrite_site(TEXT + site + 7, ENTRY)
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
