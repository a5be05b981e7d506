//! `getsockopt` and `setsockopt`: the options of socket(7), of which many can be set on any socket without doing
//! anything. [`super::inet_option`] has those of TCP and IP.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::net::AnySocket;
use exos::net::inet::interface::{ETHERNET_NAME, LOOPBACK};
use exos::net::inet::settings::Setting;
use exos::net::inet::{Family, Protocol, Socket};
use exos::net::netlink::socket::switch;
use exos::net::options::{Number, SocketOptions};
use exos::net::packet;
use exos::net::unix::{Identity, SocketKind};
use exos::net::view::NetworkView;
use exos::task::capability::Capability;

use super::socket::socket_at;
use super::{inet_option, netlink_socket, packet_socket, socket_filter};
use crate::abi::bytes::{Encoder, get};
use crate::abi::errno;
use crate::abi::linux::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, SO_ACCEPTCONN, SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_BINDTODEVICE,
    SO_BINDTOIFINDEX, SO_BPF_EXTENSIONS, SO_BROADCAST, SO_BSDCOMPAT, SO_BUSY_POLL, SO_CNX_ADVICE, SO_COOKIE, SO_DEBUG,
    SO_DETACH_FILTER, SO_DOMAIN, SO_DONTROUTE, SO_ERROR, SO_INCOMING_CPU, SO_INCOMING_NAPI_ID, SO_KEEPALIVE, SO_LINGER,
    SO_LOCK_FILTER, SO_MARK, SO_MAX_PACING_RATE, SO_MEMINFO, SO_NO_CHECK, SO_NOFCS, SO_OOBINLINE, SO_PASSCRED,
    SO_PEERCRED, SO_PREFER_BUSY_POLL, SO_PRIORITY, SO_PROTOCOL, SO_RCVBUF, SO_RCVBUFFORCE, SO_RCVLOWAT, SO_RCVMARK,
    SO_RESERVE_MEM, SO_REUSEADDR, SO_REUSEPORT, SO_RXQ_OVFL, SO_SELECT_ERR_QUEUE, SO_SNDBUF, SO_SNDBUFFORCE,
    SO_SNDLOWAT, SO_TYPE, SO_WIFI_STATUS, SOL_SOCKET,
};
use crate::abi::socket::option;
use crate::abi::user_memory::{read_array, read_exact, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    getsockopt: "those options of sockets, TCP, IP and IPv6 that programs use";
    setsockopt: "those options of sockets, TCP, IP and IPv6 that programs use";
}

/// Switches that concern networks: they are told back as they were set.
const KEPT: [u64; 11] = [
    SO_REUSEADDR,
    SO_DONTROUTE,
    SO_BROADCAST,
    SO_KEEPALIVE,
    SO_OOBINLINE,
    SO_NO_CHECK,
    SO_REUSEPORT,
    SO_RXQ_OVFL,
    SO_WIFI_STATUS,
    SO_NOFCS,
    SO_SELECT_ERR_QUEUE,
];
/// What a filter may ask of a packet beyond its bytes: how many of Linux's extensions it would find (`SKF_AD_MAX`).
const BPF_EXTENSIONS: i32 = 64;
/// Bytes of `SO_COOKIE`.
const COOKIE_BYTES: usize = 8;
const MICROSECOND_NS: u64 = 1000;
const SECOND_NS: u64 = 1_000_000_000;

/// Bytes of a long number.
const LONG_BYTES: usize = 8;
/// Bytes of an interface's name (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

/// `SOCK_*`.
fn kind_number(socket: &AnySocket) -> i32 {
    match socket {
        AnySocket::Unix(socket) => match socket.kind() {
            SocketKind::Stream => 1,
            SocketKind::Datagram => 2,
            SocketKind::SeqPacket => 5,
        },
        AnySocket::Inet(socket) => match socket.protocol() {
            Protocol::Tcp => 1,
            Protocol::Udp | Protocol::UdpLite | Protocol::Ping => 2,
            Protocol::Raw(_) => 3,
        },
        AnySocket::Netlink(socket) => {
            if socket.is_raw() {
                3
            } else {
                2
            }
        }
        AnySocket::Packet(socket) => match socket.kind() {
            packet::Kind::Datagram => 2,
            packet::Kind::Raw => 3,
        },
    }
}

