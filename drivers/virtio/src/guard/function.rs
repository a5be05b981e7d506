//! A guarded function: what its driver may ask for, and when.
//!
//! The device is set up as always (section 3.1.1), each step by the driver's request; what the guard adds is that steps
//! come in their order, that features are those it understands, and that queues are its own. A driver that breaks the
//! rules of a queue finds its device reset and `DEVICE_NEEDS_RESET` set, until it resets it too. A device that does not
//! let itself be reset is given up for good, with its memory.

use aegis_hal::{DeviceAddress, DmaBuffer};

use super::shadow::{DEVICE_BYTES, Places, Shadow, Window};
use super::{Answer, GUARDED_QUEUE_COUNT_MAX, GUARDED_QUEUE_SIZE_MAX, Geometry, operation, outcome};
use crate::console::{DEVICE_TYPE_CONSOLE, FEATURE_MULTIPORT};
use crate::device::{self, FEATURE_ACCESS_PLATFORM, FEATURE_VERSION_1, status};
use crate::net::{self, DEVICE_TYPE_NET};
use crate::ninep::{DEVICE_TYPE_NINEP, FEATURE_MOUNT_TAG};
use crate::queue::available_offset;
use crate::{QueueAddresses, Transport, VirtioError};

/// Looks at the status register before a reset counts as failed. A device of a virtual machine is reset at once.
const RESET_POLL_COUNT_MAX: u32 = 10_000;
/// Bytes of configuration that can be read.
const CONFIG_BYTES: u64 = 64;

/// What is wrong with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It was reset, because its driver or it broke a rule; the driver's reset makes it good.
    NeedsReset,
    /// It cannot be reset.
    Stuck,
}

/// Why a request was not carried out.
enum Refusal {
    /// An argument or the time was wrong.
    Refused,
    /// The function has failed.
    Failed,
}

impl From<VirtioError> for Refusal {
    fn from(_: VirtioError) -> Self {
        Self::Failed
    }
}

fn check(holds: bool) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::Refused) }
}

/// The memory of a function (see the module above), pages in order of their queues.
#[derive(Debug)]
pub struct FunctionMemory<B> {
    /// Where the device finds the driver's pages, window first.
    pub driver_base: DeviceAddress,
    /// The driver's rings.
    pub rings: B,
    /// The used rings.
    pub used: B,
    /// The device's descriptors and available rings.
    pub device: B,
}

/// A device function behind a guard.
#[derive(Debug)]
pub struct GuardedFunction<T, B> {
    transport: T,
    device_type: u32,
    geometry: Geometry,
    memory: FunctionMemory<B>,
    queues: [Shadow; GUARDED_QUEUE_COUNT_MAX],
    /// As the driver has set it, without what the device adds.
    status: u8,
    has_features: bool,
    failure: Option<Failure>,
}

impl<T: Transport, B: DmaBuffer> GuardedFunction<T, B> {
    /// The device behind `transport`, reset; `None` if its type cannot be guarded or the memory is too small for it.
    pub fn new(transport: T, memory: FunctionMemory<B>) -> Option<Self> {
        let device_type = transport.device_type().ok()?;
        let geometry = Geometry::of(device_type)?;
        let ring_bytes = geometry.queue_count * aegis_hal::PAGE_BYTES;
        let fits = memory.rings.length_bytes() >= ring_bytes
            && memory.used.length_bytes() >= ring_bytes
            && memory.device.length_bytes() >= geometry.device_page_count() * aegis_hal::PAGE_BYTES;
        let mut function = Self {
            transport,
            device_type,
            geometry,
            memory,
            queues: [const { Shadow::NONE }; GUARDED_QUEUE_COUNT_MAX],
            status: 0,
            has_features: false,
            failure: None,
        };
        (fits && function.reset().is_ok()).then_some(function)
    }

    /// Carries out a request of the driver: one of [`operation`] and its arguments.
    pub fn serve(&mut self, operation: u64, arguments: [u64; 3]) -> Answer {
        match self.answer(operation, arguments) {
            Ok([first, second]) => [outcome::DONE, first, second],
            Err(Refusal::Refused) => [outcome::REFUSED, 0, 0],
            Err(Refusal::Failed) => {
                self.fail();
                [outcome::FAILED, 0, 0]
            }
        }
    }

