//! Which ready task is next: rounds, turns, and the three queues behind them.
//!
//! A [`Turn`] says in which round a task last had time and how much of it is left. [`Queues`] holds ready tasks:
//! those that were woken, those that wait for their turn in this round, and those that have had it.
//!
//! Invariants: a round ends only when no task is left that has not had its turn in it, so no waiting task is passed
//! over in favour of a later round. Time is moved between turns (to a new task, back from an ended one), never made. A
//! task out of turn runs only on a processor that no other can use, and gains nothing by it in this round.
//!
//! Rounds are for tasks that are all equal, as they nearly always are. While one of them has another weight or is in a
//! group ([`Queues::is_uneven`]) rounds stand still, and a task that has used up a turn gets the next by a draw
//! (`lots.rs`) among all in that state. The rest is the same: a task that is woken with a part of a turn left goes
//! first.
//!
//! Neighbours: the scheduler, under whose lock all of this is.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Task;
use super::group::{GroupId, Groups};
use super::ledger::Ledger;
use super::lots::{Lots, Tables};

/// How long a task runs in a round while others wait.
pub const SLICE_NS: u64 = 4_000_000;

/// What a task may still use of its turn. Changes under the scheduler's lock only: a load and a store are enough.
pub(super) struct Turn {
    round: AtomicU64,
    left_ns: AtomicU64,
    /// What it may run beyond its turn where nobody else can.
    extra_ns: AtomicU64,
}

impl Default for Turn {
    /// A turn of the first round.
    fn default() -> Self {
        Self { round: AtomicU64::new(0), left_ns: AtomicU64::new(SLICE_NS), extra_ns: AtomicU64::new(0) }
    }
}

#[inline(always)]
fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

impl Turn {
    pub(super) fn left_ns(&self) -> u64 {
        get(&self.left_ns) + get(&self.extra_ns)
    }

    fn has_left(&self) -> bool {
        get(&self.left_ns) > 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.left_ns() == 0
    }

    #[inline(always)]
    pub(super) fn charge(&self, used_ns: u64) {
        let left_ns = get(&self.left_ns);
        set(&self.left_ns, left_ns.saturating_sub(used_ns));
        // Hardly ever.
        if used_ns > left_ns {
            set(&self.extra_ns, get(&self.extra_ns).saturating_sub(used_ns - left_ns));
        }
    }

    pub(super) fn give_up(&self) {
        set(&self.left_ns, 0);
        set(&self.extra_ns, 0);
    }

    /// A whole one, won in a draw, or of a round that begins.
    fn renew(&self, round: u64) {
        set(&self.round, round);
        set(&self.left_ns, SLICE_NS);
        set(&self.extra_ns, 0);
    }

    /// Half of it, for a new task's.
    fn split(&self, new: &Self) {
        let half_ns = get(&self.left_ns) / 2;
        set(&self.left_ns, get(&self.left_ns) - half_ns);
        set(&new.round, get(&self.round));
        set(&new.left_ns, half_ns);
        set(&new.extra_ns, 0);
    }

    /// Takes over what an ended task has left of the same round.
    pub(super) fn take_back(&self, ended: &Self) {
        if get(&ended.round) == get(&self.round) {
            set(&self.left_ns, (get(&self.left_ns) + get(&ended.left_ns)).min(SLICE_NS));
        }
    }

    /// Brings it into `round`.
    #[inline(always)]
    fn enter(&self, round: u64) {
        if get(&self.round) < round {
            self.renew(round);
        }
    }
}

/// The ready tasks.
pub(super) struct Queues {
    round: u64,
    /// Tasks that are not as all others.
    uneven_count: usize,
    pub(super) lots: Lots,
    pub(super) groups: Groups,
    pub(super) ledger: Ledger,
    /// Woken with some of their turn left.
    woken: Row,
    /// Not woken, with some of their turn left.
    waiting: VecDeque<Arc<Task>>,
    /// Without: they wait for the next round.
    spent: VecDeque<Arc<Task>>,
}

/// Tasks in a row of which there mostly is one, which has a place of its own. Invariant: where that is empty, all is.
#[derive(Default)]
struct Row {
    first: Option<Arc<Task>>,
    others: VecDeque<Arc<Task>>,
}

impl Row {
    #[inline(always)]
    fn push_back(&mut self, task: Arc<Task>) {
        if self.first.is_none() {
            self.first = Some(task);
        } else {
            self.others.push_back(task);
        }
    }

