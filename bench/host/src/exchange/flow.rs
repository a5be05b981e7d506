//! What the player knows of a script's connections, so that scripts count from 0 on both sides.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Ports that a script has on the peer's side, each a flow.
pub(super) const FLOW_COUNT: u16 = 512;
/// The peer's initial sequence number: near the wrap, so that every script of some length crosses it.
const PEER_ISS: u32 = 0xffff_ff00;

/// One connection, or what may become one.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The port of the guest.
    pub(super) guest_port: u16,
    pub(super) peer_iss: u32,
    /// The guest's initial sequence number, once a segment with SYN has shown it.
    pub(super) guest_iss: Option<u32>,
    /// Next sequence number of the peer, counted from its initial one.
    pub(super) next: u32,
    /// What the peer acknowledges, counted from the guest's initial number.
    pub(super) acknowledged: u32,
    /// The guest's last timestamp.
    pub(super) timestamp: u32,
    /// The sequence number of its last segment, counted.
    pub(super) last_sequence: u32,
}

/// A script's connections.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    /// The guest's port of this script.
    pub(super) guest_port: u16,
    /// The first of the peer's ports.
    pub(super) peer_port: u16,
    flows: BTreeMap<u16, Flow>,
    /// Identification of the next IPv4 packet.
    pub(super) identification: u16,
    /// Where the router of the guest or another of the peer's addresses is needed instead.
    pub(super) peer: [IpAddr; 2],
}

impl Flows {
    /// The ports of run number `run`.
    pub(super) fn new(run: u16, peer: [IpAddr; 2]) -> Self {
        let guest_port = 2000 + run % 20_000;
        let peer_port = 40_000 + run % 40 * FLOW_COUNT;
        Self { guest_port, peer_port, flows: BTreeMap::new(), identification: 1, peer }
    }

    /// Whether a port of the peer belongs to the script.
    pub(super) fn number_of(&self, peer_port: u16) -> Option<u16> {
        peer_port.checked_sub(self.peer_port).filter(|number| *number < FLOW_COUNT)
    }

    pub(super) fn get(&mut self, number: u16) -> &mut Flow {
        let guest_port = self.guest_port;
        self.flows.entry(number).or_insert(Flow {
            guest_port,
            peer_iss: PEER_ISS,
            guest_iss: None,
            next: 0,
            acknowledged: 0,
            timestamp: 0,
            last_sequence: 0,
        })
    }

    /// The flow is another connection with the same ports from now on.
    pub(super) fn renew(&mut self, number: u16) {
        let flow = self.get(number);
        (flow.guest_iss, flow.acknowledged, flow.next) = (None, 0, 0);
    }

    /// Takes note of a segment of the guest's.
    pub(super) fn learn(&mut self, number: u16, segment: &Heard) {
        let flow = self.get(number);
        flow.guest_port = segment.guest_port;
        if segment.is_syn && flow.guest_iss.is_none() {
            flow.guest_iss = Some(segment.sequence);
        }
        if let Some(timestamp) = segment.timestamp {
            flow.timestamp = timestamp;
        }
        let Some(iss) = flow.guest_iss else { return };
        let begin = segment.sequence.wrapping_sub(iss);
        flow.last_sequence = begin;
        let is_next = begin <= flow.acknowledged;
        let end = begin.wrapping_add(segment.length);
        if is_next && end > flow.acknowledged && end - flow.acknowledged < 1 << 24 {
            flow.acknowledged = end;
        }
    }
}

/// What [`Flows::learn`] needs of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) guest_port: u16,
    pub(super) sequence: u32,
    /// Of its data, SYN and FIN.
    pub(super) length: u32,
    pub(super) is_syn: bool,
    pub(super) timestamp: Option<u32>,
}
