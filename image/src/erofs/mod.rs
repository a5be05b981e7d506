//! EROFS, uncompressed: the read-only root image format, a public one that Linux mounts.
//!
//! The on-disk format is that of Linux (`Documentation/filesystems/erofs.rst`, "On-disk details"): a superblock at byte
//! 1024, 32-byte slots of metadata that hold inodes, directories as blocks of sorted names, data in blocks. Used here:
//! blocks of 4 KiB, compact and extended inodes, the layouts "flat plain" (all data in consecutive blocks) and "flat
//! inline" (the last partial block behind its inode), and extended attributes behind their inodes or shared.
//! Compression, chunks and further devices are outside and refused by name; attributes under long prefixes are skipped.
//!
//! Flat-plain data is why this format was chosen: it is contiguous and starts at a page boundary, so a library OS maps
//! it straight from the image and processes share the frames. [`mod@write`] puts every regular file that way.
//!
//! Neighbours: [`crate::tree`] is what the writer writes; the library OS keeps a [`read::Image`] over the bundle's root
//! part. `check` walks a whole image before it is trusted.

pub mod check;
pub mod extended;
pub mod read;
pub mod write;

mod crc32c;

/// Bytes in a block: only images with pages as blocks are read and written.
pub const BLOCK_BYTES: u64 = crate::PAGE_BYTES;
/// First four bytes of a superblock.
pub const SUPER_MAGIC: u32 = 0xe0f5_e1e2;
/// Where the superblock is.
pub const SUPER_OFFSET: usize = 1024;
/// Bytes in a superblock without extensions.
const SUPER_BYTES: usize = 128;
/// log2 of [`BLOCK_BYTES`] as the superblock has it.
const BLOCK_BITS: u8 = 12;

/// Bytes in a metadata slot; an inode's number is its slot.
const SLOT_BYTES: u64 = 32;
/// Bytes in a compact inode.
const COMPACT_INODE_BYTES: u64 = 32;
/// Bytes in an extended inode.
const EXTENDED_INODE_BYTES: u64 = 64;
/// Bytes in a directory entry without its name.
const DIRENT_BYTES: usize = 12;

/// Compatible feature: the superblock holds a checksum of its block.
const COMPAT_CHECKSUM: u32 = 1;
/// Compatible feature: times are times of last modification.
const COMPAT_MTIME: u32 = 2;

/// Inode layout: all data in consecutive blocks.
const LAYOUT_FLAT_PLAIN: u16 = 0;
/// Inode layout: the last block's data follow the inode.
const LAYOUT_FLAT_INLINE: u16 = 2;

/// Type bits of a mode, as in Linux `stat`.
const MODE_TYPE_MASK: u16 = 0o170_000;
/// Permission bits of a mode.
const MODE_PERMISSION_MASK: u16 = 0o7777;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

/// Every kind with its number in directory entries and its mode bits.
const FILE_KINDS: [(FileKind, u8, u16); 7] = [
    (FileKind::Regular, 1, 0o100_000),
    (FileKind::Directory, 2, 0o040_000),
    (FileKind::CharacterDevice, 3, 0o020_000),
    (FileKind::BlockDevice, 4, 0o060_000),
    (FileKind::Fifo, 5, 0o010_000),
    (FileKind::Socket, 6, 0o140_000),
    (FileKind::Symlink, 7, 0o120_000),
];

impl FileKind {
    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u16 {
        self.row().2
    }

    /// The kind that a mode's type bits say.
    pub fn from_mode(mode: u16) -> Option<Self> {
        FILE_KINDS.iter().find(|row| row.2 == mode & MODE_TYPE_MASK).map(|row| row.0)
    }

    /// The number in directory entries.
    fn entry_type(self) -> u8 {
        self.row().1
    }

    /// The kind that a directory entry says.
    fn from_entry_type(number: u8) -> Option<Self> {
        // They are numbered in the table's order, from 1 on.
        FILE_KINDS.get(usize::from(number).wrapping_sub(1)).map(|row| row.0)
    }

    fn row(self) -> (Self, u8, u16) {
        FILE_KINDS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE_KINDS, FileKind};

    #[test]
    fn kind_table_is_in_the_order_of_the_enum() {
        for (kind, entry_type, mode) in FILE_KINDS {
            assert_eq!(kind.mode_bits(), mode);
            assert_eq!(FileKind::from_mode(mode | 0o644), Some(kind));
            assert_eq!(FileKind::from_entry_type(entry_type), Some(kind));
            assert_eq!(kind.entry_type(), entry_type);
        }
        assert_eq!(FileKind::from_mode(0o644), None);
        assert_eq!(FileKind::from_entry_type(0), None);
    }
}
