//! Layers laid over each other: a tree of files, as `root` packs others.
//!
//! Nothing of an image is made on the host. Names, links, owners, devices and whiteouts are entries of a tree in
//! memory, in which links are followed inside the tree only, so there is nothing to escape to; contents stay in the
//! layers' archives until the root image is written.
//!
//! A layer is gone through twice: its whiteouts first, because they hide what is below the layer and nothing of the
//! layer itself, wherever in the archive they stand.

use std::fs::File;
use std::sync::Arc;

use aegis_image::tree::{Attributes, Content, DeviceNumber, ExtendedAttribute, LastLink, NodeId, TreeError};
use tar::EntryType;

use crate::images::errors::{ImageError, shown};
use crate::images::layer::is_bomb;
use crate::images::members::{Member, Members};
use crate::root::pack::{HostData, IMPLIED_DIRECTORY, Root, Segment};

/// What names a whiteout.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of all that is below in a directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that aufs kept its own notes under.
const AUFS: &[u8] = b".wh..wh.";
/// Contents of an image's files together.
const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// Names, targets of links, extended attributes and maps of holes of an image together, as they are kept in memory:
/// paths whole, because each of their names may be a directory of its own.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Largest numbers of a device.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// A root that layers are laid into.
pub(crate) struct Flattener {
    tree: Root,
    content_bytes: u64,
    kept_bytes: u64,
    /// Programs with rights that give them none here.
    pub(crate) capability_count: u64,
}

type Result<T> = std::result::Result<T, ImageError>;

impl Flattener {
    pub(crate) fn new() -> Self {
        Self { tree: Root::new(IMPLIED_DIRECTORY), content_bytes: 0, kept_bytes: 0, capability_count: 0 }
    }

    /// Lays the next layer, a plain tar archive, over the others.
    ///
    /// # Errors
    /// `Member`, `TooLarge`, `Io`.
    pub(crate) fn apply(&mut self, archive: File) -> Result<()> {
        let archive_bytes = archive.metadata().map_err(|error| ImageError::Io("reading a layer".into(), error))?.len();
        let archive = Arc::new(archive);
        let mut members = Members::new(&archive)?;
        while let Some(member) = members.next()? {
            self.hide(&member)?;
        }
        let mut sparse_bytes = 0;
        let mut members = Members::new(&archive)?;
        while let Some(member) = members.next()? {
            let length_bytes = member.sparse.as_ref().map_or(0, |(length, _)| *length);
            sparse_bytes = length_bytes.saturating_add(sparse_bytes);
            if is_bomb(sparse_bytes, archive_bytes) {
                let text = format!("a layer of {archive_bytes} bytes has sparse files of {sparse_bytes} and more");
                return Err(ImageError::TooLarge(text));
            }
            self.add(&archive, member)?;
        }
        Ok(())
    }

