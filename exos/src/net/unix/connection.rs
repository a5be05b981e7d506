//! Names, listening, connecting, accepting and the end of connections.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::address::{Address, Key};
use super::endpoint::{Endpoint, wake};
use super::socket::{Listener, Phase, Socket};
use super::{BACKLOG_MAX, Identity, SocketKind, UnixDomain};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::vnode::InodeRef;
use crate::net::Halves;

impl Listener {
    /// Remembers a waiter for a place.
    fn wait(&mut self, queue: &Arc<WaitQueue>) {
        self.waiting.retain(|known| known.strong_count() > 0);
        if !self.waiting.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(queue))) {
            self.waiting.push(Arc::downgrade(queue));
        }
    }

    fn is_full(&self) -> bool {
        self.pending.len() > self.backlog
    }
}

impl Socket {
    /// Two sockets that are connected to each other, made by `identity`.
    pub fn pair(domain: &Arc<UnixDomain>, kind: SocketKind, numbers: [u64; 2], identity: Identity) -> [Arc<Self>; 2] {
        let [first, second] = numbers.map(|number| Self::new(domain, kind, number));
        first.join(&second.endpoint, identity);
        second.join(&first.endpoint, identity);
        second.endpoint.set_writer(first.budget.clone());
        first.endpoint.set_writer(second.budget.clone());
        [first, second]
    }

    /// Makes `peer` the one that this socket talks to.
    fn join(&self, peer: &Arc<Endpoint>, identity: Identity) {
        self.endpoint.set_peer(Some(peer.number));
        let mut state = self.state.lock();
        state.phase = Phase::Connected(peer.clone());
        state.peer_identity = Some(identity);
    }

    /// Gives the socket the name that `path` was given to `inode` for.
    ///
    /// # Errors
    /// `EINVAL`: it has one. `EADDRINUSE`.
    pub fn bind_inode(self: &Arc<Self>, path: Vec<u8>, inode: InodeRef) -> Result<()> {
        let key = Key::of_inode(&inode);
        self.bind(Some(key), Address::Path(path), Some(inode))
    }

    /// Gives it an abstract name; `None`: any that is free (`autobind`).
    ///
    /// # Errors
    /// `EINVAL`: it has one already (nothing happens if any will do). `EADDRINUSE`, `ENOSPC`.
    pub fn bind_abstract(self: &Arc<Self>, name: Option<Vec<u8>>) -> Result<()> {
        match name {
            Some(name) => self.bind(Some(Key::Abstract(self.kind(), name.clone())), Address::Abstract(name), None),
            None if self.address().is_some() => Ok(()),
            None => {
                let name = self.domain.names.add_automatic(self)?;
                let outcome = self.bind(None, Address::Abstract(name.clone()), None);
                let key = Key::Abstract(self.kind(), name);
                if outcome.is_err() {
                    self.domain.names.remove(&key);
                } else {
                    self.state.lock().key = Some(key);
                }
                outcome
            }
        }
    }

    fn bind(self: &Arc<Self>, key: Option<Key>, address: Address, inode: Option<InodeRef>) -> Result<()> {
        let mut state = self.state.lock();
        if self.endpoint.address().is_some() {
            return Err(Errno::EINVAL);
        }
        if let Some(key) = &key {
            self.domain.names.add(key.clone(), self)?;
            state.key = Some(key.clone());
        }
        state.inode = inode;
        self.endpoint.set_address(Arc::new(address));
        Ok(())
    }