/// `AF_*` and `IPPROTO_*`.
fn family_of(socket: &AnySocket) -> (u16, i32) {
    match socket {
        AnySocket::Unix(_) => (AF_UNIX, 0),
        AnySocket::Inet(socket) => {
            let family = if socket.family() == Family::V4 { AF_INET } else { AF_INET6 };
            let protocol = match (socket.protocol(), family) {
                (Protocol::Tcp, _) => 6,
                (Protocol::Udp, _) => 17,
                (Protocol::UdpLite, _) => 136,
                (Protocol::Ping, AF_INET) => 1,
                (Protocol::Ping, _) => 58,
                (Protocol::Raw(number), _) => i32::from(number),
            };
            (family, protocol)
        }
        AnySocket::Netlink(socket) => (AF_NETLINK, i32::from(socket.protocol())),
        AnySocket::Packet(_) => (AF_PACKET, 0),
    }
}

/// The value of an option. `ENOPROTOOPT`: there is no such option.
fn value_of(socket: &AnySocket, name: u64, room: usize) -> Result<Vec<u8>> {
    let options = socket.options();
    let number = match name {
        SO_TYPE => kind_number(socket),
        SO_DOMAIN => i32::from(family_of(socket).0),
        SO_PROTOCOL => family_of(socket).1,
        SO_ERROR => socket.take_error().map_or(0, |error| errno::number(error) as i32),
        SO_SNDBUF => socket.send_buffer_bytes() as i32,
        SO_RCVBUF => socket.receive_buffer_bytes() as i32,
        SO_PASSCRED => i32::from(wants_identity(socket)),
        SO_ACCEPTCONN => i32::from(socket.is_listening()),
        SO_RCVLOWAT => options.low_water_bytes() as i32,
        SO_SNDLOWAT => 1,
        SO_DEBUG => i32::from(options.is_on(name)),
        SO_LOCK_FILTER => i32::from(options.is_filter_locked()),
        SO_BSDCOMPAT | SO_INCOMING_NAPI_ID | SO_PREFER_BUSY_POLL | SO_RESERVE_MEM => 0,
        SO_BPF_EXTENSIONS => BPF_EXTENSIONS,
        SO_BINDTOIFINDEX => bound_index(socket) as i32,
        SO_COOKIE if room < COOKIE_BYTES => return Err(Errno::EINVAL),
        SO_COOKIE => return Ok(socket.number().to_le_bytes().to_vec()),
        name if option::TIMES.contains(&name) => i32::from(u64::from(options.number(Number::Timestamp)) == name),
        // A long one where there is room for it, as on Linux.
        SO_MAX_PACING_RATE if room >= LONG_BYTES => {
            let rate = options.number(Number::PacingRateMax);
            return Ok(if rate == u32::MAX { u64::MAX } else { u64::from(rate) }.to_le_bytes().to_vec());
        }
        name if number_of(name).is_some() => number_of(name).map_or(0, |number| options.number(number)) as i32,
        SO_PRIORITY => options.priority() as i32,
        SO_MEMINFO => {
            // What is charged for what waits, and what may be: of the receiver, which is charged nothing, and the
            // sender.
            let sent = socket.unreceived_bytes().unwrap_or(0) as u32;
            let encoder = Encoder::new().u32(0).u32(socket.receive_buffer_bytes() as u32);
            return Ok(encoder.u32(sent).u32(socket.send_buffer_bytes() as u32).zero_to(36).finish());
        }
        name if KEPT.contains(&name) => i32::from(options.is_on(name)),
        SO_MARK => mark_of(socket)?,
        SO_BINDTODEVICE if room < NAME_BYTES && bound_index(socket) != 0 => return Err(Errno::EINVAL),
        SO_BINDTODEVICE => return Ok(device_name(socket)),
        SO_LINGER => return Ok(options.linger().to_le_bytes().to_vec()),
        SO_PEERCRED => {
            // Nobody has been there yet: no process, and no user at all.
            let nobody = Identity { pid: 0, uid: u32::MAX, gid: u32::MAX };
            let peer = socket.unix().and_then(|socket| socket.peer_identity()).unwrap_or(nobody);
            return Ok(Encoder::new().u32(peer.pid).u32(peer.uid).u32(peer.gid).finish());
        }
        name if option::RECEIVE_TIMEOUT.contains(&name) => return Ok(timeout_bytes(options.receive_timeout_ns())),
        name if option::SEND_TIMEOUT.contains(&name) => return Ok(timeout_bytes(options.send_timeout_ns())),
        _ => return Err(Errno::ENOPROTOOPT),
    };
    Ok(number.to_le_bytes().to_vec())
}

