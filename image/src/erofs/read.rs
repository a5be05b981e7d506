//! The EROFS reader: a view over the bytes of an image that finds inodes, names and data.
//!
//! It keeps nothing but the slice and five numbers, so it is `Copy`, needs no allocation (but for whole-path
//! [`Image::resolve`]) and can be shared by processors without a lock. An [`Inode`] has passed all checks on where its
//! data lie, so that reading them afterwards cannot fail (INV-I3); hence bounds are checked once per inode and not once
//! per read. Directory blocks are checked whenever they are looked at, because they are too many to be checked at open.
//!
//! Cost: a lookup is a binary search over a directory's blocks, then over one block's names; reading a directory is
//! linear.
//!
//! Limits: images of at most 2^32 blocks, names of 255 bytes, link targets of 4095 bytes. What the format has beyond
//! "flat" files (module head of [`crate::erofs`]) is answered with [`ReadError::Unsupported`].

use crate::bytes::{page_round_up, slice, u16_at, u32_at, u64_at};
use crate::tree::{
    LINK_TARGET_BYTES_MAX, LastLink, TreeError, Walk, has_forbidden, name_is_valid, name_length_is_valid,
};

use super::{
    BLOCK_BITS, BLOCK_BYTES, COMPACT_INODE_BYTES, COMPAT_CHECKSUM, DIRENT_BYTES, EXTENDED_INODE_BYTES, FileKind,
    LAYOUT_FLAT_INLINE, LAYOUT_FLAT_PLAIN, MODE_PERMISSION_MASK, SLOT_BYTES, SUPER_BYTES, SUPER_MAGIC, SUPER_OFFSET,
    crc32c, extended,
};

/// Incompatible features that change nothing for flat files: zero padding of compressed blocks, chunked files (refused
/// inode by inode) and long attribute prefixes.
const INCOMPAT_ACCEPTED: u32 = 0x1 | 0x4 | 0x40;
/// Bits of an inode's format field that have a meaning here: version and layout.
const INODE_FORMAT_MASK: u16 = 0xf;

/// A part of the format that this reader does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Blocks of 2 to the given power of bytes.
    BlockBits(u8),
    /// Incompatible feature bits of the superblock (compression, further devices, …).
    Incompatible(u32),
    /// Directory blocks of another size than blocks.
    DirectoryBlocks,
    /// An inode format: compressed, chunked or newer than this reader.
    InodeFormat(u16),
}

/// A way in which an image is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The superblock's checksum does not match.
    Checksum,
    /// An inode number lies outside the image.
    InodeNumber,
    /// A mode has no valid file type.
    Mode,
    /// Data lie outside the image.
    DataRange,
    /// Inline data cross a block boundary.
    InlineData,
    /// A directory block's offsets are not ascending inside the block.
    DirectoryBlock,
    /// A name in a directory is empty, too long or holds a forbidden byte.
    Name,
    /// A link target is empty, too long or holds a zero byte.
    LinkTarget,
    /// The root is not a directory.
    Root,
    /// Names in a directory are not in ascending order.
    NameOrder,
    /// A directory entry says another file type than its inode.
    EntryType,
    /// `.` or `..` is missing or leads elsewhere.
    DotEntries,
    /// More directory entries than the image has room for: directories share blocks.
    SharedDirectories,
    /// Extended attributes do not lie in the image, or contradict their lengths.
    ExtendedAttributes,
}

/// Why an image or a part of it cannot be read. Except for the last two, the image is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// No EROFS superblock.
    NotErofs,
    /// The image is shorter than its superblock says.
    Truncated,
    /// A valid image that uses what this reader does not have.
    Unsupported(Feature),
    /// Not a valid image.
    Corrupt(Damage),
    /// The caller asked a file for a directory's contents.
    NotDirectory,
    /// The caller asked something that is no link for its target.
    NotLink,
}

