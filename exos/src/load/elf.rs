//! ELF executables: what their headers say, checked, and how they are mapped.
//!
//! [`ElfImage::read`] believes nothing: every number is checked before it is used, and what is
//! wrong is told in words ([`ElfError`]), because "Exec format error" helps nobody.
//! [`ElfImage::map`] then makes one private file mapping per segment and zero memory for the rest.
//! Source: the System V ABI, AMD64 supplement; Linux's `fs/binfmt_elf.c` for what is left open.
//!
//! Stricter than Linux: segments must be in order, must not overlap, and must lie inside the file,
//! so that a truncated program is refused when it is started rather than killed later.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SIZE, PROGRAM_BASE, PROGRAM_END};

use crate::error::{Errno, Result};
use crate::mem::{AddressSpace, MapRequest, PageSource, Placement, ProtectReach, Protection};

const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 56;
/// Most bytes of program headers (Linux: `ELF_MIN_ALIGN` times 16, 64 KiB).
const TABLE_BYTES_MAX: usize = 65_536;
/// Longest interpreter path, with its zero byte.
const INTERPRETER_BYTES_MAX: u64 = 4096;
/// Largest alignment that a position-independent image may ask for: 1 GiB.
const ALIGNMENT_MAX: u64 = 1 << 30;

const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const MACHINE_X86_64: u16 = 62;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_STACK: u32 = 0x6474_e551;

/// Why a file is no program for this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// The file is empty.
    Empty,
    /// Not an ELF file at all.
    NotElf,
    /// The file ends inside its header.
    TruncatedHeader,
    /// A 32-bit or otherwise odd class.
    WrongClass(u8),
    /// Not little-endian.
    WrongByteOrder,
    /// An ELF version that does not exist.
    WrongVersion,
    /// Built for another processor.
    WrongMachine(u16),
    /// An object file, a core dump or the like.
    NotExecutable(u16),
    /// Program headers of another size than ELF64 has.
    WrongEntrySize(u16),
    /// No program headers, or too many.
    WrongSegmentCount(u16),
    /// The program headers lie outside the file.
    TruncatedTable,
    /// No `PT_LOAD` segment.
    NothingToLoad,
    /// A segment's bytes lie outside the file.
    TruncatedSegment(usize),
    /// A segment's address and offset do not agree modulo the page size, or its alignment is no power of two.
    MisalignedSegment(usize),
    /// A segment has more bytes in the file than in memory.
    OversizedSegment(usize),
    /// A segment lies outside the program's half of the address space.
    SegmentOutOfRange(usize),
    /// Segments are out of order or overlap.
    OverlappingSegment(usize),
    /// The interpreter's path is empty, too long or not terminated.
    BadInterpreterPath,
    /// The entry point is in no segment.
    BadEntry,
    /// The file could not be read.
    Unreadable(Errno),
}

impl fmt::Display for ElfError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(formatter, "the file is empty"),
            Self::NotElf => write!(formatter, "not an ELF program"),
            Self::TruncatedHeader => write!(formatter, "truncated: the file ends in its header"),
            Self::WrongClass(1) => write!(formatter, "a 32-bit program"),
            Self::WrongClass(class) => write!(formatter, "unknown ELF class {class}"),
            Self::WrongByteOrder => write!(formatter, "a big-endian program"),
            Self::WrongVersion => write!(formatter, "unknown ELF version"),
            Self::WrongMachine(machine) => {
                write!(formatter, "built for another processor ({})", machine_name(*machine))
            }
            Self::NotExecutable(1) => write!(formatter, "an object file, not a program"),
            Self::NotExecutable(4) => write!(formatter, "a core dump, not a program"),
            Self::NotExecutable(kind) => write!(formatter, "unknown ELF type {kind}"),
            Self::WrongEntrySize(size) => write!(formatter, "program headers of {size} bytes"),
            Self::WrongSegmentCount(count) => write!(formatter, "{count} program headers"),
            Self::TruncatedTable => {
                write!(formatter, "truncated: the file ends before its program headers")
            }
            Self::NothingToLoad => write!(formatter, "no segment to load"),
            Self::TruncatedSegment(index) => {
                write!(formatter, "truncated: the file ends before segment {index}")
            }
            Self::MisalignedSegment(index) => write!(formatter, "segment {index} is misaligned"),
            Self::OversizedSegment(index) => {
                write!(formatter, "segment {index} is larger in the file than in memory")
            }
            Self::SegmentOutOfRange(index) => {
                write!(formatter, "segment {index} lies outside the address space")
            }
            Self::OverlappingSegment(index) => {
                write!(formatter, "segment {index} overlaps or precedes the one before")
            }
            Self::BadInterpreterPath => write!(formatter, "the interpreter's path is not valid"),
            Self::BadEntry => write!(formatter, "the entry point is in no segment"),
            Self::Unreadable(error) => write!(formatter, "the file cannot be read ({error:?})"),
        }
    }
}

