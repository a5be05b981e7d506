//! Root images taken apart: an EROFS image as a tree, so that files can be added to it.
//!
//! An image that is used as it is needs none of this. File contents stay in the image file where they are contiguous;
//! hard links are found by inode number.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use aegis_image::erofs::FileKind;
use aegis_image::erofs::read::{Image, Inode, InodeNumber, ReadError};
use aegis_image::tree::{Attributes, Content, DeviceNumber, NodeId};

use crate::root::pack::{HostData, PackError, Packed, Root, check_image};

/// Reads an image, checks it whole, and makes a tree of it.
///
/// # Errors
/// `Io`, `Image`; `Tree` if there are too many files.
pub(crate) fn pack_image(path: &Path) -> Result<Packed, PackError> {
    let bytes = check_image(path)?;
    let file = Arc::new(File::open(path).map_err(PackError::io(path))?);
    let damaged = |error: ReadError| PackError::Image { path: path.to_path_buf(), error };
    let image = Image::open(&bytes).map_err(damaged)?;
    let root = image.inode(image.root()).map_err(damaged)?;
    let mut tree = Root::new(attributes_of(&root));
    let mut linked: HashMap<InodeNumber, NodeId> = HashMap::new();
    // The check has found every directory to have one name, so this ends.
    let mut pending = vec![(root, tree.root())];
    while let Some((directory, node)) = pending.pop() {
        for entry in image.entries(&directory, 0).map_err(damaged)? {
            let entry = entry.map_err(damaged)?;
            if matches!(entry.name, b"." | b"..") {
                continue;
            }
            if let Some(known) = linked.get(&entry.number) {
                tree.link(node, entry.name, *known).map_err(PackError::tree(path))?;
                continue;
            }
            let inode = image.inode(entry.number).map_err(damaged)?;
            let content = content_of(&image, &inode, &file).map_err(damaged)?;
            let added = tree.add(node, entry.name, attributes_of(&inode), content).map_err(PackError::tree(path))?;
            if inode.kind == FileKind::Directory {
                pending.push((inode, added));
            } else {
                linked.insert(entry.number, added);
            }
        }
    }
    Ok(Packed { tree, warnings: Vec::new() })
}

fn content_of(image: &Image<'_>, inode: &Inode, file: &Arc<File>) -> Result<Content<HostData>, ReadError> {
    // Linux's 32-bit form: 12 bits of major between the low 8 and the high 12 bits of minor.
    let device = DeviceNumber {
        major: (inode.device >> 8) & 0xfff,
        minor: (inode.device & 0xff) | ((inode.device >> 12) & 0xf_ff00),
    };
    Ok(match inode.kind {
        FileKind::Directory => Content::empty_directory(),
        FileKind::Symlink => Content::Symlink(image.read_link(inode)?.to_vec()),
        FileKind::CharacterDevice => Content::CharacterDevice(device),
        FileKind::BlockDevice => Content::BlockDevice(device),
        FileKind::Fifo => Content::Fifo,
        FileKind::Socket => Content::Socket,
        FileKind::Regular => Content::File(match image.extent(inode) {
            Some(extent) => HostData::Piece {
                file: Arc::clone(file),
                offset_bytes: extent.offset_bytes,
                length_bytes: extent.length_bytes,
            },
            None => {
                let mut bytes = vec![0; inode.size_bytes as usize];
                image.read_at(inode, 0, &mut bytes);
                HostData::Bytes(bytes)
            }
        }),
    })
}

fn attributes_of(inode: &Inode) -> Attributes {
    Attributes {
        permissions: inode.permissions,
        uid: inode.uid,
        gid: inode.gid,
        mtime_s: inode.mtime_s,
        mtime_ns: inode.mtime_ns.min(999_999_999),
    }
}

#[cfg(test)]
#[path = "pack_image_tests.rs"]
pub(crate) mod tests;
