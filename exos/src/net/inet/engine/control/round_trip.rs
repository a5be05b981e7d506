//! How long a round trip takes, and how long is waited for an acknowledgement (RFC 6298, with Linux's bounds).

/// What is waited at least beyond the round trip.
const VARIANCE_NS_MIN: u64 = 200_000_000;
/// What is waited before anything was measured.
const TIMEOUT_NS_FIRST: u64 = 1_000_000_000;
/// What is waited at most.
pub(super) const TIMEOUT_NS_MAX: u64 = 120_000_000_000;

/// An estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundTrip {
    /// Smoothed; 0: nothing was measured.
    pub(super) smoothed_ns: u64,
    pub(super) variance_ns: u64,
    /// The shortest.
    pub(super) least_ns: u64,
    /// Times that a timeout was doubled.
    pub(super) doubled_count: u32,
}

impl RoundTrip {
    pub(super) fn new(sample_ns: Option<u64>) -> Self {
        let mut this = Self { smoothed_ns: 0, variance_ns: 0, least_ns: u64::MAX, doubled_count: 0 };
        sample_ns.into_iter().for_each(|sample_ns| this.note(sample_ns));
        this
    }

    /// A round trip was measured.
    pub(super) fn note(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.clamp(1000, TIMEOUT_NS_MAX);
        self.least_ns = self.least_ns.min(sample_ns);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variance_ns) = (sample_ns, sample_ns / 2);
            return;
        }
        let difference = self.smoothed_ns.abs_diff(sample_ns);
        self.variance_ns = self.variance_ns - self.variance_ns / 4 + difference / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8;
    }

    /// How long is waited, without what it was doubled.
    pub(super) fn base_timeout_ns(&self) -> u64 {
        match self.smoothed_ns {
            0 => TIMEOUT_NS_FIRST,
            smoothed_ns => (smoothed_ns + (4 * self.variance_ns).max(VARIANCE_NS_MIN)).min(TIMEOUT_NS_MAX),
        }
    }

    /// How long is waited for an acknowledgement.
    pub(super) fn timeout_ns(&self) -> u64 {
        (self.base_timeout_ns() << self.doubled_count.min(12)).min(TIMEOUT_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{RoundTrip, TIMEOUT_NS_MAX};

    const MS: u64 = 1_000_000;

    #[test]
    fn it_waits_as_linux_does() {
        let mut trip = RoundTrip::new(None);
        assert_eq!(trip.timeout_ns(), 1000 * MS);
        trip.note(10 * MS);
        assert_eq!(trip.timeout_ns(), 210 * MS);
        trip.doubled_count = 3;
        assert_eq!(trip.timeout_ns(), 8 * 210 * MS);
        trip.doubled_count = 60;
        assert_eq!(trip.timeout_ns(), TIMEOUT_NS_MAX);
    }

    #[test]
    fn it_comes_near_what_is_measured() {
        let mut trip = RoundTrip::new(Some(100 * MS));
        (0..200).for_each(|_| trip.note(300 * MS));
        assert!(trip.smoothed_ns.abs_diff(300 * MS) < MS, "{trip:?}");
        assert!(trip.variance_ns < MS, "{trip:?}");
        assert_eq!(trip.least_ns, 100 * MS);
    }
}
