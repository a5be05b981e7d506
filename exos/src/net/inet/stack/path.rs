//! Paths on which less than the card's longest packet gets through (RFC 1191, RFC 8201): a bounded table, in which what
//! was heard last counts for [`VALID_NS`], as on Linux.

use core::net::IpAddr;

/// Paths that are remembered.
const PATH_COUNT_MAX: usize = 64;
/// How long (`mtu_expires`).
const VALID_NS: u64 = 600_000_000_000;
/// Nothing shorter is believed (`min_pmtu`; RFC 8200).
const V4_BYTES_MIN: u16 = 552;
const V6_BYTES_MIN: u16 = 1280;

/// The paths.
#[derive(Debug)]
pub(crate) struct Paths([Option<(IpAddr, u16, u64)>; PATH_COUNT_MAX]);

impl Default for Paths {
    fn default() -> Self {
        Self([None; PATH_COUNT_MAX])
    }
}

impl Paths {
    /// Notes that packets to `destination` have at most so many bytes; what they may have then, if that is less than
    /// `now_bytes`.
    pub(crate) fn note(&mut self, destination: IpAddr, bytes: u16, now_bytes: usize, now_ns: u64) -> Option<u16> {
        let bytes = bytes.max(if destination.is_ipv4() { V4_BYTES_MIN } else { V6_BYTES_MIN });
        if usize::from(bytes) >= now_bytes {
            return None;
        }
        let entry = Some((destination, bytes, now_ns.saturating_add(VALID_NS)));
        let age = |place: &Option<(IpAddr, u16, u64)>| match place {
            Some((known, _, _)) if *known == destination => 0,
            None => 1,
            Some((_, _, until_ns)) => (*until_ns).max(2),
        };
        *self.0.iter_mut().min_by_key(|place| age(place))? = entry;
        Some(bytes)
    }

    /// The most that gets through to `destination`, if that is known.
    pub(crate) fn bytes_max(&self, destination: IpAddr, now_ns: u64) -> Option<u16> {
        let mut known = self.0.iter().flatten();
        known.find(|(known, _, until_ns)| *known == destination && now_ns < *until_ns).map(|(_, bytes, _)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::{PATH_COUNT_MAX, Paths, VALID_NS};

    #[test]
    fn paths_only_become_shorter_within_bounds_and_for_a_time() {
        let mut paths = Paths::default();
        let at = |last: u32| IpAddr::V4(Ipv4Addr::from_bits(last));
        assert_eq!(paths.note(at(1), 1400, 1500, 0), Some(1400));
        assert_eq!(paths.note(at(1), 1450, 1400, 0), None);
        assert_eq!(paths.note(at(1), 68, 1400, 0), Some(552));
        assert_eq!((paths.bytes_max(at(1), 1), paths.bytes_max(at(1), VALID_NS)), (Some(552), None));
        let v6 = "2001:db8::1".parse().expect("an address");
        assert_eq!(paths.note(v6, 0, 1500, 0), Some(1280));
        (2..200).for_each(|last| assert!(paths.note(at(last), 600, 1500, u64::from(last)).is_some()));
        assert_eq!(paths.0.iter().flatten().count(), PATH_COUNT_MAX);
        assert_eq!((paths.bytes_max(at(1), 200), paths.bytes_max(at(199), 200)), (None, Some(600)));
    }
}
