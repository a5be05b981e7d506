//! The thread that came to exos, with what it belongs to: what system calls, faults and signals are handled for.
//!
//! [`Caller`] is small and copied freely; a system call adds the program's registers to it
//! (`crate::call::context::Context`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::fs::permission::Identity;
use exos::fs::step::TransferCaller;
use exos::fs::terminal::job_control::TerminalCaller;
use exos::task::capability::Capability;
use exos::task::signal::{Signal, SignalSet};

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

impl TransferCaller for Caller<'_> {
    fn now_ns(&self) -> u64 {
        self.system.kernel.now_ns()
    }

    fn identity(&self) -> Identity {
        let identities = self.thread.identities.lock();
        Identity { pid: self.process.pid, uid: identities.uid[1], gid: identities.gid[1] }
    }

    fn terminal_caller(&self) -> TerminalCaller {
        let group = *self.process.group.lock();
        let own_session = *self.process.session.lock();
        // A process that has given the session's terminal up counts for every terminal as one of no session.
        let session = if self.process.has_left_terminal.load(Ordering::Relaxed) { 0 } else { own_session };
        let mask = self.thread.signals.lock().mask;
        let shared = self.process.signals.lock();
        let ignored = [Signal::TTIN, Signal::TTOU].into_iter().filter(|signal| shared.dispositions.is_ignored(*signal));
        let deaf_to = ignored.fold(mask, |set: SignalSet, signal| set.union(signal.bit()));
        drop(shared);
        let is_root = self.thread.identities.lock().can(Capability::SYS_ADMIN);
        TerminalCaller { group, session, is_leader: self.process.pid == session, is_root, deaf_to }
    }
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
