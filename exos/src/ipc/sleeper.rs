//! A waiter for one thing to be done for it, and what became of that.
//!
//! The outcome is written under the lock of the object that is waited for, and read without it; giving up is decided
//! under that lock as well, so a request is settled or taken out, never both.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::fs::readiness::{Readiness, Waiter};
use crate::sync::SpinMutex;

/// Those to wake once no lock is held.
pub type Wakes = Vec<Arc<dyn Waiter>>;

/// One that waits for a `T`.
pub struct Sleeper<T> {
    waiter: Weak<dyn Waiter>,
    outcome: SpinMutex<Option<T>>,
}

impl<T> Sleeper<T> {
    /// A sleeper that `waiter` is woken for.
    #[must_use]
    pub fn new(waiter: Weak<dyn Waiter>) -> Arc<Self> {
        Arc::new(Self { waiter, outcome: SpinMutex::new(None) })
    }

    /// Settles it; the waiter to be woken joins `wakes`.
    pub fn settle(&self, outcome: T, wakes: &mut Wakes) {
        *self.outcome.lock() = Some(outcome);
        wakes.extend(self.waiter.upgrade());
    }

    /// What became of it, once.
    pub fn take(&self) -> Option<T> {
        self.outcome.lock().take()
    }
}

/// Wakes them.
pub fn wake_all(wakes: Wakes) {
    wakes.into_iter().for_each(|waiter| waiter.wake(Readiness::empty()));
}