    /// Stops the device for good. True if it has stopped: then it accesses no memory any more.
    pub fn stop(&mut self) -> bool {
        self.reset().is_ok()
    }

    /// Gives the memory back, of a device that was stopped.
    pub fn into_memory(self) -> FunctionMemory<B> {
        self.memory
    }

    fn answer(&mut self, operation: u64, [first, second, third]: [u64; 3]) -> Result<[u64; 2], Refusal> {
        match operation {
            operation::DESCRIBE => {
                let queues = (self.geometry.queue_count as u64) << 32;
                return Ok([u64::from(self.device_type), self.geometry.window_page_count as u64 | queues]);
            }
            operation::STATUS => return Ok([self.read_status(), 0]),
            operation::SET_STATUS if first == 0 && self.failure != Some(Failure::Stuck) => {
                return self.reset().map(|()| [0; 2]);
            }
            operation::INTERRUPT => return Ok([self.interrupt_cause(), 0]),
            _ if self.failure.is_some() => return Err(Refusal::Failed),
            _ => {}
        }
        let value = match operation {
            operation::SET_STATUS => self.set_status(first)?,
            operation::FEATURES => self.features()?,
            operation::SET_FEATURES => self.set_features(first)?,
            operation::QUEUE_SIZE_MAX => u64::from(self.queue_size_max(first)?),
            operation::ENABLE_QUEUE => self.enable_queue(first, second, third)?,
            operation::KICK => self.kick(first)?,
            operation::CONFIG => self.config(first)?,
            _ => return Err(Refusal::Refused),
        };
        Ok([value, 0])
    }

    fn reset(&mut self) -> Result<(), Refusal> {
        self.status = 0;
        self.has_features = false;
        self.failure = Some(Failure::Stuck);
        device::reset(&mut self.transport, RESET_POLL_COUNT_MAX)?;
        self.failure = None;
        self.queues = [const { Shadow::NONE }; GUARDED_QUEUE_COUNT_MAX];
        Ok(())
    }

    /// A rule was broken: the device stops at once.
    fn fail(&mut self) {
        if self.failure.is_none() && self.reset().is_ok() {
            self.failure = Some(Failure::NeedsReset);
        }
    }

    fn read_status(&self) -> u64 {
        let status = match self.failure {
            Some(_) => status::DEVICE_NEEDS_RESET,
            None => self.transport.status().unwrap_or(status::DEVICE_NEEDS_RESET),
        };
        u64::from(status)
    }

    fn interrupt_cause(&mut self) -> u64 {
        let cause = self.transport.acknowledge_interrupt().unwrap_or_default();
        u64::from(cause.queue) | u64::from(cause.configuration || self.failure.is_some()) << 1
    }

    /// The bits come in their order and stay; the device may take `FEATURES_OK` back.
    fn set_status(&mut self, value: u64) -> Result<u64, Refusal> {
        const ORDER: [u8; 4] = [status::ACKNOWLEDGE, status::DRIVER, status::FEATURES_OK, status::DRIVER_OK];
        let value = u8::try_from(value).map_err(|_| Refusal::Refused)?;
        let is_in_order = (1..=ORDER.len()).any(|count| value & !status::FAILED == ORDER[..count].iter().sum());
        check(is_in_order && value & self.status == self.status)?;
        let agrees = value & status::FEATURES_OK == 0 || self.has_features;
        let starts = value & status::DRIVER_OK == 0 || self.status & status::FEATURES_OK != 0;
        check(agrees && starts)?;
        self.transport.set_status(value)?;
        self.status = value;
        if value & status::FEATURES_OK != 0 && self.transport.status()? & status::FEATURES_OK == 0 {
            self.status &= !status::FEATURES_OK;
        }
        Ok(0)
    }

