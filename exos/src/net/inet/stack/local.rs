//! What the card's interface is called and where it can send: its addresses, its groups, and routes.
//!
//! The configuration gives addresses for good; routers (SLAAC, RFC 4862) and DHCP give them for a time. A route goes by
//! the longest prefix that fits. All numbers are bounded, so what routers announce costs no more than that.
//!
//! What the tables say of an address is asked for each packet several times, so the last answers are kept ([`View`]).
//! Invariant: whatever changes a table forgets them all ([`Local::forget_views`]).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::interface::{ETHERNET_INDEX, InterfaceAddress, Route};
use super::ethernet::{BROADCAST, HardwareAddress, address_in, group_address};
use crate::reserve;

/// Most addresses.
pub(crate) const ADDRESS_COUNT_MAX: usize = 16;
/// Most routes.
pub(crate) const ROUTE_COUNT_MAX: usize = 16;
/// Of each of them, what routers may bring.
const ANNOUNCED_COUNT_MAX: usize = 4;
/// Most groups that sockets have joined.
pub(crate) const GROUP_COUNT_MAX: usize = 64;
/// Answers that are kept.
const VIEW_COUNT: usize = 16;
/// What has no end.
pub(crate) const FOR_EVER_NS: u64 = u64::MAX;
/// The least that an announced lifetime is shortened to (RFC 4862, section 5.5.3): a forged announcement does no more.
const LIFETIME_NS_MIN: u64 = 7_200_000_000_000;

/// Where an address or a route comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The configuration, or the card.
    Fixed,
    /// A router's announcement.
    Announced,
    /// A DHCP server.
    Leased,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    address: InterfaceAddress,
    origin: Origin,
    until_ns: u64,
    /// Until when another machine may claim it (RFC 4862, section 5.4).
    tentative_until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    network: InterfaceAddress,
    gateway: Option<IpAddr>,
    origin: Origin,
    until_ns: u64,
}

/// How a packet goes that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Whom it is given to.
    pub(crate) next: IpAddr,
    /// The address that it is sent from, unless its sender has chosen one.
    pub(crate) source: IpAddr,
    /// It goes to a machine on this network.
    pub(crate) is_direct: bool,
}

/// How a packet that came in was meant for this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    /// For it alone.
    Own,
    /// For a group, or for all.
    Group,
}

/// All that the tables say of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// As [`Local::meaning`].
    pub(crate) meaning: Option<Meant>,
    /// As [`Local::is_broadcast`].
    pub(crate) is_broadcast: bool,
    /// As [`Local::hop`].
    pub(crate) hop: Option<Hop>,
    /// The Ethernet address that needs no neighbour to be asked for: that of a group, or of all.
    pub(crate) group_address: Option<HardwareAddress>,
}

impl View {
    /// Whether the interface has the address.
    pub(crate) fn is_own(&self) -> bool {
        self.meaning == Some(Meant::Own)
    }
}

/// Addresses, routes and groups.
#[derive(Debug, Default)]
pub(crate) struct Local {
    addresses: Vec<Own>,
    ways: Vec<Way>,
    /// Groups, and how many sockets have joined each.
    groups: Vec<(IpAddr, u32)>,
    /// What was said last, each in the place of its address. One with the same place takes it.
    views: [Option<(IpAddr, View)>; VIEW_COUNT],
    /// When something is over next; no later than that.
    due_ns: u64,
    /// The interface is down: nothing comes in or goes out.
    is_down: bool,
    /// How often addresses or routes have changed.
    change_count: u64,
}

/// Whether the first bits of two addresses are the same.
pub(crate) fn has_prefix(network: InterfaceAddress, address: IpAddr) -> bool {
    common_bits(network.address, address).is_some_and(|bits| bits >= u32::from(network.prefix_bits))
}

/// How many of the first bits of two addresses are the same; `None`: they are of different families.
fn common_bits(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// The last address of an IPv4 network, if that means all of it (RFC 919).
fn broadcast_of(network: InterfaceAddress) -> Option<Ipv4Addr> {
    match network.address {
        IpAddr::V4(address) if network.prefix_bits < 31 => {
            let host_bits = u32::MAX.checked_shr(u32::from(network.prefix_bits)).unwrap_or(0);
            Some(Ipv4Addr::from_bits(address.to_bits() | host_bits))
        }
        _ => None,
    }
}

/// The network that an address is in.
fn network_of(own: InterfaceAddress) -> InterfaceAddress {
    let bits = u32::from(own.prefix_bits);
    let address = match own.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    };
    InterfaceAddress { address, prefix_bits: own.prefix_bits }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Where the view of an address is kept.
fn view_place(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => address.to_bits() as u32,
    };
    (bits ^ bits >> 8) as usize % VIEW_COUNT
}

