//! Requests that are under way at once, on the lanes of one [`Carrier`].
//!
//! A thread that waits for an answer [`Flights::look`]s now and then, or is woken by another's look: a look takes in
//! whatever came, in any order, keeps each answer for its owner and tells it. So a thread can sleep while others go on,
//! and an idle processor can look for all. A lane is free again as soon as its answer is in, whether or not its owner
//! has taken it; so a lane never waits for a thread.
//!
//! The end: a broken carrier, an answer that does not come in time, or [`Flights::fail`] ends all flights with a
//! [`Silence`], tells all waiters, and lets nothing depart any more. Memory that was given to the device stays the
//! device's.
//!
//! Only time between looks that is plausible counts against the limit: a machine that was stopped meanwhile does not
//! use it up. Neighbours: [`super::session`] above; the machine's devices below (`exos/linux/src/glue/shares.rs`).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::message::{CLUNK_BYTES, Messages};
use super::session::Silence;
use crate::fs::readiness::{Readiness, Waiter};

/// Time after which a server counts as dead.
pub const ANSWER_LIMIT_NS: u64 = 30_000_000_000;
/// Most time that counts from one look to the next.
pub const LOOK_NS_MAX: u64 = 200_000_000;

/// The device is broken or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What goes on one lane.
#[derive(Clone, Copy)]
pub enum Cargo<'a> {
    /// A message and its companions, whose replies nobody wants.
    One(&'a [u8], &'a [[u8; CLUNK_BYTES]]),
    /// Short messages, each with a short reply. The replies come as one: each with its length before it
    /// ([`Messages::push`]), in the order of the messages.
    Many(&'a Messages),
}

/// Lanes to a server.
pub trait Carrier: Send {
    /// A lane with nothing on it, for such a cargo.
    fn free_lane(&self, cargo: Cargo<'_>) -> Option<usize>;

    /// Sends a cargo on a free lane.
    ///
    /// # Errors
    /// [`Broken`].
    fn send(&mut self, lane: usize, cargo: Cargo<'_>) -> core::result::Result<(), Broken>;

    /// Takes in what has come.
    ///
    /// # Errors
    /// [`Broken`].
    fn poll(&mut self) -> core::result::Result<(), Broken>;

    /// If all answers of a lane are in, makes `reply` the one to its cargo and frees the lane.
    ///
    /// # Errors
    /// [`Broken`].
    fn take(&mut self, lane: usize, reply: &mut Vec<u8>) -> core::result::Result<bool, Broken>;
}

/// A request that has departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

struct Flight {
    lane: usize,
    reply: Vec<u8>,
    waited_ns: u64,
    owner: Option<Arc<dyn Waiter>>,
}

/// What became of a request, and its buffer.
type Landed = (core::result::Result<(), Silence>, Vec<u8>);

/// All requests of a carrier.
pub struct Flights<C> {
    carrier: C,
    under_way: BTreeMap<Ticket, Flight>,
    landed: BTreeMap<Ticket, Landed>,
    /// Threads that wait for a lane.
    standing: Vec<Arc<dyn Waiter>>,
    next_ticket: u64,
    looked_ns: u64,
    end: Option<Silence>,
}

impl<C: Carrier> Flights<C> {
    /// No request under way yet.
    pub const fn new(carrier: C) -> Self {
        Self {
            carrier,
            under_way: BTreeMap::new(),
            landed: BTreeMap::new(),
            standing: Vec::new(),
            next_ticket: 0,
            looked_ns: 0,
            end: None,
        }
    }

    /// The carrier.
    pub fn carrier(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a waiter is to be told of an answer.
    pub fn is_awaited(&self) -> bool {
        !self.standing.is_empty() || self.under_way.values().any(|flight| flight.owner.is_some())
    }

    /// Sends a request; `reply` is what its answer will be in. `None`: there is no free lane now.
    ///
    /// # Errors
    /// [`Silence`], from then on always.
    pub fn depart(&mut self, cargo: Cargo<'_>, reply: &mut Vec<u8>) -> core::result::Result<Option<Ticket>, Silence> {
        if let Some(silence) = self.end {
            return Err(silence);
        }
        let Some(lane) = self.carrier.free_lane(cargo) else { return Ok(None) };
        if self.carrier.send(lane, cargo).is_err() {
            self.fail(Silence::Device);
            return Err(Silence::Device);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let flight = Flight { lane, reply: core::mem::take(reply), waited_ns: 0, owner: None };
        self.under_way.insert(ticket, flight);
        Ok(Some(ticket))
    }

    /// Takes in what has come, and gives up what has taken too long.
    pub fn look(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.looked_ns).min(LOOK_NS_MAX);
        self.looked_ns = now_ns;
        if self.under_way.is_empty() {
            return;
        }
        if self.carrier.poll().is_err() {
            return self.fail(Silence::Device);
        }
        let tickets: Vec<Ticket> = self.under_way.keys().copied().collect();
        for ticket in tickets {
            let Some(flight) = self.under_way.get_mut(&ticket) else { continue };
            match self.carrier.take(flight.lane, &mut flight.reply) {
                Ok(true) => self.land(ticket, Ok(())),
                Ok(false) => {
                    flight.waited_ns += passed_ns;
                    if flight.waited_ns >= ANSWER_LIMIT_NS {
                        return self.fail(Silence::TimeLimit);
                    }
                }
                Err(Broken) => return self.fail(Silence::Device),
            }
        }
    }

    fn land(&mut self, ticket: Ticket, outcome: core::result::Result<(), Silence>) {
        let Some(flight) = self.under_way.remove(&ticket) else { return };
        self.landed.insert(ticket, (outcome, flight.reply));
        for waiter in flight.owner.into_iter().chain(self.standing.drain(..)) {
            waiter.wake(Readiness::READ);
        }
    }

    /// What became of a request, once that is known.
    pub fn take(&mut self, ticket: Ticket) -> Option<Landed> {
        self.landed.remove(&ticket)
    }

    /// Has `waiter` told of the answer to `ticket`, or of a free lane; it looks once more before it sleeps.
    pub fn await_news(&mut self, ticket: Option<Ticket>, waiter: Arc<dyn Waiter>) {
        match ticket.map(|ticket| self.under_way.get_mut(&ticket)) {
            Some(Some(flight)) => flight.owner = Some(waiter),
            Some(None) => {}
            None if self.standing.iter().any(|other| Arc::ptr_eq(other, &waiter)) => {}
            None => self.standing.push(waiter),
        }
    }

    /// Ends everything.
    pub fn fail(&mut self, silence: Silence) {
        self.end.get_or_insert(silence);
        let tickets: Vec<Ticket> = self.under_way.keys().copied().collect();
        for ticket in tickets {
            self.land(ticket, Err(silence));
        }
        for waiter in self.standing.drain(..) {
            waiter.wake(Readiness::READ);
        }
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
