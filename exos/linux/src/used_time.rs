//! Processor time, and what of it exos had: user time and system time, as `getrusage` and `/proc` tell them.
//!
//! How much a thread uses is measured at each switch. How much of that exos used for it is sampled, as Linux does
//! without precise accounting: a processor that runs a thread looks every [`SAMPLE_NS`] whether it was in exos, and
//! what the thread uses until the next look counts as that. So a call that takes some hundred instructions reads no
//! clock, and neither of the two sums ever goes back.
//!
//! Neighbours: [`crate::process`], which has the sums; `glue/processor.rs`, which has the bell that asks for the look.

use core::ops::{Add, AddAssign};

/// From one look to the next.
pub const SAMPLE_NS: u64 = 10_000_000;

/// Processor time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedTime {
    /// All of it.
    pub whole_ns: u64,
    /// What exos used on the program's behalf.
    pub system_ns: u64,
}

impl UsedTime {
    /// What the program used itself.
    #[must_use]
    pub const fn user_ns(self) -> u64 {
        self.whole_ns.saturating_sub(self.system_ns)
    }
}

impl Add for UsedTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (whole_ns, system_ns) = (self.whole_ns + other.whole_ns, self.system_ns + other.system_ns);
        Self { whole_ns, system_ns }
    }
}

impl AddAssign for UsedTime {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for UsedTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Self::add)
    }
}

/// A thread's samples.
#[derive(Debug, Default)]
pub struct Samples {
    /// What it had used at the last look.
    looked_at_ns: u64,
    /// System time up to then.
    system_ns: u64,
    /// It was in exos then.
    was_in_system: bool,
}

impl Samples {
    /// Somebody has looked: the thread, which has used so much, is in exos or not.
    pub fn look(&mut self, whole_ns: u64, is_in_system: bool) {
        self.system_ns = self.system_ns(whole_ns);
        (self.looked_at_ns, self.was_in_system) = (whole_ns.max(self.looked_at_ns), is_in_system);
    }

    /// System time of a thread that has used so much.
    #[must_use]
    pub fn system_ns(&self, whole_ns: u64) -> u64 {
        let since_ns = if self.was_in_system { whole_ns.saturating_sub(self.looked_at_ns) } else { 0 };
        self.system_ns + since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{Samples, UsedTime};

    #[test]
    fn what_follows_a_look_is_what_it_saw() {
        let mut samples = Samples::default();
        assert_eq!(samples.system_ns(50), 0);
        samples.look(100, true);
        assert_eq!((samples.system_ns(100), samples.system_ns(130)), (0, 30));
        samples.look(200, false);
        assert_eq!((samples.system_ns(200), samples.system_ns(900)), (100, 100));
        let times = [UsedTime { whole_ns: 900, system_ns: 100 }, UsedTime { whole_ns: 5, system_ns: 5 }];
        let sum: UsedTime = times.into_iter().sum();
        assert_eq!((sum.user_ns(), sum.system_ns), (800, 105));
    }

    #[test]
    fn neither_goes_back() {
        let (mut samples, mut whole_ns, mut before) = (Samples::default(), 0, UsedTime::default());
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..10_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            whole_ns += state % 1000;
            if state >> 20 & 3 == 0 {
                samples.look(whole_ns, state >> 30 & 1 == 0);
            }
            let now = UsedTime { whole_ns, system_ns: samples.system_ns(whole_ns) };
            assert!(now.system_ns >= before.system_ns && now.user_ns() >= before.user_ns());
            assert!(now.system_ns <= whole_ns);
            before = now;
        }
        assert!(before.system_ns > whole_ns / 4 && before.user_ns() > whole_ns / 4, "{before:?}");
    }
}
