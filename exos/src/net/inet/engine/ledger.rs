//! What is known of a connection beside its socket of smoltcp: numbers on the wire, windows, times, counts.
//!
//! Neighbour: [`super::adapter`], the engine. Invariant: `una <= sent_max`.

use super::header::{Header, distance, flag};
use super::{Outlet, Terms};

/// What is known of the connection outside of smoltcp.
pub(super) struct Ledger {
    pub(super) terms: Terms,
    /// Longest payload that was agreed on; a path may be shorter.
    pub(super) agreed_bytes_max: u16,
    /// A number on the wire less smoltcp's.
    pub(super) offset: u32,
    /// Oldest number that is not acknowledged.
    pub(super) una: u32,
    /// One past the last number that was ever sent.
    pub(super) sent_max: u32,
    /// End of a short segment that may be under way.
    pub(super) short_end: Option<u32>,
    /// The other end's window as its header had it, and the numbers of the segment that told it.
    pub(super) window: u16,
    /// The largest of them.
    pub(super) window_max: u16,
    pub(super) window_sequence: u32,
    pub(super) window_acknowledgement: u32,
    /// Number of the first byte that was not read.
    pub(super) unread: u32,
    pub(super) has_seen_end: bool,
    /// Where the other end ends its half, once it has said so.
    pub(super) end_at: Option<u32>,
    /// Bytes came in before others; one past the last of them.
    pub(super) gap_end: Option<u32>,
    /// What the last segment acknowledged and had as its window.
    pub(super) told_acknowledgement: u32,
    pub(super) told_window: u16,
    /// How far smoltcp shifts its windows.
    pub(super) ring_shift: u8,
    pub(super) round_trip_us: u32,
    pub(super) round_trip_variance_us: u32,
    /// Since when what is sent is not acknowledged.
    pub(super) stalled_since_ns: Option<u64>,
    /// The same, also while the other end says that it has no room.
    pub(super) unmoved_since_ns: Option<u64>,
    /// When segments that do not belong here are answered again.
    pub(super) answers_from_ns: u64,
    pub(super) acknowledged_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_count: u32,
    pub(super) received_count: u32,
    pub(super) retransmit_count: u32,
    /// Segments with bytes that came in, up to a limit.
    pub(super) prompt_count: u32,
    pub(super) largest_payload_bytes: u32,
}

impl Ledger {
    pub(super) fn new(terms: &Terms, receive_bytes_max: usize) -> Self {
        let (other_shift, own_shift) = terms.window_shifts.unwrap_or((0, 0));
        Self {
            terms: *terms,
            agreed_bytes_max: terms.segment_bytes_max,
            offset: 0,
            una: terms.send_next,
            sent_max: terms.send_next,
            short_end: None,
            window: (terms.send_window_bytes >> other_shift).min(u32::from(u16::MAX)) as u16,
            window_max: (terms.send_window_bytes >> other_shift).min(u32::from(u16::MAX)) as u16,
            window_sequence: terms.receive_next,
            window_acknowledgement: terms.send_next,
            unread: terms.receive_next,
            has_seen_end: false,
            end_at: None,
            gap_end: None,
            told_acknowledgement: terms.receive_next,
            told_window: (receive_bytes_max.min(usize::from(u16::MAX)) >> own_shift) as u16,
            ring_shift: 0,
            round_trip_us: terms.round_trip_ns.map_or(0, |ns| (ns / 1000) as u32),
            round_trip_variance_us: terms.round_trip_ns.map_or(250_000, |ns| (ns / 2000) as u32),
            stalled_since_ns: None,
            unmoved_since_ns: None,
            answers_from_ns: 0,
            acknowledged_bytes: 0,
            received_bytes: 0,
            sent_count: 0,
            received_count: 0,
            retransmit_count: 0,
            prompt_count: 0,
            largest_payload_bytes: 0,
        }
    }

    pub(super) fn milliseconds(now_ns: u64) -> u32 {
        (now_ns / 1_000_000) as u32
    }

    pub(super) fn times(&self, now_ns: u64) -> Option<(u32, u32)> {
        self.terms.times.map(|(offset, recent)| (Self::milliseconds(now_ns).wrapping_add(offset), recent))
    }

