//! Inodes: the trait that every file system implements, and the words for metadata.
//!
//! An [`Inode`] is reached through an `Arc`; a file lives while a directory or anybody else holds one,
//! which gives files that are unlinked but open for free. Implementations lock inside and hold no lock
//! while they call back (INV-F1). Permissions, read-only mounts, sticky bits and paths are not their
//! business: [`super::namespace`] decides before it calls.
//!
//! Names that arrive here are single components of 1 to 255 bytes, neither `.` nor `..`; the walk has seen to it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Range;

use super::extended_attribute::AttributeChange;
use super::file_users::FileUsers;
use super::location::Location;
use super::permission::Credentials;
use super::proc_fs::ProcessName;
use super::readiness::Readiness;
pub use super::seals::{Sealable, Seals};
pub use super::set_attributes::{Decision, SetAttributes};
use super::transfer::{Destination, Source};
use crate::error::{Errno, Result};
use crate::mem::source::{FilePage, FixedRun, PageError, PageIntent};

/// Longest name of a directory entry in bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path in bytes without its NUL (`PATH_MAX - 1`).
pub const PATH_BYTES_MAX: usize = 4095;
/// Largest offset in a file (`loff_t`).
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// A shared inode.
pub type InodeRef = Arc<dyn Inode>;

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

/// What of an inode decides who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with set-ID and sticky bits.
    pub permissions: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Metadata {
    /// The part that decides who may do what.
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
    /// What it is.
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

/// What kind of node to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with its target, 1 to 4095 bytes.
    Symlink(&'a [u8]),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

impl NewNode<'_> {
    /// The kind of inode that this becomes.
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Regular => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharacterDevice(_) => FileKind::CharacterDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}

/// Who creates, with which permissions, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Permission bits after the umask, at most 0o7777.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory has the set-group-ID bit.
    pub gid: u32,
    /// Now.
    pub now: Timestamp,
}

/// How `rename` treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Both are swapped (`RENAME_EXCHANGE`).
    Exchange,
}

/// One entry as a directory lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The inode's number.
    pub inode_number: u64,
    /// The inode's kind.
    pub kind: FileKind,
    /// The position behind this entry: stable, also while other entries come and go (`d_off`).
    pub next_cookie: u64,
}

/// Takes entries one by one; `false` ends the listing before the entry that it was given (it did not fit).
pub type EntryConsumer<'a> = dyn FnMut(DirectoryEntry<'_>) -> bool + 'a;

/// What following a link leads to.
pub enum LinkTarget {
    /// A path, walked from the link's directory.
    Path(Vec<u8>),
    /// A jump to where something is (`/proc/self/exe`, `/proc/self/fd/N`).
    Jump(Location),
}

/// Changes the allocation of a file (fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Room for the range; the file grows to its end.
    Extend,
    /// Room for the range; the size stays.
    KeepSize,
    /// The range becomes a hole; the size stays.
    PunchHole,
    /// The range reads as zeros; the file grows to its end.
    ZeroRange,
    /// The range reads as zeros; the size stays.
    ZeroRangeKeepSize,
}

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next byte that is not in a hole (`SEEK_DATA`).
    Data,
    /// The next hole; the end of the file is one (`SEEK_HOLE`).
    Hole,
}

/// How an inode is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// `O_NONBLOCK`.
    pub non_blocking: bool,
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

/// An open file that is more than its inode: a device, a pipe's end, a generated text.
///
/// A [`super::description::Description`] calls it for every transfer. What would block answers `EAGAIN`
/// (INV-F3); the caller looks at [`Self::wait_queue`] if it wants to sleep.
pub trait OpenFile: Send + Sync {
    /// Reads from `offset` (0 for what cannot seek) into `destination`; `Ok(0)` is the end.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`, `EIO`, `EINVAL` if it cannot be read.
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize>;

    /// Writes from `source` at `offset`.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`, `EPIPE`, `ENOSPC`, `EINVAL` if it cannot be written.
    fn write(&self, offset: u64, source: &mut dyn Source) -> Result<usize>;

    /// What it is ready for now.
    fn readiness(&self) -> Readiness {
        Readiness::ALWAYS
    }

    /// Who to ask for changes of readiness; `None` if it never changes.
    fn wait_queue(&self) -> Option<&Arc<super::readiness::WaitQueue>> {
        None
    }

