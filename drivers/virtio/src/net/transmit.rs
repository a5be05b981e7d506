//! The transmitting direction of a card.
//!
//! A frame is copied to the buffers of the descriptors that its chain takes. Descriptors of pieces that lie in somebody
//! else's memory leave their buffers unused. What was pushed lies until it is published.

use aegis_hal::net::{DmaWindow, Frame, SHARED_PIECE_COUNT_MAX, TransmitError};
use aegis_hal::{DeviceAddress, DmaBuffer};

use super::header::{HEADER_BYTES, encode, write};
use super::ring::{Ring, address_of, place_of};
use super::{BUFFER_BYTES, QUEUE_SIZE};
use crate::queue::Segment;
use crate::{Transport, VirtioError};

/// Most buffers that a frame is copied to.
const COPIED_BUFFER_COUNT_MAX: usize = (super::SEGMENTED_FRAME_BYTES_MAX + HEADER_BYTES).div_ceil(BUFFER_BYTES);
/// Frames that lie before the device is shown them in any case, so that it works while more come.
const LYING_COUNT_MAX: u16 = 32;
const SEGMENT_COUNT_MAX: usize = COPIED_BUFFER_COUNT_MAX + SHARED_PIECE_COUNT_MAX;

/// A set of descriptors.
type Descriptors = [u64; QUEUE_SIZE / 64];

#[derive(Debug)]
pub(super) struct Transmitter<B> {
    pub(super) ring: Ring<B>,
    /// What frames are named by, by head.
    tokens: [u32; QUEUE_SIZE],
    /// Heads of frames that the device has.
    under_way: Descriptors,
    /// Those of frames that went with a reset and have not been told yet.
    lost: Descriptors,
    has_lost: bool,
    pub(super) sent_count: u64,
    pub(super) sent_bytes: u64,
    pub(super) full_count: u64,
}

impl<B> Transmitter<B> {
    pub(super) const fn new() -> Self {
        Self {
            ring: Ring::new(),
            tokens: [0; QUEUE_SIZE],
            under_way: [0; QUEUE_SIZE / 64],
            lost: [0; QUEUE_SIZE / 64],
            has_lost: false,
            sent_count: 0,
            sent_bytes: 0,
            full_count: 0,
        }
    }
}

impl<B: DmaBuffer> Transmitter<B> {
    /// Descriptors that frames can have; none while some are lost that were not told.
    pub(super) fn room(&self) -> usize {
        let free = self.ring.queue().map_or(0, |queue| usize::from(queue.free_count()));
        if self.has_lost { 0 } else { free }
    }

    /// Takes a frame of at most `byte_count_max` bytes.
    pub(super) fn transmit(
        &mut self,
        transport: &mut impl Transport,
        frame: &Frame<'_>,
        window: &impl DmaWindow,
        byte_count_max: usize,
    ) -> Result<(), TransmitError<VirtioError>> {
        let copied_bytes: usize = frame.copied.iter().map(|piece| piece.len()).sum();
        let shared_bytes: usize = frame.shared.iter().map(|place| place.length_bytes as usize).sum();
        let byte_count = copied_bytes.saturating_add(shared_bytes);
        let buffer_count = (HEADER_BYTES + copied_bytes).div_ceil(BUFFER_BYTES);
        let descriptor_count = buffer_count + frame.shared.len();
        let Some(queue) = self.ring.queue() else { return Err(TransmitError::Frame) };
        if byte_count == 0
            || byte_count > byte_count_max
            || frame.shared.len() > SHARED_PIECE_COUNT_MAX
            || descriptor_count > usize::from(queue.size())
        {
            return Err(TransmitError::Frame);
        }
        if descriptor_count > usize::from(queue.free_count()) || self.has_lost {
            self.full_count += 1;
            return Err(TransmitError::Full);
        }
        if queue.unpublished_count() >= LYING_COUNT_MAX {
            self.ring.publish(transport).map_err(TransmitError::Broken)?;
        }
        let head = if descriptor_count == 1 {
            self.push_short(frame, copied_bytes)
        } else {
            self.push_long(frame, window, copied_bytes)
        }?;
        self.tokens[usize::from(head)] = frame.token;
        insert(&mut self.under_way, head);
        self.sent_count += 1;
        self.sent_bytes += byte_count as u64;
        Ok(())
    }

