//! `NETLINK_ROUTE` (rtnetlink(7)): interfaces, addresses, routes, rules and neighbours, all or one, as Linux 6.1 tells
//! them. Pure: a request and a [`NetworkView`] give bytes.
//!
//! What would change the network is `EPERM` without the right, which is asked for first, else read by
//! [`super::change`].

use alloc::vec::Vec;
use core::net::IpAddr;

use super::change::{self, Change};
use super::message::{Answers, Attributes, Refusal, Request, Writer, aligned, flag, u32_at};
use crate::error::Errno;
use crate::net::inet::interface::{InterfaceAddress, InterfaceStatus, NeighbourStatus};
use crate::net::view::{NetworkView, RouteKind, RouteView, TABLE_LOCAL, TABLE_MAIN, broadcast_of, scope_of};

/// `RTM_*`.
pub mod kind {
    /// `RTM_NEWLINK`.
    pub const NEW_LINK: u16 = 16;
    /// `RTM_GETLINK`.
    pub const GET_LINK: u16 = 18;
    /// `RTM_SETLINK`.
    pub const SET_LINK: u16 = 19;
    /// `RTM_NEWADDR`.
    pub const NEW_ADDRESS: u16 = 20;
    /// `RTM_DELADDR`.
    pub const DELETE_ADDRESS: u16 = 21;
    /// `RTM_GETADDR`.
    pub const GET_ADDRESS: u16 = 22;
    /// `RTM_NEWROUTE`.
    pub const NEW_ROUTE: u16 = 24;
    /// `RTM_DELROUTE`.
    pub const DELETE_ROUTE: u16 = 25;
    /// `RTM_GETROUTE`.
    pub const GET_ROUTE: u16 = 26;
    /// `RTM_NEWNEIGH`.
    pub const NEW_NEIGHBOUR: u16 = 28;
    /// `RTM_GETNEIGH`.
    pub const GET_NEIGHBOUR: u16 = 30;
    /// `RTM_NEWRULE`.
    pub const NEW_RULE: u16 = 32;
    /// `RTM_GETRULE`.
    pub const GET_RULE: u16 = 34;
    /// The last type there is (`RTM_MAX`).
    pub const LAST: u16 = 123;
}

/// `AF_INET`, `AF_INET6`.
const V4: u8 = 2;
const V6: u8 = 10;
/// Bytes of `struct ifinfomsg`, `ifaddrmsg`, `rtmsg`, `ndmsg`.
const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const ROUTE_BYTES: usize = 12;
const NEIGHBOUR_BYTES: usize = 12;
/// `IFA_F_PERMANENT`.
const PERMANENT: u32 = 0x80;

/// What was asked for.
pub struct Question<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The network.
    pub view: &'a NetworkView,
    /// Port of the socket that asks.
    pub port: u32,
    /// How it wants to be answered.
    pub answers: &'a Answers,
    /// The caller may change the network (`CAP_NET_ADMIN`).
    pub can_administer: bool,
}

/// All that there are: the messages, what their end's flags are, and why there are no more.
#[derive(Debug, Default)]
pub struct Dump {
    /// Whole messages.
    pub bytes: Vec<u8>,
    /// Flags of all, `NLM_F_MULTI` apart.
    pub flags: u16,
    /// Told with the end.
    pub refusal: Option<Refusal>,
}

/// What a request is answered with, before an acknowledgement.
#[derive(Debug)]
pub enum Answer {
    /// These messages, in one datagram; none is nothing.
    Messages(Vec<u8>),
    /// Several, with an end.
    Dump(Dump),
    /// None, once the network has changed so.
    Change(Change),
}

type Answered = core::result::Result<Answer, Refusal>;

/// Answers a request.
///
/// # Errors
/// As Linux's, with what it says.
pub fn answer(question: &Question<'_>) -> Answered {
    const GET: u16 = 2;
    let request = &question.request;
    if request.kind > kind::LAST {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let Some(&family) = request.body().first() else { return Ok(Answer::Messages(Vec::new())) };
    if request.kind & 3 != GET {
        return if question.can_administer {
            change::read(question).map(Answer::Change)
        } else {
            Err(Errno::EPERM.into())
        };
    }
    if request.is_dump() { dump(question, family).map(Answer::Dump) } else { single(question, family) }
}

/// A message of the answer.
struct Telling<'a> {
    kind: u16,
    flags: u16,
    question: &'a Question<'a>,
}

