//! PCI functions: configuration space, base address registers, message interrupts, reset, all over a [`ConfigAccess`].
//!
//! Sources: PCI Local Bus 3.0, 6.1 (header), 6.2.2 and 6.2.3 (INTx), 6.2.5 (base addresses), 6.7 (capabilities), 6.8
//! (MSI, MSI-X); PCI Express Base 4.0, 6.6.2 (function level reset); PCI Power Management 1.2, 3.2.4 and 5.4; PCI IDE
//! Controller 1.0 (compatibility mode). The scan follows bridges from bus 0, so that an empty machine costs 32 reads.
//!
//! It is linked into the kernel, and is no part of `kernel/` because it decides nothing and touches nothing: which
//! environment may have a function is the core's business, and how configuration space is reached the machine's.
#![no_std]

#[cfg(test)]
extern crate std;

/// Base address registers of a function.
pub const BAR_COUNT: usize = 6;

const COMMAND: u16 = 0x04;
const STATUS: u16 = 0x06;
const HEADER_TYPE: u16 = 0x0e;
const BAR_FIRST: u16 = 0x10;
const SECONDARY_BUS: u16 = 0x19;
const CAPABILITIES: u16 = 0x34;
const INTERRUPT_LINE: u16 = 0x3c;
const CAPABILITY_POWER: u8 = 0x01;
const CAPABILITY_MSI: u8 = 0x05;
const CAPABILITY_EXPRESS: u8 = 0x10;
const CAPABILITY_MSI_X: u8 = 0x11;
const CAPABILITY_ADVANCED: u8 = 0x13;
const MSI_ENABLE: u32 = 1 << 16;
const MSI_CONTROL: u32 = MSI_ENABLE | 7 << 20;
const MSI_64_BIT: u32 = 1 << 23;
const MSI_X_ENABLE: u32 = 1 << 31;
const MSI_X_CONTROL: u32 = 3 << 30;
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

/// Status register: the function asserts its INTx, whether or not that is let through.
const STATUS_INTERRUPT: u16 = 1 << 3;
/// Class and subclass of an IDE controller.
pub const CLASS_IDE: u32 = 0x0101;
/// The same of an AHCI controller.
pub const CLASS_AHCI: u32 = 0x0106;
/// What an IDE channel in compatibility mode decodes whatever its registers say: command block and control port.
const IDE_PORTS: [[(u16, u16); 2]; 2] = [[(0x1f0, 8), (0x3f6, 1)], [(0x170, 8), (0x376, 1)]];
/// The lines of its channels.
pub const IDE_LINES: [u8; 2] = [14, 15];

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

    /// Changes bits of the command register.
    fn change_command(&self, function: FunctionAddress, bits: u16, is_set: bool) {
        let before = self.read_command(function);
        self.write_command(function, if is_set { before | bits } else { before & !bits });
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
}

/// A function that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Bus, device and function number.
    pub address: FunctionAddress,
    /// Vendor identifier (configuration word 0x00).
    pub vendor: u16,
    /// Device identifier (configuration word 0x02).
    pub device: u16,
    /// Class << 16 | subclass << 8 | interface.
    pub class: u32,
    /// Memory and port ranges that it decodes.
    pub bars: [Bar; BAR_COUNT],
    /// MSI-X, if it has it.
    pub msi_x: Option<MsiX>,
    /// The capability for one message interrupt, if it has it.
    pub msi: Option<u16>,
    /// The legacy line that its INTx pin is routed to by firmware, if any.
    pub interrupt_line: Option<u8>,
}

impl Function {
    /// Whether it is an IDE controller whose channel 0 or 1 is in compatibility mode.
    #[must_use]
    pub fn has_legacy_channel(&self, channel: usize) -> bool {
        self.class >> 8 == CLASS_IDE && channel < 2 && self.class >> (2 * channel) & 1 == 0
    }

    /// The physical address of the MSI-X table; `None` if the capability names no memory that holds it.
    #[must_use]
    pub fn msi_x_table_address(&self) -> Option<u64> {
        let table = self.msi_x?;
        let Bar::Memory { address, length_bytes } = *self.bars.get(usize::from(table.table_bar))? else { return None };
        let end = u64::from(table.table_offset) + u64::from(table.entry_count) * MSI_X_ENTRY_BYTES;
        (address != 0 && end <= length_bytes).then_some(address + u64::from(table.table_offset))
    }
}

