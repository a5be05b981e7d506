//! A disk for tests of what drives one: its content in memory, completions in an order that the test chooses, errors
//! where it wants them, and requests that never come back.
//!
//! [`FakeDisk`] is a [`BlockDevice`]; clones are the same disk, so a test keeps one to look at and to give orders. It
//! keeps to BLK-1 as closely as a disk may: data of a write is read, and that of a read written, when the request
//! completes and not before (what BLK-3 is for); and what was written survives [`FakeDisk::lose_power`] only where a
//! flush that was submitted after the write's completion has completed.
//!
//! Neighbours: [`FakeClientMemory`] is the memory of requests, on the same bus as that of drivers under test.

extern crate alloc;

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use super::{FakeBuffer, FakeBus};
use crate::block::{
    BlockDevice, BlockError, BlockLimits, BlockMemory, BlockOperation, BlockRequest, BlockStatistics, RangeLimits,
    SECTOR_BYTES, SubmitError,
};
use crate::net::{DmaWindow, Place};
use crate::{DeviceAddress, Dma, DmaBuffer, DmaError, Volatile};

/// Memory of requests: places are offsets in one buffer of the bus.
#[derive(Debug)]
pub struct FakeClientMemory {
    bus: FakeBus,
    buffer: FakeBuffer,
}

impl FakeClientMemory {
    /// So many pages that the device reaches, too.
    ///
    /// # Errors
    /// The bus has no room for them.
    pub fn new(bus: &FakeBus, page_count: usize) -> Result<Self, DmaError> {
        Ok(Self { bus: bus.clone(), buffer: bus.dma().allocate(page_count)? })
    }

    fn address(&self, place: Place) -> Option<u64> {
        let end = place.offset.checked_add(u64::from(place.length_bytes))?;
        (end <= self.buffer.length_bytes() as u64).then_some(self.buffer.device_address().0 + place.offset)
    }

    /// Writes it as the program would.
    ///
    /// # Panics
    /// If that is not within it.
    pub fn fill(&self, offset: u64, bytes: &[u8]) {
        assert!(self.copy_in(Place { offset, length_bytes: bytes.len() as u32 }, bytes), "a place of the test");
    }

    /// Reads it as the program would.
    ///
    /// # Panics
    /// If that is not within it.
    #[must_use]
    pub fn bytes(&self, offset: u64, byte_count: usize) -> Vec<u8> {
        let mut bytes = vec![0; byte_count];
        let place = Place { offset, length_bytes: byte_count as u32 };
        assert!(self.copy_out(place, &mut bytes), "a place of the test");
        bytes
    }
}

impl DmaWindow for FakeClientMemory {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        self.address(place).map(DeviceAddress)
    }
}

impl BlockMemory for FakeClientMemory {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        let address = self.address(place).filter(|_| place.length_bytes as usize == from.len());
        address.is_some_and(|address| self.bus.device_write(address, from).is_some())
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        let address = self.address(place).filter(|_| place.length_bytes as usize == into.len());
        address.is_some_and(|address| self.bus.device_read(address, into).is_some())
    }
}

/// Which of the requests that may complete does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOrder {
    /// The one that was shown first.
    Oldest,
    /// The one that was shown last.
    Newest,
    /// Any, by this seed.
    Shuffled(u64),
    /// None, until the test says which ([`FakeDisk::finish`]).
    ByHand,
}

/// Why a disk of a test cannot go on: the test said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeDiskBroken;

/// A request that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenRequest {
    /// What names it.
    pub tag: u16,
    /// The queue that it was given to.
    pub queue: u16,
    /// What is asked.
    pub operation: BlockOperation,
    /// First sector.
    pub first_sector: u64,
    /// Sectors.
    pub sector_count: u32,
    /// Memory.
    pub pieces: Vec<Place>,
    /// Writes that had completed when it was submitted, which a flush covers.
    covered_count: usize,
}

/// What the clones of a disk share.
#[derive(Debug)]
struct State {
    limits: BlockLimits,
    content: Vec<u8>,
    /// What is on the medium.
    durable: Vec<u8>,
    /// Ranges in the order in which they were changed, with what they became.
    changes: Vec<(usize, Vec<u8>)>,
    durable_count: usize,
    submitted: Vec<TakenRequest>,
    shown: Vec<TakenRequest>,
    ready: Vec<TakenRequest>,
    order: CompletionOrder,
    bad_sectors: Vec<(Range<u64>, BlockError)>,
    errors: Vec<BlockError>,
    broken: bool,
    refuses_reset: bool,
    wants_interrupt: bool,
    interrupt_count: u64,
    history: Vec<TakenRequest>,
    statistics: BlockStatistics,
}

