//! `ptrace(2)`: what a tracer asks of its child, which traces itself.
//!
//! Neighbours: [`crate::task::traced`], which holds where the child has stopped. What is not here (attaching, single
//! steps, registers that are set) is an error by name.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::task::signal::{Signal, SignalInfo};

use crate::abi::user_memory::write_all;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::Process;
use crate::task::signal_frame::encode_info;
use crate::task::traced;
use crate::task::tracer::{GoOn, OPTION_ENDS_WITH_TRACER, OPTION_MARKS_CALLS, Stop};

entries! {
    ptrace: "a child that has itself traced: no attaching, no steps, no registers set; ignored signals do not stop it";
}

/// Requests (`<linux/ptrace.h>`, `<asm/ptrace-abi.h>`).
mod request {
    pub(super) const TRACE_ME: u64 = 0;
    pub(super) const PEEK_TEXT: u64 = 1;
    pub(super) const PEEK_DATA: u64 = 2;
    pub(super) const POKE_TEXT: u64 = 4;
    pub(super) const POKE_DATA: u64 = 5;
    pub(super) const CONTINUE: u64 = 7;
    pub(super) const KILL: u64 = 8;
    pub(super) const GET_REGISTERS: u64 = 12;
    pub(super) const ATTACH: u64 = 16;
    pub(super) const DETACH: u64 = 17;
    pub(super) const TO_CALL: u64 = 24;
    pub(super) const SET_OPTIONS: u64 = 0x4200;
    pub(super) const GET_INFO: u64 = 0x4202;
    pub(super) const SEIZE: u64 = 0x4206;
}

const OPTIONS_KNOWN: u64 = OPTION_MARKS_CALLS | OPTION_ENDS_WITH_TRACER;
const WORD_BYTES: usize = 8;

/// `ptrace(2)`.
pub fn ptrace(context: &mut Context<'_>, [request, pid, address, data, ..]: Arguments) -> Result<u64> {
    if request == request::TRACE_ME {
        return traced::begin(&context.caller).map(|()| 0);
    }
    let target = context.system.processes.named(pid as u32).ok_or(Errno::ESRCH)?;
    if matches!(request, request::ATTACH | request::SEIZE) {
        return Err(Errno::EPERM);
    }
    let tracer = context.process.pid;
    if target.trace.tracer() != tracer || target.pid != pid as u32 {
        return Err(Errno::ESRCH);
    }
    if request == request::KILL {
        target.raise(Signal::KILL, SignalInfo::default());
        return Ok(0);
    }
    target.trace.at_stop(tracer, |_| ())?;
    match request {
        request::PEEK_TEXT | request::PEEK_DATA => peek(context, &target, [address, data]),
        request::POKE_TEXT | request::POKE_DATA => poke(&target, address, data),
        request::CONTINUE => go_on(&target, tracer, data, GoOn::ToSignal),
        request::TO_CALL => go_on(&target, tracer, data, GoOn::ToCall),
        request::DETACH => go_on(&target, tracer, data, GoOn::Untraced),
        request::GET_REGISTERS => {
            let words = target.trace.at_stop(tracer, registers)?;
            write_all(context.memory, data, words.map(u64::to_le_bytes).as_flattened()).map(|()| 0)
        }
        request::GET_INFO => {
            let found = target.trace.at_stop(tracer, |stop| stop.signal.unwrap_or_else(|| of_call(stop)))?;
            write_all(context.memory, data, &encode_info(found.0, &found.1)).map(|()| 0)
        }
        request::SET_OPTIONS if data & !OPTIONS_KNOWN != 0 => Err(Errno::EINVAL),
        request::SET_OPTIONS => target.trace.set_options(tracer, data).map(|()| 0),
        _ => Err(Errno::EIO),
    }
}

/// What a stop at a call says of itself: a trap whose code is its status.
fn of_call(stop: &Stop) -> (Signal, SignalInfo) {
    (Signal::TRAP, SignalInfo { code: i32::from(stop.status), ..SignalInfo::default() })
}

fn go_on(target: &Process, tracer: u32, signal: u64, how: GoOn) -> Result<u64> {
    let signal = if signal == 0 { None } else { Some(Signal::new(signal).map_err(|_| Errno::EIO)?) };
    target.trace.go_on(tracer, signal, how)?;
    target.interrupt_threads();
    Ok(0)
}

/// The word at an address of the child, to the caller's `data`.
fn peek(context: &Context<'_>, target: &Arc<Process>, [address, data]: [u64; 2]) -> Result<u64> {
    let mut word = [0; WORD_BYTES];
    let space = target.space();
    let count = space.lock().read(address, &mut word).map_err(|_| Errno::EIO)?;
    if count < WORD_BYTES {
        return Err(Errno::EIO);
    }
    write_all(context.memory, data, &word).map(|()| 0)
}

/// A word to an address that the child may write itself.
fn poke(target: &Arc<Process>, address: u64, word: u64) -> Result<u64> {
    let space = target.space();
    let count = space.lock().write(address, &word.to_le_bytes()).map_err(|_| Errno::EIO)?;
    if count < WORD_BYTES { Err(Errno::EIO) } else { Ok(0) }
}

/// `struct user_regs_struct`.
fn registers(stop: &Stop) -> [u64; 27] {
    let frame = &stop.registers;
    let call = stop.call.unwrap_or(u64::MAX);
    let general =
        [frame.r15, frame.r14, frame.r13, frame.r12, frame.rbp, frame.rbx, frame.r11, frame.r10, frame.r9, frame.r8];
    let of_call = [frame.rax, frame.rcx, frame.rdx, frame.rsi, frame.rdi, call];
    let place = [frame.rip, frame.cs, frame.rflags, frame.rsp, frame.ss, stop.fs_base];
    let mut words = [0; 27];
    words[..10].copy_from_slice(&general);
    words[10..16].copy_from_slice(&of_call);
    words[16..22].copy_from_slice(&place);
    words
}
