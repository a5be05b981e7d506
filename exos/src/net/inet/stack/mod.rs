//! Everything between the card and the transports: Ethernet, ARP and neighbour discovery, IPv4 and IPv6, ICMP.
//!
//! It knows no socket and no port: what comes in is handed to a [`Transports`].
//!
//! The card is looked for when it is first needed ([`Stack::open`]), so that programs which do not use the network do
//! not pay for it.

mod state;

pub use state::{Stack, Transports};
