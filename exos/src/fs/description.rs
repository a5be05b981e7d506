//! Open file descriptions: what `open` makes and descriptors share.
//!
//! A description joins a location, an access mode, status flags and an offset; it works on the inode, or on the
//! [`OpenFile`] that opening the inode gave. It never blocks (INV-F3): what would block is `EAGAIN`, and a caller that
//! may block does a transfer in steps ([`Description::read_step`], [`Description::write_step`]), which say what it
//! waits for on [`Description::wait_queue`].
//!
//! The offset is claimed before a transfer and corrected after it, because no lock may be held in between
//! (INV-F1): two transfers on one description never cover the same bytes, as Linux promises.

mod steps;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use bitflags::bitflags;

use super::file_lock::{Attachment, LockFamily, LockOwner, LockRange, LockTable, LockedFile};
use super::location::{Location, MountFlags};
use super::metadata::{FileKind, Metadata, Now, Timestamp};
use super::open_file::{OpenFile, OpenRequest, SeekSupport};
use super::permission::Credentials;
use super::pipe::Pipe;
use super::readiness::{Readiness, WaitQueue};
use super::terminal::modes::Terminal;
use super::terminal::tty::Side;
use super::transfer::{Destination, Source};
use super::vnode::{Allocate, DirectoryEntry, InodeRef, OFFSET_MAX, SeekTarget, WritePosition};
use super::watch::{WatchTable, event};
use crate::error::{Errno, Result};
use crate::mem::PageSource;
use crate::sync::Mutex;

bitflags! {
    /// Flags of a description; those that `F_GETFL` shows besides the access mode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct StatusFlags: u32 {
        /// `O_APPEND`: every write goes to the end.
        const APPEND = 1 << 0;
        /// `O_NONBLOCK`: the caller does not sleep.
        const NON_BLOCKING = 1 << 1;
        /// `O_NOATIME`: reads leave no time.
        const NO_ACCESS_TIME = 1 << 2;
        /// `O_DIRECT`; without effect here.
        const DIRECT = 1 << 3;
        /// `O_DSYNC`; without effect in memory.
        const DATA_SYNC = 1 << 4;
        /// `O_SYNC`; without effect in memory.
        const SYNC = 1 << 5;
        /// `O_ASYNC`: its owner is told by a signal (the personality's part).
        const ASYNC = 1 << 6;
        /// `O_DIRECTORY` was given.
        const DIRECTORY = 1 << 7;
        /// `O_NOFOLLOW` was given.
        const NO_FOLLOW = 1 << 8;
        /// `O_PATH`: only a place, nothing can be read or written.
        const PATH_ONLY = 1 << 9;
        /// `O_TMPFILE` was given.
        const UNNAMED = 1 << 10;
    }
}

impl StatusFlags {
    /// What `F_SETFL` can change.
    pub const CHANGEABLE: Self =
        Self::APPEND.union(Self::NON_BLOCKING).union(Self::NO_ACCESS_TIME).union(Self::DIRECT).union(Self::ASYNC);
}

/// Where `lseek` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// The file's start (`SEEK_SET`).
    Start(i64),
    /// The current offset (`SEEK_CUR`).
    Current(i64),
    /// The file's end (`SEEK_END`).
    End(i64),
    /// The next data behind an offset (`SEEK_DATA`).
    Data(i64),
    /// The next hole behind an offset (`SEEK_HOLE`).
    Hole(i64),
}

/// What of a file never changes, asked once.
struct Nature {
    kind: FileKind,
    /// `Offsets` without an [`OpenFile`].
    seek_support: SeekSupport,
    is_plain: bool,
    pipe: Option<Arc<Pipe>>,
    reads_zeros: bool,
}

impl Nature {
    fn of(inode: &InodeRef, file: Option<&Arc<dyn OpenFile>>) -> Self {
        let is_plain = |file: &Arc<dyn OpenFile>| {
            // A file of values has nothing more to say than its value.
            let is_own_way = file.extension().is_some() && !file.takes_whole();
            !(file.writes_all() || is_own_way || file.terminal_side().is_some() || file.pipe().is_some())
        };
        Self {
            kind: inode.kind(),
            seek_support: file.map_or(SeekSupport::Offsets, |file| file.seek_support()),
            is_plain: file.is_none_or(is_plain),
            pipe: file.and_then(|file| file.pipe()).cloned(),
            reads_zeros: file.is_some_and(|file| file.reads_zeros()),
        }
    }
}

