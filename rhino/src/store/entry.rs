//! What records say: entries, written and read.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use crate::bytes::{u32_at, u64_at};
use crate::error::Error;
use crate::log::Damage;

/// Kind of a record: a transaction commits.
pub(super) const KIND_COMMIT: u64 = 1;
/// Kind of a record: bytes that belong to a transaction that has not ended.
pub(super) const KIND_HOLD: u64 = 2;
/// Kind of a record: a transaction that has such bytes is undone.
pub(super) const KIND_ABORT: u64 = 3;

/// Bytes of an entry before its own.
pub(super) const ENTRY_BYTES: usize = 16;
/// In the word of the segment: the bytes are the old ones.
const OLD: u32 = 1 << 31;

/// Bytes of a segment, as a record has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub segment: u32,
    /// True if this is what was there before.
    pub is_old: bool,
    pub offset: u64,
    pub bytes: &'a [u8],
}

/// Begins a payload.
pub(super) fn begin(payload: &mut Vec<u8>, transaction: u64) {
    payload.clear();
    payload.extend_from_slice(&transaction.to_le_bytes());
}

/// Adds an entry to a payload.
pub(super) fn push(payload: &mut Vec<u8>, entry: Entry<'_>) -> Result<(), Error> {
    payload.try_reserve(ENTRY_BYTES + entry.bytes.len() + 8).map_err(|_| Error::NoMemory)?;
    let segment = entry.segment | if entry.is_old { OLD } else { 0 };
    payload.extend_from_slice(&segment.to_le_bytes());
    payload.extend_from_slice(&(entry.bytes.len() as u32).to_le_bytes());
    payload.extend_from_slice(&entry.offset.to_le_bytes());
    payload.extend_from_slice(entry.bytes);
    payload.resize(payload.len().next_multiple_of(8), 0);
    Ok(())
}

/// The transaction of a payload.
pub(super) fn transaction(payload: &[u8]) -> u64 {
    u64_at(payload, 0)
}

/// The entries of a payload. They lie in their segments; anything else is [`Damage::Nonsense`].
pub(super) fn entries<'a>(payload: &'a [u8], sequence: u64, segments: &[u64]) -> Result<Vec<Entry<'a>>, Error> {
    let nonsense = Error::Damage(Damage::Nonsense { sequence });
    let mut found = Vec::new();
    let mut rest = payload.get(8..).ok_or(nonsense)?;
    while !rest.is_empty() {
        let (word, length) = (u32_at(rest, 0), u32_at(rest, 4) as usize);
        let (segment, offset) = (word & !OLD, u64_at(rest, 8));
        let bytes = rest.get(ENTRY_BYTES..).and_then(|bytes| bytes.get(..length)).ok_or(nonsense)?;
        let end = offset.checked_add(length as u64).ok_or(nonsense)?;
        if length == 0 || segments.get(segment as usize).is_none_or(|&segment_bytes| end > segment_bytes) {
            return Err(nonsense);
        }
        found.push(Entry { segment, is_old: word & OLD != 0, offset, bytes });
        rest = rest.get((ENTRY_BYTES + length).next_multiple_of(8)..).ok_or(nonsense)?;
    }
    Ok(found)
}
