//! What a socket asks of its flow: where it stands, what it is ready for, what went wrong, what is urgent.
//!
//! Nothing here makes the connection send, so nothing goes through [`Flow::change`]. Neighbour: [`super::flow`].

use super::flow::{Flow, Phase};
use super::{Engine, Report};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::net::inet::tcp_state::TcpState;

impl Flow {
    /// Whether it is established and not over.
    pub(in super::super) fn is_connected(&self) -> bool {
        matches!(self.body.lock().phase, Phase::Open(_))
    }

    /// Whether it is being made.
    pub(in super::super) fn is_attempt(&self) -> bool {
        matches!(self.body.lock().phase, Phase::Attempt(_))
    }

    pub(in super::super) fn state(&self) -> TcpState {
        self.body.lock().state()
    }

    pub(in super::super) fn take_error(&self) -> Option<Errno> {
        self.body.lock().error.take()
    }

    /// An error that a call met after a part was done is for the next call.
    pub(in super::super) fn keep_error(&self, error: Errno) {
        let mut body = self.body.lock();
        if error == Errno::ECONNRESET && body.is_over() {
            body.error.get_or_insert(error);
        }
    }

    /// An error that was met after bytes were received is for the next call.
    pub(in super::super) fn return_error(&self, error: Errno) {
        self.body.lock().error = Some(error);
    }

    /// What it is ready for.
    pub(in super::super) fn readiness(&self, low_water_bytes: usize) -> Readiness {
        let mut body = self.body.lock();
        let mut ready = Readiness::empty();
        if matches!(body.phase, Phase::Attempt(_)) {
            return ready;
        }
        let is_writable = body.is_writable();
        body.is_awaited |= !is_writable;
        ready.set(Readiness::HANG_UP, body.is_over() || body.is_receive_shut && body.is_send_shut);
        ready.set(Readiness::READ_HANG_UP, body.is_receive_shut);
        let (is_hole, is_urgent) = body.engine_mut().map_or((false, false), |engine| {
            let (urgent, read) = engine.urgent();
            (urgent.is_hole(read), urgent.is_there())
        });
        let wanted_bytes = low_water_bytes + usize::from(is_hole);
        ready.set(Readiness::READ, body.is_receive_shut || body.readable_bytes() >= wanted_bytes);
        ready.set(Readiness::PRIORITY, is_urgent);
        ready.set(Readiness::WRITE, body.is_send_shut || is_writable);
        ready.set(Readiness::ERROR, body.error.is_some());
        ready
    }

    pub(in super::super) fn report(&self) -> Option<Report> {
        self.body.lock().engine().map(Engine::report)
    }

    /// Bytes that can be read.
    pub(in super::super) fn readable_bytes(&self) -> usize {
        let mut body = self.body.lock();
        let (kept, all) = (body.returned.len(), body.readable_bytes());
        body.engine_mut().map_or(all, |engine| {
            let (urgent, read) = engine.urgent();
            kept + urgent.told_bytes(read, all - kept)
        })
    }

    /// The urgent byte, which is gone then unless this is a look (`MSG_OOB`). `None`: the end.
    ///
    /// # Errors
    /// `EINVAL`: there is none; `EAGAIN`: it is on its way.
    pub(in super::super) fn urgent_byte(&self, is_peek: bool) -> Result<Option<u8>> {
        let mut body = self.body.lock();
        let has_ended = body.has_seen_end || body.is_receive_shut;
        let Some(engine) = body.engine_mut() else { return Err(Errno::EINVAL) };
        match engine.urgent().0.take(is_peek)? {
            None if !has_ended => Err(Errno::EAGAIN),
            byte => Ok(byte),
        }
    }

    /// Whether the next byte is an urgent one (`SIOCATMARK`).
    pub(in super::super) fn is_at_mark(&self) -> bool {
        let mut body = self.body.lock();
        body.returned.is_empty()
            && body.engine_mut().is_some_and(|engine| {
                let (urgent, read) = engine.urgent();
                urgent.is_at(read)
            })
    }

    /// Bytes that were given and not acknowledged.
    pub(in super::super) fn unacknowledged_bytes(&self) -> usize {
        self.body.lock().engine().map_or(0, |engine| engine.unacknowledged_bytes().0)
    }

    /// How connecting stands: `None`: it goes on; an error: it failed, and was not told yet.
    pub(in super::super) fn outcome(&self) -> Option<Result<()>> {
        let mut body = self.body.lock();
        match &body.phase {
            Phase::Attempt(_) => None,
            Phase::Open(_) => Some(Ok(())),
            Phase::Over(_) if body.was_made => Some(body.error.take().map_or(Ok(()), Err)),
            Phase::Over(_) => Some(Err(body.error.take().unwrap_or(Errno::ECONNABORTED))),
        }
    }

    /// Whether its socket is closed and the other end has not acknowledged all, the end included (`SO_LINGER`).
    pub(in super::super) fn is_lingering(&self) -> bool {
        self.body.lock().is_lingering()
    }

    /// Whether it is or was a connection.
    pub(in super::super) fn was_made(&self) -> bool {
        self.body.lock().was_made
    }
}
