//! Bytes of a datagram, in the queue itself where they are few: a block of the heap for each costs more than the rest
//! of sending it.
//!
//! Neighbour: [`super::udp`], which counts what waits.

use alloc::vec::Vec;
use core::ops::Deref;

use crate::error::{Errno, Result};
use crate::fs::transfer::Source;
use crate::reserve;

/// Most bytes that need no block.
const SHORT_BYTES_MAX: usize = 30;

/// The bytes.
pub(super) enum Payload {
    /// In place, so many of them.
    Short(u8, [u8; SHORT_BYTES_MAX]),
    /// In a block of their own.
    Long(Vec<u8>),
}

impl Payload {
    /// `length` bytes of `source`.
    ///
    /// # Errors
    /// `ENOBUFS`; `EFAULT`: the source ends before.
    pub(super) fn take(source: &mut dyn Source, length: usize) -> Result<Self> {
        let mut payload = Self::zeros(length)?;
        let bytes = match &mut payload {
            Self::Short(_, bytes) => &mut bytes[..length],
            Self::Long(bytes) => bytes,
        };
        if source.take(bytes) < length { Err(Errno::EFAULT) } else { Ok(payload) }
    }

    /// These bytes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn of(bytes: &[u8]) -> Result<Self> {
        let mut short = [0; SHORT_BYTES_MAX];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Ok(Self::Short(bytes.len() as u8, short))
            }
            None => reserve::copy(bytes).map(Self::Long),
        }
    }

    /// The same bytes again.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn copy(&self) -> Result<Self> {
        match self {
            Self::Short(length, bytes) => Ok(Self::Short(*length, *bytes)),
            Self::Long(bytes) => reserve::copy(bytes).map(Self::Long),
        }
    }

    /// Leaves so many bytes at most.
    pub(super) fn cut(&mut self, length: usize) {
        match self {
            Self::Short(own, _) => *own = (*own).min(u8::try_from(length).unwrap_or(u8::MAX)),
            Self::Long(bytes) => bytes.truncate(length),
        }
    }

    fn zeros(length: usize) -> Result<Self> {
        if length <= SHORT_BYTES_MAX {
            return Ok(Self::Short(length as u8, [0; SHORT_BYTES_MAX]));
        }
        let mut bytes = reserve::vector(length).map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        Ok(Self::Long(bytes))
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Payload, SHORT_BYTES_MAX};
    use crate::error::Errno;

    #[test]
    fn bytes_are_the_same_on_both_sides_of_the_limit() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in [0, 1, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 256] {
            let payload = Payload::take(&mut &bytes[..], length).unwrap();
            assert_eq!((&*payload, &*payload.copy().unwrap()), (&bytes[..length], &bytes[..length]));
            assert_eq!(&*Payload::of(&bytes[..length]).unwrap(), &bytes[..length]);
            assert_eq!(matches!(payload, Payload::Short(..)), length <= SHORT_BYTES_MAX);
            let mut cut = payload;
            cut.cut(20);
            assert_eq!(&*cut, &bytes[..length.min(20)]);
        }
        assert_eq!(Payload::take(&mut &bytes[..], 257).err(), Some(Errno::EFAULT));
    }
}
