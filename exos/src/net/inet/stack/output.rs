//! Packets on their way out: route, next hop, headers, checksum, pieces.

use core::net::IpAddr;

use super::super::wire::{ChecksumPlace, ETHERNET_HEADER_BYTES, Segment, Transmission};
use super::arp;
use super::checksum::Checksum;
use super::counters::Counter;
use super::discovery::{self, solicited_group};
use super::ethernet::{self, BROADCAST, HardwareAddress, Header};
use super::ipv4;
use super::ipv6;
use super::neighbour::{Waiting, Way};
use super::packet::protocol;
use super::state::{Card, Stack};
use crate::error::{Errno, Result};
use crate::reserve;

/// Longest transport header: TCP's.
const TRANSPORT_HEADER_BYTES_MAX: usize = 60;
/// Longest of all headers of a frame together.
const HEADERS_BYTES_MAX: usize =
    ETHERNET_HEADER_BYTES + ipv6::HEADER_BYTES + ipv6::FRAGMENT_BYTES + TRANSPORT_HEADER_BYTES_MAX;
/// Parts of a frame that are handed to the card as they are; of more a copy is made.
const PART_COUNT_MAX: usize = 18;

/// Whether a packet may be sent in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cutting {
    /// Never.
    Never,
    /// Here, if it is longer than what gets through; routers do not cut it.
    Here,
    /// Here or by routers.
    Anywhere,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug)]
enum Link {
    To(HardwareAddress),
    Waits { asks: bool },
}

impl Stack {
    /// Sends a transport packet to another machine.
    ///
    /// # Errors
    /// `ENETUNREACH`; `EMSGSIZE`: it is too long; `ENOBUFS`; `ECONNREFUSED`: see [`Stack::check_access`].
    pub fn send_segment(&self, segment: &Segment<'_>) -> Result<()> {
        self.check_segment(segment)?;
        let cutting = if segment.is_whole { Cutting::Never } else { Cutting::Here };
        self.send(segment, cutting)
    }

    /// The same to a next hop that is known.
    ///
    /// # Errors
    /// As those.
    pub(in super::super) fn send_segment_by(&self, next: IpAddr, segment: &Segment<'_>) -> Result<()> {
        self.check_segment(segment)?;
        self.send_by(next, segment, if segment.is_whole { Cutting::Never } else { Cutting::Here })
    }

    /// The same, also for packets of the stack itself.
    pub(super) fn send(&self, segment: &Segment<'_>, cutting: Cutting) -> Result<()> {
        let is_v4 = segment.destination.is_ipv4();
        let hop = self.hop(segment.destination).inspect_err(|_| {
            self.count(if is_v4 { Counter::Ip4NoRoutes } else { Counter::Ip6NoRoutes });
        })?;
        self.send_by(hop.next, segment, cutting)
    }

    /// The same to a next hop that is known.
    pub(super) fn send_by(&self, next: IpAddr, segment: &Segment<'_>, cutting: Cutting) -> Result<()> {
        let card = self.card().ok_or(Errno::ENETUNREACH)?;
        let is_v4 = segment.destination.is_ipv4();
        if segment.source.is_ipv4() != is_v4 || segment.header.len() > TRANSPORT_HEADER_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let payload_bytes: usize = segment.payload.iter().map(|part| part.len()).sum();
        let transport_bytes = segment.header.len() + payload_bytes;
        let network_bytes = if is_v4 { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES };
        let most = usize::from(u16::MAX) - if is_v4 { network_bytes } else { 0 };
        if transport_bytes > most {
            return Err(Errno::EMSGSIZE);
        }
        self.count(if is_v4 { Counter::Ip4Sent } else { Counter::Ip6Sent });
        let is_cut_by_card = segment.segment_bytes > 0 && transport_bytes + network_bytes <= self.segmented_bytes_max();
        if !is_cut_by_card && transport_bytes + network_bytes > self.packet_bytes_max(segment.destination) {
            if cutting == Cutting::Never {
                self.count(if is_v4 { Counter::Ip4FragmentFailed } else { Counter::Ip6FragmentFailed });
                return Err(Errno::EMSGSIZE);
            }
            return self.send_pieces(card, next, segment, transport_bytes);
        }
        let mut buffer = [0; HEADERS_BYTES_MAX];
        let head_bytes = ETHERNET_HEADER_BYTES + network_bytes;
        let header = &mut buffer[head_bytes..head_bytes + segment.header.len()];
        header.copy_from_slice(segment.header);
        let mut transmission = Transmission::default();
        if let Some(offset_bytes) = segment.checksum_offset_bytes {
            if card.identity.fills_checksums && segment.protocol != protocol::ICMP {
                put_checksum(header, offset_bytes, pseudo(segment, transport_bytes).partial());
                let start_bytes = head_bytes as u16;
                transmission.checksum = Some(ChecksumPlace { start_bytes, offset_bytes });
            } else {
                fill_checksum(header, offset_bytes, segment, transport_bytes);
            }
        }
        if is_cut_by_card {
            (transmission.segment_bytes, transmission.is_ipv6) = (segment.segment_bytes, !is_v4);
        }
        let network = &mut buffer[ETHERNET_HEADER_BYTES..head_bytes];
        put_network_header(network, segment, transport_bytes, cutting == Cutting::Anywhere, None, self);
        let first_bytes = head_bytes + segment.header.len();
        self.hand_over(card, next, &mut buffer[..first_bytes], segment.payload, transmission)
    }

