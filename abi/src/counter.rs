//! What the kernel counts for each environment. Read with `CounterRead`; counters only grow.

/// A counter of an environment, as `CounterRead` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Kernel calls.
    KernelCalls = 0,
    /// System-call upcalls (program `syscall` instructions that trapped).
    UpcallsSyscall = 1,
    /// Exception upcalls.
    UpcallsException = 2,
    /// Slice-begin and slice-end upcalls.
    UpcallsSlice = 3,
    /// Bell upcalls.
    UpcallsBell = 4,
    /// Interrupts taken while the environment ran.
    Interrupts = 5,
    /// Pages bound.
    PagesBound = 6,
    /// Pages unbound.
    PagesUnbound = 7,
    /// Slices begun.
    Slices = 8,
    /// Protected calls made.
    GateCalls = 9,
}

/// Counters in all.
pub const COUNTER_COUNT: usize = 10;
