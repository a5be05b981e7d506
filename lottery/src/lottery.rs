//! The lottery's tables: currencies, tickets, what each funds, and which are active.
//!
//! Invariants, which `Lottery::check` recomputes:
//! - a ticket is active (its weight is not 0) exactly if it funds a currency that is active; a currency is active
//!   exactly if its client is ready or one of its tickets is active;
//! - `active_amount` and `issued_amount` are the sums over those tickets, and a tree's sums those of its weights;
//! - a ticket weighs its amount x the ratio of what it funds, and that ratio is the sum of the weights in that currency
//!   by its active amount. So compensation, which only changes what a client weighs in its own currency, is felt in
//!   every currency on the way down to it: one whose only client uses a fifth of its slices wins five times as often;
//! - a funder stands before what it funds (`order.rs`).
//!
//! Sizes: an amount sum is below 2^40, a ratio at most 2^8 with 32 fraction bits, a weight has 16 fraction bits: sums
//! of weights stay below 2^64.

use core::ops::IndexMut;

use crate::currency::{Currency, CurrencyId};
use crate::order::Order;
use crate::ticket::{Ticket, TicketId};
use crate::tree::{Forest, backing, issued};
use crate::{COMPENSATION_MAX, COMPENSATION_MIN, Error, VALUE_ONE};

/// A table: an array, or something that can grow.
pub trait Table<E>: AsRef<[E]> + AsMut<[E]> + IndexMut<usize, Output = E> {}

impl<E, S: AsRef<[E]> + AsMut<[E]> + IndexMut<usize, Output = E>> Table<E> for S {}

/// Tickets and currencies in tables of a fixed size; `CURRENCIES` counts the base.
pub type Lottery<const CURRENCIES: usize, const TICKETS: usize> = LotteryIn<[Currency; CURRENCIES], [Ticket; TICKETS]>;

/// Tickets and currencies, in tables of the caller's choice.
pub struct LotteryIn<C, T> {
    pub(crate) currencies: C,
    pub(crate) tickets: T,
    pub(crate) order: Order,
    /// First of the entries that were used and are free; 0: none.
    free_currency: u32,
    free_ticket: Option<TicketId>,
    /// Entries that were ever used, the base aside.
    used_currency_count: u32,
    used_ticket_count: u32,
}

impl<const CURRENCIES: usize, const TICKETS: usize> Default for Lottery<CURRENCIES, TICKETS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CURRENCIES: usize, const TICKETS: usize> Lottery<CURRENCIES, TICKETS> {
    /// A lottery with the base currency alone: all zero bits.
    #[must_use]
    pub const fn new() -> Self {
        assert!(CURRENCIES >= 1 && CURRENCIES < 1 << 31 && TICKETS < 1 << 31, "numbers of 31 bits name all entries");
        Self {
            currencies: [Currency::EMPTY; CURRENCIES],
            tickets: [Ticket::EMPTY; TICKETS],
            order: Order::EMPTY,
            free_currency: 0,
            free_ticket: None,
            used_currency_count: 0,
            used_ticket_count: 0,
        }
    }
}

impl<C: Table<Currency> + Extend<Currency>, T: Table<Ticket> + Extend<Ticket>> LotteryIn<C, T> {
    /// A lottery with the base currency alone in tables that can grow and are empty.
    #[must_use]
    pub fn with_tables(mut currencies: C, tickets: T) -> Self {
        currencies.extend([Currency::EMPTY]);
        Self {
            currencies,
            tickets,
            order: Order::EMPTY,
            free_currency: 0,
            free_ticket: None,
            used_currency_count: 0,
            used_ticket_count: 0,
        }
    }

    /// Makes room for that many more, at most 2^31 - 1 of each in all.
    pub fn grow(&mut self, currency_count: usize, ticket_count: usize) {
        const COUNT_MAX: usize = i32::MAX as usize;
        let currency_count = currency_count.min(COUNT_MAX - self.currencies.as_ref().len().min(COUNT_MAX));
        let ticket_count = ticket_count.min(COUNT_MAX - self.tickets.as_ref().len().min(COUNT_MAX));
        self.currencies.extend(core::iter::repeat_n(Currency::EMPTY, currency_count));
        self.tickets.extend(core::iter::repeat_n(Ticket::EMPTY, ticket_count));
    }
}

