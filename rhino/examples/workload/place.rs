//! A database in files of its own, which are removed at the end; or on a disk, whose head is.
#![allow(unsafe_code, reason = "tells the system that it need not keep a file in memory")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rhino::linux::{Database, Settings};
use rhino::{Detector, Error, Options, PAGE_BYTES};

/// Detectors by the names that results have.
pub(crate) const DETECTORS: [(&str, Detector); 4] = [
    ("setrange", Detector::SetRange),
    ("page", Detector::Page),
    ("diff", Detector::Diff),
    ("dirty", Detector::DirtyBits),
];

/// True if there is a disk at a path: it has one database at a time.
pub(crate) fn is_disk(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Where a database lies.
pub(crate) struct Place(PathBuf);

impl Place {
    /// A database of zeros at a path, in place of what a killed run has left there.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn new(path: &Path, page_count: usize) -> Result<Self, Error> {
        let place = Self(path.to_path_buf());
        place.remove();
        Database::create(&place.0, (page_count * PAGE_BYTES) as u64)?;
        Ok(place)
    }

    /// Opens it: nothing of it is in memory, neither ours nor, as far as the system does what it is asked, its own.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub(crate) fn open(&self, frame_count_max: usize, log_bytes: u64) -> Result<Database, Error> {
        self.forget();
        let options = Options { frame_count_max, ..Options::default() };
        Database::open(&self.0, Settings { log_bytes, options })
    }

    fn forget(&self) {
        for path in [self.0.clone(), self.log()] {
            if let Ok(file) = File::open(path) {
                // SAFETY: advice about an open file.
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            }
        }
    }

    fn log(&self) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".log");
        name.into()
    }

    fn remove(&self) {
        if is_disk(&self.0) {
            // What cannot be written was no database's, or is found by the next one.
            let _ = OpenOptions::new()
                .write(true)
                .open(&self.0)
                .and_then(|mut disk| disk.write_all(&[0; PAGE_BYTES]).and_then(|()| disk.sync_all()));
            return;
        }
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.log());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}
