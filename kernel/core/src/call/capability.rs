//! Calls 1 to 5: deriving, granting, revoking, dropping and reading capabilities.

use aegis_abi::call::{CapDerive, CapDrop, CapGrant, CapRead, CapRevoke};
use aegis_abi::types::{CapSlot, CapType, Rights, Status};

use crate::object::{DYING, FILLING, Found, Live};
use crate::outcome::{Answer, Caller, Progress, bad_argument, refuse_if};
use crate::{Machine, State};

/// A capability of any type from which others may be made.
fn source<M: Machine>(state: &State<M>, caller: Caller, slot: CapSlot) -> Live<Found> {
    let (at, capability) = state.lookup_any(caller.environment, slot)?;
    refuse_if(capability.flags & (DYING | FILLING) != 0, Status::WrongState)?;
    Ok((at, capability))
}

pub(super) fn derive<M: Machine>(state: &mut State<M>, caller: Caller, call: CapDerive) -> Answer {
    let (at, capability) = source(state, caller, call.source)?;
    let rights = Rights::from_bits(call.rights).ok_or(bad_argument(2))?;
    let (mut object, mut count) = (capability.object, capability.count);
    if capability.kind == CapType::Frames {
        refuse_if(call.offset >= capability.count, bad_argument(3))?;
        refuse_if(call.count == 0 || call.count > capability.count - call.offset, bad_argument(4))?;
        object += call.offset;
        count = call.count;
    }
    let target = state.empty_slot(caller.environment, call.target)?;
    state.derive(at, target, rights, object, count)?;
    Ok(0)
}

pub(super) fn grant<M: Machine>(state: &mut State<M>, caller: Caller, call: CapGrant) -> Answer {
    let (at, capability) = source(state, caller, call.source)?;
    refuse_if(!capability.rights.contains(Rights::GRANT), Status::MissingRight)?;
    let receiver = state.lookup_environment(caller.environment, call.environment, Rights::RECEIVE)?;
    let rights = Rights::from_bits(call.rights).ok_or(bad_argument(3))?;
    let target = state.empty_slot(receiver, call.target)?;
    state.derive(at, target, rights, capability.object, capability.count)?;
    Ok(0)
}

pub(super) fn revoke<M: Machine>(state: &mut State<M>, caller: Caller, call: CapRevoke) -> Answer {
    let (at, _) = state.lookup_any(caller.environment, call.slot)?;
    state.revoke(at)?;
    Ok(0)
}

pub(super) fn drop<M: Machine>(state: &mut State<M>, caller: Caller, call: CapDrop) -> Answer {
    let (at, _) = state.lookup_any(caller.environment, call.slot)?;
    state.delete(at, false)?;
    Ok(0)
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: CapRead) -> Answer {
    let (_, capability) = state.lookup_any(caller.environment, call.slot)?;
    let is_frames = capability.kind == CapType::Frames;
    match call.field {
        0 => Ok(capability.kind as u64 | u64::from(capability.rights.bits()) << 32),
        1 if is_frames => Ok(capability.object),
        1 => Ok(capability.object & 0xffff),
        2 => Ok(capability.count),
        _ => Err(bad_argument(1)),
    }
}

/// Drops the capability for an object that has ended, unless others come from it.
pub(super) fn drop_ended<M: Machine>(state: &mut State<M>, by: Caller, slot: CapSlot, progress: Progress) -> Answer {
    progress?;
    let (at, capability) = state.lookup_any(by.environment, slot)?;
    if capability.child.is_none() {
        state.delete(at, false)?;
    }
    Ok(0)
}
