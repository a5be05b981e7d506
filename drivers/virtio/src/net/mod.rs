//! Virtio network cards (device type 1, section 5.1): a [`NetDevice`].
//!
//! Frames are copied between the caller's memory and buffers of half a page, which are the device's for as long as the
//! card runs; of what is sent, pieces may also lie in memory that somebody else shares with the device. The driver asks
//! for what the host's backend offers: checksums filled in and looked at, TCP packets cut into segments, frames longer
//! than a buffer, the link's state. QEMU's user network offers none of the first two, a tap interface all of them.
//!
//! Trust: the device decides the bytes of frames, how many it claims, and in how many buffers they are. Lengths are cut
//! to what a buffer holds (`queue`), and a frame that is said to lie in more buffers than were returned, or in none, is
//! the end of the card ([`DeviceFault::FrameBuffers`]).
//!
//! Invariants: VIRTIO-1 to VIRTIO-5. Descriptor n owns buffer n of its direction's memory, so buffers are as safe as
//! the queue's record of descriptors. After a fault every call fails until [`NetDevice::reset`].
//!
//! Not asked for: the control queue (receive modes: a card gets what is sent to its address and to groups), several
//! queues, segments put together on receipt, announcements.

mod header;
mod receive;
mod ring;
mod transmit;

use aegis_hal::net::{
    DmaWindow, Frame, NetDevice, NetIdentity, NetStatistics, Offloads, Received, TransmitError, TransmitMeta, Wishes,
};
use aegis_hal::{Dma, DmaBuffer, Irq, PAGE_BYTES};

use crate::device::{self, FEATURE_ACCESS_PLATFORM, Stopped};
use crate::queue::{FEATURE_EVENT_INDEX, Interrupts, QUEUE_SIZE_MAX};
use crate::{DeviceFault, Transport, VirtioError, ring_page_count};
use receive::Receiver;
use ring::Ring;
use transmit::Transmitter;

/// The device type of a network card (section 5).
pub const DEVICE_TYPE_NET: u32 = 1;
/// Bytes of a buffer: header and frame of a usual packet.
pub const BUFFER_BYTES: usize = PAGE_BYTES / 2;
/// Bytes of an Ethernet header.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Longest frame that is cut into segments.
pub const SEGMENTED_FRAME_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + u16::MAX as usize;

/// Feature: transport checksums are filled in.
pub(crate) const FEATURE_CHECKSUM: u64 = 1;
/// Feature: received frames may have checksums that were looked at, or never filled in.
pub(crate) const FEATURE_GUEST_CHECKSUM: u64 = 1 << 1;
/// Feature: the configuration says the longest packet.
pub(crate) const FEATURE_MTU: u64 = 1 << 3;
/// Feature: the configuration says the address.
pub(crate) const FEATURE_ADDRESS: u64 = 1 << 5;
/// Feature: TCP packets of IPv4 are cut into segments.
pub(crate) const FEATURE_SEGMENTS_IP4: u64 = 1 << 11;
/// Feature: the same of IPv6.
pub(crate) const FEATURE_SEGMENTS_IP6: u64 = 1 << 12;
/// Feature: received frames may lie in several buffers.
pub(crate) const FEATURE_MERGED_BUFFERS: u64 = 1 << 15;
/// Feature: the configuration says whether there is a link.
pub(crate) const FEATURE_STATUS: u64 = 1 << 16;
/// What a card may be asked for, besides what all devices have.
pub(crate) const FEATURES: u64 = FEATURE_CHECKSUM
    | FEATURE_GUEST_CHECKSUM
    | FEATURE_MTU
    | FEATURE_ADDRESS
    | FEATURE_SEGMENTS_IP4
    | FEATURE_SEGMENTS_IP6
    | FEATURE_MERGED_BUFFERS
    | FEATURE_STATUS;

