//! The socket of either protocol: what it is, its buffers and options, and what calls ask of both.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::end::End;
use super::information::Information;
use super::ports::Sharing;
use super::settings::{HEADER_INCLUDED, Level, Setting, Settings};
use super::tcp::{Phase, Progress, Tcp};
use super::tcp_state::TcpState;
use super::udp::Udp;
use super::{
    BUFFER_BYTES_SET_MAX, DATAGRAM_BUFFER_BYTES, Inet, RECEIVE_BYTES_FRESH, SEND_BYTES_CONNECTED, SEND_BYTES_FRESH,
};
use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::step::{Step, Transfer, TransferCaller};
use crate::fs::transfer::{Destination, Source};
use crate::net::Halves;
use crate::net::buffer_sizes::{kept_receive_bytes, kept_send_bytes};
use crate::net::options::SocketOptions;

/// Which addresses a socket is asked in and tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, and mapped IPv4.
    V6,
}

/// How a socket carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection of bytes.
    Tcp,
    /// Datagrams.
    Udp,
    /// The same with checksums over a part of them.
    UdpLite,
    /// Questions whether a machine is there, and their answers: ICMP's echo, of the socket's family (icmp(7)).
    Ping,
    /// Packets of a protocol (`IPPROTO_*`), all that come in (raw(7)).
    Raw(u8),
}

/// `IPPROTO_RAW`: nothing comes in, and headers are the program's.
const ANY_PROTOCOL: u8 = 255;

/// A switch of [`SocketOptions`] that is acted upon here, by its number there (`SO_*`).
pub mod switch {
    /// `SO_REUSEADDR`.
    pub const REUSE_ADDRESS: u64 = 2;
    /// `SO_BROADCAST`.
    pub const BROADCAST: u64 = 6;
    /// `SO_KEEPALIVE`.
    pub const KEEP_ALIVE: u64 = 9;
    /// `SO_OOBINLINE`.
    pub const URGENT_INLINE: u64 = 10;
    /// `SO_REUSEPORT`.
    pub const REUSE_PORT: u64 = 15;
}

enum Body {
    Tcp(Tcp),
    Udp(Udp),
}

/// What goes with the bytes of a send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// To whom, for datagrams; else the peer.
    pub target: Option<SocketAddr>,
    /// More follows on the connection, so a segment that is not full waits for it (`MSG_MORE`).
    pub has_more: bool,
    /// The last byte is urgent (`MSG_OOB`).
    pub is_urgent: bool,
    /// How a datagram is to go.
    pub way: Way,
}

impl Sending {
    /// As `write` sends.
    pub const PLAIN: Self = Self {
        target: None,
        has_more: false,
        is_urgent: false,
        way: Way { source: None, interface: 0, hop_limit: None, traffic_class: None, segment_bytes: 0 },
    };
}

/// How a datagram is to go, where that is not as its socket has it (`IP_PKTINFO` and its like with `sendmsg`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// The address that it is from.
    pub source: Option<IpAddr>,
    /// The number of the interface that it goes by, 0 for any.
    pub interface: u32,
    /// `IP_TTL`, hop limit.
    pub hop_limit: Option<u8>,
    /// `IP_TOS`, traffic class.
    pub traffic_class: Option<u8>,
    /// `UDP_SEGMENT`; 0: as the socket has it.
    pub segment_bytes: u16,
}

/// What a receiver wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wants {
    /// The bytes stay (`MSG_PEEK`).
    pub is_peek: bool,
    /// The bytes of a stream are dropped (`MSG_TRUNC`).
    pub is_discarding: bool,
    /// Of a stream, how many bytes the call has looked at or dropped already.
    pub peeked_bytes: usize,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes put into the destination.
    pub byte_count: usize,
    /// Bytes that the datagram had.
    pub message_bytes: usize,
    /// Where a datagram came from.
    pub from: Option<SocketAddr>,
    /// Where it was sent to.
    pub to: Option<IpAddr>,
    /// The number of the interface that it came in by.
    pub interface: u32,
    /// How much farther it might have gone (`IP_TTL`, hop limit).
    pub hop_limit: u8,
    /// Its type of service, traffic class.
    pub traffic_class: u8,
    /// A stream's bytes end here for this call.
    pub is_final: bool,
}

