//! Which bus a device is on: finds the transport of a function, for any holder.

use aegis_hal::{Doorbell, MmioRegion, Volatile};

use crate::guard::{Guard, GuardedTransport};
use crate::{
    ConfigSpace, InterruptCause, MmioTransport, PciInterrupt, PciTransport, PciWindow, PciWindows, QueueAddresses,
    Transport, VirtioError, find_layout, modern_or_transitional_type,
};

/// PCI capability identifier: MSI-X.
const CAPABILITY_MSIX: u32 = 0x11;
/// Most capabilities of a function.
const CAPABILITY_COUNT_MAX: usize = 48;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A virtio-mmio register block with a device of this type; 0 for none.
    Mmio {
        /// Virtio's number for the type of device.
        device_type: u32,
    },
    /// A PCI function.
    Pci {
        /// PCI vendor identifier.
        vendor: u16,
        /// PCI device identifier.
        device: u16,
    },
    /// Something else.
    Other,
}

/// A device function, as its holder reaches it.
pub trait Function: ConfigSpace {
    /// Registers of the kind that the bus has.
    type Registers: Volatile;
    /// Why they cannot be had.
    type Error: From<VirtioError>;

    /// What it is.
    ///
    /// # Errors
    /// It is not the caller's.
    fn kind(&self) -> Result<FunctionKind, Self::Error>;

    /// Lets it decode its registers, and reach memory.
    ///
    /// # Errors
    /// It is not the caller's.
    fn enable(&self) -> Result<(), Self::Error>;

    /// Maps a region, or again the same region: all of it, or a window.
    ///
    /// # Errors
    /// There is no such region or window, or no memory to map it.
    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<Self::Registers, Self::Error>;
}

/// The type of the virtio device that a function is; `None` if it is none.
///
/// # Errors
/// Those of [`Function::kind`].
pub fn device_type<F: Function>(function: &F) -> Result<Option<u32>, F::Error> {
    Ok(match function.kind()? {
        FunctionKind::Mmio { device_type } => Some(device_type).filter(|device_type| *device_type != 0),
        FunctionKind::Pci { vendor, device } => {
            let subsystem = function.read_u32(0x2c) >> 16;
            modern_or_transitional_type(vendor, device, subsystem as u16)
        }
        FunctionKind::Other => None,
    })
}

/// The transport of a virtio device, which is enabled.
///
/// # Errors
/// The function's, or what is wrong with its registers.
pub fn open<F: Function, G: Guard>(function: &F) -> Result<Option<AnyTransport<F::Registers, G>>, F::Error> {
    let Some(device_type) = device_type(function)? else { return Ok(None) };
    function.enable()?;
    if let FunctionKind::Mmio { .. } = function.kind()? {
        return Ok(Some(AnyTransport::Mmio(MmioTransport::new(function.map(0, None)?)?)));
    }
    let layout = find_layout(function)?;
    let map = |window: PciWindow| function.map(u32::from(window.bar), Some(window));
    let windows = PciWindows {
        common: map(layout.common)?,
        notify: map(layout.notify)?,
        isr: map(layout.isr)?,
        device: map(layout.device)?,
    };
    let interrupt = interrupt_of(function);
    Ok(Some(AnyTransport::Pci(PciTransport::new(windows, layout.notify_off_multiplier, device_type, interrupt))))
}

/// The kernel routes MSI-X where a function has it, else the line.
fn interrupt_of(config: &impl ConfigSpace) -> PciInterrupt {
    let mut pointer = (config.read_u32(0x34) & 0xfc) as u8;
    for _ in 0..CAPABILITY_COUNT_MAX {
        if pointer == 0 {
            break;
        }
        let header = config.read_u32(pointer);
        if header & 0xff == CAPABILITY_MSIX && header >> 31 == 1 {
            return PciInterrupt::Message { vector: 0 };
        }
        pointer = (header >> 8 & 0xfc) as u8;
    }
    PciInterrupt::Line
}

/// The transport of a device, wherever it is.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are as many as devices, each for a whole run")]
pub enum AnyTransport<M, G> {
    /// Memory-mapped registers.
    Mmio(MmioTransport<M>),
    /// PCI.
    Pci(PciTransport<M>),
    /// Somebody guards it.
    Guarded(GuardedTransport<G>),
}

macro_rules! delegate {
    ($self:ident, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Mmio($transport) => $call,
            AnyTransport::Pci($transport) => $call,
            AnyTransport::Guarded($transport) => $call,
        }
    };
}

impl<G: Guard> AnyTransport<MmioRegion, G> {
    /// The register by which a queue's device is told, for a queue that is enabled; `None`: it is told otherwise.
    ///
    /// # Errors
    /// There is no such queue, or its window is too small.
    pub fn doorbell(&self, queue: u16) -> Result<Option<Doorbell>, VirtioError> {
        match self {
            Self::Mmio(transport) => transport.doorbell(queue).map(Some),
            Self::Pci(transport) => transport.doorbell(queue).map(Some),
            Self::Guarded(_) => Ok(None),
        }
    }
}

impl<M: Volatile, G: Guard> Transport for AnyTransport<M, G> {
    fn device_type(&self) -> Result<u32, VirtioError> {
        delegate!(self, transport => transport.device_type())
    }
    fn status(&self) -> Result<u8, VirtioError> {
        delegate!(self, transport => transport.status())
    }
    fn set_status(&mut self, status: u8) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.set_status(status))
    }
    fn device_features(&mut self) -> Result<u64, VirtioError> {
        delegate!(self, transport => transport.device_features())
    }
    fn set_driver_features(&mut self, features: u64) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.set_driver_features(features))
    }
    fn queue_size_max(&mut self, queue: u16) -> Result<u16, VirtioError> {
        delegate!(self, transport => transport.queue_size_max(queue))
    }
    fn enable_queue(&mut self, queue: u16, size: u16, addresses: QueueAddresses) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.enable_queue(queue, size, addresses))
    }
    fn notify(&mut self, queue: u16) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.notify(queue))
    }
    fn interrupts_wanted(&mut self, queue: u16) -> Result<(), VirtioError> {
        delegate!(self, transport => transport.interrupts_wanted(queue))
    }
    fn acknowledge_interrupt(&mut self) -> Result<InterruptCause, VirtioError> {
        delegate!(self, transport => transport.acknowledge_interrupt())
    }
    fn config_u32(&self, offset: usize) -> Result<u32, VirtioError> {
        delegate!(self, transport => transport.config_u32(offset))
    }
}
