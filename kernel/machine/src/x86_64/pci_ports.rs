//! PCI configuration space through ports 0xcf8 and 0xcfc, and where messages go.
//!
//! An address port and a data port make every access two steps, guarded by a leaf lock as in [`super::io_apic`].
#![allow(unsafe_code, reason = "ports and device registers")]

use aegis_pci::{self as pci, ConfigAccess, Function, FunctionAddress, MSI_X_ENTRY_BYTES};

use super::instructions::{in32, mmio_read, mmio_write, out32};
use super::lock::KernelLock;
use super::{local_apic, memory};

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;
const ENTRY_MASKED: u32 = 1;

static PORTS: KernelLock<()> = KernelLock::new(());

/// Configuration access by ports; on a machine without PCI everything reads as absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct PciPorts;

fn select(function: FunctionAddress, offset: u16) -> u32 {
    ENABLE | u32::from(function.0) << 8 | u32::from(offset & 0xfc)
}

impl ConfigAccess for PciPorts {
    fn read(&self, function: FunctionAddress, offset: u16) -> u32 {
        let _guard = PORTS.lock();
        // SAFETY: reading configuration space changes no memory.
        unsafe {
            out32(ADDRESS, select(function, offset));
            in32(DATA)
        }
    }

    fn write(&self, function: FunctionAddress, offset: u16, value: u32) {
        let _guard = PORTS.lock();
        // SAFETY: configuration decides where a device's registers appear and whether it reaches memory; which device
        // may do the latter is the kernel core's decision (INV-4), as for every mapping.
        unsafe {
            out32(ADDRESS, select(function, offset));
            out32(DATA, value);
        }
    }
}

/// Makes entry `index` of a function's MSI-X table, if it is there, send `vector` to a processor, masked at first. The
/// function must decode memory.
pub fn msi_x_route(function: &Function, index: u16, vector: u8, cpu: usize) {
    if let Some(entry) = entry_address(function, index) {
        // SAFETY: `entry` is inside the region of the table; the message goes to the local APIC with a vector that is
        // handled.
        unsafe {
            mmio_write(entry + 12, ENTRY_MASKED);
            mmio_write(entry, message_address(cpu));
            mmio_write(entry + 4, 0);
            mmio_write(entry + 8, u32::from(vector));
        }
    }
}

/// Masks or unmasks an entry; a message that is due meanwhile is sent when it is unmasked.
pub fn msi_x_mask(function: &Function, index: u16, masked: bool) {
    if let Some(entry) = entry_address(function, index) {
        // SAFETY: as above; only the mask bit changes.
        unsafe {
            let control = mmio_read(entry + 12) & !ENTRY_MASKED;
            mmio_write(entry + 12, control | u32::from(masked));
        }
    }
}

/// Makes a function's one message send `vector` to a processor, turned off at first.
pub fn msi_route(function: FunctionAddress, capability: u16, vector: u8, cpu: usize) {
    pci::set_msi_enabled(&PciPorts, function, capability, false);
    pci::write_msi(&PciPorts, function, capability, message_address(cpu), u32::from(vector));
}

fn message_address(cpu: usize) -> u32 {
    MESSAGE_ADDRESS | local_apic::apic_id(cpu) << 12
}

fn entry_address(function: &Function, index: u16) -> Option<u64> {
    let table = function.msi_x?;
    if index >= table.entry_count {
        return None;
    }
    let address = function.msi_x_table_address()?;
    memory::map_device(address + u64::from(index) * MSI_X_ENTRY_BYTES, MSI_X_ENTRY_BYTES)
}
