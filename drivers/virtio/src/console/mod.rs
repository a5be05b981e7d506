//! Virtio console with several ports (section 5.3, `VIRTIO_CONSOLE_F_MULTIPORT`): byte streams to
//! the host, found by name.
//!
//! # How it works
//!
//! Queues 2 and 3 carry control messages; each port has a queue pair of its own, so a port that is
//! stuck holds up no other. Everything is non-blocking and driven by [`Console::poll`], which may
//! be called at any time: after an interrupt ([`Console::on_interrupt`]) or in a loop.
//!
//! # What is done for speed
//!
//! A notification is a trap into the machine monitor, so there are few:
//! - The handshake takes three: empty control buffers, `DEVICE_READY`, and one batch with
//!   `PORT_READY` and `PORT_OPEN` of every port that the device has announced. (Opening a port
//!   before knowing its name is harmless: nothing is received before somebody wants it.)
//! - A port's receive buffers are allocated and given to the device when the port is first read.
//!   That notification is also what makes QEMU look at its input again, which it does not do when a
//!   port is opened.
//! - Receive buffers go back in batches of half their number.
//! - Transmission copies into buffers of a page each and notifies once per [`Console::flush`].
//!   Returned buffers are collected on the next write; the device interrupts for them only while a
//!   writer found no room.
//!
//! # Ends of a stream
//!
//! The host closing its end is a control message, which QEMU sends after the last byte.
//! [`Console::at_end`] looks at the control queue first and at the data queue after it, so that it
//! is true only when the last byte has been read.
//!
//! # Limits
//!
//! [`PORT_COUNT_MAX`] ports, [`PORT_BUFFER_COUNT_MAX`] buffers of [`BUFFER_BYTES`] each way, names
//! of [`PORT_NAME_BYTES_MAX`]. What a device announces beyond them is ignored and counted
//! ([`Console::ignored_count`]). With eight ports, the answers to one batch fit into the 32 control
//! buffers that QEMU allows; it drops what does not.

mod control;
mod port;
mod receive;
mod transmit;

use core::hint::spin_loop;

use aegis_hal::{Dma, DmaBuffer, Irq};

use crate::device::{self, FEATURE_ACCESS_PLATFORM, Stopped};
use crate::queue::Queue;
use crate::{CallerFault, DeviceFault, Transport, VirtioError, ring_page_count};

use control::Control;
// The device model speaks the same messages.
#[cfg(not(target_os = "none"))]
pub(crate) use control::{Header as ControlHeader, event as control_event};
use port::Port;

/// The device type of a console (section 5).
pub const DEVICE_TYPE_CONSOLE: u32 = 3;
/// Most ports that the driver serves.
pub const PORT_COUNT_MAX: usize = 8;
/// Most buffers of a port in each direction.
pub const PORT_BUFFER_COUNT_MAX: usize = 16;
/// Bytes in a data buffer: one page, so that memory need not be contiguous.
pub const BUFFER_BYTES: usize = aegis_hal::PAGE_BYTES;
/// Longest port name that can be found by name.
pub const PORT_NAME_BYTES_MAX: usize = 64;

/// Feature: several ports and a control queue.
pub(crate) const FEATURE_MULTIPORT: u64 = 1 << 1;
/// Offset of `max_nr_ports` in the device configuration (section 5.3.4).
pub(crate) const CONFIG_PORT_COUNT_MAX: usize = 4;

/// Queues of the control messages (section 5.3.2).
pub(crate) const CONTROL_RECEIVE_QUEUE: u16 = 2;
pub(crate) const CONTROL_TRANSMIT_QUEUE: u16 = 3;

/// The queue pair of a port: 0 and 1 for port 0; after the control queues, two each for the others.
pub(crate) const fn port_queues(port: u16) -> (u16, u16) {
    if port == 0 { (0, 1) } else { (2 + 2 * port, 3 + 2 * port) }
}

