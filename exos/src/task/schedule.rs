//! Which task of a pod runs on which virtual processor.
//!
//! A [`Task`] is a thread as the scheduler sees it: something that is running, ready, or blocked until it is woken or
//! until a time. The scheduler decides; whoever owns registers and stacks (the personality's glue) does what it
//! decides and keeps its own part in [`Task::machine`]. Ready tasks take turns; the lottery will decide here.
//!
//! Invariants: a task is in at most one of: current on one processor, in the ready queue, blocked. A wake is never
//! lost: one that comes while its task has not blocked yet makes the next [`Scheduler::block`] return at once. A
//! processor that goes idle is told of every task that becomes ready afterwards, until it picks one.
//!
//! Neighbours: [`crate::fs::readiness`], whose waiters tasks are, and `exos/linux/src/glue/fiber.rs`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fs::readiness::{Readiness, Waiter};
use crate::sync::{Mutex, Once};

/// Most virtual processors of a pod.
pub const PROCESSOR_COUNT_MAX: usize = 64;

/// What the scheduler asks of the machine. Called without locks.
pub trait Processors: Send + Sync {
    /// Makes processor `index` look at its work again: it sleeps, or runs a program.
    fn kick(&self, index: usize);
    /// The earliest end of a blocked task's wait changed to `deadline_ns`: [`Scheduler::expire`] is wanted then.
    fn arm(&self, deadline_ns: u64);
    /// Somebody is ready while all processors are busy: [`Scheduler::preempt`] is wanted after a slice.
    fn arm_slice(&self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Made, not started.
    New,
    Ready,
    Running(usize),
    Blocked {
        deadline_ns: Option<u64>,
    },
    Ended,
}

#[derive(Debug)]
struct State {
    status: Status,
    /// A wake came while it was not blocked.
    is_woken: bool,
}

/// A thread as the scheduler sees it.
pub struct Task {
    id: u64,
    scheduler: Weak<Scheduler>,
    me: Weak<Task>,
    /// Taken after the scheduler's own lock.
    state: Mutex<State>,
    /// Processors that it may run on, a bit each.
    affinity: AtomicU64,
    /// Its registers and stack are in use by a processor. Set by whoever dispatches it, cleared by whoever has left it.
    pub is_on_processor: AtomicBool,
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

    /// Sets them; takes effect when it is next picked.
    pub fn set_affinity(&self, mask: u64) {
        self.affinity.store(mask, Ordering::Relaxed);
    }

    fn may_run_on(&self, processor: usize) -> bool {
        self.affinity() & 1 << processor != 0
    }

    /// Makes it look again: ready if it is blocked, and its next block returns at once if it is not.
    pub fn wake_up(&self) {
        if let (Some(scheduler), Some(me)) = (self.scheduler.upgrade(), self.me.upgrade()) {
            scheduler.wake(&me);
        }
    }

    /// As [`Task::wake_up`]; if it runs a program on some processor, that is interrupted.
    pub fn interrupt(&self) {
        let running_on = match self.state.lock().status {
            Status::Running(processor) => Some(processor),
            _ => None,
        };
        self.wake_up();
        if let (Some(scheduler), Some(processor)) = (self.scheduler.upgrade(), running_on) {
            scheduler.processors.kick(processor);
        }
    }

    /// Whether it is blocked.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(self.state.lock().status, Status::Blocked { .. })
    }

    /// Whether it is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state.lock().status, Status::Running(_))
    }
}

