//! The name space of a pod: its mounts, and the operations on paths, with the errors of Linux in Linux's order.
//!
//! Every operation takes a [`Caller`], a location to start from (the working directory or that of a descriptor) and a
//! path as bytes. File systems are asked only for what was found to be allowed. One lock, `change`, covers each change
//! of names together with the bookkeeping of entries, so that entries and file systems never disagree.
//!
//! Parts: here what a pod has one of; `open` opens and creates files; `names` links, renames and
//! removes; `attributes` changes metadata.

mod attributes;
mod extended;
mod names;
mod open;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use attributes::{OwnerChange, TimeChange, TimesChange};
pub use open::{Access, OpenFlags, OpenHow};

use super::description::{Description, StatusFlags};
use super::event_counter::EventCounter;
use super::file_lock::LockTable;
pub use super::known_walks::Start as WalkStart;
use super::known_walks::{KnownWalks, PATH_BYTES_KEPT_MAX, Route, Start};
use super::location::{Entry, Location, Mount, MountDescription, MountFlags};
use super::memory_fs::MemoryNode;
use super::metadata::{
    Decision, DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, SetAttributes, Timestamp,
};
use super::open_file::{OpenFile, OpenRequest};
use super::permission::{AccessMask, Credentials, Owner};
use super::pipe::PipeEnd;
use super::seals::Seals;
use super::stream_inode::StreamInode;
use super::transfer::{Destination, Source};
use super::vnode::{Creation, Inode, InodeRef, downcast};
use super::walk::{Caller, LookupFlags, Walk};
use super::watch::WatchTable;
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// `st_dev` of pseudo files: pipes, streams, counters.
pub const PSEUDO_DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 14 };

/// What stands behind a device number.
pub trait Device: Send + Sync {
    /// Opens the device.
    ///
    /// # Errors
    /// `ENXIO`, `EBUSY`, `EACCES`.
    fn open(&self, request: OpenRequest) -> Result<Arc<dyn OpenFile>>;
}

/// A pod's name space.
pub struct Namespace {
    mounts: Mutex<Vec<Arc<Mount>>>,
    next_mount_id: AtomicU32,
    next_number: AtomicU64,
    pseudo_mount: Arc<Mount>,
    devices: Mutex<BTreeMap<DeviceNumber, Arc<dyn Device>>>,
    block_devices: Mutex<BTreeMap<DeviceNumber, Arc<dyn Device>>>,
    locks: Arc<LockTable>,
    watches: Arc<WatchTable>,
    change: Mutex<()>,
    walks: KnownWalks,
    root: Location,
}

/// Where the name behind a path's last slash begins: eight bytes at a time, as every creation and removal asks.
#[inline]
fn behind_last_slash(path: &[u8]) -> Option<usize> {
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    const LOW_BITS: u64 = u64::from_le_bytes([0x7f; 8]);
    let (begin, chunks) = path.as_rchunks::<8>();
    for (index, chunk) in chunks.iter().enumerate().rev() {
        let word = u64::from_le_bytes(*chunk) ^ SLASHES;
        // The top bit of each byte that is zero; none carries into the next.
        let found = !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS);
        if found != 0 {
            return Some(begin.len() + index * 8 + 8 - found.leading_zeros() as usize / 8);
        }
    }
    begin.iter().rposition(|byte| *byte == b'/').map(|index| index + 1)
}

/// The walk to the directory of a path's last component, and that if it is a plain name without a slash behind it.
fn route_to_parent<'p>(caller: &Caller<'_>, start: &Location, path: &'p [u8]) -> Option<(Route<'p>, &'p [u8])> {
    let start_of_name = behind_last_slash(path)?;
    let (directory, name) = (&path[..start_of_name - 1], &path[start_of_name..]);
    if directory.is_empty() || matches!(name, b"" | b"." | b"..") {
        return None;
    }
    let start = if path[0] == b'/' { caller.root } else { start };
    Some((Route { start: Start::at(start), path: directory, flags: LookupFlags::DIRECTORY }, name))
}

