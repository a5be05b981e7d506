//! A disk of the machine as exos's block layer sees it: a [`Disk`] over any driver's [`BlockDevice`], for the library
//! placement.
//!
//! A device reaches frames only where they were bound for it; that happens a whole grant at a time, when the first of
//! its frames is used ([`DiskMemory`]). There are few such ranges: when there is no other left, requests wait until the
//! disk has nothing under way, and all ranges are given up.
//!
//! Invariants: the lock is a spin lock, held for a request or a look, over no wait and no notification: that leaves the
//! machine, and another processor would spin as long. A disk whose driver fails is reset by the block layer alone; the
//! device is stopped at the kernel first, so that it touches no memory, whatever the driver can bring about.
//! Neighbours: `glue::disk` drives it, [`exos::block::disk`] says what it owes.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use aegis_hal::Doorbell;
use aegis_hal::block::{BlockDevice, BlockError, BlockLimits, BlockMemory, BlockOperation, BlockRequest, SubmitError};
use aegis_hal::net::Place;
use exos::block::disk::{
    Disk, DiskBroken, DiskError, DiskLimits, DiskOperation, DiskRequest, DiskReset, DiskSubmitError, RangeLimits,
    Watching,
};
use exos::mem::pinned::FramePiece;
use exos::sync::SpinMutex;

/// A driver with its device and its interrupt.
pub trait DiskDriver {
    /// The driver.
    type Device: BlockDevice;
    /// The driver.
    fn device(&mut self) -> &mut Self::Device;
    /// Takes in that the device has interrupted; whether it had. The next interrupt is let through here, or in
    /// [`Self::listen`].
    ///
    /// # Errors
    /// The disk cannot go on.
    fn hear(&mut self) -> Result<bool, <Self::Device as BlockDevice>::Error>;
    /// Lets the next interrupt through, where that is not done yet, before the device is asked for one.
    ///
    /// # Errors
    /// The disk cannot go on.
    fn listen(&mut self) -> Result<(), <Self::Device as BlockDevice>::Error> {
        Ok(())
    }
    /// Stops the device at the kernel and lets it work again; false: it may still use memory.
    fn cut_off(&mut self) -> bool;
    /// What it is to look at the device.
    const WATCHING: Watching = Watching::Helps;
}

/// Frames as a device reaches them. The offset of a [`Place`] is a frame's address.
pub trait DiskMemory: BlockMemory {
    /// Lets the device reach these frames; false: there is no room for that.
    fn reach(&self, piece: &FramePiece) -> bool;
    /// Gives up all that it reaches; nothing is under way.
    fn clear(&self);
}

struct State<D> {
    driver: D,
    /// Pieces of a request, for the time of a call.
    places: Vec<Place>,
    under_way_count: usize,
    is_broken: bool,
}

/// A disk.
pub struct LibraryDisk<D, M> {
    state: SpinMutex<State<D>>,
    /// Notifies the device without the lock, where that is to be had.
    doorbell: Option<Doorbell>,
    memory: M,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

impl<D: DiskDriver, M: DiskMemory> LibraryDisk<D, M> {
    /// A disk that runs; `doorbell` is its first queue's, `log` writes a line for the user.
    pub fn new(driver: D, doorbell: Option<Doorbell>, memory: M, log: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        let state = State { driver, places: Vec::new(), under_way_count: 0, is_broken: false };
        Self { state: SpinMutex::new(state), doorbell, memory, log }
    }

    /// The memory that it reaches.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Takes in an interrupt; whether there was one.
    pub fn hear(&self) -> bool {
        let mut state = self.state.lock();
        if state.is_broken {
            return false;
        }
        let heard = state.driver.hear();
        state.is_broken = heard.is_err();
        // What has failed is for a look to find.
        heard.unwrap_or(true)
    }

    fn place(&self, state: &mut State<D>, pieces: &[FramePiece]) -> Result<(), DiskSubmitError> {
        state.places.clear();
        state.places.try_reserve(pieces.len()).map_err(|_| DiskSubmitError::Refused)?;
        for piece in pieces {
            if !self.memory.reach(piece) {
                if state.under_way_count > 0 {
                    return Err(DiskSubmitError::Full);
                }
                self.memory.clear();
                return if self.place_anew(state, pieces) { Ok(()) } else { Err(DiskSubmitError::Refused) };
            }
            state.places.push(place_of(piece));
        }
        Ok(())
    }

    #[cold]
    fn place_anew(&self, state: &mut State<D>, pieces: &[FramePiece]) -> bool {
        state.places.clear();
        state.places.extend(pieces.iter().map(place_of));
        pieces.iter().all(|piece| self.memory.reach(piece))
    }
}

fn place_of(piece: &FramePiece) -> Place {
    Place { offset: piece.first.address() + u64::from(piece.offset_bytes), length_bytes: piece.length_bytes }
}

impl<D: DiskDriver + Send, M: DiskMemory + Send + Sync> Disk for LibraryDisk<D, M> {
    fn watching(&self) -> Watching {
        D::WATCHING
    }

