//! Packet sockets (packet(7)): making, naming, frames through them, and their options. [`super::socket`],
//! [`super::message`] and [`super::socket_option`] have the calls, for all families.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::fs::step::Transfer;
use exos::fs::transfer::Source;
use exos::net::options::Number;
use exos::net::packet::{Choice, Kind, Membership, Received, RingRequest, Socket, Target};
use exos::task::capability::Capability;

use super::inet_control::time_bytes;
use super::message::Controls;
use super::waiting::in_steps;
use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{AF_PACKET, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_PEEK, MSG_TRUNC, SOL_SOCKET};
use crate::abi::user_memory::{Extent, UserWriter, read_array, read_exact};
use crate::call::context::Context;

/// `SOL_PACKET`.
pub(super) const LEVEL: u64 = 263;
/// Bytes of `struct sockaddr_ll`, and where the address stands in it.
const ADDRESS_BYTES: usize = 20;
const ADDRESS_OFFSET: usize = 12;
/// Bytes of the link's header.
const LINK_BYTES: u16 = 14;

/// Options that are no switches (`PACKET_*`).
mod option {
    pub(super) const ADD_MEMBERSHIP: u64 = 1;
    pub(super) const DROP_MEMBERSHIP: u64 = 2;
    pub(super) const RX_RING: u64 = 5;
    pub(super) const STATISTICS: u64 = 6;
    pub(super) const COPY_THRESHOLD: u64 = 7;
    pub(super) const VERSION: u64 = 10;
    pub(super) const HEADER_LENGTH: u64 = 11;
    pub(super) const RESERVE: u64 = 12;
    pub(super) const TIMESTAMP: u64 = 17;
}

fn choice_of(name: u64) -> Option<Choice> {
    use Choice::{Bypass, IgnoreOutgoing, Loss, OriginalDevice, TellMore};
    [TellMore, OriginalDevice, Loss, Bypass, IgnoreOutgoing].into_iter().find(|choice| *choice as u64 == name)
}

