//! What a process's tracer has said (`ptrace(2)`), and where the process has stopped for it.
//!
//! Neighbours: [`super::traced`], in which a traced thread stops and waits for the tracer's word.

use core::sync::atomic::{AtomicBool, Ordering};

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::sync::Mutex;
use exos::task::signal::{Signal, SignalInfo};

/// `PTRACE_O_TRACESYSGOOD`: stops at calls say that they are none at a `SIGTRAP`.
pub const OPTION_MARKS_CALLS: u64 = 1;
/// `PTRACE_O_EXITKILL`: the process ends with its tracer.
pub const OPTION_ENDS_WITH_TRACER: u64 = 1 << 20;
/// Where a traced thread has stopped.
#[derive(Clone, Debug)]
pub struct Stop {
    /// What `wait` says: the number of a signal, perhaps marked.
    pub status: u8,
    /// The signal that is to be delivered; `None`: it has stopped at a call.
    pub signal: Option<(Signal, SignalInfo)>,
    /// The program's registers.
    pub registers: UpcallFrame,
    /// Its FS base.
    pub fs_base: u64,
    /// The call that it is in.
    pub call: Option<u64>,
}

/// What the tracer has said.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Its process number; 0: the process is not traced.
    pub(super) tracer: u32,
    pub(super) options: u64,
    pub(super) stop: Option<Stop>,
    /// Nobody has waited for the stop.
    pub(super) is_unreported: bool,
    /// It is to go on, with that signal.
    pub(super) word: Option<Option<Signal>>,
    pub(super) stops_at_calls: bool,
    /// It has stopped at the beginning of the call that it is in.
    pub(super) is_in_call: bool,
}

/// A process's part of it.
#[derive(Debug, Default)]
pub struct Trace {
    pub(super) is_on: AtomicBool,
    pub(super) state: Mutex<State>,
}

impl Trace {
    /// Whether the process is traced.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The tracer's number, 0 for none.
    #[must_use]
    pub fn tracer(&self) -> u32 {
        if self.is_on() { self.state.lock().tracer } else { 0 }
    }

    /// Whether it waits for its tracer.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_on() && self.state.lock().stop.is_some()
    }

    /// The status of a stop for which `parent` has not waited; `takes`: it has now.
    #[must_use]
    pub fn report(&self, parent: u32, takes: bool) -> Option<u8> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        let status = state.stop.as_ref().filter(|_| state.is_unreported && state.tracer == parent)?.status;
        state.is_unreported = !takes;
        Some(status)
    }

    /// What `look` finds at the stop in which `tracer` has the process. `ESRCH`: there is none.
    pub fn at_stop<T>(&self, tracer: u32, look: impl FnOnce(&Stop) -> T) -> Result<T> {
        let state = self.state.lock();
        state.stop.as_ref().filter(|_| state.tracer == tracer && state.word.is_none()).map(look).ok_or(Errno::ESRCH)
    }

    /// Sets the options. `ESRCH`: as [`Trace::at_stop`].
    pub fn set_options(&self, tracer: u32, options: u64) -> Result<()> {
        self.at_stop(tracer, |_| ())?;
        self.state.lock().options = options;
        Ok(())
    }

    /// Lets the process go on from its stop, with that signal; `end`: and not be traced any more.
    pub fn go_on(&self, tracer: u32, signal: Option<Signal>, how: GoOn) -> Result<()> {
        let mut state = self.state.lock();
        if state.stop.is_none() || state.tracer != tracer || state.word.is_some() {
            return Err(Errno::ESRCH);
        }
        state.word = Some(signal);
        state.is_unreported = false;
        state.stops_at_calls = how == GoOn::ToCall;
        if how == GoOn::Untraced {
            self.forget(&mut state);
        }
        Ok(())
    }

    /// No longer traced. One that waits goes on with the signal at which it stopped, unless something else was said.
    fn forget(&self, state: &mut State) {
        (state.tracer, state.options, state.stops_at_calls, state.is_in_call) = (0, 0, false, false);
        if let Some(stop) = &state.stop
            && state.word.is_none()
        {
            state.word = Some(stop.signal.map(|(signal, _)| signal));
        }
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// A process ends: if it is the tracer, this one goes on without it; true: or is to end with it.
    #[must_use]
    pub fn tracer_ends(&self, tracer: u32) -> bool {
        let mut state = self.state.lock();
        if state.tracer != tracer {
            return false;
        }
        let ends = state.options & OPTION_ENDS_WITH_TRACER != 0;
        self.forget(&mut state);
        ends
    }

    /// The process runs a program that its tracer may not look into.
    pub fn end(&self) {
        self.forget(&mut self.state.lock());
    }
}

/// How a process goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoOn {
    /// To the next signal (`PTRACE_CONT`).
    ToSignal,
    /// To the next beginning or end of a call (`PTRACE_SYSCALL`).
    ToCall,
    /// For good (`PTRACE_DETACH`).
    Untraced,
}
