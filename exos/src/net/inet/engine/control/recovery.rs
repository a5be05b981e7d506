//! What acknowledgements say: what is there, what was lost, and how much may be sent after that.
//!
//! Losses are found by time where the other end tells what it has (RFC 8985, as Linux has it: three segments beyond a
//! gap end the patience), else by three acknowledgements that say the same (RFC 5681, RFC 6582). A window is lowered
//! step by step while segments leave the network (RFC 6937). Neighbour: [`super::segments`], which has the marks.

use super::super::header::{Header, distance, flag};
use super::ControlBlock;
use super::congestion::Congestion;
use super::segments::{Delivered, Segments};

/// Segments beyond a gap, or acknowledgements that say the same, that mean a loss.
const DUPLICATE_COUNT: u32 = 3;
/// Longest time that is believed of the other's answer to this end's time, in ms.
const TIME_MS_MAX: u32 = 1 << 20;

/// How a connection takes losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Something was lost; until all before this number is acknowledged.
    Recovery(u32),
    /// Nothing was acknowledged for too long; until all before this number is.
    Loss(u32),
}

/// A question after the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// One past the last number that was sent then.
    pub(super) end: u32,
    /// It was what had been sent already.
    pub(super) is_repeated: bool,
}

/// What there was before a loss, if it turns out to be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    window_count: u32,
    threshold_count: u32,
    /// When something was sent again first, in ms.
    repeated_ms: Option<u32>,
}

/// What is known of losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    phase: Phase,
    /// Acknowledgements that said the same, where the other end does not tell what it has.
    duplicates: u32,
    /// The window before, and what was delivered and sent since.
    window_count: u32,
    delivered_count: u32,
    sent_count: u32,
    /// When to look again whether something was overtaken.
    pub(super) again_ns: Option<u64>,
    /// The window kept something back.
    pub(super) is_held_back: bool,
    /// Round trip of what was delivered last.
    newest_trip_ns: u64,
    before: Option<Before>,
    pub(super) tail: Option<Tail>,
    /// The other end has told of congestion, and is told that this was heard.
    pub(super) has_heard: bool,
    /// Until all before this is acknowledged, it says the same thing again.
    heard_until: Option<u32>,
    /// The timer is for the last segment.
    pub(super) awaits_tail: bool,
    /// Something was sent or acknowledged since the timer was set.
    pub(super) is_timer_old: bool,
}

impl Recovery {
    /// Segments that the other end has behind a gap without telling which.
    pub(super) fn duplicate_count(&self, segments: &Segments) -> u32 {
        self.duplicates.min(segments.in_network_count())
    }

    /// A segment was sent.
    pub(super) fn note_sent(&mut self) {
        if matches!(self.phase, Phase::Recovery(_)) {
            self.sent_count += 1;
        }
    }

    /// A segment was sent again.
    pub(super) fn note_repeated(&mut self, now_ms: u32) {
        if let Some(before) = &mut self.before {
            before.repeated_ms.get_or_insert(now_ms);
        }
    }

    /// Nothing is missing, as far as is known.
    pub(super) fn is_calm(&self, segments: &Segments) -> bool {
        matches!(self.phase, Phase::Open) && segments.sacked_count() == 0 && self.duplicates == 0
    }
}

impl ControlBlock {
    /// What a segment's acknowledgement, window and blocks say.
    pub(super) fn take_acknowledgement(&mut self, header: &Header, byte_count: usize, now_ns: u64) {
        let advance = distance(header.acknowledgement, self.send.una);
        if advance < 0 {
            return;
        }
        let is_window_same = self.send.note_window(header);
        if advance == 0 && self.send.segments.is_empty() {
            if header.window == 0 {
                self.stalled_since_ns = self.stalled_since_ns.map(|_| now_ns);
            } else if !is_window_same {
                (self.trip.doubled_count, self.send.timer_ns, self.stalled_since_ns) = (0, None, None);
            }
            return;
        }
        let before_count = self.send.segments.count();
        let believed_until_ns = now_ns.saturating_sub(self.trip.least_ns);
        let mut delivered = Delivered { believed_until_ns, ..Delivered::default() };
        if self.terms.has_sack {
            self.take_blocks(header, &mut delivered);
        }
        if advance > 0 {
            self.advance(header, &mut delivered, now_ns);
        } else if header.window == 0 {
            self.stalled_since_ns = self.stalled_since_ns.map(|_| now_ns);
        }
        if let Some(sent_ns) = delivered.sample_sent_ns {
            self.trip.note(now_ns.saturating_sub(sent_ns));
        }
        if delivered.count > 0 {
            self.recovery.newest_trip_ns = now_ns.saturating_sub(self.send.segments.newest.0);
        }
        let is_duplicate = advance == 0
            && byte_count == 0
            && is_window_same
            && !header.has(flag::FIN)
            && !self.terms.has_sack
            && !self.send.segments.is_empty();
        if advance > 0 {
            self.forgive_if_late(header);
        }
        self.hear_congestion(header);
        self.note_tail(header);
        self.recover(advance > 0, is_duplicate, &delivered, before_count, now_ns);
    }

