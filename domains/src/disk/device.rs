//! The domain's disk.

use aegis_domains::disk_plan::DRIVER_PAGE_COUNT;
use aegis_domains::function::{DeviceError, NoGuard, Own, driver_memory};
use aegis_hal::{DmaRun, MmioRegion};
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use aegis_virtio::{AnyTransport, device_type, open};

const LIMITS: Limits =
    Limits { request_count: 64, segment_count_max: 128, queue_count_max: 1, reset_poll_count_max: 1_000_000 };
const _: () = assert!(LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);

/// The disk, with its driver.
pub(crate) type DomainDisk = Disk<AnyTransport<MmioRegion, NoGuard>, DmaRun>;

/// Starts the disk.
pub(crate) fn start(memory_frame: u64) -> Result<DomainDisk, DeviceError> {
    if device_type(&Own)? != Some(DEVICE_TYPE_BLOCK) {
        return Err(DeviceError::NotFound);
    }
    let transport = open(&Own)?.ok_or(DeviceError::NotFound)?;
    let memory = driver_memory(memory_frame, DRIVER_PAGE_COUNT)?;
    Ok(Disk::new(transport, DmaRun::new(memory), LIMITS)?)
}
