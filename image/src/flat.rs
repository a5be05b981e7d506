//! From a linked library OS (an ELF file) to a flat image: whole pages, relocated, stored in full, mapped where they
//! lie.
//!
//! The kernel must not know ELF, relocations or zero-filled tails (INV-1 of the kernel), so all of that happens here,
//! on the host. A position-independent file (`ET_DYN`, "static-pie") is moved so that its lowest page is at
//! `abi::layout::LIBOS_IMAGE_BASE`; one linked to fixed addresses (`ET_EXEC`) stays where it was linked. The format
//! is `abi::boot::FlatHeader`.
//!
//! What a static-pie of rust-lld or GNU ld for `x86_64-unknown-none` has is supported: `PT_LOAD`, and in the dynamic
//! section `R_X86_64_RELATIVE`. Everything that would need a loader (an interpreter, needed libraries, symbols,
//! thread-local storage, other relocations) is refused by name. RELRO is not applied: those pages stay writable.
//!
//! Limits: [`FLAT_BYTES_MAX`], `FLAT_SEGMENT_COUNT_MAX` segments after neighbours with equal rights are joined.

use alloc::vec;
use alloc::vec::Vec;

use aegis_abi::boot::{
    BUNDLE_VERSION, FLAT_EXECUTE, FLAT_MAGIC, FLAT_SEGMENT_COUNT_MAX, FLAT_WRITE, FlatHeader, FlatSegment,
};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END, LIBOS_IMAGE_BASE};
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::PAGE_BYTES;
use crate::bytes::{page_round_up, put, slice, u32_at, u64_at};

/// Longest flat image in bytes, header included.
pub const FLAT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes of a segment in the header.
const SEGMENT_BYTES: usize = 24;
/// Offset of the first segment in the header.
const SEGMENTS_OFFSET: usize = 24;
/// Bytes of an entry in a relocation table with addends.
const RELA_BYTES: u64 = 24;
/// Bytes of an entry in the dynamic section.
const DYNAMIC_BYTES: usize = 16;
/// Relocation type: add the load address.
const RELATIVE: u32 = 8;

const _: () = assert!(size_of::<FlatSegment>() == SEGMENT_BYTES);
const _: () = assert!(size_of::<FlatHeader>() == SEGMENTS_OFFSET + SEGMENT_BYTES * FLAT_SEGMENT_COUNT_MAX);

/// Why an ELF file cannot become a flat image; the way it was built is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatError {
    /// Not a 64-bit little-endian ELF file, or a damaged one.
    NotElf,
    /// Not an executable for x86-64.
    NotExecutable,
    /// It names a program interpreter: link it statically.
    Interpreter,
    /// It needs a shared library: link it statically.
    NeededLibrary,
    /// It has thread-local storage, which nobody would set up.
    ThreadLocal,
    /// It has no segment to load.
    NoSegments,
    /// More than `FLAT_SEGMENT_COUNT_MAX` segments.
    TooManySegments,
    /// Segments overlap or are not in ascending order; the address is the later one's.
    SegmentOrder(u64),
    /// Two segments with different rights share the page at this address.
    SharedPage(u64),
    /// A segment lies outside the file, or outside the library OS window; the address is as loaded.
    SegmentRange(u64),
    /// More than [`FLAT_BYTES_MAX`].
    TooLarge,
    /// The dynamic section or its relocation table is damaged.
    Dynamic,
    /// A relocation of another type than `R_X86_64_RELATIVE`.
    Relocation {
        /// The `R_X86_64_*` number; `u32::MAX` for a table form that is not supported (`DT_REL`, `DT_RELR`).
        kind: u32,
        /// What it would change, as linked.
        address: u64,
    },
    /// A relocation outside all segments, as linked.
    RelocationRange(u64),
    /// The entry point lies in no executable segment.
    Entry(u64),
}

