//! What a device sees and changes: its registers in memory, and memory that it shares; and the
//! bounds check that all of this crate shares.
//!
//! Reads take `&self` although some registers change by being read: a region has one owner, its
//! driver, which knows its registers. Writes take `&mut self` so that two parts of a driver cannot
//! interleave a select register and the access that depends on it.

/// The size of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
    /// Eight bytes.
    U64,
}

impl Width {
    /// Bytes that an access of this width moves.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }
}

/// An access that was refused because it does not lie in its region, or is not aligned to its
/// width.
///
/// To blame: the driver, or the placement that gave it a region smaller than the device's
/// registers. Never the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError {
    /// Byte offset from the start of the region.
    pub offset: usize,
    /// Width of the access in bytes.
    pub width_bytes: usize,
    /// Bytes that the region has.
    pub length_bytes: usize,
}

/// Checks that `width_bytes` at `offset` lie in a region of `length_bytes`.
///
/// # Errors
/// [`AccessError`] if they do not, also when the end would overflow.
#[inline]
pub const fn check_range(offset: usize, width_bytes: usize, length_bytes: usize) -> Result<(), AccessError> {
    match offset.checked_add(width_bytes) {
        Some(end) if end <= length_bytes => Ok(()),
        _ => Err(AccessError { offset, width_bytes, length_bytes }),
    }
}

/// Checks that an access lies in a region of `length_bytes` that starts at `base_address`, and is
/// aligned.
///
/// # Errors
/// [`AccessError`] if it does not.
#[inline]
pub const fn check_access(
    base_address: usize,
    offset: usize,
    width: Width,
    length_bytes: usize,
) -> Result<(), AccessError> {
    match check_range(offset, width.bytes(), length_bytes) {
        Ok(()) if base_address.wrapping_add(offset).is_multiple_of(width.bytes()) => Ok(()),
        _ => Err(AccessError { offset, width_bytes: width.bytes(), length_bytes }),
    }
}

/// A window on a device's registers, or on memory that it reaches. Every access happens once, with the width asked for,
/// in program order.
pub trait Volatile {
    /// Bytes in the window.
    fn length_bytes(&self) -> usize;

    /// Reads `width` at byte `offset`; the value is zero-extended.
    ///
    /// # Errors
    /// [`AccessError`] if the access is out of the window or not aligned.
    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError>;

    /// Writes the low `width` of `value` at byte `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if the access is out of the window or not aligned; nothing is written then.
    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError>;

    /// Reads one byte.
    ///
    /// # Errors
    /// As [`Volatile::read`].
    #[inline]
    fn read_u8(&self, offset: usize) -> Result<u8, AccessError> {
        Ok(self.read(offset, Width::U8)? as u8)
    }

    /// Reads two bytes.
    ///
    /// # Errors
    /// As [`Volatile::read`].
    #[inline]
    fn read_u16(&self, offset: usize) -> Result<u16, AccessError> {
        Ok(self.read(offset, Width::U16)? as u16)
    }

    /// Reads four bytes.
    ///
    /// # Errors
    /// As [`Volatile::read`].
    #[inline]
    fn read_u32(&self, offset: usize) -> Result<u32, AccessError> {
        Ok(self.read(offset, Width::U32)? as u32)
    }

    /// Reads eight bytes in one access.
    ///
    /// # Errors
    /// As [`Volatile::read`].
    #[inline]
    fn read_u64(&self, offset: usize) -> Result<u64, AccessError> {
        self.read(offset, Width::U64)
    }

    /// Writes one byte.
    ///
    /// # Errors
    /// As [`Volatile::write`].
    #[inline]
    fn write_u8(&mut self, offset: usize, value: u8) -> Result<(), AccessError> {
        self.write(offset, Width::U8, u64::from(value))
    }

    /// Writes two bytes.
    ///
    /// # Errors
    /// As [`Volatile::write`].
    #[inline]
    fn write_u16(&mut self, offset: usize, value: u16) -> Result<(), AccessError> {
        self.write(offset, Width::U16, u64::from(value))
    }

    /// Writes four bytes.
    ///
    /// # Errors
    /// As [`Volatile::write`].
    #[inline]
    fn write_u32(&mut self, offset: usize, value: u32) -> Result<(), AccessError> {
        self.write(offset, Width::U32, u64::from(value))
    }

    /// Writes eight bytes in one access.
    ///
    /// # Errors
    /// As [`Volatile::write`].
    #[inline]
    fn write_u64(&mut self, offset: usize, value: u64) -> Result<(), AccessError> {
        self.write(offset, Width::U64, value)
    }
}
