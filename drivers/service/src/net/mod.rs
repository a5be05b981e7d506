//! The service of a network card: a client that is not trusted, on one card, over any driver ([`NetDevice`]), in any
//! placement ([`NetHost`]).
//!
//! The client reaches it through a session in its own memory (`aegis_proto::net`). Frames that go out are read by the
//! card where they lie; frames that come in are copied once, from the card's buffers to the client's.
//!
//! # Invariants
//!
//! - NET-1 No memory outside of the client's session is named to the card or written for it.
//! - NET-2 What the client does wrong ends its session, after the card was reset: nobody's memory is touched any more.
//! - NET-3 A visit is bounded by the slots of a visit in each direction.
//! - NET-4 Where the client has no room, frames stay in the card's buffers, and the card drops what comes then. Nothing
//!   is dropped here but what fits no slot.
//! - NET-5 A card that breaks is reset, and what was under way is lost, as frames may be. One that does so too often is
//!   dead.
//!
//! One client for now: several on a card need filters that say whose a frame is.

mod service;

pub use aegis_hal::net::NetDevice;
use aegis_proto::SharedWords;
pub use aegis_proto::net::Offence;
pub use service::{Health, NetService, RESTART_COUNT_MAX, RESTART_WITHIN_NS, Visit};

/// What a service needs of where it is: its client's session, in which the card's buffers are of type `B`.
pub trait NetHost<B> {
    /// The session's words.
    type Words: SharedWords + ?Sized;
    /// The session's words and the bytes of its frames, which the card reaches; there from [`NetService::attach`] on.
    /// `None`: there is no client.
    fn session(&mut self) -> Option<(&Self::Words, &mut B)>;
    /// Wakes the client.
    fn wake(&mut self);
}
