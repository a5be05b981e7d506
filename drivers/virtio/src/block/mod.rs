//! Virtio disks (device type 2, section 5.2): a [`BlockDevice`].
//!
//! Header, status and table of pieces of each request lie in the driver's memory (`slots`), at a place that its tag
//! gives; data lies where its owner has it, and nothing is copied. With indirect descriptors, which every QEMU has, a
//! request takes one descriptor of its queue, so that a queue of 256 holds 256 of them; without, it takes one for each
//! piece and two more.
//!
//! Trust: the device decides whether a request succeeds, and the bytes of a read. A completion has to name a request
//! that is under way in its queue, once (`queue`), and its status has to be one that there is: anything else is the end
//! of the disk ([`DeviceFault`]) until [`BlockDevice::reset`]. How many bytes it claims to have written decides
//! nothing. What the device says of itself is checked as it is read (`config`).
//!
//! Invariants: VIRTIO-1 to VIRTIO-5; BLK-1 to BLK-4 of [`aegis_hal::block`].
//!
//! Not asked for: packed rings, zones, secure erase, lifetime. The mode of the write cache is read and not changed.

mod config;
mod slots;

use aegis_hal::block::{
    BlockDevice, BlockError, BlockLimits, BlockMemory, BlockOperation, BlockRequest, BlockStatistics, RangeLimits,
    SECTOR_BYTES, SubmitError,
};
use aegis_hal::net::Place;
use aegis_hal::{DeviceAddress, Dma, DmaBuffer, Irq, PAGE_BYTES};

use crate::device::{self, FEATURE_ACCESS_PLATFORM, Stopped};
use crate::queue::{FEATURE_EVENT_INDEX, FEATURE_INDIRECT, Interrupts, QUEUE_SIZE_MAX, Queue, Segment};
use crate::{DeviceFault, Transport, VirtioError, ring_page_count};
use config::FEATURE_FLUSH;
pub(crate) use config::FEATURES;
use slots::{FRAME_COUNT, HEADER_BYTES, RANGE_BYTES, Slots, slot_bytes};

/// The device type of a disk (section 5).
pub const DEVICE_TYPE_BLOCK: u32 = 2;
/// Most requests under way, in all queues.
pub const REQUEST_COUNT_MAX: usize = 256;
/// Most pieces of a request; QEMU takes as many.
pub const SEGMENT_COUNT_MAX: u16 = 254;
/// Most queues that the driver uses.
pub const QUEUE_COUNT_MAX: usize = 4;
/// Most pieces where a request takes a descriptor for each.
const DIRECT_SEGMENT_COUNT_MAX: usize = 62;

/// What is asked in a request's header.
mod kind {
    pub(super) const IN: u32 = 0;
    pub(super) const OUT: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way: at most [`REQUEST_COUNT_MAX`].
    pub request_count: u16,
    /// Pieces of a request: at most [`SEGMENT_COUNT_MAX`]. Each is 16 bytes for each request.
    pub segment_count_max: u16,
    /// Queues: at most [`QUEUE_COUNT_MAX`].
    pub queue_count_max: u16,
    /// Looks at the status register before a reset counts as failed.
    pub reset_poll_count_max: u32,
}

impl Limits {
    /// Pages that a disk with these limits holds at most, the most in one piece being those of
    /// [`Limits::request_page_count`].
    #[must_use]
    pub const fn page_count(&self) -> usize {
        self.queue_count_max as usize * ring_page_count(QUEUE_SIZE_MAX) + self.request_page_count()
    }

    /// Pages of the requests' headers and tables, which lie in one piece.
    #[must_use]
    pub const fn request_page_count(&self) -> usize {
        (self.request_count as usize * slot_bytes(self.segment_count_max)).div_ceil(PAGE_BYTES)
    }

    /// The same within what the driver can do.
    const fn clamped(self) -> Self {
        const fn least(value: u16, most: u16) -> u16 {
            if value == 0 {
                1
            } else if value > most {
                most
            } else {
                value
            }
        }
        Self {
            request_count: least(self.request_count, REQUEST_COUNT_MAX as u16),
            segment_count_max: least(self.segment_count_max, SEGMENT_COUNT_MAX),
            queue_count_max: least(self.queue_count_max, QUEUE_COUNT_MAX as u16),
            ..self
        }
    }
}

