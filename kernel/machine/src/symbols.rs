//! The kernel's symbol table for backtraces: found in the image's `.ksymtab` section, put there after the link.
//!
//! `cargo xtask build` (`xtask/src/symbols.rs`) fills the reserved section in place; an image without a table still
//! prints addresses. Layout, little-endian: magic (8 bytes), count (4), bytes of names (4), then `count` entries of
//! {address - [`SYMBOL_BASE`] (4), offset of the name (4)} in ascending order of address, then the names, each with
//! its length in the first byte.

/// First eight bytes of a table.
pub const SYMBOL_MAGIC: [u8; 8] = *b"AEGISSYM";
/// What symbol addresses are relative to: the base of the kernel image's mapping.
pub const SYMBOL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Bytes before the first entry.
pub const SYMBOL_HEADER_BYTES: usize = 16;
/// Bytes of an entry.
pub const SYMBOL_ENTRY_BYTES: usize = 8;

/// The symbol at or before `address`, and the distance to it. Tolerates any content of `table`.
#[must_use]
pub fn lookup(table: &[u8], address: u64) -> Option<(&str, u64)> {
    let word = |offset: usize| -> Option<u32> {
        let bytes = table.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if table.get(..8)? != SYMBOL_MAGIC {
        return None;
    }
    let count = word(8)? as usize;
    let target = u32::try_from(address.checked_sub(SYMBOL_BASE)?).ok()?;
    let entry = |index: usize| SYMBOL_HEADER_BYTES + index * SYMBOL_ENTRY_BYTES;
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if word(entry(middle))? <= target {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let found = entry(low.checked_sub(1)?);
    let name = entry(count).checked_add(word(found + 4)? as usize)?;
    let length = usize::from(*table.get(name)?);
    let name = core::str::from_utf8(table.get(name + 1..name + 1 + length)?).ok()?;
    Some((name, u64::from(target - word(found)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn table(symbols: &[(u32, &str)]) -> Vec<u8> {
        let mut names = Vec::new();
        let mut entries = Vec::new();
        for (address, name) in symbols {
            entries.extend(address.to_le_bytes());
            entries.extend(u32::try_from(names.len()).expect("small").to_le_bytes());
            names.push(u8::try_from(name.len()).expect("short"));
            names.extend(name.as_bytes());
        }
        let mut table = SYMBOL_MAGIC.to_vec();
        table.extend(u32::try_from(symbols.len()).expect("small").to_le_bytes());
        table.extend(u32::try_from(names.len()).expect("small").to_le_bytes());
        table.extend(entries);
        table.extend(names);
        table
    }

    #[test]
    fn the_nearest_symbol_below_is_found() {
        let table = table(&[(0x100, "first"), (0x180, "second"), (0x181, "third")]);
        assert_eq!(lookup(&table, SYMBOL_BASE + 0xff), None);
        assert_eq!(lookup(&table, SYMBOL_BASE + 0x100), Some(("first", 0)));
        assert_eq!(lookup(&table, SYMBOL_BASE + 0x17f), Some(("first", 0x7f)));
        assert_eq!(lookup(&table, SYMBOL_BASE + 0x180), Some(("second", 0)));
        assert_eq!(lookup(&table, SYMBOL_BASE + 0x9000), Some(("third", 0x9000 - 0x181)));
        assert_eq!(lookup(&table, 0x1000), None);
        assert_eq!(lookup(&table, u64::MAX), Some(("third", 0x7fff_ffff - 0x181)));
    }

    #[test]
    fn damaged_tables_answer_nothing() {
        assert_eq!(lookup(&[0; 64], SYMBOL_BASE + 0x100), None);
        let sound = table(&[(0x100, "first"), (0x180, "second")]);
        for length in 0..sound.len() {
            let _ = lookup(&sound[..length], SYMBOL_BASE + 0x200);
        }
        let mut huge = sound.clone();
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(lookup(&huge, SYMBOL_BASE + 0x200), None);
    }
}
