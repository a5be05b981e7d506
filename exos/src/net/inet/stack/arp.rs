//! ARP packets for IPv4 on Ethernet (RFC 826).

use core::net::Ipv4Addr;

use super::ethernet::HardwareAddress;

/// Bytes of a packet.
pub(crate) const BYTES: usize = 28;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A question.
    Request,
    /// An answer.
    Reply,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) operation: Operation,
    pub(crate) sender_hardware: HardwareAddress,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_hardware: HardwareAddress,
    pub(crate) target: Ipv4Addr,
}

impl Packet {
    /// Reads a packet; `None`: it is no such. What follows it is padding.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<BYTES>()?;
        // Ethernet or IEEE 802, which are the same here; IPv4; the lengths of their addresses.
        if !matches!(bytes[..2], [0, 1 | 6]) || bytes[2..6] != [8, 0, 6, 4] {
            return None;
        }
        let operation = match bytes[6..8] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        let hardware = |at: usize| core::array::from_fn(|index| bytes[at + index]);
        let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        Some(Self {
            operation,
            sender_hardware: hardware(8),
            sender: address(14),
            target_hardware: hardware(18),
            target: address(24),
        })
    }

    /// The packet as it is sent.
    pub(crate) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        bytes[7] = if self.operation == Operation::Request { 1 } else { 2 };
        bytes[8..14].copy_from_slice(&self.sender_hardware);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_hardware);
        bytes[24..].copy_from_slice(&self.target.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::{Operation, Packet};

    #[test]
    fn packets_are_the_same_both_ways_and_others_are_none() {
        let packet = Packet {
            operation: Operation::Reply,
            sender_hardware: [2, 0, 0, 0, 0, 1],
            sender: Ipv4Addr::new(10, 0, 2, 2),
            target_hardware: [2, 0, 0, 0, 0, 2],
            target: Ipv4Addr::new(10, 0, 2, 15),
        };
        let bytes = packet.bytes();
        assert_eq!(Packet::read(&bytes), Some(packet));
        assert_eq!(Packet::read(&bytes[..27]), None);
        for at in 0..8 {
            let mut wrong = bytes;
            wrong[at] ^= 0x80;
            assert_eq!(Packet::read(&wrong), None, "byte {at}");
        }
    }
}
