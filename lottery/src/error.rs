//! Why an operation was refused. A refusal changes nothing.

use core::fmt;

/// Why an operation on the tables is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such ticket: it was destroyed, or belongs to another lottery.
    UnknownTicket,
    /// No such currency.
    UnknownCurrency,
    /// The table of tickets or currencies is full.
    TableFull,
    /// An amount of zero.
    ZeroAmount,
    /// The currency's amounts would come to more than [`AMOUNT_SUM_MAX`](crate::AMOUNT_SUM_MAX).
    SumTooLarge,
    /// The currency would fund itself.
    Cycle,
    /// The ticket funds something already, or the currency has tickets.
    InUse,
    /// The base currency cannot be funded or destroyed.
    IsBase,
    /// Nobody runs by this currency: it was made without a client.
    NoClient,
    /// The lock is not in a state in which this makes sense.
    WrongState,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::UnknownTicket => "no such ticket",
            Self::UnknownCurrency => "no such currency",
            Self::TableFull => "the table is full",
            Self::ZeroAmount => "an amount of zero",
            Self::SumTooLarge => "the currency's amounts come to more than its limit",
            Self::Cycle => "the currency would fund itself",
            Self::InUse => "still in use",
            Self::IsBase => "the base currency cannot be funded or destroyed",
            Self::NoClient => "the currency has no client",
            Self::WrongState => "the lock is held or waited for by somebody else",
        })
    }
}

impl core::error::Error for Error {}