/// Calls `visit` for every function that is reachable from bus 0, bridges included.
pub fn scan(access: &impl ConfigAccess, mut visit: impl FnMut(Function)) {
    if access.read(FunctionAddress(0), 0) == u32::MAX {
        return;
    }
    // Bridges number their secondary buses upwards without gaps, so one pass up to the highest meets every bus.
    let (mut bus, mut last_bus) = (0, 0);
    while bus <= last_bus {
        for device in 0..32 {
            scan_device(access, bus << 8 | device << 3, &mut last_bus, &mut visit);
        }
        bus += 1;
    }
}

fn scan_device(access: &impl ConfigAccess, first: u16, last_bus: &mut u16, visit: &mut impl FnMut(Function)) {
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
                *last_bus = (*last_bus).max(u16::from(access.read_u8(address, SECONDARY_BUS)));
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
    let line = piix_line(access, address, pin).unwrap_or(interrupt as u8);
    let mut function = Function {
        address,
        vendor: identity as u16,
        device: (identity >> 16) as u16,
        class: access.read(address, 0x08) >> 8,
        bars: read_bars(access, address, bar_count),
        msi_x: read_msi_x(access, address),
        msi: find_capability(access, address, CAPABILITY_MSI),
        interrupt_line: (header == 0 && (1..=4).contains(&pin) && line < 16).then_some(line),
    };
    for (channel, ports) in IDE_PORTS.iter().enumerate() {
        if function.has_legacy_channel(channel) {
            let [command, control] = ports.map(|(port, count)| Bar::Ports { port, count });
            function.bars[2 * channel] = command;
            function.bars[2 * channel + 1] = control;
        }
    }
    function
}

/// Where the PIIX3 of QEMU's `pc` sends a pin of a function on its own bus, whatever firmware wrote into the function
/// (`qboot` is wrong there): Intel 82371SB data sheet, 2.2.10; slot and pin lead to a router's input as in QEMU's
/// `hw/pci-host/i440fx.c`.
fn piix_line(access: &impl ConfigAccess, address: FunctionAddress, pin: u32) -> Option<u8> {
    const BRIDGE: FunctionAddress = FunctionAddress(1 << 3);
    let is_below = address.0 < 1 << 8 && access.read(BRIDGE, 0) == 0x7000_8086;
    let input = (u32::from(address.0 >> 3) + pin + 2) & 3;
    is_below.then(|| access.read_u8(BRIDGE, 0x60 + input as u16))
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

/// Where a function's capability of this kind is.
fn find_capability(access: &impl ConfigAccess, address: FunctionAddress, kind: u8) -> Option<u16> {
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
        if head as u8 == kind {
            return Some(at);
        }
        at = u16::from((head >> 8) as u8 & !3);
    }
    None
}

fn read_msi_x(access: &impl ConfigAccess, address: FunctionAddress) -> Option<MsiX> {
    let at = find_capability(access, address, CAPABILITY_MSI_X)?;
    let table = access.read(address, at + 4);
    Some(MsiX {
        capability: at,
        entry_count: (access.read(address, at) >> 16 & 0x7ff) as u16 + 1,
        table_bar: (table & 7) as u8,
        table_offset: table & !7,
    })
}

/// Addresses that can be given to registers that firmware left without one.
///
/// QEMU's `qboot`, unlike SeaBIOS, gives none. Memory lies above the memory below 4 GiB of QEMU's machines (at most
/// 3.5 GiB) and below the interrupt controllers; ports lie above those of the machine's own controllers, where SeaBIOS
/// puts them too.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    next: u64,
    end: u64,
}

impl Window {
    /// Memory addresses that are given to functions which firmware left without.
    pub const MEMORY: Self = Self { next: 0xe000_0000, end: 0xfe00_0000 };
    /// Ports that are given to functions which firmware left without.
    pub const PORTS: Self = Self { next: 0xc000, end: 0x1_0000 };

    /// An address for `length`, a power of two, aligned to it and to `least`; `None` when the window is full.
    fn take(&mut self, length: u64, least: u64) -> Option<u64> {
        let address = self.next.checked_next_multiple_of(length.max(least))?;
        let end = address.checked_add(length)?;
        (end <= self.end).then(|| {
            self.next = end;
            address
        })
    }

