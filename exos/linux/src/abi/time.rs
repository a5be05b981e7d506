//! `struct timespec`, `timeval` and the clocks' numbers.

use exos::error::{Errno, Result};

use crate::abi::bytes::get;
use crate::abi::user_memory::{UserMemory, read_array, write_all};

const SECOND_NS: u64 = 1_000_000_000;

/// Reads a `timespec` as nanoseconds. `EINVAL`: negative, or nanoseconds out of range.
pub fn read_timespec(memory: &dyn UserMemory, address: u64) -> Result<u64> {
    let bytes: [u8; 16] = read_array(memory, address)?;
    to_ns(get::i64(&bytes, 0), get::i64(&bytes, 8), SECOND_NS as i64, 1)
}

/// Reads a `timeval` as nanoseconds. `EINVAL` as above.
pub fn read_timeval(memory: &dyn UserMemory, address: u64) -> Result<u64> {
    let bytes: [u8; 16] = read_array(memory, address)?;
    to_ns(get::i64(&bytes, 0), get::i64(&bytes, 8), 1_000_000, 1000)
}

fn to_ns(seconds: i64, part: i64, parts: i64, part_ns: u64) -> Result<u64> {
    if seconds < 0 || !(0..parts).contains(&part) {
        return Err(Errno::EINVAL);
    }
    Ok((seconds as u64).saturating_mul(SECOND_NS).saturating_add(part as u64 * part_ns))
}

/// A `timespec` as its two words.
#[must_use]
#[inline]
pub fn timespec_words(ns: u64) -> [u64; 2] {
    [ns / SECOND_NS, ns % SECOND_NS]
}

/// A `timespec`.
#[must_use]
pub fn timespec(ns: u64) -> [u8; 16] {
    pair(ns / SECOND_NS, ns % SECOND_NS)
}

/// A `timeval`.
#[must_use]
pub fn timeval(ns: u64) -> [u8; 16] {
    pair(ns / SECOND_NS, ns % SECOND_NS / 1000)
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// Writes a `timespec` unless the address is null.
pub fn write_timespec(memory: &dyn UserMemory, address: u64, ns: u64) -> Result<()> {
    if address == 0 { Ok(()) } else { write_all(memory, address, &timespec(ns)) }
}

/// `struct itimerval` and `struct itimerspec`, as a point of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntervalTimer {
    /// When it fires next, 0 if it does not.
    pub deadline_ns: u64,
    /// The period, 0 for once.
    pub period_ns: u64,
}
