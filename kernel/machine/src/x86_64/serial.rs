//! The debug console on COM1 (16550): text out, without lock or allocation, so that a panic can use it anywhere.
//!
//! Lines of different processors may mix; a panic stops the others first. Each byte costs an exit of the virtual
//! machine, so only errors are written unless the command line asks for more (`log=off|error|info|debug`).
#![allow(unsafe_code, reason = "port access")]

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use super::instructions::{in8, out8};

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMIT_EMPTY: u8 = 1 << 5;
/// What the transmitter of a 16550 holds.
const FIFO_BYTES: usize = 16;
/// Reads of the status register before a byte is written regardless; a missing device answers all ones at once.
const WAIT_COUNT_MAX: u32 = 100_000;

/// How much is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogLevel {
    /// Panics only.
    Off = 0,
    /// What a user must know to act.
    Error = 1,
    /// Milestones.
    Info = 2,
    /// Everything.
    Debug = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Error as u8);

/// Writes a line `aegis: …` if `level` is enabled: `log!(Debug, "…", arguments)`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($argument:tt)*) => {
        if $crate::log_enabled($crate::LogLevel::$level) {
            $crate::log_write(core::format_args!($($argument)*));
        }
    };
}

/// Sets 115200 baud, 8 data bits, no interrupts.
pub(crate) fn initialize() {
    const SETUP: [(u16, u8); 7] = [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)];
    for (register, value) in SETUP {
        // SAFETY: a UART reaches no memory.
        unsafe { out8(COM1 + register, value) };
    }
}

/// Sets the level by its name; an unknown name changes nothing.
pub(crate) fn set_level(name: Option<&str>) {
    if let Some(level) = ["off", "error", "info", "debug"].iter().position(|level| name == Some(*level)) {
        LEVEL.store(level as u8, Ordering::Relaxed);
    }
}

/// Whether lines of `level` are written.
#[must_use]
pub fn log_enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes one line whatever the level; see [`log!`](crate::log).
pub fn log_write(line: fmt::Arguments<'_>) {
    write(format_args!("aegis: {line}\n"));
}

/// Loads the transmitter with as many bytes as it holds, as they are and whatever the level, if it is empty; else takes
/// none. Waits for nothing.
#[must_use]
pub fn log_bytes(bytes: &[u8]) -> usize {
    // SAFETY: a UART reaches no memory.
    if unsafe { in8(LINE_STATUS) } & TRANSMIT_EMPTY == 0 {
        return 0;
    }
    for byte in bytes.iter().take(FIFO_BYTES) {
        // SAFETY: a UART reaches no memory.
        unsafe { out8(COM1, *byte) };
    }
    bytes.len().min(FIFO_BYTES)
}

/// Writes text as it is, with carriage returns before line ends.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    // The writer cannot fail; a `Display` that does loses its own text only.
    let _ = fmt::Write::write_fmt(&mut Serial, text);
}

struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                put(b'\r');
            }
            put(byte);
        }
        Ok(())
    }
}

fn put(byte: u8) {
    for _ in 0..WAIT_COUNT_MAX {
        // SAFETY: a UART reaches no memory.
        if unsafe { in8(LINE_STATUS) } & TRANSMIT_EMPTY != 0 {
            break;
        }
    }
    // SAFETY: a UART reaches no memory.
    unsafe { out8(COM1, byte) };
}
