//! Memory that a device can reach.
//!
//! A [`Dma`] belongs to one device: what it allocates is reachable by that device (and by no other,
//! where there is an IOMMU) from `allocate` to `release`. Addresses that a device is told are
//! [`DeviceAddress`], which is a physical address only where nothing translates.

use crate::{AccessError, Volatile};

/// Allocation unit in bytes.
pub const PAGE_BYTES: usize = 4096;

/// An address as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The address `offset_bytes` further.
    #[must_use]
    pub const fn offset(self, offset_bytes: usize) -> Self {
        Self(self.0.wrapping_add(offset_bytes as u64))
    }
}

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaError {
    /// No memory, or none in one piece, is left to this allocator.
    Exhausted,
    /// Zero pages were asked for, or more than the allocator ever gives.
    PageCount,
}

/// Gives and takes back memory for one device.
pub trait Dma {
    /// A buffer that this allocator gives.
    type Buffer: DmaBuffer;

    /// Allocates `page_count` pages that are contiguous for the device and makes them reachable for
    /// it. The content is unspecified.
    ///
    /// # Errors
    /// [`DmaError`]; nothing changed then.
    fn allocate(&mut self, page_count: usize) -> Result<Self::Buffer, DmaError>;

    /// Memory for the rings of queue `queue` (its index at the device), as [`Dma::allocate`] gives it unless
    /// overridden.
    ///
    /// # Errors
    /// [`DmaError`]; nothing changed then.
    fn allocate_rings(&mut self, queue: u16, page_count: usize) -> Result<Self::Buffer, DmaError> {
        let _ = queue;
        self.allocate(page_count)
    }

    /// Whether what the device writes of a queue's rings has to begin at a page of its own, which the driver can only
    /// read, and every notification reaches a guard that looks at the rest first.
    fn has_guarded_rings(&self) -> bool {
        false
    }

    /// Takes a buffer back: unmap for the device, flush the device's translation cache, free; in
    /// this order.
    ///
    /// The caller has stopped the device and has seen it stopped, or the device never learned of
    /// the buffer (HAL-3).
    fn release(&mut self, buffer: Self::Buffer);

    /// Takes a buffer from a driver that could not stop its device. The memory must not be reused
    /// before someone else has cut the device off (function reset, IOMMU); unless overridden it
    /// never is.
    fn quarantine(&mut self, buffer: Self::Buffer) {
        // HAL-4: dropping frees nothing.
        drop(buffer);
    }
}

/// One buffer, seen from both sides: a multiple of [`PAGE_BYTES`]. All access by the processor is volatile and
/// bounds-checked (HAL-1, HAL-2).
pub trait DmaBuffer: Volatile {
    /// Where the buffer starts for the device; page-aligned.
    fn device_address(&self) -> DeviceAddress;

    /// Copies `bytes` into the buffer at `offset`.
    ///
    /// # Errors
    /// [`AccessError`] if they do not fit; nothing is written then.
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError>;

    /// Copies out of the buffer from `offset` until `bytes` is full.
    ///
    /// # Errors
    /// [`AccessError`] if there are not as many bytes; nothing is read then.
    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError>;

    /// Copies `byte_count` bytes from `offset` into another buffer at `into_offset`.
    ///
    /// # Errors
    /// [`AccessError`] if either has not as many; some may be written then.
    fn copy_across(
        &self,
        offset: usize,
        into: &mut Self,
        into_offset: usize,
        byte_count: usize,
    ) -> Result<(), AccessError>
    where
        Self: Sized,
    {
        let mut piece = [0; 256];
        let mut done = 0;
        while done < byte_count {
            let count = (byte_count - done).min(piece.len());
            self.copy_out(offset.saturating_add(done), &mut piece[..count])?;
            into.copy_in(into_offset.saturating_add(done), &piece[..count])?;
            done += count;
        }
        Ok(())
    }
}
