//! Where a function of an ELF file begins and ends: from its unwind information, else from its symbols.
//!
//! `.eh_frame_hdr` is a sorted table (Linux Standard Base 5.0, core, 10.6.2), so a look-up reads a few words of it and
//! one entry of `.eh_frame`; files that are linked statically have only `.eh_frame`, which is walked. All that is read
//! is an allegation of the file: offsets are checked by the reader, loops are bounded, and a file that lies gets its
//! sites refused or its own code wrong, nobody else's.

use core::ops::Range;

/// Bytes of a mapped file, by offset.
pub trait FileBytes {
    /// Fills `into` from `offset`; `None` if the file ends before.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Option<()>;
    /// What lies from `offset` on, as far as it is at hand without more reading; perhaps nothing.
    fn at_hand(&mut self, offset: u64) -> &[u8] {
        let _ = offset;
        &[]
    }
}

/// Most program and section headers that are looked at.
const HEADER_COUNT_MAX: u64 = 256;
/// Most entries of `.eh_frame`, and most symbols, that are walked.
const WALK_COUNT_MAX: u64 = 200_000;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_UNWIND: u32 = 0x6474_e550;
const SECTION_SYMBOLS: u32 = 2;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const SYMBOL_BYTES: u64 = 24;
const SYMBOL_FUNCTION: u8 = 2;
/// Pointer encodings: the form, and what it is relative to (LSB 5.0, core, 10.5.1).
const FORM_ABSOLUTE: u8 = 0;
const FORM_U32: u8 = 3;
const FORM_I32: u8 = 0xb;
const RELATIVE_TO_ITSELF: u8 = 0x10;
const RELATIVE_TO_TABLE: u8 = 0x30;

/// Where one loadable segment is.
#[derive(Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    length: u64,
}

/// The file with its layout.
struct Elf<'a> {
    file: &'a mut dyn FileBytes,
    segments: [Segment; 16],
    segment_count: usize,
    unwind: Option<u64>,
    /// The information entry read last and what it says: most descriptions of a file share one.
    form: Option<(u64, (u8, bool))>,
}

/// The file range of the function that holds the byte at `offset`.
pub fn function_at(file: &mut dyn FileBytes, offset: u64) -> Option<Range<u64>> {
    let mut elf = Elf::open(file)?;
    let address = elf.address_of(offset)?;
    let found = match elf.unwind {
        Some(table) => elf.by_table(table, address),
        None => elf.by_walk(address),
    };
    let found = found.or_else(|| elf.by_symbols(address)).filter(|range| range.contains(&address))?;
    let start = elf.offset_of(found.start)?;
    Some(start..start + (found.end - found.start))
}

/// The word at a place of a header, which it has.
fn word_of<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|byte| header[at + byte]))
}

impl<'a> Elf<'a> {
    fn open(file: &'a mut dyn FileBytes) -> Option<Self> {
        let none = Segment { offset: 0, address: 0, length: 0 };
        let mut elf = Self { file, segments: [none; 16], segment_count: 0, unwind: None, form: None };
        let head: [u8; 58] = elf.array(0)?;
        // 64-bit, little-endian.
        if head[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (table, size, count) = (word_of(&head, 32), half(54), half(56));
        for index in 0..count.min(HEADER_COUNT_MAX) {
            // Each is read at once: a reader asks where the page is.
            let header: [u8; 40] = elf.array(table.checked_add(index * size)?)?;
            let kind = word_of(&header, 0) as u32;
            let (offset, address, length) = (word_of(&header, 8), word_of(&header, 16), word_of(&header, 32));
            if kind == SEGMENT_LOAD && elf.segment_count < elf.segments.len() {
                elf.segments[elf.segment_count] = Segment { offset, address, length };
                elf.segment_count += 1;
            } else if kind == SEGMENT_UNWIND {
                elf.unwind = Some(offset);
            }
        }
        Some(elf)
    }

    fn array<const N: usize>(&mut self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read(offset, &mut bytes)?;
        Some(bytes)
    }

    fn u16(&mut self, offset: u64) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(&mut self, offset: u64) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(&mut self, offset: u64) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }

