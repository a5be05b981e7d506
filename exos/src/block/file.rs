//! An open disk: what a program's descriptor of `/dev/vda` does.
//!
//! With `O_DIRECT` a transfer goes between the disk and the program's own frames, which are held meanwhile; offset,
//! length and addresses have to be multiples of the disk's blocks, else `EINVAL`, as on Linux. Otherwise it goes
//! through the disk's pages (`cache`), which are read ahead where a program reads on where it stopped.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::device::DiskDevice;
use super::disk::{DiskLimits, DiskOperation, SECTOR_BYTES};
use super::transfer::TRANSFER_BYTES_MAX;
use crate::error::{Errno, Result};
use crate::fs::open_file::{OpenFile, OpenRequest, SeekSupport};
use crate::fs::transfer::{Destination, Source, partial};
use crate::fs::vnode::Allocate;
use crate::mem::pinned::PinnedMemory;
use crate::preempt;

/// Pages that are read ahead at first.
const AHEAD_PAGES_MIN: u64 = 4;

/// An open disk.
pub struct DiskFile {
    device: Arc<DiskDevice>,
    is_direct: AtomicBool,
    is_synchronous: AtomicBool,
    /// Where the last buffered read ended, and how many pages were read ahead of it.
    next_offset: AtomicU64,
    ahead_pages: AtomicU64,
    seen_error_count: AtomicU64,
}

/// How a transfer that goes past the cache ends where it is cut short.
enum Pinned {
    Some(PinnedMemory),
    Fault(Errno),
}

impl DiskFile {
    /// Opens it.
    ///
    /// # Errors
    /// `ENXIO`; `EACCES`: it is read-only, and was to be written to.
    pub fn open(device: &Arc<DiskDevice>, request: OpenRequest) -> Result<Arc<Self>> {
        if request.write && device.limits()?.is_read_only {
            return Err(Errno::EACCES);
        }
        device.queue()?;
        device.begin_use();
        Ok(Arc::new(Self {
            device: device.clone(),
            is_direct: AtomicBool::new(false),
            is_synchronous: AtomicBool::new(false),
            next_offset: AtomicU64::new(0),
            ahead_pages: AtomicU64::new(AHEAD_PAGES_MIN),
            seen_error_count: AtomicU64::new(device.cache().error_count()),
        }))
    }

    /// The disk.
    #[must_use]
    pub fn device(&self) -> &Arc<DiskDevice> {
        &self.device
    }

    /// Whether transfers go past the cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    /// Gets pages out of the way of a transfer of so many bytes that goes past the cache, which the caller then submits
    /// itself, and checks it.
    ///
    /// # Errors
    /// `EINVAL`: not in whole blocks of the disk. `ENOSPC`: behind its end. Those of writing back.
    pub fn prepare_direct(
        &self,
        operation: DiskOperation,
        offset: u64,
        memory: &PinnedMemory,
        limits: DirectLimits,
    ) -> Result<()> {
        let byte_count = memory.byte_count();
        check_blocks(limits.block_bytes, offset | byte_count, memory)?;
        if offset.saturating_add(byte_count) > limits.size_bytes {
            return Err(Errno::ENOSPC);
        }
        self.device.cache().settle(&self.device, offset, byte_count, operation.is_write())
    }

    /// Transfers past the cache, `pin` holding the next bytes of the program's buffers.
    fn direct(
        &self,
        operation: DiskOperation,
        mut offset: u64,
        mut left: u64,
        mut pin: impl FnMut(u64, &mut PinnedMemory) -> Result<u64>,
    ) -> Result<usize> {
        let block_bytes = self.device.logical_block_bytes()?;
        let mut done = 0;
        if (offset | left) & (u64::from(block_bytes) - 1) != 0 {
            return Err(Errno::EINVAL);
        }
        while left > 0 {
            let mut memory = PinnedMemory::new(self.device.pool().clone());
            let count = left.min(TRANSFER_BYTES_MAX);
            let held = match pin(count, &mut memory) {
                Ok(held) if held == count => Pinned::Some(memory),
                Ok(_) => Pinned::Fault(Errno::EFAULT),
                Err(error) => Pinned::Fault(error),
            };
            let moved = match held {
                Pinned::Some(memory) => self.move_pinned(operation, block_bytes, offset, memory),
                Pinned::Fault(error) => Err(error),
            };
            if let Err(error) = moved {
                return partial(done, error);
            }
            (done, offset, left) = (done + count as usize, offset + count, left - count);
            if left > 0 && preempt::unless_killed().is_err() {
                break;
            }
        }
        Ok(done)
    }

