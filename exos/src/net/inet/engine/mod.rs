//! TCP's machinery: connections to and from other machines.
//!
//! - [`Engine`]: one connection's protocol machine. Nothing above knows which kind it is;
//! - [`header`]: TCP's header; [`control`]: the engine that there is;
//! - `flow`: a connection, its engine and its lock; `flow_bytes`, `flow_view`: what sockets do with it and ask of it;
//! - `handshake`, `attempt`: connections that are being made;
//! - `table`: which connection a segment is for, and what is due when; `input`: what comes in.
//!
//! An engine begins where a connection is established: what is half open is a small entry without an engine, and so is
//! what has ended and is remembered.
//!
//! Locks are taken in the order socket, flow, table, timers, stack. Nothing is woken under a lock.

pub(super) mod attempt;
pub(super) mod control;
#[cfg(test)]
mod engine_tests;
pub(super) mod flow;
pub(super) mod flow_bytes;
mod flow_view;
mod handshake;
pub(super) mod header;
pub(super) mod host;
pub(super) mod input;
#[cfg(test)]
mod link;
mod remembered;
pub(super) mod table;
#[cfg(test)]
mod tests;

use header::Header;

use super::tcp_state::TcpState;
use super::urgent::Urgent;
use crate::error::Result;

/// What two ends have agreed on, and where they stand: all that an engine begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Number of the first byte that is sent.
    pub(super) send_next: u32,
    /// Number of the first byte that is received.
    pub(super) receive_next: u32,
    /// Bytes that the other end takes at first.
    pub(super) send_window_bytes: u32,
    /// How far the other end shifts its windows, and how far this one does; `None`: neither does.
    pub(super) window_shifts: Option<(u8, u8)>,
    /// Longest payload of a segment that is sent, options apart.
    pub(super) segment_bytes_max: u16,
    /// Whether selective acknowledgements are sent.
    pub(super) has_sack: bool,
    /// Whether congestion is told of. Only the other end asks for that, as on Linux (`tcp_ecn` of 2).
    pub(super) has_ecn: bool,
    /// What is added to this end's time in milliseconds, and the last time of the other's; `None`: none are told.
    pub(super) times: Option<(u32, u32)>,
    /// The round trip of the handshake, if it was measured.
    pub(super) round_trip_ns: Option<u64>,
}

/// What a program asks of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuning {
    /// Short segments are sent at once (`TCP_NODELAY`).
    pub(super) has_no_delay: bool,
    /// Short segments are held back (`TCP_CORK`, `MSG_MORE`).
    pub(super) is_corked: bool,
    /// Urgent bytes stay among the others (`SO_OOBINLINE`).
    pub(super) is_urgent_inline: bool,
    /// What the receiver takes in at most.
    pub(super) receive_bytes_max: usize,
    /// What is kept of what was sent and not acknowledged.
    pub(super) send_bytes_max: usize,
}

/// Takes segments that an engine sends.
pub(super) trait Outlet {
    /// Whether there is room for another. An engine that is told so sends nothing.
    fn has_room(&self) -> bool;
    /// Takes one, which carries the bytes of the two pieces; its ports are filled in here.
    fn send(&mut self, header: &Header, payload: [&[u8]; 2]);
    /// The one that follows was sent before.
    fn note_repetition(&mut self) {}
}

/// What came of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was taken, or answered, or dropped.
    Taken,
    /// It was to be taken and there is no memory. The other end sends it again.
    NoMemory,
    /// The other end has reset the connection.
    Reset,
}

/// What `TCP_INFO` tells of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) round_trip_us: u32,
    pub(super) round_trip_variance_us: u32,
    pub(super) round_trip_min_us: u32,
    pub(super) retransmit_timeout_us: u32,
    pub(super) send_segment_bytes: u32,
    pub(super) receive_segment_bytes: u32,
    pub(super) send_window_bytes: u32,
    pub(super) receive_window_bytes: u32,
    pub(super) unacknowledged_bytes: u32,
    pub(super) unsent_bytes: u32,
    /// Segments that are not acknowledged; of these, those that are there behind a gap, lost, and sent again.
    pub(super) under_way_count: u32,
    pub(super) sacked_count: u32,
    pub(super) lost_count: u32,
    pub(super) resent_count: u32,
    pub(super) congestion_window_count: u32,
    pub(super) slow_start_threshold_count: u32,
    /// Times that the timeout was doubled.
    pub(super) backoff_count: u32,
    pub(super) retransmit_count: u32,
    pub(super) acknowledged_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_segment_count: u32,
    pub(super) received_segment_count: u32,
    pub(super) last_sent_ns: u64,
    pub(super) has_times: bool,
    pub(super) has_sack: bool,
    pub(super) window_shifts: Option<(u8, u8)>,
}

