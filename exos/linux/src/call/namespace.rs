//! `unshare` and `setns`, as of a kernel without namespaces: a pod is what a container would be.
//!
//! A process's descriptors and directories are shared by its threads and by nobody else, so for a process with one
//! thread there is nothing to do. A thread cannot have its own.

use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::task::capability::Capability;

use crate::abi::linux::UMOUNT_NOFOLLOW;
use crate::abi::linux::{
    AT_FDCWD, CLONE_FILES, CLONE_FS, CLONE_NEWNS, CLONE_NEWUSER, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM,
};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, read_path, start_of};
use crate::file::pidfd::ProcessFile;

entries! {
    unshare(Hex): "no namespaces: `EINVAL`, mounts and without `CAP_SYS_ADMIN` `EPERM`; `CLONE_FILES` and \
         `CLONE_FS` are `EINVAL` while there are other threads";
    setns(Descriptor, Hex): "no namespaces: nothing can be joined";
    mount: "checked, and never permitted";
    umount2: "checked, and never permitted";
}

/// `CLONE_NEWTIME`, `CLONE_NEWCGROUP`, `CLONE_NEWUTS`, `CLONE_NEWIPC`, `CLONE_NEWPID`, `CLONE_NEWNET`.
const OTHER_NAMESPACES: u64 = 0x80 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000;
const NAMESPACES: u64 = CLONE_NEWNS | CLONE_NEWUSER | OTHER_NAMESPACES;
/// What a thread cannot have of its own.
const OF_PROCESSES: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

/// What a kernel without namespaces says to a request for some that it has checked.
fn refuse(context: &Context<'_>, wanted: u64) -> Errno {
    match wanted {
        _ if wanted & CLONE_NEWUSER != 0 => Errno::EINVAL,
        _ if !context.can(Capability::SYS_ADMIN) => Errno::EPERM,
        // There is no Linux without namespaces of mounts; `mount` is never permitted either.
        CLONE_NEWNS => Errno::EPERM,
        _ => Errno::EINVAL,
    }
}

/// `unshare(2)`.
pub fn unshare(context: &mut Context<'_>, [flags, ..]: Arguments) -> Result<u64> {
    if flags & !(NAMESPACES | OF_PROCESSES | CLONE_SYSVSEM) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & OF_PROCESSES != 0 && context.process.threads.lock().len() > 1 {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_VM != 0 && context.process.borrows_memory.load(Ordering::Acquire) {
        return Err(Errno::EINVAL);
    }
    match flags & NAMESPACES {
        0 => Ok(0),
        wanted => Err(refuse(context, wanted)),
    }
}

/// `mount(2)`: what it is given is looked at as on Linux, and then it is permitted to none.
pub fn mount(context: &mut Context<'_>, [source, target, kind, ..]: Arguments) -> Result<u64> {
    for text in [source, kind].into_iter().filter(|text| *text != 0) {
        read_path(context, text)?;
    }
    let path = read_path(context, target)?;
    let start = start_of(context, AT_FDCWD as u64, &path)?;
    Access::new(context).find(&start, &path, true, false)?;
    Err(Errno::EPERM)
}

/// `umount2(2)`: the same.
pub fn umount2(context: &mut Context<'_>, [target, flags, ..]: Arguments) -> Result<u64> {
    const FLAGS: u64 = 0xf;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let path = read_path(context, target)?;
    let start = start_of(context, AT_FDCWD as u64, &path)?;
    let location = Access::new(context).find(&start, &path, flags & UMOUNT_NOFOLLOW == 0, false)?;
    let is_refused = !context.can(Capability::SYS_ADMIN) || location.is_mount_root();
    Err(if is_refused { Errno::EPERM } else { Errno::EINVAL })
}

/// `setns(2)`: only descriptors of processes could name namespaces.
pub fn setns(context: &mut Context<'_>, [descriptor, kinds, ..]: Arguments) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let kinds = kinds as u32 as u64;
    let names_process = description.extension::<ProcessFile>().is_some();
    if !names_process || kinds == 0 || kinds & !NAMESPACES != 0 {
        return Err(Errno::EINVAL);
    }
    Err(refuse(context, kinds))
}