/// The common machines by name, so that the message can be understood.
fn machine_name(machine: u16) -> &'static str {
    match machine {
        3 => "x86, 32 bits",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "S/390",
        40 => "ARM, 32 bits",
        183 => "ARM, 64 bits",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => "unknown",
    }
}

/// Where an image may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfKind {
    /// At the addresses that it names (`ET_EXEC`).
    Fixed,
    /// Anywhere (`ET_DYN`).
    Relocatable,
}

/// A range to load. Addresses are the file's, without a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// First byte in the file.
    pub file_offset: u64,
    /// Bytes from the file.
    pub file_bytes: u64,
    /// Bytes in memory; those behind the file's are zero.
    pub memory_bytes: u64,
    /// Rights.
    pub protection: Protection,
}

/// The headers of an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfImage {
    /// Where it may go.
    pub kind: ElfKind,
    /// Entry point, without base.
    pub entry: u64,
    /// What to load, ascending, at least one.
    pub segments: Vec<Segment>,
    /// Path of the program interpreter (`PT_INTERP`).
    pub interpreter: Option<Vec<u8>>,
    /// The program asks for an executable stack.
    pub wants_executable_stack: bool,
    /// Address of the program headers in memory, without base; 0 if no segment holds them.
    pub table_address: u64,
    /// How many there are.
    pub table_entries: u16,
    /// The largest alignment of a segment, at least a page.
    pub alignment: u64,
}

/// Where an image was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedImage {
    /// Added to every address of the file.
    pub base: u64,
    /// Entry point.
    pub entry: u64,
    /// Program headers; 0 if they are not in memory.
    pub table_address: u64,
    /// First address of the first segment and first behind the last, page-aligned.
    pub start: u64,
    /// See `start`.
    pub end: u64,
}

impl ElfImage {
    /// Reads and checks the headers of a file of `file_bytes` bytes. `read_at` fills a buffer from
    /// an offset on and is asked only for what lies inside the file.
    pub fn read(
        file_bytes: u64,
        read_at: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> core::result::Result<Self, ElfError> {
        let mut header = [0; HEADER_BYTES];
        let head = &mut header[..file_bytes.min(HEADER_BYTES as u64) as usize];
        read_at(0, head).map_err(ElfError::Unreadable)?;
        let table = check_header(&header, file_bytes)?;
        let kind = match half(&header, 16) {
            TYPE_EXECUTABLE => ElfKind::Fixed,
            _ => ElfKind::Relocatable,
        };
        let mut entries = alloc::vec![0; (table.end - table.start) as usize];
        read_at(table.start, &mut entries).map_err(ElfError::Unreadable)?;
        let mut image = Self {
            kind,
            entry: long(&header, 24),
            segments: Vec::new(),
            interpreter: None,
            wants_executable_stack: false,
            table_address: 0,
            table_entries: half(&header, 56),
            alignment: PAGE_SIZE,
        };
        for (index, entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            match word(entry, 0) {
                SEGMENT_LOAD => image.add_segment(index, entry, file_bytes)?,
                SEGMENT_INTERPRETER if image.interpreter.is_none() => {
                    image.interpreter = Some(read_interpreter(entry, file_bytes, read_at)?);
                }
                SEGMENT_STACK => image.wants_executable_stack = word(entry, 4) & 1 != 0,
                _ => {}
            }
        }
        image.finish(&table)?;
        Ok(image)
    }

    /// Bytes from the first segment's first page to the last segment's last.
    #[must_use]
    pub fn span(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |segment| page_floor(segment.address));
        let end = self.segments.last().map_or(0, |last| page_ceil(last.address + last.memory_bytes));
        start..end
    }

