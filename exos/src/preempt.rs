//! Preemption points: places in long work where the processor is given up, and where a call learns that it is to end.
//!
//! exos runs with upcalls masked (`docs/adr/0015`), so a call that copies 64 MiB or frees a million pages would keep
//! its processor for as long as that takes. Such work is done in pieces ([`PIECE_BYTES`], [`PIECE_COUNT`]) with a point
//! between two of them. At a point whatever the processor was told meanwhile is taken in, and a task with precedence
//! runs; when the thread goes on, the point says what has become of it ([`Interruption`]). A point at which nothing
//! happened is a look at two words.
//!
//! A point is a wait: what may not be held over a wait (a [`crate::sync::SpinMutex`], and every lock that is taken
//! while a processor is idle or takes in what it was told: those of the frame pool, of processes, signals, timers,
//! terminals and wait queues) may not be held here. Other locks may, but those that other processes need
//! should not be; and what was looked at before a point under a lock that was given up is looked at again behind it.
//!
//! What an interruption means is the call's business. As on Linux, work that has to be done once it has begun
//! (unmapping, closing, giving memory back) is only preempted ([`offer`]); what is short when it ends early (files,
//! lists) ends for a signal that ends the process ([`unless_killed`]); what has no end that a thread waits for (random
//! bytes, copies from file to file) ends for every signal ([`unless_signalled`]).
//!
//! Neighbours: `exos/linux/src/glue/preemption.rs`, which names what is done; tests of the host do without or count.

use crate::error::{Errno, Result};
use crate::sync::Once;

/// Bytes that are copied between two points: some 10,000 instructions, and well below a millisecond.
pub const PIECE_BYTES: usize = 64 * 1024;
/// Things (names, descriptors, entries of tables) that are looked at between two points, where one takes some hundred
/// instructions at most.
pub const PIECE_COUNT: usize = 256;

/// What a page that is moved counts among such things.
pub const PAGE_COUNT: usize = PIECE_COUNT / (PIECE_BYTES / 4096);

/// What has become of the thread that works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interruption {
    /// Go on.
    #[default]
    None,
    /// A signal waits to be delivered, or the process is stopped.
    Signal,
    /// The thread or its process ends.
    Kill,
}

static POINT: Once<fn() -> Interruption> = Once::new();

/// Names what is done at a point; the first call counts. Without one nothing is.
pub fn set_point(point: fn() -> Interruption) {
    POINT.call_once(|| point);
}

/// A preemption point.
#[inline]
#[must_use]
pub fn point() -> Interruption {
    match POINT.get() {
        Some(point) => point(),
        None => Interruption::None,
    }
}

/// A preemption point in work that is done to its end.
#[inline]
pub fn offer() {
    let _ = point();
}

/// A preemption point in work that only the end of its process ends.
///
/// # Errors
/// `EINTR`: the thread ends.
#[inline]
pub fn unless_killed() -> Result<()> {
    if point() == Interruption::Kill { Err(Errno::EINTR) } else { Ok(()) }
}

/// A preemption point in work that every signal ends.
///
/// # Errors
/// `EINTR`: a signal waits.
#[inline]
pub fn unless_signalled() -> Result<()> {
    if point() == Interruption::None { Ok(()) } else { Err(Errno::EINTR) }
}

/// Counts what was done up to the next point, where a piece is made of many small things.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    done: usize,
}

impl Pace {
    /// Notes one thing more; true after every [`PIECE_COUNT`]: a point is due.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.is_due_after(1)
    }

    /// Notes `count` things more, of which one takes as long as one that [`Self::is_due`] notes.
    #[inline]
    pub fn is_due_after(&mut self, count: usize) -> bool {
        self.done += count;
        let is_due = self.done >= PIECE_COUNT;
        if is_due {
            self.done = 0;
        }
        is_due
    }

    /// As [`Self::offer`] for `count` things more, of which one takes as long as one that [`Self::is_due`] notes.
    #[inline]
    pub fn offer_after(&mut self, count: usize) {
        if self.is_due_after(count) {
            offer();
        }
    }

    /// Notes one thing more, with a point where it is due, in work that is done to its end.
    #[inline]
    pub fn offer(&mut self) {
        if self.is_due() {
            offer();
        }
    }

    /// Notes a page that is moved, in work that is done to its end.
    #[inline]
    pub fn offer_page(&mut self) {
        if self.is_due_after(PAGE_COUNT) {
            offer();
        }
    }

    /// Notes a page that is moved, in work that only the end of its process ends.
    ///
    /// # Errors
    /// `EINTR`: the thread ends.
    #[inline]
    pub fn page_unless_killed(&mut self) -> Result<()> {
        if self.is_due_after(PAGE_COUNT) { unless_killed() } else { Ok(()) }
    }

    /// As [`Self::offer`], in work that only the end of its process ends.
    ///
    /// # Errors
    /// `EINTR`: the thread ends.
    #[inline]
    pub fn unless_killed(&mut self) -> Result<()> {
        if self.is_due() { unless_killed() } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod test_support {
    //! Interruptions at points that a test chose. Each test has a thread of its own, so others do not meet them.

    use super::{Interruption, set_point};
    use std::cell::Cell;

    std::thread_local! {
        static POINTS_LEFT: Cell<Option<(u64, Interruption)>> = const { Cell::new(None) };
        static POINT_COUNT: Cell<u64> = const { Cell::new(0) };
    }

    fn note_point() -> Interruption {
        POINT_COUNT.set(POINT_COUNT.get() + 1);
        match POINTS_LEFT.get() {
            Some((0, interruption)) => interruption,
            Some((left, interruption)) => {
                POINTS_LEFT.set(Some((left - 1, interruption)));
                Interruption::None
            }
            None => Interruption::None,
        }
    }

    /// Runs `work`, of which `interruption` is told at all points behind the first `point_count`; how many points
    /// it met.
    pub(crate) fn interrupted_after<R>(
        point_count: u64,
        interruption: Interruption,
        work: impl FnOnce() -> R,
    ) -> (R, u64) {
        set_point(note_point);
        POINTS_LEFT.set(Some((point_count, interruption)));
        POINT_COUNT.set(0);
        let result = work();
        POINTS_LEFT.set(None);
        (result, POINT_COUNT.get())
    }
}

#[cfg(test)]
mod tests {
    use super::test_support::interrupted_after;
    use super::*;

    #[test]
    fn each_kind_of_work_ends_for_what_ends_it() {
        let all = || (unless_killed().is_err(), unless_signalled().is_err());
        assert_eq!(interrupted_after(0, Interruption::None, all).0, (false, false));
        assert_eq!(interrupted_after(0, Interruption::Signal, all).0, (false, true));
        assert_eq!(interrupted_after(0, Interruption::Kill, all).0, (true, true));
    }

    #[test]
    fn a_pace_has_a_point_for_each_piece() {
        let work = || {
            let mut pace = Pace::default();
            (0..10 * PIECE_COUNT).try_for_each(|_| pace.unless_killed())
        };
        assert_eq!(interrupted_after(10, Interruption::Kill, work), (Ok(()), 10));
        assert_eq!(interrupted_after(3, Interruption::Kill, work), (Err(Errno::EINTR), 4));
    }
}
