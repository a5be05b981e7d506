//! Groups as routers are told of them: reports are sent, questions and others' reports are heard. [`super::membership`]
//! knows what is to be said and when.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum;
use super::membership::{Message, Query, RecordKind};
use super::packet::{Packet, protocol};
use super::state::{Card, Stack};
use crate::reserve;

/// Where reports of the newest versions go: to all routers that speak them.
const REPORTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const REPORTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where it goes that a group is left, in the older ones.
const ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Types of messages: a question, reports of IGMP's versions, and "left"; the same of MLD.
const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;
pub(super) const MLD_QUERY: u8 = 130;
pub(super) const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_REPORT_V2: u8 = 143;
/// What begins a packet that routers are to look at: the options of IPv4, and the header of IPv6 with its padding.
const ROUTER_ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 8] = [protocol::ICMP6, 0, 5, 2, 0, 0, 1, 0];
/// Network control (RFC 2474).
const CLASS_V4: u8 = 0xc0;
const MILLISECOND_NS: u64 = 1_000_000;
/// A question of the first version of IGMP says no time.
const WITHIN_V1_NS: u64 = 10_000 * MILLISECOND_NS;

/// A number that is written as one of few bits and how far they are shifted (RFC 3376, section 4.1.1; RFC 3810, 5.1.3).
fn floating(code: u64, mantissa_bits: u32) -> u64 {
    let limit = 1 << (mantissa_bits + 3);
    if code < limit {
        return code;
    }
    let mantissa = code & ((1 << mantissa_bits) - 1) | 1 << mantissa_bits;
    mantissa << ((code >> mantissa_bits & 7) + 3)
}

/// Reads a question of IGMP. `None`: it is none that is answered.
fn read_v4(bytes: &[u8]) -> Option<Query> {
    let header = bytes.first_chunk::<8>()?;
    let code = u64::from(header[1]);
    let group = Ipv4Addr::new(header[4], header[5], header[6], header[7]);
    let (is_old, within_ns) = match bytes.len() {
        8 if code == 0 => (true, WITHIN_V1_NS),
        8 => (true, code * 100 * MILLISECOND_NS),
        9..12 => return None,
        _ => (false, floating(code, 4) * 100 * MILLISECOND_NS),
    };
    let asks_of_senders = bytes.get(10..12).is_some_and(|count| count != [0, 0]);
    if !is_old && group.is_unspecified() && asks_of_senders {
        return None;
    }
    Some(Query { group: (!group.is_unspecified()).then_some(group.into()), is_v4: true, is_old, within_ns })
}

/// The same of MLD.
fn read_v6(bytes: &[u8]) -> Option<Query> {
    let header = bytes.first_chunk::<24>()?;
    let code = u64::from(u16::from_be_bytes([header[4], header[5]]));
    let group = Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|at| header[8 + at]));
    let is_old = bytes.len() == 24;
    if bytes.len() > 24 && bytes.len() < 28 || !group.is_unspecified() && !group.is_multicast() {
        return None;
    }
    let asks_of_senders = bytes.get(26..28).is_some_and(|count| count != [0, 0]);
    if !is_old && group.is_unspecified() && asks_of_senders {
        return None;
    }
    let within_ns = if is_old { code } else { floating(code, 12) } * MILLISECOND_NS;
    Some(Query { group: (!group.is_unspecified()).then_some(group.into()), is_v4: false, is_old, within_ns })
}

/// Whether routers are to look at an IPv6 packet because it is of MLD (RFC 2711).
fn has_alert(packet: &[u8]) -> bool {
    const HOP_OPTIONS: u8 = 0;
    let Some(options) = packet.get(42..).filter(|_| packet[6] == HOP_OPTIONS) else { return false };
    let length = usize::from(packet[41]) * 8 + 6;
    let mut rest = options.get(..length).unwrap_or_default();
    while let [kind, after @ ..] = rest {
        if *kind == 0 {
            rest = after;
            continue;
        }
        if rest.starts_with(&[5, 2, 0, 0]) {
            return true;
        }
        let Some(length) = after.first() else { return false };
        rest = rest.get(2 + usize::from(*length)..).unwrap_or_default();
    }
    false
}

