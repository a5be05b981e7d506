//! TCP sockets with connections to other machines: what a socket asks of its flow, and how flows come to listeners.
//!
//! Neighbours: [`super::engine`], which has the connections; [`super::connect`] and [`super::stream`], which come here
//! for what does not stay on this machine.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;

use super::Inet;
use super::end::End;
use super::engine::attempt::{Wishes, begin};
use super::engine::flow::{Flow, Knobs};
use super::engine::host::{Host, Listener, PortRelease, PortSharing};
use super::engine::table::{Key, Tables};
use super::engine::{Terms, Tuning, flow_bytes::Piece};
use super::interface::ETHERNET_INDEX;
use super::ports::{Held, Place, Sharing};
use super::settings::Setting;
use super::socket::{Socket, switch};
use super::stack::counters::Counter;
use super::tcp::{Phase, Progress, Tcp};
use super::wire::SegmentSender;
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Destination, Source};
use crate::reserve::reserve_queue;

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// `IP_TTL` unless it was set.
const HOP_LIMIT: i32 = 64;

impl Socket {
    /// What it asks of its engine.
    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            has_no_delay: self.settings().is_on(Setting::NoDelay),
            is_corked: self.settings().is_on(Setting::Cork) || self.expects_more(),
            is_urgent_inline: self.options().is_on(switch::URGENT_INLINE),
            receive_bytes_max: self.window_bytes(),
            send_bytes_max: self.send_buffer_bytes(),
        }
    }

    /// What it asks of its connection beside.
    pub(super) fn knobs(&self, is_v4: bool) -> Knobs {
        let get = |setting| self.settings().get(setting);
        let seconds = |setting| get(setting).max(0) as u64 * SECOND_NS;
        let hop_limit = if is_v4 { get(Setting::TimeToLive) } else { get(Setting::UnicastHops) };
        let traffic_class = if is_v4 { get(Setting::TypeOfService) } else { get(Setting::TrafficClass) };
        let keep = (seconds(Setting::KeepIdle), seconds(Setting::KeepInterval), get(Setting::KeepCount).max(0) as u32);
        Knobs {
            hop_limit: if hop_limit <= 0 { HOP_LIMIT as u8 } else { hop_limit.min(255) as u8 },
            traffic_class: traffic_class.clamp(0, 255) as u8,
            keep: Some(keep).filter(|_| self.options().is_on(switch::KEEP_ALIVE)),
            user_timeout_ns: get(Setting::UserTimeout).max(0) as u64 * MILLISECOND_NS,
            end_timeout_ns: seconds(Setting::FinWait2Seconds),
            attempt_count: get(Setting::SynCount).max(1) as u32,
        }
    }

    /// The connection to another machine that it has or had.
    pub(super) fn flow(&self) -> Option<Arc<Flow>> {
        match &self.tcp()?.lock().phase {
            Phase::Remote(flow) => Some(flow.clone()),
            _ => None,
        }
    }

    /// An option has changed that its connection acts upon.
    pub fn apply_settings(&self) {
        if let Some(link) = self.tcp().and_then(Tcp::link) {
            link.set_urgent_inline(self.options().is_on(switch::URGENT_INLINE));
        }
        if let Some(flow) = self.flow() {
            flow.tune(&self.tuning(), &self.knobs(flow.remote().is_ipv4()));
        }
    }

    /// Begins to connect to another machine, from an address and port that are its own by now.
    pub(super) fn connect_flow(self: &Arc<Self>, tcp: &Tcp, held: Held, ends: (SocketAddr, SocketAddr)) -> Result<()> {
        self.connected_buffer();
        let host: Arc<dyn Host> = self.inet().clone();
        let wishes = Wishes {
            sharing: self.port_sharing(),
            is_receive_fixed: self.has_own_receive_buffer(),
            segment_bytes_max: Listener::segment_bytes_max(&**self),
            asks_cookie: self.settings().is_on(Setting::FastOpenConnect),
        };
        let wants = (&self.tuning(), &self.knobs(ends.1.is_ipv4()), wishes);
        let flow = begin(&host, ends, self.wait_queue(), wants).inspect_err(|_| {
            self.inet().tcp.end(ends, None, self.inet().now_ns());
        })?;
        let mut state = tcp.lock();
        let is_still = matches!(&state.phase, Phase::Connecting(attempt) if attempt.remote == ends.1);
        if is_still && state.held == Some(held) {
            state.phase = Phase::Remote(flow);
            return Ok(());
        }
        drop(state);
        flow.close(true, None, self.port_sharing());
        Ok(())
    }

    /// Gives up connecting to another machine, if it does: what waited is told `error`.
    pub(super) fn abandon_flow(&self, tcp: &Tcp, error: Option<Errno>) {
        let (flow, held) = {
            let mut state = tcp.lock();
            let Phase::Remote(flow) = &state.phase else { return };
            if flow.was_made() {
                return;
            }
            let flow = flow.clone();
            tcp.next_attempt();
            (state.phase, state.error) = (Phase::Idle, error.or_else(|| flow.take_error()));
            let held = if state.is_bound { None } else { state.held.take() };
            (flow, held)
        };
        flow.close(false, self.release_of(held), self.port_sharing());
        self.forget_address(&mut tcp.lock());
    }

    /// What came of connecting to another machine.
    pub(super) fn flow_outcome(&self, tcp: &Tcp, flow: &Flow) -> Result<()> {
        let Some(outcome) = flow.outcome() else { return Err(Errno::EAGAIN) };
        if flow.was_made() {
            tcp.lock().progress = Progress::Done;
        } else {
            self.abandon_flow(tcp, None);
            tcp.lock().progress = Progress::None;
        }
        outcome
    }

    /// What gives a port back.
    pub(super) fn release_of(&self, held: Option<Held>) -> Option<PortRelease> {
        let (held, inet) = (held?, self.inet().clone());
        Some(Box::new(move || inet.tcp.release(held)))
    }

    /// As [`Socket::sharing`], for a port that is remembered.
    pub(super) fn port_sharing(&self) -> PortSharing {
        let Sharing { reuses_address, reuses_port, uid, .. } = self.sharing();
        PortSharing { reuses_address, reuses_port, uid }
    }
}

