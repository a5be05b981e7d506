//! Upcalls: a program's system calls and faults, faults of exos's own copies, bells.
//!
//! Invariant: asynchronous upcalls are masked while these run (the kernel masks on delivery, resume unmasks), so a
//! handler is interrupted by its own page faults only.

use aegis_abi::layout::{LIBOS_BASE, LIBOS_IMAGE_BASE, PROGRAM_END};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use aegis_rt::control;
use aegis_rt::upcall::KIND_HELD_BACK;
use core::sync::atomic::Ordering;
use exos::error::{Errno, Result};
use exos::task::signal::{Signal, SignalInfo};
use exos_linux::context::{Context, Restart};
use exos_linux::deliver::{EndedCall, Target, finish, raise_fault, result_word};
use exos_linux::exception::{PAGE_FAULT_FETCH, VECTOR_PAGE_FAULT, signal_for, signal_for_fault};
use exos_linux::memory::FaultResult;
use exos_linux::user::UserMemory;
use exos_linux::{table, trace};

use super::run::{RUN, Run, end};
use super::{HEAP_BASE, user};

/// RFLAGS: trap after each instruction.
const TRAP_FLAG: u64 = 1 << 8;

/// The program's memory through faulting copies.
pub(crate) struct ProgramMemory;

impl UserMemory for ProgramMemory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        user::copy_in(address, into)
    }
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        user::copy_out(address, from)
    }
}

fn run() -> &'static Run {
    RUN.get().expect("upcalls are registered after the run has begun")
}

fn target(run: &Run) -> Target<'_> {
    Target { system: &run.pod.system, process: &run.pod.process, thread: &run.pod.thread, memory: &ProgramMemory }
}

/// A program's `syscall`.
pub(crate) extern "C" fn syscall(frame: &mut UpcallFrame) {
    let run = run();
    let number = frame.rax;
    let arguments = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    run.pod.system.counters.syscalls_trapped.fetch_add(1, Ordering::Relaxed);
    let mut context = Context {
        system: &run.pod.system,
        process: &run.pod.process,
        thread: &run.pod.thread,
        memory: &ProgramMemory,
        frame,
        replaces_registers: false,
        restart: Restart::Never,
    };
    let shown = run.pod.system.options.trace.then(|| trace::enter(&context, number, arguments));
    let result = table::dispatch(&mut context, number, arguments);
    if let Some(pending) = shown {
        let line = pending.finish(&context, result);
        run.pod.system.platform.trace(&line);
    }
    let Context { replaces_registers, restart, .. } = context;
    if !replaces_registers {
        frame.rax = result_word(result);
    }
    let interrupted = (result == Err(Errno::EINTR)).then_some(restart);
    leave(run, frame, Some(EndedCall { number, interrupted }));
}

/// Acts on signals, and ends the run if the process has ended.
fn leave(run: &Run, frame: &mut UpcallFrame, ended: Option<EndedCall>) {
    finish(&target(run), frame, ended);
    if frame.rflags & TRAP_FLAG != 0 {
        // Resuming into a single step needs an `iretq` that QEMU before 9.1 cannot do (docs/adr/0003): the program
        // gets the trap that it has had and runs on without more.
        frame.rflags &= !TRAP_FLAG;
    }
    if run.pod.process.has_ended() {
        end(run);
    }
}

/// Everything else.
pub(crate) extern "C" fn other(frame: &mut UpcallFrame) {
    let run = run();
    if frame.kind == UpcallKind::Exception as u32 {
        return exception(run, frame);
    }
    if frame.kind == KIND_HELD_BACK {
        control::take_pending();
    }
    run.platform.absorb();
    if frame.rip < LIBOS_BASE {
        leave(run, frame, None);
    }
}

fn exception(run: &Run, frame: &mut UpcallFrame) {
    // A program that jumps to an upper address where no code is faults there as anywhere else; exos itself never does.
    let is_wild_jump = frame.error_code & PAGE_FAULT_FETCH != 0 && frame.vector == VECTOR_PAGE_FAULT;
    if (LIBOS_IMAGE_BASE..HEAP_BASE).contains(&frame.rip) && !is_wild_jump {
        return own_exception(run, frame);
    }
    let (signal, info) = if frame.vector == VECTOR_PAGE_FAULT {
        match run.pod.process.space.resolve(frame) {
            FaultResult::Resolved(_) => return,
            FaultResult::Failed(cause) => signal_for_fault(frame.fault_address, cause),
            FaultResult::OutOfMemory => (Signal::KILL, SignalInfo { code: 0x80, ..SignalInfo::default() }),
        }
    } else {
        signal_for(frame)
    };
    raise_fault(&target(run), signal, info);
    leave(run, frame, None);
}

/// A fault of exos itself: a copy from or to the program, or a bug.
fn own_exception(run: &Run, frame: &mut UpcallFrame) {
    let stop = user::fixup(frame.rip);
    let is_copy = frame.vector == VECTOR_PAGE_FAULT && frame.fault_address < PROGRAM_END;
    match stop {
        Some(stop) if is_copy => {
            if !matches!(run.pod.process.space.resolve(frame), FaultResult::Resolved(_)) {
                frame.rip = stop;
            }
        }
        _ => panic!(
            "exception {} in exos at {:#x}, address {:#x}, error {:#x}",
            frame.vector, frame.rip, frame.fault_address, frame.error_code
        ),
    }
}
