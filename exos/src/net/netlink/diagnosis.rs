//! `NETLINK_SOCK_DIAG` (sock_diag(7)): which sockets there are, as `ss` asks. Pure: a request and the sockets' status
//! give bytes.
//!
//! A filter program (`INET_DIAG_REQ_BYTECODE`) is passed over: `ss` looks at each socket itself too.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::change::Change;
use super::message::{Refusal, Request, Writer, flag, u32_at};
use super::route::{Answer, Dump};
use crate::error::{Errno, Result};
use crate::net::view::NetworkView;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `TCPDIAG_GETSOCK`, `DCCPDIAG_GETSOCK`: how it was asked before, which nobody does any more.
const OLD_KINDS: core::ops::RangeInclusive<u16> = 18..=19;
/// Bytes of `struct inet_diag_req_v2` and of `struct unix_diag_req`.
const INET_BYTES: usize = 56;
const UNIX_BYTES: usize = 24;
/// `AF_UNIX`, `AF_INET`, `AF_INET6`.
const UNIX: u8 = 1;
const V4: u8 = 2;
const V6: u8 = 10;
/// One more than the greatest number of a family (`AF_MAX`).
const FAMILY_COUNT: u8 = 46;
/// `TCP_LISTEN`, `TCP_CLOSE`.
const LISTENING: u8 = 10;
const CLOSED: u8 = 7;

/// Which sockets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Local ones.
    Unix,
    /// Of a protocol (`IPPROTO_*`) over IPv4 or IPv6.
    Inet {
        /// IPv6.
        is_v6: bool,
        /// `IPPROTO_*`.
        protocol: u8,
    },
}

/// What a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketStatus {
    /// `TCP_*`, as Linux numbers states; local sockets have 1, 7 and 10.
    pub state: u8,
    /// Number of its inode; 0: none any more.
    pub number: u64,
    /// Whose it is.
    pub uid: u32,
    /// Bytes that wait to be received; of a listener, connections.
    pub receive_count: u32,
    /// Bytes that were sent and not received; of a listener, how many connections may wait.
    pub send_count: u32,
    /// Of what kind it is.
    pub kind: SocketKindStatus,
}

/// What a socket is that only its family has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketKindStatus {
    /// TCP or UDP.
    Inet {
        /// Its own end.
        local: SocketAddr,
        /// The other end.
        remote: Option<SocketAddr>,
        /// The interface that it is bound to.
        interface: u32,
        /// It is for IPv6 alone.
        is_v6_only: bool,
        /// Hundredths of a second until it is forgotten, of the end of a connection.
        left_cs: Option<u32>,
        /// Receive and send buffers.
        buffer_bytes: [u32; 2],
        /// `struct tcp_info`.
        information: Vec<u8>,
    },
    /// A local one.
    Unix {
        /// `SOCK_*`.
        kind: u8,
        /// Its name, with a zero byte before it if it is in no file system.
        name: Vec<u8>,
        /// Number of the other end's inode.
        peer: Option<u64>,
        /// Halves that are shut: 1 receiving, 2 sending.
        shut: u8,
    },
}

/// What the system tells netlink.
pub trait Provider: Send + Sync {
    /// The network.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn view(&self) -> Result<NetworkView>;
    /// Sockets that a diagnosis asks for.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn sockets(&self, wanted: Wanted) -> Result<Vec<SocketStatus>>;
    /// Changes the network.
    ///
    /// # Errors
    /// As of the request.
    fn change(&self, change: Change) -> Result<()>;
    /// The system's number of an error.
    fn number(&self) -> fn(Errno) -> u32;
}