impl Waiter for Task {
    fn wake(&self, _: Readiness) {
        self.wake_up();
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

struct Inner {
    ready: VecDeque<Arc<Task>>,
    sleepers: BTreeMap<(u64, u64), Arc<Task>>,
    current: Vec<Option<Arc<Task>>>,
    /// Processors that are idle, a bit each.
    idle: u64,
    next_id: u64,
}

impl Inner {
    fn take_ready(&mut self, processor: usize) -> Option<Arc<Task>> {
        let index = self.ready.iter().position(|task| task.may_run_on(processor))?;
        let task = self.ready.remove(index)?;
        task.state.lock().status = Status::Running(processor);
        self.current[processor] = Some(task.clone());
        Some(task)
    }

    fn choose(&mut self, processor: usize, before: Option<&Arc<Task>>) -> Choice {
        match self.take_ready(processor) {
            Some(task) if before.is_some_and(|before| Arc::ptr_eq(before, &task)) => Choice::Stay,
            Some(task) => Choice::Switch(task),
            None => {
                self.current[processor] = None;
                self.idle |= 1 << processor;
                Choice::Idle
            }
        }
    }

    /// Makes a blocked task ready; gives the idle processor to tell, or `Err` if all are busy.
    fn make_ready(&mut self, task: &Arc<Task>) -> Result<usize, ()> {
        self.ready.push_back(task.clone());
        let able = self.idle & task.affinity();
        if able == 0 {
            return Err(());
        }
        let processor = able.trailing_zeros() as usize;
        self.idle &= !(1 << processor);
        Ok(processor)
    }
}

/// The scheduler of a pod.
pub struct Scheduler {
    inner: Mutex<Inner>,
    processors: Arc<dyn Processors>,
}

impl Scheduler {
    /// A scheduler for processors 0 to `processor_count - 1` (at most [`PROCESSOR_COUNT_MAX`]), on none of which
    /// anything runs.
    #[must_use]
    pub fn new(processor_count: usize, processors: Arc<dyn Processors>) -> Arc<Self> {
        let count = processor_count.min(PROCESSOR_COUNT_MAX);
        let inner = Inner {
            ready: VecDeque::new(),
            sleepers: BTreeMap::new(),
            current: alloc::vec![None; count],
            idle: 0,
            next_id: 1,
        };
        Arc::new(Self { inner: Mutex::new(inner), processors })
    }

    /// A task that has not started.
    #[must_use]
    pub fn new_task(self: &Arc<Self>) -> Arc<Task> {
        let id = {
            let mut inner = self.inner.lock();
            inner.next_id += 1;
            inner.next_id
        };
        Arc::new_cyclic(|me| Task {
            id,
            scheduler: Arc::downgrade(self),
            me: me.clone(),
            state: Mutex::new(State { status: Status::New, is_woken: false }),
            affinity: AtomicU64::new(u64::MAX),
            is_on_processor: AtomicBool::new(false),
            machine: Once::new(),
        })
    }

    /// Makes a new task ready.
    pub fn start(&self, task: &Arc<Task>) {
        let told = {
            let mut inner = self.inner.lock();
            task.state.lock().status = Status::Ready;
            inner.make_ready(task)
        };
        self.tell(told);
    }

    /// Makes a new task the current one of a processor on which nothing runs: the first of a run.
    pub fn adopt(&self, processor: usize, task: &Arc<Task>) {
        let mut inner = self.inner.lock();
        task.state.lock().status = Status::Running(processor);
        inner.current[processor] = Some(task.clone());
        inner.idle &= !(1 << processor);
    }

    fn tell(&self, told: Result<usize, ()>) {
        match told {
            Ok(processor) => self.processors.kick(processor),
            Err(()) => self.processors.arm_slice(),
        }
    }

    /// Wakes a task. What it waits for is its own business: it looks again.
    pub fn wake(&self, task: &Arc<Task>) {
        let told = {
            let mut inner = self.inner.lock();
            let mut state = task.state.lock();
            let Status::Blocked { deadline_ns } = state.status else {
                state.is_woken = true;
                return;
            };
            state.status = Status::Ready;
            drop(state);
            if let Some(deadline_ns) = deadline_ns {
                inner.sleepers.remove(&(deadline_ns, task.id));
            }
            inner.make_ready(task)
        };
        self.tell(told);
    }

    /// Blocks the current task of `processor` until it is woken or until `deadline_ns`.
    pub fn block(&self, processor: usize, deadline_ns: Option<u64>) -> Choice {
        let mut earliest_ns = None;
        let choice = {
            let mut inner = self.inner.lock();
            let Some(task) = inner.current[processor].clone() else { return Choice::Idle };
            {
                let mut state = task.state.lock();
                if core::mem::take(&mut state.is_woken) {
                    return Choice::Stay;
                }
                state.status = Status::Blocked { deadline_ns };
            }
            if let Some(deadline_ns) = deadline_ns {
                let is_first = inner.sleepers.first_key_value().is_none_or(|((first, _), _)| deadline_ns < *first);
                earliest_ns = is_first.then_some(deadline_ns);
                inner.sleepers.insert((deadline_ns, task.id), task.clone());
            }
            inner.choose(processor, Some(&task))
        };
        if let Some(earliest_ns) = earliest_ns {
            self.processors.arm(earliest_ns);
        }
        choice
    }

    /// The current task of `processor` lets others go first.
    pub fn preempt(&self, processor: usize) -> Choice {
        let mut inner = self.inner.lock();
        let Some(task) = inner.current[processor].clone() else { return Choice::Idle };
        if !inner.ready.iter().any(|other| other.may_run_on(processor)) && task.may_run_on(processor) {
            return Choice::Stay;
        }
        task.state.lock().status = Status::Ready;
        inner.ready.push_back(task.clone());
        inner.choose(processor, Some(&task))
    }

    /// Whether anybody waits for a turn that `processor` could give.
    #[must_use]
    pub fn has_ready(&self, processor: usize) -> bool {
        self.inner.lock().ready.iter().any(|task| task.may_run_on(processor))
    }

    /// The current task of `processor` ends: never `Stay`.
    pub fn end(&self, processor: usize) -> Choice {
        let mut inner = self.inner.lock();
        if let Some(task) = inner.current[processor].take() {
            task.state.lock().status = Status::Ended;
        }
        inner.choose(processor, None)
    }

    /// An idle processor looks for work: the task is current then. `None`: it stays idle.
    pub fn pick(&self, processor: usize) -> Option<Arc<Task>> {
        let mut inner = self.inner.lock();
        let task = inner.take_ready(processor);
        if task.is_some() {
            inner.idle &= !(1 << processor);
        } else {
            inner.idle |= 1 << processor;
        }
        task
    }

    /// Wakes everybody whose time has come.
    pub fn expire(&self, now_ns: u64) {
        loop {
            let told = {
                let mut inner = self.inner.lock();
                match inner.sleepers.first_key_value() {
                    Some(((deadline_ns, _), _)) if *deadline_ns <= now_ns => {}
                    _ => return,
                }
                let Some((_, task)) = inner.sleepers.pop_first() else { return };
                task.state.lock().status = Status::Ready;
                inner.make_ready(&task)
            };
            self.tell(told);
        }
    }

    /// When [`Scheduler::expire`] is next wanted.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.inner.lock().sleepers.first_key_value().map(|((deadline_ns, _), _)| *deadline_ns)
    }

    /// The current task of a processor.
    #[must_use]
    pub fn current(&self, processor: usize) -> Option<Arc<Task>> {
        self.inner.lock().current.get(processor).cloned().flatten()
    }

    /// Tasks that are running or ready.
    #[must_use]
    pub fn runnable_count(&self) -> usize {
        let inner = self.inner.lock();
        inner.ready.len() + inner.current.iter().flatten().count()
    }
}

/// A machine without processors to tell, for a pod whose tasks are driven from outside (tests).
pub struct NoProcessors;

impl Processors for NoProcessors {
    fn kick(&self, _: usize) {}
    fn arm(&self, _: u64) {}
    fn arm_slice(&self) {}
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
