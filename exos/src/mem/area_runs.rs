//! Areas in ascending order, kept in runs: short arrays, in an array.
//!
//! An address space has twenty areas or, rarely, tens of thousands. One look-up is two binary searches over close
//! words and gives a [`Position`], from which the neighbours are a step away, so that a call looks up once and then
//! cuts, joins and changes in place; a B-tree's entries offer neither without looking up again.
//!
//! Invariants: no run is empty or longer than [`RUN_LENGTH_MAX`]; areas ascend within runs and from run to run. A
//! position is good until the next [`AreaRuns::insert`], [`AreaRuns::remove`] or [`AreaRuns::settle`]. The one that was
//! found last is tried first, whatever has changed: an area there that holds the address is the one, and so is one
//! above the address if the one before it ends at or below the address.

use alloc::vec::Vec;
use core::cell::Cell;

use super::area::Area;
use crate::error::Result;
use crate::reserve;

/// Most areas in a run: what an insertion moves at most.
const RUN_LENGTH_MAX: usize = 32;
/// Neighbouring runs that have no more than this together become one.
const RUN_LENGTH_JOINED: usize = RUN_LENGTH_MAX / 2;

/// Where an area is, or the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    run: usize,
    index: usize,
}

/// The runs.
#[derive(Default)]
pub(super) struct AreaRuns {
    runs: Vec<Vec<Area>>,
    length: usize,
    /// What was found last.
    recent: Cell<Position>,
}

