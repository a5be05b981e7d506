//! A packet socket: what it is told, what waits, and what it sends.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ring::{Entry, Ring};
use super::{ALL_PROTOCOLS, MEMBERSHIP_COUNT_MAX, OVERHEAD_BYTES, RingMemory, RingRequest};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::fs::transfer::{Destination, Source};
use crate::mem::frames::FramePool;
use crate::net::buffer_sizes::BufferSizes;
use crate::net::filter;
use crate::net::inet::Inet;
use crate::net::inet::interface::{ETHERNET_INDEX, InterfaceStatus, LOOPBACK};
use crate::net::inet::stack::tap::{FrameKind, Tap, TappedFrame};
use crate::net::options::SocketOptions;
use crate::reserve;
use crate::sync::Mutex;

/// Bytes of the link's header, of Ethernet and of loopback.
const LINK_BYTES: usize = 14;
/// `ETH_P_8021Q`, whose frames may be longer by this.
const VLAN: u16 = 0x8100;
const VLAN_BYTES: usize = 4;
/// What is said of a frame (`TP_STATUS_*`).
mod status {
    pub(super) const USER: u32 = 1;
    pub(super) const LOSING: u32 = 4;
    pub(super) const LACKS_CHECKSUM: u32 = 8;
    pub(super) const CHECKSUM_VALID: u32 = 0x80;
}

/// With the link's header or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_RAW`.
    Raw,
    /// `SOCK_DGRAM`.
    Datagram,
}

/// `struct sockaddr_ll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddress {
    /// `ETH_P_*`.
    pub protocol: u16,
    /// The interface's number.
    pub interface: u32,
    /// `ARPHRD_*`.
    pub hardware_kind: u16,
    /// `PACKET_*`.
    pub kind: u8,
    /// Bytes of the address.
    pub address_bytes: u8,
    /// The address.
    pub address: [u8; 8],
}

impl LinkAddress {
    /// As programs are told it.
    #[must_use]
    pub fn bytes(&self) -> [u8; 20] {
        const AF_PACKET: u16 = 17;
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&AF_PACKET.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.interface.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.hardware_kind.to_le_bytes());
        (bytes[10], bytes[11]) = (self.kind, self.address_bytes);
        bytes[12..].copy_from_slice(&self.address);
        bytes
    }
}

/// Where a frame is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// `ETH_P_*`.
    pub protocol: u16,
    /// The interface's number.
    pub interface: u32,
    /// The receiver's Ethernet address, if there is room for one.
    pub address: Option<[u8; 6]>,
}

/// What a socket wants an interface to take in (`struct packet_mreq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The interface's number.
    pub interface: u32,
    /// `PACKET_MR_*`.
    pub kind: u16,
    /// Bytes of the address.
    pub address_bytes: u16,
    /// The address.
    pub address: [u8; 8],
}

impl Membership {
    /// `PACKET_MR_PROMISC`.
    const PROMISCUOUS: u16 = 1;
    /// `PACKET_MR_MULTICAST`, `PACKET_MR_UNICAST`: those that have an address.
    const ADDRESSED: [u16; 2] = [0, 3];

    fn wants_all(&self) -> bool {
        self.kind == Self::PROMISCUOUS && self.interface == ETHERNET_INDEX
    }
}

/// A switch, and its number (`PACKET_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `PACKET_AUXDATA`.
    TellMore = 8,
    /// `PACKET_ORIGDEV`.
    OriginalDevice = 9,
    /// `PACKET_LOSS`.
    Loss = 14,
    /// `PACKET_QDISC_BYPASS`.
    Bypass = 20,
    /// `PACKET_IGNORE_OUTGOING`.
    IgnoreOutgoing = 23,
}

struct Waiting {
    bytes: Vec<u8>,
    length_bytes: usize,
    from: LinkAddress,
    status: u32,
    realtime_ns: u64,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes put into the destination.
    pub byte_count: usize,
    /// Bytes of the frame that were kept.
    pub message_bytes: usize,
    /// Bytes that the frame had.
    pub length_bytes: usize,
    /// Whose it is.
    pub from: LinkAddress,
    /// `TP_STATUS_*`.
    pub status: u32,
    /// When it went by.
    pub realtime_ns: u64,
}

