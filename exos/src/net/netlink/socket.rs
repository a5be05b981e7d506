//! A netlink socket: its port, its groups, what waits to be received, and a dump that goes on as it is read.
//!
//! What a program sends is answered before the call returns; answers wait in the socket's inbox. Of a dump only what
//! fits a datagram is there at a time, as on Linux, so a program with a small buffer gets small pieces.
//!
//! Invariants: those of [`crate::fs`] (INV-F1, INV-F3); one lock, held neither while bytes go to or from a program nor
//! while a waiter is woken. Bounds: the inbox holds [`BufferSizes::receive_bytes`] and a datagram, beyond which
//! answers are lost and the next call says `ENOBUFS`, once; one dump at a time, which is in memory as a whole.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::change::Change;
use super::diagnosis::{self, Provider};
use super::event::{self, Event};
use super::message::{self, Answers, HEADER_BYTES, KIND_FIRST, Refusal, Request, Requests, aligned, flag, u32_at};
use super::route::{self, Answer, Dump, Question};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::fs::transfer::{Destination, Source};
use crate::net::buffer_sizes::BufferSizes;
use crate::net::filter;
use crate::net::options::SocketOptions;
use crate::net::view::NetworkView;
use crate::sync::Mutex;
use crate::{preempt, reserve};

/// `NETLINK_*`: which of the system's parts a socket speaks with.
pub mod protocol {
    /// `NETLINK_ROUTE`.
    pub const ROUTE: u8 = 0;
    /// `NETLINK_USERSOCK`: programs among themselves.
    pub const USER: u8 = 2;
    /// `NETLINK_SOCK_DIAG`.
    pub const DIAGNOSIS: u8 = 4;
    /// `NETLINK_KOBJECT_UEVENT`: devices that come and go, of which there are none.
    pub const DEVICES: u8 = 15;
    /// `NETLINK_GENERIC`: families by name, of which there are none.
    pub const GENERIC: u8 = 16;
    /// All that there are.
    pub const ALL: [u8; 5] = [ROUTE, USER, DIAGNOSIS, DEVICES, GENERIC];
    /// One more than the greatest number that can be asked for (`MAX_LINKS`).
    pub const COUNT: u64 = 32;
}

/// What a datagram counts besides its bytes.
const OVERHEAD_BYTES: usize = 768;
/// Bytes of a dump's first datagram, and of the largest (`NLMSG_GOODSIZE`; 32 KiB less what Linux keeps with it).
const PIECE_BYTES: usize = 3776;
const PIECE_BYTES_MAX: usize = 32_768 - 320;
/// Ports that are chosen where a process has more than one socket: from here downwards.
const CHOSEN_FIRST: u32 = (-4097_i32) as u32;
/// Groups that can be joined, by protocol.
const GROUP_COUNT: u32 = 36;

/// Switches of a socket, by their numbers (`NETLINK_*` of `SOL_NETLINK`), and `SO_PASSCRED`.
pub mod switch {
    /// `NETLINK_PKTINFO`.
    pub const PACKET_INFO: u64 = 3;
    /// `NETLINK_BROADCAST_ERROR`.
    pub const BROADCAST_ERROR: u64 = 4;
    /// `NETLINK_NO_ENOBUFS`.
    pub const NO_OVERRUN: u64 = 5;
    /// `NETLINK_LISTEN_ALL_NSID`.
    pub const ALL_SPACES: u64 = 8;
    /// `NETLINK_CAP_ACK`.
    pub const CAPPED: u64 = 10;
    /// `NETLINK_EXT_ACK`.
    pub const EXTENDED: u64 = 11;
    /// `NETLINK_GET_STRICT_CHK`.
    pub const STRICT: u64 = 12;
    /// `SO_PASSCRED`.
    pub const IDENTITY: u64 = 16;
    /// Those of `SOL_NETLINK`.
    pub const ALL: [u64; 7] = [PACKET_INFO, BROADCAST_ERROR, NO_OVERRUN, ALL_SPACES, CAPPED, EXTENDED, STRICT];
}

