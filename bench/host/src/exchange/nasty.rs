//! Frames that no script would send: mutations of those that scripts send, from a seed.
//!
//! Scripts are played in any order without regard to what the guest answers, so that sockets are in every state, and
//! in front of each frame go some that differ from it in a few bytes, most of them with right checksums. After each
//! script the program in the guest has to obey, and now and then a datagram has to get there and back.

use super::build::{
    PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, TYPE_IPV4, TYPE_IPV6, finished, pseudo_sum, sum_of,
};
use super::words::address_of;

/// Mutations in front of each frame.
const MUTATION_COUNT: u64 = 12;
/// Values at which programs err.
const EDGES: [u8; 7] = [0, 1, 4, 0x7f, 0x80, 0xfe, 0xff];
const ETHERNET_BYTES: usize = 14;

/// A sequence of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Variants of a frame.
pub(super) fn variants(frame: &[u8], chance: &mut Chance) -> Vec<Vec<u8>> {
    let count = chance.next() % MUTATION_COUNT;
    (0..count).map(|_| variant(frame, chance)).collect()
}

fn variant(frame: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for _ in 0..1 + chance.below(3) {
        if frame.len() <= ETHERNET_BYTES {
            break;
        }
        let at = if chance.below(20) == 0 { chance.below(frame.len()) } else { header_place(frame.len(), chance) };
        match chance.below(8) {
            0 | 1 => frame[at] ^= 1 << chance.below(8),
            2 | 3 => frame[at] = EDGES[chance.below(EDGES.len())],
            4 => frame[at] = chance.next() as u8,
            5 => frame.truncate(at.max(ETHERNET_BYTES)),
            6 => {
                let more = chance.below(64);
                frame.extend((0..more).map(|index| index as u8));
            }
            _ => {
                let end = frame.len().min(at + 1 + chance.below(16));
                let part = frame[at..end].to_vec();
                frame.splice(at..at, part);
            }
        }
    }
    if chance.below(4) != 0 {
        mend(&mut frame);
    }
    frame
}

/// A place behind the Ethernet header, near its begin more often than not.
fn header_place(length: usize, chance: &mut Chance) -> usize {
    let room = length - ETHERNET_BYTES;
    let room = if chance.below(3) == 0 { room } else { room.min(60) };
    ETHERNET_BYTES + chance.below(room)
}

/// Gives a frame the checksums that belong to it, as far as it can be read.
fn mend(frame: &mut [u8]) {
    let kind = u16::from_be_bytes([frame[12], frame[13]]);
    let packet = &mut frame[ETHERNET_BYTES..];
    let (protocol, header_bytes) = match kind {
        TYPE_IPV4 if packet.len() >= 20 => {
            let header_bytes = usize::from(packet[0] & 15) * 4;
            if header_bytes < 20 || header_bytes > packet.len() {
                return;
            }
            packet[10..12].fill(0);
            let sum = finished(sum_of(&packet[..header_bytes]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            (packet[9], header_bytes)
        }
        TYPE_IPV6 if packet.len() >= 40 => (packet[6], 40),
        _ => return,
    };
    let is_v4 = kind == TYPE_IPV4;
    let said = if is_v4 {
        usize::from(u16::from_be_bytes([packet[2], packet[3]]))
    } else {
        40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
    };
    let pair = if is_v4 {
        (address_of(&packet[12..16]), address_of(&packet[16..20]))
    } else {
        (address_of(&packet[8..24]), address_of(&packet[24..40]))
    };
    let end = said.clamp(header_bytes, packet.len());
    let bytes = &mut packet[header_bytes..end];
    let (place, has_pseudo) = match protocol {
        PROTOCOL_TCP => (16, true),
        PROTOCOL_UDP => (6, true),
        PROTOCOL_ICMP => (2, false),
        PROTOCOL_ICMPV6 => (2, true),
        _ => return,
    };
    if bytes.len() < place + 2 {
        return;
    }
    bytes[place..place + 2].fill(0);
    let pseudo = if has_pseudo { pseudo_sum(pair, protocol, bytes.len()) } else { 0 };
    let sum = finished(sum_of(bytes) + pseudo);
    bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::{Chance, mend, variants};
    use crate::exchange::build::frame;
    use crate::exchange::flow::Flows;
    use crate::exchange::link::peer_addresses;

    #[test]
    fn a_seed_makes_the_same_frames() {
        let mut flows = Flows::new(1, peer_addresses());
        let whole = frame(&["udp", "data", "hello"], &mut flows).unwrap();
        let (mut one, mut other) = (Chance(7), Chance(7));
        for _ in 0..1000 {
            assert_eq!(variants(&whole, &mut one), variants(&whole, &mut other));
        }
    }

    #[test]
    fn right_checksums_stay() {
        let mut flows = Flows::new(1, peer_addresses());
        for line in ["udp data hello", "tcp S seq 0 <mss:1460>", "icmp 8 0 len 9", "udp6 data x", "icmp6 128 0 len 3"] {
            let words: Vec<&str> = line.split(' ').collect();
            let whole = frame(&words, &mut flows).unwrap();
            let mut mended = whole.clone();
            mend(&mut mended);
            assert_eq!(whole, mended, "{line}");
        }
    }
}