/// Answers a request.
///
/// # Errors
/// `EINVAL`: too short, or not of the system's kinds. `ENOENT`: no such family, protocol or socket.
pub fn answer(request: &Request<'_>, port: u32, provider: &dyn Provider) -> core::result::Result<Answer, Refusal> {
    if OLD_KINDS.contains(&request.kind) {
        return Err(Errno::ENOENT.into());
    }
    let body = request.body();
    if request.kind != BY_FAMILY || body.len() < 2 {
        return Err(Errno::EINVAL.into());
    }
    let wanted = match body[0] {
        UNIX => Wanted::Unix,
        family @ (V4 | V6) if [6, 17].contains(&body[1]) => Wanted::Inet { is_v6: family == V6, protocol: body[1] },
        FAMILY_COUNT.. => return Err(Errno::EINVAL.into()),
        _ => return Err(Errno::ENOENT.into()),
    };
    let fixed_bytes = if wanted == Wanted::Unix { UNIX_BYTES } else { INET_BYTES };
    if body.len() < fixed_bytes {
        return Err(Errno::EINVAL.into());
    }
    let told = Telling { request, port, body };
    let mut out = Writer::new();
    let all = provider.sockets(wanted)?;
    if request.is_dump() {
        let states = u32_at(body, 4);
        let ports = if wanted == Wanted::Unix { [0; 2] } else { told.ports() };
        let meant = all.iter().filter(|socket| states & 1_u32.wrapping_shl(socket.state.into()) != 0);
        meant.filter(|socket| socket.has_ports(ports)).for_each(|socket| told.write(socket, &mut out));
        return Ok(Answer::Dump(Dump { bytes: out.finish()?, flags: 0, refusal: None }));
    }
    let found = all.iter().find(|socket| told.is_named(socket)).ok_or(Errno::ENOENT)?;
    told.write(found, &mut out);
    Ok(Answer::Messages(out.finish()?))
}

impl SocketStatus {
    /// Whether it has those ports; 0 is any.
    fn has_ports(&self, wanted: [u16; 2]) -> bool {
        let SocketKindStatus::Inet { local, remote, .. } = &self.kind else { return true };
        let ports = [local.port(), remote.map_or(0, |remote| remote.port())];
        wanted.iter().zip(ports).all(|(wanted, port)| *wanted == 0 || *wanted == port)
    }
}

struct Telling<'a> {
    request: &'a Request<'a>,
    port: u32,
    body: &'a [u8],
}

fn octets(address: IpAddr, is_v6: bool) -> [u8; 16] {
    let mut all = [0; 16];
    match (address, is_v6) {
        (IpAddr::V4(v4), false) => all[..4].copy_from_slice(&v4.octets()),
        (IpAddr::V4(v4), true) => all = v4.to_ipv6_mapped().octets(),
        (IpAddr::V6(v6), _) => all = v6.octets(),
    }
    all
}

