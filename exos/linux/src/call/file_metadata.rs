//! What is known about files, and changing it: `stat` and its kin, permissions, owners, times.

use exos::error::{Errno, Result};
use exos::fs::location::Location;
use exos::fs::metadata::Timestamp;
use exos::fs::namespace::{OwnerChange, TimeChange, TimesChange};
use exos::fs::permission::AccessMask;

use crate::abi::bytes::get;
use crate::abi::file as abi;
use crate::abi::linux::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, STATX__RESERVED,
    UTIME_NOW, UTIME_OMIT,
};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, find_at};

entries! {
    stat(Path, StatOut);
    lstat(Path, StatOut);
    fstat(Descriptor, StatOut);
    newfstatat(At, Path, StatOut, Set(AT_FLAGS));
    statx(At, Path, Set(AT_FLAGS), Set(STATX_MASK), Pointer);
    statfs(Path, Pointer);
    fstatfs(Descriptor, Pointer);
    access(Path, Set(ACCESSES));
    faccessat(At, Path, Set(ACCESSES));
    faccessat2(At, Path, Set(ACCESSES), Set(AT_FLAGS));
    utime;
    utimes;
    futimesat;
    utimensat(At, Path, Pointer, Set(AT_FLAGS));
    chmod(Path, Mode);
    fchmod(Descriptor, Mode);
    fchmodat(At, Path, Mode);
    fchmodat2;
    chown(Path, Int, Int);
    lchown(Path, Int, Int);
    fchown(Descriptor, Int, Int);
    fchownat(At, Path, Int, Int, Set(AT_FLAGS));
    umask(Mode) -> Mode;
}

const HERE: u64 = AT_FDCWD as u64;

/// Finds what a path from the working directory leads to.
pub(super) fn find(context: &Context<'_>, path: u64, flags: u64) -> Result<Location> {
    find_at(context, &Access::new(context), HERE, path, flags, AT_SYMLINK_NOFOLLOW)
}

/// The location of a descriptor; `EBADF` also for those that are only places, unless `allows_path_only`.
pub(super) fn location_of(context: &Context<'_>, descriptor: u64, allows_path_only: bool) -> Result<Location> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() && !allows_path_only {
        return Err(Errno::EBADF);
    }
    Ok(description.location().clone())
}

fn write_stat(context: &Context<'_>, location: &Location, address: u64) -> Result<u64> {
    write_all(context.memory, address, &abi::stat(&location.inode().metadata()))?;
    Ok(0)
}

/// `stat(2)`.
pub fn stat(context: &mut Context<'_>, [path, address, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    write_stat(context, &location, address)
}

/// `lstat(2)`.
pub fn lstat(context: &mut Context<'_>, [path, address, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, AT_SYMLINK_NOFOLLOW)?;
    write_stat(context, &location, address)
}

/// `fstat(2)`.
pub fn fstat(context: &mut Context<'_>, [descriptor, address, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, true)?;
    write_stat(context, &location, address)
}

const STAT_FLAGS: u64 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;

/// `newfstatat(2)`.
pub fn newfstatat(context: &mut Context<'_>, [directory, path, address, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    let location = find_at(context, &Access::new(context), directory, path, flags, STAT_FLAGS)?;
    write_stat(context, &location, address)
}

/// `statx(2)`.
pub fn statx(context: &mut Context<'_>, [directory, path, flags, mask, address, _]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    let is_both = flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE;
    if mask & STATX__RESERVED != 0 || is_both {
        return Err(Errno::EINVAL);
    }
    let location = find_at(context, &Access::new(context), directory, path, flags, STAT_FLAGS)?;
    write_all(context.memory, address, &abi::statx(&location))?;
    Ok(0)
}

