//! The draw.

use crate::currency::{Currency, CurrencyId};
use crate::lottery::{LotteryIn, Table};
use crate::random::Random;
use crate::ticket::Ticket;
use crate::tree::find;

/// The winner, and what it took to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The winning client.
    pub client: CurrencyId,
    /// Nodes of trees that were looked at.
    pub steps: u32,
}

impl<C: Table<Currency>, T: Table<Ticket>> LotteryIn<C, T> {
    /// Holds a draw among the clients that are ready; `None` if no ticket leads to any.
    ///
    /// Where there is only one to win, no chance is asked for.
    pub fn draw(&self, random: &mut impl Random) -> Option<Draw> {
        let mut at = CurrencyId::BASE;
        let mut steps = 0;
        // Ends: a funder stands before what it funds, so no currency comes twice.
        loop {
            let currency = &self.currencies[at.index()];
            let own = currency.own_weight();
            let total = self.weight_sum(currency);
            if total == 0 {
                return None;
            }
            let number = match (own, currency.active_count) {
                (0, 1) | (_, 0) => 0,
                _ => random.below(total),
            };
            if number < own {
                return Some(Draw { client: at, steps });
            }
            let (target, looked_at) = find(self.tickets.as_ref(), currency.root?, number - own);
            steps += looked_at;
            at = target;
        }
    }

    /// Holds a draw among currencies by what each is worth: which of those that wait is served next. Looks at every
    /// currency; `None` if none of them is worth anything.
    pub fn draw_among<I>(&mut self, random: &mut impl Random, currencies: impl Fn() -> I) -> Option<usize>
    where
        I: Iterator<Item = CurrencyId>,
    {
        self.compute_values();
        let value = |id: CurrencyId| self.currencies.as_ref().get(id.index()).map_or(0, |entry| entry.value);
        let total: u64 = currencies().map(value).fold(0, u64::saturating_add);
        if total == 0 {
            return None;
        }
        let mut rest = random.below(total);
        currencies().map(value).position(|value| {
            let is_it = rest < value;
            rest = rest.saturating_sub(value);
            is_it
        })
    }
}
