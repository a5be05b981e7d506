//! Which task of a pod runs on which virtual processor.
//!
//! A [`Task`] is a thread as the scheduler sees it: something that is running, ready, or blocked until it is woken or
//! until a time. The scheduler decides; the owner of registers and stacks (the personality's glue) does what it decides
//! and keeps its own part in [`Task::machine`].
//!
//! The next task ([`queue`]): in each round every task has a turn of [`SLICE_NS`]. Tasks that were woken go before
//! tasks that wait for their turn, as long as they have some of their own left; a task without waits for the next
//! round, which begins when nobody has any left. A new task gets half of what its maker has, and what it has left at
//! its end goes back. So a task that mostly waits runs soon after it is woken, whatever computes beside it, and a ready
//! task on one processor runs within two rounds, each of at most [`SLICE_NS`] and a [`TICK_NS`] for each task. While
//! some task has another weight than [`WEIGHT_DEFAULT`] or is in a group, turns are drawn for instead (`lots.rs`), in
//! the ratio of weights and groups (`group.rs`); what tasks are worth is set in `control.rs`, and tickets and
//! currencies with names are kept in `ledger.rs`.
//!
//! Invariants: a task is in at most one of: current on one processor, in a ready queue, blocked. A wake is never lost:
//! one that comes while its task has not blocked yet makes the next [`Scheduler::block`] return at once. A processor
//! that goes idle is told of every task that becomes ready afterwards, until it picks one. While somebody is ready that
//! a busy processor could run, that processor has been asked for a tick.
//!
//! Neighbours: [`crate::fs::readiness`], whose waiters tasks are, and `exos/linux/src/glue/fiber.rs`.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::fs::readiness::{Readiness, Waiter};
use crate::sync::{Once, SpinMutex, SpinMutexGuard};
use crate::task::futex::Sleeper;

use queue::{Queues, Turn};
use state::{ENDED, READY, State, Status};

pub use aegis_lottery::{AMOUNT_SUM_MAX, Error};
pub use group::{GROUP_COUNT_MAX, GROUP_WEIGHT_DEFAULT, GroupId, Limit, Purse, Usage};
pub use ledger::{Holder, Refusal, TicketLine};
pub use locks::LockShare;
pub use processors::{NoProcessors, Processors};
pub use queue::SLICE_NS;

/// What a task weighs against the others of its group unless told otherwise.
pub const WEIGHT_DEFAULT: u64 = 1024;
/// Most that a task can weigh.
pub const WEIGHT_MAX: u64 = 1 << 20;

/// How long a woken task waits at most for a processor whose task has some of its turn left; and how much longer than
/// its turn a task may run.
pub const TICK_NS: u64 = 1_000_000;

/// How much longer than its group's limit allows a task may run.
const LIMIT_TICK_NS: u64 = 100_000;

/// Most virtual processors of a pod.
pub const PROCESSOR_COUNT_MAX: usize = 64;

/// A thread as the scheduler sees it.
pub struct Task {
    id: u64,
    /// Kept by its tasks, of which it keeps only those that run, are ready or wait until a time.
    scheduler: Arc<Scheduler>,
    me: Weak<Task>,
    state: State,
    /// Changes under the scheduler's lock only.
    turn: Turn,
    /// Processors that it may run on, a bit each.
    affinity: AtomicU64,
    /// Its weight and its group: changed under the scheduler's lock.
    weight: AtomicU64,
    group: AtomicU32,
    /// Its entry in the draws and 1; 0: none. Touched under the scheduler's lock.
    member: AtomicU32,
    /// The task that made it, and gets back what it has left of its turn.
    maker: Weak<Task>,
    /// Its registers and stack are in use by a processor. Set by the processor that dispatches it, cleared by the one
    /// that has left it.
    pub is_on_processor: AtomicBool,
    /// Where the owner of registers and stacks has its part: what `machine` holds, found without a question what that
    /// is. 0: nothing yet.
    pub place: AtomicUsize,
    /// What the owner of registers and stacks keeps with it.
    pub machine: Once<Box<dyn Any + Send + Sync>>,
}