impl Local {
    /// What the tables say of an address.
    #[inline]
    pub(crate) fn view(&mut self, address: IpAddr) -> View {
        match self.views[view_place(address)] {
            Some((known, view)) if known == address => view,
            _ => self.view_anew(address),
        }
    }

    #[cold]
    fn view_anew(&mut self, address: IpAddr) -> View {
        let is_broadcast = self.is_broadcast(address);
        let view = View {
            meaning: self.meaning(address),
            is_broadcast,
            hop: self.hop(address),
            group_address: group_address(address).or(is_broadcast.then_some(BROADCAST)),
        };
        self.views[view_place(address)] = Some((address, view));
        view
    }

    /// A table changes.
    fn forget_views(&mut self) {
        self.views = [None; VIEW_COUNT];
        self.due_ns = 0;
        self.change_count += 1;
    }

    /// Gives the interface an address and the route to its network. False: there is no room, or it has it.
    pub(crate) fn add_address(
        &mut self,
        address: InterfaceAddress,
        origin: Origin,
        until_ns: u64,
        tentative_until_ns: u64,
    ) -> bool {
        let usable = !address.address.is_unspecified() && !address.address.is_multicast();
        let is_known = self.addresses.iter().any(|own| own.address.address == address.address);
        let full = self.addresses.len() >= ADDRESS_COUNT_MAX;
        if !usable || is_known || full || reserve::reserve(&mut self.addresses, 1).is_err() {
            return false;
        }
        self.forget_views();
        self.addresses.push(Own { address, origin, until_ns, tentative_until_ns });
        if origin != Origin::Announced {
            self.add_way(network_of(address), None, origin, until_ns);
        }
        true
    }

    /// Adds a route, or says how long one that is there holds; an end that is over takes it away.
    pub(crate) fn add_way(
        &mut self,
        network: InterfaceAddress,
        gateway: Option<IpAddr>,
        origin: Origin,
        until_ns: u64,
    ) {
        self.forget_views();
        if let Some(known) = self.ways.iter_mut().find(|way| way.network == network && way.gateway == gateway) {
            if known.origin == origin {
                known.until_ns = until_ns;
            }
            return;
        }
        let announced = self.ways.iter().filter(|way| way.origin == Origin::Announced).count();
        let is_full =
            self.ways.len() >= ROUTE_COUNT_MAX || (origin == Origin::Announced && announced >= ANNOUNCED_COUNT_MAX);
        if !is_full && reserve::reserve(&mut self.ways, 1).is_ok() {
            self.ways.push(Way { network, gateway, origin, until_ns });
        }
    }

    /// Takes an address away, and the route to its network unless another address is in it.
    pub(crate) fn remove_address(&mut self, address: IpAddr) -> bool {
        let Some(at) = self.addresses.iter().position(|own| own.address.address == address) else { return false };
        let network = network_of(self.addresses.remove(at).address);
        if !self.addresses.iter().any(|own| network_of(own.address) == network) {
            self.ways.retain(|way| way.network != network || way.gateway.is_some());
        }
        self.forget_views();
        true
    }

    /// Whether there is room for another address, and for another route.
    pub(crate) fn has_room(&self) -> (bool, bool) {
        (self.addresses.len() < ADDRESS_COUNT_MAX, self.ways.len() < ROUTE_COUNT_MAX)
    }

    /// Takes a route away.
    pub(crate) fn remove_way(&mut self, network: InterfaceAddress, gateway: Option<IpAddr>) -> bool {
        let count = self.ways.len();
        self.ways.retain(|way| way.network != network || way.gateway != gateway);
        self.forget_views();
        self.ways.len() < count
    }

    /// Sets the interface up, or down: then routers are forgotten.
    pub(crate) fn set_up(&mut self, is_up: bool) {
        self.is_down = !is_up;
        if !is_up {
            self.ways.retain(|way| way.gateway.is_none());
        }
        self.forget_views();
    }

