//! smoltcp's part of a connection: one socket in a set, behind an interface that has one packet.
//!
//! Packets are made up in both directions ([`frame`]); what leaves goes through [`Ledger::send`]. A socket begins by a
//! handshake on paper ([`Live::begin`]). Neighbour: [`super::adapter`], the engine, which says why.

use alloc::vec::Vec;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{self, CongestionControl, State};
use smoltcp::storage::RingBuffer;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::Outlet;
use super::header::{HEADER_BYTES_MIN, Header, flag};
use super::ledger::Ledger;
use crate::error::{Errno, Result};
use crate::reserve;

/// How many times as fast smoltcp's clock goes.
pub(super) const CLOCK_RATE: u64 = 5;
/// Where its clock begins, in seconds: it compares with zero, and the handshake on paper was before now.
const CLOCK_START_S: u64 = 1000;
/// What smoltcp hears of the two ends: the other's address and this one's.
const FRAME_ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 2], [10, 0, 0, 1]];
/// The other's port and this end's.
const FRAME_PORTS: [u16; 2] = [2, 1];
const IP_HEADER_BYTES: usize = 20;
/// Longest packet that goes to or from smoltcp.
const FRAME_BYTES_MAX: usize = 2048;
/// Longest payload of one.
pub(super) const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - IP_HEADER_BYTES - HEADER_BYTES_MIN - 40;
/// Least and most memory of either of its buffers.
pub(super) const RING_BYTES: core::ops::RangeInclusive<usize> = 2048..=524_288;
/// Segments that may be under way at first (RFC 6928).
const FIRST_SEGMENT_COUNT: usize = 10;
/// What smoltcp would have under way.
const FIRST_WINDOW_BYTES: usize = 2048;
/// A round trip that is assumed where none was measured.
const ROUND_TRIP_ASSUMED_NS: u64 = 200_000_000;

pub(super) fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000 * CLOCK_RATE + CLOCK_START_S * 1_000_000) as i64)
}

pub(super) fn nanoseconds(instant: Instant) -> u64 {
    let micros = (instant.total_micros() as u64).saturating_sub(CLOCK_START_S * 1_000_000);
    micros.div_ceil(CLOCK_RATE) * 1000
}

/// smoltcp's part.
pub(super) struct Live {
    pub(super) interface: Interface,
    pub(super) sockets: SocketSet<'static>,
    pub(super) handle: SocketHandle,
}

/// An interface of one packet.
struct Wire<'w> {
    incoming: Option<&'w [u8]>,
    ledger: &'w mut Ledger,
    /// `None`: on paper.
    outlet: Option<&'w mut dyn Outlet>,
    now_ns: u64,
}

struct Incoming<'w>(&'w [u8]);

struct Outgoing<'a, 'w>(&'a mut Wire<'w>);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, act: F) -> R {
        act(self.0)
    }
}

impl TxToken for Outgoing<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, byte_count: usize, act: F) -> R {
        let mut bytes = [0; FRAME_BYTES_MAX];
        let frame = &mut bytes[..byte_count.min(FRAME_BYTES_MAX)];
        let answer = act(frame);
        let Wire { ledger, outlet, now_ns, .. } = self.0;
        if let Some((header, payload)) = frame.get(IP_HEADER_BYTES..).and_then(Header::parse) {
            ledger.send(header, payload, reborrow(outlet), *now_ns);
        }
        answer
    }
}