impl Namespace {
    /// A name space with one mount.
    pub fn new(root: InodeRef, description: MountDescription) -> Arc<Self> {
        let pseudo = MountDescription { kind: "pipefs", source: "pipefs", flags: MountFlags::default() };
        let anonymous: InodeRef = PseudoInode::new(0, FileKind::Fifo, Owner::default(), Timestamp::default(), None);
        let pseudo_mount = Location::of_new_mount(0, pseudo, anonymous, None).mount().clone();
        let root = Location::of_new_mount(1, description, root, None);
        Arc::new(Self {
            mounts: Mutex::new(alloc::vec![root.mount().clone()]),
            next_mount_id: AtomicU32::new(2),
            next_number: AtomicU64::new(1),
            pseudo_mount,
            devices: Mutex::default(),
            block_devices: Mutex::default(),
            locks: Arc::default(),
            watches: Arc::default(),
            change: Mutex::new(()),
            walks: KnownWalks::new(),
            root,
        })
    }

    /// The root directory.
    pub fn root(&self) -> &Location {
        &self.root
    }

    /// Lets nothing change in the root's file system from here on: what is mounted in it goes on as it is.
    pub fn seal_root(&self) {
        self.root.mount().is_sealed.store(true, Ordering::Relaxed);
    }

    /// Puts a file system over a directory; returns its root.
    pub fn mount(&self, over: &Location, root: InodeRef, description: MountDescription) -> Location {
        let _change = self.change.lock();
        let id = self.next_mount_id.fetch_add(1, Ordering::Relaxed);
        let covered = over.clone().top_mounted();
        let mounted = Location::of_new_mount(id, description, root, Some(covered));
        self.mounts.lock().push(mounted.mount().clone());
        self.walks.forget_all();
        mounted
    }

    /// Takes the topmost file system at a location off again. Files that are open in it stay open.
    ///
    /// # Errors
    /// `EINVAL`: it is not the root of a mount. `EBUSY`: something is mounted in it, or it is the root.
    pub fn unmount(&self, at: &Location) -> Result<()> {
        let _change = self.change.lock();
        if !at.is_mount_root() {
            return Err(Errno::EINVAL);
        }
        let mount = at.mount();
        let mut mounts = self.mounts.lock();
        let holds = |other: &Arc<Mount>| other.covers().is_some_and(|covered| Arc::ptr_eq(covered.mount(), mount));
        if mount.covers().is_none() || mounts.iter().any(holds) {
            return Err(Errno::EBUSY);
        }
        mounts.retain(|other| !Arc::ptr_eq(other, mount));
        drop(mounts);
        mount.uncover();
        self.walks.release_mounts();
        Ok(())
    }

