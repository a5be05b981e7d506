//! Ports: which socket has which, which connections there are, and which have just ended.
//!
//! Of each protocol there is one table. It is looked at when a socket is bound, connects or ends, and for a datagram
//! that goes to nobody in particular; bytes of a connection within the machine never pass it, so other sockets cost a
//! busy one nothing. Ports are found in two loads ([`PortMap`]), connections by a keyed hash ([`Hashed`]): nobody can
//! drive up the cost of either by the choice of numbers.
//!
//! A connection that its own side ended first stays as a *wait* of [`TIME_WAIT_NS`]: an entry of the table, no socket.
//! At most [`TIME_WAIT_COUNT_MAX`] are kept, as on Linux the newest are forgotten then.
//!
//! Invariant: a number in `receivers` or `waits` is a holder of its port.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::hashed::Hashed;
use super::port_map::PortMap;
use super::socket::Socket;
use super::{EPHEMERAL_FIRST, EPHEMERAL_LAST};
use crate::error::{Errno, Result};
use crate::reserve;
use crate::sync::Mutex;

/// How long the end of a connection is remembered.
pub(super) const TIME_WAIT_NS: u64 = 60_000_000_000;
/// After this much of it a new connection may have the same two ends, as on Linux over loopback.
const REUSE_NS: u64 = 1_000_000_000;
/// Most ends that are remembered.
pub(super) const TIME_WAIT_COUNT_MAX: usize = 4096;

/// What a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its address; unspecified: any.
    pub(super) address: IpAddr,
    /// Of `::`, that IPv4 is not meant.
    pub(super) is_v6_only: bool,
}

impl Place {
    fn v4(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) if address.is_unspecified() && !self.is_v6_only => Some(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => None,
        }
    }

    fn v6(&self) -> Option<Ipv6Addr> {
        match self.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }

    /// Whether some packet could be meant for both.
    fn overlaps(&self, other: &Self) -> bool {
        let v4 = self.v4().zip(other.v4());
        let v6 = self.v6().zip(other.v6());
        v4.is_some_and(|(own, other)| own == other || own.is_unspecified() || other.is_unspecified())
            || v6.is_some_and(|(own, other)| own == other || own.is_unspecified() || other.is_unspecified())
    }

    /// How well it fits packets to `destination`; `None`: they are not meant.
    fn score(&self, destination: IpAddr) -> Option<u32> {
        match (self.address, destination) {
            (own, other) if own == other => Some(2),
            (IpAddr::V4(own), IpAddr::V4(_)) if own.is_unspecified() => Some(1),
            (IpAddr::V6(own), IpAddr::V6(_)) if own.is_unspecified() => Some(1),
            (IpAddr::V6(own), IpAddr::V4(_)) if own.is_unspecified() && !self.is_v6_only => Some(0),
            _ => None,
        }
    }
}

/// What decides whether two sockets may share a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sharing {
    /// `SO_REUSEADDR`.
    pub(super) reuses_address: bool,
    /// `SO_REUSEPORT`.
    pub(super) reuses_port: bool,
    /// Whose it is.
    pub(super) uid: u32,
    /// It takes connections.
    pub(super) is_listening: bool,
}

impl Sharing {
    fn allows(&self, other: &Self, is_wait: bool) -> bool {
        let by_address = self.reuses_address && other.reuses_address && !other.is_listening;
        by_address || (self.reuses_port && other.reuses_port && (is_wait || self.uid == other.uid))
    }
}

enum Owner {
    Socket(Weak<Socket>),
    Wait(Sharing),
}

struct Holder {
    place: Place,
    owner: Owner,
    /// It was given the port by `connect`, so others may be given it too that connect to somewhere else.
    is_by_connect: bool,
}

/// A socket that takes what comes to a port.
struct Receiver {
    number: u64,
    /// As its holder has it.
    place: Place,
    socket: Weak<Socket>,
}

#[derive(Default)]
struct Port {
    holders: BTreeMap<u64, Holder>,
    /// Those that were not given it by `connect`.
    bound_count: usize,
    /// In the order of numbers.
    receivers: Vec<Receiver>,
}

/// The two ends of a connection: the one that connected first.
pub(super) type Ends = (SocketAddr, SocketAddr);

