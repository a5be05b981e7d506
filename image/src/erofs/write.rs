//! The EROFS writer: lays a [`Tree`] out and writes it front to back.
//!
//! Layout of the image, in this order: the superblock's block; the metadata area (extended inodes, with their extended
//! attributes, link targets and the last partial block of directories inline where they fit into the inode's block);
//! full directory blocks and long link targets; the data of regular files, each from a block boundary, zero padded.
//!
//! All positions are computed before the first byte is written, so the total length is known and the output can be
//! sequential (a pipe, a bundle part). Nodes are taken breadth first and names in byte order; times come from the
//! nodes and the volume has neither build time nor random identifier, so equal trees give equal images (INV-I2).
//!
//! Memory: some forty bytes per node and one directory or 256 KiB of file data at a time. Hard links are kept.
//! Limit: 2^32 blocks (16 TiB).

use alloc::vec;
use alloc::vec::Vec;

use crate::bytes::{page_round_up, put};
use crate::sink::{Sink, write_zeros};
use crate::tree::{Attributes, Content, DeviceNumber, FileData, NodeId, Tree};

use super::{
    BLOCK_BITS, BLOCK_BYTES, COMPAT_CHECKSUM, COMPAT_MTIME, DIRENT_BYTES, EXTENDED_INODE_BYTES, FileKind,
    LAYOUT_FLAT_INLINE, LAYOUT_FLAT_PLAIN, SLOT_BYTES, SUPER_MAGIC, SUPER_OFFSET, extended, read,
};

/// File data are read in pieces of this size.
const COPY_BYTES: u64 = 256 * 1024;
/// Bit 0 of an inode's format: the extended form.
const FORMAT_EXTENDED: u16 = 1;

/// Why an image could not be written.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteError<S, D> {
    /// The output failed.
    Sink(S),
    /// A file's contents could not be read.
    Data(D),
    /// The tree needs more than 2^32 blocks.
    TooLarge,
}

impl<S: core::fmt::Display, D: core::fmt::Display> core::fmt::Display for WriteError<S, D> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Sink(error) => write!(formatter, "cannot write the image: {error}"),
            Self::Data(error) => write!(formatter, "cannot read a file for the image: {error}"),
            Self::TooLarge => formatter.write_str("the files are too large for one image"),
        }
    }
}

/// Where a node goes.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: NodeId,
    /// For directories the directory above, otherwise itself.
    parent: NodeId,
    /// Metadata slot.
    slot: u64,
    /// Bytes of extended attributes behind the inode.
    extended_bytes: u64,
    size_bytes: u64,
    /// Bytes behind the inode and its attributes; the others are in blocks.
    inline_bytes: u64,
    /// First block of the data that are in blocks.
    first_block: u32,
    link_count: u32,
}

/// A tree laid out as an image: its length is known, its bytes are not written yet.
#[derive(Debug)]
pub struct Layout<'t, D> {
    tree: &'t Tree<D>,
    /// In the order of their metadata slots.
    places: Vec<Place>,
    /// Index into `places` by node; `u32::MAX` for nodes without a name.
    place_of_node: Vec<u32>,
    metadata_end_bytes: u64,
    block_count: u32,
}

impl<'t, D: FileData> Layout<'t, D> {
    /// Computes where everything goes.
    ///
    /// # Errors
    /// `TooLarge`, as `None`.
    pub fn new(tree: &'t Tree<D>) -> Option<Self> {
        let mut layout = Self {
            tree,
            places: Vec::new(),
            place_of_node: vec![u32::MAX; tree.node_count()],
            metadata_end_bytes: 0,
            block_count: 0,
        };
        layout.collect();
        layout.place_metadata()?;
        layout.place_data()?;
        Some(layout)
    }

