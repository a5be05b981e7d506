//! Small ELF files made by hand: each rule of the conversion has a file that keeps it and one that breaks it.
//! A file of the real linker is converted in `tests/flat_linker.rs`.

use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use aegis_abi::boot::{FLAT_EXECUTE, FLAT_WRITE};
use aegis_abi::layout::LIBOS_IMAGE_BASE;

use super::{FlatDamage, FlatError, from_elf, needed_bytes, parse};
use crate::bytes::put;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERP: u32 = 3;
const TLS: u32 = 7;

const R: u32 = 4;
const RW: u32 = 6;
const RX: u32 = 5;

#[derive(Clone, Copy)]
struct Program {
    kind: u32,
    flags: u32,
    address: u64,
    offset: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

fn program(kind: u32, flags: u32, address: u64, file_bytes: u64, memory_bytes: u64) -> Program {
    // Contents are at the same offset as the address: the sample files are small.
    Program { kind, flags, address, offset: address % 0x10_0000, file_bytes, memory_bytes }
}

fn elf(kind: u16, entry: u64, programs: &[Program]) -> Vec<u8> {
    let mut file = vec![0; 0x6000];
    for (index, byte) in file.iter_mut().enumerate().skip(0x400) {
        *byte = (index % 251) as u8;
    }
    put(&mut file, 0, *b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, kind.to_le_bytes());
    put(&mut file, 18, 62_u16.to_le_bytes());
    put(&mut file, 20, 1_u32.to_le_bytes());
    put(&mut file, 24, entry.to_le_bytes());
    put(&mut file, 32, 64_u64.to_le_bytes());
    put(&mut file, 52, 64_u16.to_le_bytes());
    put(&mut file, 54, 56_u16.to_le_bytes());
    put(&mut file, 56, (programs.len() as u16).to_le_bytes());
    for (index, program) in programs.iter().enumerate() {
        let at = 64 + index * 56;
        put(&mut file, at, program.kind.to_le_bytes());
        put(&mut file, at + 4, program.flags.to_le_bytes());
        put(&mut file, at + 8, program.offset.to_le_bytes());
        put(&mut file, at + 16, program.address.to_le_bytes());
        put(&mut file, at + 24, program.address.to_le_bytes());
        put(&mut file, at + 32, program.file_bytes.to_le_bytes());
        put(&mut file, at + 40, program.memory_bytes.to_le_bytes());
        put(&mut file, at + 48, 0x1000_u64.to_le_bytes());
    }
    file
}

/// Text, data with bss, and a dynamic section with the given entries and relocations inside the data.
fn position_independent(entries: &[(u64, u64)], relocations: &[(u64, u64, u64)]) -> Vec<u8> {
    let mut file = elf(
        3,
        0x1010,
        &[
            program(LOAD, R, 0, 0x800, 0x800),
            program(LOAD, RX, 0x1000, 0x900, 0x900),
            program(LOAD, RW, 0x2100, 0x1000, 0x3000),
            program(DYNAMIC, RW, 0x2200, 16 * (entries.len() as u64 + 1), 0),
        ],
    );
    for (index, (tag, value)) in entries.iter().chain(&[(0, 0)]).enumerate() {
        put(&mut file, 0x2200 + index * 16, tag.to_le_bytes());
        put(&mut file, 0x2208 + index * 16, value.to_le_bytes());
    }
    for (index, (address, info, addend)) in relocations.iter().enumerate() {
        put(&mut file, 0x500 + index * 24, address.to_le_bytes());
        put(&mut file, 0x508 + index * 24, info.to_le_bytes());
        put(&mut file, 0x510 + index * 24, addend.to_le_bytes());
    }
    file
}

fn rela(count: u64) -> [(u64, u64); 3] {
    [(7, 0x500), (8, 24 * count), (9, 24)]
}

#[test]
fn moves_relocates_and_stores_bss() {
    let file = position_independent(&rela(2), &[(0x2108, 8, 0x1010), (0x5000, 8, 0x44)]);
    let image = from_elf(&file).unwrap();
    let header = parse(&image).unwrap();
    assert_eq!(header.entry, LIBOS_IMAGE_BASE + 0x1010);
    let segments = &header.segments[..header.segment_count as usize];
    let shapes: Vec<_> = segments
        .iter()
        .map(|segment| (segment.virtual_address - LIBOS_IMAGE_BASE, segment.page_count, segment.flags))
        .collect();
    assert_eq!(shapes, [(0, 1, 0), (0x1000, 1, FLAT_EXECUTE), (0x2000, 4, FLAT_WRITE)]);
    assert_eq!(image.len(), 7 * 4096);
    let data = &image[segments[2].page_offset as usize * 4096..];
    assert_eq!(data[0x100..0x108], file[0x2100..0x2108]);
    assert_eq!(data[0x108..0x110], (LIBOS_IMAGE_BASE + 0x1010).to_le_bytes());
    assert!(data[0x1100..0x3000].iter().all(|byte| *byte == 0), "bss is zero");
    assert_eq!(data[0x3000..0x3008], (LIBOS_IMAGE_BASE + 0x44).to_le_bytes(), "also in bss");
}

#[test]
fn fixed_addresses_stay() {
    let base = LIBOS_IMAGE_BASE + 0x20_0000;
    let file = elf(2, base + 0x1000, &[program(LOAD, RX, base + 0x1000, 0x100, 0x100)]);
    let header = parse(&from_elf(&file).unwrap()).unwrap();
    assert_eq!(header.segments[0].virtual_address, base + 0x1000);
    assert_eq!(header.entry, base + 0x1000);
    let low = elf(2, 0x1000, &[program(LOAD, RX, 0x1000, 0x100, 0x100)]);
    assert_eq!(from_elf(&low), Err(FlatError::SegmentRange(0x1000)));
}

#[test]
fn neighbours_with_equal_rights_are_joined_and_others_must_not_share_pages() {
    let joined = elf(
        3,
        0x1000,
        &[
            program(LOAD, RX, 0x1000, 0x100, 0x100),
            program(LOAD, RW, 0x2000, 0x800, 0x800),
            program(LOAD, RW, 0x2800, 0x100, 0x1000),
        ],
    );
    let header = parse(&from_elf(&joined).unwrap()).unwrap();
    assert_eq!(header.segment_count, 2);
    assert_eq!(header.segments[1].page_count, 2);
    let shared = elf(3, 0x1000, &[program(LOAD, RX, 0x1000, 0x800, 0x800), program(LOAD, RW, 0x1800, 0x100, 0x100)]);
    // The lowest page, 0x1000, goes to the image base.
    assert_eq!(from_elf(&shared), Err(FlatError::SharedPage(LIBOS_IMAGE_BASE)));
    let unordered = elf(3, 0x2000, &[program(LOAD, RX, 0x2000, 0x800, 0x800), program(LOAD, RX, 0x1000, 0x100, 0x100)]);
    assert_eq!(from_elf(&unordered), Err(FlatError::SegmentOrder(LIBOS_IMAGE_BASE)));
}

#[test]
fn what_needs_a_loader_is_refused_by_name() {
    let text = program(LOAD, RX, 0x1000, 0x100, 0x100);
    for (kind, error) in [(INTERP, FlatError::Interpreter), (TLS, FlatError::ThreadLocal)] {
        let file = elf(3, 0x1000, &[text, program(kind, R, 0x1000, 8, 8)]);
        assert_eq!(from_elf(&file), Err(error));
    }
    let needed = position_independent(&[(1, 5)], &[]);
    assert_eq!(from_elf(&needed), Err(FlatError::NeededLibrary));
    let symbol = position_independent(&rela(1), &[(0x2108, (3 << 32) | 6, 0)]);
    assert_eq!(from_elf(&symbol), Err(FlatError::Relocation { kind: 6, address: 0x2108 }));
    let outside = position_independent(&rela(1), &[(0x5ffc, 8, 0)]);
    assert_eq!(from_elf(&outside), Err(FlatError::RelocationRange(0x5ffc)));
    let packed = position_independent(&[(35, 8)], &[]);
    assert!(matches!(from_elf(&packed), Err(FlatError::Relocation { kind: u32::MAX, .. })));
    let table = position_independent(&[(7, 0x7fff_ffff), (8, 24)], &[]);
    assert_eq!(from_elf(&table), Err(FlatError::Dynamic));
}

#[test]
fn other_files_are_refused() {
    assert_eq!(from_elf(b"#!/bin/sh\n"), Err(FlatError::NotElf));
    let text = program(LOAD, RX, 0x1000, 0x100, 0x100);
    let mut arm = elf(3, 0x1000, &[text]);
    arm[18] = 183;
    assert_eq!(from_elf(&arm), Err(FlatError::NotExecutable));
    assert_eq!(from_elf(&elf(1, 0x1000, &[text])), Err(FlatError::NotExecutable));
    assert_eq!(from_elf(&elf(3, 0x1000, &[])), Err(FlatError::NoSegments));
    assert!(matches!(from_elf(&elf(3, 0x5000, &[text])), Err(FlatError::Entry(_))));
    let data = program(LOAD, RW, 0x3000, 0x100, 0x100);
    assert!(matches!(from_elf(&elf(3, 0x3000, &[text, data])), Err(FlatError::Entry(_))));
    let large = program(LOAD, RW, 0x3000, 0x100, 1 << 30);
    assert_eq!(from_elf(&elf(3, 0x1000, &[text, large])), Err(FlatError::TooLarge));
    let stretch = |index: u64| program(LOAD, RX, 0x1000 + index * 0x2000, 0, 0x100);
    let many: Vec<_> = (0..9).map(stretch).collect();
    assert_eq!(from_elf(&elf(3, 0x1000, &many)), Err(FlatError::TooManySegments));
    let file = elf(3, 0x1000, &[text]);
    assert!(matches!(from_elf(&file[..0x1050]), Err(FlatError::SegmentRange(_))));
}

#[test]
fn damaged_flat_images_are_refused() {
    let good = from_elf(&position_independent(&[], &[])).unwrap();
    for (offset, value, expected) in [
        (0, 0, FlatDamage::NotFlat),
        (8, 2, FlatDamage::Version(2)),
        (12, 0, FlatDamage::SegmentCount(0)),
        (12, 9, FlatDamage::SegmentCount(9)),
        (24, 1, FlatDamage::Segment(0)),
        (32, 0, FlatDamage::Segment(0)),
        (36, 0, FlatDamage::Segment(0)),
        (40, 4, FlatDamage::Segment(0)),
        (84, 5, FlatDamage::Segment(2)),
        (17, 0x20, FlatDamage::Entry),
    ] {
        let mut bad = good.clone();
        bad[offset] = value;
        assert_eq!(parse(&bad), Err(expected), "byte {offset}");
    }
    assert_eq!(parse(&good[..good.len() - 1]), Err(FlatDamage::Segment(2)));
}

#[test]
fn symbols_behind_the_segments_need_not_be_read() {
    let mut file = position_independent(&rela(2), &[(0x2108, 8, 0x1010), (0x5000, 8, 0x44)]);
    let whole = from_elf(&file);
    file.resize(0x10_0000, 0xa5);
    assert_eq!(needed_bytes(&file[..0x1000]), Ok(0x3100));
    assert_eq!(from_elf(&file[..0x3100]), whole);
    assert_eq!(needed_bytes(&file[..0x3200]), Ok(0x3200), "what was read is no less");
    assert_eq!(needed_bytes(b"no program"), Err(FlatError::NotElf));
}

proptest! {
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0_usize..0x2300, any::<u8>()), 1..20)) {
        let mut file = position_independent(&rela(2), &[(0x2108, 8, 0x1010), (0x5000, 8, 0x44)]);
        for (offset, value) in damage {
            file[offset] = value;
        }
        if let Ok(image) = from_elf(&file) {
            prop_assert!(parse(&image).is_ok());
        }
        if let Ok(needed) = needed_bytes(&file[..0x1000]) {
            let read = needed.min(file.len() as u64) as usize;
            prop_assert_eq!(from_elf(&file[..read]), from_elf(&file));
        }
    }

    #[test]
    fn damaged_tables_never_panic(damage in prop::collection::vec((0_usize..64 + 4 * 56, any::<u8>()), 1..6),
                                  dynamic in prop::collection::vec((0_usize..80, any::<u8>()), 0..4)) {
        let mut file = position_independent(&rela(2), &[(0x2108, 8, 0x1010), (0x5000, 8, 0x44)]);
        for (offset, value) in damage {
            file[offset] = value;
        }
        for (offset, value) in dynamic {
            file[0x2200 + offset] = value;
        }
        if let Ok(image) = from_elf(&file) {
            prop_assert!(parse(&image).is_ok());
        }
    }
}
