//! The domain's disk, whichever it is.

use aegis_domains::disk_plan::DRIVER_PAGE_COUNT;
use aegis_domains::function::{BellIrq, DeviceError, NoGuard, Own, driver_memory};
use aegis_domains::ide::{FunctionPorts, channel_ports, is_controller};
use aegis_domains::layout::SLOT_DEVICE;
use aegis_hal::{DmaRun, EitherDisk, MmioRegion};
use aegis_ide::{self as ide, Channel};
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use aegis_virtio::{AnyTransport, Function, device_type, open};

const LIMITS: Limits =
    Limits { request_count: 64, segment_count_max: 128, queue_count_max: 1, reset_poll_count_max: 1_000_000 };
const _: () = assert!(LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);
/// One at a time: its clients' order is theirs.
const IDE_LIMITS: ide::Limits =
    ide::Limits { request_count: 1, segment_count_max: 64, uses_dma: true, poll_count_max: 1_000_000 };
const _: () = assert!(IDE_LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);

type VirtioDisk = Disk<AnyTransport<MmioRegion, NoGuard>, DmaRun>;
type IdeDisk = ide::Disk<Channel<FunctionPorts, DmaRun>, FunctionPorts, DmaRun>;
/// The disk, with its driver.
pub(crate) type DomainDisk = EitherDisk<VirtioDisk, IdeDisk>;

/// Starts the disk: a virtio function's, or the first of a channel of an IDE controller. With it the interrupt of the
/// function that is its own.
pub(crate) fn start(memory_frame: u64, channel: u64) -> Result<(DomainDisk, u32), DeviceError> {
    if is_controller(SLOT_DEVICE) {
        let channel = channel as u32;
        return Ok((EitherDisk::Second(start_ide(memory_frame, channel)?), channel));
    }
    Ok((EitherDisk::First(start_virtio(memory_frame)?), 0))
}

#[inline(never)]
fn start_virtio(memory_frame: u64) -> Result<VirtioDisk, DeviceError> {
    if device_type(&Own)? != Some(DEVICE_TYPE_BLOCK) {
        return Err(DeviceError::NotFound);
    }
    let transport = open(&Own)?.ok_or(DeviceError::NotFound)?;
    let memory = driver_memory(memory_frame, DRIVER_PAGE_COUNT)?;
    Ok(Disk::new(transport, DmaRun::new(memory), LIMITS)?)
}

#[inline(never)]
fn start_ide(memory_frame: u64, channel: u32) -> Result<IdeDisk, DeviceError> {
    let ports = channel_ports(SLOT_DEVICE, channel).ok_or(DeviceError::NotFound)?;
    Own.enable()?;
    let memory = driver_memory(memory_frame, DRIVER_PAGE_COUNT)?;
    let channel = Channel::new(ports, DmaRun::new(memory), IDE_LIMITS).map_err(|_| DeviceError::Driver)?;
    ide::Disk::new(channel, 0).map_err(|_| DeviceError::NotFound)
}

/// Takes in an interrupt; whether the disk goes on.
pub(crate) fn acknowledge(disk: &mut DomainDisk, irq: &mut BellIrq) -> bool {
    match disk {
        EitherDisk::First(disk) => disk.acknowledge(irq).is_ok(),
        EitherDisk::Second(disk) => disk.channel().acknowledge(irq).is_ok(),
    }
}
