//! Sockets: making, naming and connecting them. Local ones, and by [`super::inet_socket`] TCP and UDP; every other
//! address family is `EAFNOSUPPORT`, as on a Linux that has none.
//!
//! [`super::message`] moves bytes, [`super::socket_option`] has the options.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::metadata::FileKind;
use exos::fs::permission::AccessMask;
use exos::fs::readiness::Readiness;
use exos::fs::step::TransferCaller;
use exos::fs::vnode::NewNode;
use exos::net::unix::address::Address;
use exos::net::unix::{Socket, SocketKind};
use exos::net::{AnySocket, Halves, SocketFile};

use super::waiting::{WaitLimit, until_ready_with};
use super::{inet_socket, netlink_socket, packet_socket};
use crate::abi::inet::address_bytes;
use crate::abi::linux::{AF_INET, AF_INET6, AF_MAX, AF_NETLINK, AF_PACKET, AF_UNIX};
use crate::abi::socket::{ADDRESS_BYTES_MAX, Name, SOCK_CLOEXEC, SOCK_NONBLOCK, name_bytes, read_name};
use crate::abi::user_memory::{read_array, read_exact, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, now};

entries! {
    socket: "AF_UNIX; AF_INET and AF_INET6, TCP and UDP; AF_NETLINK, routes and diagnosis; AF_PACKET";
    socketpair;
    bind;
    listen;
    accept;
    accept4;
    connect;
    getsockname;
    getpeername;
    shutdown;
}

/// `SOCK_STREAM` to `SOCK_PACKET`, the last type that is defined.
const TYPE_MAX: u64 = 10;

/// The socket of a descriptor. `ENOTSOCK`, `EBADF`.
pub(super) fn socket_at(context: &Context<'_>, descriptor: u64) -> Result<(Arc<Description>, AnySocket)> {
    let description = context.process.files.get(descriptor)?;
    let socket = socket_of(&description)?;
    Ok((description, socket))
}

/// The socket of a description. `ENOTSOCK`, `EBADF`.
pub(super) fn socket_of(description: &Description) -> Result<AnySocket> {
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    Ok(description.extension::<SocketFile>().ok_or(Errno::ENOTSOCK)?.socket().clone())
}

