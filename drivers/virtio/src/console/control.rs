//! The control queues: messages about ports, both ways (section 5.3.6.2).
//!
//! Received messages change [`Port`] state at once. Answers are not queued but *owed*, as two flags
//! of the port: so a device that floods the driver with announcements makes it neither store nor
//! send more than two messages per port at a time.

use aegis_hal::{Dma, DmaBuffer};

use super::port::Port;
use super::{CONTROL_RECEIVE_QUEUE, CONTROL_TRANSMIT_QUEUE, Events, PortState};
use crate::queue::{Interrupts, Queue, Segment};
use crate::{Transport, VirtioError};

/// Messages under way in each direction: as many as QEMU allows.
const MESSAGE_COUNT: usize = 32;
/// Bytes kept of a received message: header and the longest name that fits.
const RECEIVE_BYTES: usize = 128;
/// Messages that a device sends at most in answer to one `PORT_READY`: console port, name, open.
const ANSWER_COUNT_MAX: usize = 3;
/// Two rings, a page of receive buffers, a page of transmit buffers.
pub(super) const PAGE_COUNT: usize = 4;

const _: () = assert!(MESSAGE_COUNT * RECEIVE_BYTES <= aegis_hal::PAGE_BYTES);
const _: () = assert!(super::PORT_COUNT_MAX * ANSWER_COUNT_MAX <= MESSAGE_COUNT);

/// Events, section 5.3.6.2.
pub(crate) mod event {
    pub(crate) const DEVICE_READY: u16 = 0;
    pub(crate) const PORT_ADD: u16 = 1;
    pub(crate) const PORT_REMOVE: u16 = 2;
    pub(crate) const PORT_READY: u16 = 3;
    pub(crate) const CONSOLE_PORT: u16 = 4;
    pub(crate) const RESIZE: u16 = 5;
    pub(crate) const PORT_OPEN: u16 = 6;
    pub(crate) const PORT_NAME: u16 = 7;
}

/// `struct virtio_console_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) port: u32,
    pub(crate) event: u16,
    pub(crate) value: u16,
}

impl Header {
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.port.to_le_bytes();
        let [e, f] = self.event.to_le_bytes();
        let [g, h] = self.value.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// The header and what follows it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[a, b, c, d, e, f, g, h], rest) = bytes.split_first_chunk()?;
        let header = Self {
            port: u32::from_le_bytes([a, b, c, d]),
            event: u16::from_le_bytes([e, f]),
            value: u16::from_le_bytes([g, h]),
        };
        Some((header, rest))
    }
}

/// Both control queues and their buffers.
///
/// Buffer `slot` of a page is `slot` times the message size from its start; bit `slot` of an idle
/// mask says that the device does not have it.
#[derive(Debug)]
pub(super) struct Control<B> {
    pub(super) receive: Option<Queue<B, MESSAGE_COUNT>>,
    pub(super) transmit: Option<Queue<B, MESSAGE_COUNT>>,
    receive_page: Option<B>,
    transmit_page: Option<B>,
    receive_idle: u32,
    transmit_idle: u32,
    /// Slot by head descriptor.
    receive_slots: [u8; MESSAGE_COUNT],
    transmit_slots: [u8; MESSAGE_COUNT],
    pub(super) ignored_count: u32,
}

impl<B> Control<B> {
    pub(super) const fn new() -> Self {
        Self {
            receive: None,
            transmit: None,
            receive_page: None,
            transmit_page: None,
            receive_idle: 0,
            transmit_idle: 0,
            receive_slots: [0; MESSAGE_COUNT],
            transmit_slots: [0; MESSAGE_COUNT],
            ignored_count: 0,
        }
    }
}

/// Mask of the slots of a queue of `size`.
const fn slot_mask(size: u16) -> u32 {
    if size >= 32 { u32::MAX } else { (1 << size) - 1 }
}

impl<B: DmaBuffer> Control<B> {
    pub(super) fn allocate_buffers(&mut self, dma: &mut impl Dma<Buffer = B>) -> Result<(), VirtioError> {
        self.receive_page = Some(dma.allocate(1)?);
        self.transmit_page = Some(dma.allocate(1)?);
        self.receive_idle = slot_mask(self.receive.as_ref().map_or(0, Queue::size));
        self.transmit_idle = slot_mask(self.transmit.as_ref().map_or(0, Queue::size));
        Ok(())
    }

    /// Gives the device all receive buffers and says that the driver is there. It answers by
    /// announcing its ports.
    pub(super) fn start(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        if let Some(queue) = &mut self.transmit {
            // Buffers for sending are collected when the next message is sent.
            queue.set_interrupts(Interrupts::Suppressed)?;
        }
        self.give_receive_buffers(transport)?;
        // The port number means nothing here.
        self.push_message(Header { port: 0, event: event::DEVICE_READY, value: 1 })?;
        self.publish_messages(transport)
    }

