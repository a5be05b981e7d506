//! What is asked of a disk by a program or a file system: [`BlockRequest`], and who is told of its end:
//! [`RequestOwner`].

use alloc::sync::Arc;

use super::disk::{DiskOperation, SECTOR_BYTES};
use crate::error::Result;
use crate::mem::pinned::Pieces;

/// Who waits for requests. It keeps their memory: the block layer holds it until the disk has let go of that.
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

/// A request.
pub struct BlockRequest {
    /// What is asked.
    pub operation: DiskOperation,
    /// First sector; 0 for a flush.
    pub first_sector: u64,
    /// Sectors; 0 for a flush.
    pub sector_count: u32,
    /// Memory: as many bytes as the sectors have, for what names memory.
    pub pieces: Pieces,
    /// Whose it is.
    pub class: PriorityClass,
    /// Who is told of its end, and keeps its memory.
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

    /// Whether its memory and its sectors are as long as each other.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let wanted =
            if self.operation.has_memory() { u64::from(self.sector_count) * u64::from(SECTOR_BYTES) } else { 0 };
        self.pieces.byte_count() == wanted && (self.sector_count > 0) != (self.operation == DiskOperation::Flush)
    }
}
