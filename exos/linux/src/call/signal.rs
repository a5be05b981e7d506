//! Signals: dispositions, masks, sending, waiting, the alternate stack, return from a handler.

use alloc::sync::Arc;

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::preempt::Pace;
use exos::task::capability::Capability;
use exos::task::limits::Resource;
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::bytes::get;
use crate::abi::linux::{MINSIGSTKSZ, SI_QUEUE, SI_TKILL, SI_USER, SS_AUTODISARM, SS_DISABLE};
use crate::abi::time::read_timespec;
use crate::abi::user_memory::{read_array, read_words, write_all, write_words};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Caller;
use crate::task::caller::Restart;
use crate::task::process::FIRST_PID;
use crate::task::process::{Process, Thread};
use crate::task::signal_delivery::raise_fault;
use crate::task::signal_frame::{AlternateStack, encode_info, restore};
use crate::task::timers::{complete_notice, forget_signal};

entries! {
    rt_sigaction(SignalNumber, Action, ActionOut, Size);
    rt_sigprocmask(Word(MASK_CHANGES), SignalSetIn, SignalSetOut, Size);
    rt_sigpending(SignalSetOut, Size);
    rt_sigsuspend(SignalSetIn, Size);
    rt_sigtimedwait(SignalSetIn, Pointer, TimeIn, Size);
    rt_sigreturn();
    rt_sigqueueinfo;
    rt_tgsigqueueinfo;
    kill(Int, SignalNumber);
    tkill(Int, SignalNumber);
    tgkill(Int, Int, SignalNumber);
    sigaltstack(Pointer, Pointer);
}