/// A set of tags.
type Tags = [u64; REQUEST_COUNT_MAX / 64];

/// A queue, and which request each of its chains is.
#[derive(Debug)]
struct Lane<B> {
    queue: Queue<B, QUEUE_SIZE_MAX>,
    /// By head.
    tags: [u8; QUEUE_SIZE_MAX],
}

/// A running disk.
#[derive(Debug)]
pub struct Disk<T, D: Dma> {
    transport: T,
    dma: D,
    allowed: Limits,
    features: u64,
    limits: BlockLimits,
    /// Sectors of a block, less one.
    block_mask: u32,
    is_indirect: bool,
    lanes: [Option<Lane<D::Buffer>>; QUEUE_COUNT_MAX],
    slots: Option<Slots<D::Buffer>>,
    under_way: Tags,
    /// Those of them that need no device: flushes, where there is nothing to flush.
    ended: Tags,
    has_ended: bool,
    /// Interrupts since the configuration was looked at.
    passed_count: u8,
    statistics: BlockStatistics,
    fault: Option<VirtioError>,
}

impl<T: Transport, D: Dma> Disk<T, D> {
    /// Resets the device and sets it up. Limits beyond what the driver can do are cut.
    ///
    /// # Errors
    /// Any [`VirtioError`] but the caller's. The device has been reset then, and all memory given back (or put in
    /// quarantine).
    pub fn new(transport: T, dma: D, limits: Limits) -> Result<Self, VirtioError> {
        let none = BlockLimits {
            sector_count: 0,
            logical_block_bytes: SECTOR_BYTES,
            physical_block_bytes: SECTOR_BYTES,
            segment_count_max: 0,
            segment_bytes_max: 0,
            sector_count_max: 0,
            depth: 0,
            queue_count: 0,
            has_write_cache: false,
            is_read_only: true,
            is_rotational: false,
            discard: None,
            write_zeroes: None,
        };
        let disk = Self {
            transport,
            dma,
            allowed: limits.clamped(),
            features: 0,
            limits: none,
            block_mask: 0,
            is_indirect: false,
            lanes: [const { None }; QUEUE_COUNT_MAX],
            slots: None,
            under_way: Tags::default(),
            ended: Tags::default(),
            has_ended: false,
            passed_count: 0,
            statistics: BlockStatistics::default(),
            fault: None,
        };
        device::bring_up(disk, |disk| disk.bring_up(None), Self::stop)
    }

    /// Section 3.1.1. A disk that was there `before` has to be the same again, but for its size.
    fn bring_up(&mut self, before: Option<(u64, BlockLimits)>) -> Result<(), VirtioError> {
        device::reset(&mut self.transport, self.allowed.reset_poll_count_max)?;
        // Whoever guards a queue does not follow what is indirect.
        let indirect = if self.dma.has_guarded_rings() { 0 } else { FEATURE_INDIRECT };
        let wanted = FEATURES | FEATURE_EVENT_INDEX | FEATURE_ACCESS_PLATFORM | indirect;
        self.features = device::negotiate(&mut self.transport, DEVICE_TYPE_BLOCK, 0, wanted)?;
        self.is_indirect = self.has(FEATURE_INDIRECT);
        self.limits = config::read(&self.transport, self.features, &self.allowed)?;
        self.block_mask = self.limits.logical_block_bytes / SECTOR_BYTES - 1;
        // Before queues are made that there is no place for.
        let is_same =
            |before: &(u64, BlockLimits)| before.0 == self.features && before.1.queue_count == self.limits.queue_count;
        if !before.as_ref().is_none_or(is_same) {
            return Err(DeviceFault::Changed.into());
        }
        for index in 0..self.limits.queue_count {
            self.make_queue(index)?;
        }
        self.settle_limits();
        let is_same = |(_, before): (u64, BlockLimits)| {
            before == BlockLimits { sector_count: before.sector_count, ..self.limits }
        };
        if !before.is_none_or(is_same) {
            return Err(DeviceFault::Changed.into());
        }
        if self.slots.is_none() {
            let limits = Limits {
                request_count: self.limits.depth,
                segment_count_max: self.limits.segment_count_max,
                ..self.allowed
            };
            let memory = self.dma.allocate(limits.request_page_count())?;
            self.slots = Some(Slots::new(memory, limits.segment_count_max));
        }
        if let Some(slots) = &mut self.slots {
            slots.prepare(self.limits.depth)?;
        }
        device::start(&mut self.transport)
    }

