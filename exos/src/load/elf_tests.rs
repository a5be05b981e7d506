//! ELF headers, good and bad: every kind of damage has its own message, and no damage whatever
//! causes more than a message.

use proptest::prelude::*;

use super::elf::{ElfError, ElfImage, ElfKind};
use crate::error::{Errno, Result};
use crate::mem::Protection;

/// Two segments (text with the headers, data with bss), an interpreter, a stack note.
pub(crate) fn sample() -> Vec<u8> {
    let mut file = vec![0; 0x3000];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put16(&mut file, 16, 3);
    put16(&mut file, 18, 62);
    put32(&mut file, 20, 1);
    put64(&mut file, 24, 0x1100);
    put64(&mut file, 32, 64);
    put16(&mut file, 54, 56);
    put16(&mut file, 56, 4);
    put(&mut file, 0x400, b"/lib/ld.so\0");
    segment(&mut file, 0, [3, 4], [0x400, 0x400, 0x400, 11, 11, 1]);
    segment(&mut file, 1, [1, 5], [0, 0, 0, 0x1800, 0x1800, 0x1000]);
    segment(&mut file, 2, [1, 6], [0x1800, 0x2800, 0x2800, 0x900, 0x3100, 0x1000]);
    segment(&mut file, 3, [0x6474_e551, 6], [0, 0, 0, 0, 0, 16]);
    file
}

/// Words: type, flags; offset, address, physical address, file bytes, memory bytes, alignment.
pub(crate) fn segment(file: &mut [u8], index: usize, words: [u32; 2], longs: [u64; 6]) {
    let at = 64 + index * 56;
    put32(file, at, words[0]);
    put32(file, at + 4, words[1]);
    for (place, value) in longs.into_iter().enumerate() {
        put64(file, at + 8 + place * 8, value);
    }
}

pub(crate) fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn put16(file: &mut [u8], at: usize, value: u16) {
    put(file, at, &value.to_le_bytes());
}

fn put32(file: &mut [u8], at: usize, value: u32) {
    put(file, at, &value.to_le_bytes());
}

pub(crate) fn put64(file: &mut [u8], at: usize, value: u64) {
    put(file, at, &value.to_le_bytes());
}

fn read(file: &[u8]) -> core::result::Result<ElfImage, ElfError> {
    ElfImage::read(file.len() as u64, &mut |offset, into| read_at(file, offset, into))
}

/// Panics when asked for what is not in the file.
fn read_at(file: &[u8], offset: u64, into: &mut [u8]) -> Result<()> {
    let start = usize::try_from(offset).expect("inside");
    into.copy_from_slice(&file[start..start + into.len()]);
    Ok(())
}

#[test]
fn a_good_file_is_understood() {
    let image = read(&sample()).expect("good");
    assert_eq!(image.kind, ElfKind::Relocatable);
    assert_eq!(image.entry, 0x1100);
    assert_eq!(image.interpreter.as_deref(), Some(&b"/lib/ld.so"[..]));
    assert_eq!(image.table_address, 64);
    assert_eq!(image.table_entries, 4);
    assert_eq!(image.span(), 0..0x6000);
    assert!(!image.wants_executable_stack);
    assert_eq!(image.segments.len(), 2);
    assert_eq!(image.segments[1].protection, Protection::READ | Protection::WRITE);
}

