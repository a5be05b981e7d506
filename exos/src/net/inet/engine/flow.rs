//! A connection to another machine: an engine under a lock, and what sockets and time do to it.
//!
//! Every step goes through [`Flow::change`]: it is made under the lock, what is due is sent, the end is noticed, the
//! next appointment is made, and then, without the lock, the card is told and waiters are woken. States and errors are
//! those of tcp(7); neighbours: `attempt` makes connections, `flow_bytes` moves bytes, `input` brings segments.
//!
//! Invariants: a flow that is over is in no table and has no appointment; its engine is kept while there is something
//! to read. What the card has no room for is kept as one segment, and nothing more is sent before it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;

use super::attempt::Attempt;
use super::control::ControlBlock;
use super::handshake::{TIMES_BYTES, segment_bytes_of};
use super::header::{CHECKSUM_OFFSET_BYTES, HEADER_BYTES_MAX, Header, ecn, flag};
use super::host::{Host, PortRelease, PortSharing};
use super::remembered::{REMEMBERED_NS, Remembered};
use super::table::{Appointment, Due, Entry, Key, ORPHAN_COUNT_MAX};
use super::{Engine, Outlet, Terms, Tuning, Verdict};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::net::Halves;
use crate::net::inet::tcp_state::TcpState;
use crate::net::inet::wire::Segment;
use crate::reserve;
use crate::sync::{Mutex, MutexGuard};

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// How long something is sent again without an answer (15 times, `tcp_retries2`).
const STALL_NS: u64 = 924_000_000_000;
/// The same of a connection whose socket is closed (8 times).
const STALL_ORPHAN_NS: u64 = 102_000_000_000;
/// After this long without a segment or a call a connection gives memory back.
const REST_NS: u64 = 1_000_000_000;
/// When the card is asked again that had no room.
const ROOM_RETRY_NS: u64 = 500_000;

/// What a program asks of a connection beside its engine's tuning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Knobs {
    pub(in super::super) hop_limit: u8,
    pub(in super::super) traffic_class: u8,
    /// Keep-alive: after how long, how often, how many times.
    pub(in super::super) keep: Option<(u64, u64, u32)>,
    /// `TCP_USER_TIMEOUT`; 0: none.
    pub(in super::super) user_timeout_ns: u64,
    /// How long a closed socket's connection waits for the other end's end.
    pub(in super::super) end_timeout_ns: u64,
    /// Times that a first segment is sent again (`TCP_SYNCNT`).
    pub(in super::super) attempt_count: u32,
}

/// Where a flow is.
pub(super) enum Phase {
    /// It is being made by this end.
    Attempt(Box<Attempt>),
    Open(Box<dyn Engine>),
    /// It has ended; the engine has what was not read.
    Over(Option<Box<dyn Engine>>),
}

/// What is under a flow's lock.
pub(super) struct Body {
    pub(super) phase: Phase,
    /// Nothing more comes in, or none is wanted.
    pub(super) is_receive_shut: bool,
    pub(super) is_send_shut: bool,
    /// The program said that it receives no more.
    pub(super) refuses: bool,
    pub(super) has_seen_end: bool,
    /// Its socket is closed.
    pub(super) is_gone: bool,
    pub(super) error: Option<Errno>,
    pub(super) tuning: Tuning,
    pub(super) knobs: Knobs,
    /// Bytes that were taken for a program and could not be given to it.
    pub(super) returned: Vec<u8>,
    /// It was established.
    pub(super) was_made: bool,
    /// A program found no room, so it is told when there is.
    pub(super) is_awaited: bool,
    release: Option<PortRelease>,
    pub(super) sharing: PortSharing,
    /// A segment that the card had no room for.
    stalled: Option<Vec<u8>>,
    stalled_header_bytes: usize,
    has_sent: bool,
    appointment: Option<Appointment>,
    last_arrival_ns: u64,
    pub(super) touched_ns: u64,
    probe_count: u32,
    half_closed_ns: Option<u64>,
    received_bytes: u64,
}