    /// Whether [`Self::wait_queue`] is told of every change, so that nobody has to ask [`Self::readiness`] for it.
    fn announces(&self) -> bool {
        true
    }

    /// Whether offsets mean something: `lseek`, `pread`, `pwrite` answer `ESPIPE` otherwise.
    fn seek_support(&self) -> SeekSupport {
        SeekSupport::None
    }

    /// Whether every read gives as many zero bytes as are asked for, and does nothing else.
    fn reads_zeros(&self) -> bool {
        false
    }

    /// Whether a write is one value whose bytes are taken before it is known whether there is room: whoever tries again
    /// has to keep them.
    fn takes_whole(&self) -> bool {
        false
    }

    /// Whether a blocking write goes on until all is written (pipes, streams).
    fn writes_all(&self) -> bool {
        false
    }

    /// False while a blocking `open` of a named pipe has to wait for the other end.
    fn is_connected(&self) -> bool {
        true
    }

    /// The terminal that this is, if it is one.
    fn terminal(&self) -> Option<&dyn super::stream::Terminal> {
        None
    }

    /// The side of one of exos's own terminals that this is.
    fn terminal_side(&self) -> Option<super::terminal::tty::Side<'_>> {
        None
    }

    /// Bytes that can be read without blocking (`FIONREAD`), where that is known.
    fn readable_byte_count(&self) -> Option<usize> {
        None
    }

    /// A pipe's capacity (`F_GETPIPE_SZ`, `F_SETPIPE_SZ`), for what is a pipe.
    fn pipe(&self) -> Option<&Arc<super::pipe::Pipe>> {
        None
    }

    /// What a personality put behind the file, for calls that are about that alone (an epoll instance, a timer).
    fn extension(&self) -> Option<&dyn Any> {
        None
    }
}

/// What `lseek` does on an [`OpenFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekSupport {
    /// `ESPIPE`.
    None,
    /// Any offset is accepted; reading and writing do not look at it (`/dev/null`).
    Ignored,
    /// Any offset is accepted, but there is no reading or writing at one (what has no name: `eventfd`).
    Accepted,
    /// Offsets count; there is no end to seek from.
    Offsets,
}

/// A read leaves its time if the last one noted is older than this many seconds (`relatime`).
const ACCESS_TIME_AGE_S: i64 = 24 * 60 * 60;

/// Whether a read at `now` leaves its time: the last one noted is not newer than all `changes`, or a day old.
pub fn is_access_due(accessed: Timestamp, changes: [Timestamp; 2], now: Timestamp) -> bool {
    changes.iter().any(|change| accessed <= *change) || now.seconds - accessed.seconds >= ACCESS_TIME_AGE_S
}

/// A file, directory, link or special file.
///
/// The defaults are those of a read-only file that is not a directory.
pub trait Inode: Any + Send + Sync {
    /// What `stat` tells.
    fn metadata(&self) -> Metadata;

    /// Its number, which never changes.
    fn inode_number(&self) -> u64 {
        self.metadata().inode_number
    }

    /// The part of it that decides who may do what: every directory of every path is asked for it.
    fn protection(&self) -> Protection {
        self.metadata().protection()
    }

    /// What it is; never changes.
    fn kind(&self) -> FileKind {
        self.metadata().kind
    }

