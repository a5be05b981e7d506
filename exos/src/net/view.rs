//! The network as programs look at it: interfaces, their addresses and counters, routes, neighbours.
//!
//! Netlink, `ioctl`, `/proc/net` and `/sys/class/net` all tell of one [`NetworkView`], so that they agree. It is a
//! snapshot, made for one question; nothing here is locked or changes.
//!
//! Routes are what Linux would have made of the addresses: for each address one of its own, its network, its broadcast
//! address, and a default route for each router.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::inet::Inet;
use super::inet::interface::{InterfaceAddress, InterfaceStatus, NeighbourStatus, Route};
use crate::error::Result;
use crate::reserve;

/// `RT_SCOPE_*`: everywhere, on the link, on the machine.
pub mod scope {
    /// `RT_SCOPE_UNIVERSE`.
    pub const UNIVERSE: u8 = 0;
    /// `RT_SCOPE_SITE`.
    pub const SITE: u8 = 200;
    /// `RT_SCOPE_LINK`.
    pub const LINK: u8 = 253;
    /// `RT_SCOPE_HOST`.
    pub const HOST: u8 = 254;
}

/// `IFF_*`.
pub mod interface_flag {
    /// `IFF_UP`.
    pub const UP: u32 = 1;
    /// `IFF_BROADCAST`.
    pub const BROADCAST: u32 = 2;
    /// `IFF_LOOPBACK`.
    pub const LOOPBACK: u32 = 8;
    /// `IFF_RUNNING`.
    pub const RUNNING: u32 = 0x40;
    /// `IFF_MULTICAST`.
    pub const MULTICAST: u32 = 0x1000;
    /// `IFF_LOWER_UP`, which does not fit the 16 bits of `SIOCGIFFLAGS`.
    pub const LOWER_UP: u32 = 0x1_0000;
}

/// Why a route is there (`RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RouteKind {
    /// To another machine.
    Unicast = 1,
    /// To this machine.
    Local = 2,
    /// To all on a link.
    Broadcast = 3,
    /// To those of a group.
    Multicast = 5,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteView {
    /// Where it leads: the network.
    pub destination: IpAddr,
    /// Length of the network's prefix.
    pub prefix_bits: u8,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub index: u32,
    /// The address that packets are sent from.
    pub source: Option<IpAddr>,
    /// Why it is there; all but unicast are in the table `local`.
    pub kind: RouteKind,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTPROT_*`: the system itself (2), or who set the machine up (3).
    pub protocol: u8,
    /// The lower, the better.
    pub metric: u32,
}

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_LOCAL`.
pub const TABLE_LOCAL: u32 = 255;

impl RouteView {
    /// The table that it is in.
    #[must_use]
    pub fn table(&self) -> u32 {
        if self.kind == RouteKind::Unicast { TABLE_MAIN } else { TABLE_LOCAL }
    }

    /// Whether packets to an address go this way.
    #[must_use]
    pub fn leads_to(&self, address: IpAddr) -> bool {
        self.destination.is_ipv4() == address.is_ipv4() && network_of(address, self.prefix_bits) == self.destination
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct NetworkView {
    /// Interfaces, by index.
    pub interfaces: Vec<InterfaceStatus>,
    /// Routes that do not follow from addresses: those by a router.
    pub far_routes: Vec<Route>,
    /// Machines on the same link, all at the card.
    pub neighbours: Vec<NeighbourStatus>,
}

/// The network that an address is in: its first bits.
#[must_use]
pub fn network_of(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

/// The mask of an IPv4 network.
#[must_use]
pub fn mask_of(prefix_bits: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0))
}

/// The address of all in an IPv4 network; networks of two addresses and of one have none.
#[must_use]
pub fn broadcast_of(own: &InterfaceAddress) -> Option<Ipv4Addr> {
    let IpAddr::V4(v4) = own.address else { return None };
    (own.prefix_bits < 31).then(|| Ipv4Addr::from(u32::from(v4) | !u32::from(mask_of(own.prefix_bits))))
}

/// How far an address is known (`RT_SCOPE_*`).
#[must_use]
pub fn scope_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(v4) if v4.is_loopback() => scope::HOST,
        IpAddr::V4(v4) if v4.is_link_local() => scope::LINK,
        IpAddr::V4(_) => scope::UNIVERSE,
        IpAddr::V6(v6) if v6.is_loopback() => scope::HOST,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => scope::LINK,
        // fec0::/10, which QEMU's user network gives out.
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0 => scope::SITE,
        IpAddr::V6(_) => scope::UNIVERSE,
    }
}

