//! Bells: counted notifications.
//!
//! A bell has a count, wakes sleepers that wait for the count, and may make an upcall at one
//! virtual processor. It is owned by the environment that made it and ends with its original
//! capability or with that environment.

use aegis_abi::share::Table;
use aegis_abi::upcall::UpcallKind;

use crate::id::{BELL_COUNT_MAX, BellId, EnvironmentId, Id, Named};
use crate::object::{Bell, Called, CapRef, Source};
use crate::{Machine, State};

impl<M: Machine> State<'_, M> {
    pub(crate) fn live_bell(&self, named: Named<BellId>) -> Option<BellId> {
        (self.bells[named.id].serial == named.serial).then_some(named.id)
    }

    /// Makes a bell, if the table and the owner's share of it have room.
    pub(crate) fn new_bell(&mut self, owner: EnvironmentId, processor: Called) -> Option<Named<BellId>> {
        self.environments[owner].check_share(Table::Bells).ok()?;
        let id = self.bells.find(|bell| bell.serial == 0)?;
        let serial = self.new_serial();
        self.bell_end = self.bell_end.max(id.index() + 1);
        self.bells[id] = Bell::new(serial, owner, processor);
        self.environments[owner].count_entry(Table::Bells, true);
        Some(Named { id, serial })
    }

    /// Ends a bell; a processor that sleeps on it sleeps on, as if it were never rung again.
    pub(crate) fn release_bell(&mut self, bell: BellId) {
        if let Some(owner) = self.bells[bell].owner {
            self.environments[owner].count_entry(Table::Bells, false);
        }
        self.bells[bell] = Bell::EMPTY;
    }

    /// Sets when the clock rings a bell, at once if the time has come already; all ones: never.
    pub(crate) fn set_bell_deadline(&mut self, bell: BellId, deadline_ns: u64, with: CapRef) {
        self.bells[bell].cancel(None);
        if deadline_ns <= self.machine.now_ns() {
            return self.ring(bell);
        }
        if deadline_ns == u64::MAX {
            return;
        }
        self.alarms.set(bell, &mut self.bells[bell], (deadline_ns, with));
        self.note_deadline();
    }

    /// A capability for a bell goes: a deadline that was set with it is none any more, and a processor of that
    /// environment that waits for the bell waits for what it may not see.
    pub(crate) fn cancel_bell(&mut self, at: CapRef, named: Option<Named<BellId>>) {
        let Some((named, bell)) = named.and_then(|named| Some((named, self.live_bell(named)?))) else { return };
        self.bells[bell].cancel(Some(at));
        if self.bells[bell].has_waiters() {
            self.interrupt_sleepers(at.environment, |source| *source == Source::Bell(named));
        }
    }

    /// Rings the bells whose time has come. However many they are, sleepers are gone through once.
    pub(crate) fn ring_due(&mut self, now_ns: u64) {
        if self.alarms.next_ns() > now_ns {
            return;
        }
        self.alarms.begin_look();
        let mut awaited = [0_u64; BELL_COUNT_MAX / 64];
        for (row, awaited) in awaited.iter_mut().enumerate() {
            let mut left = self.alarms.take_row(row);
            while let Some(bell) = BellId::from_index(row * 64 + left.trailing_zeros() as usize).filter(|_| left != 0) {
                left &= left - 1;
                if self.alarms.take_due(bell, &mut self.bells[bell], now_ns) && self.ring_for_first(bell) {
                    *awaited |= 1 << (bell.index() % 64);
                }
            }
        }
        if awaited != [0; _] {
            self.wake_for_bells(|bell| awaited[bell.index() / 64] >> (bell.index() % 64) & 1 != 0);
        }
    }

    /// Adds one to the count, makes the upcall, wakes sleepers.
    pub(crate) fn ring(&mut self, bell: BellId) {
        if self.ring_for_first(bell) {
            self.wake_for_bells(|rung| rung == bell);
        }
    }

    /// Rings for the upcall, and for the first sleeper if it waits for nothing else; whether others wait for the bell.
    fn ring_for_first(&mut self, bell: BellId) -> bool {
        self.bells[bell].ring();
        self.wake_first(bell);
        if let Some(processor) = self.bells[bell].processor.and_then(|(named, _)| self.live_processor(named)) {
            self.make_due(processor, UpcallKind::Bell);
        }
        self.bells[bell].has_waiters()
    }
}
