//! PCI functions: configuration space, base address registers, MSI-X, all over a [`ConfigAccess`].
//!
//! Sources: PCI Local Bus 3.0, 6.1 (header), 6.2.5 (base addresses), 6.7 (capabilities), 6.8.2 (MSI-X). The scan
//! follows bridges from bus 0, so that an empty machine costs 32 reads.

use crate::frame_range::FrameRange;

/// Most functions that are kept.
pub const FUNCTION_COUNT_MAX: usize = 32;
/// Base address registers of a function.
pub const BAR_COUNT: usize = 6;

const COMMAND: u16 = 0x04;
const STATUS: u16 = 0x06;
const HEADER_TYPE: u16 = 0x0e;
const BAR_FIRST: u16 = 0x10;
const SECONDARY_BUS: u16 = 0x19;
const CAPABILITIES: u16 = 0x34;
const INTERRUPT_LINE: u16 = 0x3c;
const CAPABILITY_MSI_X: u8 = 0x11;
const MSI_X_ENABLE: u32 = 1 << 31;
const MSI_X_FUNCTION_MASK: u32 = 1 << 30;
/// Bytes of an MSI-X table entry.
pub const MSI_X_ENTRY_BYTES: u64 = 16;

/// Command register: decode ports.
pub const COMMAND_IO: u16 = 1 << 0;
/// Command register: decode memory.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command register: may reach memory.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Command register: do not raise INTx.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;

/// Where a function is: bus << 8 | device << 3 | function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionAddress(pub u16);

/// Access to configuration space, one aligned 32-bit word at a time.
pub trait ConfigAccess {
    /// The word at byte `offset` (multiple of 4); all ones if nothing answers.
    fn read(&self, function: FunctionAddress, offset: u16) -> u32;
    /// Stores the word at byte `offset`.
    fn write(&self, function: FunctionAddress, offset: u16, value: u32);

    /// The 16-bit half at an even `offset`.
    fn read_u16(&self, function: FunctionAddress, offset: u16) -> u16 {
        (self.read(function, offset & !3) >> (8 * (offset & 2))) as u16
    }

    /// The byte at `offset`.
    fn read_u8(&self, function: FunctionAddress, offset: u16) -> u8 {
        (self.read(function, offset & !3) >> (8 * (offset & 3))) as u8
    }

    /// Replaces the command register and writes zeros to the status register, which change nothing there.
    fn write_command(&self, function: FunctionAddress, command: u16) {
        self.write(function, COMMAND, u32::from(command));
    }

    /// The command register.
    fn read_command(&self, function: FunctionAddress) -> u16 {
        self.read_u16(function, COMMAND)
    }
}

/// What a base address register decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bar {
    /// Nothing, or the upper half of the 64-bit register before it.
    #[default]
    None,
    /// Memory.
    Memory {
        /// Physical address.
        address: u64,
        /// Bytes, a power of two.
        length_bytes: u64,
    },
    /// Ports.
    Ports {
        /// First port.
        port: u16,
        /// Ports.
        count: u16,
    },
}

/// A function's MSI-X capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiX {
    /// Offset of the capability in configuration space.
    pub capability: u16,
    /// Entries of the table.
    pub entry_count: u16,
    /// Base address register that holds the table.
    pub table_bar: u8,
    /// Byte offset of the table in it.
    pub table_offset: u32,
    /// Base address register that holds the pending bits.
    pub pending_bar: u8,
    /// Byte offset of the pending bits in it.
    pub pending_offset: u32,
}

/// A function that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub address: FunctionAddress,
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Class << 16 | subclass << 8 | interface.
    pub class: u32,
    /// What it decodes.
    pub bars: [Bar; BAR_COUNT],
    /// MSI-X, if it has it.
    pub msi_x: Option<MsiX>,
    /// The legacy line that its INTx pin is routed to by firmware, if any.
    pub interrupt_line: Option<u8>,
}

impl Function {
    /// No function: all zero bits.
    pub const NONE: Self = Self {
        address: FunctionAddress(0),
        vendor: 0,
        device: 0,
        class: 0,
        bars: [Bar::None; BAR_COUNT],
        msi_x: None,
        interrupt_line: None,
    };

