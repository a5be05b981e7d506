//! One datagram of several sends (`MSG_MORE`, `UDP_CORK`), and several of one send (`UDP_SEGMENT`), as udp(7) has them.
//!
//! What waits for more is kept with where it is to go, which is what the first of the sends says; a failure drops it.
//! A socket that does neither is told by [`Udp::has_parts`], so it pays for one look.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::payload::Payload;
use super::settings::Setting;
use super::socket::{Sending, Socket};
use super::udp::{BYTES_MAX_V4, Corked, Udp};
use crate::error::{Errno, Result};
use crate::fs::transfer::Source;
use crate::reserve;

/// Most datagrams of one send (`UDP_MAX_SEGMENTS`).
const SEGMENT_COUNT_MAX: usize = 64;

/// A sender whose bytes were taken already does not wait for room.
fn no_room(error: Errno) -> Errno {
    if error == Errno::EAGAIN { Errno::ENOBUFS } else { error }
}

impl Socket {
    /// Sends what is, or may be, a part of a datagram or several.
    pub(super) fn send_parts(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        let has_more = sending.has_more || self.settings().is_on(Setting::DatagramCork);
        if !has_more && udp.corked.lock().is_none() {
            self.note_parts(udp);
            return self.send_cut(udp, source, sending);
        }
        udp.has_parts.store(true, Ordering::Relaxed);
        let length = source.remaining();
        let outcome = self.append(udp, source, sending);
        if let Err(error) = outcome {
            drop(udp.corked.lock().take());
            return Err(error);
        }
        if !has_more {
            self.send_corked(udp)?;
        }
        Ok(length)
    }

    /// Whether its next send may be a part, or several.
    fn note_parts(&self, udp: &Udp) {
        let settings = self.settings();
        let has_parts = settings.is_on(Setting::DatagramCork) || settings.is_on(Setting::DatagramSegmentBytes);
        udp.has_parts.store(has_parts || udp.corked.lock().is_some(), Ordering::Relaxed);
    }

    /// One of its options says something of parts: what has waited goes if nothing is to wait any more.
    ///
    /// # Errors
    /// Those of a datagram ([`Self::send`]).
    pub fn apply_parts(self: &Arc<Self>) -> Result<()> {
        let Some(udp) = self.udp() else { return Ok(()) };
        self.note_parts(udp);
        if self.settings().is_on(Setting::DatagramCork) { Ok(()) } else { self.send_corked(udp) }
    }

    fn append(&self, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<()> {
        let target = sending.target.or_else(|| udp.remote());
        if target.is_none() && udp.corked.lock().is_none() {
            return Err(Errno::EDESTADDRREQ);
        }
        let length = source.remaining();
        if length > BYTES_MAX_V4 {
            return Err(Errno::EMSGSIZE);
        }
        let part = Payload::take(source, length)?;
        let mut place = udp.corked.lock();
        let corked = match (&mut *place, target) {
            (Some(corked), _) => corked,
            (None, Some(target)) => place.insert(Corked { bytes: Vec::new(), target, way: sending.way }),
            (None, None) => return Err(Errno::EDESTADDRREQ),
        };
        if corked.bytes.len() + length > BYTES_MAX_V4 {
            return Err(Errno::EMSGSIZE);
        }
        reserve::reserve(&mut corked.bytes, length).map_err(|_| Errno::ENOBUFS)?;
        corked.bytes.extend_from_slice(&part);
        Ok(())
    }

    /// Sends what has waited for more.
    fn send_corked(self: &Arc<Self>, udp: &Udp) -> Result<()> {
        let corked = udp.corked.lock().take();
        self.note_parts(udp);
        let Some(Corked { bytes, target, way }) = corked else { return Ok(()) };
        let sending = Sending { target: Some(target), way, ..Sending::default() };
        self.send_cut(udp, &mut &bytes[..], &sending).map(|_| ()).map_err(no_room)
    }

    /// Sends a datagram, or as many as it is to be cut into.
    fn send_cut(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        let (length, own) = (source.remaining(), self.settings().get(Setting::DatagramSegmentBytes));
        let segment_bytes = match sending.way.segment_bytes {
            0 => usize::try_from(own).unwrap_or(0),
            bytes => usize::from(bytes),
        };
        if segment_bytes == 0 || length <= segment_bytes || length > BYTES_MAX_V4 {
            return self.send_one(udp, source, sending);
        }
        if length > segment_bytes * SEGMENT_COUNT_MAX {
            return Err(Errno::EINVAL);
        }
        let whole = Payload::take(source, length)?;
        for mut segment in whole.chunks(segment_bytes) {
            self.send_one(udp, &mut segment, sending).map_err(no_room)?;
        }
        Ok(length)
    }
}
