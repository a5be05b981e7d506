//! The socket: its states, its options, and what its transfers ask for.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::address::{Address, Key};
use super::budget::Budget;
use super::endpoint::{Endpoint, Gather};
use super::flight::Rights;
use super::{Identity, SEND_BYTES_DEFAULT, SocketKind, UnixDomain};
use crate::error::{Errno, Result};
use crate::fs::description::Description;
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::vnode::InodeRef;
use crate::net::buffer_sizes::{kept_receive_bytes, kept_send_bytes};
use crate::net::options::SocketOptions;
use crate::reserve;
use crate::sync::Mutex;

/// Connections that wait to be accepted.
pub(super) struct Listener {
    pub(super) pending: VecDeque<Arc<Socket>>,
    pub(super) backlog: usize,
    pub(super) identity: Identity,
    /// Sockets that wait for a place.
    pub(super) waiting: Vec<Weak<WaitQueue>>,
}

/// What a socket is doing.
pub(super) enum Phase {
    /// Neither connected nor listening.
    Fresh,
    /// It is being connected.
    Connecting,
    /// It takes connections.
    Listening(Listener),
    /// It talks to one peer.
    Connected(Arc<Endpoint>),
    /// Its last descriptor is closed.
    Closed,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// `SHUT_WR` on a socket that is not a connection.
    pub(super) is_send_shut: bool,
    pub(super) peer_identity: Option<Identity>,
    pub(super) key: Option<Key>,
    /// The inode of its name, so that no other file gets its number.
    pub(super) inode: Option<InodeRef>,
}

/// A Unix socket.
pub struct Socket {
    pub(super) kind: SocketKind,
    pub(super) domain: Arc<UnixDomain>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) budget: Arc<Budget>,
    pub(super) state: Mutex<State>,
    receive_buffer_bytes: AtomicUsize,
    options: SocketOptions,
}

/// What goes with the bytes of a send.
#[derive(Default)]
pub struct Sending<'a> {
    /// The receiver, for datagrams; else the peer.
    pub target: Option<&'a Arc<Socket>>,
    /// The sending process.
    pub identity: Option<Identity>,
    /// The sender named itself: the receiver is told even if it asks later.
    pub is_identity_explicit: bool,
    /// Descriptions; taken by the first bytes that are sent.
    pub rights: Option<Rights>,
}

/// What a receiver wants, and what it has seen of a stream in earlier attempts of the same call.
#[derive(Default)]
pub struct Wants {
    /// The bytes stay (`MSG_PEEK`).
    pub is_peek: bool,
    /// What earlier attempts gathered.
    pub(super) gather: Option<Gather>,
}

impl Wants {
    /// For one call.
    pub fn new(is_peek: bool) -> Self {
        Self { is_peek, gather: None }
    }

    /// The sender of the bytes of a stream that all attempts received, and what came with them.
    pub fn take_gathered(&mut self) -> (Option<Identity>, Option<Rights>) {
        self.gather.take().map_or((None, None), |gather| (gather.identity.flatten(), gather.rights))
    }
}

/// Outcome of a receiving call.
#[derive(Default)]
pub struct Received {
    /// Bytes put into the destination.
    pub byte_count: usize,
    /// Bytes that the message had.
    pub message_bytes: usize,
    /// Its sender, if that was noted. Not of a stream: [`Wants::take_gathered`].
    pub identity: Option<Identity>,
    /// Descriptions. Not of a stream.
    pub rights: Option<Rights>,
    /// The sender's name.
    pub from: Option<Arc<Address>>,
    /// A stream's bytes end here for this call: the end, or something that must not be mixed.
    pub is_final: bool,
    /// There was no message, and none comes any more.
    pub is_end: bool,
}

impl Received {
    /// That there was no message, and none comes any more.
    pub(super) fn end() -> Self {
        Self { is_end: true, ..Self::default() }
    }
}

impl Socket {
    /// A socket without a name or a peer; `number` is that of its inode.
    pub fn new(domain: &Arc<UnixDomain>, kind: SocketKind, number: u64) -> Arc<Self> {
        let endpoint = Endpoint::new(number, kind);
        let budget = Budget::new(SEND_BYTES_DEFAULT, endpoint.queue.clone());
        Arc::new(Self {
            kind,
            domain: domain.clone(),
            endpoint,
            budget,
            state: Mutex::new(State {
                phase: Phase::Fresh,
                is_send_shut: false,
                peer_identity: None,
                key: None,
                inode: None,
            }),
            receive_buffer_bytes: AtomicUsize::new(SEND_BYTES_DEFAULT),
            options: SocketOptions::default(),
        })
    }

    /// The number of its inode.
    pub fn number(&self) -> u64 {
        self.endpoint.number
    }

    /// How it carries bytes.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// The pod's sockets.
    pub fn domain(&self) -> &Arc<UnixDomain> {
        &self.domain
    }

    /// Name that it is bound to.
    pub fn address(&self) -> Option<Arc<Address>> {
        self.endpoint.address()
    }

