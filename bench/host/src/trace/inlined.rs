//! The kernel's and exos's instructions by the functions that were inlined, innermost first.
//!
//! Whole-program optimisation makes a few large functions of a call's path; the line tables of both files still
//! know where each instruction came from. An instruction that they do not know (assembly) is counted by the
//! symbol that holds it.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Context;
use aegis_abi::layout::{KERNEL_BASE, LIBOS_BASE, LIBOS_IMAGE_BASE};
use aegis_launch::machine::artifacts::Artifacts;
use aegis_launch::symbols::{Symbols, readable};
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

use super::plugin::Counts;
use super::starter::read_file;
use crate::failure::Failure;

/// Functions with less than this part of what was counted are printed as one line.
const SHARE_MIN: f64 = 0.005;

/// One of the two files.
struct Image<'a> {
    context: Option<Context<EndianSlice<'a, LittleEndian>>>,
    symbols: Symbols,
    bias: u64,
}

impl<'a> Image<'a> {
    fn new(bytes: &'a [u8], bias: u64) -> Self {
        let file = ElfFile64::<Endianness>::parse(bytes).ok();
        let section = |id: SectionId| {
            let section = file.as_ref().and_then(|file| file.section_by_name(id.name()));
            let data = section.and_then(|section| section.data().ok()).unwrap_or_default();
            Ok::<_, gimli::Error>(EndianSlice::new(data, LittleEndian))
        };
        let context = Dwarf::load(section).and_then(Context::from_dwarf).ok();
        Self { context, symbols: Symbols::of_elf(bytes, 0), bias }
    }

    /// The innermost function at an address, and its source file.
    fn function(&self, address: u64) -> (String, String) {
        let address = address.wrapping_sub(self.bias);
        let found = self.context.as_ref().and_then(|context| {
            let frame = context.find_frames(address).skip_all_loads().ok()?.next().ok()??;
            let name = frame.function?.raw_name().ok()?.into_owned();
            let file = frame.location.and_then(|location| location.file).unwrap_or_default();
            Some((readable(&name), tail(file).to_string()))
        });
        found.unwrap_or_else(|| {
            let symbol = self.symbols.find(address).map_or("[not known]", |symbol| &symbol.name);
            (symbol.to_string(), String::new())
        })
    }
}

/// The last folders of a source file's path.
fn tail(path: &str) -> &str {
    let slashes = path.rmatch_indices('/').map(|(at, _)| at + 1);
    slashes.take(4).last().map_or(path, |start| &path[start..])
}

/// The table, for each of so many operations. `window` is the file that is in Aegis's window.
pub(super) fn render(counts: &Counts, operations: f64, window: &Path) -> Result<String, Failure> {
    let (kernel, library_os) = (read_file(&Artifacts::find().kernel())?, read_file(window)?);
    let (kernel, library_os) = (Image::new(&kernel, 0), Image::new(&library_os, LIBOS_IMAGE_BASE));
    let mut tallies: HashMap<(&str, String, String), u64> = HashMap::new();
    for (address, executions) in counts.executions.iter().filter(|(address, _)| *address >= LIBOS_BASE) {
        let (place, image) = if *address >= KERNEL_BASE { ("kernel", &kernel) } else { ("window", &library_os) };
        let (name, file) = image.function(*address);
        *tallies.entry((place, name, file)).or_default() += executions;
    }
    let mut rows: Vec<_> = tallies.into_iter().collect();
    rows.sort_by(|(left_key, left), (right_key, right)| right.cmp(left).then_with(|| left_key.cmp(right_key)));
    let total: u64 = rows.iter().map(|(_, executions)| executions).sum();
    let mut text = String::from("  kernel and window (exos, or a native row) by inlined function\n");
    let (mut rest, mut rest_count) = (0, 0);
    for ((place, name, file), executions) in &rows {
        if (*executions as f64) < SHARE_MIN * total as f64 {
            rest += executions;
            rest_count += 1;
            continue;
        }
        text += &format!("  {:>12.1}  {place:<8} {name}  {file}\n", *executions as f64 / operations);
    }
    text += &format!("  {:>12.1}  {rest_count} functions with less than 0.5 % each\n", rest as f64 / operations);
    text += &format!("  {:>12.1}  in all\n", total as f64 / operations);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{Image, tail};

    #[test]
    fn paths_keep_their_end() {
        assert_eq!(tail("/a/b/exos/src/task/signal.rs"), "exos/src/task/signal.rs");
        assert_eq!(tail("main.rs"), "main.rs");
        assert_eq!(tail(""), "");
    }

    #[test]
    fn a_file_without_tables_has_symbols_at_most() {
        let image = Image::new(b"", 0);
        assert_eq!(image.function(0x1000), ("[not known]".into(), String::new()));
    }
}
