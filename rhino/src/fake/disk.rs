//! A disk with a write cache that records everything, fails where it is told to, and crashes at any point.
#![forbid(unsafe_code)]

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

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
    /// Everything before lasts.
    Flush,
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

    /// What was recorded.
    pub fn operations(&self) -> Vec<Operation> {
        self.0.borrow().operations.clone()
    }

    /// The indices of the writes that a crash at `point` may lose.
    pub fn unflushed(&self, point: usize) -> Vec<usize> {
        let inner = self.0.borrow();
        let done = &inner.operations[..point];
        let first = done.iter().rposition(|operation| *operation == Operation::Flush).map_or(0, |index| index + 1);
        (first..point).collect()
    }

    /// What the disk holds after a crash at `point`, where the unflushed writes have these fates, in their order.
    pub fn crash(&self, point: usize, fates: &[Fate]) -> Image {
        let inner = self.0.borrow();
        let mut image = inner.base.clone();
        let first = point - fates.len();
        for operation in &inner.operations[..first] {
            if let Operation::Write { offset, bytes } = operation {
                image.put(*offset, bytes);
            }
        }
        for (operation, fate) in inner.operations[first..point].iter().zip(fates) {
            if let Operation::Write { offset, bytes } = operation {
                image.put_torn(*offset, bytes, *fate);
            }
        }
        image
    }

    /// Bytes of the write that was recorded as this; 0 for a flush.
    pub fn write_bytes(&self, index: usize) -> usize {
        match &self.0.borrow().operations[index] {
            Operation::Write { bytes, .. } => bytes.len(),
            Operation::Flush => 0,
        }
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
        let mut inner = self.0.borrow_mut();
        inner.counts.flushes += 1;
        if let Some(fault) = inner.fails() {
            return Err(fault.error);
        }
        let number = inner.counts.flushes - 1;
        if inner.is_recording && !inner.lies.contains(&number) {
            inner.operations.push(Operation::Flush);
        }
        Ok(())
    }
}
