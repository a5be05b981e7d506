//! What a processor does at a preemption point (`exos::preempt`).
//!
//! Upcalls are masked while exos runs, and the kernel notes those that it held back in the control page: as long as
//! nothing is noted there, nobody wants the processor. What is noted is taken in as where a program is interrupted
//! (`entry.rs`), but that nothing is switched to while that is done, and that what needs locks is left for later: the
//! thread that came here may hold some.

use aegis_rt::control;
use exos::preempt::{Interruption, set_point};
use exos_linux::task::interruption::interruption;

use super::pod::POD;
use super::processor::{this_number, this_processor};
use super::run::RUN;
use super::{fiber, kernel};

/// From now on work has preemption points.
pub(super) fn begin() {
    set_point(point);
}

fn point() -> Interruption {
    let Some(fiber) = fiber::current() else { return Interruption::None };
    let is_told = control::has_pending();
    if is_told || fiber.owner().1.needs_attention() { look(fiber, is_told) } else { Interruption::None }
}

#[cold]
fn look(fiber: &fiber::Fiber, is_told: bool) -> Interruption {
    if this_processor().keeps_running() {
        // What runs here is not the thread's own work.
        return Interruption::None;
    }
    if is_told {
        give_way();
    }
    let (process, thread) = fiber.owner();
    if thread.needs_attention() { interruption(process, thread) } else { Interruption::None }
}

/// Takes in what the processor was told, and lets threads with precedence run.
fn give_way() {
    let (Some(pod), Some(run)) = (POD.get(), RUN.get()) else { return };
    this_processor().take_in(control::take_pending());
    this_processor().take_bell_of_runner(true);
    if this_number() == 0 {
        this_processor().keep_running(|| run.platform.absorb());
    }
    let now_ns = kernel::now_ns();
    fiber::carry_out(pod.system.scheduler.tick(this_number(), now_ns), now_ns);
}
