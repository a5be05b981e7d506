//! Virtio over PCI, modern interface only (section 4.1): four windows of registers, found through
//! vendor capabilities.
//!
//! The owner of the function's configuration space (the kernel, or a bus component) calls
//! [`find_layout`], maps the base address registers that it names, enables memory access and bus
//! mastering, and hands the windows to [`PciTransport::new`]. The driver itself never touches
//! configuration space.

use aegis_hal::{DeviceAddress, Doorbell, MmioRegion, Volatile, Width, check_range};

use crate::{ConfigurationFault, DeviceFault, InterruptCause, QueueAddresses, Transport, VirtioError};

/// Offsets in the common configuration, section 4.1.4.3.
pub(crate) mod common {
    pub(crate) const DEVICE_FEATURE_SELECT: usize = 0x00;
    pub(crate) const DEVICE_FEATURE: usize = 0x04;
    pub(crate) const DRIVER_FEATURE_SELECT: usize = 0x08;
    pub(crate) const DRIVER_FEATURE: usize = 0x0c;
    pub(crate) const CONFIG_MSIX_VECTOR: usize = 0x10;
    pub(crate) const STATUS: usize = 0x14;
    pub(crate) const QUEUE_SELECT: usize = 0x16;
    pub(crate) const QUEUE_SIZE: usize = 0x18;
    pub(crate) const QUEUE_MSIX_VECTOR: usize = 0x1a;
    pub(crate) const QUEUE_ENABLE: usize = 0x1c;
    pub(crate) const QUEUE_NOTIFY_OFF: usize = 0x1e;
    pub(crate) const QUEUE_DESCRIPTORS: usize = 0x20;
    pub(crate) const QUEUE_AVAILABLE: usize = 0x28;
    pub(crate) const QUEUE_USED: usize = 0x30;
    /// Bytes of the structure that every virtio 1.x device has.
    pub(crate) const END: usize = 0x38;
    pub(crate) const LENGTH: u32 = END as u32;
}

/// `VIRTIO_PCI_CAP_*`, section 4.1.4.
pub(crate) mod capability {
    pub(crate) const COMMON: u8 = 1;
    pub(crate) const NOTIFY: u8 = 2;
    pub(crate) const ISR: u8 = 3;
    pub(crate) const DEVICE: u8 = 4;
}

/// Vendor of all virtio functions.
const VENDOR: u16 = 0x1af4;
/// PCI capability identifier: vendor specific.
const CAPABILITY_VENDOR: u8 = 0x09;
/// Most capabilities that fit into the 192 bytes behind the header: the bound on a looping list.
const CAPABILITY_COUNT_MAX: usize = 48;
/// Highest base address register.
const BAR_MAX: u8 = 5;
/// What the device answers when it has no vector to give.
const NO_VECTOR: u16 = 0xffff;
/// Queues whose notification address is remembered: two per port of the largest console, with room.
const QUEUE_COUNT_MAX: usize = 64;

/// Read access to one function's configuration space.
pub trait ConfigSpace {
    /// Four bytes at `offset`, a multiple of four below 256. Reading cannot fail on PCI: absent
    /// registers are all ones.
    fn read_u32(&self, offset: u8) -> u32;
}

fn config_u8(config: &impl ConfigSpace, offset: u8) -> u8 {
    (config.read_u32(offset & !3) >> (8 * u32::from(offset & 3))) as u8
}

/// A piece of a base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciWindow {
    /// Base address register, 0 to 5.
    pub bar: u8,
    /// Byte offset in it.
    pub offset: u32,
    /// Bytes; `offset + length_bytes` does not overflow.
    pub length_bytes: u32,
}

/// Where a function's virtio registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciLayout {
    /// Common configuration.
    pub common: PciWindow,
    /// Notification addresses.
    pub notify: PciWindow,
    /// Bytes between the notification addresses of two consecutive `queue_notify_off`.
    pub notify_off_multiplier: u32,
    /// Interrupt status.
    pub isr: PciWindow,
    /// The device type's own configuration.
    pub device: PciWindow,
}

/// The virtio device type of a PCI function by its vendor and device identifier (section 4.1.2.1),
/// `None` if it is not virtio.
///
/// A transitional function (0x1000..=0x103f) tells its type in the subsystem device identifier and
/// has a modern interface too.
#[must_use]
pub fn modern_or_transitional_type(vendor: u16, device: u16, subsystem_device: u16) -> Option<u32> {
    match (vendor, device) {
        (VENDOR, 0x1040..=0x107f) => Some(u32::from(device - 0x1040)),
        (VENDOR, 0x1000..=0x103f) => Some(u32::from(subsystem_device)),
        _ => None,
    }
}

