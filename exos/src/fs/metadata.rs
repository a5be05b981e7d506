//! What is known of a file besides its contents, as plain data: kinds, owners and rights, times, totals.
//!
//! These are the words in which everything about files talks, so this file stands below all of them and knows none.

use crate::error::Result;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A pipe, named or not.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The type bits of `st_mode` (POSIX `sys/stat.h`; the numbers are Linux's, the same on all its machines).
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::CharacterDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The unit.
    pub minor: u32,
}

impl DeviceNumber {
    /// One number, encoded as Linux's `makedev` does for numbers of up to 12 and 20 bits.
    pub fn encoded(self) -> u64 {
        let (major, minor) = (u64::from(self.major), u64::from(self.minor));
        (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
    }

    /// The inverse of [`Self::encoded`] for 32-bit encodings (also EROFS's).
    pub fn decoded(encoded: u32) -> Self {
        let minor = (encoded & 0xff) | ((encoded >> 12) & 0xf_ff00);
        Self { major: (encoded >> 8) & 0xfff, minor }
    }
}

/// A point in time since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1e9.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// From nanoseconds since the epoch.
    pub fn from_ns(ns: u64) -> Self {
        Self { seconds: (ns / 1_000_000_000).cast_signed(), nanoseconds: (ns % 1_000_000_000) as u32 }
    }
}

/// What of an inode decides about access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// File type (`S_IFMT`).
    pub kind: FileKind,
    /// Permission bits, with set-ID and sticky bits.
    pub permissions: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

impl Metadata {
    /// The part that decides about access.
    pub fn protection(&self) -> Protection {
        Protection { kind: self.kind, permissions: self.permissions, uid: self.uid, gid: self.gid }
    }
}

/// A time, or a way to learn it: for work that may not need it, as clocks are not free.
pub trait Now {
    /// The time.
    fn now(self) -> Timestamp;
}

impl Now for Timestamp {
    fn now(self) -> Timestamp {
        self
    }
}

impl<F: FnOnce() -> Timestamp> Now for F {
    fn now(self) -> Timestamp {
        self()
    }
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The file system's device number.
    pub device: DeviceNumber,
    /// Number of the inode, unique in its file system.
    pub inode_number: u64,
    /// File type (`S_IFMT`).
    pub kind: FileKind,
    /// Permission bits with set-user-ID, set-group-ID and sticky, at most 0o7777.
    pub permissions: u32,
    /// Names that lead to it.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For devices: which.
    pub device_node: DeviceNumber,
    /// Length of the contents in bytes.
    pub size_bytes: u64,
    /// Memory or image space taken, in units of 512 bytes.
    pub block_count: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of contents or metadata.
    pub changed: Timestamp,
    /// Creation, where known.
    pub created: Option<Timestamp>,
}

impl Metadata {
    /// `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }
}

/// What a file system as a whole tells (`statfs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemStatistics {
    /// Magic number (Linux `magic.h`).
    pub magic: u64,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Blocks; 0 means without a limit.
    pub block_count: u64,
    /// Blocks that are free.
    pub free_block_count: u64,
    /// Inodes; 0 means without a limit.
    pub inode_count: u64,
    /// Inodes that are free.
    pub free_inode_count: u64,
}

/// What to set; `None` leaves it. The time of change is always set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, at most 0o7777.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: Option<Timestamp>,
    /// Last change of contents.
    pub modified: Option<Timestamp>,
}

/// Says what is to be set of an inode with this owner and these permissions; `None`: nothing. It is called under the
/// inode's lock, so it looks at nothing else that has one.
pub type Decision<'a> = dyn FnMut(Protection) -> Result<Option<SetAttributes>> + 'a;

/// A read leaves its time if the last one noted is older than this many seconds (`relatime`).
const ACCESS_TIME_AGE_S: i64 = 24 * 60 * 60;

/// Whether a read at `now` leaves its time: the last one noted is not newer than all `changes`, or a day old.
pub fn is_access_due(accessed: Timestamp, changes: [Timestamp; 2], now: Timestamp) -> bool {
    changes.iter().any(|change| accessed <= *change) || now.seconds - accessed.seconds >= ACCESS_TIME_AGE_S
}
