//! What clients and the service say to each other: requests of 32 bytes, replies of 16, one under way in a client.
#![forbid(unsafe_code)]

use crate::bytes::{put, u32_at, u64_at};
use crate::error::Error;
use crate::memory::Access;
use crate::{Detector, MediumError, MemoryError};

pub(super) const REQUEST_BYTES: usize = 32;
pub(super) const REPLY_BYTES: usize = 16;

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Map all pages; answered by the descriptor, and then once more by the number of pages.
    Map(Detector),
    Begin,
    Fault {
        page: u64,
        want: Access,
    },
    SetRange {
        offset: u64,
        length: u64,
    },
    Commit {
        is_lazy: bool,
    },
    Abort,
    Flush,
}

impl Request {
    pub(super) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let (kind, first, second) = match self {
            Self::Map(detector) => (1, detector as u64, 0),
            Self::Begin => (2, 0, 0),
            Self::Fault { page, want } => (3, page, u64::from(want == Access::Write)),
            Self::SetRange { offset, length } => (4, offset, length),
            Self::Commit { is_lazy } => (5, u64::from(is_lazy), 0),
            Self::Abort => (6, 0, 0),
            Self::Flush => (7, 0, 0),
        };
        let mut bytes = [0; REQUEST_BYTES];
        put(&mut bytes, 0, &u64::to_le_bytes(kind));
        put(&mut bytes, 8, &first.to_le_bytes());
        put(&mut bytes, 16, &second.to_le_bytes());
        bytes
    }

    /// `None` if it is none.
    pub(super) fn from_bytes(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let (first, second) = (u64_at(bytes, 8), u64_at(bytes, 16));
        Some(match u64_at(bytes, 0) {
            1 => Self::Map(match first {
                0 => Detector::SetRange,
                1 => Detector::Page,
                2 => Detector::Diff,
                _ => return None,
            }),
            2 => Self::Begin,
            3 => Self::Fault { page: first, want: if second == 0 { Access::Read } else { Access::Write } },
            4 => Self::SetRange { offset: first, length: second },
            5 => Self::Commit { is_lazy: first != 0 },
            6 => Self::Abort,
            7 => Self::Flush,
            _ => return None,
        })
    }
}

/// Errors that go over the wire, by their number less one; what is not among them is the last.
const ERRORS: [Error; 16] = [
    Error::Deadlock,
    Error::Busy,
    Error::NotDeclared,
    Error::TooLarge,
    Error::LogFull,
    Error::NoTransaction,
    Error::NoRegion,
    Error::OutOfRange,
    Error::Memory(MemoryError::NoMemory),
    Error::NoMemory,
    Error::Limit,
    Error::Broken,
    Error::Medium(MediumError::NoSpace),
    Error::Medium(MediumError::OutOfRange),
    Error::NoSegment,
    Error::Medium(MediumError::Io),
];

/// An answer: a number, or why not.
pub(super) fn reply_bytes(result: Result<u64, Error>) -> [u8; REPLY_BYTES] {
    let (status, value) = match result {
        Ok(value) => (0, value),
        Err(error) => {
            let place = ERRORS.iter().position(|known| *known == error).unwrap_or(ERRORS.len() - 1);
            (place as u32 + 1, 0)
        }
    };
    let mut bytes = [0; REPLY_BYTES];
    put(&mut bytes, 0, &status.to_le_bytes());
    put(&mut bytes, 8, &value.to_le_bytes());
    bytes
}

/// What an answer says.
pub(super) fn reply(bytes: &[u8; REPLY_BYTES]) -> Result<u64, Error> {
    match u32_at(bytes, 0) {
        0 => Ok(u64_at(bytes, 8)),
        status => Err(ERRORS[(status as usize - 1).min(ERRORS.len() - 1)]),
    }
}
