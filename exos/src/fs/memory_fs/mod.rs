//! The in-memory file system (tmpfs), also the writable half of [`super::overlay`].
//!
//! A [`MemoryNode`] is an inode. Directories own their children through `Arc`s, so a file without a name
//! lives as long as somebody has it open, and its pages go when it goes. Pages are frames of the pod
//! ([`FramePool`]), so they can be mapped shared.
//!
//! A node may have a *base*: an inode of an immutable file system that it began as. Then it shows the
//! base's contents page by page, and the base's names entry by entry, until it is changed; see
//! [`super::overlay`] for why. A plain tmpfs is the same code without a base.
//!
//! Locks: `MemoryFs::tree` serialises everything that changes names; a node's own lock protects its state.
//! A thread holds at most one node's lock, and takes `tree` before it. Neither is held while a program's
//! memory is copied (INV-F1).
//!
//! Limits: bytes in pages and inodes per file system, as given; beyond them `ENOSPC`. So that a program that fills
//! its files learns of it and lives, writes leave a sixteenth of the pod's frames to memory; mappings do not. Where the
//! pod can have more frames than it has, a write waits for them before it says `ENOSPC`.

mod attributes;
mod content;
mod directory;
mod guards;
mod names;
mod node;
mod page_map;
mod writing;

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

pub use node::MemoryNode;

use super::metadata::{DeviceNumber, FileSystemStatistics};
use super::name_table::{NameTable, hash_of};
use super::page::PAGE_BYTES;
use super::spare::SpareBuffer;
use super::vnode::{Creation, InodeRef, NewNode};
use crate::error::{Errno, Result};
use crate::mem::frames::FramePool;
use crate::reserve;
use crate::sync::Mutex;

/// How much a file system may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in pages of files; never more than the pod may have.
    pub bytes_max: u64,
    /// Inodes (those of the base do not count).
    pub inode_count_max: u64,
}

/// What is fixed about a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `st_dev`.
    pub device: DeviceNumber,
    /// What `statfs` calls it.
    pub magic: u64,
}

/// tmpfs's magic number (Linux `magic.h`).
pub const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Frames that a cache is asked for when files are about to take what is reserved for programs.
const RECLAIM_FRAMES: u64 = 64;
/// Of what the pool may hold one part in so many is for programs alone.
const RESERVE_SHARE: u64 = 16;
/// Of the room that was found one part in so many is given without another look, and the most: others take from it too.
const PROMISED_SHARE: u64 = 4;
const PROMISED_PAGES_MAX: u64 = 256;

/// A file system in memory; reached through its nodes.
pub struct MemoryFs {
    pool: Arc<FramePool>,
    identity: Identity,
    limits: Limits,
    page_count: AtomicU64,
    /// Pages that may be written before memory is looked at again.
    promised_page_count: AtomicU64,
    inode_count: AtomicU64,
    next_inode_number: AtomicU64,
    tree: Mutex<()>,
    /// Nodes that began as an inode of the base, by its number there, whose bytes are its name.
    from_base: Mutex<NameTable<FromBase>>,
    /// The root of what it shows with changes, if it does.
    base: Option<InodeRef>,
    /// What writes pass through.
    spare: SpareBuffer,
}

/// A node over the base. Unchanged, it can be made again, so it is held weakly; changed, it is the only
/// record of the change.
#[derive(Default)]
struct FromBase {
    node: Weak<MemoryNode>,
    changed: Option<Arc<MemoryNode>>,
}

impl MemoryFs {
    /// An empty file system; returns its root directory.
    ///
    /// # Errors
    /// `ENOSPC` if not even the root may exist.
    pub fn create(pool: Arc<FramePool>, identity: Identity, limits: Limits, root: Creation) -> Result<Arc<MemoryNode>> {
        Self::create_numbered(pool, identity, limits, root, 1)
    }

