//! The kernel's symbol table: written into the linked image, so that a kernel panic can name what it prints.
//!
//! The image reserves a section `.ksymtab` of zeros; this fills it in place from the image's own `.symtab`. Layout
//! and reader are in `kernel/machine/src/symbols.rs`: magic, count, bytes of names, {address, name offset} in
//! ascending order, names with a length byte. Doing it twice changes nothing. When names do not fit, the longest are
//! cut first: a cut name is better than a missing one.

use std::fs;
use std::path::Path;

use crate::Error;

const MAGIC: [u8; 8] = *b"AEGISSYM";
/// What addresses in the table are relative to: the base of the kernel image's mapping.
const BASE: u64 = 0xffff_ffff_8000_0000;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 8;
const SECTION: &str = ".ksymtab";
/// Name lengths that are tried, longest first.
const NAME_BYTES_TRIED: [usize; 6] = [255, 120, 80, 60, 40, 24];

/// Fills the symbol table of a kernel image, in place.
pub(crate) fn inject(image: &Path) -> Result<(), Error> {
    let mut bytes = fs::read(image).map_err(Error::io(image))?;
    let before = bytes.clone();
    fill(&mut bytes).map_err(|problem| Error::Config { what: image.to_path_buf(), problem: problem.to_string() })?;
    if bytes == before {
        return Ok(());
    }
    fs::write(image, &bytes).map_err(Error::io(image))
}

fn fill(image: &mut [u8]) -> Result<(), &'static str> {
    let sections = Sections::read(image).ok_or("not a 64-bit ELF image with section headers")?;
    let room = sections.by_name(image, SECTION).ok_or("the image reserves no .ksymtab section")?;
    let symbols = function_symbols(image, &sections).ok_or("the image has no symbol table")?;
    let room =
        image.get_mut(room.offset..room.offset + room.length).ok_or("the .ksymtab section is outside the file")?;
    let table = NAME_BYTES_TRIED
        .iter()
        .map(|&limit| encode(&symbols, limit))
        .find(|table| table.len() <= room.len())
        .ok_or("the symbols do not fit the .ksymtab section: enlarge SYMBOL_TABLE_BYTES")?;
    room.fill(0);
    room[..table.len()].copy_from_slice(&table);
    Ok(())
}

/// The table; names are cut to `name_bytes_max`.
fn encode(symbols: &[(u32, String)], name_bytes_max: usize) -> Vec<u8> {
    let mut entries = Vec::with_capacity(symbols.len() * ENTRY_BYTES);
    let mut names = Vec::new();
    for (address, name) in symbols {
        let mut length = name.len().min(name_bytes_max);
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        entries.extend(address.to_le_bytes());
        entries.extend((names.len() as u32).to_le_bytes());
        names.push(length as u8);
        names.extend(&name.as_bytes()[..length]);
    }
    let mut table = Vec::with_capacity(HEADER_BYTES + entries.len() + names.len());
    table.extend(MAGIC);
    table.extend((symbols.len() as u32).to_le_bytes());
    table.extend((names.len() as u32).to_le_bytes());
    table.extend(entries);
    table.extend(names);
    table
}

/// Functions and assembly labels of the image's higher half, in ascending order, one name per address.
fn function_symbols(image: &[u8], sections: &Sections) -> Option<Vec<(u32, String)>> {
    const SYMBOL_BYTES: usize = 24;
    const TYPE_NONE: u8 = 0;
    const TYPE_FUNCTION: u8 = 2;
    let table = sections.by_name(image, ".symtab")?;
    let strings = sections.by_name(image, ".strtab")?;
    let text = sections.by_name(image, ".text")?;
    let mut symbols = Vec::new();
    for at in (table.offset..table.offset + table.length).step_by(SYMBOL_BYTES) {
        let name = text_at(image, strings.offset + read_u32(image, at)? as usize)?;
        let kind = image.get(at + 4)? & 0xf;
        let section = read_u16(image, at + 6)?;
        let address = read_u64(image, at + 8)?;
        let wanted = matches!(kind, TYPE_NONE | TYPE_FUNCTION)
            && usize::from(section) == text.index
            && !name.is_empty()
            && !name.starts_with("__")
            && !name.starts_with(".L");
        if let (true, Some(Ok(address))) = (wanted, address.checked_sub(BASE).map(u32::try_from)) {
            symbols.push((address, readable(name)));
        }
    }
    symbols.sort();
    symbols.dedup_by_key(|(address, _)| *address);
    Some(symbols)
}

/// A section's place in the file.
#[derive(Clone, Copy)]
struct Section {
    index: usize,
    offset: usize,
    length: usize,
}

/// The section headers of an ELF64 file.
struct Sections {
    first: usize,
    count: usize,
    names: usize,
}

impl Sections {
    const HEADER_BYTES: usize = 64;

    fn read(image: &[u8]) -> Option<Sections> {
        if image.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let first = usize::try_from(read_u64(image, 40)?).ok()?;
        let count = usize::from(read_u16(image, 60)?);
        let names_header = first + usize::from(read_u16(image, 62)?) * Self::HEADER_BYTES;
        let names = usize::try_from(read_u64(image, names_header + 24)?).ok()?;
        Some(Sections { first, count, names })
    }

    fn by_name(&self, image: &[u8], name: &str) -> Option<Section> {
        (0..self.count).find_map(|index| {
            let header = self.first + index * Self::HEADER_BYTES;
            let found = text_at(image, self.names + read_u32(image, header)? as usize)?;
            let offset = usize::try_from(read_u64(image, header + 24)?).ok()?;
            let length = usize::try_from(read_u64(image, header + 32)?).ok()?;
            (found == name).then_some(Section { index, offset, length })
        })
    }
}

fn read_u16(image: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(image.get(at..at + 2)?.try_into().ok()?))
}