struct Wait {
    until_ns: u64,
    number: u64,
    ends: Ends,
    /// Port that it holds.
    port: u16,
}

struct Table {
    ports: PortMap<Port>,
    /// Connections; of those that have ended, until when they are remembered.
    connections: Hashed<Ends, Option<u64>>,
    waits: VecDeque<Wait>,
    next_number: u64,
}

/// A port that a socket has, by which it gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) port: u16,
    number: u64,
}

/// What asks for a port.
pub(super) struct Asking<'a> {
    pub(super) socket: &'a Arc<Socket>,
    pub(super) place: Place,
    pub(super) sharing: Sharing,
    /// Two datagram sockets that both reuse addresses share whatever they do.
    pub(super) is_datagram: bool,
}

/// The ports of a protocol.
pub(super) struct Ports {
    table: Mutex<Table>,
}

impl Table {
    fn forget_waits(&mut self, now_ns: u64) {
        while self.waits.front().is_some_and(|wait| wait.until_ns <= now_ns) {
            if let Some(wait) = self.waits.pop_front() {
                self.end_wait(&wait);
            }
        }
    }

    fn end_wait(&mut self, wait: &Wait) {
        // A newer connection of the same two ends may have ended since, and is remembered for longer.
        if self.connections.get(&wait.ends) == Some(&Some(wait.until_ns)) {
            self.connections.remove(&wait.ends);
        }
        self.release(Held { port: wait.port, number: wait.number });
    }

    fn release(&mut self, held: Held) {
        self.stop_receiving(held);
        let Some(port) = self.ports.get_mut(held.port) else { return };
        if let Some(holder) = port.holders.remove(&held.number) {
            port.bound_count -= usize::from(!holder.is_by_connect);
        }
        if port.holders.is_empty() {
            self.ports.remove(held.port);
        }
    }

    fn stop_receiving(&mut self, held: Held) {
        if let Some(port) = self.ports.get_mut(held.port) {
            port.receivers.retain(|receiver| receiver.number != held.number);
        }
    }

    fn hold(&mut self, port: u16, place: Place, owner: Owner, is_by_connect: bool) -> Held {
        let number = self.next_number;
        self.next_number += 1;
        let entry = self.ports.get_or_default(port);
        entry.bound_count += usize::from(!is_by_connect);
        entry.holders.insert(number, Holder { place, owner, is_by_connect });
        Held { port, number }
    }

    /// Whether somebody has the port who does not share it.
    fn conflicts(&self, port: u16, asking: &Asking<'_>, own: Option<u64>) -> bool {
        let Some(port) = self.ports.get(port) else { return false };
        port.holders.iter().any(|(number, holder)| {
            if Some(*number) == own || !holder.place.overlaps(&asking.place) {
                return false;
            }
            match &holder.owner {
                Owner::Wait(sharing) => !asking.sharing.allows(sharing, true),
                Owner::Socket(socket) => socket.upgrade().is_some_and(|socket| {
                    let mut sharing = socket.sharing();
                    sharing.is_listening &= !asking.is_datagram;
                    !asking.sharing.allows(&sharing, false)
                }),
            }
        })
    }
}

/// Every ephemeral port, from one on that `seed` chooses.
fn ephemeral(seed: u64) -> impl Iterator<Item = u16> {
    const COUNT: u64 = (EPHEMERAL_LAST - EPHEMERAL_FIRST) as u64 + 1;
    let first = seed % COUNT;
    (0..COUNT).map(move |step| EPHEMERAL_FIRST + ((first + step) % COUNT) as u16)
}

impl Ports {
    /// No port has a socket. `key` is for hashes.
    pub(super) fn new(key: [u64; 2]) -> Self {
        let table =
            Table { ports: PortMap::default(), connections: Hashed::new(key), waits: VecDeque::new(), next_number: 0 };
        Self { table: Mutex::new(table) }
    }

    /// Gives a port to a socket; port 0: one that nobody has.
    ///
    /// # Errors
    /// `EADDRINUSE`: somebody has it, or all are taken.
    pub(super) fn bind(&self, port: u16, asking: &Asking<'_>, (now_ns, seed): (u64, u64)) -> Result<Held> {
        let mut table = self.table.lock();
        table.forget_waits(now_ns);
        let port = match port {
            0 => ephemeral(seed).find(|port| !table.ports.contains(*port)).ok_or(Errno::EADDRINUSE)?,
            port if table.conflicts(port, asking, None) => return Err(Errno::EADDRINUSE),
            port => port,
        };
        Ok(table.hold(port, asking.place, Owner::Socket(Arc::downgrade(asking.socket)), false))
    }

