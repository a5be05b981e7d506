//! Truncation by epochs: the oldest part of the log is stored into the segments a few records at a time, while commits
//! go on behind it; then its room is free.
//!
//! An epoch ends where everything before it is decided: not within the records of a transaction that has holds.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use super::replay::{Cache, Replayer, each_part};
use super::{Segment, Store};
use crate::error::Error;
use crate::log::{Damage, HEAD_BYTES, Start};
use crate::medium::Medium;
use crate::memory::Memory;

/// Records that a commit takes on when it finds the log too full.
pub(super) const STEP_RECORD_COUNT: usize = 64;

/// A truncation under way.
#[derive(Debug)]
pub(super) struct Truncation {
    /// The next record.
    at: Start,
    /// Behind the epoch's last.
    end: Start,
    replayer: Replayer,
    pub cache: Cache,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// Truncates as much of the log as can be now.
    ///
    /// # Errors
    /// The medium's; nothing is lost.
    pub fn truncate(&mut self) -> Result<(), Error> {
        while !self.truncate_step(usize::MAX)? {}
        Ok(())
    }

    /// Makes all that was committed last, in the segments: the log is empty afterwards, but for what belongs to
    /// transactions that go on.
    ///
    /// # Errors
    /// The medium's; nothing is lost.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.flush()?;
        // One that is under way ends before what was committed since.
        self.truncate()?;
        self.truncate()
    }

    /// Goes on with a truncation, or begins one, for so many records; true when it has ended.
    ///
    /// # Errors
    /// The medium's; the truncation begins anew at the next call.
    pub fn truncate_step(&mut self, record_count: usize) -> Result<bool, Error> {
        let truncation = match self.truncation.take() {
            Some(truncation) => truncation,
            None => match self.begin_truncation()? {
                Some(truncation) => truncation,
                None => return Ok(true),
            },
        };
        self.truncation = self.go_on(truncation, record_count)?;
        Ok(self.truncation.is_none())
    }

    fn begin_truncation(&mut self) -> Result<Option<Truncation>, Error> {
        let start = self.log.ring.start();
        let end = self.epoch_end();
        if end.sequence == start.sequence {
            return Ok(None);
        }
        if self.log.ring.flushed_through() + 1 < end.sequence {
            self.log.ring.flush()?;
        }
        Ok(Some(Truncation { at: start, end, replayer: Replayer::default(), cache: Cache::default() }))
    }

    /// The last place before which all is decided.
    fn epoch_end(&self) -> Start {
        let live = self.transactions.values().filter_map(|transaction| transaction.hold_start);
        let mut end =
            live.chain([self.log.ring.end()]).min_by_key(|start| start.sequence).unwrap_or(self.log.ring.end());
        // A transaction that has ended behind the epoch must begin behind it too.
        while let Some(span) =
            self.spans.iter().find(|span| span.start.sequence < end.sequence && end.sequence <= span.end)
        {
            end = span.start;
        }
        end
    }

    fn go_on(&mut self, mut truncation: Truncation, record_count: usize) -> Result<Option<Truncation>, Error> {
        let mut record = Vec::new();
        let Self { log, segments, area, segment_bytes, marks, .. } = self;
        let segments: &[Segment<M>] = segments;
        for _ in 0..record_count {
            if truncation.at.sequence >= truncation.end.sequence {
                break;
            }
            let at = truncation.at;
            let missing = Error::Damage(Damage::Middle { sequence: at.sequence, position: at.position });
            let (head, place, after) = log.ring.next(at, &mut record)?.ok_or(missing)?;
            let payload = &record[HEAD_BYTES..HEAD_BYTES + head.payload_bytes as usize];
            let cache = &mut truncation.cache;
            truncation.replayer.record(&log.ring, segment_bytes, (&head, place, payload), &mut |entry, sequence| {
                each_part(entry, &mut |name, offset, bytes| {
                    // What its segment has already may be newer.
                    let is_written = marks.get(&name).is_some_and(|mark| mark.written >= sequence);
                    if is_written { Ok(()) } else { cache.store((segments, &mut *area), name, offset, bytes) }
                })
            })?;
            truncation.at = after;
        }
        if truncation.at.sequence < truncation.end.sequence {
            return Ok(Some(truncation));
        }
        truncation.cache.write_all(segments, area)?;
        segments.iter().try_for_each(|segment| segment.medium.flush())?;
        log.truncate(truncation.end)?;
        let start = truncation.end.sequence;
        self.marks.retain(|_, mark| mark.committed >= start || mark.written >= start);
        self.spans.retain(|span| span.end >= start);
        let marks = &self.marks;
        self.images.retain(|name, _| marks.get(name).is_some_and(|mark| mark.committed > mark.written));
        self.counters.truncation_count += 1;
        Ok(None)
    }
}
