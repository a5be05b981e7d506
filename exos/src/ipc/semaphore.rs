//! System V semaphores: sets of counters that are changed together or not at all.
//!
//! Operations that cannot be done wait in their set, in one row. Whatever changes a set goes through the row: first
//! those that wait for zero, then the others in the order in which they came, and again from the start where one that
//! was done may have made room for an earlier one. What was changed with `SEM_UNDO` is noted by process and taken back
//! when it ends ([`Semaphores::process_ends`]).
//!
//! Invariants: in a set, no waiter can go on (its blocking operation says why); an undo entry has one number for each
//! semaphore. Bounds: Linux's limits, and what the sets, waiting operations and undo entries cost the account.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::account::{Account, Charge};
use super::id_table::{IdTable, KEY_PRIVATE};
use super::permission::{Caller, Ownership, READ, WRITE};
use super::sleeper::{Sleeper, Wakes, wake_all};
use crate::error::{Errno, Result};
use crate::fs::readiness::Waiter;
use crate::sync::Mutex;

/// Largest value of a semaphore, and of what is to be undone.
pub const VALUE_MAX: i32 = 32_767;
/// What a set costs besides its semaphores.
const SET_BYTES: u64 = 256;
/// What a semaphore costs.
const SEMAPHORE_BYTES: u64 = size_of::<Semaphore>() as u64;

/// `/proc/sys/kernel/sem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Semaphores in a set.
    pub set_length_max: u32,
    /// Semaphores in all.
    pub semaphore_count_max: u32,
    /// Operations in a call.
    pub operation_count_max: u32,
    /// Most sets (`SEMMNI`).
    pub set_count_max: u32,
}

impl Default for Limits {
    /// Linux's.
    fn default() -> Self {
        Self {
            set_length_max: 32_000,
            semaphore_count_max: 1_024_000_000,
            operation_count_max: 500,
            set_count_max: 32_000,
        }
    }
}

/// One of `semop`'s operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Index of the semaphore in its set.
    pub number: u16,
    /// What is added; 0 waits for zero.
    pub change: i16,
    /// `IPC_NOWAIT`.
    pub no_wait: bool,
    /// `SEM_UNDO`.
    pub undoes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Semaphore {
    value: u16,
    /// Process that changed it last.
    pid: u32,
}

/// What `SEM_UNDO` noted for one process.
struct Undo {
    pid: u32,
    adjustments: Vec<i16>,
    _charge: Charge,
}

struct Waiting {
    number: u64,
    pid: u32,
    operations: Vec<Operation>,
    /// The first of `operations` that cannot be done.
    blocking: usize,
    changes: bool,
    /// Only the blocking operation has to be looked at to know that it still blocks.
    is_plain: bool,
    sleeper: Arc<Sleeper<Result<()>>>,
    _charge: Charge,
}

struct Set {
    ownership: Ownership,
    semaphores: Vec<Semaphore>,
    waiting: VecDeque<Waiting>,
    /// Ascending by process.
    undos: Vec<Undo>,
    operated_s: u64,
    changed_s: u64,
    _charge: Charge,
}

#[derive(Default)]
struct State {
    sets: IdTable<Set>,
    limits: Limits,
    semaphore_count: u64,
    waiting_count: u64,
    /// The sets in which a process has something to undo, perhaps.
    undoers: BTreeMap<u32, Vec<i32>>,
}

/// The sets of a pod.
pub struct Semaphores {
    account: Arc<Account>,
    state: Mutex<State>,
    has_undoers: AtomicBool,
}

/// What a call that operates comes to.
pub enum Attempt<'a> {
    /// All is done.
    Done,
    /// It waits.
    Waits(Wait<'a>),
}

/// A place among the waiters. Dropping it gives the request up.
pub struct Wait<'a> {
    semaphores: &'a Semaphores,
    id: i32,
    number: u64,
    sleeper: Arc<Sleeper<Result<()>>>,
}

/// What is known of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Identifier.
    pub id: i32,
    /// Owner, creator and mode.
    pub ownership: Ownership,
    /// Semaphores.
    pub length: u32,
    /// When it was last operated on, in seconds of realtime; 0 for never.
    pub operated_s: u64,
    /// When it was last made or changed by a control call.
    pub changed_s: u64,
}