/// A new socket; `kind` is `SOCK_*`, and `protocol` in the order of the network.
pub(super) fn make(context: &Context<'_>, kind: u64, protocol: u64) -> Result<Arc<Socket>> {
    if !context.can(Capability::NET_RAW) {
        return Err(Errno::EPERM);
    }
    let kind = match kind {
        2 => Kind::Datagram,
        3 => Kind::Raw,
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let (files, uid) = (&context.system.files, context.thread.identities.lock().uid[1]);
    let system = Arc::downgrade(context.system);
    let clock = Box::new(move || system.upgrade().map_or(0, |system| system.realtime_ns()));
    let socket = Socket::new(&files.inet, kind, (files.namespace.number(), uid), clock);
    let protocol = u16::from_be(protocol as u16);
    if protocol != 0 {
        socket.bind(protocol, 0)?;
    }
    Ok(socket)
}

/// `bind`.
pub(super) fn bind(socket: &Arc<Socket>, name: &[u8]) -> Result<()> {
    if name.len() < ADDRESS_BYTES || get::u16(name, 0) != AF_PACKET {
        return Err(Errno::EINVAL);
    }
    socket.bind(u16::from_be(get::u16(name, 2)), get::u32(name, 4))
}

/// Its own address: what of it there is.
pub(super) fn local_bytes(socket: &Socket) -> Vec<u8> {
    let local = socket.local();
    local.bytes()[..ADDRESS_OFFSET + usize::from(local.address_bytes)].to_vec()
}

fn read_target(name: &[u8], kind: Kind) -> Result<Target> {
    const HARDWARE_BYTES: usize = 6;
    if name.len() < ADDRESS_BYTES || name.len() < ADDRESS_OFFSET + usize::from(name[11]) {
        return Err(Errno::EINVAL);
    }
    let address = name[ADDRESS_OFFSET..].first_chunk::<HARDWARE_BYTES>().filter(|_| kind == Kind::Datagram);
    let (protocol, interface) = (u16::from_be(get::u16(name, 2)), get::u32(name, 4));
    Ok(Target { protocol, interface, address: address.copied() })
}

/// Sends a frame, to the one that is named or else as the socket is bound.
pub(super) fn send(socket: &Socket, source: &mut dyn Source, name: Option<&[u8]>) -> Result<u64> {
    let target = name.map(|name| read_target(name, socket.kind())).transpose()?;
    socket.send(source, target).map(|count| count as u64)
}

/// What a call received.
pub(super) struct Arrival {
    pub(super) byte_count: u64,
    pub(super) flags: u64,
    received: Received,
}

impl Arrival {
    /// The sender's address.
    pub(super) fn sender_name(&self) -> Vec<u8> {
        self.received.from.bytes().to_vec()
    }
}

/// Receives a frame into program buffers.
pub(super) fn receive(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Socket,
    extents: &[Extent],
    flags: u64,
) -> Result<Arrival> {
    /// `MSG_CMSG_COMPAT`.
    const COMPATIBLE: u64 = 1 << 31;
    let known = MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC | MSG_ERRQUEUE | COMPATIBLE;
    if flags & u64::from(u32::MAX) & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MSG_ERRQUEUE != 0 {
        return Err(Errno::EAGAIN);
    }
    let mut writer = UserWriter::new(context.memory, extents);
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    let mut last = Received::default();
    let byte_count = in_steps(context, description, Transfer::new(Readiness::READ, may_wait), |context, transfer| {
        let (step, received) = socket.receive_step(&mut writer, flags & MSG_PEEK != 0, transfer, &context.caller);
        last = received;
        step
    })?;
    let told = if last.message_bytes as u64 > byte_count { MSG_TRUNC } else { 0 };
    let byte_count = if flags & MSG_TRUNC != 0 { last.message_bytes as u64 } else { byte_count };
    Ok(Arrival { byte_count, flags: told, received: last })
}

/// Says in control messages what the program asked to be told of a frame.
pub(super) fn put_controls(context: &Context<'_>, socket: &Socket, arrival: &Arrival, controls: &mut Controls) {
    let received = &arrival.received;
    if let kind @ 1.. = socket.options().number(Number::Timestamp) {
        let _ = controls.put(context, SOL_SOCKET as u32, kind, &time_bytes(kind, received.realtime_ns));
    }
    if socket.is_on(Choice::TellMore) {
        let network = if socket.kind() == Kind::Raw { LINK_BYTES } else { 0 };
        let data = Encoder::new().u32(received.status).u32(received.length_bytes as u32);
        let data = data.u32(received.message_bytes as u32).u16(0).u16(network).u16(0).u16(0).finish();
        let _ = controls.put(context, LEVEL as u32, Choice::TellMore as u32, &data);
    }
}

/// The value of an option.
pub(super) fn value_of(
    context: &Context<'_>,
    socket: &Socket,
    (level, name): (u64, u64),
    (address, room): (u64, usize),
) -> Result<Vec<u8>> {
    if level != LEVEL {
        return Err(Errno::ENOPROTOOPT);
    }
    let number = match name {
        option::STATISTICS => {
            let (packets, drops) = socket.take_statistics();
            return Ok(Encoder::new().u32(packets).u32(drops).finish());
        }
        option::VERSION => socket.ring_settings().0,
        option::RESERVE => socket.ring_settings().1,
        option::HEADER_LENGTH if room < 4 => return Err(Errno::EINVAL),
        // How long the header of a version is: of that which there is.
        option::HEADER_LENGTH => match u32::from_le_bytes(read_array(context.memory, address)?) {
            0 | 1 => 32,
            _ => return Err(Errno::EINVAL),
        },
        option::TIMESTAMP => 0,
        name => match choice_of(name) {
            Some(choice) => u32::from(socket.is_on(choice)),
            None => return Err(Errno::ENOPROTOOPT),
        },
    };
    Ok(number.to_le_bytes().to_vec())
}

/// Sets an option to what `length` bytes at `address` say.
pub(super) fn set(
    context: &Context<'_>,
    socket: &Socket,
    (level, name): (u64, u64),
    (address, length): (u64, u64),
) -> Result<()> {
    /// Bytes of `struct packet_mreq`, and of `struct tpacket_req`.
    const MEMBERSHIP_BYTES: u64 = 16;
    const RING_BYTES: u64 = 16;
    if level != LEVEL {
        return Err(Errno::ENOPROTOOPT);
    }
    if matches!(name, option::ADD_MEMBERSHIP | option::DROP_MEMBERSHIP) {
        if length < MEMBERSHIP_BYTES {
            return Err(Errno::EINVAL);
        }
        let bytes: [u8; 16] = read_array(context.memory, address)?;
        let mut membership = Membership {
            interface: get::u32(&bytes, 0),
            kind: get::u16(&bytes, 4),
            address_bytes: get::u16(&bytes, 6),
            address: [0; 8],
        };
        membership.address.copy_from_slice(&bytes[8..]);
        if name == option::ADD_MEMBERSHIP {
            return socket.add_membership(membership);
        }
        socket.drop_membership(membership);
        return Ok(());
    }
    if name == option::RX_RING {
        if length < RING_BYTES {
            return Err(Errno::EINVAL);
        }
        let bytes: [u8; 16] = read_array(context.memory, address)?;
        let [block_bytes, block_count, frame_bytes, frame_count] = [0, 4, 8, 12].map(|at| get::u32(&bytes, at));
        let request = RingRequest { block_bytes, block_count, frame_bytes, frame_count };
        return socket.make_ring(&context.system.pool, request);
    }
    let choice = choice_of(name);
    let is_number = matches!(name, option::VERSION | option::RESERVE | option::TIMESTAMP | option::COPY_THRESHOLD);
    if choice.is_none() && !is_number {
        return Err(Errno::ENOPROTOOPT);
    }
    if length < 4 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 4];
    read_exact(context.memory, address, &mut bytes)?;
    let value = u32::from_le_bytes(bytes);
    match (choice, name) {
        (Some(Choice::IgnoreOutgoing), _) if value > 1 => Err(Errno::EINVAL),
        (Some(choice), _) => {
            socket.set_on(choice, value != 0);
            Ok(())
        }
        (None, option::VERSION) if value > 1 => Err(Errno::EINVAL),
        (None, option::VERSION) => socket.set_ring(Some(value), None),
        (None, option::RESERVE) if value > i32::MAX as u32 => Err(Errno::EINVAL),
        (None, option::RESERVE) => socket.set_ring(None, Some(value)),
        _ => Ok(()),
    }
}