    /// Gives back a port.
    pub(super) fn release(&self, held: Held) {
        self.table.lock().release(held);
    }

    /// Says that a socket takes what comes to its port from now on.
    ///
    /// # Errors
    /// `EADDRINUSE`: another does whom it does not share the port with. `ENOMEM`.
    pub(super) fn receive(&self, held: Held, asking: &Asking<'_>) -> Result<()> {
        let mut table = self.table.lock();
        if table.conflicts(held.port, asking, Some(held.number)) {
            return Err(Errno::EADDRINUSE);
        }
        let Some(port) = table.ports.get_mut(held.port) else { return Ok(()) };
        let Some(place) = port.holders.get(&held.number).map(|holder| holder.place) else { return Ok(()) };
        let at = port.receivers.partition_point(|receiver| receiver.number < held.number);
        let receiver = Receiver { number: held.number, place, socket: Arc::downgrade(asking.socket) };
        match port.receivers.get_mut(at) {
            Some(known) if known.number == held.number => *known = receiver,
            _ => {
                reserve::reserve(&mut port.receivers, 1)?;
                port.receivers.insert(at, receiver);
            }
        }
        Ok(())
    }

    /// Ends that.
    pub(super) fn stop_receiving(&self, held: Held) {
        self.table.lock().stop_receiving(held);
    }

    /// Says that a bound socket has another address from now on.
    pub(super) fn set_place(&self, held: Held, place: Place) {
        let mut table = self.table.lock();
        let Some(port) = table.ports.get_mut(held.port) else { return };
        if let Some(holder) = port.holders.get_mut(&held.number) {
            holder.place = place;
        }
        let of_it = port.receivers.iter_mut().filter(|receiver| receiver.number == held.number);
        of_it.for_each(|receiver| receiver.place = place);
    }

    /// Who takes what comes to `destination`: who fits best by address and then by what `rank` says of it (`None`: it
    /// does not want it); of several who share the port by choice, the one that `seed` falls on.
    pub(super) fn find(
        &self,
        destination: SocketAddr,
        seed: impl FnOnce() -> u64,
        rank: impl Fn(&Socket) -> Option<u32>,
    ) -> Option<Arc<Socket>> {
        let table = self.table.lock();
        let receivers = &table.ports.get(destination.port())?.receivers;
        let scored = receivers.iter().filter_map(|receiver| {
            let by_place = receiver.place.score(destination.ip())?;
            let socket = receiver.socket.upgrade()?;
            let score = (rank(&socket)?, by_place);
            Some((score, socket))
        });
        if receivers.len() == 1 {
            let mut scored = scored;
            return scored.next().map(|(_, socket)| socket);
        }
        // The newest of those who fit best, unless all of them share it: then each with the same chance.
        let (mut best, mut sharer_count) = (None, 0);
        for (score, socket) in scored.clone() {
            match &best {
                Some((known, _)) if *known > score => {}
                Some((known, _)) if *known == score && socket.sharing().reuses_port => sharer_count += 1,
                _ => (best, sharer_count) = (Some((score, socket)), 1),
            }
        }
        let (best_score, best) = best?;
        if sharer_count == 1 {
            return Some(best);
        }
        scored.filter(|(score, _)| *score == best_score).nth((seed() % sharer_count) as usize).map(|(_, socket)| socket)
    }

