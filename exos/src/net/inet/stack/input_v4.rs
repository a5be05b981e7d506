//! IPv4 packets that come in, and ICMP.

use core::net::IpAddr;

use super::super::wire::Arrival;
use super::checksum::{self, Checksum};
use super::counters::Counter;
use super::fragment::{Key, Outcome, Piece};
use super::input::Frame;
use super::ipv4;
use super::packet::{Packet, is_sender, protocol};
use super::report::Report;
use super::state::{Stack, Transports};

/// Types of ICMP that are looked at: echo reply and request, and those of times.
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const TIME_REQUEST: u8 = 13;
const TIME_REPLY: u8 = 14;
/// A time in milliseconds that is not counted from midnight (RFC 792).
const OWN_TIME: u32 = 1 << 31;

impl Stack {
    /// Takes in an IPv4 packet.
    pub(super) fn take_v4(&self, frame: &Frame<'_>, above: &dyn Transports) {
        self.count(Counter::Ip4Received);
        let Some((header, head, payload)) = ipv4::split(frame.payload) else {
            return self.count(Counter::Ip4HeaderErrors);
        };
        let (source, destination) = (IpAddr::V4(header.source), IpAddr::V4(header.destination));
        let (meant, is_from_own) = {
            let mut local = self.local.lock();
            let sender = local.view(source);
            (local.view(destination).meaning, sender.is_own() || sender.is_broadcast)
        };
        let Some(meant) = meant.filter(|_| is_sender(source) && !is_from_own) else {
            return self.count(Counter::Ip4AddressErrors);
        };
        let packet = Packet {
            source,
            destination,
            protocol: header.protocol,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            payload,
            whole: &frame.payload[..head.len() + payload.len()],
            meant,
            is_for_group: frame.is_for_group,
            is_checksum_valid: frame.is_checksum_valid,
        };
        if !header.has_more && header.offset_bytes == 0 {
            return self.deliver(&packet, above);
        }
        self.count(Counter::Ip4ReassemblyReceived);
        if header.has_more && payload.len() % 8 != 0 {
            return self.count(Counter::Ip4ReassemblyFailed);
        }
        let key = Key { source, destination, protocol: header.protocol, identification: header.identification.into() };
        let piece = Piece {
            offset_bytes: header.offset_bytes.into(),
            has_more: header.has_more,
            bytes: payload,
            packet: packet.whole,
        };
        let (outcome, due_ns, lost_count) = self.take_piece(key, &piece);
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
        self.counters().add_many(Counter::Ip4ReassemblyFailed, lost_count);
        match outcome {
            Outcome::Waits => {}
            Outcome::Lost => self.count(Counter::Ip4ReassemblyFailed),
            Outcome::Whole(payload) => {
                self.count(Counter::Ip4ReassemblyDone);
                // What its sender is told of it begins with the header of this piece, which is all that matters there.
                self.deliver(&Packet { payload: &payload, is_checksum_valid: false, ..packet }, above);
            }
        }
    }

    /// Takes a piece of a packet; when the oldest is given up, and how many had to make room.
    pub(super) fn take_piece(&self, key: Key, piece: &Piece<'_>) -> (Outcome, Option<u64>, u64) {
        let mut fragments = self.fragments.lock();
        let outcome = fragments.take(key, piece, self.now_ns());
        (outcome, fragments.due_ns(), fragments.take_lost_count())
    }

    /// Hands on a whole packet of either family.
    pub(super) fn deliver(&self, packet: &Packet<'_>, above: &dyn Transports) {
        let is_v4 = packet.source.is_ipv4();
        if !matches!(packet.protocol, protocol::TCP | protocol::UDP) {
            self.note_change();
        }
        match (packet.protocol, is_v4) {
            (protocol::ICMP, true) => return self.take_icmp(packet, above),
            (protocol::IGMP, true) => {
                self.take_igmp(packet);
                self.arrive(packet, above);
                return self.count(Counter::Ip4Delivered);
            }
            (protocol::TCP | protocol::UDP, _) if !self.is_transport_right(packet) => return,
            // Linux answers no segment that was not sent to it alone.
            (protocol::TCP, _) if !packet.may_be_answered() => return self.count(Counter::Ip4Delivered),
            (protocol::UDP, true) if self.take_lease(packet.payload) => return self.count(Counter::Ip4Delivered),
            _ => {}
        }
        if self.arrive(packet, above) {
            return self.count(if is_v4 { Counter::Ip4Delivered } else { Counter::Ip6Delivered });
        }
        if packet.protocol == protocol::UDP {
            self.count(Counter::UdpNoPorts);
            self.report(packet, Report::NoPort);
        } else {
            self.count(if is_v4 { Counter::Ip4UnknownProtocols } else { Counter::Ip6UnknownProtocols });
            // Where the number stands if nothing is in between.
            self.report(packet, Report::NoProtocol(6));
        }
    }