impl core::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotErofs => formatter.write_str("not an EROFS image"),
            Self::Truncated => formatter.write_str("the EROFS image is truncated"),
            Self::Unsupported(feature) => match feature {
                Feature::BlockBits(bits) => {
                    write!(formatter, "the EROFS image has blocks of 2^{bits} bytes, not of 4096")
                }
                Feature::Incompatible(bits) => {
                    write!(formatter, "the EROFS image needs unsupported features (bits {bits:#x})")
                }
                Feature::DirectoryBlocks => {
                    formatter.write_str("the EROFS image has directory blocks of an unusual size")
                }
                Feature::InodeFormat(format) => {
                    write!(formatter, "the EROFS image has compressed or chunked files (inode format {format:#x})")
                }
            },
            Self::Corrupt(damage) => write!(formatter, "the EROFS image is damaged: {damage:?}"),
            Self::NotDirectory => formatter.write_str("not a directory"),
            Self::NotLink => formatter.write_str("not a symbolic link"),
        }
    }
}

impl core::error::Error for ReadError {}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// `NotFound`, `NotDirectory` or `LinkLoop`.
    Path(TreeError),
    /// The image is to blame.
    Image(ReadError),
}

impl From<ReadError> for ResolveError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotDirectory => Self::Path(TreeError::NotDirectory),
            other => Self::Image(other),
        }
    }
}

/// An inode number: the index of its metadata slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u64);

/// Metadata of a file, and where its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number, good as `st_ino`.
    pub number: InodeNumber,
    /// File type.
    pub kind: FileKind,
    /// Permission bits, at most 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it, as the image says.
    pub link_count: u32,
    /// Length of the data; 0 for devices, pipes and sockets.
    pub size_bytes: u64,
    /// Last modification, seconds since the epoch.
    pub mtime_s: i64,
    /// Nanoseconds within that second; the image may hold nonsense.
    pub mtime_ns: u32,
    /// For device nodes the device number in Linux's 32-bit encoding, otherwise 0.
    pub device: u32,
    /// Length of what stands before its extended attributes, and their count as the format has it.
    inode_bytes: u8,
    attribute_count: u16,
    head: Extent,
    tail: Extent,
}

impl Inode {
    /// Whether it may have extended attributes.
    pub fn has_extended(&self) -> bool {
        self.attribute_count != 0
    }

    /// Type and permissions as in `st_mode`.
    pub fn mode(&self) -> u16 {
        self.kind.mode_bits() | self.permissions
    }
}

/// A range of bytes of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// From the start of the image.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// 1 to 255 bytes without `/` and NUL; `.` and `..` are among the entries.
    pub name: &'a [u8],
    /// Where it leads; not checked yet.
    pub number: InodeNumber,
    /// What it leads to; `None` if the image does not say.
    pub kind: Option<FileKind>,
    /// The position that continues behind this entry (see [`Image::entries`]).
    pub next_position: u64,
}

/// An EROFS image.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    metadata_start: u64,
    /// Where attributes are that inodes share.
    shared_start: u64,
    root: InodeNumber,
    build_time_s: u64,
    build_time_ns: u32,
}

