//! One guarded queue: the driver's rings on one side, the device's on the other, and the guard's record between them.
//!
//! A descriptor has the same number on both sides, and so has a chain, so that the device's answers mean to the driver
//! what they say. What that asks for is that no descriptor is in two chains at a time: the record has a bit for each
//! one that the device may still look at, and a chain that meets one of them breaks the rules. The same bit ends
//! loops.

use aegis_hal::{AccessError, DmaBuffer, Width, barrier};

use super::GUARDED_QUEUE_SIZE_MAX;
use crate::queue::{
    AVAILABLE_NO_INTERRUPT, DESCRIPTOR_BYTES, DESCRIPTOR_NEXT, DESCRIPTOR_WRITE, RING_HEADER_BYTES, USED_ELEMENT_BYTES,
    USED_NO_NOTIFY, available_offset, used_offset,
};

/// Bytes of a queue's descriptors and available ring at the device.
pub(super) const DEVICE_BYTES: usize = used_offset(GUARDED_QUEUE_SIZE_MAX).next_multiple_of(DESCRIPTOR_BYTES);

/// Why a queue cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The driver announced more chains than the queue has room for.
    AvailableIndex,
    /// A descriptor's number that does not exist, or is in the device's hands.
    Descriptor,
    /// Flags that were not agreed on, or something to read behind something to write.
    Flags,
    /// A buffer that is empty or not within the window.
    Buffer,
    /// The device returned what it did not have.
    Device,
    /// The guard's own memory is too small.
    Memory,
}

impl From<AccessError> for Fault {
    fn from(_: AccessError) -> Self {
        Self::Memory
    }
}

/// The memory that the driver may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Its place for the device.
    pub(super) base: u64,
    pub(super) length_bytes: u64,
}

impl Window {
    /// Where the device finds `length_bytes` bytes that the driver calls `address`.
    fn translate(&self, address: u64, length_bytes: u64) -> Option<u64> {
        let end = address.checked_add(length_bytes)?;
        (length_bytes > 0 && end <= self.length_bytes).then(|| self.base + address)
    }
}

/// The memory of a queue, and where in it the queue is.
#[derive(Debug)]
pub(super) struct Places<'a, B> {
    /// The driver's rings.
    pub(super) rings: &'a B,
    /// The used ring.
    pub(super) used: &'a B,
    /// Of both: the queue's page.
    pub(super) page_offset: usize,
    /// The device's descriptors and available ring.
    pub(super) device: &'a mut B,
    /// Where the queue's are.
    pub(super) device_offset: usize,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The device is to be notified.
    pub(super) notifies: bool,
}

/// The record of a queue.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    /// Descriptors; 0: not set up.
    size: u16,
    /// Chains taken from the driver, and shown to the device, modulo 2^16.
    available_index: u16,
    /// Chains that the device has returned, modulo 2^16.
    used_index: u16,
    /// Bit n: descriptor n is in the device's hands.
    held: u64,
    /// Descriptors of the chain that begins here; 0: none does.
    lengths: [u8; GUARDED_QUEUE_SIZE_MAX],
    /// The successor in a chain.
    next: [u8; GUARDED_QUEUE_SIZE_MAX],
}

const _: () = assert!(GUARDED_QUEUE_SIZE_MAX <= u64::BITS as usize);

impl Shadow {
    pub(super) const NONE: Self = Self {
        size: 0,
        available_index: 0,
        used_index: 0,
        held: 0,
        lengths: [0; GUARDED_QUEUE_SIZE_MAX],
        next: [0; GUARDED_QUEUE_SIZE_MAX],
    };

    pub(super) fn is_enabled(&self) -> bool {
        self.size != 0
    }

    /// A queue of `size` descriptors, a power of two that the caller has checked, with empty rings.
    pub(super) fn enable<B: DmaBuffer>(
        &mut self,
        size: u16,
        device: &mut B,
        device_offset: usize,
    ) -> Result<(), Fault> {
        for offset in (0..DEVICE_BYTES).step_by(8) {
            device.write_u64(device_offset + offset, 0)?;
        }
        *self = Self { size, ..Self::NONE };
        Ok(())
    }

