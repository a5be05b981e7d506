//! What comes in: segments to the connections they are for, to listeners, or refused; ICMP's words; time.
//!
//! The stack calls these with no lock held. A segment to nobody is answered as RFC 9293, 3.10.7.1 has it. A listener
//! never costs more than its entries: beyond its backlog it answers by cookies, and while its queue is full it is
//! silent as Linux is.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use super::flow::{Before, Flow, refusal};
use super::handshake::{
    ANSWER_RETRY_COUNT_MAX, COOKIE_NS, FIRST_TIMEOUT_NS, HalfOpen, Offer, Own, options_of_time, segment_bytes_of,
    time_with_options,
};
use super::header::{CHECKSUM_OFFSET_BYTES, HEADER_BYTES_MAX, Header, distance, ecn, flag};
use super::host::{Host, Listener};
use super::remembered::Outcome;
use super::table::{Due, Entry, Key};
use crate::error::Errno;
use crate::net::inet::wire::{Arrival, IcmpError, Segment};

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
const HOP_LIMIT: u8 = 64;
/// How often a half-open connection answers what does not belong to it.
const ANSWER_INTERVAL_NS: u64 = 500_000_000;
/// Most times that the wait between two answers doubles.
const TIMEOUT_POWER_MAX: u32 = 7;
/// Appointments that are kept in one call.
const DUE_COUNT_MAX: usize = 64;

/// Where a segment goes.
enum Route {
    Flow(Arc<Flow>),
    /// It is dealt with, by this answer if there is one.
    Done(Option<Header>),
    /// It completes a connection that was half open.
    Complete(Box<HalfOpen>),
    /// A half-open or remembered connection is no more, and this is the answer.
    Forget(Option<Header>),
    /// A new connection between ends that are remembered, with this first number.
    Renew(u32),
    Nobody,
}

/// Sends a segment without bytes for two ends that have no flow.
fn send_bare(host: &dyn Host, key: &Key, header: &Header) {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let (source_port, destination_port) = (key.local.port(), key.remote.port());
    let byte_count = Header { source_port, destination_port, ..*header }.emit(&mut bytes);
    // Whatever asked for it asks again if it is lost.
    let _ = host.sender().send_segment(&Segment {
        source: key.local.ip(),
        destination: key.remote.ip(),
        protocol: TCP,
        header: &bytes[..byte_count],
        checksum_offset_bytes: Some(CHECKSUM_OFFSET_BYTES),
        payload: &[],
        segment_bytes: 0,
        hop_limit: HOP_LIMIT,
        traffic_class: 0,
        is_whole: true,
    });
    host.sender().flush();
}

fn is_one(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_multicast(),
    }
}

/// Segments that came for one connection one after another: it is looked up once, and takes what it concludes from
/// them when the last is there ([`Train::finish`]). So a burst is acknowledged once, as Linux's receive offload has it.
#[derive(Default)]
pub(in super::super) struct Train(Option<(Arc<Flow>, Option<Before>)>);

impl Train {
    /// No more come now.
    pub(in super::super) fn finish(&mut self) {
        if let Some((flow, Some(before))) = self.0.take() {
            flow.finish_arrivals(&before);
        }
    }

    /// A segment for `flow`.
    fn take(&mut self, flow: Arc<Flow>, header: &Header, payload: &[u8]) {
        let is_same = self.0.as_ref().is_some_and(|(other, _)| Arc::ptr_eq(other, &flow));
        if !is_same {
            self.finish();
        }
        let (flow, before) = self.0.get_or_insert((flow, None));
        if !flow.arrive(before, header, payload) {
            self.finish();
        }
    }

    /// The connection of the last segment, if it is the one between two ends.
    fn flow(&self, local: SocketAddr, remote: SocketAddr) -> Option<Arc<Flow>> {
        let (flow, _) = self.0.as_ref()?;
        (flow.key.local == local && flow.key.remote == remote).then(|| flow.clone())
    }
}

