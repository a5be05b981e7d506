//! `kcmp`: whether two processes have something in common, and an order of what they do not.
//!
//! The order is that of numbers which are given once: of open files, address spaces and processes. As on Linux it says
//! nothing but that it is one.

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::sync::atomic;

use exos::error::{Errno, Result};
use exos::fs::description::Description;

use super::pidfd::may_trace;
use crate::abi::bytes::get;
use crate::abi::user_memory::read_array;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::epoll::Epoll;
use crate::task::process::Process;

entries! {
    kcmp: "KCMP_IO and KCMP_SYSVSEM of two processes are 0, as nothing of the kind is shared by two";
}

/// `KCMP_FILE`, `KCMP_VM`, `KCMP_FILES`, `KCMP_FS`, `KCMP_SIGHAND`, `KCMP_IO`, `KCMP_SYSVSEM`, `KCMP_EPOLL_TFD`.
mod kind {
    pub(super) const FILE: u32 = 0;
    pub(super) const MEMORY: u32 = 1;
    pub(super) const FILES: u32 = 2;
    pub(super) const DIRECTORIES: u32 = 3;
    pub(super) const HANDLERS: u32 = 4;
    pub(super) const TRANSFERS: u32 = 5;
    pub(super) const SEMAPHORES: u32 = 6;
    pub(super) const WATCHED: u32 = 7;
}

/// Bytes of `struct kcmp_epoll_slot`.
const SLOT_BYTES: usize = 12;

/// The process that a number of a process or a thread names, and that the caller may look into. `ESRCH`.
fn named(context: &Context<'_>, number: u64) -> Result<Arc<Process>> {
    context.system.processes.named(number as u32).ok_or(Errno::ESRCH)
}

/// The number of a process's memory; 0 once it has none.
fn memory_of(process: &Process) -> u64 {
    let is_gone = process.is_zombie.load(atomic::Ordering::Acquire);
    if is_gone { 0 } else { process.space_number().wrapping_add(1) }
}

/// An open file of a process. `EBADF`.
fn file_of(process: &Process, descriptor: u64) -> Result<Arc<Description>> {
    process.files.get(u64::from(descriptor as u32))
}

/// The number of the open file that an epoll instance of `process` watches, as a slot says. `EINVAL`: the descriptor is
/// none; `ENOENT`: it does not watch that.
fn watched_by(context: &Context<'_>, process: &Process, address: u64) -> Result<u64> {
    let slot: [u8; SLOT_BYTES] = read_array(context.memory, address)?;
    let description = file_of(process, u64::from(get::u32(&slot, 0)))?;
    let epoll = description.extension::<Epoll>().ok_or(Errno::EINVAL)?;
    epoll.watched_at(get::u32(&slot, 4), get::u32(&slot, 8) as usize).ok_or(Errno::ENOENT)
}

/// `kcmp(2)`.
pub fn kcmp(context: &mut Context<'_>, [first, second, kind, first_index, second_index, _]: Arguments) -> Result<u64> {
    let (first, second) = (named(context, first)?, named(context, second)?);
    if !may_trace(context, &first) || !may_trace(context, &second) {
        return Err(Errno::EPERM);
    }
    let order = match kind as u32 {
        kind::FILE => file_of(&first, first_index)?.number().cmp(&file_of(&second, second_index)?.number()),
        kind::MEMORY => memory_of(&first).cmp(&memory_of(&second)),
        kind::FILES | kind::DIRECTORIES | kind::HANDLERS => first.pid.cmp(&second.pid),
        kind::TRANSFERS | kind::SEMAPHORES => Ordering::Equal,
        kind::WATCHED => {
            let wanted = file_of(&first, first_index);
            // As on Linux, the slot is read first.
            let watched = watched_by(context, &second, second_index);
            match (wanted, watched) {
                (_, Err(Errno::EFAULT)) => return Err(Errno::EFAULT),
                (Err(error), _) => return Err(error),
                (Ok(wanted), watched) => wanted.number().cmp(&watched?),
            }
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(match order {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    })
}
