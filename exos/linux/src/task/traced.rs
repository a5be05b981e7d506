//! A process that its parent traces (`ptrace(2)`): where it stops, and what its tracer says there.
//!
//! A process asks for it itself (`PTRACE_TRACEME`), and its tracer is its parent for as long as that lives. Its first
//! thread stops before each signal that is delivered to it, after `execve`, and, where it was asked for, before and
//! after each system call; there it waits, on its own stack, for the tracer's word. All that costs others nothing, but
//! for `PTRACE_SYSCALL`: from the first one on, calls of the whole pod take the long way. A traced thread is always
//! called to attention ([`Thread::call_attention`]), so each of its calls ends in `signal_delivery::finish`, where it
//! is asked whether it is traced. A call by a short way is seen before it begins
//! only on a processor that shows its calls, which it does once a traced thread has come there: the first one is told
//! when it is over.
//!
//! Invariants: [`State::stop`] is there only while the thread waits in [`stop`]; nobody waits there once `SIGKILL`
//! waits for the process, its tracer is gone, or the process ends. ADR 0086 says why there is no more of it.
//! Neighbours: [`super::tracer`], which holds what the tracer has said.

use core::sync::atomic::{Ordering, fence};

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::task::capability::Capability;
use exos::task::signal::{self, Delivery, Signal, SignalInfo, SignalPayload};

use crate::abi::errno;
use crate::task::caller::Caller;
use crate::task::exit::{ChildChange, tell_parent};
use crate::task::process::NO_PARENT;
use crate::task::tracer::{OPTION_MARKS_CALLS, State, Stop};

/// What [`OPTION_MARKS_CALLS`] adds to the signal's number.
const CALL_MARK: u8 = 0x80;

/// `PTRACE_TRACEME`. `EPERM`: it is traced, has several threads, has no parent in the pod, or one with fewer rights.
pub fn begin(caller: &Caller<'_>) -> Result<()> {
    let (system, process) = (caller.system, caller.process);
    let number = process.parent();
    if number == NO_PARENT || caller.thread.tid() != process.pid || process.threads.lock().len() != 1 {
        return Err(Errno::EPERM);
    }
    let parent = system.processes.get(number).filter(|parent| !parent.has_ended()).ok_or(Errno::EPERM)?;
    let held = caller.thread.identities.lock().capabilities.permitted;
    {
        let of_parent = parent.identities.lock();
        if !held.is_within(of_parent.capabilities.permitted) && !of_parent.can(Capability::SYS_PTRACE) {
            return Err(Errno::EPERM);
        }
    }
    let mut state = process.trace.state.lock();
    if state.tracer != 0 {
        return Err(Errno::EPERM);
    }
    *state = State { tracer: number, ..State::default() };
    process.trace.is_on.store(true, Ordering::Relaxed);
    drop(state);
    // A parent that ends now looks at its children after it has said so: one of the two sees the other.
    fence(Ordering::SeqCst);
    if process.parent() != number || parent.has_ended() {
        process.trace.end();
        return Err(Errno::EPERM);
    }
    caller.thread.call_attention();
    Ok(())
}

/// Whether the calling thread is one that stops.
#[must_use]
#[inline]
pub fn stops(caller: &Caller<'_>) -> bool {
    caller.process.trace.is_on() && caller.thread.tid() == caller.process.pid
}

/// Waits for the tracer's word: the signal to deliver.
#[cold]
fn stop(caller: &Caller<'_>, frame: &UpcallFrame, (status, signal, call): Place) -> Option<Signal> {
    let trace = &caller.process.trace;
    if is_ending(caller) {
        return None;
    }
    {
        let mut state = trace.state.lock();
        if state.tracer == 0 {
            return signal.map(|(signal, _)| signal);
        }
        let fs_base = caller.system.platform.fs_base();
        state.stop = Some(Stop { status, signal, registers: *frame, fs_base, call });
        (state.is_unreported, state.word) = (true, None);
    }
    *caller.thread.stopped_in.lock() = Some(call);
    tell_parent(caller.system, caller.process, (ChildChange::Trapped(status), false));
    let word = loop {
        if let Some(word) = trace.state.lock().word.take() {
            break word;
        }
        if is_ending(caller) {
            break None;
        }
        caller.system.platform.wait(None);
    };
    *caller.thread.stopped_in.lock() = None;
    let mut state = trace.state.lock();
    (state.stop, state.is_unreported) = (None, false);
    word
}

