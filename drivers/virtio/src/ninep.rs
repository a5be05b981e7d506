//! Virtio 9P (device type 9): carries messages of the 9P protocol to a file server of the host and back.
//!
//! The driver knows messages as bytes with a length; what they say is the business of exos's 9P client. A message goes
//! out of one of a fixed number of *slots*, each with memory for a request and for its reply, so that several can be
//! under way: they form *lanes*, in each of which the first is large (reads and writes of files) and the others are
//! small (messages that go along and have short answers). What the queue has room for besides is one more lane, the
//! *wide* one ([`WIDE_LANE`]), of small slots alone, for many short messages at once. The caller puts messages into
//! slots, [`Channel::submit`]s them with one notification, and looks with [`Channel::poll`] until their replies are
//! there, in whatever order they come. How long it looks, and what it does meanwhile, is its own affair: there is no
//! time here (VIRTIO-5).
//!
//! Trust: the device decides the bytes of a reply, and how many of them it claims; the count is cut to what the slot
//! can hold, and which slot a reply belongs to is decided by the queue's own shadow (VIRTIO-1). A reply that never
//! comes leaves its slot in use for ever, which is the safe answer: the device may still write there.
//!
//! Limits: [`LANE_COUNT`] lanes of [`LANE_SLOT_COUNT`] slots; [`Channel::wide_slot_count`] in the wide lane, by the
//! device's queue; [`Limits::message_page_count`] pages each way in the first slot of a lane; [`SMALL_BYTES`] each way
//! in the others; tags of [`TAG_BYTES`] bytes exactly (see there).

use aegis_hal::{Dma, DmaBuffer, Irq, PAGE_BYTES};

use crate::device::{self, FEATURE_ACCESS_PLATFORM, Stopped};
use crate::queue::{Interrupts, Queue, Segment};
use crate::{CallerFault, ConfigurationFault, DeviceFault, Transport, VirtioError, ring_page_count};

/// The device type of a 9P transport (section 5).
pub const DEVICE_TYPE_NINEP: u32 = 9;
/// Bytes of a mount tag that this driver can read: with the length in front of it a whole number of words, because
/// devices answer nothing to a word that reaches beyond their configuration.
pub const TAG_BYTES: usize = 6;
/// Lanes: requests that can be under way at the same time.
pub const LANE_COUNT: usize = 4;
/// Slots of a lane: its first is large, the others small.
pub const LANE_SLOT_COUNT: usize = 4;
/// The number of the wide lane.
pub const WIDE_LANE: usize = LANE_COUNT;
/// The first slot of the wide lane, behind those of the others.
pub const WIDE_SLOT_FIRST: usize = LANE_COUNT * LANE_SLOT_COUNT;
/// Most slots in all; those of a lane are in a row.
pub const SLOT_COUNT: usize = 64;
/// Bytes of a message in a small slot, each way: a walk by the longest name is one.
pub const SMALL_BYTES: usize = 288;

/// Feature: the configuration holds a tag by which the host named what is served.
pub(crate) const FEATURE_MOUNT_TAG: u64 = 1;
/// The one queue.
const REQUEST_QUEUE: u16 = 0;
/// Most descriptors: two for each slot. It is what QEMU's device has.
const QUEUE_SIZE: usize = 2 * SLOT_COUNT;
/// Fewest: as many as a guarded queue has.
const QUEUE_SIZE_MIN: usize = QUEUE_SIZE / 2;

/// Pages that all small slots have together.
const SMALL_PAGE_COUNT: usize = (2 * SMALL_BYTES * SLOT_COUNT).div_ceil(PAGE_BYTES);
/// Buffers besides the ring: a request and a reply for each lane, one for all small slots.
const BUFFER_COUNT: usize = 2 * LANE_COUNT + 1;

const _: () = assert!(QUEUE_SIZE.is_power_of_two() && WIDE_SLOT_FIRST < QUEUE_SIZE_MIN / 2);

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of the longest message, each way.
    pub message_page_count: usize,
    /// Looks at the status register before a reset counts as failed.
    pub reset_poll_count_max: u32,
}

impl Limits {
    /// Pages that a channel with these limits holds.
    #[must_use]
    pub const fn page_count(&self) -> usize {
        2 * LANE_COUNT * self.message_page_count + SMALL_PAGE_COUNT + ring_page_count(QUEUE_SIZE)
    }
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// No request in it.
    Free,
    /// The device has it, as the chain with this head.
    Sent(u16),
    /// The device has answered with so many bytes.
    Answered(usize),
}

/// A running 9P transport.
#[derive(Debug)]
pub struct Channel<T, D: Dma> {
    transport: T,
    dma: D,
    limits: Limits,
    queue: Option<Queue<D::Buffer, QUEUE_SIZE>>,
    /// The memory that the device reaches besides the ring: that of all small slots, then a request and a reply for
    /// each lane.
    buffers: [Option<D::Buffer>; BUFFER_COUNT],
    slots: [Slot; SLOT_COUNT],
    /// Slots that the queue has descriptors for.
    slot_count: usize,
    tag: [u8; TAG_BYTES],
    fault: Option<DeviceFault>,
}