/// What `IPC_INFO` and `SEM_INFO` tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Limits in force.
    pub limits: Limits,
    /// Sets that there are.
    pub set_count: u32,
    /// Semaphores in them.
    pub semaphore_count: u32,
    /// The highest index in use, 0 if there is none.
    pub index_last: u32,
}

/// How the caller may look at a set that is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// By number, with permission (`IPC_STAT`).
    Number,
    /// By index, with permission (`SEM_STAT`).
    Index,
    /// By index (`SEM_STAT_ANY`).
    Any,
}

/// A question about one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Its value.
    Value,
    /// Process that changed it last.
    Process,
    /// Number of waiters for it to grow.
    WaitersForMore,
    /// Number of waiters for zero.
    WaitersForZero,
}

/// How far operations came.
enum Progress {
    Done,
    BlockedBy(usize),
}

impl Set {
    fn undo_place(&self, pid: u32) -> core::result::Result<usize, usize> {
        self.undos.binary_search_by_key(&pid, |undo| undo.pid)
    }

    /// Does all operations or none. `ERANGE`; `EAGAIN`: the one that blocks does not want to wait.
    fn perform(&mut self, operations: &[Operation], pid: u32) -> Result<Progress> {
        let undo = self.undo_place(pid).ok();
        for (index, operation) in operations.iter().enumerate() {
            let stopped = match self.step(operation, undo) {
                Ok(true) => continue,
                Ok(false) if operation.no_wait => Err(Errno::EAGAIN),
                Ok(false) => Ok(Progress::BlockedBy(index)),
                Err(error) => Err(error),
            };
            for done in operations[..index].iter().rev() {
                self.take_back(done, undo);
            }
            return stopped;
        }
        for operation in operations {
            self.semaphores[usize::from(operation.number)].pid = pid;
        }
        Ok(Progress::Done)
    }

    /// Does one operation. False: it has to wait.
    fn step(&mut self, operation: &Operation, undo: Option<usize>) -> Result<bool> {
        let number = usize::from(operation.number);
        let semaphore = &mut self.semaphores[number];
        if operation.change == 0 {
            return Ok(semaphore.value == 0);
        }
        let value = i32::from(semaphore.value) + i32::from(operation.change);
        if value < 0 {
            return Ok(false);
        }
        if value > VALUE_MAX {
            return Err(Errno::ERANGE);
        }
        if operation.undoes
            && let Some(undo) = undo
        {
            let adjustment = &mut self.undos[undo].adjustments[number];
            *adjustment = adjustment.checked_sub(operation.change).ok_or(Errno::ERANGE)?;
        }
        semaphore.value = value as u16;
        Ok(true)
    }

    fn take_back(&mut self, operation: &Operation, undo: Option<usize>) {
        let number = usize::from(operation.number);
        let semaphore = &mut self.semaphores[number];
        semaphore.value = (i32::from(semaphore.value) - i32::from(operation.change)) as u16;
        if operation.undoes
            && let Some(undo) = undo
        {
            // It was there before the step.
            let adjustment = &mut self.undos[undo].adjustments[number];
            *adjustment = adjustment.wrapping_add(operation.change);
        }
    }

    fn still_blocks(&self, waiting: &Waiting) -> bool {
        let Operation { number, change, .. } = waiting.operations[waiting.blocking];
        let value = i32::from(self.semaphores[usize::from(number)].value);
        waiting.is_plain && if change == 0 { value != 0 } else { value + i32::from(change) < 0 }
    }

    /// Tries the one at `place` of the row; whether it left, and whether it was done.
    fn retry(&mut self, place: usize, wakes: &mut Wakes) -> (bool, bool) {
        if self.still_blocks(&self.waiting[place]) {
            return (false, false);
        }
        let operations = core::mem::take(&mut self.waiting[place].operations);
        let outcome = self.perform(&operations, self.waiting[place].pid);
        self.waiting[place].operations = operations;
        let outcome = match outcome {
            Ok(Progress::BlockedBy(index)) => {
                self.waiting[place].blocking = index;
                return (false, false);
            }
            Ok(Progress::Done) => Ok(()),
            Err(error) => Err(error),
        };
        if let Some(waiting) = self.waiting.remove(place) {
            waiting.sleeper.settle(outcome, wakes);
        }
        (true, outcome.is_ok())
    }