    /// Sends a packet that is too long in pieces.
    fn send_pieces(&self, card: &Card, next: IpAddr, segment: &Segment<'_>, transport_bytes: usize) -> Result<()> {
        let is_v4 = segment.destination.is_ipv4();
        let no_room = |_| Errno::ENOBUFS;
        let mut whole = reserve::vector(transport_bytes).map_err(no_room)?;
        whole.extend_from_slice(segment.header);
        segment.payload.iter().for_each(|part| whole.extend_from_slice(part));
        if let Some(offset_bytes) = segment.checksum_offset_bytes {
            fill_checksum(&mut whole[..segment.header.len()], offset_bytes, segment, transport_bytes);
        }
        let identification = self.next_identification(segment.destination);
        let network_bytes = if is_v4 { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES + ipv6::FRAGMENT_BYTES };
        let room = self.packet_bytes_max(segment.destination).saturating_sub(network_bytes) & !7;
        if room == 0 {
            return Err(Errno::EMSGSIZE);
        }
        for (index, bytes) in whole.chunks(room).enumerate() {
            let piece = ipv6::Fragment {
                next: segment.protocol,
                offset_bytes: index * room,
                has_more: index * room + bytes.len() < whole.len(),
                identification,
            };
            let mut buffer = [0; HEADERS_BYTES_MAX];
            let head_bytes = ETHERNET_HEADER_BYTES + network_bytes;
            let network = &mut buffer[ETHERNET_HEADER_BYTES..head_bytes];
            put_network_header(network, segment, bytes.len(), true, Some(piece), self);
            self.hand_over(card, next, &mut buffer[..head_bytes], &[bytes], Transmission::default())?;
            self.count(if is_v4 { Counter::Ip4FragmentsSent } else { Counter::Ip6FragmentsSent });
        }
        self.count(if is_v4 { Counter::Ip4Fragmented } else { Counter::Ip6Fragmented });
        Ok(())
    }

    fn link(&self, next: IpAddr) -> Result<Link> {
        if let Some(hardware) = self.local.lock().view(next).group_address {
            return Ok(Link::To(hardware));
        }
        let mut neighbours = self.neighbours.lock();
        let way = neighbours.way(next, self.now_ns());
        let due_ns = neighbours.take_armed();
        drop(neighbours);
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
        match way {
            Way::Known(hardware) => Ok(Link::To(hardware)),
            Way::Waits { asks } => Ok(Link::Waits { asks }),
            Way::None => Err(Errno::ENOBUFS),
        }
    }

    /// Sends a packet that is made already.
    pub(super) fn send_packet(&self, card: &Card, next: IpAddr, parts: &[&[u8]]) -> Result<()> {
        self.hand_over(card, next, &mut [0; ETHERNET_HEADER_BYTES], parts, Transmission::default())
    }

