//! Internet addresses as programs see them: `sockaddr_in` and `sockaddr_in6` (ip(7), ipv6(7)).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::ops::Deref;

use exos::error::{Errno, Result};
use exos::net::inet::Family;
use exos::net::inet::interface::ETHERNET_INDEX;

use super::bytes::get;
use crate::abi::linux::{AF_INET, AF_INET6, AF_UNSPEC};

/// Bytes of `sockaddr_in`.
const V4_BYTES: usize = 16;
/// Bytes of `sockaddr_in6` without its last field, as the first programs knew it.
const V6_BYTES_MIN: usize = 24;
/// Bytes of `sockaddr_in6`.
const V6_BYTES: usize = 28;

fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[2], bytes[3]])
}

/// Reads a `sockaddr_in`. `EINVAL`: too short.
fn read_v4(bytes: &[u8]) -> Result<SocketAddr> {
    let octets = bytes.get(..V4_BYTES).ok_or(Errno::EINVAL)?;
    let address = Ipv4Addr::new(octets[4], octets[5], octets[6], octets[7]);
    Ok(SocketAddr::new(IpAddr::V4(address), port(octets)))
}

/// Reads a `sockaddr_in6`, with the interface that it names. `EINVAL`: too short.
fn read_v6(bytes: &[u8]) -> Result<SocketAddr> {
    if bytes.len() < V6_BYTES_MIN {
        return Err(Errno::EINVAL);
    }
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[8..V6_BYTES_MIN]);
    let scope = if bytes.len() >= V6_BYTES { get::u32(bytes, V6_BYTES_MIN) } else { 0 };
    Ok(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port(bytes), 0, scope)))
}

