//! Disks: requests, their order, and what stands behind `/dev/vda`.
//!
//! From below to above:
//! - [`disk`]: what a disk is, wherever its driver is placed; [`fake`], one for tests;
//! - [`request`]: what is asked of it, and who is told;
//! - `order`: which requests become one, and which goes next; [`statistics`]: what is counted;
//! - [`queue`]: the request list of a disk, with restart and errors; [`linger`]: whether a wait looks before it sleeps;
//! - [`transfer`]: sectors to and from held memory, in as many requests as it takes;
//! - [`device`]: a disk as a device that is started at first use; `cache`: its pages; [`file`]: what is open of it.
//!
//! An asynchronous caller holds a program's memory ([`crate::mem::pinned`]), submits
//! ([`transfer::Transfer::submit`]) as often as it likes, and then starts the queue once
//! ([`queue::BlockQueue::start`]): what it submits in between is joined and ordered. It is told by
//! [`request::RequestOwner::done`].
//!
//! Invariants:
//! - INV-B1 No lock of this module is held while an owner is told, a waiter is woken, or bytes go to or from a program.
//! - INV-B2 Every request that was taken ends once, whatever the disk does: with success, or with one error.
//! - INV-B3 Time is an argument.

mod cache;
pub mod device;
pub mod disk;
pub mod fake;
pub mod file;
pub mod linger;
mod order;
pub mod queue;
pub mod request;
pub mod statistics;
pub mod transfer;

pub use order::OrderPolicy;