    /// Length of the image: a multiple of the page size.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.block_count) * BLOCK_BYTES
    }

    /// Writes the image: exactly [`Layout::size_bytes`] bytes.
    ///
    /// # Errors
    /// `Sink` and `Data`; what is written by then is no image.
    pub fn write<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), WriteError<S::Error, D::Error>> {
        sink.write_all(&self.super_block()).map_err(WriteError::Sink)?;
        self.write_metadata(sink).map_err(WriteError::Sink)?;
        for place in &self.places {
            match self.tree.node(place.node).content() {
                Content::File(data) => copy_file(sink, data, place.size_bytes)?,
                _ => {
                    let bytes = self.own_data(place);
                    let in_blocks = &bytes[..bytes.len() - place.inline_bytes as usize];
                    write_padded(sink, in_blocks).map_err(WriteError::Sink)?;
                }
            }
        }
        Ok(())
    }

    /// Numbers the reachable nodes breadth first and counts their names.
    fn collect(&mut self) {
        let root = self.tree.root();
        self.meet(root, root);
        let mut next = 0;
        while let Some(place) = self.places.get(next).copied() {
            if let Content::Directory(entries) = self.tree.node(place.node).content() {
                for child in entries.values() {
                    self.meet(*child, place.node);
                    if self.tree.node(*child).is_directory() {
                        self.places[next].link_count += 1;
                    }
                }
            }
            next += 1;
        }
    }

    fn meet(&mut self, node: NodeId, parent: NodeId) {
        let known = self.place_of_node[node.index()];
        if let Some(place) = self.places.get_mut(known as usize) {
            place.link_count += 1;
            return;
        }
        self.place_of_node[node.index()] = self.places.len() as u32;
        let (size_bytes, link_count) = match self.tree.node(node).content() {
            Content::Directory(entries) => (directory_size(entries.keys().map(Vec::as_slice)), 2),
            Content::File(data) => (data.length_bytes(), 1),
            Content::Symlink(target) => (target.len() as u64, 1),
            _ => (0, 1),
        };
        let extended_bytes = extended::length_bytes(self.tree.node(node).extended());
        let (slot, inline_bytes, first_block) = (0, 0, 0);
        let place = Place { node, parent, slot, extended_bytes, size_bytes, inline_bytes, first_block, link_count };
        self.places.push(place);
    }

    fn place_metadata(&mut self) -> Option<()> {
        // Slot 0 lies in the superblock's block, so no inode has number 0, which Linux programs take for a free entry.
        let mut cursor = BLOCK_BYTES;
        for place in &mut self.places {
            let may_inline = !matches!(self.tree.node(place.node).content(), Content::File(_));
            let tail = place.size_bytes % BLOCK_BYTES;
            let head = EXTENDED_INODE_BYTES + place.extended_bytes;
            if may_inline && head + tail <= BLOCK_BYTES {
                place.inline_bytes = tail;
            }
            let length = head + place.inline_bytes;
            // Attributes longer than a block begin in any and go on in the next ones.
            if cursor % BLOCK_BYTES + length.min(BLOCK_BYTES) > BLOCK_BYTES {
                cursor = page_round_up(cursor)?;
            }
            place.slot = cursor / SLOT_BYTES;
            cursor = (cursor + length).checked_next_multiple_of(SLOT_BYTES)?;
        }
        self.metadata_end_bytes = page_round_up(cursor)?;
        Some(())
    }

    fn place_data(&mut self) -> Option<()> {
        let mut block = u32::try_from(self.metadata_end_bytes / BLOCK_BYTES).ok()?;
        for place in &mut self.places {
            let in_blocks = place.size_bytes - place.inline_bytes;
            place.first_block = if in_blocks == 0 { 0 } else { block };
            let count = u32::try_from(in_blocks.div_ceil(BLOCK_BYTES)).ok()?;
            block = block.checked_add(count)?;
        }
        self.block_count = block;
        Some(())
    }

    fn place(&self, node: NodeId) -> &Place {
        &self.places[self.place_of_node[node.index()] as usize]
    }

    fn super_block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let header = &mut block[SUPER_OFFSET..];
        put(header, 0, SUPER_MAGIC.to_le_bytes());
        put(header, 8, (COMPAT_CHECKSUM | COMPAT_MTIME).to_le_bytes());
        header[12] = BLOCK_BITS;
        let root_slot = self.place(self.tree.root()).slot as u16;
        put(header, 14, root_slot.to_le_bytes());
        put(header, 16, (self.places.len() as u64).to_le_bytes());
        put(header, 36, self.block_count.to_le_bytes());
        let checksum = read::checksum(&block).unwrap_or_default();
        put(&mut block, SUPER_OFFSET + 4, checksum.to_le_bytes());
        block
    }

    fn write_metadata<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut cursor = BLOCK_BYTES;
        for place in &self.places {
            let start = place.slot * SLOT_BYTES;
            write_zeros(sink, start - cursor)?;
            sink.write_all(&self.inode(place))?;
            sink.write_all(&extended::bytes(self.tree.node(place.node).extended()))?;
            if place.inline_bytes > 0 {
                let bytes = self.own_data(place);
                sink.write_all(&bytes[bytes.len() - place.inline_bytes as usize..])?;
            }
            cursor = start + EXTENDED_INODE_BYTES + place.extended_bytes + place.inline_bytes;
        }
        write_zeros(sink, self.metadata_end_bytes - cursor)
    }

    fn inode(&self, place: &Place) -> [u8; EXTENDED_INODE_BYTES as usize] {
        let node = self.tree.node(place.node);
        let Attributes { permissions, uid, gid, mtime_s, mtime_ns } = node.attributes;
        let layout = if place.inline_bytes > 0 { LAYOUT_FLAT_INLINE } else { LAYOUT_FLAT_PLAIN };
        let block_or_device = match node.content() {
            Content::CharacterDevice(device) | Content::BlockDevice(device) => encode(*device),
            _ => place.first_block,
        };
        let mode = kind_of(node.content()).mode_bits() | (permissions & 0o7777);
        let mut inode = [0; EXTENDED_INODE_BYTES as usize];
        put(&mut inode, 0, ((layout << 1) | FORMAT_EXTENDED).to_le_bytes());
        put(&mut inode, 2, extended::count_of(place.extended_bytes).to_le_bytes());
        put(&mut inode, 4, mode.to_le_bytes());
        put(&mut inode, 8, place.size_bytes.to_le_bytes());
        put(&mut inode, 16, block_or_device.to_le_bytes());
        // A short number for 32-bit stat; the slot is the full one.
        put(&mut inode, 20, (place.slot as u32).to_le_bytes());
        put(&mut inode, 24, uid.to_le_bytes());
        put(&mut inode, 28, gid.to_le_bytes());
        put(&mut inode, 32, mtime_s.to_le_bytes());
        put(&mut inode, 40, mtime_ns.to_le_bytes());
        put(&mut inode, 44, place.link_count.to_le_bytes());
        inode
    }

    /// All data of a directory or link.
    fn own_data(&self, place: &Place) -> Vec<u8> {
        match self.tree.node(place.node).content() {
            Content::Directory(entries) => {
                let entry = |name: &[u8], node: NodeId| {
                    let kind = kind_of(self.tree.node(node).content());
                    (name.to_vec(), self.place(node).slot, kind)
                };
                let dots = [entry(b".", place.node), entry(b"..", place.parent)];
                let mut all = Vec::from(dots);
                all.extend(entries.iter().map(|(name, node)| entry(name, *node)));
                all.sort_unstable_by(|left, right| left.0.cmp(&right.0));
                directory_data(&all)
            }
            Content::Symlink(target) => target.clone(),
            _ => Vec::new(),
        }
    }
}