/// The type of the socket that is asked for, of a family that is there; flags are checked.
fn type_of(family: u64, kind: u64) -> Result<(u16, u64)> {
    let base = kind & 0xf;
    if kind & !(0xf | SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    if u64::from(family as u32) >= AF_MAX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if base > TYPE_MAX {
        return Err(Errno::EINVAL);
    }
    let family = family as u16;
    if ![AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET].contains(&family) {
        return Err(Errno::EAFNOSUPPORT);
    }
    Ok((family, base))
}

/// What kind of local socket is asked for.
fn local_kind(base: u64, protocol: u64) -> Result<SocketKind> {
    if protocol as u32 > 1 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match base {
        1 => Ok(SocketKind::Stream),
        // SOCK_RAW is what it was called when there was nothing else.
        2 | 3 => Ok(SocketKind::Datagram),
        5 => Ok(SocketKind::SeqPacket),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// A descriptor for a socket.
fn add(context: &Context<'_>, socket: AnySocket, flags: u64) -> Result<u64> {
    let status = if flags & SOCK_NONBLOCK != 0 { StatusFlags::NON_BLOCKING } else { StatusFlags::empty() };
    let number = socket.number();
    let file = SocketFile::new(socket);
    let owner = context.thread.identities.lock().owner();
    let description = context.system.files.namespace.socket(number, file, status, owner, now(context));
    context.process.files.add(description, flags & SOCK_CLOEXEC != 0)
}

/// `socket(2)`.
pub fn socket(context: &mut Context<'_>, [family, kind, protocol, ..]: Arguments) -> Result<u64> {
    let files = &context.system.files;
    let made = match type_of(family, kind)? {
        (AF_UNIX, base) => {
            let local = local_kind(base, protocol)?;
            AnySocket::Unix(Socket::new(&files.unix, local, files.namespace.number()))
        }
        (AF_NETLINK, base) => AnySocket::Netlink(netlink_socket::make(context, base, protocol)?),
        (AF_PACKET, base) => AnySocket::Packet(packet_socket::make(context, base, protocol)?),
        (family, base) => AnySocket::Inet(inet_socket::make(context, family, base, protocol)?),
    };
    add(context, made, kind)
}

/// `socketpair(2)`.
pub fn socketpair(context: &mut Context<'_>, [family, kind, protocol, address, ..]: Arguments) -> Result<u64> {
    let files = &context.system.files;
    let base = match type_of(family, kind)? {
        (AF_UNIX, base) => local_kind(base, protocol)?,
        (AF_NETLINK, base) => {
            netlink_socket::make(context, base, protocol)?;
            return Err(Errno::EOPNOTSUPP);
        }
        (AF_PACKET, base) => {
            packet_socket::make(context, base, protocol)?;
            return Err(Errno::EOPNOTSUPP);
        }
        (family, base) => {
            inet_socket::make(context, family, base, protocol)?;
            return Err(Errno::EOPNOTSUPP);
        }
    };
    let numbers = [files.namespace.number(), files.namespace.number()];
    let pair = Socket::pair(&files.unix, base, numbers, context.identity());
    let [first, second] = pair.map(AnySocket::Unix);
    let first = add(context, first, kind)?;
    let outcome = add(context, second, kind).and_then(|second| {
        let pair = first | second << 32;
        let outcome = write_all(context.memory, address, &pair.to_le_bytes());
        if outcome.is_err() {
            drop(context.process.files.table().remove(second as u32));
        }
        outcome
    });
    if outcome.is_err() {
        drop(context.process.files.table().remove(first as u32));
    }
    outcome.map(|()| 0)
}

/// Reads an address of `length` bytes.
pub(super) fn read_address(context: &Context<'_>, address: u64, length: u64) -> Result<Vec<u8>> {
    // Lengths are int: negative ones are too large.
    read_vec(context.memory, address, u64::from(length as u32), ADDRESS_BYTES_MAX)
}

/// The same, into a place of the caller's.
pub(super) fn read_address_into<'a>(
    context: &Context<'_>,
    address: u64,
    length: u64,
    place: &'a mut [u8; ADDRESS_BYTES_MAX],
) -> Result<&'a [u8]> {
    let place = place.get_mut(..length as u32 as usize).ok_or(Errno::EINVAL)?;
    read_exact(context.memory, address, place)?;
    Ok(place)
}

/// Writes an address as `getsockname` does: what fits, and how long it is.
pub(super) fn write_address(context: &Context<'_>, bytes: &[u8], address: u64, length: u64) -> Result<()> {
    let room = i32::from_le_bytes(read_array(context.memory, length)?);
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    write_all(context.memory, address, &bytes[..room.min(bytes.len())])?;
    write_all(context.memory, length, &(bytes.len() as u32).to_le_bytes())
}

/// The socket that has a name; an abstract one belongs to each kind of its own. `ECONNREFUSED`: nobody has it.
pub(super) fn find(context: &Context<'_>, kind: SocketKind, address: &Address) -> Result<Arc<Socket>> {
    let unix = &context.system.files.unix;
    let found = match address {
        Address::Abstract(name) => unix.find_abstract(kind, name),
        Address::Path(path) => {
            let access = Access::new(context);
            let location = access.find(&context.process.files.current(), path, true, false)?;
            access.caller().check(&location, AccessMask::WRITE)?;
            if location.inode().kind() != FileKind::Socket {
                return Err(Errno::ECONNREFUSED);
            }
            unix.find_by_inode(location.inode())
        }
    };
    found.ok_or(Errno::ECONNREFUSED)
}

/// `bind(2)`.
pub fn bind(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    let name = read_address(context, address, length)?;
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => return inet_socket::bind(context, &socket, &name).map(|()| 0),
        AnySocket::Netlink(socket) => return netlink_socket::bind(context, &socket, &name).map(|()| 0),
        AnySocket::Packet(socket) => return packet_socket::bind(&socket, &name).map(|()| 0),
    };
    match read_name(&name)? {
        Name::None => return Err(Errno::EINVAL),
        Name::Automatic => socket.bind_abstract(None)?,
        Name::Unix(Address::Abstract(name)) => socket.bind_abstract(Some(name))?,
        Name::Unix(Address::Path(path)) => bind_path(context, &socket, path)?,
    }
    Ok(0)
}

/// Makes the name in the file system. As on Linux, a name that is taken is told before a socket that has one.
fn bind_path(context: &Context<'_>, socket: &Arc<Socket>, path: Vec<u8>) -> Result<()> {
    const PERMISSIONS: u32 = 0o777;
    let access = Access::new(context);
    let current = context.process.files.current();
    let made = access.namespace().create(&access.caller(), &current, &path, NewNode::Socket, PERMISSIONS);
    let location = made.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
    let outcome = socket.bind_inode(path.clone(), location.inode().clone());
    if outcome.is_err() {
        let _ = access.namespace().unlink(&access.caller(), &current, &path);
    }
    outcome
}

