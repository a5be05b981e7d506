//! A device model for host tests: what QEMU 7.2's virtio-serial does, in as far as a driver can see
//! it, and worse on request.
//!
//! [`FakeSerial`] is the device; [`mmio`] and [`pci`] put registers before it. It checks the driver
//! too: what a driver must not do (queues before features, chains that loop, addresses out of
//! memory) is recorded as [`DriverFault`] and not acted on.
//!
//! Two ways of running: [`Pace::Immediate`] handles a notification inside the register write, as
//! QEMU does without an accelerator; [`Pace::Stepped`] remembers it until [`FakeSerial::step`], as
//! an event loop in another thread would.
//!
//! Copied from QEMU, because a driver must live with it:
//! - a control message for which the driver left no buffer is dropped;
//! - transmitted data is consumed and dropped while the host's end is closed;
//! - received data waits on the host while the guest's end is closed or without buffers;
//! - closing from the host drops what it has not consumed.

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use aegis_hal::fake::{FakeBus, FakeIrq};

use crate::console::control_event as event;
use crate::console::{CONTROL_RECEIVE_QUEUE, CONTROL_TRANSMIT_QUEUE};
use crate::console::{ControlHeader, FEATURE_MULTIPORT, port_queues};
use crate::device::{FEATURE_ACCESS_PLATFORM, FEATURE_VERSION_1, status};
use crate::queue::{FEATURE_EVENT_INDEX, FEATURE_INDIRECT, crosses};

mod block;
mod hostile;
mod net;
mod ninep;
mod registers;

pub use block::DiskHost;
pub use hostile::Mischief;
pub use net::NetHost;
pub use ninep::Answer;
use ninep::Responder;
pub use registers::{MmioModel, PciWindowKind, PciWindowModel, mmio, pci};

/// How the model reacts to notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Immediate,
    /// At the next [`FakeSerial::step`].
    Stepped,
}

/// What a driver did that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// A register was accessed with the wrong width, or does not exist, or is of the other
    /// direction.
    Register {
        /// Its offset.
        offset: usize,
    },
    /// Status bits were set out of order or without the ones before.
    Status {
        /// The value written.
        value: u8,
    },
    /// Features that were not offered were taken.
    Features {
        /// The value written.
        value: u64,
    },
    /// A queue was set up at the wrong time, with a wrong size or a misaligned address.
    QueueSetup {
        /// The queue.
        queue: u16,
    },
    /// A notification for a queue that is not ready, or before `DRIVER_OK`.
    Notification {
        /// The queue.
        queue: u16,
    },
    /// A chain with a bad descriptor, a loop, or memory that is not the device's.
    Chain {
        /// The queue.
        queue: u16,
    },
    /// A control message about a port that does not exist, or too short.
    ControlMessage,
}

/// The device's view of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceQueue {
    pub(crate) size_max: u16,
    pub(crate) size: u16,
    pub(crate) ready: bool,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    available_index: u16,
    used_index: u16,
    /// The used index at the last decision about an interrupt.
    told_index: u16,
    notified: bool,
}

/// One piece of a chain, as the device found it.
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: u64,
    length_bytes: u32,
    writable: bool,
}

/// The host's end of a port.
#[derive(Clone, Debug, Default)]
pub struct HostPort {
    /// The port's number.
    pub number: u32,
    /// Name of the port, as the host gives it.
    pub name: Option<Vec<u8>>,
    /// A console port, about which the device sends one message more.
    pub is_console: bool,
    /// The host's end is open.
    pub host_open: bool,
    /// The guest said `PORT_OPEN`.
    pub guest_open: bool,
    /// The guest said `PORT_READY`.
    pub guest_ready: bool,
    /// Bytes that wait to be received by the guest.
    pub input: VecDeque<u8>,
    /// The host closes its end when `input` has been received.
    pub close_after_input: bool,
    /// Bytes that the guest sent.
    pub output: Vec<u8>,
    /// Bytes that the host takes before it makes the guest wait.
    pub output_room: usize,
    /// Progress in the chain that was taken last: its head and the bytes of it that are done.
    held: Option<(u16, Vec<Piece>, usize)>,
}

