//! The thread that came to exos, with what it belongs to: what system calls, faults and signals are handled for.
//!
//! [`Caller`] is small and copied freely; a system call adds the program's registers to it
//! (`crate::call::context::Context`).

use alloc::sync::Arc;

use crate::abi::user_memory::UserMemory;
use crate::task::process::{Process, Thread};
use crate::task::system::System;

/// A thread that is in exos.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// What all processes share.
    pub system: &'a Arc<System>,
    /// The thread's process.
    pub process: &'a Arc<Process>,
    /// The calling thread.
    pub thread: &'a Arc<Thread>,
    /// The program's memory.
    pub memory: &'a dyn UserMemory,
}

/// What to do with a call that a signal interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// It fails with `EINTR` in any case.
    #[default]
    Never,
    /// It starts again unless a handler without `SA_RESTART` ran (Linux `ERESTARTSYS`).
    UnlessHandlerForbids,
    /// It starts again unless a handler ran (Linux `ERESTARTNOHAND`).
    UnlessHandler,
    /// The same, with what is left of its time: it is over then, monotonic (Linux `ERESTART_RESTARTBLOCK`).
    UnlessHandlerUntil(u64),
    /// It starts again whatever ran (Linux `ERESTARTNOINTR`).
    Always,
}
