//! The network of a run: what the host tool has made for a pod's card, as records of the run configuration.
//!
//! The tool knows the network that it has asked QEMU for, so the library OS is told its addresses instead of finding
//! them out. Records: one with the flags, whose presence means that there is a card; one for each address, behind its
//! role. Names for `/etc/hosts` are records of their own, which a pod without a card can have too.
//!
//! Limits: [`ADDRESS_COUNT_MAX`] addresses, [`NAME_COUNT_MAX`] names, each of at most [`NAME_BYTES_MAX`] bytes that
//! are printable and not white space, so that a name cannot be taken for two or for a line of its own.

use alloc::vec::Vec;
use core::net::IpAddr;

use bitflags::bitflags;

use aegis_image::bytes::u32_at;

/// Most addresses, whatever their role.
pub const ADDRESS_COUNT_MAX: usize = 64;
/// Most names.
pub const NAME_COUNT_MAX: usize = 256;
/// Longest name in bytes (RFC 1035).
pub const NAME_BYTES_MAX: usize = 255;

bitflags! {
    /// Switches of a network.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NetworkFlags: u32 {
        /// Addresses are asked for by DHCP.
        const DHCP = 1;
        /// Programs may open connections to the host itself.
        const HOST_ACCESS = 1 << 1;
        // Flags of a later version are kept.
        const _ = !0;
    }
}

/// An address and how many bits of it name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixed {
    /// The address.
    pub address: IpAddr,
    /// Length of the network's prefix.
    pub prefix_bits: u8,
}

/// A line of `/etc/hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub address: IpAddr,
}

/// What a pod's card is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Switches.
    pub flags: NetworkFlags,
    /// Addresses of the card's interface.
    pub addresses: Vec<Prefixed>,
    /// Routers of the default route.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub name_servers: Vec<IpAddr>,
    /// Networks in which the host itself answers, as far as they can be told.
    pub host_networks: Vec<Prefixed>,
}

pub(crate) const TAG_NETWORK: u32 = 14;
pub(crate) const TAG_NETWORK_ADDRESS: u32 = 15;
pub(crate) const TAG_NAME: u32 = 16;

const ROLE_OWN: u8 = 1;
const ROLE_GATEWAY: u8 = 2;
const ROLE_NAME_SERVER: u8 = 3;
const ROLE_HOST: u8 = 4;

/// Whether a name can stand in `/etc/hosts`.
#[must_use]
pub fn is_host_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name[0] != b'#' && name.iter().all(u8::is_ascii_graphic)
}

impl Prefixed {
    /// `None` if the prefix is longer than the address.
    #[must_use]
    pub fn new(address: IpAddr, prefix_bits: u8) -> Option<Self> {
        (prefix_bits <= bits_of(address)).then_some(Self { address, prefix_bits })
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Network {
    /// Whether it keeps the limits.
    pub(crate) fn is_valid(&self) -> bool {
        let prefixed = self.addresses.len() + self.host_networks.len();
        let is_short = |it: &Prefixed| it.prefix_bits <= bits_of(it.address);
        prefixed + self.gateways.len() + self.name_servers.len() <= ADDRESS_COUNT_MAX
            && self.addresses.iter().chain(&self.host_networks).all(is_short)
    }

    /// Gives each record to `record`: its tag and value.
    pub(crate) fn write(&self, mut record: impl FnMut(u32, &[u8])) {
        record(TAG_NETWORK, &self.flags.bits().to_le_bytes());
        let mut address = |role: u8, address: IpAddr, prefix_bits: u8| {
            let mut value = alloc::vec![role, prefix_bits];
            push_address(&mut value, address);
            record(TAG_NETWORK_ADDRESS, &value);
        };
        self.addresses.iter().for_each(|it| address(ROLE_OWN, it.address, it.prefix_bits));
        self.gateways.iter().for_each(|it| address(ROLE_GATEWAY, *it, bits_of(*it)));
        self.name_servers.iter().for_each(|it| address(ROLE_NAME_SERVER, *it, bits_of(*it)));
        self.host_networks.iter().for_each(|it| address(ROLE_HOST, it.address, it.prefix_bits));
    }

    /// Takes one record over; `None` for a wrong value. An address of a later version's role is left out.
    pub(crate) fn take_record(&mut self, tag: u32, value: &[u8]) -> Option<()> {
        match tag {
            TAG_NETWORK => {
                (value.len() == 4).then_some(())?;
                self.flags = NetworkFlags::from_bits_retain(u32_at(value, 0)?);
            }
            TAG_NETWORK_ADDRESS => {
                let ([role, prefix_bits], address) = value.split_first_chunk::<2>()?;
                let it = Prefixed::new(address_of(address)?, *prefix_bits)?;
                match *role {
                    ROLE_OWN => self.addresses.push(it),
                    ROLE_GATEWAY => self.gateways.push(it.address),
                    ROLE_NAME_SERVER => self.name_servers.push(it.address),
                    ROLE_HOST => self.host_networks.push(it),
                    _ => {}
                }
            }
            _ => {}
        }
        Some(())
    }
}

impl HostEntry {
    /// Whether all of them keep the limits.
    pub(crate) fn are_valid(list: &[Self]) -> bool {
        list.len() <= NAME_COUNT_MAX && list.iter().all(|entry| is_host_name(&entry.name))
    }

    /// The value of its record.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = alloc::vec![bits_of(self.address) / 8];
        push_address(&mut value, self.address);
        value.extend_from_slice(&self.name);
        value
    }

    /// From the value of its record; `None` for a wrong one.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let (address_bytes, rest) = value.split_first()?;
        let (address, name) = rest.split_at_checked(usize::from(*address_bytes))?;
        Some(Self { name: name.to_vec(), address: address_of(address)? })
    }
}

