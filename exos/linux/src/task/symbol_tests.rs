//! Symbols of a small ELF file that is mapped in the middle, and of files that are damaged in every
//! way.

use super::{ElfFile, Place, locate};
use crate::testing::pod::World;

const CODE_OFFSET: u64 = 0x1000;
const CODE_ADDRESS: u64 = 0x40_1000;

struct Symbol {
    name: &'static str,
    kind: u8,
    value: u64,
    length: u64,
}

/// An ELF file with one code segment and, if `kind` is a section type, one symbol table.
pub(crate) fn elf(kind: u32, symbols: &[(&'static str, u8, u64, u64)]) -> Vec<u8> {
    let symbols: Vec<Symbol> =
        symbols.iter().map(|&(name, kind, value, length)| Symbol { name, kind, value, length }).collect();
    let mut bytes = vec![0; 0x3000];
    let put = |bytes: &mut Vec<u8>, offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(&mut bytes, 0, b"\x7fELF\x02\x01\x01");
    put(&mut bytes, 32, &64u64.to_le_bytes());
    put(&mut bytes, 40, &0x2000u64.to_le_bytes());
    put(&mut bytes, 56, &1u16.to_le_bytes());
    put(&mut bytes, 60, &3u16.to_le_bytes());
    // PT_LOAD: offset, address, size in the file.
    put(&mut bytes, 64, &1u32.to_le_bytes());
    put(&mut bytes, 64 + 8, &CODE_OFFSET.to_le_bytes());
    put(&mut bytes, 64 + 16, &CODE_ADDRESS.to_le_bytes());
    put(&mut bytes, 64 + 32, &0x1000u64.to_le_bytes());
    let (table, names) = (0x2200, 0x2800);
    let mut name_offset = 1;
    for (index, symbol) in symbols.iter().enumerate() {
        let at = table + (index + 1) * 24;
        put(&mut bytes, at, &(name_offset as u32).to_le_bytes());
        put(&mut bytes, at + 4, &[0x10 | symbol.kind]);
        put(&mut bytes, at + 6, &1u16.to_le_bytes());
        put(&mut bytes, at + 8, &symbol.value.to_le_bytes());
        put(&mut bytes, at + 16, &symbol.length.to_le_bytes());
        put(&mut bytes, names + name_offset, symbol.name.as_bytes());
        name_offset += symbol.name.len() + 1;
    }
    // Section 1: the table, its names in section 2.
    put(&mut bytes, 0x2040 + 4, &kind.to_le_bytes());
    put(&mut bytes, 0x2040 + 24, &(table as u64).to_le_bytes());
    put(&mut bytes, 0x2040 + 32, &((symbols.len() as u64 + 1) * 24).to_le_bytes());
    put(&mut bytes, 0x2040 + 40, &2u32.to_le_bytes());
    put(&mut bytes, 0x2040 + 56, &24u64.to_le_bytes());
    put(&mut bytes, 0x2080 + 24, &(names as u64).to_le_bytes());
    bytes
}

fn function(bytes: &[u8], address: u64) -> Option<(String, u64)> {
    let read = |offset: u64, into: &mut [u8]| {
        let part = usize::try_from(offset).ok().and_then(|start| bytes.get(start..start.checked_add(into.len())?));
        part.map(|part| into.copy_from_slice(part)).is_some()
    };
    ElfFile::open(&read)?.function_at(address)
}

fn named(name: &str, distance: u64) -> Option<(String, u64)> {
    Some((String::from(name), distance))
}

#[test]
fn the_function_that_holds_the_address_wins_over_nearer_labels() {
    let file = elf(
        2,
        &[
            ("data", 1, 0x40_1100, 64),
            ("main", 2, 0x40_1100, 0x40),
            ("loop", 0, 0x40_1110, 0),
            ("tail", 0, 0x40_1200, 0),
        ],
    );
    assert_eq!(function(&file, 0x40_111f), named("main", 0x1f));
    assert_eq!(function(&file, 0x40_1100), named("main", 0));
    assert_eq!(function(&file, 0x40_1140), named("loop", 0x30), "main has ended, the label goes on");
    assert_eq!(function(&file, 0x40_1300), named("tail", 0x100));
    assert_eq!(function(&file, 0x40_10ff), None);
}

#[test]
fn the_dynamic_table_is_used_where_there_is_no_other() {
    let file = elf(11, &[("puts", 2, 0x40_1000, 0)]);
    assert_eq!(function(&file, 0x40_1004), named("puts", 4));
    let file = elf(3, &[("puts", 2, 0x40_1000, 0)]);
    assert_eq!(function(&file, 0x40_1004), None);
}

#[test]
fn damaged_files_give_less_and_never_fail() {
    let file = elf(2, &[("main", 2, 0x40_1100, 0x40)]);
    for length in (0..file.len()).step_by(7) {
        let _ = function(&file[..length], 0x40_1110);
    }
    for offset in (0..0x100).chain(0x2000..0x2300) {
        for value in [0xff, 0x80, 0x01] {
            let mut damaged = file.clone();
            damaged[offset] = value;
            let _ = function(&damaged, 0x40_1110);
        }
    }
    // Every field at once: offsets and counts at their ends.
    let mut damaged = file.clone();
    damaged[8..0x100].fill(0xff);
    damaged[0x2000..].fill(0xff);
    assert_eq!(function(&damaged, u64::MAX), None);
}

#[test]
fn a_mapped_file_tells_its_path_and_its_own_address() {
    let world = World::new();
    let file = world.create("/tool", &elf(2, &[("main", 2, 0x40_1100, 0x40)]));
    world.map_code(0x5555_0000_0000, 0x1000, &file, CODE_OFFSET);
    world.map_zeros(0x7000_0000, 0x1000);
    let find = |address| locate(&world.pod.system.pool, &world.pod.process.space(), address);
    let place = find(0x5555_0000_0123).unwrap();
    let function = named("main", 0x23);
    assert_eq!(place, Place { path: String::from("/tool"), address: 0x40_1123, function });
    assert_eq!(place.to_string(), "main+0x23 (/tool+0x401123)");
    assert_eq!(find(0x5555_0000_0200).unwrap().to_string(), "/tool+0x401200");
    assert_eq!(find(0x7000_0010).unwrap().to_string(), "memory without a file");
    assert_eq!(find(0x1000), None);
}

#[test]
fn a_file_that_is_no_program_tells_its_offset() {
    let world = World::new();
    let file = world.create("/notes", &[b'x'; 0x3000]);
    world.map_code(0x5555_0000_0000, 0x1000, &file, 0x1000);
    let place = locate(&world.pod.system.pool, &world.pod.process.space(), 0x5555_0000_0010);
    assert_eq!(place.unwrap().to_string(), "/notes+0x1010");
}

#[test]
fn a_linkers_own_file_is_understood() {
    // This test's program: where a function of it lies in memory leads to its name by way of the
    // file.
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let wanted = Place::default as fn() -> Place as usize as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        let offset = number(words.nth(1)?)?;
        range.contains(&wanted).then_some(offset + (wanted - range.start))
    });
    let read = |offset: u64, into: &mut [u8]| {
        let part = bytes.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
        part.map(|part| into.copy_from_slice(part)).is_some()
    };
    let file = ElfFile::open(&read).unwrap();
    let address = file.address_of(offset.unwrap()).unwrap();
    let (name, distance) = file.function_at(address + 1).unwrap();
    assert!(name.contains("symbol") && name.contains("Place"), "{name}");
    assert_eq!(distance, 1);
}
