//! Currencies. One that has a client is a client's own: what it does not pass on by tickets, the client runs with.

use crate::ticket::TicketId;
use crate::{COMPENSATION_ONE, Error};

/// A currency of a [`Lottery`](crate::Lottery). Entries are reused: an id that is kept beyond the currency's end names
/// a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CurrencyId(pub(crate) u32);

impl CurrencyId {
    /// The base currency, in which all value is counted. It is always there and always active.
    pub const BASE: Self = Self(0);

    /// The table entry.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An entry of the table of currencies.
#[derive(Clone, Copy)]
pub struct Currency {
    /// Never set for the base currency, which needs no entry to exist.
    pub(crate) is_live: bool,
    /// Its client wants to run.
    pub(crate) is_ready: bool,
    /// Its funding has to be looked at again.
    pub(crate) is_marked: bool,
    /// What its client keeps, against the tickets that it issues; 0: no client.
    pub(crate) own_amount: u64,
    /// Compensation less `COMPENSATION_ONE`, wrapping: zeros are an entry without.
    pub(crate) surplus: u32,
    /// For its maker.
    pub(crate) tag: u32,
    /// Amounts of all issued tickets, and `own_amount`.
    pub(crate) issued_amount: u64,
    /// Amounts of the active ones, and `own_amount` while its client is ready.
    pub(crate) active_amount: u64,
    pub(crate) active_count: u32,
    pub(crate) issued_count: u32,
    /// Weight per active amount, 32 fraction bits; 0: inactive. What the tickets that fund it were last weighed with.
    pub(crate) ratio: u64,
    /// Root of the tree of issued tickets.
    pub(crate) root: Option<TicketId>,
    /// First of the tickets that fund it.
    pub(crate) backing: Option<TicketId>,
    /// Where it stands in the order of the currencies.
    pub(crate) position: u32,
    /// Of the entry, not of the currency in it: what `order.rs` keeps here.
    pub(crate) at_place: u32,
    /// As `at_place`.
    pub(crate) place_marks: u64,
    pub(crate) next_free: u32,
    /// When it was last computed.
    pub(crate) value: u64,
}

impl Currency {
    /// An entry that is not in use.
    pub const EMPTY: Self = Self {
        is_live: false,
        is_ready: false,
        is_marked: false,
        own_amount: 0,
        surplus: 0,
        tag: 0,
        issued_amount: 0,
        active_amount: 0,
        active_count: 0,
        issued_count: 0,
        ratio: 0,
        root: None,
        backing: None,
        position: 0,
        at_place: 0,
        place_marks: 0,
        next_free: 0,
        value: 0,
    };

    /// An empty entry, apart from what it keeps for the order.
    pub(crate) fn kept_for_order(&self) -> Self {
        Self { at_place: self.at_place, place_marks: self.place_marks, ..Self::EMPTY }
    }

    pub(crate) fn has_client(&self) -> bool {
        self.own_amount != 0
    }

    /// What its client competes with.
    pub(crate) fn own_weight(&self) -> u64 {
        if self.is_ready { self.own_amount * u64::from(self.compensation()) } else { 0 }
    }

    pub(crate) fn compensation(&self) -> u32 {
        self.surplus.wrapping_add(COMPENSATION_ONE)
    }

    pub(crate) fn surplus_of(compensation: u32) -> u32 {
        compensation.wrapping_sub(COMPENSATION_ONE)
    }

    /// Whether `amount` more can be issued.
    pub(crate) fn check_room(&self, amount: u64) -> Result<u64, Error> {
        if amount == 0 {
            return Err(Error::ZeroAmount);
        }
        self.issued_amount.checked_add(amount).filter(|sum| *sum <= crate::AMOUNT_SUM_MAX).ok_or(Error::SumTooLarge)
    }
}
