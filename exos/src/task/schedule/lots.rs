//! The next turn where not all are equal: a draw by tickets (`aegis-lottery`).
//!
//! The base currency is the pod's: what the kernel's own lottery gives to the pod's processors. Each group below it has
//! a currency, funded by a ticket in its parent's; each task is a client, funded by a ticket in its group's. A task's
//! amount is its weight, a group's what `cpu.weight` says.
//!
//! Lazy: a task is entered when there is a draw and it waits for one, and what changes between two draws and back costs
//! nothing. Blocking, waking and running with what is left of a turn do not touch the tables, and where only one waits
//! nothing is drawn. A turn is kept across blocking until it is used up: a winner has a whole one for it, so no task is
//! owed compensation for a part, and many that sleep by turns have no more than their group's part.
//!
//! Invariants: `contenders` are the members that wait for a draw, each named by its `place`; before a draw the
//! lottery's clients are ready exactly if they are among them (`unsettled` are those where this may not hold).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_lottery::random::Keyed;
use aegis_lottery::{COMPENSATION_ONE, Currency, CurrencyId, Error, LotteryIn, Ticket, TicketId};

use super::Task;
use super::group::Groups;

/// Entries that the tables grow by.
const GROWTH: usize = 64;
/// Against which a client passes nothing on: all of its currency is its own.
const OWN_AMOUNT: u64 = 1;

/// Tables that grow.
pub(super) type Tables = LotteryIn<Vec<Currency>, Vec<Ticket>>;

/// Does something to the tables, with more room if they are full.
pub(super) fn with_room<T>(tables: &mut Tables, act: impl Fn(&mut Tables) -> Result<T, Error>) -> Result<T, Error> {
    match act(tables) {
        Err(Error::TableFull) => {
            tables.grow(GROWTH, GROWTH);
            act(tables)
        }
        done => done,
    }
}

struct Member {
    owner: Weak<Task>,
    client: CurrencyId,
    /// Of its group's currency; `None` until it is funded.
    ticket: Option<TicketId>,
    /// While it waits for a draw.
    task: Option<Arc<Task>>,
    /// Among the contenders.
    place: u32,
    is_unsettled: bool,
}

/// The draws of a pod.
pub(super) struct Lots {
    pub(super) tables: Tables,
    random: Keyed,
    /// By the client's tag; `None`: free. A task's member is its tag and 1.
    members: Vec<Option<Member>>,
    contenders: Vec<u32>,
    unsettled: Vec<u32>,
}

