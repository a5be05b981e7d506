//! What can go wrong, sorted by the side that is to blame, because the answer differs: reset and
//! restart the device, correct the machine's configuration, correct the caller, find memory.

use aegis_hal::{AccessError, DmaError, IrqError};

/// The party whose doing an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The device broke the protocol or does not answer: reset it.
    Device,
    /// The machine or the placement: the wrong device, a window too small, a right that is gone.
    Configuration,
    /// The caller of this crate.
    Caller,
    /// There is no memory.
    Memory,
    /// Nobody: the other end of a connection is closed.
    Peer,
}

/// The device broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// Status did not become zero within the number of polls allowed.
    ResetTimeout,
    /// The device took back `FEATURES_OK`.
    FeaturesRefused,
    /// The device says that it cannot go on (`DEVICE_NEEDS_RESET`).
    NeedsReset,
    /// A queue that the device type must have does not exist or did not become ready.
    QueueMissing {
        /// Queue index.
        queue: u16,
    },
    /// The device put its notification address outside its own notification window.
    NotifyOffset {
        /// Queue index.
        queue: u16,
    },
    /// More buffers were returned than the device holds.
    UsedIndex {
        /// Queue index.
        queue: u16,
    },
    /// A buffer was returned that the device does not hold: never given, or returned before.
    UsedId {
        /// Queue index.
        queue: u16,
        /// The identifier as the device wrote it.
        id: u32,
    },
    /// A network card said that a frame lies in so many buffers, which it did not return.
    FrameBuffers {
        /// Buffers as the device counted them.
        count: u16,
    },
    /// A network card's address is that of a group, or none.
    HardwareAddress,
    /// A disk says that its blocks, pieces or size are what they cannot be.
    DiskLayout,
    /// A disk returned a request with a status that there is not, or without one.
    RequestStatus {
        /// The status as it was found.
        status: u8,
    },
    /// After a reset the device is another: features, configuration or queues.
    Changed,
    /// What was waited for did not happen within the number of polls allowed.
    Silent,
}

/// The machine or the placement does not fit the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationFault {
    /// No virtio device is behind the window.
    NotVirtio,
    /// A legacy device (before virtio 1.0). QEMU's virtio-mmio needs `-global
    /// virtio-mmio.force-legacy=false`.
    Legacy,
    /// Another type of device.
    DeviceType {
        /// What the driver is for.
        expected: u32,
        /// What is there; 0 is an empty virtio-mmio slot.
        found: u32,
    },
    /// The device lacks features (a bit mask) that the driver cannot do without.
    FeaturesMissing {
        /// The missing bits.
        bits: u64,
    },
    /// A register window or buffer is smaller than the driver's access.
    Window(AccessError),
    /// The PCI function has no, or no usable, capability of this `cfg_type` (section 4.1.4).
    CapabilityMissing {
        /// `VIRTIO_PCI_CAP_*`.
        cfg_type: u8,
    },
    /// The device has no message-signalled interrupt vector left.
    InterruptVector,
    /// A 9P device's mount tag is not of the length that the driver can read.
    MountTag,
    /// The device's guard refused a request, or is gone.
    Guard,
    /// The interrupt is not the driver's any more.
    Irq(IrqError),
}

/// The caller asked for something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerFault {
    /// No such port.
    Port,
    /// A buffer chain that is empty, longer than the queue, or has a readable segment after a
    /// writable one.
    Chain,
    /// The queue has no descriptor left.
    QueueFull,
    /// A queue size that is zero, not a power of two or above what the queue was made for.
    QueueSize,
}

/// Every error of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtioError {
    /// The device's fault.
    Device(DeviceFault),
    /// The machine's or placement's fault.
    Configuration(ConfigurationFault),
    /// The caller's fault.
    Caller(CallerFault),
    /// There was no memory for the device.
    Memory(DmaError),
    /// The host has closed its end of the port.
    HostClosed,
}

impl VirtioError {
    /// The side that is to blame.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self {
            Self::Device(_) => Blame::Device,
            Self::Configuration(_) => Blame::Configuration,
            Self::Caller(_) => Blame::Caller,
            Self::Memory(_) => Blame::Memory,
            Self::HostClosed => Blame::Peer,
        }
    }
}

impl From<AccessError> for VirtioError {
    fn from(error: AccessError) -> Self {
        Self::Configuration(ConfigurationFault::Window(error))
    }
}

impl From<DmaError> for VirtioError {
    fn from(error: DmaError) -> Self {
        Self::Memory(error)
    }
}

impl From<IrqError> for VirtioError {
    fn from(error: IrqError) -> Self {
        Self::Configuration(ConfigurationFault::Irq(error))
    }
}

impl From<DeviceFault> for VirtioError {
    fn from(fault: DeviceFault) -> Self {
        Self::Device(fault)
    }
}

impl From<ConfigurationFault> for VirtioError {
    fn from(fault: ConfigurationFault) -> Self {
        Self::Configuration(fault)
    }
}

impl From<CallerFault> for VirtioError {
    fn from(fault: CallerFault) -> Self {
        Self::Caller(fault)
    }
}
