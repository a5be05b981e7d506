//! The entries of a file's pages by index: a run from the file's start in a row, the others in an ordered map.
//!
//! Nearly every file is written from its start on, and then the page of an offset is one look at a place. Invariant:
//! the run has an entry for each index below its length, and the map none of these. Nothing moves from the map to the
//! run, so that no order of writes and holes makes a change cost more than what lies behind it costs once.
//!
//! Neighbour: [`super::content`], which knows what an entry means.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::IntoValues;
use alloc::vec::{self, Vec};
use core::iter::Chain;
use core::ops::Range;

/// Most entries of a run: it lies in one piece of memory.
const RUN_LENGTH_MAX: usize = 1 << 16;

/// Entries by index.
pub(super) struct PageMap<T> {
    run: Vec<T>,
    others: BTreeMap<u64, T>,
}

/// Entries that were taken out.
pub(super) type Taken<T> = Chain<vec::IntoIter<T>, IntoValues<u64, T>>;

impl<T> Default for PageMap<T> {
    fn default() -> Self {
        Self { run: Vec::new(), others: BTreeMap::new() }
    }
}

impl<T> PageMap<T> {
    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<&T> {
        match self.run.get(index as usize) {
            Some(entry) => Some(entry),
            None => self.others.get(&index),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.run.is_empty() && self.others.is_empty()
    }

    /// Puts an entry in, for the one that was there.
    pub(super) fn insert(&mut self, index: u64, entry: T) {
        let end = self.run.len();
        if index < end as u64 {
            self.run[index as usize] = entry;
        } else if index == end as u64 && end < RUN_LENGTH_MAX && self.run.try_reserve(1).is_ok() {
            self.others.remove(&index);
            self.run.push(entry);
        } else {
            self.others.insert(index, entry);
        }
    }

    /// Entries below `end`.
    pub(super) fn count_below(&self, end: u64) -> u64 {
        let in_run = end.min(self.run.len() as u64);
        let others = if self.others.is_empty() { 0 } else { self.others.range(..end).count() as u64 };
        in_run + others
    }

    /// The first index from `index` on that has an entry.
    pub(super) fn next_index(&self, index: u64) -> Option<u64> {
        if index < self.run.len() as u64 {
            return Some(index);
        }
        self.others.range(index..).next().map(|(next, _)| *next)
    }

    /// Takes out all entries.
    pub(super) fn take_all(&mut self) -> Taken<T> {
        let Self { run, others } = core::mem::take(self);
        run.into_iter().chain(others.into_values())
    }

    /// Has a short run in a long row lie in a shorter one, if there is memory for that.
    fn shorten(&mut self) {
        let mut shorter = Vec::new();
        let is_sparse = self.run.len() <= self.run.capacity() / 4;
        if is_sparse && shorter.try_reserve_exact(self.run.len()).is_ok() {
            shorter.append(&mut self.run);
            self.run = shorter;
        }
    }

    /// Takes out all entries of a range; the run ends there.
    pub(super) fn take(&mut self, range: Range<u64>) -> Taken<T> {
        let length = self.run.len() as u64;
        let (start, end) = (range.start.min(length) as usize, range.end.min(length) as usize);
        let mut taken = Vec::new();
        if start < end {
            // All that there is goes as it is: `split_off` would want as much memory again, which nobody has where a
            // file has filled it.
            let kept = if end < self.run.len() { self.run.split_off(end) } else { Vec::new() };
            taken = if start == 0 { core::mem::take(&mut self.run) } else { self.run.split_off(start) };
            self.others.extend((end as u64..).zip(kept));
            self.shorten();
        }
        let mut behind = self.others.split_off(&range.start.max(length));
        let mut kept = behind.split_off(&range.end.max(range.start.max(length)));
        self.others.append(&mut kept);
        taken.into_iter().chain(behind.into_values())
    }
}

#[cfg(test)]
#[path = "page_map_tests.rs"]
mod tests;
