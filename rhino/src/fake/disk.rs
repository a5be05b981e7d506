//! A disk with a write cache that records everything, fails where it is told to, and crashes at any point.
#![forbid(unsafe_code)]

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::Draws;
use crate::medium::{Medium, MediumError};

const BLOCK_BYTES: usize = 512;

/// One thing that was done to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes were written.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Every write before that lies in these bytes lasts.
    Flush {
        /// The first of them.
        first: u64,
        /// Behind the last.
        end: u64,
    },
}

/// What becomes of a write that was not flushed when the disk crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never came.
    Lost,
    /// It is there.
    Done,
    /// The blocks before this one are there.
    Before(usize),
    /// This block and those behind it are there.
    From(usize),
    /// All are there but this one, which has something else in it.
    Spoilt(usize),
    /// All are there but this one, which cannot be read.
    Unreadable(usize),
}

/// What a disk holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Blocks of 512 bytes that cannot be read until they are written.
    pub unreadable: BTreeSet<u64>,
}

impl Image {
    /// Zeros.
    pub fn zeros(capacity: usize) -> Self {
        Self { bytes: alloc::vec![0; capacity], unreadable: BTreeSet::new() }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        if !self.unreadable.is_empty() {
            for block in blocks(offset, bytes.len()) {
                self.unreadable.remove(&block);
            }
        }
    }

    /// Does a write as far as its fate lets it.
    pub fn put_torn(&mut self, offset: u64, bytes: &[u8], fate: Fate) {
        let cut = |block: usize| (block * BLOCK_BYTES).min(bytes.len());
        match fate {
            Fate::Lost => {}
            Fate::Done => self.put(offset, bytes),
            Fate::Before(block) => self.put(offset, &bytes[..cut(block)]),
            Fate::From(block) => self.put(offset + cut(block) as u64, &bytes[cut(block)..]),
            Fate::Spoilt(block) => {
                self.put(offset, bytes);
                let (first, end) = (offset as usize + cut(block), offset as usize + cut(block + 1));
                for byte in &mut self.bytes[first..end] {
                    *byte ^= 0x5a;
                }
            }
            Fate::Unreadable(block) => {
                self.put(offset, bytes);
                self.unreadable.extend(blocks(offset + cut(block) as u64, cut(block + 1) - cut(block)));
            }
        }
    }
}

/// A way in which a write of so many blocks may be torn.
fn tear((block_count, is_atomic): (usize, bool), draws: &mut Draws) -> Fate {
    let block = draws.below(block_count);
    if is_atomic {
        return if draws.once_in(2) { Fate::Before(block) } else { Fate::From(block) };
    }
    match draws.below(if block == 0 { 2 } else { 4 }) {
        0 => Fate::Spoilt(block),
        1 => Fate::Unreadable(block),
        2 => Fate::Before(block),
        _ => Fate::From(block),
    }
}

fn blocks(offset: u64, length: usize) -> core::ops::Range<u64> {
    let block = BLOCK_BYTES as u64;
    offset / block..(offset + length as u64).div_ceil(block)
}

/// A failure to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The write or flush that fails, counted from the disk's first, and with `is_lasting` all later ones.
    pub operation: u64,
    /// True if all later ones fail too.
    pub is_lasting: bool,
    /// What is answered.
    pub error: MediumError,
    /// What becomes of the write.
    pub fate: Fate,
}

/// What was done to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Calls of `read`.
    pub reads: u64,
    /// Calls of `write`.
    pub writes: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// As it was when recording began.
    base: Image,
    /// As a reader finds it.
    live: Image,
    operations: Vec<Operation>,
    counts: DiskCounts,
    fault: Option<Fault>,
    /// Flushes that are answered and not done, by their number.
    lies: BTreeSet<u64>,
    /// Parts whose flushes are, by where they begin.
    lying_parts: BTreeSet<u64>,
    /// From here on a crash leaves of every block the old or the new one.
    atomic_from: Option<u64>,
    is_recording: bool,
}

/// A disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk(Rc<RefCell<Inner>>);