    /// Takes in all messages that have come.
    pub(super) fn receive_messages(&mut self, ports: &mut [Port<B>], events: &mut Events) -> Result<(), VirtioError> {
        // At most as many turns as there are buffers: they are given back later.
        while let Some(used) = pop(&mut self.receive)? {
            let slot = self.receive_slots[usize::from(used.head)];
            self.receive_idle |= 1 << slot;
            let Some(page) = &self.receive_page else {
                break;
            };
            let mut bytes = [0; RECEIVE_BYTES];
            page.copy_out(usize::from(slot) * RECEIVE_BYTES, &mut bytes)?;
            let length = RECEIVE_BYTES.min(used.written_bytes as usize);
            let is_understood = Header::decode(&bytes[..length])
                .is_some_and(|(header, rest)| take_message(header, rest, ports, events));
            if !is_understood {
                self.ignored_count = self.ignored_count.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Sends what ports owe, all in one notification, as far as there are buffers; and gives
    /// receive buffers back when the device may run short of them.
    pub(super) fn send_owed(
        &mut self,
        transport: &mut impl Transport,
        ports: &mut [Port<B>],
    ) -> Result<(), VirtioError> {
        let ready_count = ports.iter().filter(|port| port.owes_ready).count();
        let open_count = ports.iter().filter(|port| port.owes_open).count();
        let size = self.receive.as_ref().map_or(0, |queue| usize::from(queue.size()));
        let with_device = size - self.receive_idle.count_ones() as usize;
        let answer_count = ANSWER_COUNT_MAX * ready_count;
        if with_device < size.div_ceil(2).max(answer_count.min(size)) {
            self.give_receive_buffers(transport)?;
        }
        if ready_count + open_count == 0 {
            return Ok(());
        }
        self.reap_messages()?;
        for (number, port) in (0..).zip(ports.iter_mut()) {
            // Ready before open, and both ports' order kept: the device reads the queue in order.
            if port.owes_ready {
                let header = Header { port: number, event: event::PORT_READY, value: 1 };
                port.owes_ready = !self.push_message(header)?;
            }
            if port.owes_open && !port.owes_ready {
                let header = Header { port: number, event: event::PORT_OPEN, value: 1 };
                port.owes_open = !self.push_message(header)?;
            }
        }
        self.publish_messages(transport)
    }

    pub(super) fn into_buffers(self, give_back: &mut impl FnMut(B)) {
        let rings = [self.receive, self.transmit].map(|queue| queue.map(Queue::into_ring));
        let pages = [self.receive_page, self.transmit_page];
        rings.into_iter().chain(pages).flatten().for_each(give_back);
    }

    fn give_receive_buffers(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        let (Some(queue), Some(page)) = (&mut self.receive, &self.receive_page) else {
            return Ok(());
        };
        while self.receive_idle != 0 {
            let slot = self.receive_idle.trailing_zeros() as usize;
            let head = queue.push(&[Segment::Writable {
                address: page.device_address().offset(slot * RECEIVE_BYTES),
                length_bytes: RECEIVE_BYTES as u32,
            }])?;
            self.receive_slots[usize::from(head)] = slot as u8;
            self.receive_idle &= self.receive_idle - 1;
        }
        if queue.publish()? {
            transport.notify(CONTROL_RECEIVE_QUEUE)?;
        }
        Ok(())
    }

    /// Queues one message; false if no buffer is free.
    fn push_message(&mut self, header: Header) -> Result<bool, VirtioError> {
        let (Some(queue), Some(page)) = (&mut self.transmit, &mut self.transmit_page) else {
            return Ok(false);
        };
        if self.transmit_idle == 0 {
            return Ok(false);
        }
        let slot = self.transmit_idle.trailing_zeros() as usize;
        let offset = slot * Header::BYTES;
        page.copy_in(offset, &header.encode())?;
        let head = queue.push(&[Segment::Readable {
            address: page.device_address().offset(offset),
            length_bytes: Header::BYTES as u32,
        }])?;
        self.transmit_slots[usize::from(head)] = slot as u8;
        self.transmit_idle &= self.transmit_idle - 1;
        Ok(true)
    }

    fn publish_messages(&mut self, transport: &mut impl Transport) -> Result<(), VirtioError> {
        if let Some(queue) = &mut self.transmit
            && queue.publish()?
        {
            transport.notify(CONTROL_TRANSMIT_QUEUE)?;
        }
        Ok(())
    }

    fn reap_messages(&mut self) -> Result<(), VirtioError> {
        while let Some(used) = pop(&mut self.transmit)? {
            self.transmit_idle |= 1 << self.transmit_slots[usize::from(used.head)];
        }
        Ok(())
    }
}

fn pop<B: DmaBuffer, const N: usize>(queue: &mut Option<Queue<B, N>>) -> Result<Option<crate::Used>, VirtioError> {
    queue.as_mut().map_or(Ok(None), Queue::pop)
}

/// Acts on one message. False if it made no sense, and nothing was done.
fn take_message<B>(header: Header, rest: &[u8], ports: &mut [Port<B>], events: &mut Events) -> bool {
    let number = header.port as usize;
    let Some(port) = ports.get_mut(number) else {
        return false;
    };
    if header.event == event::PORT_ADD {
        if port.is_announced() {
            return false;
        }
        port.announce();
        events.changed.insert(number);
        return true;
    }
    if !port.is_announced() {
        return false;
    }
    match header.event {
        event::PORT_REMOVE => port.state = PortState::Removed,
        event::PORT_OPEN if header.value == 0 => port.state = PortState::Closed,
        event::PORT_OPEN => port.state = PortState::Open,
        event::PORT_NAME => {
            let length = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
            if !port.set_name(&rest[..length]) {
                return false;
            }
        }
        // Section 5.3.6.2: must be answered by opening the port. What a terminal is, is not the
        // driver's business.
        event::CONSOLE_PORT => port.owes_open = true,
        event::RESIZE => {}
        _ => return false,
    }
    if !matches!(header.event, event::CONSOLE_PORT | event::RESIZE) {
        events.changed.insert(number);
    }
    true
}