impl<C: Table<Currency>, T: Table<Ticket>> LotteryIn<C, T> {
    fn known(&self, id: CurrencyId) -> Result<Currency, Error> {
        let entry = self.currencies.as_ref().get(id.index()).ok_or(Error::UnknownCurrency)?;
        if entry.is_live || id == CurrencyId::BASE { Ok(*entry) } else { Err(Error::UnknownCurrency) }
    }

    fn known_ticket(&self, id: TicketId) -> Result<Ticket, Error> {
        self.tickets.as_ref().get(id.index()).filter(|ticket| ticket.amount != 0).copied().ok_or(Error::UnknownTicket)
    }

    /// Makes a currency. `tag` is for the caller.
    ///
    /// # Errors
    /// `TableFull`.
    pub fn create_currency(&mut self, tag: u32) -> Result<CurrencyId, Error> {
        self.create(0, tag)
    }

    /// Makes a client with a currency of its own, not ready. It keeps `own_amount` of it, against what it passes on by
    /// tickets.
    ///
    /// # Errors
    /// `ZeroAmount`, `SumTooLarge`, `TableFull`.
    pub fn create_client(&mut self, own_amount: u64, tag: u32) -> Result<CurrencyId, Error> {
        Currency::EMPTY.check_room(own_amount)?;
        self.create(own_amount, tag)
    }

    fn create(&mut self, own_amount: u64, tag: u32) -> Result<CurrencyId, Error> {
        let id = if self.free_currency != 0 {
            CurrencyId(self.free_currency)
        } else {
            let id = CurrencyId(self.used_currency_count + 1);
            if id.index() >= self.currencies.as_ref().len() {
                return Err(Error::TableFull);
            }
            self.used_currency_count += 1;
            self.currencies[id.index()].next_free = 0;
            id
        };
        self.free_currency = self.currencies[id.index()].next_free;
        let kept = self.currencies[id.index()].kept_for_order();
        self.currencies[id.index()] = Currency { is_live: true, own_amount, issued_amount: own_amount, tag, ..kept };
        self.order.push(self.currencies.as_mut(), id);
        Ok(id)
    }

    /// Ends a currency, or a client with its currency, that no ticket funds and that issued none. Its client may be
    /// ready.
    ///
    /// # Errors
    /// `IsBase`, `UnknownCurrency`, `InUse`.
    pub fn destroy_currency(&mut self, id: CurrencyId) -> Result<(), Error> {
        if id == CurrencyId::BASE {
            return Err(Error::IsBase);
        }
        let entry = self.known(id)?;
        if entry.issued_count != 0 || entry.backing.is_some() {
            return Err(Error::InUse);
        }
        self.order.remove(self.currencies.as_mut(), id);
        let kept = self.currencies[id.index()].kept_for_order();
        self.currencies[id.index()] = Currency { next_free: self.free_currency, ..kept };
        self.free_currency = id.0;
        Ok(())
    }

    /// Issues a ticket that funds nothing yet.
    ///
    /// # Errors
    /// `UnknownCurrency`, `ZeroAmount`, `SumTooLarge`, `TableFull`.
    pub fn issue(&mut self, issuer: CurrencyId, amount: u64) -> Result<TicketId, Error> {
        let issued_amount = self.known(issuer)?.check_room(amount)?;
        let id = match self.free_ticket {
            Some(id) => {
                self.free_ticket = self.tickets[id.index()].next;
                id
            }
            None => {
                let index = self.used_ticket_count as usize;
                let id = TicketId::from_index(index)
                    .filter(|_| index < self.tickets.as_ref().len())
                    .ok_or(Error::TableFull)?;
                self.used_ticket_count += 1;
                id
            }
        };
        self.tickets[id.index()] = Ticket { amount, issuer, ..Ticket::EMPTY };
        let entry = &mut self.currencies[issuer.index()];
        entry.issued_amount = issued_amount;
        Forest(self.tickets.as_mut()).insert(entry, id);
        Ok(id)
    }

    /// Destroys a ticket; what it funded loses it.
    ///
    /// # Errors
    /// `UnknownTicket`.
    pub fn destroy_ticket(&mut self, id: TicketId) -> Result<(), Error> {
        let ticket = self.known_ticket(id)?;
        self.unfund(id)?;
        let entry = &mut self.currencies[ticket.issuer.index()];
        entry.issued_amount -= ticket.amount;
        Forest(self.tickets.as_mut()).remove(entry, id);
        self.tickets[id.index()] = Ticket { next: self.free_ticket, ..Ticket::EMPTY };
        self.free_ticket = Some(id);
        Ok(())
    }

