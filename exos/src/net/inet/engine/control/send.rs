//! What goes out: bytes that wait to be sent or acknowledged, the other end's window, and what is sent next.
//!
//! Linux's rules: a segment goes whole or not at all (`tcp_snd_wnd_test`), but for what fits when nothing is under way
//! and time has passed; segments are no longer than half of the largest window (`tcp_bound_to_half_wnd`); a short one
//! waits for a short one that is under way (Minshall), or while the connection is corked.
//!
//! Invariants: `una <= next`; the ring's first byte is number `una` until the end is acknowledged, and then it is
//! empty; `segments` are those from `una` to `next`.

use super::super::header::{Header, distance};
use super::ring::Ring;
use super::segments::Segments;

/// Shortest payload that segments are cut to.
pub(super) const SEGMENT_BYTES_MIN: u16 = 48;
/// Windows up to this are used whole.
const WHOLE_WINDOW_BYTES: u32 = 536;
/// What may wait at least, whatever the window is.
const WAITING_BYTES_MIN: usize = 65_536;
/// How many times what may be under way may wait beside.
const WAITING_RATIO: usize = 3;

/// What goes out.
pub(super) struct Sender {
    pub(super) ring: Ring,
    pub(super) segments: Segments,
    /// Oldest number that is not acknowledged.
    pub(super) una: u32,
    /// Number of what is sent next.
    pub(super) next: u32,
    /// The other end's window in bytes, the largest that it told, and the numbers of the segment that told it.
    pub(super) window: u32,
    pub(super) window_max: u32,
    window_sequence: u32,
    window_acknowledgement: u32,
    shift: u8,
    /// One past the last urgent byte, until all before it is acknowledged.
    pub(super) urgent_end: Option<u32>,
    /// End of a short segment that may be under way.
    pub(super) short_end: Option<u32>,
    pub(super) is_closing: bool,
    pub(super) has_sent_end: bool,
    pub(super) is_end_acknowledged: bool,
    /// When something is done because nothing was acknowledged: what is under way is sent again, else what waits for
    /// room is sent or asked about.
    pub(super) timer_ns: Option<u64>,
    pub(super) last_sent_ns: u64,
}

/// What may be sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) byte_count: usize,
    pub(super) is_end: bool,
    pub(super) is_short: bool,
}

impl Sender {
    pub(super) fn new(next: u32, window: u32, receive_next: u32, shift: u8, now_ns: u64) -> Self {
        Self {
            ring: Ring::default(),
            segments: Segments::default(),
            una: next,
            next,
            window,
            window_max: window,
            window_sequence: receive_next,
            window_acknowledgement: next,
            shift,
            urgent_end: None,
            short_end: None,
            is_closing: false,
            has_sent_end: false,
            is_end_acknowledged: false,
            timer_ns: None,
            last_sent_ns: now_ns,
        }
    }

    /// Bytes that were never sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        let sent = distance(self.next, self.una).max(0) as usize - usize::from(self.end_is_under_way());
        self.ring.length().saturating_sub(sent)
    }

    fn end_is_under_way(&self) -> bool {
        self.has_sent_end && !self.is_end_acknowledged
    }

    /// Bytes that can be added, of at most `bytes_max` that may wait where `under_way_bytes` may be under way.
    pub(super) fn room(&self, bytes_max: usize, under_way_bytes: usize) -> usize {
        Self::waiting_bytes_max(bytes_max, under_way_bytes).saturating_sub(self.ring.length())
    }

    /// Bytes that may wait.
    pub(super) fn waiting_bytes_max(bytes_max: usize, under_way_bytes: usize) -> usize {
        bytes_max.min(WAITING_BYTES_MIN.max(under_way_bytes.saturating_mul(WAITING_RATIO)))
    }

    /// One past the last number that the other end takes.
    pub(super) fn window_end(&self) -> u32 {
        self.una.wrapping_add(self.window)
    }

    /// The number of a segment that carries nothing: the next, but none outside of a window that was closed since (as
    /// Linux has it), because the other end does not look at what is outside.
    pub(super) fn plain_sequence(&self) -> u32 {
        let end = self.window_end();
        if distance(end, self.next) < 0 { end } else { self.next }
    }

    /// The longest payload of a segment: half of a window that is small.
    pub(super) fn segment_bytes(&self, agreed: u16) -> u32 {
        let half = if self.window_max > WHOLE_WINDOW_BYTES { self.window_max / 2 } else { self.window_max };
        match half {
            0 => u32::from(agreed),
            half => u32::from(agreed).min(half.max(u32::from(SEGMENT_BYTES_MIN))),
        }
    }

    /// What is sent next, if anything may be sent: of `segment_bytes` at most, short only if `may_be_short`.
    pub(super) fn choose(&self, segment_bytes: u32, may_be_short: bool) -> Option<Next> {
        if self.has_sent_end {
            return None;
        }
        let unsent = self.unsent_bytes();
        let byte_count = unsent.min(segment_bytes as usize);
        let room = distance(self.window_end(), self.next);
        if room <= 0 || byte_count > room as usize {
            return None;
        }
        let is_end = self.is_closing && byte_count == unsent && room as usize > byte_count;
        if byte_count == 0 && !is_end {
            return None;
        }
        let is_short = byte_count < segment_bytes as usize;
        if is_short && !is_end && !self.is_closing && !may_be_short {
            return None;
        }
        Some(Next { byte_count, is_end, is_short: is_short && byte_count > 0 })
    }

    /// What is sent when nothing is under way and nothing was sent for some time.
    pub(super) fn choose_forced(&self, segment_bytes: u32) -> Option<Next> {
        let room = distance(self.window_end(), self.next).max(0) as u32;
        self.choose(segment_bytes.min(room), true).map(|next| Next { is_short: next.byte_count > 0, ..next })
    }

    /// Whether something waits to be sent.
    pub(super) fn has_waiting(&self) -> bool {
        !self.has_sent_end && (self.is_closing || self.unsent_bytes() > 0)
    }

    /// What the header says of the other end's window, unless it is older than what is known. Whether it is as it was.
    pub(super) fn note_window(&mut self, header: &Header) -> bool {
        let is_newer = distance(header.sequence, self.window_sequence) > 0
            || header.sequence == self.window_sequence
                && distance(header.acknowledgement, self.window_acknowledgement) >= 0;
        if !is_newer {
            return true;
        }
        (self.window_sequence, self.window_acknowledgement) = (header.sequence, header.acknowledgement);
        let window = u32::from(header.window) << self.shift.min(14);
        let was = core::mem::replace(&mut self.window, window);
        self.window_max = self.window_max.max(window);
        was == window
    }

    /// All before `una` is acknowledged.
    pub(super) fn advance(&mut self, una: u32) {
        let advance = distance(una, self.una).max(0) as usize;
        self.is_end_acknowledged |= self.has_sent_end && una == self.next;
        self.ring.consume(advance);
        self.una = una;
        self.short_end = self.short_end.filter(|end| distance(*end, una) > 0);
        self.urgent_end = self.urgent_end.filter(|end| distance(*end, una) > 0);
    }

    /// Gives memory back if it holds nothing.
    pub(super) fn release(&mut self) {
        self.ring.release();
        self.segments.release();
    }
}
