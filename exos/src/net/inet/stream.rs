//! Bytes of a TCP connection.
//!
//! Both ways are attempts that do not wait (`EAGAIN`). Bytes are copied once on each side: at once, under the
//! connection's lock, while the program's memory is at hand; else some at a time by way of the stack (INV-F1).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::connection::Link;
use super::end::{self, End};
use super::engine::flow::Flow;
use super::engine::flow_bytes::Piece;
use super::socket::{Received, Socket, Wants};
use super::tcp::{Phase, Tcp};
use super::tcp_state::TcpState;
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Destination, Source};
use crate::reserve;

/// Bytes that are moved under one lock.
const PIECE_BYTES_MAX: usize = 65_536;
/// Bytes that are moved by way of the stack.
const BOUNCE_BYTES: usize = 2048;
/// What an arrival is told as: a waiter for urgent data looks again at any, as on Linux.
const ARRIVAL: Readiness = Readiness::READ.union(Readiness::PRIORITY);

/// What a socket receives from.
enum Readable {
    Link(Link),
    Flow(Arc<Flow>),
    /// Nothing, for ever.
    End,
}

impl Socket {
    /// Sends on a connection what there is room for.
    pub(super) fn send_tcp(&self, tcp: &Tcp, source: &mut dyn Source, is_urgent: bool) -> Result<usize> {
        let is_urgent = is_urgent && source.remaining() > 0;
        let link = {
            let mut state = tcp.lock();
            match &state.phase {
                Phase::Connected(link) => link.clone(),
                Phase::Connecting(_) => return Err(Errno::EAGAIN),
                Phase::Remote(flow) => {
                    let flow = flow.clone();
                    drop(state);
                    return end::send(&flow, source, is_urgent);
                }
                _ => return Err(state.error.take().unwrap_or(Errno::EPIPE)),
            }
        };
        end::send(&link, source, is_urgent)
    }

    /// Receives from a connection what is there.
    pub(super) fn receive_tcp(&self, tcp: &Tcp, destination: &mut dyn Destination, wants: Wants) -> Result<Received> {
        if wants.is_peek || wants.is_discarding {
            let link = match tcp.readable()? {
                Readable::Link(link) => link,
                Readable::Flow(flow) => {
                    let outcome = if wants.is_peek {
                        flow.peek(destination, wants.peeked_bytes)?
                    } else {
                        flow.discard(destination.remaining().saturating_sub(wants.peeked_bytes))?
                    };
                    let received = |byte_count| Received { byte_count, ..Received::default() };
                    return Ok(outcome.map_or_else(Received::end, received));
                }
                Readable::End => return Ok(Received::end()),
            };
            return if wants.is_peek {
                link.peek(destination, wants.peeked_bytes)
            } else {
                link.discard(destination.remaining().saturating_sub(wants.peeked_bytes))
            };
        }
        let (byte_count, is_final) = tcp.read(destination)?;
        Ok(Received { byte_count, is_final, ..Received::default() })
    }
}

impl Tcp {
    /// Sends all that `source` has by one copy that ends at a fault. `None`: that is not to be had now, nothing
    /// has been sent, and no failure taken.
    pub(super) fn send_nofault(&self, source: &mut dyn Source) -> Option<usize> {
        let wanted = source.remaining();
        let link = match &self.lock().phase {
            Phase::Connected(link) if (1..=PIECE_BYTES_MAX).contains(&wanted) => link.clone(),
            _ => return None,
        };
        {
            let mut pair = link.pair();
            let may_send = pair.sides[link.side].may_send() && !pair.is_refused(link.other());
            if !may_send || pair.room(link.side, link.other()) < wanted {
                return None;
            }
            let other = &mut pair.sides[link.other()];
            other.inbox.reserve(wanted).ok()?;
            if wanted > other.inbox.back_room() || !other.inbox.push_with(wanted, |room| source.take_nofault(room)) {
                return None;
            }
            other.note_received(wanted);
        }
        link.tell_other(ARRIVAL);
        Some(wanted)
    }

    /// What to receive from.
    #[inline]
    fn readable(&self) -> Result<Readable> {
        let mut state = self.lock();
        match &state.phase {
            Phase::Connected(link) => Ok(Readable::Link(link.clone())),
            Phase::Connecting(_) => Err(Errno::EAGAIN),
            Phase::Remote(flow) => Ok(Readable::Flow(flow.clone())),
            Phase::Idle if state.shut.receiving => Ok(Readable::End),
            _ => Err(state.error.take().unwrap_or(Errno::ENOTCONN)),
        }
    }

