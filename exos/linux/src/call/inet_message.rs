//! Bytes and datagrams through TCP and UDP sockets. [`super::message`] has the calls, for all families.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::fs::step::{Step, Transfer};
use exos::fs::transfer::{Destination, Source};
use exos::net::inet::settings::Setting;
use exos::net::inet::{Family, Protocol, Received, SendError, Sending, Socket, Wants};
use exos::net::options::Number;

use super::message::Controls;
use super::waiting::in_steps;
use crate::abi::bytes::Encoder;
use crate::abi::errno;
use crate::abi::inet::address_bytes;
use crate::abi::linux::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SOL_SOCKET,
};
use crate::abi::user_memory::{Extent, UserWriter};
use crate::call::context::Context;

/// `IPPROTO_IP`, `IPPROTO_IPV6`.
const LEVEL_IP: u32 = 0;
const LEVEL_IPV6: u32 = 41;
/// Control messages of the two: `IP_TOS`, `IP_TTL`, `IP_PKTINFO`; `IPV6_PKTINFO`, `IPV6_HOPLIMIT`, `IPV6_TCLASS`.
const IP_TOS: u32 = 1;
const IP_TTL: u32 = 2;
const IP_PKTINFO: u32 = 8;
const IP_RECVERR: u32 = 11;
const IPV6_RECVERR: u32 = 25;
const IPV6_PKTINFO: u32 = 50;
const IPV6_HOPLIMIT: u32 = 52;
const IPV6_TCLASS: u32 = 67;

/// Sends what `source` has: on a blocking connection all of it, else what there is room for.
pub(super) fn send(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Arc<Socket>,
    source: &mut dyn Source,
    target: Option<SocketAddr>,
    flags: u64,
) -> Result<u64> {
    if flags & MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let sending = Sending { target, has_more: flags & MSG_MORE != 0 };
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    in_steps(context, description, Transfer::new(Readiness::WRITE, may_wait), |context, transfer| {
        match socket.send_step(source, &sending, transfer, &context.caller) {
            Step::Raise(_) if flags & MSG_NOSIGNAL != 0 => Step::Failed(Errno::EPIPE),
            step => step,
        }
    })
}

/// What a call received.
#[derive(Default)]
pub(super) struct Arrival {
    pub(super) byte_count: u64,
    pub(super) flags: u64,
    from: Option<SocketAddr>,
    to: Option<IpAddr>,
    interface: u32,
    hop_limit: u8,
    traffic_class: u8,
    error: Option<SendError>,
}

impl Arrival {
    /// The sender's address as `recvfrom` tells it: nothing at all of a connection.
    pub(super) fn sender_name(&self, socket: &Socket) -> Vec<u8> {
        self.from.map(|from| address_bytes(socket.shown(from))).unwrap_or_default()
    }
}

/// Receives what ICMP said of a datagram, which does not wait: the datagram's begin, and where it was sent to.
fn receive_error(context: &Context<'_>, socket: &Socket, extents: &[Extent]) -> Result<Arrival> {
    let error = socket.take_send_error()?;
    let mut writer = UserWriter::new(context.memory, extents);
    let count = error.quoted.len().min(writer.remaining());
    let cut = if count < error.quoted.len() { MSG_TRUNC } else { 0 };
    if writer.put(&error.quoted[..count]) < count {
        return Err(Errno::EFAULT);
    }
    let from = Some(error.destination);
    Ok(Arrival { byte_count: count as u64, flags: MSG_ERRQUEUE | cut, from, error: Some(error), ..Arrival::default() })
}

/// `struct sock_extended_err` and the address of the machine that it is from.
fn put_error(context: &Context<'_>, socket: &Socket, error: &SendError, controls: &mut Controls) {
    /// `SO_EE_ORIGIN_ICMP`, `SO_EE_ORIGIN_ICMP6`.
    const ICMP: u8 = 2;
    const ICMP6: u8 = 3;
    let (level, kind) = if socket.family() == Family::V4 { (LEVEL_IP, IP_RECVERR) } else { (LEVEL_IPV6, IPV6_RECVERR) };
    let origin = if error.reporter.is_ipv4() { ICMP } else { ICMP6 };
    let data = Encoder::new().u32(errno::number(error.error)).u8(origin).u8(error.kind).u8(error.code).u8(0);
    let reporter = address_bytes(socket.shown(SocketAddr::new(error.reporter, 0)));
    let data = data.u32(error.packet_bytes_max).u32(0).raw(&reporter).finish();
    let _ = controls.put(context, level, kind, &data);
}