    fn address_of(&self, offset: u64) -> Option<u64> {
        let segments = &self.segments[..self.segment_count];
        let segment = segments.iter().find(|it| offset.wrapping_sub(it.offset) < it.length)?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let segments = &self.segments[..self.segment_count];
        let segment = segments.iter().find(|it| address.wrapping_sub(it.address) < it.length)?;
        Some(segment.offset.wrapping_add(address - segment.address))
    }

    /// By the sorted table at file offset `table`.
    fn by_table(&mut self, table: u64, address: u64) -> Option<Range<u64>> {
        let table_address = self.address_of(table)?;
        let [version, frame_form, count_form, entry_form] = self.array(table)?;
        let is_usual = version == 1
            && frame_form & 0xf == FORM_I32
            && count_form == FORM_U32
            && entry_form == RELATIVE_TO_TABLE | FORM_I32;
        if !is_usual {
            return None;
        }
        let count = u64::from(self.u32(table + 8)?);
        let (mut low, mut high) = (0, count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let start = self.u32(table + 12 + middle * 8)? as i32;
            if table_address.wrapping_add_signed(i64::from(start)) <= address { low = middle } else { high = middle }
        }
        let entry = self.u32(table + 16 + low * 8)? as i32;
        let entry = self.offset_of(table_address.wrapping_add_signed(i64::from(entry)))?;
        let length = self.u32(entry)?;
        self.described(entry, length)
    }

    /// By all of `.eh_frame`, which sections name.
    fn by_walk(&mut self, address: u64) -> Option<Range<u64>> {
        let (mut position, length) = self.section_named(b".eh_frame\0")?;
        let end = position.checked_add(length)?;
        let mut left = WALK_COUNT_MAX;
        while left > 0 && position + 8 <= end {
            position = self.pass_over(position, end, address, &mut left);
            left = left.saturating_sub(1);
            let length = self.u32(position)?;
            if length == 0 || length == u32::MAX {
                break;
            }
            if self.u32(position + 4)? != 0
                && let Some(range) = self.described(position, length)
                && range.contains(&address)
            {
                return Some(range);
            }
            position += 4 + u64::from(length);
        }
        None
    }

    /// Passes over descriptions in the usual form that share the information entry read last and are not about
    /// `address`, while their bytes are at hand: nearly all of them. No more than `left`, which counts them.
    fn pass_over(&mut self, mut position: u64, end: u64, address: u64, left: &mut u64) -> u64 {
        let Some((information, (form, false))) = self.form else { return position };
        let Some(distance) = self.address_of(position).map(|at| at.wrapping_sub(position)) else { return position };
        if form != RELATIVE_TO_ITSELF | FORM_I32 {
            return position;
        }
        let mut bytes = self.file.at_hand(position);
        while let Some(head) = bytes.first_chunk::<16>()
            && *left > 0
        {
            let [length, back, start, count] =
                core::array::from_fn(|word| u32::from_le_bytes(core::array::from_fn(|byte| head[word * 4 + byte])));
            let begin = (position + 8).wrapping_add(distance).wrapping_add_signed(i64::from(start as i32));
            let next = position + 4 + u64::from(length);
            let is_known = length >= 12 && (position + 4).checked_sub(u64::from(back)) == Some(information);
            if !is_known || next + 8 > end || address.wrapping_sub(begin) < u64::from(count) {
                break;
            }
            *left -= 1;
            bytes = bytes.get((next - position) as usize..).unwrap_or_default();
            position = next;
        }
        position
    }

