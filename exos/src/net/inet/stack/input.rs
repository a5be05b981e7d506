//! Frames that come in: Ethernet and ARP.

use core::net::IpAddr;

use super::arp::{self, Operation};
use super::counters::Counter;
use super::ethernet::{self, Header, is_group};
use super::neighbour::News;
use super::packet::is_sender;
use super::state::{Card, Stack, Transports};

/// A frame, without its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) payload: &'a [u8],
    /// It came for a group or all.
    pub(super) is_for_group: bool,
    /// The card or the host has looked at the transport checksum.
    pub(super) is_checksum_valid: bool,
}

impl Stack {
    /// Takes in a frame.
    pub(super) fn take_frame(&self, card: &Card, bytes: &[u8], is_checksum_valid: bool, above: &dyn Transports) {
        self.count(Counter::ReceivedFrames);
        self.counters().add_many(Counter::ReceivedBytes, bytes.len() as u64);
        if !self.taps.is_empty() {
            self.tell_incoming(card, bytes, is_checksum_valid);
        }
        let own = card.identity.hardware_address;
        let Some((header, payload)) = Header::split(bytes) else { return self.count(Counter::BadFrames) };
        let is_for_group = is_group(header.destination);
        if is_for_group {
            self.count(Counter::GroupFrames);
        } else if header.destination != own {
            // A card that takes everything, or a switch that does not know better.
            return self.count(Counter::BadFrames);
        }
        let frame = Frame { payload, is_for_group, is_checksum_valid };
        match header.protocol {
            ethernet::IPV4 => self.take_v4(&frame, above),
            ethernet::IPV6 => self.take_v6(card, &frame, above),
            ethernet::ARP => self.take_arp(card, payload, is_for_group),
            _ => self.count(Counter::OtherFrames),
        }
    }

    fn take_arp(&self, card: &Card, bytes: &[u8], is_for_group: bool) {
        self.note_change();
        let own = card.identity.hardware_address;
        let Some(packet) = arp::Packet::read(bytes) else { return self.count(Counter::ArpBad) };
        if packet.sender_hardware == own {
            return;
        }
        let (sender, target) = (IpAddr::V4(packet.sender), IpAddr::V4(packet.target));
        let (is_sender_own, is_target_own) = {
            let local = self.local.lock();
            (local.is_own(sender), local.is_own(target))
        };
        let asks_for_own = packet.operation == Operation::Request && is_target_own;
        // Whether anybody has an address asks one who has none yet.
        let is_probe = packet.sender.is_unspecified();
        if is_sender_own || !(is_probe || is_sender(sender)) || packet.target.is_multicast() {
            return self.count(Counter::ArpBad);
        }
        if !is_probe {
            let is_announcement = packet.sender == packet.target;
            let news = match packet.operation {
                Operation::Request if asks_for_own => News::Asks,
                Operation::Reply if !is_for_group && !is_announcement => News::Answers { overrides: true },
                _ => News::Announces { overrides: is_announcement },
            };
            let waiting = self.neighbours.lock().hear(sender, packet.sender_hardware, news, self.now_ns());
            self.send_waiting(card, packet.sender_hardware, waiting);
        }
        if asks_for_own {
            let answer = arp::Packet {
                operation: Operation::Reply,
                sender_hardware: own,
                sender: packet.target,
                target_hardware: packet.sender_hardware,
                target: packet.sender,
            };
            if ethernet::is_unicast(packet.sender_hardware) {
                self.send_arp(card, packet.sender_hardware, &answer);
            }
        }
    }
}
