//! Sending and receiving.
//!
//! Both are attempts that do not wait (`EAGAIN`). An attempt to send that answers `EAGAIN` has taken nothing from its
//! source and left the rights where they were, so that it can simply be made again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::endpoint::{Endpoint, Gather, Message, Step};
use super::socket::{Phase, Received, Sending, Socket, Wants};
use super::{Identity, MESSAGE_OVERHEAD_BYTES, SocketKind};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::step::{self, Transfer, TransferCaller};
use crate::fs::transfer::{Destination, Source, partial};
use crate::preempt::Pace;
use crate::reserve;

/// Bytes moved at a time.
const CHUNK_BYTES: usize = 4096;
/// Bytes moved where there are no more: clearing a whole chunk would cost more than all the rest.
const SMALL_BYTES: usize = 256;
/// The same for the shortest messages: a byte that wakes somebody, a number.
const TINY_BYTES: usize = 32;
/// Bytes of a stream that are sent whole or not at all, as one buffer of Linux's.
const WHOLE_BYTES: usize = (4096 - 320) + 32_768;
/// What of the buffer a single message cannot use.
const MESSAGE_RESERVE_BYTES: usize = 32;

impl Socket {
    /// Sends what `source` has: a part of it on a stream, all or nothing otherwise.
    ///
    /// # Errors
    /// `EAGAIN`, `EPIPE`, `ENOTCONN`, `ECONNREFUSED`, `EMSGSIZE`, `EFAULT`, `ENOBUFS`, `EPERM`, `EPROTOTYPE`;
    /// `EISCONN`, `EOPNOTSUPP`: a connection takes no address.
    pub fn send(&self, source: &mut dyn Source, sending: &mut Sending<'_>) -> Result<usize> {
        match self.kind {
            SocketKind::Stream => self.send_stream(source, sending),
            SocketKind::SeqPacket => {
                let peer = self.peer().ok_or(Errno::ENOTCONN)?;
                self.send_message(&peer, source, sending)
            }
            SocketKind::Datagram => match sending.target {
                Some(target) if target.kind != SocketKind::Datagram => Err(Errno::EPROTOTYPE),
                Some(target) => self.send_message(&target.endpoint, source, sending),
                None => {
                    let peer = self.peer().ok_or(Errno::ENOTCONN)?;
                    let outcome = self.send_message(&peer, source, sending);
                    if outcome == Err(Errno::ECONNREFUSED) {
                        self.forget_peer(&peer);
                    }
                    outcome
                }
            },
        }
    }

    /// An attempt of a send that may wait: on a stream until `source` is empty.
    pub fn send_step(
        &self,
        source: &mut dyn Source,
        sending: &mut Sending<'_>,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> step::Step {
        let outcome = self.send(source, sending).map(|count| (count, source.remaining() == 0));
        self.options().send_step(outcome, self.kind == SocketKind::Stream, transfer, caller)
    }

