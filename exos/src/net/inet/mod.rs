//! TCP and UDP over IPv4 and IPv6 (tcp(7), udp(7), ip(7), ipv6(7)): between the programs of a pod, over its loopback
//! interface, and with other machines.
//!
//! A connection over loopback runs none of TCP's machinery. It is a pair of byte queues that behaves as TCP does where
//! a program can see it: states, addresses, the ends of connections, errors, what waits. There are no packets, no
//! checksums and no timers.
//!
//! - [`socket`]: the socket of either protocol, its options, and what calls ask of both;
//! - `tcp`: a TCP socket's states; `connection`: the pair of queues and the two sides' states; `connect` listens,
//!   connects and accepts; `stream` sends and receives; `end`: the loops that move bytes, over loopback or not;
//!   `urgent`: which byte is urgent; `deferred`: connections that a listener hears of later; `lingering`: what `close`
//!   waits for;
//! - [`engine`]: TCP's machinery, for connections to other machines; `remote`: the sockets that have them;
//! - `udp`: datagrams; `udp_far`: those to other machines and from them; `udp_parts`: one of several sends, several of
//!   one; [`raw`] and `raw_whole`: packets of other protocols, and ping; `datagram_filter`: filters of both; [`room`]:
//!   those whose senders wait for the card;
//! - [`interface`]: interfaces, their addresses and the way to a destination; `ports`: which socket has which port,
//!   in a [`port_map`] and a [`hashed`] map;
//! - [`settings`]: options that are numbers; `information`: what `TCP_INFO` tells; `error_queue`: what ICMP said of
//!   datagrams;
//! - [`stack`]: everything between the card and the transports; [`network`]: what the network does with what comes in,
//!   and when; `tcp_input`: where TCP takes part in that;
//! - [`wire`]: what card, stack, TCP and configuration owe each other.
//!
//! Addresses inside are canonical: a mapped address (`::ffff:a.b.c.d`) is the IPv4 address, and only what a program
//! with an IPv6 socket is told is mapped again ([`Socket::shown`]).
//!
//! Invariants: those of [`crate::fs`] (INV-F1: no lock is held while bytes go to or from a program, but at once; no
//! lock is held while a waiter is woken. INV-F3: nothing blocks). Locks are taken in the order socket, connection,
//! ports; never those of two sockets or two connections.
//!
//! Limits: what lies at a receiver is bounded by its window and its sender's buffer ([`SEND_BYTES_CONNECTED`] unless
//! set), in memory that grows as it is needed and goes with the connection; datagrams by the receiver's buffer, and
//! what does not fit is lost; [`BACKLOG_MAX`] + 1 connections wait to be accepted; ends of connections:
//! `ports::TIME_WAIT_COUNT_MAX`.
//!
//! Differences from Linux that a program can see: a listener's full queue lets a client in when there is room, not at
//! its next attempt, and one that does not wait for it never times out; nothing is held back for `TCP_CORK` over
//! loopback. What connections to other machines lack stands in ADR 0070.

mod connect;
mod connection;
mod datagram_filter;
mod deferred;
mod end;
mod engine;
mod error_queue;
mod hashed;
mod information;
pub mod interface;
mod lingering;
mod network;
mod payload;
mod port_map;
mod ports;
mod raw;
mod raw_whole;
mod remote;
mod room;
pub mod settings;
pub mod socket;
mod socket_list;
pub mod stack;
mod stream;
mod tcp;
mod tcp_input;
mod tcp_state;
mod udp;
mod udp_far;
pub mod udp_lite;
mod udp_parts;
mod urgent;
pub mod wire;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::table::Tables;
pub use error_queue::SendError;
pub use information::Information;
pub use lingering::Lingering;
use ports::Ports;
use siphasher::sip::SipHasher13;
pub use socket::{Family, Protocol, Received, Sending, Socket, Wants, Way};
use socket_list::SocketList;
use stack::Stack;
pub use tcp_state::TcpState;

use crate::platform::Kernel;

/// First port that is given to a socket that asks for none in particular (`net.ipv4.ip_local_port_range`).
pub const EPHEMERAL_FIRST: u16 = 32_768;
/// The last one.
pub const EPHEMERAL_LAST: u16 = 60_999;
/// Ports below are for those with a capability (`net.ipv4.ip_unprivileged_port_start`).
pub const UNPRIVILEGED_FIRST: u16 = 1024;
/// Most connections that wait to be accepted (`net.core.somaxconn`), less one.
pub const BACKLOG_MAX: u32 = 4096;
/// `SO_SNDBUF` of a new TCP socket.
pub const SEND_BYTES_FRESH: usize = 16_384;
/// The same once it is connected, unless it was set.
pub const SEND_BYTES_CONNECTED: usize = 65_536;
/// `SO_RCVBUF` of a new TCP socket; half of it is the window.
pub const RECEIVE_BYTES_FRESH: usize = 131_072;
/// Both of a UDP socket (`net.core.rmem_default`).
pub const DATAGRAM_BUFFER_BYTES: usize = 212_992;
/// What a program may set either to; twice that is kept (`net.core.wmem_max`).
pub const BUFFER_BYTES_SET_MAX: usize = 212_992;

