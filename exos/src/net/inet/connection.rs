//! A connection over loopback: a queue of bytes each way, and the state of each side, under one lock.
//!
//! A step of one side and what it does to the other are one step, as if every segment arrived at once: a side that
//! ends makes the other see the end, bytes for a side that is gone come back as a reset. States and their changes are
//! those of tcp(7), RFC 9293, 3.3.2, without those that last only as long as a segment travels. A connection of a
//! socket with itself is one side that is its own other; in the place of the second is one that is long gone.
//!
//! Invariant: a side that [`Side::is_gone`] has no bytes. When both have ended, or one was reset, the connection gives
//! its ports back ([`Connection::settle`]); a side that ended first leaves a wait behind.

use alloc::sync::Arc;
use core::net::SocketAddr;

use super::Inet;
use super::information::Information;
use super::ports::{Ends, Held, Sharing};
use super::tcp_state::TcpState;
use super::urgent::Urgent;
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::ring::Ring;
use crate::net::Halves;
use crate::sync::{Mutex, MutexGuard};

/// One side.
pub(super) struct Side {
    pub(super) state: TcpState,
    /// What came in and was not read.
    pub(super) inbox: Ring,
    /// Nothing more comes in, or none is wanted (`SHUT_RD`).
    pub(super) is_receive_shut: bool,
    pub(super) is_send_shut: bool,
    /// The other side has ended its half in order.
    pub(super) has_seen_end: bool,
    /// Its socket is closed.
    pub(super) is_gone: bool,
    /// What the next call is told.
    pub(super) error: Option<Errno>,
    /// What it takes in at most.
    pub(super) window_bytes: usize,
    /// What it may have sent beyond the other's window.
    pub(super) send_bytes: usize,
    /// Bytes that ever came in.
    received_bytes: u64,
    pub(super) urgent: Urgent,
    /// The port that it gives back at the end, if its socket is closed by then.
    held: Option<Held>,
    sharing: Sharing,
}

/// Both sides.
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    /// What makes the other side's number of a side's: 1, or 0 if it is the same side.
    flip: usize,
    /// The one that ended its half first.
    first: Option<usize>,
    is_settled: bool,
}

/// A connection.
pub(super) struct Connection {
    inet: Arc<Inet>,
    /// The ends: that of the side that connected first.
    ends: Ends,
    queues: [Arc<WaitQueue>; 2],
    pair: Mutex<Pair>,
}

/// A side of a connection, as its socket has it.
#[derive(Clone)]
pub(super) struct Link {
    connection: Arc<Connection>,
    pub(super) side: usize,
    other: usize,
}

/// What a side brings into a connection.
pub(super) struct Party {
    pub(super) queue: Arc<WaitQueue>,
    pub(super) address: SocketAddr,
    pub(super) window_bytes: usize,
    pub(super) send_bytes: usize,
    pub(super) sharing: Sharing,
    pub(super) is_urgent_inline: bool,
}

/// What a change is told as, to each side.
type Events = [Readiness; 2];

impl Side {
    fn new(party: &Party) -> Self {
        Self {
            state: TcpState::Established,
            inbox: Ring::default(),
            is_receive_shut: false,
            is_send_shut: false,
            has_seen_end: false,
            is_gone: false,
            error: None,
            window_bytes: party.window_bytes,
            send_bytes: party.send_bytes,
            received_bytes: 0,
            urgent: Urgent::new(party.is_urgent_inline),
            held: None,
            sharing: party.sharing,
        }
    }

    /// Whether the connection is over for it.
    fn is_over(&self) -> bool {
        self.state == TcpState::Close
    }

    /// A reset comes in (`tcp_reset` of Linux). What it is told as.
    fn reset(&mut self) -> Readiness {
        if self.is_over() {
            return Readiness::empty();
        }
        self.error = Some(if self.state == TcpState::CloseWait { Errno::EPIPE } else { Errno::ECONNRESET });
        (self.state, self.is_receive_shut, self.is_send_shut) = (TcpState::Close, true, true);
        Readiness::EVENTS.difference(Readiness::PRIORITY)
    }

