//! From traps to the core and back: one lock around the state, one place where contexts are exchanged.
//!
//! Every trap of ring 3 or of the idle loop comes to [`enter`]: lock, let the core decide, load what it decided,
//! unlock. Two kinds of upcall need no decision and no lock, as they reach only pages that stay pinned while their
//! virtual processor runs here: a program's system call, which never comes here, and an exception ([`exception`]). What
//! was delivered so is counted at the next entry. Whoever was stopped from elsewhere meanwhile is on its way in.

use aegis_abi::upcall::UpcallKind;
use aegis_kernel_core::id::{CpuId, Id};
use aegis_kernel_core::processor::Pages;
use aegis_kernel_core::state::{Decision, State};
use aegis_machine as machine;
use machine::{Handlers, KernelLock, TrapFrame, UserBases, VECTOR_RESCHEDULE, VECTOR_TIMER};

use crate::hardware::{Hardware, Physical};

/// The kernel's state.
pub(crate) static KERNEL: KernelLock<State<'static, Hardware>> = KernelLock::new(State::new(Hardware::new()));

/// What to do about each kind of trap.
pub(crate) static HANDLERS: Handlers = Handlers {
    kernel_call: |frame| enter(frame, State::on_syscall),
    program_syscall: |frame| enter(frame, State::on_syscall),
    exception,
    interrupt,
};

/// This processor's name.
pub(crate) fn this_cpu() -> CpuId {
    CpuId::from_index(machine::processor_index())
        .expect("INV-3: the machine starts no more processors than the core has names for")
}

/// Runs one event of the core and does what it decided.
pub(crate) fn enter(
    frame: &mut TrapFrame,
    event: impl FnOnce(&mut State<'static, Hardware>, CpuId, &mut TrapFrame) -> Decision,
) {
    let cpu = this_cpu();
    let mut state = KERNEL.lock();
    let syscalls = machine::take_syscall_upcall_count();
    let exceptions = core::mem::take(&mut RUNNING[cpu.index()].lock().1);
    if syscalls | exceptions != 0
        && let Some(processor) = state.current(cpu)
    {
        state.count_upcalls(processor, syscalls, exceptions);
    }
    let decision = event(&mut state, cpu, frame);
    if decision.is_switch() {
        exchange(&mut state, &decision);
    }
    if decision.next.is_none() {
        *frame = machine::idle_frame();
    }
    match decision.deadline_ns {
        None => {}
        Some(u64::MAX) => machine::timer_stop(),
        Some(deadline_ns) => machine::timer_set_ns(deadline_ns.saturating_sub(machine::now_ns()).max(1)),
    }
}

/// For each processor where the upcalls of who runs on it go, and the exceptions that were delivered there. Each takes
/// its own lock only, with interrupts off, so nobody waits for one.
static RUNNING: [KernelLock<(Option<Pages>, u64)>; machine::PROCESSOR_COUNT_MAX] =
    [const { KernelLock::new((None, 0)) }; machine::PROCESSOR_COUNT_MAX];

/// An exception of user mode: told to the library OS without the kernel's lock, unless it cannot be.
fn exception(frame: &mut TrapFrame) {
    let mut running = RUNNING[machine::processor_index()].lock();
    let (pages, exceptions) = &mut *running;
    if pages.is_some_and(|pages| pages.push(&mut Physical, UpcallKind::Exception, frame).is_ok()) {
        *exceptions += 1;
        return;
    }
    drop(running);
    enter(frame, State::on_exception);
}

/// Saves what the one who leaves has in registers that the trap frame does not hold, and loads the next one's.
fn exchange(state: &mut State<'static, Hardware>, decision: &Decision) {
    if let Some(previous) = decision.previous {
        let bases = machine::user_bases();
        let frame = state.save_context(previous, bases.fs, bases.gs);
        // A processor that was unmade meanwhile has no frame any more.
        if frame.0 != 0 {
            machine::vector_save(frame);
        }
    }
    let Some(next) = decision.next else {
        RUNNING[machine::processor_index()].lock().0 = None;
        machine::set_upcall_control(None);
        state.machine.activate(None);
        return;
    };
    let context = state.context(next);
    state.machine.activate(Some((context.root, context.environment)));
    machine::set_user_bases(UserBases { fs: context.fs_base, gs: context.gs_base });
    let is_valid = machine::vector_restore(context.vector_state);
    assert!(is_valid, "INV-4: nobody but the kernel writes vector state");
    machine::set_upcall_control(Some(context.pages.control()));
    RUNNING[machine::processor_index()].lock().0 = Some(context.pages);
}

/// An interrupt, by its vector.
fn interrupt(frame: &mut TrapFrame, vector: u8) {
    match vector {
        VECTOR_TIMER => enter(frame, State::on_timer),
        VECTOR_RESCHEDULE => enter(frame, State::on_kick),
        _ => enter(frame, |state, cpu, frame| match state.machine.device_of(vector) {
            Some((device, interrupt)) => state.on_interrupt(cpu, frame, device, interrupt),
            None => state.on_kick(cpu, frame),
        }),
    }
}