#[derive(Default)]
struct State {
    protocol: u16,
    interface: u32,
    is_tap: bool,
    choices: u32,
    version: u32,
    reserve_bytes: u32,
    inbox: VecDeque<Waiting>,
    inbox_bytes: usize,
    ring: Option<Ring>,
    packet_count: u32,
    drop_count: u32,
    memberships: Vec<(Membership, usize)>,
    error: Option<Errno>,
}

/// What says how late it is (`CLOCK_REALTIME`).
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// A packet socket.
pub struct Socket {
    inet: Arc<Inet>,
    number: u64,
    kind: Kind,
    uid: u32,
    clock: Clock,
    queue: Arc<WaitQueue>,
    options: SocketOptions,
    buffer_sizes: BufferSizes,
    state: Mutex<State>,
}

impl Socket {
    /// A socket that is told nothing yet; `number` is that of its inode.
    pub fn new(inet: &Arc<Inet>, kind: Kind, (number, uid): (u64, u32), clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            inet: inet.clone(),
            number,
            kind,
            uid,
            clock,
            queue: WaitQueue::new(),
            options: SocketOptions::default(),
            buffer_sizes: BufferSizes::new(),
            state: Mutex::default(),
        })
    }

    /// The number of its inode.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// With the link's header or without.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// What all sockets keep.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// What is told about everything that happens to it.
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// How much it may send and hold.
    pub fn buffer_sizes(&self) -> &BufferSizes {
        &self.buffer_sizes
    }

    /// Its protocol, its interface (0: all), and bytes that wait.
    pub fn bound(&self) -> (u16, u32, usize) {
        let state = self.state.lock();
        (state.protocol, state.interface, state.inbox_bytes)
    }

    /// Is told frames of a protocol from now on, of one interface or of all (0).
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface. `ENOMEM`.
    pub fn bind(self: &Arc<Self>, protocol: u16, interface: u32) -> Result<()> {
        let status = if interface == 0 { None } else { Some(self.interface(interface).ok_or(Errno::ENODEV)?) };
        // What a program looks at without sending must have its card, too.
        self.inet.open();
        let is_down = status.is_some_and(|status| !status.is_running);
        let begins = {
            let mut state = self.state.lock();
            let protocol = if protocol == 0 { state.protocol } else { protocol };
            (state.protocol, state.interface) = (protocol, interface);
            state.error = is_down.then_some(Errno::ENETDOWN);
            let begins = protocol != 0 && !state.is_tap;
            state.is_tap |= begins;
            begins
        };
        if begins {
            let tap: Arc<dyn Tap> = self.clone();
            self.inet.stack().taps().add(&tap).inspect_err(|_| self.state.lock().is_tap = false)?;
        }
        Ok(())
    }

    fn interface(&self, index: u32) -> Option<InterfaceStatus> {
        self.inet.interfaces().ok()?.into_iter().find(|interface| interface.index == index)
    }

    /// Its own address.
    pub fn local(&self) -> LinkAddress {
        let (protocol, interface, _) = self.bound();
        let Some(status) = self.interface(interface) else {
            return LinkAddress { protocol, interface, ..LinkAddress::default() };
        };
        let mut address = [0; 8];
        address[..6].copy_from_slice(&status.hardware_address);
        let hardware_kind = status.hardware_kind();
        LinkAddress { protocol, interface, hardware_kind, kind: 0, address_bytes: 6, address }
    }

    /// Whether a switch is on.
    pub fn is_on(&self, choice: Choice) -> bool {
        self.state.lock().choices >> choice as u32 & 1 != 0
    }

    /// Sets or clears a switch.
    pub fn set_on(&self, choice: Choice, value: bool) {
        let mut state = self.state.lock();
        let bit = 1 << choice as u32;
        state.choices = if value { state.choices | bit } else { state.choices & !bit };
    }

    /// Frames that it was told since the last time, and how many of them were lost (`PACKET_STATISTICS`).
    pub fn take_statistics(&self) -> (u32, u32) {
        let mut state = self.state.lock();
        (core::mem::take(&mut state.packet_count), core::mem::take(&mut state.drop_count))
    }

    /// `PACKET_VERSION` and `PACKET_RESERVE`.
    pub fn ring_settings(&self) -> (u32, u32) {
        let state = self.state.lock();
        (state.version, state.reserve_bytes)
    }

    /// Sets one of the two, or both.
    ///
    /// # Errors
    /// `EBUSY`: it has a ring.
    pub fn set_ring(&self, version: Option<u32>, reserve_bytes: Option<u32>) -> Result<()> {
        let mut state = self.state.lock();
        if state.ring.is_some() {
            return Err(Errno::EBUSY);
        }
        state.version = version.unwrap_or(state.version);
        state.reserve_bytes = reserve_bytes.unwrap_or(state.reserve_bytes);
        Ok(())
    }

    /// Has what it is told put into a ring (`PACKET_RX_RING`), or no more if the ring has no blocks.
    ///
    /// # Errors
    /// `EINVAL`: no such ring. `EBUSY`: it has one. `ENOMEM`.
    pub fn make_ring(&self, pool: &Arc<FramePool>, request: RingRequest) -> Result<()> {
        if request.block_count == 0 {
            let ended =
                if request.frame_count == 0 { self.state.lock().ring.take() } else { return Err(Errno::EINVAL) };
            drop(ended);
            return Ok(());
        }
        let (version, reserve_bytes) = self.ring_settings();
        if self.state.lock().ring.is_some() {
            return Err(Errno::EBUSY);
        }
        if version != 1 {
            return Err(Errno::EINVAL);
        }
        let ring = Ring::new(pool, request, reserve_bytes as usize)?;
        let mut state = self.state.lock();
        if state.ring.is_some() {
            return Err(Errno::EBUSY);
        }
        state.ring = Some(ring);
        let old = core::mem::take(&mut state.inbox);
        state.inbox_bytes = 0;
        drop(state);
        drop(old);
        Ok(())
    }

    /// What a program maps.
    pub fn ring_memory(&self) -> Option<Arc<RingMemory>> {
        self.state.lock().ring.as_ref().map(|ring| ring.memory().clone())
    }

    /// Has an interface take in more.
    ///
    /// # Errors
    /// `ENODEV`: no such interface. `EINVAL`: an address that it cannot have. `ENOBUFS`: too many.
    pub fn add_membership(&self, membership: Membership) -> Result<()> {
        const ADDRESS_BYTES: u16 = 6;
        self.interface(membership.interface).ok_or(Errno::ENODEV)?;
        let is_addressed = Membership::ADDRESSED.contains(&membership.kind);
        if membership.address_bytes > ADDRESS_BYTES || is_addressed && membership.address_bytes != ADDRESS_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        if let Some((_, count)) = state.memberships.iter_mut().find(|(known, _)| *known == membership) {
            *count += 1;
            return Ok(());
        }
        if state.memberships.len() >= MEMBERSHIP_COUNT_MAX {
            return Err(Errno::ENOBUFS);
        }
        reserve::reserve(&mut state.memberships, 1).map_err(|_| Errno::ENOBUFS)?;
        state.memberships.push((membership, 1));
        if membership.wants_all() {
            self.inet.stack().taps().set_promiscuous(true);
        }
        Ok(())
    }

    /// No more of that. As on Linux, what was not asked for can be dropped as well.
    pub fn drop_membership(&self, membership: Membership) {
        let mut state = self.state.lock();
        let Some(at) = state.memberships.iter().position(|(known, _)| *known == membership) else { return };
        state.memberships[at].1 -= 1;
        if state.memberships[at].1 == 0 {
            state.memberships.swap_remove(at);
            if membership.wants_all() {
                self.inet.stack().taps().set_promiscuous(false);
            }
        }
    }

    /// What it is ready for.
    pub fn readiness(&self) -> Readiness {
        let state = self.state.lock();
        let mut ready = Readiness::WRITE;
        let is_readable = state.ring.as_ref().map_or(!state.inbox.is_empty(), Ring::is_readable);
        ready.set(Readiness::READ, is_readable);
        ready.set(Readiness::ERROR, state.error.is_some());
        ready
    }

    /// What the last failure was that nobody has been told (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Bytes of the first frame that waits (`FIONREAD`).
    pub fn first_bytes(&self) -> usize {
        self.state.lock().inbox.front().map_or(0, |waiting| waiting.bytes.len())
    }

    /// Receives a frame.
    ///
    /// # Errors
    /// `EAGAIN`: none waits. `EFAULT`, `ENOMEM`, `ENETDOWN`.
    pub fn receive(&self, destination: &mut dyn Destination, is_peek: bool) -> Result<Received> {
        let waiting = {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            let first = state.inbox.front().ok_or(Errno::EAGAIN)?;
            if is_peek {
                Waiting { bytes: reserve::copy(&first.bytes)?, ..*first }
            } else {
                let count = first.bytes.len() + OVERHEAD_BYTES;
                state.inbox_bytes -= count;
                state.inbox.pop_front().ok_or(Errno::EAGAIN)?
            }
        };
        let count = destination.remaining().min(waiting.bytes.len());
        if destination.put(&waiting.bytes[..count]) < count {
            return Err(Errno::EFAULT);
        }
        Ok(Received {
            byte_count: count,
            message_bytes: waiting.bytes.len(),
            length_bytes: waiting.length_bytes,
            from: waiting.from,
            status: waiting.status,
            realtime_ns: waiting.realtime_ns,
        })
    }

    /// An attempt of a receive that may wait, with what was received.
    pub fn receive_step(
        &self,
        destination: &mut dyn Destination,
        is_peek: bool,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> (Step, Received) {
        let outcome = self.receive(destination, is_peek);
        let moved = outcome.map(|received| (received.byte_count, true));
        (self.options.receive_step(moved, 1, transfer, caller), outcome.unwrap_or_default())
    }

    /// Sends a frame, or what is to be one.
    ///
    /// # Errors
    /// `ENXIO`: by no interface. `ENETDOWN`. `EMSGSIZE`; `EINVAL`: without a header, or to nobody. `ECONNREFUSED`: for
    /// the host, and must not be. `EFAULT`, `ENOBUFS`.
    pub fn send(&self, source: &mut dyn Source, target: Option<Target>) -> Result<usize> {
        let (bound_protocol, bound_interface, _) = self.bound();
        let (protocol, interface) =
            target.map_or((bound_protocol, bound_interface), |target| (target.protocol, target.interface));
        let is_local = interface == LOOPBACK.index;
        let status = self.interface(interface).ok_or(Errno::ENXIO)?;
        if !status.is_running {
            return Err(Errno::ENETDOWN);
        }
        let length = source.remaining();
        let head_bytes = if self.kind == Kind::Raw { 0 } else { LINK_BYTES };
        let vlan_bytes = if protocol == VLAN { VLAN_BYTES } else { 0 };
        let most = status.packet_bytes_max as usize + LINK_BYTES + vlan_bytes;
        if length + head_bytes > most {
            return Err(Errno::EMSGSIZE);
        }
        let mut frame = reserve::vector(head_bytes + length).map_err(|_| Errno::ENOBUFS)?;
        if self.kind == Kind::Datagram {
            let nobody = if is_local { Some([0; 6]) } else { None };
            let receiver = target.and_then(|target| target.address).or(nobody).ok_or(Errno::EINVAL)?;
            frame.extend_from_slice(&receiver);
            frame.extend_from_slice(&status.hardware_address);
            frame.extend_from_slice(&protocol.to_be_bytes());
        } else if length < LINK_BYTES {
            return Err(Errno::EINVAL);
        }
        frame.resize(head_bytes + length, 0);
        if source.take(&mut frame[head_bytes..]) < length {
            return Err(Errno::EFAULT);
        }
        let stack = self.inet.stack();
        if is_local {
            stack.send_local_frame(&frame, self.number);
        } else {
            stack.send_frame(&frame, self.number)?;
        }
        Ok(length)
    }

    /// Ends it: its descriptor is gone.
    pub fn close(self: &Arc<Self>) {
        self.inet.stack().taps().remove(Arc::as_ptr(self).cast());
        let mut state = self.state.lock();
        let memberships = core::mem::take(&mut state.memberships);
        let lost = (core::mem::take(&mut state.inbox), state.ring.take());
        drop(state);
        drop(lost);
        for (membership, _) in memberships {
            if membership.wants_all() {
                self.inet.stack().taps().set_promiscuous(false);
            }
        }
    }

    /// Whether it is to be told a frame.
    fn wants(&self, frame: &TappedFrame<'_>) -> bool {
        let state = self.state.lock();
        let is_outgoing = frame.kind == FrameKind::Outgoing;
        let ignores = state.choices >> Choice::IgnoreOutgoing as u32 & 1 != 0;
        let is_of_protocol = match state.protocol {
            0 => false,
            ALL_PROTOCOLS => !(is_outgoing && ignores),
            protocol => protocol == frame.protocol && !is_outgoing,
        };
        is_of_protocol && [0, frame.interface].contains(&state.interface) && frame.sender != Some(self.number)
    }

    /// Keeps a frame of which so many bytes are taken; whether it could be.
    fn keep(
        &self,
        state: &mut State,
        frame: &TappedFrame<'_>,
        skipped_bytes: usize,
        (taken, length): (usize, usize),
    ) -> bool {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&frame.source);
        let from = LinkAddress {
            protocol: frame.protocol,
            interface: frame.interface,
            hardware_kind: hardware_kind(frame.interface),
            kind: frame.kind as u8,
            address_bytes: 6,
            address,
        };
        let status = status::USER
            | if frame.lacks_checksum { status::LACKS_CHECKSUM } else { 0 }
            | if frame.is_checksum_valid && !frame.lacks_checksum { status::CHECKSUM_VALID } else { 0 };
        let realtime_ns = (self.clock)();
        if let Some(ring) = &mut state.ring {
            return ring.put(&Entry {
                status: status | if state.drop_count > 0 { status::LOSING } else { 0 },
                length_bytes: length,
                parts: frame.parts,
                skipped_bytes,
                taken_bytes: taken,
                link_bytes: LINK_BYTES - skipped_bytes,
                realtime_ns,
                address: from.bytes(),
            });
        }
        if state.inbox_bytes >= self.buffer_sizes.receive_bytes() {
            return false;
        }
        let (Ok(mut bytes), Ok(())) = (reserve::vector(taken), reserve::reserve_queue(&mut state.inbox, 1)) else {
            return false;
        };
        let mut skipped = skipped_bytes;
        for part in frame.parts {
            let rest = &part[skipped.min(part.len())..];
            skipped = skipped.saturating_sub(part.len());
            bytes.extend_from_slice(&rest[..rest.len().min(taken - bytes.len())]);
        }
        state.inbox_bytes += bytes.len() + OVERHEAD_BYTES;
        state.inbox.push_back(Waiting { bytes, length_bytes: length, from, status, realtime_ns });
        true
    }
}

