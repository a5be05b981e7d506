//! The engine that smoltcp is: a set of one socket behind an interface that has one packet.
//!
//! smoltcp knows its own two ends alone, under addresses and ports that are always the same (`live`),
//! so the cost of a segment does not depend on how many connections there are. What it lacks is done here, on segments'
//! way in and out:
//!
//! - *Sequence numbers.* It chooses its own first number. Ours are shifted by a constant difference.
//! - *The handshake* is over when an engine begins. A fresh socket is led through it on paper: the segments are made
//!   up, and its answers go nowhere. The round trip that was measured is played to it.
//! - *Windows* are shifted as the handshake has it, whatever the memory of the socket is.
//! - *Times* (RFC 7323): told, answered, and old segments dropped by them (PAWS).
//! - *Resets and `SYN`* within a connection (RFC 5961) never reach it; nor acknowledgements of what was not sent, and
//!   old ones are made new, because it drops the bytes of a segment whose acknowledgement is old.
//! - *Nagle* as Linux has it: a short segment waits for a short one that is under way, not for any (Minshall).
//!   `TCP_CORK` keeps the rest of a segment back here.
//! - *Time* is told `CLOCK_RATE` times as fast, because its shortest retransmission timeout is a second and Linux's
//!   200 ms.
//! - *Memory.* Its two buffers are of fixed size, so a connection at rest has no socket ([`Engine::rest`]): a few
//!   numbers lead a new one to the same place.
//!
//! Invariants: `una <= sent_max`; smoltcp is fed only acknowledgements between the two; a segment that is fed is never
//! longer than the window that smoltcp has told, because its first answer on paper tells it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use smoltcp::socket::tcp::State;
use smoltcp::time::{Duration, Instant};

use super::header::{Header, distance, flag};
use super::ledger::Ledger;
use super::live::{CLOCK_RATE, Live, PAYLOAD_BYTES_MAX, RING_BYTES, instant, interface, nanoseconds};
use super::{Engine, Outlet, Report, Terms, Tuning, Verdict};
use crate::error::{Errno, Result};
use crate::net::inet::tcp_state::TcpState;
use crate::reserve;

/// Longest delay of an acknowledgement.
const ACKNOWLEDGEMENT_DELAY_MS: u64 = 40;
/// Segments with bytes that are acknowledged at once in the beginning, as Linux does.
const PROMPT_COUNT: u32 = 16;
/// How long `TCP_CORK` holds back.
const CORK_NS: u64 = 200_000_000;
/// Most segments that are sent at a time.
const BURST_COUNT_MAX: usize = 64;
/// Memory at first: for what comes in the window that a first segment tells, for what goes out an answer. What carries
/// more gets more, up to what its program asks for.
const RECEIVE_RING_BYTES_FRESH: usize = 65_536;
const SEND_RING_BYTES_FRESH: usize = 16_384;
/// How many times as much it gets then.
const RING_GROWTH: usize = 4;

/// The engine.
pub(in super::super) struct Smoltcp {
    ledger: Ledger,
    live: Option<Box<Live>>,
    tuning: Tuning,
    /// What `TCP_CORK` keeps back, and until when.
    held: Vec<u8>,
    held_until_ns: Option<u64>,
    is_closing: bool,
    /// Memory that its next socket has for what comes in and for what goes out.
    receive_ring_bytes: usize,
    send_ring_bytes: usize,
    /// Bytes that had come in when that was looked at.
    received_before: u64,
}

impl Smoltcp {
    /// An engine for a connection that has just been established.
    pub(in super::super) fn new(terms: &Terms, tuning: &Tuning) -> Self {
        let mut terms = *terms;
        terms.segment_bytes_max = terms.segment_bytes_max.min(PAYLOAD_BYTES_MAX as u16);
        Self {
            ledger: Ledger::new(&terms, tuning.receive_bytes_max),
            live: None,
            tuning: *tuning,
            held: Vec::new(),
            held_until_ns: None,
            is_closing: false,
            receive_ring_bytes: RECEIVE_RING_BYTES_FRESH,
            send_ring_bytes: SEND_RING_BYTES_FRESH,
            received_before: 0,
        }
    }