/// A disk whose content is memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FakeDisk {
    state: Rc<RefCell<State>>,
}

/// What [`FakeDisk::new`] is: 32 requests under way in 1 queue, of at most 16 pieces and 512 KiB, with everything that
/// a disk can do.
#[must_use]
pub const fn fake_limits(sector_count: u64) -> BlockLimits {
    let range = Some(RangeLimits { sector_count_max: 1 << 16, alignment_sectors: 1 });
    BlockLimits {
        sector_count,
        logical_block_bytes: SECTOR_BYTES,
        physical_block_bytes: 4096,
        segment_count_max: 16,
        segment_bytes_max: 1 << 16,
        sector_count_max: 1024,
        depth: 32,
        queue_count: 1,
        has_write_cache: true,
        is_read_only: false,
        is_rotational: false,
        discard: range,
        write_zeroes: range,
    }
}

impl FakeDisk {
    /// A disk of zeros that completes what it is shown at once, oldest first.
    #[must_use]
    pub fn new(sector_count: u64) -> Self {
        Self::with_limits(fake_limits(sector_count))
    }

    /// The same, with limits of the test's choice.
    #[must_use]
    pub fn with_limits(limits: BlockLimits) -> Self {
        let content = vec![0; limits.sector_count as usize * SECTOR_BYTES as usize];
        let state = State {
            limits,
            durable: content.clone(),
            content,
            changes: Vec::new(),
            durable_count: 0,
            submitted: Vec::new(),
            shown: Vec::new(),
            ready: Vec::new(),
            order: CompletionOrder::Oldest,
            bad_sectors: Vec::new(),
            errors: Vec::new(),
            broken: false,
            refuses_reset: false,
            wants_interrupt: false,
            interrupt_count: 0,
            history: Vec::new(),
            statistics: BlockStatistics::default(),
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Completes in this order from now on.
    pub fn set_order(&self, order: CompletionOrder) {
        let mut state = self.state.borrow_mut();
        state.order = order;
        state.settle();
    }

    /// What it has been shown and has not finished, oldest first; and what it finished that was not polled yet is not
    /// among it.
    #[must_use]
    pub fn under_way(&self) -> Vec<TakenRequest> {
        self.state.borrow().shown.clone()
    }

    /// All requests that it was ever shown, in the order in which it saw them.
    #[must_use]
    pub fn history(&self) -> Vec<TakenRequest> {
        self.state.borrow().history.clone()
    }

    /// Finishes a request that it has been shown, whatever the order; false: it has not.
    #[must_use]
    pub fn finish(&self, tag: u16) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(position) = state.shown.iter().position(|request| request.tag == tag) else { return false };
        let request = state.shown.remove(position);
        state.make_ready(request);
        true
    }

    /// Requests that touch these sectors end in this error.
    pub fn damage(&self, sectors: Range<u64>, error: BlockError) {
        self.state.borrow_mut().bad_sectors.push((sectors, error));
    }

    /// No sector is bad any more.
    pub fn repair(&self) {
        self.state.borrow_mut().bad_sectors.clear();
    }

    /// The next request that completes ends in this error; said twice, so do the next two.
    pub fn fail_next(&self, error: BlockError) {
        self.state.borrow_mut().errors.push(error);
    }

    /// Breaks its protocol: every call is an error until it is reset.
    pub fn break_down(&self) {
        self.state.borrow_mut().broken = true;
    }

    /// Whether it comes back from a reset.
    pub fn refuse_reset(&self, refuses: bool) {
        self.state.borrow_mut().refuses_reset = refuses;
    }

    /// Forgets what was not flushed, as a loss of power does.
    pub fn lose_power(&self) {
        let mut state = self.state.borrow_mut();
        state.content = state.durable.clone();
        state.changes.clear();
        state.durable_count = 0;
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self, first_sector: u64, byte_count: usize) -> Vec<u8> {
        let start = first_sector as usize * SECTOR_BYTES as usize;
        self.state.borrow().content[start..start + byte_count].to_vec()
    }

    /// Changes its bytes, on the medium too.
    pub fn set_bytes(&self, first_sector: u64, bytes: &[u8]) {
        let start = first_sector as usize * SECTOR_BYTES as usize;
        let mut state = self.state.borrow_mut();
        state.content[start..start + bytes.len()].copy_from_slice(bytes);
        state.durable[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Interrupts that it sent.
    #[must_use]
    pub fn interrupt_count(&self) -> u64 {
        self.state.borrow().interrupt_count
    }
}

impl State {
    fn make_ready(&mut self, request: TakenRequest) {
        self.ready.push(request);
        if core::mem::take(&mut self.wants_interrupt) {
            self.interrupt_count += 1;
        }
    }

    /// Finishes what the order lets finish.
    fn settle(&mut self) {
        while !self.shown.is_empty() {
            let position = match &mut self.order {
                CompletionOrder::ByHand => return,
                CompletionOrder::Oldest => 0,
                CompletionOrder::Newest => self.shown.len() - 1,
                CompletionOrder::Shuffled(seed) => {
                    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (*seed >> 33) as usize % self.shown.len()
                }
            };
            let request = self.shown.remove(position);
            self.make_ready(request);
        }
    }

    fn is_under_way(&self, tag: u16) -> bool {
        let mut all = self.submitted.iter().chain(&self.shown).chain(&self.ready);
        all.any(|request| request.tag == tag)
    }

    fn is_within_limits(&self, request: &BlockRequest<'_>) -> bool {
        let limits = &self.limits;
        let block_sectors = limits.logical_block_bytes / SECTOR_BYTES;
        let is_aligned = request.first_sector.is_multiple_of(u64::from(block_sectors))
            && request.sector_count.is_multiple_of(block_sectors);
        let end = request.first_sector.checked_add(u64::from(request.sector_count));
        let is_on_disk = is_aligned && end.is_some_and(|end| end <= limits.sector_count);
        let byte_count: u64 = request.pieces.iter().map(|piece| u64::from(piece.length_bytes)).sum();
        let has_memory = byte_count == u64::from(request.sector_count) * u64::from(SECTOR_BYTES)
            && request.pieces.len() <= usize::from(limits.segment_count_max)
            && request
                .pieces
                .iter()
                .all(|piece| piece.length_bytes > 0 && piece.length_bytes <= limits.segment_bytes_max)
            && request.sector_count > 0
            && request.sector_count <= limits.sector_count_max;
        let is_range = |range: Option<RangeLimits>| {
            range.is_some_and(|range| request.sector_count > 0 && request.sector_count <= range.sector_count_max)
                && request.pieces.is_empty()
        };
        match request.operation {
            BlockOperation::Read => is_on_disk && has_memory,
            BlockOperation::Write => is_on_disk && has_memory && !limits.is_read_only,
            BlockOperation::Flush => request.pieces.is_empty(),
            BlockOperation::Discard => is_on_disk && is_range(limits.discard) && !limits.is_read_only,
            BlockOperation::WriteZeroes => is_on_disk && is_range(limits.write_zeroes) && !limits.is_read_only,
        }
    }

    fn change(&mut self, start: usize, bytes: Vec<u8>) {
        self.content[start..start + bytes.len()].copy_from_slice(&bytes);
        self.changes.push((start, bytes));
    }

    /// Does what a finished request asks.
    fn perform(&mut self, request: &TakenRequest, memory: &impl BlockMemory) -> Result<(), BlockError> {
        if !self.errors.is_empty() {
            return Err(self.errors.remove(0));
        }
        let sectors = request.first_sector..request.first_sector + u64::from(request.sector_count);
        let mut bad = self.bad_sectors.iter();
        if let Some((_, error)) = bad.find(|(bad, _)| bad.start < sectors.end && sectors.start < bad.end) {
            return Err(*error);
        }
        let start = sectors.start as usize * SECTOR_BYTES as usize;
        let byte_count = request.sector_count as usize * SECTOR_BYTES as usize;
        match request.operation {
            BlockOperation::Read => {
                let mut at = start;
                for piece in &request.pieces {
                    let end = at + piece.length_bytes as usize;
                    let is_there = memory.copy_in(*piece, &self.content[at..end]);
                    assert!(is_there, "BLK-3: memory of a request under way stays where it is");
                    at = end;
                }
            }
            BlockOperation::Write => {
                let mut bytes = Vec::new();
                for piece in &request.pieces {
                    let mut part = vec![0; piece.length_bytes as usize];
                    let is_there = memory.copy_out(*piece, &mut part);
                    assert!(is_there, "BLK-3: memory of a request under way stays where it is");
                    bytes.extend(part);
                }
                self.change(start, bytes);
            }
            // What was discarded is something else afterwards, so that a test sees whoever relies on it.
            BlockOperation::Discard => self.change(start, vec![0xd5; byte_count]),
            BlockOperation::WriteZeroes => self.change(start, vec![0; byte_count]),
            BlockOperation::Flush => {
                while self.durable_count < request.covered_count.min(self.changes.len()) {
                    let (start, bytes) = &self.changes[self.durable_count];
                    self.durable[*start..start + bytes.len()].copy_from_slice(bytes);
                    self.durable_count += 1;
                }
            }
        }
        if matches!(request.operation, BlockOperation::Read | BlockOperation::Write) {
            self.statistics.sector_count += u64::from(request.sector_count);
        }
        Ok(())
    }
}

impl BlockDevice for FakeDisk {
    type Error = FakeDiskBroken;

    fn limits(&self) -> BlockLimits {
        self.state.borrow().limits
    }

    fn statistics(&self) -> BlockStatistics {
        self.state.borrow().statistics
    }

    fn submit(
        &mut self,
        request: &BlockRequest<'_>,
        memory: &impl BlockMemory,
    ) -> Result<(), SubmitError<FakeDiskBroken>> {
        let mut state = self.state.borrow_mut();
        if state.broken {
            return Err(SubmitError::Broken(FakeDiskBroken));
        }
        let is_reachable = request.pieces.iter().all(|piece| memory.device_address(*piece).is_some());
        let is_tag_free = request.tag < state.limits.depth && !state.is_under_way(request.tag);
        if !is_reachable
            || !is_tag_free
            || request.queue >= state.limits.queue_count
            || !state.is_within_limits(request)
        {
            return Err(SubmitError::Request);
        }
        let covered_count = state.changes.len();
        let BlockRequest { tag, queue, operation, first_sector, sector_count, pieces } = *request;
        let pieces = pieces.to_vec();
        state.submitted.push(TakenRequest {
            tag,
            queue,
            operation,
            first_sector,
            sector_count: if operation == BlockOperation::Flush { 0 } else { sector_count },
            pieces,
            covered_count,
        });
        state.statistics.request_count += 1;
        Ok(())
    }

    fn notify(&mut self) -> Result<(), FakeDiskBroken> {
        let mut state = self.state.borrow_mut();
        if state.broken {
            return Err(FakeDiskBroken);
        }
        let submitted = core::mem::take(&mut state.submitted);
        if !submitted.is_empty() {
            state.statistics.notification_count += 1;
            state.history.extend(submitted.iter().cloned());
            state.shown.extend(submitted);
            state.settle();
        }
        Ok(())
    }

    fn has_completed(&self) -> bool {
        let state = self.state.borrow();
        state.broken || !state.ready.is_empty()
    }

    fn poll(
        &mut self,
        memory: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, FakeDiskBroken> {
        let mut ended = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            if state.broken {
                return Err(FakeDiskBroken);
            }
            for request in core::mem::take(&mut state.ready) {
                let result = state.perform(&request, memory);
                state.statistics.error_count += u64::from(result.is_err());
                ended.push((request.tag, result));
            }
        }
        for (tag, result) in &ended {
            done(*tag, *result);
        }
        Ok(ended.len() as u32)
    }

    fn ask_for_interrupt(&mut self) -> Result<bool, FakeDiskBroken> {
        self.notify()?;
        let mut state = self.state.borrow_mut();
        let is_there = !state.ready.is_empty();
        state.wants_interrupt = !is_there;
        Ok(is_there)
    }

    fn reset(&mut self) -> Result<(), FakeDiskBroken> {
        let mut state = self.state.borrow_mut();
        state.statistics.reset_count += 1;
        if state.refuses_reset {
            state.broken = true;
            return Err(FakeDiskBroken);
        }
        state.broken = false;
        state.wants_interrupt = false;
        state.submitted.clear();
        state.shown.clear();
        state.ready.clear();
        Ok(())
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
