//! Runs cases and reports them on the kernel's log.
//!
//! A case is a function that returns `Ok` or the line that failed. Around each case the frames that nobody owns and
//! the capability slots in use are counted: a case that leaks either fails, whatever it returned.

use core::fmt::{self, Write};

use aegis_abi::boot::{BOOT_INFO_MAGIC, BootInfo};
use aegis_abi::call::EnvironmentField;
use aegis_abi::types::{SLOT_MACHINE, SLOT_SELF};
use aegis_abi::{CapSlot, Rights};
use aegis_rt::call;

use crate::{memory, probe};

/// What a case returns: the source line of the first expectation that did not hold.
pub(crate) type CaseResult = Result<(), Failure>;

/// An expectation that did not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// Source line.
    pub(crate) line: u32,
    /// What was found, if it fits a word.
    pub(crate) found: u64,
}

/// A case: its name and its function.
pub(crate) type Case = (&'static str, fn(&Machine) -> CaseResult);

/// A named list of cases.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) cases: &'static [Case],
}

/// What the kernel told us at the start.
pub(crate) struct Machine {
    pub(crate) info: BootInfo,
    /// Processors that run.
    pub(crate) cpu_count: u32,
    /// What the host says about the machine.
    pub(crate) expected: Expected,
}

/// What the host put into the configuration: lines `key=value`; 0 where it said nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Expected {
    /// `cpus`: processors.
    pub(crate) cpu_count: u64,
    /// `memory_mib`: memory.
    pub(crate) memory_mib: u64,
}

/// Fails the case unless the condition holds.
#[macro_export]
macro_rules! expect {
    ($condition:expr) => {
        if !$condition {
            return Err($crate::suite::Failure { line: line!(), found: 0 });
        }
    };
}

/// Fails the case unless both sides are equal; the left one, if an integer, is reported.
#[macro_export]
macro_rules! expect_equal {
    ($left:expr, $right:expr) => {{
        let left = $left;
        if left != $right {
            return Err($crate::suite::Failure { line: line!(), found: $crate::suite::Found::word(&left) });
        }
    }};
}

/// Values that a failure can report.
pub(crate) trait Found {
    /// The value as a word.
    fn word(&self) -> u64;
}

impl Found for u64 {
    fn word(&self) -> u64 {
        *self
    }
}

impl Found for u32 {
    fn word(&self) -> u64 {
        u64::from(*self)
    }
}

impl Found for i32 {
    fn word(&self) -> u64 {
        *self as u64
    }
}

impl Found for usize {
    fn word(&self) -> u64 {
        *self as u64
    }
}

impl Found for bool {
    fn word(&self) -> u64 {
        u64::from(*self)
    }
}

impl<const N: usize> Found for [u64; N] {
    fn word(&self) -> u64 {
        self.first().copied().unwrap_or(0)
    }
}

impl Found for Rights {
    fn word(&self) -> u64 {
        u64::from(self.bits())
    }
}

impl Found for call::Outcome {
    fn word(&self) -> u64 {
        match self {
            Ok(value) => *value,
            Err(refusal) => 1 << 63 | (refusal.status as u64) << 32 | refusal.value & 0xffff_ffff,
        }
    }
}

/// Whether a call was refused with `status`.
#[macro_export]
macro_rules! expect_refused {
    ($outcome:expr, $status:expr) => {{
        let outcome: aegis_rt::call::Outcome = $outcome;
        match outcome {
            Err(refusal) if refusal.status == $status => {}
            other => {
                return Err($crate::suite::Failure { line: line!(), found: $crate::suite::Found::word(&other) });
            }
        }
    }};
}

/// The value of a call that must succeed.
#[macro_export]
macro_rules! expect_ok {
    ($outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(refusal) => {
                let outcome: aegis_rt::call::Outcome = Err(refusal);
                return Err($crate::suite::Failure { line: line!(), found: $crate::suite::Found::word(&outcome) });
            }
        }
    };
}