impl<T: Transport, D: Dma> Channel<T, D> {
    /// Resets the device and sets it up.
    ///
    /// # Errors
    /// Any [`VirtioError`] but the caller's; [`ConfigurationFault::MountTag`] if the tag is not of [`TAG_BYTES`]. The
    /// device has been reset then, and all memory given back (or put in quarantine).
    pub fn new(transport: T, dma: D, limits: Limits) -> Result<Self, VirtioError> {
        let channel = Self {
            transport,
            dma,
            limits,
            queue: None,
            buffers: [const { None }; BUFFER_COUNT],
            slots: [Slot::Free; SLOT_COUNT],
            slot_count: 0,
            tag: [0; TAG_BYTES],
            fault: None,
        };
        device::bring_up(channel, Self::bring_up, Self::stop)
    }

    fn bring_up(&mut self) -> Result<(), VirtioError> {
        device::reset(&mut self.transport, self.limits.reset_poll_count_max)?;
        device::negotiate(&mut self.transport, DEVICE_TYPE_NINEP, FEATURE_MOUNT_TAG, FEATURE_ACCESS_PLATFORM)?;
        let [first, second] = [self.transport.config_u32(0)?, self.transport.config_u32(4)?];
        if first & 0xffff != TAG_BYTES as u32 {
            return Err(ConfigurationFault::MountTag.into());
        }
        self.tag[..2].copy_from_slice(&first.to_le_bytes()[2..]);
        self.tag[2..].copy_from_slice(&second.to_le_bytes());
        let size = match usize::from(self.transport.queue_size_max(REQUEST_QUEUE)?) {
            QUEUE_SIZE.. => QUEUE_SIZE,
            QUEUE_SIZE_MIN.. => QUEUE_SIZE_MIN,
            _ => return Err(DeviceFault::QueueMissing { queue: REQUEST_QUEUE }.into()),
        };
        self.slot_count = size / 2;
        let queue = Queue::allocate(&mut self.dma, REQUEST_QUEUE, size as u16)?;
        let addresses = queue.addresses();
        let queue = self.queue.insert(queue);
        queue.set_interrupts(Interrupts::Suppressed)?;
        self.transport.enable_queue(REQUEST_QUEUE, size as u16, addresses)?;
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            let page_count = if index == 0 { SMALL_PAGE_COUNT } else { self.limits.message_page_count };
            *buffer = Some(self.dma.allocate(page_count)?);
        }
        device::start(&mut self.transport)
    }

    /// The name that the host gave to what is served.
    #[must_use]
    pub const fn tag(&self) -> &[u8; TAG_BYTES] {
        &self.tag
    }

    /// Bytes of the longest message in a large slot, each way.
    #[must_use]
    pub const fn message_bytes_max(&self) -> usize {
        self.limits.message_page_count * PAGE_BYTES
    }

    /// Slots of the wide lane, from [`WIDE_SLOT_FIRST`] on.
    #[must_use]
    pub const fn wide_slot_count(&self) -> usize {
        self.slot_count.saturating_sub(WIDE_SLOT_FIRST)
    }

    /// Puts `message` into a free slot. The device learns of it with [`Channel::submit`].
    ///
    /// # Errors
    /// [`CallerFault::Chain`]: no such slot, or the message is too long for it. [`CallerFault::QueueFull`]: the slot is
    /// in use.
    pub fn put(&mut self, slot: usize, message: &[u8]) -> Result<(), VirtioError> {
        self.check()?;
        let bytes_max = if is_large(slot) { self.message_bytes_max() } else { SMALL_BYTES };
        if slot >= self.slot_count || message.is_empty() || message.len() > bytes_max {
            return Err(CallerFault::Chain.into());
        }
        if self.slots[slot] != Slot::Free {
            return Err(CallerFault::QueueFull.into());
        }
        let [request, reply] = places(slot);
        let address_of =
            |place: Place| Some(self.buffers[place.buffer].as_ref()?.device_address().offset(place.offset));
        let (Some(request_address), Some(reply_address)) = (address_of(request), address_of(reply)) else {
            return Err(CallerFault::Chain.into());
        };
        let (Some(queue), Some(buffer)) = (&mut self.queue, &mut self.buffers[request.buffer]) else {
            return Err(CallerFault::Chain.into());
        };
        buffer.copy_in(request.offset, message)?;
        let head = queue.push(&[
            Segment::Readable { address: request_address, length_bytes: message.len() as u32 },
            Segment::Writable { address: reply_address, length_bytes: bytes_max as u32 },
        ])?;
        self.slots[slot] = Slot::Sent(head);
        Ok(())
    }

    /// Shows the device everything that was put.
    ///
    /// # Errors
    /// Those of [`Transport::notify`].
    pub fn submit(&mut self) -> Result<(), VirtioError> {
        self.check()?;
        if let Some(queue) = &mut self.queue
            && queue.publish()?
        {
            self.transport.notify(REQUEST_QUEUE)?;
        }
        Ok(())
    }

    /// Takes in what the device has answered. Without an answer it costs a memory read and no trap.
    ///
    /// # Errors
    /// A [`DeviceFault`], from then on always: [`Channel::stop`] and make a new one.
    pub fn poll(&mut self) -> Result<(), VirtioError> {
        self.check()?;
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while let Some(used) = queue.pop()? {
            let slot = self.slots.iter_mut().find(|slot| **slot == Slot::Sent(used.head));
            if let Some(slot) = slot {
                *slot = Slot::Answered(used.written_bytes as usize);
            }
        }
        Ok(())
    }

    /// Whether everything of a lane that was sent has its answer.
    #[must_use]
    pub fn is_answered(&self, lane: usize) -> bool {
        !self.lane(lane).iter().any(|slot| matches!(slot, Slot::Sent(_)))
    }

    /// Whether nothing of a lane is in use.
    #[must_use]
    pub fn is_free(&self, lane: usize) -> bool {
        self.lane(lane).iter().all(|slot| *slot == Slot::Free)
    }

    fn lane(&self, lane: usize) -> &[Slot] {
        match lane {
            WIDE_LANE => &self.slots[WIDE_SLOT_FIRST..self.slot_count.max(WIDE_SLOT_FIRST)],
            _ => self.slots[..WIDE_SLOT_FIRST].chunks_exact(LANE_SLOT_COUNT).nth(lane).unwrap_or_default(),
        }
    }

    /// Bytes of a slot's answer, once it is there.
    #[must_use]
    pub fn answer_bytes(&self, slot: usize) -> Option<usize> {
        match self.slots.get(slot)? {
            Slot::Answered(count) => Some(*count),
            _ => None,
        }
    }

    /// Copies the answer of `slot` into `into`, as much as fits, and frees the slot. Returns the bytes copied.
    ///
    /// # Errors
    /// [`CallerFault::Chain`]: there is no answer.
    pub fn take(&mut self, slot: usize, into: &mut [u8]) -> Result<usize, VirtioError> {
        let count = self.answer_bytes(slot).ok_or(CallerFault::Chain)?.min(into.len());
        let [_, reply] = places(slot);
        let buffer = self.buffers[reply.buffer].as_ref().ok_or(CallerFault::Chain)?;
        buffer.copy_out(reply.offset, &mut into[..count])?;
        self.slots[slot] = Slot::Free;
        Ok(count)
    }

    /// Asks for an interrupt with the next answer, or for none. After `Wanted` the caller polls once more before it
    /// sleeps.
    ///
    /// # Errors
    /// Those of [`Transport::interrupts_wanted`].
    pub fn set_interrupts(&mut self, interrupts: Interrupts) -> Result<(), VirtioError> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.set_interrupts(interrupts)?;
        match interrupts {
            Interrupts::Wanted => self.transport.interrupts_wanted(REQUEST_QUEUE),
            Interrupts::Suppressed => Ok(()),
        }
    }

    /// Clears the interrupt's cause, lets the next one through, and polls; in this order, so that nothing is missed.
    ///
    /// # Errors
    /// As [`Channel::poll`], and [`crate::ConfigurationFault::Irq`], [`DeviceFault::NeedsReset`].
    pub fn on_interrupt(&mut self, irq: &mut impl Irq) -> Result<(), VirtioError> {
        self.fault = device::acknowledge(&mut self.transport, irq)?.or(self.fault);
        self.poll()
    }

    /// Resets the device, waits until it has stopped, and only then gives the memory back.
    pub fn stop(self) -> Stopped<T, D> {
        device::stop((self.transport, self.dma), self.limits.reset_poll_count_max, |give_back| {
            let ring = self.queue.map(Queue::into_ring);
            ring.into_iter().chain(self.buffers.into_iter().flatten()).for_each(give_back);
        })
    }

    fn check(&self) -> Result<(), VirtioError> {
        self.fault.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// Where a message is.
#[derive(Clone, Copy)]
struct Place {
    buffer: usize,
    offset: usize,
}

const fn is_large(slot: usize) -> bool {
    slot < WIDE_SLOT_FIRST && slot.is_multiple_of(LANE_SLOT_COUNT)
}

/// Where a slot's request and its reply are.
const fn places(slot: usize) -> [Place; 2] {
    if is_large(slot) {
        let request = 1 + 2 * (slot / LANE_SLOT_COUNT);
        [Place { buffer: request, offset: 0 }, Place { buffer: request + 1, offset: 0 }]
    } else {
        let offset = 2 * slot * SMALL_BYTES;
        [Place { buffer: 0, offset }, Place { buffer: 0, offset: offset + SMALL_BYTES }]
    }
}
