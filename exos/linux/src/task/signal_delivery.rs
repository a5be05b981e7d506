//! What happens between a system call or a fault and the program's next instruction: signals.
//!
//! [`finish`] is called whenever a program is about to be resumed whose thread was called to attention or whose call
//! was interrupted. It acts on what is pending until nothing is,
//! decides whether an interrupted call starts again, and leaves the frame as the program is to see it.

use alloc::string::String;
use core::sync::atomic::Ordering;

use aegis_abi::upcall::UpcallFrame;
use exos::error::Errno;
use exos::task::signal::{self, Delivery, Disposition, Signal, SignalInfo, SignalSet};

use crate::abi::errno;
use crate::abi::linux::{SA_RESTART, SS_AUTODISARM};
use crate::task::caller::{Caller, Restart};
use crate::task::exit::{ChildChange, is_orphaned, tell_parent};
use crate::task::process::Ending;
use crate::task::signal_frame::{self, Entry};
use crate::task::timers::complete_notice;
use crate::task::traced;

/// Bytes of a `syscall` instruction, which a restarted call executes again.
const SYSCALL_BYTES: u64 = 2;

/// A system call that has just ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedCall {
    /// Its number, to start it again.
    pub number: u64,
    /// Whether a signal interrupted it, and what that means.
    pub interrupted: Option<Restart>,
}

/// Acts on pending signals. Afterwards the process has ended, or `frame` is to be resumed.
pub fn finish(caller: &Caller<'_>, frame: &mut UpcallFrame, ended: Option<EndedCall>) {
    let mut interrupted = ended.and_then(|call| call.interrupted.map(|restart| (call.number, restart)));
    caller.thread.take_attention();
    caller.process.work.run(caller);
    let number = ended.map(|call| call.number);
    if traced::stops(caller)
        && let Some(number) = number
    {
        traced::leave_call(caller, frame, number);
    }
    loop {
        wait_while_stopped(caller, number);
        if caller.process.has_ended() || caller.thread.is_ending.load(Ordering::Acquire) {
            return;
        }
        let (delivery, has_more) = traced::next(caller, frame, number).unwrap_or_else(|| next(caller));
        match delivery {
            None if caller.process.pause.lock().is_killed => await_end(caller),
            None => {
                // No handler took the mask that a suspended call replaced; what that kept back is looked at now.
                let mut thread = caller.thread.signals.lock();
                let Some(mask) = thread.saved_mask.take() else { break };
                thread.set_mask(mask);
            }
            Some(Delivery::Terminate { signal, info, has_core }) => {
                let text = crate::task::report::describe(caller, signal, &info, frame);
                caller.process.end(Ending::Killed { signal, has_core, text });
            }
            Some(Delivery::Stop(signal)) => stop_process(caller, signal),
            Some(Delivery::PassedOver { mut info }) => complete_notice(caller.system, caller.process, &mut info),
            Some(Delivery::Handler { signal, mut info, disposition, mask_before }) => {
                complete_notice(caller.system, caller.process, &mut info);
                caller.thread.resumption.forget();
                if let Some((number, restart)) = interrupted.take() {
                    let starts_again = match restart {
                        Restart::Always => true,
                        Restart::UnlessHandlerForbids => disposition.flags & SA_RESTART != 0,
                        _ => false,
                    };
                    if starts_again {
                        start_again(frame, number);
                    }
                }
                // Whatever comes from now on calls for attention anew.
                if enter_handler(caller, frame, signal, &info, &Caught { disposition, mask_before }) && !has_more {
                    break;
                }
            }
        }
    }
    if let Some((number, restart)) = interrupted
        && restart != Restart::Never
    {
        if let Restart::UnlessHandlerUntil(deadline_ns) = restart {
            caller.thread.resumption.set(frame.rsp, deadline_ns);
        }
        start_again(frame, number);
    }
    if traced::stops(caller) {
        traced::go_back(caller);
    }
}

/// Takes the next signal that is to be acted on; and whether there are more.
#[inline]
fn next(caller: &Caller<'_>) -> (Option<Delivery>, bool) {
    let mut thread = caller.thread.signals.lock();
    let mut shared = caller.process.signals.lock();
    let shared = &mut *shared;
    let delivery = signal::next(&mut thread, &mut shared.pending, &mut shared.dispositions);
    if let Some(Delivery::Stop(_)) = delivery {
        // A continuation discards the signal under these locks, then looks here: it finds one.
        caller.process.pause.lock().is_stopping = true;
    }
    (delivery, thread.has_deliverable(&shared.pending))
}

/// Makes the program execute its `syscall` once more.
fn start_again(frame: &mut UpcallFrame, number: u64) {
    frame.rip = frame.rip.wrapping_sub(SYSCALL_BYTES);
    frame.rax = number;
}

