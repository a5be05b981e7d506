//! A packed directory is what `ls -lR` shows of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use aegis_image::tree::LastLink;

use super::{Copier, device_number, kernel_mounts, pack_dir};
use crate::root::pack::scratch::{Scratch, contents, link};
use crate::root::pack::{IMPLIED_DIRECTORY, Root, Warning};

#[test]
fn takes_over_everything() {
    let scratch = Scratch::new();
    let file = scratch.write("a/b/file", b"text");
    fs::hard_link(&file, scratch.path("again")).unwrap();
    symlink("nowhere/at/all", scratch.path("a/link")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4711)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(scratch.path("socket")).unwrap();
    let packed = pack_dir(&scratch.path("")).unwrap();
    drop(socket);
    let tree = &packed.tree;
    assert_eq!(contents(tree, "/a/b/file").unwrap(), b"text");
    assert_eq!(link(tree, "/a/link").unwrap(), b"nowhere/at/all");
    let node = tree.resolve(b"/a/b/file", LastLink::Keep).unwrap();
    assert_eq!(tree.resolve(b"/again", LastLink::Keep), Ok(node), "one file with two names");
    let metadata = fs::metadata(&file).unwrap();
    let attributes = tree.node(node).attributes;
    assert_eq!(attributes.permissions, 0o4711);
    assert_eq!((attributes.uid, attributes.gid), (metadata.uid(), metadata.gid()));
    assert_eq!(attributes.mtime_s, metadata.mtime());
    assert!(tree.resolve(b"/socket", LastLink::Keep).is_ok());
    assert_eq!(packed.warnings, []);
}

#[test]
fn what_cannot_be_read_is_named() {
    let scratch = Scratch::new();
    let file = scratch.write("secret", b"text");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&file).is_ok() {
        println!("skipped: this user can read everything");
        return;
    }
    let packed = pack_dir(&scratch.path("")).unwrap();
    assert_eq!(packed.warnings, [Warning::Unreadable(file)]);
    assert!(packed.tree.resolve(b"/secret", LastLink::Keep).is_err());
}

#[test]
fn an_overlay_follows_links_to_directories() {
    let scratch = Scratch::new();
    scratch.write("root/usr/lib/old", b"old");
    symlink("usr/lib", scratch.path("root/lib")).unwrap();
    scratch.write("overlay/lib/new", b"new");
    scratch.write("overlay/usr/lib/old", b"newer");
    let mut tree = pack_dir(&scratch.path("root")).unwrap().tree;
    let mut copier = Copier::new();
    copier.copy_below(&mut tree, b"/", &scratch.path("overlay"), &mut |_, _| {}).unwrap();
    assert_eq!(link(&tree, "/lib").unwrap(), b"usr/lib");
    assert_eq!(contents(&tree, "/usr/lib/new").unwrap(), b"new");
    assert_eq!(contents(&tree, "/lib/old").unwrap(), b"newer");
}

#[test]
fn kernel_file_systems_stay_empty() {
    let text = b"22 1 0:21 / /a\\040b rw,relatime shared:5 master:1 - proc proc rw\n\
        23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 1 0:2 / /s rw - sysfs sysfs rw\nshort line\n";
    let mounts = kernel_mounts(text);
    assert_eq!(mounts, [PathBuf::from("/a b"), PathBuf::from("/s")].into());
    let scratch = Scratch::new();
    scratch.write("p/file", b"x");
    scratch.write("q/file", b"x");
    let mut copier = Copier::new();
    copier.kernel_mounts.insert(scratch.path("p"));
    let mut tree = Root::new(IMPLIED_DIRECTORY);
    copier.copy_below(&mut tree, b"/", &scratch.path(""), &mut |_, _| {}).unwrap();
    assert!(tree.resolve(b"/p", LastLink::Keep).is_ok());
    assert!(tree.resolve(b"/p/file", LastLink::Keep).is_err());
    assert!(tree.resolve(b"/q/file", LastLink::Keep).is_ok());
}

#[test]
fn device_numbers_are_split() {
    let number = device_number(0x0000_0123_4567_89ab);
    assert_eq!((number.major, number.minor), (0x789, 0x1234_56ab));
    assert_eq!(device_number(0x103).major, 1);
    assert_eq!(device_number(0x103).minor, 3);
}

#[test]
fn a_missing_directory_is_an_error() {
    let scratch = Scratch::new();
    assert!(pack_dir(&scratch.path("none")).is_err());
    let file = scratch.write("file", b"");
    assert!(pack_dir(&file).is_err());
}