impl InterfaceStatus {
    /// `IFF_*`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        use interface_flag::{BROADCAST, LOOPBACK, LOWER_UP, MULTICAST, RUNNING, UP};
        let running = if self.is_running { RUNNING | LOWER_UP } else { 0 };
        let up = if self.is_up { UP } else { 0 };
        up | running | if self.is_loopback { LOOPBACK } else { BROADCAST | MULTICAST }
    }

    /// The Ethernet address of all on the link.
    #[must_use]
    pub fn hardware_broadcast(&self) -> [u8; 6] {
        if self.is_loopback { [0; 6] } else { [0xff; 6] }
    }

    /// `ARPHRD_*`.
    #[must_use]
    pub fn hardware_kind(&self) -> u16 {
        if self.is_loopback { 772 } else { 1 }
    }

    /// What was counted, in the order of `struct rtnl_link_stats64`.
    #[must_use]
    pub fn statistics(&self) -> [u64; 25] {
        let of = &self.traffic;
        let mut all = [0; 25];
        let counted = [of.received_packets, of.sent_packets, of.received_bytes, of.sent_bytes, of.receive_errors];
        all[..5].copy_from_slice(&counted);
        all[5..9].copy_from_slice(&[of.send_errors, of.receive_drops, of.send_drops, of.multicast_packets]);
        all
    }

    /// What orders its packets.
    #[must_use]
    pub fn queue_name(&self) -> &'static str {
        if self.is_loopback { "noqueue" } else { "pfifo_fast" }
    }

    /// `IF_OPER_*`.
    #[must_use]
    pub fn operational_state(&self) -> u8 {
        match (self.is_loopback, self.is_running) {
            (true, _) => 0,
            (false, true) => 6,
            (false, false) => 2,
        }
    }

    fn routes_of(&self, own: &InterfaceAddress, routes: &mut Vec<RouteView>) {
        const SYSTEM: u8 = 2;
        let base = RouteView {
            destination: own.address,
            prefix_bits: if own.address.is_ipv4() { 32 } else { 128 },
            gateway: None,
            index: self.index,
            source: Some(own.address),
            kind: RouteKind::Local,
            scope: scope::HOST,
            protocol: SYSTEM,
            metric: 0,
        };
        let network =
            RouteView { destination: network_of(own.address, own.prefix_bits), prefix_bits: own.prefix_bits, ..base };
        let is_wide = own.prefix_bits < base.prefix_bits;
        if own.address.is_ipv4() {
            match (is_wide, self.is_loopback) {
                (false, _) => {}
                (true, true) => routes.push(network),
                (true, false) => routes.push(RouteView { kind: RouteKind::Unicast, scope: scope::LINK, ..network }),
            }
            routes.push(base);
            if let Some(all) = broadcast_of(own) {
                let kind = RouteKind::Broadcast;
                routes.push(RouteView { destination: IpAddr::V4(all), kind, scope: scope::LINK, ..base });
            }
        } else {
            const NETWORK_METRIC: u32 = 256;
            if is_wide {
                let (kind, metric, scope) = (RouteKind::Unicast, NETWORK_METRIC, scope::UNIVERSE);
                routes.push(RouteView { kind, metric, scope, source: None, ..network });
            }
            routes.push(RouteView { source: None, scope: scope::UNIVERSE, ..base });
        }
    }
}