/// A segment came in for one of the pod's addresses.
pub(in super::super) fn arrive(host: &Arc<dyn Host>, arrival: &Arrival<'_>, train: &mut Train) {
    let Some((mut header, payload)) = Header::parse(arrival.bytes) else { return };
    header.congestion = arrival.traffic_class & ecn::MASK;
    // Nobody asked for signatures, so a segment that has one is another's.
    if header.is_signed {
        return;
    }
    let local = SocketAddr::new(arrival.destination, header.destination_port);
    let remote = SocketAddr::new(arrival.source, header.source_port);
    if let Some(flow) = train.flow(local, remote) {
        return train.take(flow, &header, payload);
    }
    train.finish();
    if !is_one(arrival.source) || !is_one(arrival.destination) || header.source_port == 0 {
        return;
    }
    let key = host.tables().key(local, remote);
    let now_ns = host.now_ns();
    let route = host.tables().with(&key, |entry| match entry {
        None => Route::Nobody,
        Some(Entry::Flow(flow)) => Route::Flow(flow.clone()),
        Some(Entry::HalfOpen(half)) => half.arrive(&header, payload.len(), now_ns),
        Some(Entry::Remembered(entry)) => match entry.arrive(&header, payload.len(), now_ns) {
            Outcome::Drop => Route::Done(None),
            Outcome::Answer => Route::Done(Some(entry.answer(now_ns))),
            Outcome::Forget => Route::Forget(None),
            Outcome::Renew(first) => Route::Renew(first),
        },
    });
    match route {
        Route::Flow(flow) => train.take(flow, &header, payload),
        Route::Done(answer) => answer.iter().for_each(|answer| send_bare(&**host, &key, answer)),
        Route::Forget(answer) => {
            host.tables().remove(&key, |entry| !matches!(entry, Entry::Flow(_)));
            answer.iter().for_each(|answer| send_bare(&**host, &key, answer));
        }
        Route::Complete(half) => complete(host, &key, &half, (&header, payload), true),
        Route::Renew(first) => listen(host, &key, (&header, payload), Some(first), now_ns),
        Route::Nobody => listen(host, &key, (&header, payload), None, now_ns),
    }
}

impl HalfOpen {
    /// What is done about a segment (`tcp_check_req` of Linux).
    fn arrive(&mut self, header: &Header, payload_bytes: usize, now_ns: u64) -> Route {
        let next = self.other_first.wrapping_add(1);
        let start = distance(header.sequence, next);
        let window = self.own.receive_bytes_max.min(usize::from(u16::MAX)) as i32;
        let times = header.times.zip(self.offer.time);
        let is_stale = times.is_some_and(|((time, _), first)| distance(time, first) < 0);
        let is_repeated = header.has(flag::SYN) && !header.has(flag::ACK | flag::RST) && start == -1 && !is_stale;
        if is_repeated || is_stale || start < 0 || start > window {
            if header.has(flag::RST) || now_ns < self.answers_from_ns {
                return Route::Done(None);
            }
            self.answers_from_ns = now_ns + ANSWER_INTERVAL_NS;
            let answer = self.answer_header(now_ns);
            if is_repeated {
                self.is_round_trip_unknown = true;
                return Route::Done(Some(answer));
            }
            let sequence = self.own_first.wrapping_add(1);
            return Route::Done(Some(Header {
                sequence,
                flags: flag::ACK,
                segment_bytes_max: None,
                window_shift: None,
                is_sack_permitted: false,
                ..answer
            }));
        }
        if header.has(flag::RST | flag::SYN) {
            let refusal = refusal(&Header { flags: header.flags & !flag::ACK, ..*header }, payload_bytes);
            return Route::Forget(refusal);
        }
        if !header.has(flag::ACK) {
            return Route::Done(None);
        }
        if header.acknowledgement != self.own_first.wrapping_add(1) {
            return Route::Done(refusal(header, payload_bytes));
        }
        // One that its listener wants with its data waits for that, or for an answer that is sent again.
        if self.retry_count < self.defer_count && payload_bytes == 0 && !header.has(flag::FIN) {
            self.is_acknowledged = true;
            return Route::Done(None);
        }
        Route::Complete(Box::new(self.copy()))
    }

    /// Its time has come (`syn_ack_recalc` of Linux). `None`: it is given up; else whether it answers again.
    fn come_due(&mut self) -> Option<bool> {
        let count = self.retry_count;
        if count >= ANSWER_RETRY_COUNT_MAX && (!self.is_acknowledged || count >= self.defer_count) {
            return None;
        }
        self.retry_count += 1;
        Some(!self.is_acknowledged || count + 1 >= self.defer_count)
    }
}

