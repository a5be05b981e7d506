//! Linux and this crate agree about EROFS: images of the writer pass `fsck.erofs` and come out of it unchanged, and the
//! reader reads images of `mkfs.erofs`. A test says so and passes where erofs-utils is not installed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_image::erofs::check::check;
use aegis_image::erofs::read::{Image, Inode};
use aegis_image::erofs::write::Layout;
use aegis_image::erofs::{FileKind, SUPER_OFFSET};
use aegis_image::tree::{Attributes, Content, DeviceNumber, LastLink, Tree};

/// A directory of this test that is empty at first and removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has_tool(tool: &str) -> bool {
    let found = Command::new(tool).arg("-V").output().is_ok();
    if !found {
        println!("skipped: {tool} (package erofs-utils) is not installed");
    }
    found
}

fn attributes(permissions: u16) -> Attributes {
    Attributes { permissions, uid: 0, gid: 0, mtime_s: 1_700_000_000, mtime_ns: 123_456_789 }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 4096) as u8).collect()
}

/// Every shape that the layout treats differently: sizes around a block, inline and outlined links, large directories.
fn sample() -> Tree<Vec<u8>> {
    let mut tree = Tree::new(attributes(0o755));
    let root = tree.root();
    for size in [0, 1, 4095, 4096, 4097, 300_000] {
        let name = format!("file{size}");
        tree.add(root, name.as_bytes(), attributes(0o644), Content::File(pattern(size))).unwrap();
    }
    let file = tree.lookup(root, b"file4097").unwrap();
    let deep = tree.ensure_directory(b"a/b/c/d", attributes(0o711)).unwrap();
    tree.link(deep, b"hard", file).unwrap();
    tree.add(deep, b"link", attributes(0o777), Content::Symlink(b"../../x".to_vec())).unwrap();
    let long_target = vec![b't'; 4095];
    tree.add(deep, b"long", attributes(0o777), Content::Symlink(long_target)).unwrap();
    tree.add(deep, &[b'n'; 255], attributes(0o4755), Content::File(b"x".to_vec())).unwrap();
    tree.add(deep, b"-before-dot", attributes(0o600), Content::File(b"y".to_vec())).unwrap();
    add_many(&mut tree);
    add_special(&mut tree);
    tree
}

/// A directory of several blocks.
fn add_many(tree: &mut Tree<Vec<u8>>) {
    let many = tree.ensure_directory(b"many", attributes(0o1777)).unwrap();
    for index in 0..2000 {
        let name = format!("entry-{index}");
        tree.add(many, name.as_bytes(), attributes(0o644), Content::File(Vec::new())).unwrap();
    }
}

/// Everything that has no data.
fn add_special(tree: &mut Tree<Vec<u8>>) {
    let root = tree.root();
    let device = DeviceNumber { major: 259, minor: 70_000 };
    tree.add(root, b"block", attributes(0o660), Content::BlockDevice(device)).unwrap();
    let null = DeviceNumber { major: 1, minor: 3 };
    tree.add(root, b"null", attributes(0o666), Content::CharacterDevice(null)).unwrap();
    tree.add(root, b"fifo", attributes(0o600), Content::Fifo).unwrap();
    tree.add(root, b"socket", attributes(0o600), Content::Socket).unwrap();
}

fn image_of(tree: &Tree<Vec<u8>>) -> Vec<u8> {
    let layout = Layout::new(tree).unwrap();
    let mut bytes = Vec::new();
    layout.write(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, layout.size_bytes());
    bytes
}

fn contents(image: &Image<'_>, inode: &Inode) -> Vec<u8> {
    let mut buffer = vec![0; inode.size_bytes as usize + 10];
    let count = image.read_at(inode, 0, &mut buffer);
    buffer.truncate(count);
    buffer
}

#[test]
fn linux_accepts_what_the_writer_wrote() {
    let scratch = Scratch::new("written");
    let path = scratch.0.join("image");
    fs::write(&path, image_of(&sample())).unwrap();
    if !has_tool("fsck.erofs") {
        return;
    }
    let out = scratch.0.join("out");
    let mut command = Command::new("fsck.erofs");
    // Extracting makes device nodes, which only root may.
    let is_root = fs::metadata("/proc/self").is_ok_and(|status| status.uid() == 0);
    if is_root {
        command.arg(format!("--extract={}", out.display()));
    } else {
        command.arg("--extract");
    }
    let output = command.arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    if !is_root {
        println!("skipped: comparing extracted files needs root");
        return;
    }
    for size in [0, 1, 4095, 4096, 4097, 300_000] {
        assert_eq!(fs::read(out.join(format!("file{size}"))).unwrap(), pattern(size));
    }
    let deep = out.join("a/b/c/d");
    assert_eq!(fs::read_link(deep.join("link")).unwrap(), Path::new("../../x"));
    assert_eq!(fs::read_link(deep.join("long")).unwrap().as_os_str().len(), 4095);
    assert_eq!(fs::read_dir(out.join("many")).unwrap().count(), 2000);
    assert_eq!(fs::read(deep.join("hard")).unwrap(), pattern(4097));
}