    /// The addresses that the frame description at `entry` is about.
    fn described(&mut self, entry: u64, length: u32) -> Option<Range<u64>> {
        if length < 12 || length == u32::MAX {
            return None;
        }
        let back = u64::from(self.u32(entry + 4)?);
        let information = (entry + 4).checked_sub(back)?;
        let known = self.form.filter(|known| known.0 == information).map(|known| known.1);
        let (form, is_signal_return) = match known {
            Some(form) => form,
            None => self.pointer_form(information)?,
        };
        self.form = Some((information, (form, is_signal_return)));
        let (start, count) = match form & 0xf {
            FORM_ABSOLUTE => (self.u64(entry + 8)?, self.u64(entry + 16)?),
            FORM_U32 => (u64::from(self.u32(entry + 8)?), u64::from(self.u32(entry + 12)?)),
            FORM_I32 => (i64::from(self.u32(entry + 8)? as i32).cast_unsigned(), u64::from(self.u32(entry + 12)?)),
            _ => return None,
        };
        let start = match form & 0x70 {
            0 => start,
            RELATIVE_TO_ITSELF => start.wrapping_add(self.address_of(entry + 8)?),
            _ => return None,
        };
        // The description of a signal return begins a byte early, so that unwinders that step back find it.
        Some(start.wrapping_add(u64::from(is_signal_return))..start.checked_add(count)?)
    }

    /// How the descriptions that share the information entry at `entry` write addresses, and whether they are about the
    /// code that returns from signal handlers.
    fn pointer_form(&mut self, entry: u64) -> Option<(u8, bool)> {
        let head: [u8; 24] = self.array(entry + 8)?;
        let augmentation_end = head.iter().skip(1).position(|byte| *byte == 0)? + 1;
        let augmentation = &head[1..augmentation_end];
        if augmentation.is_empty() {
            return Some((FORM_ABSOLUTE, false));
        }
        let letters = augmentation.strip_prefix(b"z")?;
        let mut position = augmentation_end + 1;
        // Alignments of code and data, the return address's register, the length of what follows.
        for _ in 0..4 {
            while *head.get(position)? & 0x80 != 0 {
                position += 1;
            }
            position += 1;
        }
        for letter in letters {
            match letter {
                b'R' => return Some((*head.get(position)?, letters.contains(&b'S'))),
                b'L' => position += 1,
                b'P' => position += if *head.get(position)? & 0x7 == 0 { 9 } else { 5 },
                b'S' | b'B' => {}
                _ => return None,
            }
        }
        Some((FORM_ABSOLUTE, letters.contains(&b'S')))
    }

    /// File offset and length of the section of this name.
    fn section_named(&mut self, name: &[u8; 10]) -> Option<(u64, u64)> {
        let (table, size, count) = self.sections()?;
        let names = u64::from(self.u16(62)?);
        let names = self.u64(table.checked_add(names * size)? + 24)?;
        for index in 0..count {
            let header = table.checked_add(index * size)?;
            let at = names.checked_add(u64::from(self.u32(header)?))?;
            if self.array::<10>(at).is_some_and(|found| found == *name) {
                return Some((self.u64(header + 24)?, self.u64(header + 32)?));
            }
        }
        None
    }

    fn sections(&mut self) -> Option<(u64, u64, u64)> {
        let (table, size, count) = (self.u64(40)?, u64::from(self.u16(58)?), u64::from(self.u16(60)?));
        (table != 0 && size >= 64).then_some((table, size, count.min(HEADER_COUNT_MAX)))
    }

    /// By the function symbol that covers `address`: of the full table, else of the dynamic one.
    fn by_symbols(&mut self, address: u64) -> Option<Range<u64>> {
        let (table, size, count) = self.sections()?;
        for wanted in [SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS] {
            for index in 0..count {
                let header = table.checked_add(index * size)?;
                if self.u32(header + 4)? != wanted {
                    continue;
                }
                let (offset, length) = (self.u64(header + 24)?, self.u64(header + 32)?);
                if let Some(found) = self.by_symbols_at(offset, length / SYMBOL_BYTES, address) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn by_symbols_at(&mut self, offset: u64, count: u64, address: u64) -> Option<Range<u64>> {
        for index in 0..count.min(WALK_COUNT_MAX) {
            let symbol: [u8; SYMBOL_BYTES as usize] = self.array(offset.checked_add(index * SYMBOL_BYTES)?)?;
            let [_, start, length] = core::array::from_fn(|word| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&symbol[word * 8..word * 8 + 8]);
                u64::from_le_bytes(bytes)
            });
            let is_function = symbol[4] & 0xf == SYMBOL_FUNCTION;
            if is_function && address.wrapping_sub(start) < length {
                return Some(start..start.checked_add(length)?);
            }
        }
        None
    }
}