    /// Maps the image. A fixed image goes where it must; a relocatable one to `base` (page-aligned,
    /// its first segment's page), or where the space has room if there is no base. Fails with
    /// `ENOMEM`, or `EEXIST` if the place is taken; the space then holds a part and is good for
    /// nothing but being cleared.
    pub fn map(
        &self,
        space: &mut AddressSpace,
        source: &Arc<dyn PageSource>,
        base: Option<u64>,
    ) -> Result<MappedImage> {
        let span = self.span();
        let start = match (self.kind, base) {
            (ElfKind::Fixed, _) => span.start,
            (ElfKind::Relocatable, Some(base)) => align(base, self.alignment)?,
            (ElfKind::Relocatable, None) => {
                // Room for the alignment: what is found may have to be rounded up.
                let length = span.end - span.start + self.alignment - PAGE_SIZE;
                align(space.place(Placement::Hint(0), length)?, self.alignment)?
            }
        };
        let base = start.wrapping_sub(span.start);
        let mut taken_end = 0;
        for segment in &self.segments {
            taken_end = map_segment(space, source, segment, base, taken_end)?;
        }
        Ok(MappedImage {
            base,
            entry: base.wrapping_add(self.entry),
            table_address: match self.table_address {
                0 => 0,
                address => base.wrapping_add(address),
            },
            start,
            end: base.wrapping_add(span.end),
        })
    }

    fn add_segment(&mut self, index: usize, entry: &[u8], file_bytes: u64) -> core::result::Result<(), ElfError> {
        let segment = Segment {
            address: long(entry, 16),
            file_offset: long(entry, 8),
            file_bytes: long(entry, 32),
            memory_bytes: long(entry, 40),
            protection: rights(word(entry, 4)),
        };
        let alignment = long(entry, 48);
        if segment.memory_bytes == 0 && segment.file_bytes == 0 {
            return Ok(());
        }
        if segment.file_bytes > segment.memory_bytes {
            return Err(ElfError::OversizedSegment(index));
        }
        let file_end = segment.file_offset.checked_add(segment.file_bytes);
        if file_end.is_none_or(|end| end > file_bytes) {
            return Err(ElfError::TruncatedSegment(index));
        }
        let is_congruent = segment.address % PAGE_SIZE == segment.file_offset % PAGE_SIZE || segment.file_bytes == 0;
        if !is_congruent || (alignment > 1 && !alignment.is_power_of_two()) {
            return Err(ElfError::MisalignedSegment(index));
        }
        let end = segment.address.checked_add(segment.memory_bytes);
        let is_low = self.kind == ElfKind::Fixed && segment.address < PROGRAM_BASE;
        if is_low || end.is_none_or(|end| end > PROGRAM_END) {
            return Err(ElfError::SegmentOutOfRange(index));
        }
        let previous_end = self.segments.last().map_or(0, |last| last.address + last.memory_bytes);
        if segment.address < previous_end {
            return Err(ElfError::OverlappingSegment(index));
        }
        self.alignment = self.alignment.max(alignment.min(ALIGNMENT_MAX));
        self.segments.push(segment);
        Ok(())
    }

    fn finish(&mut self, table: &Range<u64>) -> core::result::Result<(), ElfError> {
        if self.segments.is_empty() {
            return Err(ElfError::NothingToLoad);
        }
        let holds =
            |segment: &&Segment| (segment.address..segment.address + segment.memory_bytes).contains(&self.entry);
        if self.segments.iter().find(holds).is_none() {
            return Err(ElfError::BadEntry);
        }
        let in_memory = self.segments.iter().find(|segment| {
            segment.file_offset <= table.start && table.end <= segment.file_offset + segment.file_bytes
        });
        self.table_address = in_memory.map_or(0, |segment| segment.address + (table.start - segment.file_offset));
        Ok(())
    }
}

/// Checks the header; answers where the program headers are.
fn check_header(header: &[u8; HEADER_BYTES], file_bytes: u64) -> core::result::Result<Range<u64>, ElfError> {
    if file_bytes == 0 {
        return Err(ElfError::Empty);
    }
    if !header.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    if file_bytes < HEADER_BYTES as u64 {
        return Err(ElfError::TruncatedHeader);
    }
    match (header[4], header[5], header[6]) {
        (2, 1, 1) => {}
        (2, 1, _) => return Err(ElfError::WrongVersion),
        (2, _, _) => return Err(ElfError::WrongByteOrder),
        (class, _, _) => return Err(ElfError::WrongClass(class)),
    }
    let kind = half(header, 16);
    if half(header, 18) != MACHINE_X86_64 {
        return Err(ElfError::WrongMachine(half(header, 18)));
    }
    if kind != TYPE_EXECUTABLE && kind != TYPE_SHARED {
        return Err(ElfError::NotExecutable(kind));
    }
    if usize::from(half(header, 54)) != ENTRY_BYTES {
        return Err(ElfError::WrongEntrySize(half(header, 54)));
    }
    let count = half(header, 56);
    let table_bytes = usize::from(count) * ENTRY_BYTES;
    if count == 0 || table_bytes > TABLE_BYTES_MAX {
        return Err(ElfError::WrongSegmentCount(count));
    }
    let start = long(header, 32);
    match start.checked_add(table_bytes as u64) {
        Some(end) if end <= file_bytes => Ok(start..end),
        _ => Err(ElfError::TruncatedTable),
    }
}

