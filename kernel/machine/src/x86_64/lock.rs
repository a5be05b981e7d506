//! The kernel lock: one spinning lock around the kernel's state, which keeps answering translation shootdowns while
//! it waits.
//!
//! Interrupts are always off in ring 0 (but for the idle loop, which holds nothing), so a processor that waits here
//! can only be told to drop translations by being asked: every wait loop of the machine calls [`shootdown::service`].
//! See that module for the argument.
#![allow(unsafe_code, reason = "hands out a mutable reference guarded by an atomic flag")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use super::shootdown;

/// State behind a spinning lock. Fair queueing is left out on purpose: with fewer host threads than processors it
/// waits for the one processor that does not run.
#[derive(Debug)]
pub struct KernelLock<T> {
    taken: AtomicBool,
    state: UnsafeCell<T>,
}

// SAFETY: the flag admits one processor at a time.
unsafe impl<T: Send> Sync for KernelLock<T> {}

/// Proof that this processor holds the lock.
#[derive(Debug)]
pub struct KernelGuard<'lock, T> {
    lock: &'lock KernelLock<T>,
}

impl<T> KernelLock<T> {
    /// An open lock.
    pub const fn new(state: T) -> Self {
        KernelLock { taken: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Waits for the lock. A processor that holds it and asks again waits for ever.
    pub fn lock(&self) -> KernelGuard<'_, T> {
        // Acquire pairs with the release in `drop`: the state is seen as the last holder left it.
        while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.taken.load(Ordering::Relaxed) {
                shootdown::service();
                core::hint::spin_loop();
            }
        }
        KernelGuard { lock: self }
    }
}

impl<T> Deref for KernelGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the flag is ours.
        unsafe { &*self.lock.state.get() }
    }
}

impl<T> DerefMut for KernelGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { &mut *self.lock.state.get() }
    }
}

impl<T> Drop for KernelGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}