impl Task {
    /// Its number, never used twice.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Processors that it may run on.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        self.affinity.load(Ordering::Relaxed)
    }

    /// Sets them. Where it runs on another it leaves that at its next tick, which is asked for now; where it waits for
    /// a processor, those that may run it now are told.
    pub fn set_affinity(&self, mask: u64) {
        self.affinity.store(mask, Ordering::Relaxed);
        self.scheduler.affinity_changed(self);
    }

    /// What it weighs against the others of its group.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Control group that its time is charged to.
    #[must_use]
    pub fn group(&self) -> GroupId {
        GroupId(self.group.load(Ordering::Relaxed))
    }

    /// Whether it is not as all others are.
    fn is_uneven(&self) -> bool {
        self.weight() != WEIGHT_DEFAULT || self.group() != GroupId::ROOT
    }

    fn may_run_on(&self, processor: usize) -> bool {
        self.affinity() & 1 << processor != 0
    }

    /// Makes it look again: ready if it is blocked, and its next block returns at once if it is not.
    pub fn wake_up(&self) {
        self.scheduler.wake(self);
    }

    /// As [`Task::wake_up`]; if it runs a program on some processor, that is interrupted.
    pub fn interrupt(&self) {
        let running_on = match self.state.get() {
            Status::Running(processor) => Some(processor),
            _ => None,
        };
        self.wake_up();
        if let Some(processor) = running_on {
            self.scheduler.processors.kick(processor);
        }
    }

    /// Whether it is blocked.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.state.is_blocked()
    }

    /// Whether it is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state.get(), Status::Running(_))
    }
}

impl Waiter for Task {
    fn wake(&self, _: Readiness) {
        self.wake_up();
    }
}

impl Sleeper for Task {
    #[inline(always)]
    fn wake_up(self: &Arc<Self>) {
        self.scheduler.wake_counted(self);
    }
}

/// What a processor does next.
pub enum Choice {
    /// Go on with the current task.
    Stay,
    /// Run this one, which is now current. The one before is not.
    Switch(Arc<Task>),
    /// Nothing is ready: call [`Scheduler::pick`] after every kick.
    Idle,
}

/// A processor.
#[derive(Default)]
struct Seat {
    current: Option<Arc<Task>>,
    /// When its task was last charged for its time.
    charged_ns: u64,
    /// All that was charged for.
    used_ns: u64,
}

impl Seat {
    /// The group of its task.
    fn group(&self) -> GroupId {
        self.current.as_ref().map_or(GroupId::ROOT, |task| task.group())
    }
}

struct Inner {
    queues: Queues,
    sleepers: BTreeMap<(u64, u64), Arc<Task>>,
    seats: Vec<Seat>,
    /// Processors that are idle, a bit each.
    idle: u64,
    next_id: u64,
}

/// Processors to tell that somebody is ready, once the lock is free.
enum Notice {
    /// One that is idle, or that has to look at once.
    Kick(usize),
    /// All of these are busy: they are asked for a tick.
    Busy { mask: u64, within_ns: u64 },
}

/// What was decided, and the tick that is wanted for it.
struct Decision {
    choice: Choice,
    tick_within_ns: Option<u64>,
}

impl From<Choice> for Decision {
    fn from(choice: Choice) -> Self {
        Self { choice, tick_within_ns: None }
    }
}

impl Inner {
    /// Takes from the current task's turn what it has used; whether a group may have used up its limit by that
    /// ([`Scheduler::arm_release`]).
    fn charge(&mut self, processor: usize, now_ns: u64) -> bool {
        let seat = &mut self.seats[processor];
        let since_ns = now_ns.saturating_sub(seat.charged_ns);
        seat.charged_ns = now_ns;
        let Some(task) = &seat.current else { return false };
        task.turn.charge(since_ns);
        seat.used_ns += since_ns;
        let is_uneven = self.queues.is_uneven();
        if is_uneven {
            self.charge_group(processor, since_ns, now_ns);
        }
        is_uneven
    }

    /// Charges the running task of each processor.
    fn charge_all(&mut self, now_ns: u64) {
        for processor in 0..self.seats.len() {
            self.charge(processor, now_ns);
        }
    }