    /// An acknowledgement that answers a segment's first sending says that it was late, not lost (RFC 4015).
    fn forgive_if_late(&mut self, header: &Header) {
        let Some(before @ Before { repeated_ms: Some(repeated_ms), .. }) = self.recovery.before else { return };
        let (Some((_, answered)), Some((offset, _))) = (header.times, self.terms.times) else { return };
        if distance(answered.wrapping_sub(offset), repeated_ms) < 0 {
            self.send.segments.forgive();
            self.congestion.restore(before.window_count, before.threshold_count);
            (self.recovery.phase, self.recovery.before) = (Phase::Open, None);
            self.recovery.duplicates = 0;
        }
    }

    /// The other end tells of congestion: less is sent, once for what is under way (RFC 3168, 6.1.2).
    fn hear_congestion(&mut self, header: &Header) {
        self.recovery.heard_until = self.recovery.heard_until.filter(|until| distance(self.send.una, *until) < 0);
        let is_news = self.terms.has_ecn && header.has(flag::ECE) && self.recovery.heard_until.is_none();
        if is_news && matches!(self.recovery.phase, Phase::Open) {
            self.congestion.note_loss();
            self.congestion.window_count = self.congestion.threshold_count;
            (self.recovery.has_heard, self.recovery.heard_until) = (true, Some(self.send.next));
        }
    }

    /// What became of a question after the last segment (RFC 8985, 7.4): it was lost, unless it came twice.
    fn note_tail(&mut self, header: &Header) {
        let Some(tail) = self.recovery.tail else { return };
        let behind = distance(header.acknowledgement, tail.end);
        let came_twice = header.sack[0].is_some_and(|(_, end)| end == tail.end && behind >= 0);
        if behind < 0 || behind == 0 && tail.is_repeated && !came_twice {
            return;
        }
        self.recovery.tail = None;
        if tail.is_repeated && !came_twice && matches!(self.recovery.phase, Phase::Open) {
            self.congestion.note_loss();
            self.congestion.window_count = self.congestion.threshold_count;
        }
    }

    /// What selective acknowledgements say of segments that are under way. Others are nonsense, or of what came twice.
    fn take_blocks(&mut self, header: &Header, delivered: &mut Delivered) {
        for &(first, end) in header.sack.iter().flatten() {
            let is_sensible = distance(end, first) > 0
                && distance(first, self.send.una) >= 0
                && distance(first, header.acknowledgement) >= 0
                && distance(end, self.send.next) <= 0;
            if is_sensible {
                self.send.segments.note_sacked((first, end), delivered);
            }
        }
    }

    /// More is acknowledged.
    fn advance(&mut self, header: &Header, delivered: &mut Delivered, now_ns: u64) {
        let una = header.acknowledgement;
        let acknowledged = distance(una, self.send.una) as u64;
        self.send.segments.acknowledge(una, delivered);
        self.send.advance(una);
        self.counts.acknowledged_bytes += acknowledged - u64::from(self.send.is_end_acknowledged);
        self.trip.doubled_count = 0;
        let is_empty = self.send.segments.is_empty();
        (self.send.timer_ns, self.recovery.is_timer_old) = (None, true);
        self.stalled_since_ns = (!is_empty).then_some(now_ns);
        self.unmoved_since_ns = self.stalled_since_ns;
        if delivered.sample_sent_ns.is_none()
            && let (Some((_, answered)), Some((offset, _))) = (header.times, self.terms.times)
        {
            let sample_ms = ((now_ns / 1_000_000) as u32).wrapping_sub(answered.wrapping_sub(offset));
            if sample_ms < TIME_MS_MAX {
                self.trip.note(u64::from(sample_ms.max(1)) * 1_000_000);
            }
        }
    }

    /// What follows for losses and for the window.
    fn recover(&mut self, is_advance: bool, is_duplicate: bool, delivered: &Delivered, before_count: u32, now_ns: u64) {
        let (Phase::Recovery(high) | Phase::Loss(high)) = self.recovery.phase else {
            return self.recover_open(is_advance, is_duplicate, delivered, before_count, now_ns);
        };
        let is_partial = distance(self.send.una, high) < 0;
        if !is_partial {
            if matches!(self.recovery.phase, Phase::Recovery(_)) {
                self.congestion.window_count = self.congestion.threshold_count;
            }
            (self.recovery.phase, self.recovery.duplicates, self.recovery.before) = (Phase::Open, 0, None);
            return self.recover_open(is_advance, is_duplicate, delivered, before_count, now_ns);
        }
        let lost_before = self.send.segments.lost_count();
        let mut newly = delivered.count;
        if self.terms.has_sack {
            self.look_for_losses(now_ns);
        } else if is_duplicate {
            (self.recovery.duplicates, newly) = (self.recovery.duplicates + 1, 1);
        } else if is_advance {
            let seen = delivered.acknowledged_count.saturating_sub(1);
            self.recovery.duplicates = self.recovery.duplicates.saturating_sub(seen);
            newly = newly.saturating_sub(seen.min(self.recovery.duplicates)).max(1);
            self.send.segments.mark_first_lost();
        }
        if matches!(self.recovery.phase, Phase::Loss(_)) {
            if is_advance {
                self.congestion.note_acknowledged(delivered.count, self.trip.smoothed_ns, now_ns);
            }
        } else if newly > 0 {
            let has_new_losses = self.send.segments.lost_count() > lost_before;
            self.lower_window(newly, is_advance && !has_new_losses);
        }
    }