/// Finds the windows in the function's capability list. Of several capabilities of a type the first
/// usable one counts, as the device lists them in its order of preference.
///
/// # Errors
/// [`ConfigurationFault::CapabilityMissing`] with the type that has no usable capability: I/O ports
/// only, too short, out of range.
pub fn find_layout(config: &impl ConfigSpace) -> Result<PciLayout, VirtioError> {
    const STATUS_CAPABILITY_LIST: u32 = 1 << 4;
    let mut windows = [None; 5];
    let mut notify_off_multiplier = 0;
    let mut at = 0;
    // The status register is the upper half of the word at 4.
    if (config.read_u32(4) >> 16) & STATUS_CAPABILITY_LIST != 0 {
        at = config_u8(config, 0x34) & !3;
    }
    for _ in 0..CAPABILITY_COUNT_MAX {
        // A capability lies behind the header, and so that its fixed part does not leave
        // configuration space.
        if !(0x40..=0xf0).contains(&at) {
            break;
        }
        let header = config.read_u32(at);
        let [identifier, next, length, cfg_type] = header.to_le_bytes();
        let minimum = if cfg_type == capability::NOTIFY { 20 } else { 16 };
        let slot = windows.get_mut(usize::from(cfg_type));
        if identifier == CAPABILITY_VENDOR
            && length >= minimum
            && let (Some(slot @ None), Some(window)) = (slot, window_at(config, at, cfg_type))
        {
            // Only the notification capability has a fifth word; 0xf0 + 16 would wrap for it.
            if cfg_type == capability::NOTIFY {
                let Some(multiplier_at) = at.checked_add(16) else {
                    break;
                };
                notify_off_multiplier = config.read_u32(multiplier_at);
            }
            *slot = Some(window);
        }
        at = next & !3;
    }
    let get = |cfg_type: u8| windows[usize::from(cfg_type)].ok_or(ConfigurationFault::CapabilityMissing { cfg_type });
    Ok(PciLayout {
        common: get(capability::COMMON)?,
        notify: get(capability::NOTIFY)?,
        notify_off_multiplier,
        isr: get(capability::ISR)?,
        device: get(capability::DEVICE)?,
    })
}

/// The window that the capability at `at` describes, if it can be one of its type.
fn window_at(config: &impl ConfigSpace, at: u8, cfg_type: u8) -> Option<PciWindow> {
    let bar = config_u8(config, at + 4);
    let window = PciWindow { bar, offset: config.read_u32(at + 8), length_bytes: config.read_u32(at + 12) };
    let length_min = match cfg_type {
        capability::COMMON => common::LENGTH,
        capability::NOTIFY => 2,
        capability::ISR => 1,
        capability::DEVICE => 0,
        _ => return None,
    };
    let in_range =
        bar <= BAR_MAX && window.length_bytes >= length_min && window.offset.checked_add(window.length_bytes).is_some();
    in_range.then_some(window)
}

/// The four windows, mapped.
#[derive(Debug)]
pub struct PciWindows<M> {
    /// Common configuration.
    pub common: M,
    /// Notification addresses.
    pub notify: M,
    /// Interrupt status.
    pub isr: M,
    /// The device type's own configuration.
    pub device: M,
}

/// How the function interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciInterrupt {
    /// Its interrupt line; the cause is in the interrupt status register.
    Line,
    /// MSI-X, already enabled by the owner of configuration space. All causes use this entry of the
    /// table, and none is recorded.
    Message {
        /// Entry of the function's MSI-X table.
        vector: u16,
    },
}

/// A virtio PCI function.
#[derive(Debug)]
pub struct PciTransport<M> {
    windows: PciWindows<M>,
    device_type: u32,
    interrupt: PciInterrupt,
    notify_off_multiplier: u32,
    /// Offset in the notification window by queue; `None` before the queue is enabled.
    notify_offsets: [Option<u32>; QUEUE_COUNT_MAX],
}

impl<M: Volatile> PciTransport<M> {
    /// The function behind `windows`. `device_type` is what [`modern_or_transitional_type`] said.
    pub const fn new(
        windows: PciWindows<M>,
        notify_off_multiplier: u32,
        device_type: u32,
        interrupt: PciInterrupt,
    ) -> Self {
        Self { windows, device_type, interrupt, notify_off_multiplier, notify_offsets: [None; QUEUE_COUNT_MAX] }
    }

    /// 64-bit fields are written as two halves (section 4.1.3.1).
    fn set_address(&mut self, register: usize, address: DeviceAddress) -> Result<(), VirtioError> {
        self.windows.common.write_u32(register, address.0 as u32)?;
        self.windows.common.write_u32(register + 4, (address.0 >> 32) as u32)?;
        Ok(())
    }

    /// Assigns the vector, if there is one, through one of the two vector registers.
    fn set_vector(&mut self, register: usize) -> Result<(), VirtioError> {
        let PciInterrupt::Message { vector } = self.interrupt else {
            return Ok(());
        };
        self.windows.common.write_u16(register, vector)?;
        // Section 4.1.5.1.2.2: the device answers NO_VECTOR if it could not.
        if vector == NO_VECTOR || self.windows.common.read_u16(register)? != vector {
            return Err(ConfigurationFault::InterruptVector.into());
        }
        Ok(())
    }

