//! Signals: dispositions, masks, sending, waiting, the alternate stack, return from a handler.

use exos::error::{Errno, Result};
use exos::task::signal::{Disposition, Signal, SignalInfo, SignalPayload, SignalSet};

use crate::abi::bytes::{Encoder, get};
use crate::abi::time::read_timespec;
use crate::context::{Arguments, Context, Restart};
use crate::signal_frame::{AlternateStack, STACK_AUTO_DISARM, STACK_BYTES_MIN, STACK_DISABLE, encode_info, restore};
use crate::user::{read_array, write_all};

/// `SI_USER`.
const CODE_USER: i32 = 0;
/// `SI_QUEUE`.
const CODE_QUEUE: i32 = -1;
/// `SI_TKILL`.
const CODE_THREAD: i32 = -6;

/// Linux's signal sets are 8 bytes; any other size is a program built for another kernel.
fn check_set_size(size: u64) -> Result<()> {
    if size == 8 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn read_set(context: &Context<'_>, address: u64) -> Result<SignalSet> {
    Ok(SignalSet(u64::from_le_bytes(read_array(context.memory, address)?)))
}

/// `rt_sigaction(2)`.
pub fn rt_sigaction(context: &mut Context<'_>, [number, new, old, size, ..]: Arguments) -> Result<u64> {
    check_set_size(size)?;
    let signal = Signal::new(number)?;
    let wanted = if new == 0 {
        None
    } else {
        let bytes: [u8; 32] = read_array(context.memory, new)?;
        Some(Disposition {
            handler: get::u64(&bytes, 0),
            flags: get::u64(&bytes, 8),
            restorer: get::u64(&bytes, 16),
            mask: SignalSet(get::u64(&bytes, 24)),
        })
    };
    let before = {
        let mut signals = context.process.signals.lock();
        let before = signals.dispositions.get(signal);
        if let Some(disposition) = wanted {
            signals.dispositions.set(signal, disposition)?;
            if signals.dispositions.is_ignored(signal) {
                signals.pending.discard(signal.bit());
            }
        }
        before
    };
    if old != 0 {
        let bytes =
            Encoder::new().u64(before.handler).u64(before.flags).u64(before.restorer).u64(before.mask.0).finish();
        write_all(context.memory, old, &bytes)?;
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
        context.thread.signals.lock().set_mask(mask);
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
    let mut signals = context.thread.signals.lock();
    let before = signals.mask;
    signals.saved_mask = Some(before);
    signals.set_mask(mask);
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
    loop {
        let taken = {
            let mut thread = context.thread.signals.lock();
            let mut shared = context.process.signals.lock();
            thread.pending.take(wanted).or_else(|| shared.pending.take(wanted))
        };
        if let Some((signal, information)) = taken {
            if info != 0 {
                write_all(context.memory, info, &encode_info(signal, &information))?;
            }
            return Ok(u64::from(signal.number()));
        }
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::EAGAIN);
        }
        context.wait(deadline_ns)?;
    }
}

/// Who sends: ourselves.
fn sender(context: &Context<'_>, code: i32) -> SignalInfo {
    let uid = context.process.identities.lock().uid[0];
    SignalInfo { code, errno: 0, payload: SignalPayload::Sender { pid: context.process.pid, uid, value: 0 } }
}

/// Signal 0 only asks whether the target exists.
fn signal_or_probe(number: u64) -> Result<Option<Signal>> {
    if number == 0 { Ok(None) } else { Signal::new(number).map(Some) }
}

/// `kill(2)`.
pub fn kill(context: &mut Context<'_>, [pid, number, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    let pid = pid as u32 as i32;
    let group = *context.process.group.lock() as i32;
    let is_own = pid == context.process.pid as i32 || pid == 0 || pid == -group;
    // -1 means all others that one may signal; there are none besides the first process, which is spared.
    if !is_own {
        return Err(Errno::ESRCH);
    }
    if let Some(signal) = signal {
        context.process.raise(signal, sender(context, CODE_USER));
    }
    Ok(0)
}

