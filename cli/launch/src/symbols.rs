//! Functions by address: what a profile and a trace are printed with.
//!
//! A table is made from an ELF file (its full symbol table, else the dynamic one) or from the text of Linux's
//! `/proc/kallsyms`. Names of Rust are demangled, without the hashes of crates. A file that cannot be read as
//! ELF gives an empty table: what is printed then has addresses in it, and nothing fails.

use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};

/// Where the kernel's image is: what is below is no place in it.
const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
/// Most symbols of one table; the rest of a larger file is left out.
const SYMBOL_COUNT_MAX: usize = 1 << 20;
/// Longest name that is kept; the rest is cut.
const NAME_BYTES_MAX: usize = 240;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// First address of the function.
    pub address: u64,
    /// Its length; 0 if the table does not say, and then it goes on to the next one.
    pub size_bytes: u64,
    /// Its name, for people.
    pub name: String,
}

/// A line of a kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The line, without its end.
    pub text: String,
    /// A function was put behind the address at its end.
    pub is_named: bool,
}

/// The functions of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// In ascending order, one for each address.
    list: Vec<Symbol>,
    /// Loaded parts: offset in the file, bytes there, and the address that the symbols count by.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// The functions of an ELF file that is loaded at `base`.
    pub fn of_elf(bytes: &[u8], base: u64) -> Self {
        let Ok(file) = ElfFile64::parse(bytes) else {
            return Self::default();
        };
        let mut list = functions(&file, false, base);
        if list.is_empty() {
            list = functions(&file, true, base);
        }
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, base.wrapping_add(segment.address()))
        });
        Self { segments: segments.collect(), ..Self::of_list(list) }
    }

    /// The functions in a text of `/proc/kallsyms`: address, type, name, perhaps a module.
    pub fn of_kallsyms(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_text = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next()?.to_string();
            (is_text && address != 0).then_some((0, Symbol { address, size_bytes: 0, name }))
        };
        Self::of_list(text.lines().filter_map(symbol).take(SYMBOL_COUNT_MAX).collect())
    }

    /// Sorts, and keeps the best name of each address: that of the lowest rank, then one that is no linker's mark, then
    /// the shortest.
    fn of_list(mut list: Vec<(u8, Symbol)>) -> Self {
        list.sort_by(|(left_rank, left), (right_rank, right)| {
            let key = |rank: &u8, it: &Symbol| (it.address, *rank, it.name.starts_with("__"), it.name.len());
            key(left_rank, left).cmp(&key(right_rank, right)).then_with(|| left.name.cmp(&right.name))
        });
        list.dedup_by_key(|(_, symbol)| symbol.address);
        Self { list: list.into_iter().map(|(_, symbol)| symbol).collect(), segments: Vec::new() }
    }

    /// The function that holds an address.
    pub fn find(&self, address: u64) -> Option<&Symbol> {
        let index = self.list.partition_point(|symbol| symbol.address <= address).checked_sub(1)?;
        let symbol = &self.list[index];
        let is_inside = symbol.size_bytes == 0 || address - symbol.address < symbol.size_bytes;
        is_inside.then_some(symbol)
    }

    /// The lines of a kernel's log, with the function at each end that is an address of the kernel's image.
    pub fn name_addresses(&self, log: &str) -> Vec<Line> {
        let named = |line: &str| {
            let word = line.rsplit(' ').next().filter(|word| word.len() == 16)?;
            let address = u64::from_str_radix(word, 16).ok().filter(|address| *address >= IMAGE_BASE)?;
            let symbol = self.find(address)?;
            Some(format!("{line} {}+{:#x}", symbol.name, address - symbol.address))
        };
        let line = |line: &str| match named(line.trim_end()) {
            Some(text) => Line { text, is_named: true },
            None => Line { text: line.trim_end().to_string(), is_named: false },
        };
        log.trim_end().lines().map(line).collect()
    }

    /// The place in the file of an address that the symbols count by.
    pub fn offset_of_address(&self, address: u64) -> Option<u64> {
        let holds = |&&(_, length, start): &&(u64, u64, u64)| address.checked_sub(start).is_some_and(|it| it < length);
        self.segments.iter().find(holds).map(|(offset, _, start)| offset + (address - start))
    }

    /// The address that the symbols count by, of a place in the file.
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |&&(start, length, _): &&(u64, u64, u64)| offset.checked_sub(start).is_some_and(|it| it < length);
        self.segments.iter().find(holds).map(|(start, _, address)| address + (offset - start))
    }
}

