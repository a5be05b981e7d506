//! Sockets for ping (`SOCK_DGRAM` of ICMP) and for packets of any protocol (`SOCK_RAW`).
//!
//! A ping socket asks whether a machine is there and is told its answers: the number in both is its port. Every program
//! may have one, because nothing else can be sent by it: as on distributions that set `net.ipv4.ping_group_range` to
//! all groups, Debian among them. A raw socket is for programs with `CAP_NET_RAW`; it sends packets of its protocol
//! below a header that is made here or by the program (`raw_whole`), and is told all that come in, of IPv4 with a
//! header, which is made anew here without its options.
//!
//! What is sent to this machine itself is answered at once.
//!
//! Neighbours: [`super::udp`], which keeps what comes in; [`super::network`], which calls.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::Inet;
use super::error_queue::SendError;
use super::interface::{ETHERNET_INDEX, LOOPBACK};
use super::payload::Payload;
use super::settings::Setting;
use super::socket::{Family, Protocol, Sending, Socket};
use super::stack::{icmp_checksum, ipv4_header, ipv6_header};
use super::udp::{Datagram, HOP_LIMIT, Udp, has_no_address};
use super::wire::{Arrival, IcmpError, Segment};
use crate::error::{Errno, Result};
use crate::fs::transfer::Source;
use crate::reserve;

/// `IPPROTO_ICMP`, `IPPROTO_ICMPV6`.
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Echo request and reply of the two.
const ECHO: [(u8, u8); 2] = [(8, 0), (128, 129)];
/// Bytes of an echo's header; where the checksum stands.
const HEADER_BYTES: usize = 8;
const CHECKSUM_OFFSET_BYTES: u16 = 2;
/// `IPPROTO_UDP`, and bytes of its header.
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
/// Bytes of a message about a packet, of which it quotes the beginning (RFC 1812, 4.3.2.3), and its class, which is
/// Linux's.
const QUOTED_BYTES_MAX: usize = 556;
const ERROR_CLASS: u8 = 0xc0;
/// Longest packet without its header.
const BYTES_MAX: usize = 65_507;

fn echo_of(address: IpAddr) -> (u8, u8) {
    ECHO[usize::from(address.is_ipv6())]
}

/// Whether something that came in, or was sent to this machine, is for a socket by its addresses.
fn is_for(socket: &Socket, arrival: &Arrival<'_>) -> bool {
    let family = if arrival.source.is_ipv4() { Family::V4 } else { Family::V6 };
    let is_own = |local: SocketAddr| has_no_address(local.ip()) || local.ip() == arrival.destination;
    let is_from = |remote: SocketAddr| remote.ip() == arrival.source;
    socket.family() == family
        && socket.udp().is_some_and(|udp| udp.local().is_none_or(is_own) && udp.remote().is_none_or(is_from))
}

/// Puts what came in into a socket; what there is no memory or room for is lost.
fn put(socket: &Socket, arrival: &Arrival<'_>, bytes: &[u8], header: &[u8], interface: u32) {
    let whole;
    let bytes = if header.is_empty() {
        bytes
    } else {
        let Ok(mut joined) = reserve::vector(header.len() + bytes.len()) else { return };
        joined.extend_from_slice(header);
        joined.extend_from_slice(bytes);
        whole = joined;
        &whole
    };
    let (Some(udp), Ok(bytes)) = (socket.udp(), Payload::take(&mut &bytes[..], bytes.len())) else { return };
    let datagram = Datagram {
        bytes,
        from: SocketAddr::new(arrival.source, 0),
        to: arrival.destination,
        interface: interface as u8,
        hop_limit: arrival.hop_limit,
        traffic_class: arrival.traffic_class,
    };
    let _ = socket.take_in(udp, datagram);
}

/// A packet came in. Whether a socket takes packets of its protocol.
pub(super) fn raw_input(inet: &Inet, protocol: u8, arrival: &Arrival<'_>) -> bool {
    if inet.raw.is_empty() {
        return false;
    }
    tell_raw(inet, protocol, arrival, ETHERNET_INDEX)
}

