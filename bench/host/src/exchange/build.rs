//! Frames from the words of a script: layers with `/` between them, each with what differs from the ordinary.
//!
//! Nothing here refuses what is wrong on the wire; wrong frames are what scripts are for.

use std::net::IpAddr;

use super::flow::Flows;
use super::words::{GUEST_MAC, PEER_MAC, Words, address, flags, group_mac, hex, number};

pub(super) const TYPE_IPV4: u16 = 0x0800;
pub(super) const TYPE_ARP: u16 = 0x0806;
pub(super) const TYPE_IPV6: u16 = 0x86dd;
pub(super) const PROTOCOL_ICMP: u8 = 1;
pub(super) const PROTOCOL_TCP: u8 = 6;
pub(super) const PROTOCOL_UDP: u8 = 17;
pub(super) const PROTOCOL_ICMPV6: u8 = 58;
/// Options of segments take their header to at most this.
const OPTION_BYTES_MAX: usize = 40;

/// The frame that a line of a script describes.
pub(super) fn frame(line: &[&str], flows: &mut Flows) -> Result<Vec<u8>, String> {
    let layers: Vec<&[&str]> = line.split(|word| *word == "/").collect();
    let mut ethernet = None;
    let mut network = None;
    let mut extensions = Vec::new();
    let mut transport = None;
    for layer in &layers {
        let (head, rest) = layer.split_first().ok_or("an empty layer")?;
        let words = Words::new(rest);
        match *head {
            "eth" => ethernet = Some(words),
            "ip" => network = Some((false, words)),
            "ip6" => network = Some((true, words)),
            "ext" => extensions.push(words),
            _ => transport = Some((*head, words)),
        }
    }
    let (head, mut words) = transport.ok_or("no transport")?;
    if head == "arp" {
        let (target, packet) = arp(&mut words)?;
        words.end()?;
        return framed(ethernet, target, TYPE_ARP, packet);
    }
    let is_v6 =
        network.as_ref().map_or(head.split(':').next().is_some_and(|it| it.ends_with('6')), |(is_v6, _)| *is_v6);
    let mut network = network.map_or_else(|| Words::new(&[]), |(_, words)| words);
    let default = |name| address(name).unwrap_or(flows.peer[0]);
    let source = match network.text("src")? {
        Some(name) => address(name)?,
        None => flows.peer[usize::from(is_v6)],
    };
    let destination = match network.text("dst")? {
        Some(name) => address(name)?,
        None => default(if is_v6 { "guest6" } else { "guest" }),
    };
    let (protocol, payload) = payload(head, &mut words, flows, (source, destination))?;
    words.end()?;
    let packet = if is_v6 {
        ipv6(&mut network, extensions, (source, destination), protocol, payload)?
    } else {
        ipv4(&mut network, flows, (source, destination), protocol, payload)?
    };
    network.end()?;
    let kind = if is_v6 { TYPE_IPV6 } else { TYPE_IPV4 };
    framed(ethernet, group_mac(destination).unwrap_or(GUEST_MAC), kind, packet)
}

fn framed(ethernet: Option<Words<'_>>, target: [u8; 6], kind: u16, packet: Vec<u8>) -> Result<Vec<u8>, String> {
    let (mut target, mut source, mut kind, mut pad, mut cut) = (target, PEER_MAC, kind, 0, None);
    if let Some(mut words) = ethernet {
        if let Some(text) = words.text("dst")? {
            target = mac(text)?;
        }
        if let Some(text) = words.text("src")? {
            source = mac(text)?;
        }
        kind = words.number("type")?.map_or(kind, |it| it as u16);
        pad = words.number("pad")?.unwrap_or(0) as usize;
        cut = words.number("cut")?;
        words.end()?;
    }
    let mut frame = [&target[..], &source, &kind.to_be_bytes(), &packet].concat();
    frame.resize(frame.len().max(pad), 0xee);
    if let Some(cut) = cut {
        frame.truncate(cut as usize);
    }
    Ok(frame)
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    Ok(match text {
        "guest" => GUEST_MAC,
        "peer" => PEER_MAC,
        "other" => [0x52, 0x55, 10, 0, 2, 99],
        "bcast" => [255; 6],
        "zero" => [0; 6],
        "group" => [1, 0, 0x5e, 0, 0, 1],
        _ => hex(text)?.try_into().map_err(|_| format!("{text}: no Ethernet address"))?,
    })
}