    /// The mounts, in the order in which they came.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        self.mounts.lock().clone()
    }

    /// Makes what was written durable, on every mount (`sync`).
    ///
    /// # Errors
    /// The first of those of [`super::vnode::Inode::sync`]; the other mounts are still done.
    pub fn sync(&self) -> Result<()> {
        self.mounts().iter().map(|mount| mount.root().inode().sync_file_system()).fold(Ok(()), Result::and)
    }

    /// Says what stands behind a device number.
    pub fn register_device(&self, number: DeviceNumber, device: Arc<dyn Device>) {
        self.devices.lock().insert(number, device);
    }

    /// Says what stands behind the number of a block device.
    pub fn register_block_device(&self, number: DeviceNumber, device: Arc<dyn Device>) {
        self.block_devices.lock().insert(number, device);
    }

    /// The table of watched files.
    pub fn watches(&self) -> &Arc<WatchTable> {
        &self.watches
    }

    /// The locks on files.
    pub fn locks(&self) -> &Arc<LockTable> {
        &self.locks
    }

    /// A number that changes with everything by which a place that keeps its name gets another path.
    pub fn generation(&self) -> u64 {
        self.walks.generation()
    }

    /// Finds what is at a path.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, caller: &Caller<'_>, start: &Location, path: &[u8], flags: LookupFlags) -> Result<Location> {
        let is_absolute = path.first() == Some(&b'/');
        let start_place = if is_absolute { caller.root } else { start };
        let route = Route { start: Start::at(start_place), path, flags };
        if let Some(known) = self.known(&route, || caller.credentials.may_search_all()) {
            return Ok(known);
        }
        let generation = self.walks.generation();
        let mut walk = Walk::new(caller, start, path)?;
        walk.run(flags)?;
        if let Some(walkers) = walk.walkers(is_absolute) {
            self.walks.keep((&route, start_place), walkers, generation, walk.here());
        }
        Ok(walk.into_here())
    }

    /// Finds what is at a path from a directory that a program holds open. A program that goes through a tree does so,
    /// and asks for each name once: such walks are not kept.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn lookup_once(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &[u8],
        flags: LookupFlags,
    ) -> Result<Location> {
        Walk::new(caller, start, path)?.finish(flags)
    }

    /// What is at a path, if a walk to there is known that any caller may do, or one that may search all directories
    /// and this one is such. `start` is the root for an absolute path.
    #[inline]
    pub fn lookup_known(
        &self,
        start: &Location,
        path: &[u8],
        flags: LookupFlags,
        may_search_all: impl FnOnce() -> bool,
    ) -> Option<Location> {
        self.known(&Route { start: Start::at(start), path, flags }, may_search_all)
    }

    /// The same for a caller that needs the entry only, from a place whose entry lives meanwhile. Threads that ask for
    /// paths of their own do not write to a word that another of them reads.
    #[inline]
    pub fn entry_known(
        &self,
        start: Start,
        path: &[u8],
        flags: LookupFlags,
        may_search_all: impl FnOnce() -> bool,
    ) -> Option<Arc<Entry>> {
        let route = Route { start, path, flags };
        if path.len() <= PATH_BYTES_KEPT_MAX { self.walks.find_entry(&route, may_search_all) } else { None }
    }

    #[inline]
    fn known(&self, route: &Route<'_>, may_search_all: impl FnOnce() -> bool) -> Option<Location> {
        if route.path.len() <= PATH_BYTES_KEPT_MAX { self.walks.find(route, may_search_all) } else { None }
    }

    /// The directory of a path's last component, and that, if the walk there is known and its end is a plain name.
    pub(super) fn known_parent<'p>(
        &self,
        caller: &Caller<'_>,
        start: &Location,
        path: &'p [u8],
    ) -> Option<(Location, &'p [u8])> {
        let (route, name) = route_to_parent(caller, start, path)?;
        let parent = self.known(&route, || caller.credentials.may_search_all())?;
        // The walk to a directory does not ask whether one may search that.
        let may_search = parent.entry().is_steady() && caller.check(&parent, AccessMask::EXECUTE).is_ok();
        may_search.then_some((parent, name))
    }

    /// Notes where a walk that began in `generation` has come to before the last component of its path.
    pub(super) fn keep_parent(
        &self,
        (caller, start, path): (&Caller<'_>, &Location, &[u8]),
        walk: &Walk<'_>,
        generation: u64,
    ) {
        let is_absolute = path.first() == Some(&b'/');
        if let Some((route, _)) = route_to_parent(caller, start, path)
            && let Some(walkers) = walk.walkers(is_absolute)
        {
            let start = if is_absolute { caller.root } else { start };
            self.walks.keep((&route, start), walkers, generation, walk.here());
        }
    }

    /// The text of a link (`readlink`); magic links show the path of what they jump to.
    ///
    /// # Errors
    /// `EINVAL`: not a link. Those of [`Self::lookup`].
    pub fn read_link(&self, caller: &Caller<'_>, start: &Location, path: &[u8]) -> Result<Vec<u8>> {
        let location = self.lookup(caller, start, path, LookupFlags::NO_FOLLOW)?;
        self.link_text(caller, &location)
    }

    /// The text of the link at a location.
    ///
    /// # Errors
    /// `EINVAL`: not a link.
    pub fn link_text(&self, caller: &Caller<'_>, location: &Location) -> Result<Vec<u8>> {
        match location.inode().follow_link() {
            Ok(super::vnode::LinkTarget::Jump(target)) => Ok(target.path_from(caller.root)),
            Ok(super::vnode::LinkTarget::Path(text)) => Ok(text),
            Err(error) => Err(error),
        }
    }

    /// A new pipe: the end to read from, the end to write to. It is `owner`'s, who may open it again by `/dev/fd/N`.
    pub fn pipe(&self, status: StatusFlags, owner: Owner, now: Timestamp) -> (Arc<Description>, Arc<Description>) {
        let number = self.number();
        let (reader, writer) = PipeEnd::pair(number);
        let pipe = super::open_file::OpenFile::pipe(&*reader).cloned();
        let inode = PseudoInode::new(number, FileKind::Fifo, owner, now, pipe);
        let name = alloc::format!("pipe:[{number}]");
        let location = Location::pseudo(&self.pseudo_mount, inode, name.as_bytes());
        let request = |read| OpenRequest { read, write: !read, non_blocking: false };
        let reader = self.describe(location.clone(), request(true), status, Some(reader));
        (reader, self.describe(location, request(false), status, Some(writer)))
    }

    /// A new event counter (`eventfd2`).
    pub fn event_counter(
        &self,
        value: u32,
        is_semaphore: bool,
        status: StatusFlags,
        now: Timestamp,
    ) -> Arc<Description> {
        self.anonymous("anon_inode:[eventfd]", EventCounter::new(value, is_semaphore), status, now)
    }

    /// A description of something without a name, open for reading and writing (`anon_inode:[…]`).
    pub fn anonymous(
        &self,
        display_name: &str,
        file: Arc<dyn OpenFile>,
        status: StatusFlags,
        now: Timestamp,
    ) -> Arc<Description> {
        let request = OpenRequest { read: true, write: true, non_blocking: false };
        self.anonymous_for(request, display_name.as_bytes(), file, status, now)
    }

    /// The same, open only for what `request` says.
    pub fn anonymous_for(
        &self,
        request: OpenRequest,
        display_name: &[u8],
        file: Arc<dyn OpenFile>,
        status: StatusFlags,
        now: Timestamp,
    ) -> Arc<Description> {
        // The kind of Linux's anonymous inodes is none at all; a regular file is the nearest.
        let inode = PseudoInode::new(self.number(), FileKind::Regular, Owner::default(), now, None);
        let location = Location::pseudo(&self.pseudo_mount, inode, display_name);
        self.describe(location, request, status, Some(file))
    }

    /// A place of that name that is in no directory (`uts:[…]`).
    #[must_use]
    pub fn place_without_directory(&self, inode_number: u64, display_name: &str, now: Timestamp) -> Location {
        let inode = PseudoInode::name_only(inode_number, now);
        Location::pseudo(&self.pseudo_mount, inode, display_name.as_bytes())
    }

    /// A description over a socket; `inode_number` comes from [`Self::number`].
    pub fn socket(
        &self,
        inode_number: u64,
        file: Arc<dyn OpenFile>,
        status: StatusFlags,
        owner: Owner,
        now: Timestamp,
    ) -> Arc<Description> {
        let inode = PseudoInode::new(inode_number, FileKind::Socket, owner, now, None);
        let name = alloc::format!("socket:[{inode_number}]");
        let location = Location::pseudo(&self.pseudo_mount, inode, name.as_bytes());
        let request = OpenRequest { read: true, write: true, non_blocking: false };
        self.describe(location, request, status, Some(file))
    }

    /// A description over a console stream, for descriptors 0, 1 and 2.
    ///
    /// # Errors
    /// Those of opening the stream.
    pub fn stream(&self, inode: Arc<StreamInode>, access: Access) -> Result<Arc<Description>> {
        let request = access.request(false);
        let file = inode.open(request, &Credentials::ROOT)?;
        let name = inode.display_name();
        let location = Location::pseudo(&self.pseudo_mount, inode, &name);
        Ok(self.describe(location, request, StatusFlags::default(), file))
    }

    /// A file without a name on a memory file system (`memfd_create`). `name` is only shown; a file that
    /// cannot be sealed has [`Seals::SEAL`] from the start.
    ///
    /// # Errors
    /// `EINVAL`: `store` is not on a memory file system. `ENOSPC`.
    pub fn memory_file(
        &self,
        store: &InodeRef,
        name: &[u8],
        seals: Seals,
        creation: Creation,
    ) -> Result<Arc<Description>> {
        let node = downcast::<MemoryNode>(store).ok_or(Errno::EINVAL)?;
        let inode = node.create_memory_file(creation, seals)?;
        let display_name = [b"/memfd:", name, b" (deleted)"].concat();
        let location = Location::pseudo(&self.pseudo_mount, inode, &display_name);
        let request = OpenRequest { read: true, write: true, non_blocking: false };
        Ok(self.describe(location, request, StatusFlags::default(), None))
    }

    /// A number for a pseudo file.
    pub fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    fn describe(
        &self,
        location: Location,
        request: OpenRequest,
        status: StatusFlags,
        file: Option<Arc<dyn OpenFile>>,
    ) -> Arc<Description> {
        let number = self.number();
        Description::new(number, location, request, status, file, (self.locks.clone(), self.watches.clone()))
    }

    /// What works behind an inode that is opened.
    fn open_inode(
        &self,
        caller: &Caller<'_>,
        location: &Location,
        request: OpenRequest,
    ) -> Result<Option<Arc<dyn OpenFile>>> {
        let inode = location.inode();
        if let Some(file) = inode.open(request, caller.credentials)? {
            return Ok(Some(file));
        }
        match inode.kind() {
            FileKind::CharacterDevice => {
                let number = inode.metadata().device_node;
                let device = self.devices.lock().get(&number).cloned();
                device.ok_or(Errno::ENXIO)?.open(request).map(Some)
            }
            FileKind::BlockDevice => {
                let number = inode.metadata().device_node;
                let device = self.block_devices.lock().get(&number).cloned();
                device.ok_or(Errno::ENXIO)?.open(request).map(Some)
            }
            FileKind::Socket => Err(Errno::ENXIO),
            _ => Ok(None),
        }
    }
}