impl<'a> Image<'a> {
    /// Reads and checks the superblock and the root inode.
    ///
    /// # Errors
    /// `NotErofs`, `Truncated`, `Unsupported`, `Corrupt`.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let header = bytes.get(SUPER_OFFSET..).ok_or(ReadError::NotErofs)?;
        if u32_at(header, 0) != Some(SUPER_MAGIC) {
            return Err(ReadError::NotErofs);
        }
        if header.len() < SUPER_BYTES || (bytes.len() as u64) < BLOCK_BYTES {
            return Err(ReadError::Truncated);
        }
        let u32_field = |offset| u32_at(header, offset).ok_or(ReadError::Truncated);
        let u64_field = |offset| u64_at(header, offset).ok_or(ReadError::Truncated);
        if header[12] != BLOCK_BITS {
            return Err(ReadError::Unsupported(Feature::BlockBits(header[12])));
        }
        let refused = u32_field(80)? & !INCOMPAT_ACCEPTED;
        if refused != 0 {
            return Err(ReadError::Unsupported(Feature::Incompatible(refused)));
        }
        // Added to the block size; the field was reserved (zero) when the format had no such thing.
        if header[90] != 0 {
            return Err(ReadError::Unsupported(Feature::DirectoryBlocks));
        }
        if u32_field(8)? & COMPAT_CHECKSUM != 0 && checksum(bytes) != Some(u32_field(4)?) {
            return Err(ReadError::Corrupt(Damage::Checksum));
        }
        if u64::from(u32_field(36)?) * BLOCK_BYTES > bytes.len() as u64 {
            return Err(ReadError::Truncated);
        }
        let image = Self {
            bytes,
            metadata_start: u64::from(u32_field(40)?) * BLOCK_BYTES,
            shared_start: u64::from(u32_field(44)?) * BLOCK_BYTES,
            root: InodeNumber(u64::from(u16_at(header, 14).ok_or(ReadError::Truncated)?)),
            build_time_s: u64_field(24)?,
            build_time_ns: u32_field(32)?,
        };
        match image.inode(image.root)?.kind {
            FileKind::Directory => Ok(image),
            _ => Err(ReadError::Corrupt(Damage::Root)),
        }
    }

    /// The bytes that the image was opened over.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The root directory's number.
    pub fn root(&self) -> InodeNumber {
        self.root
    }

    /// Reads an inode and checks that its data lie inside the image.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    #[inline]
    pub fn inode(&self, number: InodeNumber) -> Result<Inode, ReadError> {
        const OUTSIDE: ReadError = ReadError::Corrupt(Damage::InodeNumber);
        let offset = number
            .0
            .checked_mul(SLOT_BYTES)
            .and_then(|offset| offset.checked_add(self.metadata_start))
            .ok_or(OUTSIDE)?;
        let start = slice(self.bytes, offset, COMPACT_INODE_BYTES).ok_or(OUTSIDE)?;
        let format = u16_at(start, 0).ok_or(OUTSIDE)?;
        let unsupported = ReadError::Unsupported(Feature::InodeFormat(format));
        if format & !INODE_FORMAT_MASK != 0 {
            return Err(unsupported);
        }
        let raw = if format & 1 == 0 {
            self.raw_compact(start)
        } else {
            slice(self.bytes, offset, EXTENDED_INODE_BYTES).and_then(raw_extended)
        }
        .ok_or(OUTSIDE)?;
        let kind = FileKind::from_mode(raw.mode).ok_or(ReadError::Corrupt(Damage::Mode))?;
        let has_data = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        let attribute_bytes = extended::length_of(raw.attribute_count);
        let (head, tail) = match (has_data, format >> 1) {
            (false, _) => (Extent::default(), Extent::default()),
            (true, LAYOUT_FLAT_PLAIN) => self.place_plain(&raw)?,
            (true, LAYOUT_FLAT_INLINE) => self.place_inline(&raw, offset + raw.inode_bytes + attribute_bytes)?,
            (true, _) => return Err(unsupported),
        };
        let is_device = matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice);
        Ok(Inode {
            number,
            kind,
            permissions: raw.mode & MODE_PERMISSION_MASK,
            uid: raw.uid,
            gid: raw.gid,
            link_count: raw.link_count,
            size_bytes: if has_data { raw.size_bytes } else { 0 },
            mtime_s: raw.mtime_s.cast_signed(),
            mtime_ns: raw.mtime_ns,
            device: if is_device { raw.block_or_device } else { 0 },
            inode_bytes: raw.inode_bytes as u8,
            attribute_count: raw.attribute_count,
            head,
            tail,
        })
    }

    /// The extended attributes of an inode; after an error the iteration ends.
    pub fn extended(&self, inode: &Inode) -> extended::Attributes<'a> {
        let start = self.metadata_start + inode.number.0 * SLOT_BYTES + u64::from(inode.inode_bytes);
        extended::Attributes::new(self.bytes, start, inode.attribute_count, self.shared_start)
    }

    /// Copies file data from `offset_bytes` to `buffer`; returns how many bytes, fewer than asked only at the end.
    ///
    /// Works for every inode that has data; a directory gives its raw blocks.
    pub fn read_at(&self, inode: &Inode, offset_bytes: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        let mut start = 0;
        for extent in [inode.head, inode.tail] {
            let end = start + extent.length_bytes;
            let position = offset_bytes.saturating_add(done as u64);
            if done < buffer.len() && position >= start && position < end {
                let count = (end - position).min((buffer.len() - done) as u64);
                let from =
                    self.data(Extent { offset_bytes: extent.offset_bytes + (position - start), length_bytes: count });
                buffer[done..done + from.len()].copy_from_slice(from);
                done += from.len();
            }
            start = end;
        }
        done
    }

    /// Where a regular file's data lie, if they can be mapped: contiguous, from a page boundary, with the rest of the
    /// last page inside the image too. What that rest holds is the image's business (our writer and `mkfs.erofs` put
    /// zeros there). `None` for empty files and for files with inline data.
    pub fn extent(&self, inode: &Inode) -> Option<Extent> {
        let mappable = inode.kind == FileKind::Regular && inode.tail.length_bytes == 0 && inode.head.length_bytes != 0;
        let end = page_round_up(inode.head.offset_bytes + inode.head.length_bytes)?;
        (mappable && end <= self.bytes.len() as u64).then_some(inode.head)
    }

    /// A symbolic link's target: 1 to 4095 bytes without NUL.
    ///
    /// # Errors
    /// `NotLink`, `Corrupt`.
    pub fn read_link(&self, inode: &Inode) -> Result<&'a [u8], ReadError> {
        if inode.kind != FileKind::Symlink {
            return Err(ReadError::NotLink);
        }
        // A target is shorter than a block, so all of it is in one of the two extents.
        let extent = if inode.tail.length_bytes == 0 { inode.head } else { inode.tail };
        let target = self.data(extent);
        let valid = (1..=LINK_TARGET_BYTES_MAX as u64).contains(&inode.size_bytes) && !target.contains(&0);
        if valid { Ok(target) } else { Err(ReadError::Corrupt(Damage::LinkTarget)) }
    }

    /// Finds a name in a directory; `.` and `..` are found as the image has them.
    ///
    /// # Errors
    /// `NotDirectory`, `Corrupt`.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Option<DirectoryEntry<'a>>, ReadError> {
        if directory.kind != FileKind::Directory {
            return Err(ReadError::NotDirectory);
        }
        if (1..=BLOCK_BYTES).contains(&directory.size_bytes) {
            return self.directory_block(directory, 0)?.find(name);
        }
        // The last block whose first name is not behind `name` is the only one that can hold it.
        let (mut low, mut high) = (0, directory.size_bytes.div_ceil(BLOCK_BYTES));
        let mut candidate = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.directory_block(directory, middle)?;
            if block.entry(0)?.name <= name {
                candidate = Some(block);
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match candidate {
            Some(block) => block.find(name),
            None => Ok(None),
        }
    }

    /// The entries of a directory from `position`: 0 for the first, afterwards what [`DirectoryEntry::next_position`]
    /// said. Any other number is taken as the nearest position behind it. After an error the iteration ends.
    ///
    /// # Errors
    /// `NotDirectory`; entries are `Corrupt` one by one.
    pub fn entries(&self, directory: &Inode, position: u64) -> Result<Entries<'a>, ReadError> {
        if directory.kind != FileKind::Directory {
            return Err(ReadError::NotDirectory);
        }
        Ok(Entries { image: *self, directory: *directory, block: None, position, is_done: false })
    }

    /// Shows the entries of a directory from `position`, as [`Self::entries`] gives them, until `visit` says no. The
    /// position of the first that it refused, or behind the last.
    ///
    /// # Errors
    /// `NotDirectory`, `Corrupt`.
    pub fn visit(
        &self,
        directory: &Inode,
        position: u64,
        mut visit: impl FnMut(&DirectoryEntry<'a>) -> bool,
    ) -> Result<u64, ReadError> {
        if directory.kind != FileKind::Directory {
            return Err(ReadError::NotDirectory);
        }
        let mut position = position;
        while position < directory.size_bytes {
            let block_index = position / BLOCK_BYTES;
            let block = self.directory_block(directory, block_index)?;
            let first = ((position % BLOCK_BYTES) as usize).div_ceil(DIRENT_BYTES);
            let mut checked_until = 0;
            for index in first..block.entries.len() {
                let name = block.name(index)?;
                if !block.is_valid_behind(index, name, &mut checked_until) {
                    return Err(ReadError::Corrupt(Damage::Name));
                }
                let entry = block.entry_of(index, name)?;
                if !visit(&entry) {
                    return Ok(position);
                }
                position = entry.next_position;
            }
            position = position.max((block_index + 1) * BLOCK_BYTES);
        }
        Ok(position)
    }

    /// Finds the inode at a path from the root, following links inside the image. For tools; a library OS, which has
    /// mounts and permissions to mind, walks by [`Image::lookup`].
    ///
    /// # Errors
    /// The path's or the image's.
    pub fn resolve(&self, path: &[u8], last_link: LastLink) -> Result<Inode, ResolveError> {
        let mut walk = Walk::new(self.inode(self.root)?, path);
        while let Some(name) = walk.next_name() {
            let here = walk.here();
            let entry = self.lookup(&here, &name)?;
            let entry = entry.ok_or(ResolveError::Path(TreeError::NotFound))?;
            let next = self.inode(entry.number)?;
            let keep = walk.is_finished() && last_link == LastLink::Keep;
            if next.kind == FileKind::Symlink && !keep {
                walk.follow(self.read_link(&next)?).map_err(ResolveError::Path)?;
            } else {
                walk.enter(next);
            }
        }
        Ok(walk.here())
    }

    /// The bytes of an extent that [`Image::inode`] has checked.
    fn data(&self, extent: Extent) -> &'a [u8] {
        slice(self.bytes, extent.offset_bytes, extent.length_bytes).unwrap_or_default()
    }

    fn raw_compact(&self, inode: &[u8]) -> Option<RawInode> {
        Some(RawInode {
            inode_bytes: COMPACT_INODE_BYTES,
            attribute_count: u16_at(inode, 2)?,
            mode: u16_at(inode, 4)?,
            link_count: u32::from(u16_at(inode, 6)?),
            size_bytes: u64::from(u32_at(inode, 8)?),
            block_or_device: u32_at(inode, 16)?,
            uid: u32::from(u16_at(inode, 24)?),
            gid: u32::from(u16_at(inode, 26)?),
            mtime_s: self.build_time_s,
            mtime_ns: self.build_time_ns,
        })
    }

    fn place_plain(&self, raw: &RawInode) -> Result<(Extent, Extent), ReadError> {
        let head = self.block_extent(raw.block_or_device, raw.size_bytes)?;
        Ok((head, Extent::default()))
    }

    fn place_inline(&self, raw: &RawInode, behind: u64) -> Result<(Extent, Extent), ReadError> {
        if raw.size_bytes == 0 {
            return Ok((Extent::default(), Extent::default()));
        }
        let head_bytes = (raw.size_bytes - 1) / BLOCK_BYTES * BLOCK_BYTES;
        let tail_bytes = raw.size_bytes - head_bytes;
        let tail = Extent { offset_bytes: behind, length_bytes: tail_bytes };
        if behind % BLOCK_BYTES + tail_bytes > BLOCK_BYTES {
            return Err(ReadError::Corrupt(Damage::InlineData));
        }
        self.check_extent(tail)?;
        Ok((self.block_extent(raw.block_or_device, head_bytes)?, tail))
    }

    fn block_extent(&self, block: u32, length_bytes: u64) -> Result<Extent, ReadError> {
        if length_bytes == 0 {
            return Ok(Extent::default());
        }
        let offset_bytes = u64::from(block) * BLOCK_BYTES;
        self.check_extent(Extent { offset_bytes, length_bytes })
    }

    fn check_extent(&self, extent: Extent) -> Result<Extent, ReadError> {
        slice(self.bytes, extent.offset_bytes, extent.length_bytes)
            .map(|_| extent)
            .ok_or(ReadError::Corrupt(Damage::DataRange))
    }

    fn directory_block(&self, directory: &Inode, index: u64) -> Result<DirectoryBlock<'a>, ReadError> {
        let start = index * BLOCK_BYTES;
        // The head of an inode with inline data ends at a block boundary, so a block is in one of the two.
        let extent = if start < directory.head.length_bytes {
            Extent {
                offset_bytes: directory.head.offset_bytes + start,
                length_bytes: (directory.head.length_bytes - start).min(BLOCK_BYTES),
            }
        } else {
            directory.tail
        };
        DirectoryBlock::new(self.data(extent), start)
    }
}