    /// Makes a queue, or clears the one that is there, and tells the device of it.
    fn make_queue(&mut self, index: u16) -> Result<(), VirtioError> {
        let wanted = match self.is_indirect {
            true => self.allowed.request_count.next_power_of_two(),
            false => QUEUE_SIZE_MAX as u16,
        };
        let size_max = self.transport.queue_size_max(index)?.min(wanted);
        let Some(slot) = self.lanes.get_mut(usize::from(index)) else { return Ok(()) };
        let lane = match slot {
            Some(lane) if lane.queue.size() > size_max => return Err(DeviceFault::Changed.into()),
            Some(lane) => {
                lane.queue.clear()?;
                lane
            }
            none => {
                let Some(log2) = size_max.checked_ilog2() else {
                    return Err(DeviceFault::QueueMissing { queue: index }.into());
                };
                let queue = Queue::allocate(&mut self.dma, index, 1 << log2)?;
                none.insert(Lane { queue, tags: [0; QUEUE_SIZE_MAX] })
            }
        };
        let queue = &mut lane.queue;
        if self.features & FEATURE_EVENT_INDEX != 0 {
            queue.use_event_index();
        }
        queue.set_interrupts(Interrupts::Suppressed)?;
        self.transport.enable_queue(index, queue.size(), queue.addresses())
    }

    /// What the queues' sizes leave of the limits.
    fn settle_limits(&mut self) {
        let sizes = self.lanes.iter().flatten().map(|lane| lane.queue.size());
        let mut room: u16 = sizes.clone().sum();
        if !self.is_indirect {
            // Header, status, and what is between.
            let smallest = usize::from(sizes.min().unwrap_or(0));
            let piece_count_max = smallest.saturating_sub(FRAME_COUNT).clamp(1, DIRECT_SEGMENT_COUNT_MAX);
            let limits = &mut self.limits;
            limits.segment_count_max = limits.segment_count_max.min(piece_count_max as u16);
            let pieces = u64::from(limits.segment_count_max) * u64::from(limits.segment_bytes_max);
            let sector_count = (pieces / u64::from(SECTOR_BYTES)).min(u64::from(limits.sector_count_max));
            limits.sector_count_max = sector_count as u32 & !self.block_mask;
            room = (room / (FRAME_COUNT as u16 + 1)).max(1);
        }
        self.limits.depth = room.min(self.allowed.request_count);
    }

    /// Its registers; for those that somebody uses beside the driver.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Clears the interrupt's cause and lets the next one through, in this order; what its caller does next is to
    /// [`BlockDevice::poll`]. A change of the disk's size is seen here.
    ///
    /// # Errors
    /// Those of [`Transport`] and [`Irq`]; [`DeviceFault::NeedsReset`].
    pub fn acknowledge(&mut self, irq: &mut impl Irq) -> Result<(), VirtioError> {
        self.attempt(|disk| {
            let cause = disk.transport.acknowledge_interrupt()?;
            irq.unmask()?;
            let has_used = disk.lanes.iter().flatten().any(|lane| lane.queue.has_used().unwrap_or(true));
            if cause.is_worth_a_look(has_used, &mut disk.passed_count) {
                if device::needs_reset(&disk.transport)? {
                    return Err(DeviceFault::NeedsReset.into());
                }
                disk.limits.sector_count = config::sector_count(&disk.transport)?;
            }
            Ok(())
        })
    }

    /// Resets the device, waits until it has stopped, and only then gives the memory back.
    pub fn stop(self) -> Stopped<T, D> {
        let (lanes, slots) = (self.lanes, self.slots);
        device::stop((self.transport, self.dma), self.allowed.reset_poll_count_max, |give_back| {
            lanes.into_iter().flatten().for_each(|lane| give_back(lane.queue.into_ring()));
            slots.into_iter().for_each(|slots| give_back(slots.into_memory()));
        })
    }

