//! timerfd(2): a timer that is read as the number of its expirations.
//!
//! Nothing runs when a timer expires: a look at it counts what expired since the last one. So that a look comes in
//! time, every wait asks the [`TimerSet`] when the next one is due.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

use exos::error::{Errno, Result};
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::readiness::{Readiness, WaitQueue};
use exos::fs::transfer::{Destination, Source};
use exos::platform::Kernel;
use exos::sync::{Mutex, Once};

use crate::abi::time::IntervalTimer;

/// Bytes that a read gives.
const COUNT_BYTES: usize = 8;

#[derive(Default)]
struct State {
    timer: IntervalTimer,
    /// Expirations that nobody has read.
    count: u64,
}

/// A timer behind a descriptor.
pub struct TimerFile {
    kernel: Arc<dyn Kernel>,
    is_realtime: bool,
    state: Mutex<State>,
    queue: Arc<WaitQueue>,
    /// The set that it is in, and its number there.
    membership: Once<(Arc<TimerSet>, u64)>,
}

impl Drop for TimerFile {
    fn drop(&mut self) {
        if let Some((set, number)) = self.membership.get() {
            set.timers.lock().1.remove(number);
        }
    }
}

impl TimerFile {
    /// A timer that is not armed. One on the realtime clock takes absolute times from there; both run on the
    /// monotonic one.
    #[must_use]
    pub fn new(kernel: Arc<dyn Kernel>, is_realtime: bool) -> Arc<Self> {
        let (state, queue) = (Mutex::default(), WaitQueue::new());
        Arc::new(Self { kernel, is_realtime, state, queue, membership: Once::new() })
    }

    /// Whether absolute times are meant on the realtime clock.
    #[must_use]
    pub fn is_realtime(&self) -> bool {
        self.is_realtime
    }

    /// Counts what expired up to `now_ns`; true if anything did.
    fn count_expired(state: &mut State, now_ns: u64) -> bool {
        let IntervalTimer { deadline_ns, period_ns } = state.timer;
        if deadline_ns == 0 || now_ns < deadline_ns {
            return false;
        }
        let count = match period_ns {
            0 => 1,
            period_ns => 1 + (now_ns - deadline_ns) / period_ns,
        };
        state.count = state.count.saturating_add(count);
        state.timer.deadline_ns = match period_ns {
            0 => 0,
            period_ns => deadline_ns.saturating_add(count.saturating_mul(period_ns)),
        };
        true
    }

    /// Looks at the timer now, and tells its waiters.
    fn look<T>(&self, take: impl FnOnce(&mut State, u64) -> T) -> T {
        let now_ns = self.kernel.now_ns();
        let (has_expired, taken) = {
            let mut state = self.state.lock();
            let has_expired = Self::count_expired(&mut state, now_ns);
            (has_expired, take(&mut state, now_ns))
        };
        if has_expired {
            self.queue.notify(Readiness::READ);
        }
        taken
    }

    /// What is left until the next expiration, and the period.
    #[must_use]
    pub fn remaining(&self) -> IntervalTimer {
        self.look(|state, now_ns| left(state.timer, now_ns))
    }

    /// Arms it (a deadline of 0 disarms) and forgets unread expirations; what was left before is returned.
    pub fn set(&self, timer: IntervalTimer) -> IntervalTimer {
        let before = self.look(|state, now_ns| {
            let before = left(state.timer, now_ns);
            *state = State { timer, count: 0 };
            before
        });
        // One that is due at once has somebody to tell.
        self.look(|_, _| ());
        before
    }
}

/// The deadline as a duration from `now_ns`.
fn left(timer: IntervalTimer, now_ns: u64) -> IntervalTimer {
    IntervalTimer { deadline_ns: timer.deadline_ns.saturating_sub(now_ns), ..timer }
}

impl OpenFile for TimerFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() < COUNT_BYTES {
            return Err(Errno::EINVAL);
        }
        match self.look(|state, _| core::mem::take(&mut state.count)) {
            0 => Err(Errno::EAGAIN),
            // As on Linux, a count that could not be delivered is lost.
            count if destination.put(&count.to_le_bytes()) < COUNT_BYTES => Err(Errno::EFAULT),
            _ => Ok(COUNT_BYTES),
        }
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        match self.look(|state, _| state.count) {
            0 => Readiness::empty(),
            _ => Readiness::READ,
        }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }

    fn announces(&self) -> bool {
        false
    }

    fn reads_records(&self) -> bool {
        true
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// The timers that processes sharing it have open.
#[derive(Default)]
pub struct TimerSet {
    /// By number, with the last number that was given.
    timers: Mutex<(u64, BTreeMap<u64, Weak<TimerFile>>)>,
    /// One was added at some time: most processes never have any, and their waits need not look.
    is_used: AtomicBool,
}

impl TimerSet {
    /// Adds a timer; it leaves by itself when it is closed.
    pub fn add(self: &Arc<Self>, timer: &Arc<TimerFile>) {
        let mut timers = self.timers.lock();
        timers.0 += 1;
        let number = timers.0;
        timers.1.insert(number, Arc::downgrade(timer));
        timer.membership.call_once(|| (self.clone(), number));
        self.is_used.store(true, Ordering::Release);
    }

    /// Whether there was never any.
    #[must_use]
    #[inline]
    pub fn is_unused(&self) -> bool {
        !self.is_used.load(Ordering::Acquire)
    }

    /// When the next one expires (monotonic), if any is armed.
    #[must_use]
    pub fn earliest_ns(&self, now_ns: u64) -> Option<u64> {
        let mut earliest_ns = None;
        let mut next = 0;
        // One by one, as the last reference to one may be dropped here, which must not be under the lock.
        loop {
            let timer = match self.timers.lock().1.range(next..).next() {
                Some((number, timer)) => {
                    next = number + 1;
                    timer.upgrade()
                }
                None => return earliest_ns,
            };
            let deadline_ns = timer.map_or(0, |timer| timer.look(|state, _| state.timer.deadline_ns));
            if deadline_ns != 0 {
                let deadline_ns = deadline_ns.max(now_ns);
                earliest_ns = Some(earliest_ns.map_or(deadline_ns, |earliest: u64| earliest.min(deadline_ns)));
            }
        }
    }
}