    fn limits(&self) -> DiskLimits {
        limits_of(&self.state.lock().driver.device().limits())
    }

    fn submit(&self, request: &DiskRequest<'_>) -> Result<(), DiskSubmitError> {
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(DiskSubmitError::Broken);
        }
        self.place(&mut state, request.pieces)?;
        let State { driver, places, under_way_count, is_broken } = &mut *state;
        let operation = match request.operation {
            DiskOperation::Read => BlockOperation::Read,
            DiskOperation::Write => BlockOperation::Write,
            DiskOperation::Flush => BlockOperation::Flush,
            DiskOperation::Discard => BlockOperation::Discard,
            DiskOperation::WriteZeroes => BlockOperation::WriteZeroes,
        };
        let &DiskRequest { tag, first_sector, sector_count, .. } = request;
        let own = BlockRequest { tag, queue: 0, operation, first_sector, sector_count, pieces: places };
        let outcome = driver.device().submit(&own, &self.memory).map_err(|error| match error {
            SubmitError::Full => DiskSubmitError::Full,
            SubmitError::Request => DiskSubmitError::Refused,
            SubmitError::Broken(_) => DiskSubmitError::Broken,
        });
        *under_way_count += usize::from(outcome.is_ok());
        *is_broken |= outcome == Err(DiskSubmitError::Broken);
        outcome
    }

    fn show(&self) -> Result<(), DiskBroken> {
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(DiskBroken);
        }
        let device = state.driver.device();
        let Some(doorbell) = &self.doorbell else {
            state.is_broken = device.notify().is_err();
            return if state.is_broken { Err(DiskBroken) } else { Ok(()) };
        };
        let published = device.publish();
        state.is_broken = published.is_err();
        drop(state);
        if published.map_err(|_| DiskBroken)? {
            doorbell.ring();
        }
        Ok(())
    }

    fn has_completed(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        state.is_broken || state.driver.device().has_completed()
    }

    fn poll(&self, done: &mut dyn FnMut(u16, Result<(), DiskError>)) -> Result<(), DiskBroken> {
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(DiskBroken);
        }
        let State { driver, under_way_count, .. } = &mut *state;
        let outcome = driver.device().poll(&self.memory, &mut |tag, outcome| {
            *under_way_count = under_way_count.saturating_sub(1);
            done(
                tag,
                outcome.map_err(|error| match error {
                    BlockError::Input => DiskError::Input,
                    BlockError::Unsupported => DiskError::Unsupported,
                }),
            );
        });
        state.is_broken = outcome.is_err();
        outcome.map(|_| ()).map_err(|_| DiskBroken)
    }

    fn ask_for_interrupt(&self) -> Result<bool, DiskBroken> {
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(DiskBroken);
        }
        let outcome = state.driver.listen().and_then(|()| state.driver.device().ask_for_interrupt());
        state.is_broken = outcome.is_err();
        outcome.map_err(|_| DiskBroken)
    }

    fn reset(&self) -> DiskReset {
        let mut state = self.state.lock();
        let is_cut_off = state.driver.cut_off();
        let outcome = state.driver.device().reset();
        state.is_broken = outcome.is_err();
        let Err(error) = outcome else {
            state.under_way_count = 0;
            drop(state);
            (self.log)("a disk did not answer and was reset");
            return DiskReset::Done;
        };
        // One that stays on is cut off once more, for what the driver has begun.
        let is_cut_off = is_cut_off && state.driver.cut_off();
        drop(state);
        (self.log)(&format!("a disk does not come back: {error:?}"));
        if is_cut_off { DiskReset::Failed } else { DiskReset::Lost }
    }
}

fn limits_of(own: &BlockLimits) -> DiskLimits {
    let range = |own: aegis_hal::block::RangeLimits| RangeLimits {
        sector_count_max: own.sector_count_max,
        alignment_sectors: own.alignment_sectors,
    };
    DiskLimits {
        sector_count: own.sector_count,
        logical_block_bytes: own.logical_block_bytes,
        physical_block_bytes: own.physical_block_bytes,
        segment_count_max: own.segment_count_max,
        segment_bytes_max: own.segment_bytes_max,
        sector_count_max: own.sector_count_max,
        depth: own.depth,
        has_write_cache: own.has_write_cache,
        is_read_only: own.is_read_only,
        is_rotational: own.is_rotational,
        discard: own.discard.map(range),
        write_zeroes: own.write_zeroes.map(range),
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
