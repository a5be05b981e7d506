//! What has become of a thread that works or waits: whether a signal could be delivered to it, and whether that ends
//! it.
//!
//! Asked by waits ([`crate::call::context`]) and at preemption points (`exos::preempt`). Nothing is taken: what is
//! found is acted on where the program goes on ([`crate::task::signal_delivery`]).

use core::sync::atomic::Ordering;

use exos::preempt::Interruption;
use exos::task::signal::{DefaultAction, HANDLER_DEFAULT, Signal, SignalSet};

use crate::task::process::{Process, Thread};

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
        let is_certain = signal == Signal::KILL || !process.trace.is_on();
        if is_default && is_certain && matches!(signal.default_action(), DefaultAction::Terminate | DefaultAction::Core)
        {
            return Interruption::Kill;
        }
        found = Interruption::Signal;
    }
    found
}

#[cfg(test)]
mod tests {
    use exos::preempt::Interruption;
    use exos::task::signal::{Disposition, HANDLER_IGNORE, Signal, SignalInfo};

    use super::interruption;
    use crate::task::process::Ending;
    use crate::testing::pod::World;

    fn found(world: &World) -> Interruption {
        interruption(&world.pod.process, &world.pod.thread)
    }

    #[test]
    fn what_ends_the_process_is_told_from_what_has_a_handler() {
        let world = World::new();
        let (process, thread) = (&world.pod.process, &world.pod.thread);
        assert_eq!(found(&world), Interruption::None);
        process.raise(Signal::CHLD, SignalInfo::default());
        assert_eq!(found(&world), Interruption::None, "ignored");
        thread.set_mask(process, Signal::TERM.bit());
        process.raise(Signal::TERM, SignalInfo::default());
        assert_eq!(found(&world), Interruption::None, "blocked");
        thread.set_mask(process, Default::default());
        assert_eq!(found(&world), Interruption::Kill, "by default");
        let set = |handler| {
            let disposition = Disposition { handler, ..Disposition::default() };
            process.signals.lock().dispositions.set(Signal::TERM, disposition).unwrap();
        };
        set(0x1000);
        assert_eq!(found(&world), Interruption::Signal, "a handler");
        set(HANDLER_IGNORE);
        assert_eq!(found(&world), Interruption::None);
        process.raise(Signal::STOP, SignalInfo::default());
        assert_eq!(found(&world), Interruption::Signal, "it is to stop");
        process.raise(Signal::KILL, SignalInfo::default());
        assert_eq!(found(&world), Interruption::Kill);
    }

    #[test]
    fn an_end_counts_before_signals_are_looked_at() {
        let world = World::new();
        world.pod.process.end(Ending::Exited(0));
        assert_eq!(found(&world), Interruption::Kill);
    }
}