    /// What `action` says, unless the disk has failed, which every error makes it.
    #[inline]
    fn attempt<V>(&mut self, action: impl FnOnce(&mut Self) -> Result<V, VirtioError>) -> Result<V, VirtioError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = action(self);
        self.fault = result.as_ref().err().copied();
        result
    }

    /// Whether the sectors of a request are on the disk, whole blocks, and at most `sector_count_max`.
    #[inline]
    fn has_sectors(&self, request: &BlockRequest<'_>, sector_count_max: u32) -> bool {
        let BlockRequest { first_sector, sector_count, .. } = *request;
        let end = first_sector.checked_add(u64::from(sector_count));
        end.is_some_and(|end| end <= self.limits.sector_count)
            && (first_sector as u32 | sector_count) & self.block_mask == 0
            && sector_count.wrapping_sub(1) < sector_count_max
    }

    fn has_range(&self, request: &BlockRequest<'_>, range: Option<RangeLimits>) -> bool {
        let is_allowed = range.is_some_and(|range| self.has_sectors(request, range.sector_count_max));
        is_allowed && !self.limits.is_read_only && request.pieces.is_empty()
    }

    /// Whether a request is one that this disk takes, apart from its memory.
    #[inline]
    fn takes(&self, request: &BlockRequest<'_>) -> bool {
        let has_pieces = || {
            (request.pieces.len().wrapping_sub(1)) < usize::from(self.limits.segment_count_max)
                && self.has_sectors(request, self.limits.sector_count_max)
        };
        match request.operation {
            BlockOperation::Read => has_pieces(),
            BlockOperation::Write => has_pieces() && !self.limits.is_read_only,
            BlockOperation::Flush => request.pieces.is_empty(),
            BlockOperation::Discard => self.has_range(request, self.limits.discard),
            BlockOperation::WriteZeroes => self.has_range(request, self.limits.write_zeroes),
        }
    }

    /// Gives the queue a request whose memory is filled, as a chain of its pieces.
    fn push_direct(&mut self, request: &BlockRequest<'_>, memory: &impl BlockMemory) -> Result<u16, VirtioError> {
        let missing = VirtioError::from(DeviceFault::QueueMissing { queue: request.queue });
        let slot = self.slots.as_mut().ok_or(missing)?.slot(request.tag);
        let lane = self.lanes.get_mut(usize::from(request.queue)).and_then(Option::as_mut).ok_or(missing)?;
        let header = Segment::Readable { address: slot.header_address(), length_bytes: HEADER_BYTES };
        let range = Segment::Readable { address: slot.range_address(), length_bytes: RANGE_BYTES };
        let status = Segment::Writable { address: slot.status_address(), length_bytes: 1 };
        let is_range = matches!(request.operation, BlockOperation::Discard | BlockOperation::WriteZeroes);
        let pieces = request.pieces.iter().filter_map(|piece| {
            let address = address_of(&self.limits, *piece, memory)?;
            let length_bytes = piece.length_bytes;
            Some(match request.operation {
                BlockOperation::Read => Segment::Writable { address, length_bytes },
                _ => Segment::Readable { address, length_bytes },
            })
        });
        let all = core::iter::once(header).chain(is_range.then_some(range)).chain(pieces).chain([status]);
        let mut segments = [status; DIRECT_SEGMENT_COUNT_MAX + FRAME_COUNT];
        let mut count = 0;
        for (place, segment) in segments.iter_mut().zip(all) {
            *place = segment;
            count += 1;
        }
        lane.queue.push(&segments[..count])
    }

    /// Descriptors that a request takes.
    #[inline]
    fn descriptor_count(&self, request: &BlockRequest<'_>) -> usize {
        match (self.is_indirect, request.operation) {
            (true, _) => 1,
            (false, BlockOperation::Discard | BlockOperation::WriteZeroes) => FRAME_COUNT + 1,
            (false, _) => FRAME_COUNT + request.pieces.len(),
        }
    }

    #[inline]
    fn take(&mut self, request: &BlockRequest<'_>, memory: &impl BlockMemory) -> Result<(), SubmitError<VirtioError>> {
        let (tag, index) = (request.tag, usize::from(request.queue));
        if tag >= self.limits.depth || contains(&self.under_way, tag) || !self.takes(request) {
            return Err(SubmitError::Request);
        }
        let Some(lane) = self.lanes.get(index).and_then(Option::as_ref) else { return Err(SubmitError::Request) };
        if request.operation == BlockOperation::Flush && !self.has(FEATURE_FLUSH) {
            insert(&mut self.ended, tag);
            self.has_ended = true;
        } else {
            if usize::from(lane.queue.free_count()) < self.descriptor_count(request) {
                return Err(SubmitError::Full);
            }
            let slots = self.slots.as_mut().ok_or(SubmitError::Request)?;
            let filled = fill(slots, &self.limits, request, memory).map_err(SubmitError::Broken)?;
            let table_bytes = filled.ok_or(SubmitError::Request)?;
            let head = match self.is_indirect {
                true => self.push_indirect(request, table_bytes),
                false => self.push_direct(request, memory),
            };
            let head = head.map_err(SubmitError::Broken)?;
            if let Some(lane) = &mut self.lanes[index] {
                lane.tags[usize::from(head)] = tag as u8;
            }
        }
        insert(&mut self.under_way, tag);
        self.statistics.request_count += 1;
        if matches!(request.operation, BlockOperation::Read | BlockOperation::Write) {
            self.statistics.sector_count += u64::from(request.sector_count);
        }
        Ok(())
    }

    #[inline]
    fn push_indirect(&mut self, request: &BlockRequest<'_>, table_bytes: u32) -> Result<u16, VirtioError> {
        let missing = VirtioError::from(DeviceFault::QueueMissing { queue: request.queue });
        let slots = self.slots.as_mut().ok_or(missing)?;
        let address = slots.slot(request.tag).table_address();
        let lane = self.lanes.get_mut(usize::from(request.queue)).and_then(Option::as_mut).ok_or(missing)?;
        lane.queue.push_indirect(address, table_bytes)
    }

    fn tell_ended(&mut self, done: &mut impl FnMut(u16, Result<(), BlockError>)) -> u32 {
        let mut count = 0;
        for tag in 0..self.limits.depth {
            if contains(&self.ended, tag) {
                remove(&mut self.under_way, tag);
                done(tag, Ok(()));
                count += 1;
            }
        }
        self.ended = Tags::default();
        self.has_ended = false;
        count
    }

    #[inline]
    fn tell(&mut self, done: &mut impl FnMut(u16, Result<(), BlockError>)) -> Result<u32, VirtioError> {
        let mut count = if self.has_ended { self.tell_ended(done) } else { 0 };
        let Some(slots) = &self.slots else { return Ok(count) };
        for lane in self.lanes.iter_mut().flatten() {
            if !lane.queue.has_used()? {
                continue;
            }
            // It was asked for once.
            lane.queue.forget_interrupt()?;
            while let Some(used) = lane.queue.pop()? {
                let tag = u16::from(lane.tags[usize::from(used.head)]);
                remove(&mut self.under_way, tag);
                let result = match slots.status(tag)? {
                    0 => Ok(()),
                    1 => Err(BlockError::Input),
                    2 => Err(BlockError::Unsupported),
                    status => return Err(DeviceFault::RequestStatus { status }.into()),
                };
                self.statistics.error_count += u64::from(result.is_err());
                done(tag, result);
                count += 1;
            }
        }
        Ok(count)
    }
}