fn read_interpreter(
    entry: &[u8],
    file_bytes: u64,
    read_at: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
) -> core::result::Result<Vec<u8>, ElfError> {
    let (offset, length) = (long(entry, 8), long(entry, 32));
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= file_bytes);
    if !(2..=INTERPRETER_BYTES_MAX).contains(&length) || !is_inside {
        return Err(ElfError::BadInterpreterPath);
    }
    let mut path = alloc::vec![0; length as usize];
    read_at(offset, &mut path).map_err(ElfError::Unreadable)?;
    if path.pop() != Some(0) {
        return Err(ElfError::BadInterpreterPath);
    }
    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
    path.truncate(end);
    if path.is_empty() { Err(ElfError::BadInterpreterPath) } else { Ok(path) }
}

/// Maps one segment; `taken_end` is where the previous one's last page ends, which a segment may
/// share (the later one then has it, as with Linux's fixed mappings). Answers where this one's last
/// page ends.
fn map_segment(
    space: &mut AddressSpace,
    source: &Arc<dyn PageSource>,
    segment: &Segment,
    base: u64,
    taken_end: u64,
) -> Result<u64> {
    let start = base.wrapping_add(segment.address);
    let first_page = page_floor(start);
    let file_end = start + segment.file_bytes;
    let zeros_start = if segment.file_bytes == 0 { first_page } else { page_ceil(file_end) };
    let end = page_ceil(start + segment.memory_bytes);
    let place = |address| {
        if address < taken_end { Placement::Fixed(address) } else { Placement::FixedNoReplace(address) }
    };
    if segment.file_bytes > 0 {
        let length = zeros_start - first_page;
        let offset = page_floor(segment.file_offset);
        let source = Arc::clone(source);
        let request = MapRequest::file(place(first_page), length, segment.protection, source, offset);
        space.map(request)?;
        if segment.memory_bytes > segment.file_bytes {
            clear_tail(space, segment.protection, file_end..zeros_start)?;
        }
    }
    if end > zeros_start {
        let length = end - zeros_start;
        space.map(MapRequest::anonymous(place(zeros_start), length, segment.protection))?;
    }
    Ok(end)
}

/// Zeroes what follows a segment's file bytes in their last page, also where the program may not write.
fn clear_tail(space: &mut AddressSpace, protection: Protection, tail: Range<u64>) -> Result<()> {
    if tail.is_empty() {
        return Ok(());
    }
    let page = page_floor(tail.start);
    let is_writable = protection.contains(Protection::WRITE);
    if !is_writable {
        let rights = protection | Protection::WRITE;
        space.protect(page, PAGE_SIZE, rights, ProtectReach::Range)?;
    }
    static ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
    // The mapping is there and writable, so what fails here is memory.
    space.write_all(tail.start, &ZEROS[..(tail.end - tail.start) as usize]).map_err(|_| Errno::ENOMEM)?;
    if !is_writable {
        space.protect(page, PAGE_SIZE, protection, ProtectReach::Range)?;
    }
    Ok(())
}

fn rights(flags: u32) -> Protection {
    let mut protection = Protection::empty();
    protection.set(Protection::EXECUTE, flags & 1 != 0);
    protection.set(Protection::WRITE, flags & 2 != 0);
    protection.set(Protection::READ, flags & 4 != 0);
    protection
}

fn align(address: u64, alignment: u64) -> Result<u64> {
    address.checked_next_multiple_of(alignment).ok_or(Errno::ENOMEM)
}

fn page_floor(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

/// Rounds up; addresses of checked segments are far from the end of the number range.
fn page_ceil(address: u64) -> u64 {
    page_floor(address.saturating_add(PAGE_SIZE - 1))
}

fn half(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from(half(bytes, offset)) | u32::from(half(bytes, offset + 2)) << 16
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from(word(bytes, offset)) | u64::from(word(bytes, offset + 4)) << 32
}
