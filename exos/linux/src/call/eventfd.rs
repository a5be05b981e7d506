//! Timers and signals as files: `timerfd` and `signalfd`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::task::capability::Capability;
use exos::task::signal::SignalSet;

use crate::abi::file::status_flags;
use crate::abi::linux::{O_CLOEXEC, O_NONBLOCK};
use crate::abi::linux::{TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET};
use crate::abi::time::IntervalTimer;
use crate::abi::time::{read_timespec, timespec};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::signalfd::SignalFile;
use crate::file::timerfd::TimerFile;

entries! {
    timerfd_create;
    timerfd_settime: "setting the clock cancels nothing";
    timerfd_gettime;
    signalfd;
    signalfd4;
}

/// Flags of all files that are made here.
const FLAGS: u64 = O_CLOEXEC | O_NONBLOCK;

/// `timerfd_create(2)`.
pub fn timerfd_create(context: &mut Context<'_>, [clock, flags, ..]: Arguments) -> Result<u64> {
    let flags = u64::from(flags as u32);
    // CLOCK_REALTIME, MONOTONIC, BOOTTIME, REALTIME_ALARM, BOOTTIME_ALARM.
    if flags & !FLAGS != 0 || !matches!(clock as u32, 0 | 1 | 7 | 8 | 9) {
        return Err(Errno::EINVAL);
    }
    if matches!(clock as u32, 8 | 9) && !context.can(Capability::WAKE_ALARM) {
        return Err(Errno::EPERM);
    }
    let is_realtime = matches!(clock as u32, 0 | 8);
    let timer = TimerFile::new(context.system.kernel.clone(), is_realtime);
    context.process.files.timers().add(&timer);
    let namespace = &context.system.files.namespace;
    let now = crate::file::paths::now(context);
    let description = namespace.anonymous("anon_inode:[timerfd]", timer, status_flags(flags), now);
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}

/// The timer behind a descriptor. `EINVAL`: it is something else.
fn with_timer<T>(context: &Context<'_>, descriptor: u64, act: impl FnOnce(&TimerFile) -> T) -> Result<T> {
    let description: Arc<Description> = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    description.extension::<TimerFile>().map(act).ok_or(Errno::EINVAL)
}

/// `struct itimerspec`: period, then what is left.
fn encode(timer: IntervalTimer) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&timespec(timer.period_ns));
    bytes[16..].copy_from_slice(&timespec(timer.deadline_ns));
    bytes
}

/// `timerfd_settime(2)`.
pub fn timerfd_settime(context: &mut Context<'_>, [descriptor, flags, new, old, ..]: Arguments) -> Result<u64> {
    read_array::<32>(context.memory, new)?;
    let period_ns = read_timespec(context.memory, new)?;
    let value_ns = read_timespec(context.memory, new + 16)?;
    if u64::from(flags as u32) & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let (now_ns, realtime_ns) = (context.now_ns(), context.system.realtime_ns());
    let before = with_timer(context, descriptor, |timer| {
        let start_ns = match (flags & TFD_TIMER_ABSTIME != 0, timer.is_realtime()) {
            (false, _) => now_ns.saturating_add(value_ns),
            (true, false) => value_ns,
            (true, true) => now_ns.saturating_add(value_ns.saturating_sub(realtime_ns)),
        };
        let deadline_ns = if value_ns == 0 { 0 } else { start_ns.max(1) };
        timer.set(IntervalTimer { deadline_ns, period_ns })
    })?;
    if old != 0 {
        write_all(context.memory, old, &encode(before))?;
    }
    Ok(0)
}

/// `timerfd_gettime(2)`.
pub fn timerfd_gettime(context: &mut Context<'_>, [descriptor, address, ..]: Arguments) -> Result<u64> {
    let timer = with_timer(context, descriptor, TimerFile::remaining)?;
    write_all(context.memory, address, &encode(timer))?;
    Ok(0)
}

/// `signalfd(2)` as it was first.
pub fn signalfd(context: &mut Context<'_>, [descriptor, mask, size, ..]: Arguments) -> Result<u64> {
    signalfd4(context, [descriptor, mask, size, 0, 0, 0])
}

/// `signalfd4(2)`: a new file, or another mask for one that there is.
pub fn signalfd4(context: &mut Context<'_>, [descriptor, mask, size, flags, ..]: Arguments) -> Result<u64> {
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let mask = SignalSet(u64::from_le_bytes(read_array(context.memory, mask)?));
    let mask = mask.without(SignalSet::UNSTOPPABLE);
    let flags = u64::from(flags as u32);
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if descriptor as i32 != -1 {
        let description = context.process.files.get(descriptor)?;
        description.extension::<SignalFile>().ok_or(Errno::EINVAL)?.set_mask(mask);
        return Ok(u64::from(descriptor as u32));
    }
    let file = SignalFile::new(context.system, mask);
    let namespace = &context.system.files.namespace;
    let now = crate::file::paths::now(context);
    let description = namespace.anonymous("anon_inode:[signalfd]", file, status_flags(flags), now);
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}
