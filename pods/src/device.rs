//! The manager's way to device functions: which there are, and their registers in its own window.
#![allow(unsafe_code, reason = "maps device registers")]

use core::fmt;
use core::ptr::NonNull;

use aegis_abi::boot::BootInfo;
use aegis_abi::device::{DEVICE_REGION_COUNT_MAX, DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::types::SLOT_DEVICE_FIRST;
use aegis_abi::{CapSlot, Rights};
use aegis_hal::MmioRegion;
use aegis_rt::call::{self, Refusal};
use aegis_virtio::block::DEVICE_TYPE_BLOCK;
use aegis_virtio::guard::Geometry;
use aegis_virtio::{ConfigSpace, Function, FunctionKind, PciWindow, VirtioError, device_type};

/// Most functions of pods in a machine.
pub(crate) const DEVICE_COUNT_MAX: usize = 64;
/// Where registers are mapped.
const DEVICE_BASE: u64 = LIBOS_BASE + (128 << 30);
/// Address space for one region.
const REGION_STRIDE: u64 = 16 << 20;

/// Why a function cannot be driven.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeviceError {
    /// The kernel refused something.
    Refused(Refusal),
    /// It is no virtio device as it should be.
    Virtio(VirtioError),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(out, "the kernel refused {refusal:?}"),
            Self::Virtio(error) => write!(out, "{error:?}"),
        }
    }
}

impl From<Refusal> for DeviceError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<VirtioError> for DeviceError {
    fn from(error: VirtioError) -> Self {
        Self::Virtio(error)
    }
}

/// A function of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device(pub(crate) CapSlot);

impl ConfigSpace for Device {
    fn read_u32(&self, offset: u8) -> u32 {
        call::device_read(self.0, DeviceField::Config, u32::from(offset)).map_or(u32::MAX, |value| value as u32)
    }
}

impl Function for Device {
    type Registers = MmioRegion;
    type Error = DeviceError;

    fn kind(&self) -> Result<FunctionKind, DeviceError> {
        let read = |field| call::device_read(self.0, field, 0);
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
        // SAFETY: a function that no driver has set up accesses no memory; the one that will is `guard`.
        unsafe { call::device_control(self.0, DeviceOperation::Enable) }?;
        Ok(())
    }

    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<MmioRegion, DeviceError> {
        let offset = call::device_read(self.0, DeviceField::RegionOffset, region)?;
        let length = call::device_read(self.0, DeviceField::RegionLength, region)?;
        let place = u64::from(self.0.0 - SLOT_DEVICE_FIRST.0) * DEVICE_REGION_COUNT_MAX as u64 + u64::from(region);
        let address = DEVICE_BASE + place * REGION_STRIDE;
        // SAFETY: each region has its own place in this part of the window. Mapping it again is the same mapping.
        unsafe { call::device_map(self.0, region, address) }?;
        let base = NonNull::new((address + offset) as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: just mapped uncached, for good, at an address that is not 0; no Rust object lives there; the guard
        // tells the device only addresses of the memory that is its function's.
        let registers = unsafe { MmioRegion::new(base, length as usize) };
        match window {
            None => Ok(registers),
            Some(window) => registers
                .window(window.offset as usize, window.length_bytes as usize)
                .map_err(|error| DeviceError::Virtio(error.into())),
        }
    }
}

/// The machine's functions that pods can have, in order, and how many there are. All others stay unused. A disk, or a
/// card that is not virtio, has no guard, so it is only for pods that are trusted with devices; the disk that is the
/// pool is nobody's.
pub(crate) fn functions_of_pods(
    info: &BootInfo,
    trusts_devices: bool,
    pool: Option<CapSlot>,
) -> ([CapSlot; DEVICE_COUNT_MAX], usize) {
    let mut found = [CapSlot(0); DEVICE_COUNT_MAX];
    let mut count = 0;
    let slots = (0..info.device_count).map(|index| CapSlot(SLOT_DEVICE_FIRST.0 + index));
    let is_for_pods = |slot: &CapSlot| {
        let virtio_type = device_type(&Device(*slot)).ok().flatten();
        virtio_type.and_then(Geometry::of).is_some()
            || (trusts_devices
                && (virtio_type == Some(DEVICE_TYPE_BLOCK) || is_network_card(*slot) || is_driven(*slot)))
    };
    for (slot, place) in slots.filter(|slot| Some(*slot) != pool).filter(is_for_pods).zip(&mut found) {
        *place = slot;
        count += 1;
    }
    (found, count)
}

/// Whether the kernel drives a function: nobody may read what it says of itself then.
fn is_driven(slot: CapSlot) -> bool {
    call::cap_read(slot, 0).is_ok_and(|word| !Rights::from_bits_truncate((word >> 32) as u32).contains(Rights::READ))
}

/// What a pod that is trusted with a function gets of it: all there is, to pass on too.
pub(crate) fn rights_of(slot: CapSlot) -> Rights {
    let rights = Rights::CONTROL | Rights::GRANT;
    if is_driven(slot) { rights } else { rights | Rights::READ | Rights::WRITE }
}

/// Whether a function is a network card of PCI, as it says itself. Controllers of disks are the machine's own: every PC
/// has one, whoever has disks.
fn is_network_card(slot: CapSlot) -> bool {
    const CLASS_NETWORK: u64 = 2;
    let read = |field| call::device_read(slot, field, 0).ok();
    let is_pci = read(DeviceField::Kind) == Some(DeviceKind::Pci as u64);
    is_pci && read(DeviceField::Class).is_some_and(|class| class >> 16 == CLASS_NETWORK)
}
