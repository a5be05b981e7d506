//! Unix sockets (unix(7)): streams, datagrams and sequenced packets between processes of a pod, with names in the
//! file system or without, descriptors and credentials in messages.
//!
//! - [`socket`]: the socket and its states; `connection` makes and ends connections,
//!   `traffic` sends and receives;
//! - `endpoint`: a socket's receiving side; `budget`: what a sender may have on the way;
//! - [`flight`]: descriptions in messages, and the search for those that cannot be reached any more;
//! - [`address`]: names and their sockets.
//!
//! Invariants: those of [`crate::fs`] (INV-F1: no lock is held while bytes go to or from a program or while a waiter
//! is woken; INV-F3: nothing blocks). No two sockets' locks are held together: a connection is two
//! [`endpoint`](self)s that each side holds, so that every step concerns one lock.
//!
//! Limits: [`SEND_BYTES_DEFAULT`] on the way from a socket, up to twice that when asked for; a stream may
//! use it to the last byte, a message counts its bytes and [`MESSAGE_OVERHEAD_BYTES`]; eleven messages wait at a
//! datagram socket that is not connected to their sender; [`BACKLOG_MAX`] + 1 connections wait to be accepted;
//! [`flight::RIGHTS_COUNT_MAX`] descriptors go in a message and [`flight::IN_FLIGHT_COUNT_MAX`] in all.
//!
//! Differences from Linux that a program can see: a stream's room is counted in bytes, not in buffers, so many small
//! writes fit; there is no urgent data (`MSG_OOB`) and no `SO_PEEK_OFF`; the address of a datagram's sender is that
//! at the time of sending.

pub mod address;
mod budget;
mod connection;
mod endpoint;
pub mod flight;
pub mod socket;
mod traffic;

use alloc::sync::Arc;

use address::Names;
use flight::Flight;
pub use socket::{Received, Sending, Socket, Wants};

pub use crate::fs::permission::Identity;
use crate::fs::vnode::InodeRef;

/// What may be on the way from a socket at first (`net.core.wmem_default`).
pub const SEND_BYTES_DEFAULT: usize = 212_992;
/// What a message counts besides its bytes.
pub const MESSAGE_OVERHEAD_BYTES: usize = 768;
/// Most connections that wait to be accepted (`net.core.somaxconn`), less one.
pub const BACKLOG_MAX: u32 = 4096;

/// How a socket carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketKind {
    /// `SOCK_STREAM`: a connection of bytes.
    Stream,
    /// `SOCK_DGRAM`: messages to any socket with a name.
    Datagram,
    /// `SOCK_SEQPACKET`: a connection of records.
    SeqPacket,
}

/// The Unix sockets of a pod: their names, and descriptions on the way.
#[derive(Default)]
pub struct UnixDomain {
    names: Names,
    flight: Flight,
}

impl UnixDomain {
    /// The socket whose name leads to this inode.
    pub fn find_by_inode(&self, inode: &InodeRef) -> Option<Arc<Socket>> {
        self.names.find(&address::Key::of_inode(inode))
    }

    /// The socket of that kind and abstract name.
    pub fn find_abstract(&self, kind: SocketKind, name: &[u8]) -> Option<Arc<Socket>> {
        self.names.find(&address::Key::Abstract(kind, name.to_vec()))
    }

    /// Descriptions that lie in messages.
    pub fn in_flight_count(&self) -> usize {
        self.flight.total()
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
