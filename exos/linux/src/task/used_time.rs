//! Processor time, and what of it exos had: user time and system time, as `getrusage` and `/proc` tell them.
//!
//! How much a thread uses is measured at each switch. How much of that exos used for it is sampled, as Linux does
//! without precise accounting: a processor that runs a thread looks every [`SAMPLE_NS`] whether it was in exos, and
//! what the thread uses until the next look counts as that. So a call that takes some hundred instructions reads no
//! clock, and neither of the two sums ever goes back.
//!
//! Neighbours: [`crate::task::process`], which sums them up; `glue/processor.rs`, which has the bell that asks for
//! the look.

use core::ops::{Add, AddAssign};
use core::sync::atomic::{AtomicU64, Ordering};

use exos::sync::SpinMutex;

/// From one look to the next.
pub const SAMPLE_NS: u64 = 10_000_000;

/// Processor time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedTime {
    /// User and system time, in nanoseconds.
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

/// A thread's processor time. Its processor measures it while others sum it up: nobody is told less than was told
/// before, of all of it and of each part.
#[derive(Debug, Default)]
pub struct ThreadTime {
    /// Up to its last dispatch.
    used_ns: AtomicU64,
    /// When that was; 0: it is not running.
    dispatched_ns: AtomicU64,
    /// Most that was told.
    told_ns: AtomicU64,
    /// What of that exos used.
    samples: SpinMutex<Samples>,
}

impl ThreadTime {
    /// A processor runs the thread.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.dispatched_ns.load(Ordering::Relaxed) != 0
    }

    /// All that it has used.
    #[must_use]
    pub fn used_ns(&self, now_ns: u64) -> u64 {
        let used_ns = loop {
            let dispatched_ns = self.dispatched_ns.load(Ordering::Acquire);
            let used_ns = self.used_ns.load(Ordering::Acquire);
            let since_ns = if dispatched_ns == 0 { 0 } else { now_ns.saturating_sub(dispatched_ns) };
            // It may have stopped meanwhile, and then a part would be counted twice.
            if self.dispatched_ns.load(Ordering::Acquire) == dispatched_ns {
                break used_ns + since_ns;
            }
        };
        // One that is just stopping seems to have used less, as does one that others' time is taken off, or one that is
        // looked at with a time that was read before.
        self.told_ns.fetch_max(used_ns, Ordering::Relaxed).max(used_ns)
    }

    /// The same, with what of it exos used.
    #[must_use]
    pub fn used_time(&self, now_ns: u64) -> UsedTime {
        // First the samples: no look may come between the sum and its parts.
        let samples = self.samples.lock();
        let whole_ns = self.used_ns(now_ns);
        UsedTime { whole_ns, system_ns: samples.system_ns(whole_ns) }
    }

    /// The same once it has stopped for good.
    #[must_use]
    pub fn used_in_all(&self) -> UsedTime {
        self.used_time(0)
    }

    /// Its processor has looked whether it is in exos. Called by that processor only.
    pub fn sample(&self, is_in_system: bool, now_ns: u64) {
        let mut samples = self.samples.lock();
        samples.look(self.used_ns(now_ns), is_in_system);
    }

    /// For `lost_ns` of the time since a processor began to run it, other environments had that processor, which says
    /// so.
    pub fn forgive(&self, lost_ns: u64, now_ns: u64) {
        let dispatched_ns = self.dispatched_ns.load(Ordering::Relaxed);
        if dispatched_ns != 0 {
            self.dispatched_ns.store(dispatched_ns.saturating_add(lost_ns).min(now_ns), Ordering::Relaxed);
        }
    }

    /// Notes that a processor begins to run it (`true`) or has stopped. Called by that processor only.
    #[inline]
    pub fn note_dispatch(&self, is_running: bool, now_ns: u64) {
        if is_running {
            return self.dispatched_ns.store(now_ns, Ordering::Relaxed);
        }
        let before_ns = self.dispatched_ns.load(Ordering::Relaxed);
        self.dispatched_ns.store(0, Ordering::Release);
        if before_ns != 0 {
            let used_ns = self.used_ns.load(Ordering::Relaxed) + now_ns.saturating_sub(before_ns);
            self.used_ns.store(used_ns, Ordering::Release);
        }
    }
}

/// What those used that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoneTimes {
    /// Of threads that have ended.
    pub ended_threads: UsedTime,
    /// Of children that were waited for, and theirs.
    pub children: UsedTime,
    /// Most memory that any of these had at once, in bytes.
    pub children_peak_bytes: u64,
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::{Samples, ThreadTime, UsedTime};

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

    /// Looks while a thread stops, while others' time is taken off its own, or while its processor samples it.
    #[test]
    fn nobody_is_told_less_than_before() {
        let thread = ThreadTime::default();
        thread.note_dispatch(true, 1_000);
        assert_eq!(thread.used_ns(5_000), 4_000);
        thread.forgive(3_000, 5_000);
        assert_eq!((thread.used_ns(5_500), thread.used_ns(9_000)), (4_000, 5_000));
        thread.note_dispatch(false, 9_000);
        assert_eq!(thread.used_in_all().whole_ns, 5_000);
        let clock = AtomicU64::new(10_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..100_000_u64 {
                    thread.note_dispatch(true, clock.fetch_add(10, Ordering::AcqRel));
                    if turn % 16 == 0 {
                        thread.sample(turn % 32 == 0, clock.load(Ordering::Acquire));
                    }
                    thread.note_dispatch(false, clock.fetch_add(10, Ordering::AcqRel));
                }
                clock.store(u64::MAX, Ordering::Release);
            });
            let (mut before, mut now_ns) = (UsedTime::default(), 0);
            while now_ns != u64::MAX {
                let used = thread.used_time(now_ns);
                assert!(used.whole_ns >= before.whole_ns, "{used:?} after {before:?}");
                assert!(used.system_ns >= before.system_ns, "{used:?} after {before:?}");
                assert!(used.user_ns() >= before.user_ns(), "{used:?} after {before:?}");
                assert!(used.whole_ns <= clock.load(Ordering::Acquire).saturating_add(5_000), "{used:?}");
                (before, now_ns) = (used, clock.load(Ordering::Acquire));
            }
        });
        assert_eq!(thread.used_in_all().whole_ns, 5_000 + 1_000_000);
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
