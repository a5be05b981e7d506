//! Host directories in a pod's name space: which is the root, and where the others are mounted.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_link::config::{Config, HostMount, HostMountFlags, MOUNT_TAG_BYTES};
use exos::error::{Errno, Result};
use exos::fs::location::{Location, MountDescription, MountFlags};
use exos::fs::metadata::{DeviceNumber, Timestamp};
use exos::fs::namespace::Namespace;
use exos::fs::ninep::cache::PageCache;
use exos::fs::ninep::{self, Consistency, Options, Requester};
use exos::fs::permission::Credentials;
use exos::fs::vnode::{InodeRef, NewNode};
use exos::fs::walk::{Caller, LookupFlags};
use exos::mem::FramePool;

/// A way to a server, and the tag by which a mount names it.
pub type Served = ([u8; MOUNT_TAG_BYTES], Arc<dyn Requester>);
/// Minor device number of the first mount that is not the root.
const MINOR_FIRST: u32 = 32;
/// Device number of a live root, as that of an image is.
const MINOR_ROOT: u32 = 1;

/// The mounts of a run.
pub struct Shares<'a> {
    config: &'a Config,
    served: &'a [Served],
    pool: &'a Arc<FramePool>,
    cache: Arc<PageCache>,
}

/// A mount that cannot be used, and why.
pub type Refused = (Vec<u8>, Errno);

impl<'a> Shares<'a> {
    /// What the configuration names, of what the machine serves.
    #[must_use]
    pub fn new(config: &'a Config, served: &'a [Served], pool: &'a Arc<FramePool>) -> Self {
        Self { config, served, pool, cache: PageCache::new(pool) }
    }

    /// The host's directory that is the root, if one is.
    ///
    /// # Errors
    /// Its path on the host is not known here, so the answer names `/`.
    pub fn root(&self) -> core::result::Result<Option<InodeRef>, Refused> {
        let root = self.config.mounts.iter().find(|mount| mount.flags.contains(HostMountFlags::ROOT));
        root.map(|mount| self.attach(mount, MINOR_ROOT, Consistency::Fixed)).transpose()
    }

    /// Mounts the others, in order. Directories on the way that are not there are made.
    ///
    /// # Errors
    /// The first that cannot be mounted.
    pub fn mount(&self, namespace: &Arc<Namespace>, now: Timestamp) -> core::result::Result<(), Refused> {
        let others = self.config.mounts.iter().filter(|mount| !mount.flags.contains(HostMountFlags::ROOT));
        for (minor, mount) in (MINOR_FIRST..).zip(others) {
            let directory = self.attach(mount, minor, Consistency::Checked)?;
            let place = ensure_path(namespace, &mount.path, now).map_err(|error| (mount.path.clone(), error))?;
            let read_only = if mount.flags.contains(HostMountFlags::READ_ONLY) {
                MountFlags::READ_ONLY
            } else {
                MountFlags::empty()
            };
            let flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | read_only;
            namespace.mount(&place, directory, MountDescription { kind: "9p", source: "host", flags });
        }
        Ok(())
    }

    fn attach(
        &self,
        mount: &HostMount,
        minor: u32,
        consistency: Consistency,
    ) -> core::result::Result<InodeRef, Refused> {
        let options = Options { device: DeviceNumber { major: 0, minor }, consistency, uid: self.config.uid };
        let served = self.served.iter().find(|(tag, _)| *tag == mount.tag).ok_or(Errno::ENODEV);
        let attached = served.and_then(|(_, way)| ninep::attach(way.clone(), self.pool, &self.cache, options));
        attached.map_err(|error| (mount.path.clone(), error))
    }

    /// What keeps the pages of all mounts; it lives as long as the pod.
    #[must_use]
    pub fn into_cache(self) -> Arc<PageCache> {
        self.cache
    }
}

/// Finds a directory, or makes it and what is missing above it.
fn ensure_path(namespace: &Arc<Namespace>, path: &[u8], now: Timestamp) -> Result<Location> {
    let credentials = Credentials::ROOT;
    let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now };
    let mut here = namespace.root().clone();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        here = match namespace.lookup(&caller, &here, name, LookupFlags::DIRECTORY) {
            Err(Errno::ENOENT) => namespace.create(&caller, &here, name, NewNode::Directory, 0o755)?,
            found => found?,
        };
    }
    Ok(here)
}
