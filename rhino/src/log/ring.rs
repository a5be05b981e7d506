//! The ring of records: appended, flushed, replayed, recovered. Where it starts is kept by its user: [`super::Log`] in
//! two status blocks, a volume in its root slots.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use super::record::{HEAD_BYTES, Head, Start, record_bytes};
use super::{Damage, LogError};
use crate::medium::{Medium, MediumError};

/// Bytes that the search for later records reads at once.
const SEARCH_BYTES: usize = 64 << 10;
/// How often the ring's length may be hashed in that search.
const SEARCH_RINGS_MAX: u64 = 8;

/// What a ring knows besides its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingState {
    start: Start,
    tail: u64,
    next_sequence: u64,
    last_hash: u64,
    flushed_through: u64,
    is_broken: bool,
}

/// A record that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number: it lasts when [`Ring::flushed_through`] is not lower.
    pub sequence: u64,
    /// Where it lies, for [`Ring::read`].
    pub position: u64,
    /// Bytes of all of it.
    pub length: u64,
}

/// A flush under way: what was appended before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "tell Ring::flush_end how the medium's flush ended"]
pub struct Flush {
    through: u64,
}

/// Records in a part of a medium.
#[derive(Debug)]
pub struct Ring<M> {
    medium: M,
    offset: u64,
    ring_bytes: u64,
    block_bytes: u64,
    state: RingState,
    /// The record that is being made, kept for its memory.
    buffer: Vec<u8>,
}

impl<M: Medium> Ring<M> {
    /// A ring without records, in the `ring_bytes` from `offset` on, both whole blocks. Nothing is written.
    ///
    /// # Errors
    /// [`LogError::Shape`] if that is no place for a ring, or the start is not in it.
    pub fn new(medium: M, offset: u64, ring_bytes: u64, start: Start) -> Result<Self, LogError> {
        let block_bytes = medium.block_bytes() as u64;
        let end = offset.checked_add(ring_bytes).ok_or(LogError::Shape)?;
        let is_whole =
            block_bytes.is_power_of_two() && (offset | ring_bytes | start.position).is_multiple_of(block_bytes);
        if !is_whole || block_bytes < 512 || end > medium.capacity_bytes() || start.position >= ring_bytes {
            return Err(LogError::Shape);
        }
        let state = RingState {
            start,
            tail: start.position,
            next_sequence: start.sequence,
            last_hash: start.previous,
            flushed_through: start.sequence.wrapping_sub(1),
            is_broken: false,
        };
        Ok(Self { medium, offset, ring_bytes, block_bytes, state, buffer: Vec::new() })
    }

    /// The medium, for a flush beside other calls.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Where the oldest record lies.
    pub fn start(&self) -> Start {
        self.state.start
    }

    /// Where the next record will lie: a start that leaves nothing to replay.
    pub fn end(&self) -> Start {
        Start {
            log_id: self.state.start.log_id,
            position: self.state.tail,
            sequence: self.state.next_sequence,
            previous: self.state.last_hash,
        }
    }

    /// Every record up to this one lasts.
    pub fn flushed_through(&self) -> u64 {
        self.state.flushed_through
    }

