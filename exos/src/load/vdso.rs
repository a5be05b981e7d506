//! The vDSO: a shared object that exos maps into every program, so that reading the clock costs no
//! system call.
//!
//! [`build_vdso`] writes the ELF image that C libraries expect (soname `linux-vdso.so.1`, version
//! `LINUX_2.6`, a System V hash table); its code ([`super::vdso_code`]) reads one data page right
//! below it, which exos fills from the kernel's system page ([`VdsoData`]). Both are frames shared
//! by all programs of a pod. Source for what is looked up: vdso(7), glibc's `dl-vdso.h`, musl's
//! `vdso.c`; for the formats, the System V ABI and the Linux Standard Base (symbol versions).

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::boot::SystemPage;
use aegis_abi::layout::PAGE_SIZE;

use crate::error::{Errno, Result};
use crate::load::vdso_code::{FUNCTIONS, assemble, code_bytes, field};
use crate::mem::{AddressSpace, AreaLabel, FixedPages, FramePool, MapRequest, Placement, Protection};

const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
const SYMBOL_COUNT: usize = FUNCTIONS.len() + 1;
const BUCKET_COUNT: u32 = 3;
const DYNAMIC_COUNT: u64 = 10;
/// Section names, in the order of the section headers; the first is the null section's.
const SECTIONS: [&str; 9] =
    ["", ".dynsym", ".hash", ".gnu.version", ".gnu.version_d", ".dynstr", ".dynamic", ".text", ".shstrtab"];
const TEXT_SECTION: u16 = 7;

/// What the data page tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VdsoData {
    /// The clock, as the kernel's system page describes it.
    pub clock: SystemPage,
    /// Nanoseconds to add to the time since the kernel's start for the time since 1970.
    pub realtime_offset_ns: u64,
    /// The time-stamp counter may be read by programs and is the clock.
    pub has_clock: bool,
    /// `RDTSCP` gives the processor's number.
    pub has_processor_number: bool,
}

impl VdsoData {
    /// The bytes of the data page's start.
    #[must_use]
    pub fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut put = |offset: u32, value: &[u8]| {
            bytes[offset as usize..offset as usize + value.len()].copy_from_slice(value);
        };
        // The code shifts by at most 63; a larger shift would mean a clock that stands still.
        let has_clock = self.has_clock && self.clock.clock_shift < 64;
        put(field::BASE_NS, &self.clock.clock_base_ns.to_le_bytes());
        put(field::BASE_TSC, &self.clock.clock_base_tsc.to_le_bytes());
        put(field::MULTIPLIER, &self.clock.clock_multiplier.to_le_bytes());
        put(field::SHIFT, &self.clock.clock_shift.to_le_bytes());
        put(field::HAS_CLOCK, &u32::from(has_clock).to_le_bytes());
        put(field::REALTIME_OFFSET_NS, &self.realtime_offset_ns.to_le_bytes());
        put(field::HAS_PROCESSOR_NUMBER, &u32::from(self.has_processor_number).to_le_bytes());
        bytes
    }
}

/// The vDSO of a pod, in frames.
pub struct VdsoPages {
    pool: Arc<FramePool>,
    data: Arc<FixedPages>,
    code: Arc<FixedPages>,
}

impl VdsoPages {
    /// Puts `image`, which [`build_vdso`] made (at build time, as it never differs), into frames. `ENOMEM` if there
    /// are none.
    pub fn new(pool: &Arc<FramePool>, image: &[u8], data: &VdsoData) -> Result<Self> {
        let mut frames = Vec::new();
        for page in image.chunks(PAGE_SIZE as usize) {
            let frame = pool.allocate_ref()?;
            pool.bytes().write(frame.frame(), 0, page);
            frames.push(frame);
        }
        let vdso = Self {
            pool: Arc::clone(pool),
            data: FixedPages::new(alloc::vec![pool.allocate_ref()?]),
            code: FixedPages::new(frames),
        };
        for frame in vdso.data.frames() {
            pool.bytes().write(frame.frame(), 0, &data.encode());
        }
        Ok(vdso)
    }

    /// Changes what is added to the time since the kernel's start, for all programs at once.
    pub fn set_realtime_offset(&self, offset_ns: u64) {
        for frame in self.data.frames() {
            self.pool.bytes().write(frame.frame(), field::REALTIME_OFFSET_NS as usize, &offset_ns.to_le_bytes());
        }
    }

    /// Maps data and code into a space; answers the address of the ELF image, for `AT_SYSINFO_EHDR`.
    pub fn map(&self, space: &mut AddressSpace) -> Result<u64> {
        let code_bytes = self.code.frames().len() as u64 * PAGE_SIZE;
        let data_start = space.place(Placement::Hint(0), PAGE_SIZE + code_bytes)?;
        let code_start = data_start + PAGE_SIZE;
        let read = Protection::READ;
        let data = self.data.clone();
        let mut request = MapRequest::file(Placement::FixedNoReplace(data_start), PAGE_SIZE, read, data, 0);
        request.label = AreaLabel::Vvar;
        space.map(request)?;
        let rights = Protection::READ | Protection::EXECUTE;
        let code = self.code.clone();
        let mut request = MapRequest::file(Placement::FixedNoReplace(code_start), code_bytes, rights, code, 0);
        request.label = AreaLabel::Vdso;
        space.map(request).map_err(|_| Errno::ENOMEM)?;
        Ok(code_start)
    }
}