    /// The end of the other side's half comes in. What it is told as.
    fn end(&mut self) -> Readiness {
        (self.is_receive_shut, self.has_seen_end) = (true, true);
        self.state = match self.state {
            TcpState::Established => TcpState::CloseWait,
            _ => TcpState::Close,
        };
        let mut events = Readiness::READ | Readiness::READ_HANG_UP;
        events.set(Readiness::HANG_UP | Readiness::WRITE, self.is_over());
        events
    }

    /// Whether it is gone without having ended or been reset.
    fn is_vanished(&self) -> bool {
        self.is_gone && self.is_over() && !self.has_seen_end && self.error.is_none()
    }

    /// Whether it may send.
    pub(super) fn may_send(&self) -> bool {
        let is_open = matches!(self.state, TcpState::Established | TcpState::CloseWait);
        is_open && !self.is_send_shut && self.error.is_none()
    }

    /// What a sender is told that may not send, if it may not (`tcp_sendmsg` of Linux).
    pub(super) fn check_sender(&mut self) -> Result<()> {
        if self.may_send() {
            return Ok(());
        }
        Err(self.error.take().unwrap_or(Errno::EPIPE))
    }

    /// What a receiver is told for whom there are no bytes; `Ok`: the end (`tcp_recvmsg` of Linux).
    pub(super) fn empty_outcome(&mut self) -> Result<()> {
        if self.has_seen_end {
            return Ok(());
        }
        match self.error.take() {
            Some(error) => Err(error),
            None if self.is_receive_shut => Ok(()),
            None if self.is_over() => Err(Errno::ENOTCONN),
            None => Err(Errno::EAGAIN),
        }
    }

    /// Bytes came in.
    pub(super) fn note_received(&mut self, count: usize) {
        self.received_bytes += count as u64;
    }

    /// The place of the byte that is read next.
    pub(super) fn read_place(&self) -> u64 {
        self.received_bytes - self.inbox.length() as u64
    }

    /// The last of `count` bytes that are about to come in is urgent. Whether that is news.
    pub(super) fn note_urgent(&mut self, count: usize) -> bool {
        let (read, received) = (self.read_place(), self.received_bytes);
        let Some(loses) = self.urgent.note(received + count as u64 - 1, read, received) else { return false };
        if loses {
            self.inbox.skip(1);
        }
        true
    }

    /// Bytes that are read in a row by a call that `has_some` already. `None`: it ends before the urgent one.
    #[cold]
    pub(super) fn marked_reach(&mut self, has_some: bool) -> Option<usize> {
        if has_some && self.urgent.is_at(self.read_place()) {
            return None;
        }
        if self.urgent.is_hole(self.read_place()) && self.inbox.length() > 0 {
            self.inbox.skip(1);
            self.urgent.pass(self.read_place());
        }
        Some(self.urgent.reach(self.read_place(), self.inbox.length()))
    }
}

impl Pair {
    #[inline]
    fn other(&self, side: usize) -> usize {
        side ^ self.flip
    }

    /// Bytes that a side has sent and the other's window has no room for.
    pub(super) fn unsent_bytes(&self, side: usize) -> usize {
        let other = &self.sides[self.other(side)];
        other.inbox.length().saturating_sub(other.window_bytes)
    }

    /// Bytes that a side could send now to the `other`.
    #[inline]
    pub(super) fn room(&self, side: usize, other: usize) -> usize {
        let other = &self.sides[other];
        (other.window_bytes + self.sides[side].send_bytes).saturating_sub(other.inbox.length())
    }

    /// Whether a side should be told to go on sending to the `other`: a third of its buffer is free.
    #[inline]
    pub(super) fn is_writable(&self, side: usize, other: usize) -> bool {
        let other = &self.sides[other];
        let unsent_bytes = other.inbox.length().saturating_sub(other.window_bytes);
        unsent_bytes * 3 <= self.sides[side].send_bytes * 2
    }