    /// An attempt of a receive that may wait, on a stream until it has `least` bytes; with what was received.
    pub fn receive_step(
        &self,
        destination: &mut dyn Destination,
        (wants, least): (&mut Wants, usize),
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> (step::Step, Received) {
        let outcome = match self.receive(destination, wants) {
            // As on Linux: a datagram may still come from a socket that does not know, so who does not wait is told so.
            Ok(received) if received.is_end && !transfer.may_wait && self.kind == SocketKind::Datagram => {
                Err(Errno::EAGAIN)
            }
            outcome => outcome,
        };
        let is_message = self.kind != SocketKind::Stream;
        let moved = outcome.as_ref().map(|received| (received.byte_count, is_message || received.is_final));
        let step = self.options().receive_step(moved.map_err(|error| *error), least, transfer, caller);
        (step, outcome.unwrap_or_default())
    }

    /// Sends all that `source` has on a stream by one copy that ends at a fault. `None`: that is not to be had now, or
    /// the bytes are to name their sender; nothing has been sent then.
    pub fn send_nofault(&self, source: &mut dyn Source) -> Option<usize> {
        let peer = {
            let state = self.state.lock();
            match &state.phase {
                Phase::Connected(peer) if !state.is_send_shut && self.kind == SocketKind::Stream => peer.clone(),
                _ => return None,
            }
        };
        let wanted = source.remaining();
        if wanted == 0 || self.wants_identity() || peer.wants_identity() {
            return None;
        }
        let granted = self.budget.take_some(wanted);
        if granted < wanted || !peer.push_nofault(source, wanted) {
            self.budget.give(granted);
            return None;
        }
        peer.queue.notify(Readiness::READ);
        Some(wanted)
    }

    /// Receives from a stream, for a caller that wants the bytes alone, by one copy that ends at a fault; `EAGAIN` if
    /// there is nothing. `None`: that cannot be done so now, and nothing has been received.
    pub fn receive_nofault(&self, destination: &mut dyn Destination) -> Option<Result<usize>> {
        let is_connected = matches!(self.state.lock().phase, Phase::Connected(_));
        if !is_connected || self.wants_identity() || destination.remaining() == 0 {
            return None;
        }
        self.endpoint.take_nofault(destination)
    }

    /// A datagram socket whose peer is closed talks to nobody.
    fn forget_peer(&self, peer: &Endpoint) {
        let mut state = self.state.lock();
        if matches!(&state.phase, Phase::Connected(current) if current.number == peer.number) {
            state.phase = Phase::Fresh;
            self.endpoint.set_peer(None);
        }
    }

    /// The identity that `peer` is told for the sender.
    fn told_identity(&self, peer: &Endpoint, sending: &Sending<'_>) -> Option<Identity> {
        let is_told = sending.is_identity_explicit || self.wants_identity() || peer.wants_identity();
        sending.identity.filter(|_| is_told)
    }

    fn send_stream(&self, source: &mut dyn Source, sending: &mut Sending<'_>) -> Result<usize> {
        if sending.target.is_some() {
            return Err(if self.peer().is_some() { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        let (peer, is_shut) = {
            let state = self.state.lock();
            let Phase::Connected(peer) = &state.phase else { return Err(Errno::ENOTCONN) };
            (peer.clone(), state.is_send_shut)
        };
        if is_shut || peer.is_shut() {
            return Err(Errno::EPIPE);
        }
        match source.remaining() {
            count if count <= TINY_BYTES => self.push_stream::<TINY_BYTES>(&peer, source, sending),
            count if count <= SMALL_BYTES => self.push_stream::<SMALL_BYTES>(&peer, source, sending),
            _ => self.push_stream::<CHUNK_BYTES>(&peer, source, sending),
        }
    }

    fn push_stream<const CHUNK: usize>(
        &self,
        peer: &Endpoint,
        source: &mut dyn Source,
        sending: &mut Sending<'_>,
    ) -> Result<usize> {
        let identity = self.told_identity(peer, sending);
        let mut bounce = [0; CHUNK];
        let (mut done, mut whole_end, mut pace) = (0, 0, Pace::default());
        let outcome = loop {
            let wanted = source.remaining().min(CHUNK);
            if wanted == 0 {
                break Ok(());
            }
            // Whether the bytes are there is asked once for what goes whole, before the first of it is seen.
            if wanted == CHUNK_BYTES && done == whole_end && source.remaining() > CHUNK_BYTES {
                let whole = source.remaining().min(WHOLE_BYTES);
                if !source.can_take(whole) {
                    break Err(Errno::EFAULT);
                }
                whole_end += whole;
            }
            let wanted = if done < whole_end { wanted.min(whole_end - done) } else { wanted };
            if done > 0
                && let Err(error) = pace.page_unless_killed()
            {
                break Err(error);
            }
            let granted = self.budget.take_some(wanted);
            if granted == 0 {
                break Err(Errno::EAGAIN);
            }
            let pushed = match source.take(&mut bounce[..granted]) {
                taken if taken < granted => Err(Errno::EFAULT),
                _ => peer.push_bytes(&bounce[..granted], identity, &mut sending.rights),
            };
            if let Err(error) = pushed {
                self.budget.give(granted);
                break Err(if error == Errno::ENOMEM { Errno::ENOBUFS } else { error });
            }
            done += granted;
        };
        if done > 0 {
            peer.queue.notify(Readiness::READ);
        }
        outcome.map(|()| done).or_else(|error| partial(done, error))
    }

    /// Most bytes of a datagram or record that its send buffer could hold.
    pub fn message_bytes_max(&self) -> usize {
        self.budget.limit_bytes().saturating_sub(MESSAGE_RESERVE_BYTES)
    }

    fn send_message(&self, peer: &Arc<Endpoint>, source: &mut dyn Source, sending: &mut Sending<'_>) -> Result<usize> {
        let length = source.remaining();
        if length > self.message_bytes_max() {
            return Err(Errno::EMSGSIZE);
        }
        if let Some(error) = self.endpoint.take_error() {
            return Err(error);
        }
        if self.state.lock().is_send_shut {
            return Err(Errno::EPIPE);
        }
        peer.promise(self.endpoint.number, &self.endpoint.queue).map_err(|error| match error {
            // A connection of records whose other end is closed is a broken pipe.
            Errno::ECONNREFUSED if self.kind == SocketKind::SeqPacket => Errno::EPIPE,
            error => error,
        })?;
        match self.compose(peer, source, sending) {
            Ok(message) => {
                peer.keep_promise(Some(message));
                Ok(length)
            }
            Err(error) => {
                peer.keep_promise(None);
                Err(error)
            }
        }
    }

    /// Makes a message of what `source` has.
    fn compose(&self, peer: &Endpoint, source: &mut dyn Source, sending: &mut Sending<'_>) -> Result<Message> {
        let length = source.remaining();
        let charge = self.budget.take_all(length + MESSAGE_OVERHEAD_BYTES).ok_or(Errno::EAGAIN)?;
        let bytes = take_all(source, length)?;
        let identity = self.told_identity(peer, sending);
        Ok(Message { bytes, identity, rights: sending.rights.take(), from: self.endpoint.address(), charge })
    }

    /// Receives what is there.
    ///
    /// # Errors
    /// `EAGAIN`; `EINVAL`, `ENOTCONN`: it is not connected; `ECONNRESET`, `EFAULT`, `ENOMEM`.
    pub fn receive(&self, destination: &mut dyn Destination, wants: &mut Wants) -> Result<Received> {
        match self.kind {
            SocketKind::Stream => self.receive_stream(destination, wants),
            SocketKind::SeqPacket if self.peer().is_none() => Err(Errno::ENOTCONN),
            _ if wants.is_peek => self.peek_message(destination),
            _ => self.receive_message(destination),
        }
    }

    fn receive_stream(&self, destination: &mut dyn Destination, wants: &mut Wants) -> Result<Received> {
        let peer = self.peer().ok_or(Errno::EINVAL)?;
        let most = destination.remaining().min(self.endpoint.stream_bytes()?);
        let mut received = match most {
            _ if most <= TINY_BYTES => self.take_stream::<TINY_BYTES>(destination, wants),
            _ if most <= SMALL_BYTES => self.take_stream::<SMALL_BYTES>(destination, wants),
            _ => self.take_stream::<CHUNK_BYTES>(destination, wants),
        }?;
        received.from = peer.address();
        received.message_bytes = received.byte_count;
        Ok(received)
    }

    fn take_stream<const CHUNK: usize>(
        &self,
        destination: &mut dyn Destination,
        wants: &mut Wants,
    ) -> Result<Received> {
        let gather = wants.gather.get_or_insert_with(|| Gather::new(wants.is_peek, self.wants_identity()));
        let mut bounce = [0; CHUNK];
        let (mut received, mut pace) = (Received::default(), Pace::default());
        let outcome = loop {
            let room = destination.remaining().min(CHUNK);
            if room == 0 && received.byte_count > 0 {
                break Ok(());
            }
            let count = match self.endpoint.take_bytes(&mut bounce[..room], gather) {
                Ok(Step::Bytes(count)) => count,
                Ok(Step::Barrier | Step::End | Step::Nothing) => {
                    received.is_final = true;
                    break Ok(());
                }
                Err(error) => {
                    // What was received comes first; the failure is for the next call.
                    if received.byte_count > 0 && error != Errno::EAGAIN {
                        self.endpoint.set_error(error);
                        received.is_final = true;
                    }
                    break Err(error);
                }
            };
            if destination.put(&bounce[..count]) < count {
                // As on Linux, none of it has been received then.
                if !wants.is_peek {
                    self.endpoint.untake_bytes(&bounce[..count], gather);
                }
                received.is_final = true;
                break Err(Errno::EFAULT);
            }
            received.byte_count += count;
            received.is_final = gather.is_final();
            if room == 0 || received.is_final || pace.page_unless_killed().is_err() {
                break Ok(());
            }
        };
        if !wants.is_peek {
            self.endpoint.settle(received.byte_count);
        }
        match outcome {
            Err(error) if received.byte_count == 0 => Err(error),
            _ => Ok(received),
        }
    }

    fn receive_message(&self, destination: &mut dyn Destination) -> Result<Received> {
        let Some(message) = self.endpoint.take_message()? else { return Ok(Received::end()) };
        let Message { bytes, identity, rights, from, charge } = message;
        drop(charge);
        let count = put_message(&bytes, destination)?;
        let message_bytes = bytes.len();
        Ok(Received { byte_count: count, message_bytes, identity, rights, from, is_final: true, is_end: false })
    }

    fn peek_message(&self, destination: &mut dyn Destination) -> Result<Received> {
        let Some(peeked) = self.endpoint.peek_message()? else { return Ok(Received::end()) };
        let count = put_message(&peeked.bytes, destination)?;
        Ok(Received {
            byte_count: count,
            message_bytes: peeked.bytes.len(),
            identity: peeked.identity,
            rights: peeked.rights,
            from: peeked.from,
            is_final: true,
            is_end: false,
        })
    }
}

/// Takes a whole message. `EFAULT`, `ENOBUFS`.
fn take_all(source: &mut dyn Source, length: usize) -> Result<Vec<u8>> {
    let mut bytes = reserve::vector(length).map_err(|_| Errno::ENOBUFS)?;
    bytes.resize(length, 0);
    if source.take(&mut bytes) < length { Err(Errno::EFAULT) } else { Ok(bytes) }
}

/// Puts what fits of a message. `EFAULT`.
fn put_message(bytes: &[u8], destination: &mut dyn Destination) -> Result<usize> {
    let count = bytes.len().min(destination.remaining());
    if destination.put(&bytes[..count]) < count { Err(Errno::EFAULT) } else { Ok(count) }
}