/// A signal whose handler is to be entered; the thread's mask is the handler's already.
#[derive(Clone, Copy, Debug)]
pub struct Caught {
    disposition: Disposition,
    mask_before: SignalSet,
}

/// Takes a signal that the running thread raises itself straight to its handler, without letting it wait. `None`: it is
/// to be raised, and [`finish`] to decide, because it is blocked or has no handler or there is more to look at.
#[inline(always)]
#[must_use]
pub fn catch(caller: &Caller<'_>, signal: Signal) -> Option<Caught> {
    if caller.thread.needs_attention() {
        return None;
    }
    let mut thread = caller.thread.signals.lock();
    let mut shared = caller.process.signals.lock();
    let (disposition, mask_before) = signal::catch(&mut thread, &mut shared.dispositions, signal)?;
    Some(Caught { disposition, mask_before })
}

/// Puts the handler's frame on the stack, and answers true. A stack that cannot hold it is a fault of the program's,
/// which [`finish`] then has to look at.
pub fn enter_handler(
    caller: &Caller<'_>,
    frame: &mut UpcallFrame,
    signal: Signal,
    info: &SignalInfo,
    caught: &Caught,
) -> bool {
    let platform = &caller.system.platform;
    let stack = *caller.thread.stack.lock();
    let Caught { disposition, mask_before } = *caught;
    let entry = Entry { signal, info, disposition, mask_before, stack, vector_format: platform.vector_format() };
    if signal_frame::build(caller.memory, frame, &entry).is_ok() {
        if stack.flags & SS_AUTODISARM != 0 {
            *caller.thread.stack.lock() = signal_frame::AlternateStack::default();
        }
        platform.reset_vector();
        caller.system.counters.signals.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    let mut thread = caller.thread.signals.lock();
    let mut shared = caller.process.signals.lock();
    if signal == Signal::SEGV {
        // The handler of this very signal cannot run: nothing is left but the default.
        thread.mask = thread.mask.union(Signal::SEGV.bit());
    }
    let info = SignalInfo { code: 0x80, ..SignalInfo::default() };
    signal::force(&mut thread, &mut shared.dispositions, Signal::SEGV, info);
    false
}

/// Stops the process: all its threads wait from their next look on. A group that nobody could continue is not stopped
/// by the terminal's signals.
fn stop_process(caller: &Caller<'_>, signal: Signal) {
    let group = *caller.process.group.lock();
    if signal != Signal::STOP && is_orphaned(caller.system, group) {
        return;
    }
    if caller.process.pause.lock().stop(signal) {
        tell_parent(caller.system, caller.process, (ChildChange::Stopped(signal), false));
        caller.process.interrupt_threads();
    }
}

/// Waits for the end that another thread is about to bring, because it has taken `SIGKILL` and has something to say of
/// it. One that was itself ending when it was sent the signal brings none: then this one does.
#[cold]
fn await_end(caller: &Caller<'_>) {
    const END_WAIT_NS: u64 = 10_000_000;
    caller.system.platform.wait(Some(caller.system.kernel.now_ns() + END_WAIT_NS));
    caller.process.end(Ending::Killed { signal: Signal::KILL, has_core: false, text: String::new() });
}

/// Waits until the process is continued or killed. Its continuation wakes its threads.
fn wait_while_stopped(caller: &Caller<'_>, call: Option<u64>) {
    let is_stopped = || caller.process.pause.lock().stopped_by.is_some() && !caller.process.has_ended();
    let is_told = {
        let pause = caller.process.pause.lock();
        // It may have been continued before it came here to wait.
        pause.stopped_by.is_none() && !pause.is_continue_untold
    };
    if is_told || caller.process.has_ended() {
        return;
    }
    *caller.thread.stopped_in.lock() = Some(call);
    while is_stopped() {
        caller.system.platform.wait(None);
    }
    *caller.thread.stopped_in.lock() = None;
    // One thread tells the parent for all.
    if core::mem::take(&mut caller.process.pause.lock().is_continue_untold) {
        tell_parent(caller.system, caller.process, (ChildChange::Continued, false));
    }
}

/// Raises a fault of the program's own, from an exception.
pub fn raise_fault(caller: &Caller<'_>, signal: Signal, info: SignalInfo) {
    let mut thread = caller.thread.signals.lock();
    let mut shared = caller.process.signals.lock();
    signal::force(&mut thread, &mut shared.dispositions, signal, info);
}

/// RAX for the result of a call.
#[must_use]
pub fn result_word(result: Result<u64, Errno>) -> u64 {
    result.unwrap_or_else(errno::to_word)
}