impl Telling<'_> {
    fn write(&self, out: &mut Writer, body: impl FnOnce(&mut Writer)) {
        let begin = out.begin(self.kind, self.flags, self.question.request.sequence, self.question.port);
        body(out);
        out.end(begin);
    }
}

fn octets(address: IpAddr, out: &mut Writer, kind: u16) {
    match address {
        IpAddr::V4(v4) => out.attribute(kind, &v4.octets()),
        IpAddr::V6(v6) => out.attribute(kind, &v6.octets()),
    }
}

pub(super) fn read_address(value: Option<&[u8]>, family: u8) -> Option<IpAddr> {
    match (family, value?) {
        (V4, value) => value.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        (V6, value) => value.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { V4 } else { V6 }
}

/// What a dump asks for beyond its kind.
struct Narrowing {
    flags: u16,
    index: u32,
    table: u32,
}

/// What narrows the dump of one kind.
struct Shape {
    /// Its name where something is refused, and where its header is.
    header: &'static str,
    values: &'static str,
    fixed_bytes: usize,
    /// The last attribute type that there is, and those that are taken.
    last: u16,
    taken: &'static [u16],
    unsupported: &'static str,
}

const LINKS: Shape = Shape {
    header: "Invalid header for link dump",
    values: "Invalid values in header for link dump request",
    fixed_bytes: LINK_BYTES,
    last: 61,
    taken: &[10, 18, 29, 46],
    unsupported: "Unsupported attribute in link dump request",
};
const ADDRESSES_V4: Shape = Shape {
    header: "ipv4: Invalid header for address dump request",
    values: "ipv4: Invalid values in header for address dump request",
    fixed_bytes: ADDRESS_BYTES,
    last: 11,
    taken: &[10],
    unsupported: "ipv4: Unsupported attribute in dump request",
};
const ADDRESSES_V6: Shape = Shape {
    header: "IPv6: Invalid header for address dump request",
    values: "IPv6: Invalid values in header for address dump request",
    unsupported: "IPv6: Unsupported attribute in dump request",
    ..ADDRESSES_V4
};
const ROUTES: Shape = Shape {
    header: "Invalid header for FIB dump request",
    values: "Invalid values in header for FIB dump request",
    fixed_bytes: ROUTE_BYTES,
    last: 30,
    taken: &[4, 15],
    unsupported: "Unsupported attribute in dump request",
};
const NEIGHBOURS: Shape = Shape {
    header: "Invalid header for neighbor dump request",
    values: "Invalid values in header for neighbor dump request",
    fixed_bytes: NEIGHBOUR_BYTES,
    last: 15,
    taken: &[8, 9],
    unsupported: "Unsupported attribute in neighbor dump request",
};

/// Checks what a strict socket asks for (`NETLINK_GET_STRICT_CHK`).
fn check(question: &Question<'_>, shape: &Shape, zeros: &[usize]) -> core::result::Result<(), Refusal> {
    const HEADER_BYTES: usize = super::message::HEADER_BYTES;
    let body = question.request.body();
    if body.len() < shape.fixed_bytes {
        return Err(Refusal::invalid(shape.header));
    }
    if zeros.iter().any(|place| body[*place] != 0) {
        return Err(Refusal::invalid(shape.values));
    }
    let whole_bytes = question.request.whole.len();
    let mut attributes = question.request.attributes(shape.fixed_bytes);
    loop {
        let offset_bytes = Some(whole_bytes - attributes.remaining());
        let Some((kind, value)) = attributes.next() else { break };
        if kind > shape.last {
            return Err(Refusal { offset_bytes, ..Refusal::invalid("Unknown attribute type") });
        }
        if !shape.taken.contains(&kind) && kind != 0 {
            return Err(Refusal::invalid(shape.unsupported));
        }
        if value.len() < 4 {
            return Err(Refusal { offset_bytes, ..Refusal::invalid("Attribute failed policy validation") });
        }
    }
    let tail = body.len() - aligned(shape.fixed_bytes).min(body.len());
    let read: usize = question.request.attributes(shape.fixed_bytes).map(|one| aligned(one.1.len() + 4)).sum();
    let left = tail.saturating_sub(read);
    if left > 0 && whole_bytes > HEADER_BYTES + shape.fixed_bytes {
        return Err(Refusal::invalid("bytes leftover after parsing attributes."));
    }
    Ok(())
}

/// All there are of a kind, of a family or of all.
fn dump(question: &Question<'_>, family: u8) -> core::result::Result<Dump, Refusal> {
    let mut out = Writer::new();
    let mut narrowing = Narrowing { flags: 0, index: 0, table: 0 };
    let body = question.request.body();
    let refused = match question.request.kind {
        kind::GET_LINK => links(question, &mut out),
        kind::GET_ADDRESS => {
            let shape = if family == V6 { &ADDRESSES_V6 } else { &ADDRESSES_V4 };
            let outcome = strictly(question, shape, &[1, 2, 3]);
            if question.answers.is_strict && u32_at(body, 4) != 0 {
                narrowing = Narrowing { flags: flag::FILTERED, index: u32_at(body, 4), table: 0 };
            }
            outcome.and_then(|()| addresses(question, family, &narrowing, &mut out))
        }
        kind::GET_ROUTE => strictly(question, &ROUTES, &[1, 2, 3, 6]).and_then(|()| {
            narrowing = routes_asked_for(question)?;
            check_table(&narrowing, body)?;
            routes(question, family, &narrowing, &mut out)
        }),
        kind::GET_RULE => rules(question, family, &mut out),
        kind::GET_NEIGHBOUR => strictly(question, &NEIGHBOURS, &[4, 5, 6, 7, 8, 9, 11]).and_then(|()| {
            narrowing.index = question.request.attributes(NEIGHBOUR_BYTES).find_u32(8).unwrap_or(0);
            narrowing.flags = if narrowing.index == 0 { 0 } else { flag::FILTERED };
            neighbours(question, family, &narrowing, &mut out)
        }),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let bytes = out.finish()?;
    Ok(Dump { bytes, flags: narrowing.flags, refusal: refused.err() })
}

fn strictly(question: &Question<'_>, shape: &Shape, zeros: &[usize]) -> core::result::Result<(), Refusal> {
    if question.answers.is_strict { check(question, shape, zeros) } else { Ok(()) }
}

fn telling<'a>(question: &'a Question<'a>, kind: u16, flags: u16) -> Telling<'a> {
    let several = if question.request.is_dump() { flag::MULTI } else { 0 };
    Telling { kind, flags: flags | several, question }
}

/// Attributes of an interface (`IFLA_*`).
mod link_attribute {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const BROADCAST: u16 = 2;
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const QUEUE: u16 = 6;
    pub(super) const STATISTICS: u16 = 7;
    pub(super) const QUEUE_LENGTH: u16 = 13;
    pub(super) const MAP: u16 = 14;
    pub(super) const STATE: u16 = 16;
    pub(super) const MODE: u16 = 17;
    pub(super) const STATISTICS_64: u16 = 23;
    pub(super) const WANTED: u16 = 29;
    pub(super) const CARRIER: u16 = 33;
    pub(super) const PROTOCOL_DOWN: u16 = 39;
    pub(super) const EXPRESS: u16 = 43;
    pub(super) const OTHER_NAME: u16 = 53;
}

fn links(question: &Question<'_>, out: &mut Writer) -> core::result::Result<(), Refusal> {
    strictly(question, &LINKS, &[2, 3, 8, 9, 10, 11, 12, 13, 14, 15])?;
    if question.answers.is_strict && u32_at(question.request.body(), 4) != 0 {
        return Err(Refusal::invalid("Filter by device index not supported for link dumps"));
    }
    for interface in &question.view.interfaces {
        link(question, interface, out);
    }
    Ok(())
}

/// One interface.
pub(super) fn link(question: &Question<'_>, interface: &InterfaceStatus, out: &mut Writer) {
    /// `RTEXT_FILTER_SKIP_STATS`.
    const WITHOUT_STATISTICS: u32 = 8;
    const QUEUE_LENGTH: u32 = 1000;
    use link_attribute as attribute;
    let wanted = question.request.attributes(LINK_BYTES).find_u32(attribute::WANTED).unwrap_or(0);
    telling(question, kind::NEW_LINK, 0).write(out, |out| {
        out.raw(&[0, 0]);
        out.raw(&interface.hardware_kind().to_le_bytes());
        out.raw(&interface.index.to_le_bytes());
        out.raw(&interface.flags().to_le_bytes());
        out.raw(&[0; 4]);
        out.string(attribute::NAME, interface.name.as_bytes());
        out.number(attribute::QUEUE_LENGTH, QUEUE_LENGTH);
        out.attribute(attribute::STATE, &[interface.operational_state()]);
        out.attribute(attribute::MODE, &[0]);
        out.number(attribute::MTU, interface.packet_bytes_max);
        let (least, most) = if interface.is_loopback { (0, 0) } else { (68, 65_535) };
        // Least and greatest MTU, group, promiscuity, all groups; queues and their longest packets.
        let numbers = [(50, least), (51, most), (27, 0), (30, 0), (61, 0), (31, 1), (40, 65_535), (41, 65_536)];
        let more = [(58, 65_536), (59, 65_536), (60, 65_535), (32, 1)];
        numbers.iter().chain(&more).for_each(|(kind, value)| out.number(*kind, *value));
        out.attribute(attribute::CARRIER, &[u8::from(interface.is_running)]);
        out.string(attribute::QUEUE, interface.queue_name().as_bytes());
        let changes = if interface.is_loopback { [0; 3] } else { [1, 1, 0] };
        [35, 47, 48].iter().zip(changes).for_each(|(kind, value)| out.number(*kind, value));
        out.attribute(attribute::PROTOCOL_DOWN, &[0]);
        out.attribute(attribute::MAP, &[0; 28]);
        out.attribute(attribute::ADDRESS, &interface.hardware_address);
        out.attribute(attribute::BROADCAST, &interface.hardware_broadcast());
        if wanted & WITHOUT_STATISTICS == 0 {
            statistics(interface, out);
        }
        let nest = out.nest(attribute::EXPRESS);
        out.attribute(2, &[0]);
        out.end_nest(nest);
    });
}

/// `struct rtnl_link_stats64`, and its older brother with half as wide numbers.
fn statistics(interface: &InterfaceStatus, out: &mut Writer) {
    const WIDE_COUNT: usize = 25;
    const NARROW_COUNT: usize = 24;
    let numbers = interface.statistics();
    let wide: Vec<u8> = numbers.iter().take(WIDE_COUNT).flat_map(|number| number.to_le_bytes()).collect();
    out.attribute(link_attribute::STATISTICS_64, &wide);
    let narrow = numbers.iter().take(NARROW_COUNT).flat_map(|number| (*number as u32).to_le_bytes());
    out.attribute(link_attribute::STATISTICS, &narrow.collect::<Vec<u8>>());
}

/// Addresses of a family or of all, IPv4 first.
fn addresses(
    question: &Question<'_>,
    family: u8,
    narrowing: &Narrowing,
    out: &mut Writer,
) -> core::result::Result<(), Refusal> {
    let is_meant = |index: u32| narrowing.index == 0 || narrowing.index == index;
    if question.view.by_index(narrowing.index).is_none() && narrowing.index != 0 {
        return Err(Errno::ENODEV.into());
    }
    for told in [V4, V6].into_iter().filter(|told| family == *told || ![V4, V6].contains(&family)) {
        for interface in question.view.interfaces.iter().filter(|interface| is_meant(interface.index)) {
            let own = interface.addresses.iter().filter(|own| family_of(own.address) == told);
            own.for_each(|own| address(question, interface, own, narrowing.flags, out));
        }
    }
    Ok(())
}

/// One address.
pub(super) fn address(
    question: &Question<'_>,
    interface: &InterfaceStatus,
    own: &InterfaceAddress,
    flags: u16,
    out: &mut Writer,
) {
    /// `IFAPROT_KERNEL_LO`, `IFAPROT_KERNEL_LL`.
    const OF_LOOPBACK: u8 = 1;
    const OF_LINK: u8 = 3;
    /// `struct ifa_cacheinfo`: for ever, since the start.
    const FOR_EVER: [u8; 16] = [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0];
    let scope = scope_of(own.address);
    telling(question, kind::NEW_ADDRESS, flags).write(out, |out| {
        out.raw(&[family_of(own.address), own.prefix_bits, PERMANENT as u8, scope]);
        out.raw(&interface.index.to_le_bytes());
        octets(own.address, out, 1);
        if own.address.is_ipv6() {
            out.attribute(6, &FOR_EVER);
            out.number(8, PERMANENT);
            match scope {
                crate::net::view::scope::HOST => out.attribute(11, &[OF_LOOPBACK]),
                crate::net::view::scope::LINK => out.attribute(11, &[OF_LINK]),
                _ => {}
            }
            return;
        }
        octets(own.address, out, 2);
        if let Some(all) = broadcast_of(own).filter(|_| !interface.is_loopback) {
            out.attribute(4, &all.octets());
        }
        out.string(3, interface.name.as_bytes());
        out.number(8, PERMANENT);
        out.attribute(6, &FOR_EVER);
    });
}

/// What a dump of routes asks for: a table and an interface of a strict socket. `ENODEV`.
fn routes_asked_for(question: &Question<'_>) -> core::result::Result<Narrowing, Refusal> {
    let body = question.request.body();
    if !question.answers.is_strict {
        return Ok(Narrowing { flags: 0, index: 0, table: 0 });
    }
    let attributes = question.request.attributes(ROUTE_BYTES);
    let table = attributes.find_u32(15).unwrap_or(u32::from(body.get(4).copied().unwrap_or(0)));
    let index = attributes.find_u32(4).unwrap_or(0);
    if index != 0 && question.view.by_index(index).is_none() {
        return Err(Errno::ENODEV.into());
    }
    let flags = if table != 0 || index != 0 { flag::FILTERED } else { 0 };
    Ok(Narrowing { flags, index, table })
}

/// A table that is asked for has to be there. `ENOENT`.
fn check_table(narrowing: &Narrowing, body: &[u8]) -> core::result::Result<(), Refusal> {
    if [0, TABLE_MAIN, TABLE_LOCAL].contains(&narrowing.table) {
        return Ok(());
    }
    let text = if body.first() == Some(&V6) { "FIB table does not exist" } else { "ipv4: FIB table does not exist" };
    Err(Refusal { error: Errno::ENOENT, ..Refusal::invalid(text) })
}

fn routes(
    question: &Question<'_>,
    family: u8,
    narrowing: &Narrowing,
    out: &mut Writer,
) -> core::result::Result<(), Refusal> {
    /// `RTM_F_CLONED`: what is only remembered, which nothing is.
    const REMEMBERED: u32 = 0x200;
    if u32_at(question.request.body(), 8) & REMEMBERED != 0 {
        return Ok(());
    }
    for told in [V4, V6].into_iter().filter(|told| family == *told || ![V4, V6].contains(&family)) {
        for route in question.view.routes(told == V4)? {
            let is_meant = (narrowing.table == 0 || narrowing.table == route.table())
                && (narrowing.index == 0 || narrowing.index == route.index);
            if is_meant {
                self::route(question, &route, narrowing.flags, out);
            }
        }
    }
    Ok(())
}

/// One route of a table.
pub(super) fn route(question: &Question<'_>, route: &RouteView, flags: u16, out: &mut Writer) {
    telling(question, kind::NEW_ROUTE, flags).write(out, |out| {
        let family = family_of(route.destination);
        out.raw(&[family, route.prefix_bits, 0, 0, route.table() as u8, route.protocol]);
        out.raw(&[if family == V4 { route.scope } else { 0 }, route.kind as u8, 0, 0, 0, 0]);
        out.number(15, route.table());
        if route.prefix_bits > 0 {
            octets(route.destination, out, 1);
        }
        if family == V4 {
            if route.metric != 0 {
                out.number(6, route.metric);
            }
            route.source.into_iter().for_each(|source| octets(source, out, 7));
            route.gateway.into_iter().for_each(|gateway| octets(gateway, out, 5));
            out.number(4, route.index);
        } else {
            out.number(6, route.metric);
            route.gateway.into_iter().for_each(|gateway| octets(gateway, out, 5));
            out.number(4, route.index);
            out.attribute(12, &[0; 32]);
            out.attribute(20, &[0]);
        }
    });
}

/// Rules by which tables are looked into: always the same.
fn rules(question: &Question<'_>, family: u8, out: &mut Writer) -> core::result::Result<(), Refusal> {
    /// `RT_TABLE_DEFAULT`, which is empty.
    const TABLE_DEFAULT: u32 = 253;
    const RULES: [(u32, u32); 3] = [(0, TABLE_LOCAL), (32_766, TABLE_MAIN), (32_767, TABLE_DEFAULT)];
    for told in [V4, V6].into_iter().filter(|told| family == *told || family == 0) {
        let count = if told == V4 { RULES.len() } else { RULES.len() - 1 };
        for (priority, table) in &RULES[..count] {
            telling(question, kind::NEW_RULE, 0).write(out, |out| {
                out.raw(&[told, 0, 0, 0, *table as u8, 0, 0, 1, 0, 0, 0, 0]);
                out.number(15, *table);
                out.number(14, u32::MAX);
                out.attribute(21, &[2]);
                if *priority != 0 {
                    out.number(6, *priority);
                }
            });
        }
    }
    if [0, V4, V6].contains(&family) { Ok(()) } else { Err(Errno::EAFNOSUPPORT.into()) }
}

fn neighbours(
    question: &Question<'_>,
    family: u8,
    narrowing: &Narrowing,
    out: &mut Writer,
) -> core::result::Result<(), Refusal> {
    for told in [V4, V6].into_iter().filter(|told| family == *told || ![V4, V6].contains(&family)) {
        let all = question.view.neighbours.iter().filter(|neighbour| family_of(neighbour.address) == told);
        for one in all.filter(|_| narrowing.index == 0 || narrowing.index == question.view.card_index()) {
            neighbour(question, one, narrowing.flags, out);
        }
    }
    Ok(())
}

/// One neighbour.
fn neighbour(question: &Question<'_>, told: &NeighbourStatus, flags: u16, out: &mut Writer) {
    telling(question, kind::NEW_NEIGHBOUR, flags).write(out, |out| {
        out.raw(&[family_of(told.address), 0, 0, 0]);
        out.raw(&question.view.card_index().to_le_bytes());
        out.raw(&u16::from(told.state).to_le_bytes());
        out.raw(&[0, RouteKind::Unicast as u8]);
        octets(told.address, out, 1);
        if let Some(hardware_address) = told.hardware_address {
            out.attribute(2, &hardware_address);
        }
        out.number(4, 0);
        out.attribute(3, &[0; 16]);
    });
}

/// One of something.
fn single(question: &Question<'_>, family: u8) -> Answered {
    let mut out = Writer::new();
    match question.request.kind {
        kind::GET_LINK => link(question, link_asked_for(question)?, &mut out),
        kind::GET_ADDRESS if family == V6 => address_asked_for(question, &mut out)?,
        kind::GET_ROUTE if [V4, V6].contains(&family) => route_asked_for(question, family, &mut out)?,
        kind::GET_NEIGHBOUR => neighbour_asked_for(question, family, &mut out)?,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    }
    Ok(Answer::Messages(out.finish()?))
}

/// The interface that a request names by number or by name. `EINVAL`: by neither. `ENODEV`.
pub(super) fn link_asked_for<'a>(question: &Question<'a>) -> core::result::Result<&'a InterfaceStatus, Refusal> {
    let body = question.request.body();
    if body.len() < LINK_BYTES {
        return Err(Refusal::invalid("Invalid header for get link"));
    }
    let attributes: Attributes<'_> = question.request.attributes(LINK_BYTES);
    let name = attributes.find(link_attribute::NAME).or_else(|| attributes.find(link_attribute::OTHER_NAME));
    let index = u32_at(body, 4) as i32;
    let found = match (u32::try_from(index), name) {
        (Ok(index @ 1..), _) => question.view.by_index(index),
        (_, Some(name)) => question.view.by_name(name.split(|byte| *byte == 0).next().unwrap_or_default()),
        _ => return Err(Errno::EINVAL.into()),
    };
    found.ok_or(Errno::ENODEV.into())
}

