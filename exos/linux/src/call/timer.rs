//! Timers that end in signals: `alarm`, `setitimer`, and those of `timer_create`.
//!
//! What fires when is [`crate::task::timers`]'s.

use exos::error::{Errno, Result};
use exos::task::limits::Resource;
use exos::task::signal::Signal;
use exos::task::timer::{Notice, Setting, TimeBase};

use crate::abi::bytes::get;
use crate::abi::linux::{
    CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, TIMER_ABSTIME,
};
use crate::abi::linux::{SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD, SIGEV_THREAD_ID};
use crate::abi::time as abi;
use crate::abi::time::IntervalTimer;
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::timers::{arm, arm_at, base_ns, look_ns};

entries! {
    getitimer;
    setitimer;
    alarm(Size);
    timer_create: "processor time of the caller's own process only";
    timer_settime: "a clock that is set moves no timer";
    timer_gettime;
    timer_getoverrun;
    timer_delete;
}

/// The base of an interval timer (`ITIMER_REAL`, `ITIMER_VIRTUAL`, `ITIMER_PROF`).
fn interval_base(which: u64) -> Result<TimeBase> {
    match which as u32 {
        0 => Ok(TimeBase::Monotonic),
        1 => Ok(TimeBase::ProcessUser),
        2 => Ok(TimeBase::Process),
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
    let base = interval_base(which)?;
    let timer = context.process.interval_timers.lock()[which as u32 as usize];
    let bytes = encode_interval_timer(timer, base_ns(context.process, base, context.now_ns()));
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// `setitimer(2)`.
pub fn setitimer(context: &mut Context<'_>, [which, new, old, ..]: Arguments) -> Result<u64> {
    let (period_ns, value_ns) = if new == 0 {
        (0, 0)
    } else {
        read_array::<32>(context.memory, new)?;
        (abi::read_timeval(context.memory, new)?, abi::read_timeval(context.memory, new + 16)?)
    };
    let base = interval_base(which)?;
    let before = set_interval(context, which as u32 as usize, base, value_ns, period_ns);
    if old != 0 {
        let now_ns = base_ns(context.process, base, context.now_ns());
        write_all(context.memory, old, &encode_interval_timer(before, now_ns))?;
    }
    Ok(0)
}

fn set_interval(context: &Context<'_>, which: usize, base: TimeBase, value_ns: u64, period_ns: u64) -> IntervalTimer {
    let now_ns = context.now_ns();
    let start_ns = base_ns(context.process, base, now_ns);
    let deadline_ns = if value_ns == 0 { 0 } else { start_ns.saturating_add(value_ns).max(1) };
    // One that is off has no period either.
    let timer = IntervalTimer { deadline_ns, period_ns: if deadline_ns == 0 { 0 } else { period_ns } };
    let before = core::mem::replace(&mut context.process.interval_timers.lock()[which], timer);
    if deadline_ns != 0 {
        arm_at(context.system, context.process, look_ns(context.process, base, deadline_ns, now_ns));
    }
    before
}

/// `alarm(2)`.
pub fn alarm(context: &mut Context<'_>, [seconds, ..]: Arguments) -> Result<u64> {
    let now_ns = context.now_ns();
    let value_ns = u64::from(seconds as u32) * 1_000_000_000;
    let before = set_interval(context, 0, TimeBase::Monotonic, value_ns, 0);
    let left_ns = before.deadline_ns.saturating_sub(now_ns);
    // Rounded to the nearest second, but never to zero while it is pending.
    Ok(if before.deadline_ns == 0 { 0 } else { ((left_ns + 500_000_000) / 1_000_000_000).max(1) })
}

/// The base of a clock, and whether it is the realtime clock. `EINVAL`: no such clock; `EOPNOTSUPP`: no timers on it.
fn base_of_clock(context: &Context<'_>, clock: u64) -> Result<(TimeBase, bool)> {
    /// The clock of one thread, among those made from a number.
    const IS_THREAD: i32 = 4;
    match u64::from(clock as u32) {
        CLOCK_REALTIME | CLOCK_TAI => Ok((TimeBase::Monotonic, true)),
        CLOCK_MONOTONIC | 7 => Ok((TimeBase::Monotonic, false)),
        CLOCK_PROCESS_CPUTIME_ID => Ok((TimeBase::Process, false)),
        CLOCK_THREAD_CPUTIME_ID => Ok((TimeBase::Thread(context.thread.tid()), false)),
        // Raw and coarse clocks; and those that wake a suspended machine, which has no alarm clock.
        4..=6 | 8 | 9 => Err(Errno::EOPNOTSUPP),
        _ => {
            let id = clock as u32 as i32;
            /// `CLOCKFD`: a clock that is a file.
            const FILE: i32 = 3;
            let number = !(id >> 3) as u32;
            if id < 0 && id & 7 == FILE {
                return Err(Errno::EOPNOTSUPP);
            }
            match (id < 0 && id & 3 != 3, id & IS_THREAD != 0) {
                (true, true) if number == 0 => Ok((TimeBase::Thread(context.thread.tid()), false)),
                (true, true) if context.process.thread(number).is_some() => Ok((TimeBase::Thread(number), false)),
                (true, false) if number == 0 || number == context.process.pid => Ok((TimeBase::Process, false)),
                _ => Err(Errno::EINVAL),
            }
        }
    }
}

/// How a `struct sigevent` wants to be told.
fn read_notice(context: &Context<'_>, address: u64) -> Result<Option<Notice>> {
    if address == 0 {
        return Ok(Some(Notice { signal: Signal::ALRM, thread: None, value: None }));
    }
    let bytes: [u8; 64] = read_array(context.memory, address)?;
    let (value, number, kind, tid) =
        (get::u64(&bytes, 0), get::u32(&bytes, 8), get::u32(&bytes, 12), get::u32(&bytes, 16));
    let thread = match kind {
        SIGEV_NONE => return Ok(None),
        SIGEV_SIGNAL | SIGEV_THREAD => None,
        SIGEV_THREAD_ID => Some(context.process.thread(tid).ok_or(Errno::EINVAL)?.tid()),
        _ => return Err(Errno::EINVAL),
    };
    Ok(Some(Notice { signal: Signal::new(u64::from(number))?, thread, value: Some(value) }))
}

/// `timer_create(2)`.
pub fn timer_create(context: &mut Context<'_>, [clock, event, address, ..]: Arguments) -> Result<u64> {
    if event != 0 {
        // As on Linux, memory that is not there comes before a clock that is not there.
        read_array::<64>(context.memory, event)?;
    }
    let (base, is_realtime) = base_of_clock(context, clock)?;
    let notice = read_notice(context, event)?;
    let limit = context.process.limits.lock().soft(Resource::PendingSignals);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(context.process.queued_count());
    let id = context.process.timers.lock().create(base, is_realtime, notice, limit)?;
    if let Err(error) = write_all(context.memory, address, &id.to_le_bytes()) {
        context.process.timers.lock().delete(id)?;
        return Err(error);
    }
    Ok(0)
}

/// `struct itimerspec`: period, then value.
fn encode_setting(setting: Setting) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&abi::timespec(setting.period_ns));
    bytes[16..].copy_from_slice(&abi::timespec(setting.value_ns));
    bytes
}

