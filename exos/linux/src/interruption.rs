//! What has become of a thread that works or waits: whether a signal could be delivered to it, and whether that ends
//! it.
//!
//! Asked by waits ([`crate::context`]) and at preemption points (`exos::preempt`). Nothing is taken: what is found is
//! acted on where the program goes on ([`crate::deliver`]).

use core::sync::atomic::Ordering;

use exos::preempt::Interruption;
use exos::task::signal::{DefaultAction, HANDLER_DEFAULT, SignalSet};

use crate::process::{Process, Thread};

/// Looks at the thread's signals, its process's end and pause.
#[must_use]
pub fn interruption(process: &Process, thread: &Thread) -> Interruption {
    if thread.is_ending.load(Ordering::Acquire) || process.has_ended() {
        return Interruption::Kill;
    }
    let is_stopped = process.pause.lock().stopped_by.is_some();
    let mut found = if is_stopped { Interruption::Signal } else { Interruption::None };
    let own = thread.signals.lock();
    let shared = process.signals.lock();
    let mut candidates = SignalSet(own.pending.set().union(shared.pending.set()).0 & !own.mask.0);
    while let Some(signal) = candidates.first() {
        candidates = candidates.without(signal.bit());
        if shared.dispositions.is_ignored(signal) {
            continue;
        }
        let is_default = shared.dispositions.get(signal).handler == HANDLER_DEFAULT;
        if is_default && matches!(signal.default_action(), DefaultAction::Terminate | DefaultAction::Core) {
            return Interruption::Kill;
        }
        found = Interruption::Signal;
    }
    found
}
