//! Inodes: the trait that every file system implements, and the arguments of its methods.
//!
//! An [`Inode`] is reached through an `Arc`; a file lives while a directory or another holder has one, which gives
//! files that are unlinked but open for free. Implementations lock inside and hold no lock while they call back
//! (INV-F1). Permissions, read-only mounts, sticky bits and paths are not their business: [`super::namespace`] decides
//! before it calls.
//!
//! Names that arrive here are single components of 1 to 255 bytes, neither `.` nor `..`; the walk has seen to it.
//!
//! Neighbours: [`super::metadata`], the data that all of this is about; [`super::open_file`], what an inode may be
//! opened as.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Range;

use aegis_abi::FrameNumber;

use super::extended_attribute::AttributeChange;
use super::file_users::FileUsers;
use super::location::Location;
use super::metadata::{
    Decision, DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, SetAttributes, Timestamp,
    is_access_due,
};
use super::open_file::{OpenFile, OpenRequest};
use super::permission::Credentials;
use super::seals::Sealable;
use super::transfer::{Destination, Source};
use crate::error::{Errno, Result};
use crate::mem::frames::FixedRun;
use crate::mem::source::{FilePage, PageError, PageIntent};

/// Longest name of a directory entry in bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path in bytes without its NUL (`PATH_MAX - 1`).
pub const PATH_BYTES_MAX: usize = 4095;
/// Largest offset in a file (`loff_t`).
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// A shared inode.
pub type InodeRef = Arc<dyn Inode>;

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

/// The creator, the permissions, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Permission bits after the umask, at most 0o7777.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory has the set-group-ID bit.
    pub gid: u32,
    /// Time of the operation.
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

/// A process, or one of its threads where `thread` is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessName {
    /// Process number.
    pub process: u32,
    /// Thread number, for what is below `task/`.
    pub thread: Option<u32>,
    /// Which of all that have had the number; 0 means the present one. What was found stays with that one.
    pub birth: u64,
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

    /// The device that it is on; never changes.
    fn device(&self) -> DeviceNumber {
        self.metadata().device
    }

    /// The part of it that decides about access: every directory of every path is asked for it.
    fn protection(&self) -> Protection {
        self.metadata().protection()
    }

    /// What it is; never changes.
    fn kind(&self) -> FileKind {
        self.metadata().kind
    }

    /// Of a directory, whether surely no entry follows `cookie`.
    fn ends_at(&self, cookie: u64) -> bool {
        let _ = cookie;
        false
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

    /// Whether it stays as long as it has a name, whatever else holds it.
    fn is_kept(&self) -> bool {
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

    /// Sets owner, permissions and times; the caller has checked the right to.
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

    /// Takes set-ID bits from a file that is about to be changed by a user that may not keep them; whether it had such.
    ///
    /// # Errors
    /// Those of [`Self::set_attributes`].
    fn end_set_ids(&self, by: &Credentials, now: Timestamp) -> Result<bool> {
        // Nearly always there are none.
        if by.permissions_after_change(self.protection()).is_none() {
            return Ok(false);
        }
        let mut decide = |file| {
            let permissions = by.permissions_after_change(file);
            Ok(permissions.map(|_| SetAttributes { permissions, ..Default::default() }))
        };
        self.decide_attributes(&mut decide, now)
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

    /// As [`crate::mem::source::PageSource::owns`].
    fn owns(&self, index: u64, frame: FrameNumber) -> bool {
        let _ = (index, frame);
        false
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

    /// Whether it may have extended attributes; asked of what lies below a layer in memory.
    fn has_extended_attributes(&self) -> bool {
        false
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

    /// Its users; `None`: they are not counted, because it is no regular file or cannot be written.
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
