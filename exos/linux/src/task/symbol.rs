//! From an address of a program to the file and the function that it belongs to, for a person to
//! read.
//!
//! The file is read through the area's own page source, a header or a table entry at a time, so
//! nothing needs a path, a descriptor or much memory. What a file says is not believed: every
//! number is checked by the read that uses it, and the work is bounded by [`SECTION_COUNT_MAX`] and
//! [`SYMBOL_COUNT_MAX`]. Where the tables are missing or broken the answer has less in it; nothing
//! fails. Sources: System V ABI, chapters 4 and 5.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use exos::load::read_file;
use exos::mem::{FramePool, PageSource};

use crate::abi::bytes::get;
use crate::abi::linux::{PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_NOTYPE};
use crate::task::memory::Space;

/// Sections of a file that are looked at.
const SECTION_COUNT_MAX: u64 = 16_384;
/// Symbols of a table that are looked at.
const SYMBOL_COUNT_MAX: u64 = (64 << 20) / SYMBOL_BYTES;
/// Longest symbol name that is shown; the rest is cut.
const NAME_BYTES_MAX: usize = 200;

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: u64 = 56;
const SECTION_BYTES: u64 = 64;
const SYMBOL_BYTES: u64 = 24;
/// Symbols that are read at a time.
const BATCH_COUNT: u64 = 170;
/// Section numbers from here on are not sections (`SHN_LORESERVE`).
const SECTION_RESERVED: u16 = 0xff00;

/// What is known about an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, or the area's name in brackets; empty for memory without a name.
    pub path: String,
    /// The address as the file's own tables (and `addr2line`) count; an offset in the file where no
    /// segment covers it.
    pub address: u64,
    /// The function, and the distance from its beginning.
    pub function: Option<(String, u64)>,
}

impl fmt::Display for Place {
    /// `main+0x1f (/bin/busybox+0x4123)`, or what there is of it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, address, function } = self;
        match function {
            Some((name, distance)) => {
                write!(formatter, "{name}+{distance:#x} ({path}+{address:#x})")
            }
            None if path.is_empty() => write!(formatter, "memory without a file"),
            None => write!(formatter, "{path}+{address:#x}"),
        }
    }
}

/// Finds out about `address`. `None`: nothing is mapped there.
#[must_use]
pub fn locate(pool: &Arc<FramePool>, space: &Space, address: u64) -> Option<Place> {
    let (path, source, offset) = {
        let space = space.lock();
        let area = space.area_at(address)?;
        let source = area.file().map(|file| file.source.clone());
        (area.name(), source, area.offset_bytes() + (address - area.start()))
    };
    let path = path.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    let Some(source) = source else {
        return Some(Place { path, ..Place::default() });
    };
    let read = |offset: u64, into: &mut [u8]| read_whole(pool, &source, offset, into);
    let file = ElfFile::open(&read);
    let address = file.as_ref().and_then(|file| file.address_of(offset));
    let function = file.as_ref().zip(address).and_then(|(file, address)| file.function_at(address));
    Some(Place { path, address: address.unwrap_or(offset), function })
}

fn read_whole(pool: &Arc<FramePool>, source: &Arc<dyn PageSource>, offset: u64, into: &mut [u8]) -> bool {
    offset.checked_add(into.len() as u64).is_some() && read_file(pool, source, offset, into).is_ok()
}

/// Reads exactly so many bytes of a file at an offset; `false` if they are not there.
type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// An ELF file whose header has been read.
struct ElfFile<'a> {
    read: &'a ReadAt<'a>,
    segments: Table,
    sections: Table,
}

/// Entries of one size in a file.
#[derive(Clone, Copy)]
struct Table {
    offset: u64,
    count: u64,
    entry_bytes: u64,
}

/// A symbol that might be the one.
struct Candidate {
    value: u64,
    name_offset: u64,
    is_function: bool,
    holds_address: bool,
}

impl Table {
    fn offset_of(&self, index: u64) -> Option<u64> {
        self.offset.checked_add(index.checked_mul(self.entry_bytes)?)
    }
}

