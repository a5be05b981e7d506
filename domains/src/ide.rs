//! A channel of the PC's own IDE controller by way of the kernel: its ports, a call each. For a domain, and for a
//! library OS that drives the disk itself.

use aegis_abi::CapSlot;
use aegis_abi::device::DeviceField;
use aegis_hal::{AccessError, Port, Width};
use aegis_ide::Ports;
use aegis_rt::call;

/// Base class and subclass of such controllers.
const CLASS_IDE: u32 = 0x0101;
/// Where configuration space has the class; how far up the word is.
const CLASS_OFFSET: u32 = 8;
const CLASS_SHIFT: u32 = 16;
/// Regions of a function: command and control ports of each channel, then the bus master.
const REGIONS_PER_CHANNEL: u32 = 2;
const REGION_BUS_MASTER: u32 = 4;
/// From one channel's half of the bus master to the other's.
const BUS_MASTER_STRIDE: usize = 8;

/// Whether a device function is such a controller.
#[must_use]
pub fn is_controller(device: CapSlot) -> bool {
    let class = call::device_read(device, DeviceField::Config, CLASS_OFFSET);
    class.is_ok_and(|class| class as u32 >> CLASS_SHIFT == CLASS_IDE)
}

/// The ports of a channel; `None`: the function has none such.
#[must_use]
pub fn channel_ports(device: CapSlot, channel: u32) -> Option<Ports<FunctionPorts>> {
    let open = |region| FunctionPorts::open(device, region);
    let first = channel * REGIONS_PER_CHANNEL;
    let bus_master_offset = channel as usize * BUS_MASTER_STRIDE;
    let (command, control) = (open(first)?, open(first + 1)?);
    Some(Ports { command, control, bus_master: open(REGION_BUS_MASTER), bus_master_offset })
}

/// Ports of a function.
#[derive(Debug)]
pub struct FunctionPorts {
    device: CapSlot,
    region: u32,
    count: usize,
}

impl FunctionPorts {
    fn open(device: CapSlot, region: u32) -> Option<Self> {
        let count = call::device_read(device, DeviceField::RegionLength, region).ok().filter(|count| *count > 0)?;
        Some(Self { device, region, count: count as usize })
    }

    fn access(&self, offset: usize, width: Width, value: Option<u32>) -> Result<u32, AccessError> {
        let width_bytes = width.bytes();
        let refused = AccessError { offset, width_bytes, length_bytes: self.count };
        if offset + width_bytes > self.count || width_bytes > 4 {
            return Err(refused);
        }
        let (is_write, value) = (u32::from(value.is_some()), value.unwrap_or(0));
        let outcome = call::device_port(self.device, self.region, offset as u32, width_bytes as u32, is_write, value);
        outcome.map(|value| value as u32).map_err(|_| refused)
    }
}

impl Port for FunctionPorts {
    fn port_count(&self) -> usize {
        self.count
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        self.access(offset, width, None)
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        self.access(offset, width, Some(value)).map(|_| ())
    }
}