/// Linux's signal sets are 8 bytes; any other size is a program built for another kernel.
fn check_set_size(size: u64) -> Result<()> {
    if size == 8 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn read_set(context: &Context<'_>, address: u64) -> Result<SignalSet> {
    Ok(SignalSet(u64::from_le_bytes(read_array(context.memory, address)?)))
}

/// `rt_sigaction(2)`.
pub fn rt_sigaction(context: &mut Context<'_>, [number, new, old, size, ..]: Arguments) -> Result<u64> {
    change_action(context, [number, new, old, size])
}

/// `rt_sigaction`, which never waits.
#[inline(always)]
pub fn change_action(caller: &Caller<'_>, [number, new, old, size]: [u64; 4]) -> Result<u64> {
    check_set_size(size)?;
    let signal = Signal::new(number)?;
    let wanted = if new == 0 {
        None
    } else {
        let [handler, flags, restorer, mask] = read_words(caller.memory, new)?;
        Some(Disposition { handler, flags, restorer, mask: SignalSet(mask) })
    };
    let (before, is_discarded) = {
        let mut signals = caller.process.signals.lock();
        // A program that starts another resets the action of every signal, and asks for none of those before.
        let before = (old != 0).then(|| signals.dispositions.get(signal));
        let mut is_discarded = false;
        if let Some(disposition) = wanted {
            signals.dispositions.set(signal, disposition)?;
            is_discarded = signals.pending.set().contains(signal) && signals.dispositions.is_ignored(signal);
            if is_discarded {
                signals.pending.discard(signal.bit());
            }
        }
        (before, is_discarded)
    };
    if is_discarded {
        forget_signal(caller.system, caller.process, signal);
    }
    if let Some(before) = before {
        write_words(caller.memory, old, &[before.handler, before.flags, before.restorer, before.mask.0])?;
    }
    Ok(0)
}

/// `rt_sigprocmask(2)`.
pub fn rt_sigprocmask(context: &mut Context<'_>, [how, new, old, size, ..]: Arguments) -> Result<u64> {
    check_set_size(size)?;
    let wanted = if new == 0 { None } else { Some(read_set(context, new)?) };
    let before = context.thread.signals.lock().mask;
    if let Some(set) = wanted {
        let mask = match how {
            0 => before.union(set),
            1 => before.without(set),
            2 => set,
            _ => return Err(Errno::EINVAL),
        };
        context.thread.set_mask(context.process, mask);
    }
    if old != 0 {
        write_all(context.memory, old, &before.0.to_le_bytes())?;
    }
    Ok(0)
}

/// `rt_sigpending(2)`.
pub fn rt_sigpending(context: &mut Context<'_>, [address, size, ..]: Arguments) -> Result<u64> {
    if size > 8 {
        return Err(Errno::EINVAL);
    }
    let set = {
        let thread = context.thread.signals.lock();
        let shared = context.process.signals.lock();
        SignalSet(thread.pending.set().union(shared.pending.set()).0 & thread.mask.0)
    };
    write_all(context.memory, address, &set.0.to_le_bytes()[..size as usize])?;
    Ok(0)
}

/// `rt_sigsuspend(2)`.
pub fn rt_sigsuspend(context: &mut Context<'_>, [address, size, ..]: Arguments) -> Result<u64> {
    check_set_size(size)?;
    let mask = read_set(context, address)?;
    install_temporary_mask(context, mask);
    loop {
        context.wait(None)?;
    }
}

/// Replaces the mask until the call is over and a handler, if any, has returned (`sigsuspend`, `ppoll`, `pselect`,
/// `epoll_pwait`).
pub(crate) fn install_temporary_mask(context: &mut Context<'_>, mask: SignalSet) {
    {
        let mut signals = context.thread.signals.lock();
        signals.saved_mask = Some(signals.mask);
    }
    context.thread.set_mask(context.process, mask);
    context.restart = Restart::UnlessHandler;
}

/// Reads the optional mask of `ppoll`-like calls and installs it.
pub(crate) fn install_optional_mask(context: &mut Context<'_>, address: u64, size: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    check_set_size(size)?;
    let mask = read_set(context, address)?;
    install_temporary_mask(context, mask);
    Ok(())
}

/// `rt_sigtimedwait(2)`.
pub fn rt_sigtimedwait(context: &mut Context<'_>, [set, info, timeout, size, ..]: Arguments) -> Result<u64> {
    check_set_size(size)?;
    let wanted = read_set(context, set)?.without(SignalSet::UNSTOPPABLE);
    let deadline_ns = match timeout {
        0 => None,
        address => Some(context.now_ns().saturating_add(read_timespec(context.memory, address)?)),
    };
    let mut outcome = Ok(());
    loop {
        let taken = {
            let mut thread = context.thread.signals.lock();
            let mut shared = context.process.signals.lock();
            thread.pending.take(wanted).or_else(|| shared.pending.take(wanted))
        };
        if let Some((signal, mut information)) = taken {
            complete_notice(context.system, context.process, &mut information);
            if info != 0 {
                write_all(context.memory, info, &encode_info(signal, &information))?;
            }
            return Ok(u64::from(signal.number()));
        }
        // Whatever interrupted the wait: what is waited for is taken first, blocked or not.
        outcome?;
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::EAGAIN);
        }
        outcome = context.wait(deadline_ns);
    }
}

/// The sender: the calling process.
fn sender(context: &Context<'_>, code: i32) -> SignalInfo {
    let uid = context.thread.identities.lock().uid[0];
    SignalInfo { code, errno: 0, payload: SignalPayload::Sender { pid: context.process.pid, uid, value: 0 } }
}

/// Signal 0 only asks whether the target exists.
pub(super) fn signal_or_probe(number: u64) -> Result<Option<Signal>> {
    if number == 0 { Ok(None) } else { Signal::new(number).map(Some) }
}

/// Whether the caller may send `signal` to `target` (`kill(2)`).
fn may_signal(context: &Context<'_>, target: &Process, signal: Option<Signal>) -> bool {
    if target.pid == context.process.pid {
        return true;
    }
    let own = context.thread.identities.lock().uid;
    let theirs = target.identities.lock().uid;
    let is_same_user = [own[0], own[1]].iter().any(|uid| *uid == theirs[0] || *uid == theirs[2]);
    // One lock after the other: two processes that signal each other would wait for each other's.
    let own_session = *context.process.session.lock();
    let is_same_session = *target.session.lock() == own_session;
    context.can(Capability::KILL) || is_same_user || signal == Some(Signal::CONT) && is_same_session
}

