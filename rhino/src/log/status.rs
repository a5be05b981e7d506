//! Status blocks: bytes to values and back.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use super::record::{START_BYTES, Start, hash};
use crate::bytes::{put, u32_at, u64_at};

/// Bytes between the two slots.
pub const STATUS_SLOT_BYTES: u64 = 4096;
/// Bytes of a status block that are written.
pub(super) const STATUS_BYTES: usize = 512;
/// Most bytes of the user's part.
pub const USER_BYTES_MAX: usize = 400;
pub(super) const VERSION: u32 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"rhinost1");
const USER_AT: usize = 80;
const HASH_AT: usize = STATUS_BYTES - 8;

/// What a status block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub version: u32,
    pub block_bytes: u32,
    pub generation: u64,
    pub ring_bytes: u64,
    pub start: Start,
    pub flushed_through: u64,
    pub user: Vec<u8>,
}

impl Status {
    pub(super) fn to_bytes(&self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        put(&mut bytes, 0, &MAGIC.to_le_bytes());
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 12, &self.block_bytes.to_le_bytes());
        put(&mut bytes, 16, &self.generation.to_le_bytes());
        put(&mut bytes, 24, &self.ring_bytes.to_le_bytes());
        put(&mut bytes, 32, &self.start.to_bytes());
        put(&mut bytes, 32 + START_BYTES, &self.flushed_through.to_le_bytes());
        put(&mut bytes, 72, &(self.user.len() as u64).to_le_bytes());
        put(&mut bytes, USER_AT, &self.user);
        let sealed = hash(&bytes[..HASH_AT]);
        put(&mut bytes, HASH_AT, &sealed.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are no status block.
    pub(super) fn from_bytes(bytes: &[u8; STATUS_BYTES]) -> Option<Self> {
        let user_bytes = u64_at(bytes, 72) as usize;
        if u64_at(bytes, 0) != MAGIC || u64_at(bytes, HASH_AT) != hash(&bytes[..HASH_AT]) || user_bytes > USER_BYTES_MAX
        {
            return None;
        }
        Some(Self {
            version: u32_at(bytes, 8),
            block_bytes: u32_at(bytes, 12),
            generation: u64_at(bytes, 16),
            ring_bytes: u64_at(bytes, 24),
            start: Start::from_bytes(&bytes[32..64]),
            flushed_through: u64_at(bytes, 64),
            user: bytes[USER_AT..USER_AT + user_bytes].to_vec(),
        })
    }
}
