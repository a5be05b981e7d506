//! A card: started, stopped and asked.
//!
//! Interrupts: the mask is the record of what was asked for. Taking an interrupt masks all causes but the link's, so a
//! frame interrupts once for each time that it was asked for. Before asking, old causes are cleared: they are of frames
//! that were seen on the way. Causes are read once for each interrupt, and written back where the card does not clear
//! them by that (82574L with messages).
//!
//! Multicast: the card takes frames to all groups, and the stack sorts them out. Its table would have to follow every
//! group that is joined, and has collisions all the same.

use aegis_hal::net::{
    DmaWindow, Frame, NetDevice, NetIdentity, NetStatistics, Offloads, Received, TransmitError, TransmitMeta, Wishes,
};
use aegis_hal::{Dma, Irq, PAGE_BYTES, Volatile};

use crate::receive::Receiver;
use crate::registers::{self as reg, WINDOW_BYTES};
use crate::ring::{Ring, page_counts};
use crate::transmit::Transmitter;
use crate::{CardFault, E1000Error};

/// Bytes of a buffer.
pub const BUFFER_BYTES: usize = PAGE_BYTES / 2;
/// Most descriptors of a direction.
pub const RING_SIZE_MAX: usize = 256;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER_BYTES: usize = 14;
/// Bytes of a tag that a frame may have beyond it.
const TAG_BYTES: usize = 4;
/// Longest packet.
const PACKET_BYTES_MAX: u16 = 1500;
/// Longest frame that is cut into segments.
const SEGMENTED_FRAME_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + u16::MAX as usize;
/// Least time between interrupts: 50 us, in units of 256 ns.
const INTERRUPT_INTERVAL: u32 = 195;
/// Interrupts in a row that bring nothing, until a card's line counts as stuck: one that was asked for, and met frames
/// that were seen on the way, is followed by those frames.
const VAIN_COUNT_MAX: u32 = 10_000;
const VENDOR: u16 = 0x8086;

/// Which card it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// 82540EM, on PCI.
    Pci82540,
    /// 82574L, on PCI Express.
    Express82574,
}

impl Model {
    /// The card with these identifiers of PCI, if it is one.
    #[must_use]
    pub const fn of(vendor: u16, device: u16) -> Option<Self> {
        match (vendor, device) {
            (VENDOR, 0x100e) => Some(Self::Pci82540),
            (VENDOR, 0x10d3) => Some(Self::Express82574),
            _ => None,
        }
    }

    /// What is asked of it. QEMU's 82574L (7.2) cuts segments as fragments of IP, and those of IPv6 wrongly.
    const fn offloads(self) -> Offloads {
        let segments = matches!(self, Self::Pci82540);
        Offloads { fills_checksums: true, checks_checksums: true, segments_ip4: segments, segments_ip6: segments }
    }
}

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers for frames that come in: a power of two, from 8 to [`RING_SIZE_MAX`].
    pub receive_buffer_count: u16,
    /// Buffers for frames that go out: the same.
    pub transmit_buffer_count: u16,
    /// Looks at a register before a wait counts as failed.
    pub reset_poll_count_max: u32,
}

impl Limits {
    /// Pages that a card with these limits holds.
    #[must_use]
    pub const fn page_count(&self) -> usize {
        let [receive, receive_buffers] = page_counts(self.receive_buffer_count);
        let [transmit, transmit_buffers] = page_counts(self.transmit_buffer_count);
        receive + receive_buffers + transmit + transmit_buffers
    }
}

/// A running network card.
#[derive(Debug)]
pub struct NetCard<V, D: Dma> {
    model: Model,
    registers: V,
    dma: D,
    limits: Limits,
    hardware_address: [u8; 6],
    has_link: bool,
    /// Causes that interrupt.
    mask: u32,
    /// Interrupts since something has happened.
    vain_count: u32,
    receiver: Receiver<D::Buffer>,
    transmitter: Transmitter<D::Buffer>,
    fault: Option<E1000Error>,
}

