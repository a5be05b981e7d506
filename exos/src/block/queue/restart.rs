//! What becomes of requests when their disk stops answering.
//!
//! It is reset, and everything that it had is given to it again, in the order of tags. That is tried
//! [`ATTEMPT_COUNT_MAX`] times without a request that ended in between; then the disk is not used any more, and all
//! requests end as `EIO`, those too that come later. A disk that does not even stop may still use their memory: those
//! requests end as well, but their owners, who keep the memory, are kept for ever.

use core::sync::atomic::Ordering;

use super::{BlockQueue, Phase, State};
use crate::block::disk::{DiskReset, DiskSubmitError};
use crate::block::order::Group;
use crate::error::Errno;

/// Resets in a row.
pub(super) const ATTEMPT_COUNT_MAX: u32 = 8;
/// From one to the next.
const PAUSE_NS: u64 = 100_000_000;
/// From one question to the next whether a reset has come to its end, and how long one may take.
const QUESTION_NS: u64 = 1_000_000;
const PENDING_NS_MAX: u64 = 30_000_000_000;

/// How far a restart is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restart {
    /// One is to begin with the next look.
    pub(super) is_due: bool,
    /// Resets since a request ended.
    pub(super) attempt_count: u32,
    /// When to go on.
    pub(super) next_ns: u64,
    /// How long the present reset takes.
    pending_ns: u64,
}

impl BlockQueue {
    pub(super) fn begin_restart(&self, state: &mut State, now_ns: u64) {
        if state.phase == Phase::Running {
            state.phase = Phase::Restarting;
            self.under_way_count.fetch_add(1, Ordering::AcqRel);
        }
        state.is_asked = false;
        state.restart.pending_ns = 0;
        state.restart.attempt_count += 1;
        state.statistics.restart_count += 1;
        self.reset(state, now_ns);
    }

    /// A look while the disk restarts.
    pub(super) fn go_on_restarting(&self, state: &mut State, passed_ns: u64, now_ns: u64) {
        if state.phase != Phase::Restarting || now_ns < state.restart.next_ns {
            return;
        }
        if state.restart.pending_ns == 0 {
            return self.begin_restart(state, now_ns);
        }
        state.restart.pending_ns += passed_ns;
        self.reset(state, now_ns);
    }

    fn reset(&self, state: &mut State, now_ns: u64) {
        match self.disk.reset() {
            DiskReset::Done => self.give_again(state, now_ns),
            DiskReset::Pending if state.restart.pending_ns < PENDING_NS_MAX => {
                state.restart.pending_ns = state.restart.pending_ns.max(1);
                state.restart.next_ns = now_ns.saturating_add(QUESTION_NS);
            }
            DiskReset::Failed | DiskReset::Pending => self.try_later(state, now_ns),
            DiskReset::Lost => self.give_up(state, true),
        }
    }

    fn try_later(&self, state: &mut State, now_ns: u64) {
        if state.restart.attempt_count >= ATTEMPT_COUNT_MAX {
            return self.give_up(state, false);
        }
        state.restart.pending_ns = 0;
        state.restart.next_ns = now_ns.saturating_add(PAUSE_NS);
    }

    /// The disk is back: it gets all that it had.
    fn give_again(&self, state: &mut State, now_ns: u64) {
        if state.restart.attempt_count > ATTEMPT_COUNT_MAX {
            return self.give_up(state, false);
        }
        let limits = self.disk.limits();
        if limits.sector_count < state.limits.sector_count
            || limits.logical_block_bytes != state.limits.logical_block_bytes
        {
            // Another disk has come in its place.
            return self.give_up(state, false);
        }
        state.phase = Phase::Running;
        (state.looked_ns, state.silence_ns) = (now_ns, 0);
        self.under_way_count.fetch_sub(1, Ordering::AcqRel);
        for index in 0..state.flights.len() {
            let Some(flight) = state.flights[index].take() else { continue };
            let tag = index as u16;
            match self.submit_group(state, tag, &flight.group) {
                Ok(()) => state.flights[index] = Some(flight),
                Err(DiskSubmitError::Refused) => {
                    self.forget(state, tag);
                    state.fail_group(flight.group, Errno::EIO);
                }
                Err(DiskSubmitError::Full) => {
                    self.forget(state, tag);
                    state.pending.put_back(flight.group);
                }
                Err(DiskSubmitError::Broken) => {
                    state.flights[index] = Some(flight);
                    return self.fail_again(state, now_ns);
                }
            }
        }
        if self.disk.show().is_err() {
            self.fail_again(state, now_ns);
        }
    }

    /// It broke at once: the next attempt waits.
    fn fail_again(&self, state: &mut State, now_ns: u64) {
        state.phase = Phase::Restarting;
        self.under_way_count.fetch_add(1, Ordering::AcqRel);
        self.try_later(state, now_ns);
    }

    fn forget(&self, state: &mut State, tag: u16) {
        state.statistics.withdraw();
        state.free_tags.push(tag);
        self.under_way_count.fetch_sub(1, Ordering::AcqRel);
    }

    /// The disk is not used any more.
    fn give_up(&self, state: &mut State, keeps_memory: bool) {
        state.phase = Phase::Failed;
        self.under_way_count.store(0, Ordering::Release);
        for index in 0..state.flights.len() {
            let Some(mut flight) = state.flights[index].take() else { continue };
            if keeps_memory {
                flight.group.keep_for_ever();
            }
            state.end_all(flight.group);
        }
        while let Some(group) = state.take_next(0) {
            state.end_all(group);
        }
    }
}

impl State {
    fn end_all(&mut self, group: Group) {
        self.statistics.error_count += 1;
        self.end_group(group, Err(Errno::EIO));
    }
}
