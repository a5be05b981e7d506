//! How capabilities go away: revocation, deletion, and what was bound with them.
//!
//! Invariants: a capability is deleted only when nothing descends from it; when the call that
//! deletes it says so, every mapping, pin, DMA range and interrupt route that only it justified is
//! gone and flushed (INV-4). Work is bounded: a part of it is done, the capability is marked so
//! that it authorises nothing any more, and the caller repeats the call. Cursors are in the capability,
//! and nothing can be put behind one, so repeating ends whatever others do meanwhile.

use aegis_abi::types::{CapType, Rights, Status};

use crate::id::{EnvironmentId, Named};
use crate::object::{
    CapRef, Capability, DYING, Environment, FILLING, HeldDevices, REVOKING, SLOT_COST, named, usable_word,
};
use crate::outcome::{More, Progress, refuse_if};
use crate::space::Broken;
use crate::{Machine, State};

/// What deleting one capability costs of an entry's budget at least.
const DELETE_COST: usize = 256;
/// What a look through the tables of processors and of ranges that devices reach costs.
const BINDINGS_COST: usize = 1024;
/// Frames that one step frees at most.
pub(crate) const FREE_STEP: u64 = 2048;

impl<M: Machine> State<'_, M> {
    /// Deletes every descendant of `at`, leaves first, whatever uses it, until the budget is used up. The environment
    /// that derived it may have it back: a processor that has its pages there ends, a device that reaches it is
    /// stopped.
    pub(crate) fn revoke(&mut self, at: CapRef) -> Progress {
        while let Some(leaf) = self.first_leaf(at) {
            if self.work_left == 0 || self.delete(leaf, true).is_err() {
                self.set_flag(at, REVOKING, true);
                return Err(More);
            }
        }
        self.set_flag(at, REVOKING, false);
        Ok(())
    }

    pub(crate) fn set_flag(&mut self, at: CapRef, flag: u8, value: bool) {
        if let Some(mut capability) = self.capability(at)
            && (capability.flags & flag != 0) != value
        {
            capability.flags ^= flag;
            self.store_capability(at, &capability);
        }
    }

    /// Deletes a capability without descendants, and what was bound with it. `force`: also what is in use.
    pub(crate) fn delete(&mut self, at: CapRef, force: bool) -> Result<(), Status> {
        let capability = self.capability(at).ok_or(Status::BadSlot)?;
        refuse_if(capability.child.is_some(), Status::Busy)?;
        self.spend(DELETE_COST);
        match capability.kind {
            CapType::Frames => self.delete_frames(at, capability, force)?,
            CapType::Device => self.delete_device(at, capability)?,
            CapType::Space => self.delete_space(at, capability)?,
            CapType::Bell | CapType::Gate => self.delete_object(&capability),
            CapType::Environment | CapType::Processor => {
                refuse_if(capability.parent.is_none() && !force && self.is_alive(&capability), Status::Busy)?;
            }
            CapType::Machine | CapType::Null => {}
        }
        self.unbind(at, &capability);
        self.unlink(at);
        Ok(())
    }

    fn is_alive(&self, capability: &Capability) -> bool {
        match capability.kind {
            CapType::Environment => named(capability.object).is_some_and(|id| self.live_environment(id).is_some()),
            _ => named(capability.object).is_some_and(|id| self.live_processor(id).is_some()),
        }
    }

    /// A bell or gate ends with its original capability.
    fn delete_object(&mut self, capability: &Capability) {
        if capability.parent.is_some() {
            return;
        }
        if capability.kind == CapType::Gate {
            if let Some(gate) = named(capability.object).and_then(|named| self.live_gate(named)) {
                self.release_gate(gate);
            }
        } else if let Some(bell) = named(capability.object).and_then(|named| self.live_bell(named)) {
            self.release_bell(bell);
        }
    }

    fn delete_frames(&mut self, at: CapRef, mut capability: Capability, force: bool) -> Result<(), Status> {
        let environment = at.environment;
        let (first, count) = (capability.object, capability.count);
        let is_pinned = self.frames.any_pinned(first, count);
        if is_pinned {
            self.interrupt_word_sleepers(environment, first, count);
            refuse_if(!force && self.is_in_use(at), Status::Busy)?;
        }
        let is_dying = capability.flags & DYING != 0;
        let is_mapped =
            !self.environments[environment].has_no_space && (is_dying || self.frames.any_mapped(first, count));
        if is_pinned || is_mapped {
            // From here on nothing new is bound with it. What goes on goes on where it was.
            capability.cursor = if is_dying { capability.cursor } else { 0 };
            capability.flags |= DYING;
            self.store_capability(at, &capability);
        }
        if is_pinned {
            self.release_bound(at)?;
        }
        if is_mapped {
            let broken = Broken::Frames { first, count, except: Some(at) };
            let progress = self.break_mappings(environment, broken, &mut capability.cursor);
            self.store_capability(at, &capability);
            progress?;
        }
        if capability.parent.is_some() {
            return Ok(());
        }
        self.free_original(at, capability)
    }

    /// Frees the frames of an original from its end, a bounded number at a time.
    pub(crate) fn free_original(&mut self, at: CapRef, mut capability: Capability) -> Result<(), Status> {
        refuse_if(self.frames.any_used(capability.object, capability.count), Status::Busy)?;
        let step = capability.count.min(FREE_STEP);
        let first = capability.object + capability.count - step;
        // What was not zeroed yet holds another's data.
        let is_foreign = capability.flags & FILLING != 0;
        self.free_frames(at.environment, first, step, is_foreign);
        self.spend(step as usize);
        capability.count -= step;
        if capability.count == 0 {
            return Ok(());
        }
        capability.flags |= DYING;
        self.store_capability(at, &capability);
        Err(Status::Again)
    }

    /// Whether a device or a processor uses frames by authority of this capability.
    pub(crate) fn is_in_use(&mut self, at: CapRef) -> bool {
        self.spend(BINDINGS_COST);
        self.dma_bindings.iter().any(|binding| binding.bound_with == Some(at))
            || self.processors.iter().any(|(_, object)| object.paid_with == Some(at))
    }

    /// Stops the devices that reach frames by authority of this capability and lets go of these; ends the processors
    /// that have their pages there.
    pub(crate) fn release_bound(&mut self, at: CapRef) -> Progress {
        self.spend(BINDINGS_COST);
        for index in 0..self.dma_bindings.len() {
            let binding = self.dma_bindings[index];
            if let Some(device) = binding.device.filter(|_| binding.bound_with == Some(at)) {
                self.check_budget()?;
                self.stop_device(device);
                self.spend(binding.count as usize);
                self.release_dma_binding(index);
            }
        }
        let mut progress = Ok(());
        for processor in self.processors.ids() {
            if self.processors[processor].paid_with == Some(at) {
                self.check_budget()?;
                progress = self.end_processor(processor).and(progress);
            }
        }
        progress
    }

    /// Ends what was bound with a capability that goes: a binding lives as long as the one that it was made with.
    fn unbind(&mut self, at: CapRef, capability: &Capability) {
        match capability.kind {
            CapType::Processor => {
                self.spend(BINDINGS_COST);
                let stays = |(_, with): &(_, CapRef)| *with != at;
                for bell in self.bells.ids().take(self.bell_end) {
                    self.bells[bell].processor = self.bells[bell].processor.filter(stays);
                }
                for gate in self.gates.ids() {
                    self.gates[gate].processor = self.gates[gate].processor.filter(stays);
                }
            }
            CapType::Bell => {
                self.spend(BINDINGS_COST);
                self.cancel_bell(at, named(capability.object));
                self.unwatch(at);
                self.unroute(at);
            }
            CapType::Environment => self.unwatch(at),
            CapType::Device => self.unroute(at),
            _ => {}
        }
    }

    /// Forgets which bell rings when an environment stops, where that was said with this capability.
    fn unwatch(&mut self, at: CapRef) {
        for environment in self.environments.ids() {
            let object = &mut self.environments[environment];
            object.watch = object.watch.filter(|(_, with)| !with.contains(&at));
        }
    }

    fn delete_device(&mut self, at: CapRef, mut capability: Capability) -> Progress {
        let environment = at.environment;
        let Environment { has_no_space, maps_devices, .. } = self.environments[environment];
        let Some(Named { id: device, .. }) = named(capability.object).filter(|_| !has_no_space) else { return Ok(()) };
        if capability.flags & DYING == 0 {
            capability.cursor = 0;
        }
        capability.flags |= DYING;
        self.store_capability(at, &capability);
        let held = self.devices_held(environment, at.slot);
        if maps_devices {
            let broken = Broken::Device { device, held };
            let progress = self.get_on(|state| state.break_mappings(environment, broken, &mut capability.cursor));
            self.store_capability(at, &capability);
            progress?;
        }
        // Its registers are out of reach now, so that at rest it stays so.
        let loses = |right, kind| capability.rights.contains(right) && !held.has(device, kind);
        if loses(Rights::CONTROL, 0) || loses(Rights::READ | Rights::WRITE, 2) {
            return self.release_device(device, environment);
        }
        Ok(())
    }

    /// The device functions for which an environment has usable capabilities, the one in a slot aside.
    pub(crate) fn devices_held(&mut self, environment: EnvironmentId, except: u32) -> HeldDevices {
        let (mut held, mut looked) = ([0; 64], 0);
        let usable = usable_word(CapType::Device, Rights::empty());
        self.find_slot(environment, 0, |slot, [word, object]| {
            looked += SLOT_COST;
            if word & usable.0 == usable.1 && slot != except {
                HeldDevices::note(&mut held, word, object);
            }
            false
        });
        self.spend(looked);
        HeldDevices::noted(held)
    }
}
