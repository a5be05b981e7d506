//! The memory that a program finds at its start: arguments, environment, auxiliary vector.
//!
//! From the top down, as Linux lays it out (`fs/exec.c`, `fs/binfmt_elf.c`) and as programs that
//! overwrite their arguments rely on: eight zero bytes, the path of the executable, the environment
//! strings, the argument strings, then (aligned) the platform's name and sixteen random bytes, then
//! the vectors, whose first word (the argument count) is where RSP points, 16-byte aligned.

use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::PAGE_SIZE;

use crate::error::{Errno, Result};
use crate::reserve;

/// Longest single argument or environment string, with its zero byte (Linux's `MAX_ARG_STRLEN`).
pub const STRING_BYTES_MAX: usize = 128 * 1024;
/// Bytes of strings and pointers that are allowed under any stack limit (`ARG_MAX`).
pub const STRINGS_BYTES_MIN: u64 = 128 * 1024;
/// Bytes of strings and pointers that no stack limit allows to exceed (three quarters of 8 MiB).
pub const STRINGS_BYTES_MAX: u64 = 6 << 20;
/// Auxiliary vector: clock ticks a second.
pub const CLOCK_TICKS: u64 = 100;

/// Entry types of the auxiliary vector (System V ABI, AMD64 supplement, 3.4.3; Linux's `auxvec.h`).
pub mod kind {
    #![expect(missing_docs, reason = "the names of elf.h")]
    pub const NULL: u64 = 0;
    pub const PHDR: u64 = 3;
    pub const PHENT: u64 = 4;
    pub const PHNUM: u64 = 5;
    pub const PAGESZ: u64 = 6;
    pub const BASE: u64 = 7;
    pub const FLAGS: u64 = 8;
    pub const ENTRY: u64 = 9;
    pub const UID: u64 = 11;
    pub const EUID: u64 = 12;
    pub const GID: u64 = 13;
    pub const EGID: u64 = 14;
    pub const PLATFORM: u64 = 15;
    pub const HWCAP: u64 = 16;
    pub const CLKTCK: u64 = 17;
    pub const SECURE: u64 = 23;
    pub const RANDOM: u64 = 25;
    pub const HWCAP2: u64 = 26;
    pub const EXECFN: u64 = 31;
    pub const SYSINFO_EHDR: u64 = 33;
    pub const MINSIGSTKSZ: u64 = 51;
}

/// Most entries of the auxiliary vector.
const AUXILIARY_COUNT_MAX: usize = 21;

/// `HWCAP2`: the program may use the instructions that read and write the FS and GS bases.
pub const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// What the program is told, apart from its strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartFacts {
    /// Program headers in memory.
    pub table_address: u64,
    /// Number of program headers (`AT_PHNUM`).
    pub table_entries: u64,
    /// Base of the interpreter; 0 without one.
    pub interpreter_base: u64,
    /// The program's own entry point.
    pub entry: u64,
    /// The vDSO, if there is one.
    pub vdso: Option<u64>,
    /// Real and effective user, real and effective group.
    pub identity: [u32; 4],
    /// CPUID leaf 1, EDX.
    pub processor_features: u32,
    /// FS and GS bases can be written by programs.
    pub has_fsgsbase: bool,
    /// Bytes that a signal frame takes at least.
    pub signal_stack_bytes: u64,
    /// Unpredictable bytes for the program (stack protector, hash seeds).
    pub random: [u8; 16],
}

/// A finished stack: `bytes` belong at `start` and end at the stack's top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackImage {
    /// RSP of the program.
    pub start: u64,
    /// What is there, up to the top.
    pub bytes: Vec<u8>,
    /// Addresses of the argument strings, for `/proc/self/cmdline`.
    pub arguments: Range<u64>,
    /// Addresses of the environment strings, for `/proc/self/environ`.
    pub environment: Range<u64>,
    /// The auxiliary vector, for `/proc/self/auxv`.
    pub auxiliary: Vec<u8>,
}

/// Whether the strings fit, before anything of the old program is lost, and what they take: `E2BIG` otherwise.
pub fn check_strings(
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    executable: &[u8],
    stack_limit_bytes: u64,
) -> Result<u64> {
    let limit = (stack_limit_bytes / 4).clamp(STRINGS_BYTES_MIN, STRINGS_BYTES_MAX);
    let mut total = (arguments.len().max(1) + environment.len()) as u64 * 8;
    for text in arguments.iter().chain(environment) {
        if text.len() >= STRING_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        total += text.len() as u64 + 1;
    }
    total += executable.len() as u64 + 1;
    if total > limit { Err(Errno::E2BIG) } else { Ok(total) }
}