/// The places of the parts in the image; all parts' sizes are known beforehand.
struct Places {
    symbols: u64,
    hash: u64,
    versions: u64,
    definitions: u64,
    strings: u64,
    dynamic: u64,
    text: u64,
    section_names: u64,
    sections: u64,
}

/// The ELF image; its data page must lie right below it.
#[must_use]
pub fn build_vdso() -> Vec<u8> {
    let strings = StringTable::new(FUNCTIONS.iter().copied().chain([SONAME, VERSION]));
    let section_names = StringTable::new(SECTIONS[1..].iter().copied());
    let symbols = 64 + 2 * 56;
    let hash = symbols + SYMBOL_COUNT as u64 * 24;
    let versions = hash + (2 + u64::from(BUCKET_COUNT) + SYMBOL_COUNT as u64) * 4;
    let definitions = align(versions + SYMBOL_COUNT as u64 * 2, 4);
    let string_start = definitions + 2 * 28;
    let dynamic = align(string_start + strings.bytes.len() as u64, 8);
    let text = align(dynamic + DYNAMIC_COUNT * 16, 16);
    let section_name_start = text + code_bytes();
    let places = Places {
        symbols,
        hash,
        versions,
        definitions,
        strings: string_start,
        dynamic,
        text,
        section_names: section_name_start,
        sections: align(section_name_start + section_names.bytes.len() as u64, 8),
    };
    let (code, bounds) = assemble(places.text, PAGE_SIZE);
    let mut image = Image { bytes: Vec::new() };
    write_headers(&mut image, &places);
    write_symbols(&mut image, &places, &strings, &bounds);
    write_versions(&mut image, &places, &strings);
    image.put(places.strings, &strings.bytes);
    write_dynamic(&mut image, &places, &strings);
    image.put(places.text, &code);
    image.put(places.section_names, &section_names.bytes);
    write_sections(&mut image, &places, &strings, &section_names);
    image.bytes
}

fn write_headers(image: &mut Image, places: &Places) {
    let end = places.sections + SECTIONS.len() as u64 * 64;
    image.put(0, b"\x7fELF\x02\x01\x01");
    image.put_words16(16, &[3, 62]);
    image.put_words32(20, &[1]);
    image.put_words64(24, &[places.text, 64, places.sections]);
    image.put_words16(52, &[64, 56, 2, 64, SECTIONS.len() as u16, SECTIONS.len() as u16 - 1]);
    // PT_LOAD, readable and executable.
    image.put_words32(64, &[1, 5]);
    image.put_words64(72, &[0, 0, 0, end, end, PAGE_SIZE]);
    // PT_DYNAMIC, readable.
    let dynamic_bytes = DYNAMIC_COUNT * 16;
    image.put_words32(120, &[2, 4]);
    let dynamic = places.dynamic;
    image.put_words64(128, &[dynamic, dynamic, dynamic, dynamic_bytes, dynamic_bytes, 8]);
}

fn write_symbols(image: &mut Image, places: &Places, strings: &StringTable, bounds: &[(u64, u64); FUNCTIONS.len()]) {
    let mut buckets = [0_u32; BUCKET_COUNT as usize];
    let mut chains = [0_u32; SYMBOL_COUNT];
    for (index, (name, &(start, length))) in FUNCTIONS.iter().zip(bounds).enumerate() {
        let number = index + 1;
        let at = places.symbols + number as u64 * 24;
        image.put_words32(at, &[strings.offset(name)]);
        // Global function, default visibility.
        image.put(at + 4, &[0x12, 0]);
        image.put_words16(at + 6, &[TEXT_SECTION]);
        image.put_words64(at + 8, &[places.text + start, length]);
        let bucket = (hash_of(name) % BUCKET_COUNT) as usize;
        chains[number] = buckets[bucket];
        buckets[bucket] = number as u32;
    }
    image.put_words32(places.hash, &[BUCKET_COUNT, SYMBOL_COUNT as u32]);
    image.put_words32(places.hash + 8, &buckets);
    image.put_words32(places.hash + 8 + u64::from(BUCKET_COUNT) * 4, &chains);
}

fn write_versions(image: &mut Image, places: &Places, strings: &StringTable) {
    // The null symbol is local; all others have version 2.
    image.put_words16(places.versions + 2, &[2; FUNCTIONS.len()]);
    // Definition 1 names the object itself (VER_FLG_BASE), definition 2 the version.
    for (index, (name, flags, next)) in [(SONAME, 1, 28), (VERSION, 0, 0)].into_iter().enumerate() {
        let at = places.definitions + index as u64 * 28;
        image.put_words16(at, &[1, flags, index as u16 + 1, 1]);
        image.put_words32(at + 8, &[hash_of(name), 20, next, strings.offset(name), 0]);
    }
}

