//! Connections that this end makes: first segments, their repetition, what comes back (RFC 9293, 3.10.7.3).
//!
//! No engine exists until both ends have begun. Two ends that begin at the same time meet (3.5, figure 7).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;

use super::control::ControlBlock;
use super::flow::{Body, Flow, Knobs, Phase};
use super::handshake::{FIRST_TIMEOUT_NS, Offer, Own, segment_bytes_of};
use super::header::{Header, distance, flag};
use super::host::{Host, PortSharing};
use super::table::Entry;
use super::{Engine, Terms, Tuning};
use crate::error::{Errno, Result};
use crate::fs::readiness::WaitQueue;
use crate::net::inet::tcp_state::TcpState;

/// Where an attempt stands.
pub(super) struct Attempt {
    own: Own,
    own_first: u32,
    /// The other end has begun too, without an answer.
    met: Option<(u32, Offer)>,
    sent_ns: u64,
    sent_count: u32,
    /// When it was sent first.
    begun_ns: u64,
    /// It asks for a cookie, the first time (`MSG_FASTOPEN`).
    asks_cookie: bool,
}

/// What a program wants of a connection that begins, beside what it asks of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Wishes {
    pub(in super::super) sharing: PortSharing,
    /// `SO_RCVBUF` was asked for.
    pub(in super::super) is_receive_fixed: bool,
    /// Longest payload that is offered (`TCP_MAXSEG`).
    pub(in super::super) segment_bytes_max: u16,
    /// A cookie is asked for.
    pub(in super::super) asks_cookie: bool,
}

impl Attempt {
    pub(super) fn state(&self) -> TcpState {
        if self.met.is_some() { TcpState::SynReceived } else { TcpState::SynSent }
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        self.sent_ns + (FIRST_TIMEOUT_NS << self.sent_count.saturating_sub(1).min(7))
    }

    /// Whether a number is that of its first segment.
    pub(super) fn owns(&self, sequence: u32) -> bool {
        sequence == self.own_first
    }

    fn header(&self, now_ns: u64) -> Header {
        match &self.met {
            None => {
                let asks_cookie = self.asks_cookie && self.sent_count == 1;
                Header { asks_cookie, ..self.own.first_header(self.own_first, now_ns) }
            }
            Some((other_first, offer)) => {
                let offer = Offer { has_ecn: false, ..*offer };
                self.own.answer_header(self.own_first, *other_first, &offer, now_ns)
            }
        }
    }

    /// Whether an answer echoes a time that was never told (`tcp_rcv_synsent_state_process` of Linux).
    fn is_wrong_echo(&self, header: &Header, now_ns: u64) -> bool {
        let told = header.times.filter(|(_, echo)| *echo != 0 && header.has(flag::ACK));
        let Some((_, echo)) = told else { return false };
        let begun = self.own.time(self.begun_ns);
        echo.wrapping_sub(begun) > self.own.time(now_ns).wrapping_sub(begun)
    }

    fn terms(&self, (other_first, offer): (u32, &Offer), window_bytes: u32, now_ns: u64) -> Terms {
        let round_trip_ns = Some(now_ns.saturating_sub(self.sent_ns).max(1000)).filter(|_| self.sent_count == 1);
        let terms = self.own.terms((self.own_first, other_first), &Offer { has_ecn: false, ..*offer }, window_bytes);
        Terms { round_trip_ns, ..terms }
    }
}

/// Begins to connect. The two ends are the caller's by the tables of ports.
///
/// # Errors
/// `ENETUNREACH`, `EHOSTUNREACH`: no way leads there. `EADDRNOTAVAIL`: there is such a connection. `ENOMEM`.
pub(in super::super) fn begin(
    host: &Arc<dyn Host>,
    (local, remote): (SocketAddr, SocketAddr),
    queue: &Arc<WaitQueue>,
    (tuning, knobs, wishes): (&Tuning, &Knobs, Wishes),
) -> Result<Arc<Flow>> {
    crate::reserve::check()?;
    let (now_ns, tables) = (host.now_ns(), host.tables());
    let key = tables.key(local, remote);
    let packet_bytes = host.sender().packet_bytes_max(remote.ip());
    let own = Own {
        segment_bytes_max: segment_bytes_of(packet_bytes, remote).min(wishes.segment_bytes_max),
        receive_bytes_max: tuning.receive_bytes_max,
        is_receive_fixed: wishes.is_receive_fixed,
        time_offset: tables.time_offset(&key),
    };
    let own_first = tables.first_number(&key, now_ns);
    let (begun_ns, asks_cookie) = (now_ns, wishes.asks_cookie);
    let attempt = Attempt { own, own_first, met: None, sent_ns: now_ns, sent_count: 0, begun_ns, asks_cookie };
    let mut body = Body::new(Phase::Attempt(Box::new(attempt)), tuning, knobs, now_ns);
    body.sharing = wishes.sharing;
    let flow = Flow::new(host, key, true, queue, body);
    let is_free = |entry: Option<&Entry>| matches!(entry, None | Some(Entry::Remembered(_)));
    if !tables.put(key, Entry::Flow(flow.clone()), is_free) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let sent = flow.change(|body, now_ns| {
        let outcome = flow.send_attempt(body, now_ns);
        if outcome.is_err() {
            body.finish(None);
        }
        outcome
    });
    sent.map(|()| flow)
}

