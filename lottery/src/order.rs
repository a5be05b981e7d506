//! An order of the currencies in which a funder stands before what it funds.
//!
//! It does two things. A new edge that agrees with it closes no cycle, which is known by one comparison; one that does
//! not agree makes the part of the order between its ends be looked through once (after Marchetti-Spaccamela, Nanni and
//! Rohnert), and either a cycle is found or that part is put right. And a change of funding is passed on in it from the
//! back, so that each currency above is looked at once, however many ways lead there. Invariant: `at[position]` and the
//! currencies' `position` name each other; the base is at 0.

use crate::Error;
use crate::currency::{Currency, CurrencyId};
use crate::ticket::Ticket;
use crate::tree::issued;

/// The order, and the set of places in it that are to be looked at.
///
/// Entry n of the table of currencies keeps the currency at place n, and bits for the places 64 n to 64 n + 63: few of
/// the latter are used, but so there is one table that can grow.
pub(crate) struct Order {
    /// The base aside.
    count: u32,
    mark_count: u32,
}

impl Order {
    pub(crate) const EMPTY: Self = Self { count: 0, mark_count: 0 };

    /// The currency at a place.
    pub(crate) fn get(currencies: &[Currency], position: u32) -> CurrencyId {
        CurrencyId(currencies[position as usize].at_place)
    }

    fn put(currencies: &mut [Currency], position: u32, id: CurrencyId) {
        currencies[position as usize].at_place = id.0;
        currencies[id.index()].position = position;
    }

    /// Puts a new currency last.
    pub(crate) fn push(&mut self, currencies: &mut [Currency], id: CurrencyId) {
        self.count += 1;
        Self::put(currencies, self.count, id);
    }

    /// Takes a currency out.
    pub(crate) fn remove(&mut self, currencies: &mut [Currency], id: CurrencyId) {
        for position in currencies[id.index()].position..self.count {
            let next = Self::get(currencies, position + 1);
            Self::put(currencies, position, next);
        }
        self.count -= 1;
    }

    /// Makes room in the order for a ticket of `issuer` that funds `target`, or finds that `target` funds `issuer`.
    pub(crate) fn connect(
        &mut self,
        currencies: &mut [Currency],
        tickets: &[Ticket],
        issuer: CurrencyId,
        target: CurrencyId,
    ) -> Result<(), Error> {
        let first = currencies[target.index()].position;
        let last = currencies[issuer.index()].position;
        if first > last {
            return Ok(());
        }
        if issuer == target {
            return Err(Error::Cycle);
        }
        // What `target` funds, directly or not, as far as `issuer`: edges lead onward, so one pass finds it all.
        currencies[target.index()].is_marked = true;
        for position in first..last {
            let id = Self::get(currencies, position);
            if currencies[id.index()].is_marked {
                let currency = currencies[id.index()];
                for ticket in issued(tickets, &currency) {
                    let funded = tickets[ticket.index()].target;
                    if currencies[funded.index()].position <= last && funded != CurrencyId::BASE {
                        currencies[funded.index()].is_marked = true;
                    }
                }
            }
        }
        let is_cycle = currencies[issuer.index()].is_marked;
        if !is_cycle {
            Self::move_marked(currencies, first, last);
        }
        for position in first..=last {
            let id = Self::get(currencies, position);
            currencies[id.index()].is_marked = false;
        }
        if is_cycle { Err(Error::Cycle) } else { Ok(()) }
    }

    /// Puts the marked currencies of a part behind the others, both in the order in which they were. The marked ones
    /// are linked by `next_free` meanwhile, which is of no other use to a currency that lives.
    fn move_marked(currencies: &mut [Currency], first: u32, last: u32) {
        let mut place = first;
        let (mut head, mut tail) = (0, 0);
        for position in first..=last {
            let id = Self::get(currencies, position);
            if currencies[id.index()].is_marked {
                currencies[id.index()].next_free = 0;
                if head == 0 {
                    head = id.0;
                } else {
                    currencies[tail as usize].next_free = id.0;
                }
                tail = id.0;
            } else {
                Self::put(currencies, place, id);
                place += 1;
            }
        }
        while head != 0 {
            let id = CurrencyId(head);
            head = currencies[id.index()].next_free;
            Self::put(currencies, place, id);
            place += 1;
        }
    }

    /// Notes that the currency at a place is to be looked at.
    pub(crate) fn mark(&mut self, currencies: &mut [Currency], position: u32) {
        let word = &mut currencies[position as usize / 64].place_marks;
        let bit = 1 << (position % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.mark_count += 1;
        }
    }

    /// Takes the last such place, which is at `from` or before it.
    pub(crate) fn take_last_mark(&mut self, currencies: &mut [Currency], from: u32) -> Option<u32> {
        if self.mark_count == 0 {
            return None;
        }
        for index in (0..=from as usize / 64).rev() {
            let word = &mut currencies[index].place_marks;
            if let Some(bit) = word.checked_ilog2() {
                *word &= !(1 << bit);
                self.mark_count -= 1;
                return Some(index as u32 * 64 + bit);
            }
        }
        None
    }

    /// The currencies in order, the base aside.
    pub(crate) fn places(&self) -> core::ops::RangeInclusive<u32> {
        1..=self.count
    }
}
