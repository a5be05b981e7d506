//! Everybody in turn: what the others are compared with.

use crate::policy::{Policy, Used};
use crate::random::Random;

/// Clients `0..CLIENTS` in a ring.
pub struct RoundRobin<const CLIENTS: usize> {
    is_ready: [bool; CLIENTS],
    last: usize,
}

impl<const CLIENTS: usize> RoundRobin<CLIENTS> {
    /// Nobody is ready.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_ready: [false; CLIENTS], last: 0 }
    }
}

impl<const CLIENTS: usize> Default for RoundRobin<CLIENTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CLIENTS: usize> Policy for RoundRobin<CLIENTS> {
    type Client = usize;

    fn set_ready(&mut self, client: usize, is_ready: bool) {
        if let Some(entry) = self.is_ready.get_mut(client) {
            *entry = is_ready;
        }
    }

    fn choose(&mut self, _random: &mut impl Random) -> Option<usize> {
        let client =
            (1..=CLIENTS).map(|offset| (self.last + offset) % CLIENTS).find(|client| self.is_ready[*client])?;
        self.last = client;
        Some(client)
    }

    fn charge(&mut self, _client: usize, _used: Used) {}
}