    /// Whether what is sent to a side is lost: nobody is there who would read it.
    #[inline]
    pub(super) fn is_refused(&self, other: usize) -> bool {
        let other = &self.sides[other];
        other.is_gone || (other.state == TcpState::FinWait2 && other.is_receive_shut)
    }

    /// A reset goes both ways.
    pub(super) fn reset_both(&mut self) -> Events {
        self.sides.each_mut().map(Side::reset)
    }

    /// A side ends its half.
    fn end(&mut self, side: usize) -> Events {
        let mut events = [Readiness::empty(); 2];
        self.first.get_or_insert(side);
        let other = self.other(side);
        if self.sides[other].is_vanished() {
            events[side] = self.sides[side].reset();
            return events;
        }
        let own = &mut self.sides[side];
        own.state = match own.state {
            TcpState::Established => TcpState::FinWait2,
            _ => TcpState::Close,
        };
        if own.is_over() {
            events[side] = Readiness::HANG_UP | Readiness::WRITE;
        }
        events[other] |= self.sides[other].end();
        events
    }
}

impl Connection {
    /// A connection between the side that connects and the one that accepts.
    pub(super) fn new(inet: &Arc<Inet>, parties: [Party; 2]) -> Arc<Self> {
        let [client, server] = &parties;
        let sides = [Side::new(client), Side::new(server)];
        Arc::new(Self {
            inet: inet.clone(),
            ends: (client.address, server.address),
            queues: [client.queue.clone(), server.queue.clone()],
            pair: Mutex::new(Pair { sides, flip: 1, first: None, is_settled: false }),
        })
    }

    /// A connection of a socket with itself.
    pub(super) fn with_itself(inet: &Arc<Inet>, party: &Party) -> Arc<Self> {
        let nobody = Side { state: TcpState::Close, is_gone: true, has_seen_end: true, ..Side::new(party) };
        Arc::new(Self {
            inet: inet.clone(),
            ends: (party.address, party.address),
            queues: [party.queue.clone(), party.queue.clone()],
            pair: Mutex::new(Pair { sides: [Side::new(party), nobody], flip: 0, first: None, is_settled: false }),
        })
    }

    fn address_of(&self, side: usize) -> SocketAddr {
        if side == 0 { self.ends.0 } else { self.ends.1 }
    }

    /// Gives the ports back once nobody needs them any more.
    fn settle(&self, pair: &mut Pair) {
        if !pair.sides.iter().all(Side::is_over) {
            return;
        }
        let ports = &self.inet.tcp;
        for side in &mut pair.sides {
            side.held.take_if(|_| side.is_gone).into_iter().for_each(|held| ports.release(held));
        }
        if !core::mem::replace(&mut pair.is_settled, true) {
            let is_orderly = pair.sides.iter().all(|side| side.has_seen_end);
            let first = pair.first.filter(|_| is_orderly);
            let wait = first.map(|first| (self.address_of(first), pair.sides[first].sharing));
            ports.end(self.ends, wait, self.inet.now_ns());
        }
    }

    fn tell(&self, events: Events) {
        for (queue, events) in self.queues.iter().zip(events) {
            if !events.is_empty() {
                queue.notify(events);
            }
        }
    }

    /// Does something to both sides, tells those whom it concerns, and gives the ports back if it was the end.
    fn change<T>(&self, act: impl FnOnce(&mut Pair) -> (T, Events)) -> T {
        let mut pair = self.pair.lock();
        let (answer, events) = act(&mut pair);
        self.settle(&mut pair);
        drop(pair);
        self.tell(events);
        answer
    }
}

impl Link {
    /// A side of a connection: the one that connected is 0.
    pub(super) fn new(connection: &Arc<Connection>, side: usize) -> Self {
        let other = connection.pair.lock().other(side);
        Self { connection: connection.clone(), side, other }
    }

    /// The other side's number.
    #[inline]
    pub(super) fn other(&self) -> usize {
        self.other
    }