const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;
/// Largest queue of either direction.
const QUEUE_SIZE: usize = QUEUE_SIZE_MAX;
/// The link's state in the second word of the configuration, behind the address.
const LINK_IS_UP: u32 = 1 << 16;
/// Longest packet, unless the card says otherwise.
const PACKET_BYTES_USUAL: u16 = 1500;
/// A card that says less than this is not believed (RFC 791: what every network carries).
const PACKET_BYTES_MIN: u16 = 68;
/// Bytes of a tag that a frame may have beyond its Ethernet header.
const TAG_BYTES: usize = 4;

/// Pages of the buffers of a queue of this size.
const fn pages_of(size: u16) -> usize {
    (size as usize * BUFFER_BYTES).div_ceil(PAGE_BYTES)
}

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers for frames that come in: a power of two, at most [`QUEUE_SIZE_MAX`].
    pub receive_buffer_count: u16,
    /// Buffers for frames that go out: the same.
    pub transmit_buffer_count: u16,
    /// Looks at the status register before a reset counts as failed.
    pub reset_poll_count_max: u32,
}

impl Limits {
    /// Pages that a card with these limits holds at most.
    #[must_use]
    pub const fn page_count(&self) -> usize {
        let buffers = pages_of(self.receive_buffer_count) + pages_of(self.transmit_buffer_count);
        let receive_rings = ring_page_count(self.receive_buffer_count as usize);
        buffers + receive_rings + ring_page_count(self.transmit_buffer_count as usize)
    }
}

/// A running network card.
#[derive(Debug)]
pub struct NetCard<T, D: Dma> {
    transport: T,
    dma: D,
    limits: Limits,
    features: u64,
    identity: NetIdentity,
    has_link: bool,
    receiver: Receiver<D::Buffer>,
    transmitter: Transmitter<D::Buffer>,
    /// Interrupts since the configuration was looked at.
    passed_count: u8,
    fault: Option<VirtioError>,
}

impl<T: Transport, D: Dma> NetCard<T, D> {
    /// Resets the device and sets it up.
    ///
    /// # Errors
    /// Any [`VirtioError`] but the caller's. The device has been reset then, and all memory given back (or put in
    /// quarantine).
    pub fn new(transport: T, dma: D, limits: Limits) -> Result<Self, VirtioError> {
        let card = Self {
            transport,
            dma,
            limits,
            features: 0,
            identity: NetIdentity {
                hardware_address: [0; 6],
                packet_bytes_max: PACKET_BYTES_USUAL,
                offloads: Offloads::default(),
            },
            has_link: false,
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
            passed_count: 0,
            fault: None,
        };
        device::bring_up(card, |card| card.bring_up(None), Self::stop)
    }