    /// Bytes that were received, and whether none follow for this call.
    pub(super) fn read(&self, destination: &mut dyn Destination) -> Result<(usize, bool)> {
        let link = match self.readable()? {
            Readable::Link(link) => link,
            Readable::Flow(flow) => return end::read(&flow, destination),
            Readable::End => return Ok((0, true)),
        };
        end::read(&link, destination)
    }
}

impl End for Link {
    fn send_nofault(&self, source: &mut dyn Source) -> Result<Piece> {
        let mut pair = self.pair();
        pair.sides[self.side].check_sender()?;
        let wanted = source.remaining();
        if wanted == 0 {
            return Ok(Piece::Moved(0));
        }
        if pair.is_refused(self.other()) {
            drop(pair);
            let count = source.pass_over();
            self.reset();
            return Ok(Piece::Moved(count));
        }
        let granted = pair.room(self.side, self.other()).min(wanted).min(PIECE_BYTES_MAX);
        if granted == 0 {
            return Err(Errno::EAGAIN);
        }
        let other = &mut pair.sides[self.other()];
        other.inbox.reserve(granted).map_err(|_| Errno::ENOBUFS)?;
        let mut done = 0;
        while done < granted {
            let count = (granted - done).min(other.inbox.back_room());
            if !other.inbox.push_with(count, |room| source.take_nofault(room)) {
                break;
            }
            done += count;
        }
        other.note_received(done);
        Ok(if done > 0 { Piece::Moved(done) } else { Piece::Slow })
    }

    fn send_bounced(&self, source: &mut dyn Source) -> Result<usize> {
        self.send_by_stack(source, false)
    }

    fn send_urgent(&self, source: &mut dyn Source) -> Result<usize> {
        self.send_by_stack(source, true)
    }

    fn note_sent(&self) {
        self.tell_other(ARRIVAL);
    }

    fn receive_nofault(&self, destination: &mut dyn Destination, has_some: bool) -> Result<Piece> {
        let mut pair = self.pair();
        let was_writable = pair.is_writable(self.other(), self.side);
        let own = &mut pair.sides[self.side];
        let (mut reach, is_marked) = (own.inbox.length(), own.urgent.is_noted());
        if is_marked {
            let Some(before) = own.marked_reach(has_some) else { return Ok(Piece::Moved(0)) };
            reach = before;
        }
        if reach == 0 {
            return own.empty_outcome().map(|()| Piece::Moved(0));
        }
        let wanted = destination.remaining().min(reach).min(PIECE_BYTES_MAX);
        let mut done = 0;
        while done < wanted {
            let count = (wanted - done).min(own.inbox.front_length());
            if !own.inbox.front(count).is_some_and(|bytes| destination.put_nofault(bytes)) {
                break;
            }
            own.inbox.skip(count);
            done += count;
        }
        if is_marked {
            own.urgent.pass(own.read_place());
        }
        let makes_writable = !was_writable && pair.is_writable(self.other(), self.side);
        drop(pair);
        if makes_writable {
            self.tell_other(Readiness::WRITE);
        }
        Ok(if done > 0 || wanted == 0 { Piece::Moved(done) } else { Piece::Slow })
    }

    fn receive_bounced(&self, destination: &mut dyn Destination) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let (count, was_writable) = {
            let mut pair = self.pair();
            let was_writable = pair.is_writable(self.other(), self.side);
            let own = &mut pair.sides[self.side];
            let reach = own.urgent.reach(own.read_place(), own.inbox.length());
            let count = reach.min(destination.remaining()).min(BOUNCE_BYTES);
            if count == 0 {
                return own.empty_outcome().map(|()| 0);
            }
            own.inbox.pop(&mut bounce[..count]);
            (count, was_writable)
        };
        let is_put = destination.put(&bounce[..count]) == count;
        let mut pair = self.pair();
        let own = &mut pair.sides[self.side];
        // As on Linux, what cannot be put whole was not read. There is room where it was, unless much has come in
        // meanwhile and there is no memory.
        if !is_put && own.inbox.reserve(count).is_ok() {
            own.inbox.unpop(&bounce[..count]);
        }
        own.urgent.pass(own.read_place());
        let makes_writable = !was_writable && pair.is_writable(self.other(), self.side);
        drop(pair);
        if makes_writable {
            self.tell_other(Readiness::WRITE);
        }
        if is_put { Ok(count) } else { Err(Errno::EFAULT) }
    }

    fn keep_error(&self, error: Errno) {
        let mut pair = self.pair();
        let own = &mut pair.sides[self.side];
        if error == Errno::ECONNRESET && own.state == TcpState::Close {
            own.error.get_or_insert(error);
        }
    }

    fn return_error(&self, error: Errno) {
        self.pair().sides[self.side].error = Some(error);
    }

    fn urgent_byte(&self, is_peek: bool) -> Result<Option<u8>> {
        let mut pair = self.pair();
        let own = &mut pair.sides[self.side];
        // What is told to be urgent is there: both come at once.
        own.urgent.take(is_peek)
    }

    fn is_at_mark(&self) -> bool {
        let pair = self.pair();
        let own = &pair.sides[self.side];
        own.urgent.is_at(own.read_place())
    }
}