fn arp(words: &mut Words<'_>) -> Result<([u8; 6], Vec<u8>), String> {
    let operation: u16 = match words.first()? {
        "request" => 1,
        "reply" => 2,
        other => number(other)? as u16,
    };
    let target_default = if operation == 1 { "zero" } else { "guest" };
    let sha = mac(words.text("sha")?.unwrap_or("peer"))?;
    let tha = mac(words.text("tha")?.unwrap_or(target_default))?;
    let spa = v4(words.text("spa")?.unwrap_or("peer"))?;
    let tpa = v4(words.text("tpa")?.unwrap_or("guest"))?;
    let hardware = words.number("hrd")?.unwrap_or(1) as u16;
    let protocol = words.number("pro")?.unwrap_or(0x0800) as u16;
    let lengths = [words.number("hln")?.unwrap_or(6) as u8, words.number("pln")?.unwrap_or(4) as u8];
    let parts: [&[u8]; 8] =
        [&hardware.to_be_bytes(), &protocol.to_be_bytes(), &lengths, &operation.to_be_bytes(), &sha, &spa, &tha, &tpa];
    Ok((if operation == 1 { [255; 6] } else { GUEST_MAC }, parts.concat()))
}

fn v4(text: &str) -> Result<[u8; 4], String> {
    match address(text)? {
        IpAddr::V4(it) => Ok(it.octets()),
        IpAddr::V6(_) => Err(format!("{text}: not IPv4")),
    }
}

/// Protocol and bytes of what an IP packet carries.
fn payload(
    head: &str,
    words: &mut Words<'_>,
    flows: &mut Flows,
    pair: (IpAddr, IpAddr),
) -> Result<(u8, Vec<u8>), String> {
    let (kind, flow) = head.split_once(':').unwrap_or((head, "0"));
    let flow = number(flow)? as u16;
    let sum = words.text("sum")?;
    let (protocol, mut bytes, place) = match kind {
        "tcp" | "tcp6" => (PROTOCOL_TCP, tcp(words, flows, flow)?, 16),
        "udp" | "udp6" => (PROTOCOL_UDP, udp(words, flows, flow)?, 6),
        "icmp" => (PROTOCOL_ICMP, icmp(words, flows, pair)?, 2),
        "icmp6" => (PROTOCOL_ICMPV6, icmp(words, flows, pair)?, 2),
        "raw" => {
            let protocol = number(words.first()?)? as u8;
            let bytes = hex(words.text("hex")?.unwrap_or(""))?;
            return Ok((protocol, bytes));
        }
        _ => return Err(format!("{head}: no layer")),
    };
    if let Some(cut) = words.number("cut")? {
        bytes.truncate(cut as usize);
    }
    if bytes.len() >= place + 2 && sum != Some("0") {
        let pseudo = if protocol == PROTOCOL_ICMP { 0 } else { pseudo_sum(pair, protocol, bytes.len()) };
        let mut value = finished(sum_of(&bytes) + pseudo);
        if protocol == PROTOCOL_UDP && value == 0 {
            value = 0xffff;
        }
        if sum == Some("bad") {
            value ^= 0x1234;
        }
        bytes[place..place + 2].copy_from_slice(&value.to_be_bytes());
    }
    Ok((protocol, bytes))
}

/// The sum over words of 16 bits; a last odd byte counts as the upper half of one.
pub(super) fn sum_of(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
}

