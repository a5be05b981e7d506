//! Processes as descriptors: `pidfd_open`, `pidfd_send_signal`, `pidfd_getfd`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};

use super::signal::{send, signal_or_probe, user_info};
use crate::abi::linux::O_NONBLOCK;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::pidfd::ProcessFile;
use crate::task::process::Process;
use crate::task::tracing::{Rights, may_trace_by};

entries! {
    pidfd_open;
    pidfd_send_signal(Descriptor, SignalNumber, Pointer, Hex);
    pidfd_getfd;
}

/// A descriptor for `process`, closed by `execve`.
pub(super) fn open(context: &Context<'_>, process: &Arc<Process>, status: StatusFlags) -> Result<u64> {
    let namespace = &context.system.files.namespace;
    let now = crate::file::paths::now(context);
    let description = namespace.anonymous("anon_inode:[pidfd]", ProcessFile::new(process), status, now);
    context.process.files.add(description, true)
}

/// The description that a descriptor for a process names, and the process. `EBADF`: it is none.
pub(super) fn named(context: &Context<'_>, descriptor: u64) -> Result<(Arc<Description>, Arc<Process>)> {
    let description = context.process.files.get(descriptor)?;
    let process = description.extension::<ProcessFile>().map(|file| file.process().clone());
    Ok((description, process.ok_or(Errno::EBADF)?))
}

/// Whether a process has not been waited for yet.
fn is_there(context: &Context<'_>, process: &Arc<Process>) -> bool {
    context.system.processes.get(process.pid).is_some_and(|found| Arc::ptr_eq(&found, process))
}

/// `pidfd_open(2)`.
pub fn pidfd_open(context: &mut Context<'_>, [pid, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    if flags & !O_NONBLOCK != 0 || pid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let Some(process) = context.system.processes.get(pid as u32) else {
        // A thread that does not lead its process is there, but is no process.
        let is_thread = context.system.processes.all().any(|process| process.thread(pid as u32).is_some());
        return Err(if is_thread { Errno::EINVAL } else { Errno::ESRCH });
    };
    open(context, &process, crate::abi::file::status_flags(flags))
}

/// The receiver of the signal: the process that a descriptor for one names, or a directory
/// `/proc/PID`.
fn signalled(context: &Context<'_>, descriptor: u64) -> Result<Arc<Process>> {
    let description = context.process.files.get(descriptor)?;
    if let Some(file) = description.extension::<ProcessFile>() {
        return Ok(file.process().clone());
    }
    let name = description.inode().process_name().filter(|_| !description.is_path_only());
    context.system.listing.process(name.ok_or(Errno::EBADF)?)
}

/// `pidfd_send_signal(2)`.
pub fn pidfd_send_signal(context: &mut Context<'_>, [descriptor, number, info, flags, ..]: Arguments) -> Result<u64> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let target = signalled(context, descriptor)?;
    let info = user_info(context, info, number, target.pid)?;
    if !is_there(context, &target) {
        return Err(Errno::ESRCH);
    }
    let signal = signal_or_probe(u64::from(number as u32))?;
    send(context, &target, signal, info).map(|()| 0)
}

/// `pidfd_getfd(2)`: from a process that the caller could trace.
pub fn pidfd_getfd(context: &mut Context<'_>, [descriptor, wanted, flags, ..]: Arguments) -> Result<u64> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let (_, target) = named(context, descriptor)?;
    if !is_there(context, &target) {
        return Err(Errno::ESRCH);
    }
    if !may_trace(context, &target) {
        return Err(Errno::EPERM);
    }
    let description = target.files.get(wanted)?;
    context.process.files.add(description, true)
}

/// Whether the caller may look into `target` (`ptrace(2)`, access mode ATTACH_REALCREDS).
pub(super) fn may_trace(context: &Context<'_>, target: &Arc<Process>) -> bool {
    may_trace_by((context.process, context.thread), Rights::Real, target)
}