impl Lots {
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self {
            tables: Tables::with_tables(Vec::new(), Vec::new()),
            random: Keyed::new(key),
            members: Vec::new(),
            contenders: Vec::new(),
            unsettled: Vec::new(),
        }
    }

    pub(super) fn set_key(&mut self, key: [u64; 2]) {
        self.random = Keyed::new(key);
    }

    fn member(&mut self, tag: u32) -> Option<&mut Member> {
        self.members.get_mut(tag as usize)?.as_mut()
    }

    fn tag_of(task: &Task) -> Option<u32> {
        task.member.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The task's entry, which is made and funded if it was not.
    pub(super) fn admit(&mut self, task: &Task, groups: &Groups) -> Result<u32, Error> {
        let tag = match Self::tag_of(task) {
            Some(tag) => tag,
            None => self.add(task)?,
        };
        self.fund(task, groups).map(|()| tag)
    }

    fn add(&mut self, task: &Task) -> Result<u32, Error> {
        let free = self.members.iter().position(Option::is_none);
        let tag = free.unwrap_or(self.members.len()) as u32;
        let client = with_room(&mut self.tables, |tables| tables.create_client(OWN_AMOUNT, tag))?;
        let owner = task.me.clone();
        let member = Some(Member { owner, client, ticket: None, task: None, place: 0, is_unsettled: false });
        match free {
            Some(index) => self.members[index] = member,
            None => self.members.push(member),
        }
        task.member.store(tag + 1, Ordering::Relaxed);
        Ok(tag)
    }

    /// Funds a task that has an entry and is not funded.
    pub(super) fn fund(&mut self, task: &Task, groups: &Groups) -> Result<(), Error> {
        let index = Self::tag_of(task).map_or(usize::MAX, |tag| tag as usize);
        let Some(Some(member)) = self.members.get_mut(index) else { return Ok(()) };
        if member.ticket.is_none() {
            let (currency, client, weight) = (groups.currency(task.group()), member.client, task.weight());
            member.ticket = Some(with_room(&mut self.tables, |tables| tables.transfer(currency, client, weight))?);
        }
        Ok(())
    }

    /// Takes what funds a task from it. Its entry stays: it may hold a lock or wait for one.
    pub(super) fn unfund(&mut self, task: &Task) {
        let Some(tag) = Self::tag_of(task) else { return };
        if let Some(ticket) = self.member(tag).and_then(|member| member.ticket.take()) {
            let ended = self.tables.destroy_ticket(ticket);
            debug_assert!(ended.is_ok(), "INV-lots: a member's ticket is in the tables");
        }
    }

    /// The client of a task that has an entry.
    pub(super) fn client(&self, tag: u32) -> Option<CurrencyId> {
        Some(self.members.get(tag as usize)?.as_ref()?.client)
    }

    /// The task of a client.
    pub(super) fn task_of(&self, client: CurrencyId) -> Option<Arc<Task>> {
        self.members.get(self.tables.tag(client) as usize)?.as_ref()?.owner.upgrade()
    }

    /// Tables and chance, for what is not a draw for a turn.
    pub(super) fn parts(&mut self) -> (&mut Tables, &mut Keyed) {
        (&mut self.tables, &mut self.random)
    }

    pub(super) fn unsettle(&mut self, tag: u32) {
        if let Some(member) = self.member(tag)
            && !core::mem::replace(&mut member.is_unsettled, true)
        {
            self.unsettled.push(tag);
        }
    }

    /// Lets a task wait for a draw; gives it back if there is no entry for it.
    pub(super) fn enter(&mut self, task: Arc<Task>, groups: &Groups) -> Result<(), Arc<Task>> {
        let Ok(tag) = self.admit(&task, groups) else { return Err(task) };
        let place = self.contenders.len() as u32;
        let Some(member) = self.member(tag) else { return Err(task) };
        member.task = Some(task);
        member.place = place;
        self.contenders.push(tag);
        self.unsettle(tag);
        Ok(())
    }

    /// Takes a contender out.
    fn leave(&mut self, tag: u32) -> Option<Arc<Task>> {
        let member = self.member(tag)?;
        let task = member.task.take()?;
        let place = member.place;
        self.contenders.swap_remove(place as usize);
        if let Some(moved) = self.contenders.get(place as usize).copied()
            && let Some(moved) = self.member(moved)
        {
            moved.place = place;
        }
        self.unsettle(tag);
        Some(task)
    }

    /// Takes a task out if it waits for a draw.
    pub(super) fn withdraw(&mut self, task: &Task) -> Option<Arc<Task>> {
        self.leave(Self::tag_of(task)?)
    }

    /// Takes any one out that waits.
    pub(super) fn withdraw_any(&mut self) -> Option<Arc<Task>> {
        self.leave(*self.contenders.last()?)
    }

    /// Forgets a task that ends. It holds no lock and waits for none ([`super::locks`]).
    pub(super) fn forget(&mut self, task: &Task) {
        let Some(tag) = Self::tag_of(task) else { return };
        self.unfund(task);
        task.member.store(0, Ordering::Relaxed);
        self.unsettled.retain(|other| *other != tag);
        if let Some(member) = self.members.get_mut(tag as usize).and_then(Option::take) {
            let ended = self.tables.destroy_currency(member.client);
            debug_assert!(ended.is_ok(), "INV-lots: nothing else funds a member's client, which issues nothing");
        }
    }

    /// Those that have an entry.
    fn owners(&self) -> Vec<Arc<Task>> {
        self.members.iter().flatten().filter_map(|member| member.owner.upgrade()).collect()
    }

    /// Takes what funds them from all; those that wait are given back.
    pub(super) fn unfund_all(&mut self) -> Vec<Arc<Task>> {
        let waiting = core::iter::from_fn(|| self.withdraw_any()).collect();
        self.owners().iter().for_each(|task| self.unfund(task));
        waiting
    }

    /// Funds all that have an entry, by the groups as they are now. One that cannot be is when it next waits for a
    /// draw.
    pub(super) fn fund_all(&mut self, groups: &Groups) {
        for task in self.owners() {
            let _ = self.fund(&task, groups);
        }
    }

    /// A task's weight changed.
    pub(super) fn reweigh(&mut self, task: &Task) {
        if let Some(tag) = Self::tag_of(task)
            && let Some(ticket) = self.member(tag).and_then(|member| member.ticket)
        {
            // Refused only beyond what all tasks with the largest weight come to.
            let _ = self.tables.set_amount(ticket, task.weight());
        }
    }

    /// Draws among those that `processor` may run, and takes the winner out.
    pub(super) fn draw(&mut self, processor: usize) -> Option<Arc<Task>> {
        if let [only] = *self.contenders {
            return self.may_run(only, processor).then(|| self.leave(only)).flatten();
        }
        while let Some(tag) = self.unsettled.pop() {
            let Some(member) = self.members.get_mut(tag as usize).and_then(Option::as_mut) else { continue };
            member.is_unsettled = false;
            let _ = self.tables.set_client(member.client, member.task.is_some(), COMPENSATION_ONE);
        }
        let barred: Vec<u32> =
            self.contenders.iter().copied().filter(|contender| !self.may_run(*contender, processor)).collect();
        for tag in barred {
            if let Some(Some(member)) = self.members.get(tag as usize) {
                let _ = self.tables.set_client(member.client, false, COMPENSATION_ONE);
            }
            self.unsettle(tag);
        }
        let winner = self.tables.draw(&mut self.random)?.client;
        self.leave(self.tables.tag(winner))
    }

    fn may_run(&self, tag: u32, processor: usize) -> bool {
        let member = self.members.get(tag as usize).and_then(Option::as_ref);
        member.and_then(|member| member.task.as_ref()).is_some_and(|task| task.may_run_on(processor))
    }

    /// How many wait for a draw.
    pub(super) fn len(&self) -> usize {
        self.contenders.len()
    }

    /// Those that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.members.iter().flatten().filter_map(|member| member.task.as_ref())
    }

    /// Whether one of those that wait may run on a processor.
    pub(super) fn has_any(&self, processor: usize) -> bool {
        self.contenders.iter().any(|contender| self.may_run(*contender, processor))
    }
}
