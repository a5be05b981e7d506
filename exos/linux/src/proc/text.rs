//! How the texts of `/proc` are written.

use alloc::vec::Vec;
use core::fmt;

use exos::error::{Errno, Result};
use exos::reserve;

/// Range of `oom_score_adj`.
pub(super) const ADJUST_MAX: i32 = 1000;
/// Longest name of a thread.
pub(super) const NAME_BYTES_MAX: usize = 15;
/// A decimal number with blanks around it.
pub(super) fn parse_number(value: &[u8]) -> Option<i32> {
    core::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Where texts are written: bytes, because names need not be UTF-8.
pub(super) struct Text<'a> {
    bytes: &'a mut Vec<u8>,
    /// There was no memory for all of it.
    is_cut: bool,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, is_cut: false }
    }

    /// What is to be told of it. `ENOMEM`.
    pub(super) fn end(self) -> Result<()> {
        if self.is_cut { Err(Errno::ENOMEM) } else { Ok(()) }
    }
}

impl Text<'_> {
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        if reserve::reserve(self.bytes, bytes.len()).is_err() {
            self.is_cut = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Strings that end with a zero byte each.
    pub(super) fn strings(&mut self, strings: &[Vec<u8>]) {
        for string in strings {
            self.raw(string);
            self.raw(b"\0");
        }
    }

    /// A name with the bytes in `special`, and backslashes among them, as `\ooo`.
    pub(super) fn escaped(&mut self, name: &[u8], special: &[u8]) {
        for byte in name {
            if special.contains(byte) {
                put!(self, "\\{byte:03o}");
            } else {
                self.raw(&[*byte]);
            }
        }
    }

    /// Blanks up to `column` of the line that began at `line_start`.
    pub(super) fn pad_to(&mut self, line_start: usize, column: usize) {
        for _ in self.bytes.len()..line_start + column {
            self.raw(b" ");
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn formatted(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a vector does not fail; whether it was cut is asked at the end.
        let _ = fmt::Write::write_fmt(self, text);
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.raw(text.as_bytes());
        Ok(())
    }
}

/// Appends formatted text.
macro_rules! put {
    ($out:expr, $($text:tt)*) => { $out.formatted(format_args!($($text)*)) };
}
pub(super) use put;