    /// Whether the interface is up.
    pub(crate) fn is_up(&self) -> bool {
        !self.is_down
    }

    /// How often addresses or routes have changed.
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count
    }

    /// A router says that it is none any more.
    pub(crate) fn end_way(&mut self, network: InterfaceAddress, gateway: IpAddr) {
        let is_it =
            |way: &Way| way.network == network && way.gateway == Some(gateway) && way.origin == Origin::Announced;
        self.ways.retain(|way| !is_it(way));
        self.forget_views();
    }

    /// Takes in a router's announcement of a prefix for addresses (RFC 4862, section 5.5.3). The address that is new.
    pub(crate) fn announce_prefix(
        &mut self,
        prefix: Ipv6Addr,
        hardware: HardwareAddress,
        valid_ns: u64,
        now_ns: u64,
    ) -> Option<Ipv6Addr> {
        let address = address_in(prefix, hardware);
        let is_of_prefix = |own: &&mut Own| match own.address.address {
            IpAddr::V6(known) => known.octets()[..8] == prefix.octets()[..8],
            IpAddr::V4(_) => false,
        };
        let until_ns = now_ns.saturating_add(valid_ns);
        self.forget_views();
        if let Some(known) = self.addresses.iter_mut().find(is_of_prefix) {
            let left_ns = known.until_ns.saturating_sub(now_ns);
            if known.origin == Origin::Announced {
                if valid_ns > LIFETIME_NS_MIN || until_ns > known.until_ns {
                    known.until_ns = until_ns;
                } else if left_ns > LIFETIME_NS_MIN {
                    known.until_ns = now_ns.saturating_add(LIFETIME_NS_MIN);
                }
            }
            return None;
        }
        let announced = self.addresses.iter().filter(|own| own.origin == Origin::Announced).count();
        let own = InterfaceAddress { address: IpAddr::V6(address), prefix_bits: 64 };
        let is_new = valid_ns > 0
            && announced < ANNOUNCED_COUNT_MAX
            && self.add_address(own, Origin::Announced, until_ns, now_ns.saturating_add(1_000_000_000));
        is_new.then_some(address)
    }

    /// Whether a DHCP server gave something.
    pub(crate) fn has_lease(&self) -> bool {
        self.addresses.iter().any(|own| own.origin == Origin::Leased)
    }

    /// Forgets what a DHCP server gave.
    pub(crate) fn forget_lease(&mut self) {
        self.addresses.retain(|own| own.origin != Origin::Leased);
        self.ways.retain(|way| way.origin != Origin::Leased);
        self.forget_views();
    }

    /// Forgets what is over.
    pub(crate) fn forget_old(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.addresses.retain(|own| own.until_ns > now_ns);
        self.ways.retain(|way| way.until_ns > now_ns);
        self.forget_views();
        self.due_ns = self.due_ns().unwrap_or(FOR_EVER_NS);
    }

    /// When something is over next.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let ends = self.addresses.iter().map(|own| own.until_ns).chain(self.ways.iter().map(|way| way.until_ns));
        ends.min().filter(|until_ns| *until_ns != FOR_EVER_NS)
    }

    /// Another machine says that an address is its own: one that nobody was asked about yet is given up.
    pub(crate) fn give_up(&mut self, address: IpAddr, now_ns: u64) -> bool {
        let count = self.addresses.len();
        self.addresses.retain(|own| own.address.address != address || own.tentative_until_ns <= now_ns);
        self.forget_views();
        self.addresses.len() < count
    }

    /// Whether the interface has the address.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address.address == address)
    }

    /// Whether the interface has an IPv6 address whose group for neighbour discovery this is.
    fn is_solicited(&self, group: Ipv6Addr) -> bool {
        let octets = group.octets();
        octets[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]
            && self.addresses.iter().any(|own| match own.address.address {
                IpAddr::V6(address) => address.octets()[13..] == octets[13..],
                IpAddr::V4(_) => false,
            })
    }

    /// Whether an address means all machines of this network.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else { return false };
        v4.is_broadcast() || self.addresses.iter().any(|own| broadcast_of(own.address) == Some(v4))
    }

    /// Whether and how a packet to `destination` is meant for this machine.
    pub(crate) fn meaning(&self, destination: IpAddr) -> Option<Meant> {
        if self.is_down {
            return None;
        }
        if self.is_own(destination) {
            return Some(Meant::Own);
        }
        let is_group = match destination {
            IpAddr::V4(v4) => v4 == Ipv4Addr::new(224, 0, 0, 1) || self.is_broadcast(destination),
            // All machines of the link, and of this machine.
            IpAddr::V6(v6) => matches!(v6.segments(), [0xff01 | 0xff02, 0, 0, 0, 0, 0, 0, 1]) || self.is_solicited(v6),
        };
        (is_group || self.has_joined(destination)).then_some(Meant::Group)
    }

    /// Whether a socket has joined a group.
    pub(crate) fn has_joined(&self, group: IpAddr) -> bool {
        self.groups.iter().any(|(known, _)| *known == group)
    }

    /// Joins a group for a socket. False: there is no room.
    pub(crate) fn join(&mut self, group: IpAddr) -> bool {
        self.forget_views();
        if let Some((_, count)) = self.groups.iter_mut().find(|(known, _)| *known == group) {
            *count = count.saturating_add(1);
            return true;
        }
        let has_room = self.groups.len() < GROUP_COUNT_MAX && reserve::reserve(&mut self.groups, 1).is_ok();
        if has_room {
            self.groups.push((group, 1));
        }
        has_room
    }

    /// Leaves a group for a socket that has joined it.
    pub(crate) fn leave(&mut self, group: IpAddr) {
        if let Some((_, count)) = self.groups.iter_mut().find(|(known, _)| *known == group) {
            *count -= 1;
        }
        self.groups.retain(|(_, count)| *count > 0);
        self.forget_views();
    }

    /// The best own address for a packet that goes to `next` on its way to `destination`.
    fn source(&self, destination: IpAddr, next: IpAddr) -> Option<IpAddr> {
        let usable = self.addresses.iter().map(|own| own.address);
        let of_family = usable.filter(|own| own.address.is_ipv4() == destination.is_ipv4());
        // The same reach first, the network of the next hop, then what is most alike (RFC 6724, rules 2 and 8).
        let is_near = is_link_local(destination) || matches!(destination, IpAddr::V6(v6) if is_link_group(v6));
        let rank = |own: &InterfaceAddress| {
            let bits = if destination.is_ipv4() { 0 } else { common_bits(own.address, destination).unwrap_or(0) };
            (is_link_local(own.address) == is_near, has_prefix(*own, next), bits)
        };
        // Of those that are alike the first.
        let mut best: Option<InterfaceAddress> = None;
        for own in of_family {
            if best.is_none_or(|best| rank(&own) > rank(&best)) {
                best = Some(own);
            }
        }
        best.map(|own| own.address)
    }

    /// How a packet to another machine goes; `None`: no way leads there.
    pub(crate) fn hop(&self, destination: IpAddr) -> Option<Hop> {
        if self.is_down {
            return None;
        }
        let next = match destination {
            _ if destination.is_multicast() || destination == IpAddr::V4(Ipv4Addr::BROADCAST) => destination,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => destination,
            _ => {
                let fitting = self.ways.iter().filter(|way| has_prefix(way.network, destination));
                // Of those that are alike the first.
                let mut best: Option<&Way> = None;
                for way in fitting {
                    if best.is_none_or(|best| way.network.prefix_bits > best.network.prefix_bits) {
                        best = Some(way);
                    }
                }
                best?.gateway.unwrap_or(destination)
            }
        };
        let source = self.source(destination, next)?;
        Some(Hop { next, source, is_direct: next == destination })
    }

    /// The first address of the interface that is a machine's in the network of `target`, to ask from.
    pub(crate) fn asking_address(&self, target: IpAddr) -> Option<IpAddr> {
        self.source(target, target)
    }

    /// All addresses.
    pub(crate) fn addresses(&self) -> crate::error::Result<Vec<InterfaceAddress>> {
        let mut all = reserve::vector(self.addresses.len())?;
        all.extend(self.addresses.iter().map(|own| own.address));
        Ok(all)
    }

    /// All routes.
    pub(crate) fn routes(&self) -> crate::error::Result<Vec<Route>> {
        let mut all = reserve::vector(self.ways.len())?;
        all.extend(self.ways.iter().map(|way| Route {
            network: way.network,
            gateway: way.gateway,
            interface: ETHERNET_INDEX,
        }));
        Ok(all)
    }
}

