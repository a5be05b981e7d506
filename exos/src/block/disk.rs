//! What a disk is to exos, wherever its driver is placed: [`Disk`].
//!
//! In the library placement a driver of exos's own stands behind it, in the others the rings to a domain or the
//! kernel's extension. It is object-safe and the block layer's only way down ([`super`]); it holds no request back, has
//! no time and does not wait.
//!
//! # Invariants
//!
//! - DSK-1 Requests complete in any order. A flush covers every write that had *completed* when it was submitted.
//! - DSK-2 Each tag that was taken is told once by [`Disk::poll`], or never after [`Disk::reset`].
//! - DSK-3 From [`Disk::submit`] until its tag is told the frames of a request are the disk's: their owner keeps them,
//!   whatever becomes of the program that they are mapped in.
//!
//! Neighbours: [`super::fake`], a disk for tests; `exos/linux/src/host/disk.rs`, the one over a driver;
//! `drivers/hal/src/block.rs`, what drivers promise.

use crate::mem::pinned::FramePiece;

/// Bytes of a sector, in which all places on a disk are counted, whatever its blocks are.
pub const SECTOR_BYTES: u32 = 512;

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOperation {
    /// Sectors into memory.
    Read,
    /// Memory into sectors.
    Write,
    /// Everything that completed is on the medium; names no sectors and no memory.
    Flush,
    /// The sectors' content is not needed any more and becomes unspecified; names no memory.
    Discard,
    /// The sectors become zeros; names no memory.
    WriteZeroes,
}

impl DiskOperation {
    /// Whether it changes the disk's sectors.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }

    /// Whether it names memory.
    #[must_use]
    pub fn has_memory(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// How much one request may discard or set to zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// Most sectors of one request.
    pub sector_count_max: u32,
    /// Ranges begin and end at multiples of this, or only their whole multiples have an effect.
    pub alignment_sectors: u32,
}

/// What a disk is and takes. Changes only with [`Disk::reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Its size, in sectors of [`SECTOR_BYTES`].
    pub sector_count: u64,
    /// Bytes of the smallest unit that a request can name: a power of two, from [`SECTOR_BYTES`] to a page.
    pub logical_block_bytes: u32,
    /// Bytes of the unit that it writes without reading first.
    pub physical_block_bytes: u32,
    /// Most pieces of memory of a request; at least 1.
    pub segment_count_max: u16,
    /// Most bytes of one of them; at least a page.
    pub segment_bytes_max: u32,
    /// Most sectors of a read or a write; at least a page's.
    pub sector_count_max: u32,
    /// Requests that can be under way at once; every tag is below it. At least 1.
    pub depth: u16,
    /// What completed may still be lost without a flush.
    pub has_write_cache: bool,
    /// Writes of any kind are refused.
    pub is_read_only: bool,
    /// The order of requests matters: it has a head that moves.
    pub is_rotational: bool,
    /// Whether, and how much, it discards.
    pub discard: Option<RangeLimits>,
    /// Whether, and how much, it sets to zeros by itself.
    pub write_zeroes: Option<RangeLimits>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct DiskRequest<'a> {
    /// What [`Disk::poll`] names it by: below the disk's depth, and not under way.
    pub tag: u16,
    /// What is asked.
    pub operation: DiskOperation,
    /// First sector.
    pub first_sector: u64,
    /// Sectors: as many bytes as the pieces have, for what names memory.
    pub sector_count: u32,
    /// Memory; the disk's until the tag is told (DSK-3).
    pub pieces: &'a [FramePiece],
}

/// Why a request was not taken. Its tag is free then, and nothing happens to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSubmitError {
    /// There is no room now; there will be when [`Disk::poll`] tells of something.
    Full,
    /// It is against the limits, or its memory cannot be reached: the request's end.
    Refused,
    /// The disk cannot go on before [`Disk::reset`].
    Broken,
}

/// The disk cannot go on before [`Disk::reset`]: it has broken its protocol, or its domain is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskBroken;

/// How a request ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// The disk tells of an error. What was to be written may be there in part.
    Input,
    /// The disk does not do that.
    Unsupported,
}

/// What became of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskReset {
    /// It runs, what was under way is forgotten, and its memory is not touched any more.
    Done,
    /// It is on its way (a domain that starts): ask again. Until then nothing is told and everything is refused.
    Pending,
    /// It does not come back now. The memory of what was under way is not touched any more.
    Failed,
    /// It does not even stop: the memory of what was under way must not be used again.
    Lost,
}

/// What it helps to look at a disk for a short time instead of sleeping until it interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// Nothing: whoever looks keeps the processor from its driver.
    Hinders,
    /// It works on its own, and can be looked at without waking anybody.
    Helps,
    /// The same, but a look is a call: they are far from one another.
    Costs,
}

/// A disk. Calls come from any processor and do not wait.
pub trait Disk: Send + Sync {
    /// Whether it helps to keep looking at it ([`Self::watch`]).
    fn watching(&self) -> Watching {
        Watching::Hinders
    }

    /// As [`Self::has_completed`], for somebody who keeps looking: what does not say so by itself is asked.
    fn watch(&self) -> bool {
        self.has_completed()
    }

    /// What it is and takes.
    fn limits(&self) -> DiskLimits;

    /// Takes a request. The disk sees it with [`Self::show`], or before.
    ///
    /// # Errors
    /// [`DiskSubmitError`].
    fn submit(&self, request: &DiskRequest<'_>) -> Result<(), DiskSubmitError>;

    /// Shows the disk everything since the last time: one notification, or none where it looks by itself. A
    /// notification may leave the machine for a while: it is called, and notifies, with no lock held.
    ///
    /// # Errors
    /// [`DiskBroken`].
    fn show(&self) -> Result<(), DiskBroken>;

    /// Whether [`Self::poll`] has something to do. Costs no more than a look at memory where the disk reports there.
    fn has_completed(&self) -> bool;

    /// Goes on with what is under way and tells the tags that have ended, each once; at most as many as its depth.
    /// `done` notes them and calls nothing of the disk.
    ///
    /// # Errors
    /// [`DiskBroken`]; what was told before stays told.
    fn poll(&self, done: &mut dyn FnMut(u16, Result<(), DiskError>)) -> Result<(), DiskBroken>;

    /// Asks for an interrupt (a bell), once, when there is something to [`Self::poll`]. `true`: there is already, so
    /// look again before you sleep.
    ///
    /// # Errors
    /// [`DiskBroken`].
    fn ask_for_interrupt(&self) -> Result<bool, DiskBroken>;

    /// Stops it and starts it again.
    fn reset(&self) -> DiskReset;
}
