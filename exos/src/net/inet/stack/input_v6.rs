//! IPv6 packets that come in, ICMPv6 and neighbour discovery.

use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::Ordering;

use super::super::interface::InterfaceAddress;
use super::checksum::Checksum;
use super::counters::Counter;
use super::discovery::{self, Message, Prefix, flag, solicited_group};
use super::ethernet::HardwareAddress;
use super::fragment::{Key, Outcome, Piece};
use super::input::Frame;
use super::ipv6::{self, Content, Problem};
use super::local::Origin;
use super::membership_work;
use super::neighbour::News;
use super::packet::{Packet, is_sender, protocol};
use super::report::Report;
use super::state::{ANY_V6, Card, Stack, Transports};

/// Types of ICMPv6 that are looked at: echo request and reply.
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Messages of neighbour discovery have this hop limit: no router has passed them on.
const FROM_THE_LINK: u8 = 255;
/// All machines of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Nothing shorter is believed of a router.
const PACKET_BYTES_MIN: u32 = 1280;
/// Where the length stands in the header.
const LENGTH_OFFSET_BYTES: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;

fn lifetime_ns(seconds: u32) -> u64 {
    if seconds == u32::MAX { u64::MAX } else { u64::from(seconds) * SECOND_NS }
}

impl Stack {
    /// Takes in an IPv6 packet.
    pub(super) fn take_v6(&self, card: &Card, frame: &Frame<'_>, above: &dyn Transports) {
        self.count(Counter::Ip6Received);
        let Some((header, rest)) = ipv6::split(frame.payload) else { return self.count(Counter::Ip6HeaderErrors) };
        let (source, destination) = (IpAddr::V6(header.source), IpAddr::V6(header.destination));
        let (meant, is_from_own) = {
            let mut local = self.local.lock();
            (local.view(destination).meaning, local.view(source).is_own())
        };
        // One that has no address yet may ask whether it may have one.
        let may_send = header.source.is_unspecified() || is_sender(source);
        let Some(meant) = meant.filter(|_| may_send && !is_from_own) else {
            return self.count(Counter::Ip6AddressErrors);
        };
        let packet = Packet {
            source,
            destination,
            protocol: header.next,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            payload: rest,
            whole: &frame.payload[..ipv6::HEADER_BYTES + rest.len()],
            meant,
            is_for_group: frame.is_for_group,
            is_checksum_valid: frame.is_checksum_valid,
        };
        let piece = match self.content(&packet, header.next, rest) {
            None => return,
            Some(Content::Transport(protocol, payload)) => {
                return self.deliver_v6(card, &Packet { protocol, payload, ..packet }, above);
            }
            Some(Content::Piece(piece, bytes)) => (piece, bytes),
        };
        let (fragment, bytes) = piece;
        self.count(Counter::Ip6ReassemblyReceived);
        let key = Key { source, destination, protocol: 0, identification: fragment.identification };
        let piece =
            Piece { offset_bytes: fragment.offset_bytes, has_more: fragment.has_more, bytes, packet: packet.whole };
        let (outcome, due_ns, lost_count) = self.take_piece(key, &piece);
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
        self.counters().add_many(Counter::Ip6ReassemblyFailed, lost_count);
        match outcome {
            Outcome::Waits => {}
            Outcome::Lost => self.count(Counter::Ip6ReassemblyFailed),
            Outcome::Whole(whole) => {
                self.count(Counter::Ip6ReassemblyDone);
                // A piece in a piece is none.
                if let Some(Content::Transport(protocol, payload)) = self.content(&packet, fragment.next, &whole) {
                    self.deliver_v6(card, &Packet { protocol, payload, is_checksum_valid: false, ..packet }, above);
                }
            }
        }
    }