impl<T: Transport, D: Dma> BlockDevice for Disk<T, D> {
    type Error = VirtioError;

    fn limits(&self) -> BlockLimits {
        self.limits
    }

    fn statistics(&self) -> BlockStatistics {
        self.statistics
    }

    #[inline]
    fn submit(
        &mut self,
        request: &BlockRequest<'_>,
        memory: &impl BlockMemory,
    ) -> Result<(), SubmitError<VirtioError>> {
        if let Some(fault) = self.fault {
            return Err(SubmitError::Broken(fault));
        }
        let result = self.take(request, memory);
        if let Err(SubmitError::Broken(fault)) = result {
            self.fault = Some(fault);
        }
        result
    }

    fn notify(&mut self) -> Result<(), VirtioError> {
        if self.publish()? {
            return self.attempt(|disk| disk.transport.notify(0));
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<bool, VirtioError> {
        self.attempt(|disk| {
            let mut is_due = false;
            for lane in disk.lanes.iter_mut().flatten() {
                if lane.queue.publish()? {
                    disk.statistics.notification_count += 1;
                    match lane.queue.index() {
                        0 => is_due = true,
                        index => disk.transport.notify(index)?,
                    }
                }
            }
            Ok(is_due)
        })
    }

    #[inline]
    fn has_completed(&self) -> bool {
        let mut lanes = self.lanes.iter().flatten();
        self.has_ended || self.fault.is_some() || lanes.any(|lane| lane.queue.has_used().unwrap_or(true))
    }

    #[inline]
    fn poll(
        &mut self,
        _: &impl BlockMemory,
        done: &mut impl FnMut(u16, Result<(), BlockError>),
    ) -> Result<u32, VirtioError> {
        self.attempt(|disk| disk.tell(done))
    }

    fn ask_for_interrupt(&mut self) -> Result<bool, VirtioError> {
        self.notify()?;
        self.attempt(|disk| {
            let mut is_there = disk.has_ended;
            for lane in disk.lanes.iter_mut().flatten() {
                if lane.queue.interrupts() == Interrupts::Suppressed {
                    lane.queue.set_interrupts(Interrupts::Wanted)?;
                    disk.transport.interrupts_wanted(lane.queue.index())?;
                }
                is_there |= lane.queue.has_used()?;
            }
            Ok(is_there)
        })
    }

    fn reset(&mut self) -> Result<(), VirtioError> {
        let before = (self.features, self.limits);
        self.fault = Some(DeviceFault::ResetTimeout.into());
        self.under_way = Tags::default();
        self.ended = Tags::default();
        self.has_ended = false;
        self.statistics.reset_count += 1;
        let result = self.bring_up(Some(before));
        if result.is_err() {
            (self.features, self.limits) = before;
        }
        self.fault = result.err();
        result
    }
}

/// Where the device finds a piece.
#[inline]
fn address_of(limits: &BlockLimits, piece: Place, memory: &impl BlockMemory) -> Option<DeviceAddress> {
    let is_allowed = piece.length_bytes.wrapping_sub(1) < limits.segment_bytes_max;
    memory.device_address(piece).filter(|_| is_allowed)
}

/// Fills the request's memory, with its table; the table's bytes, or `None`: its pieces cannot be used.
#[inline]
fn fill<B: DmaBuffer>(
    slots: &mut Slots<B>,
    limits: &BlockLimits,
    request: &BlockRequest<'_>,
    memory: &impl BlockMemory,
) -> Result<Option<u32>, VirtioError> {
    let mut slot = slots.slot(request.tag);
    let kind = match request.operation {
        BlockOperation::Read => kind::IN,
        BlockOperation::Write => kind::OUT,
        BlockOperation::Flush => kind::FLUSH,
        BlockOperation::Discard => kind::DISCARD,
        BlockOperation::WriteZeroes => kind::WRITE_ZEROES,
    };
    let has_place = matches!(kind, kind::IN | kind::OUT);
    slot.write_header(kind, if has_place { request.first_sector } else { 0 })?;
    let mut piece_count = request.pieces.len();
    if has_place {
        let mut byte_count = 0;
        for (position, piece) in request.pieces.iter().enumerate() {
            let Some(address) = address_of(limits, *piece, memory) else { return Ok(None) };
            byte_count += u64::from(piece.length_bytes);
            slot.write_piece(position, (address, piece.length_bytes), kind == kind::IN)?;
        }
        if byte_count != u64::from(request.sector_count) * u64::from(SECTOR_BYTES) {
            return Ok(None);
        }
    } else if kind != kind::FLUSH {
        slot.write_range(request.first_sector, request.sector_count)?;
        let address = slot.range_address();
        slot.write_piece(0, (address, RANGE_BYTES), false)?;
        piece_count = 1;
    }
    Ok(Some(slot.end(piece_count)?))
}

#[inline]
fn contains(tags: &Tags, tag: u16) -> bool {
    tags[usize::from(tag) / 64 % tags.len()] & 1 << (tag % 64) != 0
}

#[inline]
fn insert(tags: &mut Tags, tag: u16) {
    tags[usize::from(tag) / 64 % tags.len()] |= 1 << (tag % 64);
}

#[inline]
fn remove(tags: &mut Tags, tag: u16) {
    tags[usize::from(tag) / 64 % tags.len()] &= !(1 << (tag % 64));
}
