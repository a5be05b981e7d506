//! What a socket may have on the way: the bytes that it sent and that are not received yet (`SO_SNDBUF`).
//!
//! The sender pays, as on Linux: a slow receiver stops its senders, not itself. A [`Charge`] is a part of the budget
//! that goes back when it is dropped, and waiters for room are told.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::fs::readiness::{Readiness, WaitQueue};

/// A sender's account.
pub(super) struct Budget {
    limit_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    queue: Arc<WaitQueue>,
}

impl Budget {
    /// An empty account; `queue` is told about room.
    pub(super) fn new(limit_bytes: usize, queue: Arc<WaitQueue>) -> Arc<Self> {
        let (limit_bytes, used_bytes) = (AtomicUsize::new(limit_bytes), AtomicUsize::new(0));
        Arc::new(Self { limit_bytes, used_bytes, queue })
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit_bytes(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.queue.notify(Readiness::WRITE);
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether so little is on the way that a sender should be told to go on.
    pub(super) fn is_writable(&self) -> bool {
        self.used_bytes() * 4 <= self.limit_bytes()
    }

    /// Takes up to `wanted` bytes; how many there were room for.
    pub(super) fn take_some(&self, wanted: usize) -> usize {
        let limit = self.limit_bytes();
        let mut granted = 0;
        let _ = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            granted = wanted.min(limit.saturating_sub(used));
            (granted > 0).then_some(used + granted)
        });
        granted
    }

    /// Takes `count` bytes if the account is not used up yet; the last one may overdraw it, as on Linux.
    pub(super) fn take_all(self: &Arc<Self>, count: usize) -> Option<Charge> {
        let limit = self.limit_bytes();
        let taken = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| (used < limit).then_some(used + count));
        taken.ok().map(|_| Charge { budget: self.clone(), count })
    }

    /// Gives bytes back and tells the waiters for them. None was refused while the account [`Self::is_writable`], so
    /// then there is none to tell.
    pub(super) fn give(&self, count: usize) {
        if count > 0 && self.give_untold(count) {
            self.tell();
        }
    }

    /// Gives bytes back without telling waiters; whether there may be one to [`Self::tell`].
    pub(super) fn give_untold(&self, count: usize) -> bool {
        self.used_bytes.fetch_sub(count, Ordering::Relaxed) * 4 > self.limit_bytes()
    }

    /// Tells the waiters for room.
    pub(super) fn tell(&self) {
        self.queue.notify(Readiness::WRITE);
    }
}

/// A part of a budget.
pub(super) struct Charge {
    budget: Arc<Budget>,
    count: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give(self.count);
    }
}
