//! An image that is taken apart and written again is the same image.

use std::fs;

use aegis_image::erofs::write::Layout;
use aegis_image::tree::{Attributes, Content, DeviceNumber};

use super::pack_image;
use crate::root::pack::scratch::{Scratch, contents};
use crate::root::pack::{HostData, Root};

/// An image with a node of every kind.
pub(crate) fn small_image() -> Vec<u8> {
    let attributes = Attributes { permissions: 0o751, uid: 7, gid: 70_000, mtime_s: -5, mtime_ns: 999 };
    let mut tree = Root::new(attributes);
    let root = tree.root();
    let directory = tree.ensure_directory(b"a/b", attributes).unwrap();
    let data = HostData::Bytes(b"text".to_vec());
    let file = tree.add(directory, b"file", attributes, Content::File(data)).unwrap();
    tree.link(root, b"again", file).unwrap();
    let empty = Content::File(HostData::Bytes(Vec::new()));
    tree.add(root, b"empty", attributes, empty).unwrap();
    tree.add(root, b"link", attributes, Content::Symlink(b"a/b".to_vec())).unwrap();
    let device = DeviceNumber { major: 4000, minor: 0xf_1234 };
    tree.add(root, b"char", attributes, Content::CharacterDevice(device)).unwrap();
    tree.add(root, b"block", attributes, Content::BlockDevice(device)).unwrap();
    tree.add(root, b"fifo", attributes, Content::Fifo).unwrap();
    tree.add(root, b"socket", attributes, Content::Socket).unwrap();
    image_of(&tree)
}

fn image_of(tree: &Root) -> Vec<u8> {
    let mut bytes = Vec::new();
    Layout::new(tree).unwrap().write(&mut bytes).unwrap();
    bytes
}

#[test]
fn taken_apart_and_written_again() {
    let scratch = Scratch::new();
    let bytes = small_image();
    let path = scratch.write("image", &bytes);
    let packed = pack_image(&path).unwrap();
    assert_eq!(image_of(&packed.tree), bytes);
    assert_eq!(contents(&packed.tree, "/link/file").unwrap(), b"text");
    fs::write(&path, b"no image").unwrap();
    assert!(pack_image(&path).is_err());
}