impl Received {
    /// Nothing, for ever.
    pub(super) fn end() -> Self {
        Self { is_final: true, ..Self::default() }
    }

    /// As on Linux, a caller that does not wait is not told that a datagram socket is shut. `EAGAIN`.
    fn unless_shut(self, transfer: &Transfer) -> Result<Self> {
        if self.from.is_none() && !transfer.may_wait { Err(Errno::EAGAIN) } else { Ok(self) }
    }
}

/// A TCP or UDP socket.
pub struct Socket {
    number: u64,
    family: Family,
    protocol: Protocol,
    inet: Arc<Inet>,
    queue: Arc<WaitQueue>,
    options: SocketOptions,
    settings: Settings,
    uid: u32,
    is_listening: AtomicBool,
    send_bytes: AtomicUsize,
    receive_bytes: AtomicUsize,
    /// `SO_SNDBUF` was set, so a connection does not change it.
    has_own_send_bytes: AtomicBool,
    /// `SO_RCVBUF` was set.
    has_own_receive_bytes: AtomicBool,
    bound_interface: AtomicU32,
    /// The last send said that more follows.
    expects_more: AtomicBool,
    body: Body,
}

impl Socket {
    /// A socket without a port; `number` is that of its inode, `uid` whose it is.
    pub fn new(inet: &Arc<Inet>, family: Family, protocol: Protocol, number: u64, uid: u32) -> Arc<Self> {
        let settings = Settings::default();
        if protocol == Protocol::Raw(ANY_PROTOCOL) {
            settings.switch(Level::Ip, HEADER_INCLUDED, true);
        }
        let (body, send_bytes, receive_bytes) = match protocol {
            Protocol::Tcp => (Body::Tcp(Tcp::default()), SEND_BYTES_FRESH, RECEIVE_BYTES_FRESH),
            _ => (Body::Udp(Udp::default()), DATAGRAM_BUFFER_BYTES, DATAGRAM_BUFFER_BYTES),
        };
        Arc::new(Self {
            number,
            family,
            protocol,
            inet: inet.clone(),
            queue: WaitQueue::new(),
            options: SocketOptions::default(),
            settings,
            uid,
            is_listening: AtomicBool::new(false),
            send_bytes: AtomicUsize::new(send_bytes),
            receive_bytes: AtomicUsize::new(receive_bytes),
            has_own_send_bytes: AtomicBool::new(false),
            has_own_receive_bytes: AtomicBool::new(false),
            bound_interface: AtomicU32::new(0),
            expects_more: AtomicBool::new(false),
            body,
        })
    }

    /// The other end of a connection that this listener takes. Its inode's number is given when it is accepted.
    pub(super) fn make_accepted(&self) -> Result<Arc<Self>> {
        crate::reserve::check()?;
        let number = self.inet.next_inode_number();
        let made = Self::new(&self.inet, self.family, Protocol::Tcp, number, self.uid);
        made.options.inherit(&self.options);
        made.set_bound_interface(self.bound_interface());
        made.settings.inherit(&self.settings);
        made.receive_bytes.store(self.receive_buffer_bytes(), Ordering::Relaxed);
        made.send_bytes.store(self.send_buffer_bytes(), Ordering::Relaxed);
        let has_own = self.has_own_send_bytes.load(Ordering::Relaxed);
        made.has_own_send_bytes.store(has_own, Ordering::Relaxed);
        let has_own = self.has_own_receive_bytes.load(Ordering::Relaxed);
        made.has_own_receive_bytes.store(has_own, Ordering::Relaxed);
        made.connected_buffer();
        Ok(made)
    }

    /// A connection's send buffer is larger, unless it was set.
    pub(super) fn connected_buffer(&self) {
        if !self.has_own_send_bytes.load(Ordering::Relaxed) {
            self.send_bytes.store(SEND_BYTES_CONNECTED, Ordering::Relaxed);
        }
    }

    /// The number of its inode.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Which addresses it is asked in.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// How it carries bytes.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The pod's network.
    pub fn inet(&self) -> &Arc<Inet> {
        &self.inet
    }

