//! The maker of a kernel call, and what becomes of it or of a bounded piece of work.

use aegis_abi::types::Status;

use crate::id::{CpuId, EnvironmentId, ProcessorId};

/// The processor that calls, and the physical one that it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) cpu: CpuId,
    pub(crate) processor: ProcessorId,
    pub(crate) environment: EnvironmentId,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// RAX and RDX of the caller.
    Done(Status, u64),
    /// The caller does not run any more; its registers are taken care of.
    Left,
}

/// A status that is not success, with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) value: u64,
}

/// What most handlers answer: the call's value, or why not.
pub(crate) type Answer = Result<u64, Refusal>;

/// What those answer that may take their caller from the processor.
pub(crate) type SwitchAnswer = Result<Outcome, Refusal>;

impl From<u64> for Outcome {
    fn from(value: u64) -> Self {
        Self::Done(Status::Ok, value)
    }
}

impl<T: Into<Self>> From<Result<T, Refusal>> for Outcome {
    #[inline(always)]
    fn from(answer: Result<T, Refusal>) -> Self {
        answer.map_or_else(|refusal| Self::Done(refusal.status, refusal.value), Into::into)
    }
}

/// Turns a status into a refusal without payload.
impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, value: 0 }
    }
}

/// For `?`: refuses where something is wrong.
#[inline(always)]
pub(crate) fn refuse_if<E>(is_wrong: bool, error: E) -> Result<(), E> {
    if is_wrong { Err(error) } else { Ok(()) }
}

/// Argument `index` (0 is RDI) is out of range.
pub(crate) fn bad_argument(index: u64) -> Refusal {
    Refusal { status: Status::BadArgument, value: index }
}

/// There is more to do than one entry may: `Again`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct More;

/// How far a bounded piece of work came.
pub(crate) type Progress = Result<(), More>;

impl From<More> for Status {
    fn from(_: More) -> Self {
        Self::Again
    }
}

impl From<More> for Refusal {
    fn from(more: More) -> Self {
        Status::from(more).into()
    }
}
