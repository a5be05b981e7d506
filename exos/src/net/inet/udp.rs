//! Datagrams.
//!
//! Within the machine a datagram is put where it is sent to at once, or is lost: where nobody is, the sender is told so
//! if it is connected (as by ICMP); where the receiver's buffer is full, nobody is. So a sender never waits, and a
//! receiver that never reads costs its buffer only. A datagram counts its bytes and [`OVERHEAD_BYTES`]. What goes to
//! other machines and comes from them is in `udp_far`; there a sender waits for the card (`room`).
//!
//! Invariant: no lock of a socket is held while another's is taken, nor while the table of ports is asked for a
//! receiver, which looks at whom receivers are connected to.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};

use super::datagram_filter::{Outline, admitted};
use super::error_queue::{SendError, SendErrors};
use super::interface::LOOPBACK;
use super::payload::Payload;
use super::ports::{Held, Place};
use super::settings::Setting;
use super::socket::{Family, Protocol, Received, Sending, Socket, Wants, Way};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Destination, Source};
use crate::net::Halves;
use crate::net::filter::Filter;
use crate::reserve;
use crate::sync::Mutex;

/// What a datagram counts besides its bytes.
pub(super) const OVERHEAD_BYTES: usize = 768;
/// Longest datagram over IPv4, and over IPv6.
pub(super) const BYTES_MAX_V4: usize = 65_507;
pub(super) const BYTES_MAX_V6: usize = 65_527;
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 8;

