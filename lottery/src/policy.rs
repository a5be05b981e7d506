//! What a dispatcher needs of a scheduler, so that several can be put in one place and compared.

use crate::currency::{Currency, CurrencyId};
use crate::lottery::{LotteryIn, Table};
use crate::random::Random;
use crate::ticket::Ticket;
use crate::{COMPENSATION_MAX, COMPENSATION_MIN, COMPENSATION_ONE};

/// How much of a slice was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Time used.
    pub used_ns: u64,
    /// The slice's length.
    pub slice_ns: u64,
}

impl Used {
    /// 1/f of the part that was used, from `COMPENSATION_MIN` to `COMPENSATION_MAX`: below 1 for a client that used
    /// more than a slice. As the wait for the next slice is in the mean as long as what was used of the last one, a
    /// client's share does not depend on how it uses its slices.
    #[must_use]
    pub fn compensation(self) -> u32 {
        // Slices of up to three days are scaled without loss.
        let scaled = self.slice_ns.saturating_mul(u64::from(COMPENSATION_ONE));
        let inverse = scaled / self.used_ns.max(1);
        u32::try_from(inverse).map_or(COMPENSATION_MAX, |inverse| inverse.clamp(COMPENSATION_MIN, COMPENSATION_MAX))
    }

    /// The part of the slice with 32 fraction bits; more than 1 if it was overrun.
    #[must_use]
    pub fn part(self) -> u64 {
        let part = (u128::from(self.used_ns) << 32) / u128::from(self.slice_ns.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// A scheduler of clients. Each client is in one of two states, ready or not.
pub trait Policy {
    /// What names a client.
    type Client: Copy + PartialEq;

    /// A client wants to run, or does not want to any more.
    fn set_ready(&mut self, client: Self::Client, is_ready: bool);

    /// The client that gets the next slice; `None` if none is ready. It stays ready.
    fn choose(&mut self, random: &mut impl Random) -> Option<Self::Client>;

    /// The slice of the client that was chosen last is over, and this much of it was used.
    fn charge(&mut self, client: Self::Client, used: Used);
}

impl<C: Table<Currency>, T: Table<Ticket>> Policy for LotteryIn<C, T> {
    type Client = CurrencyId;

    fn set_ready(&mut self, client: CurrencyId, is_ready: bool) {
        let compensation =
            self.currencies.as_ref().get(client.index()).map_or(COMPENSATION_ONE, Currency::compensation);
        // A name of no client has nothing that could become ready.
        let _ = self.set_client(client, is_ready, compensation);
    }

    fn choose(&mut self, random: &mut impl Random) -> Option<CurrencyId> {
        let client = self.draw(random)?.client;
        // Compensation lasts until a slice begins.
        self.set_client(client, true, COMPENSATION_ONE).ok()?;
        Some(client)
    }

    fn charge(&mut self, client: CurrencyId, used: Used) {
        let is_ready = self.currencies.as_ref().get(client.index()).is_some_and(|entry| entry.is_ready);
        let _ = self.set_client(client, is_ready, used.compensation());
    }
}
