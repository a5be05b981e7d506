//! Requests: one with those that are linked to it, and what is kept of it while it waits.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration, Waiter};
use exos::sync::SpinMutex;

use super::Ring;
use crate::abi::socket::Header;
use crate::abi::uring::{Sqe, opcode};
use crate::abi::user_memory::Extent;
use crate::task::process::{Process, Thread};

/// What a request has read of the program's memory, which may be another's by the time that it goes on
/// (`IORING_FEAT_SUBMIT_STABLE`).
#[derive(Default)]
pub enum Kept {
    /// Nothing yet, or nothing at all.
    #[default]
    Nothing,
    /// Buffers.
    Extents(Vec<Extent>),
    /// A message's header and its buffers.
    Message(Box<(Header, Vec<Extent>)>),
    /// An address.
    Name(Vec<u8>),
    /// A time: a point of time (monotonic), or how long it is from when it begins.
    Time {
        /// Nanoseconds.
        ns: u64,
        /// It is a point of time by now.
        is_point: bool,
    },
}

/// One request.
#[derive(Default)]
pub struct Request {
    /// As it was submitted; a transfer that goes on has moved its buffer.
    pub sqe: Sqe,
    /// The open file that it is about, from its first attempt on.
    pub file: Option<Arc<Description>>,
    /// See there.
    pub kept: Kept,
    /// Bytes that earlier attempts have moved, or a disk is moving.
    pub done: u32,
    /// It is refused with this, negative.
    pub refusal: i32,
}

/// The process and thread that submitted.
#[derive(Clone)]
pub struct Owner {
    /// Has the memory that addresses are of.
    pub process: Weak<Process>,
    /// Is called when there is something to do.
    pub thread: Weak<Thread>,
}

impl Owner {
    /// Whether it is this process.
    #[must_use]
    pub fn is(&self, process: &Process) -> bool {
        core::ptr::eq(self.process.as_ptr(), process)
    }

    /// Has a thread of the process look at its work.
    pub fn call(&self) {
        if let Some(process) = self.process.upgrade() {
            process.note_work(self.thread.upgrade().as_ref());
        }
    }
}

/// A request with those that come after it.
#[derive(Default)]
pub struct Chain {
    /// The one that is next.
    pub first: Request,
    /// Those that wait for it.
    pub rest: VecDeque<Request>,
    /// Known from when it first waits.
    pub owner: Option<Owner>,
}

impl Chain {
    /// The time that bounds the first request, if it has one.
    #[must_use]
    pub fn bound_ns(&self) -> Option<u64> {
        match self.rest.front() {
            Some(Request { sqe: Sqe { opcode: opcode::LINK_TIMEOUT, .. }, kept: Kept::Time { ns, .. }, .. }) => {
                Some(*ns)
            }
            _ => None,
        }
    }

    /// Whether the first request is bounded by a time.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.rest.front().is_some_and(|next| next.sqe.opcode == opcode::LINK_TIMEOUT)
    }
}

/// What a chain that waits is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Of the first request.
    pub user_data: u64,
    /// See above.
    pub opcode: u8,
    /// The number of the open file that it is about.
    pub file: Option<u64>,
    /// When it is over.
    pub deadline_ns: Option<u64>,
    /// How many completions a timeout waits for: the count with which it is over.
    pub target: Option<u32>,
    /// A disk works on it, which cannot be taken back.
    pub is_at_device: bool,
}

/// A chain that waits. Its locks are taken under that of the ring's state, and held for a field's access.
pub struct Waiting {
    pub(super) number: u64,
    pub(super) ring: Weak<Ring>,
    pub(super) marks: SpinMutex<Marks>,
    pub(super) owner: Owner,
    pub(super) chain: SpinMutex<Option<Chain>>,
    pub(super) registration: SpinMutex<Option<Registration>>,
    pub(super) is_ready: AtomicBool,
    /// The file does not tell of every change.
    pub(super) is_silent: bool,
}

impl Waiting {
    /// Lists it as one to go on with, once.
    pub(super) fn note_ready(&self) {
        if self.is_ready.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(ring) = self.ring.upgrade() {
            ring.list_ready(self.number);
            self.owner.call();
        }
    }
}

impl Waiter for Waiting {
    fn wake(&self, _: Readiness) {
        self.note_ready();
    }
}
