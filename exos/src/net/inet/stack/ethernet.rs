//! Ethernet headers (IEEE 802.3), and the addresses that groups have there.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::wire::ETHERNET_HEADER_BYTES;

/// A card's address.
pub(crate) type HardwareAddress = [u8; 6];

/// All cards.
pub(crate) const BROADCAST: HardwareAddress = [0xff; 6];

/// `ETH_P_IP`, `ETH_P_ARP`, `ETH_P_IPV6`.
pub(crate) const IPV4: u16 = 0x0800;
/// See [`IPV4`].
pub(crate) const ARP: u16 = 0x0806;
/// See [`IPV4`].
pub(crate) const IPV6: u16 = 0x86dd;

/// Whether it is a group's address, or that of all.
pub(crate) fn is_group(address: HardwareAddress) -> bool {
    address[0] & 1 != 0
}

/// Whether a card can have the address.
pub(crate) fn is_unicast(address: HardwareAddress) -> bool {
    !is_group(address) && address != [0; 6]
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) destination: HardwareAddress,
    pub(crate) source: HardwareAddress,
    pub(crate) protocol: u16,
}

impl Header {
    /// Takes a frame apart; `None`: it is too short.
    pub(crate) fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = frame.split_first_chunk::<ETHERNET_HEADER_BYTES>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, p0, p1] = *header;
        let destination = [d0, d1, d2, d3, d4, d5];
        let source = [s0, s1, s2, s3, s4, s5];
        Some((Self { destination, source, protocol: u16::from_be_bytes([p0, p1]) }, rest))
    }

    /// The header as it is sent.
    pub(crate) fn bytes(self) -> [u8; ETHERNET_HEADER_BYTES] {
        let mut bytes = [0; ETHERNET_HEADER_BYTES];
        bytes[..6].copy_from_slice(&self.destination);
        bytes[6..12].copy_from_slice(&self.source);
        bytes[12..].copy_from_slice(&self.protocol.to_be_bytes());
        bytes
    }
}

/// What the group of an address has as its own address (RFC 1112, RFC 2464); `None`: it is no group's.
pub(crate) fn group_address(address: IpAddr) -> Option<HardwareAddress> {
    match address {
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let octets = v6.octets();
            Some([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
        }
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some(BROADCAST),
        _ => None,
    }
}

/// The interface's part of an address that is made of a card's (modified EUI-64, RFC 4291).
fn interface_identifier(address: HardwareAddress) -> [u8; 8] {
    let [a, b, c, d, e, f] = address;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The address that a card has in a network of 64 bits.
pub(crate) fn address_in(network: Ipv6Addr, address: HardwareAddress) -> Ipv6Addr {
    let mut octets = network.octets();
    octets[8..].copy_from_slice(&interface_identifier(address));
    Ipv6Addr::from(octets)
}

#[cfg(test)]
mod tests {
    use super::{BROADCAST, Header, address_in, group_address, is_unicast};

    #[test]
    fn headers_are_the_same_both_ways() {
        let header = Header { destination: BROADCAST, source: [2, 0, 0, 0, 0, 1], protocol: 0x0806 };
        let mut frame = header.bytes().to_vec();
        frame.push(7);
        assert_eq!(Header::split(&frame), Some((header, &[7][..])));
        assert_eq!(Header::split(&frame[..13]), None);
        assert!(is_unicast([2, 0, 0, 0, 0, 1]) && !is_unicast([0; 6]) && !is_unicast([1, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn groups_and_cards_have_the_addresses_of_the_standards() {
        let at = |text: &str| text.parse().expect("an address");
        assert_eq!(group_address(at("224.129.2.3")), Some([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(group_address(at("ff02::1:ff01:203")), Some([0x33, 0x33, 0xff, 1, 2, 3]));
        assert_eq!(group_address(at("255.255.255.255")), Some(BROADCAST));
        assert_eq!(group_address(at("10.0.0.1")), None);
        let link_local = address_in("fe80::".parse().expect("a network"), [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(at("fe80::5054:ff:fe12:3456"), std::net::IpAddr::V6(link_local));
    }
}
