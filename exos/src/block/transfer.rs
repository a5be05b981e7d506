//! Transfers: sectors to and from memory that is held for them, in as many requests as the disk's limits make it.
//!
//! Memory is held as [`PinnedMemory`] until the disk has let go of it, by the request where there is one.
//!
//! A [`Transfer`] is the owner of its requests ([`RequestOwner`]); at its end it
//! tells an owner of its own, or the thread that waits for it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;

use super::disk::{DiskLimits, DiskOperation, SECTOR_BYTES};
use super::queue::BlockQueue;
use super::request::{BlockRequest, PriorityClass, RequestMemory, RequestOwner};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, Waiter};
use crate::mem::pinned::{FramePiece, Pieces, PinnedMemory};
use crate::sync::SpinMutex;

/// Most requests of a transfer.
pub const TRANSFER_REQUEST_COUNT_MAX: usize = 256;
/// Most bytes of a transfer that is sure not to need more than that many requests, whatever its memory is.
pub const TRANSFER_BYTES_MAX: u64 = TRANSFER_REQUEST_COUNT_MAX as u64 * PAGE_SIZE;

/// How far a transfer is.
#[derive(Default)]
struct Progress {
    /// Requests that have not ended, and one while they are made.
    left: u32,
    error: Option<Errno>,
    waiter: Option<Arc<dyn Waiter>>,
}

/// A transfer that is under way.
pub struct Transfer {
    memory: Option<PinnedMemory>,
    told: Option<(Arc<dyn RequestOwner>, u64)>,
    progress: SpinMutex<Progress>,
}

/// What is to be transferred.
pub struct TransferRequest {
    /// What is asked.
    pub operation: DiskOperation,
    /// First sector; 0 for a flush.
    pub first_sector: u64,
    /// Sectors; 0 for a flush. As many bytes as the memory has, for what names memory.
    pub sector_count: u64,
    /// Memory, for what names it.
    pub memory: Option<PinnedMemory>,
    /// Whose it is.
    pub class: PriorityClass,
}

impl TransferRequest {
    /// Whether a disk with these limits takes it as one request, as nearly always. What else is wrong with it, the list
    /// finds.
    #[inline]
    fn is_one(&self, limits: &DiskLimits) -> bool {
        let pieces = self.memory.as_ref().map_or(&[][..], PinnedMemory::pieces);
        self.operation.has_memory()
            && self.sector_count.wrapping_sub(1) < u64::from(limits.sector_count_max)
            && pieces.len() <= usize::from(limits.segment_count_max)
            && pieces.iter().all(|piece| piece.length_bytes <= limits.segment_bytes_max)
    }
}

impl Transfer {
    /// Takes a transfer that a thread waits for ([`Self::await_end`]). The disk gets it with [`BlockQueue::start`].
    ///
    /// # Errors
    /// As [`BlockQueue::submit`]. `EINVAL`: it needs more than [`TRANSFER_REQUEST_COUNT_MAX`] requests. An error of a
    /// later request is told at the end.
    pub fn submit(queue: &BlockQueue, request: TransferRequest, now_ns: u64) -> Result<Arc<Self>> {
        if queue.with_limits(|limits| request.is_one(limits)) {
            return Self::submit_one(queue, request, now_ns);
        }
        Self::submit_parts(queue, request, None, now_ns)
    }

    /// As [`Self::submit`], but an owner is told of its end, with a token: what is one request is his own.
    ///
    /// # Errors
    /// The same; then nobody is told.
    pub fn submit_told(
        queue: &BlockQueue,
        request: TransferRequest,
        told: (Arc<dyn RequestOwner>, u64),
        now_ns: u64,
    ) -> Result<()> {
        if !queue.with_limits(|limits| request.is_one(limits)) {
            return Self::submit_parts(queue, request, Some(told), now_ns).map(|_| ());
        }
        let TransferRequest { operation, first_sector, sector_count, memory, class } = request;
        let memory = memory.map_or(RequestMemory::OfOwner(Pieces::None), RequestMemory::Held);
        let (sector_count, (owner, token)) = (sector_count as u32, told);
        queue.submit(BlockRequest { operation, first_sector, sector_count, memory, class, owner, token }, now_ns)
    }

    /// Submits what is one request.
    #[inline]
    fn submit_one(queue: &BlockQueue, request: TransferRequest, now_ns: u64) -> Result<Arc<Self>> {
        let TransferRequest { operation, first_sector, sector_count, memory, class } = request;
        let memory = memory.map_or(RequestMemory::OfOwner(Pieces::None), RequestMemory::Held);
        let progress = Progress { left: 1, error: None, waiter: None };
        let transfer = Arc::new(Self { memory: None, told: None, progress: SpinMutex::new(progress) });
        let (sector_count, owner) = (sector_count as u32, transfer.clone());
        queue.submit(BlockRequest { operation, first_sector, sector_count, memory, class, owner, token: 0 }, now_ns)?;
        Ok(transfer)
    }