    /// The frames of the MSI-X table, which must never be mapped writable for the function's owner.
    #[must_use]
    pub fn msi_x_frames(&self) -> Option<FrameRange> {
        let table = self.msi_x?;
        let address = self.msi_x_table_address()?;
        Some(FrameRange::covering_bytes(address, u64::from(table.entry_count) * MSI_X_ENTRY_BYTES))
    }

    /// The physical address of the MSI-X table; `None` if the capability names no memory that holds it.
    #[must_use]
    pub fn msi_x_table_address(&self) -> Option<u64> {
        let table = self.msi_x?;
        let Bar::Memory { address, length_bytes } = *self.bars.get(usize::from(table.table_bar))? else {
            return None;
        };
        let end = u64::from(table.table_offset) + u64::from(table.entry_count) * MSI_X_ENTRY_BYTES;
        (address != 0 && end <= length_bytes).then_some(address + u64::from(table.table_offset))
    }
}

/// Calls `visit` for every function that is reachable from bus 0, bridges included.
pub fn scan(access: &impl ConfigAccess, mut visit: impl FnMut(Function)) {
    if access.read(FunctionAddress(0), 0) == u32::MAX {
        return;
    }
    let mut buses = [0_u64; 4];
    buses[0] = 1;
    // Bridges number their secondary bus above their own, so one ascending pass meets every bus.
    for bus in 0..256_u16 {
        if buses[usize::from(bus / 64)] >> (bus % 64) & 1 == 0 {
            continue;
        }
        for device in 0..32_u16 {
            scan_device(
                access,
                bus << 8 | device << 3,
                &mut |secondary| {
                    if u16::from(secondary) > bus {
                        buses[usize::from(secondary / 64)] |= 1 << (secondary % 64);
                    }
                },
                &mut visit,
            );
        }
    }
}

fn scan_device(
    access: &impl ConfigAccess,
    first: u16,
    found_bus: &mut impl FnMut(u8),
    visit: &mut impl FnMut(Function),
) {
    const MULTIFUNCTION: u8 = 0x80;
    const BRIDGE: u8 = 1;
    let mut function_count = 1;
    let mut index = 0;
    while index < function_count {
        let address = FunctionAddress(first | index);
        let identity = access.read(address, 0);
        if identity != u32::MAX && identity & 0xffff != 0 {
            let header = access.read_u8(address, HEADER_TYPE);
            if index == 0 && header & MULTIFUNCTION != 0 {
                function_count = 8;
            }
            if header & 0x7f == BRIDGE {
                found_bus(access.read_u8(address, SECONDARY_BUS));
            }
            visit(read_function(access, address, header & 0x7f));
        }
        index += 1;
    }
}

fn read_function(access: &impl ConfigAccess, address: FunctionAddress, header: u8) -> Function {
    let identity = access.read(address, 0);
    let bar_count = match header {
        0 => BAR_COUNT,
        1 => 2,
        _ => 0,
    };
    let interrupt = access.read(address, INTERRUPT_LINE);
    let pin = interrupt >> 8 & 0xff;
    let line = interrupt as u8;
    Function {
        address,
        vendor: identity as u16,
        device: (identity >> 16) as u16,
        class: access.read(address, 0x08) >> 8,
        bars: read_bars(access, address, bar_count),
        msi_x: read_msi_x(access, address),
        interrupt_line: (header == 0 && (1..=4).contains(&pin) && line < 16).then_some(line),
    }
}