    /// Tries those that wait for zero and change nothing; whether any left.
    fn serve_zero(&mut self, wakes: &mut Wakes) -> bool {
        let (before, mut place) = (self.waiting.len(), 0);
        while place < self.waiting.len() {
            let left = !self.waiting[place].changes && self.retry(place, wakes).0;
            place += usize::from(!left);
        }
        self.waiting.len() < before
    }

    /// Goes through the row after a change.
    fn serve(&mut self, wakes: &mut Wakes) {
        if self.waiting.is_empty() {
            return;
        }
        self.serve_zero(wakes);
        // A single operation that waited takes something away when it is done: that helps no other taker, so the row
        // need not be gone through again where there are only such ones.
        let are_single = self.waiting.iter().all(|waiting| waiting.operations.len() == 1);
        let mut place = 0;
        while place < self.waiting.len() {
            if !self.waiting[place].changes {
                place += 1;
                continue;
            }
            let (left, done) = self.retry(place, wakes);
            if done {
                // Where somebody else left, places have moved.
                let has_moved = self.serve_zero(wakes);
                place = if are_single && !has_moved { place } else { 0 };
            } else {
                place += usize::from(!left);
            }
        }
    }

    fn clear_undos_of(&mut self, number: usize) {
        for undo in &mut self.undos {
            undo.adjustments[number] = 0;
        }
    }

    fn status(&self, id: i32) -> Status {
        let Self { ownership, operated_s, changed_s, .. } = *self;
        Status { id, ownership, length: self.semaphores.len() as u32, operated_s, changed_s }
    }
}

impl Semaphores {
    /// No set yet.
    #[must_use]
    pub fn new(account: Arc<Account>) -> Self {
        Self { account, state: Mutex::default(), has_undoers: AtomicBool::new(false) }
    }

    /// Does something with a set under the lock and wakes the waiters that it settled.
    fn with<R>(&self, id: i32, act: impl FnOnce(&mut Set, &mut Wakes) -> Result<R>) -> Result<R> {
        let mut wakes = Wakes::new();
        let result = {
            let mut state = self.state.lock();
            state.sets.get_mut(id).and_then(|set| act(set, &mut wakes))
        };
        wake_all(wakes);
        result
    }

    /// `semget`. `create` and `exclusive` are the flags; `mode` has the permission bits.
    ///
    /// # Errors
    /// `EINVAL`: a length beyond the limit, 0 for a new set, or more than the set has; `ENOENT`, `EEXIST`, `EACCES`,
    /// `ENOSPC`, `ENOMEM`.
    pub fn get(
        &self,
        caller: &Caller<'_>,
        key: i32,
        length: i32,
        (create, exclusive): (bool, bool),
        mode: u32,
    ) -> Result<i32> {
        let mut state = self.state.lock();
        let length = u32::try_from(length).map_err(|_| Errno::EINVAL)?;
        if length > state.limits.set_length_max {
            return Err(Errno::EINVAL);
        }
        if key != KEY_PRIVATE {
            if let Some(id) = state.sets.find(key) {
                if create && exclusive {
                    return Err(Errno::EEXIST);
                }
                let set = state.sets.get(id)?;
                if length as usize > set.semaphores.len() {
                    return Err(Errno::EINVAL);
                }
                return set.ownership.check(caller, mode).map(|()| id);
            }
            if !create {
                return Err(Errno::ENOENT);
            }
        }
        self.make(&mut state, caller, key, length, mode)
    }