impl<'a> ElfFile<'a> {
    fn open(read: &'a ReadAt<'a>) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        // 64 bits, little-endian: nothing else runs here.
        if !read(0, &mut header) || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let segments = Table {
            offset: get::u64(&header, 32),
            count: u64::from(get::u16(&header, 56)),
            entry_bytes: SEGMENT_BYTES,
        };
        let sections = Table {
            offset: get::u64(&header, 40),
            count: u64::from(get::u16(&header, 60)).min(SECTION_COUNT_MAX),
            entry_bytes: SECTION_BYTES,
        };
        Some(Self { read, segments, sections })
    }

    fn entry<const N: usize>(&self, table: &Table, index: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (index < table.count && (self.read)(table.offset_of(index)?, &mut bytes)).then_some(bytes)
    }

    /// The link-time address of a byte of the file.
    fn address_of(&self, offset: u64) -> Option<u64> {
        (0..self.segments.count).find_map(|index| {
            let segment: [u8; SEGMENT_BYTES as usize] = self.entry(&self.segments, index)?;
            let (start, length) = (get::u64(&segment, 8), get::u64(&segment, 32));
            // A mapping begins at the page of the segment's first byte.
            let first_page = start & !4095;
            let is_inside = offset >= first_page && offset < start.checked_add(length)?;
            let is_load = get::u32(&segment, 0) == PT_LOAD;
            (is_load && is_inside).then(|| get::u64(&segment, 16).wrapping_add(offset.wrapping_sub(start)))
        })
    }

    /// The function that holds `address`, from the full symbol table or else from the dynamic one.
    fn function_at(&self, address: u64) -> Option<(String, u64)> {
        [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| {
            let (symbols, names) = self.symbol_table(kind)?;
            let best = self.nearest(&symbols, address)?;
            let name = self.name(names, best.name_offset)?;
            Some((name, address - best.value))
        })
    }

    /// The first section of that kind as a table, and where its names begin.
    fn symbol_table(&self, kind: u32) -> Option<(Table, u64)> {
        let section = (0..self.sections.count).find_map(|index| {
            let section: [u8; SECTION_BYTES as usize] = self.entry(&self.sections, index)?;
            (get::u32(&section, 4) == kind && get::u64(&section, 56) == SYMBOL_BYTES).then_some(section)
        })?;
        let names: [u8; SECTION_BYTES as usize] = self.entry(&self.sections, u64::from(get::u32(&section, 40)))?;
        let count = (get::u64(&section, 32) / SYMBOL_BYTES).min(SYMBOL_COUNT_MAX);
        let symbols = Table { offset: get::u64(&section, 24), count, entry_bytes: SYMBOL_BYTES };
        Some((symbols, get::u64(&names, 24)))
    }

    fn nearest(&self, symbols: &Table, address: u64) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        let mut batch = Vec::new();
        let mut first = 0;
        while first < symbols.count {
            let count = (symbols.count - first).min(BATCH_COUNT);
            batch.resize((count * SYMBOL_BYTES) as usize, 0);
            if !(self.read)(symbols.offset_of(first)?, &mut batch) {
                return best;
            }
            for symbol in batch.chunks_exact(SYMBOL_BYTES as usize) {
                let candidate = candidate(symbol, address);
                if let Some(candidate) = candidate
                    && best.as_ref().is_none_or(|best| rank(&candidate) > rank(best))
                {
                    best = Some(candidate);
                }
            }
            first += count;
        }
        best
    }

    fn name(&self, names: u64, offset: u64) -> Option<String> {
        let start = names.checked_add(offset)?;
        let mut bytes = Vec::new();
        let mut byte = [0];
        while bytes.len() < NAME_BYTES_MAX && (self.read)(start.checked_add(bytes.len() as u64)?, &mut byte) {
            match byte[0] {
                0 => break,
                printable @ b' '..=b'~' => bytes.push(printable),
                _ => return None,
            }
        }
        String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
    }
}

/// What to compare: holding the address counts most, then being near, then being a function rather
/// than a label.
fn rank(candidate: &Candidate) -> (bool, u64, bool) {
    (candidate.holds_address, candidate.value, candidate.is_function)
}

/// A symbol as a candidate: a function, or a label in code, at or below the address, that does not
/// end before it.
fn candidate(symbol: &[u8], address: u64) -> Option<Candidate> {
    const STT_GNU_IFUNC: u8 = 10;
    let kind = symbol[4] & 15;
    let section = get::u16(symbol, 6);
    let (value, length) = (get::u64(symbol, 8), get::u64(symbol, 16));
    let distance = address.checked_sub(value)?;
    let is_code = matches!(kind, STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC);
    let is_defined = section != 0 && section < SECTION_RESERVED;
    let has_ended = length != 0 && distance >= length;
    (is_code && is_defined && !has_ended && get::u32(symbol, 0) != 0).then(|| Candidate {
        value,
        name_offset: u64::from(get::u32(symbol, 0)),
        is_function: kind != STT_NOTYPE,
        holds_address: length != 0,
    })
}

#[cfg(test)]
#[path = "symbol_tests.rs"]
pub(crate) mod tests;
