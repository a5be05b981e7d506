//! A channel: the requests of both its devices, of which one is under way.
//!
//! ```text
//! submit ──> slot (device, tag) ──> waiting, oldest first ──> under way ──> told, or kept for its disk's poll
//!            table of pieces                                  Dma │ Flush │ In │ Out
//! ```
//!
//! The processor moves data only while its own disk is polled, because only then its memory is at hand.

use core::cell::Cell;
use core::ops::Range;

use aegis_hal::block::{
    BlockError, BlockLimits, BlockMemory, BlockOperation, BlockRequest, BlockStatistics, SECTOR_BYTES, SubmitError,
};
use aegis_hal::net::Place;
use aegis_hal::{Dma, Irq, PAGE_BYTES, Port};

use crate::IdeError;
use crate::identity::LBA28_SECTOR_COUNT;
use crate::registers::{BusMasterStatus, Ports, Registers, command, port, status};
use crate::start::{self, Found};
use crate::table::{Tables, table_bytes};

/// Most requests of a disk that wait or are under way: of both disks one is, and the next is at hand. A channel lies on
/// the stack of whoever makes it, and most of it are these.
pub const REQUEST_COUNT_MAX: usize = 8;
/// Most pieces of a request.
pub const SEGMENT_COUNT_MAX: u16 = 16;
const DEVICE_COUNT: usize = 2;
const SLOT_COUNT: usize = DEVICE_COUNT * REQUEST_COUNT_MAX;
/// Sectors of a command without and with the extension.
const LBA28_SECTORS_MAX: u32 = 256;
const LBA48_SECTORS_MAX: u32 = 1 << 16;
/// Bytes of a piece: at most one line of 64 KiB is crossed.
const SEGMENT_BYTES_MAX: u32 = 1 << 16;
const SECTOR: usize = SECTOR_BYTES as usize;

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests of each disk: at most [`REQUEST_COUNT_MAX`].
    pub request_count: u16,
    /// Pieces of a request: at most [`SEGMENT_COUNT_MAX`].
    pub segment_count_max: u16,
    /// Data moves by DMA where it can.
    pub uses_dma: bool,
    /// Looks at a status before a device counts as one that stays busy.
    pub poll_count_max: u32,
}

impl Limits {
    /// Pages of tables, in one piece.
    #[must_use]
    pub const fn page_count(&self) -> usize {
        (SLOT_COUNT * table_bytes(self.segment_count_max)).div_ceil(PAGE_BYTES)
    }

    fn clamped(self) -> Self {
        Self {
            request_count: self.request_count.clamp(1, REQUEST_COUNT_MAX as u16),
            segment_count_max: self.segment_count_max.clamp(1, SEGMENT_COUNT_MAX),
            ..self
        }
    }
}

/// A request that was taken.
#[derive(Clone, Copy, Debug)]
struct Request {
    operation: BlockOperation,
    first_sector: u64,
    sector_count: u32,
    piece_count: u16,
    /// Its table is written, and it goes by DMA.
    has_table: bool,
    /// Some of its memory was not where it was to be.
    is_lost: bool,
    /// How it ended, if its disk has not been told.
    result: Option<Result<(), BlockError>>,
}

/// How the command under way moves its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The bus master does; from the disk into memory, or the other way.
    Dma(bool),
    /// There is none.
    Flush,
    /// The processor does, and has moved so many sectors from the disk.
    In(u32),
    /// The same to the disk.
    Out(u32),
}

/// What is left of a channel that was stopped.
#[derive(Debug)]
pub struct Stopped<P, D> {
    /// The ports; a new channel can be made of them.
    pub ports: Ports<P>,
    /// The allocator.
    pub dma: D,
    /// `Err` if the bus master did not come to rest; then the tables are in quarantine ([`Dma::quarantine`]).
    pub outcome: Result<(), IdeError>,
}