impl Disk {
    /// A disk of zeros that records.
    pub fn new(capacity: usize) -> Self {
        Self::from_image(Image::zeros(capacity))
    }

    /// A disk that holds this and records.
    pub fn from_image(image: Image) -> Self {
        let inner = Inner { base: image.clone(), live: image, is_recording: true, ..Inner::default() };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// A disk that holds this and records nothing.
    pub fn silent(image: Image) -> Self {
        Self(Rc::new(RefCell::new(Inner { live: image, ..Inner::default() })))
    }

    /// What a reader finds.
    pub fn image(&self) -> Image {
        self.0.borrow().live.clone()
    }

    /// What has been done so far.
    pub fn counts(&self) -> DiskCounts {
        self.0.borrow().counts
    }

    /// How many writes and flushes were recorded: a point at which to crash.
    pub fn point(&self) -> usize {
        self.0.borrow().operations.len()
    }

    /// Has a write or flush fail.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.0.borrow_mut().fault = fault;
    }

    /// Has the flush with this number (counted from 0) be answered without being done.
    pub fn lie_about_flush(&self, number: u64) {
        self.0.borrow_mut().lies.insert(number);
    }

    /// From this byte on a crash leaves every block of 512 bytes as it was or as it was to be, and spoils none.
    pub fn set_atomic_from(&self, first: u64) {
        self.0.borrow_mut().atomic_from = Some(first);
    }

    /// Has the flushes of the part that begins here be answered without being done.
    pub fn lie_about_part(&self, first: u64) {
        self.0.borrow_mut().lying_parts.insert(first);
    }

    /// The `length` bytes from `first` on as a medium of its own.
    pub fn part(&self, first: u64, length: u64) -> DiskPart {
        DiskPart { disk: self.clone(), first, length }
    }

    fn flush_range(&self, first: u64, end: u64) -> Result<(), MediumError> {
        let mut inner = self.0.borrow_mut();
        inner.counts.flushes += 1;
        if let Some(fault) = inner.fails() {
            return Err(fault.error);
        }
        let number = inner.counts.flushes - 1;
        if inner.is_recording && !inner.lies.contains(&number) && !inner.lying_parts.contains(&first) {
            inner.operations.push(Operation::Flush { first, end });
        }
        Ok(())
    }

    /// What was recorded.
    pub fn operations(&self) -> Vec<Operation> {
        self.0.borrow().operations.clone()
    }

    /// The indices of the writes that a crash at `point` may lose.
    pub fn unflushed(&self, point: usize) -> Vec<usize> {
        let inner = self.0.borrow();
        let mut flushed: Vec<(u64, u64)> = Vec::new();
        let mut unflushed = Vec::new();
        for (index, operation) in inner.operations[..point].iter().enumerate().rev() {
            match operation {
                Operation::Flush { first: 0, end: u64::MAX } => break,
                Operation::Flush { first, end } if flushed.contains(&(*first, *end)) => {}
                Operation::Flush { first, end } => flushed.push((*first, *end)),
                Operation::Write { offset, .. } => {
                    if !flushed.iter().any(|(first, end)| (first..end).contains(&offset)) {
                        unflushed.push(index);
                    }
                }
            }
        }
        unflushed.reverse();
        unflushed
    }

    /// What the disk holds after a crash at `point`, where the unflushed writes have these fates, in their order.
    pub fn crash(&self, point: usize, fates: &[Fate]) -> Image {
        let unflushed = self.unflushed(point);
        let inner = self.0.borrow();
        let mut image = inner.base.clone();
        let mut next = unflushed.iter().zip(fates).peekable();
        for (index, operation) in inner.operations[..point].iter().enumerate() {
            let fate = next.next_if(|(place, _)| **place == index).map_or(Fate::Done, |(_, fate)| *fate);
            if let Operation::Write { offset, bytes } = operation {
                image.put_torn(*offset, bytes, fate);
            }
        }
        image
    }

