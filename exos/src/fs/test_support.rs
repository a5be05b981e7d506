//! Small worlds for the tests of this module: a name space over memory file systems on the fake machine.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::description::{Description, StatusFlags};
use super::location::{Location, MountDescription, MountFlags};
use super::memory_fs::{Identity, Limits, MemoryFs, TMPFS_MAGIC};
use super::metadata::{DeviceNumber, Timestamp};
use super::namespace::{Access, Namespace, OpenFlags, OpenHow};
use super::permission::Credentials;
use super::readiness::{Readiness, Waiter};
use super::transfer::{Buffer, Destination};
use super::vnode::{Creation, InodeRef};
use super::walk::Caller;
use crate::error::Result;
use crate::fake::FakeMachine;
use crate::mem::frames::FramePool;

/// The time of all tests.
pub(crate) const NOW: Timestamp = Timestamp { seconds: 1_000, nanoseconds: 7 };
/// Creates as root.
pub(crate) const BY_ROOT: Creation = Creation { permissions: 0o755, uid: 0, gid: 0, now: NOW };
/// Much.
pub(crate) const LARGE: Limits = Limits { bytes_max: 1 << 30, inode_count_max: 1 << 20 };

/// A pool over a fresh fake machine.
pub(crate) fn pool() -> Arc<FramePool> {
    let machine = FakeMachine::new();
    FramePool::new(machine.clone(), machine, 64 << 20)
}

/// The root of an empty memory file system.
pub(crate) fn tmpfs_root(pool: &Arc<FramePool>, minor: u32, limits: Limits) -> InodeRef {
    let device = DeviceNumber { major: 0, minor };
    let identity = Identity { device, magic: TMPFS_MAGIC };
    MemoryFs::create(pool.clone(), identity, limits, BY_ROOT).unwrap()
}

/// What a mount says in tests.
pub(crate) fn described(flags: MountFlags) -> MountDescription {
    MountDescription { kind: "tmpfs", source: "tmpfs", flags }
}

/// A name space and somebody in it.
pub(crate) struct World {
    pub(crate) pool: Arc<FramePool>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) root: Location,
    pub(crate) credentials: Credentials,
}

impl World {
    /// Root on an empty memory file system.
    pub(crate) fn tmpfs() -> Self {
        let pool = pool();
        let root = tmpfs_root(&pool, 30, LARGE);
        Self::over(pool, root)
    }

    /// Root on that file system.
    pub(crate) fn over(pool: Arc<FramePool>, root: InodeRef) -> Self {
        let namespace = Namespace::new(root, described(MountFlags::empty()));
        let root = namespace.root().clone();
        Self { pool, namespace, root, credentials: Credentials::ROOT }
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { root: &self.root, credentials: &self.credentials, umask: 0o022, now: NOW }
    }

    pub(crate) fn open(
        &self,
        path: &str,
        access: Access,
        flags: OpenFlags,
        status: StatusFlags,
    ) -> Result<Arc<Description>> {
        let how = OpenHow { access, flags, status, permissions: 0o666, ..OpenHow::READ };
        self.namespace.open(&self.caller(), &self.root, path.as_bytes(), &how)
    }

    /// Creates or opens a file for reading and writing.
    pub(crate) fn create(&self, path: &str) -> Arc<Description> {
        self.open(path, Access::ReadWrite, OpenFlags::CREATE, StatusFlags::empty()).unwrap()
    }

    /// Creates a file with contents.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let file = self.create(path);
        assert_eq!(file.write_at(0, &mut &bytes[..], NOW), Ok(bytes.len()));
    }

    /// The contents of a file.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.open(path, Access::Read, OpenFlags::empty(), StatusFlags::empty())?;
        contents(&file)
    }
}

/// All that can be read from the start of a file.
pub(crate) fn contents(file: &Description) -> Result<Vec<u8>> {
    let mut buffer = Buffer::with_limit(1 << 20);
    file.read_at(0, &mut buffer, NOW)?;
    Ok(buffer.bytes)
}

/// Memory that takes some bytes and then faults.
pub(crate) struct Faulty {
    pub(crate) wanted: usize,
    pub(crate) taken: Vec<u8>,
    pub(crate) good: usize,
}

impl Destination for Faulty {
    fn remaining(&self) -> usize {
        self.wanted - self.taken.len()
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.good - self.taken.len());
        self.taken.extend_from_slice(&bytes[..count]);
        count
    }
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Count(pub(crate) AtomicUsize);

impl Waiter for Count {
    fn wake(&self, _: Readiness) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
