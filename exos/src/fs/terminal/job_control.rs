//! What a terminal asks of the process table, and what it is told about its caller.

use crate::task::signal::{Signal, SignalSet};

/// The process table as terminals see it. Called without locks of this module.
pub trait JobControl: Send + Sync {
    /// Sends a signal to every process of a group.
    fn signal_group(&self, group: u32, signal: Signal);

    /// Sends a signal to the leader of a session.
    fn signal_leader(&self, session: u32, signal: Signal);

    /// The session that a group belongs to, if there is such a group.
    fn session_of_group(&self, group: u32) -> Option<u32>;

    /// Whether nobody outside of a group, but in its session, could continue it: then stopping it would be for ever.
    fn is_orphaned(&self, group: u32) -> bool;
}

/// Nobody to signal, as before the first process.
pub struct NoJobs;

impl JobControl for NoJobs {
    fn signal_group(&self, _: u32, _: Signal) {}

    fn signal_leader(&self, _: u32, _: Signal) {}

    fn session_of_group(&self, _: u32) -> Option<u32> {
        None
    }

    fn is_orphaned(&self, _: u32) -> bool {
        true
    }
}

/// The user of a terminal: group, session, rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalCaller {
    /// Process group.
    pub group: u32,
    /// Number of its session.
    pub session: u32,
    /// Whether it leads the session.
    pub is_leader: bool,
    /// Whether it may take a terminal from another session.
    pub is_root: bool,
    /// Signals that it blocks or ignores.
    pub deaf_to: SignalSet,
}

/// Whether a caller may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Proceed,
    /// Its group was sent a signal that stops it; the call starts again when it is continued.
    Stopped,
    /// `EIO`.
    Refused,
}
