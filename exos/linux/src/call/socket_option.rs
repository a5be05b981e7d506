//! `getsockopt` and `setsockopt`: the options of socket(7) that mean something to a local socket, and those that can
//! be set on any without doing anything.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::net::unix::{Identity, Socket, SocketKind};
use exos::task::capability::Capability;

use super::socket::socket_at;
use crate::abi::bytes::{Encoder, get};
use crate::abi::errno;
use crate::abi::linux::{
    AF_UNIX, SO_ACCEPTCONN, SO_BROADCAST, SO_BUSY_POLL, SO_DOMAIN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_MEMINFO,
    SO_OOBINLINE, SO_PASSCRED, SO_PEERCRED, SO_PRIORITY, SO_PROTOCOL, SO_RCVBUF, SO_RCVBUFFORCE, SO_RCVLOWAT,
    SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDLOWAT, SO_TYPE, SOL_SOCKET,
};
use crate::abi::socket::option;
use crate::abi::user_memory::{read_array, read_exact, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    getsockopt: "SOL_SOCKET, the options of local sockets";
    setsockopt: "SOL_SOCKET, the options of local sockets";
}

/// Switches that concern networks: they are told back as they were set.
const KEPT: [u64; 5] = [SO_REUSEADDR, SO_BROADCAST, SO_KEEPALIVE, SO_OOBINLINE, SO_REUSEPORT];
const MICROSECOND_NS: u64 = 1000;
const SECOND_NS: u64 = 1_000_000_000;

/// `SOCK_*`.
fn kind_number(kind: SocketKind) -> i32 {
    match kind {
        SocketKind::Stream => 1,
        SocketKind::Datagram => 2,
        SocketKind::SeqPacket => 5,
    }
}

/// The value of an option. `ENOPROTOOPT`: there is no such option.
fn value_of(socket: &Socket, name: u64) -> Result<Vec<u8>> {
    let number = match name {
        SO_TYPE => kind_number(socket.kind()),
        SO_DOMAIN => i32::from(AF_UNIX),
        SO_ERROR => socket.take_error().map_or(0, |error| errno::number(error) as i32),
        SO_SNDBUF => socket.send_buffer_bytes() as i32,
        SO_RCVBUF => socket.receive_buffer_bytes() as i32,
        SO_PASSCRED => i32::from(socket.wants_identity()),
        SO_ACCEPTCONN => i32::from(socket.is_listening()),
        SO_RCVLOWAT => socket.low_water_bytes() as i32,
        SO_SNDLOWAT => 1,
        // No message says when it was sent, and nobody looks for them without being told.
        SO_PROTOCOL | SO_BUSY_POLL => 0,
        name if option::TIMES.contains(&name) => 0,
        SO_PRIORITY => socket.priority() as i32,
        SO_MEMINFO => {
            // What is charged for what waits, and what may be: of the receiver, which is charged nothing, and the
            // sender.
            let sent = socket.unreceived_bytes() as u32;
            let encoder = Encoder::new().u32(0).u32(socket.receive_buffer_bytes() as u32);
            return Ok(encoder.u32(sent).u32(socket.send_buffer_bytes() as u32).zero_to(36).finish());
        }
        name if KEPT.contains(&name) => i32::from(socket.kept_options() & 1 << name != 0),
        SO_LINGER => return Ok(socket.linger().to_le_bytes().to_vec()),
        SO_PEERCRED => {
            // Nobody has been there yet: no process, and no user at all.
            let nobody = Identity { pid: 0, uid: u32::MAX, gid: u32::MAX };
            let peer = socket.peer_identity().unwrap_or(nobody);
            return Ok(Encoder::new().u32(peer.pid).u32(peer.uid).u32(peer.gid).finish());
        }
        name if option::RECEIVE_TIMEOUT.contains(&name) => return Ok(timeout_bytes(socket.receive_timeout_ns())),
        name if option::SEND_TIMEOUT.contains(&name) => return Ok(timeout_bytes(socket.send_timeout_ns())),
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
    if u64::from(level as u32) != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let value = value_of(&socket, u64::from(name as u32))?;
    let count = value.len().min(room);
    write_all(context.memory, address, &value[..count])?;
    write_all(context.memory, length, &(count as u32).to_le_bytes())?;
    Ok(0)
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

/// `setsockopt(2)`.
pub fn setsockopt(context: &mut Context<'_>, [descriptor, level, name, address, length, _]: Arguments) -> Result<u64> {
    const INT_BYTES: u64 = 4;
    const TIME_BYTES: u64 = 16;
    let (_, socket) = socket_at(context, descriptor)?;
    let length = u64::try_from(length as i32).map_err(|_| Errno::EINVAL)?;
    if u64::from(level as u32) != SOL_SOCKET {
        return Err(Errno::EOPNOTSUPP);
    }
    let name = u64::from(name as u32);
    if length < INT_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut value = [0; INT_BYTES as usize];
    read_exact(context.memory, address, &mut value)?;
    let value = i32::from_le_bytes(value);
    let bytes = value.max(0) as usize;
    let is_timeout = |names: [u64; 2]| names.contains(&name);
    match name {
        SO_SNDBUF => socket.set_send_buffer_bytes(value as u32 as usize),
        SO_RCVBUF => socket.set_receive_buffer_bytes(value as u32 as usize),
        SO_SNDBUFFORCE | SO_RCVBUFFORCE if !context.can(Capability::NET_ADMIN) => {
            return Err(Errno::EPERM);
        }
        SO_SNDBUFFORCE => socket.set_send_buffer_bytes(bytes),
        SO_RCVBUFFORCE => socket.set_receive_buffer_bytes(bytes),
        SO_LINGER => {
            // Closing a local socket never waits; it is told back as Linux does.
            let bytes: [u8; 8] =
                if length < 8 { return Err(Errno::EINVAL) } else { read_array(context.memory, address)? };
            let seconds = if value == 0 { socket.linger() >> 32 } else { u64::from(get::u32(&bytes, 4)) };
            socket.set_linger(seconds << 32 | u64::from(value != 0));
        }
        SO_PASSCRED => socket.set_wants_identity(value != 0),
        SO_RCVLOWAT => socket.set_low_water_bytes(if value < 0 { i32::MAX as usize } else { bytes }),
        SO_PRIORITY if !(0..=6).contains(&value) && !context.can(Capability::NET_ADMIN) => {
            return Err(Errno::EPERM);
        }
        SO_PRIORITY => socket.set_priority(value as u32),
        name if option::TIMES.contains(&name) && value == 0 => {}
        name if KEPT.contains(&name) => socket.keep_option(name as u32, value != 0),
        _ if is_timeout(option::RECEIVE_TIMEOUT) || is_timeout(option::SEND_TIMEOUT) => {
            if length < TIME_BYTES {
                return Err(Errno::EINVAL);
            }
            socket.set_timeout_ns(is_timeout(option::SEND_TIMEOUT), read_timeout(context, address)?);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}
