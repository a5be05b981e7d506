//! A buffer that is kept between transfers, so that it is not cleared for each.
//!
//! Transfers copy by way of exos's own memory where the two ends cannot meet (INV-F1). What is in the buffer is left
//! from another transfer; a transfer looks at no more of it than it has put there.

use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Longest buffer that is kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// At most one buffer at rest. A transfer that finds none makes one.
#[derive(Debug, Default)]
pub struct SpareBuffer(Mutex<Vec<u8>>);

impl SpareBuffer {
    /// No buffer yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Gives `work` a buffer of `length` bytes of any content; nothing is locked meanwhile.
    ///
    /// # Errors
    /// `ENOMEM`, and those of `work`.
    pub fn lend<T>(&self, length: usize, work: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
        let mut buffer = core::mem::take(&mut *self.0.lock());
        if buffer.len() < length {
            buffer.try_reserve_exact(length - buffer.len()).map_err(|_| Errno::ENOMEM)?;
            buffer.resize(length, 0);
        }
        let result = work(&mut buffer[..length]);
        if buffer.len() <= KEPT_BYTES_MAX {
            *self.0.lock() = buffer;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BYTES_MAX, SpareBuffer};
    use crate::error::Errno;

    #[test]
    fn a_buffer_is_used_again_and_two_at_once_are_two() {
        let spare = SpareBuffer::new();
        let fill = |bytes: &mut [u8]| {
            bytes.fill(7);
            Ok(bytes.len())
        };
        assert_eq!(spare.lend(10, fill), Ok(10));
        let both = spare.lend(4, |outer| {
            assert_eq!(outer, [7; 4], "the same memory");
            spare.lend(4, |inner| {
                inner.fill(1);
                Ok(outer.to_vec())
            })
        });
        assert_eq!(both, Ok(vec![7; 4]));
        assert_eq!(spare.lend(1, |_| Err::<(), _>(Errno::EFAULT)), Err(Errno::EFAULT));
        assert_eq!(spare.lend(KEPT_BYTES_MAX + 1, fill), Ok(KEPT_BYTES_MAX + 1));
    }
}
