//! What tasks and groups are worth: weights, groups, limits, and what was used.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::group::{GroupId, Groups, Limit, Usage};
use super::queue::Queues;
use super::{Inner, Notice, Scheduler, Status, Task, WEIGHT_MAX};
use crate::error::{Errno, Result};

impl Inner {
    /// Changes what makes a task uneven or not.
    fn change(&mut self, task: &Task, change: impl FnOnce(&mut Queues)) {
        let is_live = !matches!(task.state.get(), Status::New | Status::Ended);
        let was_uneven = task.is_uneven();
        change(&mut self.queues);
        if is_live && was_uneven != task.is_uneven() {
            self.queues.count_uneven(!was_uneven);
        }
    }

    /// Lets tasks run whose groups have a new period; answers the processors to tell.
    pub(super) fn release(&mut self, now_ns: u64) -> alloc::vec::Vec<Notice> {
        let released = self.queues.groups.release(now_ns);
        self.unpark(released)
    }

    /// Puts tasks that may run again among the ready ones; answers the processors to tell.
    fn unpark(&mut self, tasks: alloc::vec::Vec<Arc<Task>>) -> alloc::vec::Vec<Notice> {
        let unpark = |task: Arc<Task>| {
            self.queues.unpark(task.clone());
            self.whom_to_tell(&task)
        };
        tasks.into_iter().map(unpark).collect()
    }
}

impl Task {
    /// Sets what it weighs against the others of its group: 1 to [`WEIGHT_MAX`].
    pub fn set_weight(&self, weight: u64) {
        let mut inner = self.scheduler.inner.lock();
        inner.change(self, |queues| {
            self.weight.store(weight.clamp(1, WEIGHT_MAX), Ordering::Relaxed);
            queues.lots.reweigh(self);
        });
    }

    /// Moves it to a group. What it has left of its turn, which the other group paid for, it loses.
    ///
    /// # Errors
    /// `ENOENT`: there is no such group.
    pub fn set_group(&self, group: GroupId, now_ns: u64) -> Result<()> {
        let told = {
            let mut inner = self.scheduler.inner.lock();
            inner.queues.groups.find(group)?;
            let status = self.state.get();
            if let Status::Running(processor) = status {
                inner.charge(processor, now_ns);
            }
            let before = self.group();
            if !matches!(status, Status::New | Status::Ended) {
                inner.queues.groups.count(before, -1);
                inner.queues.groups.count(group, 1);
            }
            inner.change(self, |queues| {
                self.turn.give_up();
                queues.unfund(self);
                self.group.store(group.0, Ordering::Relaxed);
                // A task that cannot be funded now is when it next waits for a draw.
                let _ = queues.lots.fund(self, &queues.groups);
            });
            inner.queues.close_if_left(before);
            match status {
                Status::Ready => Some(inner.whom_to_tell(self)),
                // Its new group may have a limit.
                Status::Running(processor) => Some(Notice::Busy { mask: 1 << processor, within_ns: super::TICK_NS }),
                _ => None,
            }
        };
        told.iter().for_each(|told| self.scheduler.tell(told));
        Ok(())
    }
}

impl Scheduler {
    /// What the draws come from. The same key, the same draws.
    pub fn set_key(&self, key: [u64; 2]) {
        self.inner.lock().queues.lots.set_key(key);
    }