    /// Gives a frame to the card, or has it wait for its neighbour. `head` begins with room for the Ethernet header.
    fn hand_over(
        &self,
        card: &Card,
        next: IpAddr,
        head: &mut [u8],
        payload: &[&[u8]],
        transmission: Transmission,
    ) -> Result<()> {
        let protocol = if next.is_ipv4() { ethernet::IPV4 } else { ethernet::IPV6 };
        match self.link(next)? {
            Link::To(destination) => {
                let source = card.identity.hardware_address;
                let header = Header { destination, source, protocol }.bytes();
                head[..ETHERNET_HEADER_BYTES].copy_from_slice(&header);
                self.give(card, head, payload, transmission)
            }
            Link::Waits { asks } => {
                let total = head.len() - ETHERNET_HEADER_BYTES + payload.iter().map(|part| part.len()).sum::<usize>();
                let mut bytes = reserve::vector(total).map_err(|_| Errno::ENOBUFS)?;
                bytes.extend_from_slice(&head[ETHERNET_HEADER_BYTES..]);
                payload.iter().for_each(|part| bytes.extend_from_slice(part));
                let dropped_count = {
                    let mut neighbours = self.neighbours.lock();
                    neighbours.wait(next, Waiting { protocol, bytes, transmission });
                    neighbours.take_dropped_count()
                };
                self.counters().add_many(Counter::NeighbourDropped, dropped_count);
                if asks {
                    self.ask(card, next, None);
                }
                Ok(())
            }
        }
    }

    /// Gives a frame to the card.
    fn give(&self, card: &Card, head: &[u8], payload: &[&[u8]], transmission: Transmission) -> Result<()> {
        match payload {
            [] => self.give_parts(card, &[head], transmission, None),
            [one] => self.give_parts(card, &[head, one], transmission, None),
            [one, two] => self.give_parts(card, &[head, one, two], transmission, None),
            _ => self.give_many(card, head, payload, transmission),
        }
    }

    /// The same of a frame in more pieces than most.
    fn give_many(&self, card: &Card, head: &[u8], payload: &[&[u8]], transmission: Transmission) -> Result<()> {
        if payload.len() < PART_COUNT_MAX {
            let mut parts: [&[u8]; PART_COUNT_MAX] = [&[]; PART_COUNT_MAX];
            parts[0] = head;
            parts[1..=payload.len()].copy_from_slice(payload);
            return self.give_parts(card, &parts[..=payload.len()], transmission, None);
        }
        let mut joined = reserve::vector(payload.iter().map(|part| part.len()).sum()).map_err(|_| Errno::ENOBUFS)?;
        payload.iter().for_each(|part| joined.extend_from_slice(part));
        self.give_parts(card, &[head, &joined], transmission, None)
    }

    /// The same of a frame in parts, of a packet socket's if that is its number.
    pub(super) fn give_parts(
        &self,
        card: &Card,
        parts: &[&[u8]],
        transmission: Transmission,
        sender: Option<u64>,
    ) -> Result<()> {
        let mut outcome = card.interface.send(parts, transmission);
        if outcome.is_err() {
            // What lies there goes first.
            card.interface.flush();
            outcome = card.interface.send(parts, transmission);
        }
        if outcome.is_err() {
            self.count(Counter::SendFull);
            return Err(Errno::ENOBUFS);
        }
        self.count(Counter::SentFrames);
        self.counters().add_many(Counter::SentBytes, parts.iter().map(|part| part.len() as u64).sum());
        if !self.taps.is_empty() {
            self.tell_outgoing(card, parts, transmission.checksum.is_some(), sender);
        }
        Ok(())
    }

    /// Sends what waited for a neighbour. What there is no room for is lost.
    pub(super) fn send_waiting(&self, card: &Card, to: HardwareAddress, waiting: impl IntoIterator<Item = Waiting>) {
        for packet in waiting {
            let source = card.identity.hardware_address;
            let header = Header { destination: to, source, protocol: packet.protocol }.bytes();
            let _ = self.give(card, &header, &[&packet.bytes], packet.transmission);
        }
    }

