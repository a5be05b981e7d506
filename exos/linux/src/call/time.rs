//! Clocks and sleeping. Timers are [`super::timer`]'s.

use exos::error::{Errno, Result};
use exos::task::capability::Capability;

use crate::abi::linux::{CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, TIMER_ABSTIME};
use crate::abi::time as abi;
use crate::abi::user_memory::write_all;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Restart;

entries! {
    clock_gettime(Word(CLOCKS), TimeOut);
    clock_getres(Word(CLOCKS), TimeOut);
    clock_settime;
    gettimeofday(Pointer, Pointer);
    time(Pointer);
    times(Pointer);
    nanosleep(TimeIn, Pointer);
    clock_nanosleep(Word(CLOCKS), Set(TIMER_FLAGS), TimeIn, Pointer): "no waiting for processor time";
    pause();
}

/// The resolution that clocks report.
const RESOLUTION_NS: u64 = 1;
/// Ticks in a second as `times` and `/proc` count (`USER_HZ`).
pub(crate) const TICK_HZ: u64 = 100;
const TICK_NS: u64 = 1_000_000_000 / TICK_HZ;

/// What clock `id` shows. `EINVAL`: no such clock.
pub(super) fn clock_ns(context: &Context<'_>, id: u64) -> Result<u64> {
    // Clocks 0 and 5 are realtime, 1, 4, 6 and 7 monotonic (there is no suspend), 2 and 3 processor time; TAI without
    // a leap table is realtime.
    match id {
        0 | 5 | 8 | CLOCK_TAI => Ok(context.system.realtime_ns()),
        1 | 4 | 6 | 7 | 9 => Ok(context.now_ns()),
        CLOCK_PROCESS_CPUTIME_ID => Ok(context.process.used_ns(context.now_ns())),
        CLOCK_THREAD_CPUTIME_ID => Ok(context.thread.time.used_ns(context.now_ns())),
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
        return thread.map(|thread| thread.time.used_ns(now_ns)).ok_or(Errno::EINVAL);
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

/// `clock_settime(2)`: the pod's clock, not the machine's.
pub fn clock_settime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    let is_processor = is_processor_clock(id);
    if id as u32 != CLOCK_REALTIME as u32 && !is_processor {
        return Err(Errno::EINVAL);
    }
    let ns = abi::read_timespec(context.memory, address)?;
    if is_processor {
        return clock_ns(context, id).and(Err(Errno::EPERM));
    }
    set_realtime(context, ns)?;
    Ok(0)
}

/// Whether `id` is a clock of processor time that is made from a number, of any process.
pub(super) fn is_processor_clock(id: u64) -> bool {
    /// `CLOCKFD`: a clock that is a file.
    const FILE: i32 = 3;
    (id as i32) < 0 && id as i32 & 7 != FILE
}

/// Sets the pod's clock. `EINVAL`: as on Linux, thirty years are kept free behind it, and it does not show a time from
/// before the machine started as one before 1970. `EPERM`.
pub(super) fn set_realtime(context: &Context<'_>, ns: u64) -> Result<()> {
    check_settable(context, ns)?;
    if ns < context.now_ns() {
        return Err(Errno::EINVAL);
    }
    context.system.step_realtime((ns as i64).wrapping_sub(context.system.realtime_ns() as i64));
    Ok(())
}

/// Whether the caller may set the clock, to `ns` if that is not from before the machine started.
pub(super) fn check_settable(context: &Context<'_>, ns: u64) -> Result<()> {
    const SECONDS_MAX: u64 = i64::MAX as u64 / 1_000_000_000 - 30 * 365 * 24 * 3600;
    if ns / 1_000_000_000 >= SECONDS_MAX {
        return Err(Errno::EINVAL);
    }
    if context.can(Capability::SYS_TIME) { Ok(()) } else { Err(Errno::EPERM) }
}

/// `gettimeofday(2)`.
pub fn gettimeofday(context: &mut Context<'_>, [time, zone, ..]: Arguments) -> Result<u64> {
    if time != 0 {
        write_all(context.memory, time, &abi::timeval(context.system.realtime_ns()))?;
    }
    if zone != 0 {
        write_all(context.memory, zone, &context.system.time_zone.lock().unwrap_or_default())?;
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
    if address != 0 {
        let (own, children) = (context.process.used_time(context.now_ns()), context.process.times.lock().children);
        let times_ns = [own.user_ns(), own.system_ns, children.user_ns(), children.system_ns];
        write_all(context.memory, address, times_ns.map(|ns| (ns / TICK_NS).to_le_bytes()).as_flattened())?;
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
    let deadline_ns = context.deadline_after(duration_ns);
    sleep_until(context, deadline_ns, remaining)
}

/// `clock_nanosleep(2)`.
pub fn clock_nanosleep(context: &mut Context<'_>, [id, flags, request, remaining, ..]: Arguments) -> Result<u64> {
    if !matches!(id, 0 | 1 | 7 | 8 | 9 | CLOCK_TAI) {
        clock_ns(context, id)?;
        return Err(Errno::EOPNOTSUPP);
    }
    let wanted_ns = abi::read_timespec(context.memory, request)?;
    if flags & TIMER_ABSTIME == 0 {
        let deadline_ns = context.deadline_after(wanted_ns);
        return sleep_until(context, deadline_ns, remaining);
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
