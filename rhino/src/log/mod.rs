//! The write-ahead log: records in a ring, each written by one write, chained by hash. The only one in the project;
//! recoverable memory uses it with status blocks of its own ([`Log`]), volumes will use the ring alone ([`Ring`]).
//!
//! The layout and the rules L1 to L6 are in `FORMAT.md`. In short: what is valid from *start* on, one record after the
//! other, is what happened; the first invalid one ends it; and if something says that it should have been there, that
//! is damage and an error, never an older state in silence.
//!
//! # Invariants
//!
//! - LOG-1 [`Ring::append`] makes one write, [`Ring::flush`] one flush, and nothing else does in a commit.
//! - LOG-2 No byte between *start* and the tail is written again before a status block that moves *start* was flushed.
//! - LOG-3 After an error of the medium either the record is known not to be there, or the log is broken: every call
//!   that would write fails until it is recovered.
//! - LOG-4 Whatever the medium holds, reading ends, and allocates no more than the longest record.
//!
//! Neighbours: [`crate::Store`] says what payloads mean; [`crate::fake`] makes crashes.
#![forbid(unsafe_code)]

mod record;
mod ring;
mod status;
mod whole;

pub(crate) use record::hash;
pub use record::{HEAD_BYTES, Head, RECORD_OVERHEAD_BYTES, Start};
pub use ring::{Appended, Flush, Ring};
pub use status::{STATUS_SLOT_BYTES, USER_BYTES_MAX};
pub use whole::{LOG_BYTES_MIN, Log, RING_OFFSET};

use crate::medium::MediumError;

/// What recovery found that cannot be explained by a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Neither status block is valid: no log, or both were spoilt.
    NoStatus,
    /// The log is of another version.
    Version(u32),
    /// The status does not fit the medium: it was cut, or is another's.
    Shape,
    /// The record is missing or spoilt although it was flushed once: something behind it or the status says so.
    Middle {
        /// The first record that is not there.
        sequence: u64,
        /// Where it should lie, in the ring.
        position: u64,
    },
    /// More blocks look like records than can be checked in bounded time, or records overlap.
    Undecided,
    /// A record that is valid says what it cannot: an entry outside its segment, an unknown kind.
    Nonsense {
        /// The record.
        sequence: u64,
    },
}

/// Why a log did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// The medium failed. The record is known not to be there, unless the log is [`LogError::Broken`] afterwards.
    Medium(MediumError),
    /// No room until the log is truncated.
    Full,
    /// Longer than half of the ring: never.
    TooLarge,
    /// A write or a flush failed in a way that leaves open what is on the medium: recover.
    Broken,
    /// Recovery is refused.
    Damage(Damage),
    /// No memory for a record.
    NoMemory,
    /// The medium is too small for a log, or its blocks are larger than 4,096 bytes.
    Shape,
}

impl From<MediumError> for LogError {
    fn from(error: MediumError) -> Self {
        Self::Medium(error)
    }
}