impl StackImage {
    /// Lays out a stack that ends at `top` (page-aligned). Strings hold no zero byte. A program
    /// without arguments gets one empty one, as Linux has done since 5.18.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn build(
        top: u64,
        arguments: &[Vec<u8>],
        environment: &[Vec<u8>],
        executable: &[u8],
        facts: &StartFacts,
    ) -> Result<Self> {
        let empty = [Vec::new()];
        let arguments = if arguments.is_empty() { &empty } else { arguments };
        let length = |strings: &[Vec<u8>]| -> u64 { strings.iter().map(|text| text.len() as u64 + 1).sum() };
        let executable_start = top - 8 - (executable.len() as u64 + 1);
        let environment_start = executable_start - length(environment);
        let arguments_start = environment_start - length(arguments);
        let platform = (arguments_start & !15) - 16;
        let random = platform - 16;
        let auxiliary = auxiliary_vector(facts, executable_start, platform, random);
        let words = 3 + arguments.len() + environment.len() + auxiliary.len();
        let start = (random - words as u64 * 8) & !15;

        let length = (top - start) as usize;
        let mut image = Writer { start, bytes: reserve::vector(length)?, next: start };
        image.bytes.resize(length, 0);
        image.word(arguments.len() as u64);
        image.pointers(arguments, arguments_start);
        image.pointers(environment, environment_start);
        let auxiliary_start = (image.next - start) as usize;
        let auxiliary_bytes = &mut image.bytes[auxiliary_start..auxiliary_start + auxiliary.len() * 8];
        for (bytes, word) in auxiliary_bytes.chunks_exact_mut(8).zip(&auxiliary) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let auxiliary = auxiliary_bytes.to_vec();
        image.put(random, &facts.random);
        image.put(platform, b"x86_64\0");
        image.strings(arguments, arguments_start);
        image.strings(environment, environment_start);
        image.put(executable_start, executable);
        Ok(Self {
            start,
            bytes: image.bytes,
            arguments: arguments_start..environment_start,
            environment: environment_start..executable_start,
            auxiliary,
        })
    }
}

struct Writer {
    start: u64,
    bytes: Vec<u8>,
    next: u64,
}

impl Writer {
    fn put(&mut self, address: u64, from: &[u8]) {
        let offset = (address - self.start) as usize;
        self.bytes[offset..offset + from.len()].copy_from_slice(from);
    }

    fn word(&mut self, word: u64) {
        self.put(self.next, &word.to_le_bytes());
        self.next += 8;
    }

    /// Addresses of strings that lie one behind the other, and a zero.
    fn pointers(&mut self, strings: &[Vec<u8>], mut address: u64) {
        for text in strings {
            self.word(address);
            address += text.len() as u64 + 1;
        }
        self.word(0);
    }

    fn strings(&mut self, strings: &[Vec<u8>], mut address: u64) {
        for text in strings {
            self.put(address, text);
            address += text.len() as u64 + 1;
        }
    }
}

