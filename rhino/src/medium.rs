//! What a log and segments lie on: bytes at offsets, and a flush.
//!
//! The contract is that of a disk with a write cache: writes that were not flushed may be lost, done, or done in part
//! after a crash, each by itself and in any order; a flush that returned makes every write that had returned before it
//! last. Nothing else is promised and nothing else is used. Neighbours: [`crate::fake`] keeps this contract in tests,
//! `crate::linux` has files.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;

/// Why a medium did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumError {
    /// The device failed, or the bytes cannot be read.
    Io,
    /// There is no room for bytes that were never written.
    NoSpace,
    /// Bytes behind the end: the caller's mistake.
    OutOfRange,
}

/// Bytes that outlive the program.
///
/// Reads and writes go to whole ranges or fail; after a failed write the range holds anything. Calls take `&self`, so
/// that one thread may flush while another writes.
pub trait Medium {
    /// Bytes that it holds.
    fn capacity_bytes(&self) -> u64;

    /// Power of two, at least 512: writes of the log are aligned to it, and a crash tears a write only between such
    /// blocks or spoils whole ones.
    fn block_bytes(&self) -> usize {
        512
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Any [`MediumError`]; `into` is then undefined.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError>;

    /// Writes `from` at `offset`; it lasts after the next flush.
    ///
    /// # Errors
    /// Any [`MediumError`]; the range holds anything then.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError>;

    /// Makes every write that returned before the call last.
    ///
    /// # Errors
    /// [`MediumError::Io`], [`MediumError::NoSpace`]: what was written since the last flush may be lost, also if a
    /// later flush succeeds.
    fn flush(&self) -> Result<(), MediumError>;
}

macro_rules! delegate {
    ($($pointer:ty),*) => { $(
        impl<M: Medium + ?Sized> Medium for $pointer {
            fn capacity_bytes(&self) -> u64 {
                (**self).capacity_bytes()
            }
            fn block_bytes(&self) -> usize {
                (**self).block_bytes()
            }
            fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
                (**self).read(offset, into)
            }
            fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
                (**self).write(offset, from)
            }
            fn flush(&self) -> Result<(), MediumError> {
                (**self).flush()
            }
        }
    )* };
}

delegate!(&M, Box<M>, Rc<M>, Arc<M>);

/// A part of a medium: a disk is divided into a log and segments by windows.
#[derive(Clone, Copy, Debug)]
pub struct Window<M> {
    medium: M,
    first: u64,
    length: u64,
}

impl<M: Medium> Window<M> {
    /// The `length` bytes from `first` on.
    ///
    /// # Errors
    /// [`MediumError::OutOfRange`] if the medium ends before, or the window does not begin at a block.
    pub fn new(medium: M, first: u64, length: u64) -> Result<Self, MediumError> {
        let end = first.checked_add(length).ok_or(MediumError::OutOfRange)?;
        if end > medium.capacity_bytes() || !first.is_multiple_of(medium.block_bytes() as u64) {
            return Err(MediumError::OutOfRange);
        }
        Ok(Self { medium, first, length })
    }

    fn place(&self, offset: u64, count: usize) -> Result<u64, MediumError> {
        let end = offset.checked_add(count as u64).ok_or(MediumError::OutOfRange)?;
        if end > self.length { Err(MediumError::OutOfRange) } else { Ok(self.first + offset) }
    }
}

impl<M: Medium> Medium for Window<M> {
    fn capacity_bytes(&self) -> u64 {
        self.length
    }
    fn block_bytes(&self) -> usize {
        self.medium.block_bytes()
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.medium.read(self.place(offset, into.len())?, into)
    }
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
        self.medium.write(self.place(offset, from.len())?, from)
    }
    fn flush(&self) -> Result<(), MediumError> {
        self.medium.flush()
    }
}
