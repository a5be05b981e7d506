//! The domain's device function: its registers, its interrupt, memory that it reaches.
#![allow(unsafe_code, reason = "maps device registers")]

use core::ptr::NonNull;

use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Status};
use aegis_domains::layout::{DEVICE_BASE, DRIVER_BASE, DRIVER_PAGE_COUNT, PAGE_DRIVER, SLOT_DEVICE, SLOT_MEMORY};
use aegis_hal::{DeviceAddress, DmaRegion, DmaRun, Irq, IrqError, MmioRegion, PAGE_BYTES};
use aegis_rt::call::{self, Refusal};
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use aegis_virtio::guard::{Answer, Guard, Request};
use aegis_virtio::{AnyTransport, ConfigSpace, Function, FunctionKind, PciWindow, VirtioError, device_type, open};

/// The bell that the function's interrupt rings: the domain's own.
pub(crate) const SLOT_INTERRUPT: CapSlot = CapSlot(8);
/// Address space for one region.
const REGION_STRIDE: u64 = 16 << 20;
const LIMITS: Limits =
    Limits { request_count: 64, segment_count_max: 128, queue_count_max: 1, reset_poll_count_max: 1_000_000 };
const _: () = assert!(LIMITS.page_count() as u64 <= DRIVER_PAGE_COUNT);

/// Why there is no disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceError {
    /// The function is none.
    NotFound,
    /// The kernel refused something.
    Refused,
    /// The driver could not start it.
    Driver,
}

impl From<VirtioError> for DeviceError {
    fn from(_: VirtioError) -> Self {
        Self::Driver
    }
}

impl From<Refusal> for DeviceError {
    fn from(_: Refusal) -> Self {
        Self::Refused
    }
}

/// Nobody guards the domain's function.
pub(crate) struct NoGuard;

impl Guard for NoGuard {
    fn call(&self, _: Request) -> Option<Answer> {
        None
    }
}

/// The disk, with its driver.
pub(crate) type DomainDisk = Disk<AnyTransport<MmioRegion, NoGuard>, DmaRun>;

struct Own;

impl ConfigSpace for Own {
    fn read_u32(&self, offset: u8) -> u32 {
        call::device_read(SLOT_DEVICE, DeviceField::Config, u32::from(offset)).map_or(u32::MAX, |value| value as u32)
    }
}

impl Function for Own {
    type Registers = MmioRegion;
    type Error = DeviceError;

    fn kind(&self) -> Result<FunctionKind, DeviceError> {
        let read = |field| call::device_read(SLOT_DEVICE, field, 0);
        let (kind, identity) = (read(DeviceField::Kind)?, read(DeviceField::Identity)?);
        Ok(if kind == DeviceKind::VirtioMmio as u64 {
            FunctionKind::Mmio { device_type: identity as u32 }
        } else if kind == DeviceKind::Pci as u64 {
            FunctionKind::Pci { vendor: identity as u16, device: (identity >> 16) as u16 }
        } else {
            FunctionKind::Other
        })
    }

    fn enable(&self) -> Result<(), DeviceError> {
        loop {
            // SAFETY: the function is told only frames that are bound for it.
            match unsafe { call::device_control(SLOT_DEVICE, DeviceOperation::Enable) } {
                // The domain before this one has lost it a moment ago.
                Err(Refusal { status: Status::Busy | Status::Again, .. }) => {
                    let _ = call::yield_to(SLOT_NONE);
                }
                outcome => return outcome.map(|_| ()).map_err(DeviceError::from),
            }
        }
    }

    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<MmioRegion, DeviceError> {
        let offset = call::device_read(SLOT_DEVICE, DeviceField::RegionOffset, region)?;
        let length = call::device_read(SLOT_DEVICE, DeviceField::RegionLength, region)?;
        let address = DEVICE_BASE + u64::from(region) * REGION_STRIDE;
        // SAFETY: each region has its own place. Mapping it again is the same mapping.
        unsafe { call::device_map(SLOT_DEVICE, region, address) }?;
        let place = NonNull::new((address + offset) as *mut u8).ok_or(DeviceError::NotFound)?;
        // SAFETY: just mapped uncached, for good; no Rust object lives there; DMA is told only addresses of DMA buffers
        // and of clients' buffers that are bound.
        let registers = unsafe { MmioRegion::new(place, length as usize) };
        match window {
            None => Ok(registers),
            Some(window) => registers
                .window(window.offset as usize, window.length_bytes as usize)
                .map_err(|_| DeviceError::NotFound),
        }
    }
}

/// The function's interrupt, which rings a bell of its own, so that it is known when the next has to be asked for.
pub(crate) struct BellIrq;

impl BellIrq {
    /// Binds it.
    pub(crate) fn bind() -> Result<Self, DeviceError> {
        call::bell_create(SLOT_INTERRUPT, SLOT_NONE)?;
        call::device_interrupt_bind(SLOT_DEVICE, 0, SLOT_INTERRUPT)?;
        call::device_interrupt_ask(SLOT_DEVICE, 0)?;
        Ok(Self)
    }
}

impl Irq for BellIrq {
    fn count(&self) -> u64 {
        0
    }

    fn unmask(&mut self) -> Result<(), IrqError> {
        call::device_interrupt_ask(SLOT_DEVICE, 0).map(|_| ()).map_err(|_| IrqError::Revoked)
    }
}

/// Starts the disk.
pub(crate) fn start(memory_frame: u64) -> Result<DomainDisk, DeviceError> {
    if device_type(&Own)? != Some(DEVICE_TYPE_BLOCK) {
        return Err(DeviceError::NotFound);
    }
    let transport = open(&Own)?.ok_or(DeviceError::NotFound)?;
    let (frame, count) = (memory_frame + PAGE_DRIVER, DRIVER_PAGE_COUNT as u32);
    let entry = BindEntry::map(DRIVER_BASE, frame, count, SLOT_MEMORY, BindFlags::WRITE);
    // SAFETY: a place that is used for nothing else.
    unsafe { call::bind(SLOT_SELF, &[entry]) }?;
    // SAFETY: these frames are the driver's alone.
    let address = unsafe { call::device_dma_bind(SLOT_DEVICE, SLOT_MEMORY, PAGE_DRIVER, DRIVER_PAGE_COUNT) }?;
    let base = NonNull::new(DRIVER_BASE as *mut u8).ok_or(DeviceError::NotFound)?;
    // SAFETY: mapped just now and bound for the device at `address`, for good; used for nothing else.
    let region = unsafe { DmaRegion::new(base, DRIVER_PAGE_COUNT as usize * PAGE_BYTES, DeviceAddress(address)) };
    Ok(Disk::new(transport, DmaRun::new(region.ok_or(DeviceError::NotFound)?), LIMITS)?)
}
