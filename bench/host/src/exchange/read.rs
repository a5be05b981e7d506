//! What a frame of the guest's says, as words that a script can expect.
//!
//! Numbers count from the script's own beginnings and addresses have their names, so the same answer reads the same in
//! every run and on every system. A wrong checksum is a word of its own, which no script expects by accident.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::build::{
    PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, finished, pseudo_sum,
    sum_of,
};
use super::flow::{Flows, Heard};
use super::words::{GUEST_MAC, PEER_MAC, address_name, flag_letters};

const HEADER_BYTES: usize = 14;

/// A frame, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// `tcp`, `udp`, `icmp`, `icmp6`, `arp`, `nd`, `mld`, `frag`, `other`.
    pub(super) topic: &'static str,
    /// What it is, in words: `tcp:1 SA`.
    pub(super) head: String,
    /// Everything else about it.
    pub(super) fields: Vec<(&'static str, String)>,
}

/// Fields that a line shows of a frame that nobody expected, by topic.
const SHOWN: [&str; 22] = [
    "sum", "seq", "ack", "len", "opts", "urg", "id", "mtu", "quote", "qlen", "target", "spa", "tpa", "tha", "src",
    "dst", "off", "mf", "flags", "ptr", "group", "records",
];

impl Seen {
    fn new(topic: &'static str, head: String) -> Self {
        Self { topic, head, fields: Vec::new() }
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.fields.push((key, value.to_string()));
        self
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(it, _)| *it == key).map(|(_, value)| value.as_str())
    }

    /// What a script would expect it by.
    pub(super) fn shown(&self) -> String {
        let mut text = self.head.clone();
        for key in SHOWN {
            let Some(value) = self.get(key) else { continue };
            let is_plain = match key {
                "len" => value == "0" && self.topic == "tcp",
                "opts" => value.is_empty() || (!self.head.contains('S') && !value.contains("sack:")),
                "src" => value.starts_with("guest"),
                "dst" => value.starts_with("peer"),
                "id" => !self.topic.starts_with("icmp"),
                _ => false,
            };
            match key {
                _ if is_plain => {}
                "opts" => text += &format!(" <{value}>"),
                _ => text += &format!(" {key} {value}"),
            }
        }
        text
    }
}

/// Reads a frame of the guest's; `None` for one that belongs to another script.
pub(super) fn seen(frame: &[u8], flows: &mut Flows) -> Option<Seen> {
    let kind = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    let packet = frame.get(HEADER_BYTES..)?;
    let mut seen = match kind {
        TYPE_ARP => arp(frame, packet, flows)?,
        TYPE_IPV4 => ipv4(packet, flows)?,
        TYPE_IPV6 => ipv6(packet, flows)?,
        _ => Seen::new("other", format!("other {kind:#06x}")),
    };
    let target = match &frame[..6] {
        it if *it == PEER_MAC => "peer",
        [255, 255, 255, 255, 255, 255] => "bcast",
        [0x33, 0x33, ..] | [1, 0, 0x5e, ..] => "group",
        _ => "other",
    };
    seen = seen.with("mac", target);
    Some(if frame[6..12] == GUEST_MAC { seen } else { seen.with("sum", "foreign-mac") })
}

fn mac_name(bytes: &[u8]) -> &'static str {
    match bytes {
        it if *it == GUEST_MAC => "guest",
        it if *it == PEER_MAC => "peer",
        [255, 255, 255, 255, 255, 255] => "bcast",
        [0, 0, 0, 0, 0, 0] => "zero",
        _ => "other",
    }
}

fn v4(bytes: &[u8]) -> Option<IpAddr> {
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into())
}

fn v6(bytes: &[u8]) -> Option<IpAddr> {
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
}