    /// Keeps off what somebody has already.
    fn keep_off(&mut self, address: u64, length: u64) {
        if (self.next..self.end).contains(&address) {
            self.next = address.saturating_add(length);
        }
    }
}

/// Gives every register of these functions that has no address one from the windows, above those that have. Decoding
/// must be off.
///
/// A register that finds no place stays without an address, and is a hole then.
pub fn assign_addresses(access: &impl ConfigAccess, functions: &mut [Option<Function>]) {
    let (mut memory, mut ports) = (Window::MEMORY, Window::PORTS);
    for bar in functions.iter().flatten().flat_map(|function| function.bars) {
        match bar {
            Bar::Memory { address, length_bytes } => memory.keep_off(address, length_bytes),
            Bar::Ports { port, count } => ports.keep_off(port.into(), count.into()),
            Bar::None => {}
        }
    }
    for function in functions.iter_mut().flatten() {
        for (offset, bar) in (BAR_FIRST..).step_by(4).zip(&mut function.bars) {
            let place = match *bar {
                Bar::Memory { address: 0, length_bytes } => memory.take(length_bytes, 4096),
                Bar::Ports { port: 0, count } => ports.take(count.into(), 4),
                _ => continue,
            };
            *bar = match (place, *bar) {
                (Some(address), Bar::Memory { length_bytes, .. }) => Bar::Memory { address, length_bytes },
                (Some(port), Bar::Ports { count, .. }) => Bar::Ports { port: port as u16, count },
                _ => Bar::None,
            };
            access.write(function.address, offset, place.unwrap_or(0) as u32);
        }
    }
}

/// Turns delivery of a function's messages by MSI-X on or off; entries keep their own mask bits.
pub fn set_msi_x_enabled(access: &impl ConfigAccess, function: &Function, enabled: bool) {
    if let Some(table) = function.msi_x {
        let word = access.read(function.address, table.capability) & !MSI_X_CONTROL;
        access.write(function.address, table.capability, word | if enabled { MSI_X_ENABLE } else { 0 });
    }
}

/// Makes a function's one message interrupt go to `address` with `data`.
pub fn write_msi(access: &impl ConfigAccess, function: FunctionAddress, capability: u16, address: u32, data: u32) {
    let is_64_bit = access.read(function, capability) & MSI_64_BIT != 0;
    access.write(function, capability + 4, address);
    if is_64_bit {
        access.write(function, capability + 8, 0);
    }
    access.write(function, capability + if is_64_bit { 12 } else { 8 }, data);
}

/// Turns MSI delivery of a function on, for one message, or off. What happens while it is off is not told later.
pub fn set_msi_enabled(access: &impl ConfigAccess, function: FunctionAddress, capability: u16, enabled: bool) {
    let word = access.read(function, capability) & !MSI_CONTROL;
    access.write(function, capability, word | if enabled { MSI_ENABLE } else { 0 });
}

/// Whether a function's INTx can be held back by its command register, as PCI 2.3 wants it.
pub fn has_intx_disable(access: &impl ConfigAccess, function: FunctionAddress) -> bool {
    access.change_command(function, COMMAND_INTX_DISABLE, true);
    access.read_command(function) & COMMAND_INTX_DISABLE != 0
}

/// Whether a function asserts its INTx and does not hold it back.
pub fn raises_intx(access: &impl ConfigAccess, function: FunctionAddress) -> bool {
    access.read_u16(function, STATUS) & STATUS_INTERRUPT != 0
        && access.read_command(function) & COMMAND_INTX_DISABLE == 0
}

/// How long a function may take: to finish what it began, to reset itself (PCI Express Base 4.0, 6.6.2), to change its
/// power state (PCI Power Management 1.2, 5.6.1).
const DRAIN_NS: u64 = 100_000_000;
const FUNCTION_RESET_NS: u64 = 100_000_000;
const POWER_NS: u64 = 10_000_000;

/// A function's way to rest: bus mastering off, nothing pending, function level reset or the power state's, and its
/// header as it was, but quiet. All zero bits at first.
///
/// A function that offers neither reset ends quiet: it reaches no memory and raises no INTx or message until somebody
/// enables it, but its own registers stay as its driver left them.
#[derive(Clone, Copy, Debug)]
pub struct Reset {
    phase: Phase,
    until_ns: u64,
    header: [u32; 16],
    express_control: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Begin,
    Draining,
    Asleep,
    Waking,
}

