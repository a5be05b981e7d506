//! The transmitting direction of a card.
//!
//! A frame is copied to the buffers of the descriptors that it takes; pieces in somebody else's memory leave their
//! descriptors' buffers unused. A plain frame has descriptors of the old form. One whose checksum the card fills in, or
//! which it cuts, has those of the new form, behind a *context* that says where its headers are; the card keeps the
//! last context, so frames of one kind need one only.
//!
//! The card reports at the last descriptor of each frame. What it reports too early costs the frame, and nothing else:
//! descriptors that were not shown are not looked at.

use aegis_hal::net::{
    ChecksumMeta, DmaWindow, Frame, SHARED_PIECE_COUNT_MAX, SegmentationMeta, TransmitError, TransmitMeta,
};
use aegis_hal::{DmaBuffer, Volatile};

use crate::E1000Error;
use crate::card::{BUFFER_BYTES, ETHERNET_HEADER_BYTES, RING_SIZE_MAX};
use crate::registers::{TRANSMIT_RING, sent};
use crate::ring::Ring;

/// Frames' descriptors that lie before the card is shown them in any case, so that it works while more come.
const LYING_COUNT_MAX: u16 = 32;
/// Most bytes of a descriptor (82540EM, erratum 7).
const DESCRIPTOR_BYTES_MAX: u32 = 4096;
/// Descriptors that stay empty: the one that tells full from empty, and one more for the 82540EM.
const SPARE_COUNT: u16 = 2;
/// Where a TCP header has its checksum: what tells it from others.
const TCP_CHECKSUM_OFFSET: u16 = 16;
/// In an IPv4 header: its length, and its checksum. In one of IPv6: the length.
const IP4_LENGTH: usize = 2;
const IP4_CHECKSUM: usize = 10;
const IP6_LENGTH: usize = 4;

#[derive(Debug)]
pub(crate) struct Transmitter<B> {
    pub(crate) ring: Option<Ring<B>>,
    /// Where the next frame begins, how far the card was shown, and where the oldest frame begins.
    next: u16,
    shown: u16,
    oldest: u16,
    /// By the first descriptor of a frame: its last, and what it is named by.
    ends: [u16; RING_SIZE_MAX],
    tokens: [u32; RING_SIZE_MAX],
    /// What the card has been told last of where headers are.
    context: Option<[u64; 2]>,
    /// The frames under way went with a reset, and were not told yet.
    has_lost: bool,
    pub(crate) notification_count: u64,
    pub(crate) sent_count: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) full_count: u64,
}

/// What a frame takes.
#[derive(Clone, Copy)]
struct Plan {
    context: Option<[u64; 2]>,
    copied_bytes: usize,
    byte_count: usize,
    descriptor_count: usize,
    /// Of every descriptor with data, in its second word.
    flags: u64,
}

impl<B> Transmitter<B> {
    pub(crate) const fn new() -> Self {
        Self {
            ring: None,
            next: 0,
            shown: 0,
            oldest: 0,
            ends: [0; RING_SIZE_MAX],
            tokens: [0; RING_SIZE_MAX],
            context: None,
            has_lost: false,
            notification_count: 0,
            sent_count: 0,
            sent_bytes: 0,
            full_count: 0,
        }
    }
}

impl<B: DmaBuffer> Transmitter<B> {
    fn free_count(&self) -> usize {
        let Some(ring) = &self.ring else { return 0 };
        usize::from(ring.size() - SPARE_COUNT).saturating_sub(usize::from(ring.distance(self.oldest, self.next)))
    }

    /// Frames that there is room for, each with a context of its own.
    pub(crate) fn room(&self) -> usize {
        if self.has_lost { 0 } else { self.free_count() / 2 }
    }

    /// Takes a frame of at most `byte_count_max` bytes.
    pub(crate) fn transmit(
        &mut self,
        registers: &mut impl Volatile,
        frame: &Frame<'_>,
        window: &impl DmaWindow,
        byte_count_max: usize,
    ) -> Result<(), TransmitError<E1000Error>> {
        let plan = plan(frame, self.context).ok_or(TransmitError::Frame)?;
        let Some(size) = self.ring.as_ref().map(Ring::size) else { return Err(TransmitError::Frame) };
        let is_wrong = plan.byte_count == 0
            || plan.byte_count > byte_count_max
            || frame.shared.len() > SHARED_PIECE_COUNT_MAX
            || plan.descriptor_count > usize::from(size - SPARE_COUNT);
        if is_wrong || frame.shared.iter().any(|place| window.device_address(*place).is_none()) {
            return Err(TransmitError::Frame);
        }
        if plan.descriptor_count > self.free_count() || self.has_lost {
            self.full_count += 1;
            return Err(TransmitError::Full);
        }
        self.put(frame, window, &plan).map_err(TransmitError::Broken)?;
        self.sent_count += 1;
        self.sent_bytes += plan.byte_count as u64;
        let lying_count = self.ring.as_ref().map_or(0, |ring| ring.distance(self.shown, self.next));
        if lying_count >= LYING_COUNT_MAX.min(size / 2) {
            self.show(registers).map_err(TransmitError::Broken)?;
        }
        Ok(())
    }