fn arp(frame: &[u8], packet: &[u8], flows: &Flows) -> Option<Seen> {
    let word = match packet.get(7)? {
        1 => "request",
        2 => "reply",
        _ => "other",
    };
    let target = v4(packet.get(24..28)?)?;
    if word == "request" && target != flows.peer[0] {
        // A question that an earlier script has left.
        return None;
    }
    let seen = Seen::new("arp", format!("arp {word}"))
        .with("sha", mac_name(packet.get(8..14)?))
        .with("spa", address_name(v4(packet.get(14..18)?)?))
        .with("tpa", address_name(target))
        .with("tha", mac_name(packet.get(18..24)?))
        .with("bytes", frame.len());
    Some(seen)
}

fn ipv4(packet: &[u8], flows: &mut Flows) -> Option<Seen> {
    let header_bytes = usize::from(packet.first()? & 15) * 4;
    let header = packet.get(..header_bytes)?;
    let length = usize::from(u16::from_be_bytes([*header.get(2)?, header[3]]));
    let payload = packet.get(header_bytes..length)?;
    let pair = (v4(header.get(12..16)?)?, v4(header.get(16..20)?)?);
    let place = u16::from_be_bytes([header[6], header[7]]);
    let mut seen = if place & 0x3fff != 0 {
        Seen::new("frag", format!("frag {}", header[9]))
            .with("off", (place & 0x1fff) * 8)
            .with("mf", place >> 13 & 1)
            .with("len", payload.len())
    } else {
        transport(header[9], payload, pair, flows)?
    };
    if finished(sum_of(header)) != 0 {
        seen = seen.with("sum", "bad-header");
    }
    let seen = seen
        .with("ttl", header[8])
        .with("tos", header[1])
        .with("df", place >> 14 & 1)
        .with("ipid", u16::from_be_bytes([header[4], header[5]]))
        .with("ihl", header_bytes);
    Some(with_addresses(seen, pair))
}

fn with_addresses(seen: Seen, pair: (IpAddr, IpAddr)) -> Seen {
    seen.with("src", address_name(pair.0)).with("dst", address_name(pair.1))
}

fn ipv6(packet: &[u8], flows: &mut Flows) -> Option<Seen> {
    let header = packet.get(..40)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut payload = packet.get(40..40 + length)?;
    let pair = (v6(&header[8..24])?, v6(&header[24..40])?);
    let mut next = header[6];
    if next == 0 {
        // MLD goes with a router alert in front.
        next = *payload.first()?;
        payload = payload.get(8 + usize::from(*payload.get(1)?) * 8..)?;
    }
    let seen = if next == 44 {
        let place = u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]);
        Seen::new("frag", format!("frag6 {}", payload[0]))
            .with("off", place & !7)
            .with("mf", place & 1)
            .with("len", payload.len() - 8)
    } else {
        transport(next, payload, pair, flows)?
    };
    Some(with_addresses(
        seen.with("ttl", header[7]).with("tos", u16::from(header[0] & 15) << 4 | u16::from(header[1] >> 4)),
        pair,
    ))
}

/// A message of IGMP or MLD: its group, or the records of a report, each `KIND:GROUP`.
fn groups(head: String, is_report: bool, bytes: &[u8], address_bytes: usize) -> Option<Seen> {
    let name = |bytes: &[u8]| if address_bytes == 4 { v4(bytes) } else { v6(bytes) }.map(address_name);
    let group_offset = if address_bytes == 4 { 4 } else { 8 };
    if !is_report {
        let group = name(bytes.get(group_offset..group_offset + address_bytes)?)?;
        return Some(Seen::new("mld", head).with("group", group));
    }
    let record = |bytes: &[u8]| Some(format!("{}:{}", bytes[0], name(&bytes[4..])?));
    let mut records: Vec<String> =
        bytes.get(8..)?.chunks_exact(4 + address_bytes).map(record).collect::<Option<_>>()?;
    // In which order they are told is of no concern.
    records.sort();
    Some(Seen::new("mld", head).with("records", records.join(",")))
}

