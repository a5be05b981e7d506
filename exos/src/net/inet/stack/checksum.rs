//! The Internet checksum (RFC 1071), eight bytes at a time.
//!
//! The sum of 16-bit words does not depend on the order of bytes in them, so words are added as the processor reads
//! them; the result is put into a packet in that order, too.

use core::net::IpAddr;

/// A checksum in the making, over several pieces one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksum {
    sum: u64,
    /// An odd number of bytes was added so far.
    is_odd: bool,
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn sum_of(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    let mut add = |word: u64| {
        let (next, has_carry) = sum.overflowing_add(word);
        sum = next + u64::from(has_carry);
    };
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    }
    let (words, rest) = rest.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    add(word(rest));
    // A carry can only be added to a sum that is not all ones, so it does not carry again.
    fold((sum & 0xffff_ffff) + (sum >> 32))
}

impl Checksum {
    /// That of a pseudo-header, which TCP, UDP and ICMPv6 begin with.
    pub(crate) fn of_addresses(source: IpAddr, destination: IpAddr, protocol: u8, byte_count: usize) -> Self {
        let mut sum = Self::default();
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => sum.add(&address.octets()),
                IpAddr::V6(address) => sum.add(&address.octets()),
            }
        }
        sum.add(&(byte_count as u32).to_be_bytes());
        sum.add(&[0, protocol]);
        sum
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

    use super::{Checksum, is_right, of};

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

    #[test]
    fn carries_are_not_lost() {
        for length in 0..100 {
            assert_eq!(of(&[0xff; 100][..length]), naive(&[0xff; 100][..length]));
        }
    }
}
