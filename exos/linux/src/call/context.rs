//! What a system call works on: the system, the process, the thread, and the program's registers and memory.
//!
//! Handlers in [`crate::call`] have one signature, [`Handler`], and get everything through [`Context`]; nothing is
//! global. Blocking is a loop: register with what tells of changes ([`Context::watch`]), look, and if there is nothing,
//! [`Context::wait`], which comes back when something may have changed and fails with `EINTR` when a signal wants to be
//! delivered. A change between the look and the wait makes the wait return at once.

use alloc::sync::{Arc, Weak};

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fs::readiness::{Readiness, Registration, WaitQueue, Waiter};
use exos::preempt::Interruption;
use exos::task::capability::Capability;
use exos::task::schedule::Task;

use crate::task::caller::{Caller, Restart};
use crate::task::interruption::interruption;

/// A system call's arguments: RDI RSI RDX R10 R8 R9.
pub type Arguments = [u64; 6];

/// A system call.
pub type Handler = fn(&mut Context<'_>, Arguments) -> Result<u64>;

/// One system call in progress.
pub struct Context<'a> {
    /// The calling thread, its process, its memory and the pod; the context stands for it wherever it is wanted.
    pub caller: Caller<'a>,
    /// The program's registers; a handler that replaces them (`rt_sigreturn`, `execve`) sets `replaces_registers`.
    pub frame: &'a mut UpcallFrame,
    /// The result must not be written to RAX.
    pub replaces_registers: bool,
    /// What an `EINTR` of this call means.
    pub restart: Restart,
}

#[cold]
fn looks_for_signal(caller: &Caller<'_>) -> bool {
    // On the way, as no lock is held where a thread may sleep.
    caller.process.work.run(caller);
    interruption(caller.process, caller.thread) != Interruption::None
}

impl<'a> core::ops::Deref for Context<'a> {
    type Target = Caller<'a>;

    #[inline(always)]
    fn deref(&self) -> &Caller<'a> {
        &self.caller
    }
}

impl<'a> Context<'a> {
    /// A call of `caller` that begins. A frame that holds only what Rust code does not preserve is enough for handlers
    /// that do without the rest.
    #[must_use]
    #[inline(always)]
    pub fn new(caller: &Caller<'a>, frame: &'a mut UpcallFrame) -> Self {
        Self { caller: *caller, frame, replaces_registers: false, restart: Restart::Never }
    }
}

impl Context<'_> {
    /// Has changes of `queue` wake this thread, for as long as the answer lives.
    #[must_use]
    pub fn watch(&self, queue: &Arc<WaitQueue>, interest: Readiness) -> Registration {
        queue.register(self.waiter(), interest)
    }

    /// As [`Context::watch`], unless `queue` has told anything since it had told `told_count` changes.
    #[must_use]
    pub fn watch_unless_told(
        &self,
        queue: &Arc<WaitQueue>,
        interest: Readiness,
        told_count: u64,
    ) -> Option<Registration> {
        queue.register_unless_told(self.waiter(), interest, told_count)
    }

    fn waiter(&self) -> Weak<dyn Waiter> {
        Arc::<Task>::downgrade(&self.thread.task)
    }

    /// Blocks the thread until something may have changed, or until `deadline_ns` (monotonic).
    ///
    /// `EINTR`: a signal is waiting to be delivered; nothing was given up.
    #[inline(always)]
    pub fn wait(&mut self, deadline_ns: Option<u64>) -> Result<()> {
        if self.has_signal() {
            return Err(Errno::EINTR);
        }
        self.sleep(deadline_ns);
        if self.has_signal() { Err(Errno::EINTR) } else { Ok(()) }
    }

    /// As [`Context::wait`], for a caller that looks for a signal before and does not care whether one ended it.
    #[inline(always)]
    pub fn sleep(&self, deadline_ns: Option<u64>) {
        let timers = self.process.files.timers();
        let earliest_ns = if timers.is_unused() {
            deadline_ns
        } else {
            deadline_ns.into_iter().chain(timers.earliest_ns(self.now_ns())).min()
        };
        self.system.platform.wait(earliest_ns);
    }

    /// Whether a signal could be delivered to this thread now, or the process is to end.
    #[must_use]
    #[inline(always)]
    pub fn has_signal(&self) -> bool {
        self.thread.needs_attention() && looks_for_signal(&self.caller)
    }

    /// When a time is over that begins with this call; of a call that starts again, with its first attempt.
    pub fn deadline_after(&mut self, timeout_ns: u64) -> u64 {
        let again_ns = self.thread.resumption.take(self.frame.rsp);
        let deadline_ns = again_ns.unwrap_or_else(|| self.now_ns().saturating_add(timeout_ns));
        self.restart = Restart::UnlessHandlerUntil(deadline_ns);
        deadline_ns
    }

    /// Whether the thread has a capability now.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.thread.identities.lock().can(capability)
    }

    /// Nanoseconds since the machine's start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.system.kernel.now_ns()
    }
}