    fn make(&self, state: &mut State, caller: &Caller<'_>, key: i32, length: u32, mode: u32) -> Result<i32> {
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let State { sets, limits, semaphore_count, .. } = state;
        let total = *semaphore_count + u64::from(length);
        if total > u64::from(limits.semaphore_count_max) {
            return Err(Errno::ENOSPC);
        }
        let charge = self.account.take(SET_BYTES + u64::from(length) * SEMAPHORE_BYTES)?;
        let mut semaphores = Vec::new();
        semaphores.try_reserve_exact(length as usize).map_err(|_| Errno::ENOMEM)?;
        semaphores.resize(length as usize, Semaphore::default());
        let set = Set {
            ownership: Ownership::of_new(caller, key, mode),
            semaphores,
            waiting: VecDeque::new(),
            undos: Vec::new(),
            operated_s: 0,
            changed_s: caller.now_s,
            _charge: charge,
        };
        let id = sets.add(key, limits.set_count_max as usize, |_| set)?;
        *semaphore_count = total;
        Ok(id)
    }

    /// `semop`. `waiter` is woken when a request that has to wait is settled.
    ///
    /// # Errors
    /// `EINVAL`, `E2BIG`, `EFBIG`, `EACCES`, `ERANGE`, `EAGAIN`, `ENOMEM`.
    pub fn operate(
        &self,
        caller: &Caller<'_>,
        id: i32,
        operations: Vec<Operation>,
        waiter: Weak<dyn Waiter>,
    ) -> Result<Attempt<'_>> {
        let mut wakes = Wakes::new();
        let attempt = self.operate_locked(caller, id, operations, waiter, &mut wakes);
        wake_all(wakes);
        attempt
    }

    fn operate_locked(
        &self,
        caller: &Caller<'_>,
        id: i32,
        operations: Vec<Operation>,
        waiter: Weak<dyn Waiter>,
        wakes: &mut Wakes,
    ) -> Result<Attempt<'_>> {
        let mut state = self.state.lock();
        let State { sets, undoers, waiting_count, limits, .. } = &mut *state;
        if operations.is_empty() {
            return Err(Errno::EINVAL);
        }
        if operations.len() > limits.operation_count_max as usize {
            return Err(Errno::E2BIG);
        }
        let set = sets.get_mut(id)?;
        let changes = operations.iter().any(|operation| operation.change != 0);
        if operations.iter().any(|operation| usize::from(operation.number) >= set.semaphores.len()) {
            return Err(Errno::EFBIG);
        }
        set.ownership.check(caller, if changes { WRITE } else { READ })?;
        if operations.iter().any(|operation| operation.undoes) {
            self.prepare_undo(set, undoers, id, caller.pid)?;
        }
        let blocking = match set.perform(&operations, caller.pid)? {
            Progress::Done => {
                set.operated_s = caller.now_s;
                if changes {
                    set.serve(wakes);
                }
                return Ok(Attempt::Done);
            }
            Progress::BlockedBy(index) => index,
        };
        let cost = size_of::<Waiting>() + operations.len() * size_of::<Operation>();
        let charge = self.account.take(cost as u64)?;
        set.waiting.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        *waiting_count += 1;
        let (number, sleeper) = (*waiting_count, Sleeper::new(waiter));
        set.waiting.push_back(Waiting {
            number,
            pid: caller.pid,
            blocking,
            changes,
            is_plain: is_plain(&operations),
            operations,
            sleeper: sleeper.clone(),
            _charge: charge,
        });
        Ok(Attempt::Waits(Wait { semaphores: self, id, number, sleeper }))
    }

    /// Has the set an entry for what the process does with `SEM_UNDO`.
    fn prepare_undo(&self, set: &mut Set, undoers: &mut BTreeMap<u32, Vec<i32>>, id: i32, pid: u32) -> Result<()> {
        let Err(place) = set.undo_place(pid) else { return Ok(()) };
        let length = set.semaphores.len();
        let charge = self.account.take((size_of::<Undo>() + length * 2) as u64)?;
        let mut adjustments = Vec::new();
        adjustments.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        adjustments.resize(length, 0);
        set.undos.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let sets = undoers.entry(pid).or_default();
        sets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        sets.push(id);
        set.undos.insert(place, Undo { pid, adjustments, _charge: charge });
        self.has_undoers.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes back what a process did with `SEM_UNDO`: it has ended. Values stay within their range.
    pub fn process_ends(&self, pid: u32, now_s: u64) {
        if !self.has_undoers.load(Ordering::Acquire) {
            return;
        }
        let mut wakes = Wakes::new();
        {
            let mut state = self.state.lock();
            let ids = state.undoers.remove(&pid).unwrap_or_default();
            self.has_undoers.store(!state.undoers.is_empty(), Ordering::Release);
            for id in ids {
                let Ok(set) = state.sets.get_mut(id) else { continue };
                let Ok(place) = set.undo_place(pid) else { continue };
                let undo = set.undos.remove(place);
                for (semaphore, adjustment) in set.semaphores.iter_mut().zip(&undo.adjustments) {
                    if *adjustment != 0 {
                        let value = i32::from(semaphore.value) + i32::from(*adjustment);
                        *semaphore = Semaphore { value: value.clamp(0, VALUE_MAX) as u16, pid };
                    }
                }
                set.operated_s = now_s;
                set.serve(&mut wakes);
            }
        }
        wake_all(wakes);
    }

    /// `IPC_STAT`, `SEM_STAT`, `SEM_STAT_ANY`. `EINVAL`, `EACCES`.
    pub fn status(&self, caller: &Caller<'_>, id: i32, look: Look) -> Result<Status> {
        let state = self.state.lock();
        let (id, set) = match look {
            Look::Number => (id, state.sets.get(id)?),
            Look::Index | Look::Any => state.sets.at_index(id)?,
        };
        if look != Look::Any {
            set.ownership.check(caller, READ)?;
        }
        Ok(set.status(id))
    }

    /// `IPC_INFO`, `SEM_INFO`.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            limits: state.limits,
            set_count: state.sets.count() as u32,
            semaphore_count: state.semaphore_count as u32,
            index_last: state.sets.index_last().unwrap_or(0) as u32,
        }
    }

    /// Sets the limits; what exceeds them already stays.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// `/proc/sysvipc/sem`.
    #[must_use]
    pub fn list(&self) -> Vec<Status> {
        self.state.lock().sets.iter().map(|(id, set)| set.status(id)).collect()
    }

    /// `GETVAL`, `GETPID`, `GETNCNT`, `GETZCNT`. `EINVAL`, `EACCES`.
    pub fn ask(&self, caller: &Caller<'_>, id: i32, number: i32, question: Question) -> Result<u32> {
        self.with(id, |set, _| {
            set.ownership.check(caller, READ)?;
            let place = usize::try_from(number).map_err(|_| Errno::EINVAL)?;
            let semaphore = *set.semaphores.get(place).ok_or(Errno::EINVAL)?;
            let blocked = set.waiting.iter().map(|waiting| waiting.operations[waiting.blocking]);
            let mut blocked = blocked.filter(|operation| usize::from(operation.number) == place);
            Ok(match question {
                Question::Value => u32::from(semaphore.value),
                Question::Process => semaphore.pid,
                Question::WaitersForMore => blocked.filter(|operation| operation.change < 0).count() as u32,
                Question::WaitersForZero => blocked.by_ref().filter(|operation| operation.change == 0).count() as u32,
            })
        })
    }

    /// `GETALL`. `EINVAL`, `EACCES`, `ENOMEM`.
    pub fn values(&self, caller: &Caller<'_>, id: i32) -> Result<Vec<u16>> {
        self.with(id, |set, _| {
            set.ownership.check(caller, READ)?;
            let mut values = Vec::new();
            values.try_reserve_exact(set.semaphores.len()).map_err(|_| Errno::ENOMEM)?;
            values.extend(set.semaphores.iter().map(|semaphore| semaphore.value));
            Ok(values)
        })
    }

    /// How many numbers `SETALL` takes, if the caller may. `EINVAL`, `EACCES`.
    pub fn length_to_set(&self, caller: &Caller<'_>, id: i32) -> Result<usize> {
        self.with(id, |set, _| set.ownership.check(caller, WRITE).map(|()| set.semaphores.len()))
    }

    /// `SETALL`. `ERANGE`; `EIDRM`: the set is gone.
    pub fn set_values(&self, caller: &Caller<'_>, id: i32, values: &[u16]) -> Result<()> {
        if values.iter().any(|value| i32::from(*value) > VALUE_MAX) {
            return Err(Errno::ERANGE);
        }
        let set_all = |set: &mut Set, wakes: &mut Wakes| {
            for (number, value) in values.iter().enumerate().take(set.semaphores.len()) {
                set.semaphores[number] = Semaphore { value: *value, pid: caller.pid };
                set.clear_undos_of(number);
            }
            set.changed_s = caller.now_s;
            set.serve(wakes);
            Ok(())
        };
        self.with(id, set_all).map_err(|_| Errno::EIDRM)
    }

    /// `SETVAL`. `ERANGE`, `EINVAL`, `EACCES`.
    pub fn set_value(&self, caller: &Caller<'_>, id: i32, number: i32, value: i32) -> Result<()> {
        if !(0..=VALUE_MAX).contains(&value) {
            return Err(Errno::ERANGE);
        }
        self.with(id, |set, wakes| {
            let place = usize::try_from(number).map_err(|_| Errno::EINVAL)?;
            if place >= set.semaphores.len() {
                return Err(Errno::EINVAL);
            }
            set.ownership.check(caller, WRITE)?;
            set.semaphores[place] = Semaphore { value: value as u16, pid: caller.pid };
            set.clear_undos_of(place);
            set.changed_s = caller.now_s;
            set.serve(wakes);
            Ok(())
        })
    }

    /// `IPC_SET`. `EINVAL`, `EPERM`.
    pub fn set_owner(&self, caller: &Caller<'_>, id: i32, uid: u32, gid: u32, mode: u32) -> Result<()> {
        self.with(id, |set, _| {
            set.ownership.check_control(caller)?;
            set.ownership.set(uid, gid, mode)?;
            set.changed_s = caller.now_s;
            Ok(())
        })
    }

    /// `IPC_RMID`: waiters are told `EIDRM`. `EINVAL`, `EPERM`.
    pub fn remove(&self, caller: &Caller<'_>, id: i32) -> Result<()> {
        let mut wakes = Wakes::new();
        let removed = {
            let mut state = self.state.lock();
            state.sets.get(id)?.ownership.check_control(caller)?;
            let removed = state.sets.remove(id);
            if let Some(set) = &removed {
                state.semaphore_count -= set.semaphores.len() as u64;
                for undo in &set.undos {
                    forget_undo(&mut state.undoers, undo.pid, id);
                }
                self.has_undoers.store(!state.undoers.is_empty(), Ordering::Release);
                set.waiting.iter().for_each(|waiting| waiting.sleeper.settle(Err(Errno::EIDRM), &mut wakes));
            }
            removed
        };
        drop(removed);
        wake_all(wakes);
        Ok(())
    }
}

