//! Messages of neighbour discovery (RFC 4861): ICMPv6 without the checksum.
//!
//! Every length is checked, an option without length ends the message as broken, and options that are not known are
//! passed over. What a message may say by where it came from is looked at by [`super::input_v6`].

use core::net::Ipv6Addr;

use super::ethernet::HardwareAddress;

/// Types of messages.
pub(crate) const ROUTER_SOLICITATION: u8 = 133;
/// See [`ROUTER_SOLICITATION`].
pub(crate) const ROUTER_ADVERTISEMENT: u8 = 134;
/// See [`ROUTER_SOLICITATION`].
pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;
/// See [`ROUTER_SOLICITATION`].
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Options: an Ethernet address of the sender, of what is asked for; a prefix; the longest packet.
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
const PREFIX: u8 = 3;
const PACKET_BYTES: u8 = 5;

/// Prefixes of one announcement that are looked at.
pub(crate) const PREFIX_COUNT_MAX: usize = 4;

/// Flags of a neighbour's advertisement.
pub(crate) mod flag {
    /// It answers a question.
    pub(crate) const SOLICITED: u8 = 0x40;
    /// It counts against what was known.
    pub(crate) const OVERRIDE: u8 = 0x20;
}

/// A prefix that a router announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) network: Ipv6Addr,
    pub(crate) bits: u8,
    /// Its machines are on this link.
    pub(crate) is_on_link: bool,
    /// Addresses may be made of it.
    pub(crate) is_autonomous: bool,
    pub(crate) valid_seconds: u32,
    pub(crate) preferred_seconds: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Who has an address?
    NeighbourSolicitation { target: Ipv6Addr, source_hardware: Option<HardwareAddress> },
    /// It is here.
    NeighbourAdvertisement { target: Ipv6Addr, flags: u8, target_hardware: Option<HardwareAddress> },
    /// What a router says of the link.
    RouterAdvertisement {
        lifetime_seconds: u16,
        source_hardware: Option<HardwareAddress>,
        packet_bytes_max: Option<u32>,
        prefixes: [Option<Prefix>; PREFIX_COUNT_MAX],
    },
}

/// What options say.
#[derive(Default)]
struct Options {
    source: Option<HardwareAddress>,
    target: Option<HardwareAddress>,
    packet_bytes: Option<u32>,
    prefixes: [Option<Prefix>; PREFIX_COUNT_MAX],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    bytes.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

fn prefix(option: &[u8]) -> Option<Prefix> {
    Some(Prefix {
        network: address(option.get(16..32)?)?,
        bits: option[2],
        is_on_link: option[3] & 0x80 != 0,
        is_autonomous: option[3] & 0x40 != 0,
        valid_seconds: word(option, 4),
        preferred_seconds: word(option, 8),
    })
}

/// Reads options; `None`: one is broken.
fn read_options(mut bytes: &[u8]) -> Option<Options> {
    let (mut options, mut prefix_count) = (Options::default(), 0);
    while let [kind, units, ..] = *bytes {
        let length = usize::from(units) * 8;
        if length == 0 || length > bytes.len() {
            return None;
        }
        let (option, rest) = bytes.split_at(length);
        let hardware = || option.get(2..8)?.first_chunk::<6>().copied();
        match kind {
            SOURCE_ADDRESS => options.source = hardware(),
            TARGET_ADDRESS => options.target = hardware(),
            PREFIX if prefix_count < PREFIX_COUNT_MAX => {
                options.prefixes[prefix_count] = prefix(option);
                prefix_count += 1;
            }
            PACKET_BYTES => options.packet_bytes = Some(word(option, 4)),
            _ => {}
        }
        bytes = rest;
    }
    bytes.is_empty().then_some(options)
}

/// Reads a message, from ICMPv6's type on; `None`: it is broken, or none that is acted upon.
pub(crate) fn read(bytes: &[u8]) -> Option<Message> {
    let (kind, code) = (*bytes.first()?, *bytes.get(1)?);
    if code != 0 {
        return None;
    }
    match kind {
        NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => {
            let target = address(bytes.get(8..24)?)?;
            let options = read_options(&bytes[24..])?;
            if target.is_multicast() {
                return None;
            }
            Some(if kind == NEIGHBOUR_SOLICITATION {
                Message::NeighbourSolicitation { target, source_hardware: options.source }
            } else {
                Message::NeighbourAdvertisement { target, flags: bytes[4], target_hardware: options.target }
            })
        }
        ROUTER_ADVERTISEMENT => {
            let options = read_options(bytes.get(16..)?)?;
            Some(Message::RouterAdvertisement {
                lifetime_seconds: u16::from_be_bytes([bytes[6], bytes[7]]),
                source_hardware: options.source,
                packet_bytes_max: options.packet_bytes,
                prefixes: options.prefixes,
            })
        }
        _ => None,
    }
}

/// Bytes of a neighbour's message with its option.
pub(crate) const NEIGHBOUR_BYTES: usize = 32;

/// A question for `target`; without `own`, whether anybody has it.
pub(crate) fn solicitation(target: Ipv6Addr, own: HardwareAddress) -> [u8; NEIGHBOUR_BYTES] {
    neighbour(NEIGHBOUR_SOLICITATION, 0, target, SOURCE_ADDRESS, own)
}

/// An answer.
pub(crate) fn advertisement(target: Ipv6Addr, flags: u8, own: HardwareAddress) -> [u8; NEIGHBOUR_BYTES] {
    neighbour(NEIGHBOUR_ADVERTISEMENT, flags, target, TARGET_ADDRESS, own)
}

fn neighbour(kind: u8, flags: u8, target: Ipv6Addr, option: u8, own: HardwareAddress) -> [u8; NEIGHBOUR_BYTES] {
    let mut bytes = [0; NEIGHBOUR_BYTES];
    (bytes[0], bytes[4]) = (kind, flags);
    bytes[8..24].copy_from_slice(&target.octets());
    (bytes[24], bytes[25]) = (option, 1);
    bytes[26..].copy_from_slice(&own);
    bytes
}

/// Asks routers to announce themselves.
pub(crate) fn router_solicitation(own: HardwareAddress) -> [u8; 16] {
    let mut bytes = [0; 16];
    (bytes[0], bytes[8], bytes[9]) = (ROUTER_SOLICITATION, SOURCE_ADDRESS, 1);
    bytes[10..].copy_from_slice(&own);
    bytes
}

/// The group in which an address is asked for.
pub(crate) fn solicited_group(target: Ipv6Addr) -> Ipv6Addr {
    let octets = target.octets();
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&octets[13..]);
    Ipv6Addr::from(group)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv6Addr;

