//! Places in the name space: mounts, directory entries, and paths from places.
//!
//! An [`Entry`] is a name that leads to an inode; it knows its parent, so `..`, `getcwd` and
//! `/proc/self/fd/N` need no search, and a rename shows in all of them at once. There is one entry per
//! living name: parents know their children weakly, and the operations of [`super::namespace`] keep entries
//! in step with the file systems. Names of volatile file systems (`/proc`) are looked up each time.
//!
//! A [`Location`] is an entry on a mount: what Linux calls a path. Pseudo files (pipes, streams) have a
//! location without a parent whose path is a display name.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use bitflags::bitflags;

use super::metadata::FileKind;
use super::name::Name;
use super::name_table::{NameTable, hash_of};
use super::recent_entries::RecentEntries;
use super::vnode::{InodeRef, is_same};
use super::watch::WatchTable;
use crate::error::{Errno, Result};
use crate::sync::{Mutex, MutexGuard, Once};

bitflags! {
    /// How a mount restricts its files (mount(2)).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Nothing changes: `EROFS`.
        const READ_ONLY = 1 << 0;
        /// Set-user-ID bits are ignored.
        const NO_SET_ID = 1 << 1;
        /// Devices cannot be opened.
        const NO_DEVICES = 1 << 2;
        /// Files cannot be executed.
        const NO_EXECUTE = 1 << 3;
        /// Reads leave no time of access.
        const NO_ACCESS_TIME = 1 << 4;
    }
}

/// What `/proc/mounts` says about a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountDescription {
    /// File system type (`tmpfs`).
    pub kind: &'static str,
    /// Source, by convention the type for what has no device.
    pub source: &'static str,
    /// Restrictions.
    pub flags: MountFlags,
}

/// A file system in its place.
pub struct Mount {
    /// Its number, unique in the name space.
    pub id: u32,
    /// Source, type and options, as `/proc/PID/mounts` shows them.
    pub description: MountDescription,
    /// From some time on nothing changes in it.
    pub(super) is_sealed: AtomicBool,
    root: Arc<Entry>,
    /// Where it is mounted; `None` for the root and for pseudo files.
    covers: Option<Location>,
    /// Whether anything was ever mounted in it.
    has_mounts: AtomicBool,
    /// Entries that were used lately, kept so that the next walk finds them and their inodes made. What loses its name
    /// leaves at once, so that nothing is kept alive that nobody can reach.
    recent: Mutex<RecentEntries>,
}

/// Most paths are no longer.
const PATH_BYTES_USUAL: usize = 128;

/// A name that leads to an inode.
pub struct Entry {
    inode: InodeRef,
    /// As [`super::vnode::Inode::is_steady`] says, which never changes and is asked at each step of a walk.
    is_steady: bool,
    place: Mutex<Place>,
    children: Mutex<Children>,
    mounted_here: Mutex<Option<Arc<Mount>>>,
    /// Whether there is one: most places of a walk are not covered.
    is_covered: AtomicBool,
    /// Its name is gone, for ever.
    is_deleted: AtomicBool,
    /// Its mount keeps it: most places of a walk were there lately.
    is_recent: AtomicBool,
    /// Its parent does not know it, for want of memory: the removal of its name cannot tell it, so no walk keeps it. It
    /// is no directory: working directories in one, or below, are told apart by its entry.
    is_passing: AtomicBool,
    /// The watches that are told when the last holder of this entry lets go.
    gone_watch: Once<Weak<WatchTable>>,
}

struct Place {
    parent: Option<Arc<Entry>>,
    name: Name,
}

#[derive(Default)]
struct Children {
    by_name: NameTable<Weak<Entry>>,
    /// How often a name was taken out: what was looked up before may be gone since.
    removal_count: u64,
    /// Dead children are swept out when there are this many.
    sweep_count: usize,
    /// There while names move out of this directory or into it.
    motion: Option<Box<Motion>>,
}