impl Telling<'_> {
    /// Ports of a request for TCP or UDP.
    fn ports(&self) -> [u16; 2] {
        let at = |offset: usize| u16::from_be_bytes([self.body[offset], self.body[offset + 1]]);
        [at(8), at(10)]
    }

    /// Whether a request for one socket means this one.
    fn is_named(&self, socket: &SocketStatus) -> bool {
        match &socket.kind {
            SocketKindStatus::Unix { .. } => u64::from(u32_at(self.body, 8)) == socket.number,
            SocketKindStatus::Inet { local, remote, .. } => {
                let is_v6 = self.body[0] == V6;
                let (source, destination) = (&self.body[12..28], &self.body[28..44]);
                let [local_port, remote_port] = self.ports();
                let is_local = local.port() == local_port && octets(local.ip(), is_v6) == *source;
                let is_far = remote.map_or(remote_port == 0, |remote| {
                    remote.port() == remote_port && octets(remote.ip(), is_v6) == *destination
                });
                is_local && is_far
            }
        }
    }

    fn write(&self, socket: &SocketStatus, out: &mut Writer) {
        let flags = if self.request.is_dump() { flag::MULTI } else { 0 };
        let begin = out.begin(BY_FAMILY, flags, self.request.sequence, self.port);
        match &socket.kind {
            SocketKindStatus::Inet { .. } => self.write_inet(socket, out),
            SocketKindStatus::Unix { .. } => self.write_unix(socket, out),
        }
        out.end(begin);
    }

    /// Whether something more is asked for (`INET_DIAG_*`).
    fn wants(&self, extension: u16) -> bool {
        self.body[2] & 1_u8.wrapping_shl(u32::from(extension) - 1) != 0
    }

    /// `struct inet_diag_msg` and what goes with it.
    fn write_inet(&self, socket: &SocketStatus, out: &mut Writer) {
        const INFORMATION: u16 = 2;
        const CONGESTION: u16 = 4;
        const SERVICE: u16 = 5;
        const CLASS: u16 = 6;
        const MEMORY: u16 = 7;
        const SHUT: u16 = 8;
        const V6_ONLY: u16 = 11;
        /// The timer of an end that is remembered.
        const FORGETTING: u8 = 3;
        let SocketKindStatus::Inet { local, remote, interface, is_v6_only, left_cs, buffer_bytes, information } =
            &socket.kind
        else {
            return;
        };
        let is_v6 = self.body[0] == V6;
        let timer = if left_cs.is_some() { FORGETTING } else { 0 };
        out.raw(&[self.body[0], socket.state, timer, 0]);
        out.raw(&local.port().to_be_bytes());
        out.raw(&remote.map_or(0, |remote| remote.port()).to_be_bytes());
        out.raw(&octets(local.ip(), is_v6));
        out.raw(&remote.map_or([0; 16], |remote| octets(remote.ip(), is_v6)));
        out.raw(&interface.to_le_bytes());
        // What tells sockets with the same ends apart.
        out.raw(&socket.number.to_le_bytes());
        out.raw(&left_cs.unwrap_or(0).wrapping_mul(10).to_le_bytes());
        for number in [socket.receive_count, socket.send_count, socket.uid, socket.number as u32] {
            out.raw(&number.to_le_bytes());
        }
        if left_cs.is_some() {
            return;
        }
        out.attribute(SHUT, &[0]);
        if self.wants(SERVICE) {
            out.attribute(SERVICE, &[0]);
        }
        if is_v6 && (self.wants(SERVICE) || self.wants(CLASS)) {
            out.attribute(CLASS, &[0]);
        }
        if is_v6 && [LISTENING, CLOSED].contains(&socket.state) {
            out.attribute(V6_ONLY, &[u8::from(*is_v6_only)]);
        }
        if self.wants(MEMORY) {
            let numbers = [0, buffer_bytes[0], 0, buffer_bytes[1], 0, 0, 0, 0, 0];
            out.attribute(MEMORY, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
        }
        if self.wants(INFORMATION) && !information.is_empty() {
            out.attribute(INFORMATION, information);
        }
        if self.wants(CONGESTION) && !information.is_empty() {
            out.string(CONGESTION, b"cubic");
        }
    }

    /// `struct unix_diag_msg` and what goes with it.
    fn write_unix(&self, socket: &SocketStatus, out: &mut Writer) {
        /// `UDIAG_SHOW_*`.
        const NAME: u32 = 1;
        const PEER: u32 = 4;
        const QUEUES: u32 = 16;
        const UID: u32 = 64;
        let SocketKindStatus::Unix { kind, name, peer, shut } = &socket.kind else { return };
        let shown = u32_at(self.body, 12);
        out.raw(&[UNIX, *kind, socket.state, 0]);
        out.raw(&(socket.number as u32).to_le_bytes());
        out.raw(&socket.number.to_le_bytes());
        if shown & NAME != 0 && !name.is_empty() {
            out.attribute(0, name);
        }
        if let Some(peer) = peer.filter(|_| shown & PEER != 0) {
            out.number(2, peer as u32);
        }
        if shown & QUEUES != 0 {
            let queues = [socket.receive_count, socket.send_count];
            out.attribute(4, &queues.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
        }
        if shown & UID != 0 {
            out.number(7, socket.uid);
        }
        out.attribute(6, &[*shut]);
    }
}
