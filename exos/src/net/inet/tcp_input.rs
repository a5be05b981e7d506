//! Where TCP meets the stack below: segments that came in, what ICMP said of segments that were sent, and time.
//!
//! The stack calls these with no lock held. Neighbours: [`super::network`], which calls; TCP's engine, which is called.

use alloc::sync::{Arc, Weak};

use super::Inet;
use super::engine::host::Host;
use super::engine::input::{self, Train};
use super::engine::table::{Appointment, Timed};
use super::wire::{Arrival, IcmpError};

fn host(inet: &Arc<Inet>) -> Arc<dyn Host> {
    inet.clone()
}

/// A segment came in for one of the pod's addresses; `train` has those that came before it.
pub(super) fn tcp_input(inet: &Arc<Inet>, arrival: &Arrival<'_>, train: &mut Train) {
    input::arrive(&host(inet), arrival, train);
}

/// ICMP says something of a segment that was sent. Whether it was one of a connection that there is, with a sequence
/// number that is under way: only then is a shorter path believed in.
pub(super) fn tcp_error(inet: &Arc<Inet>, error: &IcmpError<'_>) -> bool {
    input::complain(&host(inet), error)
}

/// Does what is due by now: timers of connections, segments that wait for room in the card. Bounded work. When
/// something is due next; `now_ns` if there is more. What comes to be due earlier is told by [`Inet::wake_at`].
pub(super) fn tcp_poll(inet: &Arc<Inet>, now_ns: u64) -> Option<u64> {
    input::poll(&host(inet), now_ns)
}

impl Inet {
    /// Has something called at a time, if it is still there then.
    pub(super) fn call_at(self: &Arc<Self>, at_ns: u64, timed: Weak<dyn Timed>) -> Appointment {
        host(self).call_at(at_ns, timed)
    }
}
