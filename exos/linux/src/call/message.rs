//! Bytes and messages through sockets: `send` and `recv` in all their forms.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::fs::step::{Step, Transfer, TransferCaller};
use exos::fs::transfer::{Destination, Source};
use exos::net::AnySocket;
use exos::net::inet::{self, Family, Protocol, Way};
use exos::net::unix::address::Address;
use exos::net::unix::flight::{RIGHTS_COUNT_MAX, Rights};
use exos::net::unix::{Identity, Received, Sending, Socket, SocketKind, Wants};
use exos::preempt;
use exos::task::capability::Capability;

use super::file_transfer::one;
use super::socket::{find, read_address, read_address_into, socket_at, write_address};
use super::waiting::in_steps;
use super::{inet_control, inet_message, inet_socket, netlink_socket, packet_socket};
use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{
    MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET,
};
use crate::abi::socket::{
    ADDRESS_BYTES_MAX, CONTROL_BYTES_MAX, CONTROL_HEADER_BYTES, HEADER_BYTES, HEADERS_BYTES, Header, Name,
    control_aligned, flag, name_bytes, read_controls, read_name,
};
use crate::abi::time::timespec;
use crate::abi::user_memory::{
    EXTENT_COUNT_MAX, Extent, MAX_RW_COUNT, UserReader, UserWriter, read_array, read_extents, read_vec, write_all,
};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    sendto;
    recvfrom;
    sendmsg: "MSG_OOB over loopback alone";
    recvmsg: "MSG_OOB over loopback alone, no SO_PEEK_OFF";
    sendmmsg: "MSG_OOB over loopback alone";
    recvmmsg: "MSG_OOB over loopback alone, no SO_PEEK_OFF";
}

/// Most messages that one call moves.
const MESSAGE_COUNT_MAX: u64 = 1024;

/// Sends what `source` has. On a blocking stream all of it, else what there is room for.
pub(super) fn send_source(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Socket,
    source: &mut dyn Source,
    sending: &mut Sending<'_>,
    flags: u64,
) -> Result<u64> {
    if flags & MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    sending.identity.get_or_insert_with(|| context.identity());
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    in_steps(context, description, Transfer::new(Readiness::WRITE, may_wait), |context, transfer| {
        match socket.send_step(source, sending, transfer, &context.caller) {
            Step::Raise(_) if flags & MSG_NOSIGNAL != 0 => Step::Failed(Errno::EPIPE),
            step => step,
        }
    })
}

/// What a call received.
struct Arrival {
    byte_count: u64,
    flags: u64,
    identity: Option<Identity>,
    rights: Option<Rights>,
    from: Option<Arc<Address>>,
}