/// What the driver may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ports served, at most [`PORT_COUNT_MAX`]; those with a higher number are ignored. Each costs
    /// two queues at start.
    pub port_count_max: u8,
    /// Receive buffers of a port that is read, 1 to [`PORT_BUFFER_COUNT_MAX`].
    pub receive_buffer_count: u8,
    /// Transmit buffers of a port that is written, 1 to [`PORT_BUFFER_COUNT_MAX`]; allocated as
    /// they are needed.
    pub transmit_buffer_count: u8,
    /// Looks at the status register before a reset counts as failed.
    pub reset_poll_count_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            port_count_max: PORT_COUNT_MAX as u8,
            receive_buffer_count: 8,
            transmit_buffer_count: 16,
            reset_poll_count_max: 100_000,
        }
    }
}

impl Limits {
    /// Most pages that a console with these limits ever holds.
    #[must_use]
    pub fn page_count_max(&self) -> usize {
        let limits = self.clamped();
        let port_rings = 2 * ring_page_count(PORT_BUFFER_COUNT_MAX);
        let buffers = usize::from(limits.receive_buffer_count + limits.transmit_buffer_count);
        control::PAGE_COUNT + usize::from(limits.port_count_max) * (port_rings + buffers)
    }

    fn clamped(&self) -> Self {
        Self {
            port_count_max: self.port_count_max.clamp(1, PORT_COUNT_MAX as u8),
            receive_buffer_count: self.receive_buffer_count.clamp(1, PORT_BUFFER_COUNT_MAX as u8),
            transmit_buffer_count: self.transmit_buffer_count.clamp(1, PORT_BUFFER_COUNT_MAX as u8),
            reset_poll_count_max: self.reset_poll_count_max,
        }
    }
}

/// Names a port of one console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(u8);

impl PortId {
    /// The port with this number, as in QEMU's `nr=`; whether it exists is found out when it is
    /// used.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What is known of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// The device has not announced it.
    #[default]
    Absent,
    /// Announced; the host has not opened its end yet.
    Waiting,
    /// The host's end is open.
    Open,
    /// The host's end was open and is closed; it may open again.
    Closed,
    /// The device has removed it; it may announce it again.
    Removed,
}

/// A set of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet(u8);

impl PortSet {
    /// Whether there is none in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `port` is in it.
    #[must_use]
    pub const fn contains(self, port: PortId) -> bool {
        port.0 < 8 && self.0 & 1 << port.0 != 0
    }

    fn insert(&mut self, number: usize) {
        debug_assert!(number < PORT_COUNT_MAX);
        self.0 |= 1 << number;
    }
}

/// What a [`Console::poll`] found: the readers and writers to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Events {
    /// Ports to which data came.
    pub readable: PortSet,
    /// Ports on which a writer had found no room and now has some.
    pub writable: PortSet,
    /// Ports of which name or state changed: readers look for the end, writers for an open host.
    pub changed: PortSet,
}

impl Events {
    /// Whether nothing happened.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.readable.is_empty() && self.writable.is_empty() && self.changed.is_empty()
    }
}

/// A running console.
#[derive(Debug)]
pub struct Console<T, D: Dma> {
    transport: T,
    dma: D,
    limits: Limits,
    control: Control<D::Buffer>,
    port_count: usize,
    ports: [Port<D::Buffer>; PORT_COUNT_MAX],
    /// Ring of a queue that the device did not take. The set-up ends with the first.
    orphan: Option<D::Buffer>,
    /// Set when the device said that it cannot go on.
    fault: Option<DeviceFault>,
}

impl<T: Transport, D: Dma> Console<T, D> {
    /// Resets the device, sets it up and starts the handshake; the ports appear during later
    /// [`Console::poll`]s.
    ///
    /// # Errors
    /// Any [`VirtioError`] but the caller's. The device has been reset then, and all memory given
    /// back (or put in quarantine).
    pub fn new(transport: T, dma: D, limits: Limits) -> Result<Self, VirtioError> {
        let console = Self {
            transport,
            dma,
            limits: limits.clamped(),
            control: Control::new(),
            port_count: 0,
            ports: [const { Port::new() }; PORT_COUNT_MAX],
            orphan: None,
            fault: None,
        };
        device::bring_up(console, Self::bring_up, Self::stop)
    }