    #[cold]
    fn charge_group(&mut self, processor: usize, since_ns: u64, now_ns: u64) {
        let group = self.seats[processor].group();
        if group != GroupId::ROOT {
            self.queues.groups.charge(group, since_ns, now_ns);
        }
    }

    #[inline]
    fn choose(&mut self, processor: usize, before: Option<&Arc<Task>>, now_ns: u64) -> Decision {
        if self.queues.is_uneven() {
            return self.choose_by_lot(processor, before, now_ns);
        }
        self.choose_in_turn(processor, before, now_ns)
    }

    /// As [`Inner::choose`] where all are equal.
    #[inline(always)]
    fn choose_in_turn(&mut self, processor: usize, before: Option<&Arc<Task>>, now_ns: u64) -> Decision {
        let taken = self.queues.take_in_turn(processor);
        let Some(choice) = self.seat(processor, before, taken, now_ns) else { return self.go_idle(processor) };
        let tick_within_ns = if self.queues.has_no_turn() { None } else { self.tick_for_others(processor) };
        Decision { choice, tick_within_ns }
    }

    /// As [`Inner::choose`] where turns are drawn for.
    #[cold]
    fn choose_by_lot(&mut self, processor: usize, before: Option<&Arc<Task>>, now_ns: u64) -> Decision {
        let taken = self.queues.take_by_lot(processor);
        let Some(choice) = self.seat(processor, before, taken, now_ns) else { return self.go_idle(processor) };
        Decision { choice, tick_within_ns: self.wanted_tick_of_uneven(processor) }
    }

    fn go_idle(&mut self, processor: usize) -> Decision {
        self.seats[processor].current = None;
        self.idle |= 1 << processor;
        Choice::Idle.into()
    }

    /// Makes a task that was taken the current one.
    #[inline(always)]
    fn seat(
        &mut self,
        processor: usize,
        before: Option<&Arc<Task>>,
        taken: Option<Arc<Task>>,
        now_ns: u64,
    ) -> Option<Choice> {
        let task = taken?;
        let seat = &mut self.seats[processor];
        seat.current = Some(task.clone());
        seat.charged_ns = now_ns;
        let is_same = before.is_some_and(|before| Arc::ptr_eq(before, &task));
        Some(if is_same { Choice::Stay } else { Choice::Switch(task) })
    }

    /// Has a task woken at a time: that, if it is the earliest now.
    fn note_sleeper(&mut self, task: Arc<Task>, deadline_ns: u64) -> Option<u64> {
        let is_first = self.sleepers.first_key_value().is_none_or(|((first, _), _)| deadline_ns < *first);
        self.sleepers.insert((deadline_ns, task.id), task);
        is_first.then_some(deadline_ns)
    }

    #[inline(never)]
    fn forget_sleeper(&mut self, task: &Task, deadline_ns: u64) {
        self.sleepers.remove(&(deadline_ns, task.id));
    }

    /// When a busy processor has to look whether its task has to make room; `None` if nobody waits for that.
    fn wanted_tick(&self, processor: usize) -> Option<u64> {
        if self.queues.is_uneven() {
            return self.wanted_tick_of_uneven(processor);
        }
        if self.queues.has_no_turn() { None } else { self.tick_for_others(processor) }
    }

    #[cold]
    fn wanted_tick_of_uneven(&self, processor: usize) -> Option<u64> {
        let within_ns = if self.queues.len() == 0 { None } else { self.tick_for_others(processor) };
        let left_ns = self.queues.groups.left_ns(self.seats[processor].group());
        left_ns.map(|left_ns| left_ns.max(LIMIT_TICK_NS)).into_iter().chain(within_ns).min()
    }

    fn tick_for_others(&self, processor: usize) -> Option<u64> {
        if self.queues.has_woken(processor) {
            return Some(TICK_NS);
        }
        let left_ns = self.seats[processor].current.as_ref().map_or(0, |task| task.turn.left_ns());
        self.queues.has_any(processor).then(|| left_ns.max(TICK_NS))
    }

