//! Segments that are under way: what is known of each, and how many are where.
//!
//! A segment is *sacked* when the other end has it behind a gap, *lost* when it is taken to be, *resent* when it was
//! sent again since. Invariants: segments lie in a row and in order, the first begins at the oldest number that is not
//! acknowledged; a sacked one is not lost; a resent one is lost; the counts are those of the marks. At most
//! [`SEGMENT_COUNT_MAX`], so what one acknowledgement costs is bounded.

use alloc::collections::VecDeque;

use super::super::header::distance;
use super::ranges::Range;
use crate::error::Result;
use crate::reserve::reserve_queue;

/// Segments under way at most.
pub(super) const SEGMENT_COUNT_MAX: usize = 4096;

const SACKED: u8 = 1;
const LOST: u8 = 2;
const RESENT: u8 = 4;
/// It was sent more than once, so its acknowledgement says nothing of the round trip (Karn).
const REPEATED: u8 = 8;

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) start: u32,
    /// Numbers that it takes.
    pub(super) length: u32,
    pub(super) sent_ns: u64,
    marks: u8,
}

impl Sent {
    pub(super) fn end(&self) -> u32 {
        self.start.wrapping_add(self.length)
    }

    fn has(&self, marks: u8) -> bool {
        self.marks & marks != 0
    }
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivered {
    /// What was sent after this and more than once is there by its first sending: no round trip is so short.
    pub(super) believed_until_ns: u64,
    /// Segments that the other end has now and was not known to have.
    pub(super) count: u32,
    /// Segments that are acknowledged, whether known to be there or not.
    pub(super) acknowledged_count: u32,
    /// When the first of them was sent that was sent once.
    pub(super) sample_sent_ns: Option<u64>,
}

/// Segments under way.
#[derive(Default)]
pub(super) struct Segments {
    list: VecDeque<Sent>,
    sacked_count: u32,
    lost_count: u32,
    resent_count: u32,
    /// None before this one is lost and not sent again, so that what is sent again is found without a search.
    pending_from: usize,
    /// The one that was sent last of those that are known to be there: when, and its end.
    pub(super) newest: (u64, u32),
}

impl Segments {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    pub(super) fn sacked_count(&self) -> u32 {
        self.sacked_count
    }

    pub(super) fn lost_count(&self) -> u32 {
        self.lost_count
    }

    pub(super) fn resent_count(&self) -> u32 {
        self.resent_count
    }

    /// Segments that are lost and were not sent again.
    pub(super) fn pending_count(&self) -> u32 {
        self.lost_count - self.resent_count
    }

    /// Segments that are in the network, as far as is known.
    pub(super) fn in_network_count(&self) -> u32 {
        self.count() - self.sacked_count - self.lost_count + self.resent_count
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&mut self) -> Result<()> {
        if self.list.len() < self.list.capacity() { Ok(()) } else { reserve_queue(&mut self.list, 1) }
    }

    /// One more was sent.
    pub(super) fn push(&mut self, start: u32, length: u32, now_ns: u64) {
        self.list.push_back(Sent { start, length, sent_ns: now_ns, marks: 0 });
    }

    fn note_delivered(&mut self, index: usize, delivered: &mut Delivered) {
        let sent = self.list[index];
        delivered.count += 1;
        if !sent.has(REPEATED) {
            delivered.sample_sent_ns.get_or_insert(sent.sent_ns);
        }
        let is_newer =
            sent.sent_ns > self.newest.0 || sent.sent_ns == self.newest.0 && distance(sent.end(), self.newest.1) > 0;
        if is_newer && (!sent.has(REPEATED) || sent.sent_ns <= delivered.believed_until_ns) {
            self.newest = (sent.sent_ns, sent.end());
        }
    }

    /// Counts as if segment `index` were not there.
    fn unmark(&mut self, index: usize) {
        let marks = self.list[index].marks;
        self.sacked_count -= u32::from(marks & SACKED != 0);
        self.lost_count -= u32::from(marks & LOST != 0);
        self.resent_count -= u32::from(marks & RESENT != 0);
        self.list[index].marks &= REPEATED;
    }

    /// All before `una` is acknowledged.
    pub(super) fn acknowledge(&mut self, una: u32, delivered: &mut Delivered) {
        while let Some(&first) = self.list.front() {
            if distance(una, first.end()) < 0 {
                // A part of it.
                let cut = distance(una, first.start).max(0) as u32;
                let front = &mut self.list[0];
                (front.start, front.length) = (first.start.wrapping_add(cut), first.length - cut);
                return;
            }
            if !first.has(SACKED) {
                self.note_delivered(0, delivered);
            }
            delivered.acknowledged_count += 1;
            self.unmark(0);
            self.list.pop_front();
            self.pending_from = self.pending_from.saturating_sub(1);
        }
    }