/// A connection.
pub(in super::super) struct Flow {
    pub(super) host: Arc<dyn Host>,
    pub(super) key: Key,
    /// This end was the one that connected.
    is_active: bool,
    queue: Arc<WaitQueue>,
    pub(super) body: Mutex<Body>,
}

/// What a step is compared with.
#[derive(Clone, Copy)]
pub(super) struct Before {
    is_writable: bool,
    received_bytes: u64,
    has_seen_end: bool,
    is_over: bool,
    is_attempt: bool,
}

/// Sends for a flow whose lock is held.
struct Sender<'a> {
    flow: &'a Flow,
    knobs: Knobs,
    stalled: &'a mut Option<Vec<u8>>,
    stalled_header_bytes: &'a mut usize,
    has_sent: &'a mut bool,
    is_too_long: &'a mut bool,
}

impl Outlet for Sender<'_> {
    fn has_room(&self) -> bool {
        self.stalled.is_none()
    }

    fn send(&mut self, header: &Header, payload: [&[u8]; 2]) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let byte_count = self.flow.write_header(header, &mut bytes);
        *self.has_sent = true;
        let knobs = Knobs { traffic_class: self.knobs.traffic_class & !ecn::MASK | header.congestion, ..self.knobs };
        let outcome = self.flow.send_segment(&bytes[..byte_count], &payload, &knobs);
        *self.is_too_long |= outcome == Err(Errno::EMSGSIZE);
        if outcome == Err(Errno::ENOBUFS)
            && self.stalled.is_none()
            && let Ok(mut kept) = reserve::vector(byte_count + payload[0].len() + payload[1].len())
        {
            kept.extend_from_slice(&bytes[..byte_count]);
            payload.iter().for_each(|piece| kept.extend_from_slice(piece));
            (*self.stalled, *self.stalled_header_bytes) = (Some(kept), byte_count);
        }
    }

    fn note_repetition(&mut self) {
        self.flow.host.note_repetition();
    }
}

impl Body {
    pub(super) fn new(phase: Phase, tuning: &Tuning, knobs: &Knobs, now_ns: u64) -> Self {
        Self {
            phase,
            is_receive_shut: false,
            is_send_shut: false,
            refuses: false,
            has_seen_end: false,
            is_gone: false,
            error: None,
            tuning: *tuning,
            knobs: *knobs,
            returned: Vec::new(),
            was_made: false,
            is_awaited: false,
            release: None,
            sharing: PortSharing::default(),
            stalled: None,
            stalled_header_bytes: 0,
            has_sent: false,
            appointment: None,
            last_arrival_ns: now_ns,
            touched_ns: now_ns,
            probe_count: 0,
            half_closed_ns: None,
            received_bytes: 0,
        }
    }

    pub(super) fn engine(&self) -> Option<&dyn Engine> {
        match &self.phase {
            Phase::Open(engine) | Phase::Over(Some(engine)) => Some(&**engine),
            Phase::Attempt(_) | Phase::Over(None) => None,
        }
    }

    pub(super) fn engine_mut(&mut self) -> Option<&mut dyn Engine> {
        match &mut self.phase {
            Phase::Open(engine) | Phase::Over(Some(engine)) => Some(&mut **engine),
            Phase::Attempt(_) | Phase::Over(None) => None,
        }
    }

