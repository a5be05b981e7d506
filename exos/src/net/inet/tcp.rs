//! A TCP socket's states, and what depends on them: its addresses, what it is ready for, how it ends.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::connection::Link;
use super::engine::flow::Flow;
use super::engine::table::Appointment;
use super::ports::Held;
use super::socket::Socket;
use super::tcp_state::TcpState;
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, Registration, WaitQueue};
use crate::net::Halves;
use crate::sync::Mutex;

/// Connections that wait to be accepted.
#[derive(Default)]
pub(super) struct Listener {
    pub(super) pending: VecDeque<Arc<Socket>>,
    pub(super) backlog: usize,
    /// Sockets whose connections wait for a place.
    pub(super) waiting: VecDeque<Client>,
    /// Connections that wait for their data, by the number of their socket.
    pub(super) deferred: BTreeMap<u64, Arc<Deferred>>,
    /// One of them was ready when there was no place.
    pub(super) is_deferred_ready: bool,
}

/// A connection that waits for its data, so that its listener is not told of it yet.
pub(super) struct Deferred {
    pub(super) number: u64,
    pub(super) listener: Weak<Socket>,
    pub(super) link: Link,
    pub(super) queue: Arc<WaitQueue>,
    pub(super) accepted: Arc<Socket>,
    pub(super) until_ns: u64,
    /// What wakes it, and when its time is over.
    pub(super) waits: Mutex<(Option<Registration>, Option<Appointment>)>,
}

/// An attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) remote: SocketAddr,
    /// How many its socket had begun or given up before.
    pub(super) number: u64,
}

/// A socket that waits for a place, for as long as it is at this attempt.
pub(super) struct Client {
    pub(super) socket: Weak<Socket>,
    pub(super) number: u64,
}

impl Client {
    /// Whether it still waits, as far as that can be told without a lock.
    fn is_there(&self) -> bool {
        self.socket.upgrade().is_some_and(|socket| socket.tcp().is_some_and(|tcp| tcp.attempt() == self.number))
    }
}

impl Listener {
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() > self.backlog
    }

    /// Notes a client that waits. Those that gave up are forgotten before the queue grows, so it is no longer than
    /// twice as many as ever waited at once.
    pub(super) fn note(&mut self, client: Client) -> Result<()> {
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(Client::is_there);
            let more = self.waiting.len() + 1;
            crate::reserve::reserve_queue(&mut self.waiting, more)?;
        }
        self.waiting.push_back(client);
        Ok(())
    }
}

/// What a socket is doing.
pub(super) enum Phase {
    /// Nothing yet, or nothing any more.
    Idle,
    /// It takes connections.
    Listening(Listener),
    /// It waits for a place at a listener.
    Connecting(Attempt),
    /// It is, or was, a side of a connection.
    Connected(Link),
    /// It has or had a connection to another machine, or makes one.
    Remote(Arc<Flow>),
    /// Its last descriptor is closed.
    Gone,
}

/// How far `connect` has come, as its callers are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// There was none, or it failed.
    #[default]
    None,
    /// It was begun, and nobody was told yet what came of it.
    Begun,
    /// It was told that it worked.
    Done,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) progress: Progress,
    /// What `getsockname` shows.
    pub(super) local: Option<SocketAddr>,
    pub(super) held: Option<Held>,
    /// The port was asked for, and the address.
    pub(super) is_bound: bool,
    pub(super) has_own_address: bool,
    /// Halves that were shut while there was no connection.
    pub(super) shut: Halves,
    /// What a connection that could not be made is told as.
    pub(super) error: Option<Errno>,
}

/// What is TCP's own of a socket.
pub(super) struct Tcp {
    state: Mutex<State>,
    /// Attempts to connect that were begun or given up.
    attempt_count: AtomicU64,
    /// Connections from other machines to this listener that are being made.
    half_open_count: AtomicUsize,
}

impl Default for Tcp {
    fn default() -> Self {
        let state = Mutex::new(State {
            phase: Phase::Idle,
            progress: Progress::None,
            local: None,
            held: None,
            is_bound: false,
            has_own_address: false,
            shut: Halves { receiving: false, sending: false },
            error: None,
        });
        Self { state, attempt_count: AtomicU64::new(0), half_open_count: AtomicUsize::new(0) }
    }
}

impl core::ops::Deref for Tcp {
    type Target = Mutex<State>;

    #[inline]
    fn deref(&self) -> &Mutex<State> {
        &self.state
    }
}

