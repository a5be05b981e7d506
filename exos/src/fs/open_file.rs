//! Open files that are more than their inode: the trait of pipes' ends, terminals, streams, devices, generated texts
//! and what a personality adds (an epoll instance, a timer).
//!
//! Neighbours: [`super::vnode`], whose inodes are opened as such; [`super::description`], which calls them. A pipe and
//! a terminal are named here as data below this file: what implements the trait stands above it.

use alloc::sync::Arc;
use core::any::Any;

use super::pipe::Pipe;
use super::readiness::{Readiness, WaitQueue};
use super::step::{Step, Transfer, TransferCaller};
use super::terminal::modes::Terminal;
use super::terminal::tty::Side;
use super::transfer::{Destination, Source};
use super::vnode::Allocate;
use crate::error::{Errno, Result};
use crate::mem::PageSource;

/// How an inode is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// `O_NONBLOCK`.
    pub non_blocking: bool,
}

/// An open file that is more than its inode: a device, a pipe's end, a generated text.
///
/// A [`super::description::Description`] calls it for every transfer. What would block answers `EAGAIN`
/// (INV-F3); the caller looks at [`Self::wait_queue`] if it wants to sleep.
pub trait OpenFile: Send + Sync {
    /// Reads from `offset` (0 for what cannot seek) into `destination`; `Ok(0)` is the end.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`, `EIO`, `EINVAL` if it cannot be read.
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize>;

    /// Writes from `source` at `offset`.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`, `EPIPE`, `ENOSPC`, `EINVAL` if it cannot be written.
    fn write(&self, offset: u64, source: &mut dyn Source) -> Result<usize>;

    /// An attempt of a read that may wait: [`Self::read`], unless more than that is to be said.
    fn read_step(&self, destination: &mut dyn Destination, _: &mut Transfer, _: &dyn TransferCaller) -> Step {
        Step::of(self.read(0, destination))
    }

    /// A write of all that `source` has, where that needs no more than one look. `None`: nothing has been written.
    ///
    /// # Errors
    /// As [`Self::write`]. After `EAGAIN` and `EPIPE` nothing has changed: the same is answered again.
    fn try_write(&self, source: &mut dyn Source) -> Option<Result<usize>> {
        let _ = source;
        None
    }

    /// An attempt of a write that may wait.
    fn write_step(&self, source: &mut dyn Source, transfer: &mut Transfer, _: &dyn TransferCaller) -> Step {
        match self.write(0, source) {
            Ok(count) => transfer.moved(count, count == 0 || source.remaining() == 0 || !self.writes_all()),
            failed => Step::of(failed),
        }
    }

    /// What it is ready for now.
    fn readiness(&self) -> Readiness {
        Readiness::ALWAYS
    }

    /// The queue that tells of changes of readiness; `None` if it never changes.
    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        None
    }

    /// Whether [`Self::wait_queue`] is told of every change, so that nobody has to ask [`Self::readiness`] for it.
    fn announces(&self) -> bool {
        true
    }

    /// Whether offsets mean something: `lseek`, `pread`, `pwrite` answer `ESPIPE` otherwise.
    fn seek_support(&self) -> SeekSupport {
        SeekSupport::None
    }

    /// Whether every read gives as many zero bytes as are asked for, and does nothing else.
    fn reads_zeros(&self) -> bool {
        false
    }

    /// Whether what is read are records: several buffers are so many reads.
    fn reads_records(&self) -> bool {
        false
    }

    /// Whether a write is one value whose bytes are taken before it is known whether there is room: a caller that tries
    /// again has to keep them.
    fn takes_whole(&self) -> bool {
        false
    }

    /// Whether a blocking write goes on until all is written (pipes, streams).
    fn writes_all(&self) -> bool {
        false
    }

    /// False while a blocking `open` of a named pipe has to wait for the other end.
    fn is_connected(&self) -> bool {
        true
    }

    /// The terminal that this is, if it is one.
    fn terminal(&self) -> Option<&dyn Terminal> {
        None
    }

    /// The side of one of exos's own terminals that this is.
    fn terminal_side(&self) -> Option<Side<'_>> {
        None
    }

    /// Bytes that can be read without blocking (`FIONREAD`), where that is known.
    fn readable_byte_count(&self) -> Option<usize> {
        None
    }

    /// A pipe's capacity (`F_GETPIPE_SZ`, `F_SETPIPE_SZ`), for what is a pipe.
    fn pipe(&self) -> Option<&Arc<Pipe>> {
        None
    }

    /// Whether transfers go past what is cached (`O_DIRECT`), and whether they end on the medium (`O_SYNC`): when it is
    /// opened, and whenever that changes.
    fn set_mode(&self, is_direct: bool, is_synchronous: bool) {
        let _ = (is_direct, is_synchronous);
    }

    /// Where it ends, for `lseek`; `None`: it has no end to seek from.
    fn size_bytes(&self) -> Option<u64> {
        None
    }

    /// Has what was written on the medium (`fsync`).
    ///
    /// # Errors
    /// `EINVAL`: there is no medium. `EIO`.
    fn sync(&self) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// Changes the allocation of a block device.
    ///
    /// # Errors
    /// `ENODEV`: it is none. `EINVAL`, `EOPNOTSUPP`, `EIO`.
    fn allocate(&self, mode: Allocate, offset: u64, count: u64) -> Result<()> {
        let _ = (mode, offset, count);
        Err(Errno::ENODEV)
    }

    /// The open disk that this is ([`crate::block::file::DiskFile`]), if it is one.
    fn disk(&self) -> Option<&dyn Any> {
        None
    }

    /// What `mmap` maps of it with an offset, from its beginning on, for what has memory of its own. `None`: it is
    /// mapped as its inode is.
    fn mapped(&self, offset_bytes: u64) -> Option<Result<Arc<dyn PageSource>>> {
        let _ = offset_bytes;
        None
    }

    /// What a personality put behind the file, for calls that are about that alone (an epoll instance, a timer).
    fn extension(&self) -> Option<&dyn Any> {
        None
    }
}

/// What `lseek` does on an [`OpenFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekSupport {
    /// `ESPIPE`.
    None,
    /// Any offset is accepted; reading and writing do not look at it (`/dev/null`).
    Ignored,
    /// Any offset is accepted, but there is no reading or writing at one (what has no name: `eventfd`).
    Accepted,
    /// Offsets count; there is no end to seek from.
    Offsets,
}
