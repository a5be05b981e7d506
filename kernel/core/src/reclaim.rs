//! Visible revocation of frames, and the protocol for an environment that does not comply.
//!
//! The creator asks; the environment gets an upcall and a time. What it frees by then it chose
//! itself. After that the kernel takes unpinned frames off the end of its original capabilities, a
//! bounded piece at a time at scheduling decisions: it revokes what was derived from them, breaks
//! the mappings, frees the frame, writes its number to the control page and makes an upcall.

use aegis_abi::types::{CapType, FrameNumber};
use aegis_abi::upcall::{ControlPage, UpcallKind};

use crate::capability::{CapRef, Capability, DYING, FILLING};
use crate::id::{EnvironmentId, ProcessorId};
use crate::machine::Machine;
use crate::processor::control_word;
use crate::space::{Broken, Progress, WALK_BUDGET};
use crate::state::State;

/// How soon the next piece of a forced repossession is done.
const STEP_NS: u64 = 20_000;

/// What was asked of an environment.
#[derive(Clone, Copy)]
pub(crate) struct Reclaim {
    /// When the kernel takes what is missing; 0: nothing was asked.
    pub(crate) deadline_ns: u64,
    /// Frames that it may own then.
    pub(crate) frames_target: u64,
    /// Page from which the mappings of the frame in hand are still to be broken.
    cursor: u64,
    /// The frame in hand; 0: none.
    frame: u64,
    /// Slots before this one had nothing to take.
    slot: u32,
}

impl Reclaim {
    pub(crate) const NONE: Self = Self { deadline_ns: 0, frames_target: 0, cursor: 0, frame: 0, slot: 0 };
}

impl<M: Machine> State<'_, M> {
    /// Asks an environment for frames. What it will lose of its quota goes back to its creator at
    /// once.
    pub(crate) fn begin_reclaim(&mut self, environment: EnvironmentId, frame_count: u64, deadline_ns: u64) {
        let object = &mut self.environments[environment];
        let target = object.frames_owned.saturating_sub(frame_count);
        let quota_lost = object.frame_quota.saturating_sub(target).min(frame_count);
        object.reclaim = Reclaim { deadline_ns: deadline_ns.max(1), frames_target: target, ..Reclaim::NONE };
        object.frame_quota -= quota_lost;
        if let Some(parent) = object.parent {
            self.environments[parent].frame_quota += quota_lost;
        }
        if let Some(processor) = self.first_processor(environment) {
            let control = self.processors[processor].pages.control();
            self.machine.store(control, control_word!(revocation_frame_count), frame_count);
            self.make_due(processor, UpcallKind::Revocation);
        }
        self.note_reclaim(deadline_ns.max(1));
    }

    fn note_reclaim(&mut self, when_ns: u64) {
        if self.reclaim_min_ns == 0 || when_ns < self.reclaim_min_ns {
            self.reclaim_min_ns = when_ns;
        }
        if let Some(cpu) = self.this_cpu {
            self.cpus[cpu].is_deadline_stale = true;
        }
    }

    fn first_processor(&self, environment: EnvironmentId) -> Option<ProcessorId> {
        self.processors.find(|p| p.serial != 0 && p.environment == Some(environment))
    }

    /// Does a bounded piece of each repossession whose time has come.
    pub(crate) fn reclaim_due(&mut self, now_ns: u64) {
        if self.reclaim_min_ns == 0 || now_ns < self.reclaim_min_ns {
            return;
        }
        self.reclaim_min_ns = 0;
        for environment in self.environments.ids() {
            let object = &self.environments[environment];
            if object.serial == 0 || object.reclaim.deadline_ns == 0 {
                continue;
            }
            let deadline_ns = object.reclaim.deadline_ns;
            if object.is_ending || object.frames_owned <= object.reclaim.frames_target {
                self.environments[environment].reclaim = Reclaim::NONE;
            } else if now_ns < deadline_ns {
                self.note_reclaim(deadline_ns);
            } else {
                let mut budget = WALK_BUDGET;
                while budget != 0 && self.repossess_step(environment, &mut budget) {}
                if self.environments[environment].reclaim.deadline_ns != 0 {
                    self.note_reclaim(now_ns.saturating_add(STEP_NS));
                }
            }
        }
    }

    /// Goes on with taking one frame; false if there is nothing (more) to take.
    fn repossess_step(&mut self, environment: EnvironmentId, budget: &mut usize) -> bool {
        *budget = budget.saturating_sub(256);
        let object = &self.environments[environment];
        if object.frames_owned <= object.reclaim.frames_target {
            self.environments[environment].reclaim = Reclaim::NONE;
            return false;
        }
        let Some((at, capability)) = self.reclaim_victim(environment) else {
            // All that is left is pinned or donated: the creator can end the environment.
            self.environments[environment].reclaim = Reclaim::NONE;
            return false;
        };
        let frame = capability.object + capability.count - 1;
        match self.revoke(at, budget, false) {
            Ok(Progress::Done) => {}
            Ok(Progress::More) => return true,
            Err(_) => {
                self.environments[environment].reclaim.slot = at.slot + 1;
                return true;
            }
        }
        let reclaim = &mut self.environments[environment].reclaim;
        if reclaim.frame != frame {
            reclaim.frame = frame;
            reclaim.cursor = 0;
        }
        let mut cursor = reclaim.cursor;
        if self.frames.any_mapped(frame, 1) {
            let broken = Broken::Frames { first: frame, count: 1, except: Some(at) };
            let progress = self.break_mappings(environment, broken, &mut cursor, budget);
            self.environments[environment].reclaim.cursor = cursor;
            if progress == Progress::More {
                return true;
            }
            if self.frames.any_mapped(frame, 1) {
                // It was mapped again behind the cursor: start over.
                self.environments[environment].reclaim.cursor = 0;
                return true;
            }
        }
        self.take_last_frame(at, capability.object, capability.count);
        true
    }

    /// The next original capability, whose last frame is not pinned.
    fn reclaim_victim(&self, environment: EnvironmentId) -> Option<(CapRef, Capability)> {
        let first_slot = self.environments[environment].reclaim.slot;
        self.slots(environment)
            .filter(|at| at.slot >= first_slot)
            .filter_map(|at| Some((at, self.capability(at)?)))
            .filter(|(_, c)| c.kind == CapType::Frames && c.parent.is_none())
            .filter(|(_, c)| c.flags & (DYING | FILLING) == 0)
            .find(|(_, c)| !self.frames.any_pinned(c.object + c.count - 1, 1))
    }

    fn take_last_frame(&mut self, at: CapRef, first: u64, count: u64) {
        let environment = at.environment;
        let frame = FrameNumber(first + count - 1);
        if count == 1 {
            self.unlink(at);
        } else if let Some(mut capability) = self.capability(at) {
            capability.count -= 1;
            self.store_capability(at, &capability);
        }
        self.free_frames(environment, frame.0, 1, false);
        if let Some(processor) = self.first_processor(environment) {
            self.report_repossessed(processor, frame);
            self.make_due(processor, UpcallKind::Repossession);
        }
    }
}

const _: () = assert!(size_of::<ControlPage>() <= 4096);
