//! Datagrams to other machines and from them, what ICMP says of them, and groups.
//!
//! A datagram that is longer than what gets through goes in pieces, unless its socket forbids that
//! (`IP_PMTUDISC_DO`). Its sender has looked for room at the card before ([`super::room`]).
//!
//! Neighbours: [`super::udp`], which keeps what comes in; [`super::network`], which calls.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use super::Inet;
use super::error_queue::SendError;
use super::interface::ETHERNET_INDEX;
use super::payload::Payload;
use super::settings::Setting;
use super::socket::{Family, Socket, switch};
use super::stack::counters::Counter;
use super::udp::{Datagram, HEADER_BYTES, Udp};
use super::wire::{Arrival, IcmpError, Segment};
use crate::error::{Errno, Result};
use crate::reserve;

/// `IPPROTO_UDP`.
const UDP: u8 = 17;
/// Where the checksum stands in it.
const CHECKSUM_OFFSET_BYTES: u16 = 6;
/// Groups of a socket (`net.ipv4.igmp_max_memberships`).
const GROUP_COUNT_MAX: usize = 20;
/// `IP_PMTUDISC_DO` and `IP_PMTUDISC_PROBE`: nothing is sent in pieces.
const WHOLE_MODES: [i32; 2] = [2, 3];

fn ports_of(bytes: &[u8]) -> Option<(u16, u16)> {
    let ports = bytes.first_chunk::<4>()?;
    Some((u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])))
}

/// A datagram came in, of the length that it says and with its checksum looked at. False: nothing takes it.
pub(super) fn udp_input(inet: &Arc<Inet>, arrival: &Arrival<'_>) -> bool {
    let Some((source_port, port)) = ports_of(arrival.bytes) else { return false };
    let length = arrival.bytes.get(4..6).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    let Some(bytes) = arrival.bytes.get(HEADER_BYTES..length) else { return false };
    let from = SocketAddr::new(arrival.source, source_port);
    let to = SocketAddr::new(arrival.destination, port);
    let is_for_group = to.ip().is_multicast() || inet.stack().is_broadcast(to.ip());
    let take = |socket: &Arc<Socket>| {
        let Some(udp) = socket.udp() else { return };
        // What there is no memory for is lost.
        let Ok(bytes) = Payload::of(bytes) else { return inet.stack().counters().add(LOST) };
        let datagram = Datagram {
            bytes,
            from,
            to: to.ip(),
            interface: ETHERNET_INDEX as u8,
            hop_limit: arrival.hop_limit,
            traffic_class: arrival.traffic_class,
        };
        match socket.take_in(udp, datagram) {
            Ok(()) => inet.stack().counters().add(Counter::UdpReceived),
            Err(_) => inet.stack().counters().add(LOST),
        }
    };
    if is_for_group {
        let all = inet.udp.find_all(to, |socket| socket.rank_datagram(from, ETHERNET_INDEX).is_some());
        all.iter().flatten().for_each(take);
        // Nobody is told that nobody is there.
        return true;
    }
    match inet.udp.find(to, || inet.seed_for(Some(from)), |socket| socket.rank_datagram(from, ETHERNET_INDEX)) {
        Some(socket) => {
            take(&socket);
            true
        }
        None => false,
    }
}

/// Datagrams that were lost because a socket had no room.
const LOST: Counter = Counter::UdpReceiveBufferErrors;

/// ICMP says something of a datagram that was sent. Whether a socket is there that may have sent it.
pub(super) fn udp_error(inet: &Arc<Inet>, error: &IcmpError<'_>) -> bool {
    let Some((port, remote_port)) = ports_of(error.quoted) else { return false };
    let local = SocketAddr::new(error.source, port);
    let remote = SocketAddr::new(error.destination, remote_port);
    let found = inet.udp.find(local, || inet.seed_for(Some(remote)), |socket| socket.udp()?.rank(remote));
    let Some((socket, udp)) = found.as_ref().and_then(|socket| Some((socket, socket.udp()?))) else { return false };
    let is_connected = udp.remote() == Some(remote);
    let settings = socket.settings();
    let setting = match (socket.family(), error.source) {
        (Family::V6, IpAddr::V6(_)) => Setting::MtuDiscover6,
        _ => Setting::MtuDiscover,
    };
    // As on Linux, that a path is shorter is told to all but those who want to know nothing of it.
    let is_hard = match error.packet_bytes_max {
        Some(_) => settings.get(setting) != 0,
        None => error.is_hard,
    };
    if settings.is_on(Setting::ReceiveErrors) || (is_connected && is_hard) {
        let quoted = error.quoted.get(HEADER_BYTES..).unwrap_or_default();
        socket.note_error(udp, SendError::reported(error, remote), quoted);
    }
    true
}