    /// A segment that smoltcp sends, on its way to the wire; on paper, only what it says of smoltcp is noted.
    pub(super) fn send(&mut self, mut header: Header, payload: &[u8], outlet: Option<&mut dyn Outlet>, now_ns: u64) {
        let Some(outlet) = outlet else {
            if header.has(flag::SYN) {
                self.offset = self.terms.send_next.wrapping_sub(header.sequence.wrapping_add(1));
                self.ring_shift = header.window_shift.unwrap_or(0);
            }
            return;
        };
        header.sequence = header.sequence.wrapping_add(self.offset);
        let shift = self.terms.window_shifts.map_or(0, |shifts| shifts.1);
        let window = (u32::from(header.window) << self.ring_shift) >> shift;
        header.window = window.min(u32::from(u16::MAX)) as u16;
        header.times = self.times(now_ns);
        // smoltcp asks for a window that is shut with a byte beyond it; Linux with a number that was acknowledged.
        let asks_for_room = payload.len() == 1 && self.window == 0 && !header.has(flag::FIN);
        let payload = if asks_for_room { &[] } else { payload };
        if asks_for_room {
            (header.sequence, header.flags) = (self.una.wrapping_sub(1), flag::ACK);
        }
        if payload.is_empty() && !asks_for_room && !header.has(flag::FIN) {
            header.sequence = self.plain_sequence();
        }
        let end = header.sequence.wrapping_add(header.length(payload.len()));
        if !payload.is_empty() && payload.len() < usize::from(self.terms.segment_bytes_max) {
            self.short_end = Some(end);
        }
        if asks_for_room {
            self.stalled_since_ns.get_or_insert(now_ns);
            self.unmoved_since_ns.get_or_insert(now_ns);
        }
        if end != header.sequence {
            if distance(header.sequence, self.sent_max) < 0 {
                self.retransmit_count = self.retransmit_count.saturating_add(1);
                outlet.note_repetition();
            }
            self.stalled_since_ns.get_or_insert(now_ns);
            self.unmoved_since_ns.get_or_insert(now_ns);
        }
        if distance(end, self.sent_max) > 0 {
            self.sent_max = end;
        }
        (self.told_acknowledgement, self.told_window) = (header.acknowledgement, header.window);
        self.sent_count = self.sent_count.wrapping_add(1);
        outlet.send(&header, payload);
    }

    /// A header for what is sent without smoltcp: all that came in is acknowledged, and no more may come than was told.
    pub(super) fn header(&self, flags: u8, receive_next: u32, now_ns: u64) -> Header {
        let shift = self.terms.window_shifts.map_or(0, |shifts| shifts.1);
        let told_end = self.told_acknowledgement.wrapping_add(u32::from(self.told_window) << shift);
        let window = distance(told_end, receive_next).max(0) >> shift;
        Header {
            sequence: self.plain_sequence(),
            acknowledgement: receive_next,
            flags,
            window: window.min(i32::from(u16::MAX)) as u16,
            times: self.times(now_ns),
            ..Header::default()
        }
    }

    /// Bytes that one of its own windows counts.
    pub(super) fn window_unit(&self) -> i64 {
        1 << self.terms.window_shifts.map_or(0, |shifts| shifts.1).min(14)
    }

    /// The number of a segment that carries nothing: the next, but none outside of a window that was closed since (as
    /// Linux has it), because the other end does not look at what is outside.
    fn plain_sequence(&self) -> u32 {
        let shift = self.terms.window_shifts.map_or(0, |shifts| shifts.0);
        let end = self.una.wrapping_add(u32::from(self.window) << shift);
        if distance(end, self.sent_max) < 0 { end } else { self.sent_max }
    }

    /// The largest window that the other end ever told, in bytes.
    pub(super) fn send_window_max(&self) -> i32 {
        let shift = self.terms.window_shifts.map_or(0, |shifts| shifts.0);
        i32::from(self.window_max) << shift.min(14)
    }

    /// A measurement of the round trip (RFC 6298, 2).
    pub(super) fn note_round_trip(&mut self, sample_us: u32) {
        if self.round_trip_us == 0 {
            (self.round_trip_us, self.round_trip_variance_us) = (sample_us, sample_us / 2);
        } else {
            let difference = self.round_trip_us.abs_diff(sample_us);
            self.round_trip_variance_us =
                ((u64::from(self.round_trip_variance_us) * 3 + u64::from(difference)) / 4) as u32;
            self.round_trip_us = ((u64::from(self.round_trip_us) * 7 + u64::from(sample_us)) / 8) as u32;
        }
    }

    /// What an acknowledgement that is not old says: how far it is.
    pub(super) fn note_acknowledgement(&mut self, header: &Header, now_ns: u64) {
        let advance = distance(header.acknowledgement, self.una);
        if advance > 0 {
            self.una = header.acknowledgement;
            self.acknowledged_bytes += advance as u64;
            self.stalled_since_ns = (self.una != self.sent_max).then_some(now_ns);
            self.unmoved_since_ns = self.stalled_since_ns;
            if let (Some((_, answered)), Some((offset, _))) = (header.times, self.terms.times) {
                let sent_ms = answered.wrapping_sub(offset);
                let sample_ms = Self::milliseconds(now_ns).wrapping_sub(sent_ms);
                if sample_ms < 1 << 20 {
                    self.note_round_trip((sample_ms * 1000).max(1));
                }
            }
        } else if header.window == 0 {
            self.stalled_since_ns = self.stalled_since_ns.map(|_| now_ns);
        }
        if self.short_end.is_some_and(|end| distance(end, self.una) <= 0) {
            self.short_end = None;
        }
        let is_newer = distance(header.sequence, self.window_sequence) > 0
            || header.sequence == self.window_sequence
                && distance(header.acknowledgement, self.window_acknowledgement) >= 0;
        if is_newer {
            self.window = header.window;
            self.window_max = self.window_max.max(self.window);
            (self.window_sequence, self.window_acknowledgement) = (header.sequence, header.acknowledgement);
        }
    }
}
