//! Bytes and datagrams through TCP and UDP sockets. [`super::message`] has the calls, for all families;
//! [`super::inet_control`] what goes with them.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::fs::step::{Step, Transfer};
use exos::fs::transfer::{Destination, Source};
use exos::net::inet::{Protocol, Received, SendError, Sending, Socket, Wants, Way};

use super::waiting::in_steps;
use crate::abi::inet::{AddressBytes, address_bytes};
use crate::abi::linux::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
};
use crate::abi::user_memory::{Extent, UserWriter};
use crate::call::context::Context;

/// Sends what `source` has: on a blocking connection all of it, else what there is room for.
pub(super) fn send(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    socket: &Arc<Socket>,
    source: &mut dyn Source,
    (target, way): (Option<SocketAddr>, Way),
    flags: u64,
) -> Result<u64> {
    if flags & MSG_OOB != 0 && socket.protocol() != Protocol::Tcp {
        return Err(Errno::EOPNOTSUPP);
    }
    let sending = Sending { target, has_more: flags & MSG_MORE != 0, is_urgent: flags & MSG_OOB != 0, way };
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
    pub(super) from: Option<SocketAddr>,
    pub(super) to: Option<IpAddr>,
    pub(super) interface: u32,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) error: Option<SendError>,
}

impl Arrival {
    /// The sender's address as `recvfrom` tells it: nothing at all of a connection.
    pub(super) fn sender_name(&self, socket: &Socket) -> AddressBytes {
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

/// Receives the urgent byte of a connection, which does not wait either. One that does not find its place is lost.
fn receive_urgent(context: &Context<'_>, socket: &Socket, extents: &[Extent], flags: u64) -> Result<Arrival> {
    let Some(byte) = socket.urgent_byte(flags & MSG_PEEK != 0)? else { return Ok(Arrival::default()) };
    let mut writer = UserWriter::new(context.memory, extents);
    if writer.remaining() == 0 {
        return Ok(Arrival { flags: MSG_OOB | MSG_TRUNC, ..Arrival::default() });
    }
    if flags & MSG_TRUNC == 0 && writer.put(&[byte]) == 0 {
        return Err(Errno::EFAULT);
    }
    Ok(Arrival { byte_count: 1, flags: MSG_OOB, ..Arrival::default() })
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
        return if is_stream { receive_urgent(context, socket, extents, flags) } else { Err(Errno::EOPNOTSUPP) };
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
