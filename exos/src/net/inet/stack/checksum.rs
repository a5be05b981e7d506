//! The Internet checksum (RFC 1071), eight bytes at a time.
//!
//! The sum of 16-bit words does not depend on the order of bytes in them, so words are added as the processor reads
//! them; the result is put into a packet in that order, too.

use core::net::{IpAddr, Ipv4Addr};

/// A checksum in the making, over several pieces one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksum {
    sum: u64,
    /// An odd number of bytes was added so far.
    is_odd: bool,
}

fn fold(mut sum: u64) -> u16 {
    // Twice: of the first a carry may be left.
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum as u32 & 0xffff) + (sum as u32 >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum of fewer than eight bytes.
fn sum_of_rest(bytes: &[u8]) -> u64 {
    let (fours, bytes) = bytes.as_chunks::<4>();
    let (twos, bytes) = bytes.as_chunks::<2>();
    let fours = fours.first().map_or(0, |four| u64::from(u32::from_le_bytes(*four)));
    let twos = twos.first().map_or(0, |two| u64::from(u16::from_le_bytes(*two)));
    fours + twos + bytes.first().map_or(0, |byte| u64::from(*byte))
}

fn sum_of(bytes: &[u8]) -> u16 {
    // A carry goes on with the next word: adding it at the other end is what the sum asks for.
    let (mut sum, mut carry) = (0u64, false);
    let mut add = |word: &[u8; 8]| (sum, carry) = sum.carrying_add(u64::from_le_bytes(*word), carry);
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| block.as_chunks().0.iter().for_each(&mut add));
    let (words, rest) = rest.as_chunks();
    words.iter().for_each(&mut add);
    fold((sum & 0xffff_ffff) + (sum >> 32) + u64::from(carry) + sum_of_rest(rest))
}

impl Checksum {
    /// That of a pseudo-header, which TCP, UDP and ICMPv6 begin with.
    pub(crate) fn of_addresses(source: IpAddr, destination: IpAddr, protocol: u8, byte_count: usize) -> Self {
        let sum_of_address = |address| match address {
            IpAddr::V4(address) => u64::from(u32::from_le_bytes(Ipv4Addr::octets(&address))),
            IpAddr::V6(address) => u64::from(sum_of(&address.octets())),
        };
        let (length, protocol) = (u64::from((byte_count as u32).to_be()), u64::from(u16::from(protocol).to_be()));
        let sum = sum_of_address(source) + sum_of_address(destination) + length + protocol;
        Self { sum: u64::from(fold(sum)), is_odd: false }
    }

    /// Adds bytes behind those before.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let sum = sum_of(bytes);
        self.sum += u64::from(if self.is_odd { sum.swap_bytes() } else { sum });
        self.is_odd ^= bytes.len() % 2 == 1;
    }

    /// The sum as it stands in a packet that the card is to finish.
    pub(crate) fn partial(self) -> [u8; 2] {
        fold(self.sum).to_le_bytes()
    }

    /// The checksum as it stands in a packet.
    pub(crate) fn finish(self) -> [u8; 2] {
        (!fold(self.sum)).to_le_bytes()
    }

    /// Whether bytes that contain their checksum are right.
    pub(crate) fn is_right(self) -> bool {
        fold(self.sum) == 0xffff
    }
}

/// The checksum of an IPv4 header without options, the place of its own empty; zero, if it is filled in and
/// right.
#[inline]
pub(crate) fn of_header(bytes: &[u8; 20]) -> [u8; 2] {
    let (words, rest) = bytes.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    let sum = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    (!fold(sum)).to_le_bytes()
}

/// The checksum of bytes alone.
pub(crate) fn of(bytes: &[u8]) -> [u8; 2] {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish()
}

/// Whether bytes that contain their checksum are right.
pub(crate) fn is_right(bytes: &[u8]) -> bool {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.is_right()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::{Checksum, is_right, of, of_header};

    /// As RFC 1071 writes it down.
    fn naive(bytes: &[u8]) -> [u8; 2] {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!sum as u16).to_be_bytes()
    }

    proptest! {
        #[test]
        fn any_pieces_have_the_sum_of_the_whole(pieces: Vec<Vec<u8>>) {
            let whole: Vec<u8> = pieces.concat();
            let mut sum = Checksum::default();
            pieces.iter().for_each(|piece| sum.add(piece));
            prop_assert_eq!(sum.finish(), naive(&whole));
            prop_assert_eq!(of(&whole), naive(&whole));
        }

        #[test]
        fn one_bit_breaks_it(mut bytes in proptest::collection::vec(any::<u8>(), 4..200), at: usize, bit in 0..8u8) {
            bytes[2..4].fill(0);
            let sum = of(&bytes);
            bytes[2..4].copy_from_slice(&sum);
            prop_assert!(is_right(&bytes));
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(!is_right(&bytes));
        }
    }

    proptest! {
        #[test]
        fn headers_and_addresses_are_summed_as_their_bytes(
            header: [u8; 20], v4: [[u8; 4]; 2], v6: [[u8; 16]; 2], protocol: u8, length in 0..70_000usize,
        ) {
            prop_assert_eq!(of_header(&header), naive(&header));
            let mut right = header;
            right[10..12].fill(0);
            let sum = of_header(&right);
            right[10..12].copy_from_slice(&sum);
            prop_assert_eq!(of_header(&right), [0, 0]);
            let tail = [&(length as u32).to_be_bytes()[..], &[0, protocol]].concat();
            let sum = |source, destination| Checksum::of_addresses(source, destination, protocol, length).finish();
            prop_assert_eq!(sum(v4[0].into(), v4[1].into()), naive(&[&v4.concat()[..], &tail].concat()));
            prop_assert_eq!(sum(v6[0].into(), v6[1].into()), naive(&[&v6.concat()[..], &tail].concat()));
        }
    }

    #[test]
    fn carries_are_not_lost() {
        for length in 0..100 {
            assert_eq!(of(&[0xff; 100][..length]), naive(&[0xff; 100][..length]));
        }
    }
}
