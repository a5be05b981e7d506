//! The request list of a disk: [`BlockQueue`].
//!
//! Requests are collected ([`BlockQueue::submit`]), joined and ordered ([`super::order`]) and given to the disk as far
//! as it has room ([`BlockQueue::start`]). A look ([`BlockQueue::look`]) takes in for all what the disk has done, and
//! tells the owners. One request on an idle disk meets no tree.
//!
//! A disk that says nothing for [`SILENCE_NS`] while something is under way, or breaks its protocol, is reset and given
//! everything again ([`restart`]): reads and writes can be repeated, and programs see a pause. Only time between looks
//! that is plausible counts: a machine that was stopped meanwhile has not waited. An error that the disk tells of is
//! not repeated; the request it belongs to gets it, once, alone: a group that failed goes again request by request.
//!
//! Invariants: the lock is a spin lock, held over no wait and no other lock; owners are told without it (INV-B1), so
//! what has ended lies in `ended` until somebody told of it. Memory of a request is its own or its owner's to keep, and
//! is kept for ever if the disk does not even stop.

mod restart;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::disk::{Disk, DiskError, DiskLimits, DiskOperation, DiskRequest, DiskSubmitError, SECTOR_BYTES, Watching};
use super::linger::Linger;
use super::order::{Group, OrderPolicy, Pending};
use super::request::BlockRequest;
use super::statistics::Statistics;
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::mem::pinned::FramePiece;
use crate::reserve;
use crate::sync::{Once, SpinMutex, SpinMutexGuard};

/// Requests that were taken and have not ended, at most.
pub const REQUEST_COUNT_MAX: usize = 1024;
/// Requests that are given to a disk at once, at most.
const DEPTH_MAX: u16 = 256;
/// A disk that has something to do and says nothing for so long is reset.
pub const SILENCE_NS: u64 = 2_000_000_000;
/// Most time that counts from one look to the next, and the time after which the next is due.
pub const LOOK_NS_MAX: u64 = 200_000_000;

/// Whether the disk works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// It is reset, or is to be once more.
    Restarting,
    /// It is not used any more.
    Failed,
}

/// A group that the disk has.
struct Flight {
    group: Group,
    begun_ns: u64,
}

struct State {
    limits: DiskLimits,
    phase: Phase,
    /// What came last, while nothing else waits; the next may join it.
    staged: Option<Group>,
    pending: Pending,
    /// The disk was given something and not shown it.
    has_unshown: bool,
    /// Whoever has the lock shows it when he has given the lock back.
    is_show_due: bool,
    /// It was asked to interrupt, and has neither done so nor been looked at since.
    is_asked: bool,
    /// By tag.
    flights: Vec<Option<Flight>>,
    free_tags: Vec<u16>,
    /// Pieces of a group of several requests, for the time of a call.
    scratch: Vec<FramePiece>,
    ended: VecDeque<(BlockRequest, Result<()>)>,
    looked_ns: u64,
    silence_ns: u64,
    restart: restart::Restart,
    statistics: Statistics,
}

/// The request list of a disk.
pub struct BlockQueue {
    disk: Arc<dyn Disk>,
    state: SpinMutex<State>,
    /// Requests that were taken and have not ended.
    request_count: AtomicUsize,
    /// Groups that the disk has, and one more while it restarts.
    under_way_count: AtomicUsize,
    /// What it has come to lately to look before a sleep.
    linger: Linger,
    /// Told when there is room again.
    room: Arc<WaitQueue>,
    /// Called after [`Self::start`].
    started: Once<StartHook>,
}

/// What is called after each start of a list, by whoever started it and without its lock.
pub type StartHook = Box<dyn Fn(&BlockQueue) + Send + Sync>;

