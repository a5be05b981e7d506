//! The tree of partial sums over the tickets that one currency issued.
//!
//! It is a complete binary tree in the shape of a heap: the tickets are counted from 1, ticket `n` hangs below ticket
//! `n / 2`, and the binary digits of `n` are the way to it from the root. So it is balanced without rotations, its
//! depth is the logarithm of the number of tickets whatever order they come and go in, and it lives in the tickets
//! themselves. Each node has its own weight and the sum of the weights of its subtree. Invariant: `sum` = own weight +
//! the children's sums.

use crate::currency::{Currency, CurrencyId};
use crate::ticket::{Ticket, TicketId};

/// The table of tickets, as a tree sees it.
pub(crate) struct Forest<'t>(pub(crate) &'t mut [Ticket]);

impl Forest<'_> {
    fn at(&mut self, id: TicketId) -> &mut Ticket {
        &mut self.0[id.index()]
    }

    /// The ticket with a number, going down from the root.
    fn numbered(&mut self, root: Option<TicketId>, number: u32) -> Option<TicketId> {
        let mut at = root?;
        let digits = number.checked_ilog2()?;
        for digit in (0..digits).rev() {
            let ticket = self.at(at);
            at = if number >> digit & 1 == 0 { ticket.left? } else { ticket.right? };
        }
        Some(at)
    }

    fn replace_child(&mut self, parent: TicketId, old: Option<TicketId>, number: u32, new: Option<TicketId>) {
        let ticket = self.at(parent);
        let is_right = old.map_or(number & 1 == 1, |old| ticket.right == Some(old));
        if is_right {
            ticket.right = new;
        } else {
            ticket.left = new;
        }
    }

    /// Adds a ticket of weight 0.
    pub(crate) fn insert(&mut self, currency: &mut Currency, id: TicketId) {
        currency.issued_count += 1;
        let number = currency.issued_count;
        let parent = self.numbered(currency.root, number / 2);
        *self.at(id) = Ticket { parent, left: None, right: None, weight: 0, sum: 0, ..*self.at(id) };
        match parent {
            Some(parent) => self.replace_child(parent, None, number, Some(id)),
            None => currency.root = Some(id),
        }
    }

    /// Takes a ticket out; the one with the highest number takes its place.
    pub(crate) fn remove(&mut self, currency: &mut Currency, id: TicketId) {
        self.set_weight(id, 0);
        let number = currency.issued_count;
        let Some(last) = self.numbered(currency.root, number) else { return };
        let weight = self.at(last).weight;
        self.set_weight(last, 0);
        match self.at(last).parent {
            Some(parent) => self.replace_child(parent, Some(last), number, None),
            None => currency.root = None,
        }
        currency.issued_count -= 1;
        if last == id {
            return;
        }
        let Ticket { parent, left, right, sum, .. } = *self.at(id);
        *self.at(last) = Ticket { parent, left, right, sum, ..*self.at(last) };
        match parent {
            Some(parent) => self.replace_child(parent, Some(id), 0, Some(last)),
            None => currency.root = Some(last),
        }
        for child in [left, right].into_iter().flatten() {
            self.at(child).parent = Some(last);
        }
        self.set_weight(last, weight);
    }

    /// Changes a weight and the sums above it.
    pub(crate) fn set_weight(&mut self, id: TicketId, weight: u64) {
        let old = core::mem::replace(&mut self.at(id).weight, weight);
        // The sums never overflow (see `AMOUNT_SUM_MAX`), and what wraps in between wraps back.
        let difference = weight.wrapping_sub(old);
        let mut at = Some(id);
        while let Some(id) = at {
            let ticket = self.at(id);
            ticket.sum = ticket.sum.wrapping_add(difference);
            at = ticket.parent;
        }
    }

    /// The ticket after `id` in the order in which the tree is listed (parents first), if there is one.
    pub(crate) fn after(tickets: &[Ticket], id: TicketId) -> Option<TicketId> {
        let ticket = &tickets[id.index()];
        if let Some(child) = ticket.left.or(ticket.right) {
            return Some(child);
        }
        let mut below = id;
        let mut at = ticket.parent;
        while let Some(id) = at {
            let ticket = &tickets[id.index()];
            if ticket.right != Some(below)
                && let Some(right) = ticket.right
            {
                return Some(right);
            }
            below = id;
            at = ticket.parent;
        }
        None
    }
}

/// The tickets that a currency issued.
pub(crate) fn issued<'t>(tickets: &'t [Ticket], currency: &Currency) -> impl Iterator<Item = TicketId> + use<'t> {
    core::iter::successors(currency.root, move |id| Forest::after(tickets, *id))
}

/// The tickets that fund a currency.
pub(crate) fn backing<'t>(tickets: &'t [Ticket], currency: &Currency) -> impl Iterator<Item = TicketId> + use<'t> {
    core::iter::successors(currency.backing, move |id| tickets[id.index()].next)
}

/// Where the winning number falls in a tree, and how many nodes were looked at.
pub(crate) fn find(tickets: &[Ticket], root: TicketId, number: u64) -> (CurrencyId, u32) {
    let mut rest = number;
    let mut steps = 1;
    let mut at = &tickets[root.index()];
    loop {
        if rest < at.weight {
            return (at.target, steps);
        }
        rest -= at.weight;
        let left = at.left.map(|id| &tickets[id.index()]);
        let next = match left {
            Some(left) if rest < left.sum => Some(left),
            _ => {
                rest -= left.map_or(0, |left| left.sum);
                at.right.map(|id| &tickets[id.index()])
            }
        };
        let Some(next) = next else {
            // The number was not below the tree's sum; every caller draws below it.
            return (at.target, steps);
        };
        at = next;
        steps += 1;
    }
}
