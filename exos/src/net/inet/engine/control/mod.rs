//! A connection's transmission control block: TCP's protocol machine (RFC 9293), as Linux has it where a peer can see.
//!
//! | part | what it knows |
//! |---|---|
//! | [`receive`] | bytes in order and past gaps, the window, when to acknowledge |
//! | [`send`] | bytes to be sent, the other end's window, what is sent next |
//! | [`segments`] | each segment under way: there, lost, sent again |
//! | [`recovery`] | what an acknowledgement says: losses, and how much may be sent after them |
//! | [`congestion`], [`round_trip`] | how much may be under way; how long is waited |
//! | [`transmit`] | sends what is due |
//! | [`ring`], [`ranges`] | memory |
//!
//! Here they are one [`Engine`]: segments are examined (RFC 9293, 3.10.7.4; RFC 5961; RFC 7323), and handed to the
//! parts. Time is an argument, nothing waits, and all memory is bounded by the tuning. Why it is our own: ADR 0070.

mod congestion;
mod ranges;
mod receive;
mod recovery;
mod ring;
mod round_trip;
mod segments;
mod send;
mod transmit;

use super::header::{Header, distance, ecn, flag};
use super::{Engine, Outlet, Report, Terms, Tuning, Verdict};
use crate::error::{Errno, Result};
use crate::net::inet::tcp_state::TcpState;
use crate::net::inet::urgent::Urgent;
use congestion::Congestion;
use receive::Receiver;
use recovery::Recovery;
use round_trip::RoundTrip;
use send::{SEGMENT_BYTES_MIN, Sender};

/// How often segments that do not belong to a connection are answered (`tcp_invalid_ratelimit`).
const ANSWER_INTERVAL_NS: u64 = 500_000_000;

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u32,
    received: u32,
    repeated: u32,
    acknowledged_bytes: u64,
}

/// The machine.
pub(in super::super) struct ControlBlock {
    terms: Terms,
    /// Longest payload that was agreed on; a path may be shorter.
    agreed_bytes_max: u16,
    tuning: Tuning,
    send: Sender,
    receive: Receiver,
    trip: RoundTrip,
    congestion: Congestion,
    recovery: Recovery,
    counts: Counts,
    /// The program ended its half after the other end had.
    is_last: bool,
    /// Not all that could be sent was sent in one step.
    is_interrupted: bool,
    /// Since when what is sent is not acknowledged.
    stalled_since_ns: Option<u64>,
    /// The same, also while the other end says that it has no room.
    unmoved_since_ns: Option<u64>,
    /// When segments that do not belong here are answered again.
    answers_from_ns: u64,
}

impl ControlBlock {
    /// A machine for a connection that has just been established.
    pub(in super::super) fn new(terms: &Terms, tuning: &Tuning, now_ns: u64) -> Self {
        let (other_shift, own_shift) = terms.window_shifts.unwrap_or((0, 0));
        let mut receive = Receiver::new(terms.receive_next, tuning.receive_bytes_max, own_shift);
        receive.urgent.is_inline = tuning.is_urgent_inline;
        Self {
            terms: *terms,
            agreed_bytes_max: terms.segment_bytes_max,
            tuning: *tuning,
            send: Sender::new(terms.send_next, terms.send_window_bytes, terms.receive_next, other_shift, now_ns),
            receive,
            trip: RoundTrip::new(terms.round_trip_ns),
            congestion: Congestion::new(),
            recovery: Recovery::default(),
            counts: Counts::default(),
            is_last: false,
            is_interrupted: false,
            stalled_since_ns: None,
            unmoved_since_ns: None,
            answers_from_ns: 0,
        }
    }

    fn times(&self, now_ns: u64) -> Option<(u32, u32)> {
        self.terms.times.map(|(offset, recent)| (((now_ns / 1_000_000) as u32).wrapping_add(offset), recent))
    }

