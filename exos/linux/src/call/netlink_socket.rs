//! Netlink sockets (netlink(7)): making, naming, and messages to and from them, and their options. [`super::socket`],
//! [`super::message`] and [`super::socket_option`] have the calls, for all families.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::fs::step::Transfer;
use exos::fs::transfer::Source;
use exos::net::netlink::socket::{Received, protocol, switch};
use exos::net::netlink::{Address, Sender, Socket};
use exos::task::capability::Capability;

use super::message::Controls;
use super::waiting::in_steps;
use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{
    AF_NETLINK, AF_UNSPEC, MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_TRUNC, SCM_CREDENTIALS, SOL_SOCKET,
};
use crate::abi::user_memory::{Extent, UserWriter, read_array};
use crate::call::context::Context;

/// Bytes of `struct sockaddr_nl`.
const ADDRESS_BYTES: usize = 12;
/// `SOL_NETLINK`.
pub(super) const LEVEL: u64 = 270;

/// Options that are no switches (`NETLINK_*`).
mod option {
    pub(super) const ADD_MEMBERSHIP: u64 = 1;
    pub(super) const DROP_MEMBERSHIP: u64 = 2;
    pub(super) const LIST_MEMBERSHIPS: u64 = 9;
}

/// A new socket; `kind` is `SOCK_*`.
pub(super) fn make(context: &Context<'_>, kind: u64, number: u64) -> Result<Arc<Socket>> {
    const RAW: u64 = 3;
    if ![2, RAW].contains(&kind) {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    let number = u64::from(number as u32);
    let known = protocol::ALL.into_iter().find(|known| u64::from(*known) == number && number < protocol::COUNT);
    let files = &context.system.files;
    let known = known.ok_or(Errno::EPROTONOSUPPORT)?;
    Ok(Socket::new(&files.netlink, known, kind == RAW, files.namespace.number()))
}

/// Reads a `sockaddr_nl`. `EINVAL`: too short, or of another family.
fn read_address(bytes: &[u8]) -> Result<Address> {
    if bytes.len() < ADDRESS_BYTES || get::u16(bytes, 0) != AF_NETLINK {
        return Err(Errno::EINVAL);
    }
    Ok(Address { port: get::u32(bytes, 4), groups: get::u32(bytes, 8) })
}

/// A `sockaddr_nl`.
pub(super) fn address_bytes(address: Address) -> Vec<u8> {
    Encoder::new().u16(AF_NETLINK).u16(0).u32(address.port).u32(address.groups).finish()
}

fn sender(context: &Context<'_>) -> Sender {
    Sender { process: context.process.pid, can_administer: context.can(Capability::NET_ADMIN) }
}

/// `bind`.
pub(super) fn bind(context: &Context<'_>, socket: &Arc<Socket>, name: &[u8]) -> Result<()> {
    let address = read_address(name)?;
    if address.groups != 0 {
        check_member(context, socket)?;
    }
    socket.bind(address, context.process.pid)
}

/// Whether a program may hear what is told to groups: all may, but of other programs. `EPERM`.
fn check_member(context: &Context<'_>, socket: &Socket) -> Result<()> {
    let is_free = socket.protocol() != protocol::USER || context.can(Capability::NET_ADMIN);
    if is_free { Ok(()) } else { Err(Errno::EPERM) }
}

/// `connect`.
pub(super) fn connect(context: &Context<'_>, socket: &Arc<Socket>, name: &[u8]) -> Result<()> {
    if name.len() < 2 {
        return Err(Errno::EINVAL);
    }
    if get::u16(name, 0) == AF_UNSPEC {
        return socket.connect(None, context.process.pid);
    }
    let peer = read_address(name)?;
    let sender = sender(context);
    if peer != Address::default() && socket.protocol() != protocol::USER && !sender.can_administer {
        return Err(Errno::EPERM);
    }
    socket.connect(Some(peer), sender.process)
}

/// Sends all that `source` has to the socket that is named, or else to the peer.
pub(super) fn send(
    context: &Context<'_>,
    socket: &Arc<Socket>,
    source: &mut dyn Source,
    name: Option<&[u8]>,
    flags: u64,
) -> Result<u64> {
    if flags & MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if source.remaining() == 0 {
        return Err(Errno::ENODATA);
    }
    let target = name.map(read_address).transpose()?;
    socket.send_from(source, target, sender(context)).map(|count| count as u64)
}

/// What a call received.
pub(super) struct Arrival {
    pub(super) byte_count: u64,
    pub(super) flags: u64,
    from: Address,
}

impl Arrival {
    /// The sender's address.
    pub(super) fn sender_name(&self) -> Vec<u8> {
        address_bytes(self.from)
    }
}

/// Receives a message into program buffers.
pub(super) fn receive(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Socket,
    extents: &[Extent],
    flags: u64,
) -> Result<Arrival> {
    if flags & MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut writer = UserWriter::new(context.memory, extents);
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    let mut last = Received::default();
    let byte_count = in_steps(context, description, Transfer::new(Readiness::READ, may_wait), |context, transfer| {
        let is_peek = flags & MSG_PEEK != 0;
        let (step, received) = socket.receive_step(&mut writer, is_peek, transfer, &context.caller);
        last = received;
        step
    })?;
    let told = if last.message_bytes as u64 > byte_count { MSG_TRUNC } else { 0 };
    let byte_count = if flags & MSG_TRUNC != 0 { last.message_bytes as u64 } else { byte_count };
    Ok(Arrival { byte_count, flags: told, from: last.from })
}

/// Says in control messages what the program asked to be told of a message.
pub(super) fn put_controls(context: &Context<'_>, socket: &Socket, controls: &mut Controls) {
    if socket.is_on(switch::PACKET_INFO) {
        let _ = controls.put(context, LEVEL as u32, switch::PACKET_INFO as u32, &[0; 4]);
    }
    if socket.is_on(switch::IDENTITY) {
        // The system has no number, and is root.
        let _ = controls.put(context, SOL_SOCKET as u32, SCM_CREDENTIALS, &[0; 12]);
    }
}

/// The value of an option.
pub(super) fn value_of(socket: &Socket, level: u64, name: u64, room: usize) -> Result<Vec<u8>> {
    if level != LEVEL {
        return Err(Errno::ENOPROTOOPT);
    }
    if name == option::LIST_MEMBERSHIPS {
        let words = socket.groups();
        return Ok(words.iter().flat_map(|word| word.to_le_bytes()).take(room / 4 * 4).collect());
    }
    if !switch::ALL.contains(&name) {
        return Err(Errno::ENOPROTOOPT);
    }
    if room < 4 {
        return Err(Errno::EINVAL);
    }
    Ok(i32::from(socket.is_on(name)).to_le_bytes().to_vec())
}

/// Sets an option to what `length` bytes at `address` say.
pub(super) fn set(
    context: &Context<'_>,
    socket: &Socket,
    (level, name): (u64, u64),
    (address, length): (u64, u64),
) -> Result<()> {
    if level != LEVEL {
        return Err(Errno::ENOPROTOOPT);
    }
    // Without a value, the value is nothing.
    let value = if length >= 4 { u32::from_le_bytes(read_array(context.memory, address)?) } else { 0 };
    match name {
        option::ADD_MEMBERSHIP | option::DROP_MEMBERSHIP => {
            check_member(context, socket)?;
            socket.set_member(value, name == option::ADD_MEMBERSHIP)
        }
        switch::ALL_SPACES if !context.can(Capability::NET_BROADCAST) => Err(Errno::EPERM),
        name if switch::ALL.contains(&name) => {
            socket.set_on(name, value != 0);
            Ok(())
        }
        _ => Err(Errno::ENOPROTOOPT),
    }
}
