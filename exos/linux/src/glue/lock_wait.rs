//! What a processor does between two looks at a lock that is taken (`exos::sync`).
//!
//! The holder may wait for the host's file server, or be ready on this very processor: so others get to run here, and
//! answers of the server are taken in. Where nothing else may run (a processor that is idle, or in the middle of a
//! call of exos that it interrupted) it only looks; the locks that are taken there are never held over a wait.

use super::pod::POD;
use super::processor::{this_number, this_processor};
use super::{disk, fiber, kernel, shares};

/// Looks between which a holder that runs on another processor gets time to end. PAUSE is for the last of them: in a
/// virtual machine each may give the processor away, or leave translated code for a lock that the holder needs, too.
const LOOKS_PER_TURN: u32 = 64;

/// From now on locks that are taken are waited for so.
pub(super) fn begin() {
    exos::sync::set_lock_wait(relax);
}

fn is_turn_over() -> bool {
    this_processor().count_lock_look().is_multiple_of(LOOKS_PER_TURN)
}

fn relax() {
    let Some(pod) = POD.get() else { return core::hint::spin_loop() };
    let (processor, system) = (this_processor(), &pod.system);
    let has_passed = system.processor_count == 1 || is_turn_over();
    if !has_passed {
        return;
    }
    core::hint::spin_loop();
    shares::look();
    disk::look();
    if fiber::current().is_none() || processor.keeps_running() {
        return;
    }
    let now_ns = kernel::now_ns();
    // Idle too: a thread that was moved to another processor meanwhile is that one's from now on.
    fiber::carry_out(system.scheduler.yield_turn(this_number(), now_ns), now_ns);
}