    /// What stands behind the extension headers; `None`: it is not taken, and its sender told if it is to be.
    fn content<'a>(&self, packet: &Packet<'_>, next: u8, bytes: &'a [u8]) -> Option<Content<'a>> {
        match ipv6::walk(next, bytes) {
            Ok(content) => Some(content),
            Err(problem) => {
                self.count(Counter::Ip6HeaderErrors);
                if problem == Problem::Length {
                    self.report(packet, Report::Problem { code: 0, at: LENGTH_OFFSET_BYTES });
                }
                if let Problem::Tell { code, at, is_told_of_groups } = problem {
                    let report = Report::Problem { code, at: ipv6::HEADER_BYTES + at };
                    if packet.may_be_answered() {
                        self.report(packet, report);
                    } else if is_told_of_groups
                        && is_sender(packet.source)
                        && let Ok(own) = self.source_for(packet.source)
                    {
                        self.report_to(packet.source, own, packet.whole, packet.traffic_class, report);
                    }
                }
                None
            }
        }
    }

    fn deliver_v6(&self, card: &Card, packet: &Packet<'_>, above: &dyn Transports) {
        match packet.protocol {
            protocol::ICMP6 => self.take_icmp6(card, packet, above),
            _ if is_sender(packet.source) => self.deliver(packet, above),
            _ => self.count(Counter::Ip6AddressErrors),
        }
    }

    fn take_icmp6(&self, card: &Card, packet: &Packet<'_>, above: &dyn Transports) {
        self.count(Counter::Icmp6Received);
        self.note_change();
        let bytes = packet.payload;
        let Some(header) = bytes.first_chunk::<8>() else { return self.count(Counter::Icmp6Errors) };
        let mut sum = Checksum::of_addresses(packet.source, packet.destination, protocol::ICMP6, bytes.len());
        sum.add(bytes);
        if !sum.is_right() {
            self.count(Counter::Icmp6ChecksumErrors);
            return self.count(Counter::Icmp6Errors);
        }
        match header[0] {
            discovery::ROUTER_SOLICITATION..=discovery::NEIGHBOUR_ADVERTISEMENT => {
                if packet.hop_limit == FROM_THE_LINK
                    && let Some(message) = discovery::read(bytes)
                {
                    self.discover(card, packet, message);
                }
                return;
            }
            _ if !is_sender(packet.source) => return self.count(Counter::Icmp6Errors),
            ECHO_REQUEST => {
                self.count(Counter::Icmp6EchoReceived);
                // As on Linux, a question to a group is answered by each of it, in its own name.
                let own = match packet.destination.is_multicast() {
                    true => self.source_for(packet.source).ok(),
                    false => Some(packet.destination),
                };
                if let Some(own) = own {
                    self.count(Counter::Icmp6Sent);
                    let answer = [ECHO_REPLY, 0, 0, 0, header[4], header[5], header[6], header[7]];
                    self.send_icmp(own, packet.source, &answer, &bytes[8..], packet.traffic_class);
                }
            }
            1..=4 => self.hear_error(packet, above),
            membership_work::MLD_QUERY | membership_work::MLD_REPORT => self.take_mld(packet),
            _ => {}
        }
        self.count(Counter::Ip6Delivered);
        self.arrive(packet, above);
    }

    fn discover(&self, card: &Card, packet: &Packet<'_>, message: Message) {
        match message {
            Message::NeighbourSolicitation { target, source_hardware } => {
                self.answer_solicitation(card, packet, target, source_hardware);
            }
            Message::NeighbourAdvertisement { target, flags, target_hardware } => {
                let target = IpAddr::V6(target);
                let is_solicited = flags & flag::SOLICITED != 0;
                if !is_sender(packet.source) || (is_solicited && packet.destination.is_multicast()) {
                    return;
                }
                // Another has what was thought to be free.
                if self.local.lock().give_up(target, self.now_ns()) {
                    return;
                }
                match target_hardware {
                    Some(hardware) => {
                        let overrides = flags & flag::OVERRIDE != 0;
                        let news =
                            if is_solicited { News::Answers { overrides } } else { News::Announces { overrides } };
                        let waiting = self.neighbours.lock().hear(target, hardware, news, self.now_ns());
                        self.send_waiting(card, hardware, waiting);
                    }
                    None if is_solicited => self.neighbours.lock().confirm(target, self.now_ns()),
                    None => {}
                }
            }
            Message::RouterAdvertisement { lifetime_seconds, source_hardware, packet_bytes_max, prefixes } => {
                let is_from_router = matches!(packet.source, IpAddr::V6(v6) if v6.is_unicast_link_local());
                if !is_from_router {
                    return;
                }
                self.hear_router(card, packet.source, lifetime_seconds, packet_bytes_max);
                if let Some(hardware) = source_hardware {
                    let news = News::Announces { overrides: true };
                    let waiting = self.neighbours.lock().hear(packet.source, hardware, news, self.now_ns());
                    self.send_waiting(card, hardware, waiting);
                }
                prefixes.into_iter().flatten().for_each(|prefix| self.hear_prefix(card, prefix));
                let due_ns = self.local.lock().due_ns();
                due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
            }
        }
    }