    use super::{Message, advertisement, flag, read, solicitation, solicited_group};

    const CARD: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn target() -> Ipv6Addr {
        "fe80::abcd:ef01".parse().expect("an address")
    }

    #[test]
    fn messages_are_the_same_both_ways() {
        let asked = Message::NeighbourSolicitation { target: target(), source_hardware: Some(CARD) };
        assert_eq!(read(&solicitation(target(), CARD)), Some(asked));
        let flags = flag::SOLICITED | flag::OVERRIDE;
        let answered = Message::NeighbourAdvertisement { target: target(), flags, target_hardware: Some(CARD) };
        assert_eq!(read(&advertisement(target(), flags, CARD)), Some(answered));
        assert_eq!(solicited_group(target()), "ff02::1:ffcd:ef01".parse::<Ipv6Addr>().expect("a group"));
    }

    #[test]
    fn announcements_bring_prefixes() {
        let mut bytes: Vec<u8> = [134, 0, 0, 0, 64, 0, 7, 8].to_vec();
        bytes.extend([0; 8]);
        bytes.extend([1, 1]);
        bytes.extend(CARD);
        bytes.extend([5, 1, 0, 0, 0, 0, 5, 0]);
        bytes.extend([3, 4, 64, 0xc0, 0, 0, 0, 10, 0, 0, 0, 5, 0, 0, 0, 0]);
        bytes.extend("fec0::".parse::<Ipv6Addr>().expect("a prefix").octets());
        let Some(Message::RouterAdvertisement { lifetime_seconds, source_hardware, packet_bytes_max, prefixes }) =
            read(&bytes)
        else {
            panic!("it is right")
        };
        assert_eq!((lifetime_seconds, source_hardware, packet_bytes_max), (0x708, Some(CARD), Some(1280)));
        let prefix = prefixes[0].expect("one");
        assert_eq!((prefix.bits, prefix.is_on_link, prefix.is_autonomous), (64, true, true));
        assert_eq!((prefix.valid_seconds, prefix.preferred_seconds, prefixes[1]), (10, 5, None));
        for length in 0..bytes.len() {
            let is_boundary = [16, 24, 32].contains(&length);
            assert_eq!(read(&bytes[..length]).is_some(), is_boundary, "{length}");
        }
        bytes[17] = 0;
        assert_eq!(read(&bytes), None, "an option without length");
    }
}
