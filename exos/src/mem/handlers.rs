//! Handlers that a program has for its own faults, and for a shortage of memory ([`super::native`]).

use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Errno, Result};

/// Most ranges with a handler.
pub const FAULT_RANGE_COUNT_MAX: usize = 64;

/// Code of the program's that is to run in place of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Where it is entered: code that keeps all registers.
    pub entry: u64,
    /// The function that the entry calls.
    pub function: u64,
    /// What the function is given.
    pub argument: u64,
}

/// The handlers of a space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handlers {
    /// In ascending order, disjoint.
    ranges: Vec<(Range<u64>, Handler)>,
    pub(super) shortage: Option<Handler>,
    /// There is, or was, watched memory ([`super::watched`]).
    pub(super) has_watched: bool,
    /// Memory was given back since the shortage was told.
    pub(super) may_tell: bool,
}

impl Handlers {
    pub(super) fn at(&self, address: u64) -> Option<Handler> {
        let index = self.ranges.partition_point(|(range, _)| range.end <= address);
        let (range, handler) = self.ranges.get(index)?;
        range.contains(&address).then_some(*handler)
    }

    /// Gives `range` this handler or none, whatever parts of it had. `ENOSPC`: too many ranges; nothing is changed.
    pub(super) fn set(&mut self, range: Range<u64>, handler: Option<Handler>) -> Result<()> {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 2);
        for (old, kept) in &self.ranges {
            for rest in [old.start..old.end.min(range.start), old.start.max(range.end)..old.end] {
                if !rest.is_empty() {
                    ranges.push((rest, *kept));
                }
            }
        }
        if let Some(handler) = handler {
            let index = ranges.partition_point(|(other, _)| other.start < range.start);
            ranges.insert(index, (range, handler));
        }
        if ranges.len() > FAULT_RANGE_COUNT_MAX {
            return Err(Errno::ENOSPC);
        }
        self.ranges = ranges;
        Ok(())
    }

    /// Memory was given back.
    pub(crate) fn note_release(&mut self) {
        self.may_tell = true;
    }
}
