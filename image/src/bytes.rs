//! Checked little-endian access to byte slices, shared by all readers and writers of this crate and `aegis-link`.
//!
//! Every function answers `None` for what does not lie inside the slice, so that callers turn it into their own error
//! and no arithmetic on foreign numbers can overflow (INV-I1).

use crate::PAGE_BYTES;

/// `length` bytes from `offset`, both as they come from a file.
#[must_use]
pub fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset.checked_add(length)?).ok()?;
    bytes.get(start..end)
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// The 16 bits at `offset`.
#[must_use]
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_le_bytes)
}

/// The 32 bits at `offset`.
#[must_use]
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_le_bytes)
}

/// The 64 bits at `offset`.
#[must_use]
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_le_bytes)
}

/// Stores `value` at `offset` of a buffer of the caller's own; offsets are constants inside it.
///
/// # Panics
/// The offset lies outside.
pub fn put<const N: usize>(buffer: &mut [u8], offset: usize, value: [u8; N]) {
    buffer[offset..offset + N].copy_from_slice(&value);
}

/// `value` rounded up to a whole page; `None` on overflow.
pub(crate) fn page_round_up(value: u64) -> Option<u64> {
    value.checked_next_multiple_of(PAGE_BYTES)
}
