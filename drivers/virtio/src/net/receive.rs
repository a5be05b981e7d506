//! The receiving direction of a card.
//!
//! What the queue calls a chain is the buffer's number. A buffer goes back as soon as its frame was handed out; the
//! device is shown those that went back a quarter of the queue at a time, or before somebody sleeps.

use aegis_hal::DmaBuffer;
use aegis_hal::net::{Received, ReceivedPiece};

use super::header::{HEADER_BYTES, ReceiveHeader};
use super::ring::{Ring, address_of, place_of};
use super::{BUFFER_BYTES, QUEUE_SIZE};
use crate::queue::{Interrupts, Queue, Segment, Used};
use crate::{DeviceFault, Transport, VirtioError};

/// Most buffers that a frame lies in: as many as its length can fill.
const PIECE_COUNT_MAX: usize = (u16::MAX as usize + HEADER_BYTES + super::ETHERNET_HEADER_BYTES).div_ceil(BUFFER_BYTES);

#[derive(Debug)]
pub(super) struct Receiver<B> {
    pub(super) ring: Ring<B>,
    /// Frames may lie in several buffers.
    pub(super) merges: bool,
    pub(super) received_count: u64,
    pub(super) received_bytes: u64,
    pub(super) error_count: u64,
}

impl<B> Receiver<B> {
    pub(super) const fn new() -> Self {
        Self { ring: Ring::new(), merges: false, received_count: 0, received_bytes: 0, error_count: 0 }
    }
}

impl<B: DmaBuffer> Receiver<B> {
    /// Gives the device all buffers.
    pub(super) fn fill(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        let Some((queue, memory)) = self.ring.parts() else { return Ok(()) };
        for _ in 0..queue.free_count() {
            give(queue, memory)?;
        }
        self.ring.publish(transport)
    }

    pub(super) fn receive(
        &mut self,
        transport: &mut impl Transport,
        budget: u32,
        sink: &mut impl FnMut(&Received<'_, B>),
    ) -> Result<u32, VirtioError> {
        let mut count = 0;
        while count < budget {
            let Some(queue) = self.ring.queue_mut() else { break };
            if !queue.has_used()? {
                break;
            }
            queue.set_interrupts(Interrupts::Suppressed)?;
            let Some(used) = queue.pop()? else { break };
            self.take_frame(used, sink)?;
            count += 1;
            let Some(queue) = self.ring.queue() else { break };
            if queue.unpublished_count() >= queue.size().div_ceil(4) {
                self.ring.publish(transport)?;
            }
        }
        Ok(count)
    }

    /// Hands out the frame that begins in the buffer `used`, and gives its buffers back.
    fn take_frame(&mut self, used: Used, sink: &mut impl FnMut(&Received<'_, B>)) -> Result<(), VirtioError> {
        let Some((queue, memory)) = self.ring.parts() else { return Ok(()) };
        let memory = &*memory;
        let written = used.written_bytes as usize;
        let Some(first_bytes) = written.checked_sub(HEADER_BYTES).filter(|count| *count > 0) else {
            self.error_count += 1;
            return give(queue, memory);
        };
        let header = ReceiveHeader::read(memory, place_of(used.head))?;
        let first =
            ReceivedPiece { buffer: memory, offset: place_of(used.head) + HEADER_BYTES, byte_count: first_bytes };
        let is_checksum_valid = header.is_checksum_valid;
        if !self.merges || header.buffer_count == 1 {
            self.received_count += 1;
            self.received_bytes += first_bytes as u64;
            sink(&Received { pieces: &[first], byte_count: first_bytes, is_checksum_valid });
            return give(queue, memory);
        }
        let mut rest = [(0, 0); PIECE_COUNT_MAX];
        let rest = pop_rest(queue, header.buffer_count, &mut rest)?;
        let byte_count = first_bytes + rest.iter().map(|(_, count)| count).sum::<usize>();
        let pieces: [_; PIECE_COUNT_MAX] = core::array::from_fn(|index| match index.checked_sub(1) {
            None => ReceivedPiece { ..first },
            Some(index) => {
                let (offset, byte_count) = rest.get(index).copied().unwrap_or_default();
                ReceivedPiece { buffer: memory, offset, byte_count }
            }
        });
        self.received_count += 1;
        self.received_bytes += byte_count as u64;
        sink(&Received { pieces: &pieces[..1 + rest.len()], byte_count, is_checksum_valid });
        for _ in 0..=rest.len() {
            give(queue, memory)?;
        }
        Ok(())
    }
}

/// Gives the device the buffer of the next free descriptor.
fn give<B: DmaBuffer>(queue: &mut Queue<B, QUEUE_SIZE>, memory: &B) -> Result<(), VirtioError> {
    let descriptor = queue.free_descriptors().next();
    if let Some(descriptor) = descriptor {
        let address = address_of(memory, descriptor);
        queue.push(&[Segment::Writable { address, length_bytes: BUFFER_BYTES as u32 }])?;
    }
    Ok(())
}

/// Takes the buffers of a frame behind its first: where they begin and what the device wrote. The device returns all
/// of them at once (section 5.1.6.4).
fn pop_rest<'a, B: DmaBuffer>(
    queue: &mut Queue<B, QUEUE_SIZE>,
    buffer_count: u16,
    rest: &'a mut [(usize, usize); PIECE_COUNT_MAX],
) -> Result<&'a [(usize, usize)], VirtioError> {
    let fault = DeviceFault::FrameBuffers { count: buffer_count };
    let rest_count = usize::from(buffer_count).checked_sub(1).filter(|count| *count < PIECE_COUNT_MAX).ok_or(fault)?;
    for place in &mut rest[..rest_count] {
        let used = queue.pop()?.ok_or(fault)?;
        *place = (place_of(used.head), used.written_bytes as usize);
    }
    Ok(&rest[..rest_count])
}
