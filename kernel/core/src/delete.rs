//! How capabilities go away: revocation, deletion, and what was bound with them.
//!
//! Invariants: a capability is deleted only when nothing descends from it; when the call that
//! deletes it says so, every mapping, pin, DMA range and interrupt route that only it justified is
//! gone and flushed (INV-4). Work is bounded: a part of it is done, the capability is marked so
//! that it authorises nothing any more, and the caller repeats the call.

use aegis_abi::types::{CapType, Rights, Status};

use crate::capability::{CapRef, Capability, DYING, FILLING, REVOKING};
use crate::device::HeldDevices;
use crate::environment::Environment;
use crate::id::{BellId, DeviceId, EnvironmentId, GateId, Named, ProcessorId};
use crate::machine::Machine;
use crate::space::{Broken, Progress};
use crate::state::State;

/// Capabilities that one call deletes at most.
const DELETE_COUNT_MAX: usize = 64;
/// What deleting one capability costs of the walk budget at least.
const DELETE_COST: usize = crate::space::WALK_BUDGET / DELETE_COUNT_MAX / 2;
/// Frames that one step frees at most.
pub(crate) const FREE_STEP: u64 = 16384;

impl<M: Machine> State<'_, M> {
    /// Deletes every descendant of `at`, leaves first, until the budget is used up. `force`: also
    /// what is in use.
    pub(crate) fn revoke(&mut self, at: CapRef, budget: &mut usize, force: bool) -> Result<Progress, Status> {
        while let Some(leaf) = self.first_leaf(at) {
            if *budget == 0 {
                self.set_flag(at, REVOKING, true);
                return Ok(Progress::More);
            }
            match self.delete(leaf, budget, force) {
                Ok(Progress::Done) => {}
                Ok(Progress::More) => {
                    self.set_flag(at, REVOKING, true);
                    return Ok(Progress::More);
                }
                Err(status) => {
                    self.set_flag(at, REVOKING, false);
                    return Err(status);
                }
            }
        }
        self.set_flag(at, REVOKING, false);
        Ok(Progress::Done)
    }

    fn set_flag(&mut self, at: CapRef, flag: u8, value: bool) {
        if let Some(mut capability) = self.capability(at)
            && (capability.flags & flag != 0) != value
        {
            capability.flags ^= flag;
            self.store_capability(at, &capability);
        }
    }

    /// Deletes a capability without descendants, and what was bound with it.
    pub(crate) fn delete(&mut self, at: CapRef, budget: &mut usize, force: bool) -> Result<Progress, Status> {
        let capability = self.capability(at).ok_or(Status::BadSlot)?;
        if capability.child.is_some() {
            return Err(Status::Busy);
        }
        *budget = budget.saturating_sub(DELETE_COST);
        let progress = match capability.kind {
            CapType::Frames => self.delete_frames(at, capability, budget, force)?,
            CapType::Device => self.delete_device(at, capability, budget),
            CapType::Space => self.delete_space(at, capability, budget)?,
            CapType::Bell | CapType::Gate => {
                self.delete_object(&capability);
                Progress::Done
            }
            CapType::Environment | CapType::Processor => {
                if capability.parent.is_none() && !force && self.is_alive(&capability) {
                    return Err(Status::Busy);
                }
                Progress::Done
            }
            CapType::Machine | CapType::Null => Progress::Done,
        };
        if progress == Progress::Done {
            self.unlink(at);
        }
        Ok(progress)
    }

    fn is_alive(&self, capability: &Capability) -> bool {
        let environment: Option<Named<EnvironmentId>> = Self::named_object(capability);
        let processor: Option<Named<ProcessorId>> = Self::named_object(capability);
        match capability.kind {
            CapType::Environment => environment.is_some_and(|named| self.live_environment(named).is_some()),
            _ => processor.is_some_and(|named| self.live_processor(named).is_some()),
        }
    }

    /// A bell or gate ends with its original capability.
    fn delete_object(&mut self, capability: &Capability) {
        if capability.parent.is_some() {
            return;
        }
        let bell: Option<Named<BellId>> = Self::named_object(capability);
        let gate: Option<Named<GateId>> = Self::named_object(capability);
        if capability.kind == CapType::Bell {
            if let Some(bell) = bell.and_then(|named| self.live_bell(named)) {
                self.release_bell(bell);
            }
        } else if let Some(gate) = gate.and_then(|named| self.live_gate(named)) {
            self.release_gate(gate);
        }
    }

    fn delete_frames(
        &mut self,
        at: CapRef,
        capability: Capability,
        budget: &mut usize,
        force: bool,
    ) -> Result<Progress, Status> {
        let environment = at.environment;
        let (first, count) = (capability.object, capability.count);
        if self.frames.any_pinned(first, count) {
            self.interrupt_word_sleepers(environment, first, count);
            if force {
                self.release_dma_of(environment, first, count);
            } else if self.is_in_use(at, &capability) {
                return Err(Status::Busy);
            }
        }
        let mut capability = capability;
        if !self.environments[environment].has_no_space
            && (capability.flags & DYING != 0 || self.frames.any_mapped(first, count))
        {
            let broken = Broken::Frames { first, count, except: Some(at) };
            // A new deletion starts from the beginning; one under way goes on where it was.
            let mut cursor = if capability.flags & DYING != 0 { capability.cursor } else { 0 };
            capability.flags |= DYING;
            let progress = self.break_mappings(environment, broken, &mut cursor, budget);
            capability.cursor = cursor;
            self.store_capability(at, &capability);
            if progress == Progress::More {
                return Ok(Progress::More);
            }
        }
        if capability.parent.is_some() {
            if force {
                return Ok(self.release_pages_paid(at, &capability));
            }
            return Ok(Progress::Done);
        }
        if force && self.release_pages_paid(at, &capability) == Progress::More {
            return Ok(Progress::More);
        }
        self.free_original(at, capability)
    }

    /// Frees the frames of an original from its end, a bounded number at a time.
    pub(crate) fn free_original(&mut self, at: CapRef, mut capability: Capability) -> Result<Progress, Status> {
        if self.frames.any_pinned(capability.object, capability.count)
            || self.frames.any_mapped(capability.object, capability.count)
        {
            return Err(Status::Busy);
        }
        let step = capability.count.min(FREE_STEP);
        let first = capability.object + capability.count - step;
        // What was not zeroed yet holds another's data.
        let is_foreign = capability.flags & FILLING != 0;
        self.free_frames(at.environment, first, step, is_foreign);
        capability.count -= step;
        if capability.count == 0 {
            return Ok(Progress::Done);
        }
        capability.flags |= DYING;
        self.store_capability(at, &capability);
        Ok(Progress::More)
    }

    /// Whether a device or a processor uses frames of the range by authority of this capability
    /// alone.
    fn is_in_use(&self, at: CapRef, capability: &Capability) -> bool {
        let environment = at.environment;
        if capability.parent.is_none() {
            return self.frames.any_pinned(capability.object, capability.count);
        }
        let needs = |first: u64, count: u64, rights: Rights| {
            capability.overlaps(first, count) && !self.is_covered(environment, first, count, rights, Some(at))
        };
        self.dma_bindings
            .iter()
            .any(|binding| binding.environment == Some(environment) && needs(binding.first, binding.count, Rights::DMA))
            || self.processors.iter().any(|(_, object)| {
                object.serial != 0
                    && object.payer == Some(environment)
                    && needs(object.pages.first_frame, object.pages.frame_count(), Rights::WRITE)
            })
    }

    /// Ends the processors whose pages this capability pays for.
    fn release_pages_paid(&mut self, at: CapRef, capability: &Capability) -> Progress {
        let mut progress = Progress::Done;
        for processor in self.processors.ids() {
            let object = &self.processors[processor];
            if object.serial != 0
                && object.payer == Some(at.environment)
                && capability.overlaps(object.pages.first_frame, object.pages.frame_count())
                && self.end_processor(processor) == Progress::More
            {
                progress = Progress::More;
            }
        }
        progress
    }

    fn delete_device(&mut self, at: CapRef, mut capability: Capability, budget: &mut usize) -> Progress {
        let environment = at.environment;
        let named: Option<Named<DeviceId>> = Self::named_object(&capability);
        let Some(device) = named.map(|named| named.id) else {
            return Progress::Done;
        };
        if capability.flags & DYING == 0 {
            capability.cursor = 0;
        }
        capability.flags |= DYING;
        self.store_capability(at, &capability);
        let held = self.devices_held(environment, at);
        if !held.has(device) {
            self.release_device(device, environment);
        }
        let environment_object = &self.environments[environment];
        if environment_object.has_no_space || !environment_object.maps_devices {
            return Progress::Done;
        }
        let broken = Broken::Device { device, held };
        let progress = self.break_mappings(environment, broken, &mut capability.cursor, budget);
        self.store_capability(at, &capability);
        progress
    }

    /// The device functions for which an environment has usable capabilities, `except` aside.
    fn devices_held(&self, environment: EnvironmentId, except: CapRef) -> HeldDevices {
        let mut held = HeldDevices::default();
        for capability in self.slots(environment).filter(|at| *at != except).filter_map(|at| self.capability(at)) {
            if capability.kind == CapType::Device
                && capability.flags & DYING == 0
                && let Some(named) = Self::named_object::<DeviceId>(&capability)
            {
                held.add(named.id, capability.rights);
            }
        }
        held
    }
}

impl Environment {
    /// Names the bell that is rung when the environment stops; `None` for no bell.
    pub(crate) fn set_watch(&mut self, bell: Option<Named<BellId>>) {
        self.watch = bell;
    }
}
