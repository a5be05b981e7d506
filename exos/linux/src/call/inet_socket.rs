//! TCP and UDP sockets: making, naming and connecting them. [`super::socket`] has the calls, for all families.

use alloc::sync::Arc;
use core::net::SocketAddr;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::net::inet::{Family, Protocol, Socket, UNPRIVILEGED_FIRST};
use exos::task::capability::Capability;

use super::waiting::until_ready_by;
use crate::abi::inet::{read_other, read_own, read_target};
use crate::abi::linux::AF_INET;
use crate::call::context::Context;
use crate::task::caller::Restart;

/// `IPPROTO_ICMP`, `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_ICMPV6`.
const ICMP: u64 = 1;
const TCP: u64 = 6;
const UDP: u64 = 17;
const ICMP_V6: u64 = 58;
/// How long a connection is tried: as long as Linux sends its first segment again.
const CONNECT_NS: u64 = 127_000_000_000;

/// A new socket; `kind` is `SOCK_*`.
pub(super) fn make(context: &Context<'_>, family: u16, kind: u64, protocol: u64) -> Result<Arc<Socket>> {
    let protocol = match (kind, u64::from(protocol as u32)) {
        (1, 0 | TCP) => Protocol::Tcp,
        (2, 0 | UDP) => Protocol::Udp,
        (2, ICMP) if family == AF_INET => Protocol::Ping,
        (2, ICMP_V6) if family != AF_INET => Protocol::Ping,
        (3, number) if number != 0 && !context.can(Capability::NET_RAW) => return Err(Errno::EPERM),
        // Not `IPPROTO_RAW`: headers are made here.
        (3, number @ 1..=254) => Protocol::Raw(number as u8),
        (1..=3, _) => return Err(Errno::EPROTONOSUPPORT),
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    let family = if family == AF_INET { Family::V4 } else { Family::V6 };
    let (files, uid) = (&context.system.files, context.thread.identities.lock().uid[1]);
    let socket = Socket::new(&files.inet, family, protocol, files.namespace.number(), uid);
    if let Protocol::Raw(_) = protocol {
        files.inet.note_raw(&socket)?;
    }
    Ok(socket)
}

/// `bind`.
pub(super) fn bind(context: &Context<'_>, socket: &Arc<Socket>, name: &[u8]) -> Result<()> {
    let address = read_own(name, socket.family())?;
    let has_ports = matches!(socket.protocol(), Protocol::Tcp | Protocol::Udp);
    let is_privileged = has_ports && (1..UNPRIVILEGED_FIRST).contains(&address.port());
    if is_privileged && !context.can(Capability::NET_BIND_SERVICE) {
        return Err(Errno::EACCES);
    }
    socket.bind(address)
}

/// `connect`.
pub(super) fn connect(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Arc<Socket>,
    name: &[u8],
) -> Result<()> {
    let is_datagram = socket.protocol() != Protocol::Tcp;
    let remote = match read_other(name, socket.family(), is_datagram) {
        Ok(Some(remote)) => remote,
        Ok(None) => return socket.disconnect(),
        // As on Linux, it is not looked at where a connection would go that cannot be made.
        Err(_) if name.len() >= 2 && socket.is_taken() => return Err(Errno::EISCONN),
        Err(error) => return Err(error),
    };
    if is_datagram {
        return socket.connect_datagram(remote);
    }
    let is_begun = socket.begin_connect(remote)?;
    if description.is_non_blocking() {
        // As on Linux, where the answer is on its way while this call returns.
        if is_begun {
            return Err(Errno::EINPROGRESS);
        }
        return socket.connect_outcome().map_err(|error| match error {
            Errno::EAGAIN => Errno::EALREADY,
            error => error,
        });
    }
    let timeout_ns = socket.options().send_timeout_ns();
    let limit_ns = if timeout_ns == 0 { CONNECT_NS } else { timeout_ns };
    let outcome = until_ready_by(context, description, Readiness::WRITE, limit_ns, |_| socket.connect_outcome());
    match outcome {
        Err(Errno::EAGAIN) if timeout_ns > 0 => Err(Errno::EINPROGRESS),
        Err(Errno::EAGAIN) => {
            socket.disconnect()?;
            Err(Errno::ETIMEDOUT)
        }
        outcome => {
            if timeout_ns == 0 {
                context.restart = Restart::UnlessHandlerForbids;
            }
            outcome
        }
    }
}

/// Where a datagram goes that is sent to `name`; `None`: to the peer.
pub(super) fn target_of(socket: &Socket, name: Option<&[u8]>) -> Result<Option<SocketAddr>> {
    match name {
        Some(name) if socket.protocol() != Protocol::Tcp => read_target(name, socket.family()),
        _ => Ok(None),
    }
}
