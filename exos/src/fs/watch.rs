//! inotify(7): watches of files and directories, and the events that wait to be read.
//!
//! One table for a name space. The operations of [`super::namespace`] and [`super::description`] tell it what they did,
//! after they did it and without a lock; while nothing is watched that costs one load. A file is known by device and
//! number, as its locks are. An event of a file goes to the watches of its directory, with its name, and then to those
//! of the file. [`Watcher`] is the file that programs read.
//!
//! Limits: [`INSTANCE_COUNT_MAX`] watchers, [`WATCH_COUNT_MAX`] watches and [`EVENT_COUNT_MAX`] events that wait at one
//! watcher; what comes beyond is notice as one event of overflow.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::file_lock::LockedFile;
use super::location::Location;
use super::metadata::FileKind;
use super::open_file::{OpenFile, SeekSupport};
use super::readiness::{Readiness, WaitQueue};
use super::transfer::{Destination, Source};
use super::vnode::InodeRef;
use crate::error::{Errno, Result};
use crate::reserve::{self, reserve_queue};
use crate::sync::Mutex;

/// Most watchers of a name space (`fs.inotify.max_user_instances`).
pub const INSTANCE_COUNT_MAX: usize = 128;
/// Most watches of a name space (`fs.inotify.max_user_watches`).
pub const WATCH_COUNT_MAX: usize = 8192;
/// Most events that wait at one watcher (`fs.inotify.max_queued_events`).
pub const EVENT_COUNT_MAX: usize = 16_384;
/// Bytes of an event before its name; names are padded to a multiple of it.
const EVENT_BYTES: usize = 16;

#[expect(missing_docs, reason = "the names and numbers of inotify(7)")]
pub mod event {
    pub const ACCESS: u32 = 1;
    pub const MODIFY: u32 = 2;
    pub const ATTRIB: u32 = 4;
    pub const CLOSE_WRITE: u32 = 8;
    pub const CLOSE_NOWRITE: u32 = 0x10;
    pub const OPEN: u32 = 0x20;
    pub const MOVED_FROM: u32 = 0x40;
    pub const MOVED_TO: u32 = 0x80;
    pub const CREATE: u32 = 0x100;
    pub const DELETE: u32 = 0x200;
    pub const DELETE_SELF: u32 = 0x400;
    pub const MOVE_SELF: u32 = 0x800;
    pub const UNMOUNT: u32 = 0x2000;
    pub const OVERFLOW: u32 = 0x4000;
    pub const IGNORED: u32 = 0x8000;
    pub const ONLY_DIRECTORY: u32 = 0x0100_0000;
    pub const DONT_FOLLOW: u32 = 0x0200_0000;
    pub const EXCLUDE_UNLINKED: u32 = 0x0400_0000;
    pub const MASK_CREATE: u32 = 0x1000_0000;
    pub const MASK_ADD: u32 = 0x2000_0000;
    pub const IS_DIRECTORY: u32 = 0x4000_0000;
    pub const ONE_SHOT: u32 = 0x8000_0000;
    /// All events (`IN_ALL_EVENTS`).
    pub const ALL: u32 = 0xfff;
    /// Whatever a program may ask for.
    pub const KNOWN: u32 = ALL
        | UNMOUNT
        | OVERFLOW
        | IGNORED
        | ONLY_DIRECTORY
        | DONT_FOLLOW
        | EXCLUDE_UNLINKED
        | MASK_CREATE
        | MASK_ADD
        | IS_DIRECTORY
        | ONE_SHOT;
}

/// One event that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    fn byte_count(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(EVENT_BYTES) };
        EVENT_BYTES + name
    }

    fn encode(&self) -> Vec<u8> {
        let byte_count = self.byte_count();
        let mut bytes = Vec::with_capacity(byte_count);
        bytes.extend_from_slice(&self.watch.to_ne_bytes());
        bytes.extend_from_slice(&self.mask.to_ne_bytes());
        bytes.extend_from_slice(&self.cookie.to_ne_bytes());
        bytes.extend_from_slice(&((byte_count - EVENT_BYTES) as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.name);
        bytes.resize(byte_count, 0);
        bytes
    }

    /// Whether the two say the same of the same; then the later one is left out.
    fn repeats(&self, last: &Self) -> bool {
        self.mask & event::IGNORED == 0 && (self.watch, self.mask, &self.name) == (last.watch, last.mask, &last.name)
    }
}