    /// Hands on what a packet carries.
    pub(super) fn arrive(&self, packet: &Packet<'_>, above: &dyn Transports) -> bool {
        let arrival = Arrival {
            source: packet.source,
            destination: packet.destination,
            bytes: packet.payload,
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
        };
        self.note_arrival(packet.protocol, &arrival);
        above.arrive(packet.protocol, &arrival)
    }

    /// Whether a segment of TCP or a datagram of UDP is as long as it says, and its checksum right.
    fn is_transport_right(&self, packet: &Packet<'_>) -> bool {
        let bytes = packet.payload;
        let is_udp = packet.protocol == protocol::UDP;
        let (length, sum) = match bytes {
            [_, _, _, _, l0, l1, s0, s1, ..] if is_udp => (usize::from(u16::from_be_bytes([*l0, *l1])), [*s0, *s1]),
            _ if is_udp => (0, [0, 0]),
            _ => (bytes.len(), [0xff, 0xff]),
        };
        let is_short = if is_udp { length < 8 || length > bytes.len() } else { length < 20 };
        if is_short {
            self.count(if is_udp { Counter::UdpErrors } else { Counter::TcpChecksumErrors });
            return false;
        }
        // Over IPv4 a datagram may go without.
        let has_none = is_udp && sum == [0, 0] && packet.source.is_ipv4();
        if packet.is_checksum_valid || has_none {
            return true;
        }
        let is_missing = is_udp && sum == [0, 0];
        let mut sum = Checksum::of_addresses(packet.source, packet.destination, packet.protocol, length);
        sum.add(&bytes[..length]);
        if is_missing || !sum.is_right() {
            self.count(if is_udp { Counter::UdpChecksumErrors } else { Counter::TcpChecksumErrors });
            if is_udp {
                self.count(Counter::UdpErrors);
            }
            return false;
        }
        true
    }

    fn take_icmp(&self, packet: &Packet<'_>, above: &dyn Transports) {
        self.count(Counter::Icmp4Received);
        let Some(header) = packet.payload.first_chunk::<8>() else { return self.count(Counter::Icmp4Errors) };
        if !checksum::is_right(packet.payload) {
            self.count(Counter::Icmp4ChecksumErrors);
            return self.count(Counter::Icmp4Errors);
        }
        self.count(Counter::Ip4Delivered);
        match header[0] {
            ECHO_REQUEST => {
                self.count(Counter::Icmp4EchoReceived);
                // As on Linux, a question to all is not answered.
                if packet.may_be_answered() {
                    self.count(Counter::Icmp4Sent);
                    self.count(Counter::Icmp4EchoReplySent);
                    let answer = [ECHO_REPLY, header[1], 0, 0, header[4], header[5], header[6], header[7]];
                    let (own, to) = (packet.destination, packet.source);
                    self.send_icmp(own, to, &answer, &packet.payload[8..], packet.traffic_class);
                }
            }
            TIME_REQUEST if packet.may_be_answered() => {
                if let Some(asked) = packet.payload.get(8..12) {
                    self.count(Counter::Icmp4Sent);
                    let answer = [TIME_REPLY, 0, 0, 0, header[4], header[5], header[6], header[7]];
                    let now = (OWN_TIME | (self.now_ns() / 1_000_000) as u32).to_be_bytes();
                    let mut times = [0; 12];
                    times[..4].copy_from_slice(asked);
                    times[4..8].copy_from_slice(&now);
                    times[8..].copy_from_slice(&now);
                    self.send_icmp(packet.destination, packet.source, &answer, &times, packet.traffic_class);
                }
            }
            ECHO_REPLY => self.count(Counter::Icmp4EchoReplyReceived),
            kind @ (3 | 11 | 12) => {
                if kind == 3 {
                    self.count(Counter::Icmp4UnreachableReceived);
                }
                self.hear_error(packet, above);
            }
            _ => {}
        }
        self.arrive(packet, above);
    }
}
