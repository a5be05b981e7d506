//! The split virtqueue (section 2.7).
//!
//! The rings are write-only for the driver, but for the used ring, of which each word is read once
//! and checked. What the driver has given to the device is recorded in a *shadow* in its own memory
//! (free list, chain lengths, capacities), because descriptors and available ring lie in memory
//! that the device can write too, and a device that rewrites them must only hurt itself.
//!
//! ```text
//! push ──> descriptors, ring slot ──> publish ──> device ──> used ring ──> pop
//!          (not yet visible)          (index)                              (checked by the shadow)
//! ```
//!
//! Pushing and publishing are apart so that one notification can cover many buffers.
//!
//! Whether the other side wants to be told is said in one of two ways: by the flags `NO_NOTIFY` and
//! `NO_INTERRUPT`, or, after [`Queue::use_event_index`], by the index at which it wants to be told
//! (`VIRTIO_F_EVENT_IDX`, section 2.7.10): then a card that is busy is told once for many frames, and
//! a driver that does not ask again is not interrupted again. Consoles and 9P keep the flags: their
//! messages come one at a time, and the event words are two more to get wrong. Disks alone use
//! indirect descriptors, whose tables are their own affair.

use aegis_hal::{DeviceAddress, Dma, DmaBuffer, PAGE_BYTES, barrier};

use crate::{CallerFault, DeviceFault, QueueAddresses, VirtioError};

/// Largest queue that this crate makes.
pub const QUEUE_SIZE_MAX: usize = 256;

pub(crate) const DESCRIPTOR_BYTES: usize = 16;
pub(crate) const USED_ELEMENT_BYTES: usize = 8;
/// Flags and index in front of both rings.
pub(crate) const RING_HEADER_BYTES: usize = 4;
/// The event word behind both rings, which exists also when it is not used.
const RING_TRAILER_BYTES: usize = 2;
/// Feature: both sides say at which index they want to be told.
pub(crate) const FEATURE_EVENT_INDEX: u64 = 1 << 29;
/// Feature: a descriptor can name a table of descriptors.
pub(crate) const FEATURE_INDIRECT: u64 = 1 << 28;

pub(crate) const DESCRIPTOR_NEXT: u64 = 1;
pub(crate) const DESCRIPTOR_WRITE: u64 = 2;
pub(crate) const DESCRIPTOR_INDIRECT: u64 = 4;
pub(crate) const AVAILABLE_NO_INTERRUPT: u16 = 1;
pub(crate) const USED_NO_NOTIFY: u16 = 1;

/// No descriptor: the end of the free list.
const NONE: u16 = u16::MAX;

pub(crate) const fn available_offset(size: usize) -> usize {
    DESCRIPTOR_BYTES * size
}

pub(crate) const fn used_offset(size: usize) -> usize {
    let available_bytes = RING_HEADER_BYTES + 2 * size + RING_TRAILER_BYTES;
    (available_offset(size) + available_bytes).next_multiple_of(4)
}

/// Where the used ring of a guarded queue is: the first page that the driver only reads.
pub(crate) const fn guarded_used_offset(size: usize) -> usize {
    used_offset(size).next_multiple_of(PAGE_BYTES)
}

const fn used_bytes(size: usize) -> usize {
    RING_HEADER_BYTES + USED_ELEMENT_BYTES * size + RING_TRAILER_BYTES
}

const fn ring_bytes(size: usize) -> usize {
    used_offset(size) + used_bytes(size)
}

/// Pages of DMA memory that the rings of a queue of `size` take: one up to 128 descriptors.
#[must_use]
pub const fn ring_page_count(size: usize) -> usize {
    ring_bytes(size).div_ceil(PAGE_BYTES)
}

/// One piece of a buffer chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The device reads it.
    Readable {
        /// First byte, as the device sees it.
        address: DeviceAddress,
        /// Length of the piece.
        length_bytes: u32,
    },
    /// The device writes it.
    Writable {
        /// First byte, as the device sees it.
        address: DeviceAddress,
        /// Length, of which the device may write a part.
        length_bytes: u32,
    },
}

