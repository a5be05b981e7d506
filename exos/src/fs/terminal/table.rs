//! The terminals of a pod and the file system that shows them, `/dev/pts`.
//!
//! Names come and go with the terminals. `ptmx` is here too, where opening it knows the caller; `/dev/ptmx` is a link
//! to it.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::super::metadata::{
    Decision, DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, SetAttributes, Timestamp,
};
use super::super::open_file::{OpenFile, OpenRequest};
use super::super::permission::Credentials;
use super::super::stream::Stream;
use super::super::stream_inode::TERMINAL_MAJOR;
use super::super::vnode::{DirectoryEntry, EntryConsumer, Inode, InodeRef};
use super::console::Screen;
use super::job_control::{JobControl, NoJobs};
use super::modes::WindowSize;
use super::tty::Tty;
use super::tty::files::MasterFile;
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Most terminals of a pod (`/proc/sys/kernel/pty/max`).
pub const TERMINAL_COUNT_MAX: usize = 4096;
/// The number of `/dev/ptmx`.
pub const MASTER_DEVICE: DeviceNumber = DeviceNumber { major: 5, minor: 2 };
/// The group that slave sides belong to, as Debian mounts `/dev/pts`.
const TERMINAL_GROUP: u32 = 5;
/// What the file system calls itself (`DEVPTS_SUPER_MAGIC`).
const MAGIC: u64 = 0x1cd1;
const ROOT_INODE: u64 = 1;
const MASTER_INODE: u64 = 2;
/// Inode number of terminal 0.
const FIRST_INODE: u64 = 3;

/// The terminals of a pod.
pub struct Terminals {
    table: Mutex<BTreeMap<u32, Arc<SlaveNode>>>,
    jobs: Mutex<Arc<dyn JobControl>>,
    device: DeviceNumber,
    created: Timestamp,
    first_index: u32,
    this: Weak<Self>,
}

impl Terminals {
    /// None yet; `device` is what `stat` says about `/dev/pts`, and numbers begin with `first_index`.
    pub fn new(device: DeviceNumber, first_index: u32, now: Timestamp) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            table: Mutex::default(),
            jobs: Mutex::new(Arc::new(NoJobs)),
            device,
            created: now,
            first_index,
            this: this.clone(),
        })
    }

    /// Sets the view of the process table; for terminals that are made from now on.
    pub fn set_job_control(&self, jobs: Arc<dyn JobControl>) {
        *self.jobs.lock() = jobs;
    }

    /// The root of `/dev/pts`.
    pub fn root(&self) -> InodeRef {
        Arc::new(Directory(self.this.clone()))
    }

    /// A terminal over the host's streams.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn console(
        &self,
        keyboard: Arc<dyn Stream>,
        screen: Arc<dyn Stream>,
        window: WindowSize,
        owner: u32,
    ) -> Result<Arc<Tty>> {
        self.add(window, Some(Screen::new(keyboard, screen)), owner, self.created)
    }

    /// A new terminal's master side.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn open_master(&self, owner: u32, now: Timestamp) -> Result<Arc<MasterFile>> {
        let table = self.this.upgrade().ok_or(Errno::EIO)?;
        Ok(MasterFile::new(self.add(WindowSize::default(), None, owner, now)?, table))
    }

    fn add(&self, window: WindowSize, screen: Option<Screen>, owner: u32, now: Timestamp) -> Result<Arc<Tty>> {
        let jobs = self.jobs.lock().clone();
        let mut table = self.table.lock();
        if table.len() >= TERMINAL_COUNT_MAX {
            return Err(Errno::ENOSPC);
        }
        let mut expected = self.first_index..;
        let free = table.keys().zip(&mut expected).find(|(taken, expected)| **taken != *expected);
        let index = free.map_or(self.first_index + table.len() as u32, |(_, expected)| expected);
        let tty = Tty::new(index, jobs, window, screen);
        let attributes = Attributes { permissions: 0o620, uid: owner, gid: TERMINAL_GROUP, changed: now };
        let node =
            SlaveNode { tty: tty.clone(), device: self.device, created: now, attributes: Mutex::new(attributes) };
        table.insert(index, Arc::new(node));
        Ok(tty)
    }

    pub(super) fn remove(&self, index: u32) {
        let gone = self.table.lock().remove(&index);
        drop(gone);
    }

    /// The terminal of that number.
    pub fn find(&self, index: u32) -> Option<Arc<Tty>> {
        self.table.lock().get(&index).map(|node| node.tty.clone())
    }

    /// The terminal that controls a session.
    pub fn controlling(&self, session: u32) -> Option<Arc<Tty>> {
        let table = self.table.lock();
        table.values().find(|node| node.tty.session() == Some(session)).map(|node| node.tty.clone())
    }

    /// The leader of a session has ended: its terminal controls nobody any more.
    pub fn end_session(&self, session: u32) {
        if let Some(tty) = self.controlling(session) {
            tty.lose_leader();
        }
    }

    /// Hangs the terminal of a session up (`vhangup`); only the leader is told.
    pub fn hang_up(&self, session: u32) {
        if let Some(tty) = self.controlling(session) {
            tty.hang_up(false);
        }
    }

    /// Moves bytes between the host and those terminals that are the host's.
    pub fn pump(&self) {
        let all: Vec<Arc<Tty>> = self.table.lock().values().map(|node| node.tty.clone()).collect();
        for tty in all {
            tty.pump();
        }
    }

    fn metadata(&self, inode_number: u64, kind: FileKind, permissions: u32) -> Metadata {
        Metadata {
            device: self.device,
            inode_number,
            kind,
            permissions,
            link_count: if kind == FileKind::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            device_node: if kind == FileKind::Directory { DeviceNumber::default() } else { MASTER_DEVICE },
            size_bytes: 0,
            block_count: 0,
            accessed: self.created,
            modified: self.created,
            changed: self.created,
            created: None,
        }
    }
}