impl NetworkView {
    /// The network of a pod as it is now.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of(inet: &Inet) -> Result<Self> {
        let mut far_routes = inet.routes()?;
        let interfaces = inet.interfaces()?;
        // Those that follow from an address are told with it; what IPv6's routers announce to be right there is not.
        let is_of_address = |route: &Route| {
            let mut all = interfaces.iter().flat_map(|interface| &interface.addresses);
            all.any(|own| {
                own.prefix_bits == route.network.prefix_bits
                    && network_of(own.address, own.prefix_bits) == route.network.address
            })
        };
        far_routes.retain(|route| route.gateway.is_some() || route.network.address.is_ipv4() && !is_of_address(route));
        Ok(Self { interfaces, far_routes, neighbours: inet.neighbours()? })
    }

    /// The interface with that number.
    #[must_use]
    pub fn by_index(&self, index: u32) -> Option<&InterfaceStatus> {
        self.interfaces.iter().find(|interface| interface.index == index)
    }

    /// The number of the card's interface, 0 if there is none.
    #[must_use]
    pub fn card_index(&self) -> u32 {
        self.interfaces.iter().find(|interface| !interface.is_loopback).map_or(0, |interface| interface.index)
    }

    /// The interface with that name.
    #[must_use]
    pub fn by_name(&self, name: &[u8]) -> Option<&InterfaceStatus> {
        self.interfaces.iter().find(|interface| interface.name.as_bytes() == name)
    }

    /// All routes of IPv4 or of IPv6, in the order in which Linux tells them: table `main` first; by address those of
    /// IPv4.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn routes(&self, is_v4: bool) -> Result<Vec<RouteView>> {
        const ROUTES_OF_ADDRESS: usize = 4;
        const SETUP: u8 = 3;
        const DEFAULT_METRIC: u32 = 1024;
        let mut routes = Vec::new();
        for interface in self.interfaces.iter().filter(|interface| interface.is_up) {
            let own = interface.addresses.iter().filter(|own| own.address.is_ipv4() == is_v4);
            for own in own {
                reserve::reserve(&mut routes, ROUTES_OF_ADDRESS)?;
                interface.routes_of(own, &mut routes);
            }
        }
        for route in self.far_routes.iter().filter(|route| route.network.address.is_ipv4() == is_v4) {
            reserve::reserve(&mut routes, 1)?;
            routes.push(RouteView {
                destination: network_of(route.network.address, route.network.prefix_bits),
                prefix_bits: route.network.prefix_bits,
                gateway: route.gateway,
                index: route.interface,
                source: None,
                kind: RouteKind::Unicast,
                scope: if route.gateway.is_some() { scope::UNIVERSE } else { scope::LINK },
                protocol: SETUP,
                metric: if is_v4 { 0 } else { DEFAULT_METRIC },
            });
        }
        if !is_v4 {
            self.add_groups(&mut routes)?;
        }
        if is_v4 {
            routes.sort_by_key(|route| (route.table(), route.destination, core::cmp::Reverse(route.prefix_bits)));
        } else {
            // Narrow networks before wide ones, as the tree is walked.
            routes.sort_by_key(|route| (route.table(), route.prefix_bits == 0, route.destination));
        }
        Ok(routes)
    }

    /// The groups of IPv6, which each interface but the loopback leads to.
    fn add_groups(&self, routes: &mut Vec<RouteView>) -> Result<()> {
        const GROUPS: Ipv6Addr = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
        let has_v6 = |interface: &&InterfaceStatus| interface.addresses.iter().any(|own| own.address.is_ipv6());
        for interface in self.interfaces.iter().filter(|interface| !interface.is_loopback).filter(has_v6) {
            reserve::reserve(routes, 1)?;
            routes.push(RouteView {
                destination: IpAddr::V6(GROUPS),
                prefix_bits: 8,
                gateway: None,
                index: interface.index,
                source: None,
                kind: RouteKind::Multicast,
                scope: scope::UNIVERSE,
                protocol: 2,
                metric: 256,
            });
        }
        Ok(())
    }

    /// The route of packets to an address: the narrowest, of the machine itself first.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn route_to(&self, address: IpAddr) -> Result<Option<RouteView>> {
        let routes = self.routes(address.is_ipv4())?;
        let leading = routes.into_iter().filter(|route| route.leads_to(address));
        Ok(leading.max_by_key(|route| (route.table(), route.prefix_bits, core::cmp::Reverse(route.metric))))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::net::inet::interface::Traffic;

    fn address(text: &str, prefix_bits: u8) -> InterfaceAddress {
        InterfaceAddress { address: text.parse().expect("an address"), prefix_bits }
    }

    fn far(text: &str) -> Route {
        let gateway: IpAddr = text.parse().expect("an address");
        let any = if gateway.is_ipv4() { address("0.0.0.0", 0) } else { address("::", 0) };
        Route { network: any, gateway: Some(gateway), interface: 2 }
    }

    pub(crate) fn pod() -> NetworkView {
        let lo = InterfaceStatus {
            index: 1,
            name: "lo",
            is_loopback: true,
            is_up: true,
            is_running: true,
            packet_bytes_max: 65_536,
            hardware_address: [0; 6],
            addresses: vec![address("127.0.0.1", 8), address("::1", 128)],
            traffic: Traffic::default(),
        };
        let eth0 = InterfaceStatus {
            index: 2,
            name: "eth0",
            is_loopback: false,
            hardware_address: [0x52, 0x54, 0, 0x12, 0x34, 0x56],
            packet_bytes_max: 1500,
            addresses: vec![address("10.0.2.15", 24), address("fec0::5054:ff:fe12:3456", 64)],
            ..lo.clone()
        };
        let far_routes = vec![far("10.0.2.2"), far("fe80::2")];
        NetworkView { interfaces: vec![lo, eth0], far_routes, neighbours: Vec::new() }
    }

    fn shown(route: &RouteView) -> String {
        let gateway = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        format!("{:?} {}/{}{gateway} if{}", route.kind, route.destination, route.prefix_bits, route.index)
    }

    #[test]
    fn routes_follow_from_addresses() {
        let routes: Vec<String> = pod().routes(true).expect("memory").iter().map(shown).collect();
        assert_eq!(
            routes,
            [
                "Unicast 0.0.0.0/0 via 10.0.2.2 if2",
                "Unicast 10.0.2.0/24 if2",
                "Local 10.0.2.15/32 if2",
                "Broadcast 10.0.2.255/32 if2",
                "Local 127.0.0.0/8 if1",
                "Local 127.0.0.1/32 if1",
                "Broadcast 127.255.255.255/32 if1",
            ]
        );
        let routes: Vec<String> = pod().routes(false).expect("memory").iter().map(shown).collect();
        assert_eq!(
            routes,
            [
                "Unicast fec0::/64 if2",
                "Unicast ::/0 via fe80::2 if2",
                "Local ::1/128 if1",
                "Local fec0::5054:ff:fe12:3456/128 if2",
                "Multicast ff00::/8 if2",
            ]
        );
    }

    #[test]
    fn a_packet_takes_the_narrowest_route() {
        let to = |text: &str| {
            let route = pod().route_to(text.parse().expect("an address")).expect("memory");
            route.map(|route| shown(&route)).unwrap_or_default()
        };
        assert_eq!(to("127.0.0.1"), "Local 127.0.0.1/32 if1");
        assert_eq!(to("127.9.9.9"), "Local 127.0.0.0/8 if1");
        assert_eq!(to("10.0.2.15"), "Local 10.0.2.15/32 if2");
        assert_eq!(to("10.0.2.3"), "Unicast 10.0.2.0/24 if2");
        assert_eq!(to("1.1.1.1"), "Unicast 0.0.0.0/0 via 10.0.2.2 if2");
        assert_eq!(to("::1"), "Local ::1/128 if1");
        assert_eq!(to("2001:db8::1"), "Unicast ::/0 via fe80::2 if2");
    }

    #[test]
    fn masks_and_scopes() {
        assert_eq!(mask_of(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(mask_of(200), Ipv4Addr::BROADCAST);
        assert_eq!(broadcast_of(&address("10.0.2.15", 24)), Some(Ipv4Addr::new(10, 0, 2, 255)));
        assert_eq!(broadcast_of(&address("10.0.2.15", 31)), None);
        let scopes = ["127.1.1.1", "10.0.0.1", "169.254.0.1", "::1", "fe80::1", "fec0::1", "2001:db8::1"];
        let scopes: Vec<u8> = scopes.iter().map(|text| scope_of(text.parse().expect("an address"))).collect();
        assert_eq!(scopes, [254, 0, 253, 254, 253, 200, 0]);
        assert_eq!(pod().interfaces[0].flags(), 0x1_0049);
        assert_eq!(pod().interfaces[1].flags(), 0x1_1043);
    }
}
