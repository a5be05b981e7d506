//! The three orderings that a driver needs between memory it shares with a device.
//!
//! Volatile accesses are not reordered against each other by the compiler, and x86-64 keeps stores
//! in order and loads in order. So [`publish`] and [`observe`] emit no instruction there; they are
//! called all the same, because they say what the code relies on, and because the crate is then
//! right on weaker machines too. [`full`] is a real instruction: x86-64 lets a load overtake an
//! earlier store to another address, and the protocols that announce something and then look
//! whether the other side sleeps break when it does.
//!
//! No barrier is needed between the store that publishes and a register write that notifies: the
//! mapping of registers is uncached, and such a store becomes visible after all earlier ones (Intel
//! SDM vol. 3, 9.2.2 and 12.3).

use core::sync::atomic::{Ordering, fence};

/// Everything written before is visible to the device before anything written after: between
/// filling a descriptor and publishing its index.
#[inline]
pub fn publish() {
    fence(Ordering::Release);
}

/// Nothing read after is read earlier than what was read before: between reading an index that the
/// device advanced and reading the entries that it covers.
#[inline]
pub fn observe() {
    fence(Ordering::Acquire);
}

/// Everything written before is visible before anything after is read: between publishing an index
/// and reading the other side's flag that says whether it wants to be told; and between asking for
/// interrupts and the last look at the queue.
#[inline]
pub fn full() {
    fence(Ordering::SeqCst);
}