/// The fields of both inode forms, as they are stored.
struct RawInode {
    inode_bytes: u64,
    attribute_count: u16,
    mode: u16,
    link_count: u32,
    size_bytes: u64,
    block_or_device: u32,
    uid: u32,
    gid: u32,
    mtime_s: u64,
    mtime_ns: u32,
}

fn raw_extended(inode: &[u8]) -> Option<RawInode> {
    Some(RawInode {
        inode_bytes: EXTENDED_INODE_BYTES,
        attribute_count: u16_at(inode, 2)?,
        mode: u16_at(inode, 4)?,
        size_bytes: u64_at(inode, 8)?,
        block_or_device: u32_at(inode, 16)?,
        uid: u32_at(inode, 24)?,
        gid: u32_at(inode, 28)?,
        mtime_s: u64_at(inode, 32)?,
        mtime_ns: u32_at(inode, 40)?,
        link_count: u32_at(inode, 44)?,
    })
}

/// The checksum that the superblock should hold: over its block from the superblock on, with the field itself as zero.
pub(super) fn checksum(bytes: &[u8]) -> Option<u32> {
    let covered = bytes.get(SUPER_OFFSET..BLOCK_BYTES as usize)?;
    let sum = crc32c::update(u32::MAX, &covered[..4]);
    let sum = crc32c::update(sum, &[0; 4]);
    Some(crc32c::update(sum, &covered[8..]))
}

