//! When timers of a process fire that end in signals: interval timers, those of `timer_create`, the limit of processor
//! time. And when requests of rings are over ([`crate::task::work`]).
//!
//! Nothing runs when a timer is due: the machine's one timer has processor 0 call [`check_all`], which asks each
//! process that may have some ([`arm_at`]), raises the signals and says when to look again. Timers of processor time
//! are looked at as often as they could be due, at most every [`LOOK_STEP_NS`]. What expires of a `timer_create` timer
//! is `exos::task::timer`'s. The calls are in `crate::call::timer`.

use exos::task::limits::{Limit, Resource, UNLIMITED};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};
use exos::task::timer::{Notice, TimeBase};

use crate::abi::linux::{SI_KERNEL, SI_TIMER};
use crate::task::process::Process;
use crate::task::system::System;

/// How often at most a timer of processor time is looked at: so late it may be.
const LOOK_STEP_NS: u64 = 4_000_000;

/// What time a base shows.
pub(crate) fn base_ns(process: &Process, base: TimeBase, now_ns: u64) -> u64 {
    match base {
        TimeBase::Monotonic => now_ns,
        TimeBase::Process => process.used_ns(now_ns),
        TimeBase::ProcessUser => process.used_time(now_ns).user_ns(),
        TimeBase::Thread(tid) => process.thread(tid).map_or(0, |thread| thread.time.used_ns(now_ns)),
    }
}

/// When to look whether a base shows `deadline_ns`.
pub(crate) fn look_ns(process: &Process, base: TimeBase, deadline_ns: u64, now_ns: u64) -> u64 {
    if base == TimeBase::Monotonic {
        return deadline_ns;
    }
    let left_ns = deadline_ns.saturating_sub(base_ns(process, base, now_ns));
    let thread_count = process.threads.lock().len().max(1) as u64;
    now_ns.saturating_add((left_ns / thread_count).max(LOOK_STEP_NS))
}

/// Has the machine look at a process's timers at that time. Whoever arms one has stored it before.
pub(crate) fn arm_at(system: &System, process: &Process, when_ns: u64) {
    system.processes.note_timed(process);
    system.platform.arm_timer(Some(when_ns));
}

/// Looks at the timers of all processes that have some, and says when to look next. Called on every ring of the
/// machine's timer.
pub fn check_all(system: &System, now_ns: u64) -> Option<u64> {
    let look = |process: alloc::sync::Arc<Process>| {
        let next_ns = check(&process, now_ns);
        if next_ns.is_some() || process.work.is_used() {
            system.processes.note_timed(&process);
        }
        next_ns
    };
    system.processes.take_timed().filter_map(look).min()
}

/// Looks whether timers of the process have fired, raises their signals, and says when to look next.
fn check(process: &Process, now_ns: u64) -> Option<u64> {
    if process.has_ended() {
        return None;
    }
    let signals = [Signal::ALRM, Signal::VTALRM, Signal::PROF];
    let bases = [TimeBase::Monotonic, TimeBase::ProcessUser, TimeBase::Process];
    let intervals = (0..3).filter_map(|which| check_interval(process, which, bases[which], signals[which], now_ns));
    let next_ns = intervals.min();
    let limit_ns = check_processor_limit(process, now_ns);
    let work_ns = process.work.expire(now_ns);
    next_ns.into_iter().chain(check_created(process, now_ns)).chain(limit_ns).chain(work_ns).min()
}

/// `RLIMIT_CPU`: a signal for each second beyond the soft limit, the end at the hard one. When to look again.
fn check_processor_limit(process: &Process, now_ns: u64) -> Option<u64> {
    let limit = processor_limit(process)?;
    let used_ns = base_ns(process, TimeBase::Process, now_ns);
    let at_ns = |seconds: u64| seconds.max(1).saturating_mul(1_000_000_000);
    let info = SignalInfo { code: SI_KERNEL, ..SignalInfo::default() };
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
        arm_at(system, process, look_ns(process, TimeBase::Process, end_ns, now_ns));
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
    process.raise(signal, SignalInfo { code: SI_KERNEL, ..SignalInfo::default() });
    (deadline_ns != 0).then(|| look_ns(process, base, deadline_ns, now_ns))
}

/// The same for the timers of `timer_create`.
fn check_created(process: &Process, now_ns: u64) -> Option<u64> {
    let expired = process.timers.lock().expire(|base| base_ns(process, base, now_ns));
    for timer in expired {
        let Notice { signal, thread, value } = timer.notice;
        let payload = SignalPayload::Timer { id: timer.id, overrun: 0, value: value.unwrap_or(timer.id as u64) };
        let info = SignalInfo { code: SI_TIMER, errno: 0, payload };
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
    process.timers.lock().note_ignored(id, |base| base_ns(process, base, now_ns));
}

/// A signal was taken to be acted on: if it is a timer's, the timer goes on, and the signal says what was missed.
pub fn complete_notice(system: &System, process: &Process, info: &mut SignalInfo) {
    let SignalPayload::Timer { id, overrun, .. } = &mut info.payload else { return };
    let now_ns = system.kernel.now_ns();
    let Some(missed) = process.timers.lock().take_notice(*id, |base| base_ns(process, base, now_ns)) else { return };
    *overrun = missed;
    arm(system, process, now_ns);
}

/// Pending instances of `signal` were thrown away: timers that waited for one to be taken go on.
pub fn forget_signal(system: &System, process: &Process, signal: Signal) {
    let now_ns = system.kernel.now_ns();
    process.timers.lock().forget_signal(signal, |base| base_ns(process, base, now_ns));
    arm(system, process, now_ns);
}

/// Has the machine look in time for the process's timers.
pub(crate) fn arm(system: &System, process: &Process, now_ns: u64) {
    let deadlines: alloc::vec::Vec<_> = process.timers.lock().deadlines().collect();
    let next_ns = deadlines.into_iter().map(|(base, deadline_ns)| look_ns(process, base, deadline_ns, now_ns)).min();
    if let Some(next_ns) = next_ns {
        arm_at(system, process, next_ns);
    }
}