/// The process that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its number, which is the port of its first socket.
    pub process: u32,
    /// It has `CAP_NET_ADMIN`.
    pub can_administer: bool,
}

/// The netlink sockets of a pod, by protocol and port.
pub struct Netlink {
    provider: Arc<dyn Provider>,
    ports: Mutex<BTreeMap<(u8, u32), Weak<Socket>>>,
    /// The network as the groups know it; `None`: nobody listens.
    told: Mutex<Option<NetworkView>>,
}

impl Netlink {
    /// No sockets; what they ask is told by `provider`.
    pub fn new(provider: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { provider, ports: Mutex::default(), told: Mutex::default() })
    }

    /// Tells the groups how the network has changed since they were told last. Called with no lock held.
    pub fn tell_changes(&self) {
        let members = {
            // Held until all are told, so that they are told in order.
            let mut told = self.told.lock();
            let Some(old) = told.as_ref() else { return };
            let members = self.members().unwrap_or_default();
            let number = self.provider.number();
            let answers = Answers { is_capped: false, is_extended: false, is_strict: false, number };
            let outcome = self.provider.view().and_then(|view| Ok((event::events(old, &view, &answers)?, view)));
            match outcome {
                Ok((events, view)) => {
                    events.iter().for_each(|event| members.iter().for_each(|member| member.hear(event)));
                    *told = (!members.is_empty()).then_some(view);
                }
                Err(_) => members.iter().for_each(|member| member.overrun()),
            }
            members
        };
        members.iter().for_each(|member| member.queue.notify(Readiness::READ));
    }

    /// Sockets that are in a group of `NETLINK_ROUTE`.
    fn members(&self) -> Result<Vec<Arc<Socket>>> {
        let mut members = Vec::new();
        let range = (protocol::ROUTE, 0)..=(protocol::ROUTE, u32::MAX);
        for member in self.ports.lock().range(range).filter_map(|(_, socket)| socket.upgrade()) {
            reserve::reserve(&mut members, 1)?;
            members.push(member);
        }
        members.retain(|member| member.state.lock().groups != 0);
        Ok(members)
    }

    /// Somebody listens from now on.
    fn begin_telling(&self) {
        let view = self.provider.view();
        let mut told = self.told.lock();
        if let (None, Ok(view)) = (&*told, view) {
            *told = Some(view);
        }
    }
}

/// A message that waits.
#[derive(Clone)]
struct Datagram {
    bytes: Arc<Vec<u8>>,
    from: Address,
}

/// `struct sockaddr_nl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Port; 0: the system.
    pub port: u32,
    /// Groups, a bit each.
    pub groups: u32,
}

struct RunningDump {
    dump: Dump,
    told_bytes: usize,
    sequence: u32,
}

#[derive(Default)]
struct State {
    /// Its port, once it has one.
    port: Option<u32>,
    groups: u64,
    peer: Address,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    dump: Option<RunningDump>,
    /// The largest buffer that it was read with.
    read_bytes: usize,
    is_overrun: bool,
    lost_count: u64,
}

/// What was received.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes put into the destination.
    pub byte_count: usize,
    /// Bytes that the datagram had.
    pub message_bytes: usize,
    /// Whose it is.
    pub from: Address,
}

/// A netlink socket.
pub struct Socket {
    netlink: Arc<Netlink>,
    number: u64,
    protocol: u8,
    /// `SOCK_RAW` rather than `SOCK_DGRAM`, which makes no difference.
    is_raw: bool,
    queue: Arc<WaitQueue>,
    options: SocketOptions,
    switches: AtomicU32,
    buffer_sizes: BufferSizes,
    state: Mutex<State>,
}

impl Socket {
    /// A socket without a port. `number` is that of its inode.
    pub fn new(netlink: &Arc<Netlink>, protocol: u8, is_raw: bool, number: u64) -> Arc<Self> {
        Arc::new(Self {
            netlink: netlink.clone(),
            number,
            protocol,
            is_raw,
            queue: WaitQueue::new(),
            options: SocketOptions::default(),
            switches: AtomicU32::new(0),
            buffer_sizes: BufferSizes::new(),
            state: Mutex::default(),
        })
    }

