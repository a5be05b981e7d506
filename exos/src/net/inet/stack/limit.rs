//! How many ICMP errors are sent: as Linux limits them, so many a second to each destination and to all.
//!
//! A destination may be told one a second, and six at once (`icmp_ratelimit`, `XRLIM_BURST_FACTOR`); all together a
//! thousand a second and fifty at once (`icmp_msgs_per_sec`, `icmp_msgs_burst`). Answers to echo requests are no errors
//! and are not limited.

use core::net::IpAddr;

/// Between two errors to one destination.
const EVERY_NS: u64 = 1_000_000_000;
/// Errors to one destination at once.
const BURST: u64 = 6;
/// Between two errors to any.
const ALL_EVERY_NS: u64 = 1_000_000;
/// Errors to any at once.
const ALL_BURST: u64 = 50;
/// Destinations that are remembered; the one that has waited longest makes room.
const DESTINATION_COUNT_MAX: usize = 64;

/// What may be sent, as the time from which on it would have been saved up.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    since_ns: u64,
}

impl Bucket {
    /// Takes one, if there is one.
    fn take(&mut self, now_ns: u64, every_ns: u64, burst: u64) -> bool {
        let since_ns = self.since_ns.max(now_ns.saturating_sub(every_ns * burst));
        let is_free = now_ns.saturating_sub(since_ns) >= every_ns;
        self.since_ns = if is_free { since_ns + every_ns } else { since_ns };
        is_free
    }
}

/// The limits.
#[derive(Debug)]
pub(crate) struct Limits {
    all: Option<Bucket>,
    destinations: [Option<(IpAddr, Bucket)>; DESTINATION_COUNT_MAX],
}

impl Default for Limits {
    fn default() -> Self {
        Self { all: None, destinations: [None; DESTINATION_COUNT_MAX] }
    }
}

impl Limits {
    /// Whether an error may be sent now, which then counts.
    pub(crate) fn allow(&mut self, destination: IpAddr, now_ns: u64) -> bool {
        // Time begins with the machine: what is saved up at its start is as much as later.
        let now_ns = now_ns.saturating_add(EVERY_NS * BURST);
        let all = self.all.get_or_insert(Bucket { since_ns: 0 });
        if !all.take(now_ns, ALL_EVERY_NS, ALL_BURST) {
            return false;
        }
        let age = |place: &Option<(IpAddr, Bucket)>| match place {
            Some((known, _)) if *known == destination => (0, 0),
            None => (1, 0),
            Some((_, bucket)) => (2, bucket.since_ns),
        };
        let Some(place) = self.destinations.iter_mut().min_by_key(|place| age(place)) else { return false };
        match place {
            Some((known, bucket)) if *known == destination => bucket.take(now_ns, EVERY_NS, BURST),
            _ => {
                let mut bucket = Bucket { since_ns: 0 };
                let is_free = bucket.take(now_ns, EVERY_NS, BURST);
                *place = Some((destination, bucket));
                is_free
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::{ALL_BURST, BURST, DESTINATION_COUNT_MAX, EVERY_NS, Limits};

    fn at(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(last))
    }

    #[test]
    fn each_has_six_and_then_one_a_second() {
        for begin in [0, 5_000_000_000_000] {
            let mut limits = Limits::default();
            let sent = |limits: &mut Limits, now| (0..20).filter(|_| limits.allow(at(1), begin + now)).count() as u64;
            assert_eq!(sent(&mut limits, 0), BURST);
            assert_eq!(sent(&mut limits, EVERY_NS - 1), 0);
            assert_eq!(sent(&mut limits, EVERY_NS), 1);
            assert_eq!(sent(&mut limits, 100 * EVERY_NS), BURST);
        }
    }

    #[test]
    fn all_together_are_limited_too() {
        let mut limits = Limits::default();
        let sent = (0..10_000).filter(|last| limits.allow(at(*last), 0)).count() as u64;
        assert_eq!(sent, ALL_BURST);
        // A thousand a second, whoever asks.
        let sent = (0..10_000).filter(|last| limits.allow(at(*last), u64::from(*last) * 100_000)).count();
        assert!((900..=1100).contains(&sent), "{sent}");
        assert_eq!(limits.destinations.iter().flatten().count(), DESTINATION_COUNT_MAX);
    }
}