impl BlockQueue {
    /// An empty list for `disk`. `ENOMEM`.
    pub fn new(disk: Arc<dyn Disk>, policy: OrderPolicy) -> Result<Arc<Self>> {
        let limits = disk.limits();
        let depth = limits.depth.clamp(1, DEPTH_MAX);
        let mut flights = reserve::vector(usize::from(depth))?;
        flights.resize_with(usize::from(depth), || None);
        let mut free_tags = reserve::vector(usize::from(depth))?;
        free_tags.extend((0..depth).rev());
        let state = State {
            limits,
            phase: Phase::Running,
            staged: None,
            pending: Pending::new(policy),
            has_unshown: false,
            is_show_due: false,
            is_asked: false,
            flights,
            free_tags,
            scratch: Vec::new(),
            ended: VecDeque::new(),
            looked_ns: 0,
            silence_ns: 0,
            restart: restart::Restart::default(),
            statistics: Statistics::default(),
        };
        Ok(Arc::new(Self {
            disk,
            state: SpinMutex::new(state),
            request_count: AtomicUsize::new(0),
            under_way_count: AtomicUsize::new(0),
            linger: Linger::default(),
            room: WaitQueue::new(),
            started: Once::new(),
        }))
    }

    /// What the disk is and takes.
    #[must_use]
    pub fn limits(&self) -> DiskLimits {
        self.state.lock().limits
    }

    /// Something about that, without a copy of it.
    #[inline(always)]
    pub fn with_limits<T>(&self, about: impl FnOnce(&DiskLimits) -> T) -> T {
        about(&self.state.lock().limits)
    }

    /// In what order requests go.
    #[must_use]
    pub fn policy(&self) -> OrderPolicy {
        self.state.lock().pending.policy()
    }

    /// Changes it, also for those that wait.
    pub fn set_policy(&self, policy: OrderPolicy, now_ns: u64) {
        let mut state = self.state.lock();
        let limits = state.limits;
        state.pending.set_policy(policy, &limits, now_ns);
    }

    /// What was done so far.
    #[must_use]
    pub fn statistics(&self, now_ns: u64) -> Statistics {
        let mut state = self.state.lock();
        state.statistics.count_time(now_ns);
        state.statistics
    }

    /// Told when a request has ended after [`Self::submit`] had no room.
    #[must_use]
    pub fn room(&self) -> &Arc<WaitQueue> {
        &self.room
    }