impl HostPort {
    /// An open port with a name.
    #[must_use]
    pub fn named(number: u32, name: &str) -> Self {
        Self {
            number,
            name: Some(name.as_bytes().to_vec()),
            host_open: true,
            output_room: usize::MAX,
            ..Self::default()
        }
    }
}

/// The device.
#[derive(Debug)]
pub struct FakeSerial {
    pub(crate) bus: FakeBus,
    /// The interrupt line.
    pub irq: FakeIrq,
    /// How notifications are handled.
    pub pace: Pace,
    /// Features offered.
    pub offered: u64,
    /// Ports, in the order of announcement.
    pub ports: Vec<HostPort>,
    /// Content of `max_nr_ports`.
    pub port_count_max: u32,
    /// What makes it a 9P device instead: its configuration, and the function that answers
    /// messages.
    responder: Option<Responder>,
    /// What makes it a network card instead.
    net: Option<NetHost>,
    /// What makes it a disk instead.
    disk: Option<DiskHost>,
    /// The reset register never reads zero again.
    pub refuses_reset: bool,
    /// `FEATURES_OK` does not stick.
    pub refuses_features: bool,
    /// Notifications received so far, by all queues.
    pub notification_count: usize,
    /// What the driver did wrong.
    pub driver_faults: Vec<DriverFault>,
    pub(crate) queues: Vec<DeviceQueue>,
    pub(crate) status: u8,
    pub(crate) accepted: u64,
    pub(crate) interrupt_status: u8,
}

/// A device that register models and the test share.
pub type SharedSerial = Rc<RefCell<FakeSerial>>;

impl FakeSerial {
    /// A device with these ports on `bus`; queue sizes are QEMU's.
    #[must_use]
    pub fn new(bus: &FakeBus, port_count_max: u32, ports: Vec<HostPort>) -> SharedSerial {
        let queue_count = 4 + 2 * (port_count_max.clamp(1, 31) as usize - 1);
        let mut queues = vec![DeviceQueue { size_max: 128, ..DeviceQueue::default() }; queue_count];
        for control in [CONTROL_RECEIVE_QUEUE, CONTROL_TRANSMIT_QUEUE] {
            queues[usize::from(control)].size_max = 32;
        }
        Rc::new(RefCell::new(Self {
            bus: bus.clone(),
            irq: FakeIrq::new(),
            pace: Pace::Immediate,
            offered: FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM | FEATURE_MULTIPORT | 1 | 1 << 29,
            ports,
            port_count_max,
            responder: None,
            net: None,
            disk: None,
            refuses_reset: false,
            refuses_features: false,
            notification_count: 0,
            driver_faults: Vec::new(),
            queues,
            status: 0,
            accepted: 0,
            interrupt_status: 0,
        }))
    }

    /// Whether the interrupt line is high.
    #[must_use]
    pub const fn is_interrupting(&self) -> bool {
        self.interrupt_status != 0
    }

    /// Lowers the interrupt line as if the driver had acknowledged everything, so that a test sees
    /// the next cause alone.
    pub fn lower_all(&mut self) {
        self.lower(u8::MAX);
        // The driver's side of it, which a test that does not handle interrupts leaves out; the
        // line is never revoked here.
        let _ = aegis_hal::Irq::unmask(&mut self.irq);
    }

    /// Gives up, as QEMU does when it finds a ring broken.
    pub fn need_reset(&mut self) {
        self.status |= status::DEVICE_NEEDS_RESET;
        self.raise(2);
    }

    /// Features that the driver took.
    #[must_use]
    pub const fn accepted_features(&self) -> u64 {
        self.accepted
    }

