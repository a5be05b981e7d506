//! What is known of leaves by their numbers, ascending, in runs: short arrays, in an array.
//!
//! A space has twenty leaves or, rarely, thousands, and is copied with all of them at each fork. Look-ups come in
//! groups for one leaf or for neighbours, so the place that was found last is tried first, whatever has changed since:
//! what has the number there is it. A B-tree has no places to keep, and is made and taken apart entry by entry.
//!
//! Invariants: no run is empty or longer than [`RUN_LENGTH_MAX`]; numbers ascend within runs and from run to run.

use alloc::vec::{self, Vec};
use core::cell::Cell;
use core::ops::{Bound, RangeBounds};

use crate::error::Result;
use crate::reserve;

/// Most leaves in a run: what an insertion moves at most.
const RUN_LENGTH_MAX: usize = 64;
/// Neighbouring runs that have no more than this together become one.
const RUN_LENGTH_JOINED: usize = RUN_LENGTH_MAX / 2;
/// Leaves that a space begins with room for.
const LENGTH_USUAL: usize = 16;
/// Leaves that a copy has room for beyond those that there are.
const ROOM: usize = 8;

/// Where a leaf is, or would be.
#[derive(Clone, Copy, Default)]
struct Place {
    run: usize,
    index: usize,
}

/// Leaves of a space.
pub(super) struct Leaves<V> {
    runs: Vec<Vec<(u64, V)>>,
    length: usize,
    /// Where the one is that was found last.
    recent: Cell<Place>,
}

impl<V> Default for Leaves<V> {
    fn default() -> Self {
        Self { runs: Vec::new(), length: 0, recent: Cell::default() }
    }
}