    /// Its socket; one is made if it rests.
    fn live(&mut self, now_ns: u64) -> Result<&mut Live> {
        if self.live.is_none() {
            let receive_bytes = self.receive_ring_bytes.min(self.tuning.receive_bytes_max);
            let send_bytes = self.send_ring_bytes.min(self.tuning.send_bytes_max);
            self.live = Some(Box::new(Live::begin(&mut self.ledger, receive_bytes, send_bytes, now_ns)?));
        }
        self.live.as_deref_mut().ok_or(Errno::ENOMEM)
    }

    /// Number of the next byte that is expected.
    fn receive_next(&self) -> u32 {
        let queued = self.live.as_ref().map_or(0, |live| live.socket_ref().recv_queue());
        self.ledger.unread.wrapping_add(queued as u32).wrapping_add(u32::from(self.ledger.has_seen_end))
    }

    /// Bytes that there is room for.
    fn receive_room(&self) -> usize {
        match &self.live {
            None => self.tuning.receive_bytes_max,
            Some(live) => live.socket_ref().recv_capacity() - live.socket_ref().recv_queue(),
        }
    }

    /// Tells the other end where this one is, because of a segment that does not belong here: at most twice a second,
    /// but for one that carries something, which may be a lost answer's (RFC 5961, 7).
    fn answer(&mut self, is_limited: bool, now_ns: u64, outlet: &mut dyn Outlet) {
        if !outlet.has_room() || is_limited && now_ns < self.ledger.answers_from_ns {
            return;
        }
        if is_limited {
            self.ledger.answers_from_ns = now_ns + ANSWER_INTERVAL_NS;
        }
        let header = self.ledger.header(flag::ACK, self.receive_next(), now_ns);
        self.ledger.sent_count = self.ledger.sent_count.wrapping_add(1);
        outlet.send(&header, &[]);
    }

    /// Whether a segment is for the window at all, and what else stands before its bytes and its acknowledgement
    /// (RFC 9293, 3.10.7.4; RFC 5961; RFC 7323, 5). `None`: it may go on.
    fn examine(&mut self, header: &Header, payload: &[u8], now_ns: u64, outlet: &mut dyn Outlet) -> Option<Verdict> {
        let start = i64::from(distance(header.sequence, self.receive_next()));
        let length = i64::from(header.length(payload.len()));
        let room = self.receive_room() as i64;
        if header.has(flag::RST) {
            if start == 0 {
                return Some(Verdict::Reset);
            }
            if start > 0 && start < room {
                self.answer(true, now_ns, outlet);
            }
            return Some(Verdict::Taken);
        }
        if let (Some((_, recent)), Some((time, _))) = (self.ledger.terms.times, header.times)
            && distance(time, recent) < 0
        {
            self.answer(length == 0, now_ns, outlet);
            return Some(Verdict::Taken);
        }
        let is_acceptable = match length {
            // Windows are told in whole units, so the other end may take itself to be a unit further back.
            0 => start >= -self.ledger.window_unit() && start != -1 && start <= room,
            _ => start < room.max(1) && start + length > 0,
        };
        if !is_acceptable || header.has(flag::SYN) {
            self.answer(length == 0 || header.has(flag::SYN), now_ns, outlet);
            return Some(Verdict::Taken);
        }
        if !header.has(flag::ACK) || distance(header.acknowledgement, self.ledger.sent_max) > 0 {
            return Some(Verdict::Taken);
        }
        if distance(header.acknowledgement, self.ledger.una) < -self.ledger.send_window_max() {
            self.answer(true, now_ns, outlet);
            return Some(Verdict::Taken);
        }
        None
    }

