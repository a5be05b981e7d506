//! An IP packet that came in, once its headers are looked at.

use core::net::IpAddr;

use super::local::Meant;

/// Protocols by the numbers that they have in IP headers (`IPPROTO_*`).
pub(crate) mod protocol {
    /// ICMP.
    pub(crate) const ICMP: u8 = 1;
    /// IGMP.
    pub(crate) const IGMP: u8 = 2;
    /// TCP.
    pub(crate) const TCP: u8 = 6;
    /// UDP.
    pub(crate) const UDP: u8 = 17;
    /// ICMPv6.
    pub(crate) const ICMP6: u8 = 58;
}

/// A packet, whole or a piece of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    /// What follows the network's headers.
    pub(crate) payload: &'a [u8],
    /// All of it, or as much of it as its sender is told if something is wrong.
    pub(crate) whole: &'a [u8],
    pub(crate) meant: Meant,
    /// It came in a frame for a group or all.
    pub(crate) is_for_group: bool,
    /// The card or the host has looked at the transport checksum.
    pub(crate) is_checksum_valid: bool,
}

impl Packet<'_> {
    /// Whether its sender may be told of an error: there is one sender, and nobody else was meant.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.meant == Meant::Own && !self.is_for_group && is_sender(self.source)
    }
}

/// Whether an address can be one machine's.
pub(crate) fn is_sender(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && match address {
            IpAddr::V4(v4) => !v4.is_broadcast() && v4.octets()[0] != 0 && v4.octets()[0] < 240,
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none(),
        }
}