    /// Whether a request is at the disk, so that a look may find something.
    #[must_use]
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.under_way_count.load(Ordering::Acquire) > 0
    }

    /// Whether a request would find no room now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.request_count.load(Ordering::Relaxed) >= REQUEST_COUNT_MAX
    }

    /// Takes a request; the disk gets it with [`Self::start`] at the latest. Its owner is told of its end, but not
    /// before this returns unless another looks.
    ///
    /// # Errors
    /// `EAGAIN`: there are [`REQUEST_COUNT_MAX`] ([`Self::room`] tells of the next). `EINVAL`: it is against the disk's
    /// limits. `EROFS`, `EOPNOTSUPP`. `EIO`: the disk is not used any more.
    pub fn submit(&self, request: BlockRequest, now_ns: u64) -> Result<()> {
        let mut state = self.state.lock();
        check(&request, &state.limits)?;
        if state.phase == Phase::Failed {
            return Err(Errno::EIO);
        }
        if self.is_full() {
            return Err(Errno::EAGAIN);
        }
        self.request_count.fetch_add(1, Ordering::Relaxed);
        if state.staged.is_none() && state.pending.is_empty() {
            state.staged = Some(Group::new(request));
        } else {
            self.collect(&mut state, Group::new(request), now_ns);
        }
        Ok(())
    }

    /// Puts a request behind those that wait. Where their order is nothing to the disk and it has room, the one before
    /// it goes first, if the two are not to be one: so the trees are for what has to wait.
    fn collect(&self, state: &mut State, mut group: Group, now_ns: u64) {
        if state.is_order_free() {
            // They are large: one that cannot join is not moved there and back.
            let State { staged, limits, pending, .. } = &mut *state;
            let joins = |staged: &&mut Group| pending.policy() != OrderPolicy::Fifo && staged.takes(&group, limits);
            if let Some(staged) = staged.as_mut().filter(joins) {
                let Some(refused) = staged.join(group, limits) else { return };
                group = refused;
            }
            if let Some(tag) = state.free_tags.pop() {
                match state.staged.take() {
                    Some(staged) => state.has_unshown |= self.give(state, tag, staged, now_ns),
                    None => state.free_tags.push(tag),
                }
            }
        }
        state.stage(group, now_ns);
    }

    /// Gives the disk what was collected, as far as it has room.
    pub fn start(&self, now_ns: u64) {
        let mut state = self.state.lock();
        self.dispatch(&mut state, now_ns);
        self.leave(state, now_ns);
        if let Some(started) = self.started.get() {
            started(self);
        }
    }

    /// As [`Self::start`], for a caller that waits for what it has submitted and has the disk interrupt before it
    /// sleeps ([`Self::may_sleep`]): nobody else has to look.
    pub fn start_awaited(&self, now_ns: u64) {
        let mut state = self.state.lock();
        self.dispatch(&mut state, now_ns);
        self.leave(state, now_ns);
    }

    /// Has `hook` called after each [`Self::start`], once and for good: it sees to it that somebody looks, where nobody
    /// who would is awake.
    pub fn call_at_starts(&self, hook: StartHook) {
        self.started.call_once(|| hook);
    }

    /// Takes in what the disk has done, starts what there is room for then, and tells the owners. Whether a request has
    /// ended.
    pub fn look(&self, now_ns: u64) -> bool {
        if !self.is_busy() {
            return false;
        }
        let mut state = self.state.lock();
        self.take_in(&mut state, now_ns);
        self.dispatch(&mut state, now_ns);
        self.leave(state, now_ns)
    }

    /// Whether the disk has completed something, for somebody who keeps looking ([`Self::linger`]).
    #[must_use]
    #[inline]
    pub fn watch(&self) -> bool {
        self.disk.watch()
    }

    /// What it is to look at the disk.
    #[must_use]
    pub fn watching(&self) -> Watching {
        self.disk.watching()
    }

    /// Whether a wait for this disk looks for a short time before it sleeps; then what that came to is told to the
    /// answer.
    #[must_use]
    pub fn linger(&self) -> Option<&Linger> {
        let may_help = self.is_busy() && self.disk.watching() != Watching::Hinders;
        Some(&self.linger).filter(|linger| may_help && linger.is_due())
    }

    /// Whether a look finds something: the disk has completed a request, or time says so.
    #[must_use]
    pub fn has_news(&self, now_ns: u64) -> bool {
        self.is_busy() && (self.disk.has_completed() || self.due_ns().is_some_and(|due_ns| due_ns <= now_ns))
    }

    /// When [`Self::look`] is due although the disk says nothing.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        let state = self.state.lock();
        Some(match state.phase {
            Phase::Restarting => state.restart.next_ns,
            _ => state.looked_ns.saturating_add(LOOK_NS_MAX),
        })
    }

    /// Asks the disk to interrupt when it has something. False: it has already, and nobody should sleep before a look.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        if !self.is_busy() {
            return true;
        }
        let mut state = self.state.lock();
        if state.phase != Phase::Running {
            return true;
        }
        if state.is_asked && !state.has_unshown {
            return !self.disk.has_completed();
        }
        match self.disk.ask_for_interrupt() {
            Ok(must_look) => {
                state.is_asked = !must_look;
                !must_look
            }
            Err(_) => {
                state.restart.is_due = true;
                false
            }
        }
    }

    /// The disk has interrupted, or something has rung its bell: to be told again it has to be asked again.
    pub fn note_interrupt(&self) {
        self.state.lock().is_asked = false;
    }

    /// Shows the disk what it was given and tells of what has ended, without the lock.
    fn leave<'a>(&'a self, mut state: SpinMutexGuard<'a, State>, now_ns: u64) -> bool {
        if core::mem::take(&mut state.is_show_due) {
            let has_ended = !state.ended.is_empty();
            drop(state);
            let is_broken = self.disk.show().is_err();
            if !is_broken && !has_ended {
                return false;
            }
            state = self.state.lock();
            if is_broken && state.phase == Phase::Running {
                self.begin_restart(&mut state, now_ns);
            }
        }
        if state.ended.is_empty() {
            return false;
        }
        let mut ended = core::mem::take(&mut state.ended);
        drop(state);
        while let Some((request, outcome)) = ended.pop_front() {
            let was_full = self.request_count.fetch_sub(1, Ordering::Relaxed) >= REQUEST_COUNT_MAX;
            request.owner.done(request.token, outcome);
            drop(request);
            if was_full {
                self.room.notify(Readiness::WRITE);
            }
        }
        // Its memory is for the next that end, unless others have begun anew meanwhile.
        let mut state = self.state.lock();
        if state.ended.capacity() == 0 {
            state.ended = ended;
        }
        true
    }

    /// What the disk has done.
    fn take_in(&self, state: &mut State, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(state.looked_ns).min(LOOK_NS_MAX);
        state.looked_ns = now_ns;
        if state.phase != Phase::Running {
            return self.go_on_restarting(state, passed_ns, now_ns);
        }
        state.is_asked = false;
        let mut count = 0;
        let is_broken = {
            let disk = &self.disk;
            let mut done = |tag, outcome| {
                count += usize::from(state.land(tag, outcome, now_ns));
            };
            disk.poll(&mut done).is_err()
        };
        if count > 0 {
            self.under_way_count.fetch_sub(count, Ordering::AcqRel);
            state.silence_ns = 0;
            state.restart.attempt_count = 0;
        } else {
            state.silence_ns += passed_ns;
        }
        let is_silent = state.silence_ns >= SILENCE_NS && self.is_busy();
        if is_broken || is_silent || core::mem::take(&mut state.restart.is_due) {
            self.begin_restart(state, now_ns);
        }
    }

    /// Gives the disk groups while it has room.
    fn dispatch(&self, state: &mut State, now_ns: u64) {
        if state.phase != Phase::Running {
            // Time has to bring the next look, with something at the disk or not.
            return;
        }
        let mut count = 0;
        while state.has_waiting()
            && let Some(tag) = state.free_tags.pop()
        {
            let Some(group) = state.take_next(now_ns) else {
                state.free_tags.push(tag);
                break;
            };
            if !self.give(state, tag, group, now_ns) {
                break;
            }
            count += 1;
        }
        let has_unshown = core::mem::take(&mut state.has_unshown) || count > 0;
        state.is_show_due |= has_unshown && state.phase == Phase::Running;
    }

    /// Gives the disk a group; false: no more now.
    fn give(&self, state: &mut State, tag: u16, group: Group, now_ns: u64) -> bool {
        match self.submit_group(state, tag, &group) {
            Ok(()) => {
                if self.under_way_count.fetch_add(1, Ordering::AcqRel) == 0 {
                    (state.looked_ns, state.silence_ns) = (now_ns, 0);
                }
                state.statistics.begin(now_ns);
                state.flights[usize::from(tag)] = Some(Flight { group, begun_ns: now_ns });
                true
            }
            Err(error) => {
                state.free_tags.push(tag);
                match error {
                    DiskSubmitError::Refused => {
                        state.fail_group(group, Errno::EIO);
                        true
                    }
                    DiskSubmitError::Full if self.is_busy() => {
                        state.pending.put_back(group);
                        false
                    }
                    DiskSubmitError::Full | DiskSubmitError::Broken => {
                        state.pending.put_back(group);
                        self.begin_restart(state, now_ns);
                        false
                    }
                }
            }
        }
    }

    fn submit_group(&self, state: &mut State, tag: u16, group: &Group) -> core::result::Result<(), DiskSubmitError> {
        let pieces = if group.rest.is_empty() {
            group.first.memory.pieces()
        } else {
            state.scratch.clear();
            let count = group.requests().map(|request| request.memory.pieces().len()).sum();
            if state.scratch.try_reserve(count).is_err() {
                // Request by request it needs none.
                return Err(DiskSubmitError::Refused);
            }
            group.requests().for_each(|request| state.scratch.extend_from_slice(request.memory.pieces()));
            &state.scratch
        };
        self.disk.submit(&DiskRequest {
            tag,
            operation: group.operation(),
            first_sector: group.first_sector(),
            sector_count: group.sector_count(),
            pieces,
        })
    }
}