    /// A frame that one buffer holds, as nearly all.
    fn push_short(&mut self, frame: &Frame<'_>, copied_bytes: usize) -> Result<u16, TransmitError<VirtioError>> {
        let Some((queue, memory)) = self.ring.parts() else { return Err(TransmitError::Frame) };
        let Some(descriptor) = queue.free_descriptors().next() else { return Err(TransmitError::Full) };
        let place = place_of(descriptor);
        write(&frame.meta, memory, place).map_err(broken)?;
        let mut at = place + HEADER_BYTES;
        for piece in frame.copied {
            memory.copy_in(at, piece).map_err(broken)?;
            at += piece.len();
        }
        let address = address_of(memory, descriptor);
        let length_bytes = (HEADER_BYTES + copied_bytes) as u32;
        queue.push(&[Segment::Readable { address, length_bytes }]).map_err(TransmitError::Broken)
    }

    /// A frame of several pieces.
    fn push_long(
        &mut self,
        frame: &Frame<'_>,
        window: &impl DmaWindow,
        copied_bytes: usize,
    ) -> Result<u16, TransmitError<VirtioError>> {
        let Some((queue, memory)) = self.ring.parts() else { return Err(TransmitError::Frame) };
        let mut segments = [Segment::Readable { address: DeviceAddress(0), length_bytes: 0 }; SEGMENT_COUNT_MAX];
        let buffer_count = (HEADER_BYTES + copied_bytes).div_ceil(BUFFER_BYTES);
        let mut left_bytes = HEADER_BYTES + copied_bytes;
        let mut places = [0; COPIED_BUFFER_COUNT_MAX];
        let buffers = segments.iter_mut().zip(&mut places).take(buffer_count);
        for ((segment, place), descriptor) in buffers.zip(queue.free_descriptors()) {
            *place = place_of(descriptor);
            let length_bytes = left_bytes.min(BUFFER_BYTES);
            left_bytes -= length_bytes;
            let address = address_of(memory, descriptor);
            *segment = Segment::Readable { address, length_bytes: length_bytes as u32 };
        }
        for (segment, shared) in segments[buffer_count..].iter_mut().zip(frame.shared) {
            let address = window.device_address(*shared).filter(|_| shared.length_bytes > 0);
            let address = address.ok_or(TransmitError::Frame)?;
            *segment = Segment::Readable { address, length_bytes: shared.length_bytes };
        }
        let mut at = 0;
        for piece in core::iter::once(&encode(&frame.meta)[..]).chain(frame.copied.iter().copied()) {
            let mut rest = piece;
            while let (false, Some(place)) = (rest.is_empty(), places.get(at / BUFFER_BYTES)) {
                let offset = at % BUFFER_BYTES;
                let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - offset));
                memory.copy_in(place + offset, now).map_err(broken)?;
                at += now.len();
                rest = later;
            }
        }
        queue.push(&segments[..buffer_count + frame.shared.len()]).map_err(TransmitError::Broken)
    }

    /// Tells the tokens of frames that the device has done with.
    pub(super) fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, VirtioError> {
        let mut count = if self.has_lost { self.tell_lost(done) } else { 0 };
        let Some(queue) = self.ring.queue_mut() else { return Ok(count) };
        while let Some(used) = queue.pop()? {
            remove(&mut self.under_way, used.head);
            done(self.tokens[usize::from(used.head)]);
            count += 1;
        }
        Ok(count)
    }

    fn tell_lost(&mut self, done: &mut impl FnMut(u32)) -> u32 {
        let mut count = 0;
        for (lost, tokens) in self.lost.iter_mut().zip(self.tokens.chunks(64)) {
            while let Some(token) = tokens.get(lost.trailing_zeros() as usize) {
                done(*token);
                *lost &= *lost - 1;
                count += 1;
            }
        }
        self.has_lost = false;
        count
    }

    /// The device was reset: what it had is lost.
    pub(super) fn lose(&mut self) {
        for (lost, under_way) in self.lost.iter_mut().zip(&mut self.under_way) {
            *lost |= core::mem::take(under_way);
            self.has_lost |= *lost != 0;
        }
    }
}

fn broken(error: aegis_hal::AccessError) -> TransmitError<VirtioError> {
    TransmitError::Broken(error.into())
}

fn insert(descriptors: &mut Descriptors, descriptor: u16) {
    descriptors[usize::from(descriptor) / 64] |= 1 << (descriptor % 64);
}

fn remove(descriptors: &mut Descriptors, descriptor: u16) {
    descriptors[usize::from(descriptor) / 64] &= !(1 << (descriptor % 64));
}
