//! Calls 42 and 43: making address spaces, and going from one to another.

use aegis_abi::call::{SpaceCreate, SpaceEnter};
use aegis_abi::types::{CapType, Rights};

use crate::object::{Capability, capability::SPACE_SLOT_END};
use crate::outcome::{Answer, Caller};
use crate::{Machine, State};

pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: SpaceCreate) -> Answer {
    let slot = state.empty_slot_before(SPACE_SLOT_END, caller.environment, call.slot)?;
    let named = state.make_space(caller.environment)?;
    // Without GRANT: a space is of no use outside its environment.
    state.store_capability(slot, &Capability::object(CapType::Space, Rights::CONTROL, named));
    Ok(0)
}

pub(super) fn enter<M: Machine>(state: &mut State<M>, caller: Caller, call: SpaceEnter) -> Answer {
    state.enter_space(caller, call.slot)?;
    Ok(0)
}