impl<V> Leaves<V> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where a number is, and if not, where it would be.
    #[inline]
    fn find(&self, number: u64) -> core::result::Result<Place, Place> {
        let recent = self.recent.get();
        match self.runs.get(recent.run).and_then(|run| run.get(recent.index)) {
            Some((known, _)) if *known == number => Ok(recent),
            _ => self.search(number),
        }
    }

    #[inline(never)]
    fn search(&self, number: u64) -> core::result::Result<Place, Place> {
        if let Some(found) = self.search_above_recent(number) {
            return found;
        }
        let mut run = 0;
        if self.runs.len() > 1 {
            let behind = self.runs.partition_point(|run| run.last().is_some_and(|(last, _)| *last < number));
            run = behind.min(self.runs.len() - 1);
        }
        let Some(leaves) = self.runs.get(run) else { return Err(Place::default()) };
        let index = leaves.partition_point(|(known, _)| *known < number);
        let place = Place { run, index };
        if leaves.get(index).is_some_and(|(known, _)| *known == number) {
            self.recent.set(place);
            return Ok(place);
        }
        Err(place)
    }

    /// The same where it is the next behind the one that was found last, or would be: many go upwards.
    #[inline]
    fn search_above_recent(&self, number: u64) -> Option<core::result::Result<Place, Place>> {
        let Place { run, index } = self.recent.get();
        let leaves = self.runs.get(run)?;
        let (below, _) = leaves.get(index)?;
        let (above, _) = leaves.get(index + 1)?;
        if number <= *below || number > *above {
            return None;
        }
        let place = Place { run, index: index + 1 };
        if number != *above {
            return Some(Err(place));
        }
        self.recent.set(place);
        Some(Ok(place))
    }

    #[inline]
    pub(super) fn get(&self, number: &u64) -> Option<&V> {
        let place = self.find(*number).ok()?;
        self.runs.get(place.run)?.get(place.index).map(|(_, leaf)| leaf)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: &u64) -> Option<&mut V> {
        let place = self.find(*number).ok()?;
        self.runs.get_mut(place.run)?.get_mut(place.index).map(|(_, leaf)| leaf)
    }

    /// The one of a number, which is made if it is not there.
    #[inline]
    pub(super) fn get_or_insert_with(&mut self, number: u64, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.find(number) {
            Ok(place) => place,
            Err(place) => self.insert_at(place, number, make()),
        };
        &mut self.runs[place.run][place.index].1
    }

    pub(super) fn insert(&mut self, number: u64, leaf: V) -> Option<V> {
        match self.find(number) {
            Ok(place) => Some(core::mem::replace(&mut self.runs[place.run][place.index].1, leaf)),
            Err(place) => {
                self.insert_at(place, number, leaf);
                None
            }
        }
    }

    #[inline(never)]
    fn insert_at(&mut self, mut place: Place, number: u64, leaf: V) -> Place {
        if self.runs.is_empty() {
            self.runs.push(Vec::with_capacity(LENGTH_USUAL));
        }
        if self.runs[place.run].len() == RUN_LENGTH_MAX {
            // Inserting upwards fills each run.
            let is_last = place.run + 1 == self.runs.len() && place.index == RUN_LENGTH_MAX;
            let keeps = if is_last { RUN_LENGTH_MAX } else { RUN_LENGTH_MAX / 2 };
            let upper = self.runs[place.run].split_off(keeps);
            self.runs.insert(place.run + 1, upper);
            if place.index > keeps || is_last {
                place = Place { run: place.run + 1, index: place.index - keeps };
            }
        }
        self.runs[place.run].insert(place.index, (number, leaf));
        self.length += 1;
        self.recent.set(place);
        place
    }

    pub(super) fn remove(&mut self, number: &u64) -> Option<V> {
        let Place { run, index } = self.find(*number).ok()?;
        let (_, leaf) = self.runs[run].remove(index);
        self.length -= 1;
        let length = self.runs[run].len();
        if length == 0 {
            self.runs.remove(run);
        } else if let Some(next) = self.runs.get_mut(run + 1)
            && length + next.len() <= RUN_LENGTH_JOINED
        {
            let mut next = core::mem::take(next);
            self.runs[run].append(&mut next);
            self.runs.remove(run + 1);
        }
        Some(leaf)
    }

    /// The first that is not below where a range starts.
    fn first_in(&self, range: &impl RangeBounds<u64>) -> Place {
        match range.start_bound() {
            Bound::Included(start) => self.find(*start).unwrap_or_else(|place| place),
            Bound::Excluded(_) | Bound::Unbounded => Place::default(),
        }
    }

    /// Those of a range, ascending.
    pub(super) fn range(&self, range: impl RangeBounds<u64>) -> impl Iterator<Item = (&u64, &V)> {
        let Place { run, index } = self.first_in(&range);
        let part = self.runs.get(run).map_or(&[][..], |run| &run[index..]);
        let rest = self.runs.get(run + 1..).unwrap_or_default().iter().flatten();
        let leaves = part.iter().chain(rest).take_while(move |(number, _)| range.contains(number));
        leaves.map(|(number, leaf)| (number, leaf))
    }

    /// The number of the first of them.
    pub(super) fn first_number_in(&self, range: core::ops::Range<u64>) -> Option<u64> {
        self.range(range).next().map(|(number, _)| *number)
    }

    /// The same, to be changed.
    pub(super) fn range_mut(&mut self, range: impl RangeBounds<u64>) -> impl Iterator<Item = (&u64, &mut V)> {
        let Place { run, index } = self.first_in(&range);
        let mut runs = self.runs.get_mut(run..).unwrap_or_default().iter_mut();
        let part = runs.next().map_or(&mut [][..], |run| &mut run[index..]);
        let leaves = part.iter_mut().chain(runs.flatten()).take_while(move |(number, _)| range.contains(number));
        leaves.map(|(number, leaf)| (&*number, leaf))
    }

    /// Takes those out that are not wanted; all are asked for, ascending.
    pub(super) fn retain(&mut self, mut is_wanted: impl FnMut(&u64, &mut V) -> bool) {
        self.runs.retain_mut(|run| {
            run.retain_mut(|(number, leaf)| is_wanted(number, leaf));
            !run.is_empty()
        });
        self.length = self.runs.iter().map(Vec::len).sum();
    }

    /// Others of the same numbers. `ENOMEM`.
    pub(super) fn copy_with(&self, mut copy: impl FnMut(&V) -> V) -> Result<Self> {
        let mut runs = reserve::vector(self.runs.len())?;
        for run in &self.runs {
            let mut copies = reserve::vector((run.len() + ROOM).min(RUN_LENGTH_MAX))?;
            copies.extend(run.iter().map(|(number, leaf)| (*number, copy(leaf))));
            runs.push(copies);
        }
        Ok(Self { runs, length: self.length, recent: self.recent.clone() })
    }

    /// All of them, ascending.
    pub(super) fn into_values(self) -> IntoValues<V> {
        IntoValues { runs: self.runs.into_iter(), run: Vec::new().into_iter(), left: self.length }
    }
}