    pub(super) fn state(&self) -> TcpState {
        match &self.phase {
            Phase::Attempt(attempt) => attempt.state(),
            Phase::Open(engine) => engine.state(),
            Phase::Over(_) => TcpState::Close,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Bytes that can be read.
    pub(super) fn readable_bytes(&self) -> usize {
        self.returned.len() + self.engine().map_or(0, Engine::readable_bytes)
    }

    /// Whether a third of what may be kept is free.
    pub(super) fn is_writable(&self) -> bool {
        match &self.phase {
            Phase::Open(engine) => engine.is_writable(),
            _ => false,
        }
    }

    /// The connection is over, for a reason if there is one.
    pub(super) fn finish(&mut self, error: Option<Errno>) {
        let phase = core::mem::replace(&mut self.phase, Phase::Over(None));
        if let Phase::Open(engine) | Phase::Over(Some(engine)) = phase
            && engine.readable_bytes() > 0
            && !self.is_gone
        {
            self.phase = Phase::Over(Some(engine));
        }
        self.error = error.or(self.error);
        (self.is_receive_shut, self.is_send_shut) = (true, true);
    }
}

impl Flow {
    pub(super) fn new(
        host: &Arc<dyn Host>,
        key: Key,
        is_active: bool,
        queue: &Arc<WaitQueue>,
        body: Body,
    ) -> Arc<Self> {
        Arc::new(Self { host: host.clone(), key, is_active, queue: queue.clone(), body: Mutex::new(body) })
    }

    /// One that came in.
    pub(in super::super) fn accepted(
        host: &Arc<dyn Host>,
        key: Key,
        queue: &Arc<WaitQueue>,
        terms: &Terms,
        (tuning, knobs, sharing): (&Tuning, &Knobs, PortSharing),
    ) -> Arc<Self> {
        let now_ns = host.now_ns();
        let engine = Box::new(ControlBlock::new(terms, tuning, now_ns));
        let mut body = Body::new(Phase::Open(engine), tuning, knobs, now_ns);
        (body.was_made, body.sharing) = (true, sharing);
        Self::new(host, key, false, queue, body)
    }

    pub(in super::super) fn remote(&self) -> SocketAddr {
        self.key.remote
    }

    fn before(body: &Body) -> Before {
        Before {
            is_writable: body.is_writable(),
            received_bytes: body.received_bytes,
            has_seen_end: body.has_seen_end,
            is_over: body.is_over(),
            is_attempt: matches!(body.phase, Phase::Attempt(_)),
        }
    }

    /// Makes a step; see the module's head.
    pub(super) fn change<T>(self: &Arc<Self>, act: impl FnOnce(&mut Body, u64) -> T) -> T {
        let now_ns = self.host.now_ns();
        let mut body = self.body.lock();
        let before = Self::before(&body);
        let answer = act(&mut body, now_ns);
        self.conclude(body, &before, now_ns);
        answer
    }

    /// The end of a step.
    fn conclude(self: &Arc<Self>, mut body: MutexGuard<'_, Body>, before: &Before, now_ns: u64) {
        let events = self.settle(&mut body, before, now_ns);
        let has_sent = core::mem::take(&mut body.has_sent);
        let has_urgent_news = body.engine_mut().is_some_and(Engine::take_urgent_news);
        drop(body);
        if has_sent {
            self.host.sender().flush();
        }
        if has_urgent_news {
            // Alone, because the socket's owner is told of nothing else.
            self.queue.notify(Readiness::PRIORITY);
        }
        if !events.is_empty() {
            self.queue.notify(events);
        }
    }

    /// Does something with the engine of an open flow that may make it send.
    pub(super) fn with_engine<T>(
        &self,
        body: &mut Body,
        act: impl FnOnce(&mut dyn Engine, &mut dyn Outlet) -> T,
    ) -> Option<T> {
        let Body { phase: Phase::Open(engine), stalled, stalled_header_bytes, has_sent, knobs, .. } = body else {
            return None;
        };
        let mut too_long = false;
        let is_too_long = &mut too_long;
        let mut sender = Sender { flow: self, knobs: *knobs, stalled, stalled_header_bytes, has_sent, is_too_long };
        let answer = act(&mut **engine, &mut sender);
        if too_long {
            // What was too long is lost, and sent again in shorter ones.
            let packet_bytes = self.host.sender().packet_bytes_max(self.key.remote.ip());
            let options_bytes = if engine.times().is_some() { TIMES_BYTES } else { 0 };
            engine.set_segment_bytes_max(segment_bytes_of(packet_bytes, self.key.remote) - options_bytes);
        }
        Some(answer)
    }

    fn write_header(&self, header: &Header, into: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let (source_port, destination_port) = (self.key.local.port(), self.key.remote.port());
        Header { source_port, destination_port, ..*header }.emit(into)
    }

    fn send_segment(&self, header: &[u8], payload: &[&[u8]], knobs: &Knobs) -> Result<()> {
        self.host.sender().send_segment(&Segment {
            source: self.key.local.ip(),
            destination: self.key.remote.ip(),
            protocol: TCP,
            header,
            checksum_offset_bytes: Some(CHECKSUM_OFFSET_BYTES),
            payload,
            segment_bytes: 0,
            hop_limit: knobs.hop_limit,
            traffic_class: knobs.traffic_class,
            is_whole: true,
        })
    }

    /// Sends a segment without bytes.
    pub(super) fn send_header(&self, body: &mut Body, header: &Header) -> Result<()> {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let byte_count = self.write_header(header, &mut bytes);
        body.has_sent = true;
        self.send_segment(&bytes[..byte_count], &[], &body.knobs)
    }

    /// Ends it with a reset.
    pub(super) fn abort(&self, body: &mut Body, error: Option<Errno>) {
        if let Phase::Open(engine) = &body.phase {
            let header = engine.reset_header();
            // A reset that is lost is made up for by the answer to the next segment.
            let _ = self.send_header(body, &header);
        }
        body.finish(error);
    }

    /// What follows from a step.
    fn settle(self: &Arc<Self>, body: &mut Body, before: &Before, now_ns: u64) -> Readiness {
        if let Some(kept) = body.stalled.take() {
            let (header, payload) = kept.split_at(body.stalled_header_bytes.min(kept.len()));
            body.has_sent = true;
            if self.send_segment(header, &[payload], &body.knobs) == Err(Errno::ENOBUFS) {
                body.stalled = Some(kept);
            }
        }
        self.with_engine(body, |engine, outlet| engine.transmit(now_ns, outlet));
        let mut events = Readiness::empty();
        if let Phase::Open(engine) = &body.phase {
            let (state, seen, received) = (engine.state(), engine.has_seen_end(), engine.received_bytes());
            (body.received_bytes, body.has_seen_end) = (received, seen);
            body.is_receive_shut |= seen;
            if state == TcpState::FinWait2 {
                body.half_closed_ns.get_or_insert(now_ns);
            }
            match state {
                TcpState::TimeWait => {
                    self.remember(body, now_ns);
                    body.finish(None);
                }
                TcpState::Close => body.finish(None),
                _ => {}
            }
        }
        if body.received_bytes != before.received_bytes {
            // What waits for urgent data looks again at any.
            events |= Readiness::READ | Readiness::PRIORITY;
        }
        if body.has_seen_end && !before.has_seen_end {
            events |= Readiness::READ | Readiness::READ_HANG_UP;
        }
        if !before.is_writable && body.is_writable() && (body.is_awaited || before.is_attempt) {
            body.is_awaited = false;
            events |= Readiness::WRITE;
        }
        // A thread may wait in `close` for this.
        events.set(Readiness::HANG_UP, body.is_gone && !body.is_lingering());
        if body.is_over() {
            if !before.is_over {
                events |= Readiness::EVENTS.difference(Readiness::PRIORITY);
                events.set(Readiness::ERROR, body.error.is_some());
                self.leave(body);
            }
            if body.is_gone {
                body.release.take().into_iter().for_each(|release| release());
            }
        } else {
            self.appoint(body, now_ns);
        }
        events
    }

    /// Leaves the tables.
    fn leave(self: &Arc<Self>, body: &mut Body) {
        body.stalled = None;
        let tables = self.host.tables();
        if let Some(appointment) = body.appointment.take() {
            tables.cancel(appointment);
        }
        if body.is_gone {
            tables.orphan_count().fetch_sub(1, Ordering::Relaxed);
        }
        let was_there = tables.remove(&self.key, |entry| matches!(entry, Entry::Flow(flow) if Arc::ptr_eq(flow, self)));
        if was_there.is_some() {
            self.host.end(self.ends(), None);
        }
    }

    /// The ends as tables of ports have them: the one that connected first.
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        let (local, remote) = (self.key.local, self.key.remote);
        if self.is_active { (local, remote) } else { (remote, local) }
    }

    /// Leaves an entry behind that answers what is still under way.
    fn remember(self: &Arc<Self>, body: &Body, now_ns: u64) {
        let (Some(engine), tables) = (body.engine(), self.host.tables()) else { return };
        if !tables.has_room_remembered() {
            return;
        }
        let header = engine.reset_header();
        let until_ns = now_ns + REMEMBERED_NS;
        let entry = Remembered {
            send_next: header.sequence,
            receive_next: header.acknowledgement,
            window: header.window,
            times: engine.times(),
            until_ns,
            answers_from_ns: 0,
        };
        let is_own = |entry: Option<&Entry>| matches!(entry, Some(Entry::Flow(flow)) if Arc::ptr_eq(flow, self));
        if tables.put(self.key, Entry::Remembered(Box::new(entry)), is_own) {
            self.host.appoint(until_ns, Due::Entry(self.key), None);
            self.host.end(self.ends(), Some((self.key.local, body.sharing)));
        }
    }

    /// When something is due that time alone brings.
    fn deadline_ns(body: &mut Body, now_ns: u64) -> Option<u64> {
        let room = body.stalled.as_ref().map(|_| now_ns + ROOM_RETRY_NS);
        let stall_ns = body.stall_limit_ns();
        let end = body.half_closed_ns.filter(|_| body.is_gone).map(|since| since + body.knobs.end_timeout_ns);
        let probe = body.probe_at_ns();
        let rest = body.touched_ns + REST_NS;
        match &mut body.phase {
            Phase::Attempt(attempt) => Some(attempt.deadline_ns()),
            Phase::Over(_) => None,
            Phase::Open(engine) => {
                let stall = body_stall(&**engine, body.is_gone).map(|since| since + stall_ns);
                let due = engine.deadline_ns(now_ns).filter(|_| room.is_none());
                let rest = Some(rest).filter(|_| !engine.is_at_rest() && rest > now_ns);
                [due, room, stall, end, probe, rest].into_iter().flatten().min()
            }
        }
    }

    fn appoint(self: &Arc<Self>, body: &mut Body, now_ns: u64) {
        let Some(deadline_ns) = Self::deadline_ns(body, now_ns) else { return };
        if body.appointment.is_some_and(|appointment| appointment.0 <= deadline_ns) {
            return;
        }
        let due = Due::Flow(Arc::downgrade(self));
        body.appointment = Some(self.host.appoint(deadline_ns, due, body.appointment));
    }

    /// Its appointment has come.
    pub(super) fn poll(self: &Arc<Self>) {
        self.change(|body, now_ns| {
            body.appointment = None;
            match &body.phase {
                Phase::Attempt(_) => self.poll_attempt(body, now_ns),
                Phase::Open(_) => self.poll_open(body, now_ns),
                Phase::Over(_) => {}
            }
        });
    }

    fn poll_open(&self, body: &mut Body, now_ns: u64) {
        let (limit_ns, end_timeout_ns) = (body.stall_limit_ns(), body.knobs.end_timeout_ns);
        let Phase::Open(engine) = &mut body.phase else { return };
        if body_stall(&**engine, body.is_gone).is_some_and(|since| since + limit_ns <= now_ns) {
            return body.finish(Some(Errno::ETIMEDOUT));
        }
        if body.is_gone && body.half_closed_ns.is_some_and(|since| since + end_timeout_ns <= now_ns) {
            return body.finish(None);
        }
        if body.touched_ns + REST_NS <= now_ns {
            engine.rest();
        }
        if body.probe_at_ns().is_some_and(|at| at <= now_ns) {
            let most = body.knobs.keep.map_or(0, |keep| keep.2);
            if body.probe_count >= most {
                return self.abort(body, Some(Errno::ETIMEDOUT));
            }
            body.probe_count += 1;
            self.with_engine(body, |engine, outlet| engine.probe(now_ns, outlet));
        }
    }

    /// A segment came in for it: the first part of a step, of which [`Self::finish_arrivals`] is the last, so that what
    /// comes at a time is answered at once. `before` is as the step began. Whether more may come before its last part.
    pub(super) fn arrive(self: &Arc<Self>, before: &mut Option<Before>, header: &Header, payload: &[u8]) -> bool {
        let now_ns = self.host.now_ns();
        let mut body = self.body.lock();
        let is_open = matches!(body.phase, Phase::Open(_));
        before.get_or_insert_with(|| Self::before(&body));
        if matches!(body.phase, Phase::Attempt(_)) {
            self.arrive_attempt(&mut body, (header, payload), now_ns);
        } else {
            self.arrive_open(&mut body, header, payload, now_ns);
        }
        is_open && !body.is_over()
    }

    /// The last part of a step that segments began.
    pub(super) fn finish_arrivals(self: &Arc<Self>, before: &Before) {
        let now_ns = self.host.now_ns();
        self.conclude(self.body.lock(), before, now_ns);
    }

    fn arrive_open(&self, body: &mut Body, header: &Header, payload: &[u8], now_ns: u64) {
        let arrived = self.with_engine(body, |engine, outlet| {
            let before = engine.received_bytes();
            let verdict = engine.arrive(header, payload, now_ns, outlet);
            (verdict, engine.received_bytes() != before)
        });
        let Some((verdict, has_bytes)) = arrived else { return };
        (body.last_arrival_ns, body.touched_ns, body.probe_count) = (now_ns, now_ns, 0);
        if verdict == Verdict::Reset {
            let is_closing = body.state() == TcpState::CloseWait;
            let error = if is_closing { Errno::EPIPE } else { Errno::ECONNRESET };
            return body.finish(Some(error));
        }
        // Bytes for nobody: the other end is told so.
        if has_bytes && (body.is_gone || body.refuses && body.is_send_shut) {
            if let Some(refusal) = refusal(header, payload.len()) {
                // If it is lost, what comes next finds nobody, and is refused.
                let _ = self.send_header(body, &refusal);
            }
            body.finish(Some(Errno::ECONNRESET));
        }
    }

    /// ICMP says something of a segment that was sent, whose number is `sequence`. Whether it was under way.
    pub(super) fn complain(self: &Arc<Self>, sequence: u32, errno: Errno, path: Option<u16>) -> bool {
        self.change(|body, _| {
            match &mut body.phase {
                Phase::Attempt(attempt) if attempt.owns(sequence) => {
                    if path.is_none() {
                        body.finish(Some(errno));
                    }
                    true
                }
                Phase::Open(engine) if engine.is_under_way(sequence) => {
                    // Anything else is no reason to end what works.
                    let options_bytes = if engine.times().is_some() { TIMES_BYTES } else { 0 };
                    path.into_iter()
                        .for_each(|bytes| engine.set_segment_bytes_max(bytes.saturating_sub(options_bytes)));
                    true
                }
                _ => false,
            }
        })
    }

    /// Ends one half or both.
    ///
    /// # Errors
    /// `ENOTCONN`: there is no connection any more.
    pub(in super::super) fn shutdown(self: &Arc<Self>, halves: Halves) -> Result<()> {
        let (outcome, events) = self.change(|body, _| {
            let was_over = body.is_over();
            body.is_receive_shut |= halves.receiving;
            body.refuses |= halves.receiving;
            if halves.sending && !body.is_send_shut {
                body.is_send_shut = true;
                if let Phase::Open(engine) = &mut body.phase {
                    engine.close();
                }
            }
            let mut events = Readiness::ALWAYS;
            events.set(Readiness::READ_HANG_UP, body.is_receive_shut);
            events.set(Readiness::HANG_UP, body.is_receive_shut && body.is_send_shut);
            (if was_over { Err(Errno::ENOTCONN) } else { Ok(()) }, events)
        });
        self.queue.notify(events);
        outcome
    }

    /// Its socket is closed, at once with a reset if `resets`; `release` gives its port back.
    pub(in super::super) fn close(self: &Arc<Self>, resets: bool, release: Option<PortRelease>, sharing: PortSharing) {
        self.change(|body, _| {
            let has_unread = body.readable_bytes() > 0;
            (body.release, body.sharing) = (release, sharing);
            if body.is_over() {
                (body.is_gone, body.phase) = (true, Phase::Over(None));
                return;
            }
            let count = self.host.tables().orphan_count().fetch_add(1, Ordering::Relaxed);
            body.is_gone = true;
            (body.is_receive_shut, body.is_send_shut) = (true, true);
            body.returned = Vec::new();
            if has_unread || resets || count >= ORPHAN_COUNT_MAX {
                return self.abort(body, None);
            }
            match &mut body.phase {
                Phase::Attempt(_) => body.finish(None),
                Phase::Open(engine) => engine.close(),
                Phase::Over(_) => {}
            }
        });
    }

    /// What its program asks for has changed.
    pub(in super::super) fn tune(self: &Arc<Self>, tuning: &Tuning, knobs: &Knobs) {
        self.change(|body, now_ns| {
            (body.tuning, body.knobs) = (*tuning, *knobs);
            if body.knobs.keep.is_none() {
                body.probe_count = 0;
            }
            body.touched_ns = now_ns;
            if let Some(engine) = body.engine_mut() {
                engine.tune(tuning);
            }
        });
    }
}

impl Body {
    /// See [`Flow::is_lingering`].
    pub(super) fn is_lingering(&self) -> bool {
        self.is_gone && matches!(self.state(), TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck)
    }

