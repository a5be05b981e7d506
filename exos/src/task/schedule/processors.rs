//! What the scheduler asks of the machine.

use core::sync::atomic::AtomicU64;

/// What the scheduler asks of the machine. Called without locks.
pub trait Processors: Send + Sync {
    /// Makes processor `index` look at its work again: it sleeps, or runs a program.
    fn kick(&self, index: usize);
    /// The earliest end of a blocked task's wait changed to `deadline_ns`: [`super::Scheduler::expire`] is wanted
    /// then.
    fn arm(&self, deadline_ns: u64);
    /// A task is ready that the busy processor `index` could run: [`super::Scheduler::tick`] is wanted there within a
    /// time.
    fn arm_slice(&self, index: usize, within_ns: u64);
    /// For each processor the time within which that will be, all ones for none, if the machine says so: a processor
    /// that is told already is not told again.
    fn armed_within_ns(&self) -> &'static [AtomicU64] {
        &[]
    }
}

/// A machine without processors to tell, for a pod whose tasks are driven from outside (tests).
pub struct NoProcessors;

impl Processors for NoProcessors {
    fn kick(&self, _: usize) {}
    fn arm(&self, _: u64) {}
    fn arm_slice(&self, _: usize, _: u64) {}
}
