//! Describes the machine's device functions to the core: PCI functions and virtio blocks. The kernel drives none of
//! them.

use aegis_abi::device::{DEVICE_INTERRUPT_COUNT_MAX, DEVICE_REGION_COUNT_MAX, DeviceKind};
use aegis_abi::layout::PAGE_SHIFT;
use aegis_kernel_core::{DeviceDescription, DeviceId, Region};
use aegis_machine as machine;
use aegis_pci::{self as pci, Bar, ConfigAccess, Function, Reset};
use machine::frame_range::FrameRange;
use machine::{Boot, PciPorts, VIRTIO_BLOCK_BYTES, VirtioMmioSlot};

use crate::hardware::{Backend, Kernel, Line};

/// PCI class of bridges, which nobody may drive: they decide what others can reach.
const CLASS_BRIDGE: u32 = 6;
/// Most PCI functions that are kept.
const FUNCTION_COUNT_MAX: usize = 48;
/// Most MSI-X entries of a function that are routed.
const MESSAGE_COUNT_MAX: u16 = 4;

/// First port, number of ports and interrupt line of the second serial device of a PC; the first is the kernel's log.
const SERIAL_PORT: u16 = 0x2f8;
const SERIAL_PORT_COUNT: u16 = 8;
const SERIAL_LINE: usize = 3;

/// Finds all device functions. What does not fit the tables is left out, and the log says so.
pub(crate) fn describe(state: &mut Kernel, boot: &Boot) {
    machine::virtio_mmio_slots(&boot.topology, |slot| add_virtio_mmio(state, slot));
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
    pci::assign_addresses(&PciPorts, &mut functions);
    for function in functions.iter().flatten() {
        add_pci(state, boot, function);
    }
    add_serial(state, boot);
    machine::log!(Info, "no IOMMU is used: whoever drives a device can reach all memory by it");
    if left_out != 0 {
        machine::log!(Error, "{left_out} PCI functions are left out: only {FUNCTION_COUNT_MAX} are kept");
    }
}

fn add_virtio_mmio(state: &mut Kernel, slot: VirtioMmioSlot) {
    let region = Region { base: slot.address, length_bytes: VIRTIO_BLOCK_BYTES, ..Region::HOLE };
    if let Some(device) = add_simple(state, DeviceKind::VirtioMmio, slot.device_id, region, slot.gsi) {
        state.machine.set_backend(device, Backend::VirtioMmio(slot.address));
    }
}

/// A function of one region and one level-triggered line.
fn add_simple(state: &mut Kernel, kind: DeviceKind, identity: u32, region: Region, gsi: u32) -> Option<DeviceId> {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    regions[0] = region;
    let description = DeviceDescription { kind, identity, location: gsi, class: 0, regions, interrupt_count: 1 };
    let device = state.add_device(description)?;
    state.machine.add_route(device, 0, Line::Gsi { gsi, is_level: true });
    Some(device)
}

/// The second serial device, if its scratch register keeps what is written to it.
fn add_serial(state: &mut Kernel, boot: &Boot) {
    let (scratch, pattern) = (SERIAL_PORT + SERIAL_PORT_COUNT - 1, 0x5a);
    machine::port_write(scratch, 1, pattern);
    if machine::port_read(scratch, 1) != pattern {
        return;
    }
    let (base, length_bytes) = (u64::from(SERIAL_PORT), u64::from(SERIAL_PORT_COUNT));
    let region = Region { is_ports: true, base, length_bytes, ..Region::HOLE };
    let gsi = boot.topology.isa_lines[SERIAL_LINE].gsi;
    add_simple(state, DeviceKind::Ports, u32::from(SERIAL_PORT), region, gsi);
}

fn add_pci(state: &mut Kernel, boot: &Boot, function: &Function) {
    // Quiet, whatever firmware did with it, and within reach: for a driver that sets it up before it may reach memory,
    // and for us, as an MSI-X table is in its memory.
    let command = pci::COMMAND_INTX_DISABLE | pci::COMMAND_IO | pci::COMMAND_MEMORY;
    PciPorts.write_command(function.address, command);
    let mut lines = [Line::None; DEVICE_INTERRUPT_COUNT_MAX];
    let line_count = lines_of(state, boot, function, &mut lines);
    let description = DeviceDescription {
        kind: DeviceKind::Pci,
        identity: u32::from(function.device) << 16 | u32::from(function.vendor),
        location: u32::from(function.address.0),
        class: function.class,
        regions: regions(function),
        interrupt_count: line_count as u32,
    };
    let Some(device) = state.add_device(description) else { return };
    state.machine.set_backend(device, Backend::Pci(*function, Reset::NONE));
    for (interrupt, line) in lines[..line_count].iter().enumerate() {
        state.machine.add_route(device, interrupt, *line);
    }
}

/// How a function's interrupts arrive: messages if it can send them, else lines that several functions share.
fn lines_of(state: &Kernel, boot: &Boot, function: &Function, lines: &mut [Line; DEVICE_INTERRUPT_COUNT_MAX]) -> usize {
    let isa = |line: u8| boot.topology.isa_lines.get(usize::from(line));
    let mut count = 0;
    let mut add = |line| {
        lines[count] = line;
        count += 1;
    };
    if let Some(msi_x) = function.msi_x {
        (0..msi_x.entry_count.min(MESSAGE_COUNT_MAX)).for_each(|entry| add(Line::MsiX(entry)));
    } else if function.has_legacy_channel(0) || function.has_legacy_channel(1) {
        for line in pci::IDE_LINES.into_iter().filter_map(isa) {
            add(Line::Gsi { gsi: line.gsi, is_level: line.level });
        }
    } else if let Some(capability) = function.msi {
        add(Line::Msi(capability));
    } else if let Some(line) = function.interrupt_line.and_then(isa) {
        let can_share = pci::has_intx_disable(&PciPorts, function.address);
        let line = if can_share { Line::Intx(line.gsi) } else { Line::Gsi { gsi: line.gsi, is_level: true } };
        if state.machine.has_room_on(line) {
            add(line);
        }
    }
    count
}

/// What the function decodes, with the pages of its MSI-X table reserved.
fn regions(function: &Function) -> [Region; DEVICE_REGION_COUNT_MAX] {
    let mut regions = [Region::HOLE; DEVICE_REGION_COUNT_MAX];
    let table_bytes = function.msi_x.map_or(0, |table| u64::from(table.entry_count) * pci::MSI_X_ENTRY_BYTES);
    let table = function.msi_x_table_address().map(|address| FrameRange::covering_bytes(address, table_bytes));
    for (region, bar) in regions.iter_mut().zip(function.bars) {
        *region = match bar {
            Bar::None => Region::HOLE,
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