impl Flow {
    /// Sends its first segment, or sends it again.
    fn send_attempt(&self, body: &mut Body, now_ns: u64) -> Result<()> {
        let Phase::Attempt(attempt) = &mut body.phase else { return Ok(()) };
        (attempt.sent_ns, attempt.sent_count) = (now_ns, attempt.sent_count + 1);
        let header = attempt.header(now_ns);
        match self.send_header(body, &header) {
            Err(error) if error != Errno::ENOBUFS => Err(error),
            _ => Ok(()),
        }
    }

    /// Nothing has come back for as long as it waits.
    pub(super) fn poll_attempt(&self, body: &mut Body, now_ns: u64) {
        let Phase::Attempt(attempt) = &body.phase else { return };
        if now_ns < attempt.deadline_ns() {
            return;
        }
        if attempt.sent_count > body.knobs.attempt_count {
            return body.finish(Some(Errno::ETIMEDOUT));
        }
        if let Err(error) = self.send_attempt(body, now_ns) {
            body.finish(Some(error));
        }
    }

    /// A segment came in for an attempt.
    pub(super) fn arrive_attempt(&self, body: &mut Body, (header, payload): (&Header, &[u8]), now_ns: u64) {
        let Phase::Attempt(attempt) = &mut body.phase else { return };
        let is_acknowledged = header.has(flag::ACK) && header.acknowledgement == attempt.own_first.wrapping_add(1);
        let is_wrong = attempt.met.is_none() && attempt.is_wrong_echo(header, now_ns);
        if header.has(flag::ACK) && (!is_acknowledged || is_wrong) {
            if !header.has(flag::RST) {
                let refusal = Header { sequence: header.acknowledgement, flags: flag::RST, ..Header::default() };
                // The other end says it again if this is lost.
                let _ = self.send_header(body, &refusal);
            }
            return;
        }
        if header.has(flag::RST) {
            let is_expected = attempt.met.is_some_and(|(first, _)| header.sequence == first.wrapping_add(1));
            if is_acknowledged || is_expected {
                let is_refused = attempt.met.is_none();
                body.finish(Some(if is_refused { Errno::ECONNREFUSED } else { Errno::ECONNRESET }));
            }
            return;
        }
        let (other_first, offer) = match attempt.met {
            Some((first, offer)) if !header.has(flag::SYN) => (first, offer),
            _ if header.has(flag::SYN) => (header.sequence, Offer::of(header)),
            _ => return,
        };
        if !is_acknowledged {
            if header.has(flag::SYN) && attempt.met.is_none() {
                attempt.met = Some((other_first, offer));
                let answer = attempt.header(now_ns);
                // It is sent again when its time has come.
                let _ = self.send_header(body, &answer);
            }
            return;
        }
        let is_in_order = header.has(flag::SYN) || distance(header.sequence, other_first.wrapping_add(1)) == 0;
        if !is_in_order {
            return;
        }
        let shift = if header.has(flag::SYN) { 0 } else { offer.window_shift.unwrap_or(0) };
        let terms = attempt.terms((other_first, &offer), u32::from(header.window) << shift, now_ns);
        self.open(body, &terms, now_ns);
        self.with_engine(body, |engine, outlet| {
            // As on Linux, what goes with the answer is not taken, and comes again.
            if header.has(flag::SYN) {
                engine.acknowledge(now_ns, outlet);
            } else if !payload.is_empty() || header.has(flag::FIN) {
                engine.arrive(header, payload, now_ns, outlet);
            }
        });
    }

    /// It is established.
    pub(super) fn open(&self, body: &mut Body, terms: &Terms, now_ns: u64) {
        let mut engine = ControlBlock::new(terms, &body.tuning, now_ns);
        if body.is_send_shut {
            engine.close();
        }
        (body.phase, body.was_made) = (Phase::Open(Box::new(engine)), true);
    }
}
