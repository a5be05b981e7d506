//! The vDSO as a C library uses it: found through its dynamic section, and called.
//!
//! The image is mapped into this process with its data page below it, resolved by the rules of musl
//! (hash table length, symbol table, version) and read again by the `object` crate. Called
//! functions are compared with the same formula computed here, between two readings of the
//! time-stamp counter, so nothing depends on how long anything takes.
#![allow(unsafe_code, reason = "maps and calls machine code, which is what is tested")]

use std::collections::BTreeMap;

use aegis_abi::boot::SystemPage;
use exos::load::vdso::{VdsoData, build_vdso};
use object::LittleEndian;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

const PAGE: usize = 4096;
const NAMES: [&str; 5] =
    ["__vdso_clock_getres", "__vdso_clock_gettime", "__vdso_getcpu", "__vdso_gettimeofday", "__vdso_time"];

unsafe extern "C" {
    fn mmap(at: *mut u8, length: usize, rights: i32, flags: i32, file: i32, offset: i64) -> *mut u8;
    fn mprotect(at: *mut u8, length: usize, rights: i32) -> i32;
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    fn clock_getres(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// The vDSO in this process.
struct Mapped {
    base: *mut u8,
    functions: BTreeMap<String, usize>,
}

impl Mapped {
    fn new(data: &VdsoData) -> Self {
        let image = build_vdso();
        let length = PAGE + image.len().next_multiple_of(PAGE);
        // SAFETY: a fresh private anonymous mapping (flags 0x22) that nothing else uses; written
        // inside its length, then made executable.
        let base = unsafe {
            let start = mmap(std::ptr::null_mut(), length, 3, 0x22, -1, 0);
            assert_ne!(start as isize, -1);
            let data = data.encode();
            std::ptr::copy_nonoverlapping(data.as_ptr(), start, data.len());
            std::ptr::copy_nonoverlapping(image.as_ptr(), start.add(PAGE), image.len());
            assert_eq!(mprotect(start.add(PAGE), length - PAGE, 5), 0);
            start.add(PAGE)
        };
        Self { base, functions: resolve_as_musl(&image) }
    }

    fn function(&self, name: &str) -> *mut u8 {
        // SAFETY: offsets were checked against the image by `resolve_as_musl`.
        unsafe { self.base.add(self.functions[name]) }
    }

    fn gettime(&self, clock: i32) -> (i32, [i64; 2]) {
        let mut time = [-1; 2];
        // SAFETY: the mapped function has this signature and writes two words.
        let status = unsafe {
            let call: extern "C" fn(i32, *mut [i64; 2]) -> i32 =
                std::mem::transmute(self.function("__vdso_clock_gettime"));
            call(clock, &raw mut time)
        };
        (status, time)
    }

    fn getres(&self, clock: i32, time: *mut [i64; 2]) -> i32 {
        // SAFETY: the mapped function has this signature; `time` is null or valid for two words.
        unsafe {
            let call: extern "C" fn(i32, *mut [i64; 2]) -> i32 =
                std::mem::transmute(self.function("__vdso_clock_getres"));
            call(clock, time)
        }
    }

    fn gettimeofday(&self, time: *mut [i64; 2], zone: *mut [i32; 2]) -> i32 {
        // SAFETY: the mapped function has this signature; the pointers are null or valid.
        unsafe {
            let call: extern "C" fn(*mut [i64; 2], *mut [i32; 2]) -> i32 =
                std::mem::transmute(self.function("__vdso_gettimeofday"));
            call(time, zone)
        }
    }

    fn time(&self, result: *mut i64) -> i64 {
        // SAFETY: the mapped function has this signature; `result` is null or valid.
        unsafe {
            let call: extern "C" fn(*mut i64) -> i64 = std::mem::transmute(self.function("__vdso_time"));
            call(result)
        }
    }

    fn getcpu(&self, processor: *mut u32, node: *mut u32) -> i32 {
        // SAFETY: the mapped function has this signature; the pointers are null or valid.
        unsafe {
            let call: extern "C" fn(*mut u32, *mut u32, usize) -> i32 =
                std::mem::transmute(self.function("__vdso_getcpu"));
            call(processor, node, 0)
        }
    }
}

fn tsc() -> u64 {
    // SAFETY: every processor of this architecture has the instructions.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

fn half(image: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(image[at..at + 2].try_into().expect("two"))
}

fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four"))
}

fn long(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("eight"))
}

fn text(image: &[u8], at: usize) -> String {
    let end = image[at..].iter().position(|&byte| byte == 0).expect("terminated");
    String::from_utf8(image[at..at + end].to_vec()).expect("ASCII")
}

/// Follows musl's `__vdsosym`: the first PT_LOAD gives the base, the hash table the number of
/// symbols, and the version must match.
fn resolve_as_musl(image: &[u8]) -> BTreeMap<String, usize> {
    let headers = (0..half(image, 56) as usize).map(|index| 64 + index * 56);
    let dynamic = headers.clone().find(|&at| word(image, at) == 2).expect("PT_DYNAMIC");
    let load = headers.clone().find(|&at| word(image, at) == 1).expect("PT_LOAD");
    assert_eq!((long(image, load + 8), long(image, load + 16)), (0, 0));
    assert_eq!(long(image, load + 32), image.len() as u64);
    let mut tags = BTreeMap::new();
    let mut at = long(image, dynamic + 8) as usize;
    while long(image, at) != 0 {
        tags.insert(long(image, at), long(image, at + 8) as usize);
        at += 16;
    }
    let (strings, symbols, hash) = (tags[&5], tags[&6], tags[&4]);
    assert_eq!(text(image, strings + tags[&14]), "linux-vdso.so.1");
    let mut found = BTreeMap::new();
    for index in 0..word(image, hash + 4) as usize {
        let symbol = symbols + index * 24;
        if image[symbol + 4] & 0xf != 2 || half(image, symbol + 6) == 0 {
            continue;
        }
        let name = text(image, strings + word(image, symbol) as usize);
        let version = half(image, tags[&0x6fff_fff0] + index * 2) & 0x7fff;
        assert_eq!(version_name(image, tags[&0x6fff_fffc], strings, version), "LINUX_2.6");
        assert!(hash_chain_finds(image, hash, symbols, strings, &name), "{name}");
        let value = long(image, symbol + 8) as usize;
        assert!(value + long(image, symbol + 16) as usize <= image.len());
        found.insert(name, value);
    }
    found
}

fn version_name(image: &[u8], mut at: usize, strings: usize, version: u16) -> String {
    loop {
        if half(image, at + 2) & 1 == 0 && half(image, at + 4) & 0x7fff == version {
            let auxiliary = at + word(image, at + 12) as usize;
            return text(image, strings + word(image, auxiliary) as usize);
        }
        let next = word(image, at + 16) as usize;
        assert_ne!(next, 0, "no definition of version {version}");
        at += next;
    }
}

/// The lookup of glibc for objects with a System V hash table.
fn hash_chain_finds(image: &[u8], hash: usize, symbols: usize, strings: usize, name: &str) -> bool {
    let wanted = elf::hash(name.as_bytes());
    let buckets = word(image, hash);
    let chains = hash + 8 + buckets as usize * 4;
    let mut index = word(image, hash + 8 + (wanted % buckets) as usize * 4);
    while index != 0 {
        let symbol = symbols + index as usize * 24;
        if text(image, strings + word(image, symbol) as usize) == name {
            return true;
        }
        index = word(image, chains + index as usize * 4);
    }
    false
}

fn counter_data(base: u64, multiplier: u64, shift: u32) -> VdsoData {
    VdsoData {
        clock: SystemPage {
            clock_base_ns: 5_000_000_000,
            clock_base_tsc: base,
            clock_multiplier: multiplier,
            clock_shift: shift,
            ..SystemPage::default()
        },
        realtime_offset_ns: 1_700_000_000_123_456_789,
        has_clock: true,
        has_processor_number: false,
    }
}

fn nanoseconds(data: &VdsoData, counter: u64) -> u64 {
    let ticks = u128::from(counter.saturating_sub(data.clock.clock_base_tsc));
    let passed = (ticks * u128::from(data.clock.clock_multiplier)) >> data.clock.clock_shift;
    data.clock.clock_base_ns + passed as u64
}

#[test]
fn the_image_is_a_shared_object_that_tools_can_read() {
    let image = build_vdso();
    assert!(image.len() <= PAGE, "one page of code is expected, not {}", image.len());
    let file = ElfFile64::<LittleEndian>::parse(&*image).expect("an ELF file");
    let mut names: Vec<_> = file.dynamic_symbols().map(|symbol| symbol.name().expect("named").to_string()).collect();
    names.sort();
    assert_eq!(names, NAMES);
    let header = file.elf_header();
    assert_eq!(header.e_type.get(LittleEndian), elf::ET_DYN);
    let segments = header.program_headers(LittleEndian, &*image).expect("readable");
    let dynamic = segments
        .iter()
        .find_map(|segment| segment.dynamic(LittleEndian, &*image).expect("readable"))
        .expect("PT_DYNAMIC");
    assert!(dynamic.iter().any(|entry| entry.d_tag(LittleEndian) == elf::DT_HASH));
    let versions = file.elf_section_table().versions(LittleEndian, &*image).expect("readable");
    let versions = versions.expect("version sections");
    for index in 1..=NAMES.len() {
        let index = versions.version_index(LittleEndian, object::SymbolIndex(index));
        let version = versions.version(index.into()).expect("readable").expect("a version");
        assert_eq!(version.name(), b"LINUX_2.6");
    }
    let found: Vec<_> = resolve_as_musl(&image).into_keys().collect();
    assert_eq!(found, NAMES);
}

#[test]
fn clocks_follow_the_formula() {
    // Plain ticks; a product that needs more than 64 bits; a base in the future.
    let far = tsc().wrapping_add(1 << 50);
    for (base, multiplier, shift) in [(tsc(), 1, 0), (0, 0x5555_5555_5555, 49), (far, 3, 1)] {
        let data = counter_data(base, multiplier, shift);
        let vdso = Mapped::new(&data);
        for (clock, offset) in [
            (0, data.realtime_offset_ns),
            (1, 0),
            (4, 0),
            (5, data.realtime_offset_ns),
            (6, 0),
            (7, 0),
            (11, data.realtime_offset_ns),
        ] {
            let before = nanoseconds(&data, tsc()) + offset;
            let (status, [seconds, rest]) = vdso.gettime(clock);
            let after = nanoseconds(&data, tsc()) + offset;
            assert_eq!(status, 0);
            assert!((0..1_000_000_000).contains(&rest));
            let answer = seconds as u64 * 1_000_000_000 + rest as u64;
            assert!((before..=after).contains(&answer), "clock {clock}: {before} {answer} {after}");
        }
    }
}

#[test]
fn time_of_day_in_both_units() {
    let data = counter_data(tsc(), 1, 0);
    let vdso = Mapped::new(&data);
    let now = || nanoseconds(&data, tsc()) + data.realtime_offset_ns;
    let (mut time, mut zone) = ([0; 2], [7; 2]);
    let before = now() / 1000;
    assert_eq!(vdso.gettimeofday(&raw mut time, &raw mut zone), 0);
    let after = now() / 1000;
    let answer = time[0] as u64 * 1_000_000 + time[1] as u64;
    assert!((before..=after).contains(&answer));
    assert_eq!(zone, [0, 0]);
    assert_eq!(vdso.gettimeofday(std::ptr::null_mut(), std::ptr::null_mut()), 0);
    let mut stored = 0;
    let before = now() / 1_000_000_000;
    let answer = vdso.time(&raw mut stored);
    let after = now() / 1_000_000_000;
    assert!((before..=after).contains(&(answer as u64)));
    assert_eq!(stored, answer);
    assert!(vdso.time(std::ptr::null_mut()) >= answer);
}

#[test]
fn what_the_page_does_not_know_is_a_system_call() {
    let vdso = Mapped::new(&counter_data(tsc(), 1, 0));
    let real = |clock| {
        let mut time = [0; 2];
        // SAFETY: writes two words.
        let status = unsafe { clock_gettime(clock, &raw mut time) };
        assert_eq!(status, 0);
        time
    };
    // Processor times of process and thread: not before what the system said, not after what it says now.
    for clock in [2, 3] {
        let before = real(clock);
        let (status, answer) = vdso.gettime(clock);
        assert_eq!(status, 0);
        assert!(before <= answer && answer <= real(clock));
    }
    for clock in [12, 99, -1_000_000] {
        assert_eq!(vdso.gettime(clock), (-22, [-1, -1]), "EINVAL of clock {clock}");
    }
    let off = Mapped::new(&VdsoData::default());
    let before = real(1);
    let (status, answer) = off.gettime(1);
    assert_eq!(status, 0);
    assert!(before <= answer && answer <= real(1), "the real clock");
    let mut time = [0; 2];
    assert_eq!(off.gettimeofday(&raw mut time, std::ptr::null_mut()), 0);
    // Linux's `time` is of the last tick, which may have been in the second before.
    assert!(time[0] > 1_600_000_000 && off.time(std::ptr::null_mut()) >= time[0] - 1);
}

#[test]
fn resolutions() {
    let vdso = Mapped::new(&counter_data(tsc(), 1, 0));
    for clock in [0, 1, 4, 7, 11] {
        let mut time = [-1; 2];
        assert_eq!(vdso.getres(clock, &raw mut time), 0);
        assert_eq!(time, [0, 1]);
        assert_eq!(vdso.getres(clock, std::ptr::null_mut()), 0);
    }
    for clock in [2, 5, 6] {
        let (mut time, mut real) = ([-1; 2], [-2; 2]);
        assert_eq!(vdso.getres(clock, &raw mut time), 0);
        // SAFETY: writes two words.
        assert_eq!(unsafe { clock_getres(clock, &raw mut real) }, 0);
        assert_eq!(time, real);
    }
    assert_eq!(vdso.getres(99, std::ptr::null_mut()), -22);
}

#[test]
fn the_processor_s_number_from_either_source() {
    let (mut processor, mut node) = (u32::MAX, u32::MAX);
    let vdso = Mapped::new(&VdsoData::default());
    assert_eq!(vdso.getcpu(&raw mut processor, &raw mut node), 0);
    assert!(processor < 4096 && node < 4096);
    let vdso = Mapped::new(&VdsoData { has_processor_number: true, ..VdsoData::default() });
    (processor, node) = (u32::MAX, u32::MAX);
    assert_eq!(vdso.getcpu(&raw mut processor, &raw mut node), 0);
    assert!(processor < 4096 && node < 1 << 20);
    assert_eq!(vdso.getcpu(std::ptr::null_mut(), std::ptr::null_mut()), 0);
}