/// The entries that are about to come to a directory, by the names that they get there, while the file system has the
/// new names already, or not yet: a walk that looks one up meanwhile finds the entry that comes, and makes none of its
/// own. An exchange within one directory has two.
#[derive(Default)]
struct Motion([Option<(Name, Arc<Entry>)>; 2]);

/// A directory, a name in it, and the entry that is about to get the name, if one is.
pub(super) type Coming<'a, 'b> = (&'a Entry, &'b [u8], Option<&'b Arc<Entry>>);

/// Names move while it lives. The caller holds the name space's lock for changes.
pub(super) struct InMotion<'a>([&'a Entry; 2]);

impl<'a> InMotion<'a> {
    /// Begins to move what will be found at these names of these directories.
    pub(super) fn begin(places: [Coming<'a, '_>; 2]) -> Self {
        for (index, (directory, name, moved)) in places.iter().enumerate() {
            let mut children = directory.children.lock();
            let motion = children.motion.get_or_insert_default();
            motion.0[index] = moved.map(|moved| (Name::from(*name), moved.clone()));
        }
        Self(places.map(|(directory, ..)| directory))
    }
}

impl Drop for InMotion<'_> {
    fn drop(&mut self) {
        for directory in self.0 {
            let motion = directory.children.lock().motion.take();
            drop(motion);
        }
    }
}

/// Look-ups of a name beside removals in its directory, before one is believed without being remembered.
const LOOKUP_COUNT_MAX: usize = 64;

/// Fewest children at which dead ones are swept out.
const SWEEP_COUNT_MIN: usize = 64;

impl Entry {
    fn new(inode: InodeRef, parent: Option<Arc<Self>>, name: &[u8], is_deleted: bool) -> Arc<Self> {
        Arc::new(Self {
            is_steady: inode.is_steady(),
            inode,
            place: Mutex::new(Place { parent, name: name.into() }),
            children: Mutex::new(Children::default()),
            mounted_here: Mutex::new(None),
            is_covered: AtomicBool::new(false),
            is_deleted: AtomicBool::new(is_deleted),
            is_recent: AtomicBool::new(false),
            is_passing: AtomicBool::new(false),
            gone_watch: Once::new(),
        })
    }

    /// One that is in no directory.
    #[cfg(test)]
    pub(super) fn of_root(inode: InodeRef) -> Arc<Self> {
        Self::new(inode, None, b"", false)
    }

    /// The inode.
    pub fn inode(&self) -> &InodeRef {
        &self.inode
    }

    /// Has `watches` told when nobody holds this entry any more, if its inode has no other name then.
    pub(super) fn watch_gone(&self, watches: &Arc<WatchTable>) {
        self.gone_watch.call_once(|| Arc::downgrade(watches));
    }

    /// The directory that it is or was in, and its name there.
    pub(super) fn place_in_directory(&self) -> Option<(Arc<Self>, Name)> {
        let place = self.place.lock();
        place.parent.clone().map(|parent| (parent, place.name.clone()))
    }

    /// Whether what is known of this directory holds until the name space changes it.
    #[inline]
    pub(super) fn is_steady(&self) -> bool {
        self.is_steady
    }

    #[inline]
    fn is_volatile(&self) -> bool {
        !self.is_steady && self.inode.is_volatile()
    }

    /// Whether its name is gone.
    #[inline]
    pub(super) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether it is known only to its present holders.
    #[inline]
    pub(super) fn is_passing(&self) -> bool {
        self.is_passing.load(Ordering::Relaxed)
    }

