//! What the pod's card is connected to: from the run's configuration to that of the network.

use aegis_link::config::Config;
use aegis_link::network::{NetworkFlags, Prefixed};
use exos::net::inet::interface::InterfaceAddress;
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

fn interface_address(it: &Prefixed) -> InterfaceAddress {
    InterfaceAddress { address: it.address, prefix_bits: it.prefix_bits }
}
