//! The kernel's placement of drivers: registers of functions, and memory that is the driver's alone, both by the
//! kernel's map of everything.
//!
//! The two constructors of `aegis_hal` are called here, and here are the reasons that they ask for.
#![allow(unsafe_code, reason = "says where registers and a driver's memory are mapped")]

use core::ptr::NonNull;

use aegis_abi::device::DeviceKind;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::types::FrameNumber;
use aegis_e1000::E1000Error;
use aegis_hal::{AccessError, DeviceAddress, DmaRegion, MmioRegion, Port, Width};
use aegis_ide::{IdeError, Ports};
use aegis_kernel_core::DeviceDescription;
use aegis_machine as machine;
use aegis_pci::{ConfigAccess, FunctionAddress};
use aegis_virtio::{ConfigSpace, Function, FunctionKind, PciWindow, VirtioError};
use machine::PciPorts;
use machine::frame_range::FrameRange;

/// Why a function cannot be driven.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaceError {
    /// It has no such registers, or they cannot be mapped.
    Registers,
    /// The driver could not start it.
    #[expect(dead_code, reason = "the log shows it as it is derived")]
    Driver(VirtioError),
    /// The same, of a card of Intel's.
    #[expect(dead_code, reason = "the log shows it as it is derived")]
    Card(E1000Error),
    /// The same, of an IDE disk.
    #[expect(dead_code, reason = "the log shows it as it is derived")]
    Ide(IdeError),
}

impl From<IdeError> for PlaceError {
    fn from(error: IdeError) -> Self {
        Self::Ide(error)
    }
}

impl From<E1000Error> for PlaceError {
    fn from(error: E1000Error) -> Self {
        Self::Card(error)
    }
}

impl From<VirtioError> for PlaceError {
    fn from(error: VirtioError) -> Self {
        Self::Driver(error)
    }
}

/// A function that the extension drives. It is enabled by whoever has the kernel's state.
pub(crate) struct Driven(pub(crate) DeviceDescription);

impl ConfigSpace for Driven {
    fn read_u32(&self, offset: u8) -> u32 {
        PciPorts.read(FunctionAddress(self.0.location as u16), u16::from(offset))
    }
}

impl Function for Driven {
    type Registers = MmioRegion;
    type Error = PlaceError;

    fn kind(&self) -> Result<FunctionKind, PlaceError> {
        Ok(match self.0.kind {
            DeviceKind::VirtioMmio => FunctionKind::Mmio { device_type: self.0.identity },
            DeviceKind::Pci => {
                FunctionKind::Pci { vendor: self.0.identity as u16, device: (self.0.identity >> 16) as u16 }
            }
            DeviceKind::Ports => FunctionKind::Other,
        })
    }

    fn enable(&self) -> Result<(), PlaceError> {
        Ok(())
    }

    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<MmioRegion, PlaceError> {
        let region = self.0.regions.get(region as usize).filter(|region| !region.is_ports && region.length_bytes != 0);
        let region = region.ok_or(PlaceError::Registers)?;
        let address = machine::map_device(region.base, region.length_bytes).ok_or(PlaceError::Registers)?;
        let place = NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize));
        // SAFETY: the kernel maps device space uncached and for good; the region is one of a function that nobody else
        // gets at (`Extension::drives`), so no Rust object lives there, and its driver tells it only addresses of its
        // own memory and of frames that are bound for it.
        let registers = unsafe { MmioRegion::new(place.ok_or(PlaceError::Registers)?, region.length_bytes as usize) };
        match window {
            None => Ok(registers),
            Some(window) => registers
                .window(window.offset as usize, window.length_bytes as usize)
                .map_err(|_| PlaceError::Registers),
        }
    }
}

/// Regions of an IDE controller: command and control ports of each channel, then the bus master.
const REGIONS_PER_CHANNEL: u32 = 2;
const REGION_BUS_MASTER: usize = 4;
/// From one channel's half of the bus master to the other's.
const BUS_MASTER_STRIDE: usize = 8;

/// The ports of a channel of an IDE controller; `None`: it has none such.
pub(crate) fn channel_ports(description: &DeviceDescription, channel: u32) -> Option<Ports<FunctionPorts>> {
    let open = |region: usize| {
        let region = description.regions.get(region).filter(|region| region.is_ports && region.length_bytes != 0)?;
        Some(FunctionPorts { first: u16::try_from(region.base).ok()?, count: region.length_bytes as usize })
    };
    let first = (channel * REGIONS_PER_CHANNEL) as usize;
    let bus_master_offset = channel as usize * BUS_MASTER_STRIDE;
    let (command, control) = (open(first)?, open(first + 1)?);
    Some(Ports { command, control, bus_master: open(REGION_BUS_MASTER), bus_master_offset })
}

/// Ports of a function that the extension drives.
pub(crate) struct FunctionPorts {
    first: u16,
    count: usize,
}

impl FunctionPorts {
    fn port(&self, offset: usize, width: Width) -> Result<u16, AccessError> {
        let width_bytes = width.bytes();
        let port = u16::try_from(offset).ok().and_then(|offset| self.first.checked_add(offset));
        match port {
            Some(port) if offset + width_bytes <= self.count && width_bytes <= 4 => Ok(port),
            _ => Err(AccessError { offset, width_bytes, length_bytes: self.count }),
        }
    }
}

impl Port for FunctionPorts {
    fn port_count(&self) -> usize {
        self.count
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        Ok(machine::port_read(self.port(offset, width)?, width.bytes() as u32))
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        machine::port_write(self.port(offset, width)?, width.bytes() as u32, value);
        Ok(())
    }
}

/// Frames that were taken at boot, as a driver's memory. Called once for each range, or again when the driver before is
/// gone and its function was switched off.
pub(crate) fn driver_memory(frames: FrameRange) -> Option<DmaRegion> {
    let first = FrameNumber(frames.start);
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(machine::frame_address(first) as usize))?;
    // SAFETY: the frames were taken from the machine's memory before anybody could own them and are used for nothing
    // but this, by one driver at a time; the kernel maps all memory, in order; nothing translates for devices, so the
    // address is the frame's.
    unsafe { DmaRegion::new(base, (frames.count * PAGE_SIZE) as usize, DeviceAddress(first.address())) }
}

/// The pages of a client's range behind the first `skipped_count`, as a driver's device reaches them. `None`: there are
/// none.
pub(crate) fn client_memory(first: FrameNumber, count: u64, skipped_count: u64) -> Option<DmaRegion> {
    let left_count = count.checked_sub(skipped_count).filter(|left_count| *left_count > 0)?;
    let first = FrameNumber(first.0 + skipped_count);
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(machine::frame_address(first) as usize))?;
    // SAFETY: frames that a client has bound for the function, which the caller asks for again before each use; the
    // kernel maps all memory, in order. The client accesses them too, as a device would: nothing here believes what it
    // reads, and every access is volatile. Nothing translates for devices, so the address is the frame's.
    unsafe { DmaRegion::new(base, (left_count * PAGE_SIZE) as usize, DeviceAddress(first.address())) }
}