/// Status, signal and call of a stop.
type Place = (u8, Option<(Signal, SignalInfo)>, Option<u64>);

/// Whether nothing keeps it any more.
fn is_ending(caller: &Caller<'_>) -> bool {
    let (process, thread) = (caller.process, caller.thread);
    process.has_ended() || process.pause.lock().is_killed || thread.is_ending.load(Ordering::Acquire)
}

/// What is delivered next; and whether there may be more.
type Next = (Option<Delivery>, bool);

/// Takes what is to be delivered next to a traced thread, after its tracer has had a word. `None`: it is not traced, or
/// killed.
#[inline]
pub(super) fn next(caller: &Caller<'_>, frame: &UpcallFrame, call: Option<u64>) -> Option<Next> {
    if stops(caller) { next_of_traced(caller, frame, call) } else { None }
}

#[cold]
fn next_of_traced(caller: &Caller<'_>, frame: &UpcallFrame, call: Option<u64>) -> Option<Next> {
    while !is_ending(caller) {
        let (signal, info) = {
            let mut thread = caller.thread.signals.lock();
            let mut shared = caller.process.signals.lock();
            let Some(taken) = signal::take(&mut thread, &mut shared.pending) else { return Some((None, false)) };
            taken
        };
        let Some(wanted) = stop(caller, frame, (signal.number(), Some((signal, info)), call)) else { continue };
        let info = if wanted == signal { info } else { told_by(caller.process.parent()) };
        let delivery = {
            let mut thread = caller.thread.signals.lock();
            let mut shared = caller.process.signals.lock();
            signal::deliver(&mut thread, &mut shared.dispositions, wanted, info)
        };
        match delivery {
            None => {}
            // Stopped it is already; its tracer is told, and lets it go on.
            Some(Delivery::Stop(signal)) if stops(caller) => {
                let _ = stop(caller, frame, (signal.number(), None, call));
            }
            Some(Delivery::Stop(signal)) => {
                caller.process.pause.lock().is_stopping = true;
                return Some((Some(Delivery::Stop(signal)), true));
            }
            delivery => return Some((delivery, true)),
        }
    }
    None
}

fn told_by(pid: u32) -> SignalInfo {
    SignalInfo { code: 0, errno: 0, payload: SignalPayload::Sender { pid, uid: 0, value: 0 } }
}

/// Stops at a call, if that was asked for; a signal that the tracer sends along waits.
fn stop_at_call(caller: &Caller<'_>, frame: &UpcallFrame, call: u64) {
    let mark = {
        let state = caller.process.trace.state.lock();
        if !state.stops_at_calls {
            return;
        }
        if state.options & OPTION_MARKS_CALLS != 0 { CALL_MARK } else { 0 }
    };
    if let Some(signal) = stop(caller, frame, (Signal::TRAP.number() | mark, None, Some(call))) {
        let _ = caller.process.raise_in_thread(caller.thread, signal, told_by(caller.process.parent()));
    }
}

/// A call begins whose number is in RAX. `EINTR`: it was killed instead.
#[cold]
pub fn enter_call(caller: &Caller<'_>, frame: &UpcallFrame) -> Result<()> {
    let call = frame.rax;
    caller.process.trace.state.lock().is_in_call = true;
    stop_at_call(caller, &UpcallFrame { rax: errno::to_word(Errno::ENOSYS), ..*frame }, call);
    if is_ending(caller) { Err(Errno::EINTR) } else { Ok(()) }
}

/// A call has ended. One whose beginning nobody saw is told now.
#[cold]
pub(super) fn leave_call(caller: &Caller<'_>, frame: &UpcallFrame, call: u64) {
    if !core::mem::take(&mut caller.process.trace.state.lock().is_in_call) {
        stop_at_call(caller, &UpcallFrame { rax: errno::to_word(Errno::ENOSYS), ..*frame }, call);
    }
    stop_at_call(caller, frame, call);
}

/// A traced thread goes back to its program: the end of each call is to be seen, or the whole of it.
#[cold]
pub(super) fn go_back(caller: &Caller<'_>) {
    if caller.process.trace.state.lock().stops_at_calls {
        caller.system.shows_calls.store(true, Ordering::Relaxed);
        caller.system.platform.show_calls();
    }
    caller.thread.call_attention();
}