/// See [`Leaves::into_values`].
pub(super) struct IntoValues<V> {
    runs: vec::IntoIter<Vec<(u64, V)>>,
    run: vec::IntoIter<(u64, V)>,
    left: usize,
}

impl<V> Iterator for IntoValues<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        loop {
            if let Some((_, leaf)) = self.run.next() {
                self.left -= 1;
                return Some(leaf);
            }
            self.run = self.runs.next()?.into_iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<V> ExactSizeIterator for IntoValues<V> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::{Leaves, RUN_LENGTH_MAX};
    use crate::mem::test_support::numbers;

    fn check(leaves: &Leaves<u64>, model: &BTreeMap<u64, u64>) {
        assert!(leaves.runs.iter().all(|run| (1..=RUN_LENGTH_MAX).contains(&run.len())));
        assert_eq!((leaves.len(), leaves.is_empty()), (model.len(), model.is_empty()));
        assert!(leaves.range(..).eq(model.iter()));
    }

    #[test]
    fn they_are_as_in_a_tree() {
        for seed in 0..4 {
            let mut number = numbers(seed);
            let (mut leaves, mut model) = (Leaves::default(), BTreeMap::new());
            for step in 0..6000_u64 {
                let at = number(600);
                // More come than go first, then the other way round.
                match number(if step % 3000 < 1500 { 4 } else { 12 }) {
                    0 => assert_eq!(leaves.insert(at, step), model.insert(at, step)),
                    1 => assert_eq!(leaves.get_or_insert_with(at, || step), model.entry(at).or_insert(step)),
                    2 => assert_eq!(leaves.get(&at), model.get(&at)),
                    3 => assert_eq!(leaves.get_mut(&at), model.get_mut(&at)),
                    _ => assert_eq!(leaves.remove(&at), model.remove(&at)),
                }
                if step % 100 == 0 {
                    check(&leaves, &model);
                    let end = at + number(300);
                    assert!(leaves.range(at..end).eq(model.range(at..end)));
                    assert!(leaves.range(at..=end).eq(model.range(at..=end)));
                    assert!(leaves.range_mut(at..).eq(model.range_mut(at..)));
                }
                if step % 1000 == 999 {
                    let is_wanted = |number: &u64| *number % 7 != 3;
                    leaves.retain(|number, _| is_wanted(number));
                    model.retain(|number, _| is_wanted(number));
                    check(&leaves, &model);
                }
            }
            let copy = leaves.copy_with(|leaf| leaf + 1).expect("there is memory");
            check(&copy, &model.iter().map(|(number, leaf)| (*number, leaf + 1)).collect());
            let mut values = leaves.into_values();
            assert_eq!(values.len(), model.len());
            assert!(values.by_ref().take(3).eq(model.values().copied().take(3)));
            assert_eq!(values.len(), model.len().saturating_sub(3));
            assert_eq!(values.collect::<Vec<u64>>(), model.into_values().skip(3).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn upwards_runs_are_full_and_downwards_half() {
        let (mut up, mut down) = (Leaves::default(), Leaves::default());
        for number in 0..4096_u64 {
            up.insert(number, ());
            down.insert(4096 - number, ());
        }
        assert_eq!(up.runs.len(), 4096 / RUN_LENGTH_MAX);
        assert!(down.runs.len() <= 2 * up.runs.len());
    }
}