    /// Makes a task ready that was not running.
    #[inline(always)]
    fn make_ready(&mut self, task: Arc<Task>) -> Notice {
        task.state.set(READY);
        let told = self.take_idle(&task);
        let mask = task.affinity();
        let is_ahead = self.queues.push_woken(task);
        let within_ns = if is_ahead { TICK_NS } else { SLICE_NS };
        told.unwrap_or(Notice::Busy { mask, within_ns })
    }

    /// An idle processor that can run a task, which is not idle any more: it has to be told.
    #[inline(always)]
    fn take_idle(&mut self, task: &Task) -> Option<Notice> {
        let able = self.idle & task.affinity();
        let processor = (able != 0).then(|| able.trailing_zeros() as usize)?;
        self.idle &= !(1 << processor);
        Some(Notice::Kick(processor))
    }

    /// Puts the current task of `processor` back and chooses anew. Another processor is told if it is idle, or if only
    /// others may go on with the task.
    fn make_room(&mut self, processor: usize, task: &Arc<Task>, now_ns: u64) -> (Decision, Option<Notice>) {
        task.state.set(READY);
        self.queues.push_interrupted(task);
        let decision = self.choose(processor, Some(task), now_ns);
        self.notice_of_room(processor, task, decision)
    }

    /// As [`Inner::make_room`] for a task that gives up its turn: where turns are drawn for, it is not in this draw.
    fn give_way(&mut self, processor: usize, task: &Arc<Task>, now_ns: u64) -> (Decision, Option<Notice>) {
        if !self.queues.is_uneven() {
            return self.make_room(processor, task, now_ns);
        }
        let decision = self.choose(processor, None, now_ns);
        if let Choice::Idle = decision.choice {
            self.idle &= !(1 << processor);
            return self.make_room(processor, task, now_ns);
        }
        task.state.set(READY);
        self.queues.push_interrupted(task);
        let tick_within_ns = self.wanted_tick(processor);
        self.notice_of_room(processor, task, Decision { tick_within_ns, ..decision })
    }

    /// The processor to be told that `task` made room.
    fn notice_of_room(&mut self, processor: usize, task: &Arc<Task>, decision: Decision) -> (Decision, Option<Notice>) {
        let told = match decision.choice {
            Choice::Stay => None,
            _ if self.queues.groups.is_throttled(task.group()) => None,
            _ if task.may_run_on(processor) => self.take_idle(task),
            _ => Some(self.whom_to_tell(task)),
        };
        (decision, told)
    }

    /// The processor to be told of a task that waits for one, and did before.
    fn whom_to_tell(&mut self, task: &Task) -> Notice {
        self.take_idle(task).unwrap_or(Notice::Busy { mask: task.affinity(), within_ns: SLICE_NS })
    }
}

/// The scheduler of a pod.
pub struct Scheduler {
    inner: SpinMutex<Inner>,
    processor_count: usize,
    processors: Arc<dyn Processors>,
    armed_within_ns: &'static [AtomicU64],
}

impl Scheduler {
    /// A scheduler for processors 0 to `processor_count - 1` (at most [`PROCESSOR_COUNT_MAX`]), on none of which
    /// anything runs.
    #[must_use]
    pub fn new(processor_count: usize, processors: Arc<dyn Processors>) -> Arc<Self> {
        let processor_count = processor_count.min(PROCESSOR_COUNT_MAX);
        let inner = Inner {
            queues: Queues::new([0; 2]),
            sleepers: BTreeMap::new(),
            seats: (0..processor_count).map(|_| Seat::default()).collect(),
            idle: 0,
            next_id: 1,
        };
        let armed_within_ns = processors.armed_within_ns();
        Arc::new(Self { inner: SpinMutex::new(inner), processor_count, processors, armed_within_ns })
    }

    /// A task that has not started, made by `maker` if that is a task.
    #[must_use]
    pub fn new_task(self: &Arc<Self>, maker: Option<&Arc<Task>>) -> Arc<Task> {
        let id = {
            let mut inner = self.inner.lock();
            inner.next_id += 1;
            inner.next_id
        };
        Arc::new_cyclic(|me| Task {
            id,
            scheduler: self.clone(),
            me: me.clone(),
            state: State::new(),
            turn: Turn::default(),
            affinity: AtomicU64::new(u64::MAX),
            weight: AtomicU64::new(maker.map_or(WEIGHT_DEFAULT, |maker| maker.weight())),
            group: AtomicU32::new(maker.map_or(0, |maker| maker.group().0)),
            member: AtomicU32::new(0),
            maker: maker.map_or_else(Weak::new, Arc::downgrade),
            is_on_processor: AtomicBool::new(false),
            place: AtomicUsize::new(0),
            machine: Once::new(),
        })
    }

