//! Bytes of a connection to another machine, to and from a program.
//!
//! As over loopback, bytes are copied at once under the flow's lock while the program's memory is at hand, else some at
//! a time by way of the stack (INV-F1). What was taken out of the engine and could not be given to the program is kept
//! in front of it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flow::{Body, Flow, Phase};
use crate::error::{Errno, Result};
use crate::fs::transfer::{Destination, Source};
use crate::net::inet::tcp_state::TcpState;
use crate::reserve;

/// Bytes that are moved under one lock.
const PIECE_BYTES_MAX: usize = 65_536;
/// Bytes that are moved by way of the stack.
const BOUNCE_BYTES: usize = 2048;

/// What a piece of a transfer came to.
pub(in super::super) enum Piece {
    /// So many bytes were moved.
    Moved(usize),
    /// The program's memory is not at hand for the next ones.
    Slow,
}

impl Body {
    /// What a sender is told that may not send, if it may not.
    fn check_sender(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Attempt(_)) {
            return Err(Errno::EAGAIN);
        }
        let may_send = matches!(self.state(), TcpState::Established | TcpState::CloseWait);
        if may_send && !self.is_send_shut && self.error.is_none() {
            return Ok(());
        }
        Err(self.error.take().unwrap_or(Errno::EPIPE))
    }

    /// What a receiver is told for whom there are no bytes; `Ok`: the end.
    fn empty_outcome(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Attempt(_)) {
            return Err(Errno::EAGAIN);
        }
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

    /// See [`super::Engine::reach`].
    fn reach(&mut self, has_some: bool) -> Option<usize> {
        match self.returned.len() {
            0 => self.engine_mut().map_or(Some(0), |engine| engine.reach(has_some)),
            kept => Some(kept),
        }
    }

    /// Has `take` take bytes from the front, at most `most`.
    fn drain(&mut self, most: usize, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let mut done = 0;
        if !self.returned.is_empty() {
            let wanted = self.returned.len().min(most);
            done = take(&self.returned[..wanted]).min(wanted);
            self.returned.drain(..done);
            if done < wanted || !self.returned.is_empty() {
                return done;
            }
            self.returned = Vec::new();
        }
        let left = most - done;
        let taken = match self.engine_mut() {
            Some(engine) if left > 0 => engine.drain(left, take),
            _ => 0,
        };
        if self.readable_bytes() == 0
            && let Phase::Over(engine) = &mut self.phase
        {
            *engine = None;
        }
        done + taken
    }
}

impl Flow {
    fn room(body: &mut Body) -> Result<usize> {
        body.check_sender()?;
        let room = body.engine().map_or(0, super::Engine::send_room);
        if room == 0 {
            body.is_awaited = true;
            return Err(Errno::EAGAIN);
        }
        Ok(room)
    }

    /// Puts bytes behind what is to be sent.
    fn fill(body: &mut Body, most: usize, now_ns: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize> {
        body.touched_ns = now_ns;
        body.engine_mut().map_or(Ok(0), |engine| engine.fill(most, fill))
    }

    /// Sends what is at hand, up to a piece of it.
    ///
    /// # Errors
    /// As [`crate::net::inet::Socket::send`].
    pub(in super::super) fn send_nofault(self: &Arc<Self>, source: &mut dyn Source) -> Result<Piece> {
        self.change(|body, now_ns| {
            let wanted = source.remaining();
            let room = Self::room(body);
            if wanted == 0 {
                return body.check_sender().map(|()| Piece::Moved(0));
            }
            let granted = room?.min(wanted).min(PIECE_BYTES_MAX);
            let mut take = |room: &mut [u8]| if source.take_nofault(room) { room.len() } else { 0 };
            let done = Self::fill(body, granted, now_ns, &mut take)?;
            Ok(if done > 0 { Piece::Moved(done) } else { Piece::Slow })
        })
    }

    /// Sends some of what is not at hand.
    ///
    /// # Errors
    /// As [`Self::send_nofault`]; `EFAULT`.
    pub(in super::super) fn send_bounced(self: &Arc<Self>, source: &mut dyn Source, is_urgent: bool) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let granted = Self::room(&mut self.body.lock())?.min(source.remaining()).min(BOUNCE_BYTES);
        let taken = source.take(&mut bounce[..granted]);
        if taken == 0 {
            return Err(Errno::EFAULT);
        }
        let is_last = source.remaining() == 0;
        self.change(|body, now_ns| {
            Self::room(body)?;
            let mut bytes = &bounce[..taken];
            let count = Self::fill(body, taken, now_ns, &mut |room| {
                let count = room.len().min(bytes.len());
                room[..count].copy_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                count
            })?;
            if let Some(engine) = body.engine_mut().filter(|engine| is_urgent && (is_last || engine.send_room() == 0)) {
                engine.mark_urgent();
            }
            Ok(count)
        })
    }