fn tell_raw(inet: &Inet, protocol: u8, arrival: &Arrival<'_>, interface: u32) -> bool {
    let is_filtered = |socket: &Socket| {
        let kind = arrival.bytes.first().copied().unwrap_or(0);
        let blocks = socket.filter()[usize::from(kind >> 5)] >> (kind & 31) & 1 != 0;
        blocks && matches!(protocol, ICMP | ICMP6)
    };
    let wants = |socket: &Socket| {
        socket.protocol() == Protocol::Raw(protocol) && is_for(socket, arrival) && !is_filtered(socket)
    };
    let found = inet.raw.select(wants).unwrap_or_default();
    for socket in &found {
        match (arrival.source, arrival.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (hops, class) = (arrival.hop_limit, arrival.traffic_class);
                let header = ipv4_header(source, destination, protocol, (hops, class), arrival.bytes.len());
                put(socket, arrival, arrival.bytes, &header, interface);
            }
            _ => put(socket, arrival, arrival.bytes, &[], interface),
        }
    }
    !found.is_empty()
}

/// A message of ICMP or ICMPv6 came in, with its checksum looked at: an answer to a question of a socket is told it.
pub(super) fn ping_input(inet: &Inet, arrival: &Arrival<'_>) -> bool {
    tell_ping(inet, arrival, ETHERNET_INDEX);
    true
}

fn tell_ping(inet: &Inet, arrival: &Arrival<'_>, interface: u32) {
    let Some(header) = arrival.bytes.first_chunk::<HEADER_BYTES>() else { return };
    if header[0] != echo_of(arrival.source).1 {
        return;
    }
    let own = SocketAddr::new(arrival.destination, u16::from_be_bytes([header[4], header[5]]));
    let found = inet.ping.find(own, || 0, |socket| is_for(socket, arrival).then_some(0));
    if let Some(socket) = found {
        put(&socket, arrival, arrival.bytes, &[], interface);
    }
}

/// ICMP says something of a question that was sent. Whether a socket is there that may have sent it.
pub(super) fn ping_error(inet: &Inet, error: &IcmpError<'_>) -> bool {
    let Some(header) = error.quoted.first_chunk::<HEADER_BYTES>() else { return false };
    let own = SocketAddr::new(error.source, u16::from_be_bytes([header[4], header[5]]));
    let Some(socket) = inet.ping.find(own, || 0, |_| Some(0)) else { return false };
    let Some(udp) = socket.udp() else { return false };
    let is_connected = udp.remote().is_some_and(|remote| remote.ip() == error.destination);
    if socket.settings().is_on(Setting::ReceiveErrors) || (is_connected && error.is_hard) {
        socket.note_error(udp, SendError::reported(error, SocketAddr::new(error.destination, 0)), error.quoted);
    }
    true
}

impl Inet {
    /// A socket for packets of a protocol is told them from now on.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn note_raw(&self, socket: &Arc<Socket>) -> Result<()> {
        self.open();
        self.raw.add(socket)
    }

    /// It ends.
    pub(super) fn forget_raw(&self, socket: &Socket) {
        self.raw.remove(socket);
    }
}

impl Socket {
    /// Types of ICMP messages that it does not take, a bit for each (`ICMP_FILTER`, `ICMPV6_FILTER`).
    pub fn filter(&self) -> [u32; 8] {
        self.udp().map_or([0; 8], |udp| *udp.filter.lock())
    }

    /// Sets them.
    pub fn set_filter(&self, filter: [u32; 8]) {
        self.udp().into_iter().for_each(|udp| *udp.filter.lock() = filter);
    }