    /// Writes a frame's descriptors and bytes, for which there is room.
    fn put(&mut self, frame: &Frame<'_>, window: &impl DmaWindow, plan: &Plan) -> Result<(), E1000Error> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let first = self.next;
        let mut index = first;
        if let Some(context) = plan.context {
            ring.write(index, context)?;
            self.context = Some(context);
            index = ring.next(index);
        }
        let last = (usize::from(first) + plan.descriptor_count - 1) as u16 & (ring.size() - 1);
        let data = |ring: &mut Ring<B>, index: u16, address: u64, byte_count: u32| {
            let end = if index == last { sent::END | sent::REPORT } else { 0 };
            ring.write(index, [address, u64::from(byte_count) | plan.flags | end])
        };
        copy(ring, index, frame)?;
        let mut left_bytes = plan.copied_bytes;
        if let (Some(segmentation), Some(checksum)) = (frame.meta.segmentation, frame.meta.checksum) {
            let place = ring.place(index);
            prepare_headers(&mut ring.buffers, place, (segmentation, checksum), plan.byte_count)?;
        }
        while left_bytes > 0 {
            let byte_count = left_bytes.min(BUFFER_BYTES);
            data(ring, index, ring.address(index).0, byte_count as u32)?;
            index = ring.next(index);
            left_bytes -= byte_count;
        }
        for place in frame.shared {
            let Some(address) = window.device_address(*place) else { break };
            let mut done_bytes = 0;
            while done_bytes < place.length_bytes {
                let byte_count = (place.length_bytes - done_bytes).min(DESCRIPTOR_BYTES_MAX);
                data(ring, index, address.offset(done_bytes as usize).0, byte_count)?;
                index = ring.next(index);
                done_bytes += byte_count;
            }
        }
        self.ends[usize::from(first)] = last;
        self.tokens[usize::from(first)] = frame.token;
        self.next = index;
        Ok(())
    }

    /// Shows the card all frames that it has not been shown.
    pub(crate) fn show(&mut self, registers: &mut impl Volatile) -> Result<(), E1000Error> {
        let Some(ring) = &self.ring else { return Ok(()) };
        if self.shown != self.next {
            self.shown = self.next;
            self.notification_count += 1;
            ring.show(registers, TRANSMIT_RING, self.next)?;
        }
        Ok(())
    }

    /// Whether the oldest frame is done with.
    pub(crate) fn has_completed(&self) -> Result<bool, E1000Error> {
        match &self.ring {
            _ if self.has_lost => Ok(true),
            Some(ring) if self.oldest != self.shown => {
                Ok(ring.report(self.ends[usize::from(self.oldest)])? & sent::DONE != 0)
            }
            _ => Ok(false),
        }
    }

    /// Tells the tokens of frames that the card has done with, or that were lost.
    pub(crate) fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, E1000Error> {
        let mut count = 0;
        if self.has_lost {
            let Some(ring) = &self.ring else { return Ok(0) };
            while self.oldest != self.next {
                done(self.tokens[usize::from(self.oldest)]);
                self.oldest = ring.next(self.ends[usize::from(self.oldest)]);
                count += 1;
            }
            self.has_lost = false;
            (self.next, self.shown, self.oldest) = (0, 0, 0);
            return Ok(count);
        }
        while self.has_completed()? {
            let Some(ring) = &self.ring else { break };
            let first = usize::from(self.oldest);
            self.oldest = ring.next(self.ends[first]);
            done(self.tokens[first]);
            count += 1;
        }
        Ok(count)
    }

    /// The card was reset: what it had is lost, and it begins at the first descriptor again.
    pub(crate) fn lose(&mut self) {
        self.context = None;
        self.has_lost = self.oldest != self.next;
        if !self.has_lost {
            (self.next, self.shown, self.oldest) = (0, 0, 0);
        }
    }
}

