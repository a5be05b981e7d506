//! Groups of tasks: what of the pod's time each gets, what it may use at most, and what it has used.
//!
//! A group that is *funded* is a currency (`lots.rs`) below its parent's; tasks in one that is not compete as if they
//! were in the group above it, and it only counts what they use. A limit is a time in each period, for the group and
//! all below it: a task that has used it up waits, parked, for a later period, and what was used beyond it is taken
//! from that. Periods are looked at when time is charged and when a task waits for their end, so a group that does
//! nothing costs nothing.
//!
//! Invariants: the pod itself is group 0 and has neither ticket nor limit. Only a group in the pod itself or in one
//! that is funded is funded, and only such a group has a limit. A parked task is in no queue. A group that holds tasks
//! or groups is not removed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_lottery::{CurrencyId, TicketId};

use super::Task;
use super::ledger::{FLOOR, Refusal};
use super::lots::{Tables, with_room};
use crate::error::{Errno, Result};

/// Most groups of a pod, itself included.
pub const GROUP_COUNT_MAX: usize = 1024;
/// What a group has of its parent's time unless told otherwise: as much as a task ([`super::WEIGHT_DEFAULT`]).
pub const GROUP_WEIGHT_DEFAULT: u64 = super::WEIGHT_DEFAULT;

/// A group's number. Numbers are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupId(pub(super) u32);

impl GroupId {
    /// The pod.
    pub const ROOT: Self = Self(0);
}

/// Whose a purse is (`ledger.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purse {
    /// The process that it was made for.
    pub process: u32,
    /// The user that may fund it.
    pub owner: u32,
}

/// A limit of time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What may be used in a period.
    pub quota_ns: u64,
    /// Period of a limit, in nanoseconds.
    pub period_ns: u64,
}

/// What a group has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub used_ns: u64,
    /// Periods in which it ran and had a limit.
    pub period_count: u64,
    /// Periods in which it used up its limit.
    pub throttled_count: u64,
    /// How long it waited for a later period.
    pub throttled_ns: u64,
}

/// The period of a limit, as far as it has been looked at.
struct Window {
    limit: Limit,
    start_ns: u64,
    used_ns: u64,
    /// Since when nobody in it may run.
    throttled_since_ns: Option<u64>,
}

struct Group {
    parent: GroupId,
    /// Its own, and the ticket that funds it.
    funding: Option<(CurrencyId, TicketId)>,
    /// Tasks that have started and not ended.
    task_count: u32,
    child_count: u32,
    usage: Usage,
    window: Option<Window>,
    parked: Vec<Arc<Task>>,
    purse: Option<Purse>,
}

impl Group {
    fn new(parent: GroupId) -> Self {
        Self {
            parent,
            funding: None,
            task_count: 0,
            child_count: 0,
            usage: Usage::default(),
            window: None,
            parked: Vec::new(),
            purse: None,
        }
    }

    /// Goes on to the period that `now_ns` is in.
    fn look(&mut self, now_ns: u64) {
        let Some(window) = &mut self.window else { return };
        let passed = now_ns.saturating_sub(window.start_ns) / window.limit.period_ns;
        if passed == 0 {
            return;
        }
        let needed = window.used_ns.div_ceil(window.limit.quota_ns);
        self.usage.period_count += needed.min(passed);
        window.start_ns += passed * window.limit.period_ns;
        window.used_ns = window.used_ns.saturating_sub(passed.saturating_mul(window.limit.quota_ns));
        if let Some(since_ns) = window.throttled_since_ns
            && window.used_ns < window.limit.quota_ns
        {
            self.usage.throttled_ns += window.start_ns.saturating_sub(since_ns);
            window.throttled_since_ns = None;
        }
    }

    fn charge(&mut self, since_ns: u64, now_ns: u64) {
        self.usage.used_ns += since_ns;
        self.look(now_ns);
        let Some(window) = &mut self.window else { return };
        window.used_ns += since_ns;
        if window.used_ns >= window.limit.quota_ns && window.throttled_since_ns.is_none() {
            window.throttled_since_ns = Some(now_ns);
            self.usage.throttled_count += 1;
        }
    }