fn timeout_bytes(timeout_ns: u64) -> Vec<u8> {
    let microseconds = timeout_ns.div_ceil(MICROSECOND_NS);
    Encoder::new().u64(microseconds / 1_000_000).u64(microseconds % 1_000_000).finish()
}

/// `getsockopt(2)`.
pub fn getsockopt(context: &mut Context<'_>, [descriptor, level, name, address, length, _]: Arguments) -> Result<u64> {
    let (_, socket) = socket_at(context, descriptor)?;
    let room = i32::from_le_bytes(read_array(context.memory, length)?);
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let (level, name) = (u64::from(level as u32), u64::from(name as u32));
    if level == SOL_SOCKET && name == SO_ATTACH_FILTER {
        return socket_filter::tell(context, socket.options(), address, (length, room)).map(|()| 0);
    }
    let value = match &socket {
        _ if level == SOL_SOCKET => value_of(&socket, name, room)?,
        AnySocket::Unix(_) => return Err(Errno::EOPNOTSUPP),
        AnySocket::Inet(socket) => inet_option::value_of(socket, level, name)?,
        AnySocket::Netlink(socket) => netlink_socket::value_of(socket, level, name, room)?,
        AnySocket::Packet(socket) => packet_socket::value_of(context, socket, (level, name), (address, room))?,
    };
    let count = value.len().min(room);
    write_all(context.memory, address, &value[..count])?;
    write_all(context.memory, length, &(count as u32).to_le_bytes())?;
    Ok(0)
}

/// Whether messages say whose they are (`SO_PASSCRED`).
fn wants_identity(socket: &AnySocket) -> bool {
    match socket {
        AnySocket::Unix(socket) => socket.wants_identity(),
        AnySocket::Netlink(socket) => socket.is_on(switch::IDENTITY),
        AnySocket::Inet(_) | AnySocket::Packet(_) => false,
    }
}

