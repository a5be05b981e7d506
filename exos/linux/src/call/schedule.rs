//! Processors and scheduling as programs ask about them. Threads take turns: answers are those of `SCHED_OTHER`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};

use crate::context::{Arguments, Context};
use crate::process::Thread;
use crate::user::{read_array, read_vec, write_all};

/// Most bytes of a processor mask that is looked at.
const MASK_BYTES_MAX: usize = 8192;

/// The thread that `tid` names; 0 is the caller.
fn find(context: &Context<'_>, tid: u64) -> Result<Arc<Thread>> {
    let tid = tid as u32;
    if tid == 0 || tid == context.thread.tid {
        return Ok(context.thread.clone());
    }
    if let Some(thread) = context.process.thread(tid) {
        return Ok(thread);
    }
    context.system.processes.all().iter().find_map(|process| process.thread(tid)).ok_or(Errno::ESRCH)
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
    let thread = find(context, tid)?;
    let bytes = read_vec(context.memory, address, length.min(MASK_BYTES_MAX as u64), MASK_BYTES_MAX)?;
    let mask = bytes.iter().take(8).rev().fold(0, |mask, byte| mask << 8 | u64::from(*byte));
    let mask = mask & existing(context);
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    thread.task.set_affinity(mask);
    if thread.tid == context.thread.tid {
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

/// `sched_getscheduler(2)`: `SCHED_OTHER`.
pub fn sched_getscheduler(context: &mut Context<'_>, [tid, ..]: Arguments) -> Result<u64> {
    find(context, tid)?;
    Ok(0)
}

/// `sched_getparam(2)`: priority 0.
pub fn sched_getparam(context: &mut Context<'_>, [tid, address, ..]: Arguments) -> Result<u64> {
    find(context, tid)?;
    write_all(context.memory, address, &0u32.to_le_bytes())?;
    Ok(0)
}

/// `sched_setscheduler(2)` and `sched_setparam(2)`: `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_IDLE` with priority 0.
pub fn sched_setscheduler(context: &mut Context<'_>, [tid, policy, address, ..]: Arguments) -> Result<u64> {
    find(context, tid)?;
    let priority = i32::from_le_bytes(read_array(context.memory, address)?);
    match policy as u32 & !0x4000_0000 {
        0 | 3 | 5 if priority == 0 => Ok(0),
        1 | 2 if (1..=99).contains(&priority) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
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
