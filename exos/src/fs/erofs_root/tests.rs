//! The image as it is shown, mapped, copied up by the overlay, and damaged.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::types::SLOT_BUNDLE;
use aegis_image::erofs::write::Layout;
use aegis_image::tree::{Attributes, Content, Tree};
use proptest::prelude::{any, proptest};

use super::{ErofsRoot, ImageFrames};
use crate::error::Errno;
use crate::fake::{FAKE_BUNDLE_FRAME, FakeMachine};
use crate::fs::memory_fs::Identity;
use crate::fs::metadata::{DeviceNumber, FileKind, SetAttributes};
use crate::fs::overlay::{self, OVERLAY_MAGIC};
use crate::fs::test_support::{BY_ROOT, LARGE, NOW};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, NewNode, RenameMode, WritePosition};
use crate::mem::frames::{FixedRun, FramePool};
use crate::mem::source::{PageError, PageIntent};
use crate::platform::FrameGrant;

const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 9 };

fn image() -> Vec<u8> {
    let plain = Attributes { mtime_s: 77, ..Attributes::root_owned(0o755) };
    let mut tree = Tree::<Vec<u8>>::new(plain);
    let directory = tree.ensure_directory(b"usr/lib", plain).unwrap();
    let large: Vec<u8> = (0..10_000_u32).map(|index| (index / 100) as u8 + 1).collect();
    let file = tree.add(directory, b"large", plain, Content::File(large)).unwrap();
    tree.link(directory, b"again", file).unwrap();
    tree.set_extended(file, [(b"user.a".to_vec(), b"1".to_vec()), (b"security.b".to_vec(), b"22".to_vec())].to_vec());
    tree.add(directory, b"small", plain, Content::File(b"small".to_vec())).unwrap();
    tree.add(directory, b"link", plain, Content::Symlink(b"large".to_vec())).unwrap();
    let null = aegis_image::tree::DeviceNumber { major: 1, minor: 3 };
    tree.add(directory, b"null", plain, Content::CharacterDevice(null)).unwrap();
    for index in 0..300 {
        let name = alloc::format!("file-{index:03}");
        tree.add(directory, name.as_bytes(), plain, Content::File(Vec::new())).unwrap();
    }
    let mut bytes = Vec::new();
    Layout::new(&tree).unwrap().write(&mut bytes).unwrap();
    bytes
}

/// The image in the fake bundle, opened.
fn opened() -> (Arc<FramePool>, InodeRef) {
    let bytes = image();
    let machine = FakeMachine::new();
    let count = machine.set_bundle(&bytes);
    let pool = FramePool::new(machine.clone(), machine, 64 << 20);
    let first = FrameNumber(FAKE_BUNDLE_FRAME);
    pool.add_borrowed(FrameGrant { slot: SLOT_BUNDLE, first, count });
    let frames = ImageFrames { first, pool: pool.clone() };
    let root = ErofsRoot::open(bytes.leak(), Some(frames), DEVICE).unwrap();
    (pool, root)
}

fn find(root: &InodeRef, path: &str) -> InodeRef {
    path.split('/').fold(root.clone(), |here, name| here.lookup(name.as_bytes()).unwrap())
}

fn names(directory: &InodeRef) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    // In small pieces, as `getdents` with a small buffer does.
    loop {
        let mut left = 7;
        let reached = directory.read_directory(cookie, &mut |entry| {
            left -= i32::from(left > 0);
            if left > 0 {
                names.push(entry.name.to_vec());
            }
            left > 0
        });
        match reached.unwrap() {
            same if same == cookie => return names,
            next => cookie = next,
        }
    }
}

fn read(inode: &InodeRef, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = Buffer::with_limit(length);
    inode.read_at(offset, &mut buffer).unwrap();
    buffer.bytes
}

fn write(inode: &InodeRef, offset: u64, bytes: &[u8]) {
    let position = WritePosition::At(offset);
    assert_eq!(inode.write_at(position, &mut &bytes[..], NOW), Ok((offset, bytes.len())));
}

