//! What is asked of a disk by a program or a file system: [`BlockRequest`], and who is told of its end:
//! [`RequestOwner`].

use alloc::sync::Arc;

use super::disk::{DiskOperation, SECTOR_BYTES};
use crate::error::Result;
use crate::mem::pinned::{FramePiece, Pieces, PinnedMemory};

/// Who waits for requests. It keeps the memory that they do not hold themselves: the block layer holds it until the
/// disk has let go of that.
pub trait RequestOwner: Send + Sync {
    /// A request has ended; `token` is its own. Called once for each that was taken, on any processor, also on one that
    /// is idle or takes in an interrupt, without locks of the block layer (INV-B1). It does not wait.
    fn done(&self, token: u64, outcome: Result<()>);
}

/// Whose requests come first (`ioprio_set`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriorityClass {
    /// `IOPRIO_CLASS_RT`: before all others.
    RealTime,
    /// `IOPRIO_CLASS_BE`, and what has none.
    #[default]
    BestEffort,
    /// `IOPRIO_CLASS_IDLE`: when there is no other.
    Idle,
}

/// Memory of a request.
pub enum RequestMemory {
    /// Its owner keeps it.
    OfOwner(Pieces),
    /// The request does, and lets go of it when its owner has been told of its end.
    Held(PinnedMemory),
}

impl RequestMemory {
    /// Its pieces.
    #[must_use]
    #[inline]
    pub fn pieces(&self) -> &[FramePiece] {
        match self {
            Self::OfOwner(pieces) => pieces.as_slice(),
            Self::Held(memory) => memory.pieces(),
        }
    }

    /// Bytes of all.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.pieces().iter().map(|piece| u64::from(piece.length_bytes)).sum()
    }
}

/// A request.
pub struct BlockRequest {
    /// What is asked.
    pub operation: DiskOperation,
    /// First sector; 0 for a flush.
    pub first_sector: u64,
    /// Sectors; 0 for a flush.
    pub sector_count: u32,
    /// Memory: as many bytes as the sectors have, for what names memory.
    pub memory: RequestMemory,
    /// Whose it is.
    pub class: PriorityClass,
    /// Who is told of its end.
    pub owner: Arc<dyn RequestOwner>,
    /// How the owner knows it.
    pub token: u64,
}

impl BlockRequest {
    /// The sector behind its last.
    #[must_use]
    pub fn end_sector(&self) -> u64 {
        self.first_sector.saturating_add(u64::from(self.sector_count))
    }

    /// Keeps its memory for ever: the disk may still use it.
    pub(super) fn keep_for_ever(&mut self) {
        core::mem::forget(self.owner.clone());
        core::mem::forget(core::mem::replace(&mut self.memory, RequestMemory::OfOwner(Pieces::None)));
    }

    /// Whether its memory and its sectors are as long as each other.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let wanted =
            if self.operation.has_memory() { u64::from(self.sector_count) * u64::from(SECTOR_BYTES) } else { 0 };
        self.memory.byte_count() == wanted && (self.sector_count > 0) != (self.operation == DiskOperation::Flush)
    }
}
