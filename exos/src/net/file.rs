//! The file of a socket: what a descriptor is for, whichever family the socket has. The socket closes with it.

use alloc::sync::Arc;
use core::any::Any;

use super::netlink::{self, Sender};
use super::options::SocketOptions;
use super::{inet, packet, unix};
use crate::error::{Errno, Result};
use crate::fs::description::Description;
use crate::fs::open_file::OpenFile;
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::fs::transfer::{Destination, Source};

/// A socket of any family.
#[derive(Clone)]
pub enum AnySocket {
    /// A local one.
    Unix(Arc<unix::Socket>),
    /// TCP or UDP.
    Inet(Arc<inet::Socket>),
    /// One of netlink.
    Netlink(Arc<netlink::Socket>),
    /// One for frames.
    Packet(Arc<packet::Socket>),
}

impl AnySocket {
    /// The local socket that it is.
    pub fn unix(&self) -> Option<&Arc<unix::Socket>> {
        match self {
            Self::Unix(socket) => Some(socket),
            Self::Inet(_) | Self::Netlink(_) | Self::Packet(_) => None,
        }
    }

    /// The number of its inode.
    pub fn number(&self) -> u64 {
        match self {
            Self::Unix(socket) => socket.number(),
            Self::Inet(socket) => socket.number(),
            Self::Netlink(socket) => socket.number(),
            Self::Packet(socket) => socket.number(),
        }
    }

    /// What all sockets keep.
    pub fn options(&self) -> &SocketOptions {
        match self {
            Self::Unix(socket) => socket.options(),
            Self::Inet(socket) => socket.options(),
            Self::Netlink(socket) => socket.options(),
            Self::Packet(socket) => socket.options(),
        }
    }

    /// What the last failure was that nobody has been told (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        match self {
            Self::Unix(socket) => socket.take_error(),
            Self::Inet(socket) => socket.take_error(),
            Self::Netlink(socket) => socket.take_error(),
            Self::Packet(socket) => socket.take_error(),
        }
    }

    /// Whether it takes connections (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        match self {
            Self::Unix(socket) => socket.is_listening(),
            Self::Inet(socket) => socket.is_listening(),
            Self::Netlink(_) | Self::Packet(_) => false,
        }
    }

    /// What may be on the way (`SO_SNDBUF`).
    pub fn send_buffer_bytes(&self) -> usize {
        match self {
            Self::Unix(socket) => socket.send_buffer_bytes(),
            Self::Inet(socket) => socket.send_buffer_bytes(),
            Self::Netlink(socket) => socket.buffer_sizes().send_bytes(),
            Self::Packet(socket) => socket.buffer_sizes().send_bytes(),
        }
    }

    /// Sets it, as Linux does to twice what was asked for, within the limits.
    pub fn set_send_buffer_bytes(&self, wanted: usize) {
        match self {
            Self::Unix(socket) => socket.set_send_buffer_bytes(wanted),
            Self::Inet(socket) => socket.set_send_buffer_bytes(wanted),
            Self::Netlink(socket) => socket.buffer_sizes().set_send_bytes(wanted),
            Self::Packet(socket) => socket.buffer_sizes().set_send_bytes(wanted),
        }
    }

    /// What it takes in at most (`SO_RCVBUF`).
    pub fn receive_buffer_bytes(&self) -> usize {
        match self {
            Self::Unix(socket) => socket.receive_buffer_bytes(),
            Self::Inet(socket) => socket.receive_buffer_bytes(),
            Self::Netlink(socket) => socket.buffer_sizes().receive_bytes(),
            Self::Packet(socket) => socket.buffer_sizes().receive_bytes(),
        }
    }

    /// Sets it, as [`Self::set_send_buffer_bytes`].
    pub fn set_receive_buffer_bytes(&self, wanted: usize) {
        match self {
            Self::Unix(socket) => socket.set_receive_buffer_bytes(wanted),
            Self::Inet(socket) => socket.set_receive_buffer_bytes(wanted),
            Self::Netlink(socket) => socket.buffer_sizes().set_receive_bytes(wanted),
            Self::Packet(socket) => socket.buffer_sizes().set_receive_bytes(wanted),
        }
    }

    /// Sets how many bytes a receiver waits for (`SO_RCVLOWAT`).
    pub fn set_low_water_bytes(&self, bytes: usize) {
        match self {
            Self::Unix(socket) => socket.options().set_low_water_bytes(bytes),
            Self::Inet(socket) => socket.set_low_water_bytes(bytes),
            Self::Netlink(socket) => socket.options().set_low_water_bytes(bytes),
            Self::Packet(socket) => socket.options().set_low_water_bytes(bytes),
        }
    }

    /// Bytes that can be received (`FIONREAD`).
    ///
    /// # Errors
    /// `EINVAL`: it takes connections.
    pub fn readable_bytes(&self) -> Result<usize> {
        match self {
            Self::Unix(socket) => socket.readable_bytes(),
            Self::Inet(socket) => socket.readable_bytes(),
            Self::Netlink(socket) => Ok(socket.first_bytes()),
            Self::Packet(socket) => Ok(socket.first_bytes()),
        }
    }

    /// Bytes that were sent and not received (`SIOCOUTQ`).
    ///
    /// # Errors
    /// `EINVAL`: it takes connections.
    pub fn unreceived_bytes(&self) -> Result<usize> {
        match self {
            Self::Unix(socket) => Ok(socket.unreceived_bytes()),
            Self::Inet(socket) => socket.unreceived_bytes(),
            Self::Netlink(_) | Self::Packet(_) => Ok(0),
        }
    }
}