    fn move_pinned(&self, operation: DiskOperation, block_bytes: u32, offset: u64, memory: PinnedMemory) -> Result<()> {
        let count = memory.byte_count();
        check_blocks(block_bytes, offset | count, &memory)?;
        let (cache, device) = (self.device.cache(), &self.device);
        cache.settle(device, offset, count, operation.is_write())?;
        let (first, sectors) = (offset / u64::from(SECTOR_BYTES), count / u64::from(SECTOR_BYTES));
        device.transfer(operation, first, sectors, Some(memory))?;
        if operation.is_write() {
            // A buffered read may have come in between.
            cache.settle(device, offset, count, true)?;
        }
        Ok(())
    }

    fn read_buffered(&self, offset: u64, size_bytes: u64, destination: &mut dyn Destination) -> Result<usize> {
        let ahead_max = self.device.read_ahead_sectors() / 8;
        let is_next = self.next_offset.load(Ordering::Relaxed) == offset;
        let ahead = if is_next { (self.ahead_pages.load(Ordering::Relaxed) * 2).min(ahead_max) } else { 0 };
        self.ahead_pages.store(ahead.max(AHEAD_PAGES_MIN), Ordering::Relaxed);
        let done = self.device.cache().read(&self.device, offset, size_bytes, ahead, destination)?;
        self.next_offset.store(offset + done as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Sets sectors to zero, or gives them up; pages of them are forgotten.
    ///
    /// # Errors
    /// `EINVAL`: not in whole blocks, or behind the end. `EOPNOTSUPP`; `EIO`.
    pub fn change_range(&self, operation: DiskOperation, offset: u64, count: u64) -> Result<()> {
        let limits = self.device.limits()?;
        let is_aligned = (offset | count).is_multiple_of(u64::from(limits.logical_block_bytes));
        let end = offset.checked_add(count).filter(|end| *end <= size_of(&limits));
        if !is_aligned || end.is_none() || count == 0 {
            return Err(Errno::EINVAL);
        }
        self.device.cache().settle(&self.device, offset, count, true)?;
        let sector = u64::from(SECTOR_BYTES);
        let (mut first, mut left) = (offset / sector, count / sector);
        let range = if operation == DiskOperation::Discard { limits.discard } else { limits.write_zeroes };
        let Some(range) = range else {
            return if operation == DiskOperation::WriteZeroes {
                self.write_zeroes(offset, count)
            } else {
                Err(Errno::EOPNOTSUPP)
            };
        };
        // In as many transfers as have room for their requests.
        let step_max = u64::from(range.sector_count_max & !7).max(8) * 64;
        while left > 0 {
            let step = left.min(step_max);
            self.device.transfer(operation, first, step, None)?;
            (first, left) = (first + step, left - step);
            preempt::unless_killed()?;
        }
        self.device.cache().settle(&self.device, offset, count, true)
    }

    /// Zeros that the disk does not write by itself.
    fn write_zeroes(&self, mut offset: u64, mut left: u64) -> Result<()> {
        let frame = self.device.pool().allocate_ref()?;
        let page = crate::fs::page::PAGE_BYTES as u64;
        while left > 0 {
            let mut memory = PinnedMemory::new(self.device.pool().clone());
            let count = left.min(64 * page);
            let mut pinned = 0;
            while pinned < count {
                let step = (count - pinned).min(page);
                self.device.pool().retain(frame.frame());
                memory.push(frame.frame(), 0, step as u32)?;
                pinned += step;
            }
            let sector = u64::from(SECTOR_BYTES);
            self.device.transfer(DiskOperation::Write, offset / sector, count / sector, Some(memory))?;
            (offset, left) = (offset + count, left - count);
            preempt::unless_killed()?;
        }
        Ok(())
    }

    /// Forgets all pages, written back first (`BLKFLSBUF`).
    ///
    /// # Errors
    /// `EIO`.
    pub fn flush_pages(&self) -> Result<()> {
        self.device.cache().settle(&self.device, 0, u64::MAX / 2, true)
    }
}

/// What of a disk's limits a transfer past the cache is held against.
#[derive(Clone, Copy, Debug)]
pub struct DirectLimits {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The disk's size.
    pub size_bytes: u64,
}

impl DirectLimits {
    /// Those of a disk.
    #[must_use]
    pub fn of(limits: &DiskLimits) -> Self {
        Self { block_bytes: limits.logical_block_bytes, size_bytes: size_of(limits) }
    }
}

fn size_of(limits: &DiskLimits) -> u64 {
    limits.sector_count * u64::from(SECTOR_BYTES)
}

/// `places`: the offset and the length, one in the other.
fn check_blocks(block_bytes: u32, places: u64, memory: &PinnedMemory) -> Result<()> {
    let is_whole = places & (u64::from(block_bytes) - 1) == 0
        && memory.pieces().iter().all(|piece| (piece.offset_bytes | piece.length_bytes).is_multiple_of(SECTOR_BYTES));
    if is_whole { Ok(()) } else { Err(Errno::EINVAL) }
}

impl OpenFile for DiskFile {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let size_bytes = self.device.size_bytes()?;
        let left = size_bytes.saturating_sub(offset).min(destination.remaining() as u64);
        if left == 0 {
            return Ok(0);
        }
        if !self.is_direct() {
            return self.read_buffered(offset, size_bytes, destination);
        }
        if !(destination.remaining() as u64).is_multiple_of(u64::from(self.device.logical_block_bytes()?)) {
            return Err(Errno::EINVAL);
        }
        self.direct(DiskOperation::Read, offset, left, |count, memory| destination.pin(count, memory))
    }

    fn write(&self, offset: u64, source: &mut dyn Source) -> Result<usize> {
        let size_bytes = self.device.size_bytes()?;
        let wanted = source.remaining() as u64;
        if wanted == 0 {
            return Ok(0);
        }
        let left = size_bytes.saturating_sub(offset).min(wanted);
        if left == 0 {
            return Err(Errno::ENOSPC);
        }
        let done = if self.is_direct() {
            if !wanted.is_multiple_of(u64::from(self.device.logical_block_bytes()?)) {
                return Err(Errno::EINVAL);
            }
            self.direct(DiskOperation::Write, offset, left, |count, memory| source.pin(count, memory))?
        } else {
            self.device.cache().write(&self.device, offset, size_bytes, source)?
        };
        if self.is_synchronous.load(Ordering::Relaxed) {
            self.sync()?;
        }
        Ok(done)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }

    fn set_mode(&self, is_direct: bool, is_synchronous: bool) {
        self.is_direct.store(is_direct, Ordering::Relaxed);
        self.is_synchronous.store(is_synchronous, Ordering::Relaxed);
    }

    fn size_bytes(&self) -> Option<u64> {
        self.device.size_bytes().ok()
    }

    fn sync(&self) -> Result<()> {
        let outcome = self.device.sync();
        // Each open file is told once of what could not be written back, whoever tried to.
        let error_count = self.device.cache().error_count();
        let is_told = self.seen_error_count.swap(error_count, Ordering::Relaxed) == error_count;
        if is_told { outcome } else { Err(Errno::EIO) }
    }

    fn allocate(&self, mode: Allocate, offset: u64, count: u64) -> Result<()> {
        let operation = match mode {
            Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => DiskOperation::WriteZeroes,
            Allocate::Extend | Allocate::KeepSize => return Err(Errno::EOPNOTSUPP),
        };
        self.change_range(operation, offset, count)
    }

    fn disk(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.device.end_use();
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