/// The checksum that belongs to a sum.
pub(super) fn finished(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The sum of the pseudo header.
pub(super) fn pseudo_sum(pair: (IpAddr, IpAddr), protocol: u8, length_bytes: usize) -> u64 {
    let of = |address| match address {
        IpAddr::V4(it) => sum_of(&it.octets()),
        IpAddr::V6(it) => sum_of(&it.octets()),
    };
    of(pair.0) + of(pair.1) + u64::from(protocol) + length_bytes as u64
}

/// The bytes that a segment or datagram carries: `data TEXT`, or `len N` of a pattern that goes on from `at`.
fn data(words: &mut Words<'_>, at: u32) -> Result<Vec<u8>, String> {
    if let Some(text) = words.text("data")? {
        return Ok(text.as_bytes().to_vec());
    }
    let length = words.number("len")?.unwrap_or(0) as u32;
    Ok((0..length).map(|index| b'a' + (at.wrapping_add(index) % 26) as u8).collect())
}

fn tcp(words: &mut Words<'_>, flows: &mut Flows, number: u16) -> Result<Vec<u8>, String> {
    let flags = flags(words.first()?)?;
    let flow = flows.get(number).clone();
    let sequence = match words.text("seq")? {
        Some("next") | None => flow.next,
        Some(text) => super::words::number(text)? as u32,
    };
    let acknowledged = match words.text("ack")? {
        None if flags & 16 == 0 => None,
        None => Some(flow.acknowledged),
        Some(text) => Some(super::words::number(text)? as u32),
    };
    let window = words.number("win")?.unwrap_or(64_000) as u16;
    let urgent = words.number("urg")?.unwrap_or(0) as u16;
    let options = options(words.bracketed().unwrap_or(""), flow.timestamp, flow.guest_iss.unwrap_or(0))?;
    let begin = sequence.wrapping_sub(1);
    let data = data(words, if sequence == 0 { 0 } else { begin })?;
    let header_words = words.number("hdr")?.unwrap_or((20 + options.len() as i64) / 4) as u8;
    let peer_port = words.number("sport")?.map_or(flows.peer_port + number, |it| it as u16);
    let guest_port = words.number("dport")?.map_or(flow.guest_port, |it| it as u16);
    let length = data.len() as u32 + u32::from(flags & 1) + u32::from(flags >> 1 & 1);
    let end = sequence.wrapping_add(length);
    let ahead = end.wrapping_sub(flow.next);
    if ahead < 1 << 20 {
        flows.get(number).next = end;
    }
    let absolute = acknowledged.map_or(0, |it| it.wrapping_add(flow.guest_iss.unwrap_or(0)));
    let parts: [&[u8]; 10] = [
        &peer_port.to_be_bytes(),
        &guest_port.to_be_bytes(),
        &sequence.wrapping_add(flow.peer_iss).to_be_bytes(),
        &absolute.to_be_bytes(),
        &[header_words << 4, flags],
        &window.to_be_bytes(),
        &[0, 0],
        &urgent.to_be_bytes(),
        &options,
        &data,
    ];
    Ok(parts.concat())
}

/// Options of a segment, filled up to whole words.
fn options(text: &str, last: u32, guest_iss: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once(':').unwrap_or((item, ""));
        match name {
            "nop" => bytes.push(1),
            "eol" => bytes.push(0),
            "mss" => bytes.extend([&[2, 4][..], &(number(value)? as u16).to_be_bytes()].concat()),
            "ws" => bytes.extend([3, 3, number(value)? as u8]),
            "sackok" => bytes.extend([4, 2]),
            "sack" => {
                let edges: Vec<i64> = value.split(['-', ';']).map(number).collect::<Result<_, _>>()?;
                bytes.extend([5, (2 + 4 * edges.len()) as u8]);
                edges.iter().for_each(|edge| bytes.extend(guest_iss.wrapping_add(*edge as u32).to_be_bytes()));
            }
            "ts" => {
                let (own, echo) = value.split_once(':').unwrap_or((value, "last"));
                let echo = if echo == "last" { last } else { number(echo)? as u32 };
                bytes.extend([&[8, 10][..], &(number(own)? as u32).to_be_bytes(), &echo.to_be_bytes()].concat());
            }
            "raw" => bytes.extend(hex(value)?),
            _ => return Err(format!("{item}: no option")),
        }
    }
    while bytes.len() % 4 != 0 {
        bytes.push(1);
    }
    if bytes.len() > OPTION_BYTES_MAX { Err("too many options".into()) } else { Ok(bytes) }
}

