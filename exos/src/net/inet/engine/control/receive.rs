//! What comes in: bytes in order and past gaps, the window, and when what came is acknowledged.
//!
//! Acknowledgements follow Linux's rules (`__tcp_ack_snd_check`): at once behind a gap, for the first segments of a
//! connection, and when more than one full segment waits; else after [`DELAY_NS`], or with what is sent before.
//!
//! Invariants: `unread <= next <= told_end`, but for the end's own number; nothing behind `told_end` is taken, so
//! memory stays within what the program asked for; ranges lie behind `next`.

use super::super::header::distance;
use super::ranges::Ranges;
use super::ring::Ring;
use crate::error::Result;
use crate::net::inet::urgent::Urgent;

/// Longest delay of an acknowledgement.
const DELAY_NS: u64 = 40_000_000;
/// Segments with bytes that are acknowledged at once in the beginning.
const PROMPT_COUNT: u8 = 16;
/// A full segment, before one was seen.
const SEGMENT_BYTES_FIRST: u32 = 536;

/// What comes in.
pub(super) struct Receiver {
    ring: Ring,
    pub(super) ranges: Ranges,
    /// Number of the first byte that was not read.
    unread: u32,
    /// Number of what is expected next.
    pub(super) next: u32,
    /// One past what the other end was told that it may send.
    told_end: u32,
    /// What was acknowledged.
    told_next: u32,
    bytes_max: usize,
    shift: u8,
    /// Bytes of a full segment, as far as was seen.
    pub(super) segment_bytes: u32,
    /// Where the other end ends its half, once it has said so.
    end_at: Option<u32>,
    pub(super) has_seen_end: bool,
    /// When an acknowledgement is due; 0: now.
    pub(super) due_ns: Option<u64>,
    prompt_count: u8,
    /// The program answers, so acknowledgements wait for answers.
    is_answering: bool,
    /// A segment that was not full waits to be acknowledged.
    has_short: bool,
    pub(super) urgent: Urgent,
    /// Congestion was met, and the other end has not said that it heard of that.
    pub(super) echoes_congestion: bool,
    /// The other end has told of urgent data, and nobody was told yet.
    pub(super) has_urgent_news: bool,
    pub(super) received_bytes: u64,
}

impl Receiver {
    pub(super) fn new(next: u32, bytes_max: usize, shift: u8) -> Self {
        Self {
            ring: Ring::default(),
            ranges: Ranges::default(),
            unread: next,
            next,
            told_end: next.wrapping_add(bytes_max.min(usize::from(u16::MAX)) as u32),
            told_next: next,
            bytes_max,
            shift,
            segment_bytes: SEGMENT_BYTES_FIRST,
            end_at: None,
            has_seen_end: false,
            due_ns: None,
            prompt_count: 0,
            is_answering: false,
            has_short: false,
            urgent: Urgent::default(),
            echoes_congestion: false,
            has_urgent_news: false,
            received_bytes: 0,
        }
    }