    fn is_throttled(&self) -> bool {
        self.window.as_ref().is_some_and(|window| window.throttled_since_ns.is_some())
    }

    /// When it may run again, if it may not now.
    fn release_ns(&self) -> Option<u64> {
        let window = self.window.as_ref().filter(|window| window.throttled_since_ns.is_some())?;
        let periods = (window.used_ns / window.limit.quota_ns).max(1);
        Some(window.start_ns + periods * window.limit.period_ns)
    }
}

/// The groups of a pod.
pub(super) struct Groups {
    /// `None`: a number that is free.
    groups: Vec<Option<Group>>,
    /// How many have a limit.
    pub(super) limit_count: usize,
}

impl Groups {
    pub(super) fn new() -> Self {
        Self { groups: alloc::vec![Some(Group::new(GroupId::ROOT))], limit_count: 0 }
    }

    fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0 as usize)?.as_ref()
    }

    /// `ENOENT`: there is none with that number.
    pub(super) fn find(&self, id: GroupId) -> Result<()> {
        self.get(id).map(|_| ()).ok_or(Errno::ENOENT)
    }

    fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(id.0 as usize)?.as_mut()
    }

    /// A group and what it is in, up to the pod.
    fn upward(&self, id: GroupId) -> impl Iterator<Item = (GroupId, &Group)> {
        let parent = |(id, group): &(GroupId, &Group)| if *id == GroupId::ROOT { None } else { Some(group.parent) };
        let first = self.get(id).map(|group| (id, group));
        core::iter::successors(first, move |here| {
            let above = parent(here)?;
            self.get(above).map(|group| (above, group))
        })
    }

    pub(super) fn currency(&self, id: GroupId) -> CurrencyId {
        let mut owns = self.upward(id).filter_map(|(_, group)| group.funding);
        owns.next().map_or(CurrencyId::BASE, |(currency, _)| currency)
    }

    /// The currency of a group that competes as one; the base currency belongs to none.
    pub(super) fn own_currency(&self, id: GroupId) -> Option<CurrencyId> {
        self.get(id)?.funding.map(|(currency, _)| currency)
    }

    pub(super) fn purse(&self, id: GroupId) -> Option<Purse> {
        self.get(id)?.purse
    }

    /// A group in a group, or in the one that a purse is in, with [`FLOOR`] there and whatever funds it besides.
    pub(super) fn open_purse(
        &mut self,
        tables: &mut Tables,
        id: GroupId,
        purse: Purse,
    ) -> core::result::Result<GroupId, Refusal> {
        let parent = match self.get(id) {
            Some(group) if group.purse.is_some() => group.parent,
            _ => id,
        };
        let above = self.currency(parent);
        let currency = with_room(tables, |tables| tables.create_currency(0))?;
        let made = with_room(tables, |tables| tables.transfer(above, currency, FLOOR)).map_err(Refusal::from);
        let made = made.and_then(|ticket| match self.create(parent) {
            Ok(id) => Ok((id, ticket)),
            Err(_) => tables.destroy_ticket(ticket).map_err(Refusal::from).and(Err(Refusal::Full)),
        });
        let (id, ticket) = made.inspect_err(|_| {
            let ended = tables.destroy_currency(currency);
            debug_assert!(ended.is_ok(), "INV-group: it was just made");
        })?;
        if let Some(group) = self.get_mut(id) {
            (group.funding, group.purse) = (Some((currency, ticket)), Some(purse));
        }
        Ok(id)
    }

    /// Whether a purse has nobody in it.
    pub(super) fn is_left(&self, id: GroupId) -> bool {
        self.get(id).is_some_and(|group| group.purse.is_some() && group.task_count == 0)
    }

    /// Ends a purse that nobody is in and that nothing but [`FLOOR`] funds.
    pub(super) fn close_purse(&mut self, tables: &mut Tables, id: GroupId) {
        let closed = self.unfund(tables, id).and_then(|()| self.remove(id));
        debug_assert!(closed.is_ok(), "INV-group: nothing is in a purse that was left");
    }

    pub(super) fn create(&mut self, parent: GroupId) -> Result<GroupId> {
        let free = self.groups.iter().position(Option::is_none).unwrap_or(self.groups.len());
        if free >= GROUP_COUNT_MAX {
            return Err(Errno::EAGAIN);
        }
        self.get_mut(parent).ok_or(Errno::ENOENT)?.child_count += 1;
        let group = Some(Group::new(parent));
        match self.groups.get_mut(free) {
            Some(entry) => *entry = group,
            None => self.groups.push(group),
        }
        Ok(GroupId(free as u32))
    }

    /// `EBUSY`: it holds tasks or groups, or is funded.
    pub(super) fn remove(&mut self, id: GroupId) -> Result<()> {
        let group = self.get(id).ok_or(Errno::ENOENT)?;
        if id == GroupId::ROOT || group.task_count != 0 || group.child_count != 0 || group.funding.is_some() {
            return Err(Errno::EBUSY);
        }
        let parent = group.parent;
        self.groups[id.0 as usize] = None;
        if let Some(parent) = self.get_mut(parent) {
            parent.child_count -= 1;
        }
        Ok(())
    }

    pub(super) fn is_funded(&self, id: GroupId) -> bool {
        id == GroupId::ROOT || self.get(id).is_some_and(|group| group.funding.is_some())
    }

    /// Gives a group a currency. Nobody in it has a ticket.
    pub(super) fn fund(&mut self, tables: &mut Tables, id: GroupId) -> Result<()> {
        let parent = self.get(id).ok_or(Errno::ENOENT)?.parent;
        if self.is_funded(id) || !self.is_funded(parent) {
            return Err(Errno::EINVAL);
        }
        let above = self.currency(parent);
        let currency = with_room(tables, |tables| tables.create_currency(0)).map_err(|_| Errno::ENOMEM)?;
        let ticket = with_room(tables, |tables| tables.transfer(above, currency, GROUP_WEIGHT_DEFAULT));
        let Ok(ticket) = ticket else {
            let _ = tables.destroy_currency(currency);
            return Err(Errno::ERANGE);
        };
        if let Some(group) = self.get_mut(id) {
            group.funding = Some((currency, ticket));
        }
        Ok(())
    }

    /// Whether a group's currency can be taken away but for its limit. `EBUSY`: somebody in it has a ticket.
    pub(super) fn can_unfund(&self, tables: &Tables, id: GroupId) -> Result<()> {
        let group = self.get(id).ok_or(Errno::ENOENT)?;
        let is_used = group.funding.is_some_and(|(currency, _)| tables.issued_amount(currency) != 0);
        if is_used { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Takes a group's currency away. Nobody in it has a ticket, no group in it is funded, it has no limit.
    pub(super) fn unfund(&mut self, tables: &mut Tables, id: GroupId) -> Result<()> {
        self.can_unfund(tables, id)?;
        let group = self.get_mut(id).ok_or(Errno::ENOENT)?;
        let Some((currency, ticket)) = group.funding else { return Ok(()) };
        if group.window.is_some() {
            return Err(Errno::EBUSY);
        }
        group.funding = None;
        let ended = tables.destroy_ticket(ticket).and_then(|()| tables.destroy_currency(currency));
        debug_assert!(ended.is_ok(), "INV-group: a currency that issues nothing is funded by its group's ticket alone");
        Ok(())
    }

    pub(super) fn set_weight(&mut self, tables: &mut Tables, id: GroupId, weight: u64) -> Result<()> {
        let group = self.get(id).ok_or(Errno::ENOENT)?;
        let (_, ticket) = group.funding.ok_or(Errno::EINVAL)?;
        tables.set_amount(ticket, weight).map_err(|_| Errno::ERANGE)
    }

    /// Sets or ends a limit; the tasks that were parked for the one before are given back.
    pub(super) fn set_limit(&mut self, id: GroupId, limit: Option<Limit>, now_ns: u64) -> Result<Vec<Arc<Task>>> {
        if limit.is_some() && !self.is_funded(id) {
            return Err(Errno::EINVAL);
        }
        let group = self.get_mut(id).ok_or(Errno::ENOENT)?;
        group.look(now_ns);
        if let Some(since_ns) = group.window.as_ref().and_then(|window| window.throttled_since_ns) {
            group.usage.throttled_ns += now_ns.saturating_sub(since_ns);
        }
        let had_limit = group.window.is_some();
        group.window = limit.map(|limit| Window { limit, start_ns: now_ns, used_ns: 0, throttled_since_ns: None });
        let parked = core::mem::take(&mut group.parked);
        self.limit_count = self.limit_count + usize::from(limit.is_some()) - usize::from(had_limit);
        Ok(parked)
    }

    pub(super) fn usage(&mut self, id: GroupId, now_ns: u64) -> Result<Usage> {
        let group = self.get_mut(id).ok_or(Errno::ENOENT)?;
        group.look(now_ns);
        let since_ns = group.window.as_ref().and_then(|window| window.throttled_since_ns);
        let throttled_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        Ok(Usage { throttled_ns: group.usage.throttled_ns + throttled_ns, ..group.usage })
    }

    /// Tasks in it or below it.
    pub(super) fn task_count(&self, id: GroupId) -> u32 {
        self.get(id).map_or(0, |group| group.task_count)
    }

    /// A task came into a group (1) or left it (-1).
    pub(super) fn count(&mut self, id: GroupId, difference: i32) {
        if let Some(group) = self.get_mut(id) {
            group.task_count = group.task_count.saturating_add_signed(difference);
        }
    }

    /// Charges a group and all above it for time.
    pub(super) fn charge(&mut self, id: GroupId, since_ns: u64, now_ns: u64) {
        let mut at = id;
        while let Some(group) = self.get_mut(at) {
            group.charge(since_ns, now_ns);
            if at == GroupId::ROOT {
                break;
            }
            at = group.parent;
        }
    }

    /// What the groups above a task let it run without another look.
    pub(super) fn left_ns(&self, id: GroupId) -> Option<u64> {
        let windows = self.upward(id).filter_map(|(_, group)| group.window.as_ref());
        windows.map(|window| window.limit.quota_ns.saturating_sub(window.used_ns)).min()
    }

    /// The group that keeps the tasks of `id` from running.
    fn throttled_above(&self, id: GroupId) -> Option<GroupId> {
        self.upward(id).find(|(_, group)| group.is_throttled()).map(|(id, _)| id)
    }

    pub(super) fn is_throttled(&self, id: GroupId) -> bool {
        self.limit_count != 0 && self.throttled_above(id).is_some()
    }

    /// Keeps a task if its group may not run now; gives it back if it may.
    pub(super) fn park(&mut self, task: Arc<Task>) -> Option<Arc<Task>> {
        if self.limit_count == 0 {
            return Some(task);
        }
        match self.throttled_above(task.group()) {
            Some(id) => {
                self.get_mut(id)?.parked.push(task);
                None
            }
            None => Some(task),
        }
    }

    /// Takes a task out if it is parked.
    pub(super) fn take_parked(&mut self, task: &Task) -> Option<Arc<Task>> {
        self.groups.iter_mut().flatten().find_map(|group| {
            let index = group.parked.iter().position(|parked| core::ptr::eq(&raw const **parked, task))?;
            Some(group.parked.swap_remove(index))
        })
    }

    /// Those whose wait for a later period is over.
    pub(super) fn release(&mut self, now_ns: u64) -> Vec<Arc<Task>> {
        let mut released = Vec::new();
        for group in self.groups.iter_mut().flatten().filter(|group| group.window.is_some()) {
            group.look(now_ns);
            if !group.is_throttled() {
                released.append(&mut group.parked);
            }
        }
        released
    }

    /// When [`Groups::release`] is next wanted.
    pub(super) fn next_release_ns(&self) -> Option<u64> {
        if self.limit_count == 0 {
            return None;
        }
        self.groups.iter().flatten().filter_map(Group::release_ns).min()
    }

    /// Tasks that are parked.
    #[cfg(test)]
    pub(super) fn parked_count(&self) -> usize {
        self.groups.iter().flatten().map(|group| group.parked.len()).sum()
    }
}