    /// Section 3.1.1. A card that was there `before` has to be the same again.
    fn bring_up(&mut self, before: Option<(u64, NetIdentity)>) -> Result<(), VirtioError> {
        device::reset(&mut self.transport, self.limits.reset_poll_count_max)?;
        let wanted = FEATURES | FEATURE_EVENT_INDEX | FEATURE_ACCESS_PLATFORM;
        self.features = device::negotiate(&mut self.transport, DEVICE_TYPE_NET, FEATURE_ADDRESS, wanted)?;
        self.identity = self.read_identity()?;
        if before.is_some_and(|before| before != (self.features, self.identity)) {
            return Err(DeviceFault::Changed.into());
        }
        self.receiver.merges = self.has(FEATURE_MERGED_BUFFERS);
        let uses_event_index = self.has(FEATURE_EVENT_INDEX);
        let queues = [
            (&mut self.receiver.ring, (RECEIVE_QUEUE, self.limits.receive_buffer_count)),
            (&mut self.transmitter.ring, (TRANSMIT_QUEUE, self.limits.transmit_buffer_count)),
        ];
        for (ring, queue) in queues {
            ring.make_queue(&mut self.transport, &mut self.dma, queue, uses_event_index)?;
        }
        self.receiver.ring.allocate(&mut self.dma)?;
        self.transmitter.ring.allocate(&mut self.dma)?;
        device::start(&mut self.transport)?;
        self.read_link()?;
        self.receiver.fill(&mut self.transport)
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Address, longest packet and offloads.
    fn read_identity(&self) -> Result<NetIdentity, VirtioError> {
        let [first, second] = [self.transport.config_u32(0)?, self.transport.config_u32(4)?];
        let mut hardware_address = [0; 6];
        hardware_address[..4].copy_from_slice(&first.to_le_bytes());
        hardware_address[4..].copy_from_slice(&second.to_le_bytes()[..2]);
        // An address of a group is nobody's.
        if hardware_address[0] & 1 != 0 || hardware_address == [0; 6] {
            return Err(DeviceFault::HardwareAddress.into());
        }
        let longest = match self.has(FEATURE_MERGED_BUFFERS) {
            true => u16::MAX,
            false => (BUFFER_BYTES - header::HEADER_BYTES - ETHERNET_HEADER_BYTES - TAG_BYTES) as u16,
        };
        let packet_bytes_max = match self.has(FEATURE_MTU) {
            true => Some((self.transport.config_u32(8)? >> 16) as u16).filter(|bytes| *bytes >= PACKET_BYTES_MIN),
            false => None,
        };
        let fills_checksums = self.has(FEATURE_CHECKSUM);
        Ok(NetIdentity {
            hardware_address,
            packet_bytes_max: packet_bytes_max.unwrap_or(PACKET_BYTES_USUAL).min(longest),
            offloads: Offloads {
                fills_checksums,
                checks_checksums: self.has(FEATURE_GUEST_CHECKSUM),
                segments_ip4: fills_checksums && self.has(FEATURE_SEGMENTS_IP4),
                segments_ip6: fills_checksums && self.has(FEATURE_SEGMENTS_IP6),
            },
        })
    }

    fn read_link(&mut self) -> Result<(), VirtioError> {
        self.has_link = !self.has(FEATURE_STATUS) || self.transport.config_u32(4)? & LINK_IS_UP != 0;
        Ok(())
    }

    /// Clears the interrupt's cause and lets the next one through, in this order; what its caller does next is to look
    /// at both directions. A change of the link is seen here.
    ///
    /// # Errors
    /// Those of [`Transport`] and [`Irq`]; [`DeviceFault::NeedsReset`].
    pub fn acknowledge(&mut self, irq: &mut impl Irq) -> Result<(), VirtioError> {
        self.attempt(|card| {
            let cause = card.transport.acknowledge_interrupt()?;
            irq.unmask()?;
            let queues = [card.receiver.ring.queue(), card.transmitter.ring.queue()];
            let has_used = queues.into_iter().flatten().any(|queue| queue.has_used().unwrap_or(true));
            if cause.is_worth_a_look(has_used, &mut card.passed_count) {
                if device::needs_reset(&card.transport)? {
                    return Err(DeviceFault::NeedsReset.into());
                }
                card.read_link()?;
            }
            Ok(())
        })
    }

    /// Resets the device, waits until it has stopped, and only then gives the memory back.
    pub fn stop(self) -> Stopped<T, D> {
        let (receiver, transmitter) = (self.receiver, self.transmitter);
        device::stop((self.transport, self.dma), self.limits.reset_poll_count_max, |mut give_back| {
            receiver.ring.into_buffers(&mut give_back);
            transmitter.ring.into_buffers(&mut give_back);
        })
    }

    /// The longest frame of this kind; `None`: the card cannot do what is asked of it.
    fn frame_bytes_max(&self, meta: &TransmitMeta) -> Option<usize> {
        let Offloads { fills_checksums, segments_ip4, segments_ip6, .. } = self.identity.offloads;
        let is_segmented = meta.segmentation.map(|segmentation| match segmentation.is_ip6 {
            true => segments_ip6 && segmentation.payload_bytes > 0,
            false => segments_ip4 && segmentation.payload_bytes > 0,
        });
        match (is_segmented, meta.checksum.is_some()) {
            (Some(true), true) => Some(SEGMENTED_FRAME_BYTES_MAX),
            (None, sums) if fills_checksums || !sums => {
                Some(ETHERNET_HEADER_BYTES + TAG_BYTES + usize::from(self.identity.packet_bytes_max))
            }
            _ => None,
        }
    }

    /// What `action` says, unless the card has failed, which every error makes it.
    fn attempt<V>(&mut self, action: impl FnOnce(&mut Self) -> Result<V, VirtioError>) -> Result<V, VirtioError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = action(self);
        self.fault = result.as_ref().err().copied();
        result
    }