    /// Hands bytes and an acknowledgement to smoltcp.
    fn feed(&mut self, header: &Header, mut payload: &[u8], now_ns: u64, outlet: &mut dyn Outlet) {
        let Some(live) = &mut self.live else { return };
        let ledger = &mut self.ledger;
        let mut fed = Header {
            sequence: header.sequence,
            acknowledgement: ledger.una.wrapping_sub(ledger.offset),
            flags: header.flags & (flag::ACK | flag::PSH | flag::FIN),
            window: ledger.window,
            ..Header::default()
        };
        loop {
            let count = payload.len().min(PAYLOAD_BYTES_MAX);
            live.feed(ledger, (&fed, &payload[..count]), (instant(now_ns), now_ns), Some(&mut *outlet));
            payload = &payload[count..];
            if payload.is_empty() {
                return;
            }
            fed.sequence = fed.sequence.wrapping_add(count as u32);
        }
    }

    /// Hands smoltcp the end of the other's half when all before it is there.
    fn feed_end(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        let next = self.receive_next();
        if self.ledger.has_seen_end || self.ledger.end_at != Some(next) {
            return;
        }
        let header = Header { sequence: next, flags: flag::ACK | flag::FIN, ..Header::default() };
        self.feed(&header, &[], now_ns, outlet);
        let state = self.live.as_ref().map(|live| live.socket_ref().state());
        self.ledger.has_seen_end =
            matches!(state, Some(State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed));
    }