    /// Makes a new task ready. It gets its part of its maker's turn.
    pub fn start(&self, task: &Arc<Task>) {
        let told = {
            let mut inner = self.inner.lock();
            if let Some(maker) = task.maker.upgrade() {
                inner.queues.split(&maker, task);
            }
            inner.queues.begin(task);
            inner.make_ready(task.clone())
        };
        self.tell(&told);
    }

    /// Makes a new task the current one of a processor on which nothing runs: the first of a run.
    pub fn adopt(&self, processor: usize, task: &Arc<Task>) {
        let mut inner = self.inner.lock();
        task.state.set_running(processor);
        inner.seats[processor].current = Some(task.clone());
        inner.idle &= !(1 << processor);
        inner.queues.begin(task);
    }

    #[inline(always)]
    fn tell(&self, told: &Notice) {
        match *told {
            Notice::Kick(processor) => self.processors.kick(processor),
            // Nearly always in a pod of one processor.
            Notice::Busy { mask, within_ns } if self.processor_count == 1 && mask & 1 != 0 => self.ask(0, within_ns),
            Notice::Busy { mask, within_ns } => self.ask_all(mask, within_ns),
        }
    }

    #[inline(never)]
    fn ask_all(&self, mask: u64, within_ns: u64) {
        for processor in (0..self.processor_count).filter(|processor| mask & 1 << processor != 0) {
            self.ask(processor, within_ns);
        }
    }

    /// Has a busy processor asked for a tick, unless one comes in time.
    #[inline(always)]
    fn ask(&self, processor: usize, within_ns: u64) {
        let armed = self.armed_within_ns.get(processor);
        if armed.is_none_or(|armed| armed.load(Ordering::Acquire) > within_ns) {
            self.processors.arm_slice(processor, within_ns);
        }
    }

    /// Has [`Scheduler::expire`] come when a group that has used up its limit may run again.
    #[cold]
    fn arm_release(&self) {
        let release_ns = self.inner.lock().queues.groups.next_release_ns();
        if let Some(release_ns) = release_ns {
            self.processors.arm(release_ns);
        }
    }

    #[inline]
    fn announce(&self, processor: usize, decision: Decision) -> Choice {
        if let Some(within_ns) = decision.tick_within_ns {
            self.ask(processor, within_ns);
        }
        decision.choice
    }

    /// Wakes a task. What it waits for is its own business: it looks again.
    pub fn wake(&self, task: &Task) {
        // No task waits for one that is being dropped.
        self.wake_as(task, || task.me.upgrade());
    }

    /// As [`Scheduler::wake`], for a caller that has a count of it.
    #[inline(always)]
    pub fn wake_counted(&self, task: &Arc<Task>) {
        self.wake_as(task, || Some(task.clone()));
    }

    #[inline(always)]
    fn wake_as(&self, task: &Task, counted: impl FnOnce() -> Option<Arc<Task>>) {
        let told = {
            let mut inner = self.inner.lock();
            if !task.state.is_blocked() {
                task.state.note_wake();
                return;
            }
            let Some(counted) = counted() else { return };
            if let Some(deadline_ns) = task.state.deadline_ns() {
                inner.forget_sleeper(task, deadline_ns);
            }
            inner.make_ready(counted)
        };
        self.tell(&told);
    }

    fn affinity_changed(&self, task: &Task) {
        let mut inner = self.inner.lock();
        let told = match task.state.get() {
            Status::Ready => Some(inner.whom_to_tell(task)),
            Status::Running(processor) if !task.may_run_on(processor) => Some(Notice::Kick(processor)),
            _ => None,
        };
        drop(inner);
        told.iter().for_each(|told| self.tell(told));
    }