/// Whether a group is one of the link or of this machine.
fn is_link_group(address: Ipv6Addr) -> bool {
    address.is_multicast() && matches!(address.octets()[1] & 0xf, 1 | 2)
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::super::super::interface::InterfaceAddress;
    use super::{ADDRESS_COUNT_MAX, FOR_EVER_NS, Local, Meant, Origin, ROUTE_COUNT_MAX};

    const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
    const HOUR: u64 = 3_600_000_000_000;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn network(text: &str) -> InterfaceAddress {
        let (address, bits) = text.split_once('/').expect("a prefix");
        InterfaceAddress { address: at(address), prefix_bits: bits.parse().expect("a number") }
    }

    fn local() -> Local {
        let mut local = Local::default();
        for text in ["10.0.2.15/24", "fe80::5054:ff:fe12:3456/64"] {
            assert!(local.add_address(network(text), Origin::Fixed, FOR_EVER_NS, 0));
        }
        local.add_way(network("0.0.0.0/0"), Some(at("10.0.2.2")), Origin::Fixed, FOR_EVER_NS);
        local
    }

    #[test]
    fn the_longest_prefix_leads() {
        let mut local = local();
        local.add_way(network("10.0.0.0/8"), Some(at("10.0.2.7")), Origin::Fixed, FOR_EVER_NS);
        let next = |local: &Local, to: &str| local.hop(at(to)).map(|hop| (hop.next, hop.source));
        let own = at("10.0.2.15");
        assert_eq!(next(&local, "10.0.2.99"), Some((at("10.0.2.99"), own)));
        assert_eq!(next(&local, "10.9.9.9"), Some((at("10.0.2.7"), own)));
        assert_eq!(next(&local, "1.1.1.1"), Some((at("10.0.2.2"), own)));
        assert_eq!(next(&local, "224.0.0.251"), Some((at("224.0.0.251"), own)));
        assert_eq!(next(&local, "2001:db8::1"), None);
        assert_eq!(next(&local, "fe80::2"), Some((at("fe80::2"), at("fe80::5054:ff:fe12:3456"))));
    }

    #[test]
    fn what_a_program_changes_is_so() {
        let mut local = local();
        let count = local.change_count();
        assert!(local.add_address(network("10.9.0.7/24"), Origin::Fixed, FOR_EVER_NS, 0));
        assert!(local.add_address(network("10.9.0.8/24"), Origin::Fixed, FOR_EVER_NS, 0));
        assert_eq!(local.hop(at("10.9.0.1")).map(|hop| (hop.next, hop.source)), Some((at("10.9.0.1"), at("10.9.0.7"))));
        assert!(local.remove_address(at("10.9.0.7")) && !local.remove_address(at("10.9.0.7")));
        assert!(local.hop(at("10.9.0.1")).is_some_and(|hop| hop.is_direct), "another address is in the network");
        assert!(local.remove_address(at("10.9.0.8")));
        assert_eq!(local.hop(at("10.9.0.1")).map(|hop| hop.next), Some(at("10.0.2.2")));
        assert!(local.remove_way(network("0.0.0.0/0"), Some(at("10.0.2.2"))));
        assert_eq!(local.hop(at("10.9.0.1")), None);
        assert!(local.change_count() > count);
        local.set_up(false);
        assert_eq!((local.hop(at("10.0.2.9")), local.meaning(at("10.0.2.15"))), (None, None));
        local.set_up(true);
        assert!(local.hop(at("10.0.2.9")).is_some() && local.meaning(at("10.0.2.15")).is_some());
    }

    #[test]
    fn what_comes_in_is_meant_for_own_addresses_and_groups() {
        let mut local = local();
        for own in ["10.0.2.15", "fe80::5054:ff:fe12:3456"] {
            assert_eq!(local.meaning(at(own)), Some(Meant::Own));
        }
        for group in ["10.0.2.255", "255.255.255.255", "224.0.0.1", "ff02::1", "ff02::1:ff12:3456"] {
            assert_eq!(local.meaning(at(group)), Some(Meant::Group), "{group}");
        }
        for other in ["10.0.2.16", "10.0.3.255", "224.0.0.251", "ff02::2", "ff02::1:ff12:3457", "127.0.0.1", "::1"] {
            assert_eq!(local.meaning(at(other)), None, "{other}");
        }
        assert!(local.join(at("224.0.0.251")) && local.join(at("224.0.0.251")));
        local.leave(at("224.0.0.251"));
        assert_eq!(local.meaning(at("224.0.0.251")), Some(Meant::Group));
        local.leave(at("224.0.0.251"));
        assert_eq!(local.meaning(at("224.0.0.251")), None);
    }

    #[test]
    fn routers_bring_a_bounded_number_of_addresses_for_a_time() {
        let mut local = local();
        let prefix: Ipv6Addr = "fec0::".parse().expect("a prefix");
        let own = local.announce_prefix(prefix, CARD, 24 * HOUR, 0).expect("it is new");
        assert_eq!(IpAddr::V6(own), at("fec0::5054:ff:fe12:3456"));
        local.add_way(network("::/0"), Some(at("fe80::2")), Origin::Announced, HOUR);
        let hop = local.hop(at("2001:db8::1")).expect("the router");
        assert_eq!((hop.next, hop.source), (at("fe80::2"), IpAddr::V6(own)));
        for number in 1..100u16 {
            let prefix = Ipv6Addr::new(0x2001, number, 0, 0, 0, 0, 0, 0);
            local.announce_prefix(prefix, CARD, 24 * HOUR, 0);
            let gateway = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number));
            local.add_way(network("::/0"), Some(gateway), Origin::Announced, HOUR);
        }
        assert!(local.addresses.len() <= ADDRESS_COUNT_MAX && local.ways.len() <= ROUTE_COUNT_MAX);
        // A forged end leaves two hours.
        assert_eq!(local.announce_prefix(prefix, CARD, 0, 0), None);
        local.forget_old(HOUR);
        assert!(local.is_own(IpAddr::V6(own)) && local.hop(at("2001:db8::1")).is_none());
        local.forget_old(2 * HOUR);
        assert!(!local.is_own(IpAddr::V6(own)));
    }

    /// What the tables say, without what is kept.
    fn fresh(local: &Local, address: IpAddr) -> (Option<Meant>, bool, Option<super::Hop>) {
        (local.meaning(address), local.is_broadcast(address), local.hop(address))
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_the_tables_say(steps in proptest::collection::vec((0..10u8, 0..4u8), 0..60)) {
            let mut local = local();
            let near = |number: u8| IpAddr::V4(Ipv4Addr::new(10, 9, number, 15));
            let asked = ["10.9.1.15", "10.9.1.255", "10.9.2.7", "10.0.2.255", "1.1.1.1", "224.0.0.9", "fe80::9",
                "2001:db8:1::7", "255.255.255.255"].map(at);
            for (now_ns, (step, number)) in (0..).zip(steps) {
                let own = InterfaceAddress { address: near(number), prefix_bits: 24 };
                let prefix = Ipv6Addr::new(0x2001, 0xdb8, u16::from(number), 0, 0, 0, 0, 0);
                let group = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 9));
                match step {
                    0 => drop(local.add_address(own, Origin::Leased, now_ns + 5, now_ns + 2)),
                    1 => local.add_way(own, Some(near(9)), Origin::Announced, now_ns + 7),
                    2 => local.end_way(own, near(9)),
                    3 => drop(local.announce_prefix(prefix, CARD, u64::from(number), now_ns)),
                    4 => local.forget_lease(),
                    5 => local.forget_old(now_ns),
                    6 => drop(local.give_up(near(number), now_ns)),
                    7 => drop(local.join(group)),
                    8 if local.has_joined(group) => local.leave(group),
                    _ => {}
                }
                for address in asked.into_iter().chain([near(number), IpAddr::V6(prefix)]) {
                    let view = local.view(address);
                    let told = (view.meaning, view.is_broadcast, view.hop);
                    prop_assert_eq!(told, fresh(&local, address), "{} after {}", address, step);
                    prop_assert_eq!(view.is_own(), local.is_own(address));
                }
            }
        }
    }

    #[test]
    fn an_address_of_another_machine_is_given_up_while_it_is_new() {
        let mut local = local();
        let own = local.announce_prefix("fec0::".parse().expect("a prefix"), CARD, HOUR, 0).expect("it is new");
        assert!(!local.give_up(at("10.0.2.15"), 0));
        assert!(!local.give_up(IpAddr::V6(own), 2_000_000_000) && local.give_up(IpAddr::V6(own), 0));
    }
}