    /// Takes the driver's new chains and its wish for interrupts over to the device.
    pub(super) fn look<B: DmaBuffer>(&mut self, window: Window, places: &mut Places<'_, B>) -> Result<Look, Fault> {
        self.harvest(places)?;
        let available = available_offset(usize::from(self.size));
        let (from, to) = (places.page_offset + available, places.device_offset + available);
        let flags = places.rings.read_u16(from)? & AVAILABLE_NO_INTERRUPT;
        places.device.write_u16(to, flags)?;
        let new_count = places.rings.read_u16(from + 2)?.wrapping_sub(self.available_index);
        if new_count > self.size {
            return Err(Fault::AvailableIndex);
        }
        // The index before the entries that it covers.
        barrier::observe();
        for _ in 0..new_count {
            let slot = RING_HEADER_BYTES + 2 * usize::from(self.available_index % self.size);
            let head = places.rings.read_u16(from + slot)?;
            self.take_chain(head, window, places)?;
            places.device.write_u16(to + slot, head)?;
            self.available_index = self.available_index.wrapping_add(1);
        }
        // Descriptors and entries before the index that covers them; that and the flags before the look at what the
        // device wants and has done.
        barrier::publish();
        places.device.write_u16(to + 2, self.available_index)?;
        barrier::full();
        let wants = places.used.read_u16(places.page_offset)? & USED_NO_NOTIFY == 0;
        Ok(Look { notifies: new_count > 0 && wants })
    }

    /// Copies a chain, which from then on is the device's.
    fn take_chain<B: DmaBuffer>(&mut self, head: u16, window: Window, places: &mut Places<'_, B>) -> Result<(), Fault> {
        let (mut descriptor, mut has_written) = (head, false);
        let mut length = 0;
        loop {
            // Each turn sets a bit that was clear, so there are at most as many as descriptors.
            if descriptor >= self.size || self.held & 1 << descriptor != 0 {
                return Err(Fault::Descriptor);
            }
            let at = DESCRIPTOR_BYTES * usize::from(descriptor);
            let address = places.rings.read(places.page_offset + at, Width::U64)?;
            let rest = places.rings.read(places.page_offset + at + 8, Width::U64)?;
            let (length_bytes, flags) = (rest & u64::from(u32::MAX), rest >> 32 & u64::from(u16::MAX));
            let is_written = flags & DESCRIPTOR_WRITE != 0;
            if flags & !(DESCRIPTOR_NEXT | DESCRIPTOR_WRITE) != 0 || (has_written && !is_written) {
                return Err(Fault::Flags);
            }
            has_written = is_written;
            let address = window.translate(address, length_bytes).ok_or(Fault::Buffer)?;
            let has_next = flags & DESCRIPTOR_NEXT != 0;
            let next = if has_next { rest >> 48 } else { 0 };
            places.device.write_u64(places.device_offset + at, address)?;
            places.device.write_u64(places.device_offset + at + 8, length_bytes | flags << 32 | next << 48)?;
            self.held |= 1 << descriptor;
            length += 1;
            if !has_next {
                break;
            }
            if let Some(place) = self.next.get_mut(usize::from(descriptor)) {
                *place = next as u8;
            }
            descriptor = next as u16;
        }
        *self.lengths.get_mut(usize::from(head)).ok_or(Fault::Descriptor)? = length;
        Ok(())
    }

    /// Takes note of what the device has returned.
    fn harvest<B: DmaBuffer>(&mut self, places: &Places<'_, B>) -> Result<(), Fault> {
        let returned_count = places.used.read_u16(places.page_offset + 2)?.wrapping_sub(self.used_index);
        if returned_count > self.available_index.wrapping_sub(self.used_index) {
            return Err(Fault::Device);
        }
        barrier::observe();
        for _ in 0..returned_count {
            let slot = USED_ELEMENT_BYTES * usize::from(self.used_index % self.size);
            let id = places.used.read_u32(places.page_offset + RING_HEADER_BYTES + slot)?;
            self.release_chain(id as usize)?;
            self.used_index = self.used_index.wrapping_add(1);
        }
        Ok(())
    }

    fn release_chain(&mut self, head: usize) -> Result<(), Fault> {
        let length = self.lengths.get_mut(head).map_or(0, core::mem::take);
        if length == 0 {
            return Err(Fault::Device);
        }
        let mut descriptor = head;
        for _ in 0..length {
            self.held &= !(1 << (descriptor % GUARDED_QUEUE_SIZE_MAX));
            descriptor = self.next.get(descriptor).map_or(0, |next| usize::from(*next));
        }
        Ok(())
    }
}