    /// As [`Engine::fill`], but only whole segments are sent, and what is left is kept back.
    fn fill_held(&mut self, most: usize, now_ns: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize> {
        let segment_bytes = usize::from(self.ledger.terms.segment_bytes_max);
        let mut done = 0;
        while done < most {
            let start = self.held.len();
            let wanted = segment_bytes.saturating_sub(start).min(most - done);
            self.held.try_reserve(wanted).map_err(|_| Errno::ENOBUFS)?;
            self.held.resize(start + wanted, 0);
            let count = fill(&mut self.held[start..]).min(wanted);
            self.held.truncate(start + count);
            done += count;
            if self.held.len() >= segment_bytes {
                self.release_held();
            }
            if count < wanted || wanted == 0 {
                break;
            }
        }
        if !self.held.is_empty() {
            self.held_until_ns.get_or_insert(now_ns + CORK_NS);
        }
        Ok(done)
    }

    /// Whether its socket could be another: nothing is in it, and all that came in was acknowledged.
    fn is_quiet(&self) -> bool {
        let Some(live) = &self.live else { return false };
        let (socket, ledger) = (live.socket_ref(), &self.ledger);
        socket.send_queue() == 0
            && socket.recv_queue() == 0
            && socket.state() == State::Established
            && ledger.gap_end.is_none()
            && ledger.una == ledger.sent_max
            && ledger.told_acknowledgement == ledger.unread
            && !self.is_closing
    }

    /// Gets a larger socket where the one that it has was filled, and takes what was not read along. What waits to be
    /// acknowledged cannot be taken along, so that comes first.
    fn grow(&mut self, now_ns: u64) {
        let Some(live) = &mut self.live else { return };
        let ledger = &mut self.ledger;
        let (receive_bytes, send_bytes) = (
            self.receive_ring_bytes.min(self.tuning.receive_bytes_max).max(live.socket().recv_capacity()),
            self.send_ring_bytes.min(self.tuning.send_bytes_max).max(live.socket().send_capacity()),
        );
        let is_larger = receive_bytes > live.socket().recv_capacity() || send_bytes > live.socket().send_capacity();
        let queued = live.socket().recv_queue();
        let is_acknowledged = queued > 0 || ledger.told_acknowledgement == ledger.unread;
        let may_change = live.socket().send_queue() == 0
            && live.socket().state() == State::Established
            && ledger.gap_end.is_none()
            && ledger.una == ledger.sent_max
            && !self.is_closing;
        if !is_larger || !is_acknowledged || !may_change {
            return;
        }
        let Ok(mut unread) = reserve::vector(queued) else { return };
        unread.resize(queued, 0);
        let Ok(queued) = live.socket().peek_slice(&mut unread) else { return };
        let (offset, ring_shift) = (ledger.offset, ledger.ring_shift);
        match Live::begin(ledger, receive_bytes, send_bytes, now_ns) {
            Ok(mut next) => {
                next.refill(ledger, &unread[..queued], now_ns);
                **live = next;
            }
            Err(_) => (ledger.offset, ledger.ring_shift) = (offset, ring_shift),
        }
    }

    /// Whether it will be quiet once all that was given is acknowledged.
    fn is_draining(&self) -> bool {
        let Some(live) = &self.live else { return false };
        let socket = live.socket_ref();
        let has_in = socket.recv_queue() > 0 || self.ledger.gap_end.is_some();
        socket.send_queue() > 0 && !has_in && socket.state() == State::Established && !self.is_closing
    }

    /// Whether it could send more at a time if what is in its socket were gone.
    fn wants_to_send_more(&self) -> bool {
        let bytes = self.send_ring_bytes.min(self.tuning.send_bytes_max).min(*RING_BYTES.end());
        self.live.as_ref().is_some_and(|live| bytes > live.socket_ref().send_capacity())
    }

    /// Notes that a socket was filled, so that the next has more.
    fn note_fill(&mut self) {
        let Some(live) = &self.live else { return };
        let socket = live.socket_ref();
        let (capacity, queued) = (socket.recv_capacity(), socket.recv_queue());
        if queued * 2 > capacity || self.ledger.received_bytes - self.received_before > 4 * capacity as u64 {
            self.receive_ring_bytes = (capacity * RING_GROWTH).min(*RING_BYTES.end());
            self.received_before = self.ledger.received_bytes;
        }
    }

    /// Whether something is under way that smoltcp will never send again: its timer is lost where a window is shut
    /// under segments that are under way, and opened again.
    fn is_forgotten(&mut self, now_ns: u64) -> bool {
        let Some(live) = &mut self.live else { return false };
        self.ledger.una != self.ledger.sent_max && live.interface.poll_at(instant(now_ns), &live.sockets).is_none()
    }

    /// Has smoltcp send again what it forgot, by acknowledgements that say the same (three times, after a first).
    fn recall(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        let header = Header { sequence: self.receive_next(), flags: flag::ACK, ..Header::default() };
        for _ in 0..4 {
            self.feed(&header, &[], now_ns, outlet);
        }
    }

    /// Puts what was kept back behind what is to be sent, as far as there is room.
    fn release_held(&mut self) {
        let Some(live) = &mut self.live else { return };
        if let Ok(count) = live.socket().send_slice(&self.held) {
            self.held.drain(..count);
        }
        self.held_until_ns = None;
    }
}

/// How often segments that do not belong to a connection are answered (`tcp_invalid_ratelimit`).
const ANSWER_INTERVAL_NS: u64 = 500_000_000;

impl Engine for Smoltcp {
    fn arrive(&mut self, header: &Header, payload: &[u8], now_ns: u64, outlet: &mut dyn Outlet) -> Verdict {
        self.ledger.received_count = self.ledger.received_count.wrapping_add(1);
        if let Some(verdict) = self.examine(header, payload, now_ns, outlet) {
            return verdict;
        }
        // Behind its end the other end has nothing to say.
        let payload = if self.ledger.has_seen_end { &[] } else { payload };
        let is_end = header.has(flag::FIN) && !self.ledger.has_seen_end;
        let carries = !payload.is_empty() || is_end;
        if carries && self.live(now_ns).is_err() {
            return Verdict::NoMemory;
        }
        let before = self.receive_next();
        let ledger = &mut self.ledger;
        if let (Some((_, recent)), Some((time, _))) = (&mut ledger.terms.times, header.times)
            && distance(header.sequence, ledger.told_acknowledgement) <= 0
        {
            *recent = time;
        }
        ledger.note_acknowledgement(header, now_ns);
        if carries {
            let end = header.sequence.wrapping_add(payload.len() as u32);
            if is_end {
                ledger.end_at = Some(end);
            }
            if distance(header.sequence, before) > 0 && ledger.gap_end.is_none_or(|gap| distance(end, gap) > 0) {
                ledger.gap_end = Some(end);
            }
            ledger.largest_payload_bytes = ledger.largest_payload_bytes.max(payload.len() as u32);
            if ledger.prompt_count < PROMPT_COUNT {
                ledger.prompt_count += 1;
            } else if let Some(live) = &mut self.live {
                live.socket().set_ack_delay(Some(Duration::from_millis(ACKNOWLEDGEMENT_DELAY_MS * CLOCK_RATE)));
            }
        }
        let sequence = if payload.is_empty() { before } else { header.sequence };
        let data = Header { flags: header.flags & !flag::FIN, sequence, ..*header };
        self.feed(&data, payload, now_ns, outlet);
        self.feed_end(now_ns, outlet);
        if payload.is_empty() && is_end && !self.ledger.has_seen_end {
            self.answer(false, now_ns, outlet);
        }
        let after = self.receive_next();
        let ledger = &mut self.ledger;
        ledger.received_bytes += u64::from(after.wrapping_sub(before))
            - u64::from(ledger.has_seen_end && after != before && ledger.end_at == Some(after.wrapping_sub(1)));
        ledger.gap_end = ledger.gap_end.filter(|gap| distance(*gap, after) > 0);
        self.note_fill();
        self.grow(now_ns);
        Verdict::Taken
    }