    /// Section 3.1.1, with the queues between features and `DRIVER_OK`.
    fn bring_up(&mut self) -> Result<(), VirtioError> {
        device::reset(&mut self.transport, self.limits.reset_poll_count_max)?;
        device::negotiate(&mut self.transport, DEVICE_TYPE_CONSOLE, FEATURE_MULTIPORT, FEATURE_ACCESS_PLATFORM)?;
        let device_port_count = self.transport.config_u32(CONFIG_PORT_COUNT_MAX)?;
        let port_count = device_port_count.min(u32::from(self.limits.port_count_max));
        self.control.receive = Some(self.make_queue(CONTROL_RECEIVE_QUEUE)?);
        self.control.transmit = Some(self.make_queue(CONTROL_TRANSMIT_QUEUE)?);
        for number in 0..port_count as usize {
            let (receive_queue, transmit_queue) = port_queues(number as u16);
            self.ports[number].receiver.queue = Some(self.make_queue(receive_queue)?);
            self.ports[number].transmitter.queue = Some(self.make_queue(transmit_queue)?);
            self.port_count = number + 1;
        }
        self.control.allocate_buffers(&mut self.dma)?;
        device::start(&mut self.transport)?;
        self.control.start(&mut self.transport)
    }

    /// Makes a queue of at most `N` descriptors and tells the device of it.
    fn make_queue<const N: usize>(&mut self, index: u16) -> Result<Queue<D::Buffer, N>, VirtioError> {
        let size_max = self.transport.queue_size_max(index)?.min(N as u16);
        // Sizes are powers of two; a device that says otherwise gets the next lower one.
        let Some(log2) = size_max.checked_ilog2() else {
            return Err(DeviceFault::QueueMissing { queue: index }.into());
        };
        let size = 1 << log2;
        let queue = Queue::allocate(&mut self.dma, index, size)?;
        match self.transport.enable_queue(index, size, queue.addresses()) {
            Ok(()) => Ok(queue),
            Err(error) => {
                // The device may have heard the address; `stop` gives the memory back after the
                // reset.
                self.orphan = Some(queue.into_ring());
                Err(error)
            }
        }
    }

    /// Clears the interrupt's cause, lets the next one through, and polls; in this order, so that
    /// nothing is missed.
    ///
    /// # Errors
    /// As [`Console::poll`], and [`crate::ConfigurationFault::Irq`], [`DeviceFault::NeedsReset`].
    pub fn on_interrupt(&mut self, irq: &mut impl Irq) -> Result<Events, VirtioError> {
        self.fault = device::acknowledge(&mut self.transport, irq)?.or(self.fault);
        self.poll()
    }

