//! A file as a medium.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::medium::{Medium, MediumError};

/// A file whose length does not change.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    length: u64,
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

impl FileMedium {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self::new(file, length))
    }

    fn new(file: File, length: u64) -> Self {
        let [write_count, written_bytes, flush_count] = [const { AtomicU64::new(0) }; 3];
        Self { file, length, write_count, written_bytes, flush_count }
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
        Ok(Self::new(file, length))
    }

    /// The file's descriptor, for its lock.
    pub(super) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }
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
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.file.read_exact_at(into, offset).map_err(|error| medium_error(&error))
    }
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MediumError> {
        if offset.checked_add(from.len() as u64).is_none_or(|end| end > self.length) {
            return Err(MediumError::OutOfRange);
        }
        self.write_count.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(from.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(from, offset).map_err(|error| medium_error(&error))
    }
    fn flush(&self) -> Result<(), MediumError> {
        self.flush_count.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data().map_err(|error| medium_error(&error))
    }
}