/// A chain that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`Queue::push`] returned for it.
    pub head: u16,
    /// Bytes that the device says it wrote, cut to what it was able to write.
    pub written_bytes: u32,
}

/// Whether the device shall interrupt when it returns buffers. Advice: an interrupt may come all
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// Interrupt.
    Wanted,
    /// Do not.
    Suppressed,
}

/// What the driver remembers of a chain that the device holds, by head descriptor.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Descriptors; zero: no chain starts here.
    descriptor_count: u16,
    /// Value of `available_index` when it was pushed: tells whether it has been published.
    sequence: u16,
    /// Bytes that the device may write.
    writable_bytes: u32,
}

impl Chain {
    const NONE: Self = Self { descriptor_count: 0, sequence: 0, writable_bytes: 0 };
}

/// A split virtqueue of at most `N` descriptors, driver side.
#[derive(Debug)]
pub struct Queue<B, const N: usize> {
    index: u16,
    size: u16,
    ring: B,
    /// Where the used ring is in it.
    used_offset: usize,
    /// Every notification reaches the guard, which decides whether the device wants one.
    is_guarded: bool,
    /// The event words say who wants to be told, not the flags.
    has_event_index: bool,
    free_head: u16,
    free_count: u16,
    /// Successor of each descriptor, in a chain or in the free list.
    next: [u16; N],
    chains: [Chain; N],
    /// Chains pushed, modulo 2^16.
    available_index: u16,
    /// As much of `available_index` as the device was told.
    published_index: u16,
    /// Chains popped, modulo 2^16.
    used_index: u16,
    interrupts: Interrupts,
    fault: Option<DeviceFault>,
}

impl<B: DmaBuffer, const N: usize> Queue<B, N> {
    const SIZE_IS_ALLOWED: () = assert!(N.is_power_of_two() && N <= QUEUE_SIZE_MAX);

    /// As [`Queue::new`], in memory from `dma`, which gets it back if the queue cannot be made.
    ///
    /// # Errors
    /// [`CallerFault::QueueSize`], or that there is no such memory.
    pub fn allocate(dma: &mut impl Dma<Buffer = B>, index: u16, size: u16) -> Result<Self, VirtioError> {
        let is_guarded = dma.has_guarded_rings();
        let entries = usize::from(size);
        let page_count = match is_guarded {
            true => (guarded_used_offset(entries) + used_bytes(entries)).div_ceil(PAGE_BYTES),
            false => ring_page_count(entries),
        };
        let ring = dma.allocate_rings(index, page_count)?;
        Self::make(index, size, ring, is_guarded).map_err(|(error, ring)| {
            dma.release(ring);
            error
        })
    }

    /// A queue of `size` descriptors, a power of two of at most `N`, in `ring`, which has
    /// [`ring_page_count`] pages. The device does not know it yet.
    ///
    /// # Errors
    /// [`CallerFault::QueueSize`] and the buffer, if either does not fit.
    pub fn new(index: u16, size: u16, ring: B) -> Result<Self, (VirtioError, B)> {
        Self::make(index, size, ring, false)
    }

    fn make(index: u16, size: u16, ring: B, is_guarded: bool) -> Result<Self, (VirtioError, B)> {
        const { Self::SIZE_IS_ALLOWED };
        let entries = usize::from(size);
        let used_offset = if is_guarded { guarded_used_offset(entries) } else { used_offset(entries) };
        if !size.is_power_of_two() || entries > N || ring.length_bytes() < used_offset + used_bytes(entries) {
            return Err((CallerFault::QueueSize.into(), ring));
        }
        let mut queue = Self {
            index,
            size,
            ring,
            used_offset,
            is_guarded,
            has_event_index: false,
            free_head: 0,
            free_count: size,
            next: [NONE; N],
            chains: [Chain::NONE; N],
            available_index: 0,
            published_index: 0,
            used_index: 0,
            interrupts: Interrupts::Wanted,
            fault: None,
        };
        match queue.clear() {
            Ok(()) => Ok(queue),
            Err(error) => Err((error, queue.ring)),
        }
    }

