//! A disk for tests: [`FakeDisk`] keeps sectors and completes what it was given when it is told to, in any order, with
//! errors that were chosen; it can get stuck, break, and fail to come back.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::disk::{
    Disk, DiskBroken, DiskError, DiskLimits, DiskOperation, DiskRequest, DiskReset, DiskSubmitError, RangeLimits,
    SECTOR_BYTES,
};
use crate::mem::pinned::FramePiece;
use crate::platform::FrameBytes;
use crate::sync::{Once, SpinMutex};
use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;

/// A request as the disk has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeRequest {
    /// Its tag.
    pub tag: u16,
    /// What is asked.
    pub operation: DiskOperation,
    /// First sector.
    pub first_sector: u64,
    /// Sectors.
    pub sector_count: u32,
    /// Memory.
    pub pieces: Vec<FramePiece>,
}

/// What a fake does, for tests to choose.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// It completes nothing.
    pub is_stuck: bool,
    /// It completes each request when it is shown.
    pub is_instant: bool,
    /// The next so many calls of `poll` tell that it is broken.
    pub break_count: u32,
    /// The same of `show`.
    pub show_break_count: u32,
    /// The next so many submissions find it full.
    pub full_count: u32,
    /// Sectors that cannot be read or written.
    pub bad_sectors: BTreeSet<u64>,
    /// What the next resets come to, the last first; then they are done.
    pub resets: Vec<DiskReset>,
    /// It tells tags that it was not given.
    pub is_lying: bool,
}

struct State {
    limits: DiskLimits,
    sectors: Vec<u8>,
    behaviour: Behaviour,
    taken: Vec<FakeRequest>,
    shown: Vec<FakeRequest>,
    log: Vec<FakeRequest>,
    reset_count: u32,
}

/// The disk.
pub struct FakeDisk {
    bytes: Option<Arc<dyn FrameBytes>>,
    state: SpinMutex<State>,
    /// Called whenever it is shown something.
    at_shows: Once<Box<dyn Fn() + Send + Sync>>,
}

/// Limits as a small virtio disk has them.
#[must_use]
pub fn fake_limits(sector_count: u64) -> DiskLimits {
    let range = RangeLimits { sector_count_max: 1024, alignment_sectors: 1 };
    DiskLimits {
        sector_count,
        logical_block_bytes: SECTOR_BYTES,
        physical_block_bytes: SECTOR_BYTES,
        segment_count_max: 4,
        segment_bytes_max: 8192,
        sector_count_max: 64,
        depth: 4,
        has_write_cache: true,
        is_read_only: false,
        is_rotational: false,
        discard: Some(range),
        write_zeroes: Some(range),
    }
}

impl FakeDisk {
    /// Sectors of zeros; bytes move if there is memory to move them in.
    #[must_use]
    pub fn new(limits: DiskLimits, bytes: Option<Arc<dyn FrameBytes>>) -> Arc<Self> {
        let sectors = alloc::vec![0; (limits.sector_count * u64::from(SECTOR_BYTES)) as usize];
        let state = State {
            limits,
            sectors,
            behaviour: Behaviour { is_instant: true, ..Behaviour::default() },
            taken: Vec::new(),
            shown: Vec::new(),
            log: Vec::new(),
            reset_count: 0,
        };
        Arc::new(Self { bytes, state: SpinMutex::new(state), at_shows: Once::new() })
    }