fn over(pool: &Arc<FramePool>, base: &InodeRef) -> InodeRef {
    let identity = Identity { device: DEVICE, magic: OVERLAY_MAGIC };
    overlay::over(pool.clone(), identity, LARGE, base).unwrap()
}

#[test]
fn the_image_is_shown_and_mapped() {
    let (pool, root) = opened();
    let large = find(&root, "usr/lib/large");
    let metadata = large.metadata();
    assert_eq!((metadata.kind, metadata.size_bytes), (FileKind::Regular, 10_000));
    assert_eq!((metadata.link_count, metadata.modified.seconds), (2, 77));
    assert_eq!(read(&large, 9_999, 5), [100]);
    assert_eq!(read(&large, 10_000, 5), []);
    assert_eq!(names(&find(&root, "usr/lib")).len(), 305);
    let page = large.page(2, PageIntent::Read).unwrap();
    assert_eq!(page.valid_bytes, 10_000 - 8192);
    let mut byte = [0];
    pool.bytes().read(page.frame.frame(), 0, &mut byte);
    assert_eq!(byte[0], 82);
    assert!(pool.is_immutable(page.frame.frame()));
    assert_eq!(large.page(3, PageIntent::Read).err(), Some(PageError::BeyondEnd));
    assert_eq!(large.page(0, PageIntent::WriteShared).err(), Some(PageError::Failed));
    let null = find(&root, "usr/lib/null").metadata();
    assert_eq!(null.device_node, DeviceNumber { major: 1, minor: 3 });
    assert_eq!(find(&root, "usr/lib/link").read_link(), Ok(b"large".to_vec()));
    assert_eq!(root.lookup(b"none").err(), Some(Errno::ENOENT));
    assert_eq!(large.lookup(b"none").err(), Some(Errno::ENOTDIR));
    assert_eq!(root.create(b"x", NewNode::Regular, BY_ROOT).err(), Some(Errno::EROFS));
    assert_eq!(root.read_at(0, &mut Buffer::with_limit(1)), Err(Errno::EISDIR));
}

#[test]
fn the_overlay_copies_pages_and_keeps_identity() {
    let (pool, base) = opened();
    let root = over(&pool, &base);
    let large = find(&root, "usr/lib/large");
    let before = large.metadata();
    let image_page = large.page(0, PageIntent::Read).unwrap();
    assert!(pool.is_immutable(image_page.frame.frame()));
    write(&large, 5_000, b"changed");
    drop(large);
    let large = find(&root, "usr/lib/again");
    let after = large.metadata();
    assert_eq!(
        (after.inode_number, after.device, after.size_bytes, after.link_count),
        (before.inode_number, before.device, before.size_bytes, 2)
    );
    assert_eq!(read(&large, 4_999, 9), *b"\x32changed\x33");
    assert!(pool.is_immutable(large.page(0, PageIntent::Read).unwrap().frame.frame()));
    assert!(!pool.is_immutable(large.page(1, PageIntent::Read).unwrap().frame.frame()));
    let private = large.page(0, PageIntent::WriteShared).unwrap();
    assert!(!pool.is_immutable(private.frame.frame()));
    assert_eq!(read(&large, 0, 2), [1, 1]);
    // What is cut off and grown again is zeros, not the image.
    large.truncate(9_000, NOW).unwrap();
    large.truncate(10_000, NOW).unwrap();
    assert_eq!(read(&large, 8_999, 2), [90, 0]);
    let last = large.page(2, PageIntent::Read).unwrap();
    let mut bytes = [9; 2];
    pool.bytes().read(last.frame.frame(), 8_999 - 8_192, &mut bytes);
    assert_eq!(bytes, [90, 0]);
    assert_eq!(read(&find(&base, "usr/lib/large"), 5_000, 2), [51, 51]);
}