impl Tcp {
    /// The number of the attempt that it is at. Changes with its state's lock held.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt_count.load(Ordering::Relaxed)
    }

    /// The attempt that was begun before is over. The number of the next.
    pub(super) fn next_attempt(&self) -> u64 {
        self.attempt_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn half_open_count(&self) -> &AtomicUsize {
        &self.half_open_count
    }

    /// Its side of a connection, if it has one or had one.
    #[inline]
    pub(super) fn link(&self) -> Option<Link> {
        match &self.lock().phase {
            Phase::Connected(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// The other end of its connection, even if that is over already.
    pub(super) fn accepted_from(&self) -> Option<SocketAddr> {
        match &self.lock().phase {
            Phase::Connected(link) => Some(link.remote()),
            Phase::Remote(flow) => Some(flow.remote()),
            _ => None,
        }
    }

    pub(super) fn state(&self) -> TcpState {
        let state = self.lock();
        match &state.phase {
            Phase::Idle | Phase::Gone => TcpState::Close,
            Phase::Listening(_) => TcpState::Listen,
            Phase::Connecting(_) => TcpState::SynSent,
            Phase::Connected(link) => link.pair().sides[link.side].state,
            Phase::Remote(flow) => flow.state(),
        }
    }

    /// The other end of a connection that is not over.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub(super) fn remote(&self) -> Result<SocketAddr> {
        match &self.lock().phase {
            Phase::Connected(link) if link.pair().sides[link.side].state != TcpState::Close => Ok(link.remote()),
            Phase::Remote(flow) if flow.is_connected() => Ok(flow.remote()),
            _ => Err(Errno::ENOTCONN),
        }
    }

    pub(super) fn take_error(&self) -> Option<Errno> {
        let mut state = self.lock();
        match &state.phase {
            Phase::Connected(link) => link.pair().sides[link.side].error.take(),
            Phase::Remote(flow) => flow.take_error(),
            _ => state.error.take(),
        }
    }

    /// What it is ready for (`tcp_poll` of Linux).
    pub(super) fn readiness(&self, low_water_bytes: usize) -> Readiness {
        let state = self.lock();
        let mut ready = Readiness::empty();
        match &state.phase {
            Phase::Listening(listener) => ready.set(Readiness::READ, !listener.pending.is_empty()),
            Phase::Connecting(_) => {}
            Phase::Remote(flow) => return flow.readiness(low_water_bytes),
            Phase::Idle | Phase::Gone => {
                ready |= Readiness::WRITE | Readiness::HANG_UP;
                ready.set(Readiness::READ | Readiness::READ_HANG_UP, state.shut.receiving);
                ready.set(Readiness::ERROR, state.error.is_some());
                if state.error.is_some() {
                    // A connection that was refused is shut both ways.
                    ready |= Readiness::READ | Readiness::READ_HANG_UP;
                }
            }
            Phase::Connected(link) => {
                let pair = link.pair();
                let own = &pair.sides[link.side];
                let is_over = own.state == TcpState::Close;
                ready.set(Readiness::HANG_UP, is_over || own.is_receive_shut && own.is_send_shut);
                ready.set(Readiness::READ_HANG_UP, own.is_receive_shut);
                let wanted_bytes = low_water_bytes + usize::from(own.urgent.is_hole(own.read_place()));
                ready.set(Readiness::READ, own.is_receive_shut || own.inbox.length() >= wanted_bytes);
                ready.set(Readiness::PRIORITY, own.urgent.is_there());
                ready.set(Readiness::WRITE, own.is_send_shut || pair.is_writable(link.side, link.other()));
                ready.set(Readiness::ERROR, own.error.is_some());
            }
        }
        ready
    }
}

impl Socket {
    /// `shutdown` of a TCP socket.
    pub(super) fn shutdown_tcp(&self, tcp: &Tcp, halves: Halves) -> Result<()> {
        let mut state = tcp.lock();
        match &state.phase {
            Phase::Connected(link) => {
                let link = link.clone();
                drop(state);
                link.shutdown(halves)
            }
            Phase::Remote(flow) => {
                let flow = flow.clone();
                drop(state);
                if flow.is_attempt() {
                    self.abandon_flow(tcp, Some(Errno::ECONNRESET));
                    self.wait_queue().notify(Readiness::EVENTS.difference(Readiness::PRIORITY));
                    return Ok(());
                }
                flow.shutdown(halves)
            }
            Phase::Listening(_) => {
                drop(state);
                if halves.receiving {
                    self.stop_listening(tcp, Phase::Idle);
                }
                Ok(())
            }
            Phase::Connecting(_) => {
                drop(state);
                self.abandon_connect(tcp, Some(Errno::ECONNRESET));
                Ok(())
            }
            Phase::Idle | Phase::Gone => {
                state.shut.receiving |= halves.receiving;
                state.shut.sending |= halves.sending;
                Err(Errno::ENOTCONN)
            }
        }
    }

    /// Ends it: its descriptor is gone.
    pub(super) fn close_tcp(&self, tcp: &Tcp) {
        self.stop_listening(tcp, Phase::Gone);
        let (phase, held, sharing) = {
            let mut state = tcp.lock();
            (core::mem::replace(&mut state.phase, Phase::Gone), state.held.take(), self.sharing())
        };
        match phase {
            Phase::Connected(link) => link.close(self.resets_at_close(), held, sharing),
            Phase::Remote(flow) => {
                flow.close(self.resets_at_close(), self.release_of(held), self.port_sharing());
            }
            Phase::Connecting(attempt) => self.forget_connection(held, attempt.remote, true),
            _ => held.into_iter().for_each(|held| self.inet().tcp.release(held)),
        }
        self.wait_queue().notify(Readiness::HANG_UP | Readiness::ALWAYS);
    }
}
