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
mod extension;
mod frame;
mod gate;
mod machine;
mod processor;
mod space;
mod ticket;

use aegis_abi::call::{self, ArgumentWords};
use aegis_abi::types::Status;

use crate::outcome::{Caller, Outcome};
use crate::{Machine, State};

/// Calls after which their caller may not be running.
pub(crate) fn may_switch(number: u64) -> bool {
    matches!(
        number,
        call::ProcessorStop::NUMBER
            | call::Yield::NUMBER
            | call::Sleep::NUMBER
            | call::GateCall::NUMBER
            | call::GateSend::NUMBER
            | call::GateReply::NUMBER
            | call::BellAwait::NUMBER
    )
}

/// Makes a function of a table of calls and their handlers: a number leads straight to the decoding of its own call.
macro_rules! dispatch {
    ($name:ident: $( $call:ident => $family:ident::$handler:ident; )*) => {
        /// Decodes a call and runs its handler. An unknown number is `UnknownCall`, a bad argument `BadArgument` with
        /// its index.
        #[inline(always)]
        pub(crate) fn $name<M: Machine>(
            state: &mut State<M>,
            caller: Caller,
            number: u64,
            words: &ArgumentWords,
        ) -> Outcome {
            match number {
                call::Null::NUMBER => Outcome::Done(Status::Ok, 0),
                $( call::$call::NUMBER => match call::$call::from_words(words) {
                    Ok(call) => $family::$handler(state, caller, call).into(),
                    Err(index) => Outcome::Done(Status::BadArgument, index as u64),
                }, )*
                _ => Outcome::Done(Status::UnknownCall, 0),
            }
        }
    };
}

dispatch! {
    dispatch_switch:
    ProcessorStop => processor::stop;
    Yield => processor::give_way;
    Sleep => processor::sleep;
    GateCall => gate::call;
    GateSend => gate::send;
    GateReply => gate::reply;
    BellAwait => processor::await_bell;
}

dispatch! {
    dispatch:
    CapDerive => capability::derive;
    CapGrant => capability::grant;
    CapRevoke => capability::revoke;
    CapDrop => capability::drop;
    CapRead => capability::read;
    FrameAllocate => frame::allocate;
    FrameFree => frame::free;
    FrameSplit => frame::split;
    FrameDonate => frame::donate;
    Bind => bind::bind;
    BindOne => bind::bind_one;
    EnvironmentCreate => environment::create;
    EnvironmentDestroy => environment::destroy;
    EnvironmentRead => environment::read;
    EnvironmentWatch => environment::watch;
    EnvironmentReclaim => environment::reclaim;
    EnvironmentQuota => environment::quota;
    ProcessorCreate => processor::create;
    ProcessorStart => processor::start;
    ProcessorRead => processor::read;
    ProcessorDestroy => processor::destroy;
    BellCreate => bell::create;
    BellRing => bell::ring;
    BellTake => bell::take;
    BellRingAt => bell::ring_at;
    GateCreate => gate::create;
    DeviceRead => device::read;
    DeviceControl => device::control;
    DeviceMap => device::map;
    DevicePort => device::port;
    DeviceInterruptBind => device::interrupt_bind;
    DeviceInterruptAsk => device::interrupt_ask;
    DeviceDmaBind => device::dma_bind;
    DeviceDmaUnbind => device::dma_unbind;
    MachineLog => machine::log;
    MachineOff => machine::off;
    CounterRead => machine::counter;
    SpaceCreate => space::create;
    SpaceEnter => space::enter;
    TicketAmount => ticket::amount;
    TicketFund => ticket::fund;
    TicketRead => ticket::read;
    TicketIssue => ticket::issue;
    EnvironmentShare => environment::share;
    ExtensionCall => extension::call;
}