    /// Makes it a new queue, in the same memory: the device was reset, and knows it no more. What was agreed on with it
    /// is forgotten too.
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    pub fn clear(&mut self) -> Result<(), VirtioError> {
        let entries = usize::from(self.size);
        // What the driver only reads is cleared by its writer.
        let written_bytes = if self.is_guarded { self.used_offset } else { self.used_offset + used_bytes(entries) };
        for offset in (0..written_bytes).step_by(2) {
            self.ring.write_u16(offset, 0)?;
        }
        self.has_event_index = false;
        self.free_head = 0;
        self.free_count = self.size;
        self.next = [NONE; N];
        for (descriptor, successor) in self.next.iter_mut().take(entries - 1).enumerate() {
            *successor = descriptor as u16 + 1;
        }
        self.chains = [Chain::NONE; N];
        self.available_index = 0;
        self.published_index = 0;
        self.used_index = 0;
        self.interrupts = Interrupts::Wanted;
        self.fault = None;
        Ok(())
    }

    /// Both sides say by index when they want to be told: it was agreed on, and the device does not know the queue yet.
    pub const fn use_event_index(&mut self) {
        self.has_event_index = true;
    }

    /// What the transport tells the device.
    pub fn addresses(&self) -> QueueAddresses {
        let base = self.ring.device_address();
        let size = usize::from(self.size);
        QueueAddresses {
            descriptors: base,
            available: base.offset(available_offset(size)),
            used: base.offset(self.used_offset),
        }
    }

    /// The index by which the device knows the queue.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Descriptors in the queue.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Descriptors that are in no chain.
    pub const fn free_count(&self) -> u16 {
        self.free_count
    }

    /// Descriptors that are in no chain, in the order in which the next chains take them.
    pub fn free_descriptors(&self) -> impl Iterator<Item = u16> {
        let successor = |descriptor: &u16| self.next.get(usize::from(*descriptor)).copied();
        core::iter::successors(Some(self.free_head), successor).take(usize::from(self.free_count))
    }

    /// Chains that were pushed and not published.
    pub const fn unpublished_count(&self) -> u16 {
        self.available_index.wrapping_sub(self.published_index)
    }

    /// Chains that the device was given and has not returned.
    pub const fn outstanding_count(&self) -> u16 {
        self.published_index.wrapping_sub(self.used_index)
    }

    /// Gives the ring memory back. The device has been stopped.
    pub fn into_ring(self) -> B {
        self.ring
    }

    /// Adds a chain, not yet visible to the device, and returns its head, which names it until it
    /// is popped.
    ///
    /// # Errors
    /// [`CallerFault::Chain`], [`CallerFault::QueueFull`]; nothing changed then.
    pub fn push(&mut self, segments: &[Segment]) -> Result<u16, VirtioError> {
        if segments.is_empty() || segments.len() > usize::from(self.size) {
            return Err(CallerFault::Chain.into());
        }
        if segments.len() > usize::from(self.free_count) {
            return Err(CallerFault::QueueFull.into());
        }
        let writable_bytes = writable_bytes(segments)?;
        let head = self.free_head;
        let mut descriptor = head;
        for (position, segment) in segments.iter().enumerate() {
            let successor = self.next[usize::from(descriptor)];
            let is_last = position + 1 == segments.len();
            self.write_descriptor(descriptor, segment, (!is_last).then_some(successor))?;
            descriptor = successor;
        }
        let slot = usize::from(self.available_index % self.size);
        let ring = available_offset(usize::from(self.size)) + RING_HEADER_BYTES;
        self.ring.write_u16(ring + 2 * slot, head)?;
        self.free_head = descriptor;
        self.free_count -= segments.len() as u16;
        self.chains[usize::from(head)] =
            Chain { descriptor_count: segments.len() as u16, sequence: self.available_index, writable_bytes };
        self.available_index = self.available_index.wrapping_add(1);
        Ok(head)
    }

