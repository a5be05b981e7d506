//! IDE disks behind the PC's own controller: its ports by way of the kernel, and its two lines.
//!
//! One disk of each channel is driven, the first, so that no two disks wait for one another here; the tool gives each
//! disk a channel of its own. Of a channel's requests one is under way, and the block layer keeps the others in its own
//! order.

use alloc::boxed::Box;

use aegis_abi::CapSlot;
use aegis_abi::boot::BootInfo;
use aegis_domains::ide::{FunctionPorts, channel_ports, is_controller};
use aegis_hal::DmaRun;
use aegis_ide::{Channel, Disk, IdeError, Limits, Ports};
use exos::block::disk::Watching;
use exos_linux::host::disk::DiskDriver;

use super::devices::{BellIrq, Device, DeviceError, DeviceMemory, devices};

const LIMITS: Limits = Limits { request_count: 1, segment_count_max: 64, uses_dma: true, poll_count_max: 1_000_000 };

/// The controller, if it is this pod's.
pub(super) fn controller(info: &BootInfo) -> Option<CapSlot> {
    devices(info).find_map(|device| match device {
        Device::Own(slot) if is_controller(slot) => Some(slot),
        _ => None,
    })
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
        let Some(slot) = controller(info) else { return Err(DeviceError::NotFound) };
        let device = Device::Own(slot);
        Self::start(device, slot, number as u32, bell)
    }

    fn start(device: Device, slot: CapSlot, channel: u32, bell: CapSlot) -> Result<Self, DeviceError> {
        let Some(ports) = channel_ports(slot, channel) else { return Err(DeviceError::NotFound) };
        device.enable()?;
        let memory = device.own_memory_run(LIMITS.page_count())?;
        let irq = device.interrupt_on(channel, bell)?;
        let disk = Disk::new(make_channel(ports, memory)?, 0)?;
        Ok(Self { disk, irq, is_masked: true, device: slot })
    }
}

impl DiskDriver for IdeDisk {
    type Device = Disk<OwnChannel, FunctionPorts, DeviceMemory<DmaRun>>;
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
        // A function that was reset has its interrupts held back.
        self.is_masked = true;
        super::disk::cut_off(self.device)
    }
}