/// Offsets of `.` and `..`, before those of a directory's own entries.
const DOT_COUNT: u64 = 2;

/// An open file description.
pub struct Description {
    number: u64,
    location: Location,
    request: OpenRequest,
    /// Bits of [`StatusFlags`].
    status: AtomicU32,
    offset: Mutex<u64>,
    file: Option<Arc<dyn OpenFile>>,
    nature: Nature,
    locks: Arc<LockTable>,
    watches: Arc<WatchTable>,
}

impl Description {
    /// Only [`super::namespace::Namespace`] makes descriptions.
    pub(super) fn new(
        number: u64,
        location: Location,
        request: OpenRequest,
        status: StatusFlags,
        file: Option<Arc<dyn OpenFile>>,
        (locks, watches): (Arc<LockTable>, Arc<WatchTable>),
    ) -> Arc<Self> {
        let (status, offset) = (AtomicU32::new(status.bits()), Mutex::new(0));
        let nature = Nature::of(location.inode(), file.as_ref());
        if request.write
            && let Some(users) = location.inode().users()
        {
            users.count_writer(true);
        }
        let made = Arc::new(Self { number, location, request, status, offset, file, nature, locks, watches });
        made.tell_mode();
        made
    }

    /// A number that no other description of the pod has or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where the file is; `/proc/self/fd/N` jumps there.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The inode.
    pub fn inode(&self) -> &InodeRef {
        self.location.inode()
    }

    /// What `fstat` tells.
    pub fn metadata(&self) -> Metadata {
        self.inode().metadata()
    }

    /// Whether it was opened for reading.
    pub fn is_readable(&self) -> bool {
        self.request.read
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.request.write
    }

    /// Whether it is only a place (`O_PATH`): most calls answer `EBADF`.
    pub fn is_path_only(&self) -> bool {
        self.status().contains(StatusFlags::PATH_ONLY)
    }

    /// Status flags (`F_GETFL`).
    pub fn status(&self) -> StatusFlags {
        StatusFlags::from_bits_retain(self.status.load(Ordering::Relaxed))
    }

    /// Sets those flags that can change; the others stay (`F_SETFL`).
    pub fn set_status(&self, flags: StatusFlags) {
        let changed = |bits| {
            let status = StatusFlags::from_bits_retain(bits);
            Some(((status - StatusFlags::CHANGEABLE) | (flags & StatusFlags::CHANGEABLE)).bits())
        };
        let _ = self.status.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
        self.tell_mode();
    }

    fn tell_mode(&self) {
        if let Some(file) = &self.file {
            let status = self.status();
            let is_synchronous = status.intersects(StatusFlags::SYNC | StatusFlags::DATA_SYNC);
            file.set_mode(status.contains(StatusFlags::DIRECT), is_synchronous);
        }
    }

    /// Whether a caller gets `EAGAIN` instead of sleeping.
    pub fn is_non_blocking(&self) -> bool {
        self.status().contains(StatusFlags::NON_BLOCKING)
    }

    /// Whether a transfer is one call of [`Self::read`] or [`Self::write`] for any caller: not so for sockets, pipes,
    /// streams, terminals and what a personality put behind a file.
    pub fn is_plain(&self) -> bool {
        self.nature.is_plain
    }

    /// Whether there is no reading or writing at an offset.
    pub fn is_stream(&self) -> bool {
        matches!(self.nature.seek_support, SeekSupport::None | SeekSupport::Accepted)
    }

