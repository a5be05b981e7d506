//! The kernel lock: one spinning lock around the kernel's state, which keeps answering translation shootdowns while
//! it waits.
//!
//! It is fair: a word has a bit for each processor that waits, and the holder that frees it leaves it to the next of
//! these in turn, so a processor waits for each other one once. The next one may be one that the host of a virtual
//! machine does not run: the others are patient with it for a while only. Where nobody waits it is one exchange.
//!
//! Interrupts are always off in ring 0 (but for the idle loop, which holds nothing), so a processor that waits here
//! can only be told to drop translations by being asked: every wait loop of the machine calls [`shootdown::service`].
//! See that module for the argument.
#![allow(unsafe_code, reason = "hands out a mutable reference guarded by an atomic flag")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::{instructions, processor, shootdown};

/// Bit of the word: somebody has the lock.
const TAKEN: u32 = 1 << 31;
/// From this bit on the word names the last holder, while a processor waits: the turns go on behind it. Below are the
/// bits of those that wait.
const LAST_SHIFT: u32 = 24;
/// How often a processor looks at a free lock that is another's turn before it takes it: some microseconds.
const PATIENCE: u32 = 200;

/// State behind a spinning lock.
#[derive(Debug)]
pub struct KernelLock<T> {
    word: AtomicU32,
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
        KernelLock { word: AtomicU32::new(0), state: UnsafeCell::new(state) }
    }

    /// Waits for the lock. A processor that holds it and asks again waits for ever.
    #[inline(always)]
    pub fn lock(&self) -> KernelGuard<'_, T> {
        // Acquire pairs with the release in `drop`: the state is seen as the last holder left it.
        if self.word.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        KernelGuard { lock: self }
    }

    #[cold]
    fn wait(&self) {
        let own = processor::processor_index() as u32;
        self.word.fetch_or(1 << own, Ordering::Relaxed);
        let (mut patience, mut looks) = (PATIENCE, 0);
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & TAKEN == 0 {
                let (waiting, first) = (word & ((1 << LAST_SHIFT) - 1), (word >> LAST_SHIFT) + 1);
                let is_next = (first + waiting.rotate_right(first).trailing_zeros()) % u32::BITS == own;
                let others = waiting & !(1 << own);
                // A word is 0 when the lock is free and nobody waits.
                let taken = TAKEN | if others == 0 { 0 } else { own << LAST_SHIFT | others };
                if (is_next || patience == 0)
                    && self.word.compare_exchange(word, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return;
                }
                patience = patience.saturating_sub(1);
            }
            shootdown::service();
            instructions::look_again(&mut looks);
        }
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
        self.lock.word.fetch_and(!TAKEN, Ordering::Release);
    }
}
