//! Senders of datagrams and packets that wait until the card has room, instead of losing what they send.
//!
//! Linux keeps what its card has no room for in a queue, and lets a sender wait whose buffer is used up by it. Here the
//! card's ring is that queue for all senders together. A sender that finds too little room is not ready to write any
//! more; it is told when there is room for [`WAKE_FRAME_COUNT`] frames again, so that many are not woken for one.
//!
//! Invariant: a socket says that it waits before it looks for room the last time, and room is told after it was looked
//! for, so that one of the two sees the other; [`LOOK_EVERY_NS`] is for a card that does not interrupt.
//!
//! Neighbours: [`super::udp`] and [`super::raw`], which ask; [`super::network`], which tells.

use alloc::sync::{Arc, Weak};
use core::net::IpAddr;
use core::sync::atomic::Ordering;

use super::Inet;
use super::socket::Socket;
use super::udp::Udp;
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;

/// Frames that there is room for when senders are told: more than the longest datagram takes.
const WAKE_FRAME_COUNT: usize = 64;
/// From one look for room to the next, while senders wait.
const LOOK_EVERY_NS: u64 = 1_000_000;

impl Socket {
    /// Looks for room for a transport packet to another machine.
    ///
    /// # Errors
    /// `EAGAIN`: there is none now, and whoever waits to write will be told. `ENOBUFS`.
    #[inline]
    pub(super) fn check_room(self: &Arc<Self>, udp: &Udp, remote: IpAddr, packet_bytes: usize) -> Result<()> {
        match self.inet().stack().has_room(remote, packet_bytes) {
            true => Ok(()),
            false => self.wait_for_room(udp, remote, packet_bytes),
        }
    }

    #[cold]
    fn wait_for_room(self: &Arc<Self>, udp: &Udp, remote: IpAddr, packet_bytes: usize) -> Result<()> {
        let inet = self.inet();
        udp.awaits_room.store(true, Ordering::SeqCst);
        inet.senders.add(self).map_err(|_| Errno::ENOBUFS)?;
        if inet.stack().has_room(remote, packet_bytes) {
            udp.awaits_room.store(false, Ordering::SeqCst);
            return Ok(());
        }
        inet.wake_at(inet.now_ns().saturating_add(LOOK_EVERY_NS));
        Err(Errno::EAGAIN)
    }
}

impl Inet {
    /// Tells senders that wait if there is room; when to look again.
    pub(super) fn tell_room(&self, now_ns: u64) -> Option<u64> {
        if self.senders.is_empty() {
            return None;
        }
        if !self.stack().has_frame_room(WAKE_FRAME_COUNT) {
            return Some(now_ns.saturating_add(LOOK_EVERY_NS));
        }
        for socket in self.senders.take().iter().filter_map(Weak::upgrade) {
            socket.udp().into_iter().for_each(|udp| udp.awaits_room.store(false, Ordering::SeqCst));
            socket.wait_queue().notify(Readiness::WRITE);
        }
        None
    }
}