/// Sets it. `ENOPROTOOPT`: the socket's messages do not.
fn set_wants_identity(socket: &AnySocket, value: bool) -> Result<()> {
    match socket {
        AnySocket::Unix(socket) => socket.set_wants_identity(value),
        AnySocket::Netlink(socket) => socket.set_on(switch::IDENTITY, value),
        AnySocket::Inet(_) | AnySocket::Packet(_) => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Where an option is kept that is a number.
fn number_of(name: u64) -> Option<Number> {
    Some(match name {
        SO_BUSY_POLL => Number::BusyPoll,
        SO_MAX_PACING_RATE => Number::PacingRateMax,
        SO_INCOMING_CPU => Number::IncomingProcessor,
        SO_RCVMARK => Number::ReceiveMark,
        _ => return None,
    })
}

/// Sets an option that is a number. `EINVAL`: no number that it may be. `EPERM`: more than without a right.
fn set_number(context: &Context<'_>, socket: &AnySocket, number: Number, value: i32) -> Result<()> {
    let kept = match (number, value) {
        (Number::BusyPoll, ..0) => return Err(Errno::EINVAL),
        (Number::BusyPoll, _) if value as u32 > socket.options().number(number) => {
            if !context.can(Capability::NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            value
        }
        (Number::ReceiveMark, _) => i32::from(value != 0),
        _ => value,
    };
    socket.options().set_number(number, kept as u32);
    Ok(())
}

/// The number of the interface that a socket is bound to.
fn bound_index(socket: &AnySocket) -> u32 {
    match socket {
        AnySocket::Inet(socket) => socket.bound_interface(),
        _ => 0,
    }
}

/// `SO_MARK`. `ENOPROTOOPT`: a local socket has none.
fn mark_of(socket: &AnySocket) -> Result<i32> {
    match socket {
        AnySocket::Unix(_) | AnySocket::Netlink(_) | AnySocket::Packet(_) => Ok(0),
        AnySocket::Inet(socket) => Ok(socket.settings().get(Setting::Mark)),
    }
}

fn set_mark(context: &Context<'_>, socket: &AnySocket, value: i32) -> Result<()> {
    match socket {
        _ if !context.can(Capability::NET_ADMIN) => Err(Errno::EPERM),
        AnySocket::Unix(_) | AnySocket::Netlink(_) | AnySocket::Packet(_) => Err(Errno::ENOPROTOOPT),
        AnySocket::Inet(socket) => {
            socket.settings().set(Setting::Mark, value);
            Ok(())
        }
    }
}

/// The name of the interface that a socket is bound to, with its NUL; nothing if there is none.
fn device_name(socket: &AnySocket) -> Vec<u8> {
    let name = match bound_index(socket) {
        0 => return Vec::new(),
        index if index == LOOPBACK.index => LOOPBACK.name,
        _ => ETHERNET_NAME,
    };
    Encoder::new().raw(name.as_bytes()).u8(0).finish()
}

/// `SO_BINDTODEVICE`. `ENODEV`: there is no such interface.
fn bind_to_device(context: &Context<'_>, socket: &AnySocket, address: u64, length: u64) -> Result<()> {
    const NAME_BYTES_MAX: u64 = 15;
    if !matches!(socket, AnySocket::Inet(_) | AnySocket::Packet(_)) {
        return Err(Errno::ENOPROTOOPT);
    }
    let bytes = read_vec(context.memory, address, length.min(NAME_BYTES_MAX), NAME_BYTES_MAX as usize)?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let index = match name {
        b"" => 0,
        _ => NetworkView::of(&context.system.files.inet)?.by_name(name).ok_or(Errno::ENODEV)?.index,
    };
    match socket {
        AnySocket::Inet(socket) => bind_to(context, socket, index),
        // A packet socket is bound by its address.
        _ => Ok(()),
    }
}

/// Binds it, or ends that; another than before needs a right. `EPERM`.
fn bind_to(context: &Context<'_>, socket: &Socket, index: u32) -> Result<()> {
    if socket.bound_interface() != 0 && !context.can(Capability::NET_RAW) {
        return Err(Errno::EPERM);
    }
    socket.set_bound_interface(index);
    Ok(())
}

/// `SO_BINDTOIFINDEX`. `EINVAL`: no number of an interface. `ENODEV`: there is no such interface.
fn bind_to_index(context: &Context<'_>, socket: &AnySocket, index: i32) -> Result<()> {
    let AnySocket::Inet(socket) = socket else { return Err(Errno::ENOPROTOOPT) };
    let index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
    if index != 0 && NetworkView::of(&context.system.files.inet)?.by_index(index).is_none() {
        return Err(Errno::ENODEV);
    }
    bind_to(context, socket, index)
}

/// Reads a `timeval`. `EDOM`: no such number of microseconds. A negative time is the shortest there is.
fn read_timeout(context: &Context<'_>, address: u64) -> Result<u64> {
    let bytes: [u8; 16] = read_array(context.memory, address)?;
    let (seconds, microseconds) = (get::i64(&bytes, 0), get::i64(&bytes, 8));
    if !(0..1_000_000).contains(&microseconds) {
        return Err(Errno::EDOM);
    }
    let Ok(seconds) = u64::try_from(seconds) else { return Ok(1) };
    Ok(seconds.saturating_mul(SECOND_NS).saturating_add(microseconds as u64 * MICROSECOND_NS))
}

/// `SO_LINGER`. Closing a local socket never waits; it is told back as Linux does. TCP acts upon it.
fn set_linger(context: &Context<'_>, options: &SocketOptions, (address, length): (u64, u64)) -> Result<()> {
    if length < 8 {
        return Err(Errno::EINVAL);
    }
    let bytes: [u8; 8] = read_array(context.memory, address)?;
    let (is_on, seconds) = (get::u32(&bytes, 0) != 0, u64::from(get::u32(&bytes, 4)));
    // As on Linux, the time stays when it is switched off.
    let seconds = if is_on { seconds } else { options.linger() >> 32 };
    options.set_linger(seconds << 32 | u64::from(is_on));
    Ok(())
}

/// Sets an option of a level that not all sockets have.
fn set_of_family(
    context: &mut Context<'_>,
    socket: &AnySocket,
    option: (u64, u64),
    (address, length): (u64, u64),
) -> Result<()> {
    match socket {
        AnySocket::Unix(_) => Err(Errno::EOPNOTSUPP),
        AnySocket::Inet(socket) => inet_option::set(context, socket, option, (address, length)),
        AnySocket::Netlink(socket) => netlink_socket::set(context, socket, option, (address, length)),
        AnySocket::Packet(socket) => packet_socket::set(context, socket, option, (address, length)),
    }
}

/// `setsockopt(2)`.
pub fn setsockopt(context: &mut Context<'_>, [descriptor, level, name, address, length, _]: Arguments) -> Result<u64> {
    const INT_BYTES: u64 = 4;
    const TIME_BYTES: u64 = 16;
    let (_, socket) = socket_at(context, descriptor)?;
    let length = u64::try_from(length as i32).map_err(|_| Errno::EINVAL)?;
    let (level, name) = (u64::from(level as u32), u64::from(name as u32));
    if level != SOL_SOCKET {
        return set_of_family(context, &socket, (level, name), (address, length)).map(|()| 0);
    }
    if name == SO_BINDTODEVICE {
        return bind_to_device(context, &socket, address, length).map(|()| 0);
    }
    if length < INT_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut value = [0; INT_BYTES as usize];
    read_exact(context.memory, address, &mut value)?;
    let value = i32::from_le_bytes(value);
    let bytes = value.max(0) as usize;
    let options = socket.options();
    let is_timeout = |names: [u64; 2]| names.contains(&name);
    match name {
        SO_SNDBUF => socket.set_send_buffer_bytes(value as u32 as usize),
        SO_RCVBUF => socket.set_receive_buffer_bytes(value as u32 as usize),
        SO_SNDBUFFORCE | SO_RCVBUFFORCE if !context.can(Capability::NET_ADMIN) => {
            return Err(Errno::EPERM);
        }
        SO_SNDBUFFORCE => socket.set_send_buffer_bytes(bytes),
        SO_RCVBUFFORCE => socket.set_receive_buffer_bytes(bytes),
        SO_LINGER => set_linger(context, options, (address, length))?,
        SO_PASSCRED => set_wants_identity(&socket, value != 0)?,
        SO_RCVLOWAT => socket.set_low_water_bytes(if value < 0 { i32::MAX as usize } else { bytes }),
        SO_PRIORITY if !(0..=6).contains(&value) && !context.can(Capability::NET_ADMIN) => {
            return Err(Errno::EPERM);
        }
        SO_PRIORITY => options.set_priority(value as u32),
        SO_MARK => set_mark(context, &socket, value)?,
        SO_DEBUG if value != 0 && !context.can(Capability::NET_ADMIN) => return Err(Errno::EACCES),
        SO_DEBUG => options.set_on(name, value != 0),
        SO_BSDCOMPAT | SO_CNX_ADVICE => {}
        SO_PREFER_BUSY_POLL if value != 0 && !context.can(Capability::NET_ADMIN) => return Err(Errno::EPERM),
        SO_PREFER_BUSY_POLL => {}
        // Nothing is set aside for one socket.
        SO_RESERVE_MEM => return Err(Errno::EOPNOTSUPP),
        SO_REUSEPORT if value != 0 && !matches!(socket, AnySocket::Inet(_)) => return Err(Errno::EOPNOTSUPP),
        SO_ATTACH_FILTER => socket_filter::attach(context, options, (address, length))?,
        SO_DETACH_FILTER => options.set_filter(None)?,
        SO_LOCK_FILTER => options.lock_filter(value != 0)?,
        // There are no descriptors of programs.
        SO_ATTACH_BPF => return Err(socket_filter::no_program(context, options, value)),
        SO_BINDTOIFINDEX => bind_to_index(context, &socket, value)?,
        name if option::TIMES.contains(&name) => {
            options.set_number(Number::Timestamp, if value == 0 { 0 } else { name as u32 });
        }
        name if number_of(name).is_some() => {
            number_of(name).map_or(Ok(()), |number| set_number(context, &socket, number, value))?;
        }
        name if KEPT.contains(&name) => options.set_on(name, value != 0),
        _ if is_timeout(option::RECEIVE_TIMEOUT) || is_timeout(option::SEND_TIMEOUT) => {
            if length < TIME_BYTES {
                return Err(Errno::EINVAL);
            }
            options.set_timeout_ns(is_timeout(option::SEND_TIMEOUT), read_timeout(context, address)?);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    match (name, &socket) {
        (SO_KEEPALIVE | SO_OOBINLINE, AnySocket::Inet(socket)) => socket.apply_settings(),
        (SO_LINGER, AnySocket::Inet(socket)) if options.linger() >> 32 != 0 => socket.inet().note_lingering(),
        _ => {}
    }
    Ok(0)
}
