//! Stride scheduling (Waldspurger and Weihl, TM-528, 1995): the same shares without chance.
//!
//! A client's *stride* is inverse to its tickets; the client that has gone the shortest way (*pass*) runs, and goes on
//! by its stride times the part of the slice that it used, so that none needs compensation. A client that is away keeps
//! what it was behind or ahead of the others (*remain*). The ready clients are a heap by pass. Invariant: an entry of
//! the heap and its client's `place` name each other.

use crate::Error;
use crate::policy::{Policy, Used};
use crate::random::Random;

/// The way of a client with one ticket in one slice.
const STRIDE_ONE: u64 = 1 << 32;

#[derive(Clone, Copy)]
struct Client {
    tickets: u32,
    stride: u64,
    pass: u64,
    /// While away: what it was ahead of all.
    remain: i64,
    /// In the heap, from 1; 0: away.
    place: u32,
}

impl Client {
    const EMPTY: Self = Self { tickets: 0, stride: 0, pass: 0, remain: 0, place: 0 };
}

/// Clients `0..CLIENTS`, each with tickets.
pub struct Stride<const CLIENTS: usize> {
    clients: [Client; CLIENTS],
    heap: [u32; CLIENTS],
    count: usize,
    /// Tickets of those in the heap.
    tickets: u64,
    /// The way of a client that had all tickets.
    pass: u64,
}

impl<const CLIENTS: usize> Default for Stride<CLIENTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CLIENTS: usize> Stride<CLIENTS> {
    /// Nobody has tickets.
    #[must_use]
    pub const fn new() -> Self {
        Self { clients: [Client::EMPTY; CLIENTS], heap: [0; CLIENTS], count: 0, tickets: 0, pass: 0 }
    }

    /// Gives a client tickets, from now on.
    ///
    /// # Errors
    /// `UnknownCurrency` (no such client), `ZeroAmount`.
    pub fn set_tickets(&mut self, client: usize, tickets: u32) -> Result<(), Error> {
        let entry = self.clients.get(client).ok_or(Error::UnknownCurrency)?;
        if tickets == 0 {
            return Err(Error::ZeroAmount);
        }
        let was_ready = entry.place != 0;
        self.set_ready(client, false);
        let entry = &mut self.clients[client];
        let stride = STRIDE_ONE / u64::from(tickets);
        if entry.stride != 0 {
            let remain = i128::from(entry.remain) * i128::from(stride) / i128::from(entry.stride);
            entry.remain = i64::try_from(remain).unwrap_or(0);
        }
        entry.tickets = tickets;
        entry.stride = stride;
        if was_ready {
            self.set_ready(client, true);
        }
        Ok(())
    }

    fn pass_at(&self, place: usize) -> u64 {
        self.clients[self.heap[place] as usize].pass
    }

    fn swap(&mut self, first: usize, second: usize) {
        self.heap.swap(first, second);
        for place in [first, second] {
            self.clients[self.heap[place] as usize].place = place as u32 + 1;
        }
    }

    /// Moves the entry at a place to where its pass belongs.
    fn sift(&mut self, mut place: usize) {
        while place > 0 && self.pass_at(place) < self.pass_at((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let children = (2 * place + 1)..(2 * place + 3).min(self.count);
            let Some(least) = children.min_by_key(|child| self.pass_at(*child)) else { return };
            if self.pass_at(place) <= self.pass_at(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

impl<const CLIENTS: usize> Policy for Stride<CLIENTS> {
    type Client = usize;

    fn set_ready(&mut self, client: usize, is_ready: bool) {
        let Some(entry) = self.clients.get_mut(client) else { return };
        if is_ready == (entry.place != 0) || entry.tickets == 0 {
            return;
        }
        if is_ready {
            entry.pass = self.pass.saturating_add_signed(entry.remain);
            self.tickets += u64::from(entry.tickets);
            entry.place = self.count as u32 + 1;
            self.heap[self.count] = client as u32;
            self.count += 1;
            self.sift(self.count - 1);
        } else {
            entry.remain = entry.pass.wrapping_sub(self.pass) as i64;
            self.tickets -= u64::from(entry.tickets);
            let place = entry.place as usize - 1;
            self.count -= 1;
            self.swap(place, self.count);
            self.clients[client].place = 0;
            if place < self.count {
                self.sift(place);
            }
        }
    }

    fn choose(&mut self, _random: &mut impl Random) -> Option<usize> {
        (self.count != 0).then(|| self.heap[0] as usize)
    }

    fn charge(&mut self, client: usize, used: Used) {
        let part = |way: u64| ((u128::from(way) * u128::from(used.part())) >> 32) as u64;
        self.pass += part(STRIDE_ONE.checked_div(self.tickets).unwrap_or(0));
        let Some(entry) = self.clients.get_mut(client) else { return };
        if entry.place == 0 {
            entry.remain = entry.remain.saturating_add_unsigned(part(entry.stride));
            return;
        }
        entry.pass += part(entry.stride);
        let place = entry.place as usize - 1;
        self.sift(place);
    }
}