    /// Asks for a neighbour: all, or the one that has it as far as is known.
    pub(super) fn ask(&self, card: &Card, target: IpAddr, known: Option<HardwareAddress>) {
        let own = card.identity.hardware_address;
        let asking = self.local.lock().asking_address(target);
        match (target, asking) {
            (IpAddr::V4(target), Some(IpAddr::V4(sender))) => {
                let packet = arp::Packet {
                    operation: arp::Operation::Request,
                    sender_hardware: own,
                    sender,
                    target_hardware: [0; 6],
                    target,
                };
                self.send_arp(card, known.unwrap_or(BROADCAST), &packet);
            }
            (IpAddr::V6(target), Some(source)) => {
                let message = discovery::solicitation(target, own);
                let destination = if known.is_some() { target } else { solicited_group(target) };
                self.send_discovery(source, IpAddr::V6(destination), &message);
            }
            _ => {}
        }
    }

    /// Sends an ARP packet. It is lost if there is no room.
    pub(super) fn send_arp(&self, card: &Card, to: HardwareAddress, packet: &arp::Packet) {
        let header = Header { destination: to, source: card.identity.hardware_address, protocol: ethernet::ARP };
        let _ = self.give(card, &header.bytes(), &[&packet.bytes()], Transmission::default());
    }

    /// Sends a message of neighbour discovery. It is lost if there is no room.
    pub(super) fn send_discovery(&self, source: IpAddr, destination: IpAddr, message: &[u8]) {
        self.count(Counter::Icmp6Sent);
        let (header, rest) = message.split_at(message.len().min(8));
        let segment = Segment {
            source,
            destination,
            protocol: protocol::ICMP6,
            header,
            checksum_offset_bytes: Some(2),
            payload: &[rest],
            segment_bytes: 0,
            hop_limit: 255,
            traffic_class: 0,
            is_whole: true,
        };
        let _ = self.send_by(destination, &segment, Cutting::Never);
    }
}

fn pseudo(segment: &Segment<'_>, transport_bytes: usize) -> Checksum {
    match segment.protocol {
        protocol::ICMP => Checksum::default(),
        protocol => Checksum::of_addresses(segment.source, segment.destination, protocol, transport_bytes),
    }
}

fn put_checksum(header: &mut [u8], offset_bytes: u16, sum: [u8; 2]) {
    let at = usize::from(offset_bytes);
    if let Some(place) = header.get_mut(at..at + 2) {
        place.copy_from_slice(&sum);
    }
}

fn fill_checksum(header: &mut [u8], offset_bytes: u16, segment: &Segment<'_>, transport_bytes: usize) {
    let mut sum = pseudo(segment, transport_bytes);
    sum.add(header);
    segment.payload.iter().for_each(|part| sum.add(part));
    let sum = match (segment.protocol, sum.finish()) {
        // No checksum at all is 0 there.
        (protocol::UDP, [0, 0]) => [0xff, 0xff],
        (_, sum) => sum,
    };
    put_checksum(header, offset_bytes, sum);
}

/// Writes the network's header, and the one of a piece.
fn put_network_header(
    place: &mut [u8],
    segment: &Segment<'_>,
    payload_bytes: usize,
    may_be_cut: bool,
    piece: Option<ipv6::Fragment>,
    stack: &Stack,
) {
    match (segment.source, segment.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            // A number is of use to packets only that may come in pieces (RFC 6864).
            let identification = match piece {
                Some(piece) => piece.identification,
                None if may_be_cut => stack.next_identification(segment.destination),
                None => 0,
            };
            let header = ipv4::Header {
                source,
                destination,
                protocol: segment.protocol,
                hop_limit: segment.hop_limit,
                traffic_class: segment.traffic_class,
                identification: identification as u16,
                is_whole: !may_be_cut,
                has_more: piece.is_some_and(|piece| piece.has_more),
                offset_bytes: piece.map_or(0, |piece| piece.offset_bytes as u16),
            };
            place.copy_from_slice(&header.bytes(payload_bytes));
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let more_bytes = if piece.is_some() { ipv6::FRAGMENT_BYTES } else { 0 };
            let header = ipv6::Header {
                source,
                destination,
                next: if piece.is_some() { ipv6::FRAGMENT } else { segment.protocol },
                hop_limit: segment.hop_limit,
                traffic_class: segment.traffic_class,
            };
            place[..ipv6::HEADER_BYTES].copy_from_slice(&header.bytes(payload_bytes + more_bytes));
            if let Some(piece) = piece {
                place[ipv6::HEADER_BYTES..].copy_from_slice(&piece.bytes());
            }
        }
        _ => {}
    }
}