    /// Both sides, locked.
    #[inline]
    pub(super) fn pair(&self) -> MutexGuard<'_, Pair> {
        self.connection.pair.lock()
    }

    /// The other side's address.
    pub(super) fn remote(&self) -> SocketAddr {
        self.connection.address_of(self.other)
    }

    /// Tells the other side.
    #[inline]
    pub(super) fn tell_other(&self, events: Readiness) {
        self.connection.queues[self.other].notify(events);
    }

    /// Tells this side.
    pub(super) fn tell_own(&self, events: Readiness) {
        self.connection.queues[self.side].notify(events);
    }

    /// What this side sent reached nobody: both are reset.
    pub(super) fn reset(&self) {
        self.connection.change(|pair| ((), pair.reset_both()));
    }

    /// Ends one half or both.
    ///
    /// # Errors
    /// `ENOTCONN`: there is no connection any more; the halves are shut all the same, as on Linux.
    pub(super) fn shutdown(&self, halves: Halves) -> Result<()> {
        let side = self.side;
        self.connection.change(|pair| {
            let own = &mut pair.sides[side];
            let was_over = own.is_over();
            own.is_receive_shut |= halves.receiving;
            let ends = halves.sending && !own.is_send_shut && !was_over;
            own.is_send_shut |= halves.sending;
            let mut events = if ends { pair.end(side) } else { [Readiness::empty(); 2] };
            let own = &pair.sides[side];
            events[side] |= Readiness::ALWAYS;
            events[side].set(Readiness::READ_HANG_UP, own.is_receive_shut);
            events[side].set(Readiness::HANG_UP, own.is_receive_shut && own.is_send_shut);
            (if was_over { Err(Errno::ENOTCONN) } else { Ok(()) }, events)
        })
    }

    /// Its socket is closed, at once with a reset if `resets`; `held` is its port.
    pub(super) fn close(&self, resets: bool, held: Option<Held>, sharing: Sharing) {
        let (side, other) = (self.side, self.other);
        let lost = self.connection.change(|pair| {
            let own = &mut pair.sides[side];
            let has_unread = own.inbox.length() > 0;
            let lost = core::mem::take(&mut own.inbox);
            (own.is_gone, own.is_receive_shut, own.held, own.sharing) = (true, true, held, sharing);
            // It has no use for room: it is told when all that it sent has its place ([`Self::is_lingering`]).
            own.send_bytes = 0;
            let had_ended = core::mem::replace(&mut own.is_send_shut, true);
            let mut events = [Readiness::empty(); 2];
            if !own.is_over() {
                if has_unread || resets {
                    own.state = TcpState::Close;
                    events[other] = pair.sides[other].reset();
                } else if !had_ended {
                    events = pair.end(side);
                }
            }
            (lost, events)
        });
        drop(lost);
    }

    /// This side is no more, which the other learns when it sends something or ends; `held` is its port.
    pub(super) fn vanish(&self, held: Option<Held>) {
        let side = self.side;
        self.connection.change(|pair| {
            let own = &mut pair.sides[side];
            (own.is_gone, own.held, own.error) = (true, held, None);
            (own.state, own.is_receive_shut, own.is_send_shut) = (TcpState::Close, true, true);
            ((), [Readiness::empty(); 2])
        });
    }

    /// Whether its socket is closed and something that it sent does not fit into the other side's window.
    pub(super) fn is_lingering(&self) -> bool {
        let pair = self.pair();
        let own = &pair.sides[self.side];
        own.is_gone && !own.is_over() && pair.unsent_bytes(self.side) > 0
    }

    /// What `TCP_INFO` tells.
    pub(super) fn information(&self) -> Information {
        let pair = self.pair();
        let (own, other) = (&pair.sides[self.side], &pair.sides[self.other]);
        let unsent_bytes = pair.unsent_bytes(self.side);
        let acknowledged_bytes = other.received_bytes - unsent_bytes as u64;
        Information {
            acknowledged_bytes,
            received_bytes: own.received_bytes,
            unsent_bytes: unsent_bytes as u32,
            sent_bytes: acknowledged_bytes,
            window_bytes: (other.window_bytes as u32, own.window_bytes as u32),
            ..Information::default()
        }
    }
}
