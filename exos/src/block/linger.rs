//! Whether a thread that has to wait for a disk looks at it for a short time before it sleeps: [`Linger`].
//!
//! To sleep, to be interrupted and to wake costs some thousands of instructions, and on an emulated machine as much
//! time as a disk that has the data at hand takes. So a thread looks for as long as a sleep costs, where looking has
//! paid lately: after a look in vain the next waits sleep at once, twice as many after each, up to
//! [`PAUSE_COUNT_MAX`]. So a slow disk costs a look in that many requests, and one that becomes fast is found out.
//!
//! Invariants: this has no clock and no loop; whoever looks does so for [`LINGER_NS`] at most, and for no moment in
//! which another wants the processor. The words are advice: races between processors cost a look.
//!
//! Neighbours: [`super::queue`] has one for each disk; `exos/linux/src/glue/disk.rs` looks.

use core::sync::atomic::{AtomicU32, Ordering};

/// Longest look.
pub const LINGER_NS: u64 = 100_000;
/// Most waits in a row that do not look.
pub const PAUSE_COUNT_MAX: u32 = 256;

/// What looking at a disk has come to lately.
#[derive(Debug, Default)]
pub struct Linger {
    /// Waits that sleep at once before the next look.
    left_count: AtomicU32,
    /// As many as there will be after a look in vain.
    pause_count: AtomicU32,
}

impl Linger {
    /// Whether this wait looks first.
    pub fn is_due(&self) -> bool {
        let left_count = self.left_count.load(Ordering::Relaxed);
        if left_count > 0 {
            self.left_count.store(left_count - 1, Ordering::Relaxed);
        }
        left_count == 0
    }

    /// Something was there in time.
    pub fn has_paid(&self) {
        self.pause_count.store(0, Ordering::Relaxed);
    }

    /// Nothing was.
    pub fn was_in_vain(&self) {
        let pause_count = (self.pause_count.load(Ordering::Relaxed) * 2).clamp(1, PAUSE_COUNT_MAX);
        self.pause_count.store(pause_count, Ordering::Relaxed);
        self.left_count.store(pause_count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(linger: &Linger, wait_count: u32, is_fast: bool) -> u32 {
        let mut count = 0;
        for _ in 0..wait_count {
            if linger.is_due() {
                count += 1;
                if is_fast { linger.has_paid() } else { linger.was_in_vain() }
            }
        }
        count
    }

    #[test]
    fn a_fast_disk_is_always_looked_at_and_a_slow_one_ever_more_rarely() {
        let linger = Linger::default();
        assert_eq!(looks(&linger, 1000, true), 1000);
        let count = looks(&linger, 10_000, false);
        assert!((10_000 / PAUSE_COUNT_MAX..10_000 / PAUSE_COUNT_MAX + 20).contains(&count), "{count}");
    }

    #[test]
    fn one_that_becomes_fast_is_found_out() {
        let linger = Linger::default();
        looks(&linger, 10_000, false);
        assert!(looks(&linger, 2 * PAUSE_COUNT_MAX, true) >= PAUSE_COUNT_MAX);
    }
}
