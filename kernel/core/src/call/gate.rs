//! Calls 26 to 29: gates.

use aegis_abi::call::{GateCall, GateCreate, GateReply, GateSend};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END};
use aegis_abi::types::{CapType, Rights, Status};

use crate::object::{CapRef, Capability};
use crate::outcome::{Answer, Caller, Outcome, SwitchAnswer, bad_argument, refuse_if};
use crate::{Machine, State};

const GATE_RIGHTS: Rights = Rights::READ.union(Rights::CALL).union(Rights::CONTROL).union(Rights::GRANT);

pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: GateCreate) -> Answer {
    let processor = state.lookup_processor(caller.environment, call.processor, Rights::CONTROL)?;
    refuse_if(state.processors[processor.id].environment != Some(caller.environment), bad_argument(1))?;
    refuse_if(!(LIBOS_BASE..LIBOS_END).contains(&call.rip), bad_argument(2))?;
    let slot = state.empty_slot(caller.environment, call.slot)?;
    let processor = Some((processor, CapRef { environment: caller.environment, slot: call.processor.0 }));
    let named = state.new_gate(caller.environment, processor, call.rip, call.badge).ok_or(Status::TableFull)?;
    state.store_capability(slot, &Capability::object(CapType::Gate, GATE_RIGHTS, named));
    Ok(0)
}

pub(super) fn call<M: Machine>(state: &mut State<M>, caller: Caller, call: GateCall) -> SwitchAnswer {
    let gate = state.lookup_gate(caller.environment, call.gate, Rights::CALL)?;
    state.gate_call(caller, gate)?;
    Ok(Outcome::Left)
}

pub(super) fn send<M: Machine>(state: &mut State<M>, caller: Caller, call: GateSend) -> Outcome {
    match state.lookup_gate(caller.environment, call.gate, Rights::CALL) {
        Ok(gate) => state.gate_send(caller, gate),
        Err(status) => Outcome::Done(status, 0),
    }
}

pub(super) fn reply<M: Machine>(state: &mut State<M>, caller: Caller, _: GateReply) -> SwitchAnswer {
    state.gate_reply(caller);
    Ok(Outcome::Left)
}
