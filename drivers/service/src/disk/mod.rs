//! The disk service: clients that do not trust each other, on one disk, over any driver ([`BlockDevice`]), in any
//! placement ([`Host`]).
//!
//! Clients reach it through sessions in their own memory (`aegis_proto::block`). Each has extents, parts of the disk
//! with rights, which every request is held against by one compare; and tickets, by which the service draws between
//! those that want something, for 64 KiB of transfer at a time.
//!
//! # Invariants
//!
//! - DISK-1 A request that was taken is told once, with success or one error; of a client whose session has ended, not
//!   at all.
//! - DISK-2 No sector outside of the client's extents is named to the driver for it, and no memory outside of the
//!   buffers that it gave.
//! - DISK-3 What a client does wrong ends its own session, and its buffers stay bound until the disk is done with them.
//!   Nobody else notices.
//! - DISK-4 A visit is bounded by the number of clients, of slots in a visit and of the disk's depth.
//! - DISK-5 A flush goes to the disk when it is taken, so it covers what had completed then (BLK-1); the service makes
//!   no order of its own.
//! - DISK-6 A disk that breaks or hangs is reset, and what was under way begins again out of the clients' slots, which
//!   they keep until they have consumed its end (BQ-2). A service that is new does the same with
//!   [`DiskService::attach`], so it makes no difference what of the two was lost. A disk that does not come back, or
//!   too often, ends all sessions and no request: whether to try again is for those who have them to say.
//!
//! No allocation, no time and no chance of its own. Neighbours: `aegis_hal::block` below, `domains` and the
//! extended kernel around it.
mod check;
mod client;
mod service;

pub use aegis_hal::block::BlockDevice;
use aegis_hal::block::BlockMemory;
use aegis_proto::SharedWords;
pub use aegis_proto::block::{Buffer, Offence};
pub use client::ServedExtent;
pub use service::{AttachError, DiskService, Health, RESTART_COUNT_MAX, RESTART_WITHIN_NS, STUCK_NS, Visit};

/// What a service needs of where it is. As [`BlockMemory`] it is the memory of all clients: places are those that
/// [`Host::bind`] gave.
pub trait Host: BlockMemory {
    /// A client's session.
    type Words: SharedWords + ?Sized;
    /// The session of client `client`, which is there from [`DiskService::attach`] until [`Host::release`].
    fn words(&self, client: usize) -> &Self::Words;
    /// Wakes a client: something has ended.
    fn wake(&mut self, client: usize);
    /// Makes memory that a client has given reachable for the disk: the offset of its first byte among all places.
    /// `None`: there is no such memory, or not as much.
    fn bind(&mut self, client: usize, buffer: Buffer) -> Option<u64>;
    /// Takes back what [`Host::bind`] did; the disk is done with it.
    fn unbind(&mut self, client: usize, buffer: Buffer, first_offset: u64);
    /// A client's session has ended and nothing of it is under way.
    fn release(&mut self, client: usize);
}