/// A node that is made for a look-up beside the one that is known is dropped, and takes nothing with it.
#[test]
fn what_the_image_takes_is_taken_of_the_overlay() {
    let (pool, base) = opened();
    let root = over(&pool, &base);
    let (of_image, before) = (base.statistics(), root.statistics());
    assert!(of_image.block_count > 0 && of_image.free_block_count == 0);
    assert_eq!(before.block_count - before.free_block_count, of_image.block_count);
    write(&root.create(b"new", NewNode::Regular, BY_ROOT).unwrap(), 0, &[1; 4096]);
    let after = root.statistics();
    assert_eq!((after.block_count, after.free_block_count), (before.block_count, before.free_block_count - 1));
}

#[test]
fn what_was_changed_is_found_however_often_it_is_looked_up() {
    let (pool, base) = opened();
    let root = over(&pool, &base);
    find(&root, "usr").create(b"local", NewNode::Directory, BY_ROOT).unwrap();
    for time in 0..4 {
        let (usr, open) = (find(&root, "usr"), find(&root, "usr/lib"));
        assert_eq!(usr.metadata().link_count, 4, "the {time}th time");
        assert!(Arc::ptr_eq(&open, &find(&root, "usr/lib")), "of an inode there is one node");
        assert_eq!(names(&usr), [&b"lib"[..], b"local"]);
    }
}

#[test]
fn whole_pages_lie_in_a_row_until_the_overlay_has_one_of_its_own() {
    let (pool, base) = opened();
    let root = over(&pool, &base);
    for root in [&base, &root] {
        let large = find(root, "usr/lib/large");
        let first = large.resident_page(0).unwrap().frame.frame();
        assert_eq!(large.fixed_run(0..16), Some(FixedRun { first, count: 2 }), "the third page is not whole");
        let second = large.resident_page(1).unwrap().frame.frame();
        assert_eq!(large.fixed_run(1..2), Some(FixedRun { first: second, count: 1 }));
        assert_eq!((large.fixed_run(2..16), large.fixed_run(9..16), large.fixed_run(1..1)), (None, None, None));
        assert_eq!(find(root, "usr/lib/small").fixed_run(0..1), None, "not whole");
    }
    let large = find(&root, "usr/lib/large");
    write(&large, 5000, b"new");
    assert_eq!(large.fixed_run(0..16), None);
    let shorter = find(&over(&pool, &base), "usr/lib/large");
    shorter.truncate(4096, NOW).unwrap();
    assert_eq!(shorter.fixed_run(0..16), None);
    let mut seen = Vec::new();
    shorter.resident_pages(0..16, &mut |index, page| seen.push((index, page.valid_bytes)));
    assert_eq!(seen, [(0, 4096)], "what was cut off is not shown");
}

#[test]
fn the_overlay_hides_and_moves() {
    let (pool, base) = opened();
    let root = over(&pool, &base);
    let directory = find(&root, "usr/lib");
    directory.unlink(b"small", NOW).unwrap();
    directory.unlink(b"file-100", NOW).unwrap();
    directory.create(b"file-100", NewNode::Directory, BY_ROOT).unwrap();
    directory.create(b"new", NewNode::Regular, BY_ROOT).unwrap();
    let listed = names(&directory);
    assert_eq!(listed.len(), 305);
    let count = |name: &[u8]| listed.iter().filter(|other| *other == name).count();
    assert_eq!((count(b"small"), count(b"file-100"), count(b"new")), (0, 1, 1));
    let usr = find(&root, "usr");
    let number = directory.metadata().inode_number;
    usr.rename(b"lib", &root, b"moved", RenameMode::Replace, NOW).unwrap();
    drop(directory);
    assert_eq!(usr.lookup(b"lib").err(), Some(Errno::ENOENT));
    assert_eq!(names(&usr), Vec::<Vec<u8>>::new());
    let moved = find(&root, "moved");
    assert_eq!(moved.metadata().inode_number, number);
    assert_eq!(read(&find(&root, "moved/large"), 0, 1), [1]);
    assert_eq!(moved.lookup(b"small").err(), Some(Errno::ENOENT));
    // A directory in the place of a removed one shows nothing of it.
    root.remove_directory(b"usr", NOW).unwrap();
    root.create(b"usr", NewNode::Directory, BY_ROOT).unwrap();
    assert_eq!(names(&find(&root, "usr")), Vec::<Vec<u8>>::new());
    let attributes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    find(&root, "moved/null").set_attributes(attributes, NOW).unwrap();
    assert_eq!(find(&root, "moved/null").metadata().mode(), 0o020_600);
}