/// The third segment came: there is a connection, if its listener has a place for it.
fn complete(host: &Arc<dyn Host>, key: &Key, half: &HalfOpen, (header, payload): (&Header, &[u8]), has_entry: bool) {
    let now_ns = host.now_ns();
    let listener = half.listener.upgrade().filter(|listener| listener.is_listening());
    let Some(listener) = listener else {
        host.tables().remove(key, |entry| matches!(entry, Entry::HalfOpen(_)));
        refusal(header, payload.len()).iter().for_each(|answer| send_bare(&**host, key, answer));
        return;
    };
    if listener.is_accept_queue_full() {
        return;
    }
    let shift = half.offer.window_shift.unwrap_or(0);
    let ends = (half.own_first, half.other_first);
    let mut terms = half.own.terms(ends, &half.offer, u32::from(header.window) << shift);
    if let (Some((_, recent)), Some((time, _))) = (&mut terms.times, header.times)
        && distance(time, *recent) >= 0
    {
        *recent = time;
    }
    let is_measured = half.retry_count == 0 && !half.is_round_trip_unknown;
    terms.round_trip_ns = Some(now_ns.saturating_sub(half.sent_ns).max(1000)).filter(|_| is_measured);
    // The time of the third segment counts, if nothing is missing before it (`tcp_check_req` of Linux).
    if let (Some(times), Some((time, _))) = (&mut terms.times, header.times)
        && distance(header.sequence, terms.receive_next) <= 0
    {
        times.1 = time;
    }
    let own_first = half.own_first;
    let fits = |entry: Option<&Entry>| match entry {
        Some(Entry::HalfOpen(half)) => has_entry && half.own_first == own_first,
        None => !has_entry,
        Some(_) => false,
    };
    let place = |flow: &Arc<Flow>| host.tables().put(*key, Entry::Flow(flow.clone()), fits);
    if let Some(flow) = listener.admit_flow(key, &terms, &place) {
        if !payload.is_empty() || header.has(flag::FIN) {
            let mut train = Train::default();
            train.take(flow, header, payload);
            train.finish();
        }
        listener.announce_flow();
    }
}

/// A segment for nobody that is known: a listener's, or refused.
fn listen(host: &Arc<dyn Host>, key: &Key, segment: (&Header, &[u8]), renewed: Option<u32>, now_ns: u64) {
    let (header, payload) = segment;
    let seed = host.tables().hash(key.local, key.remote, 3);
    let Some(listener) = host.listener(key.local, seed) else {
        let remembered = host.tables().with(key, |entry| match entry {
            Some(Entry::Remembered(entry)) => Some(entry.answer(now_ns)),
            _ => None,
        });
        if let Some(answer) = remembered {
            return send_bare(&**host, key, &answer);
        }
        refusal(header, payload.len()).iter().for_each(|answer| send_bare(&**host, key, answer));
        return;
    };
    if header.has(flag::RST) {
        return;
    }
    if header.has(flag::ACK) {
        let is_plain = !header.has(flag::SYN);
        match by_cookie(host, key, &listener, header, now_ns).filter(|_| is_plain) {
            Some(half) => complete(host, key, &half, segment, false),
            None => refusal(header, payload.len()).iter().for_each(|answer| send_bare(&**host, key, answer)),
        }
        return;
    }
    if !header.has(flag::SYN) || header.has(flag::FIN) || listener.is_accept_queue_full() {
        return;
    }
    let offer = Offer::of(header);
    let first = renewed.unwrap_or_else(|| host.tables().first_number(key, now_ns));
    let half = half_open(host, key, &listener, (first, header.sequence), offer, now_ns);
    let answer = half.answer_header(now_ns);
    let tables = host.tables();
    if !listener.has_room_half_open() || !tables.has_room_half_open() {
        return answer_by_cookie(host, key, &half, now_ns);
    }
    listener.count_half_open(true);
    let is_free = |entry: Option<&Entry>| matches!(entry, None | Some(Entry::Remembered(_)));
    if !tables.put(*key, Entry::HalfOpen(Box::new(half)), is_free) {
        listener.count_half_open(false);
        return;
    }
    appoint_half_open(host, key, now_ns + FIRST_TIMEOUT_NS);
    send_bare(&**host, key, &answer);
}

fn appoint_half_open(host: &Arc<dyn Host>, key: &Key, at_ns: u64) {
    let appointment = host.appoint(at_ns, Due::Entry(*key), None);
    let is_kept = host.tables().with(key, |entry| {
        let Some(Entry::HalfOpen(half)) = entry else { return false };
        half.appointment = Some(appointment);
        true
    });
    if !is_kept {
        host.tables().cancel(appointment);
    }
}

fn half_open(
    host: &Arc<dyn Host>,
    key: &Key,
    listener: &Arc<dyn Listener>,
    (own_first, other_first): (u32, u32),
    offer: Offer,
    now_ns: u64,
) -> HalfOpen {
    let (receive_bytes_max, is_receive_fixed) = listener.receive_window();
    let packet_bytes = host.sender().packet_bytes_max(key.remote.ip());
    let own = Own {
        segment_bytes_max: segment_bytes_of(packet_bytes, key.remote).min(listener.segment_bytes_max()),
        receive_bytes_max,
        is_receive_fixed,
        time_offset: host.tables().time_offset(key),
    };
    HalfOpen {
        listener: Arc::downgrade(listener),
        own_first,
        other_first,
        offer,
        own,
        sent_ns: now_ns,
        retry_count: 0,
        is_round_trip_unknown: false,
        answers_from_ns: 0,
        appointment: None,
        defer_count: listener.defer_count(),
        is_acknowledged: false,
    }
}