/// An address as `bind` is given it. `EINVAL`: too short. `EAFNOSUPPORT`: of another family.
pub fn read_own(bytes: &[u8], family: Family) -> Result<SocketAddr> {
    let is_v4 = family == Family::V4;
    if bytes.len() < if is_v4 { V4_BYTES } else { V6_BYTES_MIN } {
        return Err(Errno::EINVAL);
    }
    match get::u16(bytes, 0) {
        AF_INET if is_v4 => read_v4(bytes),
        // As it has always been: no family, if it is no address.
        AF_UNSPEC if is_v4 && bytes[4..8] == [0; 4] => read_v4(bytes),
        AF_INET6 if !is_v4 => read_v6(bytes),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// An address as `connect` and `sendto` are given it; `None`: `AF_UNSPEC`. A socket for IPv6 that `takes_both` is also
/// told IPv4 addresses as such. `EINVAL`: too short. `EAFNOSUPPORT`: of another family.
pub fn read_other(bytes: &[u8], family: Family, takes_both: bool) -> Result<Option<SocketAddr>> {
    if bytes.len() < 2 {
        return Err(Errno::EINVAL);
    }
    match (family, get::u16(bytes, 0)) {
        (_, AF_UNSPEC) => Ok(None),
        (Family::V4, AF_INET) => read_v4(bytes).map(Some),
        (Family::V6, AF_INET6) => read_v6(bytes).map(Some),
        (Family::V6, AF_INET) if takes_both => {
            let address = read_v4(bytes)?;
            let IpAddr::V4(v4) = address.ip() else { return Ok(Some(address)) };
            Ok(Some(SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), address.port())))
        }
        (Family::V4, _) if bytes.len() < V4_BYTES => Err(Errno::EINVAL),
        (Family::V6, _) if bytes.len() < V6_BYTES_MIN => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// An address as `sendto` of a datagram is given it; `None`: the peer. As on Linux, no family is IPv4 where that is the
/// socket's, and a socket for IPv6 is told of no other family than the two. `EINVAL`, `EAFNOSUPPORT`.
pub fn read_target(bytes: &[u8], family: Family) -> Result<Option<SocketAddr>> {
    let is_v4 = family == Family::V4;
    if bytes.len() < if is_v4 { V4_BYTES } else { 2 } {
        return Err(Errno::EINVAL);
    }
    match get::u16(bytes, 0) {
        AF_UNSPEC | AF_INET if is_v4 => read_v4(bytes).map(Some),
        AF_UNSPEC | AF_INET | AF_INET6 if !is_v4 => read_other(bytes, family, true),
        _ if is_v4 => Err(Errno::EAFNOSUPPORT),
        _ => Err(Errno::EINVAL),
    }
}

/// An address as programs are told it: `struct sockaddr_in` or `sockaddr_in6`, or nothing at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressBytes {
    bytes: [u8; V6_BYTES],
    length: usize,
}

impl Deref for AddressBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// An address as programs are told it.
#[must_use]
pub fn address_bytes(address: SocketAddr) -> AddressBytes {
    let mut bytes = [0; V6_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&v4.octets());
            AddressBytes { bytes, length: V4_BYTES }
        }
        IpAddr::V6(v6) => {
            // One that is of a link alone is the card's.
            let scope = if v6.is_unicast_link_local() { ETHERNET_INDEX } else { 0 };
            bytes[..2].copy_from_slice(&AF_INET6.to_le_bytes());
            bytes[8..24].copy_from_slice(&v6.octets());
            bytes[24..].copy_from_slice(&scope.to_le_bytes());
            AddressBytes { bytes, length: V6_BYTES }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, address_bytes, read_other, read_own, read_target};
    use exos::error::Errno;

    #[test]
    fn addresses_are_read_and_written() {
        let v4 = "127.0.0.1:8080".parse().unwrap();
        let bytes = address_bytes(v4);
        assert_eq!(bytes[..], [2, 0, 31, 144, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read_own(&bytes, Family::V4), Ok(v4));
        assert_eq!(read_own(&bytes[..15], Family::V4), Err(Errno::EINVAL));
        assert_eq!(read_own(&bytes, Family::V6), Err(Errno::EINVAL), "too short for its family");
        let v6 = "[::1]:80".parse().unwrap();
        let bytes = address_bytes(v6);
        assert_eq!((bytes.len(), read_own(&bytes, Family::V6)), (28, Ok(v6)));
        assert_eq!(read_own(&bytes, Family::V4), Err(Errno::EAFNOSUPPORT));
        assert_eq!(read_own(&[0; 16], Family::V4), Ok("0.0.0.0:0".parse().unwrap()));
    }

    #[test]
    fn no_family_is_no_address_and_mapped_ones_may_be_told_as_they_are() {
        assert_eq!(read_other(&[0; 2], Family::V4, false), Ok(None));
        assert_eq!(read_other(&[1], Family::V4, false), Err(Errno::EINVAL));
        let bytes = address_bytes("10.0.0.1:7".parse().unwrap());
        assert_eq!(read_other(&bytes, Family::V6, true), Ok(Some("[::ffff:10.0.0.1]:7".parse().unwrap())));
        assert_eq!(read_other(&bytes, Family::V6, false), Err(Errno::EINVAL));
    }

    #[test]
    fn a_datagram_goes_where_no_family_is_named() {
        let mut bytes = address_bytes("127.0.0.1:7".parse().unwrap()).to_vec();
        bytes[0] = 0;
        assert_eq!(read_target(&bytes, Family::V4), Ok(Some("127.0.0.1:7".parse().unwrap())));
        assert_eq!(read_target(&bytes[..15], Family::V4), Err(Errno::EINVAL));
        assert_eq!(read_target(&bytes, Family::V6), Ok(None));
        bytes[0] = 1;
        assert_eq!(read_target(&bytes, Family::V4), Err(Errno::EAFNOSUPPORT));
        assert_eq!(read_target(&bytes, Family::V6), Err(Errno::EINVAL));
        assert_eq!(read_target(&[], Family::V6), Err(Errno::EINVAL));
    }
}
