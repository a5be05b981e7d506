//! A pool's image on the host.
//!
//! Two locks, because they are of different length. `flock` is held from before the first change until the machine
//! has ended: it is the tool's, and a second tool is told so. A record lock on all bytes of the file is held while the
//! directory is read and changed: QEMU has such locks on single bytes of each image that it has open, so either side
//! finds the other. It is let go before this tool's own QEMU opens the image.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock, flock};
use rustix::io::Errno;

use crate::pool::Medium;
use crate::pool::errors::PoolError;

/// Bytes that are written at a time where a host cannot punch holes.
const ZERO_BYTES: usize = 1 << 20;

/// An image.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    /// Changes are made up, not made.
    is_rehearsal: bool,
}

impl ImageFile {
    /// Opens an image to change it, and keeps others from it until it is dropped.
    ///
    /// # Errors
    /// It is not there or no image, or another has it.
    pub fn lock(path: &Path) -> Result<Self, PoolError> {
        let file = open(path, true)?;
        let busy = |errno: Errno| match errno {
            // POSIX lets a refused record lock be either.
            Errno::WOULDBLOCK | Errno::ACCESS => PoolError::Busy,
            errno => PoolError::Host("locking the image", errno.into()),
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
        Ok(Self { file, is_rehearsal: false })
    }

    /// Opens an image to look at it. What is changed by way of this is not written.
    ///
    /// # Errors
    /// It is not there, or no image.
    pub fn look(path: &Path) -> Result<Self, PoolError> {
        Ok(Self { file: open(path, false)?, is_rehearsal: true })
    }

    /// Lets QEMU open it. Other tools are still kept from it.
    ///
    /// # Errors
    /// The host refuses.
    pub fn let_machine_in(&mut self) -> Result<(), PoolError> {
        if self.is_rehearsal {
            return Ok(());
        }
        let unlocked = fcntl_lock(&self.file, FlockOperation::Unlock);
        unlocked.map_err(|errno| PoolError::Host("unlocking the image", errno.into()))
    }
}

fn open(path: &Path, is_writable: bool) -> Result<File, PoolError> {
    let opening = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => PoolError::Missing,
        _ => PoolError::Host("opening the image", error),
    };
    // A pipe would be waited for.
    let kind = std::fs::metadata(path).map_err(opening)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(PoolError::Kind);
    }
    OpenOptions::new().read(true).write(is_writable).open(path).map_err(opening)
}

impl Medium for ImageFile {
    fn size_bytes(&mut self) -> io::Result<u64> {
        self.file.seek(SeekFrom::End(0))
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_rehearsal { Ok(()) } else { self.file.write_all_at(bytes, offset) }
    }

    fn clear(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.is_rehearsal {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                write_zeros(&self.file, offset, length)
            }
            done => done.map_err(io::Error::from),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        // Not only data: a hole is the host's knowledge of the file.
        if self.is_rehearsal { Ok(()) } else { self.file.sync_all() }
    }
}

/// What `clear` is on hosts that cannot punch holes.
fn write_zeros(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let zeros = vec![0; ZERO_BYTES];
    let mut at = offset;
    while at < offset + length {
        let count = (offset + length - at).min(ZERO_BYTES as u64);
        file.write_all_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