/// Answers a `SYN` without an entry.
fn answer_by_cookie(host: &Arc<dyn Host>, key: &Key, half: &HalfOpen, now_ns: u64) {
    let mut answer = half.answer_header(now_ns);
    answer.flags &= !flag::ECE;
    answer.sequence = host.tables().cookie(key, half.other_first, &half.offer, now_ns);
    match &mut answer.times {
        Some((own, _)) => *own = time_with_options(*own, &half.offer),
        // Nothing comes back that would tell of them.
        None => (answer.window_shift, answer.is_sack_permitted) = (None, false),
    }
    host.tables().note_cookie(now_ns + COOKIE_NS);
    send_bare(&**host, key, &answer);
}

/// The half-open connection that a cookie tells of.
fn by_cookie(
    host: &Arc<dyn Host>,
    key: &Key,
    listener: &Arc<dyn Listener>,
    header: &Header,
    now_ns: u64,
) -> Option<HalfOpen> {
    if !host.tables().believes_cookies(now_ns) {
        return None;
    }
    let (own_first, other_first) = (header.acknowledgement.wrapping_sub(1), header.sequence.wrapping_sub(1));
    let segment_bytes_max = host.tables().read_cookie(key, own_first, other_first, now_ns)?;
    let (window_shift, has_sack) = header.times.map_or((None, false), |(_, answered)| options_of_time(answered));
    let time = header.times.map(|times| times.0);
    // A cookie does not say whether the other end tells of congestion, nor did its answer.
    let offer = Offer { segment_bytes_max, window_shift, has_sack, has_ecn: false, time };
    let half = half_open(host, key, listener, (own_first, other_first), offer, now_ns);
    Some(HalfOpen { is_round_trip_unknown: true, defer_count: 0, ..half })
}

/// ICMP says something of a segment that was sent. Whether it was one of a connection that there is, with a sequence
/// number that is under way: only then is a shorter path believed in.
pub(in super::super) fn complain(host: &Arc<dyn Host>, error: &IcmpError<'_>) -> bool {
    let Some(&[a, b, c, d, e, f, g, h]) = error.quoted.first_chunk::<8>() else { return false };
    let local = SocketAddr::new(error.source, u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(error.destination, u16::from_be_bytes([c, d]));
    let (key, sequence) = (host.tables().key(local, remote), u32::from_be_bytes([e, f, g, h]));
    let flow = host.tables().with(&key, |entry| match entry {
        Some(Entry::Flow(flow)) => Some(flow.clone()),
        _ => None,
    });
    if let Some(flow) = flow {
        let path = error.packet_bytes_max.map(|bytes| segment_bytes_of(usize::from(bytes), remote));
        return flow.complain(sequence, error.errno, path);
    }
    let ends_half = |entry: &Entry| matches!(entry, Entry::HalfOpen(half) if half.own_first == sequence);
    error.is_hard && error.errno != Errno::EMSGSIZE && host.tables().remove(&key, ends_half).is_some()
}

/// Does what is due by now: timers of connections, segments that wait for room in the card. Bounded work. When
/// something is due next; `now_ns` if there is more.
pub(in super::super) fn poll(host: &Arc<dyn Host>, now_ns: u64) -> Option<u64> {
    for _ in 0..DUE_COUNT_MAX {
        let Some((_, due)) = host.tables().next_due(now_ns) else { break };
        match due {
            Due::Flow(flow) => flow.upgrade().into_iter().for_each(|flow| flow.poll()),
            Due::Entry(key) => poll_entry(host, &key, now_ns),
            Due::Other(timed) => timed.upgrade().into_iter().for_each(|timed| timed.come_due()),
        }
    }
    host.tables().deadline_ns().map(|at_ns| at_ns.max(now_ns))
}

/// The appointment of an entry without a flow has come.
fn poll_entry(host: &Arc<dyn Host>, key: &Key, now_ns: u64) {
    let answer = host.tables().with(key, |entry| match entry {
        Some(Entry::HalfOpen(half)) => {
            half.appointment = None;
            half.come_due().map(|answers| (answers.then(|| half.answer_header(now_ns)), half.retry_count))
        }
        _ => None,
    });
    match answer {
        Some((answer, count)) => {
            answer.iter().for_each(|answer| send_bare(&**host, key, answer));
            appoint_half_open(host, key, now_ns + (FIRST_TIMEOUT_NS << count.min(TIMEOUT_POWER_MAX)));
        }
        None => {
            let next_ns = core::cell::Cell::new(None);
            host.tables().remove(key, |entry| match entry {
                Entry::Flow(_) => false,
                Entry::HalfOpen(_) => true,
                Entry::Remembered(entry) => {
                    next_ns.set(Some(entry.until_ns).filter(|until_ns| *until_ns > now_ns));
                    next_ns.get().is_none()
                }
            });
            if let Some(at_ns) = next_ns.get() {
                host.appoint(at_ns, Due::Entry(*key), None);
            }
        }
    }
}
