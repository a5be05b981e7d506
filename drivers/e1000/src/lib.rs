//! Intel's gigabit cards 82540EM (QEMU's `e1000`) and 82574L (`e1000e`), driven by safe code that trusts nothing the
//! card writes: a [`NetDevice`](aegis_hal::net::NetDevice).
//!
//! Both have one register model. The driver uses what is the same in both, so there is one path for frames: descriptors
//! of the old form on receipt, of the old and of the new form for what is sent. What differs is a handful of registers
//! at the start ([`Model`]) and what the card is believed to do to frames.
//!
//! Layers, bottom up: `registers` (names of what the card has), the two rings with their buffers, and
//! [`NetCard`], which starts, stops and asks. `fake` is a card in memory, which can also be hostile.
//!
//! # Invariants
//!
//! - E1000-1 Nothing that the card can write is believed: which descriptors it holds is known here, and never read from
//!   it. The word in which it reports is read once, as a whole, and its length is checked against the buffer.
//! - E1000-2 Whatever the card writes or answers, whenever, the outcome is an [`E1000Error`], ignored data, or wrong
//!   bytes in a frame. Never a panic, an access outside a buffer, or a loop without a bound.
//! - E1000-3 A card that was caught at breaking the protocol fails at every call until it was reset.
//! - E1000-4 Memory goes back to [`aegis_hal::Dma`] only after both directions were switched off and the reset was
//!   seen to end; otherwise to quarantine.
//! - E1000-5 No allocation but DMA pages, no time, no randomness: waits are bounded by a count that the caller gives.
#![no_std]
#![forbid(unsafe_code)]

mod card;
mod error;
// The model of a card needs an allocator, which a kernel that places the driver in itself does not have.
#[cfg(not(target_os = "none"))]
pub mod fake;
mod receive;
mod registers;
mod ring;
mod transmit;

pub use card::{BUFFER_BYTES, Limits, Model, NetCard, RING_SIZE_MAX, Stopped};
pub use error::{CardFault, E1000Error};
