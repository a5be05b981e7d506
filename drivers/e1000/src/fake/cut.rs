//! What the card does to a frame on its way out: sums, and segments.

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;

use crate::registers::sent;

/// Where headers are, as the card was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    ip: (usize, usize, usize),
    transport: (usize, usize),
    payload_bytes: usize,
    is_ip4: bool,
    is_segmented: bool,
    header_bytes: usize,
    segment_bytes: usize,
}

impl Context {
    pub(crate) fn read([first, second]: [u64; 2]) -> Self {
        let byte = |word: u64, shift: u32| usize::from((word >> shift) as u8);
        Self {
            ip: (byte(first, 0), byte(first, 8), usize::from((first >> 16) as u16)),
            transport: (byte(first, 32), byte(first, 40)),
            payload_bytes: (second & 0xf_ffff) as usize,
            is_ip4: second & sent::IP4 != 0,
            is_segmented: second & sent::SEGMENTED != 0,
            header_bytes: byte(second, 40),
            segment_bytes: usize::from((second >> 48) as u16),
        }
    }
}

/// The frames that the pieces of one come to; `None`: no card understands them.
pub(crate) fn cut(parts: &[(u64, Vec<u8>)], context: &Context) -> Option<Vec<Vec<u8>>> {
    let flags = parts.first()?.0;
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    if parts.iter().any(|(other, _)| other & sent::ADD_CHECK == 0) || parts.iter().any(|part| part.1.is_empty()) {
        return None;
    }
    let is_new = flags & sent::NEW_FORM != 0;
    if !is_new {
        return Some(vec![whole]);
    }
    if flags & sent::SEGMENTED == 0 {
        let mut frame = whole;
        fill(&mut frame, flags, context)?;
        return Some(vec![frame]);
    }
    if !context.is_segmented || context.header_bytes + context.payload_bytes != whole.len() {
        return None;
    }
    let (header, payload) = whole.split_at_checked(context.header_bytes)?;
    let mut frames = Vec::new();
    for (number, piece) in payload.chunks(context.segment_bytes.max(1)).enumerate() {
        let mut frame = [header, piece].concat();
        let ip_bytes = frame.len() - context.ip.0;
        let length = if context.is_ip4 { (2, ip_bytes) } else { (4, ip_bytes - 40) };
        put(&mut frame, context.ip.0 + length.0, length.1 as u16)?;
        if context.is_ip4 {
            let place = context.ip.0 + 4;
            let number = get(&frame, place)?.wrapping_add(number as u16);
            put(&mut frame, place, number)?;
        }
        let sequence_place = context.transport.0 + 4;
        let sequence = frame.get(sequence_place..sequence_place + 4)?;
        let sequence = u32::from_be_bytes(sequence.try_into().ok()?);
        let sequence = sequence.wrapping_add((number * context.segment_bytes) as u32);
        frame[sequence_place..sequence_place + 4].copy_from_slice(&sequence.to_be_bytes());
        // The card adds the length to what the pseudo-header has so far.
        let transport_bytes = (frame.len() - context.transport.0) as u16;
        let partial = u32::from(get(&frame, context.transport.1)?) + u32::from(transport_bytes);
        put(&mut frame, context.transport.1, (partial + (partial >> 16)) as u16)?;
        fill(&mut frame, flags, context)?;
        frames.push(frame);
    }
    Some(frames)
}

fn fill(frame: &mut [u8], flags: u64, context: &Context) -> Option<()> {
    if flags & sent::FILL_TRANSPORT != 0 {
        let sum = sum_of(frame.get(context.transport.0..)?);
        put(frame, context.transport.1, !sum)?;
    }
    if flags & sent::FILL_IP != 0 {
        let (start, place, end) = context.ip;
        let sum = sum_of(frame.get(start..=end)?);
        put(frame, place, !sum)?;
    }
    Some(())
}

/// The ones' complement sum.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn get(frame: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(place..place + 2)?.try_into().ok()?))
}

fn put(frame: &mut [u8], place: usize, value: u16) -> Option<()> {
    frame.get_mut(place..place + 2)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}