    /// Sees to it that one more name of this directory can be known: before a name comes to it by [`Self::attach`] or
    /// [`Self::move_child`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn make_room(&self) -> Result<()> {
        self.children.lock().make_room()
    }

    fn parent(&self) -> Option<Arc<Self>> {
        self.place.lock().parent.clone()
    }

    /// The living entry of the name with this hash, if it has a holder.
    pub(super) fn known_child(&self, name: &[u8], hash: u64) -> Option<Arc<Self>> {
        self.children.lock().by_name.get_mut_at(hash, name).and_then(|child| child.upgrade())
    }

    /// Finds a name in this directory.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, and those of [`super::vnode::Inode::lookup`].
    pub(super) fn child(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        if name.len() > super::vnode::NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.is_volatile() {
            let inode = self.inode.lookup(name)?;
            return Ok(Self::new(inode, Some(self.clone()), name, false));
        }
        let hash = hash_of(name);
        if let Some(known) = self.known_child(name, hash) {
            if self.is_steady || self.inode.confirms(name, &known.inode) {
                return Ok(known);
            }
            // The move will say where it is.
            if self.children.lock().motion.is_none() {
                self.detach(name, &known.inode);
            }
        }
        self.look_up(name, hash)
    }

    /// Asks the directory for a name that nobody holds, and remembers the answer: but not one that a removal may have
    /// overtaken, because the entry would outlive the name. `ESTALE`: again and again it was.
    fn look_up(self: &Arc<Self>, name: &[u8], hash: u64) -> Result<Arc<Self>> {
        for _ in 0..LOOKUP_COUNT_MAX {
            let removal_count = self.children.lock().removal_count;
            let fresh = Self::new(self.inode.lookup(name)?, Some(self.clone()), name, false);
            if let Some(entry) = self.attach_found((name, hash), fresh, removal_count)? {
                return Ok(entry);
            }
        }
        Err(Errno::ESTALE)
    }

    /// The entry for `name` that was found: `fresh`, or the one that leads to the same inode already. `None` if names
    /// were removed since there were `removal_count` removals. `ENOMEM`.
    fn attach_found(
        &self,
        (name, hash): (&[u8], u64),
        fresh: Arc<Self>,
        removal_count: u64,
    ) -> Result<Option<Arc<Self>>> {
        let mut children = self.children.lock();
        if children.removal_count != removal_count {
            return Ok(None);
        }
        if let Some(coming) = children.coming(name, &fresh.inode) {
            drop(children);
            return Ok(Some(coming));
        }
        if children.by_name.get_mut_at(hash, name).is_some() {
            return Ok(Some(Self::attach_to(children, (name, hash), fresh)));
        }
        match children.make_room() {
            Ok(()) => {
                children.by_name.insert_at(hash, name, Arc::downgrade(&fresh));
            }
            Err(error) if fresh.inode.kind() == FileKind::Directory => return Err(error),
            // A file of a long directory can be removed, and the next look-up finds it once more.
            Err(_) => fresh.is_passing.store(true, Ordering::Relaxed),
        }
        Ok(Some(fresh))
    }

    /// The entry for `name`, which leads to `inode` and cannot be removed meanwhile: the caller holds the name space's
    /// lock for changes, and has made room.
    pub(super) fn attach(self: &Arc<Self>, name: &[u8], inode: InodeRef) -> Arc<Self> {
        if self.is_volatile() {
            return Self::new(inode, Some(self.clone()), name, false);
        }
        let fresh = Self::new(inode, Some(self.clone()), name, false);
        Self::attach_to(self.children.lock(), (name, hash_of(name)), fresh)
    }

    /// The entry for `name`: `fresh`, or the one that leads to the same inode already.
    fn attach_to(mut children: MutexGuard<'_, Children>, (name, hash): (&[u8], u64), fresh: Arc<Self>) -> Arc<Self> {
        let Some(child) = children.by_name.get_mut_at(hash, name) else {
            children.put_at(hash, name, &fresh);
            return fresh;
        };
        if let Some(known) = child.upgrade().filter(|known| is_same(&known.inode, &fresh.inode)) {
            // Before `fresh` goes, which may be the last to hold its inode.
            drop(children);
            return known;
        }
        let before = core::mem::replace(child, Arc::downgrade(&fresh));
        drop(children);
        drop(before);
        fresh
    }

    /// Notes that `name`, which led to `inode`, is gone from this directory. What it leads to by now stays.
    pub(super) fn detach(&self, name: &[u8], inode: &InodeRef) {
        let gone = {
            let mut children = self.children.lock();
            children.removal_count += 1;
            let mut gone = None;
            children.by_name.remove_if(name, |known| {
                gone = known.upgrade().filter(|known| is_same(&known.inode, inode));
                gone.is_some()
            });
            gone
        };
        if let Some(gone) = gone {
            gone.is_deleted.store(true, Ordering::Release);
        }
    }

    /// Notes that `old_name` of this directory is now `new_name` of `new_parent`, where it replaced what led to
    /// `replaced`, and where the caller made room.
    pub(super) fn move_child(
        &self,
        old_name: &[u8],
        new_parent: &Arc<Self>,
        new_name: &[u8],
        replaced: Option<&InodeRef>,
    ) {
        let moved = self.children.lock().take(old_name);
        if let Some(replaced) = replaced {
            new_parent.detach(new_name, replaced);
        }
        if let Some(moved) = moved {
            let old_parent = {
                let mut place = moved.place.lock();
                place.name = new_name.into();
                place.parent.replace(new_parent.clone())
            };
            new_parent.children.lock().put(new_name, &moved);
            drop(old_parent);
        }
    }

    /// Notes that two names changed places. The caller made room in both directories.
    pub(super) fn swap_children(self: &Arc<Self>, name: &[u8], other: &Arc<Self>, other_name: &[u8]) {
        let first = self.children.lock().take(name);
        let second = other.children.lock().take(other_name);
        for (moved, parent, new_name) in [(first, other, other_name), (second, self, name)] {
            if let Some(moved) = moved {
                {
                    let mut place = moved.place.lock();
                    place.name = new_name.into();
                    place.parent = Some(parent.clone());
                }
                parent.children.lock().put(new_name, &moved);
            }
        }
    }
}