    /// The process that it is a directory about (`/proc/PID`), if it is one.
    fn process_name(&self) -> Option<ProcessName> {
        None
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EIO` (damaged image), `ENOMEM`.
    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let _ = name;
        Err(Errno::ENOTDIR)
    }

    /// Whether names may appear and vanish by themselves, so that they must be looked up each time.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Whether it is a directory that has no names and never gets any, so that none needs to be looked up.
    fn is_always_empty(&self) -> bool {
        false
    }

    /// Whether names in this directory and its permissions change by the name space alone, so that a walk through it
    /// can be known beforehand.
    fn is_steady(&self) -> bool {
        !self.is_volatile()
    }

    /// Whether a walk may go on from this directory, as far as that is for the file system to say. Asked only of those
    /// that are not steady.
    ///
    /// # Errors
    /// `ESRCH`: the process that it tells of has ended.
    fn check_search(&self) -> Result<()> {
        Ok(())
    }

    /// Whether `name` still leads to `child`, to which it led before. Asked on every walk through what is not steady:
    /// names that a file system changes by itself may be remembered all the same.
    fn confirms(&self, name: &[u8], child: &InodeRef) -> bool {
        let _ = (name, child);
        true
    }

    /// Lists from `cookie` on (0: from the start) without `.` and `..`, and returns the cookie to go on
    /// from. Cookies are stable for the life of an entry, and at least 1.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let _ = (cookie, consumer);
        Err(Errno::ENOTDIR)
    }

    /// Creates a node under `name` in this directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, `ENOMEM`, `EROFS`, `ENOENT` (the directory itself was
    /// removed), `EPERM` (not supported here).
    fn create(&self, name: &[u8], node: NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        let _ = (name, node, creation);
        Err(Errno::EROFS)
    }

    /// A regular file without a name in this file system (`O_TMPFILE`).
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENOSPC`.
    fn create_unnamed(&self, creation: Creation, is_linkable: bool) -> Result<InodeRef> {
        let _ = (creation, is_linkable);
        Err(Errno::EOPNOTSUPP)
    }

    /// Gives `target`, a non-directory of the same file system, another name here.
    ///
    /// # Errors
    /// `EEXIST`, `EXDEV`, `EPERM`, `EROFS`, `ENOENT` (no names left), `EMLINK`, `ENOSPC`.
    fn link(&self, name: &[u8], target: &InodeRef, now: Timestamp) -> Result<()> {
        let _ = (name, target, now);
        Err(Errno::EROFS)
    }

    /// Removes the name of a non-directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EROFS`.
    fn unlink(&self, name: &[u8], now: Timestamp) -> Result<()> {
        let _ = (name, now);
        Err(Errno::EROFS)
    }

    /// Removes the name of an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EROFS`.
    fn remove_directory(&self, name: &[u8], now: Timestamp) -> Result<()> {
        let _ = (name, now);
        Err(Errno::EROFS)
    }

    /// Moves `old_name` of this directory to `new_name` of `new_parent`, which is of the same file system
    /// and not below what moves.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EXDEV`, `EROFS`.
    fn rename(
        &self,
        old_name: &[u8],
        new_parent: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let _ = (old_name, new_parent, new_name, mode, now);
        Err(Errno::EROFS)
    }

    /// The text of a symbolic link (`readlink`).
    ///
    /// # Errors
    /// `EINVAL`: not a link.
    fn read_link(&self) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }

    /// Where following the link leads; magic links differ from their text.
    ///
    /// # Errors
    /// Those of [`Self::read_link`], `ENOENT`.
    fn follow_link(&self) -> Result<LinkTarget> {
        self.read_link().map(LinkTarget::Path)
    }

    /// Reads contents from `offset`; `Ok(0)` at the end.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EFAULT`, `EIO`.
    fn read_at(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let _ = (offset, destination);
        Err(Errno::EINVAL)
    }

    /// Writes contents at `position`; returns where the write began and how many bytes it took.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `ENOMEM`, `EFAULT`, `EROFS`.
    fn write_at(&self, position: WritePosition, source: &mut dyn Source, now: Timestamp) -> Result<(u64, usize)> {
        let _ = (position, source, now);
        Err(Errno::EROFS)
    }

    /// Sets the size of a regular file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EFBIG`, `EROFS`, `EPERM` (sealed).
    fn truncate(&self, size_bytes: u64, now: Timestamp) -> Result<()> {
        let _ = (size_bytes, now);
        Err(Errno::EROFS)
    }

    /// Changes the allocation of a range of a regular file.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENOSPC`, `EFBIG`, `EINVAL`, `EROFS`, `EPERM` (sealed).
    fn allocate(&self, mode: Allocate, offset: u64, length: u64, now: Timestamp) -> Result<()> {
        let _ = (mode, offset, length, now);
        Err(Errno::EOPNOTSUPP)
    }