/// What is left of a card that was stopped.
#[derive(Debug)]
pub struct Stopped<V, D> {
    /// Its registers; a new driver can be made of them.
    pub registers: V,
    /// The allocator.
    pub dma: D,
    /// `Err` if the card did not stop; then its buffers are in quarantine ([`Dma::quarantine`]).
    pub outcome: Result<(), E1000Error>,
}

impl<V: Volatile, D: Dma> NetCard<V, D> {
    /// Resets the card and sets it up. `registers` are its first region.
    ///
    /// # Errors
    /// Any [`E1000Error`]. The card has been reset then, and all memory given back (or put in quarantine).
    pub fn new(model: Model, registers: V, dma: D, limits: Limits) -> Result<Self, E1000Error> {
        let mut card = Self {
            model,
            registers,
            dma,
            limits,
            hardware_address: [0; 6],
            has_link: false,
            mask: 0,
            vain_count: 0,
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
            fault: None,
        };
        aegis_hal::check_range(0, WINDOW_BYTES, card.registers.length_bytes())?;
        match card.bring_up(None) {
            Ok(()) => Ok(card),
            Err(error) => {
                card.stop();
                Err(error)
            }
        }
    }

    /// Stops a card that somebody else has left at work, as far as it answers: before it may reach memory again.
    ///
    /// # Errors
    /// [`E1000Error::Window`].
    pub fn quiet(registers: &mut V) -> Result<(), E1000Error> {
        registers.write_u32(reg::IMC, u32::MAX)?;
        for register in [reg::RCTL, reg::TCTL] {
            // One that does not answer reads as ones.
            if !matches!(registers.read_u32(register)?, 0 | u32::MAX) {
                registers.write_u32(register, 0)?;
            }
        }
        Ok(())
    }

    fn is_express(&self) -> bool {
        self.model == Model::Express82574
    }

    /// The order of the manuals' section on initialisation. A card that was there `before` has to be the same again.
    fn bring_up(&mut self, before: Option<[u8; 6]>) -> Result<(), E1000Error> {
        self.rest()?;
        self.hardware_address = self.read_address()?;
        if before.is_some_and(|before| before != self.hardware_address) {
            return Err(CardFault::Changed.into());
        }
        if self.receiver.ring.is_none() {
            self.receiver.ring = Some(Ring::allocate(&mut self.dma, 0, self.limits.receive_buffer_count)?);
        }
        if self.transmitter.ring.is_none() {
            self.transmitter.ring = Some(Ring::allocate(&mut self.dma, 1, self.limits.transmit_buffer_count)?);
        }
        self.set_link_up()?;
        self.write_addresses()?;
        for register in reg::FLOW_CONTROL.into_iter().chain(reg::DELAYS) {
            self.registers.write_u32(register, 0)?;
        }
        self.write_model()?;
        self.receiver.fill()?;
        let rings = [(&self.receiver.ring, reg::RECEIVE_RING), (&self.transmitter.ring, reg::TRANSMIT_RING)];
        for (ring, base) in rings {
            if let Some(ring) = ring {
                ring.announce(&mut self.registers, base)?;
            }
        }
        self.registers.write_u32(reg::RXCSUM, reg::RXCSUM_IP_AND_TRANSPORT)?;
        self.registers.write_u32(reg::ITR, INTERRUPT_INTERVAL)?;
        // Once: QEMU's 82540EM takes no frames for a second of its own time after each store.
        let receive = reg::RCTL_ENABLE | reg::RCTL_ALL_GROUPS | reg::RCTL_BROADCAST | reg::RCTL_STRIP_CHECK;
        self.registers.write_u32(reg::RCTL, receive)?;
        self.receiver.give(&mut self.registers)?;
        let extra = if self.is_express() { reg::TCTL_MULTIPLE_REQUESTS } else { 0 };
        self.registers.write_u32(reg::TCTL, reg::TCTL_ENABLE | reg::TCTL_PAD | reg::TCTL_COLLISIONS | extra)?;
        self.read_link()?;
        self.set_mask(reg::CAUSE_LINK | self.extra(reg::CAUSE_OTHER))
    }

