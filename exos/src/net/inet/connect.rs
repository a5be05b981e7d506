//! Ports, listening, connecting and accepting of TCP sockets.
//!
//! A client that finds its listener's queue full leaves its name there and is let in when there is room: by whoever
//! accepts, or by a longer backlog. Its own state says whether it still waits, so a name that was left in vain is
//! passed over, as is one of a client that tries something else by now; such names go before the queue grows.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use super::BACKLOG_MAX;
use super::connection::{Connection, Link, Party};
use super::engine::host::Host;
use super::interface::LOOPBACK;
use super::ports::{Asking, Held, Place};
use super::socket::{Family, Protocol, Socket, switch};
use super::tcp::{Attempt, Client, Listener, Phase, Progress, State, Tcp};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::reserve::reserve_queue;

/// What became of an attempt to be let in.
enum Admission {
    Made,
    Full,
    Refused,
}

impl Socket {
    /// What asks for a port for this socket at `address`.
    pub(super) fn asking(self: &Arc<Self>, address: IpAddr) -> Asking<'_> {
        let place = Place { address, is_v6_only: self.is_v6_only() };
        let is_datagram = self.protocol() != Protocol::Tcp;
        Asking { socket: self, place, sharing: self.sharing(), is_datagram }
    }

    /// The address that means any.
    pub(super) fn any_address(&self) -> IpAddr {
        match self.family() {
            Family::V4 => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        }
    }

    pub(super) fn bind_tcp(self: &Arc<Self>, tcp: &Tcp, address: SocketAddr) -> Result<()> {
        let mut state = tcp.lock();
        if !matches!(state.phase, Phase::Idle) || state.held.is_some() {
            return Err(Errno::EINVAL);
        }
        self.hold_port(&mut state, address)
    }

    fn hold_port(self: &Arc<Self>, state: &mut State, address: SocketAddr) -> Result<()> {
        let inet = self.inet();
        let chance = (inet.now_ns(), inet.seed_for(None));
        let held = inet.tcp.bind(address.port(), &self.asking(address.ip()), chance)?;
        state.held = Some(held);
        state.local = Some(SocketAddr::new(address.ip(), held.port));
        (state.is_bound, state.has_own_address) = (address.port() != 0, !address.ip().is_unspecified());
        Ok(())
    }

    /// Takes connections from now on, or changes how many wait.
    pub(super) fn listen_tcp(self: &Arc<Self>, tcp: &Tcp, backlog: u32) -> Result<()> {
        let backlog = backlog.min(BACKLOG_MAX) as usize;
        let mut state = tcp.lock();
        let is_unused = state.progress == Progress::None;
        match &mut state.phase {
            Phase::Listening(listener) => listener.backlog = backlog,
            Phase::Idle if is_unused => {
                if state.held.is_none() {
                    self.hold_port(&mut state, SocketAddr::new(self.any_address(), 0))?;
                }
                let (Some(held), Some(local)) = (state.held, state.local) else { return Err(Errno::EINVAL) };
                self.inet().tcp.receive(held, &self.asking(local.ip()))?;
                self.set_listening(true);
                state.phase = Phase::Listening(Listener { backlog, ..Listener::default() });
                state.error = None;
            }
            _ => return Err(Errno::EINVAL),
        }
        drop(state);
        self.admit_waiting(tcp);
        Ok(())
    }

    /// Ends listening, if it does: those that were not accepted are reset, and those that wait are refused.
    pub(super) fn stop_listening(&self, tcp: &Tcp, next: Phase) {
        let (phase, held, is_bound) = {
            let mut state = tcp.lock();
            if !matches!(state.phase, Phase::Listening(_)) {
                return;
            }
            let held = if state.is_bound { state.held } else { state.held.take() };
            (core::mem::replace(&mut state.phase, next), held, state.is_bound)
        };
        self.set_listening(false);
        if let Some(held) = held {
            self.inet().tcp.stop_receiving(held);
            if !is_bound {
                self.inet().tcp.release(held);
            }
        }
        let Phase::Listening(listener) = phase else { return };
        for pending in listener.pending {
            pending.refuse();
        }
        listener.deferred.values().for_each(|deferred| self.forget_deferred(deferred));
        for client in listener.waiting {
            if let Some(socket) = client.socket.upgrade()
                && socket.waits_at(client.number).is_some()
            {
                socket.abandon_own(Errno::ECONNREFUSED);
            }
        }
        self.wait_queue().notify(Readiness::ALWAYS | Readiness::HANG_UP);
    }

    /// Ends a connection that nobody accepted.
    pub(super) fn refuse(&self) {
        let Some(tcp) = self.tcp() else { return };
        let (phase, held) = {
            let mut state = tcp.lock();
            (core::mem::replace(&mut state.phase, Phase::Gone), state.held.take())
        };
        match phase {
            Phase::Connected(link) => link.close(true, held, self.sharing()),
            Phase::Remote(flow) => flow.close(true, self.release_of(held), self.port_sharing()),
            _ => held.into_iter().for_each(|held| self.inet().tcp.release(held)),
        }
    }

    /// Takes a connection.
    pub(super) fn accept_tcp(self: &Arc<Self>, tcp: &Tcp) -> Result<Arc<Self>> {
        let accepted = {
            let mut state = tcp.lock();
            let Phase::Listening(listener) = &mut state.phase else { return Err(Errno::EINVAL) };
            listener.pending.pop_front().ok_or(Errno::EAGAIN)?
        };
        self.admit_waiting(tcp);
        Ok(accepted)
    }

    /// Lets those in that wait, as far as there is room.
    fn admit_waiting(self: &Arc<Self>, tcp: &Tcp) {
        self.admit_all_deferred(tcp);
        loop {
            let client = {
                let mut state = tcp.lock();
                let Phase::Listening(listener) = &mut state.phase else { return };
                if listener.is_full() {
                    return;
                }
                let Some(client) = listener.waiting.pop_front() else { return };
                client
            };
            if let Some(socket) = client.socket.upgrade()
                && let Some(attempt) = socket.waits_at(client.number)
            {
                // Who is in the way of nobody is let in; who is refused is told so.
                match socket.knock(self, tcp, attempt) {
                    Ok(Admission::Made | Admission::Full) => {}
                    Ok(Admission::Refused) => socket.abandon_own(Errno::ECONNREFUSED),
                    Err(error) => socket.abandon_own(error),
                }
            }
        }
    }

    /// Clients that its queue has memory for.
    #[cfg(test)]
    pub(super) fn waiting_room(&self) -> Option<usize> {
        match &self.tcp()?.lock().phase {
            Phase::Listening(listener) => Some(listener.waiting.capacity()),
            _ => None,
        }
    }

    /// The attempt of this number, if it is still at it.
    fn waits_at(&self, number: u64) -> Option<Attempt> {
        match self.tcp()?.lock().phase {
            Phase::Connecting(attempt) if attempt.number == number => Some(attempt),
            _ => None,
        }
    }

    /// Begins to connect to `remote`; false: that was begun before, or nobody was told yet that it worked.
    ///
    /// # Errors
    /// `EISCONN`; `ENETUNREACH`, `EADDRNOTAVAIL`, `ENOMEM`: it cannot be tried.
    pub fn begin_connect(self: &Arc<Self>, remote: SocketAddr) -> Result<bool> {
        let tcp = self.tcp().ok_or(Errno::EOPNOTSUPP)?;
        let remote = self.destination(remote)?;
        let attempt = {
            let mut state = tcp.lock();
            match (state.progress, &state.phase) {
                (Progress::Done, _) | (_, Phase::Listening(_)) => return Err(Errno::EISCONN),
                (Progress::Begun, _) => return Ok(false),
                (Progress::None, Phase::Idle) => {}
                (Progress::None, _) => return Err(Errno::EISCONN),
            }
            self.prepare(tcp, &mut state, remote)?
        };
        let inet = self.inet();
        if !inet.is_local(remote.ip()) {
            return self.begin_remote(tcp, attempt).map(|()| true);
        }
        if tcp.lock().local == Some(remote) {
            self.meet_itself(attempt);
            return Ok(true);
        }
        let rank = |socket: &Self| socket.interface_rank(LOOPBACK.index);
        let found = inet.tcp.find(remote, || inet.seed_for(Some(remote)), rank);
        let admission = match found.as_ref().and_then(|listener| Some((listener, listener.tcp()?))) {
            Some((listener, listening)) => self.knock(listener, listening, attempt),
            None => Ok(Admission::Refused),
        };
        match admission {
            Ok(Admission::Made | Admission::Full) => Ok(true),
            Ok(Admission::Refused) => {
                self.abandon_connect(tcp, Some(Errno::ECONNREFUSED));
                Ok(true)
            }
            Err(error) => {
                self.abandon_connect(tcp, None);
                tcp.lock().progress = Progress::None;
                Err(error)
            }
        }
    }

    /// Begins to connect to another machine.
    fn begin_remote(self: &Arc<Self>, tcp: &Tcp, attempt: Attempt) -> Result<()> {
        let (held, local) = {
            let state = tcp.lock();
            (state.held, state.local)
        };
        let (Some(held), Some(local)) = (held, local) else { return Err(Errno::EINVAL) };
        self.connect_flow(tcp, held, (local, attempt.remote)).inspect_err(|_| {
            self.abandon_connect(tcp, None);
            tcp.lock().progress = Progress::None;
        })
    }

    /// Gives it an end of its own for a connection to `remote`, and has it wait.
    fn prepare(self: &Arc<Self>, tcp: &Tcp, state: &mut State, remote: SocketAddr) -> Result<Attempt> {
        let source = Host::sender(&**self.inet()).source_for(remote.ip())?;
        let own = state.local.map(|local| local.ip()).filter(|_| state.has_own_address);
        let address = match own {
            Some(own) if own.is_ipv4() != remote.is_ipv4() => return Err(Errno::ENETUNREACH),
            Some(own) => own,
            None => source,
        };
        let inet = self.inet();
        let chance = (inet.now_ns(), inet.seed_for(Some(remote)));
        let held = inet.tcp.connect(state.held, &self.asking(address), remote, chance)?;
        inet.tcp.set_place(held, Place { address, is_v6_only: false });
        state.held = Some(held);
        state.local = Some(SocketAddr::new(address, held.port));
        let attempt = Attempt { remote, number: tcp.next_attempt() };
        (state.phase, state.progress, state.error) = (Phase::Connecting(attempt), Progress::Begun, None);
        Ok(attempt)
    }

    /// Asks to be let in by a listener; a client that finds its queue full is called when it is not.
    fn knock(self: &Arc<Self>, listener: &Arc<Self>, listening: &Tcp, attempt: Attempt) -> Result<Admission> {
        {
            let mut state = listening.lock();
            let Phase::Listening(queue) = &mut state.phase else { return Ok(Admission::Refused) };
            if queue.is_full() {
                queue.note(Client { socket: Arc::downgrade(self), number: attempt.number })?;
                return Ok(Admission::Full);
            }
        }
        let Some(accepted) = self.meet(listener, attempt)? else { return Ok(Admission::Made) };
        let Some(accepted) = listener.defer(listening, accepted) else {
            self.wait_queue().notify(Readiness::WRITE);
            return Ok(Admission::Made);
        };
        let mut state = listening.lock();
        if let Phase::Listening(queue) = &mut state.phase
            && reserve_queue(&mut queue.pending, 1).is_ok()
        {
            queue.pending.push_back(accepted);
        } else {
            drop(state);
            accepted.refuse();
            return Ok(Admission::Made);
        }
        drop(state);
        self.wait_queue().notify(Readiness::WRITE);
        listener.wait_queue().notify(Readiness::READ);
        Ok(Admission::Made)
    }

    /// What it brings into a connection.
    fn party(&self, address: SocketAddr) -> Party {
        Party {
            queue: self.wait_queue().clone(),
            address,
            window_bytes: self.window_bytes(),
            send_bytes: self.send_buffer_bytes(),
            sharing: self.sharing(),
            is_urgent_inline: self.options().is_on(switch::URGENT_INLINE),
        }
    }

    /// Makes a connection with itself: both ends are its own, and begin at once.
    fn meet_itself(&self, attempt: Attempt) {
        let Some(tcp) = self.tcp() else { return };
        self.connected_buffer();
        let connection = Connection::with_itself(self.inet(), &self.party(attempt.remote));
        let mut state = tcp.lock();
        if matches!(&state.phase, Phase::Connecting(current) if *current == attempt) {
            let link = Link::new(&connection, 0);
            let shut = state.shut;
            state.phase = Phase::Connected(link.clone());
            drop(state);
            link.shut_quietly(shut);
            self.wait_queue().notify(Readiness::WRITE);
        }
    }

    /// Makes the connection, and the socket that the listener accepts; `None`: the client does not wait any more.
    fn meet(self: &Arc<Self>, listener: &Self, attempt: Attempt) -> Result<Option<Arc<Self>>> {
        let remote = attempt.remote;
        let tcp = self.tcp().ok_or(Errno::EOPNOTSUPP)?;
        let other = listener.make_accepted()?;
        let mut state = tcp.lock();
        let (Phase::Connecting(current), Some(local)) = (&state.phase, state.local) else { return Ok(None) };
        if *current != attempt {
            return Ok(None);
        }
        self.connected_buffer();
        let connection = Connection::new(self.inet(), [self.party(local), other.party(remote)]);
        if let Some(tcp) = other.tcp() {
            let place = Place { address: remote.ip(), is_v6_only: false };
            let mut state = tcp.lock();
            state.held = Some(self.inet().tcp.accept(remote.port(), place, &other));
            (state.local, state.progress) = (Some(remote), Progress::Done);
            (state.is_bound, state.has_own_address) = (true, true);
            state.phase = Phase::Connected(Link::new(&connection, 1));
        }
        let link = Link::new(&connection, 0);
        if state.shut.sending || state.shut.receiving {
            let shut = state.shut;
            state.phase = Phase::Connected(link.clone());
            drop(state);
            // What was shut before there was a connection stays shut, as on Linux; the other side hears nothing of it.
            link.shut_quietly(shut);
        } else {
            state.phase = Phase::Connected(link);
        }
        Ok(Some(other))
    }

    /// What came of connecting.
    ///
    /// # Errors
    /// `EAGAIN`: nothing yet. `EISCONN`: it was told before. `ECONNREFUSED`, `ECONNABORTED`: it failed.
    pub fn connect_outcome(&self) -> Result<()> {
        let tcp = self.tcp().ok_or(Errno::EOPNOTSUPP)?;
        let mut state = tcp.lock();
        match &state.phase {
            Phase::Connecting(_) => Err(Errno::EAGAIN),
            Phase::Remote(flow) => {
                let flow = flow.clone();
                drop(state);
                self.flow_outcome(tcp, &flow)
            }
            Phase::Connected(link) => {
                let link = link.clone();
                state.progress = Progress::Done;
                let is_over = link.pair().sides[link.side].state == super::TcpState::Close;
                if is_over && let Some(error) = link.pair().sides[link.side].error.take() {
                    return Err(error);
                }
                Ok(())
            }
            _ => {
                state.progress = Progress::None;
                Err(state.error.take().unwrap_or(Errno::ECONNABORTED))
            }
        }
    }

    /// Gives up connecting, if it does: what waited is told `error`.
    pub(super) fn abandon_connect(&self, tcp: &Tcp, error: Option<Errno>) {
        let mut state = tcp.lock();
        let Phase::Connecting(Attempt { remote, .. }) = state.phase else { return };
        tcp.next_attempt();
        (state.phase, state.error) = (Phase::Idle, error);
        let (held, is_bound) = (state.held, state.is_bound);
        if !is_bound {
            state.held = None;
        }
        drop(state);
        self.forget_connection(held, remote, !is_bound);
        self.forget_address(&mut tcp.lock());
        self.wait_queue().notify(Readiness::EVENTS.difference(Readiness::PRIORITY));
    }

    /// The address that a connection chose is no more the socket's; as on Linux, the port is still shown.
    pub(super) fn forget_address(&self, state: &mut State) {
        if state.has_own_address {
            return;
        }
        let any = self.any_address();
        state.local = state.local.map(|local| SocketAddr::new(any, local.port()));
        if let Some(held) = state.held {
            self.inet().tcp.set_place(held, Place { address: any, is_v6_only: self.is_v6_only() });
        }
    }

    fn abandon_own(&self, error: Errno) {
        if let Some(tcp) = self.tcp() {
            self.abandon_connect(tcp, Some(error));
        }
    }

    /// A connection that was never made is none, and its port is free if it `releases` it.
    pub(super) fn forget_connection(&self, held: Option<Held>, remote: SocketAddr, releases: bool) {
        let Some(held) = held else { return };
        let ports = &self.inet().tcp;
        if let Some(local) = self.tcp().and_then(|tcp| tcp.lock().local) {
            ports.end((local, remote), None, self.inet().now_ns());
        }
        if releases {
            ports.release(held);
        }
    }

    /// `connect` to no address: it is as new, but for a port that was asked for.
    pub(super) fn disconnect_tcp(&self, tcp: &Tcp) -> Result<()> {
        self.stop_listening(tcp, Phase::Idle);
        self.abandon_connect(tcp, None);
        self.abandon_flow(tcp, None);
        let (phase, held, is_bound) = {
            let mut state = tcp.lock();
            let is_bound = state.is_bound;
            let held = if is_bound { state.held } else { state.held.take() };
            state.progress = Progress::None;
            state.shut = crate::net::Halves { receiving: false, sending: false };
            self.forget_address(&mut state);
            (core::mem::replace(&mut state.phase, Phase::Idle), held, is_bound)
        };
        match phase {
            Phase::Connected(link) => link.close(true, held.filter(|_| !is_bound), self.sharing()),
            Phase::Remote(flow) => {
                flow.close(true, self.release_of(held.filter(|_| !is_bound)), self.port_sharing());
            }
            _ if !is_bound => held.into_iter().for_each(|held| self.inet().tcp.release(held)),
            _ => {}
        }
        self.wait_queue().notify(Readiness::EVENTS.difference(Readiness::PRIORITY));
        Ok(())
    }
}