impl Link {
    /// Urgent bytes stay among the others from now on, or do not (`SO_OOBINLINE`).
    pub(super) fn set_urgent_inline(&self, value: bool) {
        self.pair().sides[self.side].urgent.is_inline = value;
    }

    /// Sends some of what is not at hand, or is urgent at its end.
    fn send_by_stack(&self, source: &mut dyn Source, is_urgent: bool) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let granted = {
            let mut pair = self.pair();
            pair.sides[self.side].check_sender()?;
            let granted = pair.room(self.side, self.other()).min(source.remaining()).min(BOUNCE_BYTES);
            if granted == 0 {
                return Err(Errno::EAGAIN);
            }
            pair.sides[self.other()].inbox.reserve(granted).map_err(|_| Errno::ENOBUFS)?;
            granted
        };
        let taken = source.take(&mut bounce[..granted]);
        let mut pair = self.pair();
        pair.sides[self.side].check_sender()?;
        if taken == 0 {
            return Err(Errno::EFAULT);
        }
        if pair.is_refused(self.other()) {
            drop(pair);
            self.reset();
            return Ok(taken);
        }
        let is_last = source.remaining() == 0 || pair.room(self.side, self.other()) <= taken;
        let other = &mut pair.sides[self.other()];
        other.inbox.reserve(taken).map_err(|_| Errno::ENOBUFS)?;
        let is_news = is_urgent && is_last && other.note_urgent(taken);
        other.inbox.push(&bounce[..taken]);
        other.note_received(taken);
        if is_news {
            other.urgent.fill(bounce[taken - 1]);
            drop(pair);
            self.tell_other(Readiness::PRIORITY);
        }
        Ok(taken)
    }

    /// Drops what is there, at most `limit` bytes of it (`MSG_TRUNC`).
    fn discard(&self, limit: usize) -> Result<Received> {
        let mut pair = self.pair();
        let other = self.other();
        let was_writable = pair.is_writable(other, self.side);
        let own = &mut pair.sides[self.side];
        let reach = own.marked_reach(false).unwrap_or(0);
        if reach == 0 {
            return own.empty_outcome().map(|()| Received::end());
        }
        let byte_count = limit.min(reach);
        own.inbox.skip(byte_count);
        own.urgent.pass(own.read_place());
        let makes_writable = !was_writable && pair.is_writable(other, self.side);
        drop(pair);
        if makes_writable {
            self.tell_other(Readiness::WRITE);
        }
        Ok(Received { byte_count, ..Received::default() })
    }

    /// Copies what is there behind the first `skipped` bytes, and leaves it there.
    fn peek(&self, destination: &mut dyn Destination, skipped: usize) -> Result<Received> {
        let mut bytes: Vec<u8>;
        {
            let mut pair = self.pair();
            let own = &mut pair.sides[self.side];
            // The urgent byte that a reader would pass over is not seen either.
            let skipped = skipped + usize::from(own.urgent.is_hole(own.read_place()));
            let ahead = own.inbox.length().saturating_sub(skipped);
            let length = skipped + own.urgent.reach(own.read_place() + skipped as u64, ahead);
            let length = length.min(skipped.saturating_add(destination.remaining()));
            if length <= skipped {
                return own.empty_outcome().map(|()| Received::end());
            }
            bytes = reserve::vector(length - skipped)?;
            bytes.resize(length - skipped, 0);
            own.inbox.peek(skipped, &mut bytes);
        }
        match destination.put(&bytes) {
            0 => Err(Errno::EFAULT),
            byte_count => Ok(Received { byte_count, ..Received::default() }),
        }
    }

    /// Shuts halves without a word to the other side.
    pub(super) fn shut_quietly(&self, halves: crate::net::Halves) {
        let mut pair = self.pair();
        let own = &mut pair.sides[self.side];
        own.is_send_shut |= halves.sending;
        own.is_receive_shut |= halves.receiving;
    }
}