impl AreaRuns {
    /// A copy of all. `ENOMEM`.
    pub(super) fn copy(&self) -> Result<Self> {
        let mut runs = reserve::vector(self.runs.len())?;
        for run in &self.runs {
            let mut copy = reserve::vector(RUN_LENGTH_MAX)?;
            copy.extend_from_slice(run);
            runs.push(copy);
        }
        Ok(Self { runs, length: self.length, recent: self.recent.clone() })
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The first area that ends above `address`, or the end.
    #[inline]
    pub(super) fn first_ending_above(&self, address: u64) -> Position {
        let recent = self.recent.get();
        match self.get(recent) {
            Some(area) if address < area.end && (area.start <= address || self.is_above_gap(recent, address)) => recent,
            _ => self.search_and_note(address),
        }
    }

    /// As [`Self::first_ending_above`] where the one found last is not it. A program that makes areas upwards asks for
    /// the end.
    #[inline(never)]
    fn search_and_note(&self, address: u64) -> Position {
        let last = self.runs.last().and_then(|run| run.last());
        let is_end = last.is_none_or(|area| area.end <= address);
        let found = if is_end { Position { run: self.runs.len(), index: 0 } } else { self.search(address) };
        self.recent.set(found);
        found
    }

    /// Whether the area before a position, in the same run, ends at or below `address`.
    #[inline]
    fn is_above_gap(&self, at: Position, address: u64) -> bool {
        at.index > 0 && self.get(Position { index: at.index - 1, ..at }).is_some_and(|below| below.end <= address)
    }

    /// As [`Self::first_ending_above`] for an address that is not that of the next look-up.
    #[inline(never)]
    pub(super) fn search(&self, address: u64) -> Position {
        let run = self.runs.partition_point(|run| run.last().is_some_and(|area| area.end <= address));
        let index = self.runs.get(run).map_or(0, |run| run.partition_point(|area| area.end <= address));
        Position { run, index }
    }

    /// The area at a position between its neighbours, where all three are in one run.
    #[inline]
    pub(super) fn around(&self, at: Position) -> Option<&[Area; 3]> {
        self.runs.get(at.run)?.get(at.index.checked_sub(1)?..at.index + 2)?.try_into().ok()
    }

    #[inline]
    pub(super) fn get(&self, at: Position) -> Option<&Area> {
        self.runs.get(at.run)?.get(at.index)
    }

    pub(super) fn get_mut(&mut self, at: Position) -> Option<&mut Area> {
        self.runs.get_mut(at.run)?.get_mut(at.index)
    }

    pub(super) fn next(&self, at: Position) -> Position {
        match self.runs.get(at.run) {
            Some(run) if at.index + 1 < run.len() => Position { index: at.index + 1, ..at },
            Some(_) => Position { run: at.run + 1, index: 0 },
            None => at,
        }
    }

    pub(super) fn previous(&self, at: Position) -> Option<Position> {
        if at.index > 0 {
            return Some(Position { index: at.index - 1, ..at });
        }
        let run = at.run.checked_sub(1)?;
        Some(Position { run, index: self.runs[run].len() - 1 })
    }

    /// The areas from a position on, ascending.
    pub(super) fn iter_from(&self, at: Position) -> impl Iterator<Item = &Area> {
        self.runs.iter().skip(at.run).flatten().skip(at.index)
    }

    /// The areas before a position, descending.
    pub(super) fn iter_before(&self, at: Position) -> impl Iterator<Item = &Area> {
        let (whole, rest) = self.runs.split_at(at.run);
        let part = rest.first().map_or(&[][..], |run| &run[..at.index]);
        part.iter().rev().chain(whole.iter().rev().flat_map(|run| run.iter().rev()))
    }

    /// Adds an area before the one at a position; where it is.
    pub(super) fn insert(&mut self, at: Position, area: Area) -> Position {
        self.length += 1;
        // Behind the end of the last run is a place in it.
        let mut at = if at.index == 0 {
            self.previous(at).map_or(at, |last| Position { index: last.index + 1, ..last })
        } else {
            at
        };
        if self.runs.is_empty() {
            self.runs.push(Vec::with_capacity(RUN_LENGTH_MAX));
        }
        if self.runs[at.run].len() == RUN_LENGTH_MAX {
            let mut upper = Vec::with_capacity(RUN_LENGTH_MAX);
            upper.extend(self.runs[at.run].drain(RUN_LENGTH_MAX / 2..));
            self.runs.insert(at.run + 1, upper);
            if at.index > RUN_LENGTH_MAX / 2 {
                at = Position { run: at.run + 1, index: at.index - RUN_LENGTH_MAX / 2 };
            }
        }
        self.runs[at.run].insert(at.index, area);
        at
    }

    /// Takes an area out; the position is that of its successor then. [`Self::settle`] is due afterwards.
    pub(super) fn remove(&mut self, at: Position) -> (Area, Position) {
        self.length -= 1;
        let run = &mut self.runs[at.run];
        let area = run.remove(at.index);
        let (is_empty, is_at_end) = (run.is_empty(), at.index == run.len());
        if is_empty {
            self.runs.remove(at.run);
        }
        let next = if is_at_end { Position { run: at.run + usize::from(!is_empty), index: 0 } } else { at };
        (area, next)
    }

    /// Joins the run of a position with its neighbours if they have become short; where the position is then.
    pub(super) fn settle(&mut self, at: Position) -> Position {
        self.join_runs(at.run);
        let lower = at.run.checked_sub(1).and_then(|below| Some((below, self.join_runs(below)?)));
        lower.map_or(at, |(run, length)| Position { run, index: length + at.index })
    }

    /// Joins a run with the next if both are short: how long it was.
    fn join_runs(&mut self, run: usize) -> Option<usize> {
        let (first, second) = (self.runs.get(run)?.len(), self.runs.get(run + 1)?.len());
        if first + second > RUN_LENGTH_JOINED {
            return None;
        }
        let upper = self.runs.remove(run + 1);
        self.runs[run].extend(upper);
        Some(first)
    }

    /// Whether the invariants hold.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let areas: Vec<&Area> = self.runs.iter().flatten().collect();
        self.runs.iter().all(|run| (1..=RUN_LENGTH_MAX).contains(&run.len()))
            && areas.len() == self.length
            && areas.windows(2).all(|pair| pair[0].end <= pair[1].start)
    }
}