    /// The number of the last record.
    pub fn last_sequence(&self) -> u64 {
        self.state.next_sequence.wrapping_sub(1)
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Bytes from the start to the tail.
    pub fn used_bytes(&self) -> u64 {
        if self.state.next_sequence == self.state.start.sequence {
            return 0;
        }
        let distance = self.state.tail + self.ring_bytes - self.state.start.position;
        if distance > self.ring_bytes { distance - self.ring_bytes } else { distance }
    }

    /// Longest record.
    pub fn record_bytes_max(&self) -> u64 {
        self.ring_bytes / 2
    }

    /// True after an error that leaves open what is on the medium.
    pub fn is_broken(&self) -> bool {
        self.state.is_broken
    }

    /// Where a record of this length would lie, and where the tail would be then.
    fn place(&self, length: u64) -> Result<(u64, u64), LogError> {
        let rest = self.ring_bytes - self.state.tail;
        let (position, cost) = if length <= rest { (self.state.tail, length) } else { (0, rest + length) };
        // Never full to the last byte: the tail is the start only if there is no record.
        if self.used_bytes() + cost >= self.ring_bytes {
            return Err(LogError::Full);
        }
        Ok((position, (position + length) % self.ring_bytes))
    }

    /// Succeeds if a record with this many bytes of payload can be appended now, and `spare_count` records of a block
    /// behind it.
    ///
    /// # Errors
    /// As [`Ring::append`] would.
    pub fn has_room(&self, payload_bytes: usize, spare_count: usize) -> Result<(), LogError> {
        let length = record_bytes(payload_bytes, self.block_bytes).ok_or(LogError::TooLarge)?;
        if length > self.record_bytes_max() {
            return Err(LogError::TooLarge);
        }
        let (position, _) = self.place(length)?;
        let skipped = if position == self.state.tail { 0 } else { self.ring_bytes - self.state.tail };
        let spare = spare_count as u64 * self.block_bytes;
        if self.used_bytes() + skipped + length + spare >= self.ring_bytes { Err(LogError::Full) } else { Ok(()) }
    }

    /// Has the log be broken: its user could not finish what a record began.
    pub fn set_broken(&mut self) {
        self.state.is_broken = true;
    }

    /// Writes a record with these parts as its payload behind the last one. It lasts after a flush.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::Full`], [`LogError::NoMemory`]: nothing was written.
    /// [`LogError::Medium`]: the record is not there. [`LogError::Broken`].
    pub fn append(&mut self, kind: u64, parts: &[&[u8]]) -> Result<Appended, LogError> {
        if self.state.is_broken {
            return Err(LogError::Broken);
        }
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.has_room(payload_bytes, 0)?;
        let length = record_bytes(payload_bytes, self.block_bytes).ok_or(LogError::TooLarge)?;
        let (position, tail) = self.place(length)?;
        self.buffer.clear();
        self.buffer.try_reserve(length as usize).map_err(|_| LogError::NoMemory)?;
        self.buffer.resize(HEAD_BYTES, 0);
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        self.buffer.resize(length as usize, 0);
        let head = Head {
            log_id: self.state.start.log_id,
            sequence: self.state.next_sequence,
            length: length as u32,
            payload_bytes: payload_bytes as u32,
            previous: self.state.last_hash,
            flushed_through: self.state.flushed_through,
            kind,
            hash: 0,
        };
        let sealed = head.seal(&mut self.buffer);
        if let Err(error) = self.medium.write(self.offset + position, &self.buffer) {
            self.spoil(position);
            return Err(LogError::Medium(error));
        }
        self.state.tail = tail;
        self.state.next_sequence += 1;
        self.state.last_hash = sealed;
        Ok(Appended { sequence: head.sequence, position, length })
    }

    /// After a failed write: makes sure that no record is where it went, or breaks the log.
    fn spoil(&mut self, position: u64) {
        self.buffer.clear();
        self.buffer.resize(self.block_bytes as usize, 0);
        let is_spoilt =
            self.medium.write(self.offset + position, &self.buffer).and_then(|()| self.medium.flush()).is_ok();
        if is_spoilt {
            self.state.flushed_through = self.last_sequence();
        } else {
            self.state.is_broken = true;
        }
    }

    /// Begins a flush of what was appended: flush the medium, then tell [`Ring::flush_end`]. Records may be appended
    /// meanwhile; the next flush covers them.
    pub fn flush_begin(&self) -> Flush {
        Flush { through: self.last_sequence() }
    }

    /// Takes how the medium's flush ended.
    ///
    /// # Errors
    /// The flush's; the log is broken then.
    pub fn flush_end(&mut self, flush: Flush, result: Result<(), MediumError>) -> Result<(), LogError> {
        match result {
            Ok(()) if self.state.is_broken => Err(LogError::Broken),
            Ok(()) => {
                self.state.flushed_through = self.state.flushed_through.max(flush.through);
                Ok(())
            }
            Err(error) => {
                self.state.is_broken = true;
                Err(LogError::Medium(error))
            }
        }
    }

    /// Flushes what was appended, if anything was.
    ///
    /// # Errors
    /// As [`Ring::flush_end`].
    pub fn flush(&mut self) -> Result<(), LogError> {
        if self.state.is_broken {
            return Err(LogError::Broken);
        }
        if self.state.flushed_through == self.last_sequence() {
            return Ok(());
        }
        let flush = self.flush_begin();
        let result = self.medium.flush();
        self.flush_end(flush, result)
    }

    /// Frees the room before `start`, which is where a record of this ring lies or the end. Only after it stands on the
    /// medium, flushed (LOG-2).
    pub fn advance(&mut self, start: Start) {
        self.state.start = start;
    }

    /// Reads the record that lies at a position into `record`; `None` if no valid one with that number does.
    ///
    /// # Errors
    /// [`LogError::NoMemory`]. What the medium cannot read counts as no record.
    pub fn read(&self, position: u64, sequence: u64, record: &mut Vec<u8>) -> Result<Option<Head>, LogError> {
        let mut head = [0; HEAD_BYTES];
        if position >= self.ring_bytes || self.medium.read(self.offset + position, &mut head).is_err() {
            return Ok(None);
        }
        let length_max = self.record_bytes_max().min(self.ring_bytes - position);
        let Some(head) = Head::plausible(&head, self.state.start.log_id, self.block_bytes, length_max) else {
            return Ok(None);
        };
        if head.sequence != sequence || !self.fill(position, head.length as usize, record)? {
            return Ok(None);
        }
        Ok(head.verifies(record).then_some(head))
    }

    fn fill(&self, position: u64, length: usize, record: &mut Vec<u8>) -> Result<bool, LogError> {
        record.clear();
        record.try_reserve(length).map_err(|_| LogError::NoMemory)?;
        record.resize(length, 0);
        Ok(self.medium.read(self.offset + position, record).is_ok())
    }

    /// Reads the record that belongs at `at`; answers it and where the next one belongs.
    ///
    /// # Errors
    /// [`LogError::NoMemory`].
    pub fn next(&self, at: Start, record: &mut Vec<u8>) -> Result<Option<(Head, Appended, Start)>, LogError> {
        for position in [at.position, 0] {
            let Some(head) = self.read(position, at.sequence, record)? else { continue };
            if head.previous != at.previous {
                continue;
            }
            let length = u64::from(head.length);
            let position_after = (position + length) % self.ring_bytes;
            let after =
                Start { position: position_after, sequence: at.sequence + 1, previous: head.hash, log_id: at.log_id };
            return Ok(Some((head, Appended { sequence: at.sequence, position, length }, after)));
        }
        Ok(None)
    }

    /// Calls `each` with every record from `from` on up to and with the number `through`, and its payload.
    ///
    /// # Errors
    /// `each`'s; [`Damage::Middle`] if one of them cannot be read.
    pub fn replay<E: From<LogError>>(
        &self,
        from: Start,
        through: u64,
        mut each: impl FnMut(&Head, Appended, &[u8]) -> Result<(), E>,
    ) -> Result<Start, E> {
        let mut at = from;
        let mut record = Vec::new();
        while at.sequence <= through {
            let Some((head, place, after)) = self.next(at, &mut record)? else {
                let damage = Damage::Middle { sequence: at.sequence, position: at.position };
                return Err(LogError::Damage(damage).into());
            };
            each(&head, place, &record[HEAD_BYTES..HEAD_BYTES + head.payload_bytes as usize])?;
            at = after;
        }
        Ok(at)
    }

    /// Finds the records that are there: the ring's state is that of the last one afterwards. `flushed_through` is what
    /// its user knows to have been flushed, 0 if nothing.
    ///
    /// # Errors
    /// [`LogError::Damage`] by L4.
    pub fn recover(&mut self, flushed_through: u64) -> Result<u64, LogError> {
        let mut at = self.state.start;
        let mut record = Vec::new();
        let mut used = 0;
        let mut count = 0;
        while let Some((head, place, after)) = self.next(at, &mut record)? {
            // Records that overlap were not made by a ring. From an older start they may fill it.
            let skipped = if place.position == at.position { 0 } else { self.ring_bytes - at.position };
            used += u64::from(head.length) + skipped;
            if used > self.ring_bytes {
                return Err(LogError::Damage(Damage::Undecided));
            }
            at = after;
            count += 1;
        }
        self.state.tail = at.position;
        self.state.next_sequence = at.sequence;
        self.state.last_hash = at.previous;
        if flushed_through >= at.sequence || self.was_flushed(at.sequence)? {
            return Err(LogError::Damage(Damage::Middle { sequence: at.sequence, position: at.position }));
        }
        // It is read from the medium, so it may be no more than a write that will be lost: only a flush says more.
        self.state.flushed_through = flushed_through.max(self.state.start.sequence.wrapping_sub(1));
        Ok(count)
    }

    /// True if a valid record behind the tail says that record `sequence` was flushed.
    fn was_flushed(&self, sequence: u64) -> Result<bool, LogError> {
        let mut chunk = Vec::new();
        let mut record = Vec::new();
        let mut budget = self.ring_bytes.saturating_mul(SEARCH_RINGS_MAX);
        let mut position = self.state.tail;
        let mut left = self.ring_bytes - self.used_bytes();
        while left > 0 {
            let length = left.min(self.ring_bytes - position).min(SEARCH_BYTES as u64);
            let is_read = self.fill(position, length as usize, &mut chunk)?;
            for at in (0..length).step_by(self.block_bytes as usize) {
                let block = chunk.get(at as usize..).unwrap_or_default();
                let place = position + at;
                let mut head = [0; HEAD_BYTES];
                let is_there = if is_read {
                    block.get(..HEAD_BYTES).is_some_and(|bytes| {
                        head.copy_from_slice(bytes);
                        true
                    })
                } else {
                    self.medium.read(self.offset + place, &mut head).is_ok()
                };
                let length_max = self.record_bytes_max().min(self.ring_bytes - place);
                let Some(head) = is_there
                    .then(|| Head::plausible(&head, self.state.start.log_id, self.block_bytes, length_max))
                    .flatten()
                    .filter(|head| head.sequence > sequence && head.flushed_through >= sequence)
                else {
                    continue;
                };
                let Some(rest) = budget.checked_sub(u64::from(head.length)) else {
                    return Err(LogError::Damage(Damage::Undecided));
                };
                budget = rest;
                if self.fill(place, head.length as usize, &mut record)? && head.verifies(&mut record) {
                    return Ok(true);
                }
            }
            position = (position + length) % self.ring_bytes;
            left -= length;
        }
        Ok(false)
    }

    /// Writes zeros to all of the ring and flushes: for a new log.
    ///
    /// # Errors
    /// The medium's.
    pub fn clear(&mut self) -> Result<(), LogError> {
        let zeros = alloc::vec![0; SEARCH_BYTES.min(self.ring_bytes as usize)];
        let mut position = 0;
        while position < self.ring_bytes {
            let length = (self.ring_bytes - position).min(zeros.len() as u64);
            self.medium.write(self.offset + position, &zeros[..length as usize])?;
            position += length;
        }
        Ok(self.medium.flush()?)
    }

    /// Begins a new chain where this one ends: recovery's last step, before the status says so.
    pub(super) fn rename(&mut self, log_id: u64) {
        let position = self.state.tail;
        let sequence = self.state.next_sequence;
        self.state.start = Start { log_id, position, sequence, previous: log_id };
        self.state.last_hash = log_id;
        self.state.flushed_through = sequence.wrapping_sub(1);
    }
}
