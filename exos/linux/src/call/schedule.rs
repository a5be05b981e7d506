//! Processors and scheduling as programs ask about them. One thread and the lottery's predecessor: answers are those
//! of `SCHED_OTHER`.

use exos::error::{Errno, Result};

use crate::context::{Arguments, Context};
use crate::user::{read_array, read_vec, write_all};

/// Most bytes of a processor mask that is looked at.
const MASK_BYTES_MAX: usize = 8192;

fn check_own(context: &Context<'_>, tid: u64) -> Result<()> {
    if tid as u32 == 0 || tid as u32 == context.thread.tid { Ok(()) } else { Err(Errno::ESRCH) }
}

/// `sched_yield(2)`.
pub fn sched_yield(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.system.platform.yield_now();
    Ok(0)
}

/// `sched_getaffinity(2)`: answers the bytes of the mask.
pub fn sched_getaffinity(context: &mut Context<'_>, [tid, length, address, ..]: Arguments) -> Result<u64> {
    check_own(context, tid)?;
    if length < 8 || length % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = u64::MAX >> (64 - context.system.processor_count.clamp(1, 64));
    write_all(context.memory, address, &mask.to_le_bytes())?;
    Ok(8)
}

/// `sched_setaffinity(2)`: any set that holds a processor that exists.
pub fn sched_setaffinity(context: &mut Context<'_>, [tid, length, address, ..]: Arguments) -> Result<u64> {
    check_own(context, tid)?;
    let bytes = read_vec(context.memory, address, length.min(MASK_BYTES_MAX as u64), MASK_BYTES_MAX)?;
    let exists = (0..context.system.processor_count as usize)
        .any(|number| bytes.get(number / 8).is_some_and(|byte| byte & 1 << (number % 8) != 0));
    if exists { Ok(0) } else { Err(Errno::EINVAL) }
}

/// `getcpu(2)`.
pub fn getcpu(context: &mut Context<'_>, [processor, node, ..]: Arguments) -> Result<u64> {
    for address in [processor, node] {
        if address != 0 {
            write_all(context.memory, address, &0u32.to_le_bytes())?;
        }
    }
    Ok(0)
}

/// `sched_getscheduler(2)`: `SCHED_OTHER`.
pub fn sched_getscheduler(context: &mut Context<'_>, [tid, ..]: Arguments) -> Result<u64> {
    check_own(context, tid)?;
    Ok(0)
}

/// `sched_getparam(2)`: priority 0.
pub fn sched_getparam(context: &mut Context<'_>, [tid, address, ..]: Arguments) -> Result<u64> {
    check_own(context, tid)?;
    write_all(context.memory, address, &0u32.to_le_bytes())?;
    Ok(0)
}

/// `sched_setscheduler(2)` and `sched_setparam(2)`: `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_IDLE` with priority 0.
pub fn sched_setscheduler(context: &mut Context<'_>, [tid, policy, address, ..]: Arguments) -> Result<u64> {
    check_own(context, tid)?;
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
