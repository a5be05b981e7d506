//! What makes files durable, and hints about how they are read.

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::metadata::FileKind;

use super::file_transfer::readable;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    fsync(Descriptor);
    fdatasync(Descriptor) = fsync;
    syncfs;
    sync;
    sync_file_range;
    fadvise64(Descriptor, Long, Size, Int);
    readahead;
}

/// `fsync(2)` and its kin: of host directories; elsewhere nothing is behind memory.
pub fn fsync(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    sync_description(&*context.process.files.get(descriptor)?)
}

/// The same for a description.
pub(super) fn sync_description(description: &Description) -> Result<u64> {
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    match description.inode().kind() {
        FileKind::Regular if description.has_driver() => Err(Errno::EINVAL),
        FileKind::Regular | FileKind::Directory => description.inode().sync().map(|()| 0),
        FileKind::BlockDevice => description.sync_file().map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sync_file_range(2)`: all of it, if any of it.
pub fn sync_file_range(context: &mut Context<'_>, [descriptor, offset, length, flags, ..]: Arguments) -> Result<u64> {
    const FLAGS: u64 = 7;
    let description = context.process.files.get(descriptor)?;
    let end = (offset as i64).checked_add(length as i64);
    let is_range = offset as i64 >= 0 && end.is_some_and(|end| end >= offset as i64);
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    if u64::from(flags as u32) & !FLAGS != 0 || !is_range {
        return Err(Errno::EINVAL);
    }
    match description.inode().kind() {
        FileKind::Regular | FileKind::Directory => description.inode().sync().map(|()| 0),
        FileKind::BlockDevice => description.sync_file().map(|()| 0),
        _ => Err(Errno::ESPIPE),
    }
}

/// `syncfs(2)`.
pub fn syncfs(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    description.inode().sync_file_system().map(|()| 0)
}

/// `sync(2)`, which has no way to tell that it failed.
pub fn sync(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    let _ = context.system.files.namespace.sync();
    let _ = context.system.files.disks.sync();
    Ok(0)
}

/// `fadvise64(2)`: checked; everything is in memory already.
pub fn fadvise64(context: &mut Context<'_>, [descriptor, _, length, advice, ..]: Arguments) -> Result<u64> {
    fadvise(&*context.process.files.get(descriptor)?, length, advice)
}

/// The same of a description.
pub(super) fn fadvise(description: &Description, length: u64, advice: u64) -> Result<u64> {
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    if description.inode().kind() == FileKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    if advice > 5 || length as i64 <= -1 {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `readahead(2)`.
pub fn readahead(context: &mut Context<'_>, [descriptor, ..]: Arguments) -> Result<u64> {
    let description = readable(context, descriptor)?;
    if description.inode().kind() == FileKind::Regular { Ok(0) } else { Err(Errno::EINVAL) }
}