/// The inode of a pipe, a socket, a counter.
struct PseudoInode {
    number: u64,
    kind: FileKind,
    pipe: Option<Arc<super::pipe::Pipe>>,
    /// It can be opened, for its name only.
    is_name_only: bool,
    attributes: Mutex<PseudoAttributes>,
}

/// What can be changed of it.
struct PseudoAttributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
}

impl PseudoInode {
    fn new(
        number: u64,
        kind: FileKind,
        Owner { uid, gid }: Owner,
        created: Timestamp,
        pipe: Option<Arc<super::pipe::Pipe>>,
    ) -> Arc<Self> {
        let permissions = if kind == FileKind::Socket { 0o777 } else { 0o600 };
        let [accessed, modified, changed] = [created; 3];
        let attributes = PseudoAttributes { permissions, uid, gid, accessed, modified, changed };
        Arc::new(Self { number, kind, pipe, is_name_only: false, attributes: Mutex::new(attributes) })
    }

    /// What only stands for something.
    fn name_only(number: u64, created: Timestamp) -> Arc<Self> {
        let [accessed, modified, changed] = [created; 3];
        let attributes = PseudoAttributes { permissions: 0o444, uid: 0, gid: 0, accessed, modified, changed };
        let attributes = Mutex::new(attributes);
        Arc::new(Self { number, kind: FileKind::Regular, pipe: None, is_name_only: true, attributes })
    }
}