    /// Finds data or a hole from `offset` on.
    ///
    /// # Errors
    /// `ENXIO`: `offset` is at or behind the end, or there are no data behind it.
    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        let size_bytes = self.metadata().size_bytes;
        match target {
            _ if offset >= size_bytes => Err(Errno::ENXIO),
            SeekTarget::Data => Ok(offset),
            SeekTarget::Hole => Ok(size_bytes),
        }
    }

    /// Sets owner, permissions and times; who may, the caller has decided.
    ///
    /// # Errors
    /// `EROFS`, `EPERM` (not supported here).
    fn set_attributes(&self, attributes: SetAttributes, now: Timestamp) -> Result<()> {
        let _ = (attributes, now);
        Err(Errno::EROFS)
    }

    /// Sets what `decide` says of the owner and the permissions that there are then, which nobody changes in between
    /// where this file system alone does; whether it said anything.
    ///
    /// # Errors
    /// Those of `decide` and [`Self::set_attributes`].
    fn decide_attributes(&self, decide: &mut Decision<'_>, now: Timestamp) -> Result<bool> {
        decide(self.protection())?.map_or(Ok(false), |attributes| self.set_attributes(attributes, now).map(|()| true))
    }

    /// Its size.
    fn size_bytes(&self) -> u64 {
        self.metadata().size_bytes
    }

    /// Notes a read as `relatime` does.
    fn note_access(&self, now: Timestamp) {
        let metadata = self.metadata();
        if is_access_due(metadata.accessed, [metadata.modified, metadata.changed], now) {
            self.touch_accessed(now);
        }
    }

    /// Notes a read ([`Self::note_access`] decides whether to). Failing to note it is no error.
    fn touch_accessed(&self, now: Timestamp) {
        let _ = now;
    }

    /// Whether [`Self::page`] works at all (`ENODEV` from `mmap` otherwise).
    fn is_mappable(&self) -> bool {
        false
    }

    /// Page `index` of the contents, for mapping; the rules are those of
    /// [`crate::mem::source::PageSource::page`].
    ///
    /// # Errors
    /// The mapper's.
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        let _ = (index, intent);
        Err(PageError::Failed)
    }

    /// Whether reading it may wait for somebody outside of the pod.
    fn may_wait(&self) -> bool {
        false
    }

    /// Page `index` for reading, if it is at hand.
    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let _ = index;
        None
    }

    /// As [`Self::resident_page`] for several pages: `take` gets those that are at hand, in any order. It must not come
    /// back to the file.
    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        for index in indices {
            if let Some(page) = self.resident_page(index) {
                take(index, page);
            }
        }
    }

    /// As [`crate::mem::PageSource::fixed_run`].
    fn fixed_run(&self, _indices: Range<u64>) -> Option<FixedRun> {
        None
    }

    /// What an open description of this inode works on; `None`: on the inode itself. Devices are opened by
    /// the namespace's device table instead.
    ///
    /// # Errors
    /// `ENXIO`, `EACCES`, `ENOMEM`; `EAGAIN` where opening would block (a named pipe without its other end).
    fn open(&self, request: OpenRequest, credentials: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        let _ = (request, credentials);
        Ok(None)
    }

    /// Makes what was written durable where the file system is more than memory (`fsync`, `msync`).
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// The same for all files of the file system (`sync`, the end of a run).
    ///
    /// # Errors
    /// The first of those of [`Self::sync`].
    fn sync_file_system(&self) -> Result<()> {
        Ok(())
    }

    /// The seals of a file that can be sealed (`F_GET_SEALS`), with a way to add some.
    fn seals(&self) -> Option<&dyn Sealable> {
        None
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`. `EOPNOTSUPP`: the file system keeps none. `ENOMEM`.
    fn extended_attribute(&self, name: &[u8]) -> Result<Vec<u8>> {
        let _ = name;
        Err(Errno::EOPNOTSUPP)
    }

    /// Sets one; `None` takes it away.
    ///
    /// # Errors
    /// As above; `EEXIST`, `ENOSPC`.
    fn set_extended_attribute(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        change: AttributeChange,
        now: Timestamp,
    ) -> Result<()> {
        let _ = (name, value, change, now);
        Err(Errno::EOPNOTSUPP)
    }

    /// The names of all, each with a zero byte behind it.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn extended_attribute_names(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Who uses it; `None`: that is not counted, because it is no regular file or nobody can write it.
    fn users(&self) -> Option<&FileUsers> {
        None
    }

    /// The totals of the file system.
    fn statistics(&self) -> FileSystemStatistics;
}

/// Where a write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePosition {
    /// At an offset.
    At(u64),
    /// At the end, found and moved in one step (`O_APPEND`).
    End,
}

/// The inode as a `T`, if it is one: for operations on two inodes of one file system.
pub fn downcast<T: Inode>(inode: &InodeRef) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = inode.clone();
    any.downcast().ok()
}

/// Whether both are the same inode.
pub fn is_same(left: &InodeRef, right: &InodeRef) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(left), Arc::as_ptr(right))
}