fn transport(protocol: u8, bytes: &[u8], pair: (IpAddr, IpAddr), flows: &mut Flows) -> Option<Seen> {
    let pseudo = if protocol == PROTOCOL_ICMP { 0 } else { pseudo_sum(pair, protocol, bytes.len()) };
    let is_right =
        finished(sum_of(bytes) + pseudo) == 0 || (protocol == PROTOCOL_UDP && bytes.get(6..8) == Some(&[0, 0]));
    let six = if pair.0.is_ipv6() { "6" } else { "" };
    let seen = match protocol {
        PROTOCOL_TCP => tcp(bytes, six, flows)?,
        PROTOCOL_UDP => udp(bytes, six, flows)?,
        PROTOCOL_ICMP => icmp(bytes, flows)?,
        PROTOCOL_ICMPV6 => icmp6(bytes, flows)?,
        2 => {
            let seen = groups(format!("igmp {:x}", bytes.first()?), bytes[0] == 0x22, bytes, 4)?;
            return Some(if finished(sum_of(bytes)) == 0 { seen } else { seen.with("sum", "bad") });
        }
        _ => Seen::new("other", format!("protocol {protocol}")).with("len", bytes.len()),
    };
    Some(if is_right { seen } else { seen.with("sum", "bad") })
}

fn colon(number: u16) -> String {
    if number == 0 { String::new() } else { format!(":{number}") }
}

fn tcp(bytes: &[u8], six: &str, flows: &mut Flows) -> Option<Seen> {
    let header = bytes.get(..20)?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let number = flows.number_of(half(2))?;
    let data = bytes.get(usize::from(header[12] >> 4) * 4..)?;
    let flags = header[13];
    let options = bytes.get(20..usize::from(header[12] >> 4) * 4)?;
    let (shown, timestamp) = options_shown(options, flows.get(number).peer_iss);
    let length = data.len() as u32 + u32::from(flags & 1) + u32::from(flags >> 1 & 1);
    let is_syn = flags & 2 != 0;
    let timestamp_value = timestamp.map(|(value, _)| value);
    flows.learn(number, &Heard { guest_port: half(0), sequence: word(4), length, is_syn, timestamp: timestamp_value });
    let flow = flows.get(number);
    let mut seen = Seen::new("tcp", format!("tcp{six}{} {}", colon(number), flag_letters(flags)))
        .with("seq", word(4).wrapping_sub(flow.guest_iss.unwrap_or(0)))
        .with("len", data.len())
        .with("win", half(14))
        .with("opts", shown);
    if flags & 16 != 0 {
        seen = seen.with("ack", word(8).wrapping_sub(flow.peer_iss));
    }
    if flags & 32 != 0 {
        seen = seen.with("urg", half(18));
    }
    if let Some((_, echo)) = timestamp {
        seen = seen.with("tsecr", echo);
    }
    Some(seen)
}

/// The options by name, and the timestamps among them.
fn options_shown(options: &[u8], peer_iss: u32) -> (String, Option<(u32, u32)>) {
    let mut names = Vec::new();
    let mut timestamps = None;
    let mut at = 0;
    while at < options.len() {
        let kind = options[at];
        if kind < 2 {
            at += 1;
            continue;
        }
        let length = usize::from(options.get(at + 1).copied().unwrap_or(0));
        let Some(value) = options.get(at + 2..at + length.max(2)) else { break };
        let word = |at: usize| value.get(at..at + 4).map_or(0, |it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]));
        names.push(match (kind, value.len()) {
            (2, 2) => format!("mss:{}", u16::from_be_bytes([value[0], value[1]])),
            (3, 1) => format!("ws:{}", value[0]),
            (4, 0) => "sackok".into(),
            (8, 8) => {
                timestamps = Some((word(0), word(4)));
                "ts".into()
            }
            (5, _) => {
                let edges = value.chunks_exact(8).enumerate().map(|(index, _)| {
                    let edge = |at| word(index * 8 + at).wrapping_sub(peer_iss);
                    format!("{}-{}", edge(0), edge(4))
                });
                format!("sack:{}", edges.collect::<Vec<_>>().join(";"))
            }
            _ => format!("option:{kind}"),
        });
        at += length.max(2);
    }
    (names.join(","), timestamps)
}