/// Receives into program buffers.
pub(super) fn receive(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Socket,
    extents: &[Extent],
    flags: u64,
) -> Result<Arrival> {
    let is_stream = socket.protocol() == Protocol::Tcp;
    if flags & MSG_ERRQUEUE != 0 {
        return receive_error(context, socket, extents);
    }
    if flags & MSG_OOB != 0 {
        return Err(if is_stream { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    let mut writer = UserWriter::new(context.memory, extents);
    let room = writer.remaining();
    let least = if flags & MSG_WAITALL == 0 { room.min(socket.options().low_water_bytes()) } else { room };
    let may_wait = flags & MSG_DONTWAIT == 0 && !description.is_non_blocking();
    let mut wants =
        Wants { is_peek: flags & MSG_PEEK != 0, is_discarding: is_stream && flags & MSG_TRUNC != 0, peeked_bytes: 0 };
    let mut last = Received::default();
    let byte_count = in_steps(context, description, Transfer::new(Readiness::READ, may_wait), |context, transfer| {
        let (step, received) = socket.receive_step(&mut writer, (&mut wants, least), transfer, &context.caller);
        last = received;
        step
    })?;
    if is_stream {
        return Ok(Arrival { byte_count, ..Arrival::default() });
    }
    let Received { from, to, message_bytes, interface, hop_limit, traffic_class, .. } = last;
    let told = if message_bytes as u64 > byte_count { MSG_TRUNC } else { 0 };
    let byte_count = if flags & MSG_TRUNC != 0 { message_bytes as u64 } else { byte_count };
    Ok(Arrival { byte_count, flags: told, from, to, interface, hop_limit, traffic_class, error: None })
}

/// Says when a datagram came (`SO_TIMESTAMP` and its like): as far as is known, now.
fn put_time(context: &Context<'_>, socket: &Socket, controls: &mut Controls) {
    let kind = socket.options().number(Number::Timestamp);
    if kind == 0 {
        return;
    }
    let data = time_bytes(kind, context.system.realtime_ns());
    let _ = controls.put(context, SOL_SOCKET as u32, kind, &data);
}

/// A time as the option of that number tells it.
pub(super) fn time_bytes(kind: u32, time_ns: u64) -> Vec<u8> {
    const SECOND_NS: u64 = 1_000_000_000;
    /// Those that tell nanoseconds rather than microseconds (`SO_TIMESTAMPNS`, of old and of new).
    const PRECISE: [u32; 2] = [35, 64];
    let part = if PRECISE.contains(&kind) { 1 } else { 1000 };
    Encoder::new().u64(time_ns / SECOND_NS).u64(time_ns % SECOND_NS / part).finish()
}

/// Says in control messages what the program asked to be told of a datagram.
pub(super) fn put_controls(context: &Context<'_>, socket: &Socket, arrival: &Arrival, controls: &mut Controls) {
    if let Some(error) = &arrival.error {
        put_error(context, socket, error, controls);
    }
    let Some(to) = arrival.to else { return };
    let settings = socket.settings();
    let number = |value: i32| value.to_le_bytes();
    put_time(context, socket, controls);
    match to {
        IpAddr::V4(to) => {
            if settings.is_on(Setting::ReceivePacketInfo) {
                // The interface, and twice the address: of this machine, and in the packet.
                let data = Encoder::new().u32(arrival.interface).raw(&to.octets()).raw(&to.octets()).finish();
                let _ = controls.put(context, LEVEL_IP, IP_PKTINFO, &data);
            }
            if settings.is_on(Setting::ReceiveTimeToLive) {
                let _ = controls.put(context, LEVEL_IP, IP_TTL, &number(i32::from(arrival.hop_limit)));
            }
            if settings.is_on(Setting::ReceiveTypeOfService) {
                let _ = controls.put(context, LEVEL_IP, IP_TOS, &[arrival.traffic_class]);
            }
        }
        IpAddr::V6(_) => {}
    }
    if socket.family() == Family::V6 {
        if settings.is_on(Setting::ReceivePacketInfo6) {
            let octets = match to {
                IpAddr::V4(to) => to.to_ipv6_mapped().octets(),
                IpAddr::V6(to) => to.octets(),
            };
            let data = Encoder::new().raw(&octets).u32(arrival.interface).finish();
            let _ = controls.put(context, LEVEL_IPV6, IPV6_PKTINFO, &data);
        }
        if settings.is_on(Setting::ReceiveHopLimit) && to.is_ipv6() {
            let _ = controls.put(context, LEVEL_IPV6, IPV6_HOPLIMIT, &number(i32::from(arrival.hop_limit)));
        }
        if settings.is_on(Setting::ReceiveTrafficClass) && to.is_ipv6() {
            let _ = controls.put(context, LEVEL_IPV6, IPV6_TCLASS, &number(i32::from(arrival.traffic_class)));
        }
    }
}
