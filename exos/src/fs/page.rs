//! Files as `mmap` sees them: an inode at a place in the name space becomes a [`PageSource`].
//!
//! Pages are counted references to frames, so a page that is mapped survives `unlink` of its file, as on Linux. Cutting
//! a file short takes what is behind its end out of the mappings; [`FileUsers`] says whether there are any.

use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Range;

use aegis_abi::FrameNumber;

use super::file_users::FileUsers;
use super::location::Location;
use super::metadata::Timestamp;
use super::vnode::{Allocate, InodeRef};
use crate::error::{Errno, Result};
use crate::mem::frames::FixedRun;
use crate::mem::source::{FileIdentity, FilePage, PageError, PageIntent, PageSource};

/// Bytes in a page.
pub const PAGE_BYTES: usize = aegis_abi::layout::PAGE_SIZE as usize;

/// Bytes of page `index` that belong to a file of `size_bytes`; `None` behind its end.
pub(super) fn valid_bytes(size_bytes: u64, index: u64) -> Option<usize> {
    let start = index.checked_mul(PAGE_BYTES as u64)?;
    let left = size_bytes.checked_sub(start).filter(|left| *left > 0)?;
    Some(left.min(PAGE_BYTES as u64) as usize)
}

/// A regular file that is mapped.
pub struct MappedFile {
    inode: InodeRef,
    location: Location,
    root: Location,
}

impl MappedFile {
    /// The file at `location`; its path is told as seen from `root`.
    ///
    /// # Errors
    /// `ENODEV`: it cannot be mapped.
    pub fn new(location: Location, root: Location) -> Result<Arc<Self>> {
        let inode = location.inode().clone();
        if !inode.is_mappable() {
            return Err(Errno::ENODEV);
        }
        if let Some(users) = inode.users() {
            users.count_mapping(true);
        }
        Ok(Arc::new(Self { inode, location, root }))
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if let Some(users) = self.inode.users() {
            users.count_mapping(false);
        }
    }
}

/// A file that runs as a program: nobody can open it for writing meanwhile.
pub struct RunningFile(InodeRef);

impl RunningFile {
    /// From now on.
    ///
    /// # Errors
    /// `ETXTBSY`: it is open for writing.
    pub fn begin(inode: &InodeRef) -> Result<Self> {
        let running = Self(inode.clone());
        if let Some(users) = inode.users() {
            users.count_runner(true);
            if users.is_written() {
                return Err(Errno::ETXTBSY);
            }
        }
        Ok(running)
    }
}

impl Drop for RunningFile {
    fn drop(&mut self) {
        if let Some(users) = self.0.users() {
            users.count_runner(false);
        }
    }
}

/// Whether a file can be written now.
///
/// # Errors
/// `ETXTBSY`: it is a program that runs.
pub(super) fn check_not_run(inode: &InodeRef) -> Result<()> {
    if inode.users().is_some_and(FileUsers::is_run) { Err(Errno::ETXTBSY) } else { Ok(()) }
}

impl PageSource for MappedFile {
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.inode.page(index, intent)
    }

    fn owns(&self, index: u64, frame: FrameNumber) -> bool {
        self.inode.owns(index, frame)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        self.inode.resident_page(index)
    }

    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        self.inode.resident_pages(indices, take);
    }

    fn fixed_run(&self, indices: Range<u64>) -> Option<FixedRun> {
        self.inode.fixed_run(indices)
    }

    fn may_wait(&self) -> bool {
        self.inode.may_wait()
    }

    fn identity(&self) -> FileIdentity {
        let metadata = self.inode.metadata();
        FileIdentity { device: metadata.device.encoded(), inode: metadata.inode_number }
    }

    fn place(&self) -> usize {
        Arc::as_ptr(&self.inode).addr()
    }

    fn path(&self) -> String {
        String::from_utf8_lossy(&self.location.path_from(&self.root)).into_owned()
    }

    fn sync(&self, _first_index: u64, _page_count: u64) -> Result<()> {
        self.inode.sync()
    }

    fn remove(&self, first_index: u64, page_count: u64) -> Result<()> {
        let page = PAGE_BYTES as u64;
        let offset = first_index.checked_mul(page).ok_or(Errno::EINVAL)?;
        let length = page_count.checked_mul(page).ok_or(Errno::EINVAL)?;
        let modified: Timestamp = self.inode.metadata().modified;
        self.inode.allocate(Allocate::PunchHole, offset, length, modified)
    }
}