    /// A header that acknowledges all that came in, and tells the window.
    fn header(&mut self, sequence: u32, mut flags: u8, now_ns: u64) -> Header {
        let window = self.receive.tell_window();
        let sack = if self.terms.has_sack { self.receive.ranges.take_blocks() } else { Default::default() };
        self.counts.sent = self.counts.sent.wrapping_add(1);
        let acknowledgement = self.receive.next;
        let ahead = self.send.urgent_end.map_or(0, |end| distance(end, sequence).clamp(0, i32::from(u16::MAX)));
        if ahead > 0 {
            flags |= flag::URG;
        }
        if self.receive.echoes_congestion {
            flags |= flag::ECE;
        }
        let (urgent, times) = (ahead as u16, self.times(now_ns));
        Header { sequence, acknowledgement, flags, window, urgent, sack, times, ..Header::default() }
    }

    /// Tells the other end where this one is.
    fn send_acknowledgement(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        let header = self.header(self.send.plain_sequence(), flag::ACK, now_ns);
        outlet.send(&header, [&[], &[]]);
    }

    /// The same because of a segment that does not belong here: at most twice a second, but for one that carries
    /// something, which may be a lost answer's (RFC 5961, 7).
    fn answer(&mut self, is_limited: bool, now_ns: u64, outlet: &mut dyn Outlet) {
        if !outlet.has_room() || is_limited && now_ns < self.answers_from_ns {
            return;
        }
        if is_limited {
            self.answers_from_ns = now_ns + ANSWER_INTERVAL_NS;
        }
        self.send_acknowledgement(now_ns, outlet);
    }

    /// Whether a segment is for the window at all, and what else stands before its bytes and its acknowledgement
    /// (RFC 9293, 3.10.7.4; RFC 5961; RFC 7323, 5). `None`: it may go on.
    fn examine(&mut self, header: &Header, byte_count: usize, now_ns: u64, outlet: &mut dyn Outlet) -> Option<Verdict> {
        let start = i64::from(distance(header.sequence, self.receive.next));
        let length = i64::from(header.length(byte_count));
        let room = i64::from(self.receive.told_bytes());
        if header.has(flag::RST) {
            if start == 0 {
                return Some(Verdict::Reset);
            }
            if start > 0 && start < room {
                self.answer(true, now_ns, outlet);
            }
            return Some(Verdict::Taken);
        }
        if let (Some((_, recent)), Some((time, _))) = (self.terms.times, header.times)
            && distance(time, recent) < 0
        {
            self.answer(length == 0, now_ns, outlet);
            return Some(Verdict::Taken);
        }
        let is_acceptable = match length {
            0 => start >= -self.receive.window_unit() && start != -1 && start <= room,
            _ => start < room.max(1) && start + length > 0,
        };
        if !is_acceptable || header.has(flag::SYN) {
            if length > 0 && start + length <= 0 {
                let end = header.sequence.wrapping_add(byte_count as u32);
                self.receive.ranges.note_repeated(header.sequence, end, self.receive.next);
            }
            self.answer(length == 0 || header.has(flag::SYN), now_ns, outlet);
            return Some(Verdict::Taken);
        }
        if !header.has(flag::ACK) || distance(header.acknowledgement, self.send.next) > 0 {
            return Some(Verdict::Taken);
        }
        let behind = i64::from(distance(header.acknowledgement, self.send.una));
        if behind < -i64::from(self.send.window_max) {
            self.answer(true, now_ns, outlet);
            return Some(Verdict::Taken);
        }
        None
    }

    /// Bytes that may be under way.
    fn under_way_bytes_max(&self) -> usize {
        self.congestion.window_count as usize * usize::from(self.terms.segment_bytes_max)
    }

    /// Bytes that were sent and not acknowledged.
    fn under_way_bytes(&self) -> usize {
        self.send.ring.length() - self.send.unsent_bytes()
    }
}

