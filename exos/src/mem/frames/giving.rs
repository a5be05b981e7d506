//! How large a pool may become, and what becomes of one that is too small or too large: caches that let go, grants that
//! go back to the kernel, what is waited for where there is nothing left; and what is set aside for that.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_abi::FrameNumber;

use super::{FramePool, GROUP_FRAMES, RESERVE_FRAMES_MAX, RESERVE_SHARE, Reclaim, State};
use crate::platform::FrameGrant;
use crate::preempt;

impl FramePool {
    /// Sets frames aside for [`Self::with_reserve`], as many as the limit asks for and as there are.
    pub fn fill_reserve(&self) {
        let wanted = (self.limits().0 / RESERVE_SHARE).min(RESERVE_FRAMES_MAX) as usize;
        let mut state = self.state.lock();
        while state.reserve.len() < wanted {
            if state.available.is_empty() && self.grow(&mut state).is_err() {
                return;
            }
            let mut frame = [FrameNumber(0)];
            state.take_some(&mut frame);
            state.reserve.extend(frame);
        }
    }

    /// Does what must not fail for want of a few frames: while it runs, an allocation that finds none takes one that
    /// was set aside.
    pub fn with_reserve<T>(&self, work: impl FnOnce() -> T) -> T {
        self.urgent_count.fetch_add(1, Ordering::Relaxed);
        let result = work();
        self.urgent_count.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Asks the cache for frames; answers how many came.
    pub fn reclaim(&self, frame_count: u64) -> u64 {
        let released = self.cache().map_or(0, |cache| cache.reclaim(frame_count));
        if released > 0 {
            self.kernel.note_pressure(released);
        }
        released
    }

    fn cache(&self) -> Option<Arc<dyn Reclaim>> {
        self.reclaimer.lock().as_ref().and_then(Weak::upgrade)
    }

    /// The limit as it was when the pool last asked for it.
    #[must_use]
    pub fn limit_at_last(&self) -> u64 {
        self.limit_frames.load(Ordering::Relaxed)
    }

    /// Frames that the pool may hold now, and beyond which its limit will never be.
    pub fn limits(&self) -> (u64, u64) {
        let now = self.kernel.frame_limit().map_or(self.limit_frames_max, |limit| limit.min(self.limit_frames_max));
        self.limit_frames.store(now, Ordering::Relaxed);
        (now, self.limit_frames_max)
    }

    /// Frames that can still be had, as far as the pool knows: free ones and those not yet taken.
    #[must_use]
    pub fn frames_available(&self) -> u64 {
        self.available_in(&self.state.lock())
    }

    /// The same, after the kernel was asked.
    pub fn frames_available_now(&self) -> u64 {
        self.limits();
        let state = self.state.lock();
        self.note_attainable(&state);
        self.available_in(&state)
    }

    /// Takes frames from the kernel until `frame_count` are free; answers how many are. What the kernel has it cannot
    /// always give: it may lie in pieces.
    pub fn hold_free(&self, frame_count: u64) -> u64 {
        let mut state = self.state.lock();
        while state.free < frame_count && self.grow(&mut state).is_ok() {}
        state.free
    }

    fn available_in(&self, state: &State) -> u64 {
        let most = self.limit_at_last().min(self.attainable_frames.load(Ordering::Relaxed));
        state.free + most.saturating_sub(state.held)
    }

    /// Asks how many frames there are beside the pool's.
    pub(super) fn note_attainable(&self, state: &State) {
        let free = self.kernel.frame_count_free().unwrap_or(u64::MAX);
        self.attainable_frames.store(state.held.saturating_add(free), Ordering::Relaxed);
    }

    /// Frames that the pool can be allowed at most while the pod runs; what it may hold now may be less.
    #[must_use]
    pub fn limit_at_most(&self) -> u64 {
        let (now, max) = self.limits();
        self.kernel.frame_limit_at_most().map_or(now, |most| most.clamp(now, max))
    }

    /// There were no frames for what a caller wants to do: waits until there may be some. False: none will come, or
    /// the caller has something else to do first. Called where a preemption point may be.
    #[must_use]
    pub fn await_frames(&self) -> bool {
        self.kernel.await_frames() && preempt::unless_killed().is_ok()
    }

    /// Frames of grants that could go back to the kernel: free, or given up by the cache without harm.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.emptied(u64::MAX).iter().map(|(_, grant)| grant.count).sum()
    }