    /// The other end has what is from `first` to `end`.
    pub(super) fn note_sacked(&mut self, (first, end): Range, delivered: &mut Delivered) {
        let mut index = self.list.partition_point(|sent| distance(sent.start, first) < 0);
        while let Some(sent) = self.list.get(index)
            && distance(sent.end(), end) <= 0
        {
            if !sent.has(SACKED) {
                self.note_delivered(index, delivered);
                self.unmark(index);
                self.list[index].marks |= SACKED;
                self.sacked_count += 1;
            }
            index += 1;
        }
    }

    fn mark_lost(&mut self, index: usize) {
        if self.list[index].has(SACKED) {
            return;
        }
        self.unmark(index);
        self.list[index].marks |= LOST;
        self.lost_count += 1;
        self.pending_from = self.pending_from.min(index);
    }

    /// The oldest is lost, unless it was sent again since. Whether that is news.
    pub(super) fn mark_first_lost(&mut self) -> bool {
        let is_news = self.list.front().is_some_and(|first| !first.has(SACKED | LOST));
        if is_news {
            self.mark_lost(0);
        }
        is_news
    }

    /// All are lost that the other end is not known to have; if the oldest is there, nothing that it said is believed.
    pub(super) fn mark_all_lost(&mut self) {
        let forgets = self.list.front().is_some_and(|first| first.has(SACKED));
        for index in 0..self.list.len() {
            if forgets {
                self.unmark(index);
            }
            self.mark_lost(index);
        }
    }

    /// Those are lost that take more than `bytes` numbers, because none of them gets through.
    pub(super) fn mark_longer_lost(&mut self, bytes: u32) {
        for index in 0..self.list.len() {
            if self.list[index].length > bytes {
                self.mark_lost(index);
            }
        }
    }

    /// Those are lost that were sent so long before one that is there that they cannot come any more (RFC 8985). When
    /// to look again, if some may still come.
    pub(super) fn mark_overtaken_lost(&mut self, round_trip_ns: u64, reorder_ns: u64, now_ns: u64) -> Option<u64> {
        let (newest_ns, newest_end) = self.newest;
        let mut again_ns: Option<u64> = None;
        for index in 0..self.list.len() {
            let sent = self.list[index];
            let is_settled = sent.has(SACKED) || sent.has(LOST) && !sent.has(RESENT);
            let is_overtaken =
                sent.sent_ns < newest_ns || sent.sent_ns == newest_ns && distance(newest_end, sent.end()) > 0;
            if is_settled || !is_overtaken {
                continue;
            }
            let at_ns = sent.sent_ns + round_trip_ns + reorder_ns;
            if reorder_ns == 0 || at_ns <= now_ns {
                self.mark_lost(index);
            } else {
                again_ns = Some(again_ns.map_or(at_ns, |other| other.max(at_ns)));
            }
        }
        again_ns
    }

    /// The first that is lost and was not sent again, cut to `bytes` numbers if it is longer; the number of the end of
    /// the half, `end`, is not counted.
    ///
    /// # Errors
    /// `ENOMEM`: there is no memory to cut it.
    pub(super) fn take_pending(&mut self, bytes: u32, end: Option<u32>, now_ns: u64) -> Result<Option<Sent>> {
        if self.pending_count() == 0 {
            return Ok(None);
        }
        let is_pending = |sent: &Sent| sent.has(LOST) && !sent.has(RESENT);
        let Some(behind) = self.list.iter().skip(self.pending_from).position(is_pending) else { return Ok(None) };
        let index = self.pending_from + behind;
        self.pending_from = index + 1;
        let bytes = bytes + u32::from(end == Some(self.list[index].end()));
        if self.list[index].length > bytes {
            self.reserve()?;
            let whole = self.list[index];
            self.list[index].length = bytes;
            let (start, length) = (whole.start.wrapping_add(bytes), whole.length - bytes);
            self.list.insert(index + 1, Sent { start, length, ..whole });
            self.lost_count += 1;
        }
        let sent = &mut self.list[index];
        (sent.sent_ns, sent.marks) = (now_ns, sent.marks | RESENT | REPEATED);
        self.resent_count += 1;
        Ok(Some(self.list[index]))
    }