    fn answer_solicitation(
        &self,
        card: &Card,
        packet: &Packet<'_>,
        target: Ipv6Addr,
        source_hardware: Option<HardwareAddress>,
    ) {
        let own = card.identity.hardware_address;
        let asks_whether_free = !is_sender(packet.source);
        let is_for_target = packet.destination == IpAddr::V6(solicited_group(target));
        // One that asks so has no address of its own, and says none.
        if asks_whether_free && (!is_for_target || source_hardware.is_some()) {
            return;
        }
        if asks_whether_free && self.local.lock().give_up(IpAddr::V6(target), self.now_ns()) {
            return;
        }
        if !self.local.lock().is_own(IpAddr::V6(target)) {
            return;
        }
        if let Some(hardware) = source_hardware {
            let waiting = self.neighbours.lock().hear(packet.source, hardware, News::Asks, self.now_ns());
            self.send_waiting(card, hardware, waiting);
        }
        let (to, flags) = match asks_whether_free {
            true => (IpAddr::V6(ALL_NODES), flag::OVERRIDE),
            false => (packet.source, flag::OVERRIDE | flag::SOLICITED),
        };
        self.send_discovery(IpAddr::V6(target), to, &discovery::advertisement(target, flags, own));
    }

    /// A router says how long it is one, and what gets through.
    fn hear_router(&self, card: &Card, router: IpAddr, lifetime_seconds: u16, packet_bytes_max: Option<u32>) {
        self.solicitation.lock().left = 0;
        let until_ns = self.now_ns().saturating_add(u64::from(lifetime_seconds) * SECOND_NS);
        {
            let mut local = self.local.lock();
            if lifetime_seconds > 0 {
                local.add_way(ANY_V6, Some(router), Origin::Announced, until_ns);
            } else {
                local.end_way(ANY_V6, router);
            }
        }
        let most = u32::from(card.identity.packet_bytes_max);
        if let Some(bytes) = packet_bytes_max.filter(|bytes| (PACKET_BYTES_MIN..=most).contains(bytes)) {
            self.v6_bytes_max.store(bytes, Ordering::Relaxed);
        }
    }

    fn hear_prefix(&self, card: &Card, prefix: Prefix) {
        let now_ns = self.now_ns();
        if prefix.network.is_unicast_link_local() || prefix.network.is_multicast() || prefix.bits > 128 {
            return;
        }
        let valid_ns = lifetime_ns(prefix.valid_seconds);
        if prefix.is_on_link && prefix.valid_seconds > 0 {
            let network = InterfaceAddress { address: IpAddr::V6(prefix.network), prefix_bits: prefix.bits };
            let until_ns = now_ns.saturating_add(valid_ns);
            self.local.lock().add_way(network, None, Origin::Announced, until_ns);
        }
        let is_usable = prefix.is_autonomous
            && prefix.bits == 64
            && prefix.preferred_seconds <= prefix.valid_seconds
            && !prefix.network.is_unspecified();
        if !is_usable {
            return;
        }
        let own = card.identity.hardware_address;
        let address = self.local.lock().announce_prefix(prefix.network, own, valid_ns, now_ns);
        if let Some(address) = address {
            self.tell_routers(IpAddr::V6(solicited_group(address)), true);
            self.ask_whether_free(address);
        }
    }

    /// Asks whether anybody has an address that this machine takes.
    pub(super) fn ask_whether_free(&self, address: Ipv6Addr) {
        let question = discovery::solicitation(address, [0; 6]);
        let group = IpAddr::V6(solicited_group(address));
        // Without the option that would say where the answer goes: it goes to all.
        self.send_discovery(IpAddr::V6(Ipv6Addr::UNSPECIFIED), group, &question[..24]);
    }
}
