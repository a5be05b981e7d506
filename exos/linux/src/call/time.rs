//! Clocks, sleeping, interval timers.

use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::task::signal::{Signal, SignalInfo};

use crate::abi::bytes::get;
use crate::abi::time as abi;
use crate::context::{Arguments, Context, Restart};
use crate::process::IntervalTimer;
use crate::user::{read_array, write_all};

/// The resolution that clocks report.
const RESOLUTION_NS: u64 = 1;
/// Ticks in a second as `times` and `/proc` count (`USER_HZ`).
pub(crate) const TICK_HZ: u64 = 100;
const TICK_NS: u64 = 1_000_000_000 / TICK_HZ;

/// What clock `id` shows. `EINVAL`: no such clock.
fn clock_ns(context: &Context<'_>, id: u64) -> Result<u64> {
    // Clocks 0 and 5 are realtime, 1, 4, 6 and 7 monotonic (there is no suspend), 2 and 3 processor time; TAI without
    // a leap table is realtime.
    match id {
        0 | 5 | 8 | abi::CLOCK_TAI => Ok(context.system.realtime_ns()),
        1 | 4 | 6 | 7 | 9 => Ok(context.now_ns()),
        abi::CLOCK_PROCESS_CPU => Ok(context.process.used_ns(context.now_ns())),
        abi::CLOCK_THREAD_CPU => Ok(context.thread.used_ns(context.now_ns())),
        // Process and thread clocks made from a number: negative, low bits 2 (all time) or 6 (a thread's); only one's
        // own here.
        _ => processor_clock_ns(context, id as u32 as i32),
    }
}

/// The clock of a process, or of a thread of the caller's process.
fn processor_clock_ns(context: &Context<'_>, id: i32) -> Result<u64> {
    const IS_THREAD: i32 = 4;
    if id >= 0 || !matches!(id & 3, 0..=2) {
        return Err(Errno::EINVAL);
    }
    let (number, now_ns) = (!(id >> 3) as u32, context.now_ns());
    if id & IS_THREAD != 0 {
        let thread = if number == 0 { Some(context.thread.clone()) } else { context.process.thread(number) };
        return thread.map(|thread| thread.used_ns(now_ns)).ok_or(Errno::EINVAL);
    }
    let process = if number == 0 { Some(context.process.clone()) } else { context.system.processes.get(number) };
    process.map(|process| process.used_ns(now_ns)).ok_or(Errno::EINVAL)
}

/// `clock_gettime(2)`.
pub fn clock_gettime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    let ns = clock_ns(context, id)?;
    write_all(context.memory, address, &abi::timespec(ns))?;
    Ok(0)
}

/// `clock_getres(2)`.
pub fn clock_getres(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    clock_ns(context, id)?;
    // The coarse clocks advance with the tick.
    let resolution_ns = if id == 5 || id == 6 { TICK_NS } else { RESOLUTION_NS };
    abi::write_timespec(context.memory, address, resolution_ns)?;
    Ok(0)
}

/// `clock_settime(2)`: nobody in a pod sets the machine's clock.
pub fn clock_settime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    let ns = abi::read_timespec(context.memory, address)?;
    if id != abi::CLOCK_REALTIME {
        return Err(Errno::EINVAL);
    }
    if context.process.identities.lock().uid[1] != 0 {
        return Err(Errno::EPERM);
    }
    let offset = (ns as i64).wrapping_sub(context.now_ns() as i64);
    context.system.realtime_offset_ns.store(offset, Ordering::Relaxed);
    Ok(0)
}

/// `gettimeofday(2)`.
pub fn gettimeofday(context: &mut Context<'_>, [time, zone, ..]: Arguments) -> Result<u64> {
    if time != 0 {
        write_all(context.memory, time, &abi::timeval(context.system.realtime_ns()))?;
    }
    if zone != 0 {
        write_all(context.memory, zone, &[0; 8])?;
    }
    Ok(0)
}

/// `time(2)`.
pub fn time(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    let seconds = context.system.realtime_ns() / 1_000_000_000;
    if address != 0 {
        write_all(context.memory, address, &seconds.to_le_bytes())?;
    }
    Ok(seconds)
}

/// `times(2)`.
pub fn times(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    let ticks = context.process.used_ns(context.now_ns()) / TICK_NS;
    let child_ticks = context.process.times.lock().children / TICK_NS;
    if address != 0 {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&ticks.to_le_bytes());
        bytes[16..24].copy_from_slice(&child_ticks.to_le_bytes());
        write_all(context.memory, address, &bytes)?;
    }
    Ok(context.now_ns() / TICK_NS)
}

/// Sleeps until `deadline_ns` on the monotonic clock; on a signal writes what is left to `remaining` unless it is 0.
fn sleep_until(context: &mut Context<'_>, deadline_ns: u64, remaining: u64) -> Result<u64> {
    loop {
        let now_ns = context.now_ns();
        if now_ns >= deadline_ns {
            return Ok(0);
        }
        if let Err(error) = context.wait(Some(deadline_ns)) {
            abi::write_timespec(context.memory, remaining, deadline_ns.saturating_sub(context.now_ns()))?;
            return Err(error);
        }
    }
}

/// `nanosleep(2)`.
pub fn nanosleep(context: &mut Context<'_>, [request, remaining, ..]: Arguments) -> Result<u64> {
    let duration_ns = abi::read_timespec(context.memory, request)?;
    let deadline_ns = context.now_ns().saturating_add(duration_ns);
    sleep_until(context, deadline_ns, remaining)
}