impl core::fmt::Display for FlatError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotElf => formatter.write_str("not a valid 64-bit ELF file"),
            Self::NotExecutable => formatter.write_str("not an executable for x86-64"),
            Self::Interpreter => formatter.write_str("linked dynamically: it has an interpreter"),
            Self::NeededLibrary => formatter.write_str("linked dynamically: it needs a library"),
            Self::ThreadLocal => formatter.write_str("it has thread-local storage"),
            Self::NoSegments => formatter.write_str("it has no segments"),
            Self::TooManySegments => formatter.write_str("it has too many segments"),
            Self::SegmentOrder(address) => {
                write!(formatter, "segments overlap or are out of order at {address:#x}")
            }
            Self::SharedPage(address) => {
                write!(formatter, "segments with different rights share the page {address:#x}")
            }
            Self::SegmentRange(address) => {
                write!(formatter, "the segment at {address:#x} lies outside the file or the library OS window")
            }
            Self::TooLarge => write!(formatter, "it is larger than {FLAT_BYTES_MAX} bytes"),
            Self::Dynamic => formatter.write_str("its dynamic section is damaged"),
            Self::Relocation { kind, address } => {
                write!(formatter, "unsupported relocation of type {kind} at {address:#x}")
            }
            Self::RelocationRange(address) => {
                write!(formatter, "a relocation lies outside all segments: {address:#x}")
            }
            Self::Entry(address) => {
                write!(formatter, "the entry point {address:#x} is not in executable memory")
            }
        }
    }
}

impl core::error::Error for FlatError {}

/// A run of pages with equal rights.
struct Run {
    /// Page-aligned, as loaded.
    address: u64,
    flags: u32,
    contents: Vec<u8>,
}

/// How many bytes of an ELF file from its beginning on [`from_elf`] needs: all but sections and symbols, which are most
/// of it. `beginning` reaches to the end of the program headers.
///
/// # Errors
/// See [`FlatError`].
pub fn needed_bytes(beginning: &[u8]) -> Result<u64, FlatError> {
    let header = elf::FileHeader64::<LittleEndian>::parse(beginning).map_err(|_| FlatError::NotElf)?;
    let endian = header.endian().map_err(|_| FlatError::NotElf)?;
    let programs = header.program_headers(endian, beginning).map_err(|_| FlatError::NotElf)?;
    let ends = programs.iter().map(|program| program.p_offset(endian).saturating_add(program.p_filesz(endian)));
    Ok(ends.max().unwrap_or(0).max(beginning.len() as u64))
}

/// Converts an ELF file; the result is a whole number of pages.
///
/// # Errors
/// See [`FlatError`].
pub fn from_elf(file: &[u8]) -> Result<Vec<u8>, FlatError> {
    let header = elf::FileHeader64::<LittleEndian>::parse(file).map_err(|_| FlatError::NotElf)?;
    let endian = header.endian().map_err(|_| FlatError::NotElf)?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err(FlatError::NotExecutable);
    }
    let programs = header.program_headers(endian, file).map_err(|_| FlatError::NotElf)?;
    let bias = match header.e_type(endian) {
        elf::ET_EXEC => 0,
        elf::ET_DYN => {
            let lowest = programs
                .iter()
                .filter(|program| program.p_type(endian) == elf::PT_LOAD)
                .map(|program| program.p_vaddr(endian))
                .min()
                .ok_or(FlatError::NoSegments)?;
            LIBOS_IMAGE_BASE.wrapping_sub(lowest - lowest % PAGE_BYTES)
        }
        _ => return Err(FlatError::NotExecutable),
    };
    let mut runs = Vec::new();
    let mut dynamic = None;
    for program in programs {
        match program.p_type(endian) {
            elf::PT_INTERP => return Err(FlatError::Interpreter),
            elf::PT_TLS if program.p_memsz(endian) != 0 => return Err(FlatError::ThreadLocal),
            elf::PT_LOAD if program.p_memsz(endian) != 0 => {
                load(&mut runs, file, program, bias)?;
            }
            elf::PT_DYNAMIC => {
                dynamic = Some(program.data(endian, file).map_err(|_| FlatError::Dynamic)?);
            }
            _ => {}
        }
    }
    if let Some(dynamic) = dynamic {
        relocate(&mut runs, dynamic, bias)?;
    }
    let entry = header.e_entry(endian).wrapping_add(bias);
    let in_run = |run: &Run| {
        run.flags & FLAT_EXECUTE != 0 && entry.checked_sub(run.address).is_some_and(|at| at < run.contents.len() as u64)
    };
    if !runs.iter().any(in_run) {
        return Err(FlatError::Entry(entry));
    }
    emit(&runs, entry)
}

