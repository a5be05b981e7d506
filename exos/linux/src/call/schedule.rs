//! Processors and scheduling as programs ask about them. Policies with priorities are refused: there are `SCHED_OTHER`,
//! `SCHED_BATCH` and `SCHED_IDLE`, which differ in what a thread weighs.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::task::capability::Capability;
use exos::task::schedule::SLICE_NS;

use super::priority::leaves_idle;
use crate::abi::linux::SCHED_RESET_ON_FORK;
use crate::abi::time::write_timespec;
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::Thread;

entries! {
    sched_yield();
    sched_getaffinity(Int, Size, Pointer);
    sched_setaffinity(Int, Size, Pointer);
    getcpu;
    sched_getscheduler;
    sched_getparam;
    sched_setscheduler: "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE";
    sched_setparam: "as sched_setscheduler";
    sched_rr_get_interval(Int, Pointer);
    sched_get_priority_max;
    sched_get_priority_min;
}

/// Most bytes of a processor mask that is looked at.
const MASK_BYTES_MAX: usize = 8192;

/// The thread that `tid` names; 0 is the caller.
fn find(context: &Context<'_>, tid: u64) -> Result<Arc<Thread>> {
    let tid = tid as u32;
    if tid == 0 || tid == context.thread.tid() {
        return Ok(context.thread.clone());
    }
    if let Some(thread) = context.process.thread(tid) {
        return Ok(thread);
    }
    let found = context.system.processes.all().find_map(|process| process.thread(tid));
    found.or_else(|| context.system.listing.ended(tid).map(|(_, thread)| thread)).ok_or(Errno::ESRCH)
}

/// As [`find`], for calls that change it. `EPERM`: it is another user's.
fn find_own(context: &Context<'_>, tid: u64) -> Result<Arc<Thread>> {
    let thread = find(context, tid)?;
    if Arc::ptr_eq(&thread, context.thread) || context.can(Capability::SYS_NICE) {
        return Ok(thread);
    }
    let user = context.thread.identities.lock().uid[1];
    let [real, effective, ..] = thread.identities.lock().uid;
    if user == real || user == effective { Ok(thread) } else { Err(Errno::EPERM) }
}

/// `sched_yield(2)`.
pub fn sched_yield(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.system.platform.yield_now();
    Ok(0)
}

/// Processors that exist, a bit each.
fn existing(context: &Context<'_>) -> u64 {
    u64::MAX >> (64 - context.system.processor_count.clamp(1, 64))
}

/// `sched_getaffinity(2)`: answers the bytes of the mask.
pub fn sched_getaffinity(context: &mut Context<'_>, [tid, length, address, ..]: Arguments) -> Result<u64> {
    let thread = find(context, tid)?;
    if length < 8 || length % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = thread.task.affinity() & existing(context);
    write_all(context.memory, address, &mask.to_le_bytes())?;
    Ok(8)
}

/// `sched_setaffinity(2)`: any set that holds a processor that exists. One that runs elsewhere moves at once.
pub fn sched_setaffinity(context: &mut Context<'_>, [tid, length, address, ..]: Arguments) -> Result<u64> {
    let thread = find_own(context, tid);
    let bytes = read_vec(context.memory, address, length.min(MASK_BYTES_MAX as u64), MASK_BYTES_MAX)?;
    let mask = bytes.iter().take(8).rev().fold(0, |mask, byte| mask << 8 | u64::from(*byte));
    let mask = mask & existing(context);
    let thread = thread?;
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    thread.task.set_affinity(mask);
    if thread.tid() == context.thread.tid() {
        if mask & 1 << context.system.platform.processor_number() == 0 {
            context.system.platform.yield_now();
        }
    } else {
        thread.task.interrupt();
    }
    Ok(0)
}

/// `getcpu(2)`.
pub fn getcpu(context: &mut Context<'_>, [processor, node, ..]: Arguments) -> Result<u64> {
    for (address, number) in [(processor, context.system.platform.processor_number()), (node, 0)] {
        if address != 0 {
            write_all(context.memory, address, &number.to_le_bytes())?;
        }
    }
    Ok(0)
}

