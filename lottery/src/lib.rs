//! Lottery scheduling (Waldspurger and Weihl, OSDI 1994): tickets, currencies, transfers, draws.
//!
//! Pure: `no_std`, no allocation, no clock, no source of chance. Tables have a size that is a constant parameter, a new
//! [`Lottery`] is all zero bits (a static of it costs no image), and every operation that refuses changes nothing.
//!
//! - [`Lottery`]: currencies, tickets and clients, and the draw among the clients that are ready. [`LotteryIn`] is the
//!   same in tables of the caller's choice, which can grow ([`LotteryIn::grow`]).
//! - [`random`]: where chance comes from: a keyed generator, and a number below a bound without bias.
//! - [`mutex`]: a lock whose holder runs with the funding of all its waiters.
//! - [`inverse`]: which holder loses a unit of a resource that is divided by space.
//! - [`division`]: rounds of asking and losing among holders with a guaranteed and a greatest size.
//! - [`Policy`]: what a dispatcher needs of a scheduler; the lottery, [`Stride`] and [`RoundRobin`] are behind it.
//!
//! # Why the draw goes from currency to currency
//!
//! The value of a ticket is its currency's value, divided among the currency's *active* tickets. A single tree of such
//! values would have to change at every sibling whenever one client blocks. Here each currency keeps a tree of the
//! partial sums of its own tickets, and a draw is held in the base currency, then in what the winning ticket funds,
//! until it reaches a client. The product of these chances is the client's share, without a value ever being computed;
//! a client that blocks changes one ticket per currency above it, and nothing above the first currency that goes on
//! being active. Values in base units exist for listings only ([`LotteryIn::value`]).
#![no_std]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod currency;
pub mod division;
mod draw;
mod error;
pub mod inverse;
mod lottery;
pub mod mutex;
mod order;
mod policy;
pub mod random;
mod round_robin;
mod stride;
mod ticket;
mod tree;

pub use currency::{Currency, CurrencyId};
pub use draw::Draw;
pub use error::Error;
pub use lottery::{Lottery, LotteryIn, Table};
pub use policy::{Policy, Used};
pub use random::Random;
pub use round_robin::RoundRobin;
pub use stride::Stride;
pub use ticket::{Ticket, TicketId};

/// Most that the amounts of all tickets of one currency, and what its client keeps, may come to.
pub const AMOUNT_SUM_MAX: u64 = (1 << 40) - 1;
/// A compensation of 1: none.
pub const COMPENSATION_ONE: u32 = 1 << 16;
/// Largest compensation: a client that uses less than this part of a slice counts as having used it.
pub const COMPENSATION_MAX: u32 = 256 * COMPENSATION_ONE;
/// Smallest compensation, below 1: a client that used more than so many slices at once counts as having used these.
pub const COMPENSATION_MIN: u32 = COMPENSATION_ONE / 1024;
/// One base unit in what [`Lottery::value`] answers.
pub const VALUE_ONE: u64 = 1 << 20;
