//! Options that sockets of all families have (socket(7)): kept as they were set, for their own family to act on.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::filter::Filter;
use crate::error::{Errno, Result};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::sync::Mutex;
use crate::task::signal::Signal;

const NUMBER_COUNT: usize = 5;

/// An option that is a number which is kept and told back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `SO_BUSY_POLL`: nobody looks without being told.
    BusyPoll,
    /// `SO_MAX_PACING_RATE`.
    PacingRateMax,
    /// `SO_INCOMING_CPU`.
    IncomingProcessor,
    /// `SO_RCVMARK`.
    ReceiveMark,
    /// The number of the option by which it was asked that messages say when they came, 0 for none
    /// (`SO_TIMESTAMP` and its like, of which the last counts).
    Timestamp,
}

impl Number {
    const DEFAULTS: [u32; NUMBER_COUNT] = [0, u32::MAX, u32::MAX, 0, 0];
}

/// What is kept. Each value stands for itself, so each is read and set without a lock.
pub struct SocketOptions {
    /// Nanoseconds that a receiver or sender waits at most, 0 for ever.
    timeouts_ns: [AtomicU64; 2],
    low_water_bytes: AtomicUsize,
    kept: AtomicU64,
    linger: AtomicU64,
    priority: AtomicU32,
    numbers: [AtomicU32; NUMBER_COUNT],
    has_filter: AtomicBool,
    filter: Mutex<FilterState>,
}

/// What a socket takes.
#[derive(Default)]
struct FilterState {
    filter: Option<Arc<Filter>>,
    /// It stays as it is (`SO_LOCK_FILTER`).
    is_locked: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            timeouts_ns: Default::default(),
            low_water_bytes: AtomicUsize::new(1),
            kept: AtomicU64::new(0),
            linger: AtomicU64::new(0),
            priority: AtomicU32::new(0),
            numbers: Number::DEFAULTS.map(AtomicU32::new),
            has_filter: AtomicBool::new(false),
            filter: Mutex::default(),
        }
    }
}

impl SocketOptions {
    /// How long a receiver waits, 0 for ever (`SO_RCVTIMEO`).
    pub fn receive_timeout_ns(&self) -> u64 {
        self.timeouts_ns[0].load(Ordering::Relaxed)
    }

    /// How long a sender waits, 0 for ever (`SO_SNDTIMEO`).
    pub fn send_timeout_ns(&self) -> u64 {
        self.timeouts_ns[1].load(Ordering::Relaxed)
    }

    /// Sets one of the two.
    pub fn set_timeout_ns(&self, is_send: bool, timeout_ns: u64) {
        self.timeouts_ns[usize::from(is_send)].store(timeout_ns, Ordering::Relaxed);
    }

    /// Bytes that a blocking receiver of a stream waits for (`SO_RCVLOWAT`).
    pub fn low_water_bytes(&self) -> usize {
        self.low_water_bytes.load(Ordering::Relaxed)
    }

    /// Sets it; at least 1.
    pub fn set_low_water_bytes(&self, bytes: usize) {
        self.low_water_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Whether a switch is on, by the number of its option (less than 64).
    pub fn is_on(&self, option: u64) -> bool {
        self.kept.load(Ordering::Relaxed) & 1 << option != 0
    }

    /// Sets or clears a switch.
    pub fn set_on(&self, option: u64, value: bool) {
        if value {
            self.kept.fetch_or(1 << option, Ordering::Relaxed);
        } else {
            self.kept.fetch_and(!(1 << option), Ordering::Relaxed);
        }
    }

    /// Its messages' priority (`SO_PRIORITY`): kept and told back only.
    pub fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_priority(&self, priority: u32) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// A number as it was set.
    pub fn number(&self, number: Number) -> u32 {
        self.numbers[number as usize].load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_number(&self, number: Number, value: u32) {
        self.numbers[number as usize].store(value, Ordering::Relaxed);
    }

    /// What says of a packet whether the socket takes it. Without one this costs a load.
    #[inline]
    pub fn filter(&self) -> Option<Arc<Filter>> {
        if self.has_filter.load(Ordering::Acquire) { self.filter.lock().filter.clone() } else { None }
    }

    /// Has a filter, or none (`SO_ATTACH_FILTER`, `SO_DETACH_FILTER`).
    ///
    /// # Errors
    /// `EPERM`: it stays as it is. `ENOENT`: there is none to take away.
    pub fn set_filter(&self, filter: Option<Arc<Filter>>) -> Result<()> {
        let mut state = self.filter.lock();
        if state.is_locked {
            return Err(Errno::EPERM);
        }
        if filter.is_none() && state.filter.is_none() {
            return Err(Errno::ENOENT);
        }
        self.has_filter.store(filter.is_some(), Ordering::Release);
        let old = core::mem::replace(&mut state.filter, filter);
        drop(state);
        drop(old);
        Ok(())
    }

    /// Whether the filter stays as it is.
    pub fn is_filter_locked(&self) -> bool {
        self.filter.lock().is_locked
    }

    /// Has it stay (`SO_LOCK_FILTER`).
    ///
    /// # Errors
    /// `EPERM`: it does, which cannot be undone.
    pub fn lock_filter(&self, value: bool) -> Result<()> {
        let mut state = self.filter.lock();
        if state.is_locked && !value {
            return Err(Errno::EPERM);
        }
        state.is_locked = value;
        Ok(())
    }

    /// How long closing waits (`struct linger` as one word).
    pub fn linger(&self) -> u64 {
        self.linger.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_linger(&self, linger: u64) {
        self.linger.store(linger, Ordering::Relaxed);
    }

    /// What an attempt to send came to, which has sent so much, and whether that is everything. On a stream everything
    /// is to be sent.
    #[inline]
    pub(super) fn send_step(
        &self,
        outcome: Result<(usize, bool)>,
        is_stream: bool,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        match outcome {
            Ok((count, is_all)) => transfer.moved(count, is_all || !is_stream || !transfer.may_wait),
            Err(Errno::EAGAIN) => transfer.wait_at_most(self.send_timeout_ns(), caller),
            Err(Errno::EPIPE) if is_stream && transfer.done == 0 => Step::Raise(Signal::PIPE),
            Err(error) => Step::Failed(error),
        }
    }

    /// What an attempt to receive came to, which has received so much, and whether nothing follows. `least` bytes are
    /// waited for.
    #[inline]
    pub(super) fn receive_step(
        &self,
        outcome: Result<(usize, bool)>,
        least: usize,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        match outcome {
            Ok((count, is_final)) => {
                let is_enough = transfer.done + count >= least || !transfer.may_wait;
                transfer.moved(count, is_final || is_enough)
            }
            Err(Errno::EAGAIN) => transfer.wait_at_most(self.receive_timeout_ns(), caller),
            Err(error) => Step::Failed(error),
        }
    }

    /// Takes over what an accepted connection has of its listener.
    pub fn inherit(&self, listener: &Self) {
        for (own, from) in self.timeouts_ns.iter().zip(&listener.timeouts_ns) {
            own.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.set_low_water_bytes(listener.low_water_bytes());
        self.kept.store(listener.kept.load(Ordering::Relaxed), Ordering::Relaxed);
        self.set_linger(listener.linger());
        self.set_priority(listener.priority());
        if let Some(filter) = listener.filter() {
            self.filter.lock().filter = Some(filter);
            self.has_filter.store(true, Ordering::Release);
        }
        for (own, from) in self.numbers.iter().zip(&listener.numbers) {
            own.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