impl State {
    /// Whether requests may go in the order in which they came: the disk has no head that moves and room, and nothing
    /// waits in another order.
    fn is_order_free(&self) -> bool {
        self.phase == Phase::Running
            && !self.limits.is_rotational
            && self.pending.is_empty()
            && self.pending.policy() != OrderPolicy::Elevator
            && !self.free_tags.is_empty()
    }

    fn stage(&mut self, group: Group, now_ns: u64) {
        if self.staged.is_none() && self.pending.is_empty() {
            self.staged = Some(group);
            return;
        }
        if let Some(staged) = self.staged.take() {
            self.pending.insert(staged, &self.limits, now_ns);
        }
        self.pending.insert(group, &self.limits, now_ns);
    }

    /// Whether something waits for a place at the disk.
    #[inline]
    fn has_waiting(&self) -> bool {
        self.staged.is_some() || !self.pending.is_empty()
    }

    fn take_next(&mut self, now_ns: u64) -> Option<Group> {
        self.staged.take().or_else(|| self.pending.take_next(now_ns))
    }

    /// A tag has ended. False: it was not under way, which the disk should know.
    fn land(&mut self, tag: u16, outcome: core::result::Result<(), DiskError>, now_ns: u64) -> bool {
        let Some(flight) = self.flights.get_mut(usize::from(tag)).and_then(Option::take) else { return false };
        self.free_tags.push(tag);
        self.statistics.end(flight.group.operation(), flight.group.sector_count(), flight.begun_ns, now_ns);
        match outcome {
            Ok(()) => self.end_group(flight.group, Ok(())),
            Err(DiskError::Input) => self.fail_group(flight.group, Errno::EIO),
            Err(DiskError::Unsupported) => self.fail_group(flight.group, Errno::EOPNOTSUPP),
        }
        true
    }

