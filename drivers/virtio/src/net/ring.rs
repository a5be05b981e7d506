//! What both directions of a card have: a queue, the memory of its buffers, and how the device is shown what was
//! pushed.
//!
//! Each descriptor of the queue has a buffer of its own for good, so that there is nothing to look up.

use aegis_hal::{DeviceAddress, Dma, DmaBuffer};

use super::{BUFFER_BYTES, QUEUE_SIZE, pages_of};
use crate::queue::{Interrupts, Queue};
use crate::{DeviceFault, Transport, VirtioError};

/// One direction's queue and buffers.
#[derive(Debug)]
pub(super) struct Ring<B> {
    parts: Option<Parts<B>>,
    pub(super) notification_count: u64,
}

/// What is there once the card was brought up.
#[derive(Debug)]
pub(super) struct Parts<B> {
    pub(super) queue: Queue<B, QUEUE_SIZE>,
    pub(super) memory: Option<B>,
}

impl<B> Ring<B> {
    pub(super) const fn new() -> Self {
        Self { parts: None, notification_count: 0 }
    }
}

impl<B: DmaBuffer> Ring<B> {
    /// Makes a queue of at most `size_max` descriptors, or clears the one that is there, and tells the device of it.
    pub(super) fn make_queue(
        &mut self,
        transport: &mut impl Transport,
        dma: &mut impl Dma<Buffer = B>,
        (index, size_max): (u16, u16),
        uses_event_index: bool,
    ) -> Result<(), VirtioError> {
        let size_max = transport.queue_size_max(index)?.min(size_max).min(QUEUE_SIZE as u16);
        let parts = match &mut self.parts {
            Some(parts) if parts.queue.size() > size_max => return Err(DeviceFault::Changed.into()),
            Some(parts) => {
                parts.queue.clear()?;
                parts
            }
            none => {
                let Some(log2) = size_max.checked_ilog2() else {
                    return Err(DeviceFault::QueueMissing { queue: index }.into());
                };
                none.insert(Parts { queue: Queue::allocate(dma, index, 1 << log2)?, memory: None })
            }
        };
        let queue = &mut parts.queue;
        if uses_event_index {
            queue.use_event_index();
        }
        queue.set_interrupts(Interrupts::Suppressed)?;
        transport.enable_queue(queue.index(), queue.size(), queue.addresses())
    }

    /// Memory for the queue's buffers, once.
    pub(super) fn allocate(&mut self, dma: &mut impl Dma<Buffer = B>) -> Result<(), VirtioError> {
        if let Some(parts) = &mut self.parts
            && parts.memory.is_none()
        {
            parts.memory = Some(dma.allocate(pages_of(parts.queue.size()))?);
        }
        Ok(())
    }

    /// The queue, once there is one.
    #[inline]
    pub(super) fn queue(&self) -> Option<&Queue<B, QUEUE_SIZE>> {
        self.parts.as_ref().map(|parts| &parts.queue)
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn queue_mut(&mut self) -> Option<&mut Queue<B, QUEUE_SIZE>> {
        self.parts.as_mut().map(|parts| &mut parts.queue)
    }

    /// The queue and its buffers, once both are there.
    #[inline]
    pub(super) fn parts(&mut self) -> Option<(&mut Queue<B, QUEUE_SIZE>, &mut B)> {
        let Parts { queue, memory } = self.parts.as_mut()?;
        Some((queue, memory.as_mut()?))
    }

    /// Shows the device what was pushed.
    #[inline]
    pub(super) fn publish(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        if let Some(parts) = &mut self.parts
            && parts.queue.publish()?
        {
            self.notification_count += 1;
            transport.notify(parts.queue.index())?;
        }
        Ok(())
    }

    pub(super) fn into_buffers(self, give_back: &mut impl FnMut(B)) {
        let Some(Parts { queue, memory }) = self.parts else { return };
        core::iter::once(queue.into_ring()).chain(memory).for_each(give_back);
    }
}

/// Where a descriptor's buffer begins.
pub(super) const fn place_of(descriptor: u16) -> usize {
    descriptor as usize * BUFFER_BYTES
}

/// The same for the device.
pub(super) fn address_of<B: DmaBuffer>(memory: &B, descriptor: u16) -> DeviceAddress {
    memory.device_address().offset(place_of(descriptor))
}