fn forget_undo(undoers: &mut BTreeMap<u32, Vec<i32>>, pid: u32, id: i32) {
    let Some(ids) = undoers.get_mut(&pid) else { return };
    if let Some(place) = ids.iter().position(|known| *known == id) {
        ids.swap_remove(place);
    }
    if ids.is_empty() {
        undoers.remove(&pid);
    }
}

/// Whether no operation hides what another does to the same semaphore, and none fails instead of waiting.
fn is_plain(operations: &[Operation]) -> bool {
    if let [only] = operations {
        return !only.no_wait;
    }
    let mut seen = [0_u64; 64];
    operations.iter().all(|operation| {
        let bit = 1 << (operation.number % 64);
        let word = &mut seen[usize::from(operation.number / 64) % 64];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new && !operation.no_wait
    })
}

impl Wait<'_> {
    /// What became of the request, if it was settled.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<()>> {
        self.sleeper.take()
    }

    /// Takes the request out, unless it was settled: what became of it then.
    #[must_use]
    pub fn give_up(&self) -> Option<Result<()>> {
        let mut state = self.semaphores.state.lock();
        let outcome = self.sleeper.take();
        if outcome.is_none()
            && let Ok(set) = state.sets.get_mut(self.id)
            && let Some(place) = set.waiting.iter().position(|waiting| waiting.number == self.number)
        {
            // It stood in no other's way: others were looked at whether it was there or not.
            set.waiting.remove(place);
        }
        outcome
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}