    /// Submits what may be several.
    #[inline(never)]
    fn submit_parts(
        queue: &BlockQueue,
        request: TransferRequest,
        told: Option<(Arc<dyn RequestOwner>, u64)>,
        now_ns: u64,
    ) -> Result<Arc<Self>> {
        let TransferRequest { operation, first_sector, sector_count, memory, class } = request;
        let limits = queue.limits();
        let parts = Parts::new(operation, first_sector, sector_count, memory.as_ref(), &limits);
        let count = parts.clone().count();
        if count > TRANSFER_REQUEST_COUNT_MAX || count == 0 {
            return Err(Errno::EINVAL);
        }
        let progress = Progress { left: 1, error: None, waiter: None };
        let transfer = Arc::new(Self { memory, told, progress: SpinMutex::new(progress) });
        let parts = Parts::new(operation, first_sector, sector_count, transfer.memory.as_ref(), &limits);
        let mut submitted = 0_u32;
        for part in parts {
            transfer.progress.lock().left += 1;
            let outcome = part.into_request(operation, class, &transfer).and_then(|part| queue.submit(part, now_ns));
            match outcome {
                Ok(()) => submitted += 1,
                Err(error) if submitted == 0 => return Err(error),
                Err(error) => {
                    transfer.end_one(Err(error));
                    break;
                }
            }
        }
        transfer.end_one(Ok(()));
        Ok(transfer)
    }

    /// What became of it, if it has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<()>> {
        let progress = self.progress.lock();
        (progress.left == 0).then(|| progress.error.map_or(Ok(()), Err))
    }

    /// Has `waiter` woken at the end; what became of it, if that is known already.
    pub fn await_end(&self, waiter: &Arc<dyn Waiter>) -> Option<Result<()>> {
        let mut progress = self.progress.lock();
        if progress.left == 0 {
            return Some(progress.error.map_or(Ok(()), Err));
        }
        progress.waiter = Some(waiter.clone());
        None
    }

    fn end_one(&self, outcome: Result<()>) {
        let mut progress = self.progress.lock();
        progress.left -= 1;
        if let Err(error) = outcome {
            progress.error.get_or_insert(error);
        }
        if progress.left > 0 {
            return;
        }
        let (waiter, outcome) = (progress.waiter.take(), progress.error.map_or(Ok(()), Err));
        drop(progress);
        if let Some(waiter) = waiter {
            waiter.wake(Readiness::READ);
        }
        if let Some((owner, token)) = &self.told {
            owner.done(*token, outcome);
        }
    }
}

impl RequestOwner for Transfer {
    fn done(&self, _: u64, outcome: Result<()>) {
        self.end_one(outcome);
    }
}

/// The requests of a transfer, one after the other.
#[derive(Clone)]
struct Parts<'a> {
    operation: DiskOperation,
    next_sector: u64,
    sectors_left: u64,
    is_flush_due: bool,
    pieces: &'a [FramePiece],
    /// Bytes of the first piece that are in earlier parts.
    done_bytes: u32,
    limits: &'a DiskLimits,
}

/// Sectors of one request, and the pieces that are its memory.
struct Part<'a> {
    first_sector: u64,
    sector_count: u32,
    pieces: &'a [FramePiece],
    done_bytes: u32,
    segment_bytes_max: u32,
}

impl<'a> Parts<'a> {
    fn new(
        operation: DiskOperation,
        next_sector: u64,
        sectors_left: u64,
        memory: Option<&'a PinnedMemory>,
        limits: &'a DiskLimits,
    ) -> Self {
        let pieces = memory.map_or(&[][..], PinnedMemory::pieces);
        let is_flush_due = operation == DiskOperation::Flush;
        Self { operation, next_sector, sectors_left, is_flush_due, pieces, done_bytes: 0, limits }
    }

    /// Most sectors of a request that names no memory.
    fn range_max(&self) -> u64 {
        let range = match self.operation {
            DiskOperation::Discard => self.limits.discard,
            _ => self.limits.write_zeroes,
        };
        let count_max = range.map_or(0, |range| range.sector_count_max);
        // Parts begin where blocks do.
        u64::from(count_max - count_max % (self.limits.logical_block_bytes / SECTOR_BYTES).max(1)).max(1)
    }