/// What a frame takes; `None`: the card cannot be told of it.
fn plan(frame: &Frame<'_>, known: Option<[u64; 2]>) -> Option<Plan> {
    let copied_bytes: usize = frame.copied.iter().map(|piece| piece.len()).sum();
    let (mut byte_count, mut descriptor_count) = (copied_bytes, copied_bytes.div_ceil(BUFFER_BYTES));
    for place in frame.shared {
        if place.length_bytes == 0 {
            return None;
        }
        byte_count = byte_count.checked_add(place.length_bytes as usize)?;
        descriptor_count += place.length_bytes.div_ceil(DESCRIPTOR_BYTES_MAX) as usize;
    }
    let TransmitMeta { checksum, segmentation } = frame.meta;
    let mut flags = sent::ADD_CHECK;
    let mut context = None;
    if let Some(checksum) = checksum {
        flags |= sent::NEW_FORM | sent::DATA | sent::FILL_TRANSPORT;
        let words = match segmentation {
            None => checksum_context(checksum)?,
            Some(segmentation) => {
                flags |= sent::SEGMENTED | if segmentation.is_ip6 { 0 } else { sent::FILL_IP };
                // Headers are changed, and lie in one buffer for that.
                let header_bytes = usize::from(segmentation.header_bytes);
                if header_bytes > copied_bytes.min(BUFFER_BYTES) || header_bytes >= byte_count {
                    return None;
                }
                segmentation_context(checksum, segmentation, byte_count)?
            }
        };
        context = Some(words).filter(|words| segmentation.is_some() || known != Some(*words));
    }
    descriptor_count += usize::from(context.is_some());
    Some(Plan { context, copied_bytes, byte_count, descriptor_count, flags })
}

/// Places of a checksum, which have a byte each.
fn transport_places(checksum: ChecksumMeta) -> Option<u64> {
    let start = u8::try_from(checksum.start_bytes).ok()?;
    let place = u8::try_from(checksum.start_bytes.checked_add(checksum.offset_bytes)?).ok()?;
    Some(u64::from(start) << 32 | u64::from(place) << 40)
}

fn checksum_context(checksum: ChecksumMeta) -> Option<[u64; 2]> {
    let tcp = if checksum.offset_bytes == TCP_CHECKSUM_OFFSET { sent::TCP } else { 0 };
    Some([transport_places(checksum)?, sent::NEW_FORM | tcp])
}

fn segmentation_context(checksum: ChecksumMeta, cut: SegmentationMeta, byte_count: usize) -> Option<[u64; 2]> {
    let header_bytes = u8::try_from(cut.header_bytes).ok()?;
    let payload_bytes = byte_count.checked_sub(usize::from(header_bytes))?;
    let ip_start = ETHERNET_HEADER_BYTES as u64;
    let ip_end = u64::from(checksum.start_bytes.checked_sub(1)?);
    let least_start = ETHERNET_HEADER_BYTES + if cut.is_ip6 { 40 } else { 20 };
    let least_header = usize::from(checksum.start_bytes) + 20;
    if usize::from(checksum.start_bytes) < least_start
        || usize::from(header_bytes) < least_header
        || checksum.offset_bytes != TCP_CHECKSUM_OFFSET
        || payload_bytes >= 1 << 20
    {
        return None;
    }
    let (ip, form) = match cut.is_ip6 {
        true => (ip_start, 0),
        false => (ip_start | (ip_start + IP4_CHECKSUM as u64) << 8 | ip_end << 16, sent::IP4),
    };
    let kind = sent::NEW_FORM | sent::SEGMENTED | sent::TCP | form;
    let sizes = u64::from(header_bytes) << 40 | u64::from(cut.payload_bytes) << 48;
    Some([transport_places(checksum)? | ip, payload_bytes as u64 | kind | sizes])
}

/// Copies a frame's bytes to the buffers from descriptor `index` on.
fn copy<B: DmaBuffer>(ring: &mut Ring<B>, index: u16, frame: &Frame<'_>) -> Result<(), E1000Error> {
    let mut at = 0;
    for piece in frame.copied {
        let mut rest = *piece;
        while !rest.is_empty() {
            let offset = at % BUFFER_BYTES;
            let place = ring.place(index + (at / BUFFER_BYTES) as u16) + offset;
            let (now, later) = rest.split_at(rest.len().min(BUFFER_BYTES - offset));
            ring.buffers.copy_in(place, now)?;
            at += now.len();
            rest = later;
        }
    }
    Ok(())
}

/// Makes headers what the card counts from: no lengths, no checksum of IPv4, and the length not in that of TCP.
fn prepare_headers<B: DmaBuffer>(
    buffers: &mut B,
    place: usize,
    (cut, checksum): (SegmentationMeta, ChecksumMeta),
    byte_count: usize,
) -> Result<(), E1000Error> {
    let ip = place + ETHERNET_HEADER_BYTES;
    match cut.is_ip6 {
        true => buffers.copy_in(ip + IP6_LENGTH, &[0; 2])?,
        false => {
            buffers.copy_in(ip + IP4_LENGTH, &[0; 2])?;
            buffers.copy_in(ip + IP4_CHECKSUM, &[0; 2])?;
        }
    }
    let start = usize::from(checksum.start_bytes);
    let transport_bytes = byte_count.saturating_sub(start) as u16;
    let at = place + start + usize::from(checksum.offset_bytes);
    let mut sum = [0; 2];
    buffers.copy_out(at, &mut sum)?;
    let (sum, has_carry) = u16::from_be_bytes(sum).overflowing_add(!transport_bytes);
    Ok(buffers.copy_in(at, &sum.wrapping_add(u16::from(has_carry)).to_be_bytes())?)
}
