//! Sends what is due: what was lost, what is new, what time asks for, and an acknowledgement that nothing carried.

use super::super::Outlet;
use super::super::header::{Header, ecn, flag};
use super::ControlBlock;
use super::recovery::Tail;
use super::segments::{SEGMENT_COUNT_MAX, Sent};
use super::send::Next;

/// Most segments that are sent in one step.
const BURST_COUNT_MAX: usize = 128;
/// How long beyond two round trips the last segment is waited for, and the same of one that is alone, whose
/// acknowledgement may be delayed.
const TAIL_NS: u64 = 2_000_000;
const TAIL_ALONE_NS: u64 = 200_000_000;
/// Bytes of the options that selective acknowledgements are, without a block and for each.
const SACK_BYTES: (u32, u32) = (4, 8);

impl ControlBlock {
    /// See the head of the module.
    pub(super) fn send_due(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        if self.send.timer_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.keep_appointment(now_ns, outlet);
        }
        if self.recovery.again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.look_for_losses(now_ns);
        }
        let mut left = BURST_COUNT_MAX;
        while left > 0 && self.send.segments.pending_count() > 0 && outlet.has_room() && self.resend(now_ns, outlet) {
            left -= 1;
        }
        while left > 0 && self.send.has_waiting() && outlet.has_room() && self.send_next(now_ns, outlet) {
            left -= 1;
        }
        self.is_interrupted = left == 0;
        self.arm(now_ns);
        if self.receive.due_ns.is_some_and(|at_ns| at_ns <= now_ns) && outlet.has_room() {
            self.send_acknowledgement(now_ns, outlet);
        }
    }

    /// Longest payload of the next segment.
    fn segment_bytes(&self) -> u32 {
        let bytes = self.send.segment_bytes(self.terms.segment_bytes_max);
        match self.terms.has_sack {
            true => match self.receive.ranges.block_count(self.terms.times.is_some()) {
                0 => bytes,
                count => bytes.saturating_sub(SACK_BYTES.0 + SACK_BYTES.1 * count).max(1),
            },
            false => bytes,
        }
    }

    /// Segments that are in the network, of those that were not acknowledged.
    pub(super) fn in_network_count(&self) -> u32 {
        let segments = &self.send.segments;
        segments.in_network_count().saturating_sub(self.recovery.duplicate_count(segments))
    }

    /// Sends the first segment again that is lost. False: none may be.
    fn resend(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> bool {
        if self.in_network_count() >= self.congestion.window_count {
            return false;
        }
        let bytes = self.segment_bytes();
        let end = Some(self.send.next).filter(|_| self.send.has_sent_end);
        let Ok(Some(sent)) = self.send.segments.take_pending(bytes, end, now_ns) else { return false };
        if sent.start == self.send.una {
            (self.send.timer_ns, self.recovery.awaits_tail) = (Some(now_ns + self.trip.timeout_ns()), false);
        }
        self.repeat(&sent, now_ns, outlet);
        true
    }

    fn repeat(&mut self, sent: &Sent, now_ns: u64, outlet: &mut dyn Outlet) {
        let offset = sent.start.wrapping_sub(self.send.una) as usize;
        let byte_count = (sent.length as usize).min(self.send.ring.length().saturating_sub(offset));
        let has_end = byte_count < sent.length as usize;
        outlet.note_repetition();
        self.counts.repeated = self.counts.repeated.saturating_add(1);
        self.recovery.note_sent();
        self.recovery.note_repeated((now_ns / 1_000_000) as u32);
        self.emit(sent.start, (offset, byte_count), has_end, now_ns, outlet);
    }

    /// Asks after the last segment, which nothing that comes behind it would tell of (RFC 8985, 7): by what is new, if
    /// there is something, else by itself.
    fn probe_tail(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        self.send.timer_ns = Some(now_ns + self.trip.timeout_ns());
        let is_calm = self.recovery.is_calm(&self.send.segments);
        if !is_calm || self.recovery.tail.is_some() || !outlet.has_room() {
            return;
        }
        let bytes = self.segment_bytes();
        let is_new = match self.send.choose(bytes, true) {
            Some(next) => self.send_new(next, now_ns, outlet),
            None => false,
        };
        if !is_new {
            let bytes = bytes + u32::from(self.send.has_sent_end);
            let Ok(Some(sent)) = self.send.segments.take_last(bytes, now_ns) else { return };
            self.repeat(&sent, now_ns, outlet);
        }
        self.recovery.tail = Some(Tail { end: self.send.next, is_repeated: !is_new });
        self.send.timer_ns = Some(now_ns + self.trip.timeout_ns());
        self.recovery.is_timer_old = false;
    }

    /// Sends the next segment. False: none may be.
    fn send_next(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> bool {
        if self.send.segments.is_empty() {
            self.note_idle(now_ns);
        }
        if self.in_network_count() >= self.congestion.window_count {
            self.recovery.is_held_back = true;
            return false;
        }
        let waits = !self.tuning.has_no_delay && self.send.short_end.is_some() && self.send.urgent_end.is_none();
        let may_be_short = !self.tuning.is_corked && !waits;
        let Some(next) = self.send.choose(self.segment_bytes(), may_be_short) else { return false };
        self.send_new(next, now_ns, outlet)
    }

    fn send_new(&mut self, next: Next, now_ns: u64, outlet: &mut dyn Outlet) -> bool {
        let segments = &mut self.send.segments;
        if segments.count() as usize >= SEGMENT_COUNT_MAX || segments.reserve().is_err() {
            return false;
        }
        let is_first = segments.is_empty();
        let start = self.send.next;
        let length = next.byte_count as u32 + u32::from(next.is_end);
        let offset = start.wrapping_sub(self.send.una) as usize;
        segments.push(start, length, now_ns);
        self.send.next = start.wrapping_add(length);
        self.send.has_sent_end = next.is_end;
        if next.is_short {
            self.send.short_end = Some(self.send.next);
        }
        if is_first {
            self.send.timer_ns = None;
        }
        self.recovery.is_timer_old = true;
        self.note_waiting(now_ns);
        self.recovery.note_sent();
        self.emit(start, (offset, next.byte_count), next.is_end, now_ns, outlet);
        true
    }

    /// The other end has something to acknowledge from now on.
    fn note_waiting(&mut self, now_ns: u64) {
        self.stalled_since_ns.get_or_insert(now_ns);
        self.unmoved_since_ns.get_or_insert(now_ns);
    }

    fn emit(
        &mut self,
        start: u32,
        (offset, byte_count): (usize, usize),
        has_end: bool,
        now_ns: u64,
        outlet: &mut dyn Outlet,
    ) {
        let is_last = offset + byte_count == self.send.ring.length();
        let mut flags = flag::ACK;
        if has_end {
            flags |= flag::FIN;
        }
        if is_last && byte_count > 0 {
            flags |= flag::PSH;
        }
        let is_new = start.wrapping_add(byte_count as u32 + u32::from(has_end)) == self.send.next;
        let is_told = self.terms.has_ecn && byte_count > 0 && is_new;
        if is_told && core::mem::take(&mut self.recovery.has_heard) {
            flags |= flag::CWR;
        }
        self.send.last_sent_ns = now_ns;
        let mut header: Header = self.header(start, flags, now_ns);
        header.congestion = if is_told { ecn::CAPABLE } else { 0 };
        outlet.send(&header, self.send.ring.pieces(offset, byte_count));
    }

    /// What is under way was not acknowledged for too long, or what waits was not sent.
    fn keep_appointment(&mut self, now_ns: u64, outlet: &mut dyn Outlet) {
        self.send.timer_ns = None;
        if !self.send.segments.is_empty() {
            if core::mem::take(&mut self.recovery.awaits_tail) {
                return self.probe_tail(now_ns, outlet);
            }
            self.note_timeout();
            self.send.timer_ns = Some(now_ns + self.trip.timeout_ns());
            return;
        }
        if !self.send.has_waiting() || !outlet.has_room() {
            return;
        }
        self.trip.doubled_count += 1;
        match self.send.choose_forced(self.segment_bytes()) {
            Some(next) => drop(self.send_new(next, now_ns, outlet)),
            None => {
                // Asks for room, as Linux does by a number that was acknowledged.
                self.note_waiting(now_ns);
                let header = self.header(self.send.una.wrapping_sub(1), flag::ACK, now_ns);
                outlet.send(&header, [&[], &[]]);
            }
        }
    }

    /// Sees to it that something is done if nothing comes.
    fn arm(&mut self, now_ns: u64) {
        let is_old = core::mem::take(&mut self.recovery.is_timer_old);
        let Some(first_ns) = self.send.segments.first_sent_ns() else {
            self.recovery.awaits_tail = false;
            if !self.send.has_waiting() {
                self.send.timer_ns = None;
            } else if self.send.timer_ns.is_none() {
                self.send.timer_ns = Some(now_ns + self.trip.timeout_ns());
            }
            return;
        };
        let tail_ns = self.tail_timeout_ns().map(|tail_ns| now_ns + tail_ns);
        let was_tail = core::mem::replace(&mut self.recovery.awaits_tail, tail_ns.is_some());
        let since_ns = match self.send.timer_ns {
            None => now_ns,
            Some(_) if is_old && tail_ns.is_some() || was_tail && tail_ns.is_none() => first_ns,
            Some(_) => return,
        };
        let timeout_ns = (since_ns + self.trip.timeout_ns()).max(now_ns + 1);
        self.send.timer_ns = Some(tail_ns.map_or(timeout_ns, |tail_ns| tail_ns.min(timeout_ns)));
    }

    /// How long the last segment is waited for, where it is asked after at all.
    fn tail_timeout_ns(&self) -> Option<u64> {
        let is_open = self.recovery.tail.is_none() && self.recovery.is_calm(&self.send.segments);
        let is_asked = self.terms.has_sack && self.trip.smoothed_ns != 0 && is_open;
        let more_ns = if self.send.segments.count() == 1 { TAIL_ALONE_NS } else { TAIL_NS };
        is_asked.then_some(2 * self.trip.smoothed_ns + more_ns)
    }

    /// Nothing was under way: what the window was worth then is worth less now.
    fn note_idle(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.send.last_sent_ns);
        let timeout_ns = self.trip.base_timeout_ns();
        if idle_ns > timeout_ns && self.congestion.window_count > super::congestion::FIRST_COUNT {
            self.congestion.note_idle(idle_ns / timeout_ns);
            self.send.last_sent_ns = now_ns;
        }
    }
}