    /// Receives what can be put at once, up to a piece of it, in a call that `has_some` already. Nothing: the end, or a
    /// mark where a call ends that has some.
    ///
    /// # Errors
    /// As [`crate::net::inet::Socket::receive`].
    pub(in super::super) fn receive_nofault(
        self: &Arc<Self>,
        destination: &mut dyn Destination,
        has_some: bool,
    ) -> Result<Piece> {
        self.change(|body, now_ns| {
            let Some(reach) = body.reach(has_some) else { return Ok(Piece::Moved(0)) };
            if reach == 0 {
                return body.empty_outcome().map(|()| Piece::Moved(0));
            }
            body.touched_ns = now_ns;
            let wanted = destination.remaining().min(reach).min(PIECE_BYTES_MAX);
            let done = body.drain(wanted, &mut |bytes| if destination.put_nofault(bytes) { bytes.len() } else { 0 });
            Ok(if done > 0 || wanted == 0 { Piece::Moved(done) } else { Piece::Slow })
        })
    }

    /// Receives some of what cannot be put at once.
    ///
    /// # Errors
    /// As [`Self::receive_nofault`]; `EFAULT`.
    pub(in super::super) fn receive_bounced(self: &Arc<Self>, destination: &mut dyn Destination) -> Result<usize> {
        let mut bounce = [0; BOUNCE_BYTES];
        let count = self.change(|body, _| {
            let reach = body.reach(false).unwrap_or(0);
            let wanted = destination.remaining().min(reach).min(BOUNCE_BYTES);
            let mut done = 0;
            body.drain(wanted, &mut |bytes| {
                bounce[done..done + bytes.len()].copy_from_slice(bytes);
                done += bytes.len();
                bytes.len()
            });
            if done == 0 { body.empty_outcome().map(|()| 0) } else { Ok(done) }
        })?;
        let put = destination.put(&bounce[..count]);
        if put < count {
            self.change(|body, _| {
                // Bytes that there is no memory for are lost to this program, which cannot read them anyway.
                if let Ok(mut kept) = reserve::vector(count - put + body.returned.len()) {
                    kept.extend_from_slice(&bounce[put..count]);
                    kept.extend_from_slice(&body.returned);
                    body.returned = kept;
                }
            });
        }
        if put == 0 && count > 0 { Err(Errno::EFAULT) } else { Ok(put) }
    }

    /// Drops what is there, at most `limit` bytes of it (`MSG_TRUNC`). `None`: the end.
    ///
    /// # Errors
    /// As [`Self::receive_nofault`].
    pub(in super::super) fn discard(self: &Arc<Self>, limit: usize) -> Result<Option<usize>> {
        self.change(|body, _| {
            let reach = body.reach(false).unwrap_or(0);
            if reach == 0 {
                return body.empty_outcome().map(|()| None);
            }
            let byte_count = body.drain(limit.min(reach), &mut |bytes| bytes.len());
            Ok(Some(byte_count))
        })
    }

    /// Copies what is there behind the first `skipped` bytes, and leaves it there. `None`: the end.
    ///
    /// # Errors
    /// As [`Self::receive_bounced`]; `ENOMEM`.
    pub(in super::super) fn peek(&self, destination: &mut dyn Destination, skipped: usize) -> Result<Option<usize>> {
        let bytes = {
            let mut body = self.body.lock();
            // The urgent byte that a reader would pass over is not seen either.
            let kept = body.returned.len();
            let (hole, reach) = body.engine_mut().map_or((0, 0), |engine| {
                let all = engine.readable_bytes();
                let (urgent, read) = engine.urgent();
                let hole = usize::from(urgent.is_hole(read)).min(all);
                (hole, hole + urgent.reach(read + hole as u64, all - hole))
            });
            let skipped = if kept == 0 { skipped + hole } else { skipped };
            let length = (kept + reach).min(skipped.saturating_add(destination.remaining()));
            if length <= skipped {
                return body.empty_outcome().map(|()| None);
            }
            let mut bytes = reserve::vector(length - skipped)?;
            let front = body.returned.get(skipped..).unwrap_or_default();
            bytes.extend_from_slice(&front[..front.len().min(length - skipped)]);
            let (known, offset) = (bytes.len(), skipped.saturating_sub(body.returned.len()));
            bytes.resize(length - skipped, 0);
            let peeked = body.engine().map_or(0, |engine| engine.peek(offset, &mut bytes[known..]));
            bytes.truncate(known + peeked);
            bytes
        };
        match destination.put(&bytes) {
            0 => Err(Errno::EFAULT),
            byte_count => Ok(Some(byte_count)),
        }
    }
}
