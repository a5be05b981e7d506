//! Virtio register blocks of the microvm machine, found by looking.
#![allow(unsafe_code, reason = "device registers")]

use aegis_pci::{ConfigAccess, FunctionAddress};

use super::instructions::mmio_read;
use super::memory::direct_address;
use crate::acpi::Topology;

/// "virt", little-endian (virtio 1.2, 4.2.2).
const MAGIC: u32 = 0x7472_6976;
const REGISTER_DEVICE_ID: u64 = 8;
const FIRST_ADDRESS: u64 = 0xfeb0_0000;
/// Bytes of a block.
pub const VIRTIO_BLOCK_BYTES: u64 = 0x200;

/// A block that holds a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioMmioSlot {
    /// Physical address.
    pub address: u64,
    /// Interrupt line.
    pub gsi: u32,
    /// Virtio device identifier; never 0.
    pub device_id: u32,
}

/// Calls `visit` for every block that holds a device.
///
/// With ACPI, QEMU's microvm does not say on the command line where they are, so the fixed slots are probed; that is
/// done only on a machine without PCI ports, where nothing else can be at these addresses. The interrupt of slot n is
/// `first + n`, see [`first_line`].
pub fn virtio_mmio_slots(topology: &Topology, mut visit: impl FnMut(VirtioMmioSlot)) {
    if super::PciPorts.read(FunctionAddress(0), 0) != u32::MAX {
        return;
    }
    let (gsi, count) = first_line(topology);
    for slot in 0..count {
        let address = FIRST_ADDRESS + u64::from(slot) * VIRTIO_BLOCK_BYTES;
        let registers = direct_address(address);
        // SAFETY: device space below 4 GiB is mapped; identification registers have no side effect.
        let (magic, device_id) = unsafe { (mmio_read(registers), mmio_read(registers + REGISTER_DEVICE_ID)) };
        if magic == MAGIC && device_id != 0 {
            visit(VirtioMmioSlot { address, gsi: gsi + slot, device_id });
        }
    }
}

/// First interrupt line and number of slots of QEMU's microvm with ACPI.
fn first_line(topology: &Topology) -> (u32, u32) {
    match topology.io_apics() {
        [_, second, ..] => (second.gsi_base, 24),
        _ => (16, 8),
    }
}
