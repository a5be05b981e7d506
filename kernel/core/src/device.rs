//! Device functions: what the glue found, their drivers, what they may reach.
//!
//! The kernel drives no device. It maps regions, passes port accesses on, routes interrupts to
//! bells (counted, and masked until asked for again), and keeps a record of the frames that a
//! device may reach, which are pinned. Invariant: when an environment's last capability to set a
//! function to work goes, the function is at rest, stopped and reset, before the frames that it
//! could reach are unpinned.

use aegis_abi::device::DEVICE_INTERRUPT_COUNT_MAX;
use aegis_abi::share::Table;
use aegis_abi::types::FrameNumber;

use crate::id::{DEVICE_COUNT_MAX, DeviceId, EnvironmentId, Id};
use crate::object::{CapRef, DmaBinding, FunctionState, Route};
use crate::outcome::{More, Progress};
use crate::{Machine, State};

/// What a step of a reset costs of an entry's budget.
const RESET_COST: usize = 1024;

impl<M: Machine> State<'_, M> {
    /// An interrupt came: it is masked until the next one is asked for. Answers the environment that it is for: that of
    /// the processor which is called, and need not be the driver's own, or else the driver.
    pub(crate) fn device_interrupt(&mut self, device: DeviceId, interrupt: usize) -> Option<EnvironmentId> {
        self.machine.interrupt_mask(device, interrupt, true);
        if self.devices[device].is_driven
            && let Some(extension) = self.machine.extension()
        {
            extension.interrupt(self, device);
        }
        let route = *self.devices[device].routes.get(interrupt)?;
        if let Some(bell) = route.bell.and_then(|named| self.live_bell(named)) {
            self.ring(bell);
            let called = self.bells[bell].processor.and_then(|(named, _)| self.live_processor(named));
            return called.map_or(route.environment, |called| self.processors[called].environment);
        }
        route.environment
    }

    /// Goes on with a reset, for the environment that asked for it or for one that loses the function.
    pub(crate) fn reset_device(&mut self, device: DeviceId, why: FunctionState) -> Progress {
        self.spend(RESET_COST);
        let is_at_rest = self.machine.device_reset(device);
        self.devices[device].state = if is_at_rest { FunctionState::InUse } else { why };
        if is_at_rest { Ok(()) } else { Err(More) }
    }

    /// Brings a function to rest on behalf of an environment that loses it, then lets go of what the
    /// function could reach for it.
    pub(crate) fn release_device(&mut self, device: DeviceId, environment: EnvironmentId) -> Progress {
        for interrupt in 0..DEVICE_INTERRUPT_COUNT_MAX {
            if self.devices[device].routes[interrupt].environment == Some(environment) {
                self.machine.interrupt_mask(device, interrupt, true);
                self.devices[device].routes[interrupt] = Route::EMPTY;
            }
        }
        // Whatever it bound: a driver that polls, and knows where its frames are, binds nothing.
        if self.devices[device].state != FunctionState::Untouched {
            self.reset_device(device, FunctionState::Releasing)?;
        }
        for index in 0..self.dma_bindings.len() {
            if self.reached_frames(device, environment, index).is_some() {
                self.release_dma_binding(index);
            }
        }
        Ok(())
    }

    /// All functions that an environment can set to work, one after the other.
    pub(crate) fn release_devices_of(&mut self, environment: EnvironmentId) -> Progress {
        if self.environments[environment].devices_released == DEVICE_COUNT_MAX {
            return Ok(());
        }
        let held = self.devices_held(environment, 0);
        while let Some(device) = DeviceId::from_index(self.environments[environment].devices_released) {
            if held.can_work(device) {
                self.release_device(device, environment)?;
            }
            self.environments[environment].devices_released += 1;
        }
        Ok(())
    }

    /// Masks and forgets the interrupts that were bound with a capability.
    pub(crate) fn unroute(&mut self, at: CapRef) {
        for device in self.devices.ids() {
            for interrupt in 0..DEVICE_INTERRUPT_COUNT_MAX {
                if self.devices[device].routes[interrupt].bound_with.is_some_and(|with| with.contains(&at)) {
                    self.machine.interrupt_mask(device, interrupt, true);
                    self.devices[device].routes[interrupt] = Route::EMPTY;
                }
            }
        }
    }

    /// Stops a function before it loses memory.
    pub(crate) fn stop_device(&mut self, device: DeviceId) {
        self.machine.device_enable(device, false);
        if self.devices[device].is_driven
            && let Some(extension) = self.machine.extension()
        {
            extension.stop(self, device);
        }
    }

    /// The frames that a function reaches by place `index` of the table of all such ranges, and for what environment.
    /// For an extension, which remembers the place and asks again before each use.
    pub fn reached_frames(&self, device: DeviceId, by: EnvironmentId, index: usize) -> Option<(FrameNumber, u64)> {
        let is_theirs = |range: &&DmaBinding| range.device == Some(device) && range.environment == Some(by);
        let range = self.dma_bindings.get(index).filter(is_theirs)?;
        Some((FrameNumber(range.first), range.count))
    }

    pub(crate) fn release_dma_binding(&mut self, index: usize) {
        let binding = core::mem::replace(&mut self.dma_bindings[index], DmaBinding::EMPTY);
        if let Some(environment) = binding.environment {
            self.frames.unpin_range(binding.first, binding.count);
            self.environments[environment].count_entry(Table::DmaRanges, false);
        }
    }
}