/// Sends to one process; a zombie takes everything and does nothing.
pub(super) fn send(context: &Context<'_>, target: &Process, signal: Option<Signal>, info: SignalInfo) -> Result<()> {
    if !may_signal(context, target, signal) {
        return Err(Errno::EPERM);
    }
    if let Some(signal) = signal
        && info.code != SI_USER
        && signal.is_real_time()
        && target.pending_count() as u64 >= target.limits.lock().soft(Resource::PendingSignals)
    {
        return Err(Errno::EAGAIN);
    }
    signal.filter(|signal| !target.spares(*signal)).map_or(Ok(()), |signal| target.queue(signal, info))
}

/// `kill(2)`.
pub fn kill(context: &mut Context<'_>, [pid, number, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    let pid = pid as u32 as i32;
    let processes = &context.system.processes;
    // Copied out: looking for members takes this lock too.
    let own_group = *context.process.group.lock();
    let info = sender(context, SI_USER);
    let mut outcome = Err(Errno::ESRCH);
    let mut pace = Pace::default();
    let mut tell = |target: Arc<Process>| {
        pace.offer_page();
        match send(context, &target, signal, info) {
            Ok(()) => outcome = Ok(0),
            // Processes that a signal to all may not reach are no error.
            Err(_) if pid == -1 => outcome = Ok(0),
            Err(error) if outcome.is_err() => outcome = Err(error),
            Err(_) => {}
        }
    };
    match pid {
        i32::MIN => {}
        0 => processes.in_group(own_group).for_each(tell),
        -1 => {
            let spared = |process: &Arc<Process>| process.pid != FIRST_PID && process.pid != context.process.pid;
            processes.all().filter(spared).for_each(tell);
        }
        pid if pid < 0 => processes.in_group(pid.unsigned_abs()).for_each(tell),
        pid => processes.named(pid.unsigned_abs()).into_iter().for_each(&mut tell),
    }
    outcome
}

/// A thread by its number, and its process.
fn find_thread(context: &Context<'_>, pid: Option<u32>, tid: u32) -> Result<(Arc<Process>, Arc<Thread>)> {
    if tid == context.thread.tid() && pid.is_none_or(|pid| pid == context.process.pid) {
        return Ok((context.process.clone(), context.thread.clone()));
    }
    let processes = &context.system.processes;
    let of = |process: Arc<Process>| process.thread(tid).map(|thread| (process, thread));
    let found = match pid {
        Some(pid) => processes.get(pid).and_then(of),
        None => processes.all().find_map(of),
    };
    found.ok_or(Errno::ESRCH)
}

fn send_to_thread(
    context: &Context<'_>,
    pid: Option<u32>,
    tid: u64,
    signal: Option<Signal>,
    info: SignalInfo,
) -> Result<u64> {
    if tid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let (process, thread) = match find_thread(context, pid, tid as u32) {
        Ok(found) => found,
        Err(error) => {
            // A process that has ended takes everything and does nothing.
            let ended = context.system.processes.get(tid as u32).filter(|ended| pid.is_none_or(|pid| pid == ended.pid));
            let ended = ended.ok_or(error)?;
            return if may_signal(context, &ended, signal) { Ok(0) } else { Err(Errno::EPERM) };
        }
    };
    if !may_signal(context, &process, signal) {
        return Err(Errno::EPERM);
    }
    if let Some(signal) = signal.filter(|signal| !process.spares(*signal)) {
        process.raise_in_thread(&thread, signal, info)?;
    }
    Ok(0)
}

/// `tkill(2)`.
pub fn tkill(context: &mut Context<'_>, [tid, number, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    send_to_thread(context, None, tid, signal, sender(context, SI_TKILL))
}

/// `tgkill(2)`.
pub fn tgkill(context: &mut Context<'_>, [pid, tid, number, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    if pid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    send_to_thread(context, Some(pid as u32), tid, signal, sender(context, SI_TKILL))
}

/// What a program passes as `siginfo_t`. `EPERM`: codes that only the kernel may use, sent to others.
fn read_info(context: &Context<'_>, address: u64, to_others: bool) -> Result<SignalInfo> {
    let bytes: [u8; 32] = read_array(context.memory, address)?;
    let code = get::i32(&bytes, 8);
    if to_others && (code >= 0 || code == SI_TKILL) {
        return Err(Errno::EPERM);
    }
    let payload =
        SignalPayload::Sender { pid: get::u32(&bytes, 16), uid: get::u32(&bytes, 20), value: get::u64(&bytes, 24) };
    Ok(SignalInfo { code: if code == 0 { SI_QUEUE } else { code }, errno: get::i32(&bytes, 4), payload })
}

