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
}
