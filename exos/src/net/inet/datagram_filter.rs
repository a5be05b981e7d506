//! What a socket's filter says of a datagram, and what packet sockets are shown of one that stays within the machine:
//! both see a packet with headers, which are made for that.
//!
//! Neighbours: [`super::udp`] and [`super::raw`] ask; [`crate::net::filter`] runs the program.

use core::net::{IpAddr, SocketAddr};

use super::interface::LOOPBACK;
use super::stack::{Stack, ipv4_header, ipv6_header};
use crate::net::filter::{Filter, Packet};

/// `IPPROTO_UDP`.
const UDP: u8 = 17;
/// Bytes of UDP's header.
const HEADER_BYTES: usize = 8;

/// The header of a datagram, without its checksum.
fn udp_header(from: SocketAddr, to_port: u16, payload_bytes: usize) -> [u8; HEADER_BYTES] {
    let [[a, b], [c, d]] = [from.port(), to_port].map(u16::to_be_bytes);
    let [e, f] = ((HEADER_BYTES + payload_bytes) as u16).to_be_bytes();
    [a, b, c, d, e, f, 0, 0]
}

/// A datagram without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// `IPPROTO_*`.
    pub(super) protocol: u8,
    pub(super) interface: u32,
    /// Hop limit, and traffic class.
    pub(super) hops: (u8, u8),
    /// Its bytes begin with the network's header, as those of a raw socket for IPv4 do.
    pub(super) has_header: bool,
}

/// How many of a datagram's bytes a filter leaves. `None`: it does not take it.
#[cold]
pub(super) fn admitted(filter: &Filter, outline: &Outline, bytes: &[u8], random: u32) -> Option<usize> {
    let Outline { from, to, protocol, interface, hops, has_header } = *outline;
    let header = udp_header(from, to.port(), bytes.len());
    let transport = if protocol == UDP && !has_header { &header[..] } else { &[] };
    let transport_bytes = transport.len() + bytes.len();
    let (v4, v6);
    let (kind, network): (u16, &[u8]) = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) if !has_header => {
            v4 = ipv4_header(source, destination, protocol, hops, transport_bytes);
            (0x0800, &v4)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            v6 = ipv6_header(source, destination, protocol, hops, transport_bytes);
            (0x86dd, &v6)
        }
        _ => (0x0800, &[]),
    };
    let taken = filter.run(&Packet {
        parts: &[network, transport, bytes],
        begin_bytes: network.len(),
        network_bytes: 0,
        protocol: kind,
        kind: 0,
        interface,
        hardware_kind: if interface == LOOPBACK.index { 772 } else { 1 },
        random,
    });
    (taken > 0).then(|| taken.max(transport.len()) - transport.len())
}

impl Stack {
    /// Shows a datagram that stays within the machine.
    #[cold]
    pub(super) fn show_datagram(&self, from: SocketAddr, to: SocketAddr, hops: (u8, u8), bytes: &[u8]) {
        let header = udp_header(from, to.port(), bytes.len());
        self.show_local((from.ip(), to.ip()), UDP, hops, &[&header, bytes]);
    }
}