/// Appends one segment to the runs: joined with the last run if that has equal rights and touches or shares its page.
fn load(
    runs: &mut Vec<Run>,
    file: &[u8],
    program: &elf::ProgramHeader64<LittleEndian>,
    bias: u64,
) -> Result<(), FlatError> {
    let endian = LittleEndian;
    let address = program.p_vaddr(endian).wrapping_add(bias);
    let outside = FlatError::SegmentRange(address);
    let data = program.data(endian, file).map_err(|()| outside)?;
    let memory_bytes = program.p_memsz(endian);
    let end = address.checked_add(memory_bytes).ok_or(outside)?;
    if address < LIBOS_BASE || end > LIBOS_END || (data.len() as u64) > memory_bytes {
        return Err(outside);
    }
    let first_page = address - address % PAGE_BYTES;
    let pages_end = page_round_up(end).ok_or(outside)?;
    if pages_end - first_page > FLAT_BYTES_MAX {
        return Err(FlatError::TooLarge);
    }
    let p_flags = program.p_flags(endian);
    let mut flags = 0;
    if p_flags.contains(elf::PF_W) {
        flags |= FLAT_WRITE;
    }
    if p_flags.contains(elf::PF_X) {
        flags |= FLAT_EXECUTE;
    }
    let last_end = runs.last().map_or(0, |run| run.address + run.contents.len() as u64);
    match runs.last_mut() {
        Some(run) if address < run.address => return Err(FlatError::SegmentOrder(address)),
        Some(run) if first_page < last_end && run.flags != flags => {
            return Err(FlatError::SharedPage(first_page));
        }
        Some(run) if first_page <= last_end && run.flags == flags => {
            run.contents.resize((pages_end.max(last_end) - run.address) as usize, 0);
        }
        _ => {
            let contents = vec![0; (pages_end - first_page) as usize];
            runs.push(Run { address: first_page, flags, contents });
        }
    }
    let total: u64 = runs.iter().map(|run| run.contents.len() as u64).sum();
    if total > FLAT_BYTES_MAX - PAGE_BYTES {
        return Err(FlatError::TooLarge);
    }
    if let Some(run) = runs.last_mut() {
        let start = (address - run.address) as usize;
        run.contents[start..start + data.len()].copy_from_slice(data);
    }
    Ok(())
}

/// Applies the relocations that the dynamic section names.
fn relocate(runs: &mut [Run], dynamic: &[u8], bias: u64) -> Result<(), FlatError> {
    let mut table = None;
    let mut table_bytes = 0;
    let (mut plt_bytes, mut rel_bytes, mut relr_bytes) = (0, 0, 0);
    for entry in dynamic.chunks_exact(DYNAMIC_BYTES) {
        let tag = u64_at(entry, 0).ok_or(FlatError::Dynamic)?;
        let value = u64_at(entry, 8).ok_or(FlatError::Dynamic)?;
        match elf::DynamicTag(tag.cast_signed()) {
            elf::DT_NULL => break,
            elf::DT_NEEDED => return Err(FlatError::NeededLibrary),
            elf::DT_RELA => table = Some(value),
            elf::DT_RELASZ => table_bytes = value,
            elf::DT_RELAENT if value != RELA_BYTES => return Err(FlatError::Dynamic),
            elf::DT_PLTRELSZ => plt_bytes = value,
            elf::DT_RELSZ => rel_bytes = value,
            elf::DT_RELRSZ => relr_bytes = value,
            _ => {}
        }
    }
    if plt_bytes | rel_bytes | relr_bytes != 0 {
        return Err(FlatError::Relocation { kind: u32::MAX, address: 0 });
    }
    if table_bytes == 0 {
        return Ok(());
    }
    let table = table.ok_or(FlatError::Dynamic)?;
    if !table_bytes.is_multiple_of(RELA_BYTES) {
        return Err(FlatError::Dynamic);
    }
    // A copy, because a damaged file may relocate its own table.
    let entries = memory(runs, table.wrapping_add(bias), table_bytes).ok_or(FlatError::Dynamic)?.to_vec();
    for entry in entries.chunks_exact(RELA_BYTES as usize) {
        let address = u64_at(entry, 0).ok_or(FlatError::Dynamic)?;
        let kind = u32_at(entry, 8).ok_or(FlatError::Dynamic)?;
        let symbol = u32_at(entry, 12).ok_or(FlatError::Dynamic)?;
        let addend = u64_at(entry, 16).ok_or(FlatError::Dynamic)?;
        if kind != RELATIVE || symbol != 0 {
            return Err(FlatError::Relocation { kind, address });
        }
        let target = memory(runs, address.wrapping_add(bias), 8).ok_or(FlatError::RelocationRange(address))?;
        put(target, 0, addend.wrapping_add(bias).to_le_bytes());
    }
    Ok(())
}

