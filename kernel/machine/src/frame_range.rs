//! Ranges of physical frames, and the bounded list from which the machine's free memory is computed at boot.
//!
//! Invariant of [`FrameRangeList`]: ranges never overlap and none is empty. The list is small (firmware maps have
//! about ten entries), so all operations are linear.

use aegis_abi::layout::PAGE_SHIFT;

/// Most ranges in a list; further splits lose the smaller part, never gain memory.
pub const FRAME_RANGE_COUNT_MAX: usize = 64;

/// Consecutive frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRange {
    /// First frame number.
    pub start: u64,
    /// Frames.
    pub count: u64,
}

impl FrameRange {
    /// The whole frames inside the bytes `[address, address + length_bytes)`.
    #[must_use]
    pub fn inside_bytes(address: u64, length_bytes: u64) -> FrameRange {
        let end = address.saturating_add(length_bytes) >> PAGE_SHIFT;
        let start = address.saturating_add((1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
        FrameRange { start, count: end.saturating_sub(start) }
    }

    /// The frames that hold any of the bytes `[address, address + length_bytes)`.
    #[must_use]
    pub fn covering_bytes(address: u64, length_bytes: u64) -> FrameRange {
        let start = address >> PAGE_SHIFT;
        let end = address.saturating_add(length_bytes).saturating_add((1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
        FrameRange { start, count: if length_bytes == 0 { 0 } else { end - start } }
    }

    /// First frame after the range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.count
    }

    /// Whether the ranges share a frame.
    #[must_use]
    pub const fn overlaps(&self, other: FrameRange) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A bounded set of disjoint frame ranges.
#[derive(Clone, Debug)]
pub struct FrameRangeList {
    ranges: [FrameRange; FRAME_RANGE_COUNT_MAX],
    length: usize,
}

impl Default for FrameRangeList {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameRangeList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        FrameRangeList { ranges: [FrameRange { start: 0, count: 0 }; FRAME_RANGE_COUNT_MAX], length: 0 }
    }

    /// The ranges, in no particular order.
    #[must_use]
    pub fn as_slice(&self) -> &[FrameRange] {
        &self.ranges[..self.length]
    }

    /// Adds a range; what the list already holds is kept once. A range that does not fit is dropped.
    pub fn add(&mut self, range: FrameRange) {
        self.subtract(range);
        self.push(range);
    }

    /// Removes the frames of `hole`.
    pub fn subtract(&mut self, hole: FrameRange) {
        if hole.count == 0 {
            return;
        }
        let mut index = 0;
        while index < self.length {
            let range = self.ranges[index];
            if !range.overlaps(hole) {
                index += 1;
                continue;
            }
            self.length -= 1;
            self.ranges[index] = self.ranges[self.length];
            // The parts that stay are outside the hole: pushing them behind `index` only costs another comparison.
            self.push(FrameRange { start: range.start, count: hole.start.saturating_sub(range.start) });
            self.push(FrameRange { start: hole.end(), count: range.end().saturating_sub(hole.end()) });
        }
    }

    /// Removes `count` frames that start at a multiple of `align_frames` and end at or before frame `end`, from the
    /// smallest range that has them.
    pub fn take(&mut self, count: u64, align_frames: u64, end: u64) -> Option<FrameRange> {
        let fits = |range: &FrameRange| {
            let start = range.start.next_multiple_of(align_frames.max(1));
            let taken = FrameRange { start, count };
            (taken.end() <= range.end().min(end)).then_some(taken)
        };
        let candidates = self.as_slice().iter().filter(|range| fits(range).is_some());
        let taken = fits(candidates.min_by_key(|range| range.count)?)?;
        self.subtract(taken);
        Some(taken)
    }

    fn push(&mut self, range: FrameRange) {
        if range.count != 0 && self.length < FRAME_RANGE_COUNT_MAX {
            self.ranges[self.length] = range;
            self.length += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn frames(list: &FrameRangeList) -> BTreeSet<u64> {
        let mut set = BTreeSet::new();
        for range in list.as_slice() {
            for frame in range.start..range.end() {
                assert!(set.insert(frame), "ranges overlap at {frame}");
            }
        }
        set
    }

    #[test]
    fn a_list_behaves_like_a_set_of_frames() {
        let mut state = 0x1234_5678_u64;
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let mut list = FrameRangeList::new();
        let mut model = BTreeSet::new();
        for _ in 0..2000 {
            let range = FrameRange { start: next(100), count: next(12) };
            match next(3) {
                0 => {
                    list.add(range);
                    model.extend(range.start..range.end());
                }
                1 => {
                    list.subtract(range);
                    model.retain(|frame| !(range.start..range.end()).contains(frame));
                }
                _ => {
                    if let Some(taken) = list.take(range.count.max(1), 4, 90) {
                        assert!(taken.start % 4 == 0 && taken.end() <= 90);
                        for frame in taken.start..taken.end() {
                            assert!(model.remove(&frame));
                        }
                    }
                }
            }
            assert_eq!(frames(&list), model);
        }
    }

    #[test]
    fn byte_ranges_round_inwards_for_memory_and_outwards_for_contents() {
        assert_eq!(FrameRange::inside_bytes(0xfff, 0x2001), FrameRange { start: 1, count: 2 });
        assert_eq!(FrameRange::inside_bytes(0x1001, 0x100).count, 0);
        assert_eq!(FrameRange::covering_bytes(0xfff, 2), FrameRange { start: 0, count: 2 });
        assert_eq!(FrameRange::covering_bytes(0x5000, 0).count, 0);
        assert_eq!(FrameRange::inside_bytes(u64::MAX - 5, 100).count, 0);
    }
}