/// An IPv6 address. `EINVAL`: none is named. `EADDRNOTAVAIL`.
fn address_asked_for(question: &Question<'_>, out: &mut Writer) -> core::result::Result<(), Refusal> {
    let attributes = question.request.attributes(ADDRESS_BYTES);
    let named = read_address(attributes.find(2).or_else(|| attributes.find(1)), V6).ok_or(Errno::EINVAL)?;
    let index = u32_at(question.request.body(), 4);
    let meant = question.view.interfaces.iter().filter(|interface| index == 0 || interface.index == index);
    let mut all = meant.flat_map(|interface| interface.addresses.iter().map(move |own| (interface, own)));
    let (interface, own) = all.find(|(_, own)| own.address == named).ok_or(Errno::EADDRNOTAVAIL)?;
    address(question, interface, own, 0, out);
    Ok(())
}

/// The way to an address, which `ip route get` asks for. `ENETUNREACH`, `EINVAL`.
fn route_asked_for(question: &Question<'_>, family: u8, out: &mut Writer) -> core::result::Result<(), Refusal> {
    /// `RTM_F_CLONED`; `RTCF_LOCAL`, in what IPv4 tells.
    const REMEMBERED: u32 = 0x200;
    const LOCAL: u32 = 0x8000_0000;
    let body = question.request.body();
    if body.len() < ROUTE_BYTES {
        let is_v4 = family == V4;
        return Err(Refusal::invalid(if is_v4 {
            "ipv4: Invalid header for route get request"
        } else {
            "Invalid header for get route request"
        }));
    }
    let attributes = question.request.attributes(ROUTE_BYTES);
    let none = if family == V4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let named = read_address(attributes.find(1), family).unwrap_or(none);
    // No address is this machine.
    let loopback = if family == V4 { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from(1u128.to_be_bytes()) };
    let destination = if named == none { loopback } else { named };
    let route = question.view.route_to(destination)?.ok_or(Errno::ENETUNREACH)?;
    let own = question.view.by_index(route.index).map(|interface| &interface.addresses[..]).unwrap_or_default();
    let first = own.iter().map(|own| own.address).find(|address| family_of(*address) == family);
    let is_local = route.kind == RouteKind::Local;
    // What this machine sends itself goes over loopback, from the very address.
    let source = if is_local { Some(destination) } else { route.source.or(first) };
    let interface = if is_local { crate::net::inet::interface::LOOPBACK.index } else { route.index };
    let bits = if family == V4 { 32 } else { 128 };
    telling(question, kind::NEW_ROUTE, 0).write(out, |out| {
        if family == V4 {
            out.raw(&[V4, bits, 0, 0, TABLE_MAIN as u8, 0, 0, route.kind as u8]);
            out.raw(&(REMEMBERED | if is_local { LOCAL } else { 0 }).to_le_bytes());
            out.number(15, TABLE_MAIN);
            octets(destination, out, 1);
            out.number(4, interface);
            source.into_iter().for_each(|source| octets(source, out, 7));
            route.gateway.into_iter().for_each(|gateway| octets(gateway, out, 5));
            out.number(25, 0);
            out.attribute(12, &[0; 32]);
            return;
        }
        out.raw(&[V6, bits, bits, 0, route.table() as u8, route.protocol, 0, route.kind as u8, 0, 0, 0, 0]);
        out.number(15, route.table());
        octets(destination, out, 1);
        octets(none, out, 2);
        source.into_iter().for_each(|source| octets(source, out, 7));
        route.gateway.into_iter().for_each(|gateway| octets(gateway, out, 5));
        out.number(6, route.metric);
        out.number(4, interface);
        out.attribute(12, &[0; 32]);
        out.attribute(20, &[0]);
    });
    Ok(())
}

