//! The few ACPI tables that the machine needs: root pointer, root table, MADT. No AML.
//!
//! Sources: ACPI 6.4, 5.2.5 (RSDP), 5.2.7 and 5.2.8 (RSDT, XSDT), 5.2.12 (MADT). Tables come from the monitor's
//! firmware and are read through a [`PhysicalReader`]; a damaged table is an absent one, because the fallback (one
//! processor, one I/O APIC) still works.

use crate::{PROCESSOR_COUNT_MAX, PhysicalReader};

/// Longest table that is read.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the header that every table begins with.
const HEADER_BYTES: u64 = 36;
/// Most I/O APICs that are kept.
pub const IO_APIC_COUNT_MAX: usize = 4;
/// Legacy interrupt lines.
pub const ISA_LINE_COUNT: usize = 16;

/// A found table: where it is and its length with the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Physical address.
    pub address: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// An I/O APIC of the MADT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoApicEntry {
    /// Physical address of its registers.
    pub address: u64,
    /// The global interrupt number of its first input.
    pub gsi_base: u32,
}

/// How a legacy line arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsaLine {
    /// Global interrupt number.
    pub gsi: u32,
    /// Level-triggered, else edge.
    pub level: bool,
    /// Active low, else high.
    pub active_low: bool,
}

/// What the MADT says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    apic_ids: [u32; PROCESSOR_COUNT_MAX],
    processor_count: usize,
    io_apics: [IoApicEntry; IO_APIC_COUNT_MAX],
    io_apic_count: usize,
    /// Legacy lines, with overrides applied.
    pub isa_lines: [IsaLine; ISA_LINE_COUNT],
}

impl Topology {
    /// What is assumed without ACPI: the boot processor and one I/O APIC at its usual address.
    #[must_use]
    pub fn fallback(boot_apic_id: u32) -> Topology {
        let mut topology = Topology::empty();
        topology.add_processor(boot_apic_id);
        topology.add_io_apic(IoApicEntry { address: 0xfec0_0000, gsi_base: 0 });
        topology
    }

    /// APIC identifiers of the usable processors.
    #[must_use]
    pub fn apic_ids(&self) -> &[u32] {
        &self.apic_ids[..self.processor_count]
    }

    /// The I/O APICs.
    #[must_use]
    pub fn io_apics(&self) -> &[IoApicEntry] {
        &self.io_apics[..self.io_apic_count]
    }

    /// Reads the MADT that the root pointer at `rsdp` leads to.
    #[must_use]
    pub fn from_acpi(reader: &impl PhysicalReader, rsdp: u64) -> Option<Topology> {
        let madt = find_table(reader, rsdp, *b"APIC")?;
        let mut topology = Topology::empty();
        let end = madt.address + madt.length_bytes;
        let mut at = madt.address + HEADER_BYTES + 8;
        while at + 2 <= end {
            let mut head = [0; 2];
            reader.read(at, &mut head)?;
            let [kind, length] = head;
            if length < 2 || at + u64::from(length) > end {
                return None;
            }
            topology.read_entry(reader, at, kind, length)?;
            at += u64::from(length);
        }
        (topology.processor_count != 0 && topology.io_apic_count != 0).then_some(topology)
    }

    fn read_entry(&mut self, reader: &impl PhysicalReader, at: u64, kind: u8, length: u8) -> Option<()> {
        const ENABLED: u32 = 1;
        match (kind, length) {
            (0, 8..) => {
                let mut bytes = [0; 8];
                reader.read(at, &mut bytes)?;
                if u32::from(bytes[4]) & ENABLED != 0 {
                    self.add_processor(u32::from(bytes[3]));
                }
            }
            (1, 12..) => {
                let address = u64::from(reader.read_u32(at + 4)?);
                self.add_io_apic(IoApicEntry { address, gsi_base: reader.read_u32(at + 8)? });
            }
            (2, 10..) => {
                let mut bytes = [0; 10];
                reader.read(at, &mut bytes)?;
                let gsi = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                // MPS flags: polarity in bits 0..2 (3: low), trigger in bits 2..4 (3: level); 0 is the bus default.
                let line = IsaLine { gsi, level: bytes[8] >> 2 & 3 == 3, active_low: bytes[8] & 3 == 3 };
                if let Some(slot) = self.isa_lines.get_mut(usize::from(bytes[3])) {
                    *slot = line;
                }
            }
            (9, 16..) if reader.read_u32(at + 8)? & ENABLED != 0 => {
                self.add_processor(reader.read_u32(at + 4)?);
            }
            _ => {}
        }
        Some(())
    }

    fn empty() -> Topology {
        let isa_lines = core::array::from_fn(|gsi| IsaLine { gsi: gsi as u32, level: false, active_low: false });
        Topology {
            apic_ids: [0; PROCESSOR_COUNT_MAX],
            processor_count: 0,
            io_apics: [IoApicEntry::default(); IO_APIC_COUNT_MAX],
            io_apic_count: 0,
            isa_lines,
        }
    }

    fn add_processor(&mut self, apic_id: u32) {
        if self.processor_count < PROCESSOR_COUNT_MAX && !self.apic_ids().contains(&apic_id) {
            self.apic_ids[self.processor_count] = apic_id;
            self.processor_count += 1;
        }
    }

    fn add_io_apic(&mut self, entry: IoApicEntry) {
        if self.io_apic_count < IO_APIC_COUNT_MAX {
            self.io_apics[self.io_apic_count] = entry;
            self.io_apic_count += 1;
        }
    }
}

/// The first sound table with this signature under the root pointer at `rsdp`.
pub fn find_table(reader: &impl PhysicalReader, rsdp: u64, signature: [u8; 4]) -> Option<Table> {
    const SIGNATURE: u64 = u64::from_le_bytes(*b"RSD PTR ");
    if rsdp == 0 || reader.read_u64(rsdp)? != SIGNATURE || !sums_to_zero(reader, rsdp, 20)? {
        return None;
    }
    let mut revision = [0; 1];
    reader.read(rsdp + 15, &mut revision)?;
    let extended = if revision[0] >= 2 { reader.read_u64(rsdp + 24)? } else { 0 };
    let (root, entry_bytes) = match extended {
        0 => (u64::from(reader.read_u32(rsdp + 16)?), 4),
        address => (address, 8),
    };
    let root = table_at(reader, root)?;
    let mut at = root.address + HEADER_BYTES;
    while at + entry_bytes <= root.address + root.length_bytes {
        let address = if entry_bytes == 4 { u64::from(reader.read_u32(at)?) } else { reader.read_u64(at)? };
        if reader.read_u32(address) == Some(u32::from_le_bytes(signature)) {
            return table_at(reader, address);
        }
        at += entry_bytes;
    }
    None
}

fn table_at(reader: &impl PhysicalReader, address: u64) -> Option<Table> {
    let length_bytes = u64::from(reader.read_u32(address.checked_add(4)?)?);
    let sound = (HEADER_BYTES..=TABLE_BYTES_MAX).contains(&length_bytes)
        && address.checked_add(length_bytes).is_some()
        && sums_to_zero(reader, address, length_bytes)?;
    sound.then_some(Table { address, length_bytes })
}

fn sums_to_zero(reader: &impl PhysicalReader, address: u64, length_bytes: u64) -> Option<bool> {
    let mut sum = 0_u8;
    for offset in 0..length_bytes {
        let mut byte = [0; 1];
        reader.read(address + offset, &mut byte)?;
        sum = sum.wrapping_add(byte[0]);
    }
    Some(sum == 0)
}

#[cfg(test)]
#[path = "acpi_tests.rs"]
mod tests;