impl Socket {
    /// The address that datagrams to another machine, or to this one by its card's address, are sent from; and to which
    /// machine they are given, if it is another.
    ///
    /// # Errors
    /// `ENETUNREACH`: no way leads there. `EACCES`: to all machines, without `SO_BROADCAST`.
    pub(super) fn way_far(&self, remote: IpAddr) -> Result<(IpAddr, Option<IpAddr>)> {
        let view = self.inet().stack().view(remote).ok_or(Errno::ENETUNREACH)?;
        if view.is_own() {
            return Ok((remote, None));
        }
        let hop = view.hop.ok_or(Errno::ENETUNREACH)?;
        if view.is_broadcast && !self.options().is_on(switch::BROADCAST) {
            return Err(Errno::EACCES);
        }
        Ok((hop.source, Some(hop.next)))
    }

    /// Sends a datagram to another machine, by way of `next`.
    ///
    /// # Errors
    /// `EMSGSIZE`: it may not go in pieces, and is too long; `EINVAL`: it is bound to loopback; `ECONNREFUSED`: the
    /// host may not be spoken with.
    pub(super) fn send_far(
        &self,
        from: SocketAddr,
        (remote, next): (SocketAddr, IpAddr),
        bytes: Payload,
        marks: (u8, u8),
    ) -> Result<usize> {
        if from.ip().is_loopback() {
            return Err(Errno::EINVAL);
        }
        let (inet, settings) = (self.inet(), self.settings());
        let length = HEADER_BYTES + bytes.len();
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&from.port().to_be_bytes());
        header[2..4].copy_from_slice(&remote.port().to_be_bytes());
        header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        let is_group = remote.ip().is_multicast();
        let discover = if remote.is_ipv4() { Setting::MtuDiscover } else { Setting::MtuDiscover6 };
        let segment = Segment {
            source: from.ip(),
            destination: remote.ip(),
            protocol: UDP,
            header: &header,
            checksum_offset_bytes: Some(CHECKSUM_OFFSET_BYTES),
            payload: &[&bytes],
            segment_bytes: 0,
            hop_limit: marks.0,
            traffic_class: marks.1,
            is_whole: WHOLE_MODES.contains(&settings.get(discover)),
        };
        inet.stack().counters().add(Counter::UdpSent);
        match inet.stack().send_segment_by(next, &segment) {
            // Others were faster: nobody is told of what is lost on its way.
            Ok(()) | Err(Errno::ENOBUFS) => {}
            Err(error) => return Err(error),
        }
        inet.stack().flush();
        let count = bytes.len();
        if is_group {
            self.send_to_own_members(from, remote, &bytes, marks);
        }
        Ok(count)
    }

    /// What is sent to a group that this machine has joined comes back, too (`IP_MULTICAST_LOOP`).
    fn send_to_own_members(&self, from: SocketAddr, remote: SocketAddr, bytes: &Payload, marks: (u8, u8)) {
        let setting = if remote.is_ipv4() { Setting::MulticastLoop } else { Setting::MulticastLoop6 };
        if !self.settings().is_on(setting) || !self.inet().stack().has_joined(remote.ip()) {
            return;
        }
        let fits = |socket: &Socket| socket.udp().is_some_and(|udp| udp.rank(from).is_some());
        for member in self.inet().udp.find_all(remote, fits).iter().flatten() {
            if let (Some(udp), Ok(bytes)) = (member.udp(), bytes.copy()) {
                let near = Datagram::near(bytes, from, remote.ip(), marks);
                let datagram = Datagram { interface: ETHERNET_INDEX as u8, ..near };
                let _ = member.take_in(udp, datagram);
            }
        }
    }

    /// Joins a group at the card (`IP_ADD_MEMBERSHIP`, `IPV6_JOIN_GROUP`).
    ///
    /// # Errors
    /// `EINVAL`: no group. `EADDRINUSE`: it has joined it. `ENODEV`: there is no card. `ENOBUFS`: too many.
    /// `EOPNOTSUPP`: not a socket of datagrams.
    pub fn join_group(&self, group: IpAddr) -> Result<()> {
        let udp = self.udp().ok_or(Errno::EOPNOTSUPP)?;
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let mut groups = udp.groups.lock();
        if groups.contains(&group) {
            return Err(Errno::EADDRINUSE);
        }
        if groups.len() >= GROUP_COUNT_MAX {
            return Err(Errno::ENOBUFS);
        }
        reserve::reserve(&mut groups, 1).map_err(|_| Errno::ENOBUFS)?;
        self.inet().stack().join(group)?;
        groups.push(group);
        Ok(())
    }

    /// Leaves a group that it has joined.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: it has not. `EINVAL`: no group. `EOPNOTSUPP`.
    pub fn leave_group(&self, group: IpAddr) -> Result<()> {
        let udp = self.udp().ok_or(Errno::EOPNOTSUPP)?;
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let mut groups = udp.groups.lock();
        let at = groups.iter().position(|known| *known == group).ok_or(Errno::EADDRNOTAVAIL)?;
        groups.remove(at);
        self.inet().stack().leave(group);
        Ok(())
    }

    /// Leaves all groups: it ends.
    pub(super) fn leave_all(&self, udp: &Udp) {
        let groups = core::mem::take(&mut *udp.groups.lock());
        groups.into_iter().for_each(|group| self.inet().stack().leave(group));
    }
}