fn read_u32(image: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?))
}

fn read_u64(image: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(image.get(at..at + 8)?.try_into().ok()?))
}

fn text_at(image: &[u8], at: usize) -> Option<&str> {
    let rest = image.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// A symbol as a person reads it: the names of its path, without types and hashes.
///
/// This reads the identifiers out of both manglings of Rust and leaves the rest (RFC 2603 describes the newer one);
/// it is for eyes, not a demangler. Names of other languages stay as they are.
fn readable(symbol: &str) -> String {
    let parts = if let Some(rest) = symbol.strip_prefix("_ZN") {
        let mut parts = legacy_identifiers(rest);
        let is_hash = |part: &String| part.len() == 17 && part.starts_with('h');
        if parts.last().is_some_and(is_hash) {
            parts.pop();
        }
        parts
    } else if let Some(rest) = symbol.strip_prefix("_R") {
        identifiers(rest)
    } else {
        Vec::new()
    };
    if parts.is_empty() { symbol.to_string() } else { parts.join("::") }
}

fn legacy_identifiers(mut rest: &str) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some((name, after)) = counted(rest) {
        parts.push(name.to_string());
        rest = after;
    }
    parts
}

/// Identifiers of the newer mangling. `s` and `B` begin a base-62 number that ends with `_`; everything else before a
/// length is a tag.
fn identifiers(symbol: &str) -> Vec<String> {
    let mut rest = symbol.split('.').next().unwrap_or(symbol);
    let mut parts = Vec::new();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            let Some((name, after)) = counted(rest) else {
                break;
            };
            parts.push(if name.is_empty() { "{closure}".to_string() } else { name.to_string() });
            rest = after;
        } else if matches!(first, 's' | 'B') {
            let Some((_, after)) = rest.split_once('_') else {
                break;
            };
            rest = after;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    parts
}

/// Splits `3abcrest` into `abc` and `rest`.
fn counted(text: &str) -> Option<(&str, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    // A zero is a length of its own: what follows it may be another length.
    let digits = if text.starts_with('0') { 1 } else { digits };
    let length: usize = text.get(..digits)?.parse().ok()?;
    let rest = &text[digits..];
    // An underscore separates a length from a name that begins with a digit or an underscore.
    let rest = if length != 0 { rest.strip_prefix('_').unwrap_or(rest) } else { rest };
    Some((rest.get(..length)?, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable() {
        for (mangled, expected) in [
            ("_RNvNtCsg3SjgaGcPXb_4core9panicking9panic_fmt", "core::panicking::panic_fmt"),
            (
                "_RNvMs1_NtNtCsg3SjgaGcPXb_4core3fmt8buildersNtB5_11DebugStruct5field",
                "core::fmt::builders::DebugStruct::field",
            ),
            ("_RNCNvCs1_7machine4main0B3_", "machine::main::{closure}"),
            ("_RNvCsfLfy6EI15iL_7___rustc17rust_begin_unwind.llvm.147", "__rustc::rust_begin_unwind"),
            ("_ZN4core9panicking5panic17h0123456789abcdefE", "core::panicking::panic"),
            ("syscall_entry", "syscall_entry"),
            ("_R", "_R"),
        ] {
            assert_eq!(readable(mangled), expected);
        }
    }

    /// An ELF file with the sections that matter: null, .ksymtab, .symtab, .strtab, .text, .shstrtab.
    fn image(room: usize, symbols: &[(u64, &str)]) -> Vec<u8> {
        let names = b"\0.ksymtab\0.symtab\0.strtab\0.text\0.shstrtab\0";
        let mut strings = vec![0];
        let mut table = Vec::new();
        for (address, name) in symbols {
            table.extend((strings.len() as u32).to_le_bytes());
            table.extend([2, 0, 4, 0]);
            table.extend(address.to_le_bytes());
            table.extend(0_u64.to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let contents: [(u32, &[u8]); 6] =
            [(0, b""), (1, &vec![0; room]), (10, &table), (18, &strings), (26, b""), (32, names)];
        let mut file = vec![0; 64];
        let mut headers = Vec::new();
        for (name, content) in contents {
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            headers.extend(header);
            file.extend(content);
        }
        file[..5].copy_from_slice(b"\x7fELF\x02");
        let first = file.len() as u64;
        file[40..48].copy_from_slice(&first.to_le_bytes());
        file[60..64].copy_from_slice(&[6, 0, 5, 0]);
        file.extend(headers);
        file
    }

    #[test]
    fn the_reserved_section_is_filled_in_order_and_filling_twice_changes_nothing() {
        let symbols =
            [(BASE + 0x300, "late"), (BASE + 0x100, "early"), (0x20_0000, "low"), (BASE + 0x300, "late_alias")];
        let mut file = image(64, &symbols);
        fill(&mut file).unwrap();
        let table = &file[64..128];
        assert_eq!(table[..8], MAGIC);
        assert_eq!(table[8..16], [2, 0, 0, 0, 11, 0, 0, 0]);
        assert_eq!(table[16..32], [0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 6, 0, 0, 0]);
        assert_eq!(&table[32..43], b"\x05early\x04late");
        let once = file.clone();
        fill(&mut file).unwrap();
        assert_eq!(file, once);
    }

    #[test]
    fn names_are_cut_when_room_is_short_and_refused_when_there_is_none() {
        let long = "n".repeat(200);
        let mut file = image(160, &[(BASE + 1, &long)]);
        fill(&mut file).unwrap();
        assert_eq!(file[64 + HEADER_BYTES + ENTRY_BYTES], 120);
        assert!(fill(&mut image(32, &[(BASE + 1, &long)])).is_err());
        assert!(fill(&mut b"not an image".to_vec()).is_err());
    }
}