type Damage = (&'static str, fn(&mut Vec<u8>), ElfError);

const DAMAGES: &[Damage] = &[
    ("empty", |file| file.clear(), ElfError::Empty),
    ("text", |file| put(file, 0, b"hello"), ElfError::NotElf),
    ("short text", |file| file.truncate(3), ElfError::NotElf),
    ("half a header", |file| file.truncate(40), ElfError::TruncatedHeader),
    ("32 bits", |file| file[4] = 1, ElfError::WrongClass(1)),
    ("big-endian", |file| file[5] = 2, ElfError::WrongByteOrder),
    ("version", |file| file[6] = 9, ElfError::WrongVersion),
    ("ARM", |file| put16(file, 18, 183), ElfError::WrongMachine(183)),
    ("object", |file| put16(file, 16, 1), ElfError::NotExecutable(1)),
    ("entry size", |file| put16(file, 54, 32), ElfError::WrongEntrySize(32)),
    ("no entries", |file| put16(file, 56, 0), ElfError::WrongSegmentCount(0)),
    ("many entries", |file| put16(file, 56, 65_535), ElfError::WrongSegmentCount(65_535)),
    ("table outside", |file| put64(file, 32, 0x2fff), ElfError::TruncatedTable),
    ("table wraps", |file| put64(file, 32, u64::MAX), ElfError::TruncatedTable),
    ("cut", |file| file.truncate(0x2000), ElfError::TruncatedSegment(2)),
    ("offset wraps", |file| put64(file, 184, u64::MAX - 0x7ff), ElfError::TruncatedSegment(2)),
    ("larger in file", |file| put64(file, 184 + 32, 0x100), ElfError::OversizedSegment(2)),
    ("incongruent", |file| put64(file, 184 + 8, 0x2900), ElfError::MisalignedSegment(2)),
    ("alignment 3", |file| put64(file, 184 + 40, 3), ElfError::MisalignedSegment(2)),
    ("beyond the address space", |file| put64(file, 184 + 8, 0x7fff_ffff_e800), ElfError::SegmentOutOfRange(2)),
    ("endless", |file| put64(file, 184 + 32, u64::MAX), ElfError::SegmentOutOfRange(2)),
    ("overlap", |file| put64(file, 184 + 8, 0x800), ElfError::OverlappingSegment(2)),
    ("long path", |file| put64(file, 64 + 32, 5000), ElfError::BadInterpreterPath),
    ("open path", |file| file[0x40a] = b'x', ElfError::BadInterpreterPath),
    ("empty path", |file| file[0x400] = 0, ElfError::BadInterpreterPath),
    ("entry", |file| put64(file, 24, 0x9000), ElfError::BadEntry),
    (
        "nothing to load",
        |file| {
            segment(file, 1, [4, 0], [0; 6]);
            segment(file, 2, [1, 6], [0; 6]);
        },
        ElfError::NothingToLoad,
    ),
    ("fixed at 0", |file| put16(file, 16, 2), ElfError::SegmentOutOfRange(1)),
];

#[test]
fn every_damage_has_its_name() {
    for (name, damage, expected) in DAMAGES {
        let mut file = sample();
        damage(&mut file);
        assert_eq!(read(&file), Err(*expected), "{name}");
        assert!(expected.to_string().len() > 5);
    }
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let answer = ElfImage::read(4096, &mut |_, _| Err(Errno::EIO));
    assert_eq!(answer, Err(ElfError::Unreadable(Errno::EIO)));
}

#[test]
fn the_test_program_itself_is_good() {
    let file = std::fs::read(std::env::current_exe().expect("known")).expect("readable");
    let image = read(&file).expect("it runs");
    use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
    let reference = ElfFile64::<object::LittleEndian>::parse(&*file).expect("an ELF file");
    let endian = object::LittleEndian;
    let header = reference.elf_header();
    assert_eq!(image.entry, header.e_entry.get(endian));
    let segments = header.program_headers(endian, &*file).expect("readable");
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
    for (ours, theirs) in image.segments.iter().zip(loaded.clone()) {
        assert_eq!(ours.address, theirs.p_vaddr(endian));
        assert_eq!(ours.file_offset, theirs.p_offset(endian));
        assert_eq!(ours.memory_bytes, theirs.p_memsz(endian));
    }
    assert_eq!(image.segments.len(), loaded.count());
    let interpreter = segments.iter().find_map(|segment| segment.interpreter(endian, &*file).expect("readable"));
    assert_eq!(image.interpreter.as_deref(), interpreter);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_headers_do_no_harm(
        stores in prop::collection::vec(
            (0..288_usize, prop_oneof![
                any::<u64>(), 0..0x4000_u64, Just(u64::MAX), Just(1 << 63), Just(0x7fff_ffff_f000),
            ], 1..=8_usize),
            1..6,
        ),
        length in prop_oneof![3 => Just(0x3000_usize), 1 => 0..0x3000_usize],
    ) {
        let mut file = sample();
        for (at, value, width) in stores {
            put(&mut file, at, &value.to_le_bytes()[..width]);
        }
        file.truncate(length);
        if let Ok(image) = read(&file) {
            let span = image.span();
            prop_assert!(span.start < span.end && span.end <= 0x7fff_ffff_f000);
            for segment in &image.segments {
                prop_assert!(segment.file_offset + segment.file_bytes <= file.len() as u64);
                prop_assert!(segment.file_bytes <= segment.memory_bytes);
            }
        }
    }
}