/// What `pidfd_send_signal` sends: what the program passes for this very signal, or as `kill` does.
pub(super) fn user_info(context: &Context<'_>, address: u64, number: u64, pid: u32) -> Result<SignalInfo> {
    if address == 0 {
        return Ok(sender(context, SI_USER));
    }
    let bytes: [u8; 128] = read_array(context.memory, address)?;
    if get::u32(&bytes, 0) != number as u32 {
        return Err(Errno::EINVAL);
    }
    read_info(context, address, pid != context.process.pid)
}

/// `rt_sigqueueinfo(2)`.
pub fn rt_sigqueueinfo(context: &mut Context<'_>, [pid, number, info, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    let info = read_info(context, info, pid as u32 != context.process.pid)?;
    let target = context.system.processes.named(pid as u32).ok_or(Errno::ESRCH)?;
    send(context, &target, signal, info).map(|()| 0)
}

/// `rt_tgsigqueueinfo(2)`.
pub fn rt_tgsigqueueinfo(context: &mut Context<'_>, [pid, tid, number, info, ..]: Arguments) -> Result<u64> {
    if pid as u32 as i32 <= 0 || tid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let signal = signal_or_probe(number)?;
    // As on Linux, the kernel's own senders may be named by the thread itself alone.
    let info = read_info(context, info, tid as u32 != context.thread.tid())?;
    send_to_thread(context, Some(pid as u32), tid, signal, info)
}

/// `sigaltstack(2)`.
pub fn sigaltstack(context: &mut Context<'_>, [new, old, ..]: Arguments) -> Result<u64> {
    let wanted = if new == 0 {
        None
    } else {
        let bytes: [u8; 24] = read_array(context.memory, new)?;
        Some(AlternateStack { base: get::u64(&bytes, 0), flags: get::u32(&bytes, 8), length: get::u64(&bytes, 16) })
    };
    let rsp = context.frame.rsp;
    let before = *context.thread.stack.lock();
    if let Some(stack) = wanted {
        *context.thread.stack.lock() = check_stack(stack, before.contains(rsp))?;
    }
    if old != 0 {
        write_all(context.memory, old, &before.encode(rsp))?;
    }
    Ok(0)
}

fn check_stack(stack: AlternateStack, is_in_use: bool) -> Result<AlternateStack> {
    if is_in_use {
        return Err(Errno::EPERM);
    }
    let mode = stack.flags & !SS_AUTODISARM;
    match mode {
        SS_DISABLE => Ok(AlternateStack { flags: mode | stack.flags & SS_AUTODISARM, base: 0, length: 0 }),
        // SS_ONSTACK is accepted as 0 for old programs, as on Linux.
        0 | 1 if stack.length < MINSIGSTKSZ => Err(Errno::ENOMEM),
        0 | 1 => Ok(AlternateStack { flags: stack.flags & SS_AUTODISARM, ..stack }),
        _ => Err(Errno::EINVAL),
    }
}

/// `rt_sigreturn(2)`.
pub fn rt_sigreturn(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.replaces_registers = true;
    return_from_handler(&context.caller, context.frame);
    Ok(0)
}

/// Puts back what the frame of a handler holds, as the handler has changed it. A frame that cannot be taken back is a
/// fault of the program's.
pub fn return_from_handler(target: &Caller<'_>, frame: &mut UpcallFrame) {
    let platform = &target.system.platform;
    let Ok(restored) = restore(target.memory, frame, platform.vector_format()) else {
        platform.reset_vector();
        let info = SignalInfo { code: 0x80, ..SignalInfo::default() };
        raise_fault(target, Signal::SEGV, info);
        target.thread.call_attention();
        return;
    };
    if !restored.has_vector {
        platform.reset_vector();
    }
    target.thread.set_mask(target.process, restored.mask);
    // What a handler leaves in uc_stack is taken if it could have been set by sigaltstack.
    let mut stack = target.thread.stack.lock();
    if *stack != restored.stack
        && let Ok(changed) = check_stack(restored.stack, stack.contains(frame.rsp))
    {
        *stack = changed;
    }
}
