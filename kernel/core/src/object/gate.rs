//! Gates, and a processor's part in calls through them, as data: `gate.rs` above makes the calls.

use aegis_abi::upcall::UpcallFrame;

use super::bell::Called;
use super::queue::Queue;
use crate::id::{EnvironmentId, ProcessorId};

begins! {
    /// A gate: where calls enter which processor.
    pub(crate) struct Gate {
        /// 0: the table entry is free.
        pub(crate) serial: u64 = 0,
        pub(crate) owner: Option<EnvironmentId> = None,
        /// With the capability for it.
        pub(crate) processor: Called = None,
        pub(crate) rip: u64 = 0,
        pub(crate) badge: u64 = 0,
    }
}

begins! {
    /// A processor's part in calls.
    pub(crate) struct Transfer {
        /// Callers that wait to be served.
        pub(crate) callers: Queue = Queue::EMPTY,
        /// Whose call is in hand.
        pub(crate) serving: Option<ProcessorId> = None,
        /// Calling or queueing: the gate and the callee.
        pub(crate) calling: Option<Call> = None,
        /// Ready to serve one of `callers`, and not told yet which.
        pub(crate) picks: bool = false,
    }
}

/// A call that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) callee: ProcessorId,
    pub(crate) rip: u64,
    pub(crate) badge: u64,
}

/// Copies the registers that are the message.
pub(crate) fn copy_message(from: &UpcallFrame, to: &mut UpcallFrame) {
    to.rsi = from.rsi;
    to.rdx = from.rdx;
    to.r10 = from.r10;
    to.r8 = from.r8;
    to.r9 = from.r9;
    to.rbx = from.rbx;
    to.rbp = from.rbp;
    to.r12 = from.r12;
    to.r13 = from.r13;
    to.r14 = from.r14;
    to.r15 = from.r15;
}

/// Copies what a call that succeeds has to keep: the other registers are constants, or what the call returns.
#[inline(always)]
pub(crate) fn save_call(from: &UpcallFrame, to: &mut UpcallFrame) {
    copy_message(from, to);
    to.rdi = from.rdi;
    to.rip = from.rip;
    to.rflags = from.rflags;
    to.rsp = from.rsp;
}