fn receive(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Socket,
    extents: &[Extent],
    flags: u64,
) -> Result<Arrival> {
    if flags & MSG_OOB != 0 {
        return Err(if socket.kind() == SocketKind::Stream { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    let is_stream = socket.kind() == SocketKind::Stream;
    let mut writer = UserWriter::new(context.memory, extents);
    let room = writer.remaining();
    let least = if flags & MSG_WAITALL == 0 { room.min(socket.options().low_water_bytes()) } else { room };
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    let mut wants = Wants::new(flags & MSG_PEEK != 0);
    let mut last = Received::default();
    let byte_count = in_steps(context, description, Transfer::new(Readiness::READ, may_wait), |context, transfer| {
        let (step, received) = socket.receive_step(&mut writer, (&mut wants, least), transfer, &context.caller);
        let from = received.from.clone().or(last.from.take());
        last = Received { from, ..received };
        step
    })?;
    let Received { identity, rights, from, message_bytes, .. } = last;
    if is_stream {
        let (identity, rights) = wants.take_gathered();
        return Ok(Arrival { byte_count, flags: 0, identity, rights, from });
    }
    let told = if message_bytes as u64 > byte_count { MSG_TRUNC } else { 0 };
    let byte_count = if flags & MSG_TRUNC != 0 { message_bytes as u64 } else { byte_count };
    Ok(Arrival { byte_count, flags: told, identity, rights, from })
}

/// The socket that a message is for, if it is not for the peer.
fn target_of(context: &Context<'_>, socket: &Socket, name: &[u8], extents: &[Extent]) -> Result<Option<Arc<Socket>>> {
    if name.is_empty() || socket.kind() == SocketKind::SeqPacket {
        return Ok(None);
    }
    if socket.kind() == SocketKind::Stream {
        return Err(if socket.peer_address().is_ok() { Errno::EISCONN } else { Errno::EOPNOTSUPP });
    }
    match read_name(name)? {
        Name::Unix(address) => {
            check_message(socket, extents)?;
            find(context, socket.kind(), &address).map(Some)
        }
        Name::None | Name::Automatic => Err(Errno::EINVAL),
    }
}

/// `sendto(2)`, and `send(3)`.
pub fn sendto(
    context: &mut Context<'_>,
    [descriptor, address, length, flags, name, name_bytes]: Arguments,
) -> Result<u64> {
    // Unlike `read` and `write`, as on Linux: what is beyond the most that is moved is not looked at.
    let extents = one(address, length.min(MAX_RW_COUNT))?;
    let (description, socket) = socket_at(context, descriptor)?;
    send_by(context, (&description, &socket), &extents, [flags, name, name_bytes])
}

/// The same of a socket.
pub(super) fn send_by(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    extents: &[Extent],
    [flags, name, name_bytes]: [u64; 3],
) -> Result<u64> {
    let is_named = name != 0;
    let mut place;
    let name = if is_named {
        place = [0; ADDRESS_BYTES_MAX];
        read_address_into(context, name, name_bytes, &mut place)?
    } else {
        &[][..]
    };
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            check_length(socket, extents)?;
            inet_socket::connect_first(context, description, socket, is_named.then_some(name), flags)?;
            let target = inet_socket::target_of(socket, is_named.then_some(name))?;
            let mut reader = UserReader::new(context.memory, extents);
            return inet_message::send(context, description, socket, &mut reader, (target, Way::default()), flags);
        }
        AnySocket::Netlink(socket) => {
            let mut reader = UserReader::new(context.memory, extents);
            return netlink_socket::send(context, socket, &mut reader, is_named.then_some(name), flags);
        }
        AnySocket::Packet(socket) => {
            let mut reader = UserReader::new(context.memory, extents);
            return packet_socket::send(socket, &mut reader, is_named.then_some(name));
        }
    };
    let target = target_of(context, socket, name, extents)?;
    name_sender(socket)?;
    let mut reader = UserReader::new(context.memory, extents);
    let mut sending = Sending { target: target.as_ref(), ..Sending::default() };
    send_source(context, description, socket, &mut reader, &mut sending, flags)
}

/// As on Linux, what no datagram of IPv4 could hold is refused before its receiver's name is looked at. `EMSGSIZE`.
fn check_length(socket: &inet::Socket, extents: &[Extent]) -> Result<()> {
    let is_datagram = matches!(socket.protocol(), Protocol::Udp | Protocol::UdpLite) && socket.family() == Family::V4;
    let length: u64 = extents.iter().map(|extent| extent.length).sum();
    if is_datagram && length > u64::from(u16::MAX) { Err(Errno::EMSGSIZE) } else { Ok(()) }
}

/// The same of what a local socket's buffer could not, before the file of that name is looked for. `EMSGSIZE`.
fn check_message(socket: &Socket, extents: &[Extent]) -> Result<()> {
    let length: u64 = extents.iter().map(|extent| extent.length).sum();
    if length > socket.message_bytes_max() as u64 { Err(Errno::EMSGSIZE) } else { Ok(()) }
}

/// A sender whose receivers are to know it has a name.
fn name_sender(socket: &Arc<Socket>) -> Result<()> {
    if socket.kind() == SocketKind::Datagram && socket.wants_identity() { socket.bind_abstract(None) } else { Ok(()) }
}

/// `recvfrom(2)`, and `recv(3)`.
pub fn recvfrom(
    context: &mut Context<'_>,
    [descriptor, address, length, flags, name, name_length]: Arguments,
) -> Result<u64> {
    // Unlike `read` and `write`, as on Linux: what is beyond the most that is moved is not looked at.
    let extents = one(address, length.min(MAX_RW_COUNT))?;
    let (description, socket) = socket_at(context, descriptor)?;
    receive_by(context, (&description, &socket), &extents, [flags, name, name_length])
}

/// The same of a socket.
pub(super) fn receive_by(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    extents: &[Extent],
    [flags, name, name_length]: [u64; 3],
) -> Result<u64> {
    let is_named = name != 0;
    let tell = |context: &Context<'_>, sender: &[u8], byte_count: u64| {
        let told = if is_named { write_address(context, sender, name, name_length) } else { Ok(()) };
        told.map(|()| byte_count)
    };
    match socket {
        AnySocket::Unix(socket) => {
            let arrival = receive(context, description, socket, extents, flags)?;
            tell(context, &sender_name(&arrival), arrival.byte_count)
        }
        AnySocket::Inet(socket) => {
            let arrival = inet_message::receive(context, description, socket, extents, flags)?;
            tell(context, &arrival.sender_name(socket), arrival.byte_count)
        }
        AnySocket::Netlink(socket) => {
            let arrival = netlink_socket::receive(context, description, socket, extents, flags)?;
            tell(context, &arrival.sender_name(), arrival.byte_count)
        }
        AnySocket::Packet(socket) => {
            let arrival = packet_socket::receive(context, description, socket, extents, flags)?;
            tell(context, &arrival.sender_name(), arrival.byte_count)
        }
    }
}

