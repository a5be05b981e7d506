//! I/O ports. No implementation lives here: the instruction is the kernel's, or is allowed to an
//! environment by its port bitmap.

use crate::{AccessError, Width};

/// A range of I/O ports. Offsets count from the first port of the range.
pub trait Port {
    /// Ports in the range.
    fn port_count(&self) -> usize;

    /// Reads `width` (at most four bytes) from the port at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if the access is not in the range or eight bytes wide.
    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError>;

    /// Writes the low `width` (at most four bytes) of `value` to the port at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if the access is not in the range or eight bytes wide.
    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError>;

    /// Reads four bytes after four from the same port, as a string instruction does, until `into` is full.
    ///
    /// # Errors
    /// As [`Port::input`]; also if `into` is not a multiple of four bytes. What was read before is lost.
    fn input_run(&self, offset: usize, into: &mut [u8]) -> Result<(), AccessError> {
        let (words, rest) = into.as_chunks_mut::<4>();
        if !rest.is_empty() {
            return Err(AccessError { offset, width_bytes: rest.len(), length_bytes: self.port_count() });
        }
        for word in words {
            *word = self.input(offset, Width::U32)?.to_le_bytes();
        }
        Ok(())
    }

    /// Writes four bytes after four of `from` to the same port.
    ///
    /// # Errors
    /// As [`Port::output`]; also if `from` is not a multiple of four bytes.
    fn output_run(&mut self, offset: usize, from: &[u8]) -> Result<(), AccessError> {
        let (words, rest) = from.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(AccessError { offset, width_bytes: rest.len(), length_bytes: self.port_count() });
        }
        for word in words {
            self.output(offset, Width::U32, u32::from_le_bytes(*word))?;
        }
        Ok(())
    }
}
