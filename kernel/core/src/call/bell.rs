//! Calls 23 to 25 and 41: bells.

use aegis_abi::call::{BellCreate, BellRing, BellRingAt, BellTake};
use aegis_abi::types::{CapType, Rights, SLOT_NONE, Status};

use crate::object::{CapRef, Capability};
use crate::outcome::{Answer, Caller};
use crate::{Machine, State};

const BELL_RIGHTS: Rights =
    Rights::READ.union(Rights::RING).union(Rights::WAIT).union(Rights::CONTROL).union(Rights::GRANT);

pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: BellCreate) -> Answer {
    let processor = if call.processor == SLOT_NONE {
        None
    } else {
        let named = state.lookup_processor(caller.environment, call.processor, Rights::CONTROL)?;
        Some((named, CapRef { environment: caller.environment, slot: call.processor.0 }))
    };
    let slot = state.empty_slot(caller.environment, call.slot)?;
    let named = state.new_bell(caller.environment, processor).ok_or(Status::TableFull)?;
    state.store_capability(slot, &Capability::object(CapType::Bell, BELL_RIGHTS, named));
    Ok(0)
}

pub(super) fn ring<M: Machine>(state: &mut State<M>, caller: Caller, call: BellRing) -> Answer {
    let named = state.lookup_bell(caller.environment, call.slot, Rights::RING)?;
    state.ring(named.id);
    Ok(0)
}

pub(super) fn take<M: Machine>(state: &mut State<M>, caller: Caller, call: BellTake) -> Answer {
    let named = state.lookup_bell(caller.environment, call.slot, Rights::WAIT)?;
    Ok(state.bells[named.id].take())
}

pub(super) fn ring_at<M: Machine>(state: &mut State<M>, caller: Caller, call: BellRingAt) -> Answer {
    let named = state.lookup_bell(caller.environment, call.slot, Rights::RING)?;
    let with = CapRef { environment: caller.environment, slot: call.slot.0 };
    state.set_bell_deadline(named.id, call.deadline_ns, with);
    Ok(0)
}
