//! Where writers put their bytes: a sequential output whose total length the writer announces beforehand.
//!
//! The standard library's `Write` does not exist without `std`; this is the part of it that writers need. The host tool
//! implements it for files, tests use `Vec<u8>`.

use alloc::vec::Vec;
use core::convert::Infallible;

use crate::PAGE_BYTES;

/// A sequential output.
pub trait Sink {
    /// What can go wrong with the output (a full disk, say); never the writer's fault.
    type Error;

    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// The output's own; the writer stops at the first one and passes it on.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

impl Sink for Vec<u8> {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    type Error = S::Error;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), S::Error> {
        (**self).write_all(bytes)
    }
}

/// Appends `count` zero bytes.
pub(crate) fn write_zeros<S: Sink + ?Sized>(sink: &mut S, count: u64) -> Result<(), S::Error> {
    const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
    let mut left = count;
    while left > 0 {
        let step = left.min(PAGE_BYTES) as usize;
        sink.write_all(&ZEROS[..step])?;
        left -= step as u64;
    }
    Ok(())
}