    fn recover_open(
        &mut self,
        is_advance: bool,
        is_duplicate: bool,
        delivered: &Delivered,
        before_count: u32,
        now_ns: u64,
    ) {
        let mut newly = delivered.count;
        if self.terms.has_sack {
            self.look_for_losses(now_ns);
        } else if is_duplicate {
            (self.recovery.duplicates, newly) = (self.recovery.duplicates + 1, 1);
            if self.recovery.duplicates >= DUPLICATE_COUNT {
                self.send.segments.mark_first_lost();
            }
        } else if is_advance {
            self.recovery.duplicates = 0;
        }
        if self.send.segments.lost_count() > 0 {
            self.begin_recovery();
            self.lower_window(newly.max(1), false);
            return;
        }
        let is_held_back = core::mem::take(&mut self.recovery.is_held_back)
            || self.congestion.is_slow_start() && self.congestion.window_count < 2 * before_count;
        if delivered.acknowledged_count > 0 && is_held_back {
            self.congestion.note_acknowledged(delivered.count, self.trip.smoothed_ns, now_ns);
        }
    }

    fn begin_recovery(&mut self) {
        if matches!(self.recovery.phase, Phase::Open) {
            self.recovery.window_count = self.congestion.window_count.max(1);
            self.keep_before();
            self.congestion.note_loss();
            (self.recovery.delivered_count, self.recovery.sent_count) = (0, 0);
            self.recovery.phase = Phase::Recovery(self.send.next);
        }
    }

    /// Keeps what a loss that turns out to be none gives back.
    fn keep_before(&mut self) {
        let Congestion { window_count, threshold_count, .. } = self.congestion;
        self.recovery.before.get_or_insert(Before { window_count, threshold_count, repeated_ms: None });
    }

    /// Lowers the window in step with what leaves the network (RFC 6937; `tcp_cwnd_reduction` of Linux).
    fn lower_window(&mut self, newly: u32, is_advance: bool) {
        let under_way = i64::from(self.in_network_count());
        let threshold = i64::from(self.congestion.threshold_count);
        let recovery = &mut self.recovery;
        recovery.delivered_count += newly;
        let (delivered, sent) = (i64::from(recovery.delivered_count), i64::from(recovery.sent_count));
        let before = i64::from(recovery.window_count);
        let more = if under_way > threshold {
            (threshold * delivered + before - 1) / before - sent
        } else {
            let most = (delivered - sent).max(i64::from(newly)) + i64::from(is_advance);
            most.min(threshold - under_way)
        };
        let more = more.max(i64::from(sent == 0));
        self.congestion.window_count = (under_way + more).max(1) as u32;
    }

    /// Looks for segments that others have overtaken.
    pub(super) fn look_for_losses(&mut self, now_ns: u64) {
        self.recovery.again_ns = None;
        let segments = &mut self.send.segments;
        if segments.is_empty() || segments.sacked_count() == 0 && matches!(self.recovery.phase, Phase::Open) {
            return;
        }
        let is_patient = matches!(self.recovery.phase, Phase::Open) && segments.sacked_count() < DUPLICATE_COUNT;
        let reorder_ns = if is_patient { (self.trip.least_ns / 4).min(self.trip.smoothed_ns / 8).max(1) } else { 0 };
        let trip_ns = self.recovery.newest_trip_ns;
        self.recovery.again_ns = segments.mark_overtaken_lost(trip_ns, reorder_ns, now_ns);
        if segments.lost_count() > 0 && matches!(self.recovery.phase, Phase::Open) {
            self.begin_recovery();
            self.lower_window(1, false);
        }
    }

    /// The path is shorter than what was sent. It was not the network's load that lost that.
    pub(super) fn note_shorter_path(&mut self, bytes: u32) {
        self.send.segments.mark_longer_lost(bytes);
        if self.send.segments.lost_count() > 0 && matches!(self.recovery.phase, Phase::Open) {
            self.recovery.phase = Phase::Loss(self.send.next);
        }
    }

    /// Nothing was acknowledged for too long: all is taken to be lost, and the first is sent again alone.
    pub(super) fn note_timeout(&mut self) {
        if !matches!(self.recovery.phase, Phase::Loss(_)) {
            self.keep_before();
            self.congestion.note_loss();
        }
        (self.recovery.phase, self.recovery.duplicates) = (Phase::Loss(self.send.next), 0);
        (self.recovery.again_ns, self.recovery.tail) = (None, None);
        self.send.segments.mark_all_lost();
        self.congestion.window_count = 1;
        self.trip.doubled_count += 1;
    }
}
