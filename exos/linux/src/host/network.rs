//! What the pod's card is connected to: from the run's configuration to that of the network; and what went through it,
//! for `--stats`.

use alloc::vec::Vec;

use aegis_link::config::Config;
use aegis_link::control::GuestTraffic;
use aegis_link::network::{NetworkFlags, Prefixed};
use exos::net::inet::Inet;
use exos::net::inet::interface::InterfaceAddress;
use exos::net::inet::stack::counters::Counter;
use exos::net::inet::wire::NetworkConfiguration;

/// The network that the run asks for; `None`: it has no card.
#[must_use]
pub fn configuration(config: &Config) -> Option<NetworkConfiguration> {
    let network = config.network.as_ref()?;
    let all = |list: &[Prefixed]| list.iter().map(interface_address).collect();
    Some(NetworkConfiguration {
        addresses: all(&network.addresses),
        gateways: network.gateways.clone(),
        name_servers: network.name_servers.clone(),
        uses_dhcp: network.flags.contains(NetworkFlags::DHCP),
        host_networks: all(&network.host_networks),
        has_host_access: network.flags.contains(NetworkFlags::HOST_ACCESS),
    })
}

/// How long the first program waits for an address by DHCP: servers look first whether one is free.
pub const LEASE_NS_MAX: u64 = 6_000_000_000;

/// Counters that are a reason for a packet to be lost here, and how `--stats` names them.
const DROPS: [(&str, &[Counter]); 9] = [
    ("network_dropped_by_card_full", &[Counter::SendFull]),
    (
        "network_dropped_broken",
        &[Counter::BadFrames, Counter::ArpBad, Counter::Ip4HeaderErrors, Counter::Ip6HeaderErrors],
    ),
    (
        "network_dropped_checksum",
        &[
            Counter::TcpChecksumErrors,
            Counter::UdpChecksumErrors,
            Counter::Icmp4ChecksumErrors,
            Counter::Icmp6ChecksumErrors,
        ],
    ),
    ("network_dropped_not_ours", &[Counter::Ip4AddressErrors, Counter::Ip6AddressErrors]),
    (
        "network_dropped_unknown_protocol",
        &[Counter::OtherFrames, Counter::Ip4UnknownProtocols, Counter::Ip6UnknownProtocols],
    ),
    ("network_dropped_no_port", &[Counter::UdpNoPorts]),
    ("network_dropped_receiver_full", &[Counter::UdpReceiveBufferErrors]),
    ("network_dropped_no_neighbour", &[Counter::NeighbourFailed, Counter::NeighbourDropped]),
    ("network_dropped_fragments", &[Counter::Ip4ReassemblyFailed, Counter::Ip6ReassemblyFailed]),
];

/// What went through the card, for `aegis top`; `None`: it was not used.
#[must_use]
pub fn traffic(inet: &Inet) -> Option<GuestTraffic> {
    let counters = inet.stack().counters();
    let drops = DROPS.iter().flat_map(|(_, list)| *list).map(|counter| counters.get(*counter));
    let traffic = GuestTraffic {
        received_packets: counters.get(Counter::ReceivedFrames),
        received_bytes: counters.get(Counter::ReceivedBytes),
        sent_packets: counters.get(Counter::SentFrames),
        sent_bytes: counters.get(Counter::SentBytes),
        repeated_segments: counters.get(Counter::TcpRetransmitted),
        drops: drops.fold(0, u64::saturating_add),
    };
    (traffic != GuestTraffic::default()).then_some(traffic)
}

/// Names and values for `--stats`: nothing of a network that was not used, and of drops those that happened.
#[must_use]
pub fn statistics(inet: &Inet) -> Vec<(&'static str, u64)> {
    let counters = inet.stack().counters();
    let get = |counter| counters.get(counter);
    let traffic = [
        ("network_received_packets", get(Counter::ReceivedFrames)),
        ("network_received_bytes", get(Counter::ReceivedBytes)),
        ("network_sent_packets", get(Counter::SentFrames)),
        ("network_sent_bytes", get(Counter::SentBytes)),
        ("network_retransmitted_segments", get(Counter::TcpRetransmitted)),
    ];
    let is_used = traffic.iter().any(|(_, value)| *value > 0);
    let sum = |list: &[Counter]| list.iter().map(|counter| get(*counter)).fold(0, u64::saturating_add);
    let refused = ("network_refused_to_host", get(Counter::HostRefused));
    let drops = DROPS.iter().map(|(name, list)| (*name, sum(list))).chain([refused]);
    traffic.into_iter().filter(|_| is_used).chain(drops.filter(|(_, value)| *value > 0)).collect()
}

fn interface_address(it: &Prefixed) -> InterfaceAddress {
    InterfaceAddress { address: it.address, prefix_bits: it.prefix_bits }
}

#[cfg(test)]
mod tests {
    use super::{configuration, statistics, traffic};
    use aegis_link::config::Config;
    use aegis_link::network::{Network, NetworkFlags, Prefixed};
    use exos::net::inet::stack::counters::Counter;

    use crate::testing::pod::World;

    #[test]
    fn what_the_run_says_is_what_the_network_gets() {
        assert_eq!(configuration(&Config::default()), None);
        let address = |text: &str| text.parse().expect("an address");
        let network = Network {
            flags: NetworkFlags::DHCP | NetworkFlags::HOST_ACCESS,
            addresses: alloc::vec![Prefixed { address: address("10.0.2.15"), prefix_bits: 24 }],
            gateways: alloc::vec![address("10.0.2.2")],
            name_servers: alloc::vec![address("10.0.2.3")],
            host_networks: alloc::vec![Prefixed { address: address("10.0.2.0"), prefix_bits: 24 }],
        };
        let got = configuration(&Config { network: Some(network), ..Config::default() }).expect("a network");
        assert!(got.uses_dhcp && got.has_host_access);
        assert_eq!((got.addresses[0].address, got.addresses[0].prefix_bits), (address("10.0.2.15"), 24));
        assert_eq!((got.gateways[0], got.name_servers[0]), (address("10.0.2.2"), address("10.0.2.3")));
        assert_eq!(got.host_networks[0].address, address("10.0.2.0"));
    }

    #[test]
    fn a_network_that_was_not_used_has_no_statistics() {
        let world = World::new();
        let inet = &world.pod.system.files.inet;
        assert!(statistics(inet).is_empty() && traffic(inet).is_none());
        let counters = inet.stack().counters();
        counters.add(Counter::SentFrames);
        counters.add_many(Counter::SentBytes, 60);
        counters.add(Counter::UdpChecksumErrors);
        counters.add(Counter::TcpChecksumErrors);
        let told = traffic(inet).expect("it was used");
        assert_eq!((told.sent_packets, told.sent_bytes, told.drops), (1, 60, 2));
        let seen = statistics(inet);
        assert!(seen.contains(&("network_sent_bytes", 60)) && seen.contains(&("network_dropped_checksum", 2)));
        assert_eq!(seen.len(), 6, "{seen:?}");
    }
}