    /// Blocks the current task of `processor` until it is woken or until `deadline_ns`.
    #[inline(always)]
    pub fn block(&self, processor: usize, deadline_ns: Option<u64>, now_ns: u64) -> Choice {
        let mut inner = self.inner.lock();
        let Inner { queues, seats, .. } = &mut *inner;
        let Some(seat) = seats.get_mut(processor) else { return Choice::Idle };
        let Some(task) = &seat.current else { return Choice::Idle };
        let since_ns = now_ns.saturating_sub(seat.charged_ns);
        if task.state.take_wake() {
            return Choice::Stay;
        }
        let deadline_ns = task.state.block(deadline_ns);
        task.turn.charge(since_ns);
        seat.used_ns += since_ns;
        // Nearly always it waits for no time, all are equal, and somebody was woken.
        if deadline_ns.is_none()
            && !queues.is_uneven()
            && let Some(next) = queues.take_woken(processor)
        {
            seat.current = Some(next.clone());
            seat.charged_ns = now_ns;
            if queues.has_no_turn() {
                return Choice::Switch(next);
            }
            let tick_within_ns = inner.tick_for_others(processor);
            drop(inner);
            return self.announce(processor, Decision { choice: Choice::Switch(next), tick_within_ns });
        }
        self.choose_after_block(inner, (processor, deadline_ns), since_ns, now_ns)
    }

    /// The task that runs on a processor whose current one has been blocked just now.
    #[inline(never)]
    fn choose_after_block(
        &self,
        mut guard: SpinMutexGuard<'_, Inner>,
        (processor, deadline_ns): (usize, Option<u64>),
        since_ns: u64,
        now_ns: u64,
    ) -> Choice {
        let inner = &mut *guard;
        let task = inner.seats[processor].current.clone();
        let earliest_ns = deadline_ns.zip(task).and_then(|(deadline_ns, task)| inner.note_sleeper(task, deadline_ns));
        // No blocked task is chosen, so it is not the same one again.
        let decision = if inner.queues.is_uneven() {
            inner.charge_group(processor, since_ns, now_ns);
            let decision = inner.choose_by_lot(processor, None, now_ns);
            drop(guard);
            self.arm_release();
            decision
        } else {
            let decision = inner.choose_in_turn(processor, None, now_ns);
            drop(guard);
            decision
        };
        if let Some(earliest_ns) = earliest_ns {
            self.processors.arm(earliest_ns);
        }
        self.announce(processor, decision)
    }

    /// A program was interrupted on `processor`: makes room for a task that goes before it, if there is one.
    pub fn tick(&self, processor: usize, now_ns: u64) -> Choice {
        let ((decision, told), may_be_throttled) = {
            let mut inner = self.inner.lock();
            let Some(task) = inner.seats[processor].current.clone() else { return Choice::Idle };
            let may_be_throttled = inner.charge(processor, now_ns);
            let has_turn = !task.turn.is_over();
            let makes_room = inner.queues.has_woken(processor)
                || !has_turn && inner.queues.has_any(processor)
                || inner.queues.groups.is_throttled(task.group());
            let decided = if makes_room || !task.may_run_on(processor) {
                inner.make_room(processor, &task, now_ns)
            } else {
                (Decision { choice: Choice::Stay, tick_within_ns: inner.wanted_tick(processor) }, None)
            };
            (decided, may_be_throttled)
        };
        if may_be_throttled {
            self.arm_release();
        }
        told.iter().for_each(|told| self.tell(told));
        self.announce(processor, decision)
    }

    /// In place of a tick that came when the current task could not make room: another is asked for.
    pub fn ask_tick(&self, processor: usize) {
        let tick_within_ns = self.inner.lock().wanted_tick(processor);
        self.announce(processor, Decision { choice: Choice::Stay, tick_within_ns });
    }

    /// For `lost_ns` others had `processor`, whose current task is not charged for that.
    pub fn forgive(&self, processor: usize, lost_ns: u64, now_ns: u64) {
        let seat = &mut self.inner.lock().seats[processor];
        seat.charged_ns = seat.charged_ns.saturating_add(lost_ns).min(now_ns);
    }

