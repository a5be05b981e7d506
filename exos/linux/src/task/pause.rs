//! Whether a process is stopped, and what of that its parent has still to hear.
//!
//! A stop signal is taken from those that wait under their locks, and stops the process under the lock of this state; a
//! continuation in between is not lost ([`Pause::is_stopping`]). Nothing stops it once `SIGKILL` waits for it.

use exos::task::signal::Signal;

/// What a parent can be told of a child that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// By which signal it is stopped.
    pub stopped_by: Option<Signal>,
    /// It stopped and nobody has waited for that.
    pub is_stop_unreported: bool,
    /// It was continued and its parent has not been told.
    pub is_continue_untold: bool,
    /// It was continued and nobody has waited for that.
    pub is_continue_unreported: bool,
    /// A stop signal was taken from those that wait, and nothing has continued or killed the process since.
    pub is_stopping: bool,
    /// `SIGKILL` waits for it, or has been taken: nothing stops it any more, and none of its threads runs on.
    pub is_killed: bool,
}

impl Pause {
    /// Stops by a signal that was taken, unless the process was continued or killed meanwhile: whether it did.
    pub fn stop(&mut self, signal: Signal) -> bool {
        let stops = core::mem::take(&mut self.is_stopping) && !self.is_killed;
        if stops {
            self.stopped_by = Some(signal);
            self.is_stop_unreported = true;
            self.is_continue_unreported = false;
        }
        stops
    }

    /// Goes on, by `SIGCONT` or `SIGKILL`, which waits for the process by now (or is ignored).
    pub fn go_on(&mut self, signal: Signal) {
        self.is_killed |= signal == Signal::KILL;
        self.is_stopping = false;
        if self.stopped_by.take().is_some() && signal == Signal::CONT {
            self.is_stop_unreported = false;
            self.is_continue_unreported = true;
            self.is_continue_untold = true;
        }
    }
}