    /// What all sockets keep.
    pub fn options(&self) -> &SocketOptions {
        &self.options
    }

    /// Options that are numbers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is told about everything that happens to it.
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    pub(super) fn tcp(&self) -> Option<&Tcp> {
        match &self.body {
            Body::Tcp(tcp) => Some(tcp),
            Body::Udp(_) => None,
        }
    }

    pub(super) fn udp(&self) -> Option<&Udp> {
        match &self.body {
            Body::Udp(udp) => Some(udp),
            Body::Tcp(_) => None,
        }
    }

    /// Whether it takes connections (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    pub(super) fn set_listening(&self, value: bool) {
        self.is_listening.store(value, Ordering::Relaxed);
    }

    /// Whether it is for IPv6 alone (`IPV6_V6ONLY`).
    pub fn is_v6_only(&self) -> bool {
        self.family == Family::V6 && self.settings.is_on(Setting::V6Only)
    }

    /// Whether it takes connections, or has one that its programs were told of.
    pub fn is_taken(&self) -> bool {
        self.is_listening() || self.tcp().is_some_and(|tcp| tcp.lock().progress == Progress::Done)
    }

    /// Whether it has a port, so that some options cannot be changed any more.
    pub fn has_port(&self) -> bool {
        match &self.body {
            Body::Tcp(tcp) => tcp.lock().held.is_some(),
            Body::Udp(udp) => udp.has_port(),
        }
    }

    /// What decides with whom it shares a port. Looks at nothing that a lock protects.
    pub(super) fn sharing(&self) -> Sharing {
        Sharing {
            reuses_address: self.options.is_on(switch::REUSE_ADDRESS),
            reuses_port: self.options.is_on(switch::REUSE_PORT),
            uid: self.uid,
            is_listening: self.is_listening(),
        }
    }

    /// An address as the socket's programs are told it: of IPv4 mapped, if they speak IPv6.
    pub fn shown(&self, address: SocketAddr) -> SocketAddr {
        match (self.family, address.ip()) {
            (Family::V6, IpAddr::V4(v4)) => SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), address.port()),
            _ => address,
        }
    }

    /// Where something is sent that is sent to `address`: no address is this machine.
    ///
    /// # Errors
    /// `ENETUNREACH`: an IPv4 address on a socket for IPv6 alone. `EAFNOSUPPORT`: an IPv6 address on one for IPv4.
    pub(super) fn destination(&self, address: SocketAddr) -> Result<SocketAddr> {
        let ip = match (self.family, address.ip().to_canonical()) {
            (Family::V4, IpAddr::V6(_)) => return Err(Errno::EAFNOSUPPORT),
            (Family::V6, IpAddr::V4(_)) if self.is_v6_only() => return Err(Errno::ENETUNREACH),
            (_, IpAddr::V4(v4)) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (_, IpAddr::V6(v6)) if v6.is_unspecified() => {
                let is_mapped = self.local_address().is_some_and(|local| local.is_ipv4());
                if is_mapped { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
            }
            (_, ip) => ip,
        };
        Ok(SocketAddr::new(ip, address.port()))
    }

    /// Gives it a port, and an address of this machine or none in particular.
    ///
    /// # Errors
    /// `EINVAL`: it has one, or a mapped address is asked for by a socket for IPv6 alone. `EADDRNOTAVAIL`: not an
    /// address of this machine. `EADDRINUSE`. `EAFNOSUPPORT`: an address of the other family.
    pub fn bind(self: &Arc<Self>, address: SocketAddr) -> Result<()> {
        let ip = address.ip().to_canonical();
        match (self.family, ip) {
            (Family::V4, IpAddr::V6(_)) => return Err(Errno::EAFNOSUPPORT),
            (Family::V6, IpAddr::V4(_)) if self.is_v6_only() => return Err(Errno::EINVAL),
            _ => {}
        }
        let may_be_foreign = self.settings.is_on(Setting::FreeBind);
        // What can be reached from outside has the card looked for, so that it is.
        if !ip.is_loopback() {
            self.inet.open();
            let is_group = ip.is_multicast() || self.inet.stack().is_broadcast(ip);
            let may_be_group = is_group && self.protocol() != Protocol::Tcp;
            if !ip.is_unspecified() && !self.inet.is_local(ip) && !may_be_group && !may_be_foreign {
                return Err(Errno::EADDRNOTAVAIL);
            }
        }
        let address = SocketAddr::new(ip, address.port());
        match &self.body {
            Body::Tcp(tcp) => self.bind_tcp(tcp, address),
            Body::Udp(udp) => self.bind_udp(udp, address),
        }
    }

    /// Takes connections from now on, or changes how many wait.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: datagrams need no connections. `EINVAL`: it is connected. `EADDRINUSE`.
    pub fn listen(self: &Arc<Self>, backlog: u32) -> Result<()> {
        self.listen_tcp(self.tcp().ok_or(Errno::EOPNOTSUPP)?, backlog)
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// `EINVAL`: it takes none. `EOPNOTSUPP`: datagrams need none. `EAGAIN`: none is waiting.
    pub fn accept(self: &Arc<Self>) -> Result<Arc<Self>> {
        self.accept_tcp(self.tcp().ok_or(Errno::EOPNOTSUPP)?)
    }

    /// Says whom a datagram socket sends to, and from whom alone it receives.
    ///
    /// # Errors
    /// `ENETUNREACH`, `EADDRINUSE`, `EINVAL`; `EOPNOTSUPP`: TCP connects by [`Self::begin_connect`].
    pub fn connect_datagram(self: &Arc<Self>, remote: SocketAddr) -> Result<()> {
        let udp = self.udp().ok_or(Errno::EOPNOTSUPP)?;
        self.connect_udp(udp, self.destination(remote)?)
    }

    /// Ends a connection as if it had never been (`connect` to `AF_UNSPEC`).
    ///
    /// # Errors
    /// None so far.
    pub fn disconnect(self: &Arc<Self>) -> Result<()> {
        match &self.body {
            Body::Tcp(tcp) => self.disconnect_tcp(tcp),
            Body::Udp(udp) => self.disconnect_udp(udp),
        }
    }

    /// Its own address and port, as it is known inside.
    pub fn local(&self) -> Option<SocketAddr> {
        match &self.body {
            Body::Tcp(tcp) => tcp.lock().local,
            Body::Udp(udp) => udp.local(),
        }
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.local().map(|local| local.ip()).filter(|address| !address.is_unspecified())
    }

    /// Its own address and port as `getsockname` tells them.
    pub fn local_shown(&self) -> SocketAddr {
        let local = self.local().unwrap_or(SocketAddr::new(self.any_address(), 0));
        if local.ip().is_unspecified() {
            return SocketAddr::new(self.any_address(), local.port());
        }
        self.shown(local)
    }

    /// The other end of its connection, as it is known inside.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn remote(&self) -> Result<SocketAddr> {
        match &self.body {
            Body::Tcp(tcp) => tcp.remote(),
            Body::Udp(udp) => udp.remote().ok_or(Errno::ENOTCONN),
        }
    }

    /// The other end of a connection that was accepted, even if it is over already.
    ///
    /// # Errors
    /// `ENOTCONN`: it has no connection.
    pub fn accepted_from(&self) -> Result<SocketAddr> {
        self.tcp().and_then(Tcp::accepted_from).ok_or(Errno::ENOTCONN)
    }

    /// Sends what `source` has: a part of it on a connection, all or nothing as a datagram.
    ///
    /// # Errors
    /// `EAGAIN`, `EPIPE`, `ECONNRESET`, `ECONNREFUSED`, `EDESTADDRREQ`, `EMSGSIZE`, `ENETUNREACH`, `EFAULT`,
    /// `ENOBUFS`.
    pub fn send(self: &Arc<Self>, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        match &self.body {
            Body::Tcp(tcp) if sending.has_more || self.expects_more() => self.send_and_more(tcp, source, sending),
            Body::Tcp(tcp) => self.send_tcp(tcp, source, sending.is_urgent),
            Body::Udp(udp) if self.protocol == Protocol::Udp => self.send_udp(udp, source, sending),
            Body::Udp(udp) if self.protocol == Protocol::UdpLite => self.send_lite(udp, source, sending),
            Body::Udp(udp) => self.send_raw(udp, source, sending),
        }
    }

    /// Whether the last send said that more follows.
    pub(super) fn expects_more(&self) -> bool {
        self.expects_more.load(Ordering::Relaxed)
    }

    /// A send that says that more follows, or that nothing does behind one that said so: before the bytes, so that they
    /// wait, and behind them, so that what waited goes with them.
    fn send_and_more(&self, tcp: &Tcp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        let say = || {
            if self.expects_more.swap(sending.has_more, Ordering::Relaxed) != sending.has_more {
                self.apply_settings();
            }
        };
        if sending.has_more {
            say();
            return self.send_tcp(tcp, source, sending.is_urgent);
        }
        let outcome = self.send_tcp(tcp, source, sending.is_urgent);
        // What waits for room goes on with the same send.
        if source.remaining() == 0 || outcome.is_err_and(|error| error != Errno::EAGAIN) {
            say();
        }
        outcome
    }

    /// Receives what is there.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOTCONN`, `ECONNRESET`, `ECONNREFUSED`, `EFAULT`, `ENOMEM`.
    pub fn receive(&self, destination: &mut dyn Destination, wants: Wants) -> Result<Received> {
        match &self.body {
            Body::Tcp(tcp) => self.receive_tcp(tcp, destination, wants),
            Body::Udp(udp) => self.receive_udp(udp, destination, wants),
        }
    }

    /// Sends all that `source` has, if that can be had at once; else nothing.
    ///
    /// # Errors
    /// Those of a datagram ([`Self::send`]).
    pub fn send_nofault(self: &Arc<Self>, source: &mut dyn Source) -> Option<Result<usize>> {
        match &self.body {
            Body::Tcp(tcp) => tcp.send_nofault(source).map(Ok),
            // One that finds no room has taken nothing.
            Body::Udp(udp) => Some(self.send_plain(udp, source)).filter(|sent| *sent != Err(Errno::EAGAIN)),
        }
    }

    /// An attempt of a send that may wait: on a connection until `source` is empty.
    pub fn send_step(
        self: &Arc<Self>,
        source: &mut dyn Source,
        sending: &Sending,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        let outcome = self.send(source, sending).map(|count| (count, source.remaining() == 0));
        let step = self.options.send_step(outcome, self.tcp().is_some(), transfer, caller);
        self.keep_failure(step, transfer)
    }

    /// An attempt of a receive that may wait, on a connection until it has `least` bytes; with what was received.
    pub fn receive_step(
        &self,
        destination: &mut dyn Destination,
        (wants, least): (&mut Wants, usize),
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> (Step, Received) {
        let outcome = match &self.body {
            Body::Tcp(tcp) => self.receive_tcp(tcp, destination, *wants),
            Body::Udp(udp) => self.receive_udp(udp, destination, *wants).and_then(|it| it.unless_shut(transfer)),
        };
        let moved = outcome.map(|received| (received.byte_count, received.is_final));
        wants.peeked_bytes += moved.map_or(0, |(count, _)| count);
        let step = self.options.receive_step(moved, least, transfer, caller);
        (self.keep_failure(step, transfer), outcome.unwrap_or_default())
    }

    /// The same of a call that wants the bytes alone.
    #[inline]
    pub fn read_step(
        &self,
        destination: &mut dyn Destination,
        least: usize,
        transfer: &mut Transfer,
        caller: &dyn TransferCaller,
    ) -> Step {
        let moved = match &self.body {
            Body::Tcp(tcp) => tcp.read(destination),
            Body::Udp(udp) => {
                let received = self.receive_udp(udp, destination, Wants::default());
                received.and_then(|it| it.unless_shut(transfer)).map(|it| (it.byte_count, true))
            }
        };
        let step = self.options.receive_step(moved, least, transfer, caller);
        self.keep_failure(step, transfer)
    }

    /// A failure that this call is not told, because it is told of the bytes before, is for the next.
    fn keep_failure(&self, step: Step, transfer: &Transfer) -> Step {
        if let Step::Failed(error) = step
            && transfer.done > 0
        {
            self.keep_error(error);
        }
        step
    }

    /// What `send` or `receive` told of is for the next call, because this one is told what was done before.
    pub fn keep_error(&self, error: Errno) {
        match self.tcp().map(|tcp| (tcp.link(), self.flow())) {
            Some((Some(link), _)) => link.keep_error(error),
            Some((None, Some(flow))) => flow.keep_error(error),
            _ => {}
        }
    }

    /// The urgent byte of a connection, which is gone then unless this is a look (`MSG_OOB`). `None`: none will come.
    ///
    /// # Errors
    /// `EINVAL`: there is none; `EAGAIN`: it is on its way; `ENOTCONN`: it takes connections.
    pub fn urgent_byte(&self, is_peek: bool) -> Result<Option<u8>> {
        let tcp = self.tcp().ok_or(Errno::EOPNOTSUPP)?;
        if self.is_listening() {
            return Err(Errno::ENOTCONN);
        }
        match (tcp.link(), self.flow()) {
            (Some(link), _) => link.urgent_byte(is_peek),
            (None, Some(flow)) => flow.urgent_byte(is_peek),
            (None, None) => Err(Errno::EINVAL),
        }
    }

    /// Whether the next byte of a connection is the urgent one (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        match (self.tcp().and_then(Tcp::link), self.flow()) {
            (Some(link), _) => link.is_at_mark(),
            (None, Some(flow)) => flow.is_at_mark(),
            (None, None) => false,
        }
    }

    /// Ends one half of the connection or both.
    ///
    /// # Errors
    /// `ENOTCONN`: there is none; what is shut is shut all the same.
    pub fn shutdown(&self, halves: Halves) -> Result<()> {
        match &self.body {
            Body::Tcp(tcp) => self.shutdown_tcp(tcp, halves),
            Body::Udp(udp) => self.shutdown_udp(udp, halves),
        }
    }

    /// Ends it: its descriptor is gone.
    pub fn close(&self) {
        match &self.body {
            Body::Tcp(tcp) => self.close_tcp(tcp),
            Body::Udp(udp) => self.close_udp(udp),
        }
    }

    /// What it is ready for.
    pub fn readiness(&self) -> Readiness {
        match &self.body {
            Body::Tcp(tcp) => tcp.readiness(self.options.low_water_bytes()),
            Body::Udp(udp) => udp.readiness(),
        }
    }

    /// What the last failure was that nobody has been told (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        match &self.body {
            Body::Tcp(tcp) => tcp.take_error(),
            Body::Udp(udp) => udp.take_error(),
        }
    }

    /// The state of a TCP socket.
    pub fn state(&self) -> TcpState {
        match &self.body {
            Body::Tcp(tcp) => tcp.state(),
            Body::Udp(udp) if udp.remote().is_some() => TcpState::Established,
            Body::Udp(_) => TcpState::Close,
        }
    }

    /// What `TCP_INFO` tells of its connection, if it has or had one.
    pub fn information(&self) -> Option<Information> {
        match self.tcp()?.link() {
            Some(link) => Some(link.information()),
            None => {
                let report = self.flow().and_then(|flow| flow.report());
                report.map(|report| Information::of(&report, self.inet.now_ns()))
            }
        }
    }

    /// Connections that wait at a listener, and how many may.
    pub fn backlog(&self) -> Option<(usize, usize)> {
        match &self.tcp()?.lock().phase {
            Phase::Listening(listener) => Some((listener.pending.len(), listener.backlog)),
            _ => None,
        }
    }

    /// Whether closing ends a connection by a reset (`SO_LINGER` of no time).
    pub(super) fn resets_at_close(&self) -> bool {
        self.options.linger() == 1
    }

    /// What it may have on the way (`SO_SNDBUF`).
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_bytes.load(Ordering::Relaxed)
    }

    /// Sets it, as Linux does to twice what was asked for, within the limits.
    pub fn set_send_buffer_bytes(&self, wanted: usize) {
        let bytes = kept_send_bytes(wanted);
        self.send_bytes.store(bytes, Ordering::Relaxed);
        self.has_own_send_bytes.store(true, Ordering::Relaxed);
        if let Some(link) = self.tcp().and_then(Tcp::link) {
            link.pair().sides[link.side].send_bytes = bytes;
            link.tell_own(Readiness::WRITE);
        }
        self.apply_settings();
    }

    /// What it takes in at most (`SO_RCVBUF`).
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_bytes.load(Ordering::Relaxed)
    }

    /// Sets it, as [`Self::set_send_buffer_bytes`].
    pub fn set_receive_buffer_bytes(&self, wanted: usize) {
        self.has_own_receive_bytes.store(true, Ordering::Relaxed);
        self.keep_receive_buffer_bytes(kept_receive_bytes(wanted));
    }

    /// Sets how many bytes a receiver waits for (`SO_RCVLOWAT`): of a connection no more than can come in, for which a
    /// buffer that was not set is made larger (`tcp_set_rcvlowat` of Linux).
    pub fn set_low_water_bytes(&self, wanted: usize) {
        if self.tcp().is_none() {
            return self.options.set_low_water_bytes(wanted);
        }
        let is_fixed = self.has_own_receive_bytes.load(Ordering::Relaxed);
        let most = if is_fixed { self.window_bytes() } else { BUFFER_BYTES_SET_MAX };
        let bytes = wanted.min(most);
        self.options.set_low_water_bytes(bytes);
        if bytes > self.window_bytes() {
            self.keep_receive_buffer_bytes(bytes * 2);
        }
    }

    fn keep_receive_buffer_bytes(&self, bytes: usize) {
        self.receive_bytes.store(bytes, Ordering::Relaxed);
        if let Some(link) = self.tcp().and_then(Tcp::link) {
            link.pair().sides[link.side].window_bytes = self.window_bytes();
            link.tell_other(Readiness::WRITE);
        }
        self.apply_settings();
    }

    /// Whether `SO_RCVBUF` was set.
    pub(super) fn has_own_receive_buffer(&self) -> bool {
        self.has_own_receive_bytes.load(Ordering::Relaxed)
    }

    /// How much a TCP socket takes in: as on Linux, half of its buffer is for what bytes are kept in.
    pub(super) fn window_bytes(&self) -> usize {
        self.receive_buffer_bytes() / 2
    }

    /// The interface that it is bound to, 0 for none (`SO_BINDTODEVICE`).
    pub fn bound_interface(&self) -> u32 {
        self.bound_interface.load(Ordering::Relaxed)
    }

    /// How well it fits what comes in by an interface: one that is bound to it better than one that is bound to none.
    pub(super) fn interface_rank(&self, interface: u32) -> Option<u32> {
        match self.bound_interface() {
            0 => Some(0),
            bound => (bound == interface).then_some(1),
        }
    }

    /// Sets it.
    pub fn set_bound_interface(&self, index: u32) {
        self.bound_interface.store(index, Ordering::Relaxed);
    }

    /// Bytes that can be received (`FIONREAD`): of datagrams, the first one's.
    ///
    /// # Errors
    /// `EINVAL`: it takes connections.
    pub fn readable_bytes(&self) -> Result<usize> {
        if self.is_listening() {
            return Err(Errno::EINVAL);
        }
        Ok(match &self.body {
            Body::Tcp(tcp) => match tcp.link() {
                Some(link) => {
                    let pair = link.pair();
                    let own = &pair.sides[link.side];
                    own.urgent.told_bytes(own.read_place(), own.inbox.length())
                }
                None => self.flow().map_or(0, |flow| flow.readable_bytes()),
            },
            Body::Udp(udp) => udp.first_bytes(),
        })
    }

    /// Bytes that were sent and have no place at the other side yet (`SIOCOUTQ`).
    ///
    /// # Errors
    /// `EINVAL`: it takes connections.
    pub fn unreceived_bytes(&self) -> Result<usize> {
        if self.is_listening() {
            return Err(Errno::EINVAL);
        }
        Ok(match self.tcp().and_then(Tcp::link) {
            Some(link) => link.pair().unsent_bytes(link.side),
            None => self.flow().map_or(0, |flow| flow.unacknowledged_bytes()),
        })
    }
}