    /// The number of its inode.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// `NETLINK_*`.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether it is `SOCK_RAW`.
    pub fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// What all sockets keep.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// What is told about everything that happens to it.
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// Whether a switch is on.
    pub fn is_on(&self, switch: u64) -> bool {
        self.switches.load(Ordering::Relaxed) & 1 << switch != 0
    }

    /// Sets or clears a switch.
    pub fn set_on(&self, switch: u64, value: bool) {
        if value {
            self.switches.fetch_or(1 << switch, Ordering::Relaxed);
        } else {
            self.switches.fetch_and(!(1 << switch), Ordering::Relaxed);
        }
    }

    /// How much it may send and hold.
    pub fn buffer_sizes(&self) -> &BufferSizes {
        &self.buffer_sizes
    }

    /// Its own address.
    pub fn local(&self) -> Address {
        let state = self.state.lock();
        Address { port: state.port.unwrap_or(0), groups: state.groups as u32 }
    }

    /// Where it sends to.
    pub fn remote(&self) -> Address {
        self.state.lock().peer
    }

    /// Bytes that wait, and messages that were lost.
    pub fn waiting(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.inbox_bytes, state.lost_count)
    }

    /// Whether a dump goes on.
    pub fn is_dumping(&self) -> bool {
        self.state.lock().dump.is_some()
    }

    /// Bytes of the next message (`FIONREAD`).
    pub fn first_bytes(&self) -> usize {
        self.state.lock().inbox.front().map_or(0, |datagram| datagram.bytes.len())
    }

    /// Gives it a port and groups. Port 0: any.
    ///
    /// # Errors
    /// `EINVAL`: it has another port. `EADDRINUSE`.
    pub fn bind(self: &Arc<Self>, address: Address, process: u32) -> Result<()> {
        match self.state.lock().port {
            Some(port) if address.port != port => return Err(Errno::EINVAL),
            _ => {}
        }
        self.take_port(address.port, process)?;
        {
            let mut state = self.state.lock();
            state.groups = state.groups & !u64::from(u32::MAX) | u64::from(address.groups);
        }
        if address.groups != 0 && self.protocol == protocol::ROUTE {
            self.netlink.begin_telling();
        }
        Ok(())
    }

    /// A group that it is in is told something.
    fn hear(&self, event: &Event) {
        let bit = 1 << (event.group - 1);
        if self.state.lock().groups & bit == 0 {
            return;
        }
        let filter = self.options.filter();
        let packet = filter::Packet {
            parts: &[&event.bytes],
            begin_bytes: 0,
            network_bytes: 0,
            protocol: 0,
            kind: 0,
            interface: 0,
            hardware_kind: 0,
            random: 0,
        };
        if filter.is_some_and(|filter| filter.run(&packet) == 0) {
            return;
        }
        let kept =
            reserve::copy(&event.bytes).and_then(|bytes| self.put(bytes, Address { port: 0, groups: bit as u32 }));
        if kept.is_err() {
            self.overrun();
        }
    }

    /// Something is lost that it should have been told.
    fn overrun(&self) {
        let mut state = self.state.lock();
        state.lost_count += 1;
        state.is_overrun |= !self.is_on(switch::NO_OVERRUN);
    }

    /// Has a port from now on: `wanted`, or if that is 0 the process's number or what is free.
    fn take_port(self: &Arc<Self>, wanted: u32, process: u32) -> Result<()> {
        let mut ports = self.netlink.ports.lock();
        if self.state.lock().port.is_some() {
            return Ok(());
        }
        let is_free = |ports: &BTreeMap<(u8, u32), Weak<Self>>, port| {
            ports.get(&(self.protocol, port)).is_none_or(|holder| holder.strong_count() == 0)
        };
        let port = if wanted == 0 {
            let below = ports.range((self.protocol, 1 << 31)..=(self.protocol, CHOSEN_FIRST));
            let lowest = below.map(|entry| entry.0.1).next();
            // Below all that were chosen; after 2^31 of them from the top again, wherever one is free.
            let next = lowest.map_or(CHOSEN_FIRST, |lowest| lowest.wrapping_sub(1).max(1 << 31));
            let free = [process, next].into_iter().find(|port| is_free(&ports, *port));
            free.or_else(|| (1 << 31..=CHOSEN_FIRST).rev().find(|port| is_free(&ports, *port)))
                .ok_or(Errno::EADDRINUSE)?
        } else {
            wanted
        };
        if !is_free(&ports, port) {
            return Err(Errno::EADDRINUSE);
        }
        ports.insert((self.protocol, port), Arc::downgrade(self));
        self.state.lock().port = Some(port);
        Ok(())
    }

    /// Says where it sends to.
    ///
    /// # Errors
    /// `EADDRINUSE`: no port is free.
    pub fn connect(self: &Arc<Self>, peer: Option<Address>, process: u32) -> Result<()> {
        if peer.is_some() {
            self.take_port(0, process)?;
        }
        self.state.lock().peer = peer.unwrap_or_default();
        Ok(())
    }

    /// Joins a group or leaves it.
    ///
    /// # Errors
    /// `EINVAL`: there is no such group.
    pub fn set_member(&self, group: u32, is_member: bool) -> Result<()> {
        if !(1..=GROUP_COUNT).contains(&group) {
            return Err(Errno::EINVAL);
        }
        let bit = 1 << (group - 1);
        {
            let mut state = self.state.lock();
            state.groups = if is_member { state.groups | bit } else { state.groups & !bit };
        }
        if is_member && self.protocol == protocol::ROUTE {
            self.netlink.begin_telling();
        }
        Ok(())
    }

    /// The groups that it is in, and how many words tell them.
    pub fn groups(&self) -> [u32; 2] {
        let groups = self.state.lock().groups;
        [groups as u32, (groups >> 32) as u32]
    }

    /// What it is ready for.
    pub fn readiness(&self) -> Readiness {
        let state = self.state.lock();
        let mut ready = Readiness::WRITE;
        ready.set(Readiness::READ, !state.inbox.is_empty());
        ready.set(Readiness::ERROR, state.is_overrun);
        ready
    }

    /// What the last failure was that nobody has been told (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        core::mem::take(&mut self.state.lock().is_overrun).then_some(Errno::ENOBUFS)
    }

    fn answers(&self) -> Answers {
        Answers {
            is_capped: self.is_on(switch::CAPPED),
            is_extended: self.is_on(switch::EXTENDED),
            is_strict: self.is_on(switch::STRICT),
            number: self.netlink.provider.number(),
        }
    }

    /// Sends a message: to the system, which answers it, or to another socket.
    ///
    /// # Errors
    /// `EMSGSIZE`: longer than the buffer. `ENODATA`: nothing. `EPERM`: to others, without the right. `ECONNREFUSED`:
    /// nobody is there.
    pub fn send(self: &Arc<Self>, bytes: Vec<u8>, target: Option<Address>, sender: Sender) -> Result<usize> {
        const KEPT_BYTES: usize = 32;
        if bytes.is_empty() {
            return Err(Errno::ENODATA);
        }
        let target = target.unwrap_or_else(|| self.remote());
        if target != Address::default() && self.protocol != protocol::USER && !sender.can_administer {
            return Err(Errno::EPERM);
        }
        self.take_port(0, sender.process)?;
        if bytes.len() > self.buffer_sizes.send_bytes() - KEPT_BYTES {
            return Err(Errno::EMSGSIZE);
        }
        let byte_count = bytes.len();
        if target.port != 0 {
            return self.send_to(bytes, target.port).map(|()| byte_count);
        }
        if [protocol::USER, protocol::DEVICES].contains(&self.protocol) {
            return Err(Errno::ECONNREFUSED);
        }
        let mut is_interrupted = false;
        for request in Requests::new(&bytes) {
            is_interrupted = is_interrupted || preempt::unless_killed().is_err();
            if is_interrupted {
                break;
            }
            self.take(&request, sender)?;
        }
        self.queue.notify(Readiness::READ);
        Ok(byte_count)
    }

    /// To another program's socket.
    fn send_to(&self, bytes: Vec<u8>, port: u32) -> Result<()> {
        let found = self.netlink.ports.lock().get(&(self.protocol, port)).and_then(Weak::upgrade);
        let other = found.ok_or(Errno::ECONNREFUSED)?;
        let own = self.local().port;
        if ![0, own].contains(&other.remote().port) {
            return Err(Errno::ECONNREFUSED);
        }
        if !other.put(bytes, Address { port: own, groups: 0 })? {
            return Err(Errno::EAGAIN);
        }
        other.queue.notify(Readiness::READ);
        Ok(())
    }

    /// Takes a request, and keeps its answer.
    fn take(&self, request: &Request<'_>, sender: Sender) -> Result<()> {
        let answers = self.answers();
        let port = self.local().port;
        let is_request = request.flags & flag::REQUEST != 0 && request.kind >= KIND_FIRST;
        let outcome = if is_request { self.answer(request, port, &answers, sender) } else { Ok(true) };
        let is_asked = request.flags & flag::ACK != 0;
        let acknowledgement = match outcome {
            // A dump says by its end what an acknowledgement would.
            Ok(false) => return Ok(()),
            Ok(true) if is_asked => Ok(()),
            Ok(true) => return Ok(()),
            Err(refusal) => Err(refusal),
        };
        let told = message::acknowledge(request, acknowledgement, port, &answers)?;
        self.put(told, Address::default()).map(|_| ())
    }

    /// Answers a request; whether it may be acknowledged.
    fn answer(
        &self,
        request: &Request<'_>,
        port: u32,
        answers: &Answers,
        sender: Sender,
    ) -> core::result::Result<bool, Refusal> {
        let answer = match self.protocol {
            protocol::ROUTE => {
                let view = self.netlink.provider.view()?;
                let can_administer = sender.can_administer;
                route::answer(&Question { request: *request, view: &view, port, answers, can_administer })?
            }
            protocol::DIAGNOSIS => diagnosis::answer(request, port, &*self.netlink.provider)?,
            // No family has a name.
            _ => return Err(Errno::ENOENT.into()),
        };
        match answer {
            Answer::Messages(bytes) => {
                if !bytes.is_empty() {
                    self.put(bytes, Address::default())?;
                }
                Ok(true)
            }
            Answer::Change(Change::Nothing) => Ok(true),
            Answer::Change(change) => {
                self.netlink.provider.change(change)?;
                self.netlink.tell_changes();
                Ok(true)
            }
            Answer::Dump(dump) => {
                let mut state = self.state.lock();
                if state.dump.is_some() {
                    return Err(Errno::EBUSY.into());
                }
                state.dump = Some(RunningDump { dump, told_bytes: 0, sequence: request.sequence });
                self.go_on(&mut state, port, answers)?;
                Ok(false)
            }
        }
    }

    /// Keeps a message; false: there is no room, and it is lost.
    fn put(&self, bytes: Vec<u8>, from: Address) -> Result<bool> {
        let mut state = self.state.lock();
        if state.inbox_bytes > self.buffer_sizes.receive_bytes() {
            state.lost_count += 1;
            state.is_overrun |= !self.is_on(switch::NO_OVERRUN);
            return Ok(false);
        }
        state.put(bytes, from)?;
        Ok(true)
    }

    /// Makes the next datagram of a dump, unless enough waits.
    fn go_on(&self, state: &mut State, port: u32, answers: &Answers) -> Result<()> {
        let most = self.buffer_sizes.receive_bytes() / 2;
        let piece_bytes = state.read_bytes.clamp(PIECE_BYTES, PIECE_BYTES_MAX);
        let Some(running) = state.dump.as_mut().filter(|_| state.inbox_bytes <= most) else { return Ok(()) };
        let rest = running.dump.bytes.get(running.told_bytes..).unwrap_or_default();
        if rest.is_empty() {
            let (sequence, flags, refusal) = (running.sequence, running.dump.flags, running.dump.refusal);
            state.dump = None;
            let end = message::done(sequence, flags, refusal, port, answers)?;
            return state.put(end, Address::default());
        }
        let count = whole_messages(rest, piece_bytes);
        let piece = reserve::copy(&rest[..count])?;
        running.told_bytes += count;
        state.put(piece, Address::default())
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// `EAGAIN`; `ENOBUFS`: messages were lost; `EFAULT`; `ENOMEM`.
    pub fn receive(&self, destination: &mut dyn Destination, is_peek: bool) -> Result<Received> {
        let room = destination.remaining();
        let answers = self.answers();
        let datagram = {
            let mut state = self.state.lock();
            if core::mem::take(&mut state.is_overrun) {
                return Err(Errno::ENOBUFS);
            }
            let datagram = state.inbox.front().cloned().ok_or(Errno::EAGAIN)?;
            if !is_peek {
                state.inbox.pop_front();
                state.inbox_bytes -= datagram.bytes.len() + OVERHEAD_BYTES;
            }
            state.read_bytes = state.read_bytes.max(room.min(PIECE_BYTES_MAX));
            let port = state.port.unwrap_or(0);
            let outcome = self.go_on(&mut state, port, &answers);
            // As on Linux, an end that could not be made is told by the next call.
            state.is_overrun |= outcome.is_err();
            datagram
        };
        let byte_count = room.min(datagram.bytes.len());
        if destination.put(&datagram.bytes[..byte_count]) < byte_count {
            return Err(Errno::EFAULT);
        }
        Ok(Received { byte_count, message_bytes: datagram.bytes.len(), from: datagram.from })
    }

    /// One attempt at [`Self::receive`].
    pub fn receive_step(
        &self,
        destination: &mut dyn Destination,
        is_peek: bool,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> (Step, Received) {
        match self.receive(destination, is_peek) {
            Ok(received) => (Step::Done(received.byte_count), received),
            Err(Errno::EAGAIN) => {
                let step = transfer.wait_at_most(self.options.receive_timeout_ns(), caller);
                (step, Received::default())
            }
            Err(error) => (Step::Failed(error), Received::default()),
        }
    }

    /// Sends all that `source` has.
    ///
    /// # Errors
    /// Those of [`Self::send`]; `EFAULT`, `ENOMEM`.
    pub fn send_from(
        self: &Arc<Self>,
        source: &mut dyn Source,
        target: Option<Address>,
        sender: Sender,
    ) -> Result<usize> {
        if source.remaining() > self.buffer_sizes.send_bytes() {
            return Err(Errno::EMSGSIZE);
        }
        let mut bytes = reserve::vector(source.remaining())?;
        bytes.resize(source.remaining(), 0);
        if source.take(&mut bytes) < bytes.len() {
            return Err(Errno::EFAULT);
        }
        self.send(bytes, target, sender)
    }

    /// Ends it: its descriptor is gone.
    pub fn close(&self) {
        // Ports are locked first elsewhere, so not within this.
        let port = self.state.lock().port;
        if let Some(port) = port {
            self.netlink.ports.lock().remove(&(self.protocol, port));
        }
    }
}

impl State {
    fn put(&mut self, bytes: Vec<u8>, from: Address) -> Result<()> {
        reserve::reserve_queue(&mut self.inbox, 1)?;
        self.inbox_bytes += bytes.len() + OVERHEAD_BYTES;
        self.inbox.push_back(Datagram { bytes: Arc::new(bytes), from });
        Ok(())
    }
}

/// How many bytes the messages have that fit `room` together; at least the first's.
fn whole_messages(bytes: &[u8], room: usize) -> usize {
    let mut count = 0;
    while let Some(header) = bytes.get(count..).filter(|rest| rest.len() >= HEADER_BYTES) {
        let length = aligned(u32_at(header, 0) as usize).max(HEADER_BYTES);
        if count > 0 && count + length > room {
            break;
        }
        count += length;
    }
    count.clamp(0, bytes.len())
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
