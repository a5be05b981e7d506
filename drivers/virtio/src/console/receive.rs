//! The receiving direction of a port.
//!
//! A buffer is in one of three places: with the device, in the *ready* list with data, or *idle*.
//! Idle buffers go back to the device when they are half of all, so that one notification covers
//! many and the device is never without: the other half is with it or in the ready list, and
//! becomes idle as it is read.

use aegis_hal::{Dma, DmaBuffer};

use super::{BUFFER_BYTES, PORT_BUFFER_COUNT_MAX};
use crate::queue::{Queue, Segment};
use crate::{Transport, VirtioError};

/// A buffer with data.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    slot: u8,
    length_bytes: u16,
}

const _: () = assert!(BUFFER_BYTES <= u16::MAX as usize);

#[derive(Debug)]
pub(super) struct Receiver<B> {
    pub(super) queue: Option<Queue<B, PORT_BUFFER_COUNT_MAX>>,
    buffers: [Option<B>; PORT_BUFFER_COUNT_MAX],
    /// Buffers allocated; the first so many of `buffers`. Zero: not started.
    buffer_count: usize,
    /// Slot by head descriptor.
    slots: [u8; PORT_BUFFER_COUNT_MAX],
    /// Bit `slot`: the buffer is idle.
    idle: u16,
    /// Ring of buffers with data, oldest at `ready_first`.
    ready: [Ready; PORT_BUFFER_COUNT_MAX],
    ready_first: usize,
    ready_count: usize,
    /// Bytes already read of the oldest.
    front_offset: usize,
}

impl<B> Receiver<B> {
    pub(super) const fn new() -> Self {
        Self {
            queue: None,
            buffers: [const { None }; PORT_BUFFER_COUNT_MAX],
            buffer_count: 0,
            slots: [0; PORT_BUFFER_COUNT_MAX],
            idle: 0,
            ready: [Ready { slot: 0, length_bytes: 0 }; PORT_BUFFER_COUNT_MAX],
            ready_first: 0,
            ready_count: 0,
            front_offset: 0,
        }
    }
}

impl<B: DmaBuffer> Receiver<B> {
    /// Allocates buffers and gives them to the device, the first time.
    pub(super) fn start(
        &mut self,
        transport: &mut impl Transport,
        dma: &mut impl Dma<Buffer = B>,
        buffer_count: usize,
    ) -> Result<(), VirtioError> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        if self.buffer_count > 0 {
            return Ok(());
        }
        for slot in 0..buffer_count.min(usize::from(queue.size())) {
            match dma.allocate(1) {
                Ok(buffer) => self.buffers[slot] = Some(buffer),
                Err(error) if slot == 0 => return Err(error.into()),
                // Fewer buffers are slower, not wrong.
                Err(_) => break,
            }
            self.idle |= 1 << slot;
            self.buffer_count = slot + 1;
        }
        self.give_idle(transport)
    }

    /// Moves what the device has filled to the ready list. True if that was anything.
    pub(super) fn harvest(&mut self) -> Result<bool, VirtioError> {
        let Some(queue) = &mut self.queue else {
            return Ok(false);
        };
        if self.buffer_count == 0 {
            return Ok(false);
        }
        let mut has_data = false;
        while let Some(used) = queue.pop()? {
            let slot = self.slots[usize::from(used.head)];
            if used.written_bytes == 0 {
                self.idle |= 1 << slot;
                continue;
            }
            // The queue cut the length to the buffer's, and a buffer is in one place at a time, so
            // there is room.
            let last = (self.ready_first + self.ready_count) % PORT_BUFFER_COUNT_MAX;
            self.ready[last] = Ready { slot, length_bytes: used.written_bytes as u16 };
            self.ready_count += 1;
            has_data = true;
        }
        Ok(has_data)
    }

    pub(super) fn ready_bytes(&self) -> usize {
        let sum: usize = (0..self.ready_count).map(|position| usize::from(self.ready_at(position).length_bytes)).sum();
        sum - self.front_offset
    }

    pub(super) fn read(&mut self, transport: &mut impl Transport, bytes: &mut [u8]) -> Result<usize, VirtioError> {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.ready_count == 0 && !self.harvest()? {
                break;
            }
            let front = self.ready_at(0);
            let left = usize::from(front.length_bytes) - self.front_offset;
            let count = left.min(bytes.len() - filled);
            let Some(buffer) = &self.buffers[usize::from(front.slot)] else {
                break;
            };
            buffer.copy_out(self.front_offset, &mut bytes[filled..filled + count])?;
            filled += count;
            self.front_offset += count;
            if count == left {
                self.finish_front();
                self.give_idle_if_many(transport)?;
            }
        }
        self.give_idle_if_many(transport)?;
        Ok(filled)
    }

    pub(super) fn into_buffers(self, give_back: &mut impl FnMut(B)) {
        self.queue.map(Queue::into_ring).into_iter().for_each(&mut *give_back);
        self.buffers.into_iter().flatten().for_each(give_back);
    }

    fn ready_at(&self, position: usize) -> Ready {
        self.ready[(self.ready_first + position) % PORT_BUFFER_COUNT_MAX]
    }

    fn finish_front(&mut self) {
        self.idle |= 1 << self.ready_at(0).slot;
        self.ready_first = (self.ready_first + 1) % PORT_BUFFER_COUNT_MAX;
        self.ready_count -= 1;
        self.front_offset = 0;
    }

    fn give_idle_if_many(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        let idle_count = self.idle.count_ones() as usize;
        if idle_count > 0 && 2 * idle_count >= self.buffer_count {
            return self.give_idle(transport);
        }
        Ok(())
    }

    fn give_idle(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        let Some(queue) = &mut self.queue else {
            return Ok(());
        };
        while self.idle != 0 {
            let slot = self.idle.trailing_zeros() as usize;
            let Some(buffer) = &self.buffers[slot] else {
                break;
            };
            let head = queue
                .push(&[Segment::Writable { address: buffer.device_address(), length_bytes: BUFFER_BYTES as u32 }])?;
            self.slots[usize::from(head)] = slot as u8;
            self.idle &= self.idle - 1;
        }
        if queue.publish()? {
            transport.notify(queue.index())?;
        }
        Ok(())
    }
}
