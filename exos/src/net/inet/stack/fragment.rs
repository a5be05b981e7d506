//! Packets that come in in pieces.
//!
//! At most [`PACKET_COUNT_MAX`] are in the making, [`BYTES_MAX`] bytes in all; the oldest makes room. One that is not
//! whole within [`TIMEOUT_NS`] is given up. A piece that covers a part of another ends its packet (RFC 5722, and Linux
//! for IPv4), one that is there already is passed over.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::reserve;

/// Packets in the making.
pub(crate) const PACKET_COUNT_MAX: usize = 64;
/// Their bytes, and those of what is kept to tell of them.
pub(crate) const BYTES_MAX: usize = 256 << 10;
/// How long one may take.
pub(crate) const TIMEOUT_NS: u64 = 30_000_000_000;
/// Pieces with gaps between them that one packet may have.
const PIECE_COUNT_MAX: usize = 64;
/// Bytes of the first piece's packet that are kept, to tell its sender.
const HEAD_BYTES_MAX: usize = 128;

/// What pieces of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) identification: u32,
}

/// A piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) offset_bytes: usize,
    pub(crate) has_more: bool,
    pub(crate) bytes: &'a [u8],
    /// The packet that it came in, from the network's header on.
    pub(crate) packet: &'a [u8],
}

#[derive(Debug)]
struct Packet {
    key: Key,
    until_ns: u64,
    bytes: Vec<u8>,
    /// What is there: ranges in order, with gaps between them.
    pieces: Vec<(usize, usize)>,
    length: Option<usize>,
    /// How the packet with the first piece began.
    head: Vec<u8>,
}

/// What came of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It waits for the others.
    Waits,
    /// It was the last one: the packet's payload.
    Whole(Vec<u8>),
    /// It was no good, or there was no room; what was there of its packet is given up, too, but for the latter.
    Lost,
}

/// Packets in the making.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    /// The oldest first.
    packets: Vec<Packet>,
    bytes: usize,
    lost_count: u64,
}

impl Packet {
    fn cost(&self) -> usize {
        self.bytes.capacity() + self.head.capacity() + self.pieces.capacity() * size_of::<(usize, usize)>()
    }

    /// Notes a range; `None`: it covers a part of another, or there are too many; false: it is there.
    fn note(&mut self, begin: usize, end: usize) -> Option<bool> {
        let at = self.pieces.partition_point(|(_, known_end)| *known_end <= begin);
        if let Some((known_begin, known_end)) = self.pieces.get(at).copied() {
            if known_begin <= begin && end <= known_end {
                return Some(false);
            }
            if known_begin < end {
                return None;
            }
        }
        let joins_before = at.checked_sub(1).filter(|before| self.pieces[*before].1 == begin);
        let joins_after = self.pieces.get(at).is_some_and(|(known_begin, _)| *known_begin == end);
        match (joins_before, joins_after) {
            (Some(before), true) => {
                self.pieces[before].1 = self.pieces[at].1;
                self.pieces.remove(at);
            }
            (Some(before), false) => self.pieces[before].1 = end,
            (None, true) => self.pieces[at].0 = begin,
            (None, false) => {
                if self.pieces.len() >= PIECE_COUNT_MAX || reserve::reserve(&mut self.pieces, 1).is_err() {
                    return None;
                }
                self.pieces.insert(at, (begin, end));
            }
        }
        Some(true)
    }

    /// Puts a piece in its place; false: it is no good.
    fn put(&mut self, piece: &Piece<'_>) -> bool {
        let end = piece.offset_bytes + piece.bytes.len();
        let is_beyond = self.length.is_some_and(|length| end > length || (!piece.has_more && end != length));
        let is_short = !piece.has_more && self.pieces.last().is_some_and(|(_, known_end)| *known_end > end);
        if piece.bytes.is_empty() || is_beyond || is_short {
            return false;
        }
        match self.note(piece.offset_bytes, end) {
            None => return false,
            Some(false) => return true,
            Some(true) => {}
        }
        if !piece.has_more {
            self.length = Some(end);
        }
        if end > self.bytes.len() {
            let more = end - self.bytes.len();
            if reserve::reserve(&mut self.bytes, more).is_err() {
                return false;
            }
            self.bytes.resize(end, 0);
        }
        self.bytes[piece.offset_bytes..end].copy_from_slice(piece.bytes);
        if piece.offset_bytes == 0 {
            let count = piece.packet.len().min(HEAD_BYTES_MAX);
            self.head = reserve::copy(&piece.packet[..count]).unwrap_or_default();
        }
        true
    }

    fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| self.pieces[..] == [(0, length)])
    }
}

impl Fragments {
    fn remove(&mut self, index: usize) -> Packet {
        let packet = self.packets.remove(index);
        self.bytes -= packet.cost();
        packet
    }

    /// Takes a piece.
    pub(crate) fn take(&mut self, key: Key, piece: &Piece<'_>, now_ns: u64) -> Outcome {
        if piece.offset_bytes + piece.bytes.len() > usize::from(u16::MAX) {
            return Outcome::Lost;
        }
        let found = self.packets.iter().position(|packet| packet.key == key);
        let index = match found {
            Some(index) => index,
            None => {
                if self.packets.len() >= PACKET_COUNT_MAX {
                    self.remove(0);
                    self.lost_count += 1;
                }
                if reserve::reserve(&mut self.packets, 1).is_err() {
                    return Outcome::Lost;
                }
                let until_ns = now_ns.saturating_add(TIMEOUT_NS);
                let (bytes, pieces, head) = (Vec::new(), Vec::new(), Vec::new());
                self.packets.push(Packet { key, until_ns, bytes, pieces, length: None, head });
                self.packets.len() - 1
            }
        };
        let packet = &mut self.packets[index];
        self.bytes -= packet.cost();
        let is_good = packet.put(piece);
        self.bytes += packet.cost();
        if !is_good {
            self.remove(index);
            return Outcome::Lost;
        }
        if self.packets[index].is_whole() {
            return Outcome::Whole(self.remove(index).bytes);
        }
        while self.bytes > BYTES_MAX && !self.packets.is_empty() {
            self.remove(0);
            self.lost_count += 1;
        }
        Outcome::Waits
    }

