//! A client's session with a network card's service: frames out by one ring, frames in by another, in memory of the
//! client.
//!
//! - NQ-1 The session is one range of memory: words for both rings, then the bytes of frames that go out, then those of
//!   frames that come in. A descriptor names bytes of that range alone.
//! - NQ-2 A frame that goes out stays as it is until its slot was given back: the card may read it where it lies. Slots
//!   are given back in order, when the card is done with them.
//! - NQ-3 A frame that comes in has the place of its slot, and stays until the client gives the slot back.
//! - NQ-4 A service that takes another's place finds both rings empty: what was under way is lost, as frames may be.
//!
//! [`Session`] is the service's side, [`Client`] the other; neither believes the other.

mod client;
mod kernel;
mod session;
mod words;

pub use crate::state::State;
pub use client::{Client, Room, SendError};
pub use kernel::KernelCall;
pub use session::{Offence, Session};
pub use words::{
    Description, RING_CAPACITY_MAX, Received, SEGMENTED_HEADER_BYTES_MAX, Segmentation, Shape, Transmission,
};
