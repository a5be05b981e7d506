//! What changes the network: requests as `ip addr`, `ip route` and `ip link` make them. Pure: a request and a
//! [`NetworkView`] give a [`Change`], which the network makes ([`super::diagnosis::Provider::change`]).
//!
//! The loopback interface stays as it is, and so do routes that follow from addresses; what else cannot be is
//! `EOPNOTSUPP`.

use core::net::IpAddr;

use super::message::{Refusal, Request, flag, u16_at, u32_at};
use super::route::{self, Question, kind};
use crate::error::Errno;
use crate::net::inet::interface::{InterfaceAddress, LOOPBACK, Route};
use crate::net::view::{NetworkView, TABLE_MAIN, interface_flag, network_of};

/// What is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it is so already.
    Nothing,
    /// The card has an address.
    AddAddress(InterfaceAddress),
    /// It has it no more.
    RemoveAddress(IpAddr),
    /// Packets go that way.
    AddRoute(Route),
    /// They do not any more.
    RemoveRoute(Route),
    /// The card's interface is up, or not.
    SetUp(bool),
}

type Changed = core::result::Result<Change, Refusal>;

/// Attributes of an address (`IFA_*`): of the interface's end, and of the other or of both.
const ADDRESS_ATTRIBUTE: u16 = 1;
const LOCAL_ATTRIBUTE: u16 = 2;
/// Bytes of `struct ifaddrmsg`, `rtmsg`, `ifinfomsg`.
const ADDRESS_BYTES: usize = 8;
const ROUTE_BYTES: usize = 12;
const LINK_BYTES: usize = 16;
/// `IFLA_IFNAME`.
const NAME_ATTRIBUTE: u16 = 3;
/// Flags of a request that makes something (`NLM_F_REPLACE`, `NLM_F_EXCL`, `NLM_F_CREATE`).
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

