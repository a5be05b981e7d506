//! A record's head, and the start of a log: bytes to values and back. Nothing here reads a medium.
#![forbid(unsafe_code)]

use rapidhash::v3::rapidhash_v3;

use crate::bytes::{put, u32_at, u64_at};

/// Bytes of a record before its payload.
pub const HEAD_BYTES: usize = 64;
/// Bytes of a record beside its payload, before it is rounded up to whole blocks.
pub const RECORD_OVERHEAD_BYTES: usize = HEAD_BYTES + 8;
/// Bytes of a start on the medium.
pub(super) const START_BYTES: usize = 32;

const MAGIC: u64 = u64::from_le_bytes(*b"rhinorec");
/// Where the hash stands in the head.
const HASH_AT: usize = 56;

/// The hash of all that is checked.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    rapidhash_v3(bytes)
}

/// Where the oldest record that is needed lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Another one after each recovery.
    pub log_id: u64,
    /// Where the record lies, or will, in the ring.
    pub position: u64,
    /// The record's number.
    pub sequence: u64,
    /// The hash of the record before it.
    pub previous: u64,
}

impl Start {
    /// The beginning of a log that has no record yet.
    pub fn first(log_id: u64) -> Self {
        Self { log_id, position: 0, sequence: 1, previous: log_id }
    }

    /// As it lies on a medium.
    pub fn to_bytes(&self) -> [u8; START_BYTES] {
        let mut bytes = [0; START_BYTES];
        for (index, word) in [self.log_id, self.position, self.sequence, self.previous].into_iter().enumerate() {
            put(&mut bytes, 8 * index, &word.to_le_bytes());
        }
        bytes
    }

    /// From what lies on a medium; whether it fits a ring is checked where one is made.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            log_id: u64_at(bytes, 0),
            position: u64_at(bytes, 8),
            sequence: u64_at(bytes, 16),
            previous: u64_at(bytes, 24),
        }
    }
}

/// What a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The log's id.
    pub log_id: u64,
    /// The record's number.
    pub sequence: u64,
    /// Bytes of all of it, whole blocks.
    pub length: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// The hash of the record before.
    pub previous: u64,
    /// This record and all before it were flushed when this one was made.
    pub flushed_through: u64,
    /// The user's.
    pub kind: u64,
    /// The record's own hash.
    pub hash: u64,
}

impl Head {
    /// From the first bytes of a block; `None` if no record of this log begins there, or its lengths cannot be.
    pub(super) fn plausible(bytes: &[u8], log_id: u64, block_bytes: u64, length_max: u64) -> Option<Self> {
        if bytes.len() < HEAD_BYTES || u64_at(bytes, 0) != MAGIC || u64_at(bytes, 8) != log_id {
            return None;
        }
        let head = Self {
            log_id,
            sequence: u64_at(bytes, 16),
            length: u32_at(bytes, 24),
            payload_bytes: u32_at(bytes, 28),
            previous: u64_at(bytes, 32),
            flushed_through: u64_at(bytes, 40),
            kind: u64_at(bytes, 48),
            hash: u64_at(bytes, HASH_AT),
        };
        let length = u64::from(head.length);
        let fits = u64::from(head.payload_bytes) + RECORD_OVERHEAD_BYTES as u64 <= length;
        (fits && length % block_bytes == 0 && length <= length_max).then_some(head)
    }

    /// True if these bytes are the whole record of this head. The hash word is zero afterwards.
    pub(super) fn verifies(&self, record: &mut [u8]) -> bool {
        let length = self.length as usize;
        if record.len() != length || u64_at(record, length - 8) != u64::from(self.length) {
            return false;
        }
        put(record, HASH_AT, &[0; 8]);
        hash(record) == self.hash
    }

    /// Makes a record of `record`, which has the payload in its place and zeros elsewhere; answers its hash.
    pub(super) fn seal(&self, record: &mut [u8]) -> u64 {
        let length = record.len();
        put(record, 0, &MAGIC.to_le_bytes());
        put(record, 8, &self.log_id.to_le_bytes());
        put(record, 16, &self.sequence.to_le_bytes());
        put(record, 24, &self.length.to_le_bytes());
        put(record, 28, &self.payload_bytes.to_le_bytes());
        put(record, 32, &self.previous.to_le_bytes());
        put(record, 40, &self.flushed_through.to_le_bytes());
        put(record, 48, &self.kind.to_le_bytes());
        put(record, length - 8, &u64::from(self.length).to_le_bytes());
        let sealed = hash(record);
        put(record, HASH_AT, &sealed.to_le_bytes());
        sealed
    }
}

/// Bytes of the record with such a payload.
pub(super) fn record_bytes(payload_bytes: usize, block_bytes: u64) -> Option<u64> {
    let bytes = (payload_bytes as u64).checked_add(RECORD_OVERHEAD_BYTES as u64)?;
    bytes.checked_next_multiple_of(block_bytes).filter(|&length| length <= u64::from(u32::MAX))
}
