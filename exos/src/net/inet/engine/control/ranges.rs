//! What came in past a gap: ranges of sequence numbers, and what selective acknowledgements tell of them (RFC 2018,
//! RFC 2883).
//!
//! Invariants: ranges are in order, apart from each other, not empty, and at most [`RANGE_COUNT_MAX`]. The newest that
//! were told stand first in `newest`.

use alloc::vec::Vec;

use super::super::header::{SACK_COUNT_MAX, distance};
use crate::error::{Errno, Result};

/// Ranges that are kept. What would be one more is dropped, and comes again.
pub(super) const RANGE_COUNT_MAX: usize = 64;

/// First number, and one past the last.
pub(super) type Range = (u32, u32);

/// What came in past a gap.
#[derive(Default)]
pub(super) struct Ranges {
    list: Vec<Range>,
    newest: [Option<Range>; SACK_COUNT_MAX],
    /// What came in a second time, to be told once.
    repeated: Option<Range>,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// One past the last number that is here.
    pub(super) fn end(&self) -> Option<u32> {
        self.list.last().map(|range| range.1)
    }

    /// Adds a range, which is not empty.
    ///
    /// # Errors
    /// `ENOMEM`: there are too many, or there is no memory.
    pub(super) fn insert(&mut self, (start, end): Range) -> Result<()> {
        // The ones that it meets or touches are one with it.
        let first = self.list.partition_point(|range| distance(range.1, start) < 0);
        let last = self.list.partition_point(|range| distance(range.0, end) <= 0);
        if first >= last {
            if self.list.len() >= RANGE_COUNT_MAX || self.list.try_reserve(1).is_err() {
                return Err(Errno::ENOMEM);
            }
            self.list.insert(first, (start, end));
            self.tell((start, end));
            return Ok(());
        }
        let (known, known_end) = (self.list[first].0, self.list[last - 1].1);
        self.note_overlap(first..last, (start, end));
        let start = if distance(start, known) < 0 { start } else { known };
        let end = if distance(end, known_end) > 0 { end } else { known_end };
        self.list[first] = (start, end);
        self.list.drain(first + 1..last);
        self.tell((start, end));
        Ok(())
    }

    /// What a new range has in common with known ones came twice.
    fn note_overlap(&mut self, known: core::ops::Range<usize>, (start, end): Range) {
        let common = self.list[known].iter().filter_map(|&(other, other_end)| {
            let from = if distance(other, start) > 0 { other } else { start };
            let to = if distance(other_end, end) < 0 { other_end } else { end };
            (distance(to, from) > 0).then_some((from, to))
        });
        self.repeated = common.reduce(|all, one| (all.0, one.1)).or(self.repeated);
    }

    fn tell(&mut self, range: Range) {
        let mut kept = [None; SACK_COUNT_MAX];
        let apart = |other: &&Range| distance(other.0, range.1) > 0 || distance(range.0, other.1) > 0;
        let others = self.newest.iter().flatten().filter(apart);
        kept[0] = Some(range);
        kept[1..].iter_mut().zip(others).for_each(|(place, other)| *place = Some(*other));
        self.newest = kept;
    }

    /// What was told before came again, before `next`.
    pub(super) fn note_repeated(&mut self, start: u32, end: u32, next: u32) {
        let end = if distance(end, next) > 0 { next } else { end };
        if distance(end, start) > 0 {
            self.repeated = Some((start, end));
        }
    }

    /// All before `next` came in. How far it is in order from there.
    pub(super) fn advance(&mut self, next: u32) -> u32 {
        let mut reached = next;
        while let Some(&(start, end)) = self.list.first()
            && distance(start, reached) <= 0
        {
            reached = if distance(end, reached) > 0 { end } else { reached };
            self.list.remove(0);
        }
        let mut kept = [None; SACK_COUNT_MAX];
        let still = self.newest.iter().flatten().filter(|range| distance(range.1, reached) > 0);
        kept.iter_mut().zip(still).for_each(|(place, range)| *place = Some(*range));
        self.newest = kept;
        reached
    }

    /// Nothing is told any more (the connection ends).
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many blocks the next acknowledgement tells, if a segment has room for so many.
    pub(super) fn block_count(&self, has_times: bool) -> u32 {
        let most = SACK_COUNT_MAX - usize::from(has_times);
        let count = self.newest.iter().flatten().count() + usize::from(self.repeated.is_some());
        count.min(most) as u32
    }

    /// The blocks of the next acknowledgement; what came twice is told once.
    pub(super) fn take_blocks(&mut self) -> [Option<Range>; SACK_COUNT_MAX] {
        let Some(repeated) = self.repeated.take() else { return self.newest };
        let mut blocks = [None; SACK_COUNT_MAX];
        blocks[0] = Some(repeated);
        blocks[1..].copy_from_slice(&self.newest[..SACK_COUNT_MAX - 1]);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Ranges;

    proptest! {
        /// Against a set of single numbers, near the turn.
        #[test]
        fn they_are_a_set(inserted in prop::collection::vec((0u32..300, 1u32..40), 0..60), gap in 0u32..300) {
            let base = u32::MAX - 100;
            let mut ranges = Ranges::default();
            let mut model = [false; 400];
            for (start, length) in inserted {
                if ranges.insert((base.wrapping_add(start), base.wrapping_add(start + length))).is_ok() {
                    model[start as usize..(start + length) as usize].fill(true);
                }
                let in_list: u32 = ranges.list.iter().map(|range| range.1.wrapping_sub(range.0)).sum();
                prop_assert_eq!(in_list as usize, model.iter().filter(|there| **there).count());
                for pair in ranges.list.windows(2) {
                    prop_assert!((pair[1].0.wrapping_sub(pair[0].1) as i32) > 0);
                }
                let newest = ranges.newest[0].unwrap();
                prop_assert!(ranges.list.contains(&newest));
            }
            let expected = model[gap as usize..].iter().position(|there| !there).unwrap() as u32 + gap;
            prop_assert_eq!(ranges.advance(base.wrapping_add(gap)), base.wrapping_add(expected));
            prop_assert!(ranges.newest.iter().flatten().all(|block| ranges.list.contains(block)));
        }
    }

    #[test]
    fn what_came_twice_is_told_once_and_first() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.insert((100, 200)), Ok(()));
        assert_eq!(ranges.insert((120, 180)), Ok(()));
        assert_eq!(ranges.take_blocks()[..3], [Some((120, 180)), Some((100, 200)), None]);
        assert_eq!(ranges.take_blocks()[..2], [Some((100, 200)), None]);
        ranges.note_repeated(1, 90, 50);
        assert_eq!(ranges.take_blocks()[..2], [Some((1, 50)), Some((100, 200))]);
    }
}