    /// Adds a chain of one descriptor, which names a table of `table_bytes` at `table`; as [`Queue::push`]. What the
    /// device says it wrote is not looked at: it is returned as nothing.
    ///
    /// # Errors
    /// [`CallerFault::QueueFull`]; nothing changed then.
    #[inline]
    pub fn push_indirect(&mut self, table: DeviceAddress, table_bytes: u32) -> Result<u16, VirtioError> {
        let head = self.free_head;
        let Some(successor) = self.next.get(usize::from(head)).copied() else {
            return Err(CallerFault::QueueFull.into());
        };
        let offset = DESCRIPTOR_BYTES * usize::from(head);
        self.ring.write_u64(offset, table.0)?;
        self.ring.write_u64(offset + 8, u64::from(table_bytes) | DESCRIPTOR_INDIRECT << 32)?;
        let slot = usize::from(self.available_index & (self.size - 1));
        self.ring.write_u16(available_offset(usize::from(self.size)) + RING_HEADER_BYTES + 2 * slot, head)?;
        self.free_head = successor;
        self.free_count -= 1;
        self.chains[usize::from(head)] =
            Chain { descriptor_count: 1, sequence: self.available_index, writable_bytes: 0 };
        self.available_index = self.available_index.wrapping_add(1);
        Ok(head)
    }

    /// Shows all pushed chains to the device. True if there were any and the device wants to be
    /// notified.
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    pub fn publish(&mut self) -> Result<bool, VirtioError> {
        if self.published_index == self.available_index {
            return Ok(false);
        }
        // Descriptors and ring slots before the index that covers them (section 2.7.13.3).
        barrier::publish();
        let size = usize::from(self.size);
        self.ring.write_u16(available_offset(size) + 2, self.available_index)?;
        let before = core::mem::replace(&mut self.published_index, self.available_index);
        // The index before the look at the device's flag (section 2.7.13.4): else both sides could
        // go to sleep.
        barrier::full();
        if self.has_event_index {
            let event = self.ring.read_u16(self.used_offset + RING_HEADER_BYTES + USED_ELEMENT_BYTES * size)?;
            return Ok(crosses(event, before, self.published_index));
        }
        Ok(self.is_guarded || self.ring.read_u16(self.used_offset)? & USED_NO_NOTIFY == 0)
    }

