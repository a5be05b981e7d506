//! The host's own services, kept from programs unless the run lets them in (`--host-access`).
//!
//! In QEMU's user network the host answers with its own loopback: at the router's address, at every other address of
//! the network that means nothing else, at the broadcast address, and in IPv6 at link-local addresses too. What listens
//! there (databases without passwords, debuggers) trusts whoever gets there. So a program begins nothing towards those
//! networks, but for questions to the name server. What the host begins is answered: the segments of a connection that
//! it opened, and datagrams to where one came from.
//!
//! How strong that is depends on where this runs. In the address space of the programs it keeps out those that use
//! their library OS as it is meant; one that takes its library OS over sends what it likes. There the host's side has
//! to cut the way: `--network serve` or `none`.

use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr};

use siphasher::sip::SipHasher13;

use super::super::interface::InterfaceAddress;
use super::super::wire::{Arrival, NetworkConfiguration, Segment};
use super::ethernet::{self, Header};
use super::ipv4;
use super::ipv6;
use super::local::has_prefix;
use super::packet::protocol::{ICMP6, TCP, UDP};
use crate::sync::Mutex;

/// Port of name servers.
const DOMAIN: u16 = 53;
/// Port of DHCP's servers.
const LEASES: u16 = 67;
/// In a TCP header: the byte of the flags, and two of them.
const FLAGS_OFFSET: usize = 13;
const FLAG_SYN: u8 = 2;
const FLAG_ACK: u8 = 16;
/// Senders of datagrams that are remembered. One that hashes to the place of another takes it.
const SENDER_COUNT: usize = 256;

/// Where a datagram came from, and to which port of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sender {
    address: IpAddr,
    port: u16,
    own_port: u16,
}

/// See the module's head.
pub(super) struct HostGuard {
    /// Empty: there is nothing to guard.
    networks: Vec<InterfaceAddress>,
    name_servers: Vec<IpAddr>,
    /// Made when the first datagram comes from the host.
    senders: Mutex<Vec<Option<Sender>>>,
    /// So that nobody can choose whose place is taken.
    hash_key: [u64; 2],
}

impl HostGuard {
    /// As the run asks for it.
    pub(super) fn new(configuration: &NetworkConfiguration, hash_key: [u64; 2]) -> Self {
        let is_guarded = !configuration.has_host_access;
        Self {
            networks: if is_guarded { configuration.host_networks.clone() } else { Vec::new() },
            name_servers: configuration.name_servers.clone(),
            senders: Mutex::default(),
            hash_key,
        }
    }

    /// Whether a program may connect there.
    pub(super) fn admits_connection(&self, destination: IpAddr, port: u16) -> bool {
        !self.is_host(destination) || self.is_question(destination, port)
    }

    /// Whether a segment may go out. One that is too short to tell goes nowhere near the host.
    pub(super) fn admits(&self, segment: &Segment<'_>) -> bool {
        if !self.is_host(segment.destination) {
            return true;
        }
        let (Some(own_port), Some(port)) = (port_at(segment.header, 0), port_at(segment.header, 2)) else {
            return !matches!(segment.protocol, TCP | UDP);
        };
        match segment.protocol {
            TCP => {
                let flags = segment.header.get(FLAGS_OFFSET).copied().unwrap_or(FLAG_SYN);
                flags & (FLAG_SYN | FLAG_ACK) != FLAG_SYN || self.is_question(segment.destination, port)
            }
            UDP => {
                let sender = Sender { address: segment.destination, port, own_port };
                self.is_question(segment.destination, port) || self.is_known(sender)
            }
            _ => true,
        }
    }

    /// Whether a frame that a program made may go out: of a packet to the host that is whole what [`Self::admits`] says
    /// of it, a piece of one or one behind other headers not. QEMU connects a packet to an address of loopback or to
    /// none as the host itself would, so they are the host's as well. Asking it for a lease is not asking the host.
    pub(super) fn admits_frame(&self, frame: &[u8]) -> bool {
        let Some((header, packet)) = Header::split(frame) else { return true };
        match header.protocol {
            _ if self.networks.is_empty() => true,
            ethernet::IPV4 => packet.first_chunk().is_none_or(|fixed| {
                let header = ipv4::of(fixed);
                let transport = packet.get(usize::from(fixed[0] & 0xf) * 4..).unwrap_or_default();
                let is_piece = header.has_more || header.offset_bytes > 0;
                self.admits_packet(header.destination.into(), header.protocol, (!is_piece).then_some(transport))
            }),
            ethernet::IPV6 => packet.split_first_chunk().is_none_or(|(fixed, transport)| {
                let header = ipv6::of(fixed);
                let is_plain = matches!(header.next, TCP | UDP | ICMP6);
                self.admits_packet(header.destination.into(), header.next, is_plain.then_some(transport))
            }),
            _ => true,
        }
    }