fn udp(words: &mut Words<'_>, flows: &mut Flows, flow: u16) -> Result<Vec<u8>, String> {
    let data = data(words, 0)?;
    let length = words.number("length")?.unwrap_or(8 + data.len() as i64) as u16;
    let guest_port = flows.get(flow).guest_port;
    let peer_port = words.number("sport")?.map_or(flows.peer_port + flow, |it| it as u16);
    let guest_port = words.number("dport")?.map_or(guest_port, |it| it as u16);
    let parts: [&[u8]; 5] =
        [&peer_port.to_be_bytes(), &guest_port.to_be_bytes(), &length.to_be_bytes(), &[0, 0], &data];
    Ok(parts.concat())
}

/// `icmp TYPE CODE`, the four bytes behind the checksum, and a body: bytes, a pattern, a packet quoted, or neighbour
/// discovery's target and option.
fn icmp(words: &mut Words<'_>, flows: &mut Flows, pair: (IpAddr, IpAddr)) -> Result<Vec<u8>, String> {
    let kind = number(words.first()?)? as u8;
    let code = number(words.first()?)? as u8;
    let mut rest = match words.text("rest")? {
        Some(text) => hex(text)?,
        None => {
            let id = words.number("id")?.unwrap_or(0) as u16;
            let sequence = words.number("seq")?.unwrap_or(0) as u16;
            [id.to_be_bytes(), sequence.to_be_bytes()].concat()
        }
    };
    if let Some(mtu) = words.number("mtu")? {
        rest = (mtu as u32).to_be_bytes().to_vec();
    }
    let mut body = match words.text("quote")? {
        Some(what) => quoted(what, words, flows, pair)?,
        None => data(words, 0)?,
    };
    if let Some(target) = words.text("target")? {
        let IpAddr::V6(target) = address(target)? else { return Err("target: not IPv6".into()) };
        body = target.octets().to_vec();
    }
    if let Some(to) = words.text("to")? {
        let IpAddr::V6(to) = address(to)? else { return Err("to: not IPv6".into()) };
        body.extend(to.octets());
    }
    for (key, option) in [("sll", 1), ("tll", 2)] {
        if let Some(text) = words.text(key)? {
            body.extend([option, 1]);
            body.extend(mac(text)?);
        }
    }
    if let Some(text) = words.text("hex")? {
        body.extend(hex(text)?);
    }
    Ok([&[kind, code, 0, 0][..], &rest, &body].concat())
}

/// A packet of the guest's as an error quotes it: IP header and 8 bytes.
fn quoted(what: &str, words: &mut Words<'_>, flows: &mut Flows, pair: (IpAddr, IpAddr)) -> Result<Vec<u8>, String> {
    let flow = words.number("flow")?.unwrap_or(0) as u16;
    let known = flows.get(flow).clone();
    let peer_port = words.number("qdport")?.map_or(flows.peer_port + flow, |it| it as u16);
    let destination = words.text("qdst")?.map(address).transpose()?.unwrap_or(pair.0);
    let sequence = words.number("qseq")?.map_or(known.last_sequence, |it| it as u32);
    let sequence = sequence.wrapping_add(known.guest_iss.unwrap_or(0));
    let ports = [known.guest_port.to_be_bytes(), peer_port.to_be_bytes()].concat();
    let (protocol, rest) = match what {
        "tcp" => (PROTOCOL_TCP, [&ports[..], &sequence.to_be_bytes(), &[0; 12]].concat()),
        "udp" => (PROTOCOL_UDP, [&ports[..], &[0, 20, 0, 0], &[b'q'; 12]].concat()),
        _ => return Err(format!("{what}: nothing to quote")),
    };
    Ok(match (pair.1, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = (20 + rest.len()) as u16;
            let mut header = [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, protocol, 0, 0]].concat();
            header.extend([from.octets(), to.octets()].concat());
            let sum = finished(sum_of(&header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            [header, rest].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = (rest.len() as u16).to_be_bytes();
            [&[0x60, 0, 0, 0][..], &length, &[protocol, 64], &from.octets(), &to.octets(), &rest].concat()
        }
        _ => return Err("quote: two families".into()),
    })
}

/// Bytes of a packet, and of a fragment its offset and whether more follow.
type Fragment = (Vec<u8>, Option<(u16, bool)>);