    /// Takes the first that may run on `processor`.
    #[inline(always)]
    fn take_able(&mut self, processor: usize) -> Option<Arc<Task>> {
        let first = self.first.take()?;
        if !first.may_run_on(processor) {
            self.first = Some(first);
            return take_able(&mut self.others, processor);
        }
        if !self.others.is_empty() {
            self.first = self.others.pop_front();
        }
        Some(first)
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline(always)]
    fn len(&self) -> usize {
        if self.first.is_none() { 0 } else { 1 + self.others.len() }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.first.iter().chain(&self.others)
    }
}

#[inline(always)]
fn take_able(queue: &mut VecDeque<Arc<Task>>, processor: usize) -> Option<Arc<Task>> {
    let first = queue.pop_front()?;
    // Nearly always.
    if first.may_run_on(processor) { Some(first) } else { take_behind(queue, first, processor) }
}

#[cold]
fn take_behind(queue: &mut VecDeque<Arc<Task>>, first: Arc<Task>, processor: usize) -> Option<Arc<Task>> {
    queue.push_front(first);
    let index = queue.iter().position(|task| task.may_run_on(processor))?;
    queue.remove(index)
}

impl Queues {
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self {
            round: 0,
            uneven_count: 0,
            lots: Lots::new(key),
            groups: Groups::new(),
            ledger: Ledger::default(),
            woken: Row::default(),
            waiting: VecDeque::new(),
            spent: VecDeque::new(),
        }
    }

    /// Whether turns are drawn for.
    #[inline]
    pub(super) fn is_uneven(&self) -> bool {
        self.uneven_count != 0
    }

    /// One more task is not as all others, or one less.
    pub(super) fn count_uneven(&mut self, is_more: bool) {
        if is_more {
            self.uneven_count += 1;
            return;
        }
        self.uneven_count -= 1;
        while self.uneven_count == 0
            && let Some(task) = self.lots.withdraw_any()
        {
            self.spent.push_back(task);
        }
    }

    /// The next for `processor` where all are equal, with a turn: running there from now on.
    #[inline]
    pub(super) fn take_in_turn(&mut self, processor: usize) -> Option<Arc<Task>> {
        self.take_woken(processor).or_else(|| self.take_waiting(processor))
    }

    /// As that, of those that were woken.
    #[inline(always)]
    pub(super) fn take_woken(&mut self, processor: usize) -> Option<Arc<Task>> {
        let task = self.woken.take_able(processor)?;
        task.state.set_running(processor);
        task.turn.enter(self.round);
        Some(task)
    }

    /// As that, where nobody was woken.
    fn take_waiting(&mut self, processor: usize) -> Option<Arc<Task>> {
        if self.woken.is_empty() && self.waiting.is_empty() && !self.spent.is_empty() {
            self.round += 1;
            core::mem::swap(&mut self.waiting, &mut self.spent);
        }
        let in_turn = take_able(&mut self.waiting, processor);
        let is_in_turn = in_turn.is_some();
        let task = in_turn.or_else(|| take_able(&mut self.spent, processor))?;
        task.state.set_running(processor);
        if is_in_turn {
            task.turn.enter(self.round);
        } else {
            set(&task.turn.extra_ns, SLICE_NS);
        }
        Some(task)
    }

    /// As [`Queues::take_in_turn`] where they are not: a task that has a turn left, or the winner of the next.
    #[cold]
    pub(super) fn take_by_lot(&mut self, processor: usize) -> Option<Arc<Task>> {
        loop {
            let in_turn = self.woken.take_able(processor).or_else(|| take_able(&mut self.waiting, processor));
            let has_turn = in_turn.is_some();
            let task = in_turn.or_else(|| self.draw(processor))?;
            // Groups that have used up what they may use are looked at here only.
            let Some(task) = self.groups.park(task) else { continue };
            task.state.set_running(processor);
            if has_turn {
                task.turn.enter(self.round);
            } else {
                task.turn.renew(self.round);
            }
            return Some(task);
        }
    }

    fn draw(&mut self, processor: usize) -> Option<Arc<Task>> {
        if self.lots.len() == 0
            && let [only] = self.spent.make_contiguous()
        {
            return if only.may_run_on(processor) { self.spent.pop_front() } else { None };
        }
        for _ in 0..self.spent.len() {
            let task = self.spent.pop_front()?;
            if let Err(task) = self.lots.enter(task, &self.groups) {
                self.spent.push_back(task);
            }
        }
        // A task without an entry for want of memory goes in turn.
        self.lots.draw(processor).or_else(|| take_able(&mut self.spent, processor))
    }

    /// Puts a task that was parked back among the ready ones.
    pub(super) fn unpark(&mut self, task: Arc<Task>) {
        let has_turn = task.turn.has_left();
        if has_turn { &mut self.waiting } else { &mut self.spent }.push_back(task);
    }

    /// A task starts.
    #[inline]
    pub(super) fn begin(&mut self, task: &Task) {
        if task.is_uneven() {
            self.begin_uneven(task);
        }
    }

    #[cold]
    fn begin_uneven(&mut self, task: &Task) {
        if self.groups.find(task.group()).is_err() {
            // Its maker was moved meanwhile, and what it was in has ended.
            task.group.store(GroupId::ROOT.0, Ordering::Relaxed);
        }
        if task.is_uneven() {
            self.count_uneven(true);
            self.groups.count(task.group(), 1);
        }
    }

    /// A task that runs ends.
    #[inline]
    pub(super) fn end(&mut self, task: &Task) {
        if task.member.load(Ordering::Relaxed) != 0 {
            self.lots.forget(task);
        }
        if task.is_uneven() {
            self.groups.count(task.group(), -1);
            self.count_uneven(false);
            self.close_if_left(task.group());
        }
    }

    /// A task left a group: a purse ends with the last.
    pub(super) fn close_if_left(&mut self, group: GroupId) {
        if self.groups.is_left(group) {
            self.ledger.release(&mut self.lots.tables, group);
            self.groups.close_purse(&mut self.lots.tables, group);
        }
    }

    /// Changes what groups are, with all tasks funded anew by it.
    pub(super) fn refund_all<T>(&mut self, change: impl FnOnce(&mut Groups, &mut Tables) -> T) -> T {
        self.spent.extend(self.lots.unfund_all());
        let outcome = change(&mut self.groups, &mut self.lots.tables);
        self.lots.fund_all(&self.groups);
        outcome
    }

    /// Takes what funds a task from it, and it from the draw among all, or from where it is parked. [`Lots::fund`] is
    /// wanted afterwards.
    pub(super) fn unfund(&mut self, task: &Task) {
        if let Some(task) = self.lots.withdraw(task) {
            self.spent.push_back(task);
        } else if let Some(task) = self.groups.take_parked(task) {
            self.unpark(task);
        }
        self.lots.unfund(task);
    }

    /// A task that was blocked, or is new; whether it goes before tasks that wait for their turn.
    #[inline(always)]
    pub(super) fn push_woken(&mut self, task: Arc<Task>) -> bool {
        let turn = &task.turn;
        turn.enter(self.round);
        set(&turn.extra_ns, 0);
        let is_ahead = turn.has_left();
        if is_ahead {
            self.woken.push_back(task);
        } else {
            self.spent.push_back(task);
        }
        is_ahead
    }

    /// A task that was running and could go on.
    pub(super) fn push_interrupted(&mut self, task: &Arc<Task>) {
        let turn = &task.turn;
        set(&turn.extra_ns, 0);
        if turn.has_left() && get(&turn.round) == self.round {
            self.waiting.push_front(task.clone());
        } else if get(&turn.round) < self.round {
            // It ran while others began the round: now it is its turn in it.
            turn.enter(self.round);
            self.waiting.push_back(task.clone());
        } else {
            self.spent.push_back(task.clone());
        }
    }

    /// Gives a part of `maker`'s turn to a new task.
    pub(super) fn split(&self, maker: &Task, new: &Task) {
        maker.turn.enter(self.round);
        maker.turn.split(&new.turn);
    }

    pub(super) fn has_woken(&self, processor: usize) -> bool {
        self.woken.iter().any(|task| task.may_run_on(processor))
    }

    pub(super) fn has_any(&self, processor: usize) -> bool {
        !(self.has_no_turn() && self.lots.len() == 0)
            && (self.has_woken(processor)
                || [&self.waiting, &self.spent].into_iter().flatten().any(|task| task.may_run_on(processor))
                || self.lots.has_any(processor))
    }

    /// All of them, in no order.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.woken.iter().chain(&self.waiting).chain(&self.spent).chain(self.lots.waiting())
    }

    /// Whether no task is ready but those that wait for a draw: none at all, where turns are not drawn for.
    #[inline(always)]
    pub(super) fn has_no_turn(&self) -> bool {
        self.woken.is_empty() && self.waiting.len() + self.spent.len() == 0
    }

    /// Those that do not wait for a draw: all, where turns are not drawn for.
    #[inline]
    pub(super) fn turn_count(&self) -> usize {
        self.woken.len() + self.waiting.len() + self.spent.len()
    }

    pub(super) fn len(&self) -> usize {
        self.turn_count() + self.lots.len()
    }
}
