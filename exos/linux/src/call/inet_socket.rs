//! TCP and UDP sockets: making, naming and connecting them. [`super::socket`] has the calls, for all families.

use alloc::sync::Arc;
use core::net::SocketAddr;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::net::inet::settings::Setting;
use exos::net::inet::{Family, Protocol, Socket, UNPRIVILEGED_FIRST};
use exos::net::view::NetworkView;
use exos::net::{AnySocket, SocketFile};
use exos::task::capability::Capability;

use super::waiting::until_ready_by;
use crate::abi::bytes::get;
use crate::abi::inet::{read_other, read_own, read_target};
use crate::abi::linux::{AF_INET, AF_UNSPEC, MSG_DONTWAIT};
use crate::call::context::Context;
use crate::task::caller::Restart;

/// `IPPROTO_ICMP`, `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_UDPLITE`, `IPPROTO_ICMPV6`.
const ICMP: u64 = 1;
const TCP: u64 = 6;
const UDP: u64 = 17;
const UDP_LITE: u64 = 136;
const ICMP_V6: u64 = 58;
/// Flag of a send that connects first.
const MSG_FASTOPEN: u64 = 0x2000_0000;
/// How long a connection is tried: as long as Linux sends its first segment again.
const CONNECT_NS: u64 = 127_000_000_000;

/// A new socket; `kind` is `SOCK_*`.
pub(super) fn make(context: &Context<'_>, family: u16, kind: u64, protocol: u64) -> Result<Arc<Socket>> {
    // `IPPROTO_MAX`.
    const PROTOCOL_COUNT: u64 = 263;
    let protocol = match (kind, u64::from(protocol as u32)) {
        (_, PROTOCOL_COUNT..) => return Err(Errno::EINVAL),
        (1, 0 | TCP) => Protocol::Tcp,
        (2, 0 | UDP) => Protocol::Udp,
        (2, UDP_LITE) => Protocol::UdpLite,
        (2, ICMP) if family == AF_INET => Protocol::Ping,
        (2, ICMP_V6) if family != AF_INET => Protocol::Ping,
        (3, number) if number != 0 && !context.can(Capability::NET_RAW) => return Err(Errno::EPERM),
        // `IPPROTO_RAW` of IPv6 has no header that is made here.
        (3, number @ 1..=254) => Protocol::Raw(number as u8),
        (3, number @ 255) if family == AF_INET => Protocol::Raw(number as u8),
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

/// The interface on whose link an address is.
enum Scope {
    None,
    Loopback,
    Card,
    Unknown,
}

/// Which interface is named with an address that is of a link alone (`sin6_scope_id`), or is the socket's. `None`: the
/// address is not of that kind.
fn scope_of(context: &Context<'_>, socket: &Socket, address: SocketAddr) -> Result<Option<Scope>> {
    let SocketAddr::V6(v6) = address else { return Ok(None) };
    if !v6.ip().is_unicast_link_local() {
        return Ok(None);
    }
    let index = if v6.scope_id() == 0 { socket.bound_interface() } else { v6.scope_id() };
    Ok(Some(match NetworkView::of(&context.system.files.inet)?.by_index(index) {
        _ if index == 0 => Scope::None,
        Some(interface) if interface.is_loopback => Scope::Loopback,
        Some(_) => Scope::Card,
        None => Scope::Unknown,
    }))
}

/// `bind`.
pub(super) fn bind(context: &Context<'_>, socket: &Arc<Socket>, name: &[u8]) -> Result<()> {
    let address = read_own(name, socket.family())?;
    match scope_of(context, socket, address)? {
        None | Some(Scope::Card) => {}
        Some(Scope::None) => return Err(Errno::EINVAL),
        Some(Scope::Loopback) => return Err(Errno::EADDRNOTAVAIL),
        Some(Scope::Unknown) => return Err(Errno::ENODEV),
    }
    let has_ports = matches!(socket.protocol(), Protocol::Tcp | Protocol::Udp | Protocol::UdpLite);
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
    (name, may_wait): (&[u8], bool),
) -> Result<()> {
    let is_datagram = socket.protocol() != Protocol::Tcp;
    let remote = match read_other(name, socket.family(), is_datagram) {
        Ok(Some(remote)) => remote,
        Ok(None) => return socket.disconnect(),
        // As on Linux, it is not looked at where a connection would go that cannot be made.
        Err(_) if name.len() >= 2 && socket.is_taken() => return Err(Errno::EISCONN),
        Err(error) => return Err(error),
    };
    match scope_of(context, socket, remote)? {
        None | Some(Scope::Card) => {}
        Some(Scope::None) => return Err(Errno::EINVAL),
        Some(Scope::Loopback | Scope::Unknown) => return Err(Errno::ENETUNREACH),
    }
    if is_datagram {
        return socket.connect_datagram(remote);
    }
    let is_begun = socket.begin_connect(remote)?;
    if !may_wait || description.is_non_blocking() {
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

/// Connects as the first send of a connection asks for it (`MSG_FASTOPEN`): no other end has ever given a cookie here,
/// so this asks for one, and the bytes go once there is a connection (`tcp_sendmsg_fastopen` of Linux).
pub(super) fn connect_first(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Arc<Socket>,
    name: Option<&[u8]>,
    flags: u64,
) -> Result<()> {
    if socket.protocol() != Protocol::Tcp || flags & MSG_FASTOPEN == 0 {
        return Ok(());
    }
    let name = name.unwrap_or_default();
    if name.len() >= 2 && get::u16(name, 0) == AF_UNSPEC {
        return Err(Errno::EOPNOTSUPP);
    }
    if socket.is_taken() {
        return Err(Errno::EISCONN);
    }
    socket.settings().set(Setting::FastOpenConnect, 1);
    connect(context, description, socket, (name, flags & MSG_DONTWAIT == 0))
}

/// Gives back an open file whose descriptor is gone. Where it was a connection's last and that lingers, this waits for
/// what was sent, whether the descriptor waits or not; a signal ends the wait (`tcp_close` of Linux).
pub(super) fn release(context: &mut Context<'_>, closed: Arc<Description>) {
    let lingering = match closed.extension::<SocketFile>().map(SocketFile::socket) {
        Some(AnySocket::Inet(socket)) => socket.lingering(),
        _ => None,
    };
    context.process.files.release(closed);
    let Some(lingering) = lingering else { return };
    let deadline_ns = context.now_ns().saturating_add(lingering.limit_ns);
    let _watching = context.watch(&lingering.queue, Readiness::all());
    while lingering.is_on() && context.now_ns() < deadline_ns && context.wait(Some(deadline_ns)).is_ok() {}
}

/// Where a datagram goes that is sent to `name`; `None`: to the peer.
pub(super) fn target_of(socket: &Socket, name: Option<&[u8]>) -> Result<Option<SocketAddr>> {
    match name {
        Some(name) if socket.protocol() != Protocol::Tcp => read_target(name, socket.family()),
        _ => Ok(None),
    }
}
