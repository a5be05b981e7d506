//! I/O APICs: interrupt lines (by global number) to vectors of a processor. The legacy controllers are masked
//! off.
//!
//! Registers: Intel 82093AA data sheet, 3.2. An index register and a data register make every access two steps, so a
//! lock guards them; it is a leaf, taken with interrupts off and held for a few instructions.
#![allow(unsafe_code, reason = "device registers and ports")]

use super::instructions::{mmio_read, mmio_write, out8};
use super::local_apic;
use super::lock::KernelLock;
use super::memory::direct_address;
use crate::acpi::{IO_APIC_COUNT_MAX, Topology};

const REGISTER_VERSION: u32 = 1;
const REGISTER_REDIRECTION: u32 = 0x10;
const ACTIVE_LOW: u32 = 1 << 13;
const LEVEL: u32 = 1 << 15;
const MASKED: u32 = 1 << 16;
const DATA_OFFSET: u64 = 0x10;
/// Most lines of an I/O APIC that are used: as many as one can have.
const LINE_COUNT_MAX: usize = 240;

/// Each access leaves the virtual machine, and an interrupt masks its line and lets it through again: what was written
/// last is remembered, so that nothing is read and nothing written twice.
struct IoApic {
    registers: u64,
    gsi_base: u32,
    line_count: u32,
    /// The register that the index register names.
    selected: u32,
    /// The low redirection register of each line.
    lines: [u32; LINE_COUNT_MAX],
}

const ABSENT: IoApic = IoApic { registers: 0, gsi_base: 0, line_count: 0, selected: 0, lines: [0; LINE_COUNT_MAX] };

static IO_APICS: KernelLock<[IoApic; IO_APIC_COUNT_MAX]> = KernelLock::new([ABSENT; IO_APIC_COUNT_MAX]);

/// Masks every line and the legacy controllers.
pub(crate) fn initialize(topology: &Topology) {
    const LEGACY_MASKS: [u16; 2] = [0x21, 0xa1];
    for port in LEGACY_MASKS {
        // SAFETY: masking an interrupt controller reaches no memory.
        unsafe { out8(port, 0xff) };
    }
    let mut io_apics = IO_APICS.lock();
    for (slot, entry) in io_apics.iter_mut().zip(topology.io_apics()) {
        if entry.address >= 4 << 30 {
            continue;
        }
        (slot.registers, slot.gsi_base, slot.selected) = (direct_address(entry.address), entry.gsi_base, u32::MAX);
        slot.select(REGISTER_VERSION);
        // SAFETY: mapped uncached; the lock makes it one with the selection.
        let version = unsafe { mmio_read(slot.registers + DATA_OFFSET) };
        slot.line_count = ((version >> 16 & 0xff) + 1).min(LINE_COUNT_MAX as u32);
        for line in 0..slot.line_count {
            slot.set(line, MASKED);
        }
    }
}

impl IoApic {
    fn select(&mut self, register: u32) {
        if core::mem::replace(&mut self.selected, register) != register {
            // SAFETY: mapped uncached; it selects, and does nothing else.
            unsafe { mmio_write(self.registers, register) };
        }
    }

    fn write(&mut self, register: u32, value: u32) {
        self.select(register);
        // SAFETY: mapped uncached; an I/O APIC reaches no memory but the local APICs.
        unsafe { mmio_write(self.registers + DATA_OFFSET, value) };
    }

    /// Writes a line's low redirection register.
    fn set(&mut self, line: u32, low: u32) {
        self.lines[line as usize] = low;
        self.write(REGISTER_REDIRECTION + 2 * line, low);
    }
}

/// Calls `change` with the I/O APIC of a line and the line's number there, if one has the line.
fn with_line(gsi: u32, change: impl FnOnce(&mut IoApic, u32)) {
    let mut io_apics = IO_APICS.lock();
    let found = io_apics.iter_mut().find(|io_apic| gsi.wrapping_sub(io_apic.gsi_base) < io_apic.line_count);
    if let Some(io_apic) = found {
        let line = gsi - io_apic.gsi_base;
        change(io_apic, line);
    }
}

/// Sends a line, if it exists, to `vector` of a processor, masked at first.
pub fn line_route(gsi: u32, vector: u8, level: bool, active_low: bool, cpu: usize) {
    with_line(gsi, |io_apic, line| {
        let trigger = if level { LEVEL } else { 0 };
        let polarity = if active_low { ACTIVE_LOW } else { 0 };
        io_apic.set(line, MASKED);
        io_apic.write(REGISTER_REDIRECTION + 2 * line + 1, local_apic::apic_id(cpu) << 24);
        io_apic.set(line, MASKED | trigger | polarity | u32::from(vector));
    });
}

/// Holds a line back, or lets it through; one that is raised meanwhile is delivered then (level) or lost (edge).
pub fn line_mask(gsi: u32, is_masked: bool) {
    with_line(gsi, |io_apic, line| {
        let before = io_apic.lines[line as usize];
        let low = if is_masked { before | MASKED } else { before & !MASKED };
        if low != before {
            io_apic.set(line, low);
        }
    });
}