    fn features(&mut self) -> Result<u64, Refusal> {
        // Those that change nothing about rings.
        let own = match self.device_type {
            DEVICE_TYPE_CONSOLE => FEATURE_MULTIPORT,
            DEVICE_TYPE_NINEP => FEATURE_MOUNT_TAG,
            DEVICE_TYPE_NET => net::FEATURES,
            _ => 0,
        };
        Ok(self.transport.device_features()? & (FEATURE_VERSION_1 | own))
    }

    fn set_features(&mut self, features: u64) -> Result<u64, Refusal> {
        check(self.status & status::DRIVER != 0 && self.status & status::FEATURES_OK == 0)?;
        check(features & !self.features()? == 0 && features & FEATURE_VERSION_1 != 0)?;
        // Where addresses are translated, they are for this device too; the driver has no part in it.
        let platform = self.transport.device_features()? & FEATURE_ACCESS_PLATFORM;
        self.transport.set_driver_features(features | platform)?;
        self.has_features = true;
        Ok(0)
    }

    fn queue_index(&self, queue: u64) -> Option<usize> {
        usize::try_from(queue).ok().filter(|queue| *queue < self.geometry.queue_count)
    }

    fn queue_size_max(&mut self, queue: u64) -> Result<u16, Refusal> {
        let Some(index) = self.queue_index(queue) else { return Ok(0) };
        let size_max = self.transport.queue_size_max(index as u16)?.min(GUARDED_QUEUE_SIZE_MAX as u16);
        Ok(size_max.checked_ilog2().map_or(0, |log2| 1 << log2))
    }

    fn enable_queue(&mut self, queue: u64, size: u64, address: u64) -> Result<u64, Refusal> {
        let index = self.queue_index(queue).ok_or(Refusal::Refused)?;
        let is_time = self.status & (status::FEATURES_OK | status::DRIVER_OK) == status::FEATURES_OK;
        check(is_time && !self.queues.get(index).is_none_or(Shadow::is_enabled))?;
        let size = u16::try_from(size).ok().filter(|size| size.is_power_of_two()).ok_or(Refusal::Refused)?;
        check(size <= self.queue_size_max(queue)? && address == self.geometry.ring_address(index))?;
        let page_offset = index * aegis_hal::PAGE_BYTES;
        let device_offset = index * DEVICE_BYTES;
        let shadow = self.queues.get_mut(index).ok_or(Refusal::Refused)?;
        shadow.enable(size, &mut self.memory.device, device_offset).map_err(|_| Refusal::Failed)?;
        for offset in (0..aegis_hal::PAGE_BYTES).step_by(8) {
            self.memory.used.write_u64(page_offset + offset, 0).map_err(|_| Refusal::Failed)?;
        }
        let descriptors = self.memory.device.device_address().offset(device_offset);
        let addresses = QueueAddresses {
            descriptors,
            available: descriptors.offset(available_offset(usize::from(size))),
            used: self.memory.used.device_address().offset(page_offset),
        };
        self.transport.enable_queue(index as u16, size, addresses)?;
        Ok(0)
    }

    fn kick(&mut self, queue: u64) -> Result<u64, Refusal> {
        let index = self.queue_index(queue).ok_or(Refusal::Refused)?;
        check(self.status & status::DRIVER_OK != 0)?;
        let shadow = self.queues.get_mut(index).filter(|shadow| shadow.is_enabled()).ok_or(Refusal::Refused)?;
        let length_bytes = (self.geometry.driver_page_count() * aegis_hal::PAGE_BYTES) as u64;
        let window = Window { base: self.memory.driver_base.0, length_bytes };
        let mut places = Places {
            rings: &self.memory.rings,
            used: &self.memory.used,
            page_offset: index * aegis_hal::PAGE_BYTES,
            device: &mut self.memory.device,
            device_offset: index * DEVICE_BYTES,
        };
        let look = shadow.look(window, &mut places).map_err(|_| Refusal::Failed)?;
        if look.notifies {
            self.transport.notify(index as u16)?;
        }
        Ok(0)
    }

    fn config(&mut self, offset: u64) -> Result<u64, Refusal> {
        check(offset.is_multiple_of(4) && offset < CONFIG_BYTES)?;
        Ok(u64::from(self.transport.config_u32(offset as usize)?))
    }
}