    /// Sends a question, or a packet of the socket's protocol.
    ///
    /// # Errors
    /// As of a datagram; `EINVAL`: a ping socket sends questions only.
    pub(super) fn send_raw(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        let length = source.remaining();
        if length > BYTES_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let remote = match sending.target {
            Some(target) => self.destination(target)?,
            None => udp.remote().ok_or(Errno::EDESTADDRREQ)?,
        };
        if remote.is_ipv4() != (self.family() == Family::V4) {
            return Err(Errno::ENETUNREACH);
        }
        udp.check_sending()?;
        let route_source = self.source_towards(SocketAddr::new(remote.ip(), 0))?;
        let local = self.take_any_port(udp)?;
        let address = if has_no_address(local.ip()) { route_source } else { local.ip() };
        let is_own = remote.ip().is_loopback() || self.inet().stack().is_own(remote.ip());
        if !is_own {
            self.check_room(udp, remote.ip(), length)?;
        }
        if let (true, IpAddr::V4(to)) = (self.makes_headers(), remote.ip()) {
            return self.send_whole(source, to, address);
        }
        let mut bytes = reserve::vector(length).map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        if source.take(&mut bytes) < length {
            return Err(Errno::EFAULT);
        }
        let protocol = match self.protocol() {
            Protocol::Raw(protocol) => protocol,
            _ => {
                prepare_question(&mut bytes, remote.ip(), local.port())?;
                if remote.is_ipv4() { ICMP } else { ICMP6 }
            }
        };
        // The checksum of a question is made here, and that of ICMPv6 in any case.
        let is_filled = protocol == ICMP6 || self.protocol() == Protocol::Ping;
        if is_filled && length < HEADER_BYTES {
            return Err(Errno::EINVAL);
        }
        let (header, rest) = bytes.split_at_mut(if is_filled { HEADER_BYTES } else { 0 });
        if is_filled {
            header[2..4].fill(0);
        }
        let (hop_limit, traffic_class) = self.hops_and_class(remote.ip());
        let segment = Segment {
            source: address,
            destination: remote.ip(),
            protocol,
            header,
            checksum_offset_bytes: is_filled.then_some(CHECKSUM_OFFSET_BYTES),
            payload: &[rest],
            segment_bytes: 0,
            hop_limit,
            traffic_class,
            is_whole: false,
        };
        let stack = self.inet().stack();
        if is_own {
            self.inet().answer_own(&segment)?;
            return Ok(length);
        }
        match stack.send_segment(&segment) {
            Ok(()) | Err(Errno::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
        stack.flush();
        Ok(length)
    }

    /// Hop limit and traffic class of what goes to an address.
    fn hops_and_class(&self, remote: IpAddr) -> (u8, u8) {
        let hops = match (remote, remote.is_multicast()) {
            (IpAddr::V4(_), false) => Setting::TimeToLive,
            (IpAddr::V4(_), true) => Setting::MulticastTimeToLive,
            (IpAddr::V6(_), false) => Setting::UnicastHops,
            (IpAddr::V6(_), true) => Setting::MulticastHops,
        };
        let class = if remote.is_ipv4() { Setting::TypeOfService } else { Setting::TrafficClass };
        let get = |setting| self.settings().get(setting);
        (u8::try_from(get(hops)).unwrap_or(HOP_LIMIT), u8::try_from(get(class).max(0)).unwrap_or(0))
    }
}

/// Has a question the number of its socket. `EINVAL`: it is none.
fn prepare_question(bytes: &mut [u8], remote: IpAddr, number: u16) -> Result<()> {
    match bytes.first_chunk_mut::<HEADER_BYTES>() {
        Some(header) if (header[0], header[1]) == (echo_of(remote).0, 0) => {
            header[4..6].copy_from_slice(&number.to_be_bytes());
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

impl Inet {
    /// Nobody was where a datagram within the machine was sent to: sockets that take ICMP see what it says of that,
    /// with the packet's beginning, which is how `traceroute` knows that it has arrived.
    pub(super) fn tell_unreachable(&self, from: SocketAddr, to: SocketAddr, marks: (u8, u8), bytes: &[u8]) {
        if self.raw.is_empty() {
            return;
        }
        let length = UDP_HEADER_BYTES + bytes.len();
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes(), (length as u16).to_be_bytes(), [0; 2]];
        let ports = ports.as_flattened();
        // What there is no memory for is lost, as on any way.
        let Ok(mut message) = reserve::vector(QUOTED_BYTES_MAX) else { return };
        let protocol = match (from.ip(), to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                message.extend_from_slice(&[3, 3, 0, 0, 0, 0, 0, 0]);
                message.extend_from_slice(&ipv4_header(source, destination, UDP, marks, length));
                ICMP
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                message.extend_from_slice(&[1, 4, 0, 0, 0, 0, 0, 0]);
                message.extend_from_slice(&ipv6_header(source, destination, UDP, marks, length));
                ICMP6
            }
            _ => return,
        };
        message.extend_from_slice(ports);
        message.extend_from_slice(&bytes[..bytes.len().min(QUOTED_BYTES_MAX - message.len())]);
        let sum = icmp_checksum(to.ip(), from.ip(), &message);
        message[2..4].copy_from_slice(&sum);
        let (source, destination) = (to.ip(), from.ip());
        let (bytes, traffic_class) = (&message[..], ERROR_CLASS);
        let arrival = Arrival { source, destination, bytes, hop_limit: HOP_LIMIT, traffic_class };
        tell_raw(self, protocol, &arrival, LOOPBACK.index);
    }

    /// A packet to this machine itself: told to who takes its protocol; a question is answered.
    pub(super) fn answer_own(&self, segment: &Segment<'_>) -> Result<()> {
        let length = segment.header.len() + segment.payload.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes: Vec<u8> = reserve::vector(length).map_err(|_| Errno::ENOBUFS)?;
        bytes.extend_from_slice(segment.header);
        segment.payload.iter().for_each(|part| bytes.extend_from_slice(part));
        let (own, protocol) = (segment.destination, segment.protocol);
        let interface = if own.is_loopback() { LOOPBACK.index } else { ETHERNET_INDEX };
        let tell = |source: IpAddr, destination: IpAddr, bytes: &[u8]| {
            let (hop_limit, traffic_class) = (segment.hop_limit, segment.traffic_class);
            let arrival = Arrival { source, destination, bytes, hop_limit, traffic_class };
            tell_raw(self, protocol, &arrival, interface);
            if matches!(protocol, ICMP | ICMP6) {
                tell_ping(self, &arrival, interface);
            }
        };
        let show = |source: IpAddr, destination: IpAddr, bytes: &[u8]| {
            if !self.stack().taps().is_empty() {
                let hops = (segment.hop_limit, segment.traffic_class);
                self.stack().show_local((source, destination), protocol, hops, &[bytes]);
            }
        };
        // What a program makes of IPv4's ICMP by itself is as it is; a broken question is not answered.
        if segment.checksum_offset_bytes.is_some() {
            Self::fill_icmp(segment, &mut bytes);
        }
        let is_right = protocol != ICMP || icmp_checksum(segment.source, own, &bytes) == [0, 0];
        show(segment.source, own, &bytes);
        tell(segment.source, own, &bytes);
        let (request, reply) = echo_of(own);
        let is_question = matches!(protocol, ICMP | ICMP6) && bytes.len() >= HEADER_BYTES && bytes[..2] == [request, 0];
        if is_question && is_right {
            bytes[0] = reply;
            bytes[2..4].fill(0);
            let answer = Segment { source: own, destination: segment.source, ..*segment };
            Self::fill_icmp(&answer, &mut bytes);
            show(own, segment.source, &bytes);
            tell(own, segment.source, &bytes);
        }
        Ok(())
    }

    fn fill_icmp(segment: &Segment<'_>, bytes: &mut [u8]) {
        if matches!(segment.protocol, ICMP | ICMP6) && bytes.len() >= HEADER_BYTES {
            bytes[2..4].fill(0);
            let sum = icmp_checksum(segment.source, segment.destination, bytes);
            bytes[2..4].copy_from_slice(&sum);
        }
    }
}