    /// The same, with inode numbers from `first_inode_number` on.
    pub(super) fn create_numbered(
        pool: Arc<FramePool>,
        identity: Identity,
        limits: Limits,
        root: Creation,
        first_inode_number: u64,
    ) -> Result<Arc<MemoryNode>> {
        let own = Self::with_numbers_from(pool, identity, limits, first_inode_number, None);
        let node = own.new_node(&NewNode::Directory, root)?;
        Ok(node)
    }

    /// A file system that shows `base`, a directory whose inodes have numbers below `first_inode_number`, and keeps the
    /// changes; see [`super::overlay`].
    pub(super) fn over(
        pool: Arc<FramePool>,
        identity: Identity,
        limits: Limits,
        base: &InodeRef,
        first_inode_number: u64,
    ) -> Result<Arc<MemoryNode>> {
        let own = Self::with_numbers_from(pool, identity, limits, first_inode_number, Some(base.clone()));
        own.node_over(base.clone())
    }

    fn with_numbers_from(
        pool: Arc<FramePool>,
        identity: Identity,
        limits: Limits,
        first_inode_number: u64,
        base: Option<InodeRef>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pool,
            identity,
            limits,
            page_count: AtomicU64::new(0),
            promised_page_count: AtomicU64::new(0),
            inode_count: AtomicU64::new(0),
            next_inode_number: AtomicU64::new(first_inode_number),
            tree: Mutex::new(()),
            from_base: Mutex::default(),
            base,
            spare: SpareBuffer::new(),
        })
    }

    /// A node without names.
    fn new_node(self: &Arc<Self>, what: &NewNode<'_>, creation: Creation) -> Result<Arc<MemoryNode>> {
        take(&self.inode_count, self.limits.inode_count_max)?;
        let number = self.next_inode_number.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(MemoryNode::new(self.clone(), number, what, creation)))
    }

    /// The node that shows `base`: always the same one while it lives or has changes.
    ///
    /// # Errors
    /// `ENOMEM`: it cannot be found again.
    fn node_over(self: &Arc<Self>, base: InodeRef) -> Result<Arc<MemoryNode>> {
        let of_base = base.metadata();
        // Nearly always there is none yet, so it is made before the table is looked at, which then is looked at once.
        let fresh = Arc::new(MemoryNode::over(self.clone(), base, &of_base));
        let number = of_base.inode_number.to_le_bytes();
        let mut table = self.from_base.lock();
        table.make_room(1)?;
        let known = table.get_or_insert_at(hash_of(&number), &number);
        if let Some(node) = known.node.upgrade() {
            return Ok(node);
        }
        *known = FromBase { node: Arc::downgrade(&fresh), changed: None };
        drop(table);
        Ok(fresh)
    }

    /// Keeps a changed node over the base alive until it has no names any more.
    fn keep_changed(&self, base_number: u64) {
        let number = base_number.to_le_bytes();
        if let Some(known) = self.from_base.lock().get_mut_at(hash_of(&number), &number) {
            known.changed = known.node.upgrade();
        }
    }

    /// Lets go of a changed node over the base, which has no names any more.
    fn forget_changed(&self, base_number: u64) {
        self.forget_if(base_number, |known| known.changed.is_some());
    }

    /// Lets go of an unchanged node over the base, which has died. Not of another for the same inode: one that was made
    /// beside it and not needed dies too.
    fn forget_dead(&self, base_number: u64) {
        self.forget_if(base_number, |known| known.node.strong_count() == 0);
    }

    fn forget_if(&self, base_number: u64, is_over: impl FnOnce(&FromBase) -> bool) {
        let forgotten = self.from_base.lock().remove_if(&base_number.to_le_bytes(), is_over);
        drop(forgotten);
    }

    /// `ENOSPC` where another page written would leave programs less memory than what is reserved for them.
    fn check_reserve(&self) -> Result<()> {
        reserve::check().map_err(|_| Errno::ENOSPC)?;
        self.check_frames()
    }

    /// Whether a mapping may make one more page of a file, as a write may: where not, the program gets SIGBUS, as where
    /// a file system is full. A pod that may be given more memory asks for it as for a program's own.
    fn has_room_for_mapping(&self) -> bool {
        self.check_frames().is_ok() || self.pool.limit_at_most() > self.pool.limit_at_last()
    }

    fn check_frames(&self) -> Result<()> {
        if self
            .promised_page_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1))
            .is_ok()
        {
            return Ok(());
        }
        let room = || {
            let available = self.pool.frames_available_now();
            let reserve = self.pool.limit_at_last() / RESERVE_SHARE;
            // Near the end only what is there counts.
            let is_there = if available < 2 * reserve { self.pool.hold_free(available) } else { available };
            is_there.saturating_sub(reserve)
        };
        let mut left = room();
        if left == 0 && self.pool.reclaim(RECLAIM_FRAMES) > 0 {
            // A cache gives way to files.
            left = room();
        }
        let others = left.checked_sub(1).ok_or(Errno::ENOSPC)?;
        self.promised_page_count.store((others / PROMISED_SHARE).min(PROMISED_PAGES_MAX), Ordering::Relaxed);
        Ok(())
    }

    fn take_page(&self) -> Result<()> {
        take(&self.page_count, self.limits.bytes_max / PAGE_BYTES as u64)
    }

    /// What was to be written met `error`, of which nothing is left: whether there may be room now.
    fn awaits_room(&self, error: Errno) -> bool {
        let has_own_room = || self.page_count.load(Ordering::Relaxed) < self.limits.bytes_max / PAGE_BYTES as u64;
        error == Errno::ENOSPC && has_own_room() && self.pool.await_frames()
    }

    fn give_pages(&self, count: u64) {
        self.page_count.fetch_sub(count, Ordering::Relaxed);
    }

    /// Pages that files may ever have here.
    fn page_count_max(&self) -> u64 {
        (self.limits.bytes_max / PAGE_BYTES as u64).min(self.pool.limit_at_most())
    }

    /// What is taken of the base counts as taken here, so that the difference to what is free is what is there.
    /// (Linux's overlayfs tells of its upper half alone, which is a disk there and not memory.)
    fn statistics(&self) -> FileSystemStatistics {
        let page_count_max = self.page_count_max();
        let base_pages = self.base.as_ref().map_or(0, |base| {
            let base = base.statistics();
            let taken = base.block_count.saturating_sub(base.free_block_count);
            taken.saturating_mul(base.block_bytes) / PAGE_BYTES as u64
        });
        let taken = self.page_count.load(Ordering::Relaxed);
        let inodes_taken = self.inode_count.load(Ordering::Relaxed);
        FileSystemStatistics {
            magic: self.identity.magic,
            block_bytes: PAGE_BYTES as u64,
            block_count: page_count_max.saturating_add(base_pages),
            free_block_count: page_count_max.saturating_sub(taken),
            inode_count: self.limits.inode_count_max,
            free_inode_count: self.limits.inode_count_max.saturating_sub(inodes_taken),
        }
    }
}

/// Counts one more, up to `max`.
fn take(counter: &AtomicU64, max: u64) -> Result<()> {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < max).then_some(count + 1))
        .map(|_| ())
        .map_err(|_| Errno::ENOSPC)
}

/// Makes directories and nodes at a path below `root`, for the trees that a pod starts with (`/dev`,
/// `/tmp`). What exists is left.
///
/// # Errors
/// Those of [`super::vnode::Inode::create`] and [`super::vnode::Inode::lookup`].
pub fn ensure_node(root: &InodeRef, path: &[u8], node: NewNode<'_>, creation: Creation) -> Result<InodeRef> {
    let mut here = root.clone();
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        here = match here.lookup(name) {
            Ok(found) => found,
            Err(Errno::ENOENT) if names.peek().is_none() => here.create(name, node, creation)?,
            Err(Errno::ENOENT) => {
                let permissions = 0o755;
                here.create(name, NewNode::Directory, Creation { permissions, ..creation })?
            }
            Err(error) => return Err(error),
        };
    }
    Ok(here)
}

#[cfg(test)]
mod tests;
