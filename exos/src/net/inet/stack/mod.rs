//! Everything between the card and the transports: Ethernet, ARP and neighbour discovery, IPv4 and IPv6, ICMP.
//!
//! It knows no socket and no port: what comes in is handed to a [`Transports`], with no lock held.
//!
//! The card is looked for when it is first needed ([`Stack::open`]), so that programs which do not use the network do
//! not pay for it. Then a frame comes in by [`Stack::poll`]: `input` looks at its Ethernet header and at ARP,
//! `input_v4` and `input_v6` at the packet, with its pieces (`fragment`), ICMP and neighbour discovery (`discovery`).
//! One that is sent goes through `output`: route and source (`local`), next hop (`neighbour`), headers and checksum;
//! `host_guard` keeps it from the host's own services. `report` sends ICMP errors, as few as `limit` allows; `path` has
//! the paths that are shorter than the card's; `membership` and `membership_work` tell routers of groups; [`tap`] shows
//! frames to packet sockets; `dhcp` and `lease` ask for an address where the run says so.
//!
//! Invariants: each table has its own lock, which is held for moments and never while another is taken, nor while the
//! card or a transport is called. Every table has a bound, and each packet costs work that is bounded by its length.
//!
//! Differences from Linux that others can see: an address that a router announced is used while it is still asked
//! whether somebody has it (RFC 4429 without its restrictions); groups are always listened to from all senders;
//! redirects are ignored; ICMP timestamps count from the machine's start.

pub(crate) mod checksum;
pub mod counters;

mod arp;
mod dhcp;
mod discovery;
mod ethernet;
mod fragment;
mod headers;
mod host_guard;
mod input;
mod input_v4;
mod input_v6;
mod ipv4;
mod ipv6;
mod lease;
mod limit;
mod local;
mod membership;
mod membership_work;
mod neighbour;
mod output;
mod packet;
mod path;
mod report;
mod state;
pub mod tap;
mod work;

pub(super) use headers::{icmp_checksum, ipv4_header, ipv6_header};
pub use state::{Alteration, Stack, Transports};

#[cfg(test)]
mod tests;
