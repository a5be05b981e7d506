//! A pod's name space and a process's view of it: descriptors, working directory, root, umask.
//!
//! Locks here protect single fields and are held for a field's access
//! only.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use exos::block::device::Disks;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::descriptor_table::DescriptorTable;
use exos::fs::file_lock::{LockFamily, LockOwner, LockRange};
use exos::fs::location::{Entry, Location};
use exos::fs::metadata::{DeviceNumber, FileKind};
use exos::fs::namespace::{Namespace, WalkStart};
use exos::fs::ninep::cache::PageCache;
use exos::fs::page::MappedFile;
use exos::fs::seals::{Sealable, Seals};
use exos::fs::terminal::modes::{Terminal, WindowSize};
use exos::fs::terminal::table::Terminals;
use exos::fs::vnode::InodeRef;
use exos::fs::walk::LookupFlags;
use exos::mem::MapBacking;
use exos::net::inet::Inet;
use exos::net::netlink::Netlink;
use exos::net::unix::UnixDomain;
use exos::net::{AnySocket, SocketFile};
use exos::preempt::Pace;
use exos::sync::{Mutex, MutexGuard, RwLock};
use exos::task::limits::{Limits, Resource};

use crate::file::message_queue::QueueFile;
use crate::file::seen_descriptors::SeenDescriptors;
use crate::file::timerfd::TimerSet;

/// What all processes of a pod share.
pub struct Files {
    /// The name space.
    pub namespace: Arc<Namespace>,
    /// The directory of a memory file system that files without a name belong to.
    pub temporary: InodeRef,
    /// Pseudo-terminals of the pod.
    pub terminals: Arc<Terminals>,
    /// Local sockets.
    pub unix: Arc<UnixDomain>,
    /// TCP and UDP.
    pub inet: Arc<Inet>,
    /// Netlink sockets.
    pub netlink: Arc<Netlink>,
    /// What bounds the cached pages of host directories.
    pub page_cache: Arc<PageCache>,
    /// Its disks.
    pub disks: Arc<Disks>,
}

/// The directories that paths are walked from.
#[derive(Clone)]
struct Directories {
    current: Location,
    root: Location,
}

/// The same by their numbers, for threads that look at them all the time and must not write to what the others read, as
/// the reader of a lock does.
struct Starts {
    current: AtomicUsize,
    root: AtomicUsize,
    /// Goes on after each change, before what was there is let go of: a thread that finds it as it was had numbers of
    /// entries that were alive meanwhile.
    change_count: AtomicU64,
}

impl Starts {
    fn new(directories: &Directories) -> Self {
        let number = |place| AtomicUsize::new(WalkStart::at(place).number());
        let (current, root) = (number(&directories.current), number(&directories.root));
        Self { current, root, change_count: AtomicU64::new(0) }
    }

    /// Takes over a change. Called with the lock of the directories, which still have what is being replaced.
    fn update(&self, directories: &Directories) {
        self.current.store(WalkStart::at(&directories.current).number(), Ordering::Relaxed);
        self.root.store(WalkStart::at(&directories.root).number(), Ordering::Relaxed);
        // Release: a thread that sees the new count sees the new numbers.
        self.change_count.fetch_add(1, Ordering::Release);
    }
}

/// A process's view.
pub struct ProcessFiles {
    table: Mutex<DescriptorTable>,
    /// How often somebody had the table to take something out of it.
    change_count: AtomicU64,
    /// Whether there is more than one thread.
    has_threads: AtomicBool,
    owner: u64,
    /// Read by each call with a path, in all threads at once.
    directories: RwLock<Directories>,
    starts: Starts,
    umask: AtomicU32,
    descriptor_limit: AtomicU32,
    size_limit_bytes: AtomicU64,
    terminal: Mutex<Option<Arc<dyn Terminal>>>,
    timers: Arc<TimerSet>,
    /// The process, if it asked to be told of messages in queues: closing a queue ends that.
    notified_pid: AtomicU32,
}