    fn next_range(&mut self) -> Part<'a> {
        let sector_count = self.sectors_left.min(self.range_max()) as u32;
        self.part(sector_count, 0)
    }

    /// As many whole blocks as the pieces in one request's number are.
    fn next_of_memory(&mut self) -> Part<'a> {
        let block_bytes = u64::from(self.limits.logical_block_bytes.max(SECTOR_BYTES));
        let bytes_max = (u64::from(self.limits.sector_count_max) * u64::from(SECTOR_BYTES) / block_bytes * block_bytes)
            .min(self.sectors_left * u64::from(SECTOR_BYTES));
        let (mut bytes, mut segments, mut skipped) = (0, 0, u64::from(self.done_bytes));
        for piece in self.pieces {
            let room = usize::from(self.limits.segment_count_max) - segments;
            let piece_max = room as u64 * u64::from(self.limits.segment_bytes_max);
            let taken = (u64::from(piece.length_bytes) - skipped).min(bytes_max - bytes).min(piece_max);
            skipped = 0;
            bytes += taken;
            segments += taken.div_ceil(u64::from(self.limits.segment_bytes_max)) as usize;
            if bytes == bytes_max || segments == usize::from(self.limits.segment_count_max) {
                break;
            }
        }
        // A block that no request has room for: the disk refuses it.
        let bytes = if bytes >= block_bytes { bytes / block_bytes * block_bytes } else { bytes_max.min(block_bytes) };
        let (pieces, done_bytes) = (self.pieces, self.done_bytes);
        let mut passed = bytes + u64::from(done_bytes);
        let mut whole = 0;
        for piece in pieces {
            if passed < u64::from(piece.length_bytes) {
                break;
            }
            passed -= u64::from(piece.length_bytes);
            whole += 1;
        }
        let end = (whole + usize::from(passed > 0)).min(pieces.len());
        self.pieces = &pieces[whole.min(pieces.len())..];
        self.done_bytes = passed as u32;
        let mut part = self.part((bytes / u64::from(SECTOR_BYTES)) as u32, done_bytes);
        part.pieces = &pieces[..end];
        part
    }

    fn part(&mut self, sector_count: u32, done_bytes: u32) -> Part<'a> {
        let first_sector = self.next_sector;
        self.next_sector += u64::from(sector_count);
        self.sectors_left -= u64::from(sector_count);
        let segment_bytes_max = self.limits.segment_bytes_max;
        Part { first_sector, sector_count, pieces: &[], done_bytes, segment_bytes_max }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        if core::mem::take(&mut self.is_flush_due) {
            return Some(self.part(0, 0));
        }
        if self.sectors_left == 0 {
            return None;
        }
        Some(if self.operation.has_memory() { self.next_of_memory() } else { self.next_range() })
    }
}

impl Part<'_> {
    fn into_request(
        self,
        operation: DiskOperation,
        class: PriorityClass,
        owner: &Arc<Transfer>,
    ) -> Result<BlockRequest> {
        let (first_sector, sector_count) = (self.first_sector, self.sector_count);
        let memory = RequestMemory::OfOwner(if operation.has_memory() { self.memory()? } else { Pieces::None });
        Ok(BlockRequest { operation, first_sector, sector_count, memory, class, owner: owner.clone(), token: 0 })
    }

    /// Its bytes of the pieces, none longer than a segment.
    fn memory(&self) -> Result<Pieces> {
        let mut bytes_left = u64::from(self.sector_count) * u64::from(SECTOR_BYTES);
        let mut skipped = self.done_bytes;
        let mut pieces = Pieces::None;
        for piece in self.pieces {
            let mut taken = skipped;
            skipped = 0;
            while taken < piece.length_bytes && bytes_left > 0 {
                let left = u64::from(piece.length_bytes - taken).min(bytes_left);
                let length_bytes = left.min(u64::from(self.segment_bytes_max)) as u32;
                let offset = u64::from(piece.offset_bytes) + u64::from(taken);
                let first = FrameNumber(piece.first.0 + offset / PAGE_SIZE);
                let segment = FramePiece { first, offset_bytes: (offset % PAGE_SIZE) as u32, length_bytes };
                pieces = appended(pieces, segment)?;
                taken += length_bytes;
                bytes_left -= u64::from(length_bytes);
            }
        }
        Ok(pieces)
    }
}

fn appended(pieces: Pieces, piece: FramePiece) -> Result<Pieces> {
    let mut list = match pieces {
        Pieces::None => return Ok(Pieces::One(piece)),
        Pieces::One(first) => {
            let mut list = Vec::new();
            list.try_reserve(4).map_err(|_| Errno::ENOMEM)?;
            list.push(first);
            list
        }
        Pieces::Many(list) => list,
    };
    list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    list.push(piece);
    Ok(Pieces::Many(list))
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