/// Functions and assembly's labels in code, each with its rank: functions first.
fn functions<'a>(file: &ElfFile64<'a>, is_dynamic: bool, base: u64) -> Vec<(u8, Symbol)> {
    let is_code = |index| file.section_by_index(index).is_ok_and(|section| section.kind() == SectionKind::Text);
    let table = if is_dynamic { file.dynamic_symbols() } else { file.symbols() };
    let function = |symbol: ElfSymbol64<'a, '_>| {
        let rank = match symbol.kind() {
            SymbolKind::Text => 0,
            SymbolKind::Unknown | SymbolKind::Label => 1,
            _ => return None,
        };
        let name = symbol.name().ok().filter(|name| !name.is_empty() && !name.starts_with(['.', '$']))?;
        let address = base.wrapping_add(symbol.address());
        let found = Symbol { address, size_bytes: symbol.size(), name: readable(name) };
        symbol.section_index().is_some_and(is_code).then_some((rank, found))
    };
    table.filter_map(function).take(SYMBOL_COUNT_MAX).collect()
}

/// A name as a person reads it.
pub fn readable(name: &str) -> String {
    // Without the suffixes that linkers and versions of symbols add.
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let mut text = format!("{:#}", rustc_demangle::demangle(name));
    if let Some((name, _)) = text.split_once(".llvm.") {
        text.truncate(name.len());
    }
    while text.len() > NAME_BYTES_MAX {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Symbols, readable};

    #[test]
    fn names_of_rust_lose_their_hashes() {
        assert_eq!(readable("_RNvNtCsg3SjgaGcPXb_4core9panicking9panic_fmt"), "core::panicking::panic_fmt");
        assert_eq!(readable("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(readable("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(readable("syscall_entry"), "syscall_entry");
        assert_eq!(readable(&"x".repeat(999)).len(), super::NAME_BYTES_MAX);
    }

    #[test]
    fn kallsyms_by_address() {
        let text = "ffffffff81000000 T startup\nffffffff81000010 t late\nffffffff81000010 T late_alias\n\
                    ffffffff82000000 D data\n0 t nothing\nrubbish\n";
        let symbols = Symbols::of_kallsyms(text);
        let name = |address| symbols.find(address).map(|symbol| symbol.name.as_str());
        assert_eq!(name(0xffff_ffff_8100_000f), Some("startup"));
        assert_eq!(name(0xffff_ffff_8100_0010), Some("late"));
        assert_eq!(name(0xffff_ffff_8200_0000), Some("late"));
        assert_eq!(name(0x1000), None);
    }

    #[test]
    fn addresses_at_the_end_of_a_line_get_names() {
        let symbols = Symbols::of_kallsyms("ffffffff80001000 T enter\nffffffff80002000 T leave\n1000 T low\n");
        let lines = symbols.name_addresses(
            "panic\r\n  at ffffffff80001010\n  rip ffffffff80001010 rsp 0\n 80001010\n  cr3 0000000000353000\n",
        );
        let texts: Vec<_> = lines.iter().map(|line| (line.text.as_str(), line.is_named)).collect();
        let expected = [
            ("panic", false),
            ("  at ffffffff80001010 enter+0x10", true),
            ("  rip ffffffff80001010 rsp 0", false),
            (" 80001010", false),
            ("  cr3 0000000000353000", false),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn functions_of_this_program() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let symbols = Symbols::of_elf(&own, 0x1000);
        let readable = symbols.list.iter().find(|symbol| symbol.name.ends_with("symbols::readable")).unwrap();
        assert_eq!(symbols.find(readable.address + 1), Some(readable));
        let offset = symbols.offset_of_address(readable.address).unwrap();
        assert_eq!(symbols.address_of_offset(offset), Some(readable.address));
        let unmoved = Symbols::of_elf(&own, 0);
        assert!(unmoved.find(readable.address - 0x1000).is_some_and(|it| it.name == readable.name));
    }

    #[test]
    fn what_is_no_elf_file_has_no_functions() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 4096]] {
            let symbols = Symbols::of_elf(bytes, 0);
            assert_eq!(symbols.find(0), None);
            assert_eq!((symbols.address_of_offset(0), symbols.offset_of_address(0)), (None, None));
        }
    }
}