    /// Calls `each` with what the disk may hold after a crash at `point`: every subset of the unflushed writes lost if
    /// that makes no more than `subset_count` states, else as many drawn ones; and of each subset another state in
    /// which one of the writes is torn. Answers how many states there were.
    pub fn each_crash(
        &self,
        point: usize,
        subset_count: usize,
        draws: &mut Draws,
        each: &mut dyn FnMut(Image),
    ) -> usize {
        let blocks: Vec<(usize, bool)> = self
            .unflushed(point)
            .into_iter()
            .map(|index| {
                let inner = self.0.borrow();
                match &inner.operations[index] {
                    Operation::Write { bytes, offset } => {
                        let is_atomic = inner.atomic_from.is_some_and(|first| *offset >= first);
                        (bytes.len().div_ceil(BLOCK_BYTES), is_atomic)
                    }
                    Operation::Flush { .. } => (0, true),
                }
            })
            .collect();
        let is_small = blocks.len() < usize::BITS as usize - 1 && (1 << blocks.len()) <= subset_count;
        let count = if is_small { 1 << blocks.len() } else { subset_count };
        let mut state_count = 0;
        for subset in 0..count {
            let mut is_done = |index: usize| if is_small { subset >> index & 1 == 1 } else { draws.once_in(2) };
            let mut fates: Vec<Fate> =
                (0..blocks.len()).map(|index| if is_done(index) { Fate::Done } else { Fate::Lost }).collect();
            each(self.crash(point, &fates));
            state_count += 1;
            let done: Vec<usize> = (0..fates.len()).filter(|&index| fates[index] == Fate::Done).collect();
            if !done.is_empty() {
                let index = done[draws.below(done.len())];
                fates[index] = tear(blocks[index], draws);
                each(self.crash(point, &fates));
                state_count += 1;
            }
        }
        state_count
    }
}

impl Inner {
    fn fails(&self) -> Option<Fault> {
        let number = self.counts.writes + self.counts.flushes - 1;
        self.fault.filter(|fault| fault.operation == number || (fault.is_lasting && fault.operation < number))
    }
}

impl Medium for Disk {
    fn capacity_bytes(&self) -> u64 {
        self.0.borrow().live.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
        let mut inner = self.0.borrow_mut();
        inner.counts.reads += 1;
        let end = offset.checked_add(into.len() as u64).ok_or(MediumError::OutOfRange)?;
        if end > inner.live.bytes.len() as u64 {
            return Err(MediumError::OutOfRange);
        }
        if inner.live.unreadable.range(blocks(offset, into.len())).next().is_some() {
            return Err(MediumError::Io);
        }
        into.copy_from_slice(&inner.live.bytes[offset as usize..end as usize]);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
        let mut inner = self.0.borrow_mut();
        let end = offset.checked_add(from.len() as u64).ok_or(MediumError::OutOfRange)?;
        if end > inner.live.bytes.len() as u64 {
            return Err(MediumError::OutOfRange);
        }
        inner.counts.writes += 1;
        inner.counts.written_bytes += from.len() as u64;
        if let Some(fault) = inner.fails() {
            inner.live.put_torn(offset, from, fault.fate);
            return Err(fault.error);
        }
        inner.live.put(offset, from);
        if inner.is_recording {
            inner.operations.push(Operation::Write { offset, bytes: from.to_vec() });
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.flush_range(0, u64::MAX)
    }
}

/// A part of a disk that is flushed by itself, as a file is: a flush of one makes nothing of another last.
#[derive(Clone, Debug)]
pub struct DiskPart {
    disk: Disk,
    first: u64,
    length: u64,
}

impl Medium for DiskPart {
    fn capacity_bytes(&self) -> u64 {
        self.length
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
        if offset + into.len() as u64 > self.length {
            return Err(MediumError::OutOfRange);
        }
        self.disk.read(self.first + offset, into)
    }
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
        if offset + from.len() as u64 > self.length {
            return Err(MediumError::OutOfRange);
        }
        self.disk.write(self.first + offset, from)
    }
    fn flush(&self) -> Result<(), MediumError> {
        self.disk.flush_range(self.first, self.first + self.length)
    }
}
