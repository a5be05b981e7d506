//! A packed archive is what `tar -x` would make of it; damage is refused, and no member gets out of the root.

use std::io::Write;

use aegis_image::tree::{Content, LastLink};
use tar::{Builder, EntryType, Header};

use super::{is_header, pack_tar};
use crate::root::pack::scratch::{Scratch, contents, link};
use crate::root::pack::{PackError, Packed};

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o640);
    header.set_uid(12);
    header.set_gid(34);
    header.set_mtime(1_700_000_000);
    header
}

fn file(builder: &mut Builder<Vec<u8>>, path: &str, data: &[u8]) {
    let mut header = header(EntryType::Regular, data.len() as u64);
    builder.append_data(&mut header, path, data).unwrap();
}

fn linked(builder: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, target: &str) {
    builder.append_link(&mut header(kind, 0), path, target).unwrap();
}

/// The builder refuses such paths, so write them into the header.
fn raw_path(builder: &mut Builder<Vec<u8>>, path: &[u8], data: &[u8]) {
    let mut header = header(EntryType::Regular, data.len() as u64);
    header.as_mut_bytes()[..path.len()].copy_from_slice(path);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

fn sample() -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut directory = header(EntryType::Directory, 0);
    builder.append_data(&mut directory, "./", &[][..]).unwrap();
    builder.append_data(&mut directory, "usr/lib", &[][..]).unwrap();
    linked(&mut builder, EntryType::Symlink, "lib", "usr/lib");
    file(&mut builder, "lib/through-link", b"linked");
    file(&mut builder, "twice", b"first");
    file(&mut builder, "twice", b"second, longer");
    file(&mut builder, &format!("deep/{}/file", "n".repeat(180)), &[7; 3000]);
    linked(&mut builder, EntryType::Link, "hard", "twice");
    linked(&mut builder, EntryType::Link, "broken", "none");
    builder.append_data(&mut directory, "lib", &[][..]).unwrap();
    raw_path(&mut builder, b"../../escaped", b"inside");
    raw_path(&mut builder, b"/absolute", b"inside too");
    let mut fifo = header(EntryType::Fifo, 0);
    builder.append_data(&mut fifo, "fifo", &[][..]).unwrap();
    let mut device = header(EntryType::Char, 0);
    device.set_device_major(1).unwrap();
    device.set_device_minor(3).unwrap();
    builder.append_data(&mut device, "null", &[][..]).unwrap();
    builder.into_inner().unwrap()
}

fn pack(bytes: &[u8]) -> Result<Packed, PackError> {
    let scratch = Scratch::new();
    // The file is gone when contents are read: it stays open.
    pack_tar(&scratch.write("archive", bytes))
}

fn check_sample(packed: &Packed) {
    let tree = &packed.tree;
    assert_eq!(link(tree, "/lib").unwrap(), b"usr/lib", "a link to a directory stays");
    assert_eq!(contents(tree, "/usr/lib/through-link").unwrap(), b"linked");
    assert_eq!(contents(tree, "/twice").unwrap(), b"second, longer");
    assert_eq!(contents(tree, format!("/deep/{}/file", "n".repeat(180))).unwrap(), [7; 3000]);
    let (hard, twice) = (tree.resolve(b"hard", LastLink::Keep), tree.resolve(b"twice", LastLink::Keep));
    assert_eq!(hard, twice);
    assert_eq!(contents(tree, "/escaped").unwrap(), b"inside");
    assert_eq!(contents(tree, "/absolute").unwrap(), b"inside too");
    let null = tree.resolve(b"null", LastLink::Keep).unwrap();
    let Content::CharacterDevice(device) = tree.node(null).content() else { panic!("no device") };
    assert_eq!((device.major, device.minor), (1, 3));
    let attributes = tree.node(null).attributes;
    assert_eq!((attributes.permissions, attributes.uid, attributes.gid), (0o640, 12, 34));
    assert_eq!(attributes.mtime_s, 1_700_000_000);
    assert_eq!(tree.node(tree.root()).attributes, attributes);
    let warnings: Vec<String> = packed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["broken: a hard link to nothing, left out"]);
}

#[test]
fn plain_and_compressed_archives_are_the_same() {
    let bytes = sample();
    assert!(is_header(&bytes));
    check_sample(&pack(&bytes).unwrap());
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).unwrap();
    check_sample(&pack(&encoder.finish().unwrap()).unwrap());
}

#[test]
fn damage_is_refused() {
    let bytes = sample();
    let mut builder = Builder::new(Vec::new());
    file(&mut builder, "file", &[1; 5000]);
    let single = builder.into_inner().unwrap();
    for bad in [&single[..3000], &single[..600], &single[..100], b"", &[0; 1024], b"\x1f\x8b\x08bad"] {
        assert!(matches!(pack(bad), Err(PackError::Archive { .. })), "{} bytes", bad.len());
    }
    let mut damaged = bytes;
    damaged[512 + 20] ^= 1;
    assert!(matches!(pack(&damaged), Err(PackError::Archive { .. })));
}

#[test]
fn a_header_is_told_by_its_checksum() {
    let mut bytes = sample();
    assert!(!is_header(&bytes[..511]));
    assert!(!is_header(&[0; 512]));
    bytes[3] ^= 1;
    assert!(!is_header(&bytes));
}
