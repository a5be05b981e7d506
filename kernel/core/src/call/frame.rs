//! Calls 6 to 9: taking, freeing, splitting and donating frames.

use aegis_abi::call::{FrameAllocate, FrameDonate, FrameFree, FrameSplit};
use aegis_abi::types::{CapSlot, CapType, FrameNumber, Rights, Status};

use crate::id::EnvironmentId;
use crate::object::{CapRef, Capability, DYING, FILLING, Found, FrameKind, Live, Search};
use crate::outcome::{Answer, Caller, bad_argument, refuse_if};
use crate::{Machine, State};

/// Frames that one call zeroes at most (64 KiB).
const ZERO_STEP: u64 = 16;
/// Most frames in one allocation (32 MiB): they are marked in one call.
const FRAME_COUNT_MAX: u64 = 1 << 13;
/// Largest alignment (1 GiB).
const ALIGNMENT_LOG2_MAX: u32 = 18;
/// Frames that one call donates at most.
const DONATE_STEP: u64 = 1024;
/// `frame` of `FrameAllocate` that means anywhere.
const ANYWHERE: FrameNumber = FrameNumber(u64::MAX);

pub(super) fn allocate<M: Machine>(state: &mut State<M>, caller: Caller, call: FrameAllocate) -> Answer {
    refuse_if(call.count == 0 || call.count > FRAME_COUNT_MAX, bad_argument(1))?;
    refuse_if(call.alignment_log2 > ALIGNMENT_LOG2_MAX, bad_argument(3))?;
    let mut search = state.frames.new_search(call.count);
    let mut target = None;
    if let Ok((at, capability)) = state.lookup_any(caller.environment, call.slot)
        && capability.flags & (FILLING | DYING) == FILLING
    {
        if capability.count == call.count {
            return fill(state, at, capability);
        }
        if capability.count == 0 {
            // A search that goes on. It is in the slot, so that each is alone with its own.
            search = Search { at: capability.object, left: capability.cursor };
            target = Some(at);
        }
    }
    let target = target.map_or_else(|| state.empty_slot(caller.environment, call.slot), Ok)?;
    let environment = &state.environments[caller.environment];
    let serial = environment.serial;
    let has_quota = call.count <= environment.frames_left();
    let alignment = 1 << call.alignment_log2;
    let found = if !has_quota {
        Err(Status::NoFrames)
    } else if call.frame == ANYWHERE {
        state.frames.find_free(call.count, alignment, &mut search)
    } else {
        let fits = call.frame.0.is_multiple_of(alignment) && state.frames.all_free(call.frame.0, call.count);
        if fits { Ok(call.frame) } else { Err(Status::NoFrames) }
    };
    let first = match found {
        Ok(first) => first,
        Err(status) => {
            if status == Status::Again {
                let place = Capability::frames(FrameNumber(search.at), 0);
                state.store_capability(target, &Capability { flags: FILLING, cursor: search.left, ..place });
            } else {
                state.unlink(target);
            }
            return Err(status.into());
        }
    };
    state.environments[caller.environment].frames_owned += call.count;
    let mut capability = Capability::frames(first, call.count);
    // Frames that were the caller's last need no zeroing: `cursor` goes from the end to the first
    // that does.
    let foreign_count = state.frames.foreign_count(first.0, call.count, serial);
    state.frames.set_range(first.0, call.count, FrameKind::Owned, serial);
    (capability.flags, capability.cursor) = (FILLING, foreign_count);
    fill(state, target, capability)
}

/// Zeroes the next frames, from the end, of an allocation that is too large for one call.
fn fill<M: Machine>(state: &mut State<M>, at: CapRef, mut capability: Capability) -> Answer {
    let step = capability.cursor.min(ZERO_STEP);
    capability.cursor -= step;
    let first = capability.object + capability.cursor;
    for frame in first..first + step {
        state.machine.zero_frame(FrameNumber(frame));
    }
    if capability.cursor == 0 {
        capability.flags &= !FILLING;
    }
    state.store_capability(at, &capability);
    if capability.cursor == 0 { Ok(capability.object) } else { Err(Status::Again.into()) }
}

/// An original frames capability that nothing descends from.
fn original<M: Machine>(state: &State<M>, caller: Caller, slot: CapSlot, allowed: u8) -> Live<Found> {
    let (at, capability) = state.lookup_any(caller.environment, slot)?;
    refuse_if(capability.kind != CapType::Frames, Status::WrongType)?;
    refuse_if(capability.flags & (DYING | FILLING) & !allowed != 0 || capability.parent.is_some(), Status::WrongState)?;
    refuse_if(capability.child.is_some(), Status::Busy)?;
    Ok((at, capability))
}

pub(super) fn free<M: Machine>(state: &mut State<M>, caller: Caller, call: FrameFree) -> Answer {
    let (at, capability) = original(state, caller, call.slot, DYING)?;
    state.free_original(at, capability)?;
    state.unlink(at);
    Ok(0)
}

pub(super) fn split<M: Machine>(state: &mut State<M>, caller: Caller, call: FrameSplit) -> Answer {
    let (at, capability) = state.lookup(caller.environment, call.slot, CapType::Frames, Rights::empty())?;
    refuse_if(call.count == 0 || call.count >= capability.count, bad_argument(2))?;
    refuse_if(state.is_being_revoked(at), Status::WrongState)?;
    let is_pinned = state.frames.any_pinned(capability.object, capability.count);
    refuse_if(capability.child.is_some() || is_pinned && state.is_in_use(at), Status::Busy)?;
    let target = state.empty_slot(caller.environment, call.target)?;
    state.split(at, target, call.count);
    Ok(0)
}

pub(super) fn donate<M: Machine>(state: &mut State<M>, caller: Caller, call: FrameDonate) -> Answer {
    let given = original(state, caller, call.slot, DYING)?;
    let receiver = state
        .lookup_environment(caller.environment, call.environment, Rights::RECEIVE)
        .or_else(|_| state.lookup_environment(caller.environment, call.environment, Rights::CONTROL))?;
    let is_done = donate_step(state, given, receiver)?;
    let left = state.environments[receiver].donated_count;
    if is_done { Ok(left) } else { Err(Status::Again.into()) }
}

/// Donates frames of an original from its end; true when none are left and the slot is empty.
pub(super) fn donate_step<M: Machine>(state: &mut State<M>, given: Found, receiver: EnvironmentId) -> Live<bool> {
    let (at, mut capability) = given;
    refuse_if(state.frames.any_used(capability.object, capability.count), Status::Busy)?;
    let step = capability.count.min(DONATE_STEP);
    capability.count -= step;
    let first = capability.object + capability.count;
    // Owner and quota go with the frames; between an environment and itself nothing changes.
    // (After a reclaim, quota may be less than what is owned.)
    let giver = &mut state.environments[at.environment];
    let quota = giver.frame_quota.min(step);
    debug_assert!(giver.frames_owned >= step, "every frame was counted");
    giver.frames_owned -= step;
    state.environments[receiver].frames_owned += step;
    state.move_quota(at.environment, receiver, quota);
    for frame in (first..first + step).rev() {
        state.donate_frame(receiver, FrameNumber(frame));
    }
    if capability.count == 0 {
        state.unlink(at);
        return Ok(true);
    }
    capability.flags |= DYING;
    state.store_capability(at, &capability);
    Ok(false)
}
