//! Bytes of a TCP connection.
//!
//! Both ways are attempts that do not wait (`EAGAIN`). Bytes are copied once on each side: at once, under the
//! connection's lock, while the program's memory is at hand; else some at a time by way of the stack (INV-F1).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::connection::Link;
use super::engine::flow::Flow;
use super::remote;
use super::socket::{Received, Socket, Wants};
use super::tcp::{Phase, Tcp};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Destination, Source, partial};
use crate::preempt::Pace;
use crate::reserve;

/// Bytes that are moved under one lock.
const PIECE_BYTES_MAX: usize = 65_536;
/// Bytes that are moved by way of the stack.
const BOUNCE_BYTES: usize = 2048;

/// What a piece of a transfer came to.
enum Piece {
    /// So many bytes were moved.
    Moved(usize),
    /// The program's memory is not at hand for the next ones.
    Slow,
}

/// What a socket receives from.
enum Readable {
    Link(Link),
    Flow(Arc<Flow>),
    /// Nothing, for ever.
    End,
}

impl Socket {
    /// Sends on a connection what there is room for.
    pub(super) fn send_tcp(&self, tcp: &Tcp, source: &mut dyn Source) -> Result<usize> {
        let link = {
            let mut state = tcp.lock();
            match &state.phase {
                Phase::Connected(link) => link.clone(),
                Phase::Connecting(_) => return Err(Errno::EAGAIN),
                Phase::Remote(flow) => {
                    let flow = flow.clone();
                    drop(state);
                    return remote::send(&flow, source);
                }
                _ => return Err(state.error.take().unwrap_or(Errno::EPIPE)),
            }
        };
        let (mut done, mut pace) = (0, Pace::default());
        let outcome = loop {
            let step = match link.send_nofault(source) {
                Ok(Piece::Slow) => link.send_bounced(source),
                Ok(Piece::Moved(count)) => Ok(count),
                Err(error) => Err(error),
            };
            match step {
                Ok(count) => done += count,
                Err(error) => break Err(error),
            }
            if source.remaining() == 0 {
                break Ok(());
            }
            if let Err(error) = pace.page_unless_killed() {
                break Err(error);
            }
        };
        if done > 0 {
            link.tell_other(Readiness::READ);
            if let Err(error) = outcome {
                link.keep_error(error);
            }
        }
        outcome.map(|()| done).or_else(|error| partial(done, error))
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
            let may_send = pair.sides[link.side].may_send() && !pair.is_refused(link.side);
            if !may_send || pair.room(link.side) < wanted {
                return None;
            }
            let other = &mut pair.sides[1 - link.side];
            other.inbox.reserve(wanted).ok()?;
            if wanted > other.inbox.back_room() || !other.inbox.push_with(wanted, |room| source.take_nofault(room)) {
                return None;
            }
            other.note_received(wanted);
        }
        link.tell_other(Readiness::READ);
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
            Readable::Flow(flow) => return remote::read(&flow, destination),
            Readable::End => return Ok((0, true)),
        };
        let (mut done, mut pace) = (0, Pace::default());
        let error = loop {
            if destination.remaining() == 0 && done > 0 {
                return Ok((done, false));
            }
            let step = match link.receive_nofault(destination) {
                Ok(Piece::Slow) => link.receive_bounced(destination),
                Ok(Piece::Moved(count)) => Ok(count),
                Err(error) => Err(error),
            };
            match step {
                Ok(0) => return Ok((done, true)),
                Ok(count) => done += count,
                Err(error) => break error,
            }
            if pace.page_unless_killed().is_err() {
                return Ok((done, false));
            }
        };
        if done == 0 {
            return Err(error);
        }
        // What was received comes first. A failure is for the next call.
        if !matches!(error, Errno::EAGAIN | Errno::EFAULT | Errno::ENOMEM) {
            link.pair().sides[link.side].error = Some(error);
        }
        Ok((done, error != Errno::EAGAIN))
    }
}

