//! Host directories in a pod's name space: which is the root, and where the others are mounted.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_link::config::{Config, HostMount, HostMountFlags, MOUNT_TAG_BYTES};
use exos::error::{Errno, Result};
use exos::fs::layers::{self, Layer};
use exos::fs::location::{Location, MountDescription, MountFlags};
use exos::fs::metadata::{DeviceNumber, FileKind, Timestamp};
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

    /// The host's directory that is the root, if one is; and whether what is written is written to it.
    ///
    /// # Errors
    /// Its path on the host is not known here, so the answer names `/`.
    pub fn root(&self) -> core::result::Result<Option<(InodeRef, bool)>, Refused> {
        let root = self.config.mounts.iter().find(|mount| mount.flags.contains(HostMountFlags::ROOT));
        let attach = |mount: &HostMount| {
            let is_written = !mount.flags.contains(HostMountFlags::READ_ONLY);
            let consistency = if is_written { Consistency::Own } else { Consistency::Fixed };
            let attached = self.way(mount, MINOR_ROOT, consistency, 0)();
            attached.map(|root| (root, is_written)).map_err(|error| (mount.path.clone(), error))
        };
        root.map(attach).transpose()
    }

    /// The root's image over the directories that show where it has nothing; whether there are any. They are attached
    /// when they are needed.
    #[must_use]
    pub fn over(&self, image: InodeRef) -> (InodeRef, bool) {
        let layers = self.config.mounts.iter().filter(|mount| mount.flags.contains(HostMountFlags::LAYER));
        let layer = |(number, mount): (u8, &HostMount)| {
            let name = mount.path.strip_prefix(b"/").unwrap_or(&mount.path);
            Layer::new(name, Box::new(self.way(mount, MINOR_ROOT, Consistency::Fixed, number)))
        };
        let layers: Vec<Layer> = (1..=ninep::LAYER_MAX).zip(layers).map(layer).collect();
        if layers.is_empty() { (image, false) } else { (layers::over(image, layers), true) }
    }

    /// Mounts the others, in order. Directories on the way that are not there are made.
    ///
    /// # Errors
    /// The first that cannot be mounted.
    pub fn mount(&self, namespace: &Arc<Namespace>, now: Timestamp) -> core::result::Result<(), Refused> {
        let is_of_root = HostMountFlags::ROOT | HostMountFlags::LAYER;
        let others = self.config.mounts.iter().filter(|mount| !mount.flags.intersects(is_of_root));
        for (minor, mount) in (MINOR_FIRST..).zip(others) {
            let attached = self.way(mount, minor, Consistency::Checked, 0)();
            let is_file = mount.flags.contains(HostMountFlags::FILE);
            let shown = if is_file { attached.and_then(|directory| only_file(&directory)) } else { attached };
            let place = if is_file { ensure_file } else { ensure_path }(namespace, &mount.path, now);
            let refused = |error| (mount.path.clone(), error);
            let (shown, place) = (shown.map_err(refused)?, place.map_err(refused)?);
            let read_only = if mount.flags.contains(HostMountFlags::READ_ONLY) {
                MountFlags::READ_ONLY
            } else {
                MountFlags::empty()
            };
            let flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | read_only;
            namespace.mount(&place, shown, MountDescription { kind: "9p", source: "host", flags });
        }
        Ok(())
    }

    /// What attaches to the server of a mount.
    fn way(
        &self,
        mount: &HostMount,
        minor: u32,
        consistency: Consistency,
        layer: u8,
    ) -> impl Fn() -> Result<InodeRef> + Send + Sync + 'static {
        // In a root of its own each file gets the owner that makes it; elsewhere they are all the program's user's.
        let uid = if consistency == Consistency::Own { 0 } else { self.config.uid };
        let options = Options { device: DeviceNumber { major: 0, minor }, consistency, uid, layer };
        let served = self.served.iter().find(|(tag, _)| *tag == mount.tag).map(|(_, way)| way.clone());
        let (pool, cache) = (self.pool.clone(), self.cache.clone());
        move || ninep::attach(served.clone().ok_or(Errno::ENODEV)?, &pool, &cache, options)
    }

    /// What keeps the pages of all mounts; it lives as long as the pod.
    #[must_use]
    pub fn into_cache(self) -> Arc<PageCache> {
        self.cache
    }
}

/// The file that a served directory is there for.
fn only_file(directory: &InodeRef) -> Result<InodeRef> {
    let mut name = Vec::new();
    directory.read_directory(0, &mut |entry| {
        name = entry.name.to_vec();
        false
    })?;
    let file = if name.is_empty() { Err(Errno::ENOENT) } else { directory.lookup(&name) }?;
    if file.kind() == FileKind::Regular { Ok(file) } else { Err(Errno::EINVAL) }
}

/// Finds a file, or makes an empty one and what is missing above it.
fn ensure_file(namespace: &Arc<Namespace>, path: &[u8], now: Timestamp) -> Result<Location> {
    let end = path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::EINVAL)?;
    let (directory, name) = (ensure_path(namespace, &path[..end], now)?, &path[end + 1..]);
    let credentials = Credentials::ROOT;
    let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now };
    let place = match namespace.lookup(&caller, &directory, name, LookupFlags::FOLLOW) {
        Err(Errno::ENOENT) => namespace.create(&caller, &directory, name, NewNode::Regular, 0o644)?,
        found => found?,
    };
    if place.inode().kind() == FileKind::Directory { Err(Errno::EISDIR) } else { Ok(place) }
}

/// Finds a directory, or makes it and what is missing above it.
pub(super) fn ensure_path(namespace: &Arc<Namespace>, path: &[u8], now: Timestamp) -> Result<Location> {
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
