//! A disk that is an extent of the machine's pool: a [`Disk`] over a session with a service that other pods have, too.
//!
//! The service reaches nothing of the pod but the session and its memory for transfers, which is cut into a piece of
//! [`TRANSFER_BYTES_MAX`] for each tag; what a program reads or writes is copied. So nothing is given and taken back
//! while programs run, and a service that lies can spoil what is on its own disk, and nothing else.
//!
//! Invariants: a tag's piece is the service's from [`Disk::submit`] until its tag is told or the session is another;
//! nothing is copied with a lock of the session's held. A program's frames are touched by copies alone, so they are
//! free as soon as a tag is told, whatever the service does.
//!
//! Neighbours: [`super::disk_session`] is the session, `glue::disk_pool` the place.

use alloc::vec::Vec;
use core::array::from_fn;

use aegis_abi::FrameNumber;
use exos::block::disk::{
    Disk, DiskBroken, DiskError, DiskLimits, DiskOperation, DiskRequest, DiskReset, DiskSubmitError, SECTOR_BYTES,
    Watching,
};
use exos::mem::pinned::FramePiece;
use exos::sync::SpinMutex;

use super::disk_session::{DiskPlace, SessionDisk};

/// Requests under way.
pub const TRANSFER_COUNT: u16 = 32;
/// Bytes of one of them.
pub const TRANSFER_BYTES_MAX: u32 = 64 << 10;
const PAGES_PER_TRANSFER: u64 = TRANSFER_BYTES_MAX as u64 / 4096;
/// Pages of the memory for transfers.
pub const TRANSFER_PAGE_COUNT: u64 = TRANSFER_COUNT as u64 * PAGES_PER_TRANSFER;

/// Memory for transfers, as the pod reaches it.
pub trait Transfers: DiskPlace {
    /// Copies a piece of a program's memory to so many bytes behind the beginning.
    fn put(&self, offset_bytes: u64, piece: &FramePiece);
    /// Copies from there into a piece of a program's memory.
    fn take(&self, offset_bytes: u64, piece: &FramePiece);
}

/// A disk of the pool.
pub struct PooledDisk<P> {
    session: SessionDisk<P>,
    /// Of each tag the memory that waits for what is read.
    reads: [SpinMutex<Vec<FramePiece>>; TRANSFER_COUNT as usize],
}

impl<P: Transfers> PooledDisk<P> {
    /// A disk over a session that is served.
    #[must_use]
    pub fn new(session: SessionDisk<P>) -> Self {
        Self { session, reads: from_fn(|_| SpinMutex::new(Vec::new())) }
    }

    /// The session.
    pub fn session(&self) -> &SessionDisk<P> {
        &self.session
    }

    /// Copies what is written, or notes where what is read goes; the bytes.
    fn prepare(&self, request: &DiskRequest<'_>) -> Result<u32, DiskSubmitError> {
        let place = self.reads.get(usize::from(request.tag)).ok_or(DiskSubmitError::Refused)?;
        // One with this tag that was not taken may have left its own.
        place.lock().clear();
        let lengths = request.pieces.iter().map(|piece| u64::from(piece.length_bytes));
        let length_bytes: u64 = lengths.sum();
        let whole_bytes = u64::from(request.sector_count) * u64::from(SECTOR_BYTES);
        let is_whole = length_bytes == if request.operation.has_memory() { whole_bytes } else { 0 };
        if !is_whole || length_bytes > u64::from(TRANSFER_BYTES_MAX) {
            return Err(DiskSubmitError::Refused);
        }
        if request.operation == DiskOperation::Write {
            for_each(request.tag, request.pieces, |offset, piece| self.session.place().put(offset, piece));
        } else if request.operation == DiskOperation::Read {
            let mut pieces = place.lock();
            pieces.try_reserve(request.pieces.len()).map_err(|_| DiskSubmitError::Refused)?;
            pieces.extend_from_slice(request.pieces);
        }
        Ok(length_bytes as u32)
    }

    /// Copies what was read, if the tag's request was one that reads.
    fn finish(&self, tag: u16, is_good: bool) {
        let Some(place) = self.reads.get(usize::from(tag)) else { return };
        let mut pieces = core::mem::take(&mut *place.lock());
        if is_good {
            for_each(tag, &pieces, |offset, piece| self.session.place().take(offset, piece));
        }
        pieces.clear();
        // Its memory is kept for the next.
        *place.lock() = pieces;
    }
}

/// Calls with each piece and where it is in the memory for transfers.
fn for_each(tag: u16, pieces: &[FramePiece], mut act: impl FnMut(u64, &FramePiece)) {
    let mut offset = u64::from(tag) * u64::from(TRANSFER_BYTES_MAX);
    for piece in pieces {
        act(offset, piece);
        offset += u64::from(piece.length_bytes);
    }
}

impl<P: Transfers> Disk for PooledDisk<P> {
    fn watching(&self) -> Watching {
        self.session.watching()
    }

    fn limits(&self) -> DiskLimits {
        let limits = self.session.limits();
        DiskLimits {
            depth: limits.depth.min(TRANSFER_COUNT),
            sector_count_max: limits.sector_count_max.min(TRANSFER_BYTES_MAX / SECTOR_BYTES),
            ..limits
        }
    }

    fn submit(&self, request: &DiskRequest<'_>) -> Result<(), DiskSubmitError> {
        let length_bytes = self.prepare(request)?;
        if !request.operation.has_memory() {
            return self.session.submit(request);
        }
        let first = FrameNumber(u64::from(request.tag) * PAGES_PER_TRANSFER);
        let piece = FramePiece { first, offset_bytes: 0, length_bytes };
        self.session.submit(&DiskRequest { pieces: &[piece], ..*request })
    }

    fn show(&self) -> Result<(), DiskBroken> {
        self.session.show()
    }

    fn has_completed(&self) -> bool {
        self.session.has_completed()
    }

    fn poll(&self, done: &mut dyn FnMut(u16, Result<(), DiskError>)) -> Result<(), DiskBroken> {
        let mut told = [(0, Ok(())); TRANSFER_COUNT as usize];
        let mut count = 0;
        // A session tells each tag once, and there are no more tags.
        let polled = self.session.poll(&mut |tag, outcome| {
            if let Some(place) = told.get_mut(count) {
                (*place, count) = ((tag, outcome), count + 1);
            }
        });
        for (tag, outcome) in &told[..count] {
            self.finish(*tag, outcome.is_ok());
            done(*tag, *outcome);
        }
        polled
    }

    fn ask_for_interrupt(&self) -> Result<bool, DiskBroken> {
        self.session.ask_for_interrupt()
    }

    fn reset(&self) -> DiskReset {
        let outcome = self.session.reset();
        if outcome == DiskReset::Done {
            // Nothing of before is told any more.
            self.reads.iter().for_each(|pieces| pieces.lock().clear());
        }
        outcome
    }
}

#[cfg(test)]
#[path = "pooled_disk_tests.rs"]
mod tests;
