//! Tests of the PCI scan against a fake configuration space that behaves as sizing expects.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

type FakeFunction = ([u32; 64], [u32; BAR_COUNT]);

/// Functions by address; each has 64 words and the writable bits of its base address registers.
#[derive(Default)]
struct FakeBus {
    functions: RefCell<BTreeMap<u16, FakeFunction>>,
}

impl FakeBus {
    fn add(&self, address: u16, words: &[(u16, u32)], bar_masks: [u32; BAR_COUNT]) {
        let mut space = [0; 64];
        for (offset, value) in words {
            space[usize::from(offset / 4)] = *value;
        }
        self.functions.borrow_mut().insert(address, (space, bar_masks));
    }
}

impl ConfigAccess for FakeBus {
    fn read(&self, function: FunctionAddress, offset: u16) -> u32 {
        self.functions.borrow().get(&function.0).map_or(u32::MAX, |(words, _)| words[usize::from(offset / 4)])
    }

    fn write(&self, function: FunctionAddress, offset: u16, value: u32) {
        if let Some((words, masks)) = self.functions.borrow_mut().get_mut(&function.0) {
            let index = usize::from(offset / 4);
            match index.checked_sub(4).and_then(|bar| masks.get(bar)) {
                Some(mask) => words[index] = value & mask | words[index] & 0xf & !mask,
                None if index == 1 => words[1] = words[1] & 0xffff_0000 | value & 0xffff,
                None => words[index] = value,
            }
        }
    }
}

fn scanned(bus: &FakeBus) -> Vec<Function> {
    let mut found = Vec::new();
    scan(bus, |function| found.push(function));
    found
}

#[test]
fn an_empty_machine_has_no_functions() {
    assert_eq!(scanned(&FakeBus::default()), []);
}

/// Configuration words of a network function with ports, memory, a 64-bit region and MSI-X behind another capability.
const NETWORK_FUNCTION: [(u16, u32); 13] = [
    (0x00, 0x1041_1af4),
    (0x04, 0x0010_0007),
    (0x08, 0x0200_0001),
    (0x10, 0x0000_c001),
    (0x14, 0xfebd_0000),
    (0x20, 0x0000_000c),
    (0x24, 0x0000_0008),
    (0x34, 0x0000_0098),
    (0x3c, 0x0000_010b),
    (0x98, 0x8002_8411),
    (0x9c, 0x0000_0001),
    (0xa0, 0x0000_0801),
    (0x84, 0x0000_0009),
];

#[test]
fn functions_behind_bridges_are_found_with_their_regions() {
    let bus = FakeBus::default();
    bus.add(0, &[(0, 0x1237_8086)], [0; 6]);
    bus.add(0x08, &[(0, 0x0001_8086), (0x0c, 0x0001_0000), (0x18, 0)], [0; 6]);
    bus.functions.borrow_mut().get_mut(&0x08).expect("added").0[6] = 0x0002_0200;
    let network = NETWORK_FUNCTION;
    let masks = [0xffff_ffe0, 0xffff_f000, 0, 0, 0xffff_c000, 0xffff_ffff];
    bus.add(0x0218, &network, masks);
    let before = bus.functions.borrow().get(&0x0218).copied();
    let found = scanned(&bus);
    assert_eq!(found.iter().map(|function| function.address.0).collect::<Vec<_>>(), [0, 8, 0x0218]);
    let function = found[2];
    assert_eq!((function.vendor, function.device, function.class), (0x1af4, 0x1041, 0x02_0000));
    assert_eq!(function.bars[0], Bar::Ports { port: 0xc000, count: 32 });
    assert_eq!(function.bars[1], Bar::Memory { address: 0xfebd_0000, length_bytes: 4096 });
    assert_eq!(function.bars[4], Bar::Memory { address: 0x8_0000_0000, length_bytes: 0x4000 });
    assert_eq!(function.bars[5], Bar::None);
    assert_eq!(function.interrupt_line, Some(11));
    assert_eq!(function.msi_x.map(|table| (table.entry_count, table.table_bar)), Some((3, 1)));
    assert_eq!(function.msi_x_table_address(), Some(0xfebd_0000));
    assert_eq!(bus.functions.borrow().get(&0x0218).copied(), before, "sizing leaves the function as it was");
}

#[test]
fn the_bridge_knows_better_which_line_a_pin_has() {
    let bus = FakeBus::default();
    bus.add(0, &[(0, 0x1237_8086)], [0; 6]);
    bus.add(0x08, &[(0, 0x7000_8086), (0x60, 0x800b_0a05)], [0; 6]);
    for slot in 3..8 {
        bus.add(slot << 3, &[(0, 0x100e_8086), (0x3c, 0x0000_0109)], [0; 6]);
    }
    let lines: Vec<_> = scanned(&bus)[2..].iter().map(|function| function.interrupt_line).collect();
    assert_eq!(lines, [Some(11), None, Some(5), Some(10), Some(11)]);
}

#[test]
fn a_capability_loop_and_a_table_outside_its_region_are_survived() {
    let bus = FakeBus::default();
    bus.add(0, &[(0, 0x1_8086), (0x04, 0x0010_0000), (0x34, 0x40), (0x40, 0x4009)], [0; 6]);
    assert_eq!(scanned(&bus)[0].msi_x, None);
    let bus = FakeBus::default();
    let words = [(0, 0x1_8086), (0x04, 0x0010_0000), (0x10, 0x1000), (0x34, 0x40), (0x40, 0x07ff_0011)];
    bus.add(0, &words, [0xffff_f000, 0, 0, 0, 0, 0]);
    let function = scanned(&bus)[0];
    assert_eq!(function.msi_x.map(|table| table.entry_count), Some(2048));
    assert_eq!(function.msi_x_table_address(), None);
}

#[test]
fn msi_x_is_switched_by_its_control_bits_only() {
    let bus = FakeBus::default();
    bus.add(0, &[(0, 0x1_8086), (0x04, 0x0010_0000), (0x34, 0x40), (0x40, 0x4002_0011)], [0; 6]);
    let function = scanned(&bus)[0];
    set_msi_x_enabled(&bus, &function, true);
    assert_eq!(bus.read(FunctionAddress(0), 0x40), 0x8002_0011);
    set_msi_x_enabled(&bus, &function, false);
    assert_eq!(bus.read(FunctionAddress(0), 0x40), 0x0002_0011);
}

#[test]
fn registers_without_an_address_get_aligned_ones_that_do_not_overlap() {
    let bus = FakeBus::default();
    bus.add(0, &[(0, 0x1237_8086)], [0; BAR_COUNT]);
    bus.add(8, &[(0, 0x1003_1af4)], [0xffff_f000, 0, 0xffff_c000, 0, 0, 0]);
    let mut functions = [Some(scanned(&bus)[1])];
    assign_addresses(&bus, &mut functions);
    let function = functions[0].expect("kept");
    let memory = |bar: Bar| match bar {
        Bar::Memory { address, length_bytes } => (address, length_bytes),
        other => panic!("no memory: {other:?}"),
    };
    let (first, first_length) = memory(function.bars[0]);
    let (second, second_length) = memory(function.bars[2]);
    assert!(first != 0 && first % first_length == 0 && second % second_length == 0);
    assert!(first + first_length <= second || second + second_length <= first);
    assert_eq!(bus.read(FunctionAddress(8), 0x10) & !15, first as u32);
    let again = scanned(&bus)[1];
    assert_eq!(again.bars, function.bars, "the registers hold what was assigned");
}
