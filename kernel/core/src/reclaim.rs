//! Visible revocation of frames, and the protocol for an environment that does not comply.
//!
//! The creator asks; the environment gets an upcall and a time. What it frees by then it chose
//! itself. After that the kernel takes frames, a bounded piece at a time at scheduling decisions: off
//! the end of its original capabilities those that nothing pins, then donated ones that are in no use,
//! then pinned ones too. What was derived from a capability is revoked first. Invariant: frames *in
//! hand* are in no capability any more, so nothing new can be bound to them while what is bound is
//! broken; then they are freed, their numbers go to the control page, and an upcall is made. Every
//! cursor only goes forward, whatever the environment does meanwhile; when nothing but its tables is
//! left, it is stopped.

use aegis_abi::call::StopReason;
use aegis_abi::types::{CapType, FrameNumber};
use aegis_abi::upcall::{REPOSSESSED_COUNT_MAX, UpcallKind};

use crate::id::{CpuId, EnvironmentId, ProcessorId};
use crate::machine::StopReport;
use crate::object::{
    CapRef, Capability, DYING, FILLING, FREE_COST, Found, REVOKING, Reclaim, SLOT_COST, SLOT_COUNT_MAX, control_word,
};
use crate::space::Broken;
use crate::{Machine, State};

/// How long after a piece of a forced repossession the next one is done: a piece takes some 20 us.
const STEP_NS: u64 = 100_000;

