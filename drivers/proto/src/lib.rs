//! Queues in memory that two sides share and that do not trust each other: [`Producer`], [`Consumer`]; and what goes
//! through them to a disk ([`block`]) and to a network card ([`net`]). Beside them [`watch`], which has no queue: a
//! page of notes between a program and the kernel's extension.
//!
//! A side is a program's library OS, a driver domain, or a kernel with drivers in it. Either can write anything into
//! the memory at any time. The layout is in `FORMAT.md`.
//!
//! # Invariants
//!
//! - PROTO-1 Each side keeps its own counter for itself, and only reads the other's. A counter that cannot be
//!   (`other - mine > capacity`, or one that goes backwards) is [`Broken`], for good; nothing here panics or loops on
//!   what it reads.
//! - PROTO-2 A slot is copied once, by value, and what is checked is the copy.
//! - PROTO-3 What was written into a slot before [`Producer::publish`] is seen by a consumer that sees the counter
//!   (release, acquire); and nobody sleeps on what is there: who is about to sleep says so and looks again, who has
//!   published looks who sleeps, with a full fence between the two on both sides.
//! - PROTO-4 A visit takes at most [`VISIT_SLOT_COUNT_MAX`] slots, however fast the other side writes.
//!
//! Memory is behind [`SharedWords`], so that the same code runs over real memory, under loom and in tests.
//! Neighbours: `drivers/service` has the services, exos the clients.
#![no_std]
#![forbid(unsafe_code)]

pub mod block;
mod memory;
pub mod net;
mod ring;
mod state;
pub mod watch;

pub use memory::{SharedWords, load_all, store_all};
pub use ring::{Broken, Consumer, Producer, PutError, RING_WORD_COUNT, RingPlace, VISIT_SLOT_COUNT_MAX};