/// Type and value of each entry, in Linux's order.
fn auxiliary_vector(facts: &StartFacts, executable: u64, platform: u64, random: u64) -> Vec<u64> {
    let [uid, euid, gid, egid] = facts.identity.map(u64::from);
    let is_secure = uid != euid || gid != egid;
    let mut vector = Vec::with_capacity(2 * AUXILIARY_COUNT_MAX);
    if let Some(vdso) = facts.vdso {
        vector.extend([kind::SYSINFO_EHDR, vdso]);
    }
    let capabilities = if facts.has_fsgsbase { HWCAP2_FSGSBASE } else { 0 };
    for (kind, value) in [
        (kind::MINSIGSTKSZ, facts.signal_stack_bytes),
        (kind::HWCAP, u64::from(facts.processor_features)),
        (kind::PAGESZ, PAGE_SIZE),
        (kind::CLKTCK, CLOCK_TICKS),
        (kind::PHDR, facts.table_address),
        (kind::PHENT, 56),
        (kind::PHNUM, facts.table_entries),
        (kind::BASE, facts.interpreter_base),
        (kind::FLAGS, 0),
        (kind::ENTRY, facts.entry),
        (kind::UID, uid),
        (kind::EUID, euid),
        (kind::GID, gid),
        (kind::EGID, egid),
        (kind::SECURE, u64::from(is_secure)),
        (kind::RANDOM, random),
        (kind::HWCAP2, capabilities),
        (kind::EXECFN, executable),
        (kind::PLATFORM, platform),
        (kind::NULL, 0),
    ] {
        vector.extend([kind, value]);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::{StackImage, StartFacts, check_strings, kind};
    use crate::error::Errno;

    const TOP: u64 = 0x7fff_ffff_f000;

    fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    fn word(image: &StackImage, address: u64) -> u64 {
        let offset = (address - image.start) as usize;
        u64::from_le_bytes(image.bytes[offset..offset + 8].try_into().expect("eight"))
    }

    fn text(image: &StackImage, address: u64) -> String {
        let tail = &image.bytes[(address - image.start) as usize..];
        let end = tail.iter().position(|&byte| byte == 0).expect("terminated");
        String::from_utf8(tail[..end].to_vec()).expect("ASCII")
    }

    /// Reads the stack as a C library does.
    fn parse(image: &StackImage) -> (Vec<String>, Vec<String>, Vec<(u64, u64)>) {
        let mut next = image.start;
        let mut take = || {
            next += 8;
            word(image, next - 8)
        };
        let count = take();
        let arguments = (0..count).map(|_| text(image, take())).collect();
        assert_eq!(take(), 0);
        let mut environment = Vec::new();
        loop {
            match take() {
                0 => break,
                address => environment.push(text(image, address)),
            }
        }
        let mut auxiliary = Vec::new();
        loop {
            match (take(), take()) {
                (0, _) => break,
                pair => auxiliary.push(pair),
            }
        }
        (arguments, environment, auxiliary)
    }

    #[test]
    fn a_program_finds_what_it_was_given() {
        let facts = StartFacts {
            entry: 0x1234,
            vdso: Some(0x7000_0000),
            random: *b"0123456789abcdef",
            has_fsgsbase: true,
            ..StartFacts::default()
        };
        for extra in 0..20 {
            let arguments = strings(&["prog", "", &"x".repeat(extra)]);
            let environment = strings(&["A=1", "PATH=/bin"]);
            let image = StackImage::build(TOP, &arguments, &environment, b"/bin/prog", &facts).unwrap();
            assert_eq!(image.start % 16, 0);
            assert_eq!(image.start + image.bytes.len() as u64, TOP);
            let (found_arguments, found_environment, auxiliary) = parse(&image);
            assert_eq!(found_arguments[2].len(), extra);
            assert_eq!(found_environment, ["A=1", "PATH=/bin"]);
            let value = |kind| {
                let entry = auxiliary.iter().find(|(found, _)| *found == kind);
                entry.unwrap_or_else(|| panic!("no entry {kind}")).1
            };
            assert_eq!(auxiliary[0], (kind::SYSINFO_EHDR, 0x7000_0000));
            assert_eq!(value(kind::ENTRY), 0x1234);
            assert_eq!(value(kind::PAGESZ), 4096);
            assert_eq!(value(kind::HWCAP2), 2);
            assert_eq!(text(&image, value(kind::EXECFN)), "/bin/prog");
            assert_eq!(text(&image, value(kind::PLATFORM)), "x86_64");
            assert_eq!(&text(&image, value(kind::RANDOM))[..16], "0123456789abcdef");
            assert_eq!(image.auxiliary.len(), (auxiliary.len() + 1) * 16);
            let length = image.arguments.end - image.arguments.start;
            assert_eq!(length, 5 + 1 + extra as u64 + 1);
            assert_eq!(text(&image, image.environment.start), "A=1");
            assert_eq!(word(&image, TOP - 8), 0);
        }
    }

    #[test]
    fn no_arguments_become_an_empty_one() {
        let image = StackImage::build(TOP, &[], &[], b"x", &StartFacts::default()).unwrap();
        assert_eq!(parse(&image).0, [""]);
    }

    #[test]
    fn strings_are_limited() {
        let check = |sizes: &[usize], stack_limit| {
            let texts: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![b'a'; size]).collect();
            check_strings(&texts, &[], b"/x", stack_limit).map(|_| ())
        };
        let big = Err(Errno::E2BIG);
        assert_eq!(check(&[131_071], 8 << 20), Ok(()));
        assert_eq!(check(&[131_072], 8 << 20), big);
        assert_eq!(check(&[120_000; 17], 8 << 20), Ok(()));
        assert_eq!(check(&[120_000; 18], 8 << 20), big, "a quarter of the stack limit");
        assert_eq!(check(&[120_000; 52], u64::MAX), Ok(()));
        assert_eq!(check(&[120_000; 53], u64::MAX), big, "6 MiB at most");
        assert_eq!(check(&[120_000], 4096), Ok(()), "128 KiB in any case");
        assert_eq!(check(&[0; 15_000], 4096), big, "pointers count");
    }

    #[test]
    fn long_strings_ask_for_memory_and_are_refused() {
        use crate::reserve::{Level, set_level};
        let texts = [vec![b'a'; 100_000]];
        set_level(Level::Short);
        let refused = StackImage::build(TOP, &texts, &[], b"x", &StartFacts::default());
        set_level(Level::Whole);
        assert_eq!(refused.err(), Some(Errno::ENOMEM));
        assert!(StackImage::build(TOP, &texts, &[], b"x", &StartFacts::default()).is_ok());
    }
}