    /// Asks for an interrupt of a queue, or for none. True: what was asked for is there already.
    fn ask<B: DmaBuffer>(transport: &mut T, ring: &mut Ring<B>, is_wished: bool) -> Result<bool, VirtioError> {
        let Some(queue) = ring.queue_mut() else { return Ok(false) };
        if !is_wished {
            return queue.set_interrupts(Interrupts::Suppressed).map(|()| false);
        }
        if queue.interrupts() == Interrupts::Suppressed {
            queue.set_interrupts(Interrupts::Wanted)?;
            transport.interrupts_wanted(queue.index())?;
        }
        queue.has_used()
    }
}

impl<T: Transport, D: Dma> NetDevice for NetCard<T, D> {
    type Buffer = D::Buffer;
    type Error = VirtioError;

    fn identity(&self) -> NetIdentity {
        self.identity
    }

    fn has_link(&self) -> bool {
        self.has_link && self.fault.is_none()
    }

    fn statistics(&self) -> NetStatistics {
        NetStatistics {
            received_count: self.receiver.received_count,
            received_bytes: self.receiver.received_bytes,
            receive_error_count: self.receiver.error_count,
            sent_count: self.transmitter.sent_count,
            sent_bytes: self.transmitter.sent_bytes,
            full_count: self.transmitter.full_count,
            notification_count: self.receiver.ring.notification_count + self.transmitter.ring.notification_count,
        }
    }

    fn has_received(&self) -> bool {
        let queue = self.receiver.ring.queue();
        self.fault.is_none() && queue.is_some_and(|queue| queue.has_used().unwrap_or(true))
    }

    fn receive(&mut self, budget: u32, sink: &mut impl FnMut(&Received<'_, D::Buffer>)) -> Result<u32, VirtioError> {
        self.attempt(|card| card.receiver.receive(&mut card.transport, budget, sink))
    }

    fn room(&self) -> usize {
        self.transmitter.room()
    }

    fn transmit(&mut self, frame: &Frame<'_>, window: &impl DmaWindow) -> Result<(), TransmitError<VirtioError>> {
        if let Some(fault) = self.fault {
            return Err(TransmitError::Broken(fault));
        }
        let byte_count_max = self.frame_bytes_max(&frame.meta).ok_or(TransmitError::Frame)?;
        self.transmitter.transmit(&mut self.transport, frame, window, byte_count_max).inspect_err(|error| {
            if let TransmitError::Broken(fault) = error {
                self.fault = Some(*fault);
            }
        })
    }

    fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, VirtioError> {
        self.attempt(|card| card.transmitter.completed(done))
    }

    fn flush(&mut self) -> Result<(), VirtioError> {
        self.attempt(|card| {
            card.transmitter.ring.publish(&mut card.transport)?;
            card.receiver.ring.publish(&mut card.transport)
        })
    }

    fn ask_for_interrupt(&mut self, wishes: Wishes) -> Result<bool, VirtioError> {
        self.flush()?;
        self.attempt(|card| {
            let is_there = [
                Self::ask(&mut card.transport, &mut card.receiver.ring, wishes.received)?,
                Self::ask(&mut card.transport, &mut card.transmitter.ring, wishes.completed)?,
            ];
            Ok(is_there.contains(&true))
        })
    }

    fn reset(&mut self) -> Result<(), VirtioError> {
        let before = (self.features, self.identity);
        self.fault = Some(DeviceFault::ResetTimeout.into());
        self.transmitter.lose();
        let result = self.bring_up(Some(before));
        (self.features, self.identity) = before;
        self.fault = result.err();
        result
    }
}