/// A running channel.
#[derive(Debug)]
pub struct Channel<P, D: Dma> {
    registers: Registers<P>,
    dma: D,
    allowed: Limits,
    found: [Option<Found>; DEVICE_COUNT],
    tables: Option<Tables<D::Buffer>>,
    requests: [Option<Request>; SLOT_COUNT],
    pieces: [[Place; SEGMENT_COUNT_MAX as usize]; SLOT_COUNT],
    /// Slots that wait, oldest first.
    waiting: [u8; SLOT_COUNT],
    waiting_count: usize,
    /// As many of them were shown.
    shown_count: usize,
    active: Option<(u8, Phase)>,
    /// What the bus master said when it was asked whether it is done, and it was.
    seen: Cell<Option<BusMasterStatus>>,
    statistics: [BlockStatistics; DEVICE_COUNT],
    fault: Option<IdeError>,
}

impl<P: Port, D: Dma> Channel<P, D> {
    /// Resets both devices and sets them up.
    ///
    /// # Errors
    /// [`IdeError::Absent`]: neither is a disk. All memory was given back (or put in quarantine).
    pub fn new(ports: Ports<P>, dma: D, limits: Limits) -> Result<Self, IdeError> {
        let mut channel = Self {
            registers: Registers::new(ports),
            dma,
            allowed: limits.clamped(),
            found: [None; DEVICE_COUNT],
            tables: None,
            requests: [None; SLOT_COUNT],
            pieces: [[Place { offset: 0, length_bytes: 0 }; SEGMENT_COUNT_MAX as usize]; SLOT_COUNT],
            waiting: [0; SLOT_COUNT],
            waiting_count: 0,
            shown_count: 0,
            active: None,
            seen: Cell::new(None),
            statistics: [BlockStatistics::default(); DEVICE_COUNT],
            fault: None,
        };
        channel.found = channel.find()?;
        if channel.found == [None; DEVICE_COUNT] {
            return Err(IdeError::Absent);
        }
        if channel.found.iter().flatten().any(|found| found.has_dma) && channel.has_dma() {
            let memory = channel.dma.allocate(channel.allowed.page_count())?;
            match Tables::new(memory, channel.allowed.segment_count_max) {
                Ok(tables) => channel.tables = Some(tables),
                // Beyond the bus master's reach: the processor moves everything.
                Err(memory) => channel.dma.release(memory),
            }
        }
        Ok(channel)
    }

    const fn has_dma(&self) -> bool {
        self.allowed.uses_dma && self.registers.has_bus_master()
    }

    fn find(&mut self) -> Result<[Option<Found>; DEVICE_COUNT], IdeError> {
        let poll_count_max = self.allowed.poll_count_max;
        if !self.registers.reset(poll_count_max)? {
            return Err(IdeError::Busy);
        }
        let mut found = [None; DEVICE_COUNT];
        for (found, device) in found.iter_mut().zip(0..) {
            *found = start::find(&mut self.registers, device, poll_count_max)?;
        }
        if self.registers.has_bus_master() {
            // What the set-up's own commands left there.
            let was = self.registers.bus_master_status()?;
            self.registers.clear_bus_master(was)?;
        }
        Ok(found)
    }

    /// What is device `device`; `None`: no disk.
    #[must_use]
    pub fn identity(&self, device: u8) -> Option<crate::Identity> {
        self.found.get(usize::from(device)).copied().flatten().map(|found| found.identity)
    }

    /// Accesses to ports since it was made.
    pub fn access_count(&self) -> u64 {
        self.registers.access_count()
    }

    /// Lets the next interrupt through; what its caller does next is to poll the disks.
    ///
    /// # Errors
    /// Those of [`Irq`].
    pub fn acknowledge(&mut self, irq: &mut impl Irq) -> Result<(), IdeError> {
        Ok(irq.unmask()?)
    }

