//! FIFOs, sockets' names and device nodes that a server cannot make: they are in the pod's memory, in a directory of
//! the server's, for as long as the pod runs.
//!
//! A server that is not privileged may make no device; QEMU's of Debian 12 (7.2.22) makes FIFOs and sockets and removes
//! them again. All that such a name is for happens within the pod in any case: a FIFO or a socket connects programs of
//! the pod, and a device is the pod's. Such a node has one name, and `link` gives it no other (`EXDEV`).
//!
//! Limit: [`SPECIAL_COUNT_MAX`] nodes.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::memory_fs::{Identity, Limits, MemoryFs, MemoryNode};
use super::super::metadata::Timestamp;
use super::super::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, NewNode};
use crate::error::{Errno, Result};
use crate::mem::frames::FramePool;
use crate::sync::Mutex;

/// Most nodes.
const SPECIAL_COUNT_MAX: u64 = 4096;
/// Cookies of these entries, behind all of the server's.
pub(super) const SPECIAL_COOKIE_FIRST: u64 = 1 << 39;

struct Special {
    inode: InodeRef,
    cookie: u64,
}

#[derive(Default)]
struct Known {
    /// By the directory's number, and the name.
    directories: BTreeMap<u64, BTreeMap<Vec<u8>, Special>>,
    /// The directory in memory in which the nodes are, each named by its cookie.
    store: Option<Arc<MemoryNode>>,
    made_count: u64,
}

/// All such nodes of a file system.
#[derive(Default)]
pub(super) struct Specials {
    known: Mutex<Known>,
}

/// A node's name in the store.
fn hidden(cookie: u64) -> [u8; 16] {
    core::array::from_fn(|digit| b"0123456789abcdef"[(cookie >> (4 * digit)) as usize & 15])
}

impl Specials {
    pub(super) fn get(&self, directory: u64, name: &[u8]) -> Option<InodeRef> {
        let known = self.known.lock();
        known.directories.get(&directory)?.get(name).map(|special| special.inode.clone())
    }

    /// Whether a directory has any.
    pub(super) fn has_any(&self, directory: u64) -> bool {
        self.known.lock().directories.contains_key(&directory)
    }

    /// Makes one in a store of this identity, whose inode numbers begin at `first_number`; the caller has found that
    /// the name is not there, and is the only one who makes names.
    pub(super) fn make(
        &self,
        (pool, identity, first_number): (&Arc<FramePool>, Identity, u64),
        (directory, name): (u64, &[u8]),
        node: NewNode<'_>,
        creation: Creation,
    ) -> Result<InodeRef> {
        let (store, cookie) = {
            let mut known = self.known.lock();
            if known.store.is_none() {
                let limits = Limits { bytes_max: 0, inode_count_max: SPECIAL_COUNT_MAX };
                let store = MemoryFs::create_numbered(pool.clone(), identity, limits, creation, first_number)?;
                known.store = Some(store);
            }
            known.made_count += 1;
            (known.store.clone().ok_or(Errno::ENOSPC)?, SPECIAL_COOKIE_FIRST + known.made_count)
        };
        let inode = store.create(&hidden(cookie), node, creation)?;
        let special = Special { inode: inode.clone(), cookie };
        self.known.lock().directories.entry(directory).or_default().insert(name.to_vec(), special);
        Ok(inode)
    }

    /// Takes a name away; whether there was one.
    pub(super) fn remove(&self, directory: u64, name: &[u8], now: Timestamp) -> bool {
        let (taken, store) = {
            let mut known = self.known.lock();
            (known.take(directory, name), known.store.clone())
        };
        let Some(taken) = taken else { return false };
        if let Some(store) = store {
            // It is there.
            let _ = store.unlink(&hidden(taken.cookie), now);
        }
        true
    }

    /// Gives a node another name; the one that was there is gone.
    pub(super) fn rename(&self, old: (u64, &[u8]), new: (u64, &[u8]), now: Timestamp) {
        if old == new {
            return;
        }
        self.remove(new.0, new.1, now);
        let mut known = self.known.lock();
        if let Some(special) = known.take(old.0, old.1) {
            known.directories.entry(new.0).or_default().insert(new.1.to_vec(), special);
        }
    }

    /// Lists those of a directory behind a cookie; the position that was reached.
    pub(super) fn list(&self, directory: u64, cookie: u64, consumer: &mut EntryConsumer<'_>) -> u64 {
        let mut entries: Vec<(u64, Vec<u8>, InodeRef)> = {
            let known = self.known.lock();
            let specials = known.directories.get(&directory).into_iter().flatten();
            let behind = specials.filter(|(_, special)| special.cookie > cookie);
            behind.map(|(name, special)| (special.cookie, name.clone(), special.inode.clone())).collect()
        };
        entries.sort_unstable_by_key(|(cookie, ..)| *cookie);
        let mut position = cookie;
        for (next_cookie, name, inode) in &entries {
            let (inode_number, kind) = (inode.inode_number(), inode.kind());
            if !consumer(DirectoryEntry { name, inode_number, kind, next_cookie: *next_cookie }) {
                break;
            }
            position = *next_cookie;
        }
        position
    }
}

impl Known {
    fn take(&mut self, directory: u64, name: &[u8]) -> Option<Special> {
        let names = self.directories.get_mut(&directory)?;
        let taken = names.remove(name);
        if names.is_empty() {
            self.directories.remove(&directory);
        }
        taken
    }
}
