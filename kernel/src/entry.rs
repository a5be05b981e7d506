//! From traps to the core and back: one lock around the state, one place where contexts are exchanged.
//!
//! Every trap of ring 3 or of the idle loop comes to [`enter`]: lock, let the core decide, load what it decided,
//! unlock. Two kinds of upcall need no decision and no lock, as they reach only pages that stay pinned while their
//! virtual processor runs here: a program's system call and an exception. The machine delivers them and they come here
//! only if they cannot be. What was delivered so is counted at the next entry. Whoever was stopped from elsewhere
//! meanwhile is on its way in.

use aegis_abi::layout::PAGE_SIZE;
use aegis_kernel_core::id::{CpuId, Id};
use aegis_kernel_core::state::{Decision, State};
use aegis_machine as machine;
use machine::{Handlers, KernelLock, TrapFrame, UpcallPlaces, UserBases, VECTOR_RESCHEDULE, VECTOR_TIMER};

use crate::hardware::Hardware;

/// The kernel's state.
pub(crate) static KERNEL: KernelLock<State<'static, Hardware>> = KernelLock::new(State::new(Hardware::new()));

/// What to do about each kind of trap.
pub(crate) static HANDLERS: Handlers = Handlers {
    syscall: |frame| enter(frame, State::on_syscall),
    exception: |frame| enter(frame, State::on_exception),
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
    let (syscalls, exceptions) = machine::take_upcall_counts();
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
        machine::set_upcall_places(None);
        state.machine.activate(None);
        return;
    };
    let context = state.context(next);
    state.machine.activate(Some((context.root, context.environment)));
    machine::set_user_bases(UserBases { fs: context.fs_base, gs: context.gs_base });
    let is_valid = machine::vector_restore(context.vector_state);
    assert!(is_valid, "INV-4: nobody but the kernel writes vector state");
    machine::set_upcall_places(Some(UpcallPlaces {
        control: context.pages.control(),
        save_area_base: context.pages.save_area_base,
        save_area_bytes: context.pages.save_area_frame_count * PAGE_SIZE,
    }));
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