/// The sender's name as `recvfrom` tells it: nothing at all if it has none.
fn sender_name(arrival: &Arrival) -> Vec<u8> {
    arrival.from.as_deref().map(|address| name_bytes(Some(address))).unwrap_or_default()
}

pub(super) fn read_header(context: &Context<'_>, address: u64) -> Result<(Header, Vec<Extent>)> {
    let header = Header::decode(&read_array::<HEADER_BYTES>(context.memory, address)?);
    if header.name != 0 && header.name_bytes > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    if header.extent_count > EXTENT_COUNT_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let extents = read_extents(context.memory, header.extents, header.extent_count)?;
    Ok((header, extents))
}

/// A sender's control messages, one after the other.
fn read_control_bytes(context: &Context<'_>, header: &Header) -> Result<Vec<u8>> {
    if header.control_bytes == 0 {
        return Ok(Vec::new());
    }
    if header.control_bytes > CONTROL_BYTES_MAX {
        return Err(Errno::ENOBUFS);
    }
    read_vec(context.memory, header.control, header.control_bytes, CONTROL_BYTES_MAX as usize)
}

/// What a sender's control messages say.
fn read_sending(context: &Context<'_>, header: &Header) -> Result<Sending<'static>> {
    let mut sending = Sending::default();
    let bytes = read_control_bytes(context, header)?;
    if bytes.len() < CONTROL_HEADER_BYTES {
        return Ok(sending);
    }
    let mut descriptions = Vec::new();
    for control in read_controls(&bytes)?.into_iter().filter(|control| u64::from(control.level) == SOL_SOCKET) {
        match control.kind {
            SCM_RIGHTS => {
                for number in control.data.chunks_exact(4) {
                    if descriptions.len() == RIGHTS_COUNT_MAX {
                        return Err(Errno::EINVAL);
                    }
                    descriptions.push(context.process.files.get(get::i32(number, 0) as u64)?);
                }
            }
            SCM_CREDENTIALS => {
                sending.identity = Some(claimed_identity(context, control.data)?);
                sending.is_identity_explicit = true;
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    if !descriptions.is_empty() {
        sending.rights = Some(Rights::new(&context.system.files.unix, descriptions)?);
    }
    Ok(sending)
}

/// The identity that a sender claims. `EPERM`: it may not claim it. `ESRCH`: no such process. `EINVAL`.
fn claimed_identity(context: &Context<'_>, data: &[u8]) -> Result<Identity> {
    const BYTES: usize = 12;
    if data.len() != BYTES {
        return Err(Errno::EINVAL);
    }
    let claimed = Identity { pid: get::u32(data, 0), uid: get::u32(data, 4), gid: get::u32(data, 8) };
    if claimed.uid == u32::MAX || claimed.gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    let is_allowed = may_claim(context, &claimed);
    // A sender that may name others still has to name a process.
    let is_somebody = claimed.pid == context.process.pid || context.system.processes.get(claimed.pid).is_some();
    match (is_allowed, is_somebody) {
        (false, _) => Err(Errno::EPERM),
        (true, false) => Err(Errno::ESRCH),
        (true, true) => Ok(claimed),
    }
}

fn may_claim(context: &Context<'_>, claimed: &Identity) -> bool {
    let identities = context.thread.identities.lock();
    (claimed.pid == context.process.pid || identities.can(Capability::SYS_ADMIN))
        && (identities.uid[..3].contains(&claimed.uid) || identities.can(Capability::SETUID))
        && (identities.gid[..3].contains(&claimed.gid) || identities.can(Capability::SETGID))
}

fn send_message(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &AnySocket,
    address: u64,
    flags: u64,
) -> Result<u64> {
    let (header, extents) = read_header(context, address)?;
    send_as(context, (description, socket), (&header, &extents), flags)
}

/// The same with the message's header.
pub(super) fn send_as(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    (header, extents): (&Header, &[Extent]),
    flags: u64,
) -> Result<u64> {
    let name = match header.name {
        0 => Vec::new(),
        name => read_address(context, name, u64::from(header.name_bytes.min(ADDRESS_BYTES_MAX as u32)))?,
    };
    let socket = match socket {
        AnySocket::Unix(socket) => socket,
        AnySocket::Inet(socket) => {
            let name = Some(&name[..]).filter(|name| !name.is_empty());
            check_length(socket, extents)?;
            inet_socket::connect_first(context, description, socket, name, flags)?;
            let target = inet_socket::target_of(socket, name)?;
            let controls = read_control_bytes(context, header)?;
            let way = inet_control::read_way(context, socket, target, &read_controls(&controls)?)?;
            let mut reader = UserReader::new(context.memory, extents);
            return inet_message::send(context, description, socket, &mut reader, (target, way), flags);
        }
        AnySocket::Netlink(socket) => {
            let target = Some(&name[..]).filter(|name| !name.is_empty());
            let mut reader = UserReader::new(context.memory, extents);
            return netlink_socket::send(context, socket, &mut reader, target, flags);
        }
        AnySocket::Packet(socket) => {
            let target = Some(&name[..]).filter(|name| !name.is_empty());
            let mut reader = UserReader::new(context.memory, extents);
            return packet_socket::send(socket, &mut reader, target);
        }
    };
    let sending = read_sending(context, header)?;
    let target = target_of(context, socket, &name, extents)?;
    name_sender(socket)?;
    let mut sending = Sending { target: target.as_ref(), ..sending };
    let mut reader = UserReader::new(context.memory, extents);
    send_source(context, description, socket, &mut reader, &mut sending, flags)
}

/// `MSG_CMSG_COMPAT`: the caller is a 32-bit program, which there are none of. `EINVAL`.
fn check_width(flags: u64) -> Result<()> {
    const OF_NARROW_PROGRAMS: u64 = 0x8000_0000;
    if flags & OF_NARROW_PROGRAMS == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `sendmsg(2)`.
pub fn sendmsg(context: &mut Context<'_>, [descriptor, address, flags, ..]: Arguments) -> Result<u64> {
    check_width(flags)?;
    let (description, socket) = socket_at(context, descriptor)?;
    send_message(context, &description, &socket, address, flags)
}

/// `sendmmsg(2)`.
pub fn sendmmsg(context: &mut Context<'_>, [descriptor, headers, count, flags, ..]: Arguments) -> Result<u64> {
    check_width(flags)?;
    let (description, socket) = socket_at(context, descriptor)?;
    let mut done = 0;
    while done < u64::from(count as u32).min(MESSAGE_COUNT_MAX) {
        let header = headers.wrapping_add(done * HEADERS_BYTES);
        let outcome = send_message(context, &description, &socket, header, flags).and_then(|sent| {
            write_all(context.memory, header.wrapping_add(HEADER_BYTES as u64), &(sent as u32).to_le_bytes())
        });
        match outcome {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if preempt::unless_killed().is_err() {
            break;
        }
    }
    Ok(done)
}

/// Where control messages go that a program receives.
pub(super) struct Controls {
    address: u64,
    room: usize,
    used: usize,
    flags: u64,
}

impl Controls {
    /// Writes one message, cut where the room ends. Where it cannot be written the caller passes over it,
    /// as on Linux.
    pub(super) fn put(&mut self, context: &Context<'_>, level: u32, kind: u32, data: &[u8]) -> Result<()> {
        let room = self.room - self.used;
        if room < CONTROL_HEADER_BYTES {
            self.flags |= MSG_CTRUNC;
            return Ok(());
        }
        let whole = CONTROL_HEADER_BYTES + data.len();
        let length = whole.min(room);
        if length < whole {
            self.flags |= MSG_CTRUNC;
        }
        let header = Encoder::new().u64(length as u64).u32(level).u32(kind).raw(data).finish();
        write_all(context.memory, self.address + self.used as u64, &header[..length])?;
        self.used += control_aligned(whole).min(room);
        Ok(())
    }

    /// What came with bytes through a local socket.
    fn put_arrival(&mut self, context: &Context<'_>, socket: &Socket, arrival: &Arrival, flags: u64) {
        if socket.wants_identity() {
            let identity = arrival.identity.unwrap_or(Identity::UNKNOWN);
            let data = Encoder::new().u32(identity.pid).u32(identity.uid).u32(identity.gid).finish();
            let _ = self.put(context, SOL_SOCKET as u32, SCM_CREDENTIALS, &data);
        }
        if let Some(rights) = &arrival.rights {
            self.put_rights(context, rights, flags & MSG_CMSG_CLOEXEC != 0);
        }
    }

    /// Makes descriptors of as many descriptions as there is room for.
    fn put_rights(&mut self, context: &Context<'_>, rights: &Rights, close_on_exec: bool) {
        const NUMBER_BYTES: usize = 4;
        let room = (self.room - self.used).saturating_sub(CONTROL_HEADER_BYTES) / NUMBER_BYTES;
        let files = &context.process.files;
        let mut numbers = Vec::new();
        for description in rights.descriptions().iter().take(room) {
            let Ok(number) = files.add(description.clone(), close_on_exec) else { break };
            numbers.push(number as u32);
        }
        if numbers.len() < rights.descriptions().len() {
            self.flags |= MSG_CTRUNC;
        }
        if numbers.is_empty() {
            return;
        }
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if self.put(context, SOL_SOCKET as u32, SCM_RIGHTS, &data).is_err() {
            self.flags |= MSG_CTRUNC;
            for number in numbers {
                drop(files.table().remove(number));
            }
        }
    }
}

fn receive_message(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &AnySocket,
    address: u64,
    flags: u64,
) -> Result<u64> {
    let (header, extents) = read_header(context, address)?;
    receive_as(context, (description, socket), (address, &header, &extents), flags)
}

/// The same with the message's header, which is at `address`.
pub(super) fn receive_as(
    context: &mut Context<'_>,
    (description, socket): (&Arc<Description>, &AnySocket),
    (address, header, extents): (u64, &Header, &[Extent]),
    flags: u64,
) -> Result<u64> {
    let room = if header.control == 0 { 0 } else { usize::try_from(header.control_bytes).unwrap_or(usize::MAX) };
    let mut controls = Controls { address: header.control, room, used: 0, flags: 0 };
    let write_name = |context: &Context<'_>, name: &[u8]| match header.name {
        0 => Ok(()),
        place => write_address(context, name, place, address + Header::NAME_BYTES_OFFSET),
    };
    let byte_count = match socket {
        AnySocket::Unix(socket) => {
            let arrival = receive(context, description, socket, extents, flags)?;
            write_name(context, &sender_name(&arrival))?;
            controls.flags = arrival.flags;
            controls.put_arrival(context, socket, &arrival, flags);
            arrival.byte_count
        }
        AnySocket::Inet(socket) => {
            let arrival = inet_message::receive(context, description, socket, extents, flags)?;
            write_name(context, &arrival.sender_name(socket))?;
            controls.flags = arrival.flags;
            inet_control::put_controls(context, socket, &arrival, &mut controls);
            arrival.byte_count
        }
        AnySocket::Netlink(socket) => {
            let arrival = netlink_socket::receive(context, description, socket, extents, flags)?;
            write_name(context, &arrival.sender_name())?;
            controls.flags = arrival.flags;
            netlink_socket::put_controls(context, socket, &mut controls);
            arrival.byte_count
        }
        AnySocket::Packet(socket) => {
            let arrival = packet_socket::receive(context, description, socket, extents, flags & !MSG_CMSG_CLOEXEC)?;
            write_name(context, &arrival.sender_name())?;
            controls.flags = arrival.flags;
            packet_socket::put_controls(context, socket, &arrival, &mut controls);
            arrival.byte_count
        }
    };
    let told = (controls.flags | flags & MSG_CMSG_CLOEXEC) as u32;
    write_all(context.memory, address + Header::FLAGS_OFFSET, &told.to_le_bytes())?;
    write_all(context.memory, address + Header::CONTROL_BYTES_OFFSET, &(controls.used as u64).to_le_bytes())?;
    Ok(byte_count)
}

/// `recvmsg(2)`.
pub fn recvmsg(context: &mut Context<'_>, [descriptor, address, flags, ..]: Arguments) -> Result<u64> {
    check_width(flags)?;
    let (description, socket) = socket_at(context, descriptor)?;
    receive_message(context, &description, &socket, address, flags)
}

/// `recvmmsg(2)`: the time is looked at after each message, as on Linux.
pub fn recvmmsg(context: &mut Context<'_>, [descriptor, headers, count, flags, timeout, _]: Arguments) -> Result<u64> {
    check_width(flags)?;
    let deadline_ns = super::poll::read_deadline(context, timeout)?;
    let (description, socket) = socket_at(context, descriptor)?;
    if let Some(error) = socket.take_error() {
        return Err(error);
    }
    let mut done = 0;
    let mut flags = flags;
    while done < u64::from(count as u32).min(MESSAGE_COUNT_MAX) {
        let header = headers.wrapping_add(done * HEADERS_BYTES);
        let outcome = receive_message(context, &description, &socket, header, flags & !flag::MSG_WAITFORONE);
        let outcome = outcome.and_then(|received| {
            write_all(context.memory, header.wrapping_add(HEADER_BYTES as u64), &(received as u32).to_le_bytes())
        });
        match outcome {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if flags & flag::MSG_WAITFORONE != 0 {
            flags |= MSG_DONTWAIT;
        }
        let is_late = deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns);
        if is_late || preempt::unless_killed().is_err() {
            break;
        }
    }
    if let Some(deadline_ns) = deadline_ns {
        write_all(context.memory, timeout, &timespec(deadline_ns.saturating_sub(context.now_ns())))?;
    }
    Ok(done)
}