/// One connection's protocol machine, from where it is established to where it ends.
///
/// It has no lock, no clock and no address. A caller calls [`Self::transmit`] after everything that may make it send,
/// and again at [`Self::deadline_ns`]. Nothing that a peer sends makes it panic or take more memory than its tuning
/// says.
pub(super) trait Engine: Send {
    /// A segment of this connection came in, its checksum right.
    fn arrive(&mut self, header: &Header, payload: &[u8], now_ns: u64, outlet: &mut dyn Outlet) -> Verdict;
    /// Sends all that is due.
    fn transmit(&mut self, now_ns: u64, outlet: &mut dyn Outlet);
    /// When [`Self::transmit`] is to be called if nothing happens before.
    fn deadline_ns(&mut self, now_ns: u64) -> Option<u64>;

    /// Bytes that can be added to what is to be sent.
    fn send_room(&self) -> usize;
    /// Has `fill` put bytes behind what is to be sent, once into each piece of memory that lies in a row, at most
    /// `most`; it says how many it put. Ends at the first piece that is not filled. How many were put in all.
    ///
    /// # Errors
    /// `ENOBUFS`.
    fn fill(&mut self, most: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize>;
    /// Whether a program should be told to go on sending: a third of what may be kept is free.
    fn is_writable(&self) -> bool;
    /// Bytes that were given and not acknowledged, and how many of those were never sent.
    fn unacknowledged_bytes(&self) -> (usize, usize);

    /// Bytes that can be read.
    fn readable_bytes(&self) -> usize;
    /// Shows `take` what was received, a piece at a time, at most `most` in all; what it says it took is gone. Ends at
    /// the first piece that is not taken whole. How many were taken in all.
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&[u8]) -> usize) -> usize;
    /// How many bytes are read in a row by a call that `has_some` already; an urgent byte that is passed over is gone
    /// then. `None`: the call ends before the urgent one.
    fn reach(&mut self, has_some: bool) -> Option<usize>;
    /// What is known of urgent data, and the place of the byte that is read next.
    fn urgent(&mut self) -> (&mut Urgent, u64);
    /// Whether the other end has told of urgent data since this was asked.
    fn take_urgent_news(&mut self) -> bool;
    /// The last byte that was given is urgent.
    fn mark_urgent(&mut self);
    /// Copies what can be read from `offset` on, and leaves it. How much.
    fn peek(&self, offset: usize, into: &mut [u8]) -> usize;

    /// Ends this end's half behind what is to be sent.
    fn close(&mut self);
    /// The header that resets the connection.
    fn reset_header(&self) -> Header;
    /// Where it is: as `TcpState` has it.
    fn state(&self) -> TcpState;
    /// The other end has ended its half, and all that it sent before is there.
    fn has_seen_end(&self) -> bool;

    /// Since when the other end has acknowledged nothing of what waits for it; of a window that is shut, since when it
    /// has not answered.
    fn stalled_since_ns(&self) -> Option<u64>;
    /// Since when the other end has taken nothing of what waits for it, whether it answers or not.
    fn unmoved_since_ns(&self) -> Option<u64>;

    /// What the program asks for.
    fn tune(&mut self, tuning: &Tuning);
    /// A shorter or longer way was found: longest payload of a segment, options apart.
    fn set_segment_bytes_max(&mut self, bytes: u16);
    /// Acknowledges what came in, at once.
    fn acknowledge(&mut self, now_ns: u64, outlet: &mut dyn Outlet);
    /// Sends a segment that the other end has to answer if it is there (keep-alive).
    fn probe(&mut self, now_ns: u64, outlet: &mut dyn Outlet);
    /// Gives back the memory that it can do without until something happens.
    fn rest(&mut self);
    /// Whether it has given back all that it can.
    fn is_at_rest(&self) -> bool;
    /// Whether a number was sent and is not acknowledged.
    fn is_under_way(&self, sequence: u32) -> bool;
    /// Bytes that came in, in order.
    fn received_bytes(&self) -> u64;
    /// What is added to this end's time, and the last time of the other's.
    fn times(&self) -> Option<(u32, u32)>;
    /// What `TCP_INFO` tells.
    fn report(&self) -> Report;
}