    /// The same of a packet whose transport begins with these bytes, if it is whole.
    fn admits_packet(&self, destination: IpAddr, protocol: u8, transport: Option<&[u8]>) -> bool {
        let as_host = match destination.to_canonical() {
            IpAddr::V4(v4) => v4.is_loopback() || v4.octets()[0] == 0 || destination.is_ipv6(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified(),
        };
        let Some(header) = transport else { return !as_host && !self.is_host(destination) };
        let asks_for_lease =
            destination == IpAddr::V4(Ipv4Addr::BROADCAST) && protocol == UDP && port_at(header, 2) == Some(LEASES);
        let segment = Segment {
            source: destination,
            destination,
            protocol,
            header,
            checksum_offset_bytes: None,
            payload: &[],
            segment_bytes: 0,
            hop_limit: 0,
            traffic_class: 0,
            is_whole: false,
        };
        asks_for_lease || !as_host && self.admits(&segment)
    }

    /// Remembers that the host sent a datagram, so that it can be answered.
    pub(super) fn note(&self, protocol: u8, arrival: &Arrival<'_>) {
        if protocol != UDP || !self.is_host(arrival.source) {
            return;
        }
        let (Some(port), Some(own_port)) = (port_at(arrival.bytes, 0), port_at(arrival.bytes, 2)) else { return };
        let sender = Sender { address: arrival.source, port, own_port };
        let place = self.place_of(sender);
        let mut senders = self.senders.lock();
        if senders.is_empty() {
            // Without memory the host goes without an answer.
            let Ok(mut empty) = crate::reserve::vector(SENDER_COUNT) else { return };
            empty.resize(SENDER_COUNT, None);
            *senders = empty;
        }
        if let Some(place) = senders.get_mut(place) {
            *place = Some(sender);
        }
    }

    fn is_host(&self, address: IpAddr) -> bool {
        let is_in = |network: &InterfaceAddress| has_prefix(*network, address);
        !self.networks.is_empty() && (self.networks.iter().any(is_in) || address == IpAddr::V4(Ipv4Addr::BROADCAST))
    }

    fn is_question(&self, address: IpAddr, port: u16) -> bool {
        port == DOMAIN && self.name_servers.contains(&address)
    }

    fn is_known(&self, sender: Sender) -> bool {
        let place = self.place_of(sender);
        self.senders.lock().get(place).is_some_and(|known| *known == Some(sender))
    }

    fn place_of(&self, sender: Sender) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.hash_key[0], self.hash_key[1]);
        match sender.address {
            IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
            IpAddr::V6(address) => hasher.write_u128(address.to_bits()),
        }
        hasher.write_u16(sender.port);
        hasher.write_u16(sender.own_port);
        hasher.finish() as usize % SENDER_COUNT
    }
}

