//! The events of `poll` and epoll, and the readiness that they mean.

use exos::fs::readiness::Readiness;

/// `POLLIN`.
pub const IN: u32 = 1;
/// `POLLPRI`.
pub const PRIORITY: u32 = 2;
/// `POLLOUT`.
pub const OUT: u32 = 4;
/// `POLLERR`.
pub const ERROR: u32 = 8;
/// `POLLHUP`.
pub const HANG_UP: u32 = 0x10;
/// `POLLNVAL`.
pub const INVALID: u32 = 0x20;
/// `POLLRDNORM`.
pub const IN_NORMAL: u32 = 0x40;
/// `POLLWRNORM`.
pub const OUT_NORMAL: u32 = 0x100;
/// `POLLRDHUP`.
pub const READ_HANG_UP: u32 = 0x2000;

/// Each kind of readiness as `poll` tells it.
const EVENTS: [(Readiness, u32); 6] = [
    (Readiness::READ, IN | IN_NORMAL),
    (Readiness::WRITE, OUT | OUT_NORMAL),
    (Readiness::PRIORITY, PRIORITY),
    (Readiness::ERROR, ERROR),
    (Readiness::HANG_UP, HANG_UP),
    (Readiness::READ_HANG_UP, READ_HANG_UP),
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
