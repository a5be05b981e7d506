//! Interfaces, their addresses, and which of them a destination is reached by.
//!
//! So far there is the loopback interface alone: whatever is not on this machine is unreachable (`ENETUNREACH`), and
//! nothing pretends otherwise. A card joins as another [`Interface`] with addresses of its own.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Errno, Result};

/// An address of an interface, and how many bits of it name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of the network's prefix.
    pub prefix_bits: u8,
}

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number, from 1 on.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// Longest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Addresses.
    pub addresses: &'static [InterfaceAddress],
}

/// The interface by which a pod's programs reach each other.
pub const LOOPBACK: Interface = Interface {
    index: 1,
    name: "lo",
    packet_bytes_max: 65_536,
    addresses: &[
        InterfaceAddress { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix_bits: 8 },
        InterfaceAddress { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 },
    ],
};

/// All of them, by index.
pub const INTERFACES: &[Interface] = &[LOOPBACK];

/// Number and name of the card's interface.
pub const ETHERNET_INDEX: u32 = 2;
/// See [`ETHERNET_INDEX`].
pub const ETHERNET_NAME: &str = "eth0";

/// What an interface is like now, as programs are told (`ip link`, `SIOCGIF*`, `/proc/net/dev`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Its number, from 1 on.
    pub index: u32,
    /// Its name.
    pub name: &'static str,
    /// It is [`LOOPBACK`] (`ARPHRD_LOOPBACK`, no hardware address), else Ethernet.
    pub is_loopback: bool,
    /// It is switched on (`IFF_UP`).
    pub is_up: bool,
    /// Its card reaches somebody, and it is up (`IFF_RUNNING`, `IFF_LOWER_UP`).
    pub is_running: bool,
    /// Longest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Its Ethernet address.
    pub hardware_address: [u8; 6],
    /// Addresses that it has now.
    pub addresses: Vec<InterfaceAddress>,
    /// What has gone through it.
    pub traffic: Traffic,
}

/// What has gone through an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that came in.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that were no good.
    pub receive_errors: u64,
    /// Frames that were dropped, for want of room or because nothing here takes them.
    pub receive_drops: u64,
    /// Frames that came in for a group.
    pub multicast_packets: u64,
    /// Frames that were sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that could not be sent.
    pub send_errors: u64,
    /// Frames that there was no room for.
    pub send_drops: u64,
}

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network.
    pub network: InterfaceAddress,
    /// The router to it; `None`: it is right there.
    pub gateway: Option<IpAddr>,
    /// The interface's number.
    pub interface: u32,
}

/// A neighbour on the card's network, as programs are told (`ip neigh`, `/proc/net/arp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourStatus {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is known.
    pub hardware_address: Option<[u8; 6]>,
    /// `NUD_*`: 1 incomplete, 2 reachable, 4 stale, 8 delay, 16 probe, 32 failed.
    pub state: u8,
}

impl InterfaceAddress {
    /// Whether packets to `destination` come in here.
    fn is_own(&self, destination: IpAddr) -> bool {
        match (self.address, destination) {
            // All of 127.0.0.0/8 is the machine itself.
            (IpAddr::V4(own), IpAddr::V4(other)) if own.is_loopback() => other.is_loopback(),
            (own, other) => own == other,
        }
    }
}

/// Whether a socket may have that address.
#[must_use]
pub fn is_local(address: IpAddr) -> bool {
    INTERFACES.iter().flat_map(|interface| interface.addresses).any(|own| own.is_own(address))
}

/// The address that a packet to `destination` is sent from.
///
/// # Errors
/// `ENETUNREACH`: it is not on this machine.
pub fn source_for(destination: IpAddr) -> Result<IpAddr> {
    let mut all = INTERFACES.iter().flat_map(|interface| interface.addresses);
    all.find(|own| own.is_own(destination)).map(|own| own.address).ok_or(Errno::ENETUNREACH)
}

#[cfg(test)]
mod tests {
    use super::{is_local, source_for};
    use crate::error::Errno;

    #[test]
    fn only_the_machine_itself_is_reached() {
        let address = |text: &str| text.parse().expect("an address");
        assert!(is_local(address("127.3.2.1")) && is_local(address("::1")));
        assert!(!is_local(address("10.0.2.15")) && !is_local(address("::2")));
        assert_eq!(source_for(address("127.9.9.9")), Ok(address("127.0.0.1")));
        assert_eq!(source_for(address("::1")), Ok(address("::1")));
        for far in ["1.1.1.1", "255.255.255.255", "224.0.0.1", "fe80::1", "2001:db8::1"] {
            assert_eq!(source_for(address(far)), Err(Errno::ENETUNREACH), "{far}");
        }
    }
}