#[derive(Default)]
struct Instance {
    files: BTreeMap<i32, LockedFile>,
    last_watch: i32,
    events: VecDeque<Event>,
    queue: Arc<WaitQueue>,
}

impl Instance {
    fn put(&mut self, event: Event) {
        if self.events.back().is_some_and(|last| event.repeats(last)) {
            return;
        }
        let has_room = self.events.len() < EVENT_COUNT_MAX && reserve::check().is_ok();
        let overflow = Event { watch: -1, mask: event::OVERFLOW, cookie: 0, name: Vec::new() };
        let event = if has_room { event } else { overflow };
        if self.events.back().is_some_and(|last| last.watch == -1) || reserve_queue(&mut self.events, 1).is_err() {
            return;
        }
        self.events.push_back(event);
    }
}

/// That an instance watches a file.
#[derive(Clone, Copy)]
struct Watch {
    instance: u64,
    number: i32,
    mask: u32,
}

#[derive(Default)]
struct Inner {
    instances: BTreeMap<u64, Instance>,
    next_instance: u64,
    watches: BTreeMap<LockedFile, Vec<Watch>>,
}

/// What is notice of a file.
struct Notice<'a> {
    mask: u32,
    cookie: u32,
    name: &'a [u8],
    /// It came by an open file whose name is gone.
    is_unlinked: bool,
}

impl Inner {
    /// Puts an event into the queues of the watchers that want it; answers those that must be woken.
    fn tell(&mut self, file: LockedFile, notice: &Notice<'_>, wakes: &mut Vec<Arc<WaitQueue>>) {
        let concerned: Vec<Watch> = self.watches.get(&file).into_iter().flatten().copied().collect();
        for watch in concerned {
            let is_excluded = notice.is_unlinked && watch.mask & event::EXCLUDE_UNLINKED != 0;
            if watch.mask & notice.mask & event::ALL == 0 || is_excluded {
                continue;
            }
            let Some(instance) = self.instances.get_mut(&watch.instance) else { continue };
            let name = notice.name.to_vec();
            instance.put(Event { watch: watch.number, mask: notice.mask, cookie: notice.cookie, name });
            wakes.push(instance.queue.clone());
            if watch.mask & event::ONE_SHOT != 0 {
                self.remove(watch.instance, watch.number);
            }
        }
    }

    /// Ends a watch and says so. False: there is none.
    fn remove(&mut self, instance: u64, number: i32) -> bool {
        let Some(owner) = self.instances.get_mut(&instance) else { return false };
        let Some(file) = owner.files.remove(&number) else { return false };
        owner.put(Event { watch: number, mask: event::IGNORED, cookie: 0, name: Vec::new() });
        self.forget(file, instance);
        true
    }

    fn forget(&mut self, file: LockedFile, instance: u64) {
        if let Some(watches) = self.watches.get_mut(&file) {
            watches.retain(|watch| watch.instance != instance);
            if watches.is_empty() {
                self.watches.remove(&file);
            }
        }
    }

    fn watch_count(&self) -> usize {
        self.instances.values().map(|instance| instance.files.len()).sum()
    }
}

/// The watches of a name space.
#[derive(Default)]
pub struct WatchTable {
    /// Watched files: nothing is notice while there are none.
    file_count: AtomicUsize,
    last_cookie: AtomicU32,
    inner: Mutex<Inner>,
}

impl WatchTable {
    /// A new watcher. `EMFILE`: there are too many.
    pub fn watcher(self: &Arc<Self>) -> Result<Arc<Watcher>> {
        let mut inner = self.inner.lock();
        if inner.instances.len() >= INSTANCE_COUNT_MAX {
            return Err(Errno::EMFILE);
        }
        let id = inner.next_instance;
        inner.next_instance += 1;
        let instance = Instance::default();
        let queue = instance.queue.clone();
        inner.instances.insert(id, instance);
        Ok(Arc::new(Watcher { table: self.clone(), id, queue }))
    }