/// The bytes `FROM..TO` of what is carried.
fn fragment(words: &mut Words<'_>, payload: Vec<u8>) -> Result<Fragment, String> {
    let more = words.number("mf")?;
    let Some(range) = words.text("frag")? else {
        return Ok((payload, more.map(|more| (0, more != 0))));
    };
    let (from, to) = range.split_once("..").ok_or("frag: FROM..TO")?;
    let from = number(from)? as usize;
    let to = if to.is_empty() { payload.len() } else { number(to)? as usize };
    let more = more.map_or(to < payload.len(), |more| more != 0);
    let offset = words.number("off")?.unwrap_or(from as i64);
    let part = payload.get(from.min(payload.len())..to.min(payload.len())).unwrap_or_default().to_vec();
    Ok((part, Some((offset as u16, more))))
}

fn ipv4(
    words: &mut Words<'_>,
    flows: &mut Flows,
    pair: (IpAddr, IpAddr),
    protocol: u8,
    payload: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = pair else { return Err("ip: an IPv6 address".into()) };
    let (payload, fragment) = fragment(words, payload)?;
    let options = hex(words.text("opt")?.unwrap_or(""))?;
    let (offset, more) = fragment.unwrap_or((0, false));
    let df = words.number("df")?.unwrap_or(0) as u16;
    let evil = words.number("evil")?.unwrap_or(0) as u16;
    let place = (offset / 8) | (u16::from(more) << 13) | (df << 14) | (evil << 15);
    let header_bytes = 20 + options.len();
    let ihl = words.number("ihl")?.unwrap_or(header_bytes as i64 / 4) as u8;
    let version = words.number("ver")?.unwrap_or(4) as u8;
    let length = words.number("len")?.unwrap_or((header_bytes + payload.len()) as i64) as u16;
    let identification = words.number("id")?.map_or(flows.identification, |it| it as u16);
    flows.identification = flows.identification.wrapping_add(1);
    let parts: [&[u8]; 8] = [
        &[version << 4 | ihl, words.number("tos")?.unwrap_or(0) as u8],
        &length.to_be_bytes(),
        &identification.to_be_bytes(),
        &place.to_be_bytes(),
        &[words.number("ttl")?.unwrap_or(64) as u8, words.number("proto")?.map_or(protocol, |it| it as u8), 0, 0],
        &source.octets(),
        &destination.octets(),
        &options,
    ];
    let mut header = parts.concat();
    let mut sum = finished(sum_of(&header));
    if words.text("sum")?.is_some() {
        sum ^= 0x1234;
    }
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok([header, payload].concat())
}

fn ipv6(
    words: &mut Words<'_>,
    extensions: Vec<Words<'_>>,
    pair: (IpAddr, IpAddr),
    protocol: u8,
    payload: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = pair else { return Err("ip6: an IPv4 address".into()) };
    let (mut payload, fragment) = fragment(words, payload)?;
    let mut next = protocol;
    if let Some((offset, more)) = fragment {
        let id = words.number("id")?.unwrap_or(1) as u32;
        let place = offset & !7 | u16::from(more);
        payload = [&[next, 0][..], &place.to_be_bytes(), &id.to_be_bytes(), &payload].concat();
        next = 44;
    }
    // `ext KIND hex BYTES`: the first of them stands first in the packet; the bytes are what follows the next header.
    for mut extension in extensions.into_iter().rev() {
        let kind = number(extension.first()?)? as u8;
        let body = hex(extension.text("hex")?.unwrap_or("00010400000000").trim_start_matches("0x"))?;
        let follows = extension.number("next")?.map_or(next, |it| it as u8);
        extension.end()?;
        payload = [&[follows][..], &body[..], &payload].concat();
        next = kind;
    }
    let length = words.number("len")?.unwrap_or(payload.len() as i64) as u16;
    let next = words.number("next")?.map_or(next, |it| it as u8);
    let hops = words.number("hlim")?.unwrap_or(if protocol == PROTOCOL_ICMPV6 { 255 } else { 64 }) as u8;
    let version = words.number("ver")?.unwrap_or(6) as u8;
    let parts: [&[u8]; 6] = [
        &[version << 4, 0, 0, 0],
        &length.to_be_bytes(),
        &[next, hops],
        &source.octets(),
        &destination.octets(),
        &payload,
    ];
    Ok(parts.concat())
}