/// Cuts names in order into blocks: for each block, how many names and how many bytes.
fn directory_blocks<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<(usize, usize)> {
    let mut blocks = vec![(0, 0)];
    for name in names {
        let length = DIRENT_BYTES + name.len();
        match blocks.last_mut() {
            Some((count, used)) if *used + length <= BLOCK_BYTES as usize => {
                *count += 1;
                *used += length;
            }
            _ => blocks.push((1, length)),
        }
    }
    blocks
}

/// Bytes of a directory with these names (in order) and the two dot entries.
fn directory_size<'n>(names: impl Iterator<Item = &'n [u8]>) -> u64 {
    let mut all: Vec<&[u8]> = vec![b".", b".."];
    all.extend(names);
    all.sort_unstable();
    let blocks = directory_blocks(all.into_iter());
    let last_used = blocks.last().map_or(0, |block| block.1);
    (blocks.len() as u64 - 1) * BLOCK_BYTES + last_used as u64
}

fn directory_data(entries: &[(Vec<u8>, u64, FileKind)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut rest = entries;
    for (count, _) in directory_blocks(entries.iter().map(|entry| entry.0.as_slice())) {
        data.resize(data.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        let (block, behind) = rest.split_at(count);
        let mut name_offset = count * DIRENT_BYTES;
        for (name, slot, kind) in block {
            data.extend_from_slice(&slot.to_le_bytes());
            data.extend_from_slice(&(name_offset as u16).to_le_bytes());
            data.extend_from_slice(&[kind.entry_type(), 0]);
            name_offset += name.len();
        }
        for (name, _, _) in block {
            data.extend_from_slice(name);
        }
        rest = behind;
    }
    data
}

fn kind_of<D>(content: &Content<D>) -> FileKind {
    match content {
        Content::Directory(_) => FileKind::Directory,
        Content::File(_) => FileKind::Regular,
        Content::Symlink(_) => FileKind::Symlink,
        Content::CharacterDevice(_) => FileKind::CharacterDevice,
        Content::BlockDevice(_) => FileKind::BlockDevice,
        Content::Fifo => FileKind::Fifo,
        Content::Socket => FileKind::Socket,
    }
}

/// Linux's 32-bit device number: 12 bits of major, 20 of minor (`include/linux/kdev_t.h`, `new_encode_dev`).
fn encode(device: DeviceNumber) -> u32 {
    let DeviceNumber { major, minor } = device;
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

fn write_padded<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8]) -> Result<(), S::Error> {
    sink.write_all(bytes)?;
    write_zeros(sink, padding(bytes.len() as u64))
}

/// Bytes from `length` to the next block boundary.
fn padding(length: u64) -> u64 {
    (BLOCK_BYTES - length % BLOCK_BYTES) % BLOCK_BYTES
}

fn copy_file<S: Sink + ?Sized, D: FileData>(
    sink: &mut S,
    data: &D,
    size_bytes: u64,
) -> Result<(), WriteError<S::Error, D::Error>> {
    let mut buffer = vec![0; size_bytes.min(COPY_BYTES) as usize];
    let mut offset = 0;
    while offset < size_bytes {
        let piece = &mut buffer[..(size_bytes - offset).min(COPY_BYTES) as usize];
        data.read_exact_at(offset, piece).map_err(WriteError::Data)?;
        sink.write_all(piece).map_err(WriteError::Sink)?;
        offset += piece.len() as u64;
    }
    write_zeros(sink, padding(size_bytes)).map_err(WriteError::Sink)
}