/// A directory block: entries of fixed size, then their names.
#[derive(Clone, Copy, Debug)]
struct DirectoryBlock<'a> {
    bytes: &'a [u8],
    entries: &'a [[u8; DIRENT_BYTES]],
    /// Offset in the directory.
    start: u64,
}

impl<'a> DirectoryBlock<'a> {
    fn new(bytes: &'a [u8], start: u64) -> Result<Self, ReadError> {
        const DAMAGED: ReadError = ReadError::Corrupt(Damage::DirectoryBlock);
        // The first name follows the last entry, so its offset tells how many entries there are.
        let names_start = usize::from(u16_at(bytes, 8).ok_or(DAMAGED)?);
        let valid =
            names_start >= DIRENT_BYTES && names_start.is_multiple_of(DIRENT_BYTES) && names_start < bytes.len();
        if !valid {
            return Err(DAMAGED);
        }
        Ok(Self { bytes, entries: bytes[..names_start].as_chunks().0, start })
    }

    /// Where the name of an entry begins in the block, as the entry says.
    #[inline]
    fn name_start(entry: &[u8; DIRENT_BYTES]) -> usize {
        usize::from(u16::from_le_bytes([entry[8], entry[9]]))
    }

    /// The name of an entry, which may not be one.
    #[inline]
    fn name(&self, index: usize) -> Result<&'a [u8], ReadError> {
        const DAMAGED: ReadError = ReadError::Corrupt(Damage::DirectoryBlock);
        let name_start = Self::name_start(self.entries.get(index).ok_or(DAMAGED)?);
        let next = self.entries.get(index + 1);
        if name_start < self.entries.len() * DIRENT_BYTES {
            return Err(DAMAGED);
        }
        let mut name = self.bytes.get(name_start..next.map_or(self.bytes.len(), Self::name_start)).ok_or(DAMAGED)?;
        if next.is_none() {
            // The last name of a block ends with the block or with the padding behind it.
            if name.last() == Some(&0) {
                let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                name = &name[..length];
            }
        }
        Ok(name)
    }

    /// Whether an entry's name is valid, in a walk over all of them: names lie one behind another, so each word of them
    /// is looked at once, not each name's first and last. No byte of the names is forbidden up to `checked_until`.
    #[inline]
    fn is_valid_behind(&self, index: usize, name: &[u8], checked_until: &mut usize) -> bool {
        let start = self.entries.get(index).map_or(0, Self::name_start);
        *checked_until = start.max(*checked_until);
        while *checked_until < start + name.len() {
            match self.bytes.get(*checked_until..).and_then(<[u8]>::first_chunk) {
                Some(word) if !has_forbidden(word) => *checked_until += size_of_val(word),
                // It may be what stands behind the name.
                _ => return name_is_valid(name),
            }
        }
        name_length_is_valid(name)
    }

    #[inline]
    fn entry(&self, index: usize) -> Result<DirectoryEntry<'a>, ReadError> {
        let name = self.name(index)?;
        if name_is_valid(name) { self.entry_of(index, name) } else { Err(ReadError::Corrupt(Damage::Name)) }
    }

    #[inline]
    fn entry_of(&self, index: usize, name: &'a [u8]) -> Result<DirectoryEntry<'a>, ReadError> {
        const DAMAGED: ReadError = ReadError::Corrupt(Damage::DirectoryBlock);
        let entry = self.entries.get(index).ok_or(DAMAGED)?;
        let is_last = index + 1 == self.entries.len();
        let next_position =
            if is_last { self.start + BLOCK_BYTES } else { self.start + ((index + 1) * DIRENT_BYTES) as u64 };
        Ok(DirectoryEntry {
            name,
            number: InodeNumber(u64_at(entry, 0).ok_or(DAMAGED)?),
            kind: FileKind::from_entry_type(entry[10]),
            next_position,
        })
    }

    fn find(&self, name: &[u8]) -> Result<Option<DirectoryEntry<'a>>, ReadError> {
        let first = first_eight(name);
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let here = self.name(middle)?;
            // Nearly always they differ in the first eight bytes.
            let order = match first_eight(here).cmp(&first) {
                core::cmp::Ordering::Equal => order_of(here, name),
                differs => differs,
            };
            match order {
                // It is what was asked for, so it is as good a name.
                core::cmp::Ordering::Equal => return self.entry_of(middle, here).map(Some),
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

/// The order of two names, byte by byte as everywhere, but eight at a time: a look-up compares several.
fn order_of(one: &[u8], other: &[u8]) -> core::cmp::Ordering {
    let (ones, one_rest) = one.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    for (a, b) in ones.iter().zip(others) {
        let (a, b) = (u64::from_be_bytes(*a), u64::from_be_bytes(*b));
        if a != b {
            return a.cmp(&b);
        }
    }
    // The shorter one ends here, in zeros that stand for no byte: what begins alike is told apart by its length.
    let next = |chunks: &[[u8; 8]], rest| chunks.first().map_or(first_word(rest), |chunk| u64::from_be_bytes(*chunk));
    let common = ones.len().min(others.len());
    let (a, b) = (next(&ones[common..], one_rest), next(&others[common..], other_rest));
    a.cmp(&b).then(one.len().cmp(&other.len()))
}

/// The first eight bytes, the first one highest, or all with zeros behind them.
#[inline]
fn first_eight(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or_else(|| first_word(bytes), |chunk| u64::from_be_bytes(*chunk))
}

/// Fewer than eight bytes, the first one highest, and zeros behind them.
#[inline]
fn first_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let behind = (8 * (8 - bytes.len() as u32)) & 63;
        return u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << behind;
    }
    let byte_at = |index: usize| bytes.get(index).map_or(0, |byte| u64::from(*byte) << (56 - 8 * index));
    byte_at(0) | byte_at(1) | byte_at(2)
}

