//! The bytes of a mapping; the database is that of the other programs here (`workload/place.rs`).
#![allow(unsafe_code, reason = "rows touch mapped memory")]

use rhino::linux::Mapping;

pub(crate) use crate::database::Place;

/// Bytes of a log in a file.
pub(crate) const LOG_BYTES: u64 = 16 << 20;

pub(crate) fn load(mapping: &Mapping, offset: usize) -> u8 {
    assert!(offset < mapping.length());
    // SAFETY: inside the mapping.
    unsafe { mapping.address().add(offset).read_volatile() }
}

pub(crate) fn store(mapping: &Mapping, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= mapping.length());
    // SAFETY: inside the mapping, which nothing else refers to.
    unsafe { mapping.address().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
