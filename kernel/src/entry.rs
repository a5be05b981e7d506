//! From traps to the core and back: one lock around the state, one place where contexts are exchanged.
//!
//! Every trap of ring 3 or of the idle loop comes to [`enter`]: lock, let the core decide, load what it decided,
//! unlock. Two kinds of upcall need no decision and no lock, as they reach only pages that stay pinned while their
//! virtual processor runs here: a program's system call and an exception. The machine delivers them and they come here
//! only if they cannot be. What was delivered so is counted at the next entry. A processor that was stopped from
//! elsewhere meanwhile is on its way in.

use aegis_abi::call::SpaceEnter;
use aegis_kernel_core::id::{CpuId, Id, ProcessorId};
use aegis_kernel_core::{Decision, State};
use aegis_machine as machine;
use machine::{Handlers, KernelGuard, KernelLock, TrapFrame, UserBases, VECTOR_RESCHEDULE, VECTOR_TIMER};

use crate::hardware::{Hardware, Kernel};

/// The kernel's state.
pub(crate) static KERNEL: KernelLock<Kernel> = KernelLock::new(State::new(Hardware::new()));

/// What to do about each kind of trap.
pub(crate) static HANDLERS: Handlers =
    Handlers { syscall, transfer, space_enter, exception: |frame| enter(frame, State::on_exception), interrupt };

/// This processor's name.
pub(crate) fn this_cpu() -> CpuId {
    CpuId::from_index(machine::processor_index())
        .expect("INV-3: the machine starts no more processors than the core has names for")
}

/// The state, for this processor.
#[inline(always)]
fn lock(cpu: CpuId) -> KernelGuard<'static, Kernel> {
    let mut state = KERNEL.lock();
    if let Some(counts) = machine::take_entry_counts() {
        state.count_entries(cpu, counts);
    }
    state
}

/// A `syscall` instruction.
extern "C" fn syscall(frame: &mut TrapFrame) {
    let cpu = this_cpu();
    let mut state = lock(cpu);
    if let Some(decision) = state.on_syscall(cpu, frame) {
        carry_out(&mut state, cpu, &decision, frame);
    }
}

/// A call through a gate, or a reply: at once, if it can be.
extern "C" fn transfer(frame: &mut TrapFrame) {
    let cpu = this_cpu();
    let mut state = lock(cpu);
    if let Some((previous, next)) = state.on_transfer(cpu, frame) {
        exchange(&mut state, cpu, Some(previous), Some(next));
        return;
    }
    drop(state);
    syscall(frame);
}

/// A processor goes on in another space of its environment: at once, if it can.
extern "C" fn space_enter(slot: u64) -> u64 {
    KERNEL.lock().on_space_enter(this_cpu(), slot).map_or(SpaceEnter::NUMBER, |()| 0)
}

/// Runs one event of the core and does what it decided.
pub(crate) fn enter(frame: &mut TrapFrame, event: impl FnOnce(&mut Kernel, CpuId, &mut TrapFrame) -> Decision) {
    let cpu = this_cpu();
    let mut state = lock(cpu);
    let decision = event(&mut state, cpu, frame);
    carry_out(&mut state, cpu, &decision, frame);
}

/// Does what the core decided.
fn carry_out(state: &mut Kernel, cpu: CpuId, decision: &Decision, frame: &mut TrapFrame) {
    if decision.is_switch() {
        exchange(state, cpu, decision.previous, decision.next);
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

/// Saves what the processor that leaves has in registers that the trap frame does not hold, and loads the next one's.
#[inline(always)]
fn exchange(state: &mut Kernel, cpu: CpuId, previous: Option<ProcessorId>, next: Option<ProcessorId>) {
    let bases = machine::user_bases();
    // A processor that was unmade meanwhile has no context any more.
    if let Some(previous) = previous
        && state.save_context(previous, bases.fs, bases.gs)
    {
        machine::vector_save(state.machine.places(previous));
    }
    let Some(next) = next else {
        machine::clear_upcall_places();
        state.machine.activate(cpu, None);
        return;
    };
    let context = state.context(next);
    state.machine.activate(cpu, Some((context.root, context.environment)));
    machine::set_user_bases(UserBases { fs: context.fs_base, gs: context.gs_base }, bases);
    let places = state.machine.places(next);
    machine::vector_restore(places);
    machine::set_upcall_places(places);
}

/// An interrupt, by its vector.
fn interrupt(frame: &mut TrapFrame, vector: u8) {
    match vector {
        VECTOR_TIMER => enter(frame, State::on_timer),
        VECTOR_RESCHEDULE => enter(frame, State::on_kick),
        _ => enter(frame, |state, cpu, frame| state.on_interrupt(cpu, frame, Hardware::source_of(vector))),
    }
}