    /// Resets both devices, and gives the memory back when the bus master is at rest.
    pub fn stop(mut self) -> Stopped<P, D> {
        let poll_count_max = self.allowed.poll_count_max;
        let outcome = match self.registers.reset(poll_count_max) {
            Ok(true) => self.registers.silence().map_err(IdeError::from),
            Ok(false) => Err(IdeError::Busy),
            Err(error) => Err(error.into()),
        };
        match (self.tables.take().map(Tables::into_memory), outcome) {
            (Some(memory), Ok(())) => self.dma.release(memory),
            (Some(memory), Err(_)) => self.dma.quarantine(memory),
            (None, _) => {}
        }
        Stopped { ports: self.registers.into_ports(), dma: self.dma, outcome }
    }

    pub(crate) fn limits(&self, device: u8) -> BlockLimits {
        let identity = self.identity(device);
        let sectors_max = match identity.is_some_and(|identity| identity.has_lba48) {
            true => LBA48_SECTORS_MAX,
            false => LBA28_SECTORS_MAX,
        };
        let segment_count_max = self.allowed.segment_count_max;
        let pieces_sectors = u32::from(segment_count_max) * (SEGMENT_BYTES_MAX / SECTOR_BYTES);
        BlockLimits {
            sector_count: identity.map_or(0, |identity| identity.sector_count),
            logical_block_bytes: SECTOR_BYTES,
            physical_block_bytes: identity.map_or(SECTOR_BYTES, |identity| identity.physical_block_bytes),
            segment_count_max,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            sector_count_max: sectors_max.min(pieces_sectors),
            depth: self.allowed.request_count,
            queue_count: 1,
            // Without a command to flush it there is nothing to be done about one.
            has_write_cache: identity.is_some_and(|identity| identity.has_write_cache),
            is_read_only: false,
            is_rotational: true,
            discard: None,
            write_zeroes: None,
        }
    }

    pub(crate) fn statistics(&self, device: u8) -> BlockStatistics {
        self.statistics[usize::from(device) % DEVICE_COUNT]
    }