/// The thread that the calls about policies mean: a negative number is not one that could be.
fn find_scheduled(context: &Context<'_>, tid: u64) -> Result<Arc<Thread>> {
    if (tid as u32 as i32) < 0 { Err(Errno::EINVAL) } else { find(context, tid) }
}

/// The policy of a thread that `thread` makes: only policies with priorities are reset.
#[must_use]
pub fn inherited_policy(thread: &Thread) -> u32 {
    thread.policy.load(Ordering::Relaxed) & !SCHED_RESET_ON_FORK
}

/// The nice value of a thread that `thread` makes.
#[must_use]
pub fn inherited_nice(thread: &Thread) -> i32 {
    let resets = thread.policy.load(Ordering::Relaxed) & SCHED_RESET_ON_FORK != 0;
    if resets { thread.nice().max(0) } else { thread.nice() }
}

/// `sched_getscheduler(2)`.
pub fn sched_getscheduler(context: &mut Context<'_>, [tid, ..]: Arguments) -> Result<u64> {
    Ok(find_scheduled(context, tid)?.policy.load(Ordering::Relaxed).into())
}

/// `sched_getparam(2)`: priority 0, which is all that these policies have.
pub fn sched_getparam(context: &mut Context<'_>, [tid, address, ..]: Arguments) -> Result<u64> {
    if address == 0 {
        return Err(Errno::EINVAL);
    }
    find_scheduled(context, tid)?;
    write_all(context.memory, address, &0u32.to_le_bytes())?;
    Ok(0)
}

/// `sched_setscheduler(2)`: `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_IDLE` with priority 0.
pub fn sched_setscheduler(context: &mut Context<'_>, [tid, policy, address, ..]: Arguments) -> Result<u64> {
    set_policy(context, tid, Some(policy as u32), address)
}

/// `sched_setparam(2)`.
pub fn sched_setparam(context: &mut Context<'_>, [tid, address, ..]: Arguments) -> Result<u64> {
    set_policy(context, tid, None, address)
}

fn set_policy(context: &Context<'_>, tid: u64, policy: Option<u32>, address: u64) -> Result<u64> {
    if address == 0 || policy.is_some_and(|policy| (policy as i32) < 0) {
        return Err(Errno::EINVAL);
    }
    let thread = find_scheduled(context, tid);
    let priority = i32::from_le_bytes(read_array(context.memory, address)?);
    let thread = thread?;
    let policy = policy.unwrap_or_else(|| thread.policy.load(Ordering::Relaxed));
    if matches!(policy & !SCHED_RESET_ON_FORK, 0 | 3 | 5) && priority == 0 {
        find_own(context, tid)?;
    }
    match policy & !SCHED_RESET_ON_FORK {
        0 | 3 | 5 if priority == 0 => {
            let owner = context.system.processes.named(thread.tid()).unwrap_or_else(|| context.process.clone());
            let gives_up_reset = thread.policy.load(Ordering::Relaxed) & !policy & SCHED_RESET_ON_FORK != 0;
            let is_more = gives_up_reset || leaves_idle(&owner, &thread, policy & !SCHED_RESET_ON_FORK);
            if is_more && !context.can(Capability::SYS_NICE) {
                return Err(Errno::EPERM);
            }
            thread.policy.store(policy, Ordering::Relaxed);
            thread.weigh();
            Ok(0)
        }
        1 | 2 if (1..=99).contains(&priority) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_rr_get_interval(2)`: a turn among those that compute.
pub fn sched_rr_get_interval(context: &mut Context<'_>, [tid, address, ..]: Arguments) -> Result<u64> {
    find_scheduled(context, tid)?;
    if address == 0 {
        return Err(Errno::EFAULT);
    }
    write_timespec(context.memory, address, SLICE_NS)?;
    Ok(0)
}

/// `sched_get_priority_max(2)`.
pub fn sched_get_priority_max(_: &mut Context<'_>, [policy, ..]: Arguments) -> Result<u64> {
    match policy {
        1 | 2 => Ok(99),
        0 | 3 | 5 | 6 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_get_priority_min(2)`.
pub fn sched_get_priority_min(_: &mut Context<'_>, [policy, ..]: Arguments) -> Result<u64> {
    match policy {
        1 | 2 => Ok(1),
        0 | 3 | 5 | 6 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