    /// Changes what it does.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state.lock().behaviour);
    }

    /// Has `hook` called from now on whenever it is shown something, as whatever a notification takes.
    pub fn call_at_shows(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.at_shows.call_once(|| Box::new(hook));
    }

    /// Changes what it is.
    pub fn set_limits(&self, limits: DiskLimits) {
        self.state.lock().limits = limits;
    }

    /// All that it was given so far.
    #[must_use]
    pub fn log(&self) -> Vec<FakeRequest> {
        self.state.lock().log.clone()
    }

    /// How often it was reset.
    #[must_use]
    pub fn reset_count(&self) -> u32 {
        self.state.lock().reset_count
    }

    /// Its bytes.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state.lock().sectors.clone()
    }

    /// Changes its bytes.
    pub fn set_content(&self, first: usize, bytes: &[u8]) {
        self.state.lock().sectors[first..first + bytes.len()].copy_from_slice(bytes);
    }

    fn carry_out(&self, state: &mut State, request: &FakeRequest) -> Result<(), DiskError> {
        let range = request.first_sector..request.first_sector + u64::from(request.sector_count);
        if state.behaviour.bad_sectors.range(range.clone()).next().is_some() {
            return Err(DiskError::Input);
        }
        let (start, end) = (range.start as usize * 512, range.end as usize * 512);
        match request.operation {
            DiskOperation::Flush => {}
            DiskOperation::Discard => state.sectors[start..end].fill(0xdd),
            DiskOperation::WriteZeroes => state.sectors[start..end].fill(0),
            DiskOperation::Read | DiskOperation::Write => self.move_bytes(state, request, start),
        }
        Ok(())
    }

    fn move_bytes(&self, state: &mut State, request: &FakeRequest, mut at: usize) {
        let Some(bytes) = &self.bytes else { return };
        for piece in &request.pieces {
            let mut done = 0;
            while done < piece.length_bytes {
                let offset = u64::from(piece.offset_bytes + done);
                let (frame, offset) = (FrameNumber(piece.first.0 + offset / PAGE_SIZE), offset % PAGE_SIZE);
                let count = (PAGE_SIZE - offset).min(u64::from(piece.length_bytes - done)) as usize;
                let sectors = &mut state.sectors[at..at + count];
                match request.operation {
                    DiskOperation::Read => bytes.write(frame, offset as usize, sectors),
                    _ => bytes.read(frame, offset as usize, sectors),
                }
                (at, done) = (at + count, done + count as u32);
            }
        }
    }
}

impl Disk for FakeDisk {
    fn limits(&self) -> DiskLimits {
        self.state.lock().limits
    }

    fn submit(&self, request: &DiskRequest<'_>) -> Result<(), DiskSubmitError> {
        let mut state = self.state.lock();
        if state.behaviour.full_count > 0 {
            state.behaviour.full_count -= 1;
            return Err(DiskSubmitError::Full);
        }
        let is_under_way = state.taken.iter().chain(&state.shown).any(|other| other.tag == request.tag);
        if is_under_way || request.tag >= state.limits.depth {
            return Err(DiskSubmitError::Refused);
        }
        let DiskRequest { tag, operation, first_sector, sector_count, pieces } = *request;
        let request = FakeRequest { tag, operation, first_sector, sector_count, pieces: pieces.to_vec() };
        state.log.push(request.clone());
        state.taken.push(request);
        Ok(())
    }

    fn show(&self) -> Result<(), DiskBroken> {
        self.at_shows.get().into_iter().for_each(|hook| hook());
        let mut state = self.state.lock();
        if state.behaviour.show_break_count > 0 {
            state.behaviour.show_break_count -= 1;
            return Err(DiskBroken);
        }
        let taken = core::mem::take(&mut state.taken);
        state.shown.extend(taken);
        Ok(())
    }

    fn has_completed(&self) -> bool {
        let state = self.state.lock();
        state.behaviour.is_instant && !state.behaviour.is_stuck && !state.shown.is_empty()
    }

    fn poll(&self, done: &mut dyn FnMut(u16, Result<(), DiskError>)) -> Result<(), DiskBroken> {
        let mut state = self.state.lock();
        if state.behaviour.break_count > 0 {
            state.behaviour.break_count -= 1;
            return Err(DiskBroken);
        }
        if state.behaviour.is_lying {
            done(0, Ok(()));
            done(u16::MAX, Err(DiskError::Input));
        }
        if state.behaviour.is_stuck || !state.behaviour.is_instant {
            return Ok(());
        }
        // The other way round than they came.
        while let Some(request) = state.shown.pop() {
            let outcome = self.carry_out(&mut state, &request);
            done(request.tag, outcome);
        }
        Ok(())
    }

    fn ask_for_interrupt(&self) -> Result<bool, DiskBroken> {
        Ok(self.has_completed())
    }

    fn reset(&self) -> DiskReset {
        let mut state = self.state.lock();
        state.reset_count += 1;
        let outcome = state.behaviour.resets.pop().unwrap_or(DiskReset::Done);
        if outcome == DiskReset::Done {
            (state.taken, state.shown) = (Vec::new(), Vec::new());
        }
        outcome
    }
}