    /// Whether several buffers are so many reads ([`OpenFile::reads_records`]).
    pub fn reads_records(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.reads_records())
    }

    /// Whether a write is one value, which a caller that tries again has to keep ([`OpenFile::takes_whole`]).
    pub fn takes_whole(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.takes_whole())
    }

    /// False while a blocking `open` of a named pipe has to wait for the other end on [`Self::wait_queue`].
    pub fn is_connected(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.is_connected())
    }

    /// The terminal that this is.
    ///
    /// # Errors
    /// `ENOTTY`, `EBADF`.
    pub fn terminal(&self) -> Result<&dyn Terminal> {
        self.check_not_path()?;
        self.file.as_ref().and_then(|file| file.terminal()).ok_or(Errno::ENOTTY)
    }

    /// The side of one of exos's own terminals that this is.
    pub fn terminal_side(&self) -> Option<Side<'_>> {
        self.file.as_ref().and_then(|file| file.terminal_side())
    }

    /// The pipe that this is an end of.
    pub fn pipe(&self) -> Option<&Arc<Pipe>> {
        self.nature.pipe.as_ref()
    }

    /// What is mapped of it with an offset, if it has memory of its own ([`OpenFile::mapped`]).
    pub fn mapped(&self, offset_bytes: u64) -> Option<Result<Arc<dyn PageSource>>> {
        self.file.as_ref()?.mapped(offset_bytes)
    }

    /// What a personality put behind the file, as a `T`, if it is one.
    pub fn extension<T: 'static>(&self) -> Option<&T> {
        let file = self.file.as_ref()?;
        file.extension()?.downcast_ref()
    }

    /// Bytes that can be read at once (`FIONREAD`).
    ///
    /// # Errors
    /// `ENOTTY`: not known for this kind of file.
    pub fn readable_byte_count(&self) -> Result<usize> {
        match &self.file {
            Some(file) => file.readable_byte_count().ok_or(Errno::ENOTTY),
            None if self.inode().kind() == FileKind::Regular => {
                let left = self.metadata().size_bytes.saturating_sub(*self.offset.lock());
                Ok(usize::try_from(left).unwrap_or(usize::MAX))
            }
            None => Err(Errno::ENOTTY),
        }
    }

    /// What it is ready for.
    pub fn readiness(&self) -> Readiness {
        self.file.as_ref().map_or(Readiness::ALWAYS, |file| file.readiness())
    }

    /// The queue that tells of changes of readiness; `None`: always ready, `epoll` refuses it with `EPERM`.
    pub fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        self.file.as_ref().and_then(|file| file.wait_queue())
    }

    /// Whether [`Self::wait_queue`] is told of every change of [`Self::readiness`].
    pub fn announces(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.announces())
    }

    /// Reads from the offset on and moves it.
    ///
    /// # Errors
    /// `EBADF`: not open for reading. `EISDIR`, `EINVAL`, `EAGAIN`, `EFAULT`, `EIO`.
    pub fn read(&self, destination: &mut dyn Destination, now: impl Now) -> Result<usize> {
        self.check_readable()?;
        self.told(event::ACCESS, self.read_on(destination, now))
    }

    fn read_on(&self, destination: &mut dyn Destination, now: impl Now) -> Result<usize> {
        if let Some(file) = &self.file
            && self.nature.seek_support != SeekSupport::Offsets
        {
            return file.read(0, destination);
        }
        let (start, end) = {
            // Asking the file may take a wait, and the lock is not held over one.
            let size_bytes = self.size_for_reading();
            let mut offset = self.offset.lock();
            let start = *offset;
            let claimed = (destination.remaining() as u64).min(size_bytes.saturating_sub(start));
            *offset += claimed;
            (start, *offset)
        };
        let result = self.read_at_offset(start, destination, now);
        let done = result.unwrap_or(0) as u64;
        if start + done != end {
            self.correct_offset(end, start + done);
        }
        result
    }

    /// Reads from `offset` on.
    ///
    /// # Errors
    /// `ESPIPE`, and those of [`Self::read`].
    pub fn read_at(&self, offset: u64, destination: &mut dyn Destination, now: impl Now) -> Result<usize> {
        self.check_seekable()?;
        self.check_readable()?;
        self.told(event::ACCESS, self.read_at_offset(offset, destination, now))
    }

    /// Writes at the offset, or at the end, and moves it.
    ///
    /// # Errors
    /// `EBADF`: not open for writing. `EAGAIN`, `EFAULT`, `EPIPE`, `EFBIG`, `ENOSPC`, `ENOMEM`.
    pub fn write(&self, source: &mut dyn Source, now: impl Now) -> Result<usize> {
        self.check_writable()?;
        self.told(event::MODIFY, self.write_on(source, now))
    }

    fn write_on(&self, source: &mut dyn Source, now: impl Now) -> Result<usize> {
        let wanted = source.remaining() as u64;
        match &self.file {
            Some(file) if self.nature.seek_support != SeekSupport::Offsets => return file.write(0, source),
            Some(_) => {}
            None if wanted == 0 => return Ok(0),
            None if self.status().contains(StatusFlags::APPEND) => {
                let (start, done) = self.inode().write_at(WritePosition::End, source, now.now())?;
                *self.offset.lock() = start + done as u64;
                return Ok(done);
            }
            None => {}
        }
        self.write_claimed(wanted, source, now)
    }

    /// Writes at the offset, which is moved first.
    #[inline]
    fn write_claimed(&self, wanted: u64, source: &mut dyn Source, now: impl Now) -> Result<usize> {
        let (start, end) = {
            let mut offset = self.offset.lock();
            let start = *offset;
            let end = start.saturating_add(wanted);
            if end > OFFSET_MAX {
                return Err(Errno::EINVAL);
            }
            *offset = end;
            (start, end)
        };
        let result = self.write_at_offset(start, source, now);
        let done = result.unwrap_or(0) as u64;
        self.correct_offset(end, start + done);
        result
    }

    /// Writes at `offset`; with `O_APPEND` at the end all the same, as Linux does.
    ///
    /// # Errors
    /// `ESPIPE`, and those of [`Self::write`].
    pub fn write_at(&self, offset: u64, source: &mut dyn Source, now: impl Now) -> Result<usize> {
        self.check_seekable()?;
        self.check_writable()?;
        if self.file.is_none() {
            if source.remaining() == 0 {
                return Ok(0);
            }
            if self.status().contains(StatusFlags::APPEND) {
                let done = self.inode().write_at(WritePosition::End, source, now.now()).map(|(_, done)| done);
                return self.told(event::MODIFY, done);
            }
        }
        self.told(event::MODIFY, self.write_at_offset(offset, source, now))
    }

    /// Writes at the end, whatever the offset is (`RWF_APPEND`), and moves the offset behind it if it is the one used.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_end(&self, source: &mut dyn Source, moves: bool, now: Timestamp) -> Result<usize> {
        self.check_writable()?;
        if self.file.is_some() {
            return self.write(source, now);
        }
        let (start, done) = self.inode().write_at(WritePosition::End, source, now)?;
        if moves {
            *self.offset.lock() = start + done as u64;
        }
        self.told(event::MODIFY, Ok(done))
    }

    /// Writes to a file at `start`, though the description may append (`RWF_NOAPPEND`).
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_here(&self, start: u64, source: &mut dyn Source, moves: bool, now: Timestamp) -> Result<usize> {
        self.check_writable()?;
        let done = self.write_at_offset(start, source, now)?;
        if moves {
            *self.offset.lock() = start + done as u64;
        }
        self.told(event::MODIFY, Ok(done))
    }

    /// Whether something besides the inode does its work: a text that is made, a device, a pipe.
    pub fn has_driver(&self) -> bool {
        self.file.is_some()
    }

    /// Moves the offset; returns where it is now.
    ///
    /// # Errors
    /// `ESPIPE`, `EINVAL`: the offset would be negative or too large. `ENXIO`: nothing there to find. `EBADF`.
    pub fn seek(&self, from: SeekFrom) -> Result<u64> {
        self.check_not_path()?;
        match self.nature.seek_support {
            SeekSupport::None => return Err(Errno::ESPIPE),
            SeekSupport::Ignored | SeekSupport::Accepted => return Ok(0),
            SeekSupport::Offsets => {}
        }
        let is_directory = self.nature.kind == FileKind::Directory;
        // The file may have to be asked, so its answer comes before the lock.
        let target = match from {
            SeekFrom::Start(distance) => moved(0, distance)?,
            SeekFrom::Current(distance) => {
                let mut offset = self.offset.lock();
                *offset = moved(*offset, distance)?;
                return Ok(*offset);
            }
            SeekFrom::End(distance) if let Some(size_bytes) = self.file_size() => moved(size_bytes, distance)?,
            _ if is_directory || self.file.is_some() => return Err(Errno::EINVAL),
            SeekFrom::End(distance) => moved(self.metadata().size_bytes, distance)?,
            SeekFrom::Data(start) | SeekFrom::Hole(start) => {
                let start = u64::try_from(start).map_err(|_| Errno::ENXIO)?;
                let is_data = matches!(from, SeekFrom::Data(_));
                let target = if is_data { SeekTarget::Data } else { SeekTarget::Hole };
                self.inode().seek(start, target)?
            }
        };
        *self.offset.lock() = target;
        Ok(target)
    }

    /// Where a file that is more than its inode ends, if it has an end.
    fn file_size(&self) -> Option<u64> {
        self.file.as_ref()?.size_bytes()
    }

    /// The open disk that this is, as the type that the block layer has for it, if it is one.
    pub fn disk<T: 'static>(&self) -> Option<&T> {
        self.file.as_ref()?.disk()?.downcast_ref()
    }

    /// Has what was written on the medium, where that is not the inode's affair.
    ///
    /// # Errors
    /// `EINVAL`: nothing of the kind is behind it. `EIO`.
    pub fn sync_file(&self) -> Result<()> {
        self.file.as_ref().map_or(Err(Errno::EINVAL), |file| file.sync())
    }

    /// The offset (`/proc/self/fdinfo`).
    pub fn offset(&self) -> u64 {
        *self.offset.lock()
    }

    /// Whether a listing from the offset on has nothing more, where that is known without one: then it has been done.
    pub fn is_listed(&self, now: impl Now) -> bool {
        let offset = *self.offset.lock();
        let inode = self.inode();
        let is_listed = self.request.read
            && inode.kind() == FileKind::Directory
            && offset.checked_sub(DOT_COUNT).is_some_and(|cookie| inode.ends_at(cookie))
            && !self.location.is_deleted();
        if is_listed {
            self.note_access(now);
            self.watches.tell(&self.location, event::ACCESS, true);
        }
        is_listed
    }

    /// Lists a directory from the offset on, `.` and `..` first, and moves the offset behind the last entry
    /// that `consumer` took. `next_cookie` of an entry is the offset behind it.
    ///
    /// # Errors
    /// `ENOTDIR`, `EBADF`. `ENOENT`: the directory was removed.
    pub fn read_directory(
        &self,
        root: &Location,
        mut consumer: impl FnMut(DirectoryEntry<'_>) -> bool,
        now: Timestamp,
    ) -> Result<()> {
        self.check_readable()?;
        let inode = self.inode();
        if inode.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if self.location.is_deleted() {
            return Err(Errno::ENOENT);
        }
        let mut offset = *self.offset.lock();
        while offset < DOT_COUNT {
            let parent = (offset > 0).then(|| self.location.parent(root));
            let accepted = consumer(DirectoryEntry {
                name: if offset == 0 { b"." } else { b".." },
                inode_number: parent.as_ref().unwrap_or(&self.location).inode().inode_number(),
                kind: FileKind::Directory,
                next_cookie: offset + 1,
            });
            if !accepted {
                *self.offset.lock() = offset;
                return Ok(());
            }
            offset += 1;
        }
        let reached = inode.read_directory(offset - DOT_COUNT, &mut |entry| {
            consumer(DirectoryEntry { next_cookie: entry.next_cookie + DOT_COUNT, ..entry })
        })?;
        *self.offset.lock() = reached + DOT_COUNT;
        self.note_access(now);
        self.watches.tell(&self.location, event::ACCESS, true);
        Ok(())
    }

    /// Sets the file's size (`ftruncate`) for `by`.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`: not a regular file open for writing. `EFBIG`, `EPERM`.
    pub fn truncate(&self, by: &Credentials, size_bytes: u64, now: Timestamp) -> Result<()> {
        self.check_not_path()?;
        if !self.request.write || self.inode().kind() != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        self.inode().truncate(size_bytes, now)?;
        self.inode().end_set_ids(by, now)?;
        self.watches.tell(&self.location, event::MODIFY, false);
        Ok(())
    }

    /// Changes the file's allocation (`fallocate`) for `by`.
    ///
    /// # Errors
    /// `EINVAL`: empty or negative range. `EBADF`, `ESPIPE`, `EISDIR`, `ENODEV`, `EFBIG`,
    /// `ENOSPC`, `EOPNOTSUPP`, `EPERM`.
    pub fn allocate(&self, by: &Credentials, mode: Allocate, offset: i64, length: i64, now: Timestamp) -> Result<()> {
        self.check_not_path()?;
        let (Ok(offset), Ok(length @ 1..)) = (u64::try_from(offset), u64::try_from(length)) else {
            return Err(Errno::EINVAL);
        };
        if !self.request.write {
            return Err(Errno::EBADF);
        }
        match self.inode().kind() {
            FileKind::Regular => {}
            FileKind::Fifo => return Err(Errno::ESPIPE),
            FileKind::Directory => return Err(Errno::EISDIR),
            FileKind::BlockDevice => {
                let file = self.file.as_ref().ok_or(Errno::ENODEV)?;
                return file.allocate(mode, offset, length);
            }
            _ => return Err(Errno::ENODEV),
        }
        if offset + length > OFFSET_MAX {
            return Err(Errno::EFBIG);
        }
        self.inode().end_set_ids(by, now)?;
        self.inode().allocate(mode, offset, length, now)?;
        self.watches.tell(&self.location, event::MODIFY, true);
        Ok(())
    }

    /// Tells watchers of a transfer that moved something.
    #[inline(always)]
    fn told(&self, mask: u32, outcome: Result<usize>) -> Result<usize> {
        // Nearly always.
        if self.watches.is_idle() {
            return outcome;
        }
        if outcome.is_ok_and(|done| done > 0) {
            self.tell(mask);
        }
        outcome
    }

    #[cold]
    fn tell(&self, mask: u32) {
        self.watches.tell(&self.location, mask, true);
    }

    /// Whether there may be locks to give up with this description.
    pub fn may_be_locked(&self) -> bool {
        !self.locks.is_idle()
    }

    /// The locks of the pod, and how this file is called there.
    pub fn locks(&self) -> (&Arc<LockTable>, LockedFile) {
        (&self.locks, LockedFile::from(&self.metadata()))
    }

    /// Keeps something with this description until it is closed, in place of what was kept before. `ENOMEM`.
    pub fn attach(&self, attachment: Attachment) -> Result<()> {
        self.locks.attach(self.number, attachment)
    }

    /// What is kept with it.
    pub fn attachment(&self) -> Option<Attachment> {
        self.locks.attachment(self.number)
    }

    fn size_for_reading(&self) -> u64 {
        match &self.file {
            Some(_) => u64::MAX,
            None => self.inode().size_bytes(),
        }
    }

    #[inline(always)]
    fn read_at_offset(&self, offset: u64, destination: &mut dyn Destination, now: impl Now) -> Result<usize> {
        if let Some(file) = &self.file {
            return file.read(offset, destination);
        }
        if self.nature.kind == FileKind::Directory {
            return Err(Errno::EISDIR);
        }
        let done = self.inode().read_at(offset, destination)?;
        self.note_access(now);
        Ok(done)
    }

    fn write_at_offset(&self, offset: u64, source: &mut dyn Source, now: impl Now) -> Result<usize> {
        match &self.file {
            Some(file) => file.write(offset, source),
            None => self.inode().write_at(WritePosition::At(offset), source, now.now()).map(|(_, done)| done),
        }
    }

    /// Puts the offset right after a transfer that covered less (or, in a generated file, other) than
    /// claimed, unless somebody else moved it meanwhile.
    fn correct_offset(&self, claimed_end: u64, end: u64) {
        let mut offset = self.offset.lock();
        if *offset == claimed_end {
            *offset = end;
        }
    }

    fn note_access(&self, now: impl Now) {
        let is_silent = self.status().contains(StatusFlags::NO_ACCESS_TIME)
            || self.location.mount().flags().intersects(MountFlags::NO_ACCESS_TIME.union(MountFlags::READ_ONLY));
        if !is_silent {
            self.inode().note_access(now.now());
        }
    }

    fn check_not_path(&self) -> Result<()> {
        if self.is_path_only() { Err(Errno::EBADF) } else { Ok(()) }
    }

    fn check_readable(&self) -> Result<()> {
        if self.request.read { Ok(()) } else { Err(Errno::EBADF) }
    }

    fn check_writable(&self) -> Result<()> {
        if self.request.write { Ok(()) } else { Err(Errno::EBADF) }
    }

    /// Whether reads and writes may name an offset (`ESPIPE` where they may not).
    pub fn has_offsets(&self) -> bool {
        self.check_seekable().is_ok()
    }

    fn check_seekable(&self) -> Result<()> {
        self.check_not_path()?;
        match self.nature.seek_support {
            SeekSupport::None | SeekSupport::Accepted => Err(Errno::ESPIPE),
            SeekSupport::Ignored | SeekSupport::Offsets => Ok(()),
        }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        if self.request.write
            && let Some(users) = self.inode().users()
        {
            users.count_writer(false);
        }
        if !self.is_path_only() {
            let mask = if self.request.write { event::CLOSE_WRITE } else { event::CLOSE_NOWRITE };
            self.watches.tell(&self.location, mask, true);
        }
        if self.locks.is_idle() {
            return;
        }
        let owner = LockOwner::Description(self.number);
        self.locks.forget(self.number);
        let file = LockedFile::from(&self.location.inode().metadata());
        for family in [LockFamily::Whole, LockFamily::Record] {
            self.locks.unlock(file, family, owner, LockRange::ALL);
        }
    }
}

fn moved(from: u64, distance: i64) -> Result<u64> {
    let target = from.checked_add_signed(distance).filter(|target| *target <= OFFSET_MAX);
    target.ok_or(Errno::EINVAL)
}