/// Loaded memory by address.
fn memory(runs: &mut [Run], address: u64, length: u64) -> Option<&mut [u8]> {
    runs.iter_mut().find_map(|run| {
        let start = usize::try_from(address.checked_sub(run.address)?).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        run.contents.get_mut(start..end)
    })
}

fn emit(runs: &[Run], entry: u64) -> Result<Vec<u8>, FlatError> {
    if runs.len() > FLAT_SEGMENT_COUNT_MAX {
        return Err(FlatError::TooManySegments);
    }
    let mut image = vec![0; PAGE_BYTES as usize];
    put(&mut image, 0, FLAT_MAGIC.to_le_bytes());
    put(&mut image, 8, BUNDLE_VERSION.to_le_bytes());
    put(&mut image, 12, (runs.len() as u32).to_le_bytes());
    put(&mut image, 16, entry.to_le_bytes());
    for (index, run) in runs.iter().enumerate() {
        let at = SEGMENTS_OFFSET + index * SEGMENT_BYTES;
        // FLAT_BYTES_MAX keeps both page numbers far below 2^32.
        let page_offset = (image.len() as u64 / PAGE_BYTES) as u32;
        let page_count = (run.contents.len() as u64 / PAGE_BYTES) as u32;
        put(&mut image, at, run.address.to_le_bytes());
        put(&mut image, at + 8, page_offset.to_le_bytes());
        put(&mut image, at + 12, page_count.to_le_bytes());
        put(&mut image, at + 16, run.flags.to_le_bytes());
        image.extend_from_slice(&run.contents);
    }
    Ok(image)
}

/// What is wrong with a flat image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatDamage {
    /// Shorter than a page, or without the magic number.
    NotFlat,
    /// Another version of the layout.
    Version(u32),
    /// Too many or no segments.
    SegmentCount(u32),
    /// The segment with this index is misaligned, outside the image or the window, out of order or has unknown flags.
    Segment(usize),
    /// The entry point lies in no executable segment.
    Entry,
}

/// Reads and validates the header of a flat image.
///
/// # Errors
/// See [`FlatDamage`].
pub fn parse(image: &[u8]) -> Result<FlatHeader, FlatDamage> {
    let page = slice(image, 0, PAGE_BYTES).ok_or(FlatDamage::NotFlat)?;
    let u32_field = |offset| u32_at(page, offset).unwrap_or_default();
    let u64_field = |offset| u64_at(page, offset).unwrap_or_default();
    if u64_field(0) != FLAT_MAGIC {
        return Err(FlatDamage::NotFlat);
    }
    let mut header = FlatHeader {
        magic: FLAT_MAGIC,
        version: u32_field(8),
        segment_count: u32_field(12),
        entry: u64_field(16),
        segments: [FlatSegment::default(); FLAT_SEGMENT_COUNT_MAX],
    };
    if header.version != BUNDLE_VERSION {
        return Err(FlatDamage::Version(header.version));
    }
    let count = header.segment_count as usize;
    if count == 0 || count > FLAT_SEGMENT_COUNT_MAX {
        return Err(FlatDamage::SegmentCount(header.segment_count));
    }
    let mut end_address = LIBOS_BASE;
    let mut entry_is_executable = false;
    for (index, segment) in header.segments.iter_mut().enumerate().take(count) {
        let at = SEGMENTS_OFFSET + index * SEGMENT_BYTES;
        *segment = FlatSegment {
            virtual_address: u64_field(at),
            page_offset: u32_field(at + 8),
            page_count: u32_field(at + 12),
            flags: u32_field(at + 16),
            reserved: u32_field(at + 20),
        };
        let length = u64::from(segment.page_count) * PAGE_BYTES;
        let start = segment.virtual_address;
        let end = start.checked_add(length).ok_or(FlatDamage::Segment(index))?;
        let stored = slice(image, u64::from(segment.page_offset) * PAGE_BYTES, length);
        let valid = start.is_multiple_of(PAGE_BYTES)
            && start >= end_address
            && end <= LIBOS_END
            && stored.is_some()
            && segment.page_offset != 0
            && segment.page_count != 0
            && segment.flags & !(FLAT_WRITE | FLAT_EXECUTE) == 0;
        if !valid {
            return Err(FlatDamage::Segment(index));
        }
        end_address = end;
        entry_is_executable |= segment.flags & FLAT_EXECUTE != 0 && (start..end).contains(&header.entry);
    }
    if entry_is_executable { Ok(header) } else { Err(FlatDamage::Entry) }
}

#[cfg(test)]
#[path = "flat_tests.rs"]
mod tests;
