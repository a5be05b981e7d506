//! Timers that end in signals: `alarm`, `setitimer`, and those of `timer_create`.
//!
//! Nothing runs when a timer is due: the machine's one timer has processor 0 call [`check`] for every process, which
//! raises the signals and says when to look again. Timers of processor time are looked at as often as they could be
//! due, at most every [`LOOK_STEP_NS`]. What expires of a `timer_create` timer is `exos::task::timer`'s.

use exos::error::{Errno, Result};
use exos::task::limits::{Limit, Resource, UNLIMITED};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};
use exos::task::timer::{Notice, Setting, TimeBase};
use syscalls::Sysno;

use crate::abi::bytes::get;
use crate::abi::time as abi;
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::{Entry, full, partial};
use crate::task::process::{IntervalTimer, Process};
use crate::task::system::System;

/// This family's part of the table.
pub const ENTRIES: &[Entry] = &[
    full(Sysno::getitimer, getitimer),
    full(Sysno::setitimer, setitimer),
    full(Sysno::alarm, alarm),
    partial(Sysno::timer_create, "processor time of the caller's own process only", timer_create),
    partial(Sysno::timer_settime, "a clock that is set moves no timer", timer_settime),
    full(Sysno::timer_gettime, timer_gettime),
    full(Sysno::timer_getoverrun, timer_getoverrun),
    full(Sysno::timer_delete, timer_delete),
];

/// How often at most a timer of processor time is looked at: so late it may be.
const LOOK_STEP_NS: u64 = 4_000_000;
/// `SI_TIMER`.
const CODE_TIMER: i32 = -2;
/// `SI_KERNEL`.
const CODE_KERNEL: i32 = 0x80;

/// What time a base shows.
fn base_ns(process: &Process, base: TimeBase, now_ns: u64) -> u64 {
    match base {
        TimeBase::Monotonic => now_ns,
        TimeBase::Process => process.used_ns(now_ns),
        TimeBase::ProcessUser => process.used_time(now_ns).user_ns(),
        TimeBase::Thread(tid) => process.thread(tid).map_or(0, |thread| thread.time.used_ns(now_ns)),
    }
}

