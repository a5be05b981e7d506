//! An end of a connection as its socket moves bytes, and the loops that do it, over loopback and to other machines.
//!
//! A call moves bytes piece by piece: at once under the connection's lock while the program's memory is at hand, else
//! some by way of the stack (INV-F1). What ends a call after a part was done is told to the next one.
//!
//! Neighbours: `stream` has the end over loopback, `remote` that to another machine.

use super::engine::flow_bytes::Piece;
use crate::error::{Errno, Result};
use crate::fs::transfer::{Destination, Source, partial};
use crate::preempt::Pace;

/// Bytes that are taken of a program wholly or not at all, as Linux does: so much fits into one of its fragments.
const WHOLE_BYTES: usize = 32_768;

/// An end of a connection.
pub(super) trait End {
    /// Sends what is at hand, up to a piece of it.
    ///
    /// # Errors
    /// As [`super::Socket::send`].
    fn send_nofault(&self, source: &mut dyn Source) -> Result<Piece>;
    /// Sends some of what is not at hand.
    ///
    /// # Errors
    /// As [`Self::send_nofault`]; `EFAULT`.
    fn send_bounced(&self, source: &mut dyn Source) -> Result<usize>;
    /// Sends some bytes whose last one is urgent, once all of them or all that there is room for are sent.
    ///
    /// # Errors
    /// As [`Self::send_bounced`].
    fn send_urgent(&self, source: &mut dyn Source) -> Result<usize>;
    /// Bytes were sent in this call, which is over.
    fn note_sent(&self);
    /// Receives what can be put at once, up to a piece of it, in a call that `has_some` already. Nothing: the end, or a
    /// mark where a call ends that has some.
    ///
    /// # Errors
    /// As [`super::Socket::receive`].
    fn receive_nofault(&self, destination: &mut dyn Destination, has_some: bool) -> Result<Piece>;
    /// Receives some of what cannot be put at once.
    ///
    /// # Errors
    /// As [`Self::receive_nofault`]; `EFAULT`.
    fn receive_bounced(&self, destination: &mut dyn Destination) -> Result<usize>;
    /// A reset that a call met after a part was done is for the next call.
    fn keep_error(&self, error: Errno);
    /// An error that was met after bytes were received is for the next call.
    fn return_error(&self, error: Errno);

    /// The urgent byte, which is gone then unless this is a look (`MSG_OOB`). `None`: the end.
    ///
    /// # Errors
    /// `EINVAL`: there is none; `EAGAIN`: it is on its way.
    fn urgent_byte(&self, is_peek: bool) -> Result<Option<u8>>;
    /// Whether the next byte is an urgent one (`SIOCATMARK`).
    fn is_at_mark(&self) -> bool;
}

/// Sends what there is room for.
///
/// # Errors
/// As [`super::Socket::send`].
#[inline(always)]
pub(super) fn send(end: &impl End, source: &mut dyn Source, is_urgent: bool) -> Result<usize> {
    let (mut done, mut whole, mut pace) = (0, 0_usize, Pace::default());
    let outcome = loop {
        let step = if is_urgent { Ok(Piece::Slow) } else { end.send_nofault(source) };
        let step = match step {
            Ok(Piece::Slow) => send_slow(end, source, (done, &mut whole), is_urgent),
            Ok(Piece::Moved(count)) => Ok(count),
            Err(error) => Err(error),
        };
        match step {
            Ok(count) => (done, whole) = (done + count, whole.saturating_sub(count)),
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
        end.note_sent();
        if let Err(error) = outcome {
            end.keep_error(error);
        }
    }
    outcome.map(|()| done).or_else(|error| partial(done, error))
}

/// Sends some of what is not at hand, if all of what Linux takes at once can be read; `whole` bytes can.
#[cold]
fn send_slow(
    end: &impl End,
    source: &mut dyn Source,
    (done, whole): (usize, &mut usize),
    is_urgent: bool,
) -> Result<usize> {
    if *whole == 0 {
        let count = (WHOLE_BYTES - done % WHOLE_BYTES).min(source.remaining());
        if !source.can_take(count) {
            return Err(Errno::EFAULT);
        }
        *whole = count;
    }
    if is_urgent { end.send_urgent(source) } else { end.send_bounced(source) }
}

/// Receives what is there: how much, and whether none follows for this call.
///
/// # Errors
/// As [`super::Socket::receive`].
#[inline(always)]
pub(super) fn read(end: &impl End, destination: &mut dyn Destination) -> Result<(usize, bool)> {
    let (mut done, mut pace) = (0, Pace::default());
    let error = loop {
        if destination.remaining() == 0 && done > 0 {
            return Ok((done, false));
        }
        let step = match end.receive_nofault(destination, done > 0) {
            Ok(Piece::Slow) => end.receive_bounced(destination),
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
        end.return_error(error);
    }
    Ok((done, error != Errno::EAGAIN))
}