/// A port number of a transport header.
fn port_at(header: &[u8], offset: usize) -> Option<u16> {
    header.get(offset..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::HostGuard;
    use crate::net::inet::interface::InterfaceAddress;
    use crate::net::inet::wire::{Arrival, NetworkConfiguration, Segment};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::IpAddr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn network(text: &str, prefix_bits: u8) -> InterfaceAddress {
        InterfaceAddress { address: address(text), prefix_bits }
    }

    fn configuration() -> NetworkConfiguration {
        NetworkConfiguration {
            name_servers: vec![address("10.0.2.3"), address("192.0.2.53")],
            host_networks: vec![network("10.0.2.0", 24), network("fec0::", 64), network("fe80::", 64)],
            ..NetworkConfiguration::default()
        }
    }

    fn guard() -> HostGuard {
        HostGuard::new(&configuration(), [1, 2])
    }

    fn header(own_port: u16, port: u16, flags: u8) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[..2].copy_from_slice(&own_port.to_be_bytes());
        header[2..4].copy_from_slice(&port.to_be_bytes());
        header[13] = flags;
        header
    }

    fn goes(guard: &HostGuard, destination: &str, protocol: u8, header: &[u8]) -> bool {
        guard.admits(&Segment {
            source: address("10.0.2.15"),
            destination: address(destination),
            protocol,
            header,
            checksum_offset_bytes: None,
            payload: &[],
            segment_bytes: 0,
            hop_limit: 64,
            traffic_class: 0,
            is_whole: false,
        })
    }

    #[test]
    fn nothing_begins_towards_the_host() {
        let guard = guard();
        for host in ["10.0.2.2", "10.0.2.99", "10.0.2.255", "255.255.255.255", "fec0::2", "fec0::77", "fe80::2"] {
            assert!(!guard.admits_connection(address(host), 80), "{host}");
            assert!(!goes(&guard, host, 6, &header(1, 80, 2)), "{host}: SYN");
            assert!(!goes(&guard, host, 17, &header(1, 80, 0)), "{host}: a datagram");
            assert!(goes(&guard, host, 6, &header(1, 80, 18)), "{host}: SYN and ACK");
            assert!(goes(&guard, host, 6, &header(1, 80, 16)), "{host}: ACK");
            assert!(goes(&guard, host, 1, &[8, 0, 0, 0]), "{host}: an echo");
            assert!(!goes(&guard, host, 6, &[0; 4]) && !goes(&guard, host, 17, &[0; 3]), "{host}: cut");
        }
        for other in ["10.0.3.2", "192.0.2.1", "2001:db8::1", "fec0:0:0:1::2"] {
            assert!(guard.admits_connection(address(other), 80), "{other}");
            assert!(goes(&guard, other, 6, &header(1, 80, 2)) && goes(&guard, other, 17, &[]), "{other}");
        }
    }

    #[test]
    fn the_name_server_answers_questions_only() {
        let guard = guard();
        assert!(guard.admits_connection(address("10.0.2.3"), 53));
        assert!(goes(&guard, "10.0.2.3", 17, &header(1, 53, 0)) && goes(&guard, "10.0.2.3", 6, &header(1, 53, 2)));
        assert!(!guard.admits_connection(address("10.0.2.3"), 80));
        assert!(!guard.admits_connection(address("10.0.2.2"), 53), "another address");
    }

    #[test]
    fn the_host_is_answered() {
        let guard = guard();
        let heard = |source: &str, header: &[u8]| {
            let arrival = Arrival {
                source: address(source),
                destination: address("10.0.2.15"),
                bytes: header,
                hop_limit: 64,
                traffic_class: 0,
            };
            guard.note(17, &arrival);
        };
        heard("10.0.2.2", &header(5000, 53, 0));
        assert!(goes(&guard, "10.0.2.2", 17, &header(53, 5000, 0)));
        assert!(!goes(&guard, "10.0.2.2", 17, &header(53, 5001, 0)), "another port of the host");
        assert!(!goes(&guard, "10.0.2.2", 17, &header(54, 5000, 0)), "another port of ours");
        heard("192.0.2.1", &header(5001, 53, 0));
        heard("10.0.2.2", &[1]);
        for port in 0..10_000 {
            heard("10.0.2.2", &header(port, 53, 0));
        }
        let known = (0..10_000).filter(|port| goes(&guard, "10.0.2.2", 17, &header(53, *port, 0))).count();
        assert!((200..=256).contains(&known), "{known} are remembered");
    }

    #[test]
    fn access_opens_everything() {
        let guard = HostGuard::new(&NetworkConfiguration { has_host_access: true, ..configuration() }, [1, 2]);
        assert!(guard.admits_connection(address("10.0.2.2"), 80));
        assert!(goes(&guard, "10.0.2.2", 17, &[]) && goes(&guard, "255.255.255.255", 6, &header(1, 1, 2)));
        let nothing = HostGuard::new(&NetworkConfiguration::default(), [1, 2]);
        assert!(nothing.admits_connection(address("255.255.255.255"), 80), "no user network");
    }
}
