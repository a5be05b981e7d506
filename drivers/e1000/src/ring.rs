//! What both directions have: a ring of descriptors, the memory of its buffers, and the registers that name them.
//!
//! Descriptor n has buffer n for good, so there is nothing to look up. The card owns what is between head and tail; the
//! driver knows that from its own record and never asks.

use aegis_hal::{DeviceAddress, Dma, DmaBuffer, PAGE_BYTES, Volatile};

use crate::E1000Error;
use crate::card::{BUFFER_BYTES, RING_SIZE_MAX};
use crate::registers::{DESCRIPTOR_BYTES, RING_BASE_HIGH, RING_BASE_LOW, RING_HEAD, RING_LENGTH, RING_TAIL};

/// A ring and its buffers.
#[derive(Debug)]
pub(crate) struct Ring<B> {
    size: u16,
    descriptors: B,
    pub(crate) buffers: B,
}

/// Pages of a ring of this size, and of its buffers.
pub(crate) const fn page_counts(size: u16) -> [usize; 2] {
    [(size as usize * DESCRIPTOR_BYTES).div_ceil(PAGE_BYTES), (size as usize * BUFFER_BYTES).div_ceil(PAGE_BYTES)]
}

impl<B: DmaBuffer> Ring<B> {
    /// Memory for a ring of so many descriptors. The card wants multiples of 128 bytes.
    pub(crate) fn allocate(dma: &mut impl Dma<Buffer = B>, queue: u16, size: u16) -> Result<Self, E1000Error> {
        if !size.is_power_of_two() || !(8..=RING_SIZE_MAX as u16).contains(&size) {
            return Err(E1000Error::RingSize);
        }
        let [ring_pages, buffer_pages] = page_counts(size);
        let descriptors = dma.allocate_rings(queue, ring_pages)?;
        match dma.allocate(buffer_pages) {
            Ok(buffers) => Ok(Self { size, descriptors, buffers }),
            Err(error) => {
                dma.release(descriptors);
                Err(error.into())
            }
        }
    }

    /// Descriptors.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The descriptor behind this one.
    #[inline]
    pub(crate) fn next(&self, index: u16) -> u16 {
        (index + 1) & (self.size - 1)
    }

    /// Descriptors from `from` to `to`.
    #[inline]
    pub(crate) fn distance(&self, from: u16, to: u16) -> u16 {
        to.wrapping_sub(from) & (self.size - 1)
    }

    /// Where a descriptor's buffer begins.
    #[inline]
    pub(crate) fn place(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1)) * BUFFER_BYTES
    }

    /// The same for the card.
    #[inline]
    pub(crate) fn address(&self, index: u16) -> DeviceAddress {
        self.buffers.device_address().offset(self.place(index))
    }

    /// Writes a descriptor. The second word is what makes it one, so it comes last.
    #[inline]
    pub(crate) fn write(&mut self, index: u16, words: [u64; 2]) -> Result<(), E1000Error> {
        let offset = usize::from(index) * DESCRIPTOR_BYTES;
        self.descriptors.write_u64(offset, words[0])?;
        Ok(self.descriptors.write_u64(offset + 8, words[1])?)
    }

    /// The word in which the card reports, in one access.
    #[inline]
    pub(crate) fn report(&self, index: u16) -> Result<u64, E1000Error> {
        Ok(self.descriptors.read_u64(usize::from(index) * DESCRIPTOR_BYTES + 8)?)
    }

    /// Clears that word.
    #[inline]
    pub(crate) fn clear(&mut self, index: u16) -> Result<(), E1000Error> {
        Ok(self.descriptors.write_u64(usize::from(index) * DESCRIPTOR_BYTES + 8, 0)?)
    }

    /// Tells the card of the ring, which is empty then.
    pub(crate) fn announce(&self, registers: &mut impl Volatile, base: usize) -> Result<(), E1000Error> {
        let address = self.descriptors.device_address().0;
        registers.write_u32(base + RING_BASE_LOW, address as u32)?;
        registers.write_u32(base + RING_BASE_HIGH, (address >> 32) as u32)?;
        registers.write_u32(base + RING_LENGTH, u32::from(self.size) * DESCRIPTOR_BYTES as u32)?;
        registers.write_u32(base + RING_HEAD, 0)?;
        Ok(registers.write_u32(base + RING_TAIL, 0)?)
    }

    /// Shows the card everything before `tail`. Registers are not cached, so what was written to memory is seen first.
    #[inline]
    pub(crate) fn show(&self, registers: &mut impl Volatile, base: usize, tail: u16) -> Result<(), E1000Error> {
        aegis_hal::barrier::publish();
        Ok(registers.write_u32(base + RING_TAIL, u32::from(tail))?)
    }

    pub(crate) fn into_buffers(self) -> [B; 2] {
        [self.descriptors, self.buffers]
    }
}
