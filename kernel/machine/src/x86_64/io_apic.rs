//! I/O APICs: interrupt lines (by global number) to vectors of a processor. The legacy controllers are masked
//! off.
//!
//! Registers: Intel 82093AA data sheet, 3.2. An index register and a data register make every access two steps, so a
//! lock guards them; it is a leaf, taken with interrupts off and held for a few instructions.
#![allow(unsafe_code, reason = "device registers and ports")]

use core::sync::atomic::{AtomicU32, Ordering};

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
/// [`LEVEL_LINES`]: no level-triggered line has this vector.
const NO_LINE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct IoApic {
    registers: u64,
    gsi_base: u32,
    line_count: u32,
}

const ABSENT: IoApic = IoApic { registers: 0, gsi_base: 0, line_count: 0 };

static IO_APICS: KernelLock<[IoApic; IO_APIC_COUNT_MAX]> = KernelLock::new([ABSENT; IO_APIC_COUNT_MAX]);

/// By vector: the level-triggered line that has it.
static LEVEL_LINES: [AtomicU32; 256] = [const { AtomicU32::new(NO_LINE) }; 256];

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
        *slot = IoApic { registers: direct_address(entry.address), gsi_base: entry.gsi_base, line_count: 0 };
        let version = slot.read(REGISTER_VERSION);
        slot.line_count = (version >> 16 & 0xff) + 1;
        for line in 0..slot.line_count {
            slot.write(REGISTER_REDIRECTION + 2 * line, MASKED);
        }
    }
}

impl IoApic {
    fn read(self, register: u32) -> u32 {
        // SAFETY: mapped uncached; the lock makes the pair of accesses one.
        unsafe {
            mmio_write(self.registers, register);
            mmio_read(self.registers + DATA_OFFSET)
        }
    }

    fn write(self, register: u32, value: u32) {
        // SAFETY: as above; an I/O APIC reaches no memory but the local APICs.
        unsafe {
            mmio_write(self.registers, register);
            mmio_write(self.registers + DATA_OFFSET, value);
        }
    }
}

/// Calls `change` with the I/O APIC of a line and the line's low redirection register, if one has the line.
fn with_line(gsi: u32, change: impl FnOnce(IoApic, u32)) {
    let io_apics = IO_APICS.lock();
    let found = io_apics.iter().find(|io_apic| gsi.wrapping_sub(io_apic.gsi_base) < io_apic.line_count);
    if let Some(io_apic) = found {
        change(*io_apic, REGISTER_REDIRECTION + 2 * (gsi - io_apic.gsi_base));
    }
}

/// Sends a line, if it exists, to `vector` of a processor, masked at first.
pub fn line_route(gsi: u32, vector: u8, level: bool, active_low: bool, cpu: usize) {
    let line = if level { gsi } else { NO_LINE };
    LEVEL_LINES[usize::from(vector)].store(line, Ordering::Relaxed);
    with_line(gsi, |io_apic, register| {
        let trigger = if level { LEVEL } else { 0 };
        let polarity = if active_low { ACTIVE_LOW } else { 0 };
        io_apic.write(register, MASKED);
        io_apic.write(register + 1, local_apic::apic_id(cpu) << 24);
        io_apic.write(register, MASKED | trigger | polarity | u32::from(vector));
    });
}

/// Holds a line back; one that is raised meanwhile is delivered when it is unmasked (level) or lost (edge).
pub fn line_mask(gsi: u32) {
    with_line(gsi, |io_apic, register| io_apic.write(register, io_apic.read(register) | MASKED));
}

/// Lets a line through.
pub fn line_unmask(gsi: u32) {
    with_line(gsi, |io_apic, register| io_apic.write(register, io_apic.read(register) & !MASKED));
}

/// Masks the level-triggered line that has this vector, if one has.
pub(crate) fn mask_level_vector(vector: u8) {
    let gsi = LEVEL_LINES[usize::from(vector)].load(Ordering::Relaxed);
    if gsi != NO_LINE {
        line_mask(gsi);
    }
}