    /// Largest size of a queue, for tests that restrict it.
    pub fn set_queue_size_max(&mut self, queue: u16, size_max: u16) {
        self.queues[usize::from(queue)].size_max = size_max;
    }

    /// The port with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn port(&mut self, number: u32) -> &mut HostPort {
        self.ports.iter_mut().find(|port| port.number == number).expect("a port of the test")
    }

    /// The host opens its end.
    pub fn host_open(&mut self, number: u32) {
        self.port(number).host_open = true;
        self.send_control(number, event::PORT_OPEN, 1, &[]);
        self.settle();
    }

    /// The host closes its end.
    pub fn host_close(&mut self, number: u32) {
        let port = self.port(number);
        port.host_open = false;
        if let Some((head, ..)) = port.held.take() {
            self.push_used(port_queues(number as u16).1, u32::from(head), 0);
        }
        self.send_control(number, event::PORT_OPEN, 0, &[]);
        self.settle();
    }

    /// Takes a port away.
    pub fn remove_port(&mut self, number: u32) {
        self.ports.retain(|port| port.number != number);
        self.send_control(number, event::PORT_REMOVE, 1, &[]);
        self.settle();
    }

    /// One turn of the host's event loop: notifications and waiting data.
    pub fn step(&mut self) {
        for queue in 0..self.queues.len() {
            if core::mem::take(&mut self.queues[queue].notified) {
                self.handle(queue as u16);
            }
        }
        self.settle();
    }

    pub(crate) fn notify(&mut self, queue: u16) {
        self.notification_count += 1;
        let is_running = self.status & status::DRIVER_OK != 0;
        let is_ready = self.queues.get(usize::from(queue)).is_some_and(|queue| queue.ready);
        if !is_running || !is_ready {
            self.driver_faults.push(DriverFault::Notification { queue });
            return;
        }
        match self.pace {
            Pace::Stepped => self.queues[usize::from(queue)].notified = true,
            Pace::Immediate => {
                self.handle(queue);
                self.settle();
            }
        }
    }

    pub(crate) fn write_status(&mut self, value: u8) {
        if value == 0 {
            self.reset();
            return;
        }
        const ORDER: [u8; 4] = [status::ACKNOWLEDGE, status::DRIVER, status::FEATURES_OK, status::DRIVER_OK];
        let is_prefix = (1..=4).any(|count| value == ORDER[..count].iter().sum::<u8>());
        if (!is_prefix || value & self.status != self.status) && value & status::FAILED == 0 {
            self.driver_faults.push(DriverFault::Status { value });
        }
        let mut value = value;
        if value & status::FEATURES_OK != 0 && self.status & status::FEATURES_OK == 0 {
            let is_acceptable = self.accepted & !self.offered == 0;
            if !is_acceptable {
                self.driver_faults.push(DriverFault::Features { value: self.accepted });
            }
            if self.refuses_features || !is_acceptable {
                value &= !status::FEATURES_OK;
            }
        }
        self.status = value;
        self.bus.set_device_running(value & status::DRIVER_OK != 0);
    }

    fn reset(&mut self) {
        if self.refuses_reset {
            return;
        }
        self.status = 0;
        self.accepted = 0;
        self.interrupt_status = 0;
        self.irq.set_level(false);
        self.bus.set_device_running(false);
        for queue in &mut self.queues {
            *queue = DeviceQueue { size_max: queue.size_max, ..DeviceQueue::default() };
        }
        self.reset_block();
        for port in &mut self.ports {
            port.guest_open = false;
            port.guest_ready = false;
            port.held = None;
        }
    }

    pub(crate) fn set_ready(&mut self, index: u16) {
        let is_time = self.status & (status::FEATURES_OK | status::DRIVER_OK) == status::FEATURES_OK;
        let Some(queue) = self.queues.get_mut(usize::from(index)) else {
            self.driver_faults.push(DriverFault::QueueSetup { queue: index });
            return;
        };
        let is_aligned =
            queue.descriptors.is_multiple_of(16) && queue.available.is_multiple_of(2) && queue.used.is_multiple_of(4);
        let size_fits = queue.size.is_power_of_two() && queue.size <= queue.size_max;
        if !is_time || !is_aligned || !size_fits {
            self.driver_faults.push(DriverFault::QueueSetup { queue: index });
            return;
        }
        queue.ready = true;
    }

    pub(crate) fn raise(&mut self, cause: u8) {
        self.interrupt_status |= cause;
        self.irq.set_level(true);
    }

    pub(crate) fn lower(&mut self, cause: u8) {
        self.interrupt_status &= !cause;
        self.irq.set_level(self.interrupt_status != 0);
    }

    fn handle(&mut self, queue: u16) {
        match queue {
            _ if self.responder.is_some() => self.respond(queue),
            _ if self.disk.is_some() => self.serve_block(queue),
            1 if self.net.is_some() => self.take_frames(),
            _ if self.net.is_some() => {}
            // Receive queues have even numbers; new buffers are used when there is data.
            _ if queue.is_multiple_of(2) => {}
            CONTROL_TRANSMIT_QUEUE => self.handle_control(),
            _ => {
                let numbers: Vec<u32> = self.ports.iter().map(|port| port.number).collect();
                match numbers.iter().find(|&&number| port_queues(number as u16).1 == queue) {
                    Some(&number) => self.consume_output(number),
                    None => self.discard(queue),
                }
            }
        }
    }

    fn handle_control(&mut self) {
        while let Some((head, pieces)) = self.pop_available(CONTROL_TRANSMIT_QUEUE) {
            let bytes = self.gather(&pieces);
            match ControlHeader::decode(&bytes) {
                Some((header, _)) => self.take_control(header),
                None => self.driver_faults.push(DriverFault::ControlMessage),
            }
            self.push_used(CONTROL_TRANSMIT_QUEUE, u32::from(head), 0);
        }
        self.interrupt_for(CONTROL_TRANSMIT_QUEUE);
    }

    fn take_control(&mut self, header: ControlHeader) {
        if header.event == event::DEVICE_READY {
            let numbers: Vec<u32> = self.ports.iter().map(|port| port.number).collect();
            for number in numbers {
                self.send_control(number, event::PORT_ADD, 1, &[]);
            }
            return;
        }
        let Some(port) = self.ports.iter_mut().find(|port| port.number == header.port) else {
            self.driver_faults.push(DriverFault::ControlMessage);
            return;
        };
        match header.event {
            event::PORT_READY => {
                port.guest_ready = true;
                let port = port.clone();
                if port.is_console {
                    self.send_control(port.number, event::CONSOLE_PORT, 1, &[]);
                }
                if let Some(mut name) = port.name {
                    name.push(0);
                    self.send_control(port.number, event::PORT_NAME, 1, &name);
                }
                if port.host_open {
                    self.send_control(port.number, event::PORT_OPEN, 1, &[]);
                }
            }
            event::PORT_OPEN => port.guest_open = header.value != 0,
            _ => self.driver_faults.push(DriverFault::ControlMessage),
        }
    }

    /// Sends a message, or drops it as QEMU does.
    pub(crate) fn send_control(&mut self, port: u32, event: u16, value: u16, rest: &[u8]) {
        let mut bytes = ControlHeader { port, event, value }.encode().to_vec();
        bytes.extend_from_slice(rest);
        self.send_control_bytes(&bytes);
    }

    /// Sends any bytes as a message.
    pub(crate) fn send_control_bytes(&mut self, bytes: &[u8]) {
        if let Some((head, pieces)) = self.pop_available(CONTROL_RECEIVE_QUEUE) {
            self.scatter(&pieces, bytes);
            // QEMU tells the message's length also when the buffer was shorter.
            self.push_used(CONTROL_RECEIVE_QUEUE, u32::from(head), bytes.len() as u32);
            self.interrupt_for(CONTROL_RECEIVE_QUEUE);
        }
    }

    /// Moves waiting data in both directions as far as it goes.
    fn settle(&mut self) {
        self.deliver_frames();
        self.finish_block();
        let numbers: Vec<u32> = self.ports.iter().map(|port| port.number).collect();
        for number in numbers {
            self.deliver_input(number);
            if self.port(number).held.is_some() {
                self.consume_output(number);
            }
        }
    }

    fn deliver_input(&mut self, number: u32) {
        let queue = port_queues(number as u16).0;
        let mut delivered = false;
        loop {
            let port = self.port(number);
            if !port.host_open || !port.guest_open || port.input.is_empty() {
                break;
            }
            let Some((head, pieces)) = self.pop_available(queue) else {
                break;
            };
            let room: usize = pieces.iter().map(|piece| piece.length_bytes as usize).sum();
            let input = &mut self.port(number).input;
            let count = room.min(input.len());
            let bytes: Vec<u8> = input.drain(..count).collect();
            self.scatter(&pieces, &bytes);
            self.push_used(queue, u32::from(head), bytes.len() as u32);
            delivered = true;
        }
        if delivered {
            self.interrupt_for(queue);
        }
        let port = self.port(number);
        if port.close_after_input && port.input.is_empty() && port.guest_open && port.host_open {
            self.host_close(number);
        }
    }

    fn consume_output(&mut self, number: u32) {
        let queue = port_queues(number as u16).1;
        if !self.port(number).host_open {
            self.discard(queue);
            return;
        }
        loop {
            let taken = match self.port(number).held.take() {
                Some(held) => Some(held),
                None => self.pop_available(queue).map(|(head, pieces)| (head, pieces, 0)),
            };
            let Some((head, pieces, done)) = taken else {
                break;
            };
            let bytes = self.gather(&pieces);
            let port = self.port(number);
            let count = port.output_room.min(bytes.len() - done);
            port.output.extend_from_slice(&bytes[done..done + count]);
            port.output_room -= if port.output_room == usize::MAX { 0 } else { count };
            if done + count < bytes.len() {
                port.held = Some((head, pieces, done + count));
                break;
            }
            self.push_used(queue, u32::from(head), 0);
        }
        self.interrupt_for(queue);
    }

    fn discard(&mut self, queue: u16) {
        while let Some((head, _)) = self.pop_available(queue) {
            self.push_used(queue, u32::from(head), 0);
        }
        self.interrupt_for(queue);
    }

    fn read_u16(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.bus.device_read(address, &mut bytes)?;
        Some(u16::from_le_bytes(bytes))
    }

    /// The next chain that the driver made available.
    fn pop_available(&mut self, index: u16) -> Option<(u16, Vec<Piece>)> {
        let queue = *self.queues.get(usize::from(index)).filter(|queue| queue.ready)?;
        let available_index = self.read_u16(queue.available + 2)?;
        let waiting = available_index.wrapping_sub(queue.available_index);
        if waiting == 0 {
            self.ask_for_notification(&queue);
            return None;
        }
        if waiting > queue.size {
            self.driver_faults.push(DriverFault::Chain { queue: index });
            return None;
        }
        let slot = u64::from(queue.available_index % queue.size);
        let head = self.read_u16(queue.available + 4 + 2 * slot)?;
        self.queues[usize::from(index)].available_index = queue.available_index.wrapping_add(1);
        let pieces = self.read_chain(&queue, head);
        if pieces.is_none() {
            self.driver_faults.push(DriverFault::Chain { queue: index });
        }
        pieces.map(|pieces| (head, pieces))
    }

    fn read_chain(&self, queue: &DeviceQueue, head: u16) -> Option<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        // Where descriptors are, how many, and the next of them.
        let (mut table, mut count) = (queue.descriptors, queue.size);
        let mut next = Some(head);
        while let Some(descriptor) = next {
            if descriptor >= count || pieces.len() == usize::from(count) {
                return None;
            }
            let mut bytes = [0; 16];
            self.bus.device_read(table + 16 * u64::from(descriptor), &mut bytes)?;
            let (address, rest) = bytes.split_first_chunk::<8>()?;
            let &[a, b, c, d, flags, _, low, high] = rest else {
                return None;
            };
            let (address, length_bytes) = (u64::from_le_bytes(*address), u32::from_le_bytes([a, b, c, d]));
            if flags & 4 != 0 {
                // A table is a chain's only descriptor here, as QEMU's drivers have it; none is within another.
                let is_allowed = self.accepted & FEATURE_INDIRECT != 0 && table == queue.descriptors && flags == 4;
                if !is_allowed || !pieces.is_empty() || length_bytes == 0 || !length_bytes.is_multiple_of(16) {
                    return None;
                }
                (table, count) = (address, u16::try_from(length_bytes / 16).ok()?);
                next = Some(0);
                continue;
            }
            let writable = flags & 2 != 0;
            let is_out_of_order = !writable && pieces.last().is_some_and(|piece| piece.writable);
            // A device ends at an empty piece; only consoles and cards have some here.
            if is_out_of_order || length_bytes == 0 && self.disk.is_some() {
                return None;
            }
            pieces.push(Piece { address, length_bytes, writable });
            next = (flags & 1 != 0).then(|| u16::from_le_bytes([low, high]));
        }
        Some(pieces)
    }

    fn gather(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in pieces.iter().filter(|piece| !piece.writable) {
            let start = all.len();
            all.resize(start + (piece.length_bytes as usize).min(1 << 20), 0);
            // A bad address is a violation that the bus records.
            let _ = self.bus.device_read(piece.address, &mut all[start..]);
        }
        all
    }

    fn scatter(&self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces.iter().filter(|piece| piece.writable) {
            let count = bytes.len().min(piece.length_bytes as usize);
            let (now, rest) = bytes.split_at(count);
            // A bad address is a violation that the bus records.
            let _ = self.bus.device_write(piece.address, now);
            bytes = rest;
        }
    }

    pub(crate) fn push_used(&mut self, index: u16, id: u32, length_bytes: u32) {
        let Some(queue) = self.queues.get_mut(usize::from(index)).filter(|queue| queue.ready) else {
            return;
        };
        let slot = u64::from(queue.used_index % queue.size);
        queue.used_index = queue.used_index.wrapping_add(1);
        let queue = *queue;
        let mut element = [0; 8];
        element[..4].copy_from_slice(&id.to_le_bytes());
        element[4..].copy_from_slice(&length_bytes.to_le_bytes());
        // A bad address is a violation that the bus records.
        let _ = self.bus.device_write(queue.used + 4 + 8 * slot, &element);
        let _ = self.bus.device_write(queue.used + 2, &queue.used_index.to_le_bytes());
    }

    fn has_event_index(&self) -> bool {
        self.accepted & FEATURE_EVENT_INDEX != 0
    }

    /// The next chain that comes is to be told of.
    fn ask_for_notification(&self, queue: &DeviceQueue) {
        if self.has_event_index() {
            let event = queue.used + 4 + 8 * u64::from(queue.size);
            // A bad address is a violation that the bus records.
            let _ = self.bus.device_write(event, &queue.available_index.to_le_bytes());
        }
    }

    fn interrupt_for(&mut self, index: u16) {
        let has_event_index = self.has_event_index();
        let Some(queue) = self.queues.get_mut(usize::from(index)).filter(|queue| queue.ready) else {
            return;
        };
        let before = core::mem::replace(&mut queue.told_index, queue.used_index);
        let queue = *queue;
        let wants = if has_event_index {
            let event = self.read_u16(queue.available + 4 + 2 * u64::from(queue.size));
            event.is_some_and(|event| crosses(event, before, queue.used_index))
        } else {
            self.read_u16(queue.available).is_some_and(|flags| flags & 1 == 0)
        };
        if wants {
            self.raise(1);
        }
    }
}
