//! Errors that ICMP tells: to senders of packets that are not taken here, and of packets that were sent from here.

use core::net::IpAddr;

use super::super::wire::{IcmpError, Segment};
use super::counters::Counter;
use super::ipv4;
use super::ipv6::{self, Content};
use super::output::Cutting;
use super::packet::{Packet, protocol};
use super::state::{Stack, Transports};
use crate::error::Errno;

/// Bytes of an error before the packet that it is about.
const HEADER_BYTES: usize = 8;
/// Longest errors, with all headers (RFC 1812, RFC 4443).
const V4_BYTES_MAX: usize = 576;
const V6_BYTES_MAX: usize = 1280;
/// Type of service of errors: of the network's own traffic, as on Linux.
const PRECEDENCE: u8 = 0xc0;
/// Bytes of a transport header that an error is about at least.
const QUOTED_BYTES_MIN: usize = 8;
/// Hop limit of what the stack itself sends.
pub(super) const HOP_LIMIT: u8 = 64;

/// What a sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Nothing takes packets to that port.
    NoPort,
    /// Nothing takes packets of that protocol; where its number stands.
    NoProtocol(usize),
    /// The pieces did not come in time.
    Incomplete,
    /// A header is not understood: a code, and where.
    Problem { code: u8, at: usize },
}

impl Report {
    /// Type, code, and the word behind the checksum.
    fn message(self, is_v4: bool) -> (u8, u8, u32) {
        match (self, is_v4) {
            (Self::NoPort, true) => (3, 3, 0),
            (Self::NoPort, false) => (1, 4, 0),
            (Self::NoProtocol(_), true) => (3, 2, 0),
            (Self::NoProtocol(at), false) => (4, 1, at as u32),
            (Self::Incomplete, true) => (11, 1, 0),
            (Self::Incomplete, false) => (3, 1, 0),
            (Self::Problem { code, at }, true) => (12, code, (at as u32) << 24),
            (Self::Problem { code, at }, false) => (4, code, at as u32),
        }
    }
}

/// What Linux tells programs of an ICMP message, and whether it ends what it is about.
fn meaning_v4(kind: u8, code: u8) -> Option<(Errno, bool)> {
    Some(match (kind, code) {
        (3, 0) => (Errno::ENETUNREACH, false),
        (3, 1) | (11, _) => (Errno::EHOSTUNREACH, false),
        (3, 2) => (Errno::ENOPROTOOPT, true),
        (3, 3) => (Errno::ECONNREFUSED, true),
        (3, 4) => (Errno::EMSGSIZE, false),
        (3, 5) => (Errno::EOPNOTSUPP, false),
        (3, 6 | 9) => (Errno::ENETUNREACH, true),
        (3, 7) => (Errno::EHOSTDOWN, true),
        (3, 8) => (Errno::ENONET, true),
        (3, 11) => (Errno::ENETUNREACH, false),
        (3, 12) => (Errno::EHOSTUNREACH, false),
        (3, 10 | 13..=15) => (Errno::EHOSTUNREACH, true),
        (12, _) => (Errno::EPROTO, true),
        _ => return None,
    })
}

/// The same of an ICMPv6 message.
fn meaning_v6(kind: u8, code: u8) -> Option<(Errno, bool)> {
    Some(match (kind, code) {
        (1, 0) => (Errno::ENETUNREACH, false),
        (1, 1 | 5 | 6) => (Errno::EACCES, true),
        (1, 4) => (Errno::ECONNREFUSED, true),
        (1, _) | (3, _) => (Errno::EHOSTUNREACH, false),
        (2, _) => (Errno::EMSGSIZE, false),
        (4, _) => (Errno::EPROTO, true),
        _ => return None,
    })
}

/// A packet that an error is about, as far as it is told.
#[derive(Clone, Copy, Debug)]
struct Quoted<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    transport: &'a [u8],
}

/// Reads a packet that an error is about, which may end early. `None`: its ports are not there.
fn read_quoted(bytes: &[u8], is_v4: bool) -> Option<Quoted<'_>> {
    let quoted = if is_v4 {
        let header = ipv4::of(bytes.first_chunk()?);
        let header_bytes = usize::from(bytes[0] & 0xf) * 4;
        if bytes[0] >> 4 != 4 || header_bytes < ipv4::HEADER_BYTES || header.offset_bytes != 0 {
            return None;
        }
        Quoted {
            source: IpAddr::V4(header.source),
            destination: IpAddr::V4(header.destination),
            protocol: header.protocol,
            transport: bytes.get(header_bytes..)?,
        }
    } else {
        let (fixed, rest) = bytes.split_first_chunk::<{ ipv6::HEADER_BYTES }>()?;
        let header = ipv6::of(fixed);
        let (protocol, transport) = match ipv6::walk(header.next, rest).ok()? {
            Content::Transport(protocol, transport) => (protocol, transport),
            Content::Piece(piece, transport) if piece.offset_bytes == 0 => (piece.next, transport),
            Content::Piece(..) => return None,
        };
        let (source, destination) = (IpAddr::V6(header.source), IpAddr::V6(header.destination));
        Quoted { source, destination, protocol, transport }
    };
    (quoted.transport.len() >= QUOTED_BYTES_MIN).then_some(quoted)
}

