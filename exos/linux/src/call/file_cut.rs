//! What becomes of mappings when a file gets shorter or a hole: pages that are not the file's any more leave every
//! address space, so that the next touch finds the file as it is (`SIGBUS` behind its end, zeros in a hole).
//!
//! Called after the file has changed: a fault that comes in between, under the lock of its address space, either saw
//! the file before, and then its page is taken here, or sees it as it is now.

use alloc::sync::Arc;
use core::ops::Range;

use exos::fs::file_users::FileUsers;
use exos::fs::vnode::InodeRef;
use exos::mem::source::FileIdentity;

use crate::task::system::System;

const PAGE_BYTES: u64 = 4096;

/// The file ends at `size_bytes` now.
pub(super) fn cut(system: &Arc<System>, inode: &InodeRef, size_bytes: u64) {
    drop_pages(system, inode, &(size_bytes.div_ceil(PAGE_BYTES)..u64::MAX), false);
}

/// The file has a hole of so many bytes.
pub(super) fn punch(system: &Arc<System>, inode: &InodeRef, offset: u64, length: u64) {
    let end = offset.saturating_add(length).div_ceil(PAGE_BYTES);
    drop_pages(system, inode, &(offset / PAGE_BYTES..end), true);
}

fn drop_pages(system: &Arc<System>, inode: &InodeRef, indices: &Range<u64>, keeps_copies: bool) {
    if !inode.users().is_some_and(FileUsers::is_mapped) {
        return;
    }
    let metadata = inode.metadata();
    let file = FileIdentity { device: metadata.device.encoded(), inode: metadata.inode_number };
    drop_from_all(system, file, indices, keeps_copies);
}

/// Takes pages of a file out of every address space.
pub(super) fn drop_from_all(system: &Arc<System>, file: FileIdentity, indices: &Range<u64>, keeps_copies: bool) {
    for process in system.processes.all() {
        process.space().lock().drop_file_pages(file, indices, keeps_copies);
    }
}