    /// The last one, cut from its end to `bytes` numbers if it is longer, which is sent again without being lost.
    ///
    /// # Errors
    /// `ENOMEM`: there is no memory to cut it.
    pub(super) fn take_last(&mut self, bytes: u32, now_ns: u64) -> Result<Option<Sent>> {
        let Some(&last) = self.list.back() else { return Ok(None) };
        if last.length > bytes {
            self.reserve()?;
            let index = self.list.len() - 1;
            let kept = last.length - bytes;
            self.list[index].length = kept;
            self.sacked_count += u32::from(last.has(SACKED));
            self.lost_count += u32::from(last.has(LOST));
            self.resent_count += u32::from(last.has(RESENT));
            self.list.push_back(Sent { start: last.start.wrapping_add(kept), length: bytes, ..last });
            self.pending_from = self.pending_from.min(index + 1);
        }
        let Some(sent) = self.list.back_mut() else { return Ok(None) };
        (sent.sent_ns, sent.marks) = (now_ns, sent.marks | REPEATED);
        Ok(Some(*sent))
    }

    /// When the oldest was sent.
    pub(super) fn first_sent_ns(&self) -> Option<u64> {
        self.list.front().map(|sent| sent.sent_ns)
    }

    /// None is lost: those that were taken to be come late.
    pub(super) fn forgive(&mut self) {
        for index in 0..self.list.len() {
            if self.list[index].has(LOST) {
                self.unmark(index);
            }
        }
    }

    /// Gives back memory if there are none.
    pub(super) fn release(&mut self) {
        if self.list.is_empty() {
            self.list = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Delivered, LOST, RESENT, SACKED, Segments};

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Acknowledge(u32),
        Sack(u32, u32),
        First,
        All,
        Longer(u32),
        Overtaken(u64),
        Resend(u32),
        Last(u32),
        Forgive,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u32..2000).prop_map(Step::Push),
            2 => (0u32..6000).prop_map(Step::Acknowledge),
            3 => (0u32..9000, 0u32..4000).prop_map(|(from, length)| Step::Sack(from, length)),
            1 => Just(Step::First),
            1 => Just(Step::All),
            1 => (1u32..2000).prop_map(Step::Longer),
            2 => (0u64..3).prop_map(Step::Overtaken),
            3 => (1u32..2000).prop_map(Step::Resend),
            1 => (1u32..2000).prop_map(Step::Last),
            1 => Just(Step::Forgive),
        ]
    }

    proptest! {
        #[test]
        fn counts_are_those_of_marks(steps in prop::collection::vec(any_step(), 1..80)) {
            let mut segments = Segments::default();
            let (mut una, mut next) = (u32::MAX - 5000, u32::MAX - 5000);
            for (now_ns, step) in (10u64..).zip(steps) {
                let mut delivered = Delivered::default();
                match step {
                    Step::Push(length) => {
                        segments.reserve().unwrap();
                        segments.push(next, length, now_ns);
                        next = next.wrapping_add(length);
                    }
                    Step::Acknowledge(count) => {
                        una = una.wrapping_add(count.min(next.wrapping_sub(una)));
                        segments.acknowledge(una, &mut delivered);
                    }
                    Step::Sack(from, length) => {
                        let first = una.wrapping_add(from);
                        segments.note_sacked((first, first.wrapping_add(length)), &mut delivered);
                    }
                    Step::First => drop(segments.mark_first_lost()),
                    Step::All => segments.mark_all_lost(),
                    Step::Longer(bytes) => segments.mark_longer_lost(bytes),
                    Step::Overtaken(reorder_ns) => drop(segments.mark_overtaken_lost(1, reorder_ns, now_ns)),
                    Step::Last(bytes) => drop(segments.take_last(bytes, now_ns).unwrap()),
                    Step::Forgive => segments.forgive(),
                    Step::Resend(bytes) => {
                        if let Some(sent) = segments.take_pending(bytes, None, now_ns).unwrap() {
                            prop_assert!(sent.length <= bytes);
                        }
                    }
                }
                let count = |marks| segments.list.iter().filter(|sent| sent.has(marks)).count() as u32;
                prop_assert_eq!(segments.sacked_count(), count(SACKED));
                prop_assert_eq!(segments.lost_count(), count(LOST));
                prop_assert_eq!(segments.resent_count, count(RESENT));
                prop_assert!(segments.list.iter().all(|sent| !sent.has(SACKED) || !sent.has(LOST | RESENT)));
                prop_assert!(segments.list.iter().all(|sent| sent.has(LOST) || !sent.has(RESENT)));
                let first = segments.list.iter().position(|sent| sent.has(LOST) && !sent.has(RESENT));
                prop_assert!(first.is_none_or(|first| segments.pending_from <= first));
                prop_assert_eq!(first.is_some(), segments.pending_count() > 0);
                let mut at = una;
                for sent in &segments.list {
                    prop_assert_eq!(sent.start, at);
                    prop_assert!(sent.length > 0);
                    at = sent.end();
                }
                prop_assert_eq!(at, next);
            }
        }
    }
}