/// What a descriptor of a socket is for.
pub struct SocketFile(AnySocket);

impl SocketFile {
    /// The local socket that a description is for.
    pub fn unix_of(description: &Description) -> Option<&Arc<unix::Socket>> {
        description.extension::<Self>()?.socket().unix()
    }

    /// The one file of a socket.
    pub fn new(socket: AnySocket) -> Arc<Self> {
        Arc::new(Self(socket))
    }

    /// The socket.
    #[inline]
    pub fn socket(&self) -> &AnySocket {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        match &self.0 {
            AnySocket::Unix(socket) => socket.close(),
            AnySocket::Inet(socket) => socket.close(),
            AnySocket::Netlink(socket) => socket.close(),
            AnySocket::Packet(socket) => socket.close(),
        }
    }
}

impl OpenFile for SocketFile {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        if destination.remaining() == 0 {
            return Ok(0);
        }
        match &self.0 {
            AnySocket::Unix(socket) => {
                socket.receive(destination, &mut unix::Wants::default()).map(|received| received.byte_count)
            }
            AnySocket::Inet(socket) => {
                socket.receive(destination, inet::Wants::default()).map(|received| received.byte_count)
            }
            AnySocket::Netlink(socket) => socket.receive(destination, false).map(|received| received.byte_count),
            AnySocket::Packet(socket) => socket.receive(destination, false).map(|received| received.byte_count),
        }
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        match &self.0 {
            AnySocket::Unix(socket) => socket.send(source, &mut unix::Sending::default()),
            AnySocket::Inet(socket) => socket.send(source, &inet::Sending::PLAIN),
            // Whose it is is known to a step alone.
            AnySocket::Netlink(_) => Err(Errno::EOPNOTSUPP),
            AnySocket::Packet(socket) => socket.send(source, None),
        }
    }

    fn read_step(
        &self,
        destination: &mut dyn Destination,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        let options = self.0.options();
        let least = options.low_water_bytes();
        // A caller that waits for some time only must not begin anew where this ends.
        if let AnySocket::Unix(socket) = &self.0
            && least == 1
            && options.receive_timeout_ns() == 0
            && socket.kind() == unix::SocketKind::Stream
            && let Some(outcome) = socket.receive_nofault(destination)
        {
            return Step::of(outcome);
        }
        let room = transfer.done + destination.remaining();
        if room == 0 {
            return Step::Done(0);
        }
        let least = room.min(least);
        match &self.0 {
            AnySocket::Unix(socket) => {
                socket.receive_step(destination, (&mut unix::Wants::default(), least), transfer, caller).0
            }
            AnySocket::Inet(socket) => socket.read_step(destination, least, transfer, caller),
            AnySocket::Netlink(socket) => socket.receive_step(destination, false, transfer, caller).0,
            AnySocket::Packet(socket) => socket.receive_step(destination, false, transfer, caller).0,
        }
    }

    fn try_write(&self, source: &mut dyn Source) -> Option<Result<usize>> {
        match &self.0 {
            AnySocket::Unix(socket) => socket.send_nofault(source).map(Ok),
            AnySocket::Inet(socket) => socket.send_nofault(source),
            AnySocket::Netlink(_) | AnySocket::Packet(_) => None,
        }
    }

    fn write_step(&self, source: &mut dyn Source, transfer: &mut Transfer, caller: &dyn TransferCaller) -> Step {
        match &self.0 {
            AnySocket::Unix(socket) => {
                if let Some(count) = socket.send_nofault(source) {
                    return transfer.moved(count, true);
                }
                let mut sending = unix::Sending { identity: Some(caller.identity()), ..unix::Sending::default() };
                socket.send_step(source, &mut sending, transfer, caller)
            }
            AnySocket::Inet(socket) => socket.send_step(source, &inet::Sending::PLAIN, transfer, caller),
            AnySocket::Netlink(socket) => {
                let identity = caller.identity();
                let sender = Sender { process: identity.pid, can_administer: identity.uid == 0 };
                Step::of(socket.send_from(source, None, sender))
            }
            AnySocket::Packet(socket) => Step::of(socket.send(source, None)),
        }
    }

    fn readiness(&self) -> Readiness {
        match &self.0 {
            AnySocket::Unix(socket) => socket.readiness(),
            AnySocket::Inet(socket) => socket.readiness(),
            AnySocket::Netlink(socket) => socket.readiness(),
            AnySocket::Packet(socket) => socket.readiness(),
        }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(match &self.0 {
            AnySocket::Unix(socket) => socket.wait_queue(),
            AnySocket::Inet(socket) => socket.wait_queue(),
            AnySocket::Netlink(socket) => socket.wait_queue(),
            AnySocket::Packet(socket) => socket.wait_queue(),
        })
    }

    fn writes_all(&self) -> bool {
        match &self.0 {
            AnySocket::Unix(socket) => socket.kind() == unix::SocketKind::Stream,
            AnySocket::Inet(socket) => socket.protocol() == inet::Protocol::Tcp,
            AnySocket::Netlink(_) | AnySocket::Packet(_) => false,
        }
    }

    fn readable_byte_count(&self) -> Option<usize> {
        self.0.readable_bytes().ok()
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