    /// Its peer's name.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_address(&self) -> Result<Option<Arc<Address>>> {
        self.peer().map(|peer| peer.address()).ok_or(Errno::ENOTCONN)
    }

    /// The process that connected or listened (`SO_PEERCRED`).
    pub fn peer_identity(&self) -> Option<Identity> {
        self.state.lock().peer_identity
    }

    /// Whether it takes connections (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Listening(_))
    }

    /// What is told about everything that happens to it.
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.endpoint.queue
    }

    pub(super) fn peer(&self) -> Option<Arc<Endpoint>> {
        match &self.state.lock().phase {
            Phase::Connected(peer) => Some(peer.clone()),
            _ => None,
        }
    }

    /// What the last failure was that nobody has been told (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        self.endpoint.take_error()
    }

    /// Whether messages name their sender (`SO_PASSCRED`).
    pub fn wants_identity(&self) -> bool {
        self.endpoint.wants_identity()
    }

    /// Sets `SO_PASSCRED`.
    pub fn set_wants_identity(&self, value: bool) {
        self.endpoint.wants_identity.store(value, Ordering::Relaxed);
    }

    /// What may be on the way (`SO_SNDBUF`).
    pub fn send_buffer_bytes(&self) -> usize {
        self.budget.limit_bytes()
    }

    /// Sets it, as Linux does to twice what was asked for, within the limits.
    pub fn set_send_buffer_bytes(&self, wanted: usize) {
        self.budget.set_limit_bytes(kept_send_bytes(wanted));
    }

    /// `SO_RCVBUF`: kept; the sender's buffer is the one that counts.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes.load(Ordering::Relaxed)
    }

    /// Sets it, as [`Self::set_send_buffer_bytes`].
    pub fn set_receive_buffer_bytes(&self, wanted: usize) {
        self.receive_buffer_bytes.store(kept_receive_bytes(wanted), Ordering::Relaxed);
    }

    /// What all sockets keep. Nothing of it concerns a local socket but the times and `SO_RCVLOWAT`.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// Bytes that were sent and not received (`SIOCOUTQ`).
    pub fn unreceived_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// Bytes that can be received (`FIONREAD`).
    ///
    /// # Errors
    /// `EINVAL`: it takes connections.
    pub fn readable_bytes(&self) -> Result<usize> {
        if self.is_listening() {
            return Err(Errno::EINVAL);
        }
        Ok(self.endpoint.readable_bytes(self.kind != SocketKind::Datagram))
    }

    /// Whether a datagram could be sent now as far as its receiver is concerned.
    fn has_place_at_peer(&self, peer: &Endpoint) -> bool {
        self.kind == SocketKind::Stream || peer.has_place(self.endpoint.number, &self.endpoint.queue)
    }

    /// What it is ready for, as unix(7)'s `poll` tells it.
    pub fn readiness(&self) -> Readiness {
        let (has_input, is_receive_shut, has_error) = self.endpoint.look();
        let is_connection = self.kind != SocketKind::Datagram;
        let state = self.state.lock();
        // Asked only where it matters: whether the connection is over.
        let mut is_send_shut = state.is_send_shut;
        // Whether it is neither connected nor listening; whether somebody waits to be accepted; whether there is room.
        let (is_fresh, pending, has_place) = match &state.phase {
            Phase::Connected(peer) => {
                is_send_shut |= is_receive_shut && is_connection && peer.is_shut();
                (false, false, self.budget.is_writable() && self.has_place_at_peer(peer))
            }
            Phase::Listening(listener) => (false, !listener.pending.is_empty(), false),
            _ => (true, false, self.budget.is_writable()),
        };
        drop(state);
        let mut ready = Readiness::empty();
        ready.set(Readiness::ERROR, has_error);
        ready.set(Readiness::HANG_UP, (is_receive_shut && is_send_shut) || (is_connection && is_fresh));
        ready.set(Readiness::READ_HANG_UP, is_receive_shut);
        ready.set(Readiness::READ, has_input || is_receive_shut || pending);
        ready.set(Readiness::WRITE, has_place);
        ready
    }

    /// Every description that lies in its queues. `ENOMEM`.
    pub(super) fn for_each_carried(&self, action: &mut dyn FnMut(&Arc<Description>)) -> Result<()> {
        self.endpoint.for_each_carried(action);
        self.pending()?.iter().for_each(|pending| pending.endpoint.for_each_carried(action));
        Ok(())
    }

    /// Lays everything into the graveyard that lies in its queues: of those that wait to be accepted as far as there is
    /// memory to see them.
    pub(super) fn lay_carried(&self) {
        let flight = &self.domain.flight;
        self.endpoint.lay_carried(flight);
        self.pending().into_iter().flatten().for_each(|pending| pending.endpoint.lay_carried(flight));
    }

    fn pending(&self) -> Result<Vec<Arc<Self>>> {
        match &self.state.lock().phase {
            Phase::Listening(listener) => {
                let mut pending = reserve::vector(listener.pending.len())?;
                pending.extend(listener.pending.iter().cloned());
                Ok(pending)
            }
            _ => Ok(Vec::new()),
        }
    }
}
