//! Virtio 9P (device type 9): carries messages of the 9P protocol to a file server of the host and back.
//!
//! The driver knows messages as bytes with a length; what they say is the business of exos's 9P client. A message goes
//! out of one of a fixed number of *slots*, each with memory for a request and for its reply, so that several can be
//! under way: slot 0 is large (reads and writes of files), the others are small and share a page (messages that go
//! along and have short answers). The caller puts messages into slots, [`Channel::submit`]s them with one
//! notification, and looks with [`Channel::poll`] until their replies are there. How long it looks, and what it does
//! meanwhile, is its own affair: there is no time here (VIRTIO-5).
//!
//! Trust: the device decides the bytes of a reply, and how many of them it claims; the count is cut to what the slot
//! can hold, and which slot a reply belongs to is decided by the queue's own shadow (VIRTIO-1). A reply that never
//! comes leaves its slot in use for ever, which is the safe answer: the device may still write there.
//!
//! Limits: [`SLOT_COUNT`] slots; [`Limits::message_page_count`] pages each way in slot 0; [`SMALL_BYTES`] each way in
//! the others; tags of [`TAG_BYTES`] bytes exactly (see there).

use aegis_hal::{Dma, DmaBuffer, Irq, PAGE_BYTES};

use crate::device::{self, FEATURE_ACCESS_PLATFORM};
use crate::queue::{Interrupts, Queue, Segment};
use crate::{CallerFault, ConfigurationFault, DeviceFault, Transport, VirtioError, ring_page_count};

/// The device type of a 9P transport (section 5).
pub const DEVICE_TYPE_NINEP: u32 = 9;
/// Bytes of a mount tag that this driver can read: with the length in front of it a whole number of words, because
/// devices answer nothing to a word that reaches beyond their configuration.
pub const TAG_BYTES: usize = 6;
/// Slots: one large, the others small.
pub const SLOT_COUNT: usize = 16;
/// Bytes of a message in a small slot, each way.
pub const SMALL_BYTES: usize = 64;

/// Feature: the configuration holds a tag by which the host named what is served.
pub(crate) const FEATURE_MOUNT_TAG: u64 = 1;
/// The one queue.
const REQUEST_QUEUE: u16 = 0;
/// Descriptors: two for each slot.
const QUEUE_SIZE: usize = 2 * SLOT_COUNT;

const _: () = assert!(QUEUE_SIZE.is_power_of_two() && 2 * SMALL_BYTES * (SLOT_COUNT - 1) <= PAGE_BYTES);

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
        2 * self.message_page_count + 1 + ring_page_count(QUEUE_SIZE)
    }
}

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Nothing in it.
    Free,
    /// The device has it, as the chain with this head.
    Sent(u16),
    /// The device has answered with so many bytes.
    Answered(usize),
}

/// What is left of a channel that was stopped.
#[derive(Debug)]
pub struct Stopped<T, D> {
    /// The transport; a new channel can be made of it.
    pub transport: T,
    /// The allocator.
    pub dma: D,
    /// `Err` if the device did not stop; then its buffers are in quarantine ([`Dma::quarantine`]).
    pub outcome: Result<(), VirtioError>,
}

/// The memory that the device reaches besides the ring.
#[derive(Debug)]
struct Buffers<B> {
    request: B,
    reply: B,
    small: B,
}

