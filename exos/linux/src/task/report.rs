//! The line for the user when a signal ends the program: what happened, and where.
//!
//! Signals that somebody sends to end a program (`SIGTERM`, `SIGINT`, a broken pipe) have no line;
//! faults have one with the address, the kind of access and the place in the program's files as
//! [`crate::task::symbol`] finds it. All work is bounded and nothing fails: what cannot be found out is
//! left away.

use alloc::format;
use alloc::string::String;

use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use exos::mem::AreaFlags;
use exos::mem::area::STACK_GUARD_BYTES;
use exos::task::limits::{Resource, UNLIMITED};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::abi::linux::SI_KERNEL;
use crate::task::caller::Caller;
use crate::task::exception::{PAGE_FAULT_FETCH, PAGE_FAULT_WRITE, VECTOR_PAGE_FAULT};
use crate::task::symbol::locate;

/// Vector of the general protection fault.
const VECTOR_GENERAL_PROTECTION: u64 = 13;

/// The line, without an end of line; empty where there is nothing to say.
#[must_use]
pub fn describe(caller: &Caller<'_>, signal: Signal, info: &SignalInfo, frame: &UpcallFrame) -> String {
    let name = program_name(caller);
    let is_fault = matches!(info.payload, SignalPayload::Fault { .. });
    let is_sent = info.code <= 0 && !is_fault;
    let what = match signal {
        Signal::KILL if info.code == SI_KERNEL => {
            let (limit_bytes, _) = caller.system.memory_bytes();
            return format!("{name}: killed: out of memory (limit {} MiB; -m gives more)", limit_bytes >> 20);
        }
        Signal::TERM | Signal::INT | Signal::KILL | Signal::HUP | Signal::PIPE => {
            return String::new();
        }
        Signal::ABRT => return format!("{name}: aborted (SIGABRT)"),
        Signal::QUIT => return format!("{name}: quit (SIGQUIT)"),
        Signal::SEGV => "segmentation fault (SIGSEGV)",
        Signal::BUS => "bus error (SIGBUS)",
        Signal::ILL => "illegal instruction (SIGILL)",
        Signal::FPE => "arithmetic error (SIGFPE)",
        Signal::TRAP => "trap (SIGTRAP)",
        Signal::SYS => "bad system call (SIGSYS)",
        other => {
            return format!("{name}: ended by signal {} ({})", other.number(), signal_name(other));
        }
    };
    if is_sent {
        return match info.payload {
            SignalPayload::Sender { pid, .. } => format!("{name}: {what}, sent by process {pid}"),
            _ => format!("{name}: {what}"),
        };
    }
    let cause = cause(caller, signal, info, frame);
    let separator = if cause.is_empty() { "" } else { ": " };
    format!("{name}: {what}{separator}{cause} at {:#x}{}", frame.rip, place(caller, frame))
}

/// The command's name; the file's full name where the command's is only its beginning.
fn program_name(caller: &Caller<'_>) -> String {
    let name = caller.thread.name.lock().clone();
    let image = caller.process.image.lock();
    let file = image.executable.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let chosen = if file.starts_with(&name) { file } else { &name };
    format!("{}", chosen.escape_ascii())
}

/// What the instruction tried.
fn cause(caller: &Caller<'_>, signal: Signal, info: &SignalInfo, frame: &UpcallFrame) -> String {
    if is_page_fault(frame) {
        let address = frame.fault_address;
        let access = if frame.error_code & PAGE_FAULT_FETCH != 0 {
            "jump to"
        } else if frame.error_code & PAGE_FAULT_WRITE != 0 {
            "store to"
        } else {
            "load from"
        };
        let reason = match (signal, info.code) {
            (Signal::BUS, 2) => String::from(", behind the end of the mapped file,"),
            (Signal::SEGV, 2) => String::from(", which does not allow it,"),
            _ => stack_overflow(caller, address),
        };
        return format!("{access} {address:#x}{reason}");
    }
    match (signal, info.code, frame.vector) {
        (Signal::SEGV, SI_KERNEL, VECTOR_GENERAL_PROTECTION) => {
            String::from("address that is none, or privileged instruction,")
        }
        (Signal::SEGV, SI_KERNEL, _) => String::from("no room on the stack for a signal's handler"),
        (Signal::FPE, 0, _) => String::from("floating-point exception"),
        (Signal::FPE, 1, _) => String::from("integer division by zero or overflow"),
        (Signal::BUS, 1, _) => String::from("misaligned access"),
        _ => String::new(),
    }
}

fn is_page_fault(frame: &UpcallFrame) -> bool {
    frame.kind == UpcallKind::Exception as u32 && frame.vector == VECTOR_PAGE_FAULT
}

/// Says so if `address` lies just below a stack that has grown as far as it may.
fn stack_overflow(caller: &Caller<'_>, address: u64) -> String {
    let is_below_stack = {
        let memory = caller.process.space();
        let space = memory.lock();
        space.areas().any(|area| {
            let distance = area.start().checked_sub(address);
            area.flags().contains(AreaFlags::GROWS_DOWN) && distance.is_some_and(|bytes| bytes <= STACK_GUARD_BYTES)
        })
    };
    match caller.process.limits.lock().soft(Resource::Stack) {
        _ if !is_below_stack => String::new(),
        UNLIMITED => String::from(" (the stack is full)"),
        limit_bytes => format!(" (the stack is full: its limit is {} KiB)", limit_bytes >> 10),
    }
}

/// ` in FUNCTION+OFFSET (FILE+ADDRESS)`; after a jump to nowhere, where it came from if the stack
/// tells.
fn place(caller: &Caller<'_>, frame: &UpcallFrame) -> String {
    let find = |address| locate(&caller.system.pool, &caller.process.space(), address);
    if let Some(place) = find(frame.rip) {
        return format!(" in {place}");
    }
    let mut word = [0; 8];
    match caller.memory.copy_in(frame.rsp, &mut word) {
        Ok(8) => {}
        _ => return String::new(),
    }
    // A call leaves the address behind itself on the stack; the byte before that one is the call's.
    let caller = u64::from_le_bytes(word).saturating_sub(1);
    match find(caller) {
        Some(place) if place.function.is_some() => format!(", called in {place}"),
        _ => String::new(),
    }
}

/// `SIGUSR1` and so on; `SIGRT_n` for real-time signals, counted from the first as strace does.
#[must_use]
pub fn signal_name(signal: Signal) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(usize::from(signal.number()) - 1) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIGRT_{}", signal.number() - 32),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
