//! A writable layer in memory over a read-only root.
//!
//! Linux's overlayfs joins two directory trees by path, and pays for it with whole-file copies, broken hard
//! links, `EXDEV` on renamed directories and inode numbers that change. Here both halves are ours, so the
//! upper half is made of nodes that *began as* an inode of the root ([`super::memory_fs`] with a base):
//!
//! - A file shows the root's pages until a page is written; only that page is copied. Read-only mappings
//!   use the image's frames.
//! - A node has the root's inode number for all its life and the overlay's device number; hard links of the
//!   root stay hard links.
//! - A directory shows the root's names, hidden by its own names and by whiteouts. A new directory has no
//!   base, so it is opaque.
//! - Renaming moves the node, with whatever base it has, so directories of the root move like any others.
//! - A node that was changed is kept for as long as it has names (`from_base`); one that was not can be
//!   made again at any time.
//!
//! Invariant: the base is immutable (or is taken as such, [`super::ninep`]), numbers its inodes below what
//! [`over`] or [`over_live`] says, and its directory cookies below 2^48. A mapping of a page of the base that
//! was made before the page's first write goes on to show the base, as on overlayfs.

use alloc::sync::Arc;

use super::memory_fs::{Identity, Limits, MemoryFs, MemoryNode};
use super::metadata::FileKind;
use super::vnode::InodeRef;
use crate::error::{Errno, Result};
use crate::mem::frames::FramePool;

/// What `statfs` calls an overlay (Linux `magic.h`).
pub const OVERLAY_MAGIC: u64 = 0x794c_7630;

/// Numbers of inodes over an image that are not in it: above those of any image of up to 128 GiB.
const FIRST_INODE_NUMBER: u64 = 1 << 32;

/// The writable root directory over `base`, an image. `limits` count what is changed.
///
/// # Errors
/// `ENOTDIR` if `base` is not a directory. `ENOMEM`.
pub fn over(pool: Arc<FramePool>, identity: Identity, limits: Limits, base: &InodeRef) -> Result<Arc<MemoryNode>> {
    if base.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    MemoryFs::over(pool, identity, limits, base, FIRST_INODE_NUMBER)
}

/// As [`over`], for a directory of the host that is taken as unchanging.
///
/// # Errors
/// `ENOTDIR` if `base` is not a directory. `ENOMEM`.
pub fn over_live(pool: Arc<FramePool>, identity: Identity, limits: Limits, base: &InodeRef) -> Result<Arc<MemoryNode>> {
    if base.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    MemoryFs::over(pool, identity, limits, base, super::ninep::INODE_NUMBER_END)
}
