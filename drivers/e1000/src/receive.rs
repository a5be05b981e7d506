//! The receiving direction: frames in buffers of half a page each, which the card fills in turn.
//!
//! One descriptor stays the driver's, because the card takes head = tail for empty. What was handed out is given back
//! in batches, so that the tail is stored once for many frames; the batch is short enough that a card without a buffer
//! always has one coming.

use aegis_hal::net::{Received, ReceivedPiece};
use aegis_hal::{DmaBuffer, Volatile};

use crate::card::BUFFER_BYTES;
use crate::registers::{RECEIVE_RING, received};
use crate::ring::Ring;
use crate::{CardFault, E1000Error};

/// Most descriptors that were handed out and not given back.
const KEPT_COUNT_MAX: u16 = 32;

#[derive(Debug)]
pub(crate) struct Receiver<B> {
    pub(crate) ring: Option<Ring<B>>,
    /// The descriptor that the card reports next.
    next: u16,
    /// The one behind the last that it was given.
    tail: u16,
    /// The rest of a frame that did not fit into a buffer is still to come.
    is_in_pieces: bool,
    pub(crate) notification_count: u64,
    pub(crate) received_count: u64,
    pub(crate) received_bytes: u64,
    pub(crate) error_count: u64,
}

impl<B> Receiver<B> {
    pub(crate) const fn new() -> Self {
        Self {
            ring: None,
            next: 0,
            tail: 0,
            is_in_pieces: false,
            notification_count: 0,
            received_count: 0,
            received_bytes: 0,
            error_count: 0,
        }
    }
}

impl<B: DmaBuffer> Receiver<B> {
    /// Prepares all descriptors but one for the card; [`Receiver::give`] shows them.
    pub(crate) fn fill(&mut self) -> Result<(), E1000Error> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        for index in 0..ring.size() {
            ring.write(index, [ring.address(index).0, 0])?;
        }
        (self.next, self.tail, self.is_in_pieces) = (0, ring.size() - 1, false);
        Ok(())
    }

    /// Shows the card the descriptors that it may fill.
    pub(crate) fn give(&mut self, registers: &mut impl Volatile) -> Result<(), E1000Error> {
        let Some(ring) = &self.ring else { return Ok(()) };
        self.notification_count += 1;
        ring.show(registers, RECEIVE_RING, self.tail)
    }

    /// Whether the card has filled another.
    #[inline]
    pub(crate) fn has_received(&self) -> Result<bool, E1000Error> {
        match &self.ring {
            Some(ring) => Ok(ring.report(self.next)? & received::DONE != 0),
            None => Ok(false),
        }
    }

    /// As [`aegis_hal::net::NetDevice::receive`].
    pub(crate) fn receive(
        &mut self,
        registers: &mut impl Volatile,
        budget: u32,
        sink: &mut impl FnMut(&Received<'_, B>),
    ) -> Result<u32, E1000Error> {
        let (mut count, mut dropped_count) = (0, 0);
        while count < budget {
            let Some(ring) = &mut self.ring else { break };
            if dropped_count > ring.size() {
                break;
            }
            let report = ring.report(self.next)?;
            // The descriptor at the tail is not the card's, whatever it writes there.
            if report & received::DONE == 0 || self.next == self.tail {
                break;
            }
            aegis_hal::barrier::observe();
            let byte_count = report as u16;
            if byte_count == 0 || usize::from(byte_count) > BUFFER_BYTES {
                return Err(CardFault::FrameLength { byte_count }.into());
            }
            let is_end = report & received::END != 0;
            let is_whole = is_end && !self.is_in_pieces && report & received::DAMAGED == 0;
            self.is_in_pieces = !is_end;
            if is_whole {
                let byte_count = usize::from(byte_count);
                self.received_count += 1;
                self.received_bytes += byte_count as u64;
                let piece = ReceivedPiece { buffer: &ring.buffers, offset: ring.place(self.next), byte_count };
                let is_checksum_valid = is_checked(report);
                sink(&Received { pieces: &[piece], byte_count, is_checksum_valid });
                count += 1;
            } else {
                self.error_count += u64::from(is_end);
                dropped_count += 1;
            }
            ring.clear(self.next)?;
            self.next = ring.next(self.next);
            // As many as are not the card's, but for the one that never is.
            let kept_count = ring.distance(self.tail, self.next).wrapping_sub(1) & (ring.size() - 1);
            if kept_count >= KEPT_COUNT_MAX.min(ring.size() / 4) {
                self.tail = ring.distance(1, self.next);
                self.give(registers)?;
            }
        }
        Ok(count)
    }
}

/// Whether the card has found a transport checksum to hold.
fn is_checked(report: u64) -> bool {
    const LOOKED_AT: u64 = received::IGNORE_CHECKSUMS | received::TRANSPORT_CHECKED | received::TRANSPORT_WRONG;
    report & LOOKED_AT == received::TRANSPORT_CHECKED
}