    fn end_group(&mut self, group: Group, outcome: Result<()>) {
        let Group { first, rest, .. } = group;
        self.ended.push_back((first, outcome));
        self.ended.extend(rest.into_iter().map(|request| (request, outcome)));
    }

    /// The disk has refused a group. Of several requests each goes once more by itself, so that the right one fails.
    fn fail_group(&mut self, group: Group, error: Errno) {
        if group.rest.is_empty() {
            self.statistics.error_count += 1;
            return self.end_group(group, Err(error));
        }
        for request in group.into_requests() {
            self.pending.insert(Group::alone(request), &self.limits, 0);
        }
    }
}

/// Whether the disk takes such a request.
fn check(request: &BlockRequest, limits: &DiskLimits) -> Result<()> {
    let operation = request.operation;
    if operation.is_write() && limits.is_read_only {
        return Err(Errno::EROFS);
    }
    let sector_count_max = match operation {
        DiskOperation::Read | DiskOperation::Write => limits.sector_count_max,
        DiskOperation::Flush => 0,
        DiskOperation::Discard => limits.discard.ok_or(Errno::EOPNOTSUPP)?.sector_count_max,
        DiskOperation::WriteZeroes => limits.write_zeroes.ok_or(Errno::EOPNOTSUPP)?.sector_count_max,
    };
    let block_sectors = u64::from((limits.logical_block_bytes / SECTOR_BYTES).max(1));
    let is_aligned = (request.first_sector | u64::from(request.sector_count)).is_multiple_of(block_sectors);
    let pieces = request.memory.pieces();
    let fits = request.is_consistent()
        && is_aligned
        && request.sector_count <= sector_count_max
        && request.end_sector() <= limits.sector_count
        && pieces.len() <= usize::from(limits.segment_count_max)
        && pieces.iter().all(|piece| piece.length_bytes <= limits.segment_bytes_max);
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