    /// Forgets the frames that the kernel has taken by force, wherever they are: they are not given out again, and
    /// caches let go of them even in use. Answers those that were in use, ascending.
    pub fn forget_taken(&self) -> Vec<FrameNumber> {
        let mut taken = Vec::new();
        {
            let mut state = self.state.lock();
            for index in 0..state.grants.len() {
                let grant = state.grants[index];
                let left = self.kernel.frames_left(grant).min(grant.count);
                state.grants[index].count = left;
                for frame in grant.first.0 + left..grant.first.0 + grant.count {
                    taken.extend(state.take_away(FrameNumber(frame)));
                }
            }
            state.grants.retain(|grant| grant.count > 0);
        }
        if taken.is_empty() {
            return taken;
        }
        self.taken_count.fetch_add(1, Ordering::SeqCst);
        taken.sort_unstable();
        let is_taken = |frame: FrameNumber| taken.binary_search(&frame).is_ok();
        {
            let mut state = self.state.lock();
            state.zero_frame.take_if(|frame| is_taken(*frame));
            state.reserve.retain(|frame| !is_taken(*frame));
        }
        if let Some(cache) = self.cache() {
            cache.forget(&is_taken);
        }
        taken
    }

    /// How often frames in use were taken by force: what was noted of frames before one of these times may name some
    /// that are nobody's any more.
    pub(crate) fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::SeqCst)
    }

    /// Lets the pool hold `frame_count` frames less, or as many fewer as can be had without harm: gives whole grants
    /// back to the kernel, those first that hold least, after the cache has let go of what it holds in them. Answers
    /// how many frames went.
    pub fn shrink(&self, frame_count: u64) -> u64 {
        let chosen = self.emptied(frame_count);
        let is_held: u64 = chosen.iter().map(|(held, _)| u64::from(*held)).sum();
        if is_held > 0
            && let Some(cache) = self.cache()
        {
            let numbers = chosen.iter().map(|(_, grant)| (grant.first.0, grant.first.0 + grant.count));
            let mut ranges: Vec<(u64, u64)> = numbers.collect();
            ranges.sort_unstable();
            cache.reclaim_from(&|frame| {
                let index = ranges.partition_point(|(first, _)| *first <= frame.0);
                index > 0 && frame.0 < ranges[index - 1].1
            });
        }
        self.give_back(frame_count)
    }

    /// Grants of at least `frame_count` frames together, if there are so many, that hold nothing but what the cache
    /// can let go of, with how much that is; those first that hold least.
    fn emptied(&self, frame_count: u64) -> Vec<(u32, FrameGrant)> {
        let mut cached = BTreeMap::new();
        if let Some(cache) = self.cache() {
            let seen = &mut |frame: FrameNumber| *cached.entry(frame.0 / GROUP_FRAMES as u64).or_insert(0) += 1;
            cache.visit(seen);
        }
        let state = self.state.lock();
        let fits = |grant: &FrameGrant| {
            let groups = grant.first.0 / GROUP_FRAMES as u64..(grant.first.0 + grant.count) / GROUP_FRAMES as u64;
            let held: u32 = cached.range(groups).map(|(_, count)| *count).sum();
            (state.used_count(*grant) == held).then_some((held, *grant))
        };
        let mut found: Vec<(u32, FrameGrant)> = state.grants.iter().filter_map(fits).collect();
        drop(state);
        found.sort_unstable_by_key(|(held, grant)| (*held, core::cmp::Reverse(grant.count)));
        let mut sum = 0;
        let enough = found.iter().position(|(_, grant)| {
            sum += grant.count;
            sum >= frame_count
        });
        found.truncate(enough.map_or(found.len(), |index| index + 1));
        found
    }

    /// Gives grants without a used frame back to the kernel until `frame_count` frames are given;
    /// answers how many were.
    pub fn give_back(&self, frame_count: u64) -> u64 {
        let mut state = self.state.lock();
        let mut given = 0;
        let mut index = 0;
        while index < state.grants.len() && given < frame_count {
            let grant = state.grants[index];
            if !state.is_grant_free(grant) {
                index += 1;
                continue;
            }
            if self.bytes.detach(grant).is_err() {
                index += 1;
                continue;
            }
            if self.kernel.free_frames(grant).is_err() {
                let attached = self.bytes.attach(grant).is_ok();
                assert!(attached, "INV-4: a grant's view could not be restored");
                index += 1;
                continue;
            }
            state.forget(grant);
            state.grants.swap_remove(index);
            given += grant.count;
        }
        given
    }
}