impl<'w> Device for Wire<'w> {
    type RxToken<'a>
        = Incoming<'w>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a, 'w>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.incoming.take()?;
        Some((Incoming(frame), Outgoing(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        let has_room = self.outlet.as_ref().is_none_or(|outlet| outlet.has_room());
        has_room.then_some(Outgoing(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit =
            usize::from(self.ledger.terms.segment_bytes_max) + IP_HEADER_BYTES + HEADER_BYTES_MIN;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

pub(super) fn reborrow<'a>(outlet: &'a mut Option<&mut dyn Outlet>) -> Option<&'a mut dyn Outlet> {
    match outlet {
        Some(outlet) => Some(&mut **outlet),
        None => None,
    }
}

/// A packet as smoltcp hears it; how long it is. Its payload is no longer than [`PAYLOAD_BYTES_MAX`].
fn frame(header: &Header, payload: &[u8], into: &mut [u8; FRAME_BYTES_MAX]) -> usize {
    let mut tcp = [0; 60];
    let header = Header { source_port: FRAME_PORTS[0], destination_port: FRAME_PORTS[1], ..*header };
    let header_bytes = header.emit(&mut tcp);
    let start = IP_HEADER_BYTES + header_bytes;
    let byte_count = start + payload.len();
    into[..IP_HEADER_BYTES].fill(0);
    into[0] = 0x45;
    into[2..4].copy_from_slice(&(byte_count as u16).to_be_bytes());
    (into[8], into[9]) = (64, 6);
    into[12..16].copy_from_slice(&FRAME_ADDRESSES[0]);
    into[16..20].copy_from_slice(&FRAME_ADDRESSES[1]);
    into[IP_HEADER_BYTES..start].copy_from_slice(&tcp[..header_bytes]);
    into[start..byte_count].copy_from_slice(payload);
    byte_count
}

/// An interface whose packets are as long as the connection's.
pub(super) fn interface(ledger: &mut Ledger, at: Instant) -> Interface {
    let mut wire = Wire { incoming: None, ledger, outlet: None, now_ns: 0 };
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, at);
    interface.update_ip_addrs(|addresses| {
        let [a, b, c, d] = FRAME_ADDRESSES[1];
        // It has room for one.
        let _ = addresses.push(IpCidr::new(IpAddress::v4(a, b, c, d), 24));
    });
    interface
}

impl Live {
    pub(super) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub(super) fn socket_ref(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.handle)
    }

    /// Has smoltcp take a packet in; what it answers at once goes out.
    pub(super) fn feed(
        &mut self,
        ledger: &mut Ledger,
        (header, payload): (&Header, &[u8]),
        (at, now_ns): (Instant, u64),
        mut outlet: Option<&mut dyn Outlet>,
    ) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        let byte_count = frame(header, payload, &mut bytes);
        let outlet = reborrow(&mut outlet);
        let mut wire = Wire { incoming: Some(&bytes[..byte_count]), ledger, outlet, now_ns };
        self.interface.poll_ingress_single(at, &mut wire, &mut self.sockets);
    }

    /// Has smoltcp send a packet, if one is due.
    pub(super) fn emit(&mut self, ledger: &mut Ledger, now_ns: u64, outlet: &mut dyn Outlet) {
        let mut wire = Wire { incoming: None, ledger, outlet: Some(outlet), now_ns };
        self.interface.poll_egress(instant(now_ns), &mut wire, &mut self.sockets);
    }

    /// A socket for a connection that stands where the ledger has it.
    pub(super) fn begin(ledger: &mut Ledger, receive_bytes: usize, send_bytes: usize, now_ns: u64) -> Result<Self> {
        let ring = |bytes: usize| -> Result<RingBuffer<'static, u8>> {
            let bytes = bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end());
            let mut memory = reserve::vector(bytes)?;
            memory.resize(bytes, 0);
            Ok(RingBuffer::new(memory))
        };
        reserve::check()?;
        let mut socket = tcp::Socket::new(ring(receive_bytes)?, ring(send_bytes)?);
        socket.set_congestion_control(CongestionControl::Reno);
        socket.listen(FRAME_PORTS[1]).map_err(|_| Errno::EINVAL)?;
        let round_trip_ns = match ledger.round_trip_us {
            0 => ROUND_TRIP_ASSUMED_NS,
            us => u64::from(us) * 1000,
        };
        // What smoltcp limits to once a second is past when the connection begins.
        let over = instant(now_ns) - Duration::from_secs(2);
        let begun = over - Duration::from_micros(round_trip_ns / 1000 * CLOCK_RATE);
        let interface = interface(ledger, begun);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let mut live = Self { interface, sockets, handle };
        live.shake_hands(ledger, begun, over);
        let socket = live.socket();
        socket.set_ack_delay(None);
        if socket.state() == State::Established { Ok(live) } else { Err(Errno::EINVAL) }
    }

    /// Opens its congestion window as far as Linux begins with, on paper too: bytes that nobody sees are acknowledged.
    fn widen(&mut self, ledger: &mut Ledger, header: &mut Header, over: Instant) {
        let segment_bytes = usize::from(ledger.terms.segment_bytes_max);
        let mut left = (FIRST_SEGMENT_COUNT * segment_bytes).saturating_sub(FIRST_WINDOW_BYTES);
        while left > 0 {
            let wanted = left.min(segment_bytes);
            let put = self.socket().send(|room| (room.len().min(wanted), room.len().min(wanted)));
            let count = put.unwrap_or(0) as u32;
            if count == 0 {
                return;
            }
            left -= count as usize;
            header.acknowledgement = header.acknowledgement.wrapping_add(count);
            self.feed(ledger, (header, &[]), (over, 0), None);
            ledger.offset = ledger.offset.wrapping_sub(count);
        }
    }

    /// Has a fresh socket receive what another had received and was not read, on paper.
    pub(super) fn refill(&mut self, ledger: &mut Ledger, unread: &[u8], now_ns: u64) {
        let mut header = Header {
            sequence: ledger.unread,
            acknowledgement: ledger.sent_max.wrapping_sub(ledger.offset),
            flags: flag::ACK,
            window: ledger.window,
            ..Header::default()
        };
        for piece in unread.chunks(PAYLOAD_BYTES_MAX) {
            self.feed(ledger, (&header, piece), (instant(now_ns), now_ns), None);
            header.sequence = header.sequence.wrapping_add(piece.len() as u32);
        }
    }

    /// The handshake on paper.
    fn shake_hands(&mut self, ledger: &mut Ledger, begun: Instant, over: Instant) {
        let terms = ledger.terms;
        let first = ledger.unread;
        let shift = terms.window_shifts.map(|shifts| shifts.0);
        let window_bytes = u32::from(ledger.window) << shift.unwrap_or(0);
        let mut header = Header {
            sequence: first.wrapping_sub(1),
            flags: flag::SYN,
            window: window_bytes.min(u32::from(u16::MAX)) as u16,
            segment_bytes_max: Some(terms.segment_bytes_max),
            window_shift: shift,
            is_sack_permitted: terms.has_sack,
            ..Header::default()
        };
        // The numbers on the wire begin at what was sent last.
        ledger.terms.send_next = ledger.sent_max;
        self.feed(ledger, (&header, &[]), (begun, 0), None);
        let mut wire = Wire { incoming: None, ledger, outlet: None, now_ns: 0 };
        self.interface.poll_egress(begun, &mut wire, &mut self.sockets);
        header = Header {
            sequence: first,
            acknowledgement: ledger.sent_max.wrapping_sub(ledger.offset),
            flags: flag::ACK,
            window: ledger.window,
            ..Header::default()
        };
        self.feed(ledger, (&header, &[]), (over, 0), None);
        if window_bytes > 0 {
            self.widen(ledger, &mut header, over);
        }
        // A probe, which smoltcp answers: so it has told the window that its memory has, not the one of its `SYN`.
        header.sequence = first.wrapping_sub(1);
        self.feed(ledger, (&header, &[]), (over, 0), None);
    }
}