    /// Stops both directions, waits until the card leaves memory alone, and resets it. Not every card's reset clears
    /// every register, so what counts is written later all the same.
    fn rest(&mut self) -> Result<(), E1000Error> {
        Self::quiet(&mut self.registers)?;
        self.mask = 0;
        let control = self.registers.read_u32(reg::CTRL)?;
        if control == u32::MAX {
            return Err(CardFault::Gone.into());
        }
        if self.is_express() {
            self.registers.write_u32(reg::CTRL, control | reg::CTRL_GIO_DISABLE)?;
            self.wait(reg::STATUS, |status| status & reg::STATUS_GIO_ENABLED == 0)?;
        }
        self.registers.write_u32(reg::CTRL, control | reg::CTRL_RESET)?;
        self.wait(reg::CTRL, |control| control & reg::CTRL_RESET == 0)?;
        self.registers.write_u32(reg::IMC, u32::MAX)?;
        // A card that resets less than it says would go on with the rings that it knew.
        let is_running = self.registers.read_u32(reg::RCTL)? & reg::RCTL_ENABLE != 0
            || self.registers.read_u32(reg::TCTL)? & reg::TCTL_ENABLE != 0;
        if is_running {
            return Err(CardFault::ResetTimeout.into());
        }
        self.take_causes().map(|_| ())
    }

    /// Looks at a register until it is as wanted.
    fn wait(&self, register: usize, is_wanted: impl Fn(u32) -> bool) -> Result<(), E1000Error> {
        for _ in 0..=self.limits.reset_poll_count_max {
            match self.registers.read_u32(register)? {
                u32::MAX => return Err(CardFault::Gone.into()),
                value if is_wanted(value) => return Ok(()),
                _ => core::hint::spin_loop(),
            }
        }
        Err(CardFault::ResetTimeout.into())
    }

    /// The address that the card has loaded from its memory, or what is there.
    fn read_address(&mut self) -> Result<[u8; 6], E1000Error> {
        let (low, high) = (self.registers.read_u32(reg::RAL)?, self.registers.read_u32(reg::RAH)?);
        let mut address = [0; 6];
        address[..4].copy_from_slice(&low.to_le_bytes());
        address[4..].copy_from_slice(&high.to_le_bytes()[..2]);
        if high & reg::RAH_VALID == 0 || !is_of_one(address) {
            for (word, bytes) in (0..).zip(address.chunks_mut(2)) {
                bytes.copy_from_slice(&self.read_memory(word)?.to_le_bytes());
            }
        }
        if is_of_one(address) { Ok(address) } else { Err(CardFault::HardwareAddress.into()) }
    }

    /// A word of the card's own memory.
    fn read_memory(&mut self, word: u32) -> Result<u16, E1000Error> {
        let (address_shift, done) = if self.is_express() { (2, 1 << 1) } else { (8, 1 << 4) };
        self.registers.write_u32(reg::EERD, word << address_shift | reg::EERD_START)?;
        self.wait(reg::EERD, |value| value & done != 0)?;
        Ok((self.registers.read_u32(reg::EERD)? >> 16) as u16)
    }

    fn write_addresses(&mut self) -> Result<(), E1000Error> {
        let [a, b, c, d, e, f] = self.hardware_address;
        self.registers.write_u32(reg::RAL, u32::from_le_bytes([a, b, c, d]))?;
        self.registers.write_u32(reg::RAH, u32::from(u16::from_le_bytes([e, f])) | reg::RAH_VALID)?;
        for index in 1..reg::ADDRESS_COUNT {
            self.registers.write_u32(reg::RAH + 8 * index, 0)?;
        }
        Ok(())
    }

    fn set_link_up(&mut self) -> Result<(), E1000Error> {
        let cleared = reg::CTRL_GIO_DISABLE | reg::CTRL_LINK_RESET | reg::CTRL_INVERT_LOSS | reg::CTRL_PHY_RESET;
        let control = self.registers.read_u32(reg::CTRL)? & !cleared | reg::CTRL_SET_LINK_UP;
        Ok(self.registers.write_u32(reg::CTRL, control)?)
    }