fn push_address(value: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => value.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => value.extend_from_slice(&address.octets()),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let four = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::{HostEntry, Network, NetworkFlags, Prefixed, TAG_NETWORK_ADDRESS, is_host_name};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::IpAddr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn sample() -> Network {
        let prefixed = |text, bits| Prefixed { address: address(text), prefix_bits: bits };
        Network {
            flags: NetworkFlags::DHCP | NetworkFlags::HOST_ACCESS,
            addresses: vec![prefixed("10.0.2.15", 24), prefixed("fec0::15", 64)],
            gateways: vec![address("10.0.2.2"), address("fec0::2")],
            name_servers: vec![address("10.0.2.3")],
            host_networks: vec![prefixed("10.0.2.0", 24)],
        }
    }

    #[test]
    fn records_come_back() {
        let mut records: Vec<(u32, Vec<u8>)> = Vec::new();
        sample().write(|tag, value| records.push((tag, value.to_vec())));
        let mut read = Network::default();
        for (tag, value) in &records {
            assert_eq!(read.take_record(*tag, value), Some(()));
        }
        assert_eq!(read, sample());
        assert!(read.is_valid());
    }

    #[test]
    fn wrong_records_are_refused() {
        for value in [&[1][..], &[1, 24, 10, 0, 2], &[1, 33, 10, 0, 2, 15]] {
            assert_eq!(Network::default().take_record(TAG_NETWORK_ADDRESS, value), None, "{value:?}");
        }
        for value in [&[][..], &[4, 10, 0, 2], &[3, 10, 0, 2, b'x']] {
            assert_eq!(HostEntry::read(value), None, "{value:?}");
        }
        assert_eq!(Network::default().take_record(TAG_NETWORK_ADDRESS, &[9, 0, 10, 0, 2, 15]), Some(()));
    }

    #[test]
    fn names_cannot_make_lines() {
        for name in ["", "a b", "a\nb", "a\tb", "#a", "a\0", "\u{e4}"] {
            assert!(!is_host_name(name.as_bytes()), "{name:?}");
        }
        assert!(is_host_name(b"db.internal") && !is_host_name(&[b'a'; 256]));
        let entry = |name: &str| HostEntry { name: name.into(), address: address("192.0.2.7") };
        assert_eq!(HostEntry::read(&entry("db").value()), Some(entry("db")));
        assert!(HostEntry::are_valid(&[entry("db")]) && !HostEntry::are_valid(&[entry("db"), entry("a b")]));
        assert!(!HostEntry::are_valid(&vec![entry("db"); 257]));
        let mut network = sample();
        network.gateways = vec![address("10.0.2.2"); 65];
        assert!(!network.is_valid());
    }
}