fn udp(bytes: &[u8], six: &str, flows: &mut Flows) -> Option<Seen> {
    let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let number = flows.number_of(half(2)?)?;
    flows.get(number).guest_port = half(0)?;
    let seen = Seen::new("udp", format!("udp{six}{}", colon(number))).with("len", bytes.len() - 8);
    let seen = if usize::from(half(4)?) == bytes.len() { seen } else { seen.with("sum", "bad-length") };
    Some(if half(6)? == 0 { seen.with("sum", "none") } else { seen })
}

/// What an error quotes, if that was sent by the script.
fn quote(seen: Seen, packet: &[u8], flows: &mut Flows) -> Option<Seen> {
    let is_v6 = packet.first()? >> 4 == 6;
    let (protocol, at) = if is_v6 { (*packet.get(6)?, 40) } else { (*packet.get(9)?, usize::from(packet[0] & 15) * 4) };
    let name = match protocol {
        PROTOCOL_TCP => "tcp",
        PROTOCOL_UDP => "udp",
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => "icmp",
        _ => "other",
    };
    let is_first = is_v6 || u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
    if let (6 | 17, true, Some(port)) = (protocol, is_first, packet.get(at..at + 2)) {
        flows.number_of(u16::from_be_bytes([port[0], port[1]]))?;
    }
    Some(seen.with("quote", name).with("qlen", packet.len()))
}

fn icmp(bytes: &[u8], flows: &mut Flows) -> Option<Seen> {
    let (kind, code) = (*bytes.first()?, *bytes.get(1)?);
    let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let seen = Seen::new("icmp", format!("icmp {kind} {code}"));
    match kind {
        3 | 4 | 5 | 11 | 12 => {
            let seen = if kind == 3 && code == 4 { seen.with("mtu", half(6)?) } else { seen };
            let seen = if kind == 12 { seen.with("ptr", bytes.get(4)?) } else { seen };
            quote(seen, bytes.get(8..)?, flows)
        }
        _ => Some(seen.with("id", half(4)?).with("iseq", half(6)?).with("len", bytes.len() - 8)),
    }
}

fn icmp6(bytes: &[u8], flows: &mut Flows) -> Option<Seen> {
    let (kind, code) = (*bytes.first()?, *bytes.get(1)?);
    let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    Some(match kind {
        1..=4 => {
            let value = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
            let seen = Seen::new("icmp6", format!("icmp6 {kind} {code}"));
            let seen = match kind {
                2 => seen.with("mtu", value),
                4 => seen.with("ptr", value),
                _ => seen,
            };
            return quote(seen, bytes.get(8..)?, flows);
        }
        133 => Seen::new("nd", "nd rs".into()),
        135 | 136 => {
            let name = if kind == 135 { "ns" } else { "na" };
            let target = v6(bytes.get(8..24)?)?;
            if kind == 135 && target != flows.peer[1] {
                return None;
            }
            let target = address_name(target);
            let seen = Seen::new("nd", format!("nd {name}")).with("target", target);
            let option = match bytes.get(24) {
                None => "none",
                Some(_) => mac_name(bytes.get(26..32)?),
            };
            let seen = seen.with("lladdr", option);
            if kind == 135 {
                return Some(seen);
            }
            let flags = bytes[4];
            let letters = [(128, 'R'), (64, 'S'), (32, 'O')].iter().filter(|(bit, _)| flags & bit != 0);
            let letters: String = letters.map(|(_, letter)| letter).collect();
            seen.with("flags", if letters.is_empty() { "none".into() } else { letters })
        }
        130..=132 | 143 => groups(format!("mld {kind}"), kind == 143, bytes, 16)?,
        _ => Seen::new("icmp6", format!("icmp6 {kind} {code}"))
            .with("id", half(4)?)
            .with("iseq", half(6)?)
            .with("len", bytes.len() - 8),
    })
}