    /// Makes sure of a directory that the image's configuration names, and gives the tree.
    pub(crate) fn finish<'a>(mut self, directories: impl Iterator<Item = &'a [u8]>) -> Root {
        for path in directories {
            // What is in the way stays; the program is told when it gets there.
            let _ = self.tree.ensure_directory(path, IMPLIED_DIRECTORY);
        }
        self.tree
    }

    /// Acts on a whiteout; other members are left for later.
    fn hide(&mut self, member: &Member) -> Result<()> {
        let names = names_of(&member.path)?;
        let Some((last, above)) = names.split_last() else { return Ok(()) };
        if let Some(name) = above.iter().find(|name| name.starts_with(WHITEOUT)) {
            return Err(wrong(&member.path, format!("below the whiteout {}", shown(name))));
        }
        let Some(hidden) = last.strip_prefix(WHITEOUT) else { return Ok(()) };
        let directory = match self.tree.resolve(&above.join(&b'/'), LastLink::Follow) {
            Ok(directory) if self.tree.node(directory).is_directory() => directory,
            // It hides what is not there.
            Ok(_) | Err(TreeError::NotFound | TreeError::NotDirectory) => return Ok(()),
            Err(error) => return Err(of_tree(&member.path, error)),
        };
        if *last == OPAQUE {
            let Content::Directory(entries) = self.tree.node(directory).content() else { return Ok(()) };
            let entries: Vec<Vec<u8>> = entries.keys().cloned().collect();
            for name in entries {
                self.tree.remove(directory, &name).map_err(|error| of_tree(&member.path, error))?;
            }
            return Ok(());
        }
        if last.starts_with(AUFS) {
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(wrong(&member.path, "a whiteout of nothing"));
        }
        match self.tree.remove(directory, hidden) {
            Ok(()) | Err(TreeError::NotFound) => Ok(()),
            Err(error) => Err(of_tree(&member.path, error)),
        }
    }

    /// Counts what a member leaves in memory.
    fn count(&mut self, member: &Member) -> Result<()> {
        let segment_count = member.sparse.as_ref().map_or(0, |(_, segments)| segments.len());
        let extended_bytes: usize =
            member.extended.iter().map(|(name, value)| name.len() + value.len() + size_of::<ExtendedAttribute>()).sum();
        let kept_bytes = member.path.len() + member.link.len() + segment_count * size_of::<Segment>() + extended_bytes;
        self.kept_bytes = self.kept_bytes.saturating_add(kept_bytes as u64);
        if self.kept_bytes > KEPT_BYTES_MAX {
            let text = format!("names, links and attributes of more than {} MiB in one image", KEPT_BYTES_MAX >> 20);
            return Err(ImageError::TooLarge(text));
        }
        Ok(())
    }

    fn add(&mut self, archive: &Arc<File>, member: Member) -> Result<()> {
        self.count(&member)?;
        let names = names_of(&member.path)?;
        let attributes = Attributes {
            permissions: member.permissions,
            uid: member.uid,
            gid: member.gid,
            mtime_s: member.mtime_s,
            mtime_ns: member.mtime_ns,
        };
        let Some((last, above)) = names.split_last() else {
            if member.kind != EntryType::Directory {
                return Err(wrong(&member.path, "the root is a directory and nothing else"));
            }
            let root = self.tree.root();
            self.tree.set_attributes(root, attributes);
            self.tree.set_extended(root, member.extended);
            return Ok(());
        };
        if last.starts_with(WHITEOUT) {
            return Ok(());
        }
        let above = above.join(&b'/');
        let directory = self.tree.ensure_directory(&above, IMPLIED_DIRECTORY);
        let directory = directory.map_err(|error| of_tree(&member.path, error))?;
        self.capability_count += u64::from(member.has_file_capabilities);
        if member.kind == EntryType::Link {
            return self.hard_link(directory, last, &member);
        }
        let content = self.content(archive, &member)?;
        let node = self.put(directory, last, attributes, content).map_err(|error| of_tree(&member.path, error))?;
        self.tree.set_extended(node, member.extended);
        Ok(())
    }

    fn content(&mut self, archive: &Arc<File>, member: &Member) -> Result<Content<HostData>> {
        let device = DeviceNumber { major: member.device.0, minor: member.device.1 };
        let is_device = matches!(member.kind, EntryType::Char | EntryType::Block);
        if is_device && (device.major > MAJOR_MAX || device.minor > MINOR_MAX) {
            return Err(wrong(&member.path, "a device of a number that there is not"));
        }
        Ok(match member.kind {
            EntryType::Directory => Content::empty_directory(),
            EntryType::Symlink => Content::Symlink(member.link.clone()),
            EntryType::Char => Content::CharacterDevice(device),
            EntryType::Block => Content::BlockDevice(device),
            EntryType::Fifo => Content::Fifo,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let file = Arc::clone(archive);
                let (length_bytes, data) = match &member.sparse {
                    Some((length_bytes, segments)) => {
                        let segments = segments.clone();
                        (*length_bytes, HostData::Sparse { file, length_bytes: *length_bytes, segments })
                    }
                    None => {
                        let (offset_bytes, length_bytes) = (member.offset_bytes, member.stored_bytes);
                        (length_bytes, HostData::Piece { file, offset_bytes, length_bytes })
                    }
                };
                self.content_bytes = self.content_bytes.saturating_add(length_bytes);
                if self.content_bytes > IMAGE_BYTES_MAX {
                    let text = format!("files of more than {} GiB in one image", IMAGE_BYTES_MAX >> 30);
                    return Err(ImageError::TooLarge(text));
                }
                Content::File(data)
            }
            _ => return Err(wrong(&member.path, "a kind of member that a root cannot hold")),
        })
    }

    /// Another name for what the tree has already.
    fn hard_link(&mut self, directory: NodeId, name: &[u8], member: &Member) -> Result<()> {
        let target = names_of(&member.link).map_err(|_| wrong(&member.path, "a hard link that leads out by .."))?;
        let node = match self.tree.resolve(&target.join(&b'/'), LastLink::Keep) {
            Ok(node) if !self.tree.node(node).is_directory() => node,
            Ok(_) => return Err(wrong(&member.path, "a hard link to a directory")),
            Err(TreeError::NotFound | TreeError::NotDirectory) => {
                return Err(wrong(&member.path, format!("a hard link to {}, which is not there", shown(&member.link))));
            }
            Err(error) => return Err(of_tree(&member.path, error)),
        };
        match self.tree.lookup(directory, name) {
            Some(existing) if existing == node => return Ok(()),
            Some(_) => self.tree.remove(directory, name).map_err(|error| of_tree(&member.path, error))?,
            None => {}
        }
        self.tree.link(directory, name, node).map_err(|error| of_tree(&member.path, error))
    }

    /// A directory over a directory changes its attributes; anything else takes the place of what is there.
    fn put(
        &mut self,
        directory: NodeId,
        name: &[u8],
        attributes: Attributes,
        content: Content<HostData>,
    ) -> std::result::Result<NodeId, TreeError> {
        if let Some(existing) = self.tree.lookup(directory, name) {
            if self.tree.node(existing).is_directory() && matches!(content, Content::Directory(_)) {
                self.tree.set_attributes(existing, attributes);
                return Ok(existing);
            }
            self.tree.remove(directory, name)?;
        }
        self.tree.add(directory, name, attributes, content)
    }
}

/// The names of a path, relative or not; an error if one is `..`.
fn names_of(path: &[u8]) -> Result<Vec<&[u8]>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<&[u8]> = names.collect();
    if names.contains(&&b".."[..]) { Err(wrong(path, "a path that leads out by ..")) } else { Ok(names) }
}

fn wrong(path: &[u8], why: impl Into<String>) -> ImageError {
    ImageError::Member { path: shown(path), why: why.into() }
}

fn of_tree(path: &[u8], error: TreeError) -> ImageError {
    wrong(path, error.to_string())
}

#[cfg(test)]
#[path = "flatten_tests.rs"]
mod tests;