/// A running 9P transport.
#[derive(Debug)]
pub struct Channel<T, D: Dma> {
    transport: T,
    dma: D,
    limits: Limits,
    queue: Option<Queue<D::Buffer, QUEUE_SIZE>>,
    buffers: Option<Buffers<D::Buffer>>,
    /// Buffers of a set-up that did not come to its end.
    orphans: [Option<D::Buffer>; 3],
    slots: [Slot; SLOT_COUNT],
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
        let mut channel = Self {
            transport,
            dma,
            limits,
            queue: None,
            buffers: None,
            orphans: [const { None }; 3],
            slots: [Slot::Free; SLOT_COUNT],
            tag: [0; TAG_BYTES],
            fault: None,
        };
        match channel.bring_up() {
            Ok(()) => Ok(channel),
            Err(error) => {
                // The error that stopped the set-up tells more than one that comes of it.
                let _ = channel.stop();
                Err(error)
            }
        }
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
        let size_max = self.transport.queue_size_max(REQUEST_QUEUE)?;
        if usize::from(size_max) < QUEUE_SIZE {
            return Err(DeviceFault::QueueMissing { queue: REQUEST_QUEUE }.into());
        }
        let queue = Queue::allocate(&mut self.dma, REQUEST_QUEUE, QUEUE_SIZE as u16)?;
        let addresses = queue.addresses();
        let queue = self.queue.insert(queue);
        queue.set_interrupts(Interrupts::Suppressed)?;
        self.transport.enable_queue(REQUEST_QUEUE, QUEUE_SIZE as u16, addresses)?;
        let page_counts = [self.limits.message_page_count, self.limits.message_page_count, 1];
        for (orphan, page_count) in self.orphans.iter_mut().zip(page_counts) {
            *orphan = Some(self.dma.allocate(page_count)?);
        }
        if let [Some(request), Some(reply), Some(small)] = core::mem::take(&mut self.orphans) {
            self.buffers = Some(Buffers { request, reply, small });
        }
        device::start(&mut self.transport)
    }

    /// The name that the host gave to what is served.
    #[must_use]
    pub const fn tag(&self) -> &[u8; TAG_BYTES] {
        &self.tag
    }

    /// Bytes of the longest message in slot 0, each way.
    #[must_use]
    pub const fn message_bytes_max(&self) -> usize {
        self.limits.message_page_count * PAGE_BYTES
    }

    /// Puts `message` into a free slot. The device learns of it with [`Channel::submit`].
    ///
    /// # Errors
    /// [`CallerFault::Chain`]: no such slot, or the message is too long for it. [`CallerFault::QueueFull`]: the slot is
    /// in use.
    pub fn put(&mut self, slot: usize, message: &[u8]) -> Result<(), VirtioError> {
        self.check()?;
        let message_bytes_max = self.message_bytes_max();
        let (Some(queue), Some(buffers)) = (&mut self.queue, &mut self.buffers) else {
            return Err(CallerFault::Chain.into());
        };
        let bytes_max = if slot == 0 { message_bytes_max } else { SMALL_BYTES };
        if slot >= SLOT_COUNT || message.is_empty() || message.len() > bytes_max {
            return Err(CallerFault::Chain.into());
        }
        if self.slots[slot] != Slot::Free {
            return Err(CallerFault::QueueFull.into());
        }
        let (request, reply) = match small_offset(slot) {
            None => {
                buffers.request.copy_in(0, message)?;
                (buffers.request.device_address(), buffers.reply.device_address())
            }
            Some(offset) => {
                buffers.small.copy_in(offset, message)?;
                let base = buffers.small.device_address();
                (base.offset(offset), base.offset(offset + SMALL_BYTES))
            }
        };
        let head = queue.push(&[
            Segment::Readable { address: request, length_bytes: message.len() as u32 },
            Segment::Writable { address: reply, length_bytes: bytes_max as u32 },
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

    /// Whether every slot up to `slot_count` that was sent has its answer.
    #[must_use]
    pub fn is_answered(&self, slot_count: usize) -> bool {
        !self.slots.iter().take(slot_count).any(|slot| matches!(slot, Slot::Sent(_)))
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
        let (Some(count), Some(buffers)) = (self.answer_bytes(slot), &self.buffers) else {
            return Err(CallerFault::Chain.into());
        };
        let count = count.min(into.len());
        match small_offset(slot) {
            None => buffers.reply.copy_out(0, &mut into[..count])?,
            Some(offset) => buffers.small.copy_out(offset + SMALL_BYTES, &mut into[..count])?,
        }
        self.slots[slot] = Slot::Free;
        Ok(count)
    }

    /// Asks for an interrupt with the next answer, or for none. After `Wanted` the caller polls once more before it
    /// sleeps.
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    pub fn set_interrupts(&mut self, interrupts: Interrupts) -> Result<(), VirtioError> {
        match &mut self.queue {
            Some(queue) => queue.set_interrupts(interrupts),
            None => Ok(()),
        }
    }

    /// Clears the interrupt's cause, lets the next one through, and polls; in this order, so that nothing is missed.
    ///
    /// # Errors
    /// As [`Channel::poll`], and [`crate::ConfigurationFault::Irq`], [`DeviceFault::NeedsReset`].
    pub fn on_interrupt(&mut self, irq: &mut impl Irq) -> Result<(), VirtioError> {
        let cause = self.transport.acknowledge_interrupt()?;
        irq.unmask()?;
        if cause.configuration && device::needs_reset(&self.transport)? {
            self.fault = Some(DeviceFault::NeedsReset);
        }
        self.poll()
    }

    /// Resets the device, waits until it has stopped, and only then gives the memory back.
    pub fn stop(mut self) -> Stopped<T, D> {
        let outcome = device::reset(&mut self.transport, self.limits.reset_poll_count_max);
        let mut give_back = |buffer: D::Buffer| match outcome {
            Ok(()) => self.dma.release(buffer),
            Err(_) => self.dma.quarantine(buffer),
        };
        if let Some(queue) = self.queue {
            give_back(queue.into_ring());
        }
        if let Some(Buffers { request, reply, small }) = self.buffers {
            [request, reply, small].into_iter().for_each(&mut give_back);
        }
        self.orphans.into_iter().flatten().for_each(&mut give_back);
        Stopped { transport: self.transport, dma: self.dma, outcome }
    }

    fn check(&self) -> Result<(), VirtioError> {
        self.fault.map_or(Ok(()), |fault| Err(fault.into()))
    }
}

/// Where a small slot's request is in the shared page; its reply follows. `None` for the large slot.
const fn small_offset(slot: usize) -> Option<usize> {
    match slot {
        0 => None,
        slot => Some((slot - 1) * 2 * SMALL_BYTES),
    }
}
