//! The scheduler's side of named currencies and numbered tickets (`ledger.rs`): all of it under the scheduler's lock.
//!
//! `who` is the user that asks, 0 for one that may do all.

use alloc::string::String;
use alloc::vec::Vec;

use super::group::{GroupId, Purse};
use super::ledger::{Holder, Refusal, TicketLine};
use super::{Inner, Scheduler};

impl Scheduler {
    fn with_ledger<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock())
    }

    /// Makes a currency that nothing funds yet.
    ///
    /// # Errors
    /// `BadName`, `Exists`, `Full`.
    pub fn make_currency(&self, who: u32, name: &str) -> Result<(), Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.make_currency(&mut queues.lots.tables, who, name)
        })
    }

    /// Removes a currency that issued nothing and that nothing funds.
    ///
    /// # Errors
    /// `Lottery(UnknownCurrency)`, `Lottery(InUse)`, `NotAllowed`.
    pub fn remove_currency(&self, who: u32, name: &str) -> Result<(), Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.remove_currency(&mut queues.lots.tables, who, name)
        })
    }

    /// Issues a ticket that funds nothing yet; its number.
    ///
    /// # Errors
    /// `NotAllowed`, `Full`, `Lottery(ZeroAmount)`, `Lottery(SumTooLarge)`, `Lottery(UnknownCurrency)`.
    pub fn issue_ticket(&self, who: u32, amount: u64, issuer: &Holder) -> Result<u32, Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.issue(&mut queues.lots.tables, &queues.groups, who, (amount, issuer))
        })
    }

    /// Ends a ticket; what it funded loses it.
    ///
    /// # Errors
    /// `Lottery(UnknownTicket)`, `NotAllowed`.
    pub fn remove_ticket(&self, who: u32, number: u32) -> Result<(), Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.remove_ticket(&mut queues.lots.tables, &queues.groups, who, number)
        })
    }

    /// Lets a ticket fund something. One that `is_bound` ends with the purse that it funds.
    ///
    /// # Errors
    /// `NotAllowed`, `Lottery` of `UnknownTicket`, `UnknownCurrency`, `IsBase`, `InUse` (it funds something), `Cycle`.
    pub fn fund_ticket(&self, who: u32, number: u32, target: &Holder, is_bound: bool) -> Result<(), Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.fund(&mut queues.lots.tables, &queues.groups, who, (number, target))?;
            if is_bound {
                queues.ledger.bind(number);
            }
            Ok(())
        })
    }

    /// Takes a ticket from what it funds, if anything.
    ///
    /// # Errors
    /// `Lottery(UnknownTicket)`, `NotAllowed`.
    pub fn unfund_ticket(&self, who: u32, number: u32) -> Result<(), Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.ledger.unfund(&mut queues.lots.tables, &queues.groups, who, number)
        })
    }

    /// All tickets, by number.
    #[must_use]
    pub fn ticket_lines(&self) -> Vec<TicketLine> {
        self.with_ledger(|inner| inner.queues.ledger.tickets())
    }

    /// All named currencies and their owners, by name.
    #[must_use]
    pub fn currency_names(&self) -> Vec<(String, u32)> {
        self.with_ledger(|inner| inner.queues.ledger.currencies())
    }

    /// Makes a purse in a control group, or in that of a purse, with no member. It ends when its last member leaves.
    ///
    /// # Errors
    /// `Full`, `Lottery(SumTooLarge)`.
    pub fn open_purse(&self, group: GroupId, purse: Purse) -> Result<GroupId, Refusal> {
        self.with_ledger(|inner| {
            let queues = &mut inner.queues;
            queues.groups.open_purse(&mut queues.lots.tables, group, purse)
        })
    }

    /// Ends a purse that nobody has come into.
    pub fn close_purse(&self, purse: GroupId) {
        self.with_ledger(|inner| inner.queues.close_if_left(purse));
    }

    /// Whose a purse is; `None`: the group is no purse.
    #[must_use]
    pub fn purse(&self, group: GroupId) -> Option<Purse> {
        self.with_ledger(|inner| inner.queues.groups.purse(group))
    }
}