    /// Takes connections from now on, or changes how many wait.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: datagrams need no connections. `EINVAL`: no name, or connected.
    pub fn listen(&self, backlog: u32, identity: Identity) -> Result<()> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.address().is_none() {
            return Err(Errno::EINVAL);
        }
        let backlog = backlog.min(BACKLOG_MAX) as usize;
        let mut state = self.state.lock();
        let mut waiting = Vec::new();
        match &mut state.phase {
            Phase::Listening(listener) => {
                listener.backlog = backlog;
                listener.identity = identity;
                waiting = core::mem::take(&mut listener.waiting);
            }
            Phase::Fresh => {
                let listener = Listener { pending: VecDeque::new(), backlog, identity, waiting: Vec::new() };
                state.phase = Phase::Listening(listener);
            }
            _ => return Err(Errno::EINVAL),
        }
        state.peer_identity = Some(identity);
        drop(state);
        wake(waiting);
        Ok(())
    }

    /// Connects to a socket that was found by its name. `number` is for the inode of the other end.
    ///
    /// # Errors
    /// `EPROTOTYPE`: of another kind. `ECONNREFUSED`: it does not take connections. `EAGAIN`: no place yet; the waiter
    /// is woken through its own queue. `EISCONN`, `EINVAL`: this socket cannot be connected. `EPERM`: a datagram socket
    /// that talks to another.
    pub fn connect(self: &Arc<Self>, target: &Arc<Self>, number: u64, identity: Identity) -> Result<()> {
        if target.kind != self.kind {
            return Err(Errno::EPROTOTYPE);
        }
        if self.kind == SocketKind::Datagram {
            return self.connect_datagram(Some(target));
        }
        target.check_accepting(self)?;
        {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Fresh => state.phase = Phase::Connecting,
                Phase::Connected(_) => return Err(Errno::EISCONN),
                _ => return Err(Errno::EINVAL),
            }
        }
        let outcome = self.connect_to(target, number, identity);
        let mut state = self.state.lock();
        match outcome {
            Ok((peer, listener)) => {
                state.phase = Phase::Connected(peer);
                state.peer_identity = Some(listener);
                drop(state);
                self.endpoint.queue.notify(Readiness::WRITE);
                target.endpoint.queue.notify(Readiness::READ);
                Ok(())
            }
            Err(error) => {
                state.phase = Phase::Fresh;
                Err(error)
            }
        }
    }

    /// Whether there is a place for another connection.
    fn check_accepting(&self, client: &Self) -> Result<()> {
        let is_shut = self.endpoint.is_shut();
        match &mut self.state.lock().phase {
            Phase::Listening(listener) if !is_shut => {
                if listener.is_full() {
                    listener.wait(&client.endpoint.queue);
                    return Err(Errno::EAGAIN);
                }
                Ok(())
            }
            _ => Err(Errno::ECONNREFUSED),
        }
    }

    /// Puts the other end of this socket's connection where `target` accepts it from.
    fn connect_to(&self, target: &Arc<Self>, number: u64, identity: Identity) -> Result<(Arc<Endpoint>, Identity)> {
        let other = Self::new(&self.domain, self.kind, number);
        other.join(&self.endpoint, identity);
        if let Some(address) = target.address() {
            other.endpoint.set_address(address);
        }
        other.set_wants_identity(target.wants_identity());
        other.endpoint.set_writer(self.budget.clone());
        if self.state.lock().is_send_shut {
            other.endpoint.shut(false);
        }
        let endpoint = other.endpoint.clone();
        self.endpoint.set_writer(other.budget.clone());
        self.endpoint.set_peer(Some(number));
        let is_shut = target.endpoint.is_shut();
        match &mut target.state.lock().phase {
            Phase::Listening(listener) if !is_shut => {
                if listener.is_full() {
                    listener.wait(&self.endpoint.queue);
                    return Err(Errno::EAGAIN);
                }
                listener.pending.push_back(other);
                Ok((endpoint, listener.identity))
            }
            _ => Err(Errno::ECONNREFUSED),
        }
    }

    /// Sets the socket that a datagram socket sends to, and alone receives from. `None`: none in particular.
    ///
    /// # Errors
    /// `EPERM`: it talks to somebody else.
    pub fn connect_datagram(self: &Arc<Self>, target: Option<&Arc<Self>>) -> Result<()> {
        let number = self.endpoint.number;
        if target.is_some_and(|target| target.endpoint.peer().is_some_and(|peer| peer != number)) {
            return Err(Errno::EPERM);
        }
        let phase = target.map_or(Phase::Fresh, |target| Phase::Connected(target.endpoint.clone()));
        let before = core::mem::replace(&mut self.state.lock().phase, phase);
        self.endpoint.set_peer(target.map(|target| target.endpoint.number));
        if let Phase::Connected(before) = before
            && target.is_none_or(|target| target.endpoint.number != before.number)
        {
            self.leave(&before);
        }
        self.endpoint.queue.notify(Readiness::WRITE);
        Ok(())
    }

    /// Forgets what came from a peer that this datagram socket leaves, and tells it.
    fn leave(&self, before: &Endpoint) {
        let flight = &self.domain.flight;
        if self.endpoint.purge(flight) && before.peer() == Some(self.endpoint.number) && !before.is_dead() {
            before.set_error(Errno::ECONNRESET);
        }
        flight.bury();
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// `EINVAL`: it takes none. `EOPNOTSUPP`: datagrams need none. `EAGAIN`: none is waiting.
    pub fn accept(&self) -> Result<Arc<Self>> {
        if self.kind == SocketKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_shut = self.endpoint.is_shut();
        let (accepted, waiting) = {
            let mut state = self.state.lock();
            let Phase::Listening(listener) = &mut state.phase else { return Err(Errno::EINVAL) };
            match listener.pending.pop_front() {
                None if is_shut => return Err(Errno::EINVAL),
                None => return Err(Errno::EAGAIN),
                Some(accepted) => (accepted, core::mem::take(&mut listener.waiting)),
            }
        };
        wake(waiting);
        Ok(accepted)
    }

    /// Ends one half of the connection or both.
    pub fn shutdown(&self, halves: Halves) {
        let peer = self.peer().filter(|_| self.kind != SocketKind::Datagram);
        if halves.sending {
            self.state.lock().is_send_shut = true;
            if let Some(peer) = &peer {
                peer.shut(false);
            }
        }
        if halves.receiving {
            self.endpoint.shut(false);
        }
        let mut events = Readiness::ALWAYS | Readiness::READ_HANG_UP;
        events.set(Readiness::HANG_UP, halves.sending && halves.receiving);
        self.endpoint.queue.notify(events);
        if let Some(peer) = peer.filter(|_| halves.receiving) {
            peer.queue.notify(events);
        }
    }

    /// Ends it: its descriptor is gone.
    pub fn close(&self) {
        let (phase, key, inode) = {
            let mut state = self.state.lock();
            (core::mem::replace(&mut state.phase, Phase::Closed), state.key.take(), state.inode.take())
        };
        if let Some(key) = key {
            self.domain.names.remove(&key);
        }
        drop(inode);
        self.endpoint.die();
        let flight = &self.domain.flight;
        let had_unread = self.endpoint.purge(flight);
        match phase {
            Phase::Connected(peer) if self.kind != SocketKind::Datagram => {
                if had_unread {
                    peer.set_error(Errno::ECONNRESET);
                }
                peer.shut(true);
            }
            Phase::Listening(listener) => {
                for pending in listener.pending {
                    pending.refuse();
                }
                wake(listener.waiting);
            }
            _ => {}
        }
        // Sockets that could send here wait for news too.
        self.endpoint.queue.notify(Readiness::HANG_UP | Readiness::ALWAYS);
        flight.bury();
        flight.collect();
    }

    /// Ends a connection that nobody accepted.
    fn refuse(&self) {
        let phase = core::mem::replace(&mut self.state.lock().phase, Phase::Closed);
        self.endpoint.die();
        self.endpoint.purge(&self.domain.flight);
        if let Phase::Connected(peer) = phase {
            peer.set_error(Errno::ECONNRESET);
            peer.shut(true);
        }
    }
}