/// The entries of a directory from a position on; made by [`Image::entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    image: Image<'a>,
    directory: Inode,
    /// The block where `position` lies, if it was looked at.
    block: Option<DirectoryBlock<'a>>,
    position: u64,
    is_done: bool,
}

impl<'a> Entries<'a> {
    fn advance(&mut self) -> Result<Option<DirectoryEntry<'a>>, ReadError> {
        while self.position < self.directory.size_bytes {
            let block_index = self.position / BLOCK_BYTES;
            let known = self.block.filter(|block| block.start == block_index * BLOCK_BYTES);
            let block = match known {
                Some(block) => block,
                None => self.image.directory_block(&self.directory, block_index)?,
            };
            self.block = Some(block);
            let index = ((self.position % BLOCK_BYTES) as usize).div_ceil(DIRENT_BYTES);
            if index < block.entries.len() {
                let entry = block.entry(index)?;
                self.position = entry.next_position;
                return Ok(Some(entry));
            }
            self.position = (block_index + 1) * BLOCK_BYTES;
        }
        Ok(None)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirectoryEntry<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let item = self.advance().transpose();
        self.is_done = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use super::order_of;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn names_have_the_order_of_their_bytes() {
        let mut names: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..=19 {
            for (index, byte) in [(0, 0), (length - 1, 0), (length / 2, 255), (length - 1, b'b'), (0, b'z')] {
                let mut name = vec![b'a'; length];
                name[index] = byte;
                names.push(name);
            }
        }
        for one in &names {
            for other in &names {
                assert_eq!(order_of(one, other), one.cmp(other), "{one:?} {other:?}");
            }
        }
    }
}