    /// Where an enabled queue's notifications go.
    fn notify_place(&self, queue: u16) -> Result<usize, VirtioError> {
        let offset = self.notify_offsets.get(usize::from(queue)).copied().flatten();
        Ok(offset.ok_or(DeviceFault::QueueMissing { queue })? as usize)
    }

    /// The place in the notification window for the selected queue, checked against the window.
    fn notify_offset(&self, queue: u16) -> Result<u32, VirtioError> {
        let notify_off = self.windows.common.read_u16(common::QUEUE_NOTIFY_OFF)?;
        u32::from(notify_off)
            .checked_mul(self.notify_off_multiplier)
            .filter(|&offset| check_range(offset as usize, 2, self.windows.notify.length_bytes()).is_ok())
            .ok_or(VirtioError::Device(DeviceFault::NotifyOffset { queue }))
    }
}

impl PciTransport<MmioRegion> {
    /// The register that [`Transport::notify`] writes, for a queue that is enabled.
    ///
    /// # Errors
    /// There is no such queue; as all methods.
    pub fn doorbell(&self, queue: u16) -> Result<Doorbell, VirtioError> {
        let offset = self.notify_place(queue)?;
        Ok(self.windows.notify.doorbell(offset, Width::U16, u64::from(queue))?)
    }
}

impl<M: Volatile> Transport for PciTransport<M> {
    fn device_type(&self) -> Result<u32, VirtioError> {
        Ok(self.device_type)
    }

    fn status(&self) -> Result<u8, VirtioError> {
        Ok(self.windows.common.read_u8(common::STATUS)?)
    }

    fn set_status(&mut self, status: u8) -> Result<(), VirtioError> {
        Ok(self.windows.common.write_u8(common::STATUS, status)?)
    }

    fn device_features(&mut self) -> Result<u64, VirtioError> {
        self.windows.common.write_u32(common::DEVICE_FEATURE_SELECT, 0)?;
        let low = self.windows.common.read_u32(common::DEVICE_FEATURE)?;
        self.windows.common.write_u32(common::DEVICE_FEATURE_SELECT, 1)?;
        let high = self.windows.common.read_u32(common::DEVICE_FEATURE)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError> {
        self.windows.common.write_u32(common::DRIVER_FEATURE_SELECT, 0)?;
        self.windows.common.write_u32(common::DRIVER_FEATURE, features as u32)?;
        self.windows.common.write_u32(common::DRIVER_FEATURE_SELECT, 1)?;
        self.windows.common.write_u32(common::DRIVER_FEATURE, (features >> 32) as u32)?;
        // After a reset the vectors are unassigned; this is the step that every driver passes once.
        self.set_vector(common::CONFIG_MSIX_VECTOR)
    }

    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError> {
        self.windows.common.write_u16(common::QUEUE_SELECT, queue)?;
        // Zero for a queue that is not there (section 4.1.4.3), so the number of queues need not be
        // read.
        Ok(self.windows.common.read_u16(common::QUEUE_SIZE)?)
    }

    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError> {
        self.windows.common.write_u16(common::QUEUE_SELECT, queue)?;
        let offset = self.notify_offset(queue)?;
        let slot = self.notify_offsets.get_mut(usize::from(queue)).ok_or(DeviceFault::QueueMissing { queue })?;
        *slot = Some(offset);
        self.windows.common.write_u16(common::QUEUE_SIZE, size)?;
        self.set_vector(common::QUEUE_MSIX_VECTOR)?;
        self.set_address(common::QUEUE_DESCRIPTORS, addresses.descriptors)?;
        self.set_address(common::QUEUE_AVAILABLE, addresses.available)?;
        self.set_address(common::QUEUE_USED, addresses.used)?;
        Ok(self.windows.common.write_u16(common::QUEUE_ENABLE, 1)?)
    }

    fn notify(&mut self, queue: u16) -> Result<(), VirtioError> {
        let offset = self.notify_place(queue)?;
        Ok(self.windows.notify.write_u16(offset, queue)?)
    }

    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError> {
        match self.interrupt {
            PciInterrupt::Line => {
                // Reading lowers the line and clears the bits (section 4.1.4.5).
                let cause = self.windows.isr.read_u8(0)?;
                Ok(InterruptCause { queue: cause & 1 != 0, configuration: cause & 2 != 0, is_guessed: false })
            }
            PciInterrupt::Message { .. } => Ok(InterruptCause { queue: true, configuration: true, is_guessed: true }),
        }
    }

    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError> {
        Ok(self.windows.device.read_u32(offset)?)
    }
}