/// A neighbour. `EINVAL`, `ENODEV`, `ENOENT`.
fn neighbour_asked_for(question: &Question<'_>, family: u8, out: &mut Writer) -> core::result::Result<(), Refusal> {
    let body = question.request.body();
    if body.len() < NEIGHBOUR_BYTES {
        return Err(Refusal::invalid("Invalid header for neighbor get request"));
    }
    let named = question.request.attributes(NEIGHBOUR_BYTES).find(1);
    let named = named.ok_or(Refusal::invalid("Network address not specified"))?;
    if ![V4, V6].contains(&family) {
        return Err(Refusal {
            error: Errno::EOPNOTSUPP,
            ..Refusal::invalid("Unsupported family in header for neighbor get request")
        });
    }
    let named = read_address(Some(named), family);
    let named = named.ok_or(Refusal::invalid("Invalid network address in neighbor get request"))?;
    let index = u32_at(body, 4);
    if index == 0 {
        return Err(Refusal::invalid("No device specified"));
    }
    if question.view.by_index(index).is_none() {
        return Err(Refusal { error: Errno::ENODEV, ..Refusal::invalid("Unknown device ifindex") });
    }
    let is_meant = |one: &&NeighbourStatus| one.address == named && index == question.view.card_index();
    let missing = Refusal { error: Errno::ENOENT, ..Refusal::invalid("Neighbour entry not found") };
    let found = question.view.neighbours.iter().find(is_meant).ok_or(missing)?;
    neighbour(question, found, 0, out);
    Ok(())
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