    /// Looks at all queues: advances the handshake, takes received data in, collects transmitted
    /// buffers that someone waits for. Without traffic it costs a memory read per queue and no
    /// trap.
    ///
    /// # Errors
    /// A [`DeviceFault`], from then on always: [`Console::stop`] and make a new one.
    pub fn poll(&mut self) -> Result<Events, VirtioError> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        let mut events = Events::default();
        self.poll_control(&mut events)?;
        for (number, port) in self.ports[..self.port_count].iter_mut().enumerate() {
            if port.receiver.harvest()? {
                events.readable.insert(number);
            }
            if port.transmitter.relieve()? {
                events.writable.insert(number);
            }
        }
        Ok(events)
    }

    /// Polls until every port of `names` is known, by name.
    ///
    /// # Errors
    /// As [`Console::poll`]; [`DeviceFault::Silent`] if some are not known after `poll_count_max`
    /// polls.
    pub fn wait_for_ports(&mut self, names: &[&[u8]], poll_count_max: u32) -> Result<(), VirtioError> {
        for _ in 0..poll_count_max {
            let _ = self.poll()?;
            if names.iter().all(|name| self.port_by_name(name).is_some()) {
                return Ok(());
            }
            spin_loop();
        }
        Err(DeviceFault::Silent.into())
    }

    /// The port that the host named `name`, or `name` with `@` and anything behind it: a monitor that has several
    /// consoles wants other names for each (QEMU), and they need not matter to the driver of one.
    #[must_use]
    pub fn port_by_name(&self, name: &[u8]) -> Option<PortId> {
        let is_named = |port: &Port<D::Buffer>| {
            let rest = port.name().and_then(|own| own.strip_prefix(name));
            port.is_announced() && rest.is_some_and(|rest| matches!(rest, [] | [b'@', ..]))
        };
        let number = self.ports[..self.port_count].iter().position(is_named)?;
        Some(PortId(number as u8))
    }

    /// What is known of a port as of the last poll.
    #[must_use]
    pub fn state(&self, port: PortId) -> PortState {
        self.ports.get(usize::from(port.0)).map_or(PortState::Absent, |port| port.state)
    }

    /// Whether the host's end is open as of the last poll.
    #[must_use]
    pub fn is_open(&self, port: PortId) -> bool {
        self.state(port) == PortState::Open
    }

    /// Announcements and messages that were ignored because they made no sense or exceeded a limit.
    #[must_use]
    pub const fn ignored_count(&self) -> u32 {
        self.control.ignored_count
    }

    /// Gives the device buffers for a port's input, once. [`Console::read`] does it too; a caller that only waits for
    /// [`Events::readable`] calls this first.
    ///
    /// # Errors
    /// [`CallerFault::Port`], [`VirtioError::Memory`] if not even one buffer could be had, or a
    /// [`DeviceFault`].
    pub fn start_receiving(&mut self, port: PortId) -> Result<(), VirtioError> {
        let Self { transport, dma, limits, .. } = self;
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.receiver.start(transport, dma, usize::from(limits.receive_buffer_count))
    }

    /// Takes received bytes, as many as are there and fit. Zero means none now; [`Console::at_end`]
    /// tells whether more can come.
    ///
    /// # Errors
    /// As [`Console::start_receiving`].
    pub fn read(&mut self, port: PortId, bytes: &mut [u8]) -> Result<usize, VirtioError> {
        self.start_receiving(port)?;
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.receiver.read(&mut self.transport, bytes)
    }

    /// Bytes that [`Console::read`] would give now.
    ///
    /// # Errors
    /// [`CallerFault::Port`], or a [`DeviceFault`].
    pub fn readable_bytes(&mut self, port: PortId) -> Result<usize, VirtioError> {
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.receiver.harvest()?;
        Ok(port.receiver.ready_bytes())
    }

    /// Whether the host has closed its end, or the port is gone, and every byte that came before
    /// has been read.
    ///
    /// A port that the host has never opened is not at its end. State that changes here is not
    /// reported by the next poll.
    ///
    /// # Errors
    /// [`CallerFault::Port`], or a [`DeviceFault`].
    pub fn at_end(&mut self, port: PortId) -> Result<bool, VirtioError> {
        let mut events = Events::default();
        self.poll_control(&mut events)?;
        let port = select(&mut self.ports[..self.port_count], port)?;
        if !matches!(port.state, PortState::Closed | PortState::Removed) {
            return Ok(false);
        }
        // After the control queue: what was sent before the close is visible now.
        port.receiver.harvest()?;
        Ok(port.receiver.ready_bytes() == 0)
    }

    /// Copies bytes into transmit buffers without telling the device, as many as fit; the rest needs a
    /// [`Console::flush`] and then [`Events::writable`] first. Small pieces share a buffer. While the host has
    /// not opened its end nothing fits.
    ///
    /// # Errors
    /// [`CallerFault::Port`], [`VirtioError::HostClosed`], [`VirtioError::Memory`] if not even one
    /// buffer could be had, or a [`DeviceFault`].
    pub fn queue(&mut self, port: PortId, bytes: &[u8]) -> Result<usize, VirtioError> {
        let buffer_count = usize::from(self.limits.transmit_buffer_count);
        let port = select(&mut self.ports[..self.port_count], port)?;
        match port.state {
            PortState::Open => port.transmitter.queue_bytes(&mut self.dma, buffer_count, bytes),
            PortState::Waiting => Ok(0),
            PortState::Closed | PortState::Removed => Err(VirtioError::HostClosed),
            PortState::Absent => Err(CallerFault::Port.into()),
        }
    }

    /// Hands everything queued on a port to the device, with at most one notification.
    ///
    /// # Errors
    /// [`CallerFault::Port`], or a [`DeviceFault`].
    pub fn flush(&mut self, port: PortId) -> Result<(), VirtioError> {
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.transmitter.flush(&mut self.transport)
    }

    /// [`Console::queue`] and [`Console::flush`], repeated while the device keeps up: the bytes
    /// taken.
    ///
    /// # Errors
    /// As those two.
    pub fn write(&mut self, port: PortId, bytes: &[u8]) -> Result<usize, VirtioError> {
        let mut taken = 0;
        loop {
            let count = self.queue(port, &bytes[taken..])?;
            self.flush(port)?;
            taken += count;
            if count == 0 || taken == bytes.len() {
                return Ok(taken);
            }
        }
    }

    /// Bytes written to a port that the device has not consumed yet, queued ones included.
    ///
    /// # Errors
    /// [`CallerFault::Port`], or a [`DeviceFault`].
    pub fn pending_tx(&mut self, port: PortId) -> Result<usize, VirtioError> {
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.transmitter.reap()?;
        Ok(port.transmitter.pending_bytes())
    }

    /// As [`Console::pending_tx`], and has [`Events::writable`] tell of the next piece that the
    /// device consumes: how to wait for slow readers on the host without spinning. If the answer is
    /// zero, nothing will be told.
    ///
    /// # Errors
    /// As [`Console::pending_tx`].
    pub fn arm_tx(&mut self, port: PortId) -> Result<usize, VirtioError> {
        let port = select(&mut self.ports[..self.port_count], port)?;
        port.transmitter.arm(&mut self.transport)?;
        Ok(port.transmitter.pending_bytes())
    }

    /// Flushes a port and polls until the device has consumed everything.
    ///
    /// # Errors
    /// As [`Console::flush`]; [`DeviceFault::Silent`] if something is left after `poll_count_max`
    /// looks.
    pub fn drain(&mut self, port: PortId, poll_count_max: u32) -> Result<(), VirtioError> {
        self.flush(port)?;
        for _ in 0..poll_count_max {
            if self.pending_tx(port)? == 0 {
                return Ok(());
            }
            spin_loop();
        }
        Err(DeviceFault::Silent.into())
    }

    /// Resets the device, waits until it has stopped, and only then gives the memory back. Unsent
    /// and unread bytes are lost.
    pub fn stop(self) -> Stopped<T, D> {
        device::stop((self.transport, self.dma), self.limits.reset_poll_count_max, |mut give_back| {
            self.orphan.into_iter().for_each(&mut give_back);
            self.control.into_buffers(&mut give_back);
            for port in self.ports {
                port.receiver.into_buffers(&mut give_back);
                port.transmitter.into_buffers(&mut give_back);
            }
        })
    }

    /// Takes control messages in and answers them.
    fn poll_control(&mut self, events: &mut Events) -> Result<(), VirtioError> {
        let ports = &mut self.ports[..self.port_count];
        self.control.receive_messages(ports, events)?;
        self.control.send_owed(&mut self.transport, ports)
    }
}

/// The port, if the device has announced it.
fn select<B: DmaBuffer>(ports: &mut [Port<B>], id: PortId) -> Result<&mut Port<B>, VirtioError> {
    ports.get_mut(usize::from(id.0)).filter(|port| port.state != PortState::Absent).ok_or(CallerFault::Port.into())
}
