//! A file as a medium, and a disk.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

use crate::medium::{Medium, MediumError};

/// Addresses of transfers past the system's cache are multiples of this: more than any disk asks for.
const ALIGNMENT: usize = 4096;

/// A file whose length does not change, or a part of a disk.
#[derive(Debug)]
pub struct FileMedium {
    file: Arc<File>,
    first: u64,
    length: u64,
    block_bytes: usize,
    /// Past the system's cache: memory that is aligned as the disk wants it.
    bounce: Option<Mutex<Vec<u8>>>,
    write_count: AtomicU64,
    written_bytes: AtomicU64,
    flush_count: AtomicU64,
}

/// What was done to a file since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Writes.
    pub write_count: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes.
    pub flush_count: u64,
}

/// True if a disk lies at a path, rather than a file or nothing.
pub(super) fn is_disk(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

impl FileMedium {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self::new(Arc::new(file), (0, length), None))
    }

    /// Opens all of a disk, past the system's cache.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if its blocks are larger than pages.
    pub fn open_disk(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let block_bytes = super::memory::sector_bytes(file.as_raw_fd())?;
        if !block_bytes.is_power_of_two() || !(512..=ALIGNMENT).contains(&block_bytes) {
            return Err(ErrorKind::InvalidInput.into());
        }
        Ok(Self::new(Arc::new(file), (0, length), Some(block_bytes)))
    }

    /// The `length` bytes from `first` on, which are whole blocks.
    ///
    /// # Errors
    /// [`MediumError::OutOfRange`] if they are not.
    pub fn part(&self, first: u64, length: u64) -> Result<Self, MediumError> {
        let end = first.checked_add(length).filter(|end| *end <= self.length).ok_or(MediumError::OutOfRange)?;
        if !(first | end).is_multiple_of(self.block_bytes as u64) {
            return Err(MediumError::OutOfRange);
        }
        let block_bytes = self.bounce.is_some().then_some(self.block_bytes);
        Ok(Self::new(Arc::clone(&self.file), (self.first + first, length), block_bytes))
    }

    /// With the size of its blocks: past the system's cache.
    fn new(file: Arc<File>, (first, length): (u64, u64), block_bytes: Option<usize>) -> Self {
        let [write_count, written_bytes, flush_count] = [const { AtomicU64::new(0) }; 3];
        let bounce = block_bytes.map(|_| Mutex::new(Vec::new()));
        let block_bytes = block_bytes.unwrap_or(512);
        Self { file, first, length, block_bytes, bounce, write_count, written_bytes, flush_count }
    }

    /// What was done so far.
    pub fn counts(&self) -> FileCounts {
        FileCounts {
            write_count: self.write_count.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            flush_count: self.flush_count.load(Ordering::Relaxed),
        }
    }

    /// Makes a file of zeros whose blocks are all there, so that a full disk is met here.
    ///
    /// # Errors
    /// The system's; `AlreadyExists`.
    pub fn create(path: &Path, length: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let zeros = std::vec![0; 1 << 20];
        let mut left = length;
        while left > 0 {
            let count = left.min(zeros.len() as u64);
            file.write_all(&zeros[..count as usize])?;
            left -= count;
        }
        file.sync_all()?;
        Ok(Self::new(Arc::new(file), (0, length), None))
    }

    /// Writes zeros to all of it, and flushes.
    ///
    /// # Errors
    /// The medium's.
    pub fn clear(&self) -> Result<(), MediumError> {
        let zeros = std::vec![0; 1 << 20];
        for offset in (0..self.length).step_by(zeros.len()) {
            self.write(offset, &zeros[..(self.length - offset).min(zeros.len() as u64) as usize])?;
        }
        self.flush()
    }

    /// The file's descriptor, for its lock.
    pub(super) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn is_inside(&self, offset: u64, length: usize) -> bool {
        offset.checked_add(length as u64).is_some_and(|end| end <= self.length)
    }
}

/// Calls `body` with so many aligned bytes.
fn with_aligned<T>(bounce: &Mutex<Vec<u8>>, length: usize, body: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut bytes = bounce.lock().unwrap_or_else(PoisonError::into_inner);
    if bytes.len() < length + ALIGNMENT {
        bytes.resize(length + ALIGNMENT, 0);
    }
    let skipped = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    body(&mut bytes[skipped..skipped + length])
}

fn medium_error(error: &io::Error) -> MediumError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => MediumError::NoSpace,
        ErrorKind::UnexpectedEof => MediumError::OutOfRange,
        _ => MediumError::Io,
    }
}

impl Medium for FileMedium {
    fn capacity_bytes(&self) -> u64 {
        self.length
    }
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
        if !self.is_inside(offset, into.len()) {
            return Err(MediumError::OutOfRange);
        }
        let place = self.first + offset;
        let Some(bounce) = &self.bounce else {
            return self.file.read_exact_at(into, place).map_err(|error| medium_error(&error));
        };
        // Whole blocks around what is asked for, which the disk has: its length is one of whole blocks.
        let block = self.block_bytes as u64;
        let first = place & !(block - 1);
        let length = (place + into.len() as u64).next_multiple_of(block) - first;
        with_aligned(bounce, length as usize, |bytes| {
            self.file.read_exact_at(bytes, first).map_err(|error| medium_error(&error))?;
            let inside = (place - first) as usize;
            into.copy_from_slice(&bytes[inside..inside + into.len()]);
            Ok(())
        })
    }
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
        if !self.is_inside(offset, from.len()) {
            return Err(MediumError::OutOfRange);
        }
        self.write_count.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(from.len() as u64, Ordering::Relaxed);
        let place = self.first + offset;
        let Some(bounce) = &self.bounce else {
            return self.file.write_all_at(from, place).map_err(|error| medium_error(&error));
        };
        if !(place | from.len() as u64).is_multiple_of(self.block_bytes as u64) {
            return Err(MediumError::OutOfRange);
        }
        with_aligned(bounce, from.len(), |bytes| {
            bytes.copy_from_slice(from);
            self.file.write_all_at(bytes, place).map_err(|error| medium_error(&error))
        })
    }
    fn flush(&self) -> Result<(), MediumError> {
        self.flush_count.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data().map_err(|error| medium_error(&error))
    }
}
