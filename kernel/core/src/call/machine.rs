//! Calls 38 to 40: the log, the end, the counters.

use aegis_abi::call::{CounterRead, MachineLog, MachineOff};
use aegis_abi::types::{CapType, Rights};

use crate::outcome::{Answer, Caller, bad_argument};
use crate::{Machine, State};

pub(super) fn log<M: Machine>(state: &mut State<M>, caller: Caller, call: MachineLog) -> Answer {
    state.lookup(caller.environment, call.slot, CapType::Machine, Rights::LOG)?;
    let mut bytes = (u128::from(call.high) << 64 | u128::from(call.low)).to_le_bytes();
    // Nothing that a terminal would take for an order.
    for byte in bytes.iter_mut().filter(|byte| !matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        *byte = b'?';
    }
    let text = bytes.get(..call.length as usize).ok_or(bad_argument(1))?;
    Ok(state.machine.log(text) as u64)
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