    /// What `action` says, unless the channel has failed, which every error makes it.
    fn attempt<V>(&mut self, action: impl FnOnce(&mut Self) -> Result<V, IdeError>) -> Result<V, IdeError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = action(self);
        self.fault = result.as_ref().err().copied();
        result
    }

    fn takes(&self, device: u8, request: &BlockRequest<'_>) -> bool {
        let limits = self.limits(device);
        let end = request.first_sector.checked_add(u64::from(request.sector_count));
        match request.operation {
            BlockOperation::Read | BlockOperation::Write => {
                let mut byte_count = 0;
                let has_pieces = request.pieces.iter().all(|piece| {
                    byte_count += u64::from(piece.length_bytes);
                    piece.length_bytes > 0 && piece.length_bytes <= limits.segment_bytes_max
                });
                has_pieces
                    && request.sector_count > 0
                    && request.sector_count <= limits.sector_count_max
                    && request.pieces.len() <= usize::from(limits.segment_count_max)
                    && byte_count == u64::from(request.sector_count) * u64::from(SECTOR_BYTES)
                    && end.is_some_and(|end| end <= limits.sector_count)
            }
            BlockOperation::Flush => request.pieces.is_empty(),
            BlockOperation::Discard | BlockOperation::WriteZeroes => false,
        }
    }

    pub(crate) fn submit(
        &mut self,
        device: u8,
        request: &BlockRequest<'_>,
        memory: &impl BlockMemory,
    ) -> Result<(), SubmitError<IdeError>> {
        if let Some(fault) = self.fault {
            return Err(SubmitError::Broken(fault));
        }
        let is_tag = request.tag < self.allowed.request_count && request.queue == 0;
        let slot = slot_of(device, request.tag);
        let Some(found) = self.found.get(usize::from(device)).copied().flatten() else {
            return Err(SubmitError::Request);
        };
        if !is_tag || !self.takes(device, request) || self.requests[slot].is_some() {
            return Err(SubmitError::Request);
        }
        let has_table = match &mut self.tables {
            Some(tables) if found.has_dma && request.operation != BlockOperation::Flush => {
                let mut is_reached = true;
                let pieces = request.pieces.iter().map_while(|piece| {
                    let address = memory.device_address(*piece);
                    is_reached &= address.is_some();
                    Some((address?, piece.length_bytes))
                });
                let is_written = tables.write(slot, pieces).map_err(|error| self.fail(error.into()))?;
                if !is_reached {
                    return Err(SubmitError::Request);
                }
                is_written
            }
            _ => false,
        };
        let BlockRequest { operation, first_sector, sector_count, pieces, .. } = *request;
        self.pieces[slot][..pieces.len()].copy_from_slice(pieces);
        let piece_count = pieces.len() as u16;
        self.requests[slot] = Some(Request {
            operation,
            first_sector,
            sector_count,
            piece_count,
            has_table,
            is_lost: false,
            result: None,
        });
        self.waiting[self.waiting_count] = slot as u8;
        self.waiting_count += 1;
        let statistics = &mut self.statistics[usize::from(device)];
        statistics.request_count += 1;
        if operation != BlockOperation::Flush {
            statistics.sector_count += u64::from(sector_count);
        }
        Ok(())
    }

    fn fail(&mut self, error: IdeError) -> SubmitError<IdeError> {
        self.fault = Some(error);
        SubmitError::Broken(error)
    }

    /// Shows the channel what waits.
    pub(crate) fn notify(&mut self) -> Result<(), IdeError> {
        self.attempt(|channel| {
            channel.shown_count = channel.waiting_count;
            channel.begin_next()
        })
    }

    /// Begins the oldest request that waits, unless one is under way.
    fn begin_next(&mut self) -> Result<(), IdeError> {
        while self.active.is_none() && self.shown_count > 0 {
            let slot = self.waiting[0];
            self.waiting.copy_within(1..self.waiting_count, 0);
            self.waiting_count -= 1;
            self.shown_count -= 1;
            let Some(request) = self.requests[usize::from(slot)] else { continue };
            let device = device_of(slot);
            self.statistics[usize::from(device)].notification_count += 1;
            let Some(found) = self.found[usize::from(device)] else { continue };
            if request.operation == BlockOperation::Flush && !found.identity.has_flush {
                // Nothing can be done, and nothing has to.
                self.end(slot, Ok(()));
                continue;
            }
            self.begin(slot, &request, &found)?;
        }
        Ok(())
    }

    fn begin(&mut self, slot: u8, request: &Request, found: &Found) -> Result<(), IdeError> {
        let registers = &mut self.registers;
        let end = request.first_sector + u64::from(request.sector_count);
        let is_ext = end > LBA28_SECTOR_COUNT || request.sector_count > LBA28_SECTORS_MAX;
        let top = if is_ext { 0 } else { (request.first_sector >> 24) as u8 };
        if registers.select(device_of(slot), top)? && registers.wait(self.allowed.poll_count_max)?.is_none() {
            return Err(IdeError::Busy);
        }
        let is_read = request.operation == BlockOperation::Read;
        if request.operation == BlockOperation::Flush {
            let command = if found.identity.has_flush_ext { command::FLUSH_EXT } else { command::FLUSH };
            registers.put(port::STATUS, command)?;
            self.active = Some((slot, Phase::Flush));
            return Ok(());
        }
        let tables = self.tables.as_ref().filter(|_| request.has_table);
        if let Some(tables) = tables {
            registers.prepare_bus_master(tables.address(usize::from(slot)), is_read)?;
        }
        let place = request.first_sector.to_le_bytes();
        let count = request.sector_count.to_le_bytes();
        if is_ext {
            // The high halves first: the registers are two deep.
            for (port, value) in [(port::COUNT, count[1]), (port::LBA_LOW, place[3])] {
                registers.put(port, value)?;
            }
            for (port, value) in [(port::LBA_MIDDLE, place[4]), (port::LBA_HIGH, place[5])] {
                registers.put(port, value)?;
            }
        }
        for (port, value) in [(port::COUNT, count[0]), (port::LBA_LOW, place[0])] {
            registers.put(port, value)?;
        }
        for (port, value) in [(port::LBA_MIDDLE, place[1]), (port::LBA_HIGH, place[2])] {
            registers.put(port, value)?;
        }
        registers.put(port::STATUS, command_of(is_read, is_ext, tables.is_some(), found.pio_sectors > 1))?;
        let phase = if tables.is_some() {
            registers.start_bus_master(is_read)?;
            Phase::Dma(is_read)
        } else if is_read {
            Phase::In(0)
        } else {
            Phase::Out(0)
        };
        self.active = Some((slot, phase));
        Ok(())
    }

    /// Whether the disk's poll has something to do.
    pub(crate) fn has_completed(&self, device: u8) -> bool {
        let mut slots = self.requests[slots_of(device)].iter().flatten();
        if self.fault.is_some() || slots.any(|request| request.result.is_some()) {
            return true;
        }
        match self.active {
            None => false,
            Some((_, Phase::Dma(_))) => self.look_at_bus_master().map_or(true, |status| status.has_interrupt()),
            Some((slot, Phase::In(_) | Phase::Out(_))) if device_of(slot) != device => false,
            Some(_) => self.registers.alternate_status().map_or(true, |state| state & status::BUSY == 0),
        }
    }

    /// Whether something is there already. Interrupts always come from an IDE disk, but for the first block of what the
    /// processor writes: that is asked for.
    pub(crate) fn ask_for_interrupt(&mut self, device: u8) -> Result<bool, IdeError> {
        self.notify()?;
        let is_first = self.active.is_some_and(|(slot, phase)| phase == Phase::Out(0) && device_of(slot) == device);
        Ok(is_first || self.has_completed(device))
    }

    /// Goes on with the command under way, tells what has ended of a disk, and begins the next.
    pub(crate) fn poll(
        &mut self,
        device: u8,
        memory: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, IdeError> {
        self.attempt(|channel| {
            if let Some((slot, phase)) = channel.active
                && let Some(result) = channel.go_on(device, (slot, phase), memory)?
            {
                channel.active = None;
                channel.end(slot, result);
                channel.begin_next()?;
            }
            Ok(channel.tell(device, done))
        })
    }

    fn tell(&mut self, device: u8, done: &mut impl FnMut(u16, Result<(), BlockError>)) -> u32 {
        let mut count = 0;
        for (tag, request) in self.requests[slots_of(device)].iter_mut().enumerate() {
            if let Some(result) = request.as_ref().and_then(|request| request.result) {
                *request = None;
                done(tag as u16, result);
                count += 1;
            }
        }
        count
    }

    fn end(&mut self, slot: u8, result: Result<(), BlockError>) {
        self.statistics[usize::from(device_of(slot))].error_count += u64::from(result.is_err());
        if let Some(request) = &mut self.requests[usize::from(slot)] {
            request.result = Some(result);
        }
    }

    /// How the command under way ended, if it did.
    fn go_on(
        &mut self,
        device: u8,
        (slot, phase): (u8, Phase),
        memory: &impl BlockMemory,
    ) -> Result<Option<Result<(), BlockError>>, IdeError> {
        match phase {
            Phase::Dma(is_read) => self.go_on_by_dma(is_read),
            Phase::Flush => {
                if self.registers.alternate_status()? & status::BUSY != 0 {
                    return Ok(None);
                }
                let state = self.registers.get(port::STATUS)?;
                self.end_by_processor(result_of(state))
            }
            _ if device_of(slot) != device => Ok(None),
            Phase::In(moved) | Phase::Out(moved) => self.go_on_by_processor((slot, phase), moved, memory),
        }
    }

    /// What it says, asked once after it is done.
    fn look_at_bus_master(&self) -> Result<BusMasterStatus, IdeError> {
        if let Some(status) = self.seen.get() {
            return Ok(status);
        }
        let status = self.registers.bus_master_status()?;
        self.seen.set(Some(status).filter(|status| status.has_interrupt()));
        Ok(status)
    }

    fn go_on_by_dma(&mut self, is_read: bool) -> Result<Option<Result<(), BlockError>>, IdeError> {
        let was = self.look_at_bus_master()?;
        if !was.has_interrupt() {
            return Ok(None);
        }
        self.seen.set(None);
        self.registers.stop_bus_master(is_read)?;
        let state = self.registers.get(port::STATUS)?;
        self.registers.clear_bus_master(was)?;
        if state & status::BUSY != 0 {
            return Err(IdeError::Busy);
        }
        if was.has_error() || result_of(state).is_err() {
            return Ok(Some(Err(BlockError::Input)));
        }
        // The table is as long as the data: a bus master that still has something to do has moved nothing.
        if was.is_active() {
            return Err(IdeError::BusMaster);
        }
        Ok(Some(Ok(())))
    }

    /// Moves blocks as long as the disk has some; at most as many as the request has.
    fn go_on_by_processor(
        &mut self,
        (slot, phase): (u8, Phase),
        mut moved: u32,
        memory: &impl BlockMemory,
    ) -> Result<Option<Result<(), BlockError>>, IdeError> {
        let index = usize::from(slot);
        let (Some(request), Some(found)) = (self.requests[index], self.found[usize::from(device_of(slot))]) else {
            return Err(IdeError::Phase);
        };
        let is_read = matches!(phase, Phase::In(_));
        // BLK-3 is broken then; the command goes on, for the channel is others', too.
        let mut is_lost = request.is_lost;
        loop {
            if self.registers.alternate_status()? & status::BUSY != 0 {
                self.active = Some((slot, if is_read { Phase::In(moved) } else { Phase::Out(moved) }));
                self.requests[index] = Some(Request { is_lost, ..request });
                return Ok(None);
            }
            let state = self.registers.get(port::STATUS)?;
            let has_data = state & status::DATA_REQUEST != 0;
            if let Err(error) = result_of(state) {
                return self.end_by_processor(Err(error));
            }
            if moved == request.sector_count {
                // Nothing is left to move.
                return if has_data { Err(IdeError::Phase) } else { self.end_by_processor(whole(is_lost)) };
            }
            if !has_data {
                return Err(IdeError::Phase);
            }
            let count = u32::from(found.pio_sectors).min(request.sector_count - moved);
            for sector in moved..moved + count {
                let place = SECTOR * sector as usize;
                let pieces = &self.pieces[index][..usize::from(request.piece_count)];
                let mut bytes = [0; SECTOR];
                let is_there = if is_read {
                    self.registers.read_data(&mut bytes)?;
                    copy_in(pieces, place, &bytes, memory)
                } else {
                    let is_there = copy_out(pieces, place, &mut bytes, memory);
                    self.registers.write_data(&bytes)?;
                    is_there
                };
                is_lost |= !is_there;
            }
            moved += count;
            if is_read && moved == request.sector_count {
                return self.end_by_processor(whole(is_lost));
            }
        }
    }

    /// The bus master notes every interrupt, and is not to take one of these for its own.
    fn end_by_processor(&mut self, result: Result<(), BlockError>) -> Result<Option<Result<(), BlockError>>, IdeError> {
        if self.tables.is_some() {
            let was = self.registers.bus_master_status()?;
            self.registers.clear_bus_master(was)?;
        }
        Ok(Some(result))
    }

    /// Resets the channel for one of its disks, whose requests are forgotten; the other's begin again.
    pub(crate) fn reset(&mut self, device: u8) -> Result<(), IdeError> {
        self.statistics[usize::from(device) % DEVICE_COUNT].reset_count += 1;
        self.fault = Some(IdeError::Busy);
        self.requests[slots_of(device)].fill(None);
        self.seen.set(None);
        if let Some((slot, _)) = self.active.take()
            && device_of(slot) != device
        {
            // The oldest, as it was; there is room, for it was there before.
            self.waiting.copy_within(0..SLOT_COUNT - 1, 1);
            self.waiting[0] = slot;
            self.waiting_count += 1;
            self.shown_count += 1;
        }
        let (mut kept, mut shown) = (0, 0);
        for index in 0..self.waiting_count {
            let slot = self.waiting[index];
            if device_of(slot) != device {
                self.waiting[kept] = slot;
                kept += 1;
                shown += usize::from(index < self.shown_count);
            }
        }
        (self.waiting_count, self.shown_count) = (kept, shown);
        let result = self.find().and_then(|found| if found == self.found { Ok(()) } else { Err(IdeError::Changed) });
        self.fault = result.err();
        result?;
        self.attempt(Self::begin_next)
    }
}