    /// Lets a ticket fund a currency, or a client's own.
    ///
    /// # Errors
    /// `UnknownTicket`, `UnknownCurrency`, `IsBase`, `InUse` (it funds something already), `Cycle`.
    pub fn fund(&mut self, id: TicketId, target: CurrencyId) -> Result<(), Error> {
        let ticket = self.known_ticket(id)?;
        let entry = self.known(target)?;
        if target == CurrencyId::BASE {
            return Err(Error::IsBase);
        }
        if ticket.target != CurrencyId::BASE {
            return Err(Error::InUse);
        }
        self.order.connect(self.currencies.as_mut(), self.tickets.as_ref(), ticket.issuer, target)?;
        if let Some(first) = entry.backing {
            self.tickets[first.index()].previous = Some(id);
        }
        let ticket = &mut self.tickets[id.index()];
        (ticket.target, ticket.next, ticket.previous) = (target, entry.backing, None);
        self.currencies[target.index()].backing = Some(id);
        self.reweigh(id);
        self.settle(ticket_issuer(self.tickets.as_ref(), id));
        Ok(())
    }

    /// Takes a ticket from what it funds, if anything.
    ///
    /// # Errors
    /// `UnknownTicket`.
    pub fn unfund(&mut self, id: TicketId) -> Result<(), Error> {
        let ticket = self.known_ticket(id)?;
        if ticket.target == CurrencyId::BASE {
            return Ok(());
        }
        match ticket.previous {
            Some(previous) => self.tickets[previous.index()].next = ticket.next,
            None => self.currencies[ticket.target.index()].backing = ticket.next,
        }
        if let Some(next) = ticket.next {
            self.tickets[next.index()].previous = ticket.previous;
        }
        let entry = &mut self.tickets[id.index()];
        (entry.target, entry.next, entry.previous) = (CurrencyId::BASE, None, None);
        self.reweigh(id);
        self.settle(ticket.issuer);
        Ok(())
    }

    /// Changes a ticket's amount: inflation or deflation of its currency.
    ///
    /// # Errors
    /// `UnknownTicket`, `ZeroAmount`, `SumTooLarge`.
    pub fn set_amount(&mut self, id: TicketId, amount: u64) -> Result<(), Error> {
        let ticket = self.known_ticket(id)?;
        let mut entry = self.currencies[ticket.issuer.index()];
        entry.issued_amount -= ticket.amount;
        let issued_amount = entry.check_room(amount)?;
        let entry = &mut self.currencies[ticket.issuer.index()];
        entry.issued_amount = issued_amount;
        if ticket.weight != 0 {
            entry.active_amount = entry.active_amount - ticket.amount + amount;
        }
        self.tickets[id.index()].amount = amount;
        self.reweigh(id);
        self.settle(ticket.issuer);
        Ok(())
    }

    /// A new ticket of `from` that funds `to`: a transfer. Destroying it ends the transfer.
    ///
    /// # Errors
    /// Those of [`issue`](Self::issue) and [`fund`](Self::fund).
    pub fn transfer(&mut self, from: CurrencyId, to: CurrencyId, amount: u64) -> Result<TicketId, Error> {
        let ticket = self.issue(from, amount)?;
        if let Err(error) = self.fund(ticket, to) {
            self.destroy_ticket(ticket)?;
            return Err(error);
        }
        Ok(ticket)
    }

    /// Issues a ticket anew in another currency: the same amount, and what it funded it still funds. Both tickets are
    /// in the table for a moment.
    ///
    /// # Errors
    /// Those of [`issue`](Self::issue) and [`fund`](Self::fund), and `UnknownTicket`.
    pub fn reissue(&mut self, id: TicketId, issuer: CurrencyId) -> Result<TicketId, Error> {
        let ticket = self.known_ticket(id)?;
        if ticket.issuer == issuer {
            return Ok(id);
        }
        let new = match self.target(id) {
            Some(target) => self.transfer(issuer, target, ticket.amount)?,
            None => self.issue(issuer, ticket.amount)?,
        };
        self.destroy_ticket(id)?;
        Ok(new)
    }