/// When to look whether a base shows `deadline_ns`.
fn look_ns(process: &Process, base: TimeBase, deadline_ns: u64, now_ns: u64) -> u64 {
    if base == TimeBase::Monotonic {
        return deadline_ns;
    }
    let left_ns = deadline_ns.saturating_sub(base_ns(process, base, now_ns));
    let thread_count = process.threads.lock().len().max(1) as u64;
    now_ns.saturating_add((left_ns / thread_count).max(LOOK_STEP_NS))
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
        context.system.platform.arm_timer(Some(look_ns(context.process, base, deadline_ns, now_ns)));
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

/// Looks whether timers of the process have fired, raises their signals, and says when to look next. Called on every
/// ring of the machine's timer.
pub fn check(process: &Process, now_ns: u64) -> Option<u64> {
    if process.has_ended() {
        return None;
    }
    let signals = [Signal::ALRM, Signal::VTALRM, Signal::PROF];
    let bases = [TimeBase::Monotonic, TimeBase::ProcessUser, TimeBase::Process];
    let intervals = (0..3).filter_map(|which| check_interval(process, which, bases[which], signals[which], now_ns));
    let next_ns = intervals.min();
    let limit_ns = check_processor_limit(process, now_ns);
    next_ns.into_iter().chain(check_created(process, now_ns)).chain(limit_ns).min()
}

/// `RLIMIT_CPU`: a signal for each second beyond the soft limit, the end at the hard one. When to look again.
fn check_processor_limit(process: &Process, now_ns: u64) -> Option<u64> {
    let limit = processor_limit(process)?;
    let used_ns = base_ns(process, TimeBase::Process, now_ns);
    let at_ns = |seconds: u64| seconds.max(1).saturating_mul(1_000_000_000);
    let info = SignalInfo { code: CODE_KERNEL, ..SignalInfo::default() };
    if used_ns >= at_ns(limit.hard) {
        process.raise(Signal::KILL, info);
        return None;
    }
    let mut soft = limit.soft;
    if used_ns >= at_ns(soft) {
        soft = soft.max(1).saturating_add(1);
        // As on Linux, where the program sees it move too.
        let _ = process.limits.lock().set(Resource::Cpu as usize, Limit { soft: soft.min(limit.hard), ..limit }, false);
        process.raise(Signal::XCPU, info);
    }
    Some(look_ns(process, TimeBase::Process, at_ns(soft.min(limit.hard)), now_ns))
}

/// The limit of processor time in seconds, if there is one.
fn processor_limit(process: &Process) -> Option<Limit> {
    let limit = process.limits.lock().get(Resource::Cpu as usize).ok()?;
    (limit.soft != UNLIMITED || limit.hard != UNLIMITED).then_some(limit)
}

/// Has the machine look in time for the limit of a process's processor time.
pub fn arm_processor_limit(system: &System, process: &Process) {
    if let Some(limit) = processor_limit(process) {
        let now_ns = system.kernel.now_ns();
        let end_ns = limit.soft.min(limit.hard).max(1).saturating_mul(1_000_000_000);
        system.platform.arm_timer(Some(look_ns(process, TimeBase::Process, end_ns, now_ns)));
    }
}

fn check_interval(process: &Process, which: usize, base: TimeBase, signal: Signal, now_ns: u64) -> Option<u64> {
    let before = process.interval_timers.lock()[which];
    if before.deadline_ns == 0 {
        return None;
    }
    let shown_ns = base_ns(process, base, now_ns);
    if shown_ns < before.deadline_ns {
        return Some(look_ns(process, base, before.deadline_ns, now_ns));
    }
    let deadline_ns = match before.period_ns {
        0 => 0,
        period_ns => {
            let missed = (shown_ns - before.deadline_ns) / period_ns;
            before.deadline_ns.saturating_add((missed + 1).saturating_mul(period_ns))
        }
    };
    {
        let mut timers = process.interval_timers.lock();
        if timers[which].deadline_ns != before.deadline_ns {
            // Another thread has set it meanwhile.
            return Some(now_ns);
        }
        timers[which].deadline_ns = deadline_ns;
    }
    process.raise(signal, SignalInfo { code: CODE_KERNEL, ..SignalInfo::default() });
    (deadline_ns != 0).then(|| look_ns(process, base, deadline_ns, now_ns))
}

/// The same for the timers of `timer_create`.
fn check_created(process: &Process, now_ns: u64) -> Option<u64> {
    let expired = process.timers.lock().expire(|base| base_ns(process, base, now_ns));
    for timer in expired {
        let Notice { signal, thread, value } = timer.notice;
        let payload = SignalPayload::Timer { id: timer.id, overrun: 0, value: value.unwrap_or(timer.id as u64) };
        let info = SignalInfo { code: CODE_TIMER, errno: 0, payload };
        let thread = thread.map(|tid| process.thread(tid));
        // A thread that has ended is told nothing more.
        let is_ignored = match thread {
            Some(None) => false,
            thread => !process.raise_timer(thread.flatten().as_deref(), signal, info),
        };
        if is_ignored {
            note_ignored(process, timer.id, now_ns);
        }
    }
    let deadlines: alloc::vec::Vec<_> = process.timers.lock().deadlines().collect();
    deadlines.into_iter().map(|(base, deadline_ns)| look_ns(process, base, deadline_ns, now_ns)).min()
}

fn note_ignored(process: &Process, id: i32, now_ns: u64) {
    let base = process.timers.lock().base(id);
    if let Ok((base, _)) = base {
        let shown_ns = base_ns(process, base, now_ns);
        process.timers.lock().note_ignored(id, shown_ns);
    }
}

/// A signal was taken to be acted on: if it is a timer's, the timer goes on, and the signal says what was missed.
pub fn complete_notice(system: &System, process: &Process, info: &mut SignalInfo) {
    let SignalPayload::Timer { id, overrun, .. } = &mut info.payload else { return };
    let base = process.timers.lock().base(*id);
    let Ok((base, _)) = base else { return };
    let now_ns = system.kernel.now_ns();
    let shown_ns = base_ns(process, base, now_ns);
    *overrun = process.timers.lock().take_notice(*id, shown_ns);
    arm(system, process, now_ns);
}

/// Pending instances of `signal` were thrown away: timers that waited for one to be taken go on.
pub fn forget_signal(system: &System, process: &Process, signal: Signal) {
    let now_ns = system.kernel.now_ns();
    process.timers.lock().forget_signal(signal, |base| base_ns(process, base, now_ns));
    arm(system, process, now_ns);
}

/// Has the machine look in time for the process's timers.
fn arm(system: &System, process: &Process, now_ns: u64) {
    let deadlines: alloc::vec::Vec<_> = process.timers.lock().deadlines().collect();
    let next_ns = deadlines.into_iter().map(|(base, deadline_ns)| look_ns(process, base, deadline_ns, now_ns)).min();
    if next_ns.is_some() {
        system.platform.arm_timer(next_ns);
    }
}

/// The base of a clock, and whether it is the realtime clock. `EINVAL`: no such clock; `EOPNOTSUPP`: no timers on it.
fn base_of_clock(context: &Context<'_>, clock: u64) -> Result<(TimeBase, bool)> {
    /// The clock of one thread, among those made from a number.
    const IS_THREAD: i32 = 4;
    match u64::from(clock as u32) {
        abi::CLOCK_REALTIME | abi::CLOCK_TAI => Ok((TimeBase::Monotonic, true)),
        abi::CLOCK_MONOTONIC | 7 => Ok((TimeBase::Monotonic, false)),
        abi::CLOCK_PROCESS_CPU => Ok((TimeBase::Process, false)),
        abi::CLOCK_THREAD_CPU => Ok((TimeBase::Thread(context.thread.tid()), false)),
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
    const SIGNAL: u32 = 0;
    const NONE: u32 = 1;
    const THREAD: u32 = 2;
    const THREAD_ID: u32 = 4;
    if address == 0 {
        return Ok(Some(Notice { signal: Signal::ALRM, thread: None, value: None }));
    }
    let bytes: [u8; 64] = read_array(context.memory, address)?;
    let (value, number, kind, tid) =
        (get::u64(&bytes, 0), get::u32(&bytes, 8), get::u32(&bytes, 12), get::u32(&bytes, 16));
    let thread = match kind {
        NONE => return Ok(None),
        SIGNAL | THREAD => None,
        THREAD_ID => Some(context.process.thread(tid).ok_or(Errno::EINVAL)?.tid()),
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
    let (base, is_realtime) = context.process.timers.lock().base(id)?;
    let now_ns = context.now_ns();
    let shown_ns = base_ns(context.process, base, now_ns);
    let deadline_ns = match (flags & abi::TIMER_ABSOLUTE != 0, is_realtime) {
        (false, _) => shown_ns.saturating_add(value_ns),
        (true, false) => value_ns,
        (true, true) => now_ns.saturating_add(value_ns.saturating_sub(context.system.realtime_ns())),
    };
    let setting = (value_ns != 0).then_some(Setting { value_ns: deadline_ns, period_ns });
    let before = context.process.timers.lock().set(id, shown_ns, setting)?;
    arm(context.system, context.process, now_ns);
    if old != 0 {
        write_all(context.memory, old, &encode_setting(before))?;
    }
    Ok(0)
}

/// `timer_gettime(2)`.
pub fn timer_gettime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    let id = id as u32 as i32;
    let (base, _) = context.process.timers.lock().base(id)?;
    let shown_ns = base_ns(context.process, base, context.now_ns());
    let setting = context.process.timers.lock().left(id, shown_ns)?;
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
