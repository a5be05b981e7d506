//! What connections need of the network that they are a part of: its tables and its time, its listeners and its ports.
//!
//! Why traits: the network has the tables, and these have connections. So neither needs to be read to read the other.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::net::SocketAddr;

use super::Terms;
use super::flow::Flow;
use super::table::{Appointment, Due, Key, Tables, Timed};
use crate::net::inet::wire::SegmentSender;

/// What decides whether a port that is remembered may be shared: `SO_REUSEADDR`, `SO_REUSEPORT`, whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PortSharing {
    pub(in super::super) reuses_address: bool,
    pub(in super::super) reuses_port: bool,
    pub(in super::super) uid: u32,
}

/// Gives back a port when its connection is over.
pub(in super::super) type PortRelease = Box<dyn FnOnce() + Send>;

/// The network.
pub(in super::super) trait Host: Send + Sync {
    fn now_ns(&self) -> u64;
    fn tables(&self) -> &Tables;
    /// The way of segments to other machines.
    fn sender(&self) -> &dyn SegmentSender;
    /// Has what is due polled at `at_ns`, or before.
    fn wake_at(&self, at_ns: u64);
    /// Counts a segment that is sent again.
    fn note_repetition(&self);
    /// The two ends (the one first that connected first) have no connection any more; if that is to be remembered, the
    /// end that was first to end.
    fn end(&self, ends: (SocketAddr, SocketAddr), first: Option<(SocketAddr, PortSharing)>);
    /// Who takes connections to a port of this machine; of several, the one that `seed` falls on.
    fn listener(&self, local: SocketAddr, seed: u64) -> Option<Arc<dyn Listener>>;
}

/// A socket that takes connections.
pub(in super::super) trait Listener: Send + Sync {
    fn is_listening(&self) -> bool;
    fn is_accept_queue_full(&self) -> bool;
    /// Whether another connection may be half open on its behalf.
    fn has_room_half_open(&self) -> bool;
    /// One more connection is half open on its behalf, or one fewer.
    fn count_half_open(&self, is_more: bool);
    /// Bytes that its connections take in, and whether that was asked for.
    fn receive_window(&self) -> (usize, bool);
    /// Longest payload that it was told to offer (`TCP_MAXSEG`).
    fn segment_bytes_max(&self) -> u16;
    /// How many answers a connection is worth that has no data (`TCP_DEFER_ACCEPT`).
    fn defer_count(&self) -> u32;
    /// Makes the socket of a connection that came in, if `place` finds its flow a place in the tables.
    fn admit_flow(&self, key: &Key, terms: &Terms, place: &dyn Fn(&Arc<Flow>) -> bool) -> Option<Arc<Flow>>;
    /// A connection waits to be accepted.
    fn announce_flow(&self);
}

impl dyn Host {
    /// Has something else called at a time.
    pub(in super::super) fn call_at(&self, at_ns: u64, timed: Weak<dyn Timed>) -> Appointment {
        self.appoint(at_ns, Due::Other(timed), None)
    }

    /// Has something called at a time; see [`Tables::appoint`].
    pub(super) fn appoint(&self, at_ns: u64, due: Due, old: Option<Appointment>) -> Appointment {
        let (appointment, is_first) = self.tables().appoint(at_ns, due, old);
        if is_first {
            self.wake_at(at_ns);
        }
        appointment
    }
}