/// `ARPHRD_*` of an interface.
fn hardware_kind(interface: u32) -> u16 {
    if interface == LOOPBACK.index { 772 } else { 1 }
}

impl Tap for Socket {
    fn hear(&self, frame: &TappedFrame<'_>) {
        if !self.wants(frame) {
            return;
        }
        let whole: usize = frame.parts.iter().map(|part| part.len()).sum();
        let skipped_bytes = if self.kind == Kind::Raw { 0 } else { LINK_BYTES };
        let Some(length) = whole.checked_sub(skipped_bytes) else { return };
        let filter = self.options.filter();
        let outcome = filter.as_ref().map(|filter| {
            let packet = filter::Packet {
                parts: frame.parts,
                begin_bytes: skipped_bytes,
                network_bytes: LINK_BYTES,
                protocol: frame.protocol,
                kind: frame.kind as u8,
                interface: frame.interface,
                hardware_kind: hardware_kind(frame.interface),
                random: self.inet.random_number(),
            };
            filter.run(&packet)
        });
        if outcome == Some(0) {
            return;
        }
        let taken = outcome.map_or(length, |most| most.min(length));
        {
            let mut state = self.state.lock();
            let is_kept = self.keep(&mut state, frame, skipped_bytes, (taken, length));
            state.packet_count = state.packet_count.saturating_add(1);
            state.drop_count = state.drop_count.saturating_add(u32::from(!is_kept));
        }
        self.queue.notify(Readiness::READ);
    }
}