    /// What the two models have different.
    fn write_model(&mut self) -> Result<(), E1000Error> {
        if !self.is_express() {
            self.registers.write_u32(reg::TIPG, reg::TIPG_82540)?;
            return Ok(self.registers.write_u32(reg::TXDCTL, reg::TXDCTL_82540)?);
        }
        self.registers.write_u32(reg::TIPG, reg::TIPG_82574)?;
        self.registers.write_u32(reg::TXDCTL, reg::TXDCTL_82574)?;
        let arbitration = self.registers.read_u32(reg::TARC)? & !reg::TARC_ERRATA_CLEAR;
        self.registers.write_u32(reg::TARC, arbitration | reg::TARC_ERRATA_SET | reg::TARC_ENABLE)?;
        for register in [reg::EIAC, reg::RFCTL, reg::MRQC] {
            self.registers.write_u32(register, 0)?;
        }
        Ok(self.registers.write_u32(reg::IVAR, reg::IVAR_ALL_FIRST)?)
    }

    fn read_link(&mut self) -> Result<(), E1000Error> {
        let status = self.registers.read_u32(reg::STATUS)?;
        if status == u32::MAX {
            return Err(CardFault::Gone.into());
        }
        self.has_link = status & reg::STATUS_LINK_UP != 0;
        Ok(())
    }

    /// A cause that only the 82574L has.
    fn extra(&self, cause: u32) -> u32 {
        if self.is_express() { cause } else { 0 }
    }

    /// Reads the causes, once, and clears them.
    fn take_causes(&mut self) -> Result<u32, E1000Error> {
        let causes = self.registers.read_u32(reg::ICR)?;
        if causes == u32::MAX {
            return Err(CardFault::Gone.into());
        }
        if self.is_express() && causes != 0 {
            self.registers.write_u32(reg::ICR, causes)?;
        }
        Ok(causes)
    }

    /// Lets these causes interrupt, and no others.
    fn set_mask(&mut self, mask: u32) -> Result<(), E1000Error> {
        let (added, removed) = (mask & !self.mask, self.mask & !mask);
        self.mask = mask;
        if removed != 0 {
            self.registers.write_u32(reg::IMC, removed)?;
        }
        if added != 0 {
            self.registers.write_u32(reg::IMS, added)?;
        }
        Ok(())
    }

    /// Clears the interrupt's cause and lets the next one through, in this order; what its caller does next is to look
    /// at both directions. A change of the link is seen here.
    ///
    /// # Errors
    /// [`CardFault::Gone`], [`CardFault::Storm`]; those of [`Irq`]. The interrupt stays masked then.
    pub fn acknowledge(&mut self, irq: &mut impl Irq) -> Result<(), E1000Error> {
        self.attempt(|card| {
            let causes = card.take_causes()?;
            card.set_mask(reg::CAUSE_LINK | card.extra(reg::CAUSE_OTHER))?;
            card.vain_count += 1;
            if causes & reg::CAUSE_LINK != 0 {
                card.read_link()?;
            }
            if card.vain_count > VAIN_COUNT_MAX {
                return Err(CardFault::Storm.into());
            }
            irq.unmask()?;
            Ok(())
        })
    }

    /// Stops the card, and only then gives the memory back.
    pub fn stop(mut self) -> Stopped<V, D> {
        let outcome = self.rest();
        let rings = [self.receiver.ring.take(), self.transmitter.ring.take()];
        for buffer in rings.into_iter().flatten().flat_map(Ring::into_buffers) {
            match outcome {
                Ok(()) => self.dma.release(buffer),
                Err(_) => self.dma.quarantine(buffer),
            }
        }
        Stopped { registers: self.registers, dma: self.dma, outcome }
    }

    /// The longest frame of this kind; `None`: the card cannot do what is asked of it.
    fn frame_bytes_max(&self, meta: &TransmitMeta) -> Option<usize> {
        let offloads = self.model.offloads();
        match (meta.segmentation, meta.checksum) {
            (None, _) => Some(ETHERNET_HEADER_BYTES + TAG_BYTES + usize::from(PACKET_BYTES_MAX)),
            (Some(cut), Some(_)) => {
                let can_cut = if cut.is_ip6 { offloads.segments_ip6 } else { offloads.segments_ip4 };
                (can_cut && cut.payload_bytes > 0).then_some(SEGMENTED_FRAME_BYTES_MAX)
            }
            (Some(_), None) => None,
        }
    }

