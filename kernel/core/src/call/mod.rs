//! Kernel calls: one function for each, in a module for each family, all with one signature.
//!
//! A handler checks everything before it changes anything, unless its page in `docs/abi.md` says
//! that a part of the work may be done (`Again`). It never fails in another way than by a
//! [`Refusal`]. Only the calls that [`may_switch`] names may leave their caller not running; they
//! find its registers saved in its object.

mod bell;
mod bind;
mod capability;
mod device;
mod environment;
mod frame;
mod gate;
mod machine;
mod processor;
mod space;
mod ticket;

pub(crate) use environment::ENVIRONMENT_RIGHTS;
pub(crate) use processor::PROCESSOR_RIGHTS;

use aegis_abi::call::Call;
use aegis_abi::types::Status;

use crate::id::{CpuId, EnvironmentId, ProcessorId};
use crate::machine::Machine;
use crate::space::Progress;
use crate::state::State;

/// Who calls, and where.
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

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(value) => Self::Done(Status::Ok, value),
            Err(refusal) => Self::Done(refusal.status, refusal.value),
        }
    }
}

/// For `?`: refuses where something is wrong.
fn refuse_if(is_wrong: bool, refusal: impl Into<Refusal>) -> Result<(), Refusal> {
    if is_wrong { Err(refusal.into()) } else { Ok(()) }
}

/// Argument `index` (0 is RDI) is out of range.
fn bad_argument(index: u64) -> Refusal {
    Refusal { status: Status::BadArgument, value: index }
}

/// Turns a bounded piece of work into the call's answer.
fn answer(progress: Progress) -> Answer {
    match progress {
        Progress::Done => Ok(0),
        Progress::More => Err(Status::Again.into()),
    }
}

/// Calls after which their caller may not be running.
pub(crate) fn may_switch(call: &Call) -> bool {
    matches!(
        call,
        Call::ProcessorStop(_)
            | Call::Yield(_)
            | Call::Sleep(_)
            | Call::GateCall(_)
            | Call::GateSend(_)
            | Call::GateReply(_)
    )
}

/// Runs the call's handler.
pub(crate) fn dispatch<M: Machine>(state: &mut State<M>, caller: Caller, call: Call) -> Outcome {
    match call {
        Call::Null(_) => Outcome::Done(Status::Ok, 0),
        Call::CapDerive(call) => capability::derive(state, caller, call).into(),
        Call::CapGrant(call) => capability::grant(state, caller, call).into(),
        Call::CapRevoke(call) => capability::revoke(state, caller, call).into(),
        Call::CapDrop(call) => capability::drop(state, caller, call).into(),
        Call::CapRead(call) => capability::read(state, caller, call).into(),
        Call::FrameAllocate(call) => frame::allocate(state, caller, call).into(),
        Call::FrameFree(call) => frame::free(state, caller, call).into(),
        Call::FrameSplit(call) => frame::split(state, caller, call).into(),
        Call::FrameDonate(call) => frame::donate(state, caller, call).into(),
        Call::Bind(call) => bind::bind(state, caller, call).into(),
        Call::EnvironmentCreate(call) => environment::create(state, caller, call).into(),
        Call::EnvironmentDestroy(call) => environment::destroy(state, caller, call).into(),
        Call::EnvironmentRead(call) => environment::read(state, caller, call).into(),
        Call::EnvironmentWatch(call) => environment::watch(state, caller, call).into(),
        Call::EnvironmentReclaim(call) => environment::reclaim(state, caller, call).into(),
        Call::ProcessorCreate(call) => processor::create(state, caller, call).into(),
        Call::ProcessorStart(call) => processor::start(state, caller, call).into(),
        Call::ProcessorStop(call) => processor::stop(state, caller, call),
        Call::ProcessorRead(call) => processor::read(state, caller, call).into(),
        Call::ProcessorDestroy(call) => processor::destroy(state, caller, call).into(),
        Call::Yield(call) => processor::give_way(state, caller, call),
        Call::Sleep(call) => processor::sleep(state, caller, call),
        Call::BellCreate(call) => bell::create(state, caller, call).into(),
        Call::BellRing(call) => bell::ring(state, caller, call).into(),
        Call::BellTake(call) => bell::take(state, caller, call).into(),
        Call::BellRingAt(call) => bell::ring_at(state, caller, call).into(),
        Call::GateCreate(call) => gate::create(state, caller, call).into(),
        Call::GateCall(call) => gate::call(state, caller, call),
        Call::GateSend(call) => gate::send(state, caller, call),
        Call::GateReply(call) => gate::reply(state, caller, call),
        Call::DeviceRead(call) => device::read(state, caller, call).into(),
        Call::DeviceControl(call) => device::control(state, caller, call).into(),
        Call::DeviceMap(call) => device::map(state, caller, call).into(),
        Call::DevicePort(call) => device::port(state, caller, call).into(),
        Call::DeviceInterruptBind(call) => device::interrupt_bind(state, caller, call).into(),
        Call::DeviceInterruptAsk(call) => device::interrupt_ask(state, caller, call).into(),
        Call::DeviceDmaBind(call) => device::dma_bind(state, caller, call).into(),
        Call::DeviceDmaUnbind(call) => device::dma_unbind(state, caller, call).into(),
        Call::MachineLog(call) => machine::log(state, caller, call).into(),
        Call::MachineOff(call) => machine::off(state, caller, call).into(),
        Call::CounterRead(call) => machine::counter(state, caller, call).into(),
        Call::SpaceCreate(call) => space::create(state, caller, call).into(),
        Call::SpaceEnter(call) => space::enter(state, caller, call).into(),
        Call::TicketAmount(call) => ticket::amount(state, caller, call).into(),
        Call::TicketFund(call) => ticket::fund(state, caller, call).into(),
        Call::TicketRead(call) => ticket::read(state, caller, call).into(),
    }
}