    /// Takes one chain that the device has returned.
    ///
    /// # Errors
    /// [`DeviceFault::UsedIndex`] or [`DeviceFault::UsedId`], from then on always.
    pub fn pop(&mut self) -> Result<Option<Used>, VirtioError> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        let used = self.used_offset;
        let returned_count = self.ring.read_u16(used + 2)?.wrapping_sub(self.used_index);
        if returned_count == 0 {
            return Ok(None);
        }
        if returned_count > self.outstanding_count() {
            return Err(self.fail(DeviceFault::UsedIndex { queue: self.index }));
        }
        // The index before the element that it covers (section 2.7.14).
        barrier::observe();
        let slot = usize::from(self.used_index % self.size);
        let element = used + RING_HEADER_BYTES + USED_ELEMENT_BYTES * slot;
        let id = self.ring.read_u32(element)?;
        let length_bytes = self.ring.read_u32(element + 4)?;
        let Some(head) = self.outstanding_head(id) else {
            return Err(self.fail(DeviceFault::UsedId { queue: self.index, id }));
        };
        let writable_bytes = self.free_chain(head);
        self.used_index = self.used_index.wrapping_add(1);
        if self.has_event_index && self.interrupts == Interrupts::Wanted {
            // What the device returns from here on is wanted too; the next look comes after that was said.
            self.write_used_event(self.used_index)?;
            barrier::full();
        }
        Ok(Some(Used { head, written_bytes: length_bytes.min(writable_bytes) }))
    }

    /// Whether [`Queue::pop`] has something to say: one look at memory.
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    pub fn has_used(&self) -> Result<bool, VirtioError> {
        Ok(self.ring.read_u16(self.used_offset + 2)? != self.used_index || self.fault.is_some())
    }

    /// Asks the device to interrupt, or not, when it returns buffers. After `Wanted` the caller
    /// looks at the queue once more.
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    pub fn set_interrupts(&mut self, interrupts: Interrupts) -> Result<(), VirtioError> {
        if interrupts == self.interrupts {
            return Ok(());
        }
        if self.has_event_index {
            // An index that was just passed is as far away as any can be.
            let distance = u16::from(interrupts == Interrupts::Suppressed);
            self.write_used_event(self.used_index.wrapping_sub(distance))?;
        } else {
            let flags = match interrupts {
                Interrupts::Wanted => 0,
                Interrupts::Suppressed => AVAILABLE_NO_INTERRUPT,
            };
            self.ring.write_u16(available_offset(usize::from(self.size)), flags)?;
        }
        self.interrupts = interrupts;
        // The flag before the next look at the used index (section 2.7.7).
        barrier::full();
        Ok(())
    }

    /// The device has returned something since it was asked to interrupt, which was asked for once. With an index to be
    /// told at there is nothing to write: it has been passed, and comes again after 2^16 chains (advice, as all of it).
    ///
    /// # Errors
    /// None that a ring of the right size can have.
    #[inline]
    pub fn forget_interrupt(&mut self) -> Result<(), VirtioError> {
        if self.has_event_index {
            self.interrupts = Interrupts::Suppressed;
            return Ok(());
        }
        self.set_interrupts(Interrupts::Suppressed)
    }

    /// What [`Queue::set_interrupts`] said last.
    pub const fn interrupts(&self) -> Interrupts {
        self.interrupts
    }

    fn write_used_event(&mut self, event: u16) -> Result<(), VirtioError> {
        let size = usize::from(self.size);
        Ok(self.ring.write_u16(available_offset(size) + RING_HEADER_BYTES + 2 * size, event)?)
    }

    fn fail(&mut self, fault: DeviceFault) -> VirtioError {
        self.fault = Some(fault);
        fault.into()
    }

    fn write_descriptor(
        &mut self,
        descriptor: u16,
        segment: &Segment,
        successor: Option<u16>,
    ) -> Result<(), VirtioError> {
        let (address, length_bytes, write) = match *segment {
            Segment::Readable { address, length_bytes } => (address, length_bytes, 0),
            Segment::Writable { address, length_bytes } => (address, length_bytes, DESCRIPTOR_WRITE),
        };
        let flags = write | if successor.is_some() { DESCRIPTOR_NEXT } else { 0 };
        let next = u64::from(successor.unwrap_or(0));
        let offset = DESCRIPTOR_BYTES * usize::from(descriptor);
        self.ring.write_u64(offset, address.0)?;
        self.ring.write_u64(offset + 8, u64::from(length_bytes) | flags << 32 | next << 48)?;
        Ok(())
    }

    /// `id` as a head, if a chain of that head is the device's.
    fn outstanding_head(&self, id: u32) -> Option<u16> {
        let head = u16::try_from(id).ok().filter(|&head| head < self.size)?;
        let chain = self.chains[usize::from(head)];
        // Fewer than 2^15 chains are alive, so the difference of the two counters orders them.
        let is_published = self.published_index.wrapping_sub(chain.sequence) as i16 > 0;
        (chain.descriptor_count > 0 && is_published).then_some(head)
    }

    /// Puts a chain's descriptors on the free list; returns its writable bytes.
    fn free_chain(&mut self, head: u16) -> u32 {
        let chain = core::mem::replace(&mut self.chains[usize::from(head)], Chain::NONE);
        let mut last = head;
        for _ in 1..chain.descriptor_count {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.free_head;
        self.free_head = head;
        self.free_count += chain.descriptor_count;
        chain.writable_bytes
    }
}

/// Whether an index that went from `before` to `after` reached what follows `event` (section 2.7.10).
pub(crate) const fn crosses(event: u16, before: u16, after: u16) -> bool {
    after.wrapping_sub(event).wrapping_sub(1) < after.wrapping_sub(before)
}

/// Bytes that the device may write to a chain; its readable segments come first (section 2.7.4.2).
fn writable_bytes(segments: &[Segment]) -> Result<u32, VirtioError> {
    let mut writable = None;
    for segment in segments {
        match (*segment, writable) {
            (Segment::Readable { .. }, None) => {}
            (Segment::Readable { .. }, Some(_)) => return Err(CallerFault::Chain.into()),
            (Segment::Writable { length_bytes, .. }, sum) => {
                let sum = sum.unwrap_or(0u32).checked_add(length_bytes);
                writable = Some(sum.ok_or(CallerFault::Chain)?);
            }
        }
    }
    Ok(writable.unwrap_or(0))
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