    /// All that take what comes to `destination`, which is a group's or all machines'.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn find_all(
        &self,
        destination: SocketAddr,
        wants: impl Fn(&Socket) -> bool,
    ) -> Result<Vec<Arc<Socket>>> {
        let table = self.table.lock();
        let mut found = Vec::new();
        for receiver in table.ports.get(destination.port()).into_iter().flat_map(|port| &port.receivers) {
            let fits = receiver.place.score(destination.ip()).is_some();
            if fits && let Some(socket) = receiver.socket.upgrade().filter(|socket| wants(socket)) {
                reserve::reserve(&mut found, 1)?;
                found.push(socket);
            }
        }
        Ok(found)
    }

    /// Calls `action` with each socket that has a port. It looks at nothing that a lock protects.
    pub(super) fn for_each_socket(&self, mut action: impl FnMut(&Arc<Socket>)) {
        let table = self.table.lock();
        let owners = table.ports.values().flat_map(|port| port.holders.values());
        for holder in owners {
            if let Owner::Socket(socket) = &holder.owner
                && let Some(socket) = socket.upgrade()
            {
                action(&socket);
            }
        }
    }

    /// Connections that have ended and are remembered, each as the end sees it that was first, and for how long.
    pub(super) fn for_each_wait(&self, now_ns: u64, mut action: impl FnMut(&Ends, u64)) {
        let mut table = self.table.lock();
        table.forget_waits(now_ns);
        for wait in &table.waits {
            let (client, server) = wait.ends;
            let ends = if client.port() == wait.port { (client, server) } else { (server, client) };
            action(&ends, wait.until_ns - now_ns);
        }
    }

    /// Notes a connection, of a socket that has a port already or is given one.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: there is such a connection, or all ports are taken. `ENOMEM`.
    pub(super) fn connect(
        &self,
        held: Option<Held>,
        asking: &Asking<'_>,
        remote: SocketAddr,
        (now_ns, seed): (u64, u64),
    ) -> Result<Held> {
        let mut table = self.table.lock();
        table.forget_waits(now_ns);
        let local = |port| SocketAddr::new(asking.place.address, port);
        if let Some(held) = held {
            let ends = (local(held.port), remote);
            if matches!(table.connections.get(&ends), Some(None)) {
                return Err(Errno::EADDRNOTAVAIL);
            }
            table.connections.insert(ends, None)?;
            return Ok(held);
        }
        let is_free = |port: &u16| {
            let may_share = table.ports.get(*port).is_none_or(|port| port.bound_count == 0);
            may_share
                && match table.connections.get(&(local(*port), remote)) {
                    None => !table.connections.contains_key(&(remote, local(*port))),
                    Some(None) => false,
                    Some(Some(until_ns)) => until_ns.saturating_sub(now_ns) + REUSE_NS <= TIME_WAIT_NS,
                }
        };
        let port = ephemeral(seed).find(is_free).ok_or(Errno::EADDRNOTAVAIL)?;
        table.connections.insert((local(port), remote), None)?;
        Ok(table.hold(port, asking.place, Owner::Socket(Arc::downgrade(asking.socket)), true))
    }

    /// Gives an accepted socket its listener's port.
    pub(super) fn accept(&self, port: u16, place: Place, socket: &Arc<Socket>) -> Held {
        self.table.lock().hold(port, place, Owner::Socket(Arc::downgrade(socket)), false)
    }

    /// Forgets a connection; if its end on this machine that was first to end is to be remembered, as a wait of the
    /// port that `first` has there.
    pub(super) fn end(&self, ends: Ends, first: Option<(SocketAddr, Sharing)>, now_ns: u64) {
        let mut table = self.table.lock();
        table.forget_waits(now_ns);
        // An end that costs memory is not remembered while there is none to spare.
        let mut has_room = || {
            table.waits.len() < TIME_WAIT_COUNT_MAX
                && reserve::check().and_then(|()| reserve::reserve_queue(&mut table.waits, 1)).is_ok()
                && (table.connections.contains_key(&ends) || table.connections.reserve().is_ok())
        };
        let Some((local, sharing)) = first.filter(|_| has_room()) else {
            table.connections.remove(&ends);
            return;
        };
        let until_ns = now_ns.saturating_add(TIME_WAIT_NS);
        let place = Place { address: local.ip(), is_v6_only: false };
        let is_by_connect = local == ends.0;
        let held = table.hold(local.port(), place, Owner::Wait(sharing), is_by_connect);
        // There is room: it was looked at.
        let _ = table.connections.insert(ends, Some(until_ns));
        table.waits.push_back(Wait { until_ns, number: held.number, ends, port: held.port });
    }

    /// How many connections there are and how many are remembered.
    pub(super) fn counts(&self, now_ns: u64) -> (usize, usize) {
        let mut table = self.table.lock();
        table.forget_waits(now_ns);
        (table.connections.len() - table.waits.len().min(table.connections.len()), table.waits.len())
    }
}