impl Stack {
    /// Tells the sender of a packet why it is not taken, as often as is allowed.
    pub(super) fn report(&self, packet: &Packet<'_>, report: Report) {
        if packet.may_be_answered() {
            self.report_to(packet.source, packet.destination, packet.whole, packet.traffic_class, report);
        }
    }

    /// The same of a packet by its parts.
    pub(super) fn report_to(&self, sender: IpAddr, own: IpAddr, about: &[u8], traffic_class: u8, report: Report) {
        if !self.limits.lock().allow(sender, self.now_ns()) {
            self.count(Counter::IcmpLimited);
            return;
        }
        let is_v4 = sender.is_ipv4();
        let (kind, code, word) = report.message(is_v4);
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1]) = (kind, code);
        header[4..].copy_from_slice(&word.to_be_bytes());
        let most = match is_v4 {
            true => V4_BYTES_MAX - ipv4::HEADER_BYTES - HEADER_BYTES,
            false => V6_BYTES_MAX - ipv6::HEADER_BYTES - HEADER_BYTES,
        };
        let about = &about[..about.len().min(most)];
        self.count(if is_v4 { Counter::Icmp4Sent } else { Counter::Icmp6Sent });
        if is_v4 && kind == 3 {
            self.count(Counter::Icmp4UnreachableSent);
        }
        let traffic_class = if is_v4 { traffic_class & 0x1e | PRECEDENCE } else { 0 };
        self.send_icmp(own, sender, &header, about, traffic_class);
    }

    /// Sends an ICMP or ICMPv6 message, as the addresses are. It is lost if there is no room.
    pub(super) fn send_icmp(&self, own: IpAddr, to: IpAddr, header: &[u8], rest: &[u8], traffic_class: u8) {
        let segment = Segment {
            source: own,
            destination: to,
            protocol: if to.is_ipv4() { protocol::ICMP } else { protocol::ICMP6 },
            header,
            checksum_offset_bytes: Some(2),
            payload: &[rest],
            segment_bytes: 0,
            hop_limit: HOP_LIMIT,
            traffic_class,
            is_whole: false,
        };
        let _ = self.send(&segment, Cutting::Anywhere);
    }

    /// Takes in an error that ICMP tells: who sent the packet that it is about is told, and a shorter path is believed
    /// in if there is such a sender.
    pub(super) fn hear_error(&self, packet: &Packet<'_>, above: &dyn Transports) {
        let is_v4 = packet.source.is_ipv4();
        let (Some(header), Some(about)) = (packet.payload.first_chunk::<HEADER_BYTES>(), packet.payload.get(8..))
        else {
            return self.count(if is_v4 { Counter::Icmp4Errors } else { Counter::Icmp6Errors });
        };
        let (kind, code) = (header[0], header[1]);
        let meaning = if is_v4 { meaning_v4(kind, code) } else { meaning_v6(kind, code) };
        let (Some((errno, is_hard)), Some(quoted)) = (meaning, read_quoted(about, is_v4)) else { return };
        if !self.local.lock().is_own(quoted.source) {
            return;
        }
        let packet_bytes_max = match (is_v4, kind, code) {
            (true, 3, 4) => Some(u16::from_be_bytes([header[6], header[7]])),
            (false, 2, _) => {
                let word = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                Some(u16::try_from(word).unwrap_or(u16::MAX))
            }
            _ => None,
        };
        self.complain(
            &IcmpError {
                source: quoted.source,
                destination: quoted.destination,
                protocol: quoted.protocol,
                quoted: quoted.transport,
                reporter: packet.source,
                kind,
                code,
                errno,
                is_hard,
                packet_bytes_max,
            },
            above,
        );
    }

    /// Tells who sent a packet of an error.
    fn complain(&self, error: &IcmpError<'_>, above: &dyn Transports) {
        let now_bytes = self.packet_bytes_max(error.destination);
        let is_believed = above.complain(error);
        if let (true, Some(bytes)) = (is_believed, error.packet_bytes_max)
            && self.paths.lock().note(error.destination, bytes, now_bytes, self.now_ns()).is_some()
        {
            self.has_paths.store(true, core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// A packet that waited for its neighbour was given up: its sender is told as if a router had said so.
    pub(super) fn give_up(&self, packet: &[u8], is_v4: bool, above: &dyn Transports) {
        self.count(Counter::NeighbourFailed);
        let Some(quoted) = read_quoted(packet, is_v4) else { return };
        let (kind, code) = if is_v4 { (3, 1) } else { (1, 3) };
        self.complain(
            &IcmpError {
                source: quoted.source,
                destination: quoted.destination,
                protocol: quoted.protocol,
                quoted: quoted.transport,
                reporter: quoted.source,
                kind,
                code,
                errno: Errno::EHOSTUNREACH,
                is_hard: false,
                packet_bytes_max: None,
            },
            above,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{meaning_v4, meaning_v6, read_quoted};

    #[test]
    fn anything_may_be_quoted() {
        for first in 0..=255u8 {
            let mut bytes = [first; 80];
            for length in 0..bytes.len() {
                let _ = (read_quoted(&bytes[..length], true), read_quoted(&bytes[..length], false));
            }
            (bytes[0], bytes[6]) = (0x45, 0);
            let _ = read_quoted(&bytes, true);
            for code in 0..=255 {
                let _ = (meaning_v4(first, code), meaning_v6(first, code));
            }
        }
    }
}