impl Engine for ControlBlock {
    fn arrive(&mut self, header: &Header, payload: &[u8], now_ns: u64, outlet: &mut dyn Outlet) -> Verdict {
        self.counts.received = self.counts.received.wrapping_add(1);
        if let Some(verdict) = self.examine(header, payload.len(), now_ns, outlet) {
            return verdict;
        }
        if let (Some((_, recent)), Some((time, _))) = (&mut self.terms.times, header.times)
            && distance(header.sequence, self.receive.told_next()) <= 0
        {
            *recent = time;
        }
        self.take_acknowledgement(header, payload.len(), now_ns);
        if header.has(flag::URG) {
            let before = u32::from(header.urgent > 0);
            self.receive.note_urgent(header.sequence.wrapping_add(u32::from(header.urgent)).wrapping_sub(before));
        }
        let is_end = header.has(flag::FIN);
        if payload.is_empty() && !is_end || self.receive.has_seen_end {
            return Verdict::Taken;
        }
        if self.terms.has_ecn && !payload.is_empty() {
            self.receive.note_congestion(header.congestion == ecn::MET, header.has(flag::CWR));
        }
        self.receive.fill_urgent(header.sequence, payload);
        match self.receive.take(header.sequence, payload, is_end, now_ns) {
            Ok(()) => Verdict::Taken,
            Err(_) => Verdict::NoMemory,
        }
    }

    fn transmit(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        self.send_due(now_ns, outlet);
    }

