//! The events of `poll` and epoll, and the readiness that they mean.

use crate::abi::linux::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use exos::fs::readiness::Readiness;

/// Each kind of readiness as `poll` tells it.
const EVENTS: [(Readiness, u32); 6] = [
    (Readiness::READ, POLLIN | POLLRDNORM),
    (Readiness::WRITE, POLLOUT | POLLWRNORM),
    (Readiness::PRIORITY, POLLPRI),
    (Readiness::ERROR, POLLERR),
    (Readiness::HANG_UP, POLLHUP),
    (Readiness::READ_HANG_UP, POLLRDHUP),
];

/// Readiness as `poll`'s events.
#[must_use]
pub fn events_of(readiness: Readiness) -> u32 {
    EVENTS_BY_BITS[readiness.bits() as usize % EVENTS_BY_BITS.len()]
}

/// The events of every combination of readiness.
static EVENTS_BY_BITS: [u32; 1 << EVENTS.len()] = {
    let mut table = [0; 1 << EVENTS.len()];
    let mut bits = 0;
    while bits < table.len() {
        let mut kind = 0;
        while kind < EVENTS.len() {
            let (readiness, events) = EVENTS[kind];
            if bits & readiness.bits() as usize != 0 {
                table[bits] |= events;
            }
            kind += 1;
        }
        bits += 1;
    }
    table
};

/// The readiness that `poll`'s events ask for.
#[must_use]
pub fn interest_of(events: u32) -> Readiness {
    let asked = EVENTS.iter().filter(|(_, bits)| events & bits != 0);
    asked.fold(Readiness::empty(), |interest, (kind, _)| interest | *kind)
}