impl Reset {
    /// No reset under way.
    pub const NONE: Self = Self { phase: Phase::Begin, until_ns: 0, header: [0; 16], express_control: 0 };

    /// Whether the next step is the first.
    #[must_use]
    pub fn is_at_its_begin(&self) -> bool {
        matches!(self.phase, Phase::Begin)
    }

    /// Does what is due; true when the function is at rest, else call again. A later call begins anew.
    pub fn step(&mut self, access: &impl ConfigAccess, function: FunctionAddress, now_ns: u64) -> bool {
        let express = find_capability(access, function, CAPABILITY_EXPRESS);
        loop {
            let is_due = now_ns >= self.until_ns;
            (self.phase, self.until_ns) = match self.phase {
                Phase::Begin => {
                    self.header = core::array::from_fn(|index| access.read(function, 4 * index as u16));
                    self.express_control = express.map_or(0, |at| u32::from(access.read_u16(function, at + 8)));
                    access.write_command(function, COMMAND_INTX_DISABLE);
                    (Phase::Draining, now_ns + DRAIN_NS)
                }
                Phase::Draining if is_due || !is_pending(access, function, express) => {
                    begin_reset(access, function, express, now_ns)
                }
                Phase::Asleep if is_due => {
                    set_power_state(access, function, 0);
                    (Phase::Waking, now_ns + POWER_NS)
                }
                Phase::Waking if is_due => {
                    self.restore(access, function, express);
                    *self = Self::NONE;
                    return true;
                }
                _ => return false,
            };
        }
    }

    fn restore(&self, access: &impl ConfigAccess, function: FunctionAddress, express: Option<u16>) {
        if let Some(at) = express {
            access.write(function, at + 8, self.express_control);
        }
        for (offset, word) in (0..).step_by(4).zip(self.header).skip(3) {
            access.write(function, offset, word);
        }
        let decodes = self.header[1] as u16 & (COMMAND_IO | COMMAND_MEMORY);
        access.write_command(function, decodes | COMMAND_INTX_DISABLE);
    }
}

/// Whether the function waits for answers from memory.
fn is_pending(access: &impl ConfigAccess, function: FunctionAddress, express: Option<u16>) -> bool {
    let advanced = find_capability(access, function, CAPABILITY_ADVANCED);
    express.is_some_and(|at| access.read_u16(function, at + 10) & 1 << 5 != 0)
        || advanced.is_some_and(|at| access.read_u8(function, at + 5) & 1 != 0)
}

/// Begins the reset that the function offers; what comes next, and when.
fn begin_reset(
    access: &impl ConfigAccess,
    function: FunctionAddress,
    express: Option<u16>,
    now_ns: u64,
) -> (Phase, u64) {
    const EXPRESS_HAS_RESET: u32 = 1 << 28;
    const EXPRESS_RESET: u32 = 1 << 15;
    const ADVANCED_HAS_RESET: u32 = 1 << 25;
    let advanced = find_capability(access, function, CAPABILITY_ADVANCED);
    if let Some(at) = express.filter(|at| access.read(function, at + 4) & EXPRESS_HAS_RESET != 0) {
        access.write(function, at + 8, u32::from(access.read_u16(function, at + 8)) | EXPRESS_RESET);
        (Phase::Waking, now_ns + FUNCTION_RESET_NS)
    } else if let Some(at) = advanced.filter(|at| access.read(function, *at) & ADVANCED_HAS_RESET != 0) {
        access.write(function, at + 4, 1);
        (Phase::Waking, now_ns + FUNCTION_RESET_NS)
    } else if set_power_state(access, function, 3) {
        (Phase::Asleep, now_ns + POWER_NS)
    } else {
        (Phase::Waking, 0)
    }
}

/// Sets D0 (0) or D3hot (3); false if the function has no power states, or keeps its state through them.
fn set_power_state(access: &impl ConfigAccess, function: FunctionAddress, state: u32) -> bool {
    const STATE: u32 = 3;
    const NO_SOFT_RESET: u32 = 1 << 3;
    let Some(at) = find_capability(access, function, CAPABILITY_POWER) else { return false };
    let word = access.read(function, at + 4);
    if word & NO_SOFT_RESET == 0 {
        access.write(function, at + 4, word & !STATE | state);
    }
    word & NO_SOFT_RESET == 0
}

#[cfg(test)]
mod tests;