    /// How long something may be sent again without an answer.
    fn stall_limit_ns(&self) -> u64 {
        match self.knobs.user_timeout_ns {
            0 if self.is_gone => STALL_ORPHAN_NS,
            0 => STALL_NS,
            ns => ns,
        }
    }

    /// When the other end is asked next whether it is there.
    fn probe_at_ns(&self) -> Option<u64> {
        let (idle_ns, interval_ns, _) = self.knobs.keep?;
        let Phase::Open(engine) = &self.phase else { return None };
        if engine.unacknowledged_bytes().0 > 0 || self.is_gone {
            return None;
        }
        Some(self.last_arrival_ns + idle_ns + u64::from(self.probe_count) * interval_ns)
    }
}

/// Since when the other end lets the connection wait: one whose socket is closed does not wait for room either.
fn body_stall(engine: &dyn Engine, is_gone: bool) -> Option<u64> {
    if is_gone { engine.unmoved_since_ns() } else { engine.stalled_since_ns() }
}

/// A header that resets what a segment to nobody was a part of (RFC 9293, 3.10.7.1); `None`: nothing is said.
pub(super) fn refusal(header: &Header, payload_bytes: usize) -> Option<Header> {
    if header.has(flag::RST) {
        return None;
    }
    Some(if header.has(flag::ACK) {
        Header { sequence: header.acknowledgement, flags: flag::RST, ..Header::default() }
    } else {
        Header {
            acknowledgement: header.sequence.wrapping_add(header.length(payload_bytes)),
            flags: flag::RST | flag::ACK,
            ..Header::default()
        }
    })
}
