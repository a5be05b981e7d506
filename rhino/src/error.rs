//! What can go wrong, and whose fault it is.
#![forbid(unsafe_code)]

use crate::log::{Damage, LogError};
use crate::medium::MediumError;
use crate::memory::MemoryError;

/// Why a store did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such transaction: it ended, or never was.
    NoTransaction,
    /// No such region.
    NoRegion,
    /// No such segment.
    NoSegment,
    /// Outside the region or segment, or no whole pages.
    OutOfRange,
    /// The process has another transaction on the segment, or has mapped these pages, or a transaction holds them.
    Busy,
    /// The transaction was chosen to break a deadlock: abort it, and try again.
    Deadlock,
    /// A store to a page of which the transaction has declared nothing.
    NotDeclared,
    /// The transaction's changes are longer than a record of the log may be.
    TooLarge,
    /// The log is full, and what holds it is older than all that could be truncated.
    LogFull,
    /// The medium failed; nothing was changed, unless the store is [`Error::Broken`] afterwards.
    Medium(MediumError),
    /// Memory failed.
    Memory(MemoryError),
    /// No memory for the store's own tables.
    NoMemory,
    /// Too many segments, regions or transactions.
    Limit,
    /// The medium failed in a way that leaves open what is on it: open the store again.
    Broken,
    /// What is on the medium is not what a crash leaves.
    Damage(Damage),
    /// The log's medium is too small.
    Shape,
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Medium(error) => Self::Medium(error),
            LogError::Full => Self::LogFull,
            LogError::TooLarge => Self::TooLarge,
            LogError::Broken => Self::Broken,
            LogError::Damage(damage) => Self::Damage(damage),
            LogError::NoMemory => Self::NoMemory,
            LogError::Shape => Self::Shape,
        }
    }
}

impl From<MediumError> for Error {
    fn from(error: MediumError) -> Self {
        Self::Medium(error)
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}