fn statistics() -> FileSystemStatistics {
    FileSystemStatistics {
        magic: MAGIC,
        block_bytes: 4096,
        block_count: 0,
        free_block_count: 0,
        inode_count: 0,
        free_inode_count: 0,
    }
}

/// `/dev/pts`.
struct Directory(Weak<Terminals>);

impl Directory {
    fn table(&self) -> Result<Arc<Terminals>> {
        self.0.upgrade().ok_or(Errno::EIO)
    }
}

impl Inode for Directory {
    fn metadata(&self) -> Metadata {
        match self.0.upgrade() {
            Some(table) => table.metadata(ROOT_INODE, FileKind::Directory, 0o755),
            None => Metadata { kind: FileKind::Directory, ..gone() },
        }
    }

    fn kind(&self) -> FileKind {
        FileKind::Directory
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let table = self.table()?;
        if name == b"ptmx" {
            return Ok(Arc::new(MasterNode(self.0.clone())));
        }
        let text = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let index: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
        // One name each: no leading zeros or signs.
        if alloc::format!("{index}") != text {
            return Err(Errno::ENOENT);
        }
        let node = table.table.lock().get(&index).cloned();
        node.map(|node| node as InodeRef).ok_or(Errno::ENOENT)
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let indices: Vec<u32> = self.table()?.table.lock().keys().copied().collect();
        let terminals = indices.iter().map(|index| (alloc::format!("{index}"), u64::from(*index) + FIRST_INODE));
        let entries = core::iter::once((alloc::string::String::from("ptmx"), MASTER_INODE)).chain(terminals);
        let mut reached = cookie;
        for (name, inode_number) in entries {
            // A place is the inode's number, so it is the same as long as the terminal is there.
            if inode_number <= cookie {
                continue;
            }
            let entry = DirectoryEntry {
                name: name.as_bytes(),
                inode_number,
                kind: FileKind::CharacterDevice,
                next_cookie: inode_number,
            };
            if !consumer(entry) {
                break;
            }
            reached = inode_number;
        }
        Ok(reached)
    }

    fn create(
        &self,
        _: &[u8],
        _: super::super::vnode::NewNode<'_>,
        _: super::super::vnode::Creation,
    ) -> Result<InodeRef> {
        Err(Errno::EPERM)
    }

    fn unlink(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn statistics(&self) -> FileSystemStatistics {
        statistics()
    }
}

/// Metadata of what is no more.
fn gone() -> Metadata {
    Metadata {
        device: DeviceNumber::default(),
        inode_number: 0,
        kind: FileKind::CharacterDevice,
        permissions: 0,
        link_count: 0,
        uid: 0,
        gid: 0,
        device_node: DeviceNumber::default(),
        size_bytes: 0,
        block_count: 0,
        accessed: Timestamp::default(),
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        created: None,
    }
}

/// `/dev/pts/ptmx`.
struct MasterNode(Weak<Terminals>);

impl Inode for MasterNode {
    fn metadata(&self) -> Metadata {
        match self.0.upgrade() {
            Some(table) => table.metadata(MASTER_INODE, FileKind::CharacterDevice, 0o666),
            None => gone(),
        }
    }

    fn kind(&self) -> FileKind {
        FileKind::CharacterDevice
    }

    fn open(&self, _: OpenRequest, credentials: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        let table = self.0.upgrade().ok_or(Errno::EIO)?;
        let file = table.open_master(credentials.uid, table.created)?;
        Ok(Some(file))
    }

    fn statistics(&self) -> FileSystemStatistics {
        statistics()
    }
}

#[derive(Clone, Copy)]
struct Attributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    changed: Timestamp,
}

/// `/dev/pts/N`.
struct SlaveNode {
    tty: Arc<Tty>,
    device: DeviceNumber,
    created: Timestamp,
    attributes: Mutex<Attributes>,
}

impl Inode for SlaveNode {
    fn metadata(&self) -> Metadata {
        let attributes = *self.attributes.lock();
        Metadata {
            device: self.device,
            inode_number: u64::from(self.tty.index()) + FIRST_INODE,
            kind: FileKind::CharacterDevice,
            permissions: attributes.permissions,
            link_count: 1,
            uid: attributes.uid,
            gid: attributes.gid,
            device_node: DeviceNumber { major: TERMINAL_MAJOR, minor: self.tty.index() },
            accessed: self.created,
            modified: self.created,
            changed: attributes.changed,
            ..gone()
        }
    }

    fn kind(&self) -> FileKind {
        FileKind::CharacterDevice
    }

    fn open(&self, _: OpenRequest, _: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        let file = self.tty.open_slave()?;
        Ok(Some(file))
    }

    fn set_attributes(&self, wanted: SetAttributes, now: Timestamp) -> Result<()> {
        self.decide_attributes(&mut |_| Ok(Some(wanted)), now).map(|_| ())
    }

    fn decide_attributes(&self, decide: &mut Decision<'_>, now: Timestamp) -> Result<bool> {
        let mut attributes = self.attributes.lock();
        let Attributes { permissions, uid, gid, .. } = *attributes;
        let Some(wanted) = decide(Protection { kind: self.kind(), permissions, uid, gid })? else { return Ok(false) };
        attributes.permissions = wanted.permissions.unwrap_or(attributes.permissions);
        attributes.uid = wanted.uid.unwrap_or(attributes.uid);
        attributes.gid = wanted.gid.unwrap_or(attributes.gid);
        attributes.changed = now;
        Ok(true)
    }

    fn statistics(&self) -> FileSystemStatistics {
        statistics()
    }
}
