//! Describes the machine's device functions to the core: PCI functions and virtio blocks. The kernel drives none of
//! them.

use aegis_abi::device::{DEVICE_REGION_COUNT_MAX, DeviceKind};
use aegis_abi::layout::PAGE_SHIFT;
use aegis_kernel_core::{DeviceDescription, Region, State};
use aegis_machine as machine;
use machine::pci::{self, Bar, Function};
use machine::{Boot, PciPorts, VirtioMmioSlot};

use crate::hardware::{Backend, FUNCTION_COUNT_MAX, Hardware, Line};

/// PCI class of bridges, which nobody may drive: they decide what others can reach.
const CLASS_BRIDGE: u32 = 6;
/// Most MSI-X entries of a function that are routed.
const MESSAGE_COUNT_MAX: u16 = 4;

/// First port, number of ports and interrupt line of the second serial device of a PC; the first is the kernel's log.
const SERIAL_PORT: u16 = 0x2f8;
const SERIAL_PORT_COUNT: u16 = 8;
const SERIAL_LINE: usize = 3;

/// Finds all device functions. What does not fit the tables is left out, and the log says so.
pub(crate) fn describe(state: &mut State<'static, Hardware>, boot: &Boot) {
    machine::virtio_mmio_slots(boot.command_line, &boot.topology, |slot| add_virtio_mmio(state, slot));
    let mut functions = [None; FUNCTION_COUNT_MAX];
    let mut found = functions.iter_mut();
    let mut left_out = 0;
    pci::scan(&PciPorts, |function| {
        if function.class >> 16 == CLASS_BRIDGE {
            return;
        }
        match found.next() {
            Some(place) => *place = Some(function),
            None => left_out += 1,
        }
    });
    let mut window = pci::Window::default();
    for function in functions.iter_mut().flatten() {
        pci::assign_addresses(&PciPorts, function, &mut window);
        add_pci(state, boot, function);
    }
    add_serial(state, boot);
    machine::log!(Info, "no IOMMU is used: whoever drives a device can reach all memory by it");
    if left_out != 0 {
        machine::log!(Error, "{left_out} PCI functions are left out: only {FUNCTION_COUNT_MAX} are kept");
    }
}

fn add_virtio_mmio(state: &mut State<'static, Hardware>, slot: VirtioMmioSlot) {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    regions[0] = Region { base: slot.address, length_bytes: slot.length_bytes, ..Region::HOLE };
    let description = DeviceDescription {
        kind: DeviceKind::VirtioMmio,
        identity: slot.device_id,
        location: slot.gsi,
        class: 0,
        regions,
        interrupt_count: 1,
        is_dma_confined: false,
    };
    if let Some(device) = state.add_device(description) {
        state.machine.set_backend(device, Backend::VirtioMmio(slot.address));
        state.machine.add_route(device, 0, Line::Gsi(slot.gsi));
    }
}

/// The second serial device, if its scratch register keeps what is written to it.
fn add_serial(state: &mut State<'static, Hardware>, boot: &Boot) {
    let (scratch, pattern) = (SERIAL_PORT + SERIAL_PORT_COUNT - 1, 0x5a);
    machine::port_write_u8(scratch, pattern);
    if machine::port_read_u8(scratch) != pattern {
        return;
    }
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    regions[0] = Region {
        is_ports: true,
        base: u64::from(SERIAL_PORT),
        length_bytes: u64::from(SERIAL_PORT_COUNT),
        ..Region::HOLE
    };
    let description = DeviceDescription {
        kind: DeviceKind::Ports,
        identity: u32::from(SERIAL_PORT),
        location: 0,
        class: 0,
        regions,
        interrupt_count: 1,
        is_dma_confined: false,
    };
    if let Some(device) = state.add_device(description) {
        state.machine.add_route(device, 0, Line::Gsi(boot.topology.isa_lines[SERIAL_LINE].gsi));
    }
}

fn add_pci(state: &mut State<'static, Hardware>, boot: &Boot, function: &Function) {
    let message_count = function.msi_x.map_or(0, |msi_x| msi_x.entry_count.min(MESSAGE_COUNT_MAX));
    let line = function.interrupt_line.and_then(|line| boot.topology.isa_lines.get(usize::from(line)));
    let description = DeviceDescription {
        kind: DeviceKind::Pci,
        identity: u32::from(function.device) << 16 | u32::from(function.vendor),
        location: u32::from(function.address.0),
        class: function.class,
        regions: regions(function),
        interrupt_count: if message_count > 0 { u32::from(message_count) } else { u32::from(line.is_some()) },
        is_dma_confined: false,
    };
    let Some(device) = state.add_device(description) else { return };
    let Some(index) = state.machine.add_function(*function) else { return };
    state.machine.set_backend(device, Backend::Pci(index));
    if message_count > 0 {
        // The table is in the function's memory, which must decode while it is written.
        state.machine.decode_memory(function);
        for entry in 0..message_count {
            state.machine.add_route(device, usize::from(entry), Line::Message(entry));
        }
    } else if let Some(line) = line {
        state.machine.add_route(device, 0, Line::Gsi(line.gsi));
    }
}

/// What the function decodes, with the pages of its MSI-X table reserved.
fn regions(function: &Function) -> [Region; DEVICE_REGION_COUNT_MAX] {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    let table = function.msi_x_frames();
    for (region, bar) in regions.iter_mut().zip(function.bars) {
        *region = match bar {
            // Firmware may have left ports without an address; those from 0 on are the machine's own controllers.
            Bar::None | Bar::Ports { port: 0, .. } => Region::HOLE,
            Bar::Ports { port, count } => {
                Region { is_ports: true, base: u64::from(port), length_bytes: u64::from(count), ..Region::HOLE }
            }
            Bar::Memory { address, length_bytes } => {
                let first = address >> PAGE_SHIFT;
                let end = first + length_bytes.div_ceil(4096);
                let reserved = table.filter(|table| (first..end).contains(&table.start));
                Region {
                    base: address,
                    length_bytes,
                    reserved_page_first: reserved.map_or(0, |table| (table.start - first) as u32),
                    reserved_page_count: reserved.map_or(0, |table| table.count as u32),
                    ..Region::HOLE
                }
            }
        };
    }
    regions
}