/// `clock_nanosleep(2)`.
pub fn clock_nanosleep(context: &mut Context<'_>, [id, flags, request, remaining, ..]: Arguments) -> Result<u64> {
    if !matches!(id, 0 | 1 | 7 | 8 | 9 | abi::CLOCK_TAI) {
        clock_ns(context, id)?;
        return Err(Errno::EOPNOTSUPP);
    }
    let wanted_ns = abi::read_timespec(context.memory, request)?;
    if flags & abi::TIMER_ABSOLUTE == 0 {
        return sleep_until(context, context.now_ns().saturating_add(wanted_ns), remaining);
    }
    context.restart = Restart::UnlessHandler;
    let clock_now_ns = clock_ns(context, id)?;
    let deadline_ns = context.now_ns().saturating_add(wanted_ns.saturating_sub(clock_now_ns));
    sleep_until(context, deadline_ns, 0)
}

/// `pause(2)`.
pub fn pause(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    loop {
        context.wait(None)?;
    }
}

/// Which interval timer; only the real-time one runs.
fn check_interval_timer(which: u64) -> Result<()> {
    match which {
        0 => Ok(()),
        1 | 2 => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

fn encode_interval_timer(timer: IntervalTimer, now_ns: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&abi::timeval(timer.period_ns));
    // A timer that is about to fire shows at least a microsecond, as one that is off shows zero.
    let left_ns = match timer.deadline_ns {
        0 => 0,
        deadline_ns => deadline_ns.saturating_sub(now_ns).max(1000),
    };
    bytes[16..].copy_from_slice(&abi::timeval(left_ns));
    bytes
}

/// `getitimer(2)`.
pub fn getitimer(context: &mut Context<'_>, [which, address, ..]: Arguments) -> Result<u64> {
    if matches!(which, 1 | 2) {
        write_all(context.memory, address, &[0; 32])?;
        return Ok(0);
    }
    check_interval_timer(which)?;
    let bytes = encode_interval_timer(*context.process.timer.lock(), context.now_ns());
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// `setitimer(2)`. The timers of processor time are `EOPNOTSUPP` unless they are being switched off.
pub fn setitimer(context: &mut Context<'_>, [which, new, old, ..]: Arguments) -> Result<u64> {
    let (period_ns, value_ns) = if new == 0 {
        (0, 0)
    } else {
        let bytes: [u8; 32] = read_array(context.memory, new)?;
        let part = |offset: usize| {
            let (seconds, microseconds) = (get::i64(&bytes, offset), get::i64(&bytes, offset + 8));
            if seconds < 0 || !(0..1_000_000).contains(&microseconds) {
                return Err(Errno::EINVAL);
            }
            Ok((seconds as u64).saturating_mul(1_000_000_000).saturating_add(microseconds as u64 * 1000))
        };
        (part(0)?, part(16)?)
    };
    if matches!(which, 1 | 2) && value_ns == 0 {
        return Ok(0);
    }
    check_interval_timer(which)?;
    let now_ns = context.now_ns();
    let before = set_timer(context, now_ns, value_ns, period_ns);
    if old != 0 {
        write_all(context.memory, old, &encode_interval_timer(before, now_ns))?;
    }
    Ok(0)
}

fn set_timer(context: &Context<'_>, now_ns: u64, value_ns: u64, period_ns: u64) -> IntervalTimer {
    let deadline_ns = if value_ns == 0 { 0 } else { now_ns.saturating_add(value_ns).max(1) };
    let mut timer = context.process.timer.lock();
    let before = core::mem::replace(&mut *timer, IntervalTimer { deadline_ns, period_ns });
    context.system.platform.arm_timer((deadline_ns != 0).then_some(deadline_ns));
    before
}

/// `alarm(2)`.
pub fn alarm(context: &mut Context<'_>, [seconds, ..]: Arguments) -> Result<u64> {
    let now_ns = context.now_ns();
    let value_ns = u64::from(seconds as u32) * 1_000_000_000;
    let before = set_timer(context, now_ns, value_ns, 0);
    let left_ns = before.deadline_ns.saturating_sub(now_ns);
    // Rounded to the nearest second, but never to zero while it is pending.
    Ok(if before.deadline_ns == 0 { 0 } else { ((left_ns + 500_000_000) / 1_000_000_000).max(1) })
}

/// Looks whether the process's timer has fired, and if so raises `SIGALRM` and arms the next. Called on every wake
/// and bell. When the next is due, if there is one.
pub fn check_timer(process: &crate::process::Process, now_ns: u64) -> Option<u64> {
    let mut timer = process.timer.lock();
    if timer.deadline_ns == 0 || timer.deadline_ns > now_ns {
        return (timer.deadline_ns != 0).then_some(timer.deadline_ns);
    }
    timer.deadline_ns = match timer.period_ns {
        0 => 0,
        period_ns => {
            let missed = (now_ns - timer.deadline_ns) / period_ns;
            timer.deadline_ns.saturating_add((missed + 1).saturating_mul(period_ns))
        }
    };
    let next_ns = timer.deadline_ns;
    drop(timer);
    process.raise(Signal::ALRM, SignalInfo { code: 0x80, ..SignalInfo::default() });
    (next_ns != 0).then_some(next_ns)
}
