//! Headers as sockets are told them that see packets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::{self, Checksum};
use super::ipv4;
use super::ipv6;
use super::packet::protocol;

/// The header of an IPv4 packet as it came in, but for its options and its number.
pub(in super::super) fn ipv4_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    (hop_limit, traffic_class): (u8, u8),
    payload_bytes: usize,
) -> [u8; ipv4::HEADER_BYTES] {
    let header = ipv4::Header {
        source,
        destination,
        protocol,
        hop_limit,
        traffic_class,
        identification: 0,
        is_whole: true,
        has_more: false,
        offset_bytes: 0,
    };
    header.bytes(payload_bytes)
}

/// The header of an IPv6 packet of which nothing else is known.
pub(in super::super) fn ipv6_header(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next: u8,
    (hop_limit, traffic_class): (u8, u8),
    payload_bytes: usize,
) -> [u8; ipv6::HEADER_BYTES] {
    ipv6::Header { source, destination, next, hop_limit, traffic_class }.bytes(payload_bytes)
}

/// The checksum of a message of ICMP or ICMPv6, as the addresses are.
pub(in super::super) fn icmp_checksum(source: IpAddr, destination: IpAddr, message: &[u8]) -> [u8; 2] {
    if source.is_ipv4() {
        return checksum::of(message);
    }
    let mut sum = Checksum::of_addresses(source, destination, protocol::ICMP6, message.len());
    sum.add(message);
    sum.finish()
}
