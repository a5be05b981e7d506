//! Tests of the ACPI reader: a hand-made set of tables, then the same with every byte damaged.

use super::*;
use crate::FakeMemory;
use std::vec;
use std::vec::Vec;

const BASE: u64 = 0xe_0000;
const ROOT_OFFSET: usize = 0x40;
const MADT_OFFSET: usize = 0x100;

fn fix_sum(bytes: &mut [u8], sum_at: usize) {
    bytes[sum_at] = 0;
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[sum_at] = sum.wrapping_neg();
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[..4].copy_from_slice(signature);
    bytes.extend(body);
    let length = u32::try_from(bytes.len()).expect("small");
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    fix_sum(&mut bytes, 9);
    bytes
}

fn madt() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0xfee0_0000_u32.to_le_bytes());
    body.extend(1_u32.to_le_bytes());
    for id in 0..3_u8 {
        body.extend([0, 8, id, id * 2, u8::from(id != 1), 0, 0, 0]);
    }
    body.extend([1, 12, 0, 0]);
    body.extend(0xfec0_0000_u32.to_le_bytes());
    body.extend(0_u32.to_le_bytes());
    body.extend([2, 10, 0, 0]);
    body.extend(2_u32.to_le_bytes());
    body.extend([0, 0]);
    body.extend([2, 10, 0, 9]);
    body.extend(9_u32.to_le_bytes());
    body.extend([0x0f, 0]);
    body.extend([4, 6, 0xff, 0, 0, 1]);
    table(b"APIC", &body)
}

fn memory(extended: bool) -> FakeMemory {
    let mut bytes = vec![0; 0x200];
    let madt_address = BASE + MADT_OFFSET as u64;
    let root = if extended {
        table(b"XSDT", &madt_address.to_le_bytes())
    } else {
        table(b"RSDT", &u32::try_from(madt_address).expect("low").to_le_bytes())
    };
    let mut rsdp = vec![0_u8; 20];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[15] = if extended { 2 } else { 0 };
    let root_address = BASE + ROOT_OFFSET as u64;
    if !extended {
        rsdp[16..20].copy_from_slice(&u32::try_from(root_address).expect("low").to_le_bytes());
    }
    fix_sum(&mut rsdp, 8);
    bytes[..20].copy_from_slice(&rsdp);
    bytes[24..32].copy_from_slice(&root_address.to_le_bytes());
    bytes[ROOT_OFFSET..ROOT_OFFSET + root.len()].copy_from_slice(&root);
    let madt = madt();
    bytes[MADT_OFFSET..MADT_OFFSET + madt.len()].copy_from_slice(&madt);
    FakeMemory { base: BASE, bytes }
}

#[test]
fn processors_io_apics_and_overrides_are_read_through_both_root_tables() {
    for extended in [false, true] {
        let topology = Topology::from_acpi(&memory(extended), BASE).expect("sound tables");
        assert_eq!(topology.apic_ids(), [0, 4], "the second is not enabled");
        assert_eq!(topology.io_apics(), [IoApicEntry { address: 0xfec0_0000, gsi_base: 0 }]);
        assert_eq!(topology.isa_lines[0], IsaLine { gsi: 2, level: false, active_low: false });
        assert_eq!(topology.isa_lines[9], IsaLine { gsi: 9, level: true, active_low: true });
        assert_eq!(topology.isa_lines[4].gsi, 4);
    }
}

#[test]
fn any_single_damaged_byte_gives_no_table_or_the_same_one() {
    let sound = memory(true);
    let expected = Topology::from_acpi(&sound, BASE).expect("sound");
    for index in 0..sound.bytes.len() {
        let mut damaged = memory(true);
        damaged.bytes[index] ^= 0x5a;
        if let Some(found) = Topology::from_acpi(&damaged, BASE) {
            assert_eq!(found, expected, "byte {index:#x} is not covered by a sum yet changes the result");
        }
    }
}

#[test]
fn no_root_pointer_means_no_topology() {
    assert_eq!(Topology::from_acpi(&memory(true), 0), None);
    assert_eq!(Topology::from_acpi(&memory(true), BASE + 8), None);
    assert_eq!(Topology::fallback(3).apic_ids(), [3]);
}
