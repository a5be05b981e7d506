//! Interfaces, their addresses, and which of them a destination is reached by.
//!
//! So far there is the loopback interface alone: whatever is not on this machine is unreachable (`ENETUNREACH`), and
//! nothing pretends otherwise. A card joins as another [`Interface`] with addresses of its own.

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
