//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use super::checksum;

/// Bytes of a header without options.
pub(crate) const HEADER_BYTES: usize = 20;
/// Options that would have the packet go another way than its destination's (`IPOPT_LSRR`, `IPOPT_SSRR`).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) identification: u16,
    pub(crate) is_whole: bool,
    pub(crate) has_more: bool,
    pub(crate) offset_bytes: u16,
}

/// Options that are as they may be: a source route is not (`accept_source_route` is off).
fn are_acceptable(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match *kind {
            0 => return true,
            1 => options = rest,
            kind if SOURCE_ROUTES.contains(&kind) => return false,
            _ => match rest.first() {
                Some(length) if *length >= 2 && usize::from(*length) <= options.len() => {
                    options = &options[usize::from(*length)..];
                }
                _ => return false,
            },
        }
    }
    true
}

/// Takes a packet apart: header, its bytes, payload without the frame's padding. `None`: it is broken.
pub(crate) fn split(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let fixed = bytes.first_chunk::<HEADER_BYTES>()?;
    let header_bytes = usize::from(fixed[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if fixed[0] >> 4 != 4 || header_bytes < HEADER_BYTES || total < header_bytes || total > bytes.len() {
        return None;
    }
    let (head, payload) = bytes[..total].split_at(header_bytes);
    let is_right = match header_bytes {
        HEADER_BYTES => checksum::of_header(fixed) == [0, 0],
        _ => checksum::is_right(head) && are_acceptable(&head[HEADER_BYTES..]),
    };
    if !is_right {
        return None;
    }
    Some((of(fixed), head, payload))
}

/// The header as it stands, for one that is quoted.
pub(crate) fn of(fixed: &[u8; HEADER_BYTES]) -> Header {
    let flags = u16::from_be_bytes([fixed[6], fixed[7]]);
    Header {
        source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
        destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
        protocol: fixed[9],
        hop_limit: fixed[8],
        traffic_class: fixed[1],
        identification: u16::from_be_bytes([fixed[4], fixed[5]]),
        is_whole: flags & 0x4000 != 0,
        has_more: flags & 0x2000 != 0,
        offset_bytes: (flags & 0x1fff) << 3,
    }
}

impl Header {
    /// The header of a packet with so many bytes of payload.
    pub(crate) fn bytes(&self, payload_bytes: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = 0x45;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&((HEADER_BYTES + payload_bytes) as u16).to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        let flags = u16::from(self.is_whole) << 14 | u16::from(self.has_more) << 13 | self.offset_bytes >> 3;
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        (bytes[8], bytes[9]) = (self.hop_limit, self.protocol);
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..].copy_from_slice(&self.destination.octets());
        let sum = checksum::of_header(&bytes);
        bytes[10..12].copy_from_slice(&sum);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    use super::{Header, split};
    use crate::net::inet::stack::checksum;

    fn header() -> Header {
        Header {
            source: Ipv4Addr::new(10, 0, 2, 2),
            destination: Ipv4Addr::new(10, 0, 2, 15),
            protocol: 17,
            hop_limit: 64,
            traffic_class: 0x10,
            identification: 0x1234,
            is_whole: false,
            has_more: true,
            offset_bytes: 1480,
        }
    }

    #[test]
    fn packets_are_the_same_both_ways_without_padding() {
        let mut packet: Vec<u8> = header().bytes(3).to_vec();
        packet.extend([1, 2, 3, 0, 0, 0]);
        let (read, head, payload) = split(&packet).expect("it is right");
        assert_eq!((read, head.len(), payload), (header(), 20, &[1, 2, 3][..]));
    }

    #[test]
    fn broken_headers_are_none() {
        let good: Vec<u8> = header().bytes(0).to_vec();
        assert!(split(&good).is_some() && split(&good[..19]).is_none() && split(&[]).is_none());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(split(&bad).is_none(), "byte {at}");
        }
        let mut long = good.clone();
        long[3] = 21;
        assert!(split(&long).is_none(), "longer than the frame");
    }

    #[test]
    fn options_are_passed_over_but_for_source_routes() {
        let with = |options: &[u8]| {
            let mut packet: Vec<u8> = header().bytes(0).to_vec();
            packet.extend(options);
            packet.resize(20 + options.len().next_multiple_of(4), 0);
            (packet[0], packet[3]) = (0x40 | (packet.len() / 4) as u8, packet.len() as u8);
            packet[10..12].fill(0);
            let sum = checksum::of(&packet);
            packet[10..12].copy_from_slice(&sum);
            split(&packet).is_some()
        };
        assert!(with(&[148, 4, 0, 0]) && with(&[1, 1, 1]) && with(&[0, 131, 3]));
        assert!(!with(&[131, 7, 4, 1, 1, 1, 1]) && !with(&[1, 137, 3, 0]) && !with(&[7, 1]) && !with(&[7, 9, 0, 0]));
    }
}
