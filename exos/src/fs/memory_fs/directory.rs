//! The names of a directory: its own entries over the base's.
//!
//! An own entry hides the base's entry of that name; a whiteout hides it without a replacement. Cookies of
//! own entries count up and are never used again, and lie above all cookies of a base, so a listing that is
//! continued after any change neither repeats nor misses an entry that was there all the time.
//!
//! A name is found by its hash, and the listing has its order: neither costs more where there are many names.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::super::name_table::NameTable;
use super::super::vnode::{DirectoryEntry, EntryConsumer, InodeRef};
use super::MemoryNode;
use crate::error::{Errno, Result};

/// Cookies up to here belong to the base.
pub(super) const BASE_COOKIE_MAX: u64 = 1 << 48;

/// Names of a directory.
pub(super) struct Names {
    entries: NameTable<Own>,
    order: BTreeMap<u64, (Arc<[u8]>, Arc<MemoryNode>)>,
    whiteouts: BTreeSet<Arc<[u8]>>,
    next_cookie: u64,
    /// The directory was removed: nothing can be created in it.
    pub(super) is_removed: bool,
}

struct Own {
    cookie: u64,
    node: Arc<MemoryNode>,
}

/// Cookie, name and node of an own entry.
type Listed = (u64, Arc<[u8]>, Arc<MemoryNode>);

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
            order: BTreeMap::new(),
            whiteouts: BTreeSet::new(),
            next_cookie: BASE_COOKIE_MAX + 1,
            is_removed: false,
        }
    }

    /// The nodes of all own entries, which are forgotten.
    pub(super) fn take_nodes(&mut self) -> Vec<Arc<MemoryNode>> {
        self.entries = NameTable::default();
        core::mem::take(&mut self.order).into_values().map(|(_, node)| node).collect()
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

    /// Whether the base's entry of that name is out of sight.
    pub(super) fn hides(&self, name: &[u8]) -> bool {
        self.entries.get(name).is_some() || self.has_whiteout(name)
    }

    fn has_whiteout(&self, name: &[u8]) -> bool {
        !self.whiteouts.is_empty() && self.whiteouts.contains(name)
    }

    /// Sees to it that so many more names have a place.
    ///
    /// # Errors
    /// `ENOSPC`: there is no memory for it.
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        self.entries.make_room(more).map_err(|_| Errno::ENOSPC)
    }

    /// Leads `name` to `node`; what it led to before is returned. There must be room.
    pub(super) fn insert(&mut self, name: &[u8], node: Arc<MemoryNode>) -> Option<Arc<MemoryNode>> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.whiteouts.remove(name);
        self.order.insert(cookie, (name.into(), node.clone()));
        let before = self.entries.insert(name, Own { cookie, node })?;
        self.order.remove(&before.cookie);
        Some(before.node)
    }

    /// Takes `name` out; `base_has_it` says whether the base's entry must be hidden from now on. The node
    /// is returned so that it is dropped without the lock.
    pub(super) fn remove(&mut self, name: &[u8], base_has_it: bool) -> Option<Arc<MemoryNode>> {
        if base_has_it {
            self.whiteouts.insert(name.into());
        }
        let own = self.entries.remove(name)?;
        self.order.remove(&own.cookie);
        Some(own.node)
    }

    /// Up to `out`'s capacity own entries behind `cookie`.
    fn batch_behind(&self, cookie: u64, out: &mut Vec<Listed>) {
        out.clear();
        let behind = self.order.range((Bound::Excluded(cookie), Bound::Unbounded));
        let listed = behind.map(|(cookie, (name, node))| (*cookie, name.clone(), node.clone()));
        out.extend(listed.take(out.capacity()));
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
    let mut batch = Vec::with_capacity(32);
    let mut behind = position.max(BASE_COOKIE_MAX);
    loop {
        directory.with_names(|names| names.batch_behind(behind, &mut batch))?;
        if batch.is_empty() {
            return Ok(position);
        }
        for (cookie, name, node) in batch.drain(..) {
            let accepted = consumer(DirectoryEntry {
                name: &name,
                inode_number: node.inode_number(),
                kind: node.file_kind(),
                next_cookie: cookie,
            });
            if !accepted {
                return Ok(position);
            }
            position = cookie;
            behind = cookie;
        }
    }
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