/// `listen(2)`.
pub fn listen(context: &mut Context<'_>, [descriptor, backlog, ..]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    // A negative backlog is as long as there can be.
    match socket {
        AnySocket::Unix(socket) => socket.listen(backlog as u32, context.identity())?,
        AnySocket::Inet(socket) => socket.listen(backlog as u32)?,
        AnySocket::Netlink(_) | AnySocket::Packet(_) => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

/// `accept(2)`.
pub fn accept(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    accept4(context, [descriptor, address, length, 0, 0, 0])
}

/// `accept4(2)`.
pub fn accept4(context: &mut Context<'_>, [descriptor, address, length, flags, ..]: Arguments) -> Result<u64> {
    if flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let (description, socket) = socket_at(context, descriptor)?;
    let may_wait = !description.is_non_blocking();
    accept_by(context, (&description, &socket), [address, length, flags], may_wait)
}

/// The same of a socket.
pub(super) fn accept_by(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    [address, length, flags]: [u64; 3],
    may_wait: bool,
) -> Result<u64> {
    context.process.files.check_room()?;
    let limit = WaitLimit { timeout_ns: socket.options().receive_timeout_ns(), may_wait };
    let accepted = until_ready_with(context, description, Readiness::READ, limit, |_| match socket {
        AnySocket::Unix(socket) => socket.accept().map(AnySocket::Unix),
        AnySocket::Inet(socket) => socket.accept().map(AnySocket::Inet),
        AnySocket::Netlink(_) | AnySocket::Packet(_) => Err(Errno::EOPNOTSUPP),
    })?;
    let name = match &accepted {
        AnySocket::Unix(accepted) => name_bytes(accepted.peer_address()?.as_deref()),
        AnySocket::Inet(accepted) => address_bytes(accepted.shown(accepted.accepted_from()?)).to_vec(),
        AnySocket::Netlink(_) | AnySocket::Packet(_) => Vec::new(),
    };
    let descriptor = add(context, accepted, flags)?;
    if address != 0
        && let Err(error) = write_address(context, &name, address, length)
    {
        drop(context.process.files.table().remove(descriptor as u32));
        return Err(error);
    }
    Ok(descriptor)
}

/// `connect(2)`.
pub fn connect(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let (description, socket) = socket_at(context, descriptor)?;
    let name = read_address(context, address, length)?;
    let may_wait = !description.is_non_blocking();
    connect_by(context, (&description, &socket), &name, may_wait)
}

/// The same of a socket.
pub(super) fn connect_by(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    name: &[u8],
    may_wait: bool,
) -> Result<u64> {
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            return inet_socket::connect(context, description, socket, (name, may_wait)).map(|()| 0);
        }
        AnySocket::Netlink(socket) => return netlink_socket::connect(context, socket, name).map(|()| 0),
        AnySocket::Packet(_) => return Err(Errno::EOPNOTSUPP),
    };
    let address = match read_name(name)? {
        Name::Unix(address) => address,
        Name::None if socket.kind() == SocketKind::Datagram => return socket.connect_datagram(None).map(|()| 0),
        Name::None | Name::Automatic => return Err(Errno::EINVAL),
    };
    if socket.wants_identity() {
        socket.bind_abstract(None)?;
    }
    let identity = context.identity();
    let limit = WaitLimit { timeout_ns: socket.options().send_timeout_ns(), may_wait };
    until_ready_with(context, description, Readiness::all(), limit, |context| {
        let target = find(context, socket.kind(), &address)?;
        socket.connect(&target, context.system.files.namespace.number(), identity)
    })?;
    Ok(0)
}

/// `getsockname(2)`.
pub fn getsockname(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    let name = match socket {
        AnySocket::Unix(socket) => name_bytes(socket.address().as_deref()),
        AnySocket::Inet(socket) => address_bytes(socket.local_shown()).to_vec(),
        AnySocket::Netlink(socket) => netlink_socket::address_bytes(socket.local()),
        AnySocket::Packet(socket) => packet_socket::local_bytes(&socket),
    };
    write_address(context, &name, address, length)?;
    Ok(0)
}

/// `getpeername(2)`.
pub fn getpeername(context: &mut Context<'_>, [descriptor, address, length, ..]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    let name = match socket {
        AnySocket::Unix(socket) => name_bytes(socket.peer_address()?.as_deref()),
        AnySocket::Inet(socket) => address_bytes(socket.shown(socket.remote()?)).to_vec(),
        AnySocket::Netlink(socket) => netlink_socket::address_bytes(socket.remote()),
        AnySocket::Packet(_) => return Err(Errno::EOPNOTSUPP),
    };
    write_address(context, &name, address, length)?;
    Ok(0)
}

/// `shutdown(2)`.
pub fn shutdown(context: &mut Context<'_>, [descriptor, how, ..]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    shutdown_by(&socket, how)
}

/// The same of a socket.
pub(super) fn shutdown_by(socket: &AnySocket, how: u64) -> Result<u64> {
    let halves = match how as u32 {
        0 => Halves { receiving: true, sending: false },
        1 => Halves { receiving: false, sending: true },
        2 => Halves { receiving: true, sending: true },
        _ => return Err(Errno::EINVAL),
    };
    match socket {
        AnySocket::Unix(socket) => socket.shutdown(halves),
        AnySocket::Inet(socket) => socket.shutdown(halves)?,
        AnySocket::Netlink(_) | AnySocket::Packet(_) => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}
