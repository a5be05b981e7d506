//! What a driver needs of a virtio transport, whichever bus it is on.

use aegis_hal::DeviceAddress;

use crate::VirtioError;

/// Where the three parts of a queue are, as the device sees them (section 2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Descriptor table; 16-byte aligned.
    pub descriptors: DeviceAddress,
    /// Available ring (driver area); 2-byte aligned.
    pub available: DeviceAddress,
    /// Used ring (device area); 4-byte aligned.
    pub used: DeviceAddress,
}

/// Why a device raised its interrupt; both can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptCause {
    /// A queue has used buffers.
    pub queue: bool,
    /// The configuration, or the device's status, changed.
    pub configuration: bool,
    /// Nothing says which, and both may hold: one message stands for either.
    pub is_guessed: bool,
}

/// Interrupts that may pass without a look at the configuration where each could be for it.
const GUESSED_COUNT_MAX: u8 = 64;

impl InterruptCause {
    /// Whether to look for a change of the configuration, which costs accesses to the device. Where it is guessed and
    /// there is something in a queue (`has_used`), that is what the interrupt was for, but for one of many; `passed`
    /// counts those.
    pub(crate) fn is_worth_a_look(self, has_used: bool, passed: &mut u8) -> bool {
        if self.is_guessed && has_used && *passed < GUESSED_COUNT_MAX {
            *passed += 1;
            return false;
        }
        *passed = 0;
        self.configuration
    }
}

/// The registers of one device. Every method that fails did so because a window is too small,
/// unless it says otherwise.
pub trait Transport {
    /// The device type (section 5), 3 for a console.
    ///
    /// # Errors
    /// [`crate::ConfigurationFault`] if this is not a device that virtio 1.x describes.
    fn device_type(&self) -> Result<u32, VirtioError>;

    /// The status register (section 2.1).
    ///
    /// # Errors
    /// As all methods.
    fn status(&self) -> Result<u8, VirtioError>;

    /// Writes the status register; zero resets the device.
    ///
    /// # Errors
    /// As all methods.
    fn set_status(&mut self, status: u8) -> Result<(), VirtioError>;

    /// The features that the device offers.
    ///
    /// # Errors
    /// As all methods.
    fn device_features(&mut self) -> Result<u64, VirtioError>;

    /// Tells the features that the driver takes.
    ///
    /// # Errors
    /// As all methods.
    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError>;

    /// The largest size that the device allows for a queue; zero if it has no such queue.
    ///
    /// # Errors
    /// As all methods.
    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError>;

    /// Sets up and enables a queue.
    ///
    /// # Errors
    /// As all methods, and [`crate::DeviceFault`] if the device does not take the queue.
    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError>;

    /// Tells the device that a queue has new buffers. Costs a trap into the machine monitor.
    ///
    /// # Errors
    /// As all methods.
    fn notify(&mut self, queue: u16) -> Result<(), VirtioError>;

    /// A queue's wish for interrupts changed to yes, in its ring. A transport that does not read the ring while the
    /// driver looks at it overrides this.
    ///
    /// # Errors
    /// As all methods.
    fn interrupts_wanted(&mut self, queue: u16) -> Result<(), VirtioError> {
        let _ = queue;
        Ok(())
    }

    /// Reads why the interrupt was raised and lowers it.
    ///
    /// # Errors
    /// As all methods.
    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError>;

    /// Four bytes of the device's own configuration. A single read of this width needs no
    /// generation check (section 2.5.3).
    ///
    /// # Errors
    /// As all methods.
    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError>;
}
