//! No bytes, however damaged, make the EROFS reader panic, overflow, loop or read outside the image (INV-I1, INV-I3).
//!
//! Images are a valid one with random damage (its superblock's checksum switched off, otherwise nearly all damage would
//! be caught there), its truncations, and plain noise behind a valid superblock. Every public operation is tried on
//! what can be reached and on inode numbers that cannot. Run with `PROPTEST_CASES=100000` for a long hunt.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use aegis_image::erofs::SUPER_OFFSET;
use aegis_image::erofs::check::check;
use aegis_image::erofs::read::{Damage, Image, InodeNumber, ReadError};
use aegis_image::erofs::write::Layout;
use aegis_image::tree::{Attributes, Content, LastLink, Tree};
use proptest::prelude::*;

fn valid_image() -> Vec<u8> {
    let attributes = Attributes::root_owned(0o755);
    let mut tree = Tree::new(attributes);
    let large = tree.ensure_directory(b"usr/large", attributes).unwrap();
    for index in 0..300 {
        let name = format!("{index}-file-with-a-longer-name");
        tree.add(large, name.as_bytes(), attributes, Content::File(vec![7; index])).unwrap();
    }
    let root = tree.root();
    tree.add(root, b"lib", attributes, Content::Symlink(b"usr/large".to_vec())).unwrap();
    tree.add(root, b"long", attributes, Content::Symlink(vec![b'x'; 4090])).unwrap();
    let fifo = tree.add(root, b"fifo", attributes, Content::Fifo).unwrap();
    tree.set_extended(fifo, vec![(b"user.a".to_vec(), vec![1; 10]), (b"security.capability".to_vec(), vec![2; 20])]);
    tree.set_extended(large, vec![(b"trusted.long".to_vec(), vec![3; 9000])]);
    let mut bytes = Vec::new();
    Layout::new(&tree).unwrap().write(&mut bytes).unwrap();
    bytes[SUPER_OFFSET + 8] &= !1;
    bytes
}

/// Tries everything; a panic is the failure.
fn exercise(bytes: &[u8]) {
    let Ok(image) = Image::open(bytes) else {
        return;
    };
    let _ = check(&image);
    for path in [&b"/lib/7-file-with-a-longer-name"[..], b"long", b"../usr/./fifo", b"fifo/x"] {
        let _ = image.resolve(path, LastLink::Follow);
    }
    let slot_count = bytes.len() as u64 / 32;
    let odd = [u64::MAX, u64::MAX / 32, 1 << 58, slot_count];
    let mut buffer = [0; 300];
    for number in (0..slot_count).step_by(2).chain(odd) {
        let Ok(inode) = image.inode(InodeNumber(number)) else {
            continue;
        };
        for offset in [0, 1, 4090, inode.size_bytes.saturating_sub(5), u64::MAX] {
            let count = image.read_at(&inode, offset, &mut buffer);
            let left = inode.size_bytes.saturating_sub(offset);
            assert_eq!(count as u64, left.min(buffer.len() as u64));
        }
        if let Some(extent) = image.extent(&inode) {
            let end = extent.offset_bytes + extent.length_bytes;
            assert!(end.next_multiple_of(4096) <= bytes.len() as u64);
            assert_eq!(extent.offset_bytes % 4096, 0);
        }
        let mut bytes_left = bytes.len();
        for attribute in image.extended(&inode) {
            let Ok(attribute) = attribute else { break };
            assert!(attribute.name()[1].len() < 256 && !attribute.name()[1].contains(&0));
            assert!(attribute.is_named(&attribute.name().concat()));
            // Each has at least a word of its own in the image: shared ones a number, the others a header.
            bytes_left = bytes_left.checked_sub(4).unwrap();
        }
        if let Ok(target) = image.read_link(&inode) {
            assert!((1..4096).contains(&target.len()));
        }
        for position in [0, 13, 4095, 4096, u64::MAX] {
            let Ok(entries) = image.entries(&inode, position) else {
                break;
            };
            let (mut last, mut listed) = (0, Vec::new());
            for entry in entries.take(2 * bytes.len()) {
                let Ok(entry) = entry else { break };
                assert!(entry.next_position > last, "positions ascend");
                last = entry.next_position;
                assert!((1..256).contains(&entry.name.len()));
                assert!(!entry.name.iter().any(|byte| matches!(byte, b'/' | 0)));
                listed.push(entry);
            }
            let mut visited = Vec::new();
            let _ = image.visit(&inode, position, |entry| {
                visited.push(*entry);
                visited.len() < 2 * bytes.len()
            });
            assert_eq!(visited, listed);
        }
        let _ = image.lookup(&inode, b"150-file-with-a-longer-name");
    }
}

