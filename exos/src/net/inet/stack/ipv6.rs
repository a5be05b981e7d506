//! IPv6 headers and what may follow them (RFC 8200).
//!
//! At most [`EXTENSION_COUNT_MAX`] extension headers are looked at, each once, so that a packet costs no more than its
//! length.

use core::net::Ipv6Addr;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of a fragment header.
pub(crate) const FRAGMENT_BYTES: usize = 8;
/// Number of the fragment header (`IPPROTO_FRAGMENT`).
pub(crate) const FRAGMENT: u8 = 44;
/// Extension headers that are looked at.
const EXTENSION_COUNT_MAX: usize = 8;

/// `IPPROTO_HOPOPTS`, `IPPROTO_ROUTING`, `IPPROTO_DSTOPTS`, `IPPROTO_NONE`.
const HOP_OPTIONS: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
const NOTHING: u8 = 59;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    /// What follows it.
    pub(crate) next: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// Takes a packet apart: header and what follows, without the frame's padding. `None`: it is broken.
pub(crate) fn split(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if fixed[0] >> 4 != 6 {
        return None;
    }
    Some((of(fixed), rest.get(..length)?))
}

/// The header as it stands, for one that is quoted.
pub(crate) fn of(fixed: &[u8; HEADER_BYTES]) -> Header {
    let address = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|index| fixed[at + index]));
    Header {
        source: address(8),
        destination: address(24),
        next: fixed[6],
        hop_limit: fixed[7],
        traffic_class: fixed[0] << 4 | fixed[1] >> 4,
    }
}

impl Header {
    /// The header of a packet with so many bytes behind it.
    pub(crate) fn bytes(&self, payload_bytes: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (0x60 | self.traffic_class >> 4, self.traffic_class << 4);
        bytes[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
        (bytes[6], bytes[7]) = (self.next, self.hop_limit);
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..].copy_from_slice(&self.destination.octets());
        bytes
    }
}

/// What a fragment header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) next: u8,
    pub(crate) offset_bytes: usize,
    pub(crate) has_more: bool,
    pub(crate) identification: u32,
}

impl Fragment {
    /// The header as it is sent.
    pub(crate) fn bytes(self) -> [u8; FRAGMENT_BYTES] {
        let [o0, o1] = (self.offset_bytes as u16 | u16::from(self.has_more)).to_be_bytes();
        let [i0, i1, i2, i3] = self.identification.to_be_bytes();
        [self.next, 0, o0, o1, i0, i1, i2, i3]
    }
}