/// Looks at everything that can be reached, without minding errors.
fn explore(inode: &InodeRef, depth: u32, budget: &mut u32) {
    if depth == 0 || *budget == 0 {
        return;
    }
    *budget -= 1;
    let _ = inode.metadata();
    let _ = inode.read_link();
    let _ = inode.read_at(0, &mut Buffer::with_limit(9000));
    let _ = inode.page(1, PageIntent::Read);
    let _ = inode.page(1, PageIntent::WriteShared);
    let _ = inode.write_at(WritePosition::At(4090), &mut &b"0123456789"[..], NOW);
    let mut names = Vec::new();
    let _ = inode.read_directory(0, &mut |entry| {
        names.push(entry.name.to_vec());
        names.len() < 50
    });
    for name in names {
        if let Ok(below) = inode.lookup(&name) {
            explore(&below, depth - 1, budget);
        }
    }
    let _ = inode.unlink(b"large", NOW);
}

proptest! {
    #[test]
    fn damaged_images_never_panic(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..40),
        in_metadata in any::<bool>(),
    ) {
        let mut bytes = image();
        // The superblock's checksum covers its first block only; switching the feature off lets damage
        // there through.
        bytes[1024 + 8] &= !1;
        let end = if in_metadata { 16 * 1024 } else { bytes.len() };
        for (index, value) in damage {
            let place = index.index(end.min(bytes.len()));
            bytes[place] = value;
        }
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine, 64 << 20);
        if let Ok(root) = ErofsRoot::open(bytes.leak(), None, DEVICE) {
            explore(&root, 5, &mut 400);
            explore(&over(&pool, &root), 5, &mut 400);
        }
    }
}

#[test]
fn extended_attributes_are_shown_and_changed_in_memory() {
    use crate::fs::extended_attribute::AttributeChange::{Any, Create};
    let (pool, root) = opened();
    let file = find(&root, "usr/lib/large");
    assert_eq!(file.extended_attribute_names(), Ok(b"user.a\0security.b\0".to_vec()));
    assert_eq!(
        (file.extended_attribute(b"security.b"), file.extended_attribute(b"user.")),
        (Ok(b"22".to_vec()), Err(Errno::ENODATA))
    );
    assert_eq!(file.set_extended_attribute(b"user.a", None, Any, NOW), Err(Errno::EOPNOTSUPP));
    let over: InodeRef = overlay::over(pool, Identity { device: DEVICE, magic: OVERLAY_MAGIC }, LARGE, &root).unwrap();
    let (file, again) = (find(&over, "usr/lib/large"), find(&over, "usr/lib/again"));
    assert_eq!(file.extended_attribute(b"user.a"), Ok(b"1".to_vec()));
    assert_eq!(file.set_extended_attribute(b"user.a", Some(b"x"), Create, NOW), Err(Errno::EEXIST));
    assert_eq!(file.set_extended_attribute(b"user.c", Some(b"3"), Create, NOW), Ok(()));
    assert_eq!(file.set_extended_attribute(b"user.a", None, Any, NOW), Ok(()));
    assert_eq!(again.extended_attribute_names(), Ok(b"security.b\0user.c\0".to_vec()), "hard links stay");
    assert_eq!(find(&over, "usr/lib/small").extended_attribute(b"user.a"), Err(Errno::ENODATA));
    assert_eq!(find(&over, "usr/lib/small").extended_attribute_names(), Ok(Vec::new()));
}