impl Children {
    /// Sees to it that there is room for one more name. `ENOMEM`.
    fn make_room(&mut self) -> Result<()> {
        if self.by_name.len() >= self.sweep_count.max(SWEEP_COUNT_MIN) {
            self.sweep();
        }
        self.by_name.make_room(1).or_else(|_| {
            self.sweep();
            self.by_name.make_room(1)
        })
    }

    /// The entry that is about to get this name, if it is this inode's.
    fn coming(&self, name: &[u8], inode: &InodeRef) -> Option<Arc<Entry>> {
        let coming = self.motion.as_ref()?.0.iter().flatten();
        let mut fitting = coming.filter(|(known, entry)| known[..] == *name && is_same(&entry.inode, inode));
        fitting.next().map(|(_, entry)| entry.clone())
    }

    /// Puts one in that there was room for.
    fn put(&mut self, name: &[u8], child: &Arc<Entry>) {
        self.put_at(hash_of(name), name, child);
    }

    #[inline]
    fn put_at(&mut self, hash: u64, name: &[u8], child: &Arc<Entry>) {
        self.by_name.make_sure_of_room();
        self.by_name.insert_at(hash, name, Arc::downgrade(child));
    }

    fn sweep(&mut self) {
        self.by_name.retain(|child| child.strong_count() > 0);
        self.sweep_count = self.by_name.len() * 2;
    }

    /// Takes a name out.
    fn take(&mut self, name: &[u8]) -> Option<Arc<Entry>> {
        self.removal_count += 1;
        self.by_name.remove(name).and_then(|child| child.upgrade())
    }
}

impl Drop for Entry {
    /// Lets go of the ancestors one by one, so that a deep path needs no deep stack.
    fn drop(&mut self) {
        if let Some(watches) = self.gone_watch.get().and_then(Weak::upgrade)
            && (self.inode.kind() == FileKind::Directory || self.inode.metadata().link_count == 0)
        {
            watches.tell_gone(&self.inode);
        }
        let mut parent = self.place.get_mut().parent.take();
        while let Some(mut entry) = parent.and_then(Arc::into_inner) {
            parent = entry.place.get_mut().parent.take();
        }
    }
}