    fn deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.is_interrupted {
            return Some(now_ns);
        }
        let due = [self.send.timer_ns, self.recovery.again_ns, self.receive.due_ns];
        due.into_iter().flatten().min().map(|at_ns| at_ns.max(now_ns))
    }

    fn send_room(&self) -> usize {
        if self.send.is_closing { 0 } else { self.send.room(self.tuning.send_bytes_max, self.under_way_bytes_max()) }
    }

    fn fill(&mut self, most: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize> {
        let mut left = most.min(self.send_room());
        let wanted = self.send.ring.length() + left;
        self.send.ring.reserve(wanted, self.tuning.send_bytes_max.max(wanted)).map_err(|_| Errno::ENOBUFS)?;
        let mut done = 0;
        while left > 0 {
            let room = self.send.ring.room();
            let piece = room.len().min(left);
            let count = fill(&mut room[..piece]).min(piece);
            self.send.ring.extend(count);
            (done, left) = (done + count, left - count);
            if count < piece || piece == 0 {
                break;
            }
        }
        if done > 0 {
            self.receive.note_answer();
        }
        Ok(done)
    }

    fn is_writable(&self) -> bool {
        let most = Sender::waiting_bytes_max(self.tuning.send_bytes_max, self.under_way_bytes_max());
        !self.send.is_closing && self.send.ring.length() * 3 <= most * 2
    }

    fn unacknowledged_bytes(&self) -> (usize, usize) {
        (self.send.ring.length(), self.send.unsent_bytes())
    }

    fn readable_bytes(&self) -> usize {
        self.receive.readable_bytes()
    }

    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        self.receive.drain(most, take)
    }

    fn reach(&mut self, has_some: bool) -> Option<usize> {
        self.receive.reach(has_some)
    }

    fn urgent(&mut self) -> (&mut Urgent, u64) {
        let place = self.receive.read_place();
        (&mut self.receive.urgent, place)
    }

    fn take_urgent_news(&mut self) -> bool {
        core::mem::take(&mut self.receive.has_urgent_news)
    }

    fn mark_urgent(&mut self) {
        self.send.urgent_end = Some(self.send.una.wrapping_add(self.send.ring.length() as u32));
    }

    fn peek(&self, offset: usize, into: &mut [u8]) -> usize {
        self.receive.peek(offset, into)
    }

    fn close(&mut self) {
        if !self.send.is_closing {
            (self.send.is_closing, self.is_last) = (true, self.receive.has_seen_end);
        }
    }

    fn reset_header(&self) -> Header {
        Header {
            sequence: self.send.plain_sequence(),
            acknowledgement: self.receive.next,
            flags: flag::RST | flag::ACK,
            window: self.receive.told_window(),
            ..Header::default()
        }
    }

    fn state(&self) -> TcpState {
        match (self.send.is_closing, self.send.is_end_acknowledged, self.receive.has_seen_end) {
            (false, _, false) => TcpState::Established,
            (false, _, true) => TcpState::CloseWait,
            (true, false, false) => TcpState::FinWait1,
            (true, false, true) if self.is_last => TcpState::LastAck,
            (true, false, true) => TcpState::Closing,
            (true, true, false) => TcpState::FinWait2,
            (true, true, true) if self.is_last => TcpState::Close,
            (true, true, true) => TcpState::TimeWait,
        }
    }

    fn has_seen_end(&self) -> bool {
        self.receive.has_seen_end
    }

    fn stalled_since_ns(&self) -> Option<u64> {
        self.stalled_since_ns
    }

    fn unmoved_since_ns(&self) -> Option<u64> {
        self.unmoved_since_ns
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = *tuning;
        self.receive.set_bytes_max(tuning.receive_bytes_max);
        self.receive.urgent.is_inline = tuning.is_urgent_inline;
    }

    fn set_segment_bytes_max(&mut self, bytes: u16) {
        let bytes = bytes.clamp(SEGMENT_BYTES_MIN, self.agreed_bytes_max.max(SEGMENT_BYTES_MIN));
        let was = core::mem::replace(&mut self.terms.segment_bytes_max, bytes);
        if bytes < was {
            self.note_shorter_path(u32::from(bytes) + u32::from(self.send.has_sent_end));
        }
    }

    fn acknowledge(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        self.answer(false, now_ns, outlet);
    }

    fn probe(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        let header = self.header(self.send.una.wrapping_sub(1), flag::ACK, now_ns);
        outlet.send(&header, [&[], &[]]);
    }

    fn rest(&mut self) {
        self.send.release();
        self.receive.release();
    }

    fn is_at_rest(&self) -> bool {
        !self.send.ring.has_memory() && !self.receive.has_memory()
    }

    fn is_under_way(&self, sequence: u32) -> bool {
        distance(sequence, self.send.una) >= 0 && distance(sequence, self.send.next) < 0
    }

    fn received_bytes(&self) -> u64 {
        self.receive.received_bytes
    }

    fn times(&self) -> Option<(u32, u32)> {
        self.terms.times
    }

    fn report(&self) -> Report {
        let segments = &self.send.segments;
        Report {
            round_trip_us: (self.trip.smoothed_ns / 1000) as u32,
            round_trip_variance_us: (self.trip.variance_ns / 1000) as u32,
            round_trip_min_us: if self.trip.smoothed_ns == 0 { 0 } else { (self.trip.least_ns / 1000) as u32 },
            retransmit_timeout_us: (self.trip.timeout_ns() / 1000) as u32,
            send_segment_bytes: self.send.segment_bytes(self.terms.segment_bytes_max),
            receive_segment_bytes: self.receive.segment_bytes,
            send_window_bytes: self.send.window,
            receive_window_bytes: self.receive.told_bytes(),
            unacknowledged_bytes: self.under_way_bytes() as u32,
            unsent_bytes: self.send.unsent_bytes() as u32,
            under_way_count: segments.count(),
            sacked_count: segments.sacked_count(),
            lost_count: segments.lost_count(),
            resent_count: segments.resent_count(),
            congestion_window_count: self.congestion.window_count,
            slow_start_threshold_count: self.congestion.threshold_count,
            backoff_count: self.trip.doubled_count,
            retransmit_count: self.counts.repeated,
            acknowledged_bytes: self.counts.acknowledged_bytes,
            received_bytes: self.receive.received_bytes,
            sent_segment_count: self.counts.sent,
            received_segment_count: self.counts.received,
            last_sent_ns: self.send.last_sent_ns,
            has_times: self.terms.times.is_some(),
            has_sack: self.terms.has_sack,
            window_shifts: self.terms.window_shifts,
        }
    }
}