fn write_statfs(context: &Context<'_>, location: &Location, address: u64) -> Result<u64> {
    let statistics = context.system.files.namespace.statistics(location);
    let bytes = abi::statfs(&statistics, location.mount().flags());
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// `statfs(2)`.
pub fn statfs(context: &mut Context<'_>, [path, address, ..]: Arguments) -> Result<u64> {
    let location = find(context, path, 0)?;
    write_statfs(context, &location, address)
}

/// `fstatfs(2)`.
pub fn fstatfs(context: &mut Context<'_>, [descriptor, address, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, true)?;
    write_statfs(context, &location, address)
}

/// `access(2)`.
pub fn access(context: &mut Context<'_>, [path, mode, ..]: Arguments) -> Result<u64> {
    faccessat2(context, [HERE, path, mode, 0, 0, 0])
}

/// `faccessat(2)` of the kernel, which has no flags.
pub fn faccessat(context: &mut Context<'_>, [directory, path, mode, ..]: Arguments) -> Result<u64> {
    faccessat2(context, [directory, path, mode, 0, 0, 0])
}

/// `faccessat2(2)`.
pub fn faccessat2(context: &mut Context<'_>, [directory, path, mode, flags, ..]: Arguments) -> Result<u64> {
    const FLAGS: u64 = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    let (mode, flags) = (mode as u32, u64::from(flags as u32));
    let mask = AccessMask::from_bits(mode).ok_or(Errno::EINVAL)?;
    let access = if flags & AT_EACCESS != 0 { Access::new(context) } else { Access::with_real_identity(context) };
    let location = find_at(context, &access, directory, path, flags, FLAGS)?;
    access.namespace().check_access(&access.caller(), &location, mask)?;
    Ok(0)
}

const NOW: TimesChange = TimesChange { accessed: TimeChange::Now, modified: TimeChange::Now };

fn set_times(context: &Context<'_>, location: &Location, times: TimesChange) -> Result<u64> {
    let access = Access::new(context);
    access.namespace().set_times(&access.caller(), location, times)?;
    Ok(0)
}

/// `utime(2)`: whole seconds.
pub fn utime(context: &mut Context<'_>, [path, times, ..]: Arguments) -> Result<u64> {
    let times = if times == 0 {
        NOW
    } else {
        let bytes: [u8; 16] = read_array(context.memory, times)?;
        let time = |at| TimeChange::Set(Timestamp { seconds: get::i64(&bytes, at), nanoseconds: 0 });
        TimesChange { accessed: time(0), modified: time(8) }
    };
    let location = find(context, path, 0)?;
    set_times(context, &location, times)
}

/// `utimes(2)`.
pub fn utimes(context: &mut Context<'_>, [path, times, ..]: Arguments) -> Result<u64> {
    futimesat(context, [HERE, path, times, 0, 0, 0])
}

/// `futimesat(2)`: microseconds; without a path the descriptor itself.
pub fn futimesat(context: &mut Context<'_>, [directory, path, times, ..]: Arguments) -> Result<u64> {
    let times = if times == 0 {
        NOW
    } else {
        let bytes: [u8; 32] = read_array(context.memory, times)?;
        let time = |at| {
            let microseconds = get::i64(&bytes, at + 8);
            if !(0..1_000_000).contains(&microseconds) {
                return Err(Errno::EINVAL);
            }
            let nanoseconds = microseconds as u32 * 1000;
            Ok(TimeChange::Set(Timestamp { seconds: get::i64(&bytes, at), nanoseconds }))
        };
        TimesChange { accessed: time(0)?, modified: time(16)? }
    };
    let location = times_target(context, directory, path, 0)?;
    set_times(context, &location, times)
}

/// What `utimensat` and `futimesat` work on: a null path means the descriptor, which then takes no flags.
fn times_target(context: &Context<'_>, directory: u64, path: u64, flags: u64) -> Result<Location> {
    if path == 0 && directory as i32 != AT_FDCWD {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        return location_of(context, directory, false);
    }
    if path == 0 {
        return Err(Errno::EFAULT);
    }
    let allowed = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    find_at(context, &Access::new(context), directory, path, flags, allowed)
}

/// `utimensat(2)`.
pub fn utimensat(context: &mut Context<'_>, [directory, path, times, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    let wanted = if times == 0 { None } else { Some(read_array::<32>(context.memory, times)?) };
    let nanoseconds = |at: usize| wanted.map_or(UTIME_NOW, |bytes| get::i64(&bytes, at + 8));
    if nanoseconds(0) == UTIME_OMIT && nanoseconds(16) == UTIME_OMIT {
        // Nothing to do, and Linux does not even look at the path.
        return Ok(0);
    }
    let location = times_target(context, directory, path, flags)?;
    let time = |at: usize| match nanoseconds(at) {
        UTIME_NOW => Ok(TimeChange::Now),
        UTIME_OMIT => Ok(TimeChange::Keep),
        part @ 0..1_000_000_000 => {
            let seconds = wanted.map_or(0, |bytes| get::i64(&bytes, at));
            Ok(TimeChange::Set(Timestamp { seconds, nanoseconds: part as u32 }))
        }
        _ => Err(Errno::EINVAL),
    };
    let times = TimesChange { accessed: time(0)?, modified: time(16)? };
    set_times(context, &location, times)
}

fn set_permissions(context: &Context<'_>, location: &Location, mode: u64) -> Result<u64> {
    let access = Access::new(context);
    access.namespace().set_permissions(&access.caller(), location, mode as u32)?;
    Ok(0)
}

/// `chmod(2)`.
pub fn chmod(context: &mut Context<'_>, [path, mode, ..]: Arguments) -> Result<u64> {
    fchmodat2(context, [HERE, path, mode, 0, 0, 0])
}

/// `fchmod(2)`.
pub fn fchmod(context: &mut Context<'_>, [descriptor, mode, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    set_permissions(context, &location, mode)
}

/// `fchmodat(2)` of the kernel, which has no flags.
pub fn fchmodat(context: &mut Context<'_>, [directory, path, mode, ..]: Arguments) -> Result<u64> {
    fchmodat2(context, [directory, path, mode, 0, 0, 0])
}

/// `fchmodat2(2)`.
pub fn fchmodat2(context: &mut Context<'_>, [directory, path, mode, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    let allowed = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    let location = find_at(context, &Access::new(context), directory, path, flags, allowed)?;
    set_permissions(context, &location, mode)
}

fn set_owner(context: &Context<'_>, location: &Location, uid: u64, gid: u64) -> Result<u64> {
    // All ones keeps it.
    let wanted = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    let change = OwnerChange { uid: wanted(uid), gid: wanted(gid) };
    let access = Access::new(context);
    access.namespace().set_owner(&access.caller(), location, change)?;
    Ok(0)
}

/// `chown(2)`.
pub fn chown(context: &mut Context<'_>, [path, uid, gid, ..]: Arguments) -> Result<u64> {
    fchownat(context, [HERE, path, uid, gid, 0, 0])
}

/// `lchown(2)`.
pub fn lchown(context: &mut Context<'_>, [path, uid, gid, ..]: Arguments) -> Result<u64> {
    fchownat(context, [HERE, path, uid, gid, AT_SYMLINK_NOFOLLOW, 0])
}

/// `fchown(2)`.
pub fn fchown(context: &mut Context<'_>, [descriptor, uid, gid, ..]: Arguments) -> Result<u64> {
    let location = location_of(context, descriptor, false)?;
    set_owner(context, &location, uid, gid)
}

/// `fchownat(2)`.
pub fn fchownat(context: &mut Context<'_>, [directory, path, uid, gid, flags, _]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    let allowed = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    let location = find_at(context, &Access::new(context), directory, path, flags, allowed)?;
    set_owner(context, &location, uid, gid)
}

/// `umask(2)`.
pub fn umask(context: &mut Context<'_>, [mask, ..]: Arguments) -> Result<u64> {
    Ok(u64::from(context.process.files.set_umask(mask as u32)))
}