/// The body of a message of either family, its checksum 0.
fn body(message: &Message) -> Option<(bool, Vec<u8>)> {
    let mut bytes = reserve::vector(1400).ok()?;
    let mut simple = |kind: u8, group: &IpAddr| match group {
        IpAddr::V4(group) => {
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(group.octets());
        }
        IpAddr::V6(group) => {
            bytes.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(group.octets());
        }
    };
    let is_v4 = match message {
        Message::OldReport(group) => {
            simple(if group.is_ipv4() { REPORT_V2 } else { MLD_REPORT }, group);
            group.is_ipv4()
        }
        Message::OldLeave(group) => {
            simple(if group.is_ipv4() { LEAVE } else { MLD_DONE }, group);
            group.is_ipv4()
        }
        Message::Report(records) => {
            let is_v4 = records.first()?.1.is_ipv4();
            let count = records.len() as u8;
            bytes.extend([if is_v4 { REPORT_V3 } else { MLD_REPORT_V2 }, 0, 0, 0, 0, 0, 0, count]);
            for (kind, group) in records {
                bytes.extend([record_number(*kind), 0, 0, 0]);
                match group {
                    IpAddr::V4(group) => bytes.extend(group.octets()),
                    IpAddr::V6(group) => bytes.extend(group.octets()),
                }
            }
            is_v4
        }
    };
    Some((is_v4, bytes))
}

/// A listener to all senders excludes none; one to nobody includes none.
fn record_number(kind: RecordKind) -> u8 {
    kind as u8
}

impl Stack {
    /// A group is listened to from now on, or no more.
    pub(super) fn tell_routers(&self, group: IpAddr, is_joined: bool) {
        let due_ns = {
            let (mut memberships, now_ns) = (self.memberships.lock(), self.now_ns());
            if is_joined {
                memberships.join(group, now_ns);
            } else {
                memberships.leave(group, now_ns);
            }
            memberships.due_ns()
        };
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
    }

    /// A message of IGMP came in.
    pub(super) fn take_igmp(&self, packet: &Packet<'_>) {
        let bytes = packet.payload;
        if bytes.len() < 8 || !checksum::is_right(bytes) {
            return;
        }
        match bytes[0] {
            QUERY => self.hear_query(read_v4(bytes)),
            REPORT_V1 | REPORT_V2 => {
                let group = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                self.memberships.lock().hear_report(group.into());
            }
            _ => {}
        }
    }

