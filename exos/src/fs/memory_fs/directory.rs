//! The names of a directory: its own entries over the base's.
//!
//! An own entry hides the base's entry of that name; a whiteout hides it without a replacement. Cookies of
//! own entries count up and are never used again, and lie above all cookies of a base, so a listing that is
//! continued after any change neither repeats nor misses an entry that was there all the time.
//!
//! A name is found by its hash, and the listing has its order: neither costs more where there are many names. The order
//! is a queue of cookies, each with the hash by which its name is found. A name that goes leaves its place in the queue
//! behind unless it is at an end of it; places without a name are passed over, and swept out before they are a third of
//! all ([`Names::note_hole`]).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::metadata::FileKind;
use super::super::name::Name;
use super::super::name_table::{NameTable, hash_of};
use super::super::vnode::{DirectoryEntry, EntryConsumer, InodeRef};
use super::MemoryNode;
use crate::error::{Errno, Result};
use crate::reserve;

/// Cookies up to here belong to the base.
pub(super) const BASE_COOKIE_MAX: u64 = 1 << 48;

/// Names of a directory.
pub(super) struct Names {
    entries: NameTable<Own>,
    /// In ascending order of cookies.
    order: VecDeque<Place>,
    /// Places of `order` whose name is gone.
    hole_count: usize,
    whiteouts: BTreeSet<Name>,
    next_cookie: u64,
    /// The directory was removed: nothing can be created in it.
    pub(super) is_removed: bool,
}

struct Own {
    cookie: u64,
    node: Arc<MemoryNode>,
}

/// The place of an own entry in a listing.
struct Place {
    cookie: u64,
    hash: u64,
}

/// Fewest places without a name that are swept out.
const HOLE_COUNT_MIN: usize = 16;

/// Own entries that are listed under one lock.
const BATCH_COUNT: usize = 32;

/// Cookie, name, number and kind of an own entry.
type Listed = (u64, Name, u64, FileKind);

/// What a directory itself knows of a name.
pub(super) enum Known {
    Own(Arc<MemoryNode>),
    Whiteout,
    /// Ask the base.
    Nothing,
}

impl Names {
    pub(super) fn new() -> Self {
        Self {
            entries: NameTable::default(),
            order: VecDeque::new(),
            hole_count: 0,
            whiteouts: BTreeSet::new(),
            next_cookie: BASE_COOKIE_MAX + 1,
            is_removed: false,
        }
    }

    /// The nodes of all own entries, which are forgotten.
    pub(super) fn take_nodes(&mut self) -> Vec<Arc<MemoryNode>> {
        self.order = VecDeque::new();
        self.hole_count = 0;
        self.entries.take_values().map(|own| own.node).collect()
    }