    /// Says whether a client wants to run, and with which compensation (1/f as a fixed-point number, `COMPENSATION_ONE`
    /// for none).
    ///
    /// # Errors
    /// `UnknownCurrency`, `NoClient`.
    pub fn set_client(&mut self, client: CurrencyId, is_ready: bool, compensation: u32) -> Result<(), Error> {
        let entry = self.known(client)?;
        if !entry.has_client() {
            return Err(Error::NoClient);
        }
        let surplus = Currency::surplus_of(compensation.clamp(COMPENSATION_MIN, COMPENSATION_MAX));
        if entry.is_ready == is_ready && (entry.surplus == surplus || !is_ready) {
            self.currencies[client.index()].surplus = surplus;
            return Ok(());
        }
        let entry = &mut self.currencies[client.index()];
        if entry.is_ready != is_ready {
            entry.active_amount =
                if is_ready { entry.active_amount + entry.own_amount } else { entry.active_amount - entry.own_amount };
        }
        (entry.is_ready, entry.surplus) = (is_ready, surplus);
        self.settle(client);
        Ok(())
    }

    /// Weighs a ticket by what it funds, and enters that in its currency.
    fn reweigh(&mut self, id: TicketId) {
        let ticket = self.tickets[id.index()];
        let ratio = if ticket.target == CurrencyId::BASE { 0 } else { self.currencies[ticket.target.index()].ratio };
        let weight = ((u128::from(ticket.amount) * u128::from(ratio)) >> 16) as u64;
        if weight == ticket.weight {
            return;
        }
        let issuer = &mut self.currencies[ticket.issuer.index()];
        if ticket.weight == 0 {
            issuer.active_amount += ticket.amount;
            issuer.active_count += 1;
        } else if weight == 0 {
            issuer.active_amount -= ticket.amount;
            issuer.active_count -= 1;
        }
        Forest(self.tickets.as_mut()).set_weight(id, weight);
    }

    pub(crate) fn weight_sum(&self, currency: &Currency) -> u64 {
        currency.own_weight() + currency.root.map_or(0, |root| self.tickets[root.index()].sum)
    }

    fn ratio_of(&self, currency: &Currency) -> u64 {
        let (sum, active) = (self.weight_sum(currency), currency.active_amount);
        if active == 0 {
            0
        } else if sum == active << 16 {
            1 << 32
        } else {
            ((u128::from(sum) << 16) / u128::from(active)) as u64
        }
    }

    /// Passes a change in a currency on to the tickets that fund it, and so up, as far as anything changes.
    fn settle(&mut self, first: CurrencyId) {
        if first == CurrencyId::BASE {
            return;
        }
        let mut at = self.currencies[first.index()].position;
        self.order.mark(self.currencies.as_mut(), at);
        while let Some(position) = self.order.take_last_mark(self.currencies.as_mut(), at) {
            at = position;
            let id = Order::get(self.currencies.as_ref(), position);
            let entry = self.currencies[id.index()];
            let ratio = self.ratio_of(&entry);
            if ratio == entry.ratio {
                continue;
            }
            self.currencies[id.index()].ratio = ratio;
            let mut next = entry.backing;
            while let Some(ticket) = next {
                self.reweigh(ticket);
                let ticket = self.tickets[ticket.index()];
                if ticket.issuer != CurrencyId::BASE {
                    let position = self.currencies[ticket.issuer.index()].position;
                    self.order.mark(self.currencies.as_mut(), position);
                }
                next = ticket.next;
            }
        }
    }
}

fn ticket_issuer(tickets: &[Ticket], id: TicketId) -> CurrencyId {
    tickets[id.index()].issuer
}

/// What can be read. An entry that does not exist has no amounts.
impl<C: Table<Currency>, T: Table<Ticket>> LotteryIn<C, T> {
    /// A currency's tag.
    #[must_use]
    pub fn tag(&self, id: CurrencyId) -> u32 {
        self.known(id).map_or(0, |entry| entry.tag)
    }

    /// The amounts of all tickets that a currency issued, and what its client keeps.
    #[must_use]
    pub fn issued_amount(&self, id: CurrencyId) -> u64 {
        self.known(id).map_or(0, |entry| entry.issued_amount)
    }

    /// The part of these that competes.
    #[must_use]
    pub fn active_amount(&self, id: CurrencyId) -> u64 {
        self.known(id).map_or(0, |entry| entry.active_amount)
    }

    /// Whether any client could win.
    #[must_use]
    pub fn is_active(&self, id: CurrencyId) -> bool {
        self.active_amount(id) != 0
    }

    /// A ticket's amount.
    #[must_use]
    pub fn amount(&self, id: TicketId) -> u64 {
        self.known_ticket(id).map_or(0, |ticket| ticket.amount)
    }

    /// In which currency a ticket is.
    ///
    /// # Errors
    /// `UnknownTicket`.
    pub fn issuer(&self, id: TicketId) -> Result<CurrencyId, Error> {
        Ok(self.known_ticket(id)?.issuer)
    }