/// An entry on a mount.
#[derive(Clone)]
pub struct Location {
    mount: Arc<Mount>,
    entry: Arc<Entry>,
}

impl PartialEq for Location {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mount, &other.mount) && Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl core::fmt::Debug for Location {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let path = self.path_to_top().unwrap_or_else(|path| path);
        write!(formatter, "Location({})", alloc::string::String::from_utf8_lossy(&path))
    }
}

impl Location {
    /// The root of a file system that is mounted nowhere yet (`covers` is `None`) or over a location.
    pub(super) fn of_new_mount(id: u32, description: MountDescription, root: InodeRef, covers: Option<Self>) -> Self {
        let entry = Entry::new(root, None, b"", false);
        let (is_sealed, has_mounts, recent) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::default());
        let mount = Arc::new(Mount { id, description, is_sealed, root: entry.clone(), covers, has_mounts, recent });
        if let Some(covered) = &mount.covers {
            covered.mount.has_mounts.store(true, Ordering::Release);
            *covered.entry.mounted_here.lock() = Some(mount.clone());
            covered.entry.is_covered.store(true, Ordering::Release);
        }
        Self { mount, entry }
    }

    /// A pseudo file whose path is `display_name`.
    pub(super) fn pseudo(mount: &Arc<Mount>, inode: InodeRef, display_name: &[u8]) -> Self {
        Self { mount: mount.clone(), entry: Entry::new(inode, None, display_name, false) }
    }

    /// A file without a name that was made in this directory.
    pub(super) fn unnamed_child(&self, inode: InodeRef) -> Self {
        let name = alloc::format!("#{}", inode.metadata().inode_number);
        let entry = Entry::new(inode, Some(self.entry.clone()), name.as_bytes(), true);
        Self { mount: self.mount.clone(), entry }
    }

    /// The inode.
    pub fn inode(&self) -> &InodeRef {
        &self.entry.inode
    }

    /// The entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        self.inode().kind() == FileKind::Directory
    }

    /// Whether the name is gone: `getcwd` says `ENOENT` then.
    pub fn is_deleted(&self) -> bool {
        self.entry.is_deleted()
    }

    /// Whether something is mounted on it, or it is the root of a mount: neither can be removed or renamed.
    #[inline]
    pub fn is_mount_point(&self) -> bool {
        self.entry.is_covered.load(Ordering::Acquire)
    }

    /// Whether this is the top of its mount.
    pub fn is_mount_root(&self) -> bool {
        Arc::ptr_eq(&self.entry, &self.mount.root)
    }

    /// Whether this is the top of a file system of a kind ([`MountDescription`]'s) in which nothing was ever mounted.
    pub fn is_plain_top_of(&self, kind: &str) -> bool {
        let mount = &self.mount;
        self.is_mount_root() && mount.description.kind == kind && !mount.has_mounts.load(Ordering::Acquire)
    }

    /// An entry on its mount.
    #[inline]
    pub(super) fn of_parts(mount: Arc<Mount>, entry: Arc<Entry>) -> Self {
        Self { mount, entry }
    }

    /// The same mount, another entry.
    pub(super) fn with_entry(&self, entry: Arc<Entry>) -> Self {
        Self { mount: self.mount.clone(), entry }
    }

    /// The named child, on top of what is mounted there.
    ///
    /// # Errors
    /// Those of [`super::vnode::Inode::lookup`], `ENAMETOOLONG`.
    pub(super) fn child(&self, name: &[u8]) -> Result<Self> {
        let below = Self { mount: self.mount.clone(), entry: self.entry.child(name)? };
        below.mount.remember(&below.entry);
        if below.is_mount_point() { Ok(below.top_mounted()) } else { Ok(below) }
    }

    /// Goes to the named child. What it is instead, if that is a link or on another mount: then this stays where it is.
    /// Most steps of a walk write nothing that other walks read.
    #[inline]
    pub(super) fn step(&mut self, name: &[u8]) -> Result<Option<Self>> {
        let entry = self.entry.child(name)?;
        self.mount.remember(&entry);
        if entry.is_covered.load(Ordering::Acquire) || entry.inode.kind() == FileKind::Symlink {
            return Ok(Some(self.with_entry(entry).top_mounted()));
        }
        self.entry = entry;
        Ok(None)
    }

    /// The entry of a name in this directory, for a caller that may search it, if that is all there is to a walk there:
    /// nothing is mounted over it, and links count only where `takes_links`. `None`: it takes a walk.
    ///
    /// # Errors
    /// `ENOENT`: no such name.
    #[inline]
    pub fn plain_child(&self, name: &[u8], takes_links: bool) -> Option<Result<Arc<Entry>>> {
        let is_plain = self.entry.is_steady && self.entry.inode.kind() == FileKind::Directory;
        if !is_plain || matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return None;
        }
        let child = match self.entry.child(name) {
            Ok(child) => child,
            Err(error) => return (error == Errno::ENOENT).then_some(Err(error)),
        };
        let is_link = child.inode.kind() == FileKind::Symlink;
        if child.is_covered.load(Ordering::Acquire) || (is_link && !takes_links) {
            return None;
        }
        self.mount.remember(&child);
        Some(Ok(child))
    }

    /// Through the mounts that cover this location.
    pub(super) fn top_mounted(self) -> Self {
        let mut here = self;
        while here.entry.is_covered.load(Ordering::Acquire) {
            let mounted = here.entry.mounted_here.lock().clone();
            match mounted {
                Some(mount) => here = Self { entry: mount.root.clone(), mount },
                None => break,
            }
        }
        here
    }

    /// The parent directory, never above `root`.
    pub(super) fn parent(&self, root: &Self) -> Self {
        let mut here = self.clone();
        loop {
            if here == *root {
                return here;
            }
            if let Some(parent) = here.entry.parent() {
                return Self { mount: here.mount, entry: parent }.top_mounted();
            }
            match here.mount.covers.clone() {
                Some(covered) => here = covered,
                None => return here,
            }
        }
    }

    /// Whether this is `root` or lies below it, on whatever mounts. Nobody may move names meanwhile.
    pub(super) fn is_under(&self, root: &Self) -> bool {
        let mut here = self.clone();
        while here != *root {
            let above = match here.entry.parent() {
                Some(entry) => Some(Self { mount: here.mount, entry }),
                None => here.mount.covers.clone(),
            };
            let Some(above) = above else { return false };
            here = above;
        }
        true
    }

    /// Whether this is `other` or lies below it, on the same mount.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let mut entry = Some(self.entry.clone());
        while let Some(here) = entry {
            if Arc::ptr_eq(&here, &other.entry) {
                return true;
            }
            entry = here.parent();
        }
        false
    }

    /// The names from the top of everything to here; `Err` holds a pseudo file's display name.
    fn path_to_top(&self) -> core::result::Result<Vec<u8>, Vec<u8>> {
        self.names_until(None).map(|(path, _)| path)
    }

    fn names_until(&self, root: Option<&Self>) -> core::result::Result<(Vec<u8>, bool), Vec<u8>> {
        // From its end on, so that no name has to be kept until the one before it is known.
        let mut path = BackwardPath { bytes: alloc::vec![0; PATH_BYTES_USUAL], start: PATH_BYTES_USUAL };
        let mut here = self.clone();
        let mut is_reached = true;
        while root != Some(&here) {
            let parent = {
                let place = here.entry.place.lock();
                if place.parent.is_some() {
                    path.put_before(&place.name);
                } else if here.mount.covers.is_none() && !place.name.is_empty() {
                    return Err(place.name.to_vec());
                }
                place.parent.clone()
            };
            if let Some(parent) = parent {
                here.entry = parent;
            } else if let Some(covered) = here.mount.covers.clone() {
                here = covered;
            } else {
                is_reached = root.is_none();
                break;
            }
        }
        Ok((path.into_path(), is_reached))
    }

    /// The path as seen from `root`, as `/proc/self/fd/N` and `getcwd` show it: ` (deleted)` behind a name
    /// that is gone, `(unreachable)` before a path that does not lie below `root`, a display name for
    /// pseudo files.
    pub fn path_from(&self, root: &Self) -> Vec<u8> {
        match self.names_until(Some(root)) {
            Ok((mut path, is_reached)) => {
                if !is_reached {
                    path = [b"(unreachable)".as_slice(), &path].concat();
                }
                if self.is_deleted() {
                    path.extend_from_slice(b" (deleted)");
                }
                path
            }
            Err(display_name) => display_name,
        }
    }
}