/// Sizes the registers by storing all ones, with decoding off meanwhile.
fn read_bars(access: &impl ConfigAccess, address: FunctionAddress, count: usize) -> [Bar; BAR_COUNT] {
    const IS_PORTS: u32 = 1;
    const IS_64_BIT: u32 = 4;
    let mut bars = [Bar::None; BAR_COUNT];
    let command = access.read_command(address);
    access.write_command(address, command & !(COMMAND_IO | COMMAND_MEMORY));
    let probe = |offset: u16| {
        let value = access.read(address, offset);
        access.write(address, offset, u32::MAX);
        let mask = access.read(address, offset);
        access.write(address, offset, value);
        (value, mask)
    };
    let mut index = 0;
    while index < count {
        let offset = BAR_FIRST + 4 * index as u16;
        let (value, mask) = probe(offset);
        if mask == 0 {
            index += 1;
            continue;
        }
        if mask & IS_PORTS != 0 {
            let count = (!(mask & !3) as u16).wrapping_add(1);
            bars[index] = Bar::Ports { port: (value & !3) as u16, count };
        } else if mask & IS_64_BIT != 0 && index + 1 < count {
            let (high, high_mask) = probe(offset + 4);
            let mask = u64::from(high_mask) << 32 | u64::from(mask & !15);
            let base = u64::from(high) << 32 | u64::from(value & !15);
            bars[index] = Bar::Memory { address: base, length_bytes: (!mask).wrapping_add(1) };
            index += 1;
        } else {
            let length_bytes = u64::from((!(mask & !15)).wrapping_add(1));
            bars[index] = Bar::Memory { address: u64::from(value & !15), length_bytes };
        }
        index += 1;
    }
    access.write_command(address, command);
    bars
}

fn read_msi_x(access: &impl ConfigAccess, address: FunctionAddress) -> Option<MsiX> {
    const HAS_CAPABILITIES: u16 = 1 << 4;
    if access.read_u16(address, STATUS) & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = u16::from(access.read_u8(address, CAPABILITIES) & !3);
    // A list has at most 48 places; more steps mean a loop.
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        let head = access.read(address, at);
        if head as u8 == CAPABILITY_MSI_X {
            let table = access.read(address, at + 4);
            let pending = access.read(address, at + 8);
            return Some(MsiX {
                capability: at,
                entry_count: (head >> 16 & 0x7ff) as u16 + 1,
                table_bar: (table & 7) as u8,
                table_offset: table & !7,
                pending_bar: (pending & 7) as u8,
                pending_offset: pending & !7,
            });
        }
        at = u16::from((head >> 8) as u8 & !3);
    }
    None
}

/// Addresses that can be given to memory registers that firmware left without one.
///
/// QEMU's `qboot`, unlike SeaBIOS, gives none. The window lies above the memory below 4 GiB of QEMU's machines (at
/// most 3.5 GiB) and below the interrupt controllers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    next: u64,
    end: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { next: 0xe000_0000, end: 0xfe00_0000 }
    }
}

impl Window {
    /// An address for `length_bytes`, a power of two, aligned to it and to a page; `None` when the window is full.
    fn take(&mut self, length_bytes: u64) -> Option<u64> {
        let address = self.next.checked_next_multiple_of(length_bytes.max(4096))?;
        let end = address.checked_add(length_bytes)?;
        (end <= self.end).then(|| {
            self.next = end;
            address
        })
    }
}

/// Gives every memory register of a function that has no address one from the window. Decoding must be off.
///
/// A register that finds no place stays without an address, and is a hole then.
pub fn assign_addresses(access: &impl ConfigAccess, function: &mut Function, window: &mut Window) {
    let mut index = 0;
    while index < BAR_COUNT {
        let offset = BAR_FIRST + 4 * index as u16;
        if let Bar::Memory { address: 0, length_bytes } = function.bars[index] {
            function.bars[index] = match window.take(length_bytes) {
                Some(address) => {
                    access.write(function.address, offset, address as u32);
                    Bar::Memory { address, length_bytes }
                }
                None => Bar::None,
            };
        }
        index += 1;
    }
}

/// Turns MSI-X delivery of a function on or off; entries keep their own mask bits.
pub fn set_msi_x_enabled(access: &impl ConfigAccess, function: &Function, enabled: bool) {
    if let Some(table) = function.msi_x {
        let word = access.read(function.address, table.capability) & !(MSI_X_ENABLE | MSI_X_FUNCTION_MASK);
        let enable = if enabled { MSI_X_ENABLE } else { 0 };
        access.write(function.address, table.capability, word | enable);
    }
}

#[cfg(test)]
#[path = "pci_tests.rs"]
mod tests;