const fn slot_of(device: u8, tag: u16) -> usize {
    (device as usize % DEVICE_COUNT) * REQUEST_COUNT_MAX + tag as usize % REQUEST_COUNT_MAX
}

const fn slots_of(device: u8) -> Range<usize> {
    slot_of(device, 0)..slot_of(device, 0) + REQUEST_COUNT_MAX
}

const fn device_of(slot: u8) -> u8 {
    slot / REQUEST_COUNT_MAX as u8
}

const fn result_of(state: u8) -> Result<(), BlockError> {
    if state & (status::ERROR | status::FAULT) == 0 { Ok(()) } else { Err(BlockError::Input) }
}

const fn whole(is_lost: bool) -> Result<(), BlockError> {
    if is_lost { Err(BlockError::Input) } else { Ok(()) }
}

const fn command_of(is_read: bool, is_ext: bool, is_dma: bool, is_multiple: bool) -> u8 {
    match (is_read, is_ext, is_dma, is_multiple) {
        (true, false, true, _) => command::READ_DMA,
        (true, true, true, _) => command::READ_DMA_EXT,
        (false, false, true, _) => command::WRITE_DMA,
        (false, true, true, _) => command::WRITE_DMA_EXT,
        (true, false, false, true) => command::READ_MULTIPLE,
        (true, true, false, true) => command::READ_MULTIPLE_EXT,
        (false, false, false, true) => command::WRITE_MULTIPLE,
        (false, true, false, true) => command::WRITE_MULTIPLE_EXT,
        (true, false, false, false) => command::READ,
        (true, true, false, false) => command::READ_EXT,
        (false, false, false, false) => command::WRITE,
        (false, true, false, false) => command::WRITE_EXT,
    }
}

/// The parts of pieces that `count` bytes from `start` on lie in: places, and ranges of the bytes.
fn parts(pieces: &[Place], start: usize, count: usize) -> impl Iterator<Item = (Place, Range<usize>)> {
    let mut begin = 0usize;
    pieces.iter().filter_map(move |piece| {
        let length = piece.length_bytes as usize;
        let (first, end) = (start.max(begin), (start + count).min(begin + length));
        let skipped = first.saturating_sub(begin) as u64;
        begin += length;
        let place =
            Place { offset: piece.offset.wrapping_add(skipped), length_bytes: end.saturating_sub(first) as u32 };
        (first < end).then(|| (place, first - start..end - start))
    })
}

fn copy_in(pieces: &[Place], start: usize, bytes: &[u8], memory: &impl BlockMemory) -> bool {
    parts(pieces, start, bytes.len()).all(|(place, range)| memory.copy_in(place, &bytes[range]))
}

fn copy_out(pieces: &[Place], start: usize, bytes: &mut [u8], memory: &impl BlockMemory) -> bool {
    parts(pieces, start, bytes.len()).all(|(place, range)| memory.copy_out(place, &mut bytes[range]))
}