    fn transmit(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        if (self.is_closing || !self.held.is_empty()) && self.live(now_ns).is_err() {
            return;
        }
        let holds = self.tuning.is_corked && !self.is_closing && self.held_until_ns.is_none_or(|until| now_ns < until);
        if !self.held.is_empty() && !holds {
            self.release_held();
        }
        let Some(live) = &mut self.live else { return };
        if self.is_closing && self.held.is_empty() {
            live.socket().close();
        }
        let has_no_delay = self.tuning.has_no_delay;
        for _ in 0..BURST_COUNT_MAX {
            if !outlet.has_room() {
                return;
            }
            let Some(live) = &mut self.live else { return };
            let is_delayed = !has_no_delay && self.ledger.short_end.is_some();
            live.socket().set_nagle_enabled(is_delayed);
            let before = self.ledger.sent_count;
            live.emit(&mut self.ledger, now_ns, outlet);
            if self.ledger.sent_count == before {
                if self.is_forgotten(now_ns) {
                    self.recall(now_ns, outlet);
                    continue;
                }
                self.grow(now_ns);
                return;
            }
        }
    }

    fn deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        let Some(live) = &mut self.live else {
            return (self.is_closing || !self.held.is_empty()).then_some(now_ns + NO_MEMORY_RETRY_NS);
        };
        let due = live.interface.poll_at(instant(now_ns), &live.sockets).map(nanoseconds);
        let held = self.held_until_ns.filter(|_| !self.held.is_empty());
        [due, held].into_iter().flatten().min()
    }

    fn expect(&mut self, byte_count: usize, now_ns: u64) {
        if byte_count > self.send_ring_bytes {
            self.send_ring_bytes = byte_count.min(*RING_BYTES.end());
            self.grow(now_ns);
        }
    }

    fn send_room(&self) -> usize {
        // It is to be empty, so that a larger one takes its place.
        if self.wants_to_send_more() && self.is_draining() {
            return 0;
        }
        let queued = self.live.as_ref().map_or(0, |live| live.socket_ref().send_queue()) + self.held.len();
        let capacity = self.live.as_ref().map_or(usize::MAX, |live| live.socket_ref().send_capacity());
        capacity.min(self.tuning.send_bytes_max).saturating_sub(queued)
    }

