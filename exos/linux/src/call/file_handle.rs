//! Handles of files and quotas, which no file system of a pod has: arguments are looked at as on Linux, then the answer
//! is that of a file system without them. `ustat` and `sysfs` tell of mounted file systems what can be told.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::location::Mount;
use exos::fs::metadata::{DeviceNumber, FileKind};
use exos::task::capability::Capability;

use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW};
use crate::abi::user_memory::{read_array, read_string, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, read_path, start_of};

entries! {
    name_to_handle_at: "no file system has handles (`EOPNOTSUPP`)";
    open_by_handle_at: "no file system has handles (`ESTALE`)";
    quotactl: "no file system has quotas";
    quotactl_fd: "no file system has quotas";
    ustat;
    sysfs;
}

/// Most bytes of a handle.
const HANDLE_BYTES_MAX: u32 = 128;
/// Kinds of quotas: of users, groups and projects.
const QUOTA_KINDS: u32 = 3;
/// `Q_SYNC`: writes quotas back.
const QUOTA_SYNC: u32 = 0x80_0001;
/// Bytes of a file system's name, with its NUL.
const KIND_BYTES_MAX: usize = 64;
/// Bytes of `struct ustat`.
const USTAT_BYTES: usize = 32;

/// `name_to_handle_at(2)`.
pub fn name_to_handle_at(context: &mut Context<'_>, [directory, path, _, _, flags, _]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = read_path(context, path)?;
    if path.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    let start = start_of(context, directory, &path)?;
    Access::new(context).find(&start, &path, flags & AT_SYMLINK_FOLLOW != 0, flags & AT_EMPTY_PATH != 0)?;
    Err(Errno::EOPNOTSUPP)
}

/// `open_by_handle_at(2)`.
pub fn open_by_handle_at(context: &mut Context<'_>, [mount, handle, ..]: Arguments) -> Result<u64> {
    if !context.can(Capability::DAC_READ_SEARCH) {
        return Err(Errno::EPERM);
    }
    let head: [u8; 8] = read_array(context.memory, handle)?;
    if !(1..=HANDLE_BYTES_MAX).contains(&get::u32(&head, 0)) {
        return Err(Errno::EINVAL);
    }
    if mount as i32 != AT_FDCWD {
        context.process.files.get(mount)?;
    }
    Err(Errno::ESTALE)
}

/// The kind of a quota in a command. `EINVAL`: there is no such kind.
fn check_quota_kind(command: u64) -> Result<u32> {
    let command = command as u32;
    if command & 0xff < QUOTA_KINDS { Ok(command >> 8) } else { Err(Errno::EINVAL) }
}

/// `quotactl(2)`: no device is mounted whose file system has quotas.
pub fn quotactl(context: &mut Context<'_>, [command, special, ..]: Arguments) -> Result<u64> {
    let command = check_quota_kind(command)?;
    if special == 0 {
        return if command == QUOTA_SYNC { Ok(0) } else { Err(Errno::ENODEV) };
    }
    let path = read_path(context, special)?;
    let start = start_of(context, AT_FDCWD as u64, &path)?;
    let location = Access::new(context).find(&start, &path, true, false)?;
    Err(if location.inode().kind() == FileKind::BlockDevice { Errno::ENODEV } else { Errno::ENOTBLK })
}

/// `quotactl_fd(2)`.
pub fn quotactl_fd(context: &mut Context<'_>, [descriptor, command, ..]: Arguments) -> Result<u64> {
    context.process.files.get(descriptor)?;
    check_quota_kind(command)?;
    Err(Errno::ENOSYS)
}

/// The number of a device as `st_dev` has it.
fn device_word(device: DeviceNumber) -> u64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// `ustat(2)`: of the file system that is mounted from a device.
pub fn ustat(context: &mut Context<'_>, [device, address, ..]: Arguments) -> Result<u64> {
    let is_it = |mount: &Mount| device_word(mount.root().inode().metadata().device) == u64::from(device as u32);
    let mounts = context.system.files.namespace.mounts();
    let mount = mounts.iter().find(|mount| is_it(mount)).ok_or(Errno::EINVAL)?;
    let statistics = mount.root().inode().statistics();
    let bytes = Encoder::new()
        .u32(statistics.free_block_count as u32)
        .zero_to(8)
        .u64(statistics.free_inode_count)
        .zero_to(USTAT_BYTES)
        .finish();
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// The kinds of file systems in the order of `/proc/filesystems`.
fn kinds(context: &Context<'_>) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for mount in context.system.files.namespace.mounts() {
        if !kinds.contains(&mount.description.kind) {
            kinds.push(mount.description.kind);
        }
    }
    kinds
}

/// `sysfs(2)`: kinds of file systems by name, by number, and how many there are.
pub fn sysfs(context: &mut Context<'_>, [option, first, second, ..]: Arguments) -> Result<u64> {
    match option as u32 {
        1 => {
            let name = read_string(context.memory, first, KIND_BYTES_MAX, Errno::EINVAL)?;
            let place = kinds(context).iter().position(|kind| kind.as_bytes() == name).ok_or(Errno::EINVAL)?;
            Ok(place as u64)
        }
        2 => {
            let name = *kinds(context).get(first as u32 as usize).ok_or(Errno::EINVAL)?;
            write_all(context.memory, second, &Encoder::new().raw(name.as_bytes()).u8(0).finish())?;
            Ok(0)
        }
        3 => Ok(kinds(context).len() as u64),
        _ => Err(Errno::EINVAL),
    }
}