/// A line that is built first and written with one call, so that lines of several environments do not mix.
struct Line {
    bytes: [u8; 200],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let count = text.len().min(room);
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

/// Prints one line.
pub(crate) fn print(arguments: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 200], length: 0 };
    // A line that does not fit is cut; there is nobody to tell.
    let _ = line.write_fmt(arguments);
    let _ = line.write_str("\n");
    let _ = call::machine_log(SLOT_MACHINE, &line.bytes[..line.length]);
}

const SUITES: &[Suite] = &[
    crate::s00_boot::SUITE,
    crate::s01_capability::SUITE,
    crate::s02_memory::SUITE,
    crate::s03_upcall::SUITE,
    crate::s04_environment::SUITE,
    crate::s05_bell::SUITE,
    crate::s06_gate::SUITE,
    crate::s07_slice::SUITE,
    crate::s08_hostile::SUITE,
    crate::s09_device::SUITE,
    crate::s10_space::SUITE,
    crate::s11_ticket::SUITE,
    crate::s12_drivers::SUITE,
    crate::s13_latency::SUITE,
    crate::s14_extension::SUITE,
];

/// Where the kernel enters: RDI is the boot information.
pub(crate) extern "C" fn start(info: *const BootInfo) -> ! {
    // SAFETY: the kernel maps the boot information before it starts the first environment.
    let info = unsafe { info.read() };
    if info.magic != BOOT_INFO_MAGIC {
        print(format_args!("suite: the boot information has no magic number"));
        finish(0, 1);
    }
    probe::install();
    // SAFETY: the kernel maps the system page in every environment.
    let cpu_count = unsafe { aegis_rt::clock::system_page() }.processor_count;
    let mut machine = Machine { info, cpu_count, expected: Expected::default() };
    let wanted = memory::configuration(&machine);
    machine.expected = expected(wanted);
    let is_wanted = |name: &str| lines(wanted).any(|line| line == name.as_bytes());
    let wants_all = !lines(wanted).any(|line| !line.contains(&b'='));
    let mut passed = 0;
    let mut failed = 0;
    for suite in SUITES {
        if !wants_all && !is_wanted(suite.name) {
            continue;
        }
        for (name, case) in suite.cases {
            if run(&machine, suite.name, name, *case) {
                passed += 1;
            } else {
                failed += 1;
            }
        }
    }
    finish(passed, failed)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn expected(text: &[u8]) -> Expected {
    let value = |key: &[u8]| {
        let number = lines(text).find_map(|line| line.strip_prefix(key))?;
        core::str::from_utf8(number).ok()?.parse().ok()
    };
    Expected { cpu_count: value(b"cpus=").unwrap_or(0), memory_mib: value(b"memory_mib=").unwrap_or(0) }
}

/// Runs one case with the baseline around it.
fn run(machine: &Machine, suite: &str, name: &str, case: fn(&Machine) -> CaseResult) -> bool {
    let before = baseline();
    let result = case(machine);
    probe::reset();
    memory::release_scratch();
    let after = baseline();
    match result {
        Err(failure) => {
            print(format_args!("case {suite}/{name} FAILED at line {}, found {:#x}", failure.line, failure.found));
            false
        }
        Ok(()) if before != after => {
            print(format_args!(
                "case {suite}/{name} FAILED: leak, (free, owned, quota, slots) {before:?} became {after:?}"
            ));
            false
        }
        Ok(()) => {
            print(format_args!("case {suite}/{name} ok"));
            true
        }
    }
}

/// Frames that nobody owns, that we own and may own, and slots in use.
fn baseline() -> [u64; 4] {
    let read = |field| call::environment_read(SLOT_SELF, field).unwrap_or(0);
    let is_used = |slot: &u32| call::cap_read(CapSlot(*slot), 0).is_ok();
    [
        read(EnvironmentField::FramesFree),
        read(EnvironmentField::FramesOwned),
        read(EnvironmentField::FrameQuota),
        (0..memory::SLOT_SCAN_COUNT).filter(is_used).count() as u64,
    ]
}

fn finish(passed: u32, failed: u32) -> ! {
    print(format_args!("{passed} passed, {failed} failed"));
    let _ = call::machine_off(SLOT_MACHINE, u32::from(failed != 0));
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    print(format_args!("suite: {information}"));
    finish(0, 1)
}