/// What a request asks to change, of one that may.
///
/// # Errors
/// As Linux's, with what it says.
pub(super) fn read(question: &Question<'_>) -> Changed {
    let (request, view) = (&question.request, question.view);
    match request.kind {
        kind::NEW_LINK | kind::SET_LINK => link(question),
        kind::NEW_ADDRESS => new_address(request, view),
        kind::DELETE_ADDRESS => old_address(request, view),
        kind::NEW_ROUTE => new_route(request, view),
        kind::DELETE_ROUTE => old_route(request, view),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

fn link(question: &Question<'_>) -> Changed {
    let (request, body) = (&question.request, question.request.body());
    let interface = route::link_asked_for(question)?;
    let (wanted, changed) = (u32_at(body, 8), u32_at(body, 12));
    // Without a mask, all flags are meant, of which only this one can be set.
    let is_so = (wanted ^ interface.flags()) & interface_flag::UP == 0;
    let is_only_flags = request.attributes(LINK_BYTES).all(|attribute| attribute.0 == NAME_ATTRIBUTE);
    if !is_only_flags || changed & !interface_flag::UP != 0 || u16_at(body, 2) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    match (is_so, interface.is_loopback) {
        (true, _) => Ok(Change::Nothing),
        (false, true) => Err(Errno::EOPNOTSUPP.into()),
        (false, false) => Ok(Change::SetUp(wanted & interface_flag::UP != 0)),
    }
}

/// The address that a request names, with its prefix.
fn named_address(request: &Request<'_>) -> core::result::Result<InterfaceAddress, Refusal> {
    let (body, attributes) = (request.body(), request.attributes(ADDRESS_BYTES));
    let named = attributes.find(LOCAL_ATTRIBUTE).or_else(|| attributes.find(ADDRESS_ATTRIBUTE));
    let address = route::read_address(named, body[0]).ok_or(Errno::EINVAL)?;
    let prefix_bits = body.get(1).copied().unwrap_or(0);
    if prefix_bits > bits_of(address) {
        return Err(Errno::EINVAL.into());
    }
    Ok(InterfaceAddress { address, prefix_bits })
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn new_address(request: &Request<'_>, view: &NetworkView) -> Changed {
    let own = named_address(request)?;
    let interface = view.by_index(u32_at(request.body(), 4)).ok_or(Errno::ENODEV)?;
    let has_it = interface.addresses.iter().any(|known| known.address == own.address);
    match has_it {
        true if request.flags & flag::REPLACE != 0 => return Ok(Change::Nothing),
        true => return Err(Errno::EEXIST.into()),
        false => {}
    }
    let is_usable = !own.address.is_unspecified() && !own.address.is_multicast() && !own.address.is_loopback();
    match (interface.is_loopback, is_usable) {
        (true, _) => Err(Errno::EOPNOTSUPP.into()),
        (false, true) => Ok(Change::AddAddress(own)),
        (false, false) if own.address.is_ipv6() => Err(Errno::EADDRNOTAVAIL.into()),
        (false, false) => Err(Errno::EINVAL.into()),
    }
}

fn old_address(request: &Request<'_>, view: &NetworkView) -> Changed {
    let named = named_address(request)?;
    let interface = view.by_index(u32_at(request.body(), 4)).ok_or(Errno::ENODEV)?;
    // Without an address in a network the prefix says nothing.
    let is_it = |own: &InterfaceAddress| own.address == named.address && own.prefix_bits == named.prefix_bits;
    match interface.addresses.iter().find(|own| is_it(own)) {
        Some(own) if !interface.is_loopback => Ok(Change::RemoveAddress(own.address)),
        Some(_) => Err(Errno::EOPNOTSUPP.into()),
        None => Err(Errno::EADDRNOTAVAIL.into()),
    }
}

/// The route that a request names; whether it names its interface.
fn named_route(request: &Request<'_>) -> core::result::Result<(Route, bool), Refusal> {
    const DESTINATION: u16 = 1;
    const INTERFACE: u16 = 4;
    const GATEWAY: u16 = 5;
    /// Metrics, several hops, other tables' hops: `RTA_METRICS`, `RTA_MULTIPATH`, `RTA_VIA`, `RTA_NH_ID`.
    const REFUSED: [u16; 4] = [8, 9, 18, 30];
    let (body, attributes) = (request.body(), request.attributes(ROUTE_BYTES));
    if body.len() < ROUTE_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let any = match body[0] {
        2 => IpAddr::from([0; 4]),
        10 => IpAddr::from([0; 16]),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let table = attributes.find_u32(15).unwrap_or(u32::from(body[4]));
    if ![0, TABLE_MAIN].contains(&table) || body[2] != 0 || REFUSED.iter().any(|kind| attributes.find(*kind).is_some())
    {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let address = route::read_address(attributes.find(DESTINATION), body[0]).unwrap_or(any);
    if body[1] > bits_of(any) || network_of(address, body[1]) != address {
        return Err(Refusal::invalid("Invalid prefix for given prefix length"));
    }
    let gateway = route::read_address(attributes.find(GATEWAY), body[0]).filter(|gateway| *gateway != any);
    let interface = attributes.find_u32(INTERFACE).unwrap_or(0);
    let network = InterfaceAddress { address, prefix_bits: body[1] };
    Ok((Route { network, gateway, interface }, interface != 0))
}

/// Whether a route is the one that is named, with its router or whichever it has.
fn is_same(one: &Route, other: &Route) -> bool {
    one.network == other.network && (other.gateway.is_none() || one.gateway == other.gateway)
}

fn new_route(request: &Request<'_>, view: &NetworkView) -> Changed {
    const UNICAST: u8 = 1;
    let (route, has_interface) = named_route(request)?;
    if request.body()[7] != UNICAST {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if has_interface && view.by_index(route.interface).is_none() || !has_interface && route.gateway.is_none() {
        return Err(Errno::ENODEV.into());
    }
    if route.interface == LOOPBACK.index {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let is_direct =
        |gateway: IpAddr| {
            matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local())
                || view.route_to(gateway).ok().flatten().is_some_and(|way| {
                    way.gateway.is_none() && way.index == view.card_index() && way.table() == TABLE_MAIN
                })
        };
    if let Some(gateway) = route.gateway
        && !is_direct(gateway)
    {
        return Err(Refusal { error: Errno::ENETUNREACH, ..Refusal::invalid("Nexthop has invalid gateway") });
    }
    let is_known = view.far_routes.iter().any(|known| known.network == route.network);
    match is_known {
        true if request.flags & EXCLUSIVE != 0 => Err(Errno::EEXIST.into()),
        true if view.far_routes.iter().any(|known| is_same(known, &route)) => Ok(Change::Nothing),
        false if request.flags & CREATE == 0 => Err(Errno::ENOENT.into()),
        _ => Ok(Change::AddRoute(route)),
    }
}

fn old_route(request: &Request<'_>, view: &NetworkView) -> Changed {
    let (route, has_interface) = named_route(request)?;
    let is_it = |known: &&Route| is_same(known, &route) && (!has_interface || known.interface == route.interface);
    if let Some(known) = view.far_routes.iter().find(is_it) {
        return Ok(Change::RemoveRoute(*known));
    }
    let is_of_address = view.interfaces.iter().flat_map(|interface| &interface.addresses).any(|own| {
        own.prefix_bits == route.network.prefix_bits
            && network_of(own.address, own.prefix_bits) == route.network.address
    });
    Err(if is_of_address { Errno::EOPNOTSUPP } else { Errno::ESRCH }.into())
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