    /// A message of MLD came in, with its checksum looked at.
    pub(super) fn take_mld(&self, packet: &Packet<'_>) {
        let is_from_link = matches!(packet.source, IpAddr::V6(source) if source.is_unicast_link_local());
        if !is_from_link || packet.hop_limit != 1 || !has_alert(packet.whole) {
            return;
        }
        match (packet.payload.first(), packet.payload.get(8..24)) {
            (Some(&MLD_QUERY), _) => self.hear_query(read_v6(packet.payload)),
            (Some(&MLD_REPORT), Some(group)) => {
                let group = Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|at| group[at]));
                self.memberships.lock().hear_report(group.into());
            }
            _ => {}
        }
    }

    fn hear_query(&self, query: Option<Query>) {
        let Some(query) = query else { return };
        let due_ns = {
            let mut memberships = self.memberships.lock();
            memberships.hear(query, self.now_ns(), &mut || self.random_number());
            memberships.due_ns()
        };
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
    }

    /// Sends what is due.
    pub(super) fn report_groups(&self, card: &Card, now_ns: u64) {
        let messages = self.memberships.lock().take_due(now_ns, &mut || self.random_number());
        // What there is no memory or room for is lost, as any message may be on its way.
        for message in &messages {
            let Some((is_v4, bytes)) = body(message) else { continue };
            let to_group = match message {
                Message::OldReport(group) => Some(*group),
                _ => None,
            };
            let is_leave = matches!(message, Message::OldLeave(_));
            let _ = if is_v4 {
                let to = if is_leave { ROUTERS_V4 } else { REPORTS_V4 };
                self.send_igmp(card, to_group.unwrap_or(to.into()), bytes)
            } else {
                let to = if is_leave { ROUTERS_V6 } else { REPORTS_V6 };
                self.send_mld(card, to_group.unwrap_or(to.into()), bytes)
            };
        }
    }

    fn send_igmp(&self, card: &Card, to: IpAddr, mut message: Vec<u8>) -> Option<()> {
        const HEADER_BYTES: usize = 24;
        let IpAddr::V4(group) = to else { return None };
        let source = match self.local.lock().asking_address(to) {
            Some(IpAddr::V4(own)) => own,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let sum = checksum::of(&message);
        message[2..4].copy_from_slice(&sum);
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1]) = (0x46, CLASS_V4);
        header[2..4].copy_from_slice(&((HEADER_BYTES + message.len()) as u16).to_be_bytes());
        (header[6], header[8], header[9]) = (0x40, 1, protocol::IGMP);
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&group.octets());
        header[20..].copy_from_slice(&ROUTER_ALERT_V4);
        let sum = checksum::of(&header);
        header[10..12].copy_from_slice(&sum);
        self.count(super::counters::Counter::Ip4Sent);
        self.send_packet(card, to, &[&header, &message]).ok()
    }

    fn send_mld(&self, card: &Card, to: IpAddr, mut message: Vec<u8>) -> Option<()> {
        let IpAddr::V6(group) = to else { return None };
        let own = card.identity.hardware_address;
        let source = super::ethernet::address_in(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), own);
        let sum = super::icmp_checksum(source.into(), to, &message);
        message[2..4].copy_from_slice(&sum);
        let header = super::ipv6::Header { source, destination: group, next: 0, hop_limit: 1, traffic_class: 0 };
        let header = header.bytes(ROUTER_ALERT_V6.len() + message.len());
        self.count(super::counters::Counter::Icmp6Sent);
        self.count(super::counters::Counter::Ip6Sent);
        self.send_packet(card, to, &[&header, &ROUTER_ALERT_V6, &message]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{QUERY, floating, has_alert, read_v4, read_v6};

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!([0, 100, 127, 128, 0x9f, 255].map(|code| floating(code, 4)), [0, 100, 127, 128, 496, 31_744]);
        assert_eq!([1000, 32_767, 0x8000, 0xffff].map(|code| floating(code, 12)), [1000, 32_767, 32_768, 8_387_584]);
    }

    #[test]
    fn questions_of_every_version_are_read() {
        let v2 = [QUERY, 20, 0, 0, 0, 0, 0, 0];
        let query = read_v4(&v2).expect("a question");
        assert_eq!((query.group, query.is_old, query.within_ns), (None, true, 2_000_000_000));
        let mut v3 = [QUERY, 20, 0, 0, 239, 1, 2, 3, 2, 125, 0, 0];
        let query = read_v4(&v3).expect("a question");
        assert_eq!((query.group, query.is_old), (Some([239, 1, 2, 3].into()), false));
        v3[4..8].fill(0);
        v3[11] = 1;
        assert_eq!((read_v4(&v3), read_v4(&v3[..10]), read_v4(&v3[..7])), (None, None, None));
        let mut v6 = [0; 28];
        v6[5] = 100;
        assert_eq!(read_v6(&v6).map(|query| (query.is_old, query.within_ns)), Some((false, 100_000_000)));
        assert_eq!(read_v6(&v6[..24]).map(|query| query.is_old), Some(true));
        assert_eq!(read_v6(&v6[..27]), None);
        v6[8] = 0x20;
        assert_eq!(read_v6(&v6), None, "no group");
    }

    #[test]
    fn the_alert_is_found_where_it_is() {
        let mut packet = [0; 48];
        (packet[40], packet[41]) = (58, 0);
        packet[42..].copy_from_slice(&[1, 0, 5, 2, 0, 0]);
        assert!(has_alert(&packet));
        packet[47] = 1;
        assert!(!has_alert(&packet));
        for length in 0..48 {
            assert!(!has_alert(&packet[..length]));
        }
    }
}
