//! A lock that is scheduled by lottery.
//!
//! The lock has a currency of its own. A waiter funds it, by a ticket in the waiter's currency; the holder has the
//! *inheritance ticket*, the only one that the currency issues. So the holder runs with its own funding and that of all
//! waiters, and a poor holder does not hold up the rich for long. On release a draw among the waiters, by what each is
//! worth, picks the next holder.
//!
//! A waiter that would wait for itself, through any number of locks and calls, is refused: its funding would go round
//! in a cycle. The module stops no client from running; a client that is told to wait is expected to be made not ready.

use crate::Error;
use crate::currency::{Currency, CurrencyId};
use crate::lottery::{LotteryIn, Table};
use crate::random::Random;
use crate::ticket::{Ticket, TicketId};

/// What the inheritance ticket and a waiter's ticket are issued with. A waiter that is not ready has no other, so all
/// of its funding goes to the holder.
const AMOUNT: u64 = 1000;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The client holds the lock.
    Held,
    /// The client waits.
    Waits,
}

/// A place for a waiter: its client, and the ticket by which it funds the lock.
pub type Place = Option<(CurrencyId, TicketId)>;

/// A lock; most waiters are `WAITERS`.
pub type Mutex<const WAITERS: usize> = MutexIn<[Place; WAITERS]>;

/// A lock, with its waiters in a table of the caller's choice.
pub struct MutexIn<W> {
    currency: CurrencyId,
    inheritance: TicketId,
    holder: Option<CurrencyId>,
    waiters: W,
    count: usize,
}

impl<const WAITERS: usize> Mutex<WAITERS> {
    /// Makes a lock that is free.
    ///
    /// # Errors
    /// `TableFull`.
    pub fn new<C: Table<Currency>, T: Table<Ticket>>(lottery: &mut LotteryIn<C, T>) -> Result<Self, Error> {
        Self::with_places(lottery, [const { None }; WAITERS])
    }
}

impl<W: Table<Place> + Extend<Place>> MutexIn<W> {
    /// Makes room for that many more waiters.
    pub fn grow(&mut self, count: usize) {
        self.waiters.extend(core::iter::repeat_n(None, count));
    }
}

impl<W: Table<Place>> MutexIn<W> {
    /// Makes a lock that is free, with as many places for waiters as are in `waiters`, all empty.
    ///
    /// # Errors
    /// `TableFull`.
    pub fn with_places<C: Table<Currency>, T: Table<Ticket>>(
        lottery: &mut LotteryIn<C, T>,
        waiters: W,
    ) -> Result<Self, Error> {
        let currency = lottery.create_currency(0)?;
        match lottery.issue(currency, AMOUNT) {
            Ok(inheritance) => Ok(Self { currency, inheritance, holder: None, waiters, count: 0 }),
            Err(error) => {
                lottery.destroy_currency(currency)?;
                Err(error)
            }
        }
    }

    /// Ends a lock that is free; gives it back if it is not.
    ///
    /// # Errors
    /// The lock.
    pub fn destroy<C: Table<Currency>, T: Table<Ticket>>(self, lottery: &mut LotteryIn<C, T>) -> Result<(), Self> {
        if self.holder.is_some() || self.count != 0 {
            return Err(self);
        }
        let ends = lottery.destroy_ticket(self.inheritance).and_then(|()| lottery.destroy_currency(self.currency));
        ends.map_err(|_| self)
    }

    /// The currency of the holder.
    #[must_use]
    pub fn holder(&self) -> Option<CurrencyId> {
        self.holder
    }

    /// Number of waiters.
    #[must_use]
    pub fn waiter_count(&self) -> usize {
        self.count
    }

    /// The lock's own currency.
    #[must_use]
    pub fn currency(&self) -> CurrencyId {
        self.currency
    }

    /// Takes the lock, or waits for it.
    ///
    /// # Errors
    /// `WrongState` (it holds the lock or waits for it already), `TableFull`, `Cycle` (the holder waits for this
    /// client), and those of [`LotteryIn::transfer`].
    pub fn acquire<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        client: CurrencyId,
    ) -> Result<Acquire, Error> {
        let is_waiting = self.waiters.as_ref().iter().flatten().any(|(waiter, _)| *waiter == client);
        if self.holder == Some(client) || is_waiting {
            return Err(Error::WrongState);
        }
        if self.holder.is_none() {
            lottery.fund(self.inheritance, client)?;
            self.holder = Some(client);
            return Ok(Acquire::Held);
        }
        let place = self.waiters.as_mut().get_mut(self.count).ok_or(Error::TableFull)?;
        *place = Some((client, lottery.transfer(client, self.currency, AMOUNT)?));
        self.count += 1;
        Ok(Acquire::Waits)
    }

    /// Gives the lock up. A draw among the waiters picks the holder from now on; the caller makes that one ready, and
    /// gives way.
    ///
    /// # Errors
    /// `WrongState`: `client` does not hold it.
    pub fn release<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        client: CurrencyId,
        random: &mut impl Random,
    ) -> Result<Option<CurrencyId>, Error> {
        if self.holder != Some(client) {
            return Err(Error::WrongState);
        }
        let waiters = self.waiters.as_ref();
        // None of them is worth anything: the first that came.
        let winner = lottery.draw_among(random, || waiters.iter().flatten().map(|(waiter, _)| *waiter)).unwrap_or(0);
        self.pass(lottery, client, winner)
    }

    /// As [`release`](Self::release), without a draw: the one that has waited longest holds it now.
    ///
    /// # Errors
    /// Those of `release`.
    pub fn release_in_turn<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        client: CurrencyId,
    ) -> Result<Option<CurrencyId>, Error> {
        self.pass(lottery, client, 0)
    }

    fn pass<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        client: CurrencyId,
        winner: usize,
    ) -> Result<Option<CurrencyId>, Error> {
        if self.holder != Some(client) {
            return Err(Error::WrongState);
        }
        lottery.unfund(self.inheritance)?;
        self.holder = None;
        let Some((next, _)) = self.waiters.as_ref().get(winner).copied().flatten() else {
            return Ok(None);
        };
        self.forget(lottery, winner)?;
        self.holder = Some(next);
        // It may pass its funding on to one that waits here still, which would be a cycle: then it holds the lock with
        // what it has.
        let _ = lottery.fund(self.inheritance, next);
        Ok(Some(next))
    }

    /// A client that waits gives up, or ends.
    ///
    /// # Errors
    /// `WrongState`: it does not wait.
    pub fn cancel<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        client: CurrencyId,
    ) -> Result<(), Error> {
        let is_it = |entry: &Option<(CurrencyId, TicketId)>| entry.is_some_and(|(waiter, _)| waiter == client);
        let index = self.waiters.as_ref().iter().position(is_it).ok_or(Error::WrongState)?;
        self.forget(lottery, index)
    }

    fn forget<C: Table<Currency>, T: Table<Ticket>>(
        &mut self,
        lottery: &mut LotteryIn<C, T>,
        index: usize,
    ) -> Result<(), Error> {
        let places = &mut self.waiters.as_mut()[index..];
        if let Some((_, ticket)) = places[0].take() {
            lottery.destroy_ticket(ticket)?;
            self.count -= 1;
            places.rotate_left(1);
        }
        Ok(())
    }
}
