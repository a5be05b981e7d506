//! Where a device's service is placed, and what it is reached by: a domain, or the extended kernel. Disks and cards
//! ([`super::disk_session`], [`super::card_session`]) stand over the same.
//!
//! Neighbours: `glue::domain`, `glue::disk_kernel` and `glue::net_kernel` are the places.

use core::sync::atomic::AtomicU64;

/// A place of a service.
pub trait SessionPlace: Send + Sync {
    /// The service does not look by itself, so it is called for everything.
    const IS_CALLED: bool;
    /// The session's words.
    fn words(&self) -> &[AtomicU64];
    /// Wakes the service.
    fn ring(&self);
    /// Has a bell rung when there is something next, where that is more than a word of the session. `true`: there is
    /// already.
    fn listen(&self) -> bool;
    /// Ends the service, and all that it was given; false: its device may still use memory.
    fn end(&self) -> bool;
    /// Starts one.
    fn start(&self) -> bool;
    /// Whether it is there no more.
    fn is_stopped(&self) -> bool;
    /// Time.
    fn now_ns(&self) -> u64;
}