    /// What was acknowledged.
    pub(super) fn told_next(&self) -> u32 {
        self.told_next
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Bytes that may come, as the other end was told.
    pub(super) fn told_bytes(&self) -> u32 {
        distance(self.told_end, self.next).max(0) as u32
    }

    /// How far a segment is from what was told: windows are told in whole units, so the other end may take itself to be
    /// a unit further back.
    pub(super) fn window_unit(&self) -> i64 {
        1 << self.shift.min(14)
    }

    pub(super) fn readable_bytes(&self) -> usize {
        self.ring.length()
    }

    /// Bytes that there is room for.
    pub(super) fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.ring.length())
    }

    /// An acknowledgement is sent with the next step.
    pub(super) fn acknowledge_now(&mut self) {
        self.due_ns = Some(0);
    }

    /// The program has given something to send.
    pub(super) fn note_answer(&mut self) {
        self.is_answering |= self.received_bytes > 0;
    }

    /// Takes in bytes and the end of the other's half. What cannot be kept is left out, and comes again.
    ///
    /// # Errors
    /// `ENOMEM`: nothing was taken.
    pub(super) fn take(&mut self, mut start: u32, mut payload: &[u8], is_end: bool, now_ns: u64) -> Result<()> {
        let end = start.wrapping_add(payload.len() as u32);
        let old = distance(self.next, start);
        if old > 0 {
            self.ranges.note_repeated(start, end, self.next);
            payload = payload.get(old as usize..).unwrap_or_default();
            start = self.next;
        }
        // Behind its end the other end has nothing to say; behind the window it is not heard.
        let last = self.end_at.unwrap_or(self.told_end);
        let most = distance(last, start).clamp(0, distance(self.told_end, start).max(0)) as usize;
        payload = &payload[..payload.len().min(most)];
        let is_whole = start.wrapping_add(payload.len() as u32) == end;
        let before = self.next;
        if !payload.is_empty() {
            self.keep(start, payload)?;
        }
        let is_last = self.ranges.end().is_none_or(|known| distance(known, end) <= 0);
        if is_end && is_whole && is_last && distance(end, self.next) >= 0 {
            self.end_at.get_or_insert(end);
        }
        self.received_bytes += u64::from(self.next.wrapping_sub(before));
        if self.end_at == Some(self.next) {
            self.has_seen_end = true;
            self.next = self.next.wrapping_add(1);
            self.ranges.clear();
        }
        self.plan(payload.len(), before, is_end, now_ns);
        Ok(())
    }

    fn keep(&mut self, start: u32, payload: &[u8]) -> Result<()> {
        let offset = distance(start, self.unread).max(0) as usize;
        let most = self.bytes_max.max(distance(self.told_end, self.unread).max(0) as usize);
        self.ring.reserve(offset + payload.len(), most)?;
        self.ring.put(offset, payload);
        let end = start.wrapping_add(payload.len() as u32);
        if start != self.next {
            return self.ranges.insert((start, end));
        }
        let next = if self.ranges.is_empty() { end } else { self.ranges.advance(end) };
        self.ring.extend(next.wrapping_sub(self.next) as usize);
        self.next = next;
        Ok(())
    }

    /// When what came is acknowledged.
    fn plan(&mut self, byte_count: usize, before: u32, is_end: bool, now_ns: u64) {
        let is_gap = !self.ranges.is_empty() || self.next == before;
        let is_prompt = self.prompt_count < PROMPT_COUNT && !self.is_answering;
        let taken = self.next.wrapping_sub(before) as usize;
        self.prompt_count = self.prompt_count.saturating_add(1);
        self.segment_bytes = self.segment_bytes.max(byte_count.min(usize::from(u16::MAX)) as u32);
        self.has_short |= byte_count < self.segment_bytes as usize;
        let waiting = self.next.wrapping_sub(self.told_next);
        // What filled a gap is told of at once.
        if is_gap || is_prompt || is_end || taken > byte_count || waiting > self.segment_bytes {
            self.acknowledge_now();
        } else {
            self.due_ns.get_or_insert(now_ns + DELAY_NS);
        }
    }

    /// The window that a segment tells that is sent now: what there is room for, but nothing small, and nothing that
    /// was told is taken back.
    pub(super) fn tell_window(&mut self) -> u16 {
        let told = self.told_bytes() as usize;
        let room = self.room();
        let is_silly = room < (self.segment_bytes as usize).min(self.bytes_max / 2);
        let wanted = if is_silly { told } else { room.max(told) };
        let field = (wanted >> self.shift).min(usize::from(u16::MAX)) as u16;
        let end = self.next.wrapping_add(u32::from(field) << self.shift);
        if distance(end, self.told_end) > 0 {
            self.told_end = end;
        }
        (self.told_next, self.due_ns, self.has_short) = (self.next, None, false);
        field
    }

    /// The window as it was told last, for a segment that changes nothing.
    pub(super) fn told_window(&self) -> u16 {
        (self.told_bytes() >> self.shift).min(u32::from(u16::MAX)) as u16
    }

    /// Shows `take` bytes from the front, at most `most`; what it takes is gone. How many.
    pub(super) fn drain(&mut self, most: usize, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let mut done = 0;
        for piece in self.ring.pieces(0, most) {
            if piece.is_empty() {
                break;
            }
            let count = take(piece).min(piece.len());
            done += count;
            if count < piece.len() {
                break;
            }
        }
        self.consume(done);
        done
    }

    /// What a segment with bytes says of congestion (RFC 3168, 6.1.3).
    pub(super) fn note_congestion(&mut self, has_met: bool, is_heard: bool) {
        self.echoes_congestion &= !is_heard;
        if has_met {
            self.echoes_congestion = true;
            self.acknowledge_now();
        }
    }

    /// The place of the byte that is read next, among all of the connection's.
    pub(super) fn read_place(&self) -> u64 {
        self.received_bytes - self.ring.length() as u64
    }

    /// The other end says that the byte `urgent` is an urgent one (`tcp_check_urg` of Linux).
    pub(super) fn note_urgent(&mut self, urgent: u32) {
        let ahead = i64::from(distance(urgent, self.next)) + i64::from(self.has_seen_end);
        let Some(place) = self.received_bytes.checked_add_signed(ahead) else { return };
        let Some(loses) = self.urgent.note(place, self.read_place(), self.received_bytes) else { return };
        if loses {
            self.consume(1);
        }
        self.has_urgent_news = true;
    }

    /// A segment with bytes from `start` on came, and what is urgent may be among them.
    pub(super) fn fill_urgent(&mut self, start: u32, payload: &[u8]) {
        let Some(place) = self.urgent.awaited_place() else { return };
        let first = self.received_bytes.wrapping_add_signed(i64::from(distance(start, self.next)));
        let byte = place.checked_sub(first).and_then(|at| payload.get(usize::try_from(at).ok()?));
        if let Some(byte) = byte {
            self.urgent.fill(*byte);
        }
    }

    /// See [`super::Engine::reach`].
    pub(super) fn reach(&mut self, has_some: bool) -> Option<usize> {
        if !self.urgent.is_noted() {
            return Some(self.ring.length());
        }
        if has_some && self.urgent.is_at(self.read_place()) {
            return None;
        }
        if self.urgent.is_hole(self.read_place()) && self.ring.length() > 0 {
            self.consume(1);
        }
        Some(self.urgent.reach(self.read_place(), self.ring.length()))
    }

    /// Bytes are read, and room is made: the other end is told if that is much, or if what was read waits to be
    /// acknowledged and no answer will carry it (`tcp_cleanup_rbuf` of Linux).
    fn consume(&mut self, byte_count: usize) {
        if byte_count == 0 {
            return;
        }
        self.ring.consume(byte_count);
        self.unread = self.unread.wrapping_add(byte_count as u32);
        if self.urgent.is_noted() {
            self.urgent.pass(self.read_place());
        }
        if self.has_seen_end {
            return;
        }
        let told = self.told_bytes() as usize;
        let room = self.room();
        let opens = told * 2 <= self.bytes_max
            && room >= told * 2
            && room >= (self.segment_bytes as usize).min(self.bytes_max / 2);
        let waits = self.due_ns.is_some()
            && (self.next.wrapping_sub(self.told_next) > self.segment_bytes
                || self.ring.length() == 0 && self.has_short && !self.is_answering);
        if opens || waits {
            self.acknowledge_now();
        }
    }

    /// Copies what can be read from `offset` on, and leaves it. How much.
    pub(super) fn peek(&self, offset: usize, into: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.ring.pieces(offset, into.len()) {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        done
    }

    /// Gives memory back if it holds nothing.
    pub(super) fn release(&mut self) {
        if self.ranges.is_empty() {
            self.ring.release();
        }
    }

    pub(super) fn has_memory(&self) -> bool {
        self.ring.has_memory()
    }
}