/// Raises in the calling thread alone.
fn raise_in_thread(context: &Context<'_>, signal: Signal, info: SignalInfo) -> Result<()> {
    let is_ignored = context.process.signals.lock().dispositions.is_ignored(signal);
    let mut thread = context.thread.signals.lock();
    if is_ignored && !thread.mask.contains(signal) {
        return Ok(());
    }
    thread.pending.raise(signal, info)
}

/// `tkill(2)`.
pub fn tkill(context: &mut Context<'_>, [tid, number, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    if tid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if tid as u32 != context.thread.tid {
        return Err(Errno::ESRCH);
    }
    if let Some(signal) = signal {
        raise_in_thread(context, signal, sender(context, CODE_THREAD))?;
    }
    Ok(0)
}

/// `tgkill(2)`.
pub fn tgkill(context: &mut Context<'_>, [pid, tid, number, ..]: Arguments) -> Result<u64> {
    if pid as u32 as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if pid as u32 != context.process.pid {
        signal_or_probe(number)?;
        return Err(Errno::ESRCH);
    }
    tkill(context, [tid, number, 0, 0, 0, 0])
}

/// `rt_sigqueueinfo(2)`: only to oneself, or with a code that the kernel never uses.
pub fn rt_sigqueueinfo(context: &mut Context<'_>, [pid, number, info, ..]: Arguments) -> Result<u64> {
    let signal = signal_or_probe(number)?;
    let bytes: [u8; 32] = read_array(context.memory, info)?;
    if pid as u32 != context.process.pid {
        return Err(Errno::ESRCH);
    }
    let code = get::i32(&bytes, 8);
    let Some(signal) = signal else { return Ok(0) };
    let payload =
        SignalPayload::Sender { pid: get::u32(&bytes, 16), uid: get::u32(&bytes, 20), value: get::u64(&bytes, 24) };
    let info = SignalInfo { code: if code == 0 { CODE_QUEUE } else { code }, errno: get::i32(&bytes, 4), payload };
    let mut signals = context.process.signals.lock();
    if !signals.dispositions.is_ignored(signal) {
        signals.pending.raise(signal, info)?;
    }
    Ok(0)
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
    let mode = stack.flags & !STACK_AUTO_DISARM;
    match mode {
        STACK_DISABLE => Ok(AlternateStack::default()),
        // SS_ONSTACK is accepted as 0 for old programs, as on Linux.
        0 | 1 if stack.length < STACK_BYTES_MIN => Err(Errno::ENOMEM),
        0 | 1 => Ok(AlternateStack { flags: stack.flags & STACK_AUTO_DISARM, ..stack }),
        _ => Err(Errno::EINVAL),
    }
}

/// `rt_sigreturn(2)`.
pub fn rt_sigreturn(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.replaces_registers = true;
    let platform = context.system.platform.clone();
    let format = platform.vector_format();
    let outcome = context.thread.vector.lend(|vector| {
        let restored = restore(context.memory, context.frame, format, vector)?;
        platform.load_vector(restored.has_vector.then_some(&vector.bytes()[..]));
        Ok::<_, Errno>(restored)
    });
    match outcome {
        Ok(restored) => {
            context.thread.signals.lock().set_mask(restored.mask);
            // What a handler leaves in uc_stack is taken if it could have been set by sigaltstack.
            let is_in_use = context.thread.stack.lock().contains(context.frame.rsp);
            if let Ok(stack) = check_stack(restored.stack, is_in_use) {
                *context.thread.stack.lock() = stack;
            }
        }
        Err(_) => {
            let info = SignalInfo { code: 0x80, ..SignalInfo::default() };
            let mut thread = context.thread.signals.lock();
            let mut shared = context.process.signals.lock();
            exos::task::signal::force(&mut thread, &mut shared.dispositions, Signal::SEGV, info);
        }
    }
    Ok(0)
}