/// `timer_settime(2)`.
pub fn timer_settime(context: &mut Context<'_>, [id, flags, new, old, ..]: Arguments) -> Result<u64> {
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    read_array::<32>(context.memory, new)?;
    let period_ns = abi::read_timespec(context.memory, new)?;
    let value_ns = abi::read_timespec(context.memory, new + 16)?;
    let id = id as u32 as i32;
    let now_ns = context.now_ns();
    let before = context.process.timers.lock().set(id, |base, is_realtime| {
        let shown_ns = base_ns(context.process, base, now_ns);
        let deadline_ns = match (flags & TIMER_ABSTIME != 0, is_realtime) {
            (false, _) => shown_ns.saturating_add(value_ns),
            (true, false) => value_ns,
            (true, true) => now_ns.saturating_add(value_ns.saturating_sub(context.system.realtime_ns())),
        };
        (shown_ns, (value_ns != 0).then_some(Setting { value_ns: deadline_ns, period_ns }))
    })?;
    arm(context.system, context.process, now_ns);
    if old != 0 {
        write_all(context.memory, old, &encode_setting(before))?;
    }
    Ok(0)
}

/// `timer_gettime(2)`.
pub fn timer_gettime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    let now_ns = context.now_ns();
    let shown_ns = |base| base_ns(context.process, base, now_ns);
    let setting = context.process.timers.lock().left(id as u32 as i32, shown_ns)?;
    write_all(context.memory, address, &encode_setting(setting))?;
    Ok(0)
}

/// `timer_getoverrun(2)`.
pub fn timer_getoverrun(context: &mut Context<'_>, [id, ..]: Arguments) -> Result<u64> {
    let overrun = context.process.timers.lock().overrun(id as u32 as i32)?;
    Ok(overrun as u64)
}

/// `timer_delete(2)`.
pub fn timer_delete(context: &mut Context<'_>, [id, ..]: Arguments) -> Result<u64> {
    context.process.timers.lock().delete(id as u32 as i32).map(|()| 0)
}