impl<M: Machine> State<'_, M> {
    /// Asks an environment for the frames that it owns beyond its quota, of which the caller took some.
    pub(crate) fn begin_reclaim(&mut self, environment: EnvironmentId, deadline_ns: u64) {
        self.environments[environment].reclaim = Reclaim { deadline_ns: deadline_ns.max(1), ..Reclaim::EMPTY };
        if let Some(processor) = self.first_processor(environment) {
            let control = self.processors[processor].pages.control();
            self.machine.store(control, control_word!(revocation_frame_count), self.environments[environment].excess());
            self.make_due(processor, UpcallKind::Revocation);
        }
        self.note_reclaim(deadline_ns.max(1));
    }

    fn note_reclaim(&mut self, when_ns: u64) {
        if self.reclaim_min_ns == 0 || when_ns < self.reclaim_min_ns {
            self.reclaim_min_ns = when_ns;
        }
        self.note_deadline();
    }

    fn first_processor(&self, environment: EnvironmentId) -> Option<ProcessorId> {
        self.processors.find(|p| p.serial != 0 && p.environment == Some(environment))
    }

    /// Does a bounded piece of each repossession whose time has come.
    pub(crate) fn reclaim_due(&mut self, cpu: CpuId, now_ns: u64) {
        if self.reclaim_min_ns == 0 || now_ns < self.reclaim_min_ns {
            return;
        }
        self.reclaim_min_ns = 0;
        for environment in self.environments.ids() {
            let object = &self.environments[environment];
            let deadline_ns = object.reclaim.deadline_ns;
            // The end of one that is ending takes all.
            if object.serial == 0 || deadline_ns == 0 || object.is_ending {
                continue;
            }
            if now_ns < deadline_ns {
                self.note_reclaim(deadline_ns);
            } else {
                let since_ns = self.machine.now_ns();
                while self.work_left != 0 && self.repossess_step(environment) {}
                let end_ns = self.charge_interrupt(cpu, Some(environment), since_ns);
                if self.environments[environment].reclaim.deadline_ns != 0 {
                    self.note_reclaim(end_ns.saturating_add(STEP_NS));
                }
            }
        }
    }

    /// Goes on with a repossession; false if there is nothing (more) to do in this pass.
    fn repossess_step(&mut self, environment: EnvironmentId) -> bool {
        let object = &mut self.environments[environment];
        let (reclaim, excess) = (object.reclaim, object.excess());
        if reclaim.in_hand.1 != 0 {
            return self.break_in_hand(environment);
        }
        if excess == 0 {
            object.reclaim = Reclaim::EMPTY;
            // It may derive again from what was being revoked.
            self.set_flag(CapRef { environment, slot: reclaim.slot }, REVOKING, false);
            return false;
        }
        let Some((at, capability)) = self.reclaim_victim(environment) else {
            let is_at_end = self.environments[environment].reclaim.slot == SLOT_COUNT_MAX;
            return is_at_end && self.end_round(environment);
        };
        if self.revoke(at).is_err() {
            return false;
        }
        if capability.flags & (DYING | FILLING) != 0 {
            // An allocation or a deletion that was left half way.
            return self.delete(at, true).is_ok();
        }
        let end = capability.object + capability.count;
        let wanted = excess.min(capability.count).min(REPOSSESSED_COUNT_MAX as u64);
        if self.frames.any_pinned(end - wanted, wanted) {
            self.interrupt_word_sleepers(environment, end - wanted, wanted);
            if reclaim.takes_pinned && self.release_bound(at).is_err() {
                return false;
            }
        }
        let count = (1..=wanted).take_while(|n| !self.frames.any_pinned(end - n, 1)).count() as u64;
        if count == 0 {
            self.environments[environment].reclaim.slot = at.slot + 1;
            return true;
        }
        if count == capability.count {
            self.unlink(at);
        } else {
            self.store_capability(at, &Capability { count: capability.count - count, child: None, ..capability });
        }
        let reclaim = &mut self.environments[environment].reclaim;
        (reclaim.in_hand, reclaim.cursor) = ((end - count, count), 0);
        true
    }

    /// Breaks what maps the frames in hand; when nothing does, they are free.
    fn break_in_hand(&mut self, environment: EnvironmentId) -> bool {
        let Reclaim { in_hand: (first, count), mut cursor, .. } = self.environments[environment].reclaim;
        if self.frames.any_mapped(first, count) {
            let broken = Broken::Frames { first, count, except: None };
            let progress = self.break_mappings(environment, broken, &mut cursor);
            self.environments[environment].reclaim.cursor = cursor;
            if progress.is_err() {
                return false;
            }
        }
        self.environments[environment].reclaim.in_hand = (0, 0);
        let told = self.first_processor(environment);
        for frame in (first..first + count).rev() {
            self.free_repossessed(environment, told, FrameNumber(frame));
        }
        true
    }

    /// The next original capability. `None`: there is none up to the slot that is noted, where the budget was used up
    /// or the table ends.
    fn reclaim_victim(&mut self, environment: EnvironmentId) -> Option<Found> {
        let first_slot = self.environments[environment].reclaim.slot;
        let mut looked = 0;
        let at = self.find_slot(environment, first_slot, |_, [word]| {
            looked += SLOT_COST;
            // An original is of no generation.
            looked > self.work_left || word as u8 == CapType::Frames as u8 && (word >> 16) as u8 == 0
        });
        let found = at.filter(|_| looked <= self.work_left);
        self.spend(looked);
        self.environments[environment].reclaim.slot = at.map_or(SLOT_COUNT_MAX, |at| at.slot);
        Some((found?, self.capability(found?)?))
    }

    /// No capability is left: next come donated frames, then what is pinned, then the environment's end.
    fn end_round(&mut self, environment: EnvironmentId) -> bool {
        if self.environments[environment].reclaim.takes_pinned {
            self.environments[environment].reclaim = Reclaim::EMPTY;
            let report = StopReport { reason: StopReason::FramesKept, ..StopReport::RUNNING };
            self.stop_environment(environment, report);
            return false;
        }
        let told = self.first_processor(environment);
        while self.work_left != 0 && self.environments[environment].excess() != 0 {
            let Some(frame) = self.environments[environment].pop_donated(&self.frames) else {
                let reclaim = &mut self.environments[environment].reclaim;
                (reclaim.takes_pinned, reclaim.slot) = (true, 0);
                break;
            };
            self.free_repossessed(environment, told, frame);
        }
        true
    }

    /// Frees a frame, and tells it to the environment's first processor, if there is one.
    fn free_repossessed(&mut self, environment: EnvironmentId, told: Option<ProcessorId>, frame: FrameNumber) {
        self.spend(2 * FREE_COST);
        self.free_frames(environment, frame.0, 1, false);
        if let Some(processor) = told {
            self.report_repossessed(processor, frame);
            self.make_due(processor, UpcallKind::Repossession);
        }
    }
}
