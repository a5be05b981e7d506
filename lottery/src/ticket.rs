//! Tickets. Each is a node of its currency's tree (`tree.rs`) and of the list of those that fund its target.

use core::num::NonZeroU32;

use crate::currency::CurrencyId;

/// A ticket of a [`Lottery`](crate::Lottery). Entries are reused: an id that is kept beyond the ticket's end names a
/// later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TicketId(NonZeroU32);

impl TicketId {
    pub(crate) fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index + 1).ok().and_then(NonZeroU32::new).map(Self)
    }

    /// The table entry.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// An entry of the table of tickets.
#[derive(Clone, Copy)]
pub struct Ticket {
    /// 0: the entry is free.
    pub(crate) amount: u64,
    /// Amount x the ratio of what it funds, 16 fraction bits; 0: inactive.
    pub(crate) weight: u64,
    /// Weights of its subtree.
    pub(crate) sum: u64,
    pub(crate) issuer: CurrencyId,
    /// What it funds; the base currency stands for nothing.
    pub(crate) target: CurrencyId,
    pub(crate) parent: Option<TicketId>,
    pub(crate) left: Option<TicketId>,
    pub(crate) right: Option<TicketId>,
    /// Among the tickets that fund `target`; of a free entry, the next free one.
    pub(crate) next: Option<TicketId>,
    pub(crate) previous: Option<TicketId>,
}

impl Ticket {
    /// An entry that is not in use.
    pub const EMPTY: Self = Self {
        amount: 0,
        weight: 0,
        sum: 0,
        issuer: CurrencyId::BASE,
        target: CurrencyId::BASE,
        parent: None,
        left: None,
        right: None,
        next: None,
        previous: None,
    };
}
