//! What a disk is to whoever drives requests through it: [`BlockDevice`]; and the memory that requests name:
//! [`BlockMemory`].
//!
//! One driver source serves every placement: a program's library OS calls it directly, a disk domain between its
//! clients' rings and the disk, a kernel in its interrupt path. So the trait has no time, no waiting and no allocation.
//! It is a type parameter, never a `dyn`; what is costly is its caller's to batch: requests collect until
//! [`BlockDevice::notify`], interrupts come only where they were asked for.
//!
//! # Invariants
//!
//! - BLK-1 Requests complete in any order. A flush covers every write that had *completed* when the flush was
//!   submitted, and no other. There are no barriers: order is the caller's affair.
//! - BLK-2 Each tag that was taken is told once, by [`BlockDevice::poll`], or by none after [`BlockDevice::reset`]:
//!   whoever resets knows what was under way and submits it again, or does not.
//! - BLK-3 Between the two the memory that a request names is the device's: it stays where it is, and what is written
//!   from it stays as it is.
//! - BLK-4 A device that breaks its protocol ends as an error from every call until [`BlockDevice::reset`]; whatever
//!   it says, no memory outside the pieces of a read under way is written by the driver.
//!
//! Neighbours: [`crate::net`] is the same for cards. Disks of virtio and IDE implement it.

use crate::net::{DmaWindow, Place};

/// Bytes of a sector, in which all places on a disk are counted, whatever its blocks are.
pub const SECTOR_BYTES: u32 = 512;

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOperation {
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

/// How much one request may discard or set to zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// Most sectors of one request.
    pub sector_count_max: u32,
    /// Ranges begin and end at multiples of this, or only their whole multiples have an effect.
    pub alignment_sectors: u32,
}

/// What a disk is and takes. Changes only with [`BlockDevice::reset`], or where the host changes its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Its size, in sectors of [`SECTOR_BYTES`].
    pub sector_count: u64,
    /// Bytes of the smallest unit that a request can name: a power of two, at least [`SECTOR_BYTES`].
    pub logical_block_bytes: u32,
    /// Bytes of the unit that it writes without reading first.
    pub physical_block_bytes: u32,
    /// Most pieces of memory of a request.
    pub segment_count_max: u16,
    /// Most bytes of one of them.
    pub segment_bytes_max: u32,
    /// Most sectors of a read or a write.
    pub sector_count_max: u32,
    /// Requests that can be under way at once; every tag is below it.
    pub depth: u16,
    /// Queues that requests can be given to; at least 1.
    pub queue_count: u16,
    /// What completed may still be lost without a flush.
    pub has_write_cache: bool,
    /// Writes of any kind are refused.
    pub is_read_only: bool,
    /// It has a head that moves: requests cost by their distance.
    pub is_rotational: bool,
    /// Whether, and how much, it discards.
    pub discard: Option<RangeLimits>,
    /// Whether, and how much, it sets to zeros by itself.
    pub write_zeroes: Option<RangeLimits>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest<'a> {
    /// What [`BlockDevice::poll`] names it by: below the disk's depth, and not under way.
    pub tag: u16,
    /// The queue that it goes to, below the disk's number of them.
    pub queue: u16,
    /// What is asked.
    pub operation: BlockOperation,
    /// First sector.
    pub first_sector: u64,
    /// Sectors: as many bytes as the pieces have, for what names memory.
    pub sector_count: u32,
    /// Memory, in its owner's terms; the device's until the tag is told.
    pub pieces: &'a [Place],
}

/// Memory of requests: what the device reaches, and the driver too, for a device that moves no memory itself.
pub trait BlockMemory: DmaWindow {
    /// Copies `from` to a place of the same length; false: it is not there.
    fn copy_in(&self, place: Place, from: &[u8]) -> bool;
    /// Copies from a place to `into` of the same length; false: it is not there.
    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool;
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError<E> {
    /// There is no room; there will be when [`BlockDevice::poll`] tells of something.
    Full,
    /// It is against the disk's limits, names memory that the device does not reach, or its tag is under way.
    Request,
    /// The disk cannot go on.
    Broken(E),
}

impl<E> SubmitError<E> {
    /// The same with the disk's error as `map` says it.
    pub fn map<F>(self, map: impl FnOnce(E) -> F) -> SubmitError<F> {
        match self {
            Self::Full => SubmitError::Full,
            Self::Request => SubmitError::Request,
            Self::Broken(error) => SubmitError::Broken(map(error)),
        }
    }
}

/// How a request ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The disk tells of an error. What was to be written may be there in part.
    Input,
    /// The disk does not do that.
    Unsupported,
}

/// What a disk was seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStatistics {
    /// Requests taken.
    pub request_count: u64,
    /// Requests that ended in an error.
    pub error_count: u64,
    /// Sectors read and written.
    pub sector_count: u64,
    /// Notifications of the device.
    pub notification_count: u64,
    /// Times that it was reset.
    pub reset_count: u64,
}

/// A disk.
pub trait BlockDevice {
    /// Why it cannot go on.
    type Error: Copy + core::fmt::Debug;

    /// What it is and takes.
    fn limits(&self) -> BlockLimits;

    /// What it did so far.
    fn statistics(&self) -> BlockStatistics;

    /// Takes a request. The disk sees it with [`BlockDevice::notify`], or before.
    ///
    /// # Errors
    /// [`SubmitError`]; the tag is free then, and nothing happens to the memory.
    fn submit(&mut self, request: &BlockRequest<'_>, memory: &impl BlockMemory)
    -> Result<(), SubmitError<Self::Error>>;

    /// Shows the disk everything since the last time, with at most one notification for each queue.
    ///
    /// # Errors
    /// The disk cannot go on.
    fn notify(&mut self) -> Result<(), Self::Error>;

    /// As [`BlockDevice::notify`], but the notification of the first queue is left to the caller, who has the device's
    /// doorbell: `true` if one is due. A device that has no such doorbell is notified here.
    ///
    /// # Errors
    /// The disk cannot go on.
    fn publish(&mut self) -> Result<bool, Self::Error> {
        self.notify().map(|()| false)
    }

    /// Whether [`BlockDevice::poll`] has something to do: one look at memory for each queue where the device reports to
    /// memory, one at a register otherwise.
    fn has_completed(&self) -> bool;

    /// Goes on with what is under way, and tells the tags that have ended, each once; how many. Bounded by the depth.
    ///
    /// # Errors
    /// The disk cannot go on; what was told before stays told.
    fn poll(
        &mut self,
        memory: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, Self::Error>;

    /// Asks for an interrupt, once, when there is something to [`BlockDevice::poll`]. `true`: there is already, so look
    /// again before you sleep.
    ///
    /// # Errors
    /// The disk cannot go on.
    fn ask_for_interrupt(&mut self) -> Result<bool, Self::Error>;

    /// Stops the disk and starts it again, also after an error. What was under way is forgotten (BLK-2), and when this
    /// returns well the device does not touch its memory any more.
    ///
    /// # Errors
    /// It does not stop, or does not come back as what it was. The memory of what was under way must then not be used
    /// before somebody else has cut the device off.
    fn reset(&mut self) -> Result<(), Self::Error>;
}