#[test]
fn linux_tools_see_the_metadata() {
    let scratch = Scratch::new("dumped");
    let path = scratch.0.join("image");
    fs::write(&path, image_of(&sample())).unwrap();
    if !has_tool("dump.erofs") {
        return;
    }
    let output = Command::new("dump.erofs").arg("--path=/file4097").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    for part in ["Size: 4097", "Links: 2", "Access: 0644", "2023-11-14"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(text.contains("Layout: 0"), "regular files are flat plain: {text}");
}

#[test]
fn reads_what_mkfs_wrote() {
    if !has_tool("mkfs.erofs") {
        return;
    }
    let scratch = Scratch::new("mkfs");
    let source = scratch.0.join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    let mut expected = BTreeMap::new();
    for size in [0_usize, 5, 4095, 4096, 4097, 12_345, 200_000] {
        let path = format!("dir/file{size}");
        fs::write(source.join(&path), pattern(size)).unwrap();
        expected.insert(path, pattern(size));
    }
    for index in 0..1000 {
        fs::write(source.join(format!("dir/sub/a-longer-name-{index}")), b"").unwrap();
    }
    symlink("dir/file5", source.join("link")).unwrap();
    fs::hard_link(source.join("dir/file5"), source.join("hard")).unwrap();
    fs::set_permissions(source.join("dir"), fs::Permissions::from_mode(0o2750)).unwrap();
    for options in [&["-Eforce-inode-compact"][..], &["-Eforce-inode-extended"], &[]] {
        let path = scratch.0.join("image");
        let output = Command::new("mkfs.erofs").args(options).arg(&path).arg(&source).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = fs::read(&path).unwrap();
        let image = Image::open(&bytes).unwrap();
        let summary = check(&image).unwrap();
        assert_eq!(summary.directory_count, 3);
        assert_eq!(summary.name_count, 1 + 7 + 1 + 1000 + 2);
        for (path, data) in &expected {
            let inode = image.resolve(path.as_bytes(), LastLink::Keep).unwrap();
            assert_eq!(&contents(&image, &inode), data, "{path} {options:?}");
        }
        let linked = image.resolve(b"/link", LastLink::Follow).unwrap();
        assert_eq!(contents(&image, &linked), pattern(5));
        assert_eq!(linked.link_count, 2);
        let directory = image.resolve(b"dir", LastLink::Keep).unwrap();
        assert_eq!(directory.mode(), 0o042_750);
        assert_eq!(directory.uid, fs::metadata(source.join("dir")).unwrap().uid());
        if options == ["-Eforce-inode-extended"] {
            let time = fs::metadata(source.join("dir")).unwrap().mtime();
            assert_eq!(directory.mtime_s, time);
        }
    }
}

#[test]
fn refuses_what_it_does_not_have() {
    if !has_tool("mkfs.erofs") {
        return;
    }
    let scratch = Scratch::new("refused");
    let source = scratch.0.join("source");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("file"), vec![0; 100_000]).unwrap();
    for options in ["-zlz4hc", "--chunksize=4096"] {
        let path = scratch.0.join("image");
        let output = Command::new("mkfs.erofs").arg(options).arg(&path).arg(&source).output();
        assert!(output.unwrap().status.success(), "{options}");
        let bytes = fs::read(&path).unwrap();
        let result = Image::open(&bytes).and_then(|image| check(&image));
        assert!(format!("{result:?}").contains("Unsupported"), "{options}: {result:?}");
    }
}

#[test]
fn own_image_reads_back() {
    let tree = sample();
    let bytes = image_of(&tree);
    assert_eq!(bytes, image_of(&tree.clone()), "equal trees give equal images");
    let image = Image::open(&bytes).unwrap();
    let summary = check(&image).unwrap();
    assert_eq!(summary.directory_count, 6);
    for size in [1, 4095, 4096, 4097, 300_000] {
        let path = format!("/file{size}");
        let inode = image.resolve(path.as_bytes(), LastLink::Keep).unwrap();
        let extent = image.extent(&inode).unwrap();
        assert_eq!(extent.offset_bytes % 4096, 0);
        let start = extent.offset_bytes as usize;
        assert_eq!(bytes[start..start + size], pattern(size));
        let page_end = (start + size).next_multiple_of(4096);
        assert!(bytes[start + size..page_end].iter().all(|byte| *byte == 0));
    }
    let empty = image.resolve(b"/file0", LastLink::Keep).unwrap();
    assert_eq!(image.extent(&empty), None);
    let block = image.resolve(b"/block", LastLink::Keep).unwrap();
    assert_eq!((block.kind, block.device), (FileKind::BlockDevice, 0x1111_0370));
    let hard = image.resolve(b"/a/b/c/d/hard", LastLink::Keep).unwrap();
    assert_eq!(hard, image.resolve(b"/file4097", LastLink::Keep).unwrap());
    assert_eq!(hard.link_count, 2);
    let long = image.resolve(b"/a/b/c/d/long", LastLink::Keep).unwrap();
    assert_eq!(image.read_link(&long).unwrap().len(), 4095);
    assert_eq!(image.resolve(b"/", LastLink::Keep).unwrap().link_count, 4);
}

#[test]
fn directories_can_be_read_in_pieces() {
    let bytes = image_of(&sample());
    let image = Image::open(&bytes).unwrap();
    let many = image.resolve(b"/many", LastLink::Keep).unwrap();
    let all: Vec<_> = image.entries(&many, 0).unwrap().map(Result::unwrap).collect();
    assert_eq!(all.len(), 2002);
    let mut position = 0;
    for expected in &all {
        let entry = image.entries(&many, position).unwrap().next().unwrap().unwrap();
        assert_eq!(entry, *expected);
        position = entry.next_position;
        let found = image.lookup(&many, entry.name).unwrap().unwrap();
        assert_eq!(found, entry);
    }
    assert!(image.entries(&many, position).unwrap().next().is_none());
    assert!(image.entries(&many, u64::MAX).unwrap().next().is_none());
    for absent in [&b""[..], b"entry", b"entry-2000", b"zzz", b"-"] {
        assert_eq!(image.lookup(&many, absent).unwrap(), None);
    }
}

#[test]
fn a_broken_checksum_is_noticed() {
    let mut bytes = image_of(&sample());
    bytes[SUPER_OFFSET + 70] ^= 1;
    assert!(format!("{:?}", Image::open(&bytes)).contains("Checksum"));
}