impl ProcessFiles {
    /// No descriptors, the root of the name space, `current` to start in.
    #[must_use]
    pub fn new(namespace: &Arc<Namespace>, current: Location) -> Self {
        let limits = Limits::default();
        let directories = Directories { current, root: namespace.root().clone() };
        let files = Self {
            table: Mutex::new(DescriptorTable::new()),
            change_count: AtomicU64::new(0),
            has_threads: AtomicBool::new(false),
            owner: namespace.number(),
            starts: Starts::new(&directories),
            directories: RwLock::new(directories),
            umask: AtomicU32::new(0o022),
            descriptor_limit: AtomicU32::new(0),
            size_limit_bytes: AtomicU64::new(u64::MAX),
            terminal: Mutex::new(None),
            timers: Arc::default(),
            notified_pid: AtomicU32::new(0),
        };
        files.apply_limits(&limits);
        files
    }

    /// What a child made by `fork` has: the same descriptions, directories and limits.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn fork(&self, namespace: &Arc<Namespace>) -> Result<Self> {
        let directories = self.directories.read().clone();
        Ok(Self {
            table: Mutex::new(self.table.lock().copy()?),
            change_count: AtomicU64::new(0),
            has_threads: AtomicBool::new(false),
            owner: namespace.number(),
            starts: Starts::new(&directories),
            directories: RwLock::new(directories),
            umask: AtomicU32::new(self.umask()),
            descriptor_limit: AtomicU32::new(self.descriptor_limit()),
            size_limit_bytes: AtomicU64::new(self.size_limit_bytes()),
            terminal: Mutex::new(self.terminal()),
            timers: self.timers.clone(),
            notified_pid: AtomicU32::new(0),
        })
    }

    /// Closes everything: the process has ended.
    pub fn close_all(&self) {
        let closed = core::mem::take(&mut *self.table()).into_all();
        let mut pace = Pace::default();
        for description in closed {
            self.release(description);
            pace.offer_page();
        }
    }

    /// The descriptors, for one operation.
    pub fn table(&self) -> MutexGuard<'_, DescriptorTable> {
        let table = self.table.lock();
        // Before anything leaves it: a thread that finds the count as it was goes on as if that came later.
        self.change_count.fetch_add(1, Ordering::Release);
        table
    }

    /// Whether the process has threads that use the table at once from now on.
    pub fn note_threads(&self, has_threads: bool) {
        self.has_threads.store(has_threads, Ordering::Relaxed);
    }

    /// As [`Self::get`], by what a thread has `seen` before: it writes nothing then that other threads read.
    #[inline]
    pub fn get_seen(&self, seen: &SeenDescriptors, descriptor: u64) -> Result<Arc<Description>> {
        if self.has_threads.load(Ordering::Relaxed) { self.find_seen(seen, descriptor) } else { self.get(descriptor) }
    }

    #[inline(never)]
    fn find_seen(&self, seen: &SeenDescriptors, descriptor: u64) -> Result<Arc<Description>> {
        let change_count = self.change_count.load(Ordering::Acquire);
        match seen.find(descriptor, change_count) {
            Some(description) => Ok(description),
            None => self.see(seen, descriptor),
        }
    }

    fn see(&self, seen: &SeenDescriptors, descriptor: u64) -> Result<Arc<Description>> {
        let table = self.table.lock();
        let change_count = self.change_count.load(Ordering::Relaxed);
        let description = table.get(descriptor as u32)?;
        drop(table);
        seen.keep(descriptor, change_count, &description);
        Ok(description)
    }

    /// The description of a descriptor; `EBADF` also for numbers that are none.
    pub fn get(&self, descriptor: u64) -> Result<Arc<Description>> {
        // Negative numbers are beyond any table.
        self.table.lock().get(descriptor as u32)
    }

    /// For several descriptors at once. `work` lets go of no description.
    pub fn with_table<R>(&self, work: impl FnOnce(&DescriptorTable) -> R) -> R {
        work(&self.table.lock())
    }

    /// The lowest free descriptor becomes one for `description`.
    pub fn add(&self, description: Arc<Description>, close_on_exec: bool) -> Result<u64> {
        let limit = self.descriptor_limit();
        self.table.lock().add(description, close_on_exec, 0, limit).map(u64::from)
    }

    /// Fails unless there is room for another descriptor: `EMFILE` comes before a file is looked for or made.
    pub fn check_room(&self) -> Result<()> {
        let limit = self.descriptor_limit() as usize;
        if self.table.lock().has_room(limit) { Ok(()) } else { Err(Errno::EMFILE) }
    }

    /// The owner of the record locks that are taken through this table.
    #[must_use]
    pub fn lock_owner(&self) -> LockOwner {
        LockOwner::Process(self.owner)
    }

    /// Lets go of a description that left the table. The process's record locks on its file go with it, whatever other
    /// descriptors of the file are left.
    pub fn release(&self, description: Arc<Description>) {
        let notified_pid = self.notified_pid.load(Ordering::Relaxed);
        if notified_pid != 0 {
            forget_notification(&description, notified_pid);
        }
        if !description.may_be_locked() {
            return;
        }
        let (locks, file) = description.locks();
        locks.unlock(file, LockFamily::Record, self.lock_owner(), LockRange::ALL);
    }

    /// The process asked to be told of messages in a queue.
    pub fn note_notification(&self, pid: u32) {
        self.notified_pid.store(pid, Ordering::Relaxed);
    }

    /// The timers that are files: a thread that waits must not sleep over them.
    #[must_use]
    pub fn timers(&self) -> &Arc<TimerSet> {
        &self.timers
    }

    /// Takes over the limits that concern files.
    pub fn apply_limits(&self, limits: &Limits) {
        let count = limits.soft(Resource::OpenFiles).min(u64::from(u32::MAX)) as u32;
        self.descriptor_limit.store(count, Ordering::Relaxed);
        self.size_limit_bytes.store(limits.soft(Resource::FileSize), Ordering::Relaxed);
    }

    /// `RLIMIT_NOFILE`.
    #[must_use]
    pub fn descriptor_limit(&self) -> u32 {
        self.descriptor_limit.load(Ordering::Relaxed)
    }

    /// `RLIMIT_FSIZE`.
    #[must_use]
    pub fn size_limit_bytes(&self) -> u64 {
        self.size_limit_bytes.load(Ordering::Relaxed)
    }

    /// What a path leads to, if that is known without a walk ([`Namespace::lookup_known`]).
    #[inline]
    pub fn lookup_known(
        &self,
        namespace: &Namespace,
        path: &[u8],
        flags: LookupFlags,
        may_search_all: impl FnOnce() -> bool,
    ) -> Option<Location> {
        let directories = self.directories.read();
        let start = if path.first() == Some(&b'/') { &directories.root } else { &directories.current };
        namespace.lookup_known(start, path, flags, may_search_all)
    }

    /// The same for a caller that needs the entry only. No thread of the process writes anything here that another
    /// reads.
    #[inline]
    pub fn entry_known(
        &self,
        namespace: &Namespace,
        path: &[u8],
        flags: LookupFlags,
        may_search_all: impl FnOnce() -> bool,
    ) -> Option<Arc<Entry>> {
        let starts = &self.starts;
        let change_count = starts.change_count.load(Ordering::Acquire);
        let start = if path.first() == Some(&b'/') { &starts.root } else { &starts.current };
        let start = WalkStart::from_number(start.load(Ordering::Relaxed));
        let found = namespace.entry_known(start, path, flags, may_search_all);
        found.filter(|_| starts.change_count.load(Ordering::Acquire) == change_count)
    }

    /// The working directory.
    #[must_use]
    pub fn current(&self) -> Location {
        self.directories.read().current.clone()
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Location {
        self.directories.read().root.clone()
    }

    /// Changes the working directory; what it was is returned, to be dropped without the lock.
    pub fn set_current(&self, current: Location) -> Location {
        let mut directories = self.directories.write();
        let before = core::mem::replace(&mut directories.current, current);
        self.starts.update(&directories);
        before
    }

    /// Changes the root directory.
    pub fn set_root(&self, root: Location) -> Location {
        let mut directories = self.directories.write();
        let before = core::mem::replace(&mut directories.root, root);
        self.starts.update(&directories);
        before
    }

    /// Permission bits that new files do not get.
    #[must_use]
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets them; what they were is returned.
    pub fn set_umask(&self, umask: u32) -> u32 {
        self.umask.swap(umask & 0o777, Ordering::Relaxed)
    }

    /// Closes what `execve` closes.
    pub fn close_for_exec(&self) {
        loop {
            let closed = self.table.lock().remove_for_exec();
            if closed.is_empty() {
                return;
            }
            for description in closed {
                self.release(description);
            }
        }
    }

    /// Says which terminal the host's is.
    pub fn set_terminal(&self, terminal: Arc<dyn Terminal>) {
        *self.terminal.lock() = Some(terminal);
    }

    /// The host's terminal.
    #[must_use]
    pub fn terminal(&self) -> Option<Arc<dyn Terminal>> {
        self.terminal.lock().clone()
    }

    /// Tells the terminal its size, if there is one. True if it has told the processes that it concerns.
    pub fn set_window(&self, rows: u16, columns: u16) -> bool {
        self.terminal().is_some_and(|terminal| {
            let size = WindowSize { row_count: rows, column_count: columns, ..terminal.window_size() };
            terminal.set_window_size(size);
            terminal.signals_itself()
        })
    }

    /// What `mmap` maps for a descriptor. `EBADF`; `EACCES`: not open for reading, or a shared mapping of what is not
    /// a file one may have; `ENODEV`: cannot be mapped; `EPERM`: sealed against the stores that are asked for.
    pub fn mapping(&self, descriptor: u64, offset_bytes: u64, is_shared: bool, stores: bool) -> Result<MapBacking> {
        let description = self.get(descriptor)?;
        if description.is_path_only() {
            return Err(Errno::EBADF);
        }
        if !description.is_readable() {
            return Err(Errno::EACCES);
        }
        let location = description.location().clone();
        let is_pipe = location.inode().kind() == FileKind::Fifo;
        if is_pipe && is_shared && stores && !description.is_writable() {
            return Err(Errno::EACCES);
        }
        if location.inode().kind() == FileKind::CharacterDevice && is_zero_device(&location) {
            if is_shared && stores && !description.is_writable() {
                return Err(Errno::EACCES);
            }
            return Ok(MapBacking::Anonymous);
        }
        if let Some(AnySocket::Packet(socket)) = description.extension::<SocketFile>().map(SocketFile::socket) {
            let source = socket.ring_memory().filter(|_| offset_bytes == 0).ok_or(Errno::EINVAL)?;
            return Ok(MapBacking::File { source, offset_bytes, is_readable: true, is_writable: true });
        }
        if let Some(source) = description.mapped(offset_bytes) {
            return Ok(MapBacking::File { source: source?, offset_bytes: 0, is_readable: true, is_writable: true });
        }
        let mut is_writable = description.is_writable();
        let seals = location.inode().seals().map_or(Seals::empty(), Sealable::get);
        if is_shared && is_writable && seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
            if stores {
                return Err(Errno::EPERM);
            }
            is_writable = false;
        }
        let source = MappedFile::new(location, self.root())?;
        Ok(MapBacking::File { source, offset_bytes, is_readable: true, is_writable })
    }
}

/// Of a message queue that a process closes, it is not told any more.
#[cold]
fn forget_notification(description: &Description, pid: u32) {
    if let Some(file) = description.extension::<QueueFile>() {
        file.queue().forget_notification(pid);
    }
}

/// `/dev/zero`, whose mappings are plain memory.
fn is_zero_device(location: &Location) -> bool {
    let inode = location.inode();
    let is_zero = |node: DeviceNumber| (node.major, node.minor) == (1, 5);
    inode.kind() == FileKind::CharacterDevice && is_zero(inode.metadata().device_node)
}
