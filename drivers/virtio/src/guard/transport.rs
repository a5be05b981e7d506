//! The driver's side of a guarded function.

use super::{Answer, Geometry, Request, operation, outcome};
use crate::{ConfigurationFault, DeviceFault, InterruptCause, QueueAddresses, Transport, VirtioError};

/// The way to the guard.
pub trait Guard {
    /// Carries a request there and its answer back; `None` if the guard is gone.
    fn call(&self, request: Request) -> Option<Answer>;
}

impl Guard for core::convert::Infallible {
    fn call(&self, _: Request) -> Option<Answer> {
        match *self {}
    }
}

/// A function that somebody guards. Addresses that the device is told are places in the function's window.
#[derive(Debug)]
pub struct GuardedTransport<G> {
    guard: G,
    function: u64,
    device_type: u32,
    geometry: Geometry,
}

impl<G: Guard> GuardedTransport<G> {
    /// Function number `function`; `None` if there is none.
    pub fn open(guard: G, function: u64) -> Option<Self> {
        let [outcome, device_type, sizes] = guard.call([operation::DESCRIBE, function, 0, 0, 0])?;
        let device_type = u32::try_from(device_type).ok()?;
        if outcome != outcome::DONE || device_type == 0 {
            return None;
        }
        let geometry = Geometry {
            window_page_count: usize::try_from(sizes & u64::from(u32::MAX)).ok()?,
            queue_count: usize::try_from(sizes >> 32).ok()?,
        };
        Some(Self { guard, function, device_type, geometry })
    }

    /// How much memory there is.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn ask(&self, operation: u64, arguments: [u64; 3]) -> Result<u64, VirtioError> {
        let [first, second, third] = arguments;
        let answer = self.guard.call([operation, self.function, first, second, third]);
        match answer.unwrap_or([outcome::REFUSED, 0, 0]) {
            [outcome::DONE, value, _] => Ok(value),
            [outcome::FAILED, ..] => Err(DeviceFault::NeedsReset.into()),
            _ => Err(ConfigurationFault::Guard.into()),
        }
    }
}

impl<G: Guard> Transport for GuardedTransport<G> {
    fn device_type(&self) -> Result<u32, VirtioError> {
        Ok(self.device_type)
    }

    fn status(&self) -> Result<u8, VirtioError> {
        Ok(self.ask(operation::STATUS, [0; 3])? as u8)
    }

    fn set_status(&mut self, status: u8) -> Result<(), VirtioError> {
        self.ask(operation::SET_STATUS, [u64::from(status), 0, 0]).map(|_| ())
    }

    fn device_features(&mut self) -> Result<u64, VirtioError> {
        self.ask(operation::FEATURES, [0; 3])
    }

    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError> {
        self.ask(operation::SET_FEATURES, [features, 0, 0]).map(|_| ())
    }

    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError> {
        Ok(self.ask(operation::QUEUE_SIZE_MAX, [u64::from(queue), 0, 0])? as u16)
    }

    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError> {
        let arguments = [u64::from(queue), u64::from(size), addresses.descriptors.0];
        self.ask(operation::ENABLE_QUEUE, arguments).map(|_| ())
    }

    fn notify(&mut self, queue: u16) -> Result<(), VirtioError> {
        self.ask(operation::KICK, [u64::from(queue), 0, 0]).map(|_| ())
    }

    fn interrupts_wanted(&mut self, queue: u16) -> Result<(), VirtioError> {
        self.notify(queue)
    }

    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError> {
        let cause = self.ask(operation::INTERRUPT, [0; 3])?;
        Ok(InterruptCause { queue: cause & 1 != 0, configuration: cause & 2 != 0, is_guessed: false })
    }

    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError> {
        Ok(self.ask(operation::CONFIG, [offset as u64, 0, 0])? as u32)
    }
}
