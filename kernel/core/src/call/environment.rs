//! Calls 11 to 15 and 56: making, ending, reading, watching environments, and moving their quota of frames.

use aegis_abi::call::{
    ENVIRONMENT_FRAME_COUNT_MIN, EnvironmentCreate, EnvironmentDestroy, EnvironmentField, EnvironmentQuota,
    EnvironmentRead, EnvironmentReclaim, EnvironmentShare, EnvironmentWatch,
};
use aegis_abi::share::{FIELD_SHARE_FIRST, FIELD_USED_FIRST, TABLES};
use aegis_abi::types::{CapSlot, CapType, Rights, SLOT_NONE, SLOT_SELF, Status};

use crate::id::{EnvironmentId, ProcessorId};
use crate::object::{CapRef, Capability, DYING, ENVIRONMENT_RIGHTS, FILLING, Live, named};
use crate::outcome::{Answer, Caller, bad_argument, refuse_if};
use crate::{Machine, State};

/// Most frames that an environment starts with; more can be donated later.
const FRAME_COUNT_MAX: u64 = 4096;
pub(super) fn create<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentCreate) -> Answer {
    let parent = caller.environment;
    let (frames_at, frames) = state.lookup(parent, call.frames, CapType::Frames, Rights::empty())?;
    refuse_if(frames.parent.is_some() || frames.flags & (DYING | FILLING) != 0, Status::WrongState)?;
    refuse_if(frames.count < ENVIRONMENT_FRAME_COUNT_MIN || frames.count > FRAME_COUNT_MAX, bad_argument(1))?;
    refuse_if(frames.child.is_some() || state.frames.any_used(frames.object, frames.count), Status::Busy)?;
    let target = state.empty_slot(parent, call.slot)?;
    refuse_if(call.frame_quota > state.environments[parent].frames_left(), Status::NoFrames)?;
    let environment = state.new_environment(Some(parent))?;
    super::frame::donate_step(state, (frames_at, frames), environment)?;
    state.move_quota(parent, environment, call.frame_quota);
    state.build_environment(environment)?;
    let capability = Capability::object(CapType::Environment, ENVIRONMENT_RIGHTS, state.named_environment(environment));
    state.store_capability(target, &capability);
    let own = state.empty_slot(environment, SLOT_SELF)?;
    state.derive(target, own, ENVIRONMENT_RIGHTS, capability.object, 0)?;
    Ok(0)
}

/// An environment in any state.
fn any_environment<M: Machine>(state: &State<M>, by: Caller, slot: CapSlot, rights: Rights) -> Live<EnvironmentId> {
    let (_, capability) = state.lookup(by.environment, slot, CapType::Environment, rights)?;
    named(capability.object).and_then(|target| state.live_environment(target)).ok_or(Status::WrongState)
}

pub(super) fn destroy<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentDestroy) -> Answer {
    let target = any_environment(state, caller, call.slot, Rights::CONTROL)?;
    refuse_if(state.is_within(caller.environment, target), Status::WrongState)?;
    let progress = state.end_environment(target);
    super::capability::drop_ended(state, caller, call.slot, progress)
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentRead) -> Answer {
    let target = any_environment(state, caller, call.slot, Rights::READ)?;
    let object = &state.environments[target];
    let stop = object.stop;
    for (first, counts) in [(FIELD_SHARE_FIRST, object.share), (FIELD_USED_FIRST, object.used)] {
        if let Some(count) = counts.get(call.field.wrapping_sub(first) as usize) {
            return Ok(u64::from(*count));
        }
    }
    Ok(match EnvironmentField::from_number(call.field).ok_or(bad_argument(1))? {
        EnvironmentField::Stopped => stop.reason as u64,
        EnvironmentField::StopVector => stop.vector,
        EnvironmentField::StopAddress => stop.address,
        EnvironmentField::StopRip => stop.rip,
        EnvironmentField::FramesOwned => object.frames_owned,
        EnvironmentField::FrameQuota => object.frame_quota,
        EnvironmentField::FramesDonated => object.donated_count,
        EnvironmentField::SlotCount => {
            object.table.iter().flatten().count() as u64 * u64::from(crate::object::SLOTS_PER_FRAME)
        }
        EnvironmentField::FramesFree => state.frames.free_count(),
        EnvironmentField::TimeUsedNs => {
            let own = |id: &ProcessorId| state.processors[*id].environment == Some(target);
            let live_ns = state.processors.ids().filter(own).map(|id| state.time_used_ns(id));
            live_ns.fold(object.time_used_ns, u64::saturating_add)
        }
    })
}

pub(super) fn watch<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentWatch) -> Answer {
    let target = state.lookup_environment(caller.environment, call.slot, Rights::CONTROL)?;
    state.environments[target].watch = None;
    if call.bell != SLOT_NONE {
        let bell = state.lookup_bell(caller.environment, call.bell, Rights::RING)?;
        let with = [call.slot, call.bell].map(|slot| CapRef { environment: caller.environment, slot: slot.0 });
        state.environments[target].watch = Some((bell, with));
        // A watcher that comes late is told too.
        if state.environments[target].is_stopped() {
            state.ring(bell.id);
        }
    }
    Ok(0)
}

/// Moves entries between the caller's share and that of an environment that it made.
pub(super) fn share<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentShare) -> Answer {
    let target = any_environment(state, caller, call.slot, Rights::CONTROL)?;
    refuse_if(state.environments[target].parent != Some(caller.environment), Status::MissingRight)?;
    let table = TABLES.into_iter().find(|table| *table as u32 == call.table).ok_or(bad_argument(1))?;
    let object = &state.environments[target];
    let (before, used) = (object.share[table as usize], object.used[table as usize]);
    let count = u16::try_from(call.count).map_err(|_| Status::TableFull)?;
    refuse_if(count < used, Status::Busy)?;
    let left = state.environments[caller.environment].entries_left(table);
    match count.checked_sub(before) {
        Some(more) if more > left => return Err(Status::TableFull.into()),
        Some(more) => state.move_share(caller.environment, target, table, more),
        None => state.move_share(target, caller.environment, table, before - count),
    }
    Ok(0)
}

pub(super) fn reclaim<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentReclaim) -> Answer {
    let target = state.lookup_environment(caller.environment, call.slot, Rights::CONTROL)?;
    let object = &state.environments[target];
    refuse_if(call.frame_count == 0 || call.frame_count > object.frame_quota, bad_argument(1))?;
    let deadline_ns = object.reclaim.deadline_ns;
    let is_asked = deadline_ns != 0 && (object.excess() != 0 || state.machine.now_ns() >= deadline_ns);
    let parent = object.parent.filter(|_| !is_asked).ok_or(Status::WrongState)?;
    state.move_quota(target, parent, call.frame_count);
    state.begin_reclaim(target, call.deadline_ns);
    Ok(0)
}

pub(super) fn quota<M: Machine>(state: &mut State<M>, caller: Caller, call: EnvironmentQuota) -> Answer {
    let target = state.lookup_environment(caller.environment, call.slot, Rights::RECEIVE)?;
    refuse_if(call.frame_count > state.environments[caller.environment].frames_left(), Status::NoFrames)?;
    state.move_quota(caller.environment, target, call.frame_count);
    Ok(0)
}