    pub(super) fn own_count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, name: &[u8]) -> Known {
        match self.entries.get(name) {
            Some(own) => Known::Own(own.node.clone()),
            None if self.has_whiteout(name) => Known::Whiteout,
            None => Known::Nothing,
        }
    }

    /// Whether there is an own entry of that name.
    pub(super) fn has_own(&self, name: &[u8]) -> bool {
        self.entries.get(name).is_some()
    }

    /// Whether the base's entry of that name is out of sight.
    pub(super) fn hides(&self, name: &[u8]) -> bool {
        self.has_own(name) || self.has_whiteout(name)
    }

    /// Whether the base's entries are all that there is.
    fn is_untouched(&self) -> bool {
        self.entries.len() == 0 && self.whiteouts.is_empty()
    }

    fn has_whiteout(&self, name: &[u8]) -> bool {
        !self.whiteouts.is_empty() && self.whiteouts.contains(name)
    }

    /// Sees to it that so many more names have a place.
    ///
    /// # Errors
    /// `ENOSPC`: there is no memory for it.
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        let is_made = self.entries.make_room(more).and_then(|()| reserve::reserve_queue(&mut self.order, more));
        is_made.map_err(|_| Errno::ENOSPC)
    }

    /// Leads `name` to `node`; what it led to before is returned. There must be room.
    pub(super) fn insert(&mut self, name: &[u8], node: Arc<MemoryNode>) -> Option<Arc<MemoryNode>> {
        let (cookie, hash) = (self.next_cookie, hash_of(name));
        self.next_cookie += 1;
        if !self.whiteouts.is_empty() {
            self.whiteouts.remove(name);
        }
        self.order.push_back(Place { cookie, hash });
        let before = self.entries.insert_at(hash, name, Own { cookie, node })?;
        self.note_hole(before.cookie);
        Some(before.node)
    }

    /// The name at a place of the order, if it is still there.
    fn at(&self, place: &Place) -> Option<(&Name, &Own)> {
        self.entries.find_by(place.hash, |own| own.cookie == place.cookie)
    }

    /// Notes that the name with this cookie is gone. The calls that made and removed names have paid for its place.
    fn note_hole(&mut self, cookie: u64) {
        if self.order.back().is_some_and(|last| last.cookie == cookie) {
            self.order.pop_back();
        } else if self.order.front().is_some_and(|first| first.cookie == cookie) {
            self.order.pop_front();
        } else {
            self.hole_count += 1;
            if self.hole_count >= HOLE_COUNT_MIN.max(self.order.len() / 3) {
                self.sweep();
            }
        }
    }

    #[cold]
    fn sweep(&mut self) {
        let entries = &self.entries;
        self.order.retain(|place| entries.find_by(place.hash, |own| own.cookie == place.cookie).is_some());
        self.hole_count = 0;
    }

    /// Takes out `name`, which leads to something of the own that is not a directory, as [`Self::remove`] does.
    ///
    /// # Errors
    /// `ENOENT`. `EISDIR`.
    pub(super) fn remove_file(&mut self, name: &[u8]) -> Result<Arc<MemoryNode>> {
        let mut is_directory = false;
        let own = self.entries.remove_if(name, |own| {
            is_directory = own.node.file_kind() == FileKind::Directory;
            !is_directory
        });
        let own = own.ok_or(if is_directory { Errno::EISDIR } else { Errno::ENOENT })?;
        self.note_hole(own.cookie);
        Ok(own.node)
    }

    /// Takes `name` out; `base_has_it` says whether the base's entry must be hidden from now on. The node
    /// is returned so that it is dropped without the lock.
    pub(super) fn remove(&mut self, name: &[u8], base_has_it: bool) -> Option<Arc<MemoryNode>> {
        if base_has_it {
            self.whiteouts.insert(name.into());
        }
        let own = self.entries.remove(name)?;
        self.note_hole(own.cookie);
        Some(own.node)
    }

    /// Up to [`BATCH_COUNT`] own entries behind `cookie`.
    fn batch_behind(&self, cookie: u64, out: &mut Vec<Listed>) {
        out.clear();
        if self.order.is_empty() {
            return;
        }
        out.reserve(BATCH_COUNT);
        let begin = self.order.partition_point(|place| place.cookie <= cookie);
        for (name, own) in self.order.range(begin..).filter_map(|place| self.at(place)) {
            if out.len() == BATCH_COUNT {
                break;
            }
            out.push((own.cookie, name.clone(), own.node.inode_number, own.node.file_kind()));
        }
    }
}

/// Lists a directory: the visible entries of the base, then the own ones. No lock is held while `consumer`
/// runs.
pub(super) fn list(
    directory: &MemoryNode,
    base: Option<&InodeRef>,
    cookie: u64,
    consumer: &mut EntryConsumer<'_>,
) -> Result<u64> {
    let mut position = cookie;
    if let Some(base) = base.filter(|_| cookie < BASE_COOKIE_MAX) {
        if directory.with_names(|names| names.is_untouched())? {
            // The base's entries are all. A name that comes or is hidden meanwhile counts from the next call on, which
            // there is: a listing goes on until nothing is left.
            return base.read_directory(cookie, consumer);
        }
        let mut is_full = false;
        let reached = base.read_directory(cookie, &mut |entry| {
            let is_hidden = directory.with_names(|names| names.hides(entry.name)).unwrap_or(true);
            if is_hidden {
                return true;
            }
            is_full = !consumer(entry);
            !is_full
        })?;
        if is_full {
            return Ok(reached);
        }
        position = reached;
    }
    let mut batch = Vec::new();
    let mut behind = position.max(BASE_COOKIE_MAX);
    loop {
        directory.with_names(|names| names.batch_behind(behind, &mut batch))?;
        if batch.is_empty() {
            return Ok(position);
        }
        for &(cookie, ref name, inode_number, kind) in &batch {
            let accepted = consumer(DirectoryEntry { name, inode_number, kind, next_cookie: cookie });
            if !accepted {
                return Ok(position);
            }
            position = cookie;
            behind = cookie;
        }
    }
}

/// Whether surely no entry follows `cookie`: the base's entries are all, and are over.
pub(super) fn ends_at(directory: &MemoryNode, base: Option<&InodeRef>, cookie: u64) -> bool {
    base.is_some_and(|base| cookie < BASE_COOKIE_MAX && base.ends_at(cookie))
        && directory.with_names(|names| names.is_untouched()).unwrap_or(false)
}

/// Whether nothing is visible in a directory.
pub(super) fn is_empty(directory: &MemoryNode, base: Option<&InodeRef>) -> Result<bool> {
    let mut has_entry = false;
    list(directory, base, 0, &mut |_| {
        has_entry = true;
        false
    })?;
    Ok(!has_entry)
}

/// Whether the base has an entry of that name.
pub(super) fn base_has(base: Option<&InodeRef>, name: &[u8]) -> Result<bool> {
    match base.filter(|base| !base.is_always_empty()).map(|base| base.lookup(name)) {
        None | Some(Err(Errno::ENOENT)) => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) => Err(error),
    }
}