/// Gives numbers for the inodes of accepted sockets.
pub type InodeNumbers = Box<dyn Fn() -> u64 + Send + Sync>;

/// The network of a pod: its ports.
pub struct Inet {
    kernel: Arc<dyn Kernel>,
    key: [u64; 2],
    choice_count: AtomicU64,
    inode_numbers: InodeNumbers,
    tcp: Ports,
    udp: Ports,
    udp_lite: Ports,
    /// By the number that is in questions and their answers.
    ping: Ports,
    raw: SocketList<Socket>,
    /// Senders that wait until the card has room.
    senders: SocketList<Socket>,
    stack: Stack,
    engine: Tables,
    may_linger: AtomicBool,
}

/// An end of a connection that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// The end that was first to end.
    pub local: SocketAddr,
    /// The other.
    pub remote: SocketAddr,
    /// How much longer.
    pub left_ns: u64,
}

impl Inet {
    /// A network in which nobody has a port.
    pub fn new(kernel: &Arc<dyn Kernel>, inode_numbers: InodeNumbers) -> Arc<Self> {
        let mut bytes = [[0; 8]; 2];
        bytes.iter_mut().for_each(|word| kernel.random(word));
        let key = bytes.map(u64::from_le_bytes);
        Arc::new(Self {
            kernel: kernel.clone(),
            key,
            choice_count: AtomicU64::new(0),
            inode_numbers,
            tcp: Ports::new(key),
            udp: Ports::new(key),
            udp_lite: Ports::new(key),
            ping: Ports::new(key),
            raw: SocketList::default(),
            senders: SocketList::default(),
            stack: Stack::new(kernel),
            engine: Tables::new(key),
            may_linger: AtomicBool::new(false),
        })
    }

    /// Whether closing ever waits: a socket was asked to linger.
    #[inline]
    pub fn may_linger(&self) -> bool {
        self.may_linger.load(Ordering::Relaxed)
    }

    /// A socket is to linger for a time when it is closed (`SO_LINGER`).
    pub fn note_lingering(&self) {
        self.may_linger.store(true, Ordering::Relaxed);
    }

    fn ports(&self, protocol: Protocol) -> &Ports {
        match protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Ping => &self.ping,
            Protocol::UdpLite => &self.udp_lite,
            // Sockets for packets of a protocol have no ports.
            Protocol::Udp | Protocol::Raw(_) => &self.udp,
        }
    }

    /// What is between the card and the transports.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    fn next_inode_number(&self) -> u64 {
        (self.inode_numbers)()
    }

    fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }

    /// A number that nobody can foresee.
    pub fn random_number(&self) -> u32 {
        self.stack.random_number()
    }

    /// A number that nobody can foresee, by the other end and by how many were asked for.
    fn seed_for(&self, other: Option<SocketAddr>) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        match other.map(|other| (other.ip(), other.port())) {
            None => {}
            Some((IpAddr::V4(address), port)) => {
                hasher.write(&address.octets());
                hasher.write_u16(port);
            }
            Some((IpAddr::V6(address), port)) => {
                hasher.write(&address.octets());
                hasher.write_u16(port);
            }
        }
        hasher.write_u64(self.choice_count.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// Connections, and how many of those that have ended are remembered.
    pub fn connection_counts(&self) -> (usize, usize) {
        self.tcp.counts(self.now_ns())
    }

    /// Calls `action` with each socket of a protocol that has a port; of packets of any protocol with all.
    pub fn for_each_socket(&self, protocol: Protocol, action: impl FnMut(&Arc<Socket>)) {
        if matches!(protocol, Protocol::Raw(_)) {
            return self.raw.for_each(action);
        }
        self.ports(protocol).for_each_socket(action);
    }

    /// Calls `action` with each end of a connection that is remembered.
    pub fn for_each_wait(&self, mut action: impl FnMut(TimeWait)) {
        self.tcp.for_each_wait(self.now_ns(), |wait, left_ns| {
            action(TimeWait { local: wait.0, remote: wait.1, left_ns });
        });
    }
}

#[cfg(test)]
mod tests;