    /// What a ticket funds.
    #[must_use]
    pub fn target(&self, id: TicketId) -> Option<CurrencyId> {
        self.known_ticket(id).ok().map(|ticket| ticket.target).filter(|target| *target != CurrencyId::BASE)
    }

    /// The tickets that a currency issued.
    pub fn issued(&self, id: CurrencyId) -> impl Iterator<Item = TicketId> + '_ {
        let entry = self.known(id).unwrap_or(Currency::EMPTY);
        issued(self.tickets.as_ref(), &entry)
    }

    /// The tickets that fund a currency.
    pub fn backing(&self, id: CurrencyId) -> impl Iterator<Item = TicketId> + '_ {
        let entry = self.known(id).unwrap_or(Currency::EMPTY);
        backing(self.tickets.as_ref(), &entry)
    }

    /// What a currency is worth in base units (`VALUE_ONE` is one), compensation aside; 0 while it is inactive. Looks
    /// at every currency and ticket: for listings.
    ///
    /// # Errors
    /// `UnknownCurrency`.
    pub fn value(&mut self, id: CurrencyId) -> Result<u64, Error> {
        self.known(id)?;
        self.compute_values();
        Ok(self.known_value(id))
    }

    /// Computes every currency's value.
    pub(crate) fn compute_values(&mut self) {
        for position in self.order.places() {
            let id = Order::get(self.currencies.as_ref(), position);
            let mut value = 0;
            let mut next = self.currencies[id.index()].backing;
            while let Some(ticket) = next {
                value += self.known_ticket_value(ticket);
                next = self.tickets[ticket.index()].next;
            }
            self.currencies[id.index()].value = value;
        }
    }

    fn known_value(&self, id: CurrencyId) -> u64 {
        let entry = &self.currencies[id.index()];
        if id == CurrencyId::BASE { entry.active_amount * VALUE_ONE } else { entry.value }
    }

    /// As computed last.
    pub(crate) fn known_ticket_value(&self, id: TicketId) -> u64 {
        let ticket = &self.tickets[id.index()];
        if ticket.weight == 0 {
            return 0;
        }
        let issuer = &self.currencies[ticket.issuer.index()];
        if ticket.issuer == CurrencyId::BASE {
            return ticket.amount * VALUE_ONE;
        }
        let product = u128::from(issuer.value) * u128::from(ticket.amount);
        (product / u128::from(issuer.active_amount.max(1))) as u64
    }

    /// Recomputes every sum and compares. For tests: it looks at everything.
    #[must_use]
    pub fn check(&self) -> bool {
        core::iter::once(CurrencyId::BASE)
            .chain(self.order.places().map(|place| Order::get(self.currencies.as_ref(), place)))
            .all(|id| {
                let entry = &self.currencies[id.index()];
                let (mut amount, mut active, mut count, mut weights) = (0, 0, 0, 0_u64);
                let is_tree_good = issued(self.tickets.as_ref(), entry).all(|ticket| {
                    let ticket = &self.tickets[ticket.index()];
                    let children = [ticket.left, ticket.right].into_iter().flatten();
                    let below: u64 = children.map(|child| self.tickets[child.index()].sum).sum();
                    let target = &self.currencies[ticket.target.index()];
                    let is_funding = ticket.target != CurrencyId::BASE;
                    amount += ticket.amount;
                    active += if ticket.weight == 0 { 0 } else { ticket.amount };
                    count += 1;
                    weights += ticket.weight;
                    ticket.issuer == id
                        && ticket.sum == ticket.weight + below
                        && (ticket.weight != 0) == (is_funding && target.active_amount != 0)
                        && (!is_funding || target.position > entry.position)
                });
                let is_list_good =
                    backing(self.tickets.as_ref(), entry).all(|ticket| self.tickets[ticket.index()].target == id);
                is_tree_good
                    && is_list_good
                    && count == entry.issued_count
                    && entry.issued_amount == amount + entry.own_amount
                    && entry.active_amount == active + if entry.is_ready { entry.own_amount } else { 0 }
                    && self.weight_sum(entry) == weights + entry.own_weight()
                    && (id == CurrencyId::BASE || entry.ratio == self.ratio_of(entry))
                    && !entry.is_marked
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{Currency, Ticket};

    #[test]
    fn entries_have_the_sizes_that_the_manual_says() {
        assert_eq!((size_of::<Ticket>(), size_of::<Currency>()), (56, 88));
    }
}
