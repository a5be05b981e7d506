//! Names in scripts: addresses, flags, and `key value` words.

use std::net::{IpAddr, Ipv4Addr};

/// Ethernet address of the guest's card, QEMU's own choice.
pub(super) const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Ethernet address of the peer, whichever its Internet addresses.
pub(super) const PEER_MAC: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
/// Names of addresses. `dead` never answers ARP or neighbour discovery; `far` is behind the router, which is `peer`.
const NAMES: [(&str, &str); 24] = [
    ("guest", "10.0.2.15"),
    ("peer", "10.0.2.2"),
    ("peer1", "10.0.2.101"),
    ("peer2", "10.0.2.102"),
    ("peer3", "10.0.2.103"),
    ("peer4", "10.0.2.104"),
    ("peer5", "10.0.2.105"),
    ("dead", "10.0.2.66"),
    ("far", "192.0.2.7"),
    ("bcast", "10.0.2.255"),
    ("all", "255.255.255.255"),
    ("group", "224.0.0.1"),
    ("any", "0.0.0.0"),
    ("lo", "127.0.0.1"),
    ("guest6", "fec0::15"),
    ("peer6", "fec0::2"),
    ("peer61", "fec0::101"),
    ("dead6", "fec0::66"),
    ("far6", "2001:db8::7"),
    ("group6", "ff02::1"),
    ("any6", "::"),
    ("lo6", "::1"),
    ("link6", "fe80::5054:ff:fe12:3456"),
    ("peerlink6", "fe80::2"),
];
const FLAGS: [(char, u8); 8] = [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('A', 16), ('U', 32), ('E', 64), ('C', 128)];

/// An address by its name or as it is written everywhere.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    let named = NAMES.iter().find(|(name, _)| *name == text).map_or(text, |(_, address)| address);
    named.parse().map_err(|_| format!("{text}: no address"))
}

/// An address from its bytes, 4 or 16.
pub(super) fn address_of(bytes: &[u8]) -> IpAddr {
    match <[u8; 16]>::try_from(bytes) {
        Ok(octets) => IpAddr::from(octets),
        Err(_) => IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap_or_default()),
    }
}

/// The name of an address, or its digits.
pub(super) fn address_name(address: IpAddr) -> String {
    let digits = address.to_string();
    NAMES.iter().find(|(_, it)| *it == digits).map_or(digits.clone(), |(name, _)| (*name).into())
}

/// Whether the peer is at an address.
pub(super) fn is_peers(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.octets()[..3] == [10, 0, 2] && ![15, 66, 255].contains(&it.octets()[3]),
        IpAddr::V6(it) => {
            let is_near = it.segments()[..4] == [0xfec0, 0, 0, 0] || it.segments()[..4] == [0xfe80, 0, 0, 0];
            is_near && !["guest6", "dead6", "link6"].contains(&address_name(address).as_str())
        }
    }
}

/// The Ethernet address of a group or of everybody, if the address is one of those.
pub(super) fn group_mac(address: IpAddr) -> Option<[u8; 6]> {
    match address {
        IpAddr::V4(it) if it == Ipv4Addr::BROADCAST || it == Ipv4Addr::new(10, 0, 2, 255) => Some([255; 6]),
        IpAddr::V4(it) if it.is_multicast() => {
            let [_, b, c, d] = it.octets();
            Some([1, 0, 0x5e, b & 127, c, d])
        }
        IpAddr::V6(it) if it.is_multicast() => {
            let octets = it.octets();
            Some([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
        }
        _ => None,
    }
}

/// Flags of a TCP segment by their letters; `none` has none.
pub(super) fn flags(text: &str) -> Result<u8, String> {
    if text == "none" {
        return Ok(0);
    }
    text.chars().try_fold(0, |sum, letter| {
        let bit = FLAGS.iter().find(|(it, _)| *it == letter).ok_or(format!("{text}: no flags"))?;
        Ok(sum | bit.1)
    })
}

/// Letters of flags, in the order in which people say them; push is left out, because nobody acts on it.
pub(super) fn flag_letters(flags: u8) -> String {
    let order = ['S', 'F', 'R', 'A', 'U', 'E', 'C'];
    let is_set = |letter: &char| FLAGS.iter().any(|(it, bit)| it == letter && flags & bit != 0);
    let text: String = order.into_iter().filter(is_set).collect();
    if text.is_empty() { "none".into() } else { text }
}

/// `key value` words of a layer, each of which has to be asked for once.
#[derive(Debug)]
pub(super) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    pub(super) fn new(words: &[&'a str]) -> Self {
        Self(words.to_vec())
    }

    /// The next word.
    pub(super) fn first(&mut self) -> Result<&'a str, String> {
        if self.0.is_empty() {
            return Err("a word is missing".into());
        }
        Ok(self.0.remove(0))
    }

    /// The word behind `key`.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<&'a str>, String> {
        let Some(at) = self.0.iter().position(|word| *word == key) else { return Ok(None) };
        if at + 1 == self.0.len() {
            return Err(format!("{key}: its value is missing"));
        }
        self.0.remove(at);
        Ok(Some(self.0.remove(at)))
    }

    /// The number behind `key`.
    pub(super) fn number(&mut self, key: &str) -> Result<Option<i64>, String> {
        self.text(key)?.map(number).transpose()
    }

    /// The word that has this shape, if there is one.
    pub(super) fn bracketed(&mut self) -> Option<&'a str> {
        let at = self.0.iter().position(|word| word.starts_with('<') && word.ends_with('>'))?;
        Some(self.0.remove(at).trim_matches(['<', '>']))
    }

    /// Refuses words that nobody asked for.
    pub(super) fn end(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("not understood: {}", self.0.join(" "))) }
    }
}

/// A number, decimal or `0x`.
pub(super) fn number(text: &str) -> Result<i64, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    value.ok_or(format!("{text}: no number"))
}

/// Bytes from pairs of hexadecimal digits.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("{text}: no bytes");
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    pairs.collect::<Result<_, _>>().map_err(|_| wrong())
}
