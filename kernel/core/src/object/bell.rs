//! Bells as data, and when the clock rings which: `bell.rs` above rings them.

use super::capability::CapRef;
use crate::id::{BELL_COUNT_MAX, BellId, EnvironmentId, Id, Named, ProcessorId};

/// The virtual processor that a bell makes an upcall at, with the capability for it.
pub(crate) type Called = Option<(Named<ProcessorId>, CapRef)>;

begins! {
    /// A bell.
    pub(crate) struct Bell {
        /// 0: the table entry is free.
        pub(crate) serial: u64 = 0,
        pub(crate) owner: Option<EnvironmentId> = None,
        pub(crate) processor: Called = None,
        count: u64 = 0,
        /// Terms of sleepers that wait for it.
        waiter_count: u32 = 0,
        /// When it is rung by the clock, and the capability with which that was said.
        alarm: Option<(u64, CapRef)> = None,
    }
}

impl Bell {
    pub(crate) fn new(serial: u64, owner: EnvironmentId, processor: Called) -> Self {
        Self { serial, owner: Some(owner), processor, ..Self::EMPTY }
    }

    /// How often it was rung since its count was taken.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn ring(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    pub(crate) fn take(&mut self) -> u64 {
        core::mem::take(&mut self.count)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.waiter_count != 0
    }

    /// A term of a sleeper waits for it.
    pub(crate) fn begin_wait(&mut self) {
        self.waiter_count += 1;
    }

    pub(crate) fn end_wait(&mut self) {
        debug_assert_ne!(self.waiter_count, 0, "every term was counted");
        self.waiter_count -= 1;
    }

    /// The clock does not ring it, where that was said with this capability; `None`: with whichever.
    pub(crate) fn cancel(&mut self, with: Option<CapRef>) {
        self.alarm = self.alarm.filter(|alarm| with.is_some_and(|with| with != alarm.1));
    }

    #[cfg(test)]
    pub(crate) fn alarm(&self) -> Option<(u64, CapRef)> {
        self.alarm
    }

    #[cfg(test)]
    pub(crate) fn waiter_count(&self) -> u32 {
        self.waiter_count
    }
}

begins! {
    /// Which bells the clock rings; the times are in these.
    pub(crate) struct Alarms {
        /// A bit for each bell that has an alarm, or had one that was taken back.
        bells: [u64; BELL_COUNT_MAX / 64] = [0; BELL_COUNT_MAX / 64],
        next_ns: u64 = 0,
    }
}

impl Alarms {
    /// When the clock rings the next bell, or earlier, where an alarm was taken back; `u64::MAX`: it rings none.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The clock rings a bell at a time that is said with a capability.
    pub(crate) fn set(&mut self, id: BellId, bell: &mut Bell, (at_ns, with): (u64, CapRef)) {
        bell.alarm = Some((at_ns, with));
        self.note(id, at_ns);
    }

    fn note(&mut self, id: BellId, at_ns: u64) {
        self.bells[id.index() / 64] |= 1 << (id.index() % 64);
        self.next_ns = self.next_ns.min(at_ns);
    }

    /// All are looked at, row by row: those that stay are noted anew.
    pub(crate) fn begin_look(&mut self) {
        self.next_ns = u64::MAX;
    }

    pub(crate) fn take_row(&mut self, row: usize) -> u64 {
        core::mem::take(&mut self.bells[row])
    }

    /// Whether the time of a bell of such a row has come; then it has no alarm any more.
    pub(crate) fn take_due(&mut self, id: BellId, bell: &mut Bell, now_ns: u64) -> bool {
        match bell.alarm {
            Some((at_ns, _)) if at_ns > now_ns => self.note(id, at_ns),
            _ => return bell.alarm.take().is_some(),
        }
        false
    }

    #[cfg(test)]
    pub(crate) fn is_noted(&self, id: BellId) -> bool {
        self.bells[id.index() / 64] >> (id.index() % 64) & 1 == 1
    }
}
