//! Calls 38 to 40: the log, the end, the counters.

use aegis_abi::call::{CounterRead, LOG_BYTES_MAX, MachineLog, MachineOff};
use aegis_abi::types::{CapType, Rights};

use super::{Answer, Caller, bad_argument, refuse_if};
use crate::machine::Machine;
use crate::space::UserSlice;
use crate::state::State;

pub(super) fn log<M: Machine>(state: &mut State<M>, caller: Caller, call: MachineLog) -> Answer {
    state.lookup(caller.environment, call.slot, CapType::Machine, Rights::LOG)?;
    refuse_if(call.length > LOG_BYTES_MAX, bad_argument(2))?;
    let slice = UserSlice::new(call.pointer, call.length, 1)?;
    let mut buffer = [0; LOG_BYTES_MAX as usize];
    let bytes = buffer.get_mut(..call.length as usize).ok_or(bad_argument(2))?;
    state.read_user_bytes(caller.processor, slice, bytes)?;
    state.machine.log(bytes);
    Ok(call.length)
}

pub(super) fn off<M: Machine>(state: &mut State<M>, caller: Caller, call: MachineOff) -> Answer {
    state.lookup(caller.environment, call.slot, CapType::Machine, Rights::CONTROL)?;
    state.machine.power_off(call.code);
    Ok(0)
}

pub(super) fn counter<M: Machine>(state: &mut State<M>, caller: Caller, call: CounterRead) -> Answer {
    let target = state.lookup_environment(caller.environment, call.environment, Rights::READ)?;
    state.environments[target].counters.get(call.index as usize).copied().ok_or(bad_argument(1))
}
