//! Virtio over memory-mapped registers, version 2 (section 4.2.2). All registers are accessed as
//! four bytes.

use aegis_hal::{DeviceAddress, Doorbell, MmioRegion, Volatile, Width};

use crate::{ConfigurationFault, DeviceFault, InterruptCause, QueueAddresses, Transport, VirtioError};

/// Register offsets, table 4.1.
pub(crate) mod register {
    pub(crate) const MAGIC: usize = 0x000;
    pub(crate) const VERSION: usize = 0x004;
    pub(crate) const DEVICE_ID: usize = 0x008;
    pub(crate) const DEVICE_FEATURES: usize = 0x010;
    pub(crate) const DEVICE_FEATURES_SELECT: usize = 0x014;
    pub(crate) const DRIVER_FEATURES: usize = 0x020;
    pub(crate) const DRIVER_FEATURES_SELECT: usize = 0x024;
    pub(crate) const QUEUE_SELECT: usize = 0x030;
    pub(crate) const QUEUE_SIZE_MAX: usize = 0x034;
    pub(crate) const QUEUE_SIZE: usize = 0x038;
    pub(crate) const QUEUE_READY: usize = 0x044;
    pub(crate) const QUEUE_NOTIFY: usize = 0x050;
    pub(crate) const INTERRUPT_STATUS: usize = 0x060;
    pub(crate) const INTERRUPT_ACKNOWLEDGE: usize = 0x064;
    pub(crate) const STATUS: usize = 0x070;
    pub(crate) const QUEUE_DESCRIPTORS: usize = 0x080;
    pub(crate) const QUEUE_AVAILABLE: usize = 0x090;
    pub(crate) const QUEUE_USED: usize = 0x0a0;
    pub(crate) const CONFIG: usize = 0x100;
}

/// "virt", little-endian.
pub(crate) const MAGIC: u32 = 0x7472_6976;
/// The register layout of virtio 1.x; 1 is the legacy one.
pub(crate) const VERSION: u32 = 2;

/// Interrupt bit: a queue has used buffers.
pub(crate) const INTERRUPT_QUEUE: u32 = 1;
/// Interrupt bit: configuration changed.
pub(crate) const INTERRUPT_CONFIGURATION: u32 = 2;

/// A virtio-mmio slot.
#[derive(Debug)]
pub struct MmioTransport<M> {
    registers: M,
}

impl<M: Volatile> MmioTransport<M> {
    /// The device behind `registers`, if one is there. An empty slot of QEMU has device type 0.
    ///
    /// # Errors
    /// [`ConfigurationFault::NotVirtio`], [`ConfigurationFault::Legacy`], or a window too small to
    /// tell.
    pub fn new(registers: M) -> Result<Self, VirtioError> {
        if registers.read_u32(register::MAGIC)? != MAGIC {
            return Err(ConfigurationFault::NotVirtio.into());
        }
        if registers.read_u32(register::VERSION)? != VERSION {
            return Err(ConfigurationFault::Legacy.into());
        }
        Ok(Self { registers })
    }

    fn set_address(&mut self, register: usize, address: DeviceAddress) -> Result<(), VirtioError> {
        self.registers.write_u32(register, address.0 as u32)?;
        self.registers.write_u32(register + 4, (address.0 >> 32) as u32)?;
        Ok(())
    }
}

impl MmioTransport<MmioRegion> {
    /// The register that [`Transport::notify`] writes, for one queue.
    ///
    /// # Errors
    /// As all methods.
    pub fn doorbell(&self, queue: u16) -> Result<Doorbell, VirtioError> {
        Ok(self.registers.doorbell(register::QUEUE_NOTIFY, Width::U32, u64::from(queue))?)
    }
}

impl<M: Volatile> Transport for MmioTransport<M> {
    fn device_type(&self) -> Result<u32, VirtioError> {
        Ok(self.registers.read_u32(register::DEVICE_ID)?)
    }

    fn status(&self) -> Result<u8, VirtioError> {
        Ok(self.registers.read_u32(register::STATUS)? as u8)
    }

    fn set_status(&mut self, status: u8) -> Result<(), VirtioError> {
        Ok(self.registers.write_u32(register::STATUS, u32::from(status))?)
    }

    fn device_features(&mut self) -> Result<u64, VirtioError> {
        self.registers.write_u32(register::DEVICE_FEATURES_SELECT, 0)?;
        let low = self.registers.read_u32(register::DEVICE_FEATURES)?;
        self.registers.write_u32(register::DEVICE_FEATURES_SELECT, 1)?;
        let high = self.registers.read_u32(register::DEVICE_FEATURES)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError> {
        self.registers.write_u32(register::DRIVER_FEATURES_SELECT, 0)?;
        self.registers.write_u32(register::DRIVER_FEATURES, features as u32)?;
        self.registers.write_u32(register::DRIVER_FEATURES_SELECT, 1)?;
        self.registers.write_u32(register::DRIVER_FEATURES, (features >> 32) as u32)?;
        Ok(())
    }

    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError> {
        self.registers.write_u32(register::QUEUE_SELECT, u32::from(queue))?;
        let size_max = self.registers.read_u32(register::QUEUE_SIZE_MAX)?;
        Ok(u16::try_from(size_max).unwrap_or(u16::MAX))
    }

    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError> {
        // Section 4.2.3.2 gives the order.
        self.registers.write_u32(register::QUEUE_SELECT, u32::from(queue))?;
        if self.registers.read_u32(register::QUEUE_READY)? != 0 {
            return Err(DeviceFault::QueueMissing { queue }.into());
        }
        self.registers.write_u32(register::QUEUE_SIZE, u32::from(size))?;
        self.set_address(register::QUEUE_DESCRIPTORS, addresses.descriptors)?;
        self.set_address(register::QUEUE_AVAILABLE, addresses.available)?;
        self.set_address(register::QUEUE_USED, addresses.used)?;
        self.registers.write_u32(register::QUEUE_READY, 1)?;
        Ok(())
    }

    fn notify(&mut self, queue: u16) -> Result<(), VirtioError> {
        Ok(self.registers.write_u32(register::QUEUE_NOTIFY, u32::from(queue))?)
    }

    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError> {
        let cause = self.registers.read_u32(register::INTERRUPT_STATUS)?;
        let known = cause & (INTERRUPT_QUEUE | INTERRUPT_CONFIGURATION);
        if known != 0 {
            self.registers.write_u32(register::INTERRUPT_ACKNOWLEDGE, known)?;
        }
        Ok(InterruptCause {
            queue: cause & INTERRUPT_QUEUE != 0,
            configuration: cause & INTERRUPT_CONFIGURATION != 0,
            is_guessed: false,
        })
    }

    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError> {
        Ok(self.registers.read_u32(register::CONFIG.saturating_add(offset))?)
    }
}
