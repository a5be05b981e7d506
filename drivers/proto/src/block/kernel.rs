//! How a client reaches a service that is placed in the kernel: the operations of the one call that an extended kernel
//! has for all of its extension. The session is the same; what a bell says elsewhere is said by a call.

use core::sync::atomic::{AtomicU32, Ordering};

/// An operation; the words behind it are in the order of its description, the rest is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    /// Disk number `first`. Value: its device function, counted from the first, and in the upper half which of the
    /// function's interrupts is the disk's. Whether there is a disk is for [`KernelCall::Attach`] to find.
    Find = 0,
    /// Disk `first`, frame `second`, `third` frames: a range that the caller has bound for the function, exactly, is
    /// number `fourth` from now on, which is what a buffer's slot names; one that has the number already is refused.
    Register = 1,
    /// Disk `first`, frame `second`, `third` frames: such a range is the caller's session. Starts the disk if nobody
    /// has yet.
    Attach = 2,
    /// Disk `first`: does everything that can be done now. Value: 1 if there may be more at once.
    Visit = 3,
    /// Disk `first`: the same; then the function may interrupt when there is something. Value: 1 if there is already.
    Ask = 4,
    /// Disk `first`: resets a disk that hangs. Value: resets so far.
    Watch = 5,
    /// Disk `first`: the caller's session and ranges end.
    Detach = 6,
}

impl KernelCall {
    /// The value of [`KernelCall::Find`].
    #[must_use]
    pub const fn found(function: u32, interrupt: u32) -> u64 {
        function as u64 | (interrupt as u64) << 32
    }

    /// The operation of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        use KernelCall::{Ask, Attach, Detach, Find, Register, Visit, Watch};
        [Find, Register, Attach, Visit, Ask, Watch, Detach].into_iter().find(|call| *call as u64 == number)
    }
}

/// Visits that one processor makes for others, before it leaves the rest to those who come.
const ROUND_COUNT_MAX: u32 = 8;

/// Visits by a call that several processors want: one makes them for all, while the others would only wait for the
/// kernel's lock.
#[derive(Debug, Default)]
pub struct Visits {
    /// Those that were wanted since the one that is under way began, with that one; 0: none is.
    wanted_count: AtomicU32,
}

impl Visits {
    /// None is under way.
    #[must_use]
    pub const fn new() -> Self {
        Self { wanted_count: AtomicU32::new(0) }
    }

    /// Has `visit` done after all that the caller did before: by the caller, or by one who is within a visit and makes
    /// another.
    pub fn visit(&self, mut visit: impl FnMut()) {
        if self.wanted_count.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let mut seen_count = 1;
        for _ in 0..ROUND_COUNT_MAX {
            visit();
            match self.wanted_count.compare_exchange(seen_count, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(wanted_count) => seen_count = wanted_count,
            }
        }
        // Whoever comes from here on visits by himself.
        self.wanted_count.swap(0, Ordering::AcqRel);
        visit();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::Visits;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn whatever_was_put_before_is_seen_by_a_visit_that_begins_after_it() {
        let (visits, put, seen) = (Visits::new(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        put.fetch_add(1, Ordering::Relaxed);
                        visits.visit(|| {
                            seen.fetch_max(put.load(Ordering::Relaxed), Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), put.into_inner());
        let mut count = 0;
        visits.visit(|| count += 1);
        assert_eq!(count, 1, "nobody is within a visit any more");
    }

    #[test]
    fn one_that_is_wanted_within_a_visit_comes_after_it_and_they_have_an_end() {
        let (visits, mut count, mut other_count) = (Visits::new(), 0, 0);
        visits.visit(|| {
            count += 1;
            visits.visit(|| other_count += 1);
        });
        // Of those that came within a visit the last found that nobody would make another.
        assert_eq!((count, other_count), (super::ROUND_COUNT_MAX + 1, 1));
    }
}
