//! Transfers that may wait, an attempt at a time.
//!
//! An attempt never waits itself (INV-F3). It says in a [`Step`] what it came to: the open file knows for what, and for
//! how long, its readers and writers wait, and when a signal is due. What it has to remember between the attempts of
//! one call is in a [`Transfer`]; what it asks of the caller is [`TransferCaller`]. The loop around the attempts is the
//! personality's.

use super::permission::Identity;
use super::readiness::Readiness;
use super::terminal::job_control::TerminalCaller;
use crate::error::{Errno, Result};
use crate::task::signal::Signal;

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The transfer has moved so many bytes, in all its attempts, and is over.
    Done(usize),
    /// Bytes have been moved, and the next attempt may move more.
    Again,
    /// Nothing can be moved until the file is ready for [`Transfer::interest`], or [`Transfer::deadline_ns`] has come.
    Wait,
    /// The caller's group has been stopped: the call starts again when it goes on.
    Stopped,
    /// `EPIPE`, and the caller gets this signal.
    Raise(Signal),
    /// It failed.
    Failed(Errno),
}

impl Step {
    /// Of an attempt that is all there is to the transfer, unless it would wait.
    #[inline]
    pub fn of(outcome: Result<usize>) -> Self {
        match outcome {
            Ok(count) => Self::Done(count),
            Err(Errno::EAGAIN) => Self::Wait,
            Err(Errno::EPIPE) => Self::Raise(Signal::PIPE),
            Err(error) => Self::Failed(error),
        }
    }
}

/// What a look without any preparation came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Attempt {
    /// So many bytes, and that is all.
    Done(usize),
    /// Nothing: the task will be woken, and looks again.
    Asleep,
    /// Nothing: it has to be done in steps.
    Unknown,
}

/// What is kept from one attempt of a transfer to the next.
#[derive(Debug)]
pub struct Transfer {
    /// Bytes that have been moved.
    pub done: usize,
    /// Whether the caller waits where it has to.
    pub may_wait: bool,
    /// For what it waits.
    pub interest: Readiness,
    /// When its time is over.
    pub deadline_ns: Option<u64>,
    /// Whether the call starts again after a signal.
    pub starts_again: bool,
    /// The error that ended the last wait: there will be no other.
    pub ended_by: Option<Errno>,
    /// A value that the caller writes, where that is taken whole before there is room for it.
    pub value: Option<[u8; 8]>,
}

impl Transfer {
    /// One that begins.
    #[inline]
    pub fn new(interest: Readiness, may_wait: bool) -> Self {
        Self { done: 0, may_wait, interest, deadline_ns: None, starts_again: true, ended_by: None, value: None }
    }

    /// Waits, from the first time on for `timeout_ns`; 0 is for ever. As on Linux, a call with a timeout does not start
    /// again.
    pub fn wait_at_most(&mut self, timeout_ns: u64, caller: &dyn TransferCaller) -> Step {
        if timeout_ns > 0 {
            self.starts_again = false;
            self.deadline_ns.get_or_insert_with(|| caller.now_ns().saturating_add(timeout_ns));
        }
        Step::Wait
    }

    /// After `count` bytes, of a transfer that goes on for as long as there are more.
    pub fn moved(&mut self, count: usize, is_all: bool) -> Step {
        self.done += count;
        if is_all { Step::Done(self.done) } else { Step::Again }
    }

    /// What the transfer has come to where no attempt moves more: bytes count before what ended it.
    pub fn outcome(&self, error: Errno) -> Result<usize> {
        if self.done > 0 { Ok(self.done) } else { Err(error) }
    }
}

/// The process that transfers, as open files ask about it.
pub trait TransferCaller {
    /// Nanoseconds since the machine's start.
    fn now_ns(&self) -> u64;

    /// How the other side of a socket is told of it.
    fn identity(&self) -> Identity;

    /// How terminals see it.
    fn terminal_caller(&self) -> TerminalCaller;
}