/// What was opened for its name only.
struct NameOnly;

impl OpenFile for NameOnly {
    fn read(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }
}

impl Inode for PseudoInode {
    fn metadata(&self) -> Metadata {
        let attributes = self.attributes.lock();
        Metadata {
            device: PSEUDO_DEVICE,
            inode_number: self.number,
            kind: self.kind,
            permissions: attributes.permissions,
            link_count: 1,
            uid: attributes.uid,
            gid: attributes.gid,
            device_node: DeviceNumber::default(),
            size_bytes: 0,
            block_count: 0,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
            created: None,
        }
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn set_attributes(&self, change: SetAttributes, now: Timestamp) -> Result<()> {
        self.decide_attributes(&mut |_| Ok(Some(change)), now).map(|_| ())
    }

    fn decide_attributes(&self, decide: &mut Decision<'_>, now: Timestamp) -> Result<bool> {
        let mut attributes = self.attributes.lock();
        let (permissions, uid, gid) = (attributes.permissions, attributes.uid, attributes.gid);
        let Some(change) = decide(Protection { kind: self.kind, permissions, uid, gid })? else { return Ok(false) };
        attributes.permissions = change.permissions.unwrap_or(attributes.permissions) & 0o7777;
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.accessed = change.accessed.unwrap_or(attributes.accessed);
        attributes.modified = change.modified.unwrap_or(attributes.modified);
        attributes.changed = now;
        Ok(true)
    }

    /// `/proc/self/fd/N` of a pipe opens another end of it; other pseudo files cannot be opened again.
    fn open(&self, request: OpenRequest, _credentials: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        if self.is_name_only {
            return if request.write { Err(Errno::EACCES) } else { Ok(Some(Arc::new(NameOnly))) };
        }
        let pipe = self.pipe.as_ref().ok_or(Errno::ENXIO)?;
        Ok(Some(PipeEnd::open_unnamed(pipe, request)))
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: if self.kind == FileKind::Socket { 0x534f_434b } else { 0x5049_5045 },
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

#[cfg(test)]
mod tests;