/// A path that is written from its end on.
struct BackwardPath {
    bytes: Vec<u8>,
    start: usize,
}

impl BackwardPath {
    fn put_before(&mut self, name: &[u8]) {
        let length = name.len() + 1;
        if self.start < length {
            let more = length + self.bytes.len();
            self.bytes.splice(0..0, core::iter::repeat_n(0, more));
            self.start += more;
        }
        self.start -= length;
        self.bytes[self.start] = b'/';
        self.bytes[self.start + 1..self.start + length].copy_from_slice(name);
    }

    fn into_path(mut self) -> Vec<u8> {
        if self.start == self.bytes.len() {
            return alloc::vec![b'/'];
        }
        self.bytes.drain(..self.start);
        self.bytes
    }
}

impl Mount {
    /// The top of the file system.
    pub fn root(&self) -> &Arc<Entry> {
        &self.root
    }

    /// Where it is mounted.
    pub fn covers(&self) -> Option<&Location> {
        self.covers.as_ref()
    }

    /// Restrictions of the mount.
    pub fn flags(&self) -> MountFlags {
        let sealed = if self.is_sealed.load(Ordering::Relaxed) { MountFlags::READ_ONLY } else { MountFlags::empty() };
        self.description.flags | sealed
    }

    /// Fails if nothing may change here.
    ///
    /// # Errors
    /// `EROFS`.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.flags().contains(MountFlags::READ_ONLY) { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Keeps an entry for the next walk.
    #[inline]
    pub(super) fn remember(&self, entry: &Arc<Entry>) {
        if !entry.is_recent.load(Ordering::Relaxed) {
            self.keep(entry);
        }
    }

    fn keep(&self, entry: &Arc<Entry>) {
        if entry.is_volatile() || entry.is_passing() {
            return;
        }
        let before = {
            let mut recent = self.recent.lock();
            // A removal of a name says so before it comes here to let go of its entry.
            if entry.is_deleted() {
                return;
            }
            let before = recent.put(entry);
            if let Some(before) = &before {
                before.is_recent.store(false, Ordering::Relaxed);
            }
            entry.is_recent.store(true, Ordering::Relaxed);
            before
        };
        // Maybe the last of its kind: it goes without the lock.
        drop(before);
    }

    /// Does not keep an entry any more.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        let before = {
            let mut recent = self.recent.lock();
            entry.is_recent.store(false, Ordering::Relaxed);
            recent.take(entry)
        };
        drop(before);
    }

    /// Takes it off what it covers.
    pub(super) fn uncover(&self) {
        if let Some(covered) = &self.covers {
            covered.entry.is_covered.store(false, Ordering::Release);
            let gone = covered.entry.mounted_here.lock().take();
            drop(gone);
        }
    }
}

#[cfg(test)]
#[path = "location_tests.rs"]
mod tests;