#[test]
fn the_valid_image_is_valid() {
    let bytes = valid_image();
    assert!(check(&Image::open(&bytes).unwrap()).is_ok());
    exercise(&bytes);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = valid_image();
    for length in (0..bytes.len()).step_by(509) {
        assert!(Image::open(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_directory_that_contains_itself_ends_the_check() {
    let mut bytes = valid_image();
    let image = Image::open(&bytes).unwrap();
    let usr = image.resolve(b"usr", LastLink::Keep).unwrap();
    let root = image.root().0.to_le_bytes();
    // The last entry of /usr is `large`; make it lead back to the root.
    let start = usr.number.0 as usize * 32 + 64;
    bytes[start + 24..start + 32].copy_from_slice(&root);
    let result = check(&Image::open(&bytes).unwrap());
    assert!(format!("{result:?}").contains("SharedDirectories"), "{result:?}");
    exercise(&bytes);
}

#[test]
fn inline_data_must_not_cross_a_block() {
    let mut bytes = valid_image();
    let image = Image::open(&bytes).unwrap();
    let lib = image.resolve(b"lib", LastLink::Keep).unwrap();
    // An extended inode's size. It would still lie inside the image.
    let size = lib.number.0 as usize * 32 + 8;
    bytes[size..size + 8].copy_from_slice(&4090_u64.to_le_bytes());
    let inode = Image::open(&bytes).unwrap().inode(lib.number);
    assert_eq!(inode, Err(ReadError::Corrupt(Damage::InlineData)));
}

#[test]
fn a_last_page_that_is_cut_off_can_be_read_but_not_mapped() {
    let mut bytes = valid_image();
    let path = b"/lib/299-file-with-a-longer-name";
    let find = |bytes: &[u8]| {
        let image = Image::open(bytes).unwrap();
        let inode = image.resolve(path, LastLink::Follow).unwrap();
        (image.extent(&inode), image.read_at(&inode, 0, &mut [0; 400]))
    };
    let (extent, count) = find(&bytes);
    let extent = extent.unwrap();
    assert_eq!(count, 299);
    let end = (extent.offset_bytes + extent.length_bytes) as usize;
    // The superblock's number of blocks must not claim the page either.
    let whole_blocks = (end as u32 / 4096).to_le_bytes();
    bytes[SUPER_OFFSET + 36..SUPER_OFFSET + 40].copy_from_slice(&whole_blocks);
    bytes.truncate(end);
    assert_eq!(find(&bytes), (None, 299));
}

/// From where, to where, how many bytes.
fn moves() -> impl Strategy<Value = Vec<(prop::sample::Index, prop::sample::Index, usize)>> {
    let place = any::<prop::sample::Index>;
    prop::collection::vec((place(), place(), 1_usize..64), 1..20)
}

proptest! {
    #[test]
    fn damaged_bytes(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
                     span in prop::sample::select(vec![2048_usize, 16 * 1024, 64 * 1024, usize::MAX])) {
        let mut bytes = valid_image();
        let span = span.min(bytes.len() - SUPER_OFFSET);
        for (place, value) in damage {
            // The magic stays, otherwise there is nothing to test.
            let offset = SUPER_OFFSET + 4 + place.index(span - 4);
            bytes[offset] = value;
        }
        exercise(&bytes);
    }

    #[test]
    fn copied_pieces(moves in moves()) {
        let mut bytes = valid_image();
        for (from, to, length) in moves {
            let from = from.index(bytes.len() - 64);
            let to = 4096 + to.index(bytes.len() - 4096 - 64);
            bytes.copy_within(from..from + length, to);
        }
        exercise(&bytes);
    }

    #[test]
    fn noise(noise in prop::collection::vec(any::<u8>(), 8192..20_000)) {
        let mut bytes = noise;
        let valid = valid_image();
        bytes[SUPER_OFFSET..SUPER_OFFSET + 128].copy_from_slice(&valid[SUPER_OFFSET..SUPER_OFFSET + 128]);
        bytes[SUPER_OFFSET + 36..SUPER_OFFSET + 40].copy_from_slice(&1_u32.to_le_bytes());
        // A root directory of noise: extended, flat plain, from block 1.
        let root = usize::from(u16::from_le_bytes([bytes[SUPER_OFFSET + 14], bytes[SUPER_OFFSET + 15]])) * 32;
        bytes[root..root + 64].fill(0);
        bytes[root] = 1;
        bytes[root + 4..root + 6].copy_from_slice(&0o040_755_u16.to_le_bytes());
        bytes[root + 8..root + 10].copy_from_slice(&4096_u16.to_le_bytes());
        bytes[root + 16] = 1;
        exercise(&bytes);
    }
}