    /// Makes a group in another, with nobody in it.
    ///
    /// # Errors
    /// `EAGAIN`: there are [`super::GROUP_COUNT_MAX`] groups. `ENOENT`: no such parent.
    pub fn create_group(&self, parent: GroupId) -> Result<GroupId> {
        self.inner.lock().queues.groups.create(parent)
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `EBUSY`: it holds tasks or groups, is funded, or is the pod. `ENOENT`.
    pub fn remove_group(&self, group: GroupId) -> Result<()> {
        self.inner.lock().queues.groups.remove(group)
    }

    /// Says whether a group competes as one, with [`super::GROUP_WEIGHT_DEFAULT`] at first, or each task in it as if it
    /// were in the group above.
    ///
    /// # Errors
    /// `EINVAL`: the group above does not. `EBUSY`: a group in it does, it has a limit, or a numbered ticket is of it
    /// or funds it. `ENOENT`, `ENOMEM`.
    pub fn set_group_funded(&self, group: GroupId, is_funded: bool) -> Result<()> {
        let queues = &mut self.inner.lock().queues;
        if queues.groups.is_funded(group) == is_funded {
            return queues.groups.find(group);
        }
        if !is_funded && queues.ledger.names(group) {
            return Err(Errno::EBUSY);
        }
        queues.refund_all(
            |groups, tables| {
                if is_funded { groups.fund(tables, group) } else { groups.unfund(tables, group) }
            },
        )
    }

    /// Has no group of these compete as one any more, and ends their limits: of all, or of none.
    ///
    /// # Errors
    /// `EBUSY`: a group in one of them competes, or a numbered ticket is of it or funds it. `ENOENT`.
    pub fn unfund_groups(&self, ids: &[GroupId], now_ns: u64) -> Result<()> {
        let told = {
            let mut inner = self.inner.lock();
            if ids.iter().any(|id| inner.queues.ledger.names(*id)) {
                return Err(Errno::EBUSY);
            }
            inner.charge_all(now_ns);
            inner.queues.refund_all(|groups, tables| ids.iter().try_for_each(|id| groups.can_unfund(tables, *id)))?;
            let mut told = Vec::new();
            for id in ids {
                let parked = inner.queues.groups.set_limit(*id, None, now_ns)?;
                told.extend(inner.unpark(parked));
            }
            let unfund = |groups: &mut Groups, tables: &mut _| ids.iter().try_for_each(|id| groups.unfund(tables, *id));
            inner.queues.refund_all(unfund)?;
            told
        };
        self.arm_release();
        told.iter().for_each(|told| self.tell(told));
        self.tell_of_limit();
        Ok(())
    }

    /// Sets what a group weighs against tasks and groups of its parent.
    ///
    /// # Errors
    /// `ERANGE`: nothing, or more than currencies count. `EINVAL`: it is not funded. `ENOENT`.
    pub fn set_group_weight(&self, group: GroupId, weight: u64) -> Result<()> {
        let queues = &mut self.inner.lock().queues;
        queues.groups.set_weight(&mut queues.lots.tables, group, weight)
    }

    /// Sets or ends a group's limit, from a period that begins now.
    ///
    /// # Errors
    /// `EINVAL`: a quota or a period of nothing, or it is not funded. `ENOENT`.
    pub fn set_group_limit(&self, group: GroupId, limit: Option<Limit>, now_ns: u64) -> Result<()> {
        if group == GroupId::ROOT || limit.is_some_and(|limit| limit.quota_ns == 0 || limit.period_ns == 0) {
            return Err(Errno::EINVAL);
        }
        let told = {
            let mut inner = self.inner.lock();
            inner.charge_all(now_ns);
            let parked = inner.queues.groups.set_limit(group, limit, now_ns)?;
            inner.unpark(parked)
        };
        self.arm_release();
        told.iter().for_each(|told| self.tell(told));
        self.tell_of_limit();
        Ok(())
    }

    /// Running tasks learn of a limit that was set or ended at the next tick.
    fn tell_of_limit(&self) {
        let mask = u64::MAX >> (64 - self.processor_count.clamp(1, 64));
        self.tell(&Notice::Busy { mask, within_ns: super::TICK_NS });
    }

    /// What a group has used. Of the pod: what all have.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn group_usage(&self, group: GroupId, now_ns: u64) -> Result<Usage> {
        let (used_ns, usage) = {
            let mut inner = self.inner.lock();
            inner.charge_all(now_ns);
            let used_ns = inner.seats.iter().map(|seat| seat.used_ns).sum();
            (used_ns, inner.queues.groups.usage(group, now_ns)?)
        };
        self.arm_release();
        Ok(if group == GroupId::ROOT { Usage { used_ns, ..usage } } else { usage })
    }

    /// How many tasks are in a group itself, and not in one below it. Not known of the pod: 0.
    #[must_use]
    pub fn group_task_count(&self, group: GroupId) -> u32 {
        self.inner.lock().queues.groups.task_count(group)
    }

    /// Lets those run whose groups have a new period.
    pub(super) fn release(&self, now_ns: u64) {
        let told = {
            let mut inner = self.inner.lock();
            if inner.queues.groups.limit_count == 0 {
                return;
            }
            inner.release(now_ns)
        };
        told.iter().for_each(|told| self.tell(told));
    }
}