    /// The current task of `processor` gives up the rest of its turn.
    pub fn yield_turn(&self, processor: usize, now_ns: u64) -> Choice {
        let ((decision, told), may_be_throttled) = {
            let mut inner = self.inner.lock();
            if inner.queues.groups.limit_count != 0 {
                // A task that yields until another gives a lock back may be all that runs: no timer is heard meanwhile.
                let told = inner.release(now_ns);
                drop(inner);
                told.iter().for_each(|told| self.tell(told));
                inner = self.inner.lock();
            }
            let Some(task) = &inner.seats[processor].current else { return Choice::Idle };
            if task.may_run_on(processor) && !inner.queues.has_any(processor) {
                return Choice::Stay;
            }
            let task = task.clone();
            let may_be_throttled = inner.charge(processor, now_ns);
            task.turn.give_up();
            (inner.give_way(processor, &task, now_ns), may_be_throttled)
        };
        if may_be_throttled {
            self.arm_release();
        }
        told.iter().for_each(|told| self.tell(told));
        self.announce(processor, decision)
    }

    /// The current task of `processor` ends: never `Stay`.
    pub fn end(&self, processor: usize, now_ns: u64) -> Choice {
        let (decision, may_be_throttled) = {
            let mut inner = self.inner.lock();
            let may_be_throttled = inner.charge(processor, now_ns);
            if let Some(task) = inner.seats[processor].current.take() {
                task.state.set(ENDED);
                inner.queues.end(&task);
                if let Some(maker) = task.maker.upgrade() {
                    maker.turn.take_back(&task.turn);
                }
            }
            (inner.choose(processor, None, now_ns), may_be_throttled)
        };
        if may_be_throttled {
            self.arm_release();
        }
        self.announce(processor, decision)
    }

    /// An idle processor looks for work: the task is current then. `None`: it stays idle.
    pub fn pick(&self, processor: usize, now_ns: u64) -> Option<Arc<Task>> {
        let decision = {
            let mut inner = self.inner.lock();
            inner.idle &= !(1 << processor);
            inner.choose(processor, None, now_ns)
        };
        match self.announce(processor, decision) {
            Choice::Switch(task) => Some(task),
            Choice::Stay | Choice::Idle => None,
        }
    }

    /// Wakes everybody whose time has come.
    pub fn expire(&self, now_ns: u64) {
        self.release(now_ns);
        loop {
            let told = {
                let mut inner = self.inner.lock();
                match inner.sleepers.first_key_value() {
                    Some(((deadline_ns, _), _)) if *deadline_ns <= now_ns => {}
                    _ => return,
                }
                let Some((_, task)) = inner.sleepers.pop_first() else { return };
                inner.make_ready(task)
            };
            self.tell(&told);
        }
    }

    /// When [`Scheduler::expire`] is next wanted.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let inner = self.inner.lock();
        let first_ns = inner.sleepers.first_key_value().map(|((deadline_ns, _), _)| *deadline_ns);
        first_ns.into_iter().chain(inner.queues.groups.next_release_ns()).min()
    }

    /// The current task of a processor.
    #[must_use]
    pub fn current(&self, processor: usize) -> Option<Arc<Task>> {
        self.inner.lock().seats.get(processor)?.current.clone()
    }

    /// Whether somebody is ready that `processor` could run.
    #[must_use]
    pub fn has_ready(&self, processor: usize) -> bool {
        self.inner.lock().queues.has_any(processor)
    }

    /// Tasks that are running or ready.
    #[must_use]
    pub fn runnable_count(&self) -> usize {
        let inner = self.inner.lock();
        inner.queues.len() + inner.seats.iter().filter(|seat| seat.current.is_some()).count()
    }
}

mod control;
mod group;
mod ledger;
mod locks;
mod lots;
mod market;
mod processors;
mod queue;
mod state;

#[cfg(test)]
#[path = "lock_tests.rs"]
mod lock_tests;

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "fairness_tests.rs"]
mod fairness_tests;

#[cfg(test)]
#[path = "share_tests.rs"]
mod share_tests;

#[cfg(test)]
#[path = "market_tests.rs"]
mod market_tests;