    fn fill(&mut self, most: usize, now_ns: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize> {
        let mut left = most.min(self.send_room());
        self.live(now_ns).map_err(|_| Errno::ENOBUFS)?;
        let mut done = 0;
        if self.tuning.is_corked {
            return self.fill_held(left, now_ns, fill);
        }
        self.release_held();
        if self.ledger.received_bytes > 0 {
            // It answers, so acknowledgements can wait for answers.
            self.ledger.prompt_count = PROMPT_COUNT;
        }
        let Some(live) = &mut self.live else { return Ok(0) };
        while left > 0 {
            let step = live.socket().send(|room| {
                let wanted = room.len().min(left);
                let count = fill(&mut room[..wanted]).min(wanted);
                (count, (count, wanted))
            });
            let Ok((count, wanted)) = step else { break };
            (done, left) = (done + count, left - count);
            if count < wanted || wanted == 0 {
                break;
            }
        }
        if self.live.as_ref().is_some_and(|live| live.socket_ref().send_queue() == live.socket_ref().send_capacity()) {
            self.send_ring_bytes = self.send_ring_bytes.saturating_mul(RING_GROWTH).min(*RING_BYTES.end());
        }
        Ok(done)
    }

    fn is_writable(&self) -> bool {
        let capacity = self.live.as_ref().map_or(usize::MAX, |live| live.socket_ref().send_capacity());
        let (queued, _) = self.unacknowledged_bytes();
        self.send_room() > 0 && queued * 3 <= capacity.min(self.tuning.send_bytes_max) * 2
    }

    fn unacknowledged_bytes(&self) -> (usize, usize) {
        let queued = self.live.as_ref().map_or(0, |live| live.socket_ref().send_queue());
        let under_way = distance(self.ledger.sent_max, self.ledger.una).max(0) as usize;
        (queued + self.held.len(), queued.saturating_sub(under_way) + self.held.len())
    }

    fn readable_bytes(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.socket_ref().recv_queue())
    }

    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let Some(live) = &mut self.live else { return 0 };
        let mut done = 0;
        while done < most {
            let step = live.socket().recv(|bytes| {
                let wanted = bytes.len().min(most - done);
                let count = if wanted == 0 { 0 } else { take(&bytes[..wanted]).min(wanted) };
                (count, (count, wanted))
            });
            let Ok((count, wanted)) = step else { break };
            done += count;
            if count < wanted || wanted == 0 {
                break;
            }
        }
        self.ledger.unread = self.ledger.unread.wrapping_add(done as u32);
        done
    }

    fn peek(&mut self, offset: usize, into: &mut [u8]) -> usize {
        let Some(live) = &mut self.live else { return 0 };
        let Ok(bytes) = live.socket().peek(usize::MAX) else { return 0 };
        let first = bytes.len();
        if offset < first {
            let count = into.len().min(first - offset);
            into[..count].copy_from_slice(&bytes[offset..offset + count]);
            if count == into.len() {
                return count;
            }
        }
        // What lies behind the turn of the buffer is shown only together with all before it.
        let wanted = offset.saturating_add(into.len()).min(live.socket().recv_queue());
        let Ok(mut all) = reserve::vector(wanted) else { return first.saturating_sub(offset).min(into.len()) };
        all.resize(wanted, 0);
        let shown = live.socket().peek_slice(&mut all).unwrap_or(0);
        let Some(bytes) = all.get(offset..shown) else { return 0 };
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    fn close(&mut self) {
        self.is_closing = true;
    }

    fn reset_header(&self) -> Header {
        let header = self.ledger.header(flag::RST | flag::ACK, self.receive_next(), 0);
        Header { times: None, ..header }
    }

    fn state(&self) -> TcpState {
        let Some(live) = &self.live else {
            return if self.is_closing { TcpState::FinWait1 } else { TcpState::Established };
        };
        match live.socket_ref().state() {
            State::Established if self.is_closing => TcpState::FinWait1,
            State::CloseWait if self.is_closing => TcpState::LastAck,
            State::FinWait1 => TcpState::FinWait1,
            State::FinWait2 => TcpState::FinWait2,
            State::CloseWait => TcpState::CloseWait,
            State::Closing => TcpState::Closing,
            State::LastAck => TcpState::LastAck,
            State::TimeWait => TcpState::TimeWait,
            State::Closed => TcpState::Close,
            State::Established | State::Listen | State::SynSent | State::SynReceived => TcpState::Established,
        }
    }

    fn has_seen_end(&self) -> bool {
        self.ledger.has_seen_end
    }

    fn stalled_since_ns(&self) -> Option<u64> {
        self.ledger.stalled_since_ns
    }

    fn unmoved_since_ns(&self) -> Option<u64> {
        self.ledger.unmoved_since_ns
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = *tuning;
    }

    fn set_segment_bytes_max(&mut self, bytes: u16) {
        let bytes = bytes.clamp(SEGMENT_BYTES_MIN, self.ledger.agreed_bytes_max.max(SEGMENT_BYTES_MIN));
        if bytes == core::mem::replace(&mut self.ledger.terms.segment_bytes_max, bytes) {
            return;
        }
        // An interface keeps the length of its packets, and nothing else that matters here.
        if let Some(live) = &mut self.live {
            live.interface = interface(&mut self.ledger, Instant::ZERO);
        }
    }

    fn acknowledge(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        self.answer(false, now_ns, outlet);
    }

    fn probe(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        let header = self.ledger.header(flag::ACK, self.receive_next(), now_ns);
        self.ledger.sent_count = self.ledger.sent_count.wrapping_add(1);
        outlet.send(&Header { sequence: self.ledger.una.wrapping_sub(1), ..header }, &[]);
    }

    fn rest(&mut self) {
        if self.is_quiet() {
            self.live = None;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.live.is_none()
    }

    fn is_under_way(&self, sequence: u32) -> bool {
        distance(sequence, self.ledger.una) >= 0 && distance(sequence, self.ledger.sent_max) < 0
    }

    fn received_bytes(&self) -> u64 {
        self.ledger.received_bytes
    }

    fn times(&self) -> Option<(u32, u32)> {
        self.ledger.terms.times
    }

    fn report(&self) -> Report {
        let ledger = &self.ledger;
        let (unacknowledged, unsent) = self.unacknowledged_bytes();
        Report {
            round_trip_us: ledger.round_trip_us,
            round_trip_variance_us: ledger.round_trip_variance_us,
            retransmit_timeout_us: (ledger.round_trip_us + 4 * ledger.round_trip_variance_us).max(200_000),
            send_segment_bytes: u32::from(ledger.terms.segment_bytes_max),
            receive_segment_bytes: ledger.largest_payload_bytes,
            send_window_bytes: u32::from(ledger.window) << ledger.terms.window_shifts.map_or(0, |shifts| shifts.0),
            receive_window_bytes: self.receive_room() as u32,
            unacknowledged_bytes: (unacknowledged - unsent) as u32,
            unsent_bytes: unsent as u32,
            retransmit_count: ledger.retransmit_count,
            acknowledged_bytes: ledger.acknowledged_bytes,
            received_bytes: ledger.received_bytes,
            sent_segment_count: ledger.sent_count,
            received_segment_count: ledger.received_count,
            has_times: ledger.terms.times.is_some(),
            has_sack: ledger.terms.has_sack,
            window_shifts: ledger.terms.window_shifts,
        }
    }
}

/// When memory that was not there is asked for again.
const NO_MEMORY_RETRY_NS: u64 = 10_000_000;
/// Shortest payload that a path may ask for (`TCP_MIN_SND_MSS`).
const SEGMENT_BYTES_MIN: u16 = 48;
