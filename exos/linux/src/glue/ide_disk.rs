//! IDE disks behind the PC's own controller: its ports by way of the kernel, and its two lines.
//!
//! One disk of each channel is driven, the first, so that no two disks wait for one another here; the tool gives each
//! disk a channel of its own. Of a channel's requests one is under way, and the block layer keeps the others in its own
//! order.

use alloc::boxed::Box;

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_abi::device::DeviceField;
use aegis_hal::{AccessError, DmaRun, Port, Width};
use aegis_ide::{Channel, Disk, IdeError, Limits, Ports};
use aegis_rt::call;
use exos::block::disk::Watching;
use exos_linux::host::disk::DiskDriver;

use super::devices::{BellIrq, Device, DeviceError, DeviceMemory, devices};

const LIMITS: Limits = Limits { request_count: 1, segment_count_max: 64, uses_dma: true, poll_count_max: 1_000_000 };
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

/// Ports of a function.
pub(super) struct FunctionPorts {
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

/// A channel, which is large: it must not lie on a thread's stack more often than it has to.
type OwnChannel = Box<Channel<FunctionPorts, DeviceMemory<DmaRun>>>;

#[inline(never)]
fn make_channel(ports: Ports<FunctionPorts>, memory: DeviceMemory<DmaRun>) -> Result<OwnChannel, IdeError> {
    Ok(Box::new(Channel::new(ports, memory, LIMITS)?))
}

/// A disk and its channel's interrupt. Each command ends with one, wanted or not: so the next is let through by who is
/// about to sleep, and who looks meets none.
pub(super) struct IdeDisk {
    disk: Disk<OwnChannel, FunctionPorts, DeviceMemory<DmaRun>>,
    irq: BellIrq,
    /// The kernel has passed an interrupt on, and waits to be asked for the next.
    is_masked: bool,
    pub(super) device: CapSlot,
}

impl IdeDisk {
    /// Starts the first disk of channel `number`.
    #[inline(never)]
    pub(super) fn find(info: &BootInfo, number: usize, bell: CapSlot) -> Result<Self, DeviceError> {
        let is_ide = |slot: CapSlot| {
            let class = call::device_read(slot, DeviceField::Config, CLASS_OFFSET);
            class.is_ok_and(|class| class as u32 >> CLASS_SHIFT == CLASS_IDE)
        };
        let found = devices(info).find(|device| matches!(device, Device::Own(slot) if is_ide(*slot)));
        let Some(device @ Device::Own(slot)) = found else { return Err(DeviceError::NotFound) };
        Self::start(device, slot, number as u32, bell)
    }

    fn start(device: Device, slot: CapSlot, channel: u32, bell: CapSlot) -> Result<Self, DeviceError> {
        let open = |region| FunctionPorts::open(slot, region);
        let first = channel * REGIONS_PER_CHANNEL;
        let (Some(command), Some(control)) = (open(first), open(first + 1)) else { return Err(DeviceError::NotFound) };
        let bus_master_offset = channel as usize * BUS_MASTER_STRIDE;
        let ports = Ports { command, control, bus_master: open(REGION_BUS_MASTER), bus_master_offset };
        device.enable()?;
        let memory = device.own_memory_run(LIMITS.page_count())?;
        let irq = device.interrupt_on(channel, bell)?;
        let disk = Disk::new(make_channel(ports, memory)?, 0)?;
        Ok(Self { disk, irq, is_masked: true, device: slot })
    }
}

impl DiskDriver for IdeDisk {
    type Device = Disk<OwnChannel, FunctionPorts, DeviceMemory<DmaRun>>;
    const IS_ROTATIONAL: bool = true;
    const WATCHING: Watching = Watching::Costs;

    fn device(&mut self) -> &mut Self::Device {
        &mut self.disk
    }

    fn hear(&mut self) -> Result<bool, IdeError> {
        self.is_masked = true;
        Ok(true)
    }

    /// An edge that came while it was masked is none any more: the device is looked at after this.
    fn listen(&mut self) -> Result<(), IdeError> {
        let Self { disk, irq, is_masked, .. } = self;
        if core::mem::take(is_masked) {
            disk.channel().acknowledge(irq)?;
        }
        Ok(())
    }

    fn cut_off(&mut self) -> bool {
        super::disk::cut_off(self.device)
    }
}