    /// What `action` says, unless the card has failed, which every error makes it.
    fn attempt<T>(&mut self, action: impl FnOnce(&mut Self) -> Result<T, E1000Error>) -> Result<T, E1000Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = action(self);
        self.fault = result.as_ref().err().copied();
        result
    }
}

/// Whether an address is that of a single card.
fn is_of_one(address: [u8; 6]) -> bool {
    address[0] & 1 == 0 && address != [0; 6]
}

impl<V: Volatile, D: Dma> NetDevice for NetCard<V, D> {
    type Buffer = D::Buffer;
    type Error = E1000Error;

    fn identity(&self) -> NetIdentity {
        NetIdentity {
            hardware_address: self.hardware_address,
            packet_bytes_max: PACKET_BYTES_MAX,
            offloads: self.model.offloads(),
        }
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
            notification_count: self.receiver.notification_count + self.transmitter.notification_count,
        }
    }

    fn has_received(&self) -> bool {
        self.fault.is_none() && self.receiver.has_received().unwrap_or(true)
    }

    fn receive(&mut self, budget: u32, sink: &mut impl FnMut(&Received<'_, D::Buffer>)) -> Result<u32, E1000Error> {
        self.attempt(|card| {
            let count = card.receiver.receive(&mut card.registers, budget, sink)?;
            if count > 0 {
                card.vain_count = 0;
            }
            Ok(count)
        })
    }

    fn room(&self) -> usize {
        self.transmitter.room()
    }

    fn transmit(&mut self, frame: &Frame<'_>, window: &impl DmaWindow) -> Result<(), TransmitError<E1000Error>> {
        if let Some(fault) = self.fault {
            return Err(TransmitError::Broken(fault));
        }
        let byte_count_max = self.frame_bytes_max(&frame.meta).ok_or(TransmitError::Frame)?;
        self.transmitter.transmit(&mut self.registers, frame, window, byte_count_max).inspect_err(|error| {
            if let TransmitError::Broken(fault) = error {
                self.fault = Some(*fault);
            }
        })
    }

    fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, E1000Error> {
        self.attempt(|card| {
            let count = card.transmitter.completed(done)?;
            if count > 0 {
                card.vain_count = 0;
            }
            Ok(count)
        })
    }

    fn flush(&mut self) -> Result<(), E1000Error> {
        self.attempt(|card| card.transmitter.show(&mut card.registers))
    }

    fn ask_for_interrupt(&mut self, wishes: Wishes) -> Result<bool, E1000Error> {
        self.flush()?;
        self.attempt(|card| {
            let mut mask = reg::CAUSE_LINK | card.extra(reg::CAUSE_OTHER);
            if wishes.received {
                mask |= reg::CAUSE_RECEIVED | reg::CAUSE_OVERRUN | card.extra(reg::CAUSE_RECEIVE_QUEUE);
            }
            if wishes.completed {
                mask |= reg::CAUSE_SENT | card.extra(reg::CAUSE_TRANSMIT_QUEUE);
            }
            if mask & !card.mask != 0 {
                // Of frames that were seen already; what comes from here on is seen below, or interrupts.
                let causes = card.take_causes()?;
                card.set_mask(mask)?;
                if causes & reg::CAUSE_LINK != 0 {
                    card.read_link()?;
                }
            } else {
                card.set_mask(mask)?;
            }
            aegis_hal::barrier::full();
            let is_there = [
                wishes.received && card.receiver.has_received()?,
                wishes.completed && card.transmitter.has_completed()?,
            ];
            Ok(is_there.contains(&true))
        })
    }

    fn reset(&mut self) -> Result<(), E1000Error> {
        let before = self.hardware_address;
        self.fault = Some(CardFault::ResetTimeout.into());
        self.vain_count = 0;
        let outcome = self.bring_up(Some(before));
        self.transmitter.lose();
        self.hardware_address = before;
        self.fault = outcome.err();
        outcome
    }
}