/// What stands behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// A transport packet.
    Transport(u8, &'a [u8]),
    /// A piece of a packet.
    Piece(Fragment, &'a [u8]),
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It is not, and that is all.
    Drop,
    /// Its sender is told that the packet has another length than it may.
    Length,
    /// Its sender is told: a code of "parameter problem", and where it is, from the begin of what was walked over.
    Tell {
        code: u8,
        at: usize,
        /// Also if it was meant for a group.
        is_told_of_groups: bool,
    },
}

/// Looks at options of a header: all that are not known are padding, or say themselves what they lead to.
fn check_options(options: &[u8], begin: usize) -> Result<(), Problem> {
    let mut at = 0;
    while let Some(kind) = options.get(at).copied() {
        if kind == 0 {
            at += 1;
            continue;
        }
        let length = usize::from(*options.get(at + 1).ok_or(Problem::Drop)?);
        if at + 2 + length > options.len() {
            return Err(Problem::Drop);
        }
        // Padding, router alert, jumbo payload are of no concern here.
        let is_known = matches!(kind, 1 | 5);
        if !is_known {
            let tell = |is_told_of_groups| Problem::Tell { code: 2, at: begin + at, is_told_of_groups };
            match kind >> 6 {
                0 => {}
                1 => return Err(Problem::Drop),
                2 => return Err(tell(true)),
                _ => return Err(tell(false)),
            }
        }
        at += 2 + length;
    }
    Ok(())
}

/// Walks over the extension headers that begin with `bytes`, the first of kind `next`.
pub(crate) fn walk(mut next: u8, bytes: &[u8]) -> Result<Content<'_>, Problem> {
    let mut at = 0;
    for count in 0..=EXTENSION_COUNT_MAX {
        let rest = &bytes[at..];
        match next {
            HOP_OPTIONS | ROUTING | DESTINATION_OPTIONS => {
                let [following, units, ..] = *rest else { return Err(Problem::Drop) };
                let length = (usize::from(units) + 1) * 8;
                let header = rest.get(..length).ok_or(Problem::Drop)?;
                match next {
                    // Segments are left: another machine would be next.
                    ROUTING if header[3] != 0 => {
                        return Err(Problem::Tell { code: 0, at: at + 2, is_told_of_groups: false });
                    }
                    ROUTING => {}
                    HOP_OPTIONS if count > 0 => return Err(Problem::Drop),
                    _ => check_options(&header[2..], at + 2)?,
                }
                (next, at) = (following, at + length);
            }
            FRAGMENT => {
                let (header, payload) = rest.split_first_chunk::<FRAGMENT_BYTES>().ok_or(Problem::Drop)?;
                let place = u16::from_be_bytes([header[2], header[3]]);
                let fragment = Fragment {
                    next: header[0],
                    offset_bytes: usize::from(place & !7),
                    has_more: place & 1 != 0,
                    identification: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                };
                // A packet in one piece is none in pieces (RFC 6946).
                if fragment.offset_bytes == 0 && !fragment.has_more {
                    (next, at) = (fragment.next, at + FRAGMENT_BYTES);
                    continue;
                }
                if fragment.has_more && payload.len() % 8 != 0 {
                    return Err(Problem::Length);
                }
                return Ok(Content::Piece(fragment, payload));
            }
            NOTHING => return Err(Problem::Drop),
            transport => return Ok(Content::Transport(transport, rest)),
        }
    }
    Err(Problem::Drop)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{Content, Fragment, Header, Problem, split, walk};

    #[test]
    fn packets_are_the_same_both_ways_without_padding() {
        let header = Header {
            source: "fe80::1".parse().expect("an address"),
            destination: "ff02::1".parse().expect("an address"),
            next: 58,
            hop_limit: 255,
            traffic_class: 0xa5,
        };
        let mut packet: Vec<u8> = header.bytes(2).to_vec();
        assert_eq!(split(&packet), None);
        packet.extend([1, 2, 3]);
        assert_eq!(split(&packet), Some((header, &[1, 2][..])));
        packet[0] = 0x45;
        assert_eq!(split(&packet), None);
    }

    #[test]
    fn known_extensions_are_passed_over() {
        let options = [60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0, 5, 1, 0, 0, 7, 8];
        assert_eq!(walk(0, &options), Ok(Content::Transport(17, &[7, 8])));
        let routing = [17, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(walk(43, &routing), Ok(Content::Transport(17, &[9])));
        let mut left = routing;
        left[3] = 1;
        assert_eq!(walk(43, &left), Err(Problem::Tell { code: 0, at: 2, is_told_of_groups: false }));
        assert_eq!(walk(59, &[]), Err(Problem::Drop));
    }

    #[test]
    fn unknown_options_do_what_they_say() {
        let of = |kind: u8| [17, 0, kind, 4, 0, 0, 0, 0];
        let tell = |is_told_of_groups| Err(Problem::Tell { code: 2, at: 2, is_told_of_groups });
        assert_eq!(walk(60, &of(0x1e)), Ok(Content::Transport(17, &[])));
        assert_eq!(walk(60, &of(0x5e)), Err(Problem::Drop));
        assert_eq!(walk(60, &of(0x9e)), tell(true));
        assert_eq!(walk(60, &of(0xde)), tell(false));
    }

    #[test]
    fn chains_end_and_pieces_are_told() {
        let mut chain: Vec<u8> = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        chain.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(walk(60, &chain), Err(Problem::Drop));
        let fragment = Fragment { next: 17, offset_bytes: 1448, has_more: true, identification: 7 };
        let mut bytes = fragment.bytes().to_vec();
        bytes.extend([0; 8]);
        assert_eq!(walk(44, &bytes), Ok(Content::Piece(fragment, &[0; 8])));
        assert_eq!(walk(44, &bytes[..15]), Err(Problem::Length), "not a multiple of 8");
        let alone = Fragment { offset_bytes: 0, has_more: false, ..fragment }.bytes();
        assert_eq!(walk(44, &alone), Ok(Content::Transport(17, &[])));
        for length in 0..8 {
            assert_eq!(walk(0, &[60, 0, 0, 0, 0, 0, 0, 0][..length]), Err(Problem::Drop));
        }
    }
}
