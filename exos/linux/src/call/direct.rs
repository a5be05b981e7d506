//! Transfers of disks that nobody waits for: with `O_DIRECT`, between the disk and the program's own frames.
//!
//! Whoever submits one is told of its end ([`RequestOwner`]) wherever that comes about; the frames are held until the
//! disk has let go of them, whatever becomes of the program. The disk gets what was submitted when the caller starts
//! its list, once for all that it submits. What is not such a transfer is done where it is submitted.

use alloc::sync::Arc;

use exos::block::disk::{DiskOperation, SECTOR_BYTES};
use exos::block::file::{DirectLimits, DiskFile};
use exos::block::queue::BlockQueue;
use exos::block::request::RequestOwner;
use exos::block::transfer::{TRANSFER_BYTES_MAX, Transfer, TransferRequest};
use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::transfer::{Destination, Source};
use exos::mem::pinned::PinnedMemory;
use exos::preempt;

use super::priority::io_class;
use crate::abi::user_memory::{Extent, UserReader, UserWriter};
use crate::call::context::Context;

/// A transfer whose memory is held.
pub(super) struct Direct {
    queue: Arc<BlockQueue>,
    operation: DiskOperation,
    offset: u64,
    memory: PinnedMemory,
    byte_count: u64,
}

/// Holds the memory of a transfer past a disk's pages. `None`: it is none that is done without a wait.
///
/// # Errors
/// `EFAULT`; those of [`DiskFile::prepare_direct`].
#[inline]
pub(super) fn prepare(
    context: &Context<'_>,
    file: &Description,
    extents: &[Extent],
    offset: u64,
    is_read: bool,
) -> Result<Option<Direct>> {
    match file.disk::<DiskFile>() {
        Some(disk) if disk.is_direct() => hold(context, (file, disk), extents, offset, is_read),
        _ => Ok(None),
    }
}

fn hold(
    context: &Context<'_>,
    (file, disk): (&Description, &DiskFile),
    extents: &[Extent],
    offset: u64,
    is_read: bool,
) -> Result<Option<Direct>> {
    let Ok(queue) = disk.device().queue() else { return Ok(None) };
    let count = match extents {
        [extent] => extent.length,
        extents => extents.iter().map(|extent| extent.length).sum(),
    };
    let is_open = if is_read { file.is_readable() } else { file.is_writable() };
    let ends_on_medium = !is_read && file.status().intersects(StatusFlags::SYNC | StatusFlags::DATA_SYNC);
    let limits = queue.with_limits(DirectLimits::of);
    let is_inside = offset.checked_add(count).is_some_and(|end| end <= limits.size_bytes);
    if !is_open || ends_on_medium || !is_inside || count == 0 || count > TRANSFER_BYTES_MAX {
        return Ok(None);
    }
    let mut memory = PinnedMemory::new(context.system.pool.clone());
    let (operation, held) = if is_read {
        (DiskOperation::Read, UserWriter::new(context.memory, extents).pin(count, &mut memory)?)
    } else {
        (DiskOperation::Write, UserReader::new(context.memory, extents).pin(count, &mut memory)?)
    };
    if held != count {
        return Err(Errno::EFAULT);
    }
    disk.prepare_direct(operation, offset, &memory, limits)?;
    Ok(Some(Direct { queue: queue.clone(), operation, offset, memory, byte_count: count }))
}

impl Direct {
    /// Bytes that it moves.
    pub(super) fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Submits it; the list that is to be started.
    ///
    /// # Errors
    /// Those of [`Transfer::submit_told`]; nobody is told then.
    pub(super) fn submit(self, context: &Context<'_>, told: (Arc<dyn RequestOwner>, u64)) -> Result<Arc<BlockQueue>> {
        let queue = self.queue;
        while queue.is_full() {
            preempt::unless_killed()?;
            queue.look(context.now_ns());
        }
        let sector = u64::from(SECTOR_BYTES);
        let request = TransferRequest {
            operation: self.operation,
            first_sector: self.offset / sector,
            sector_count: self.byte_count / sector,
            memory: Some(self.memory),
            class: io_class(context.thread),
        };
        Transfer::submit_told(&queue, request, told, context.now_ns())?;
        Ok(queue)
    }
}
