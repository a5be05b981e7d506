//! Call 59: what an extended kernel is linked with.

use aegis_abi::call::ExtensionCall;
use aegis_abi::types::Status;

use crate::outcome::{Answer, Caller};
use crate::{Machine, State};

pub(super) fn call<M: Machine>(state: &mut State<M>, caller: Caller, call: ExtensionCall) -> Answer {
    let by = state.current_tables(caller.processor);
    Ok(state.machine.extension().ok_or(Status::UnknownCall)?.call(state, by, &call)?)
}