impl Listener for Socket {
    fn is_listening(&self) -> bool {
        Self::is_listening(self)
    }

    fn is_accept_queue_full(&self) -> bool {
        self.tcp().is_none_or(|tcp| match &tcp.lock().phase {
            Phase::Listening(listener) => listener.is_full(),
            _ => true,
        })
    }

    fn has_room_half_open(&self) -> bool {
        let Some(tcp) = self.tcp() else { return false };
        let backlog = match &tcp.lock().phase {
            Phase::Listening(listener) => listener.backlog,
            _ => return false,
        };
        tcp.half_open_count().load(Ordering::Relaxed) <= backlog
    }

    fn count_half_open(&self, is_more: bool) {
        let Some(tcp) = self.tcp() else { return };
        if is_more {
            tcp.half_open_count().fetch_add(1, Ordering::Relaxed);
        } else {
            tcp.half_open_count().fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn receive_window(&self) -> (usize, bool) {
        (self.window_bytes(), self.has_own_receive_buffer())
    }

    fn segment_bytes_max(&self) -> u16 {
        match self.settings().get(Setting::SegmentBytesMax) {
            0 => u16::MAX,
            bytes => u16::try_from(bytes).unwrap_or(u16::MAX),
        }
    }

    fn defer_count(&self) -> u32 {
        self.settings().get(Setting::DeferAccept).max(0) as u32
    }

    fn admit_flow(&self, key: &Key, terms: &Terms, place: &dyn Fn(&Arc<Flow>) -> bool) -> Option<Arc<Flow>> {
        let other = self.make_accepted().ok()?;
        let (tcp, host): (_, Arc<dyn Host>) = (other.tcp()?, self.inet().clone());
        let wants = (&other.tuning(), &other.knobs(key.remote.is_ipv4()), other.port_sharing());
        let flow = Flow::accepted(&host, *key, other.wait_queue(), terms, wants);
        if !place(&flow) {
            return None;
        }
        {
            let mut state = tcp.lock();
            let at = Place { address: key.local.ip(), is_v6_only: false };
            state.held = Some(self.inet().tcp.accept(key.local.port(), at, &other));
            (state.local, state.progress) = (Some(key.local), Progress::Done);
            (state.is_bound, state.has_own_address) = (true, true);
            state.phase = Phase::Remote(flow.clone());
        }
        let mut state = self.tcp()?.lock();
        if let Phase::Listening(listener) = &mut state.phase
            && reserve_queue(&mut listener.pending, 1).is_ok()
        {
            listener.pending.push_back(other);
            return Some(flow);
        }
        drop(state);
        other.refuse();
        None
    }

    fn announce_flow(&self) {
        self.wait_queue().notify(Readiness::READ);
    }
}

impl Host for Inet {
    fn now_ns(&self) -> u64 {
        Self::now_ns(self)
    }

    fn tables(&self) -> &Tables {
        &self.engine
    }

    fn sender(&self) -> &dyn SegmentSender {
        #[cfg(test)]
        if let Some(sender) = self.engine.sender.get() {
            return &**sender;
        }
        self
    }

    fn wake_at(&self, at_ns: u64) {
        Self::wake_at(self, at_ns);
    }

    fn note_repetition(&self) {
        self.stack().counters().add(Counter::TcpRetransmitted);
    }

    fn end(&self, ends: (SocketAddr, SocketAddr), first: Option<(SocketAddr, PortSharing)>) {
        let first = first.map(|(local, PortSharing { reuses_address, reuses_port, uid })| {
            (local, Sharing { reuses_address, reuses_port, uid, is_listening: false })
        });
        self.tcp.end(ends, first, Self::now_ns(self));
    }

    fn listener(&self, local: SocketAddr, seed: u64) -> Option<Arc<dyn Listener>> {
        let rank = |socket: &Socket| socket.interface_rank(ETHERNET_INDEX).filter(|_| socket.is_listening());
        let found = self.tcp.find(local, || seed, rank)?;
        Some(found)
    }
}

impl End for Arc<Flow> {
    fn send_nofault(&self, source: &mut dyn Source) -> Result<Piece> {
        Flow::send_nofault(self, source)
    }

    fn send_bounced(&self, source: &mut dyn Source) -> Result<usize> {
        Flow::send_bounced(self, source, false)
    }

    fn send_urgent(&self, source: &mut dyn Source) -> Result<usize> {
        Flow::send_bounced(self, source, true)
    }

    fn note_sent(&self) {}

    fn receive_nofault(&self, destination: &mut dyn Destination, has_some: bool) -> Result<Piece> {
        Flow::receive_nofault(self, destination, has_some)
    }

    fn receive_bounced(&self, destination: &mut dyn Destination) -> Result<usize> {
        Flow::receive_bounced(self, destination)
    }

    fn keep_error(&self, error: Errno) {
        Flow::keep_error(self, error);
    }

    fn return_error(&self, error: Errno) {
        Flow::return_error(self, error);
    }

    fn urgent_byte(&self, is_peek: bool) -> Result<Option<u8>> {
        Flow::urgent_byte(self, is_peek)
    }

    fn is_at_mark(&self) -> bool {
        Flow::is_at_mark(self)
    }
}
