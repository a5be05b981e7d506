//! Packet sockets (packet(7)): frames as they are, with the link's header (`SOCK_RAW`) or without (`SOCK_DGRAM`), for
//! programs with `CAP_NET_RAW`.
//!
//! A socket with a protocol is a tap of the stack ([`super::inet::stack::tap`]): it is told every frame that comes in,
//! and if it asked for all protocols also those that are sent. Its filter ([`super::filter`]) says how much of a frame
//! it keeps. What waits lies in memory of its own, up to its buffer, or in a ring that the program maps (`ring`); what
//! there is no room for is counted and lost.
//!
//! Frames that are sent go through the guard of the host's services, as packets do.
//!
//! Differences from Linux that a program can see: of loopback only what goes as packets is shown, not the bytes of
//! connections, and what is sent there is told to packet sockets alone; groups' frames are shown whether or not the
//! group was joined; of rings there is `TPACKET_V2` for what comes in; no `PACKET_FANOUT`.
//!
//! Invariants: those of [`crate::fs`] (INV-F1, INV-F3); a socket's lock is held neither while bytes go to or from a
//! program nor while a filter runs or a waiter is woken.

mod ring;
mod socket;

#[cfg(test)]
mod tests;

pub use ring::{RingMemory, RingRequest};
pub use socket::{Choice, Clock, Kind, LinkAddress, Membership, Received, Socket, Target};

/// `ETH_P_ALL`.
pub const ALL_PROTOCOLS: u16 = 3;
/// What a frame counts besides its bytes.
const OVERHEAD_BYTES: usize = 768;
/// Memberships of a socket.
const MEMBERSHIP_COUNT_MAX: usize = 64;