    /// Gives up what has taken too long, one at a time: how its first piece's packet began, if that came.
    pub(crate) fn give_up(&mut self, now_ns: u64) -> Option<(Key, Vec<u8>)> {
        if self.packets.first()?.until_ns > now_ns {
            return None;
        }
        let packet = self.remove(0);
        Some((packet.key, packet.head))
    }

    /// When something is given up next.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.packets.first().map(|packet| packet.until_ns)
    }

    /// Packets that had to make room since this was asked last.
    pub(crate) fn take_lost_count(&mut self) -> u64 {
        core::mem::take(&mut self.lost_count)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::{BYTES_MAX, Fragments, Key, Outcome, PACKET_COUNT_MAX, Piece, TIMEOUT_NS};

    fn key(identification: u32) -> Key {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Key { source: address, destination: address, protocol: 17, identification }
    }

    fn piece(offset_bytes: usize, bytes: &[u8], has_more: bool) -> Piece<'_> {
        Piece { offset_bytes, has_more, bytes, packet: bytes }
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_whole(
            length in 1usize..20_000,
            cuts in proptest::collection::vec(1usize..300, 1..40),
            order in any::<u64>(),
            doubles in any::<bool>(),
        ) {
            let whole: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (mut pieces, mut at) = (Vec::new(), 0);
            for cut in cuts.iter().cycle().take(60) {
                let end = (at + cut * 8).min(length);
                if at < end {
                    pieces.push((at, end));
                }
                at = end;
            }
            if at < length {
                pieces.push((at, length));
            }
            let mut seed = order;
            for index in (1..pieces.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(index, (seed >> 33) as usize % (index + 1));
            }
            let mut fragments = Fragments::default();
            let count = pieces.len();
            for (number, (begin, end)) in pieces.into_iter().enumerate() {
                let part = piece(begin, &whole[begin..end], end != length);
                let outcome = fragments.take(key(1), &part, 0);
                if number + 1 == count {
                    prop_assert_eq!(outcome, Outcome::Whole(whole.clone()));
                } else {
                    prop_assert_eq!(outcome, Outcome::Waits);
                    if doubles {
                        prop_assert_eq!(fragments.take(key(1), &part, 0), Outcome::Waits);
                    }
                }
            }
            prop_assert_eq!((fragments.bytes, fragments.packets.len()), (0, 0));
        }

        #[test]
        fn any_pieces_cost_bounded_memory(
            pieces in proptest::collection::vec((0..200u32, 0..8192usize, 0..1500usize, any::<bool>()), 1..400),
        ) {
            let (mut fragments, bytes) = (Fragments::default(), [0; 1500]);
            for (now, (id, offset, length, has_more)) in pieces.into_iter().enumerate() {
                let _ = fragments.take(key(id), &piece(offset * 8, &bytes[..length], has_more), now as u64);
                prop_assert!(fragments.bytes <= BYTES_MAX && fragments.packets.len() <= PACKET_COUNT_MAX);
                let cost: usize = fragments.packets.iter().map(super::Packet::cost).sum();
                prop_assert_eq!(cost, fragments.bytes);
            }
            while fragments.give_up(u64::MAX).is_some() {}
            prop_assert_eq!(fragments.bytes, 0);
        }
    }

    #[test]
    fn pieces_that_cover_each_other_end_their_packet() {
        let bytes = [0; 64];
        for (offset, length) in [(8, 16), (0, 40), (16, 40), (24, 16)] {
            let mut fragments = Fragments::default();
            assert_eq!(fragments.take(key(1), &piece(16, &bytes[..16], true), 0), Outcome::Waits);
            let outcome = fragments.take(key(1), &piece(offset, &bytes[..length], true), 0);
            assert_eq!((outcome, fragments.packets.len()), (Outcome::Lost, 0), "{offset} {length}");
        }
    }

    #[test]
    fn lengths_that_contradict_end_their_packet() {
        let bytes = [0; 64];
        let mut fragments = Fragments::default();
        assert_eq!(fragments.take(key(1), &piece(16, &bytes[..16], false), 0), Outcome::Waits);
        assert_eq!(fragments.take(key(1), &piece(32, &bytes[..8], true), 0), Outcome::Lost);
        assert_eq!(fragments.take(key(2), &piece(32, &bytes[..8], true), 0), Outcome::Waits);
        assert_eq!(fragments.take(key(2), &piece(16, &bytes[..8], false), 0), Outcome::Lost);
        assert_eq!(fragments.take(key(3), &piece(65_528, &bytes[..8], false), 0), Outcome::Lost);
        assert_eq!(fragments.packets.len(), 0);
    }

    #[test]
    fn what_does_not_come_in_time_is_given_up() {
        let mut fragments = Fragments::default();
        let _ = fragments.take(key(1), &piece(0, &[5; 8], true), 0);
        assert_eq!((fragments.give_up(TIMEOUT_NS - 1), fragments.due_ns()), (None, Some(TIMEOUT_NS)));
        let (given_up, head) = fragments.give_up(TIMEOUT_NS).expect("it is over");
        assert_eq!((given_up, &head[..]), (key(1), &[5; 8][..]));
        assert_eq!((fragments.give_up(u64::MAX), fragments.due_ns()), (None, None));
    }
}