impl Link {
    /// Sends what is at hand, up to a piece of it.
    fn send_nofault(&self, source: &mut dyn Source) -> Result<Piece> {
        let mut pair = self.pair();
        pair.sides[self.side].check_sender()?;
        let wanted = source.remaining();
        if wanted == 0 {
            return Ok(Piece::Moved(0));
        }
        if pair.is_refused(self.side) {
            drop(pair);
            let count = source.pass_over();
            self.reset();
            return Ok(Piece::Moved(count));
        }
        let granted = pair.room(self.side).min(wanted).min(PIECE_BYTES_MAX);
        if granted == 0 {
            return Err(Errno::EAGAIN);
        }
        let other = &mut pair.sides[1 - self.side];
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

    /// Sends some of what is not at hand.
    fn send_bounced(&self, source: &mut dyn Source) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let granted = {
            let mut pair = self.pair();
            let granted = pair.room(self.side).min(source.remaining()).min(BOUNCE_BYTES);
            if granted == 0 {
                return Err(Errno::EAGAIN);
            }
            pair.sides[1 - self.side].inbox.reserve(granted).map_err(|_| Errno::ENOBUFS)?;
            granted
        };
        let taken = source.take(&mut bounce[..granted]);
        let mut pair = self.pair();
        pair.sides[self.side].check_sender()?;
        if taken == 0 {
            return Err(Errno::EFAULT);
        }
        if pair.is_refused(self.side) {
            drop(pair);
            self.reset();
            return Ok(taken);
        }
        let other = &mut pair.sides[1 - self.side];
        other.inbox.reserve(taken).map_err(|_| Errno::ENOBUFS)?;
        other.inbox.push(&bounce[..taken]);
        other.note_received(taken);
        Ok(taken)
    }

    /// Receives what can be put at once, up to a piece of it. Nothing: the end.
    fn receive_nofault(&self, destination: &mut dyn Destination) -> Result<Piece> {
        let mut pair = self.pair();
        let other = 1 - self.side;
        let was_writable = pair.is_writable(other);
        let own = &mut pair.sides[self.side];
        if own.inbox.length() == 0 {
            return own.empty_outcome().map(|()| Piece::Moved(0));
        }
        let wanted = destination.remaining().min(own.inbox.length()).min(PIECE_BYTES_MAX);
        let mut done = 0;
        while done < wanted {
            let count = (wanted - done).min(own.inbox.front_length());
            if !own.inbox.front(count).is_some_and(|bytes| destination.put_nofault(bytes)) {
                break;
            }
            own.inbox.skip(count);
            done += count;
        }
        let makes_writable = !was_writable && pair.is_writable(other);
        drop(pair);
        if makes_writable {
            self.tell_other(Readiness::WRITE);
        }
        Ok(if done > 0 || wanted == 0 { Piece::Moved(done) } else { Piece::Slow })
    }

    /// Receives some of what cannot be put at once.
    fn receive_bounced(&self, destination: &mut dyn Destination) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let other = 1 - self.side;
        let (count, was_writable) = {
            let mut pair = self.pair();
            let was_writable = pair.is_writable(other);
            let own = &mut pair.sides[self.side];
            let count = own.inbox.length().min(destination.remaining()).min(BOUNCE_BYTES);
            if count == 0 {
                return own.empty_outcome().map(|()| 0);
            }
            own.inbox.pop(&mut bounce[..count]);
            (count, was_writable)
        };
        let put = destination.put(&bounce[..count]);
        let mut pair = self.pair();
        let own = &mut pair.sides[self.side];
        // There is room where they were, unless much has come in meanwhile and there is no memory.
        if put < count && own.inbox.reserve(count - put).is_ok() {
            own.inbox.unpop(&bounce[put..count]);
        }
        let makes_writable = !was_writable && pair.is_writable(other);
        drop(pair);
        if makes_writable {
            self.tell_other(Readiness::WRITE);
        }
        if put == 0 { Err(Errno::EFAULT) } else { Ok(put) }
    }

    /// Drops what is there, at most `limit` bytes of it (`MSG_TRUNC`).
    fn discard(&self, limit: usize) -> Result<Received> {
        let mut pair = self.pair();
        let other = 1 - self.side;
        let was_writable = pair.is_writable(other);
        let own = &mut pair.sides[self.side];
        if own.inbox.length() == 0 {
            return own.empty_outcome().map(|()| Received::end());
        }
        let byte_count = limit.min(own.inbox.length());
        own.inbox.skip(byte_count);
        let makes_writable = !was_writable && pair.is_writable(other);
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
            let length = own.inbox.length().min(skipped.saturating_add(destination.remaining()));
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