    /// Whether nobody watches anything.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.file_count.load(Ordering::Relaxed) == 0
    }

    /// Whether somebody watches this file.
    pub fn is_watched(&self, inode: &InodeRef) -> bool {
        !self.is_idle() && self.inner.lock().watches.contains_key(&LockedFile::from(&inode.metadata()))
    }

    /// Changes the table and wakes the watchers that were notice something.
    fn change<T>(&self, act: impl FnOnce(&mut Inner, &mut Vec<Arc<WaitQueue>>) -> T) -> T {
        let mut wakes = Vec::new();
        let answer = {
            let mut inner = self.inner.lock();
            let answer = act(&mut inner, &mut wakes);
            self.file_count.store(inner.watches.len(), Ordering::Relaxed);
            answer
        };
        for queue in wakes {
            queue.notify(Readiness::READ);
        }
        answer
    }

    /// Something was done with the file at a location: its directory's watchers are notice, and its own. `by_file` says
    /// that it came by an open file.
    #[inline]
    pub fn tell(&self, location: &Location, mask: u32, by_file: bool) {
        if !self.is_idle() {
            self.tell_watchers(location, mask, by_file);
        }
    }

    #[cold]
    fn tell_watchers(&self, location: &Location, mask: u32, by_file: bool) {
        let inode = location.inode();
        let mask = mask | directory_bit(inode.kind());
        let is_unlinked = by_file && location.is_deleted();
        let directory = location.entry().place_in_directory();
        let directory = directory.map(|(parent, name)| (LockedFile::from(&parent.inode().metadata()), name));
        let file = LockedFile::from(&inode.metadata());
        self.change(|inner, wakes| {
            if let Some((directory, name)) = &directory {
                inner.tell(*directory, &Notice { mask, cookie: 0, name, is_unlinked }, wakes);
            }
            inner.tell(file, &Notice { mask, cookie: 0, name: b"", is_unlinked }, wakes);
        });
    }

    /// A name in a directory came or went, or is another.
    pub fn tell_name(&self, directory: &InodeRef, name: &[u8], mask: u32, cookie: u32, kind: FileKind) {
        if self.is_idle() {
            return;
        }
        let file = LockedFile::from(&directory.metadata());
        let notice = Notice { mask: mask | directory_bit(kind), cookie, name, is_unlinked: false };
        self.change(|inner, wakes| inner.tell(file, &notice, wakes));
    }

    /// A name was made.
    pub fn tell_created(&self, location: &Location) {
        if !self.is_idle()
            && let Some((directory, name)) = location.entry().place_in_directory()
        {
            self.tell_name(directory.inode(), &name, event::CREATE, 0, location.inode().kind());
        }
    }

    /// Something became of a file that is not its directory's business. As on Linux, a directory is not marked as one.
    pub fn tell_self(&self, inode: &InodeRef, mask: u32) {
        if self.is_idle() {
            return;
        }
        let file = LockedFile::from(&inode.metadata());
        let notice = Notice { mask, cookie: 0, name: b"", is_unlinked: false };
        self.change(|inner, wakes| inner.tell(file, &notice, wakes));
    }

    /// A file is gone: it has no name, and nobody has it open.
    pub fn tell_gone(&self, inode: &InodeRef) {
        if self.is_idle() {
            return;
        }
        let file = LockedFile::from(&inode.metadata());
        let notice = Notice { mask: event::DELETE_SELF, cookie: 0, name: b"", is_unlinked: false };
        self.change(|inner, wakes| {
            inner.tell(file, &notice, wakes);
            let left: Vec<Watch> = inner.watches.get(&file).into_iter().flatten().copied().collect();
            for watch in left {
                inner.remove(watch.instance, watch.number);
                wakes.extend(inner.instances.get(&watch.instance).map(|instance| instance.queue.clone()));
            }
        });
    }

    /// A number that joins the two halves of a move.
    pub fn cookie(&self) -> u32 {
        self.last_cookie.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

fn directory_bit(kind: FileKind) -> u32 {
    if kind == FileKind::Directory { event::IS_DIRECTORY } else { 0 }
}

/// A watcher: a file whose contents are events.
pub struct Watcher {
    table: Arc<WatchTable>,
    id: u64,
    queue: Arc<WaitQueue>,
}

impl Watcher {
    /// Watches a file, or changes what it is watched for; the watch's number.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many watches. `EEXIST`: it is watched, and `MASK_CREATE` is given.
    pub fn add(&self, inode: &InodeRef, mask: u32) -> Result<i32> {
        let file = LockedFile::from(&inode.metadata());
        let kept = mask & (event::ALL | event::EXCLUDE_UNLINKED | event::ONE_SHOT);
        self.table.change(|inner, _| {
            let watches = inner.watches.get_mut(&file).into_iter().flatten();
            if let Some(watch) = watches.into_iter().find(|watch| watch.instance == self.id) {
                if mask & event::MASK_CREATE != 0 {
                    return Err(Errno::EEXIST);
                }
                watch.mask = if mask & event::MASK_ADD != 0 { watch.mask | kept } else { kept };
                return Ok(watch.number);
            }
            if inner.watch_count() >= WATCH_COUNT_MAX {
                return Err(Errno::ENOSPC);
            }
            let instance = inner.instances.get_mut(&self.id).ok_or(Errno::EINVAL)?;
            // Numbers go up, and around only after all of them. Ends: there are more numbers than watches.
            let number = loop {
                instance.last_watch = instance.last_watch.checked_add(1).unwrap_or(1);
                if !instance.files.contains_key(&instance.last_watch) {
                    break instance.last_watch;
                }
            };
            instance.files.insert(number, file);
            inner.watches.entry(file).or_default().push(Watch { instance: self.id, number, mask: kept });
            Ok(number)
        })
    }

    /// Ends a watch. `EINVAL`: there is none of that number.
    pub fn remove(&self, number: i32) -> Result<()> {
        self.table.change(|inner, wakes| {
            wakes.push(self.queue.clone());
            if inner.remove(self.id, number) { Ok(()) } else { Err(Errno::EINVAL) }
        })
    }

    /// What the first event says; it is gone then. For a caller that only wants to know that something happened.
    pub fn take_mask(&self) -> Option<u32> {
        self.take(usize::MAX).ok().map(|event| event.mask)
    }

    /// The queue that is notice of events.
    pub fn told_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// The first event, if it has room in `byte_count` bytes. `EINVAL`: it has not; `EAGAIN`: there is none.
    fn take(&self, byte_count: usize) -> Result<Event> {
        let mut inner = self.table.inner.lock();
        let events = &mut inner.instances.get_mut(&self.id).ok_or(Errno::EINVAL)?.events;
        match events.front() {
            Some(event) if event.byte_count() > byte_count => Err(Errno::EINVAL),
            _ => events.pop_front().ok_or(Errno::EAGAIN),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.table.change(|inner, _| {
            let files = inner.instances.remove(&self.id).map(|instance| instance.files).unwrap_or_default();
            for file in files.into_values() {
                inner.forget(file, self.id);
            }
        });
    }
}

impl OpenFile for Watcher {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        let mut done = 0;
        loop {
            match self.take(destination.remaining()) {
                Ok(event) => {
                    let bytes = event.encode();
                    // As on Linux, an event that could not be delivered is lost.
                    if destination.put(&bytes) < bytes.len() {
                        return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
                    }
                    done += bytes.len();
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EBADF)
    }

    fn readable_byte_count(&self) -> Option<usize> {
        let inner = self.table.inner.lock();
        let events = inner.instances.get(&self.id).map(|instance| &instance.events);
        Some(events.into_iter().flatten().map(Event::byte_count).sum())
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        match self.readable_byte_count() {
            Some(0) | None => Readiness::empty(),
            _ => Readiness::READ,
        }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }

    fn reads_records(&self) -> bool {
        true
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