fn write_dynamic(image: &mut Image, places: &Places, strings: &StringTable) {
    let entries: [(u64, u64); DYNAMIC_COUNT as usize] = [
        (14, u64::from(strings.offset(SONAME))), // DT_SONAME
        (4, places.hash),                        // DT_HASH
        (5, places.strings),                     // DT_STRTAB
        (6, places.symbols),                     // DT_SYMTAB
        (10, strings.bytes.len() as u64),        // DT_STRSZ
        (11, 24),                                // DT_SYMENT
        (0x6fff_fff0, places.versions),          // DT_VERSYM
        (0x6fff_fffc, places.definitions),       // DT_VERDEF
        (0x6fff_fffd, 2),                        // DT_VERDEFNUM
        (0, 0),                                  // DT_NULL
    ];
    for (index, (tag, value)) in entries.into_iter().enumerate() {
        image.put_words64(places.dynamic + index as u64 * 16, &[tag, value]);
    }
}

/// Section headers are for tools; the C libraries do without.
fn write_sections(image: &mut Image, places: &Places, strings: &StringTable, section_names: &StringTable) {
    let symbols = SYMBOL_COUNT as u64;
    let section = |kind, start, length| Section { kind, start, length, ..Section::default() };
    let strings_bytes = strings.bytes.len() as u64;
    let names_bytes = section_names.bytes.len() as u64;
    let sections = [
        Section { link: 5, info: 1, alignment: 8, entry: 24, ..section(11, places.symbols, symbols * 24) },
        Section { link: 1, alignment: 4, entry: 4, ..section(5, places.hash, places.versions - places.hash) },
        Section { link: 1, alignment: 2, entry: 2, ..section(0x6fff_ffff, places.versions, symbols * 2) },
        Section { link: 5, info: 2, alignment: 4, ..section(0x6fff_fffd, places.definitions, 56) },
        section(3, places.strings, strings_bytes),
        Section { link: 5, alignment: 8, entry: 16, ..section(6, places.dynamic, DYNAMIC_COUNT * 16) },
        Section { flags: 6, alignment: 16, ..section(1, places.text, code_bytes()) },
        Section { flags: 0, ..section(3, places.section_names, names_bytes) },
    ];
    image.put(places.sections, &[0; 64]);
    for (index, section) in sections.iter().enumerate() {
        let at = places.sections + (index as u64 + 1) * 64;
        section.write(image, at, section_names.offset(SECTIONS[index + 1]));
    }
}

/// The fields of a section header that differ.
struct Section {
    kind: u32,
    /// Allocated 2, executable 4.
    flags: u64,
    start: u64,
    length: u64,
    link: u32,
    info: u32,
    alignment: u64,
    entry: u64,
}

impl Section {
    fn write(&self, image: &mut Image, at: u64, name: u32) {
        let address = if self.flags == 0 { 0 } else { self.start };
        image.put_words32(at, &[name, self.kind]);
        image.put_words64(at + 8, &[self.flags, address, self.start, self.length]);
        image.put_words32(at + 40, &[self.link, self.info]);
        image.put_words64(at + 48, &[self.alignment, self.entry]);
    }
}

impl Default for Section {
    fn default() -> Self {
        Self { kind: 0, flags: 2, start: 0, length: 0, link: 0, info: 0, alignment: 1, entry: 0 }
    }
}

struct Image {
    bytes: Vec<u8>,
}

impl Image {
    fn put(&mut self, at: u64, from: &[u8]) {
        let (start, end) = (at as usize, at as usize + from.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(from);
    }

    fn put_words16(&mut self, at: u64, words: &[u16]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + index as u64 * 2, &word.to_le_bytes());
        }
    }

    fn put_words32(&mut self, at: u64, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + index as u64 * 4, &word.to_le_bytes());
        }
    }

    fn put_words64(&mut self, at: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + index as u64 * 8, &word.to_le_bytes());
        }
    }
}

struct StringTable {
    bytes: Vec<u8>,
    entries: Vec<(&'static str, u32)>,
}

impl StringTable {
    fn new(names: impl Iterator<Item = &'static str>) -> Self {
        let mut table = Self { bytes: alloc::vec![0], entries: Vec::new() };
        for name in names {
            table.entries.push((name, table.bytes.len() as u32));
            table.bytes.extend_from_slice(name.as_bytes());
            table.bytes.push(0);
        }
        table
    }

    fn offset(&self, name: &str) -> u32 {
        self.entries.iter().find(|(found, _)| *found == name).map_or(0, |&(_, offset)| offset)
    }
}

/// The System V ABI's hash of a symbol name.
fn hash_of(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

fn align(address: u64, alignment: u64) -> u64 {
    address.next_multiple_of(alignment)
}