pub(super) struct Datagram {
    pub(super) bytes: Payload,
    pub(super) from: SocketAddr,
    pub(super) to: IpAddr,
    /// The interface's number.
    pub(super) interface: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// Hop limit of what stays within the machine (`net.ipv4.ip_default_ttl`).
pub(super) const HOP_LIMIT: u8 = 64;

/// What has come in.
#[derive(Default)]
struct Inbox {
    datagrams: VecDeque<Datagram>,
    used_bytes: usize,
    error: Option<Errno>,
    /// What is known of such errors, if the socket asked for it.
    errors: SendErrors,
    shut: Option<Halves>,
    /// Datagrams that were lost because it was full.
    lost_count: u64,
}

impl Datagram {
    /// One that stays within the machine; `marks` are its hop limit and its traffic class.
    pub(super) fn near(bytes: Payload, from: SocketAddr, to: IpAddr, marks: (u8, u8)) -> Self {
        Self { bytes, from, to, interface: LOOPBACK.index as u8, hop_limit: marks.0, traffic_class: marks.1 }
    }
}

/// Whether datagrams are sent from an address that the way there chooses: a socket may be bound to none, or a group's.
pub(super) fn has_no_address(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

impl Inbox {
    fn is_receive_shut(&self) -> bool {
        self.shut.is_some_and(|shut| shut.receiving)
    }

    fn is_send_shut(&self) -> bool {
        self.shut.is_some_and(|shut| shut.sending)
    }
}

#[derive(Default)]
struct State {
    local: Option<SocketAddr>,
    held: Option<Held>,
    has_own_address: bool,
    has_own_port: bool,
}

/// The beginning of a datagram.
pub(super) struct Corked {
    pub(super) bytes: Vec<u8>,
    pub(super) target: SocketAddr,
    pub(super) way: Way,
}

/// What is UDP's own of a socket.
#[derive(Default)]
pub(super) struct Udp {
    state: Mutex<State>,
    /// Whom it sends to and receives from alone. Held by itself only.
    remote: Mutex<Option<SocketAddr>>,
    inbox: Mutex<Inbox>,
    /// Types of ICMP messages that a raw socket does not take, a bit for each.
    pub(super) filter: Mutex<[u32; 8]>,
    /// It found no room at the card, and was not told of any since.
    pub(super) awaits_room: AtomicBool,
    /// Groups that it has joined.
    pub(super) groups: Mutex<Vec<IpAddr>>,
    /// Whether a send may be a part of a datagram, or several.
    pub(super) has_parts: AtomicBool,
    /// What waits for more.
    pub(super) corked: Mutex<Option<Corked>>,
}

impl Udp {
    pub(super) fn has_port(&self) -> bool {
        self.state.lock().held.is_some()
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.state.lock().local
    }

    pub(super) fn remote(&self) -> Option<SocketAddr> {
        *self.remote.lock()
    }

    /// Whether something may be sent now.
    pub(super) fn check_sending(&self) -> Result<()> {
        let mut inbox = self.inbox.lock();
        if inbox.is_send_shut() {
            return Err(Errno::EPIPE);
        }
        inbox.error.take().map_or(Ok(()), Err)
    }

    pub(super) fn take_error(&self) -> Option<Errno> {
        self.inbox.lock().error.take()
    }

    /// Bytes of the first datagram.
    pub(super) fn first_bytes(&self) -> usize {
        self.inbox.lock().datagrams.front().map_or(0, |datagram| datagram.bytes.len())
    }

    pub(super) fn readiness(&self) -> Readiness {
        let inbox = self.inbox.lock();
        let mut ready = Readiness::empty();
        ready.set(Readiness::WRITE, !self.awaits_room.load(Ordering::SeqCst));
        ready.set(Readiness::READ, !inbox.datagrams.is_empty() || inbox.is_receive_shut());
        ready.set(Readiness::READ_HANG_UP, inbox.is_receive_shut());
        ready.set(Readiness::HANG_UP, inbox.is_receive_shut() && inbox.is_send_shut());
        ready.set(Readiness::ERROR, inbox.error.is_some() || !inbox.errors.is_empty());
        ready
    }

    /// How well a datagram from `from` fits: to one who talks to its sender alone better than to one who talks to
    /// anybody.
    pub(super) fn rank(&self, from: SocketAddr) -> Option<u32> {
        match *self.remote.lock() {
            None => Some(0),
            Some(remote) => (remote == from).then_some(1),
        }
    }
}

impl Socket {
    pub(super) fn bind_udp(self: &Arc<Self>, udp: &Udp, address: SocketAddr) -> Result<()> {
        let mut state = udp.state.lock();
        if state.held.is_some() {
            return Err(Errno::EINVAL);
        }
        self.take_port(&mut state, address)
    }

    fn take_port(self: &Arc<Self>, state: &mut State, address: SocketAddr) -> Result<()> {
        if matches!(self.protocol(), Protocol::Raw(_)) {
            state.local = Some(SocketAddr::new(address.ip(), 0));
            return Ok(());
        }
        let inet = self.inet();
        let asking = self.asking(address.ip());
        let ports = inet.ports(self.protocol());
        let held = ports.bind(address.port(), &asking, (inet.now_ns(), inet.seed_for(None)))?;
        if let Err(error) = ports.receive(held, &asking) {
            ports.release(held);
            return Err(error);
        }
        state.held = Some(held);
        state.local = Some(SocketAddr::new(address.ip(), held.port));
        (state.has_own_address, state.has_own_port) = (!address.ip().is_unspecified(), address.port() != 0);
        Ok(())
    }

    /// A port, if it has none. `EAGAIN`: there is none; `ENOMEM`.
    pub(super) fn take_any_port(self: &Arc<Self>, udp: &Udp) -> Result<SocketAddr> {
        let mut state = udp.state.lock();
        if let Some(local) = state.local
            && (state.held.is_some() || matches!(self.protocol(), Protocol::Raw(_)))
        {
            return Ok(local);
        }
        reserve::check()?;
        let any = SocketAddr::new(self.any_address(), 0);
        self.take_port(&mut state, any)
            .map_err(|error| if error == Errno::EADDRINUSE { Errno::EAGAIN } else { error })?;
        state.local.ok_or(Errno::EAGAIN)
    }

    pub(super) fn connect_udp(self: &Arc<Self>, udp: &Udp, remote: SocketAddr) -> Result<()> {
        let source = self.source_towards(remote)?;
        let own = udp.state.lock().local.map(|local| local.ip()).filter(|own| !own.is_unspecified());
        if own.is_some_and(|own| own.is_ipv4() != remote.is_ipv4()) {
            return Err(Errno::ENETUNREACH);
        }
        self.take_any_port(udp)?;
        let mut state = udp.state.lock();
        if let (Some(held), Some(local)) = (state.held, state.local)
            && local.ip().is_unspecified()
        {
            state.local = Some(SocketAddr::new(source, local.port()));
            self.inet().ports(self.protocol()).set_place(held, Place { address: source, is_v6_only: false });
        }
        drop(state);
        *udp.remote.lock() = Some(remote);
        Ok(())
    }

    pub(super) fn disconnect_udp(&self, udp: &Udp) -> Result<()> {
        *udp.remote.lock() = None;
        let mut state = udp.state.lock();
        let Some(held) = state.held else { return Ok(()) };
        if !state.has_own_port {
            self.inet().ports(self.protocol()).release(held);
            let address = state.local.map(|local| local.ip()).filter(|_| state.has_own_address);
            state.held = None;
            state.local = address.map(|address| SocketAddr::new(address, 0));
        } else if !state.has_own_address {
            let any = self.any_address();
            state.local = Some(SocketAddr::new(any, held.port));
            self.inet().ports(self.protocol()).set_place(held, Place { address: any, is_v6_only: self.is_v6_only() });
        }
        Ok(())
    }

    pub(super) fn shutdown_udp(&self, udp: &Udp, halves: Halves) -> Result<()> {
        let mut inbox = udp.inbox.lock();
        let shut = inbox.shut.get_or_insert(Halves { receiving: false, sending: false });
        shut.receiving |= halves.receiving;
        shut.sending |= halves.sending;
        drop(inbox);
        self.wait_queue().notify(Readiness::EVENTS.difference(Readiness::PRIORITY | Readiness::ERROR));
        // It acts all the same, as on Linux.
        if udp.remote().is_none() { Err(Errno::ENOTCONN) } else { Ok(()) }
    }

    pub(super) fn close_udp(&self, udp: &Udp) {
        let held = udp.state.lock().held.take();
        held.into_iter().for_each(|held| self.inet().ports(self.protocol()).release(held));
        self.leave_all(udp);
        if udp.awaits_room.swap(false, Ordering::SeqCst) {
            self.inet().senders.remove(self);
        }
        if matches!(self.protocol(), Protocol::Raw(_)) {
            self.inet().forget_raw(self);
        }
        let lost = core::mem::take(&mut udp.inbox.lock().datagrams);
        drop(lost);
        self.wait_queue().notify(Readiness::HANG_UP | Readiness::ALWAYS);
    }

    #[inline]
    pub(super) fn send_udp(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        if sending.has_more || sending.way.segment_bytes != 0 || udp.has_parts.load(Ordering::Relaxed) {
            return self.send_parts(udp, source, sending);
        }
        self.send_datagram(udp, source, sending)
    }

    /// Sends a datagram to the other end, as the socket has it: what `write` comes to.
    pub(super) fn send_plain(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source) -> Result<usize> {
        if self.protocol() != Protocol::Udp || udp.has_parts.load(Ordering::Relaxed) {
            return self.send(source, &Sending::PLAIN);
        }
        self.send_datagram(udp, source, &Sending::PLAIN)
    }

    /// [`Self::send_datagram`] for those that take datagrams apart: not once more in their own code.
    #[inline(never)]
    pub(super) fn send_one(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        self.send_datagram(udp, source, sending)
    }

    /// Sends one datagram. A part of its two hot callers, of which one says nothing of how.
    #[inline(always)]
    fn send_datagram(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        let (connected, length) = (udp.remote(), source.remaining());
        // As on Linux, this comes before the question where to.
        if self.family() == Family::V4 && length > usize::from(u16::MAX) {
            return Err(Errno::EMSGSIZE);
        }
        let remote = match sending.target {
            Some(target) => self.destination(target)?,
            None => connected.ok_or(Errno::EDESTADDRREQ)?,
        };
        if remote.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if length > if remote.is_ipv4() { BYTES_MAX_V4 } else { BYTES_MAX_V6 } {
            return Err(Errno::EMSGSIZE);
        }
        udp.check_sending()?;
        let (route_source, next) = self.way_towards(remote.ip())?;
        let local = self.take_any_port(udp)?;
        let address = match sending.way.source {
            Some(source) if !self.inet().is_local(source) => return Err(Errno::EINVAL),
            Some(source) => source,
            None if has_no_address(local.ip()) => route_source,
            None => local.ip(),
        };
        if address.is_ipv4() != remote.is_ipv4() {
            return Err(Errno::ENETUNREACH);
        }
        let from = SocketAddr::new(address, local.port());
        if next.is_some() {
            self.check_room(udp, remote.ip(), HEADER_BYTES + length)?;
        }
        let bytes = Payload::take(source, length)?;
        let (inet, marks) = (self.inet(), self.marks(remote.ip(), &sending.way));
        if self.goes_nowhere(remote.ip(), next.is_some(), &sending.way) {
            return Ok(length);
        }
        if let Some(next) = next {
            return self.send_far(from, (remote, next), bytes, marks);
        }
        if !inet.stack().taps().is_empty() {
            inet.stack().show_datagram(from, remote, marks, &bytes);
        }
        let rank = |socket: &Self| socket.rank_datagram(from, LOOPBACK.index);
        let receiver = inet.udp.find(remote, || inet.seed_for(Some(from)), rank);
        match receiver.as_ref().and_then(|receiver| Some((receiver, receiver.udp()?))) {
            Some((receiver, inbox)) => receiver.take_in(inbox, Datagram::near(bytes, from, remote.ip(), marks))?,
            None => {
                self.note_unreachable(udp, connected == Some(remote), remote, &bytes);
                inet.tell_unreachable(from, remote, marks, &bytes);
            }
        }
        Ok(length)
    }

    /// As on Linux, what goes by an interface that does not lead there is sent, and lost.
    #[inline]
    fn goes_nowhere(&self, remote: IpAddr, is_far: bool, way: &Way) -> bool {
        let interface = if way.interface == 0 { self.bound_interface() } else { way.interface };
        interface != 0 && is_far == (interface == LOOPBACK.index) && (is_far || remote.is_loopback())
    }

    /// Hop limit and traffic class of a datagram.
    #[inline]
    pub(super) fn marks(&self, remote: IpAddr, way: &Way) -> (u8, u8) {
        let (hops, class) = match (remote, remote.is_multicast()) {
            (IpAddr::V4(_), false) => (Setting::TimeToLive, Setting::TypeOfService),
            (IpAddr::V4(_), true) => (Setting::MulticastTimeToLive, Setting::TypeOfService),
            (IpAddr::V6(_), false) => (Setting::UnicastHops, Setting::TrafficClass),
            (IpAddr::V6(_), true) => (Setting::MulticastHops, Setting::TrafficClass),
        };
        let setting = |setting, default| u8::try_from(self.settings().get(setting)).unwrap_or(default);
        let hop_limit = way.hop_limit.unwrap_or_else(|| setting(hops, HOP_LIMIT));
        (hop_limit, way.traffic_class.unwrap_or_else(|| setting(class, 0)))
    }

    /// How well a datagram that comes in from `from` by an interface fits; see [`Udp::rank`].
    pub(super) fn rank_datagram(&self, from: SocketAddr, interface: u32) -> Option<u32> {
        Some(self.udp()?.rank(from)? * 2 + self.interface_rank(interface)?)
    }

    /// The address that datagrams to `remote` are sent from.
    pub(super) fn source_towards(&self, remote: SocketAddr) -> Result<IpAddr> {
        self.way_towards(remote.ip()).map(|(source, _)| source)
    }

    /// The same, and to which machine they are given, if it is another.
    pub(super) fn way_towards(&self, remote: IpAddr) -> Result<(IpAddr, Option<IpAddr>)> {
        match remote {
            IpAddr::V4(v4) if v4.is_loopback() => Ok((IpAddr::V4(Ipv4Addr::LOCALHOST), None)),
            IpAddr::V6(v6) if v6.is_loopback() => Ok((remote, None)),
            _ => self.way_far(remote),
        }
    }

    /// Nobody was where a datagram was sent to.
    pub(super) fn note_unreachable(&self, udp: &Udp, is_connected: bool, remote: SocketAddr, bytes: &[u8]) {
        if is_connected || self.settings().is_on(Setting::ReceiveErrors) {
            self.note_error(udp, SendError::nobody(remote), bytes);
        }
    }

    /// What ICMP says of a datagram that was sent.
    pub(super) fn note_error(&self, udp: &Udp, error: SendError, bytes: &[u8]) {
        let mut inbox = udp.inbox.lock();
        inbox.error = Some(error.error);
        if self.settings().is_on(Setting::ReceiveErrors) {
            inbox.errors.add(error, bytes);
        }
        drop(inbox);
        self.wait_queue().notify(Readiness::ERROR);
    }

    /// What ICMP said of a datagram that was sent (`MSG_ERRQUEUE`).
    ///
    /// # Errors
    /// `EAGAIN`: nothing, or it was not asked for.
    pub fn take_send_error(&self) -> Result<SendError> {
        let mut inbox = self.udp().ok_or(Errno::EAGAIN)?.inbox.lock();
        let (first, next) = inbox.errors.take().ok_or(Errno::EAGAIN)?;
        inbox.error = next;
        Ok(first)
    }

    /// Whether a filter takes a datagram, of which it may cut something off.
    #[cold]
    fn admits(&self, filter: &Filter, datagram: &mut Datagram) -> bool {
        let protocol = match (self.protocol(), self.family()) {
            (Protocol::Raw(protocol), _) => protocol,
            (Protocol::UdpLite, _) => 136,
            (Protocol::Ping, Family::V4) => 1,
            (Protocol::Ping, Family::V6) => 58,
            _ => 17,
        };
        let outline = Outline {
            from: datagram.from,
            to: SocketAddr::new(datagram.to, self.local().map_or(0, |local| local.port())),
            protocol,
            interface: u32::from(datagram.interface),
            hops: (datagram.hop_limit, datagram.traffic_class),
            has_header: matches!((self.protocol(), self.family()), (Protocol::Raw(_), Family::V4)),
        };
        let left = admitted(filter, &outline, &datagram.bytes, self.inet().random_number());
        datagram.bytes.cut(left.unwrap_or(0));
        left.is_some()
    }

    /// A datagram comes in, or is lost.
    #[inline]
    pub(super) fn take_in(&self, udp: &Udp, datagram: Datagram) -> Result<()> {
        match self.options().filter() {
            None => self.take_in_whole(udp, datagram),
            Some(filter) => self.take_in_filtered(udp, &filter, datagram),
        }
    }

    #[cold]
    fn take_in_filtered(&self, udp: &Udp, filter: &Filter, mut datagram: Datagram) -> Result<()> {
        if self.admits(filter, &mut datagram) {
            return self.take_in_whole(udp, datagram);
        }
        udp.inbox.lock().lost_count += 1;
        Ok(())
    }

    fn take_in_whole(&self, udp: &Udp, datagram: Datagram) -> Result<()> {
        let count = datagram.bytes.len() + OVERHEAD_BYTES;
        let mut inbox = udp.inbox.lock();
        if inbox.used_bytes + count > self.receive_buffer_bytes().max(count) {
            inbox.lost_count += 1;
            drop(inbox);
            drop(datagram);
            return Ok(());
        }
        reserve::reserve_queue(&mut inbox.datagrams, 1).map_err(|_| Errno::ENOBUFS)?;
        inbox.used_bytes += count;
        inbox.datagrams.push_back(datagram);
        drop(inbox);
        self.wait_queue().notify(Readiness::READ);
        Ok(())
    }

    pub(super) fn receive_udp(&self, udp: &Udp, destination: &mut dyn Destination, wants: Wants) -> Result<Received> {
        let datagram = {
            let mut inbox = udp.inbox.lock();
            // As on Linux, a failure is told before what has come in.
            if let Some(error) = inbox.error.take() {
                return Err(error);
            }
            let Some(first) = inbox.datagrams.front() else {
                return if inbox.is_receive_shut() { Ok(Received::end()) } else { Err(Errno::EAGAIN) };
            };
            if wants.is_peek {
                Datagram { bytes: first.bytes.copy()?, ..*first }
            } else {
                let count = first.bytes.len() + OVERHEAD_BYTES;
                inbox.used_bytes -= count;
                inbox.datagrams.pop_front().ok_or(Errno::EAGAIN)?
            }
        };
        let count = destination.remaining().min(datagram.bytes.len());
        if destination.put(&datagram.bytes[..count]) < count {
            return Err(Errno::EFAULT);
        }
        Ok(Received {
            byte_count: count,
            message_bytes: datagram.bytes.len(),
            from: Some(datagram.from),
            to: Some(datagram.to),
            interface: u32::from(datagram.interface),
            hop_limit: datagram.hop_limit,
            traffic_class: datagram.traffic_class,
            is_final: true,
        })
    }

    /// Datagrams that were lost because its buffer was full.
    pub fn lost_count(&self) -> u64 {
        self.udp().map_or(0, |udp| udp.inbox.lock().lost_count)
    }
}
