//! Control messages of TCP and UDP sockets (ip(7), ipv6(7), socket(7)): how a datagram is to go, and how one came.
//!
//! [`super::message`] has the calls that they go with; [`super::inet_message`] moves the bytes.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use exos::error::{Errno, Result};
use exos::net::inet::settings::Setting;
use exos::net::inet::{Family, Protocol, SendError, Socket, Way};
use exos::net::options::Number;
use exos::net::view::NetworkView;
use exos::task::capability::Capability;

use super::inet_message::Arrival;
use super::message::Controls;
use crate::abi::bytes::{Encoder, get};
use crate::abi::errno;
use crate::abi::inet::address_bytes;
use crate::abi::linux::{SCM_CREDENTIALS, SCM_RIGHTS, SO_MARK, SOL_SOCKET};
use crate::abi::socket::Control;
use crate::call::context::Context;

/// `IPPROTO_IP`, `IPPROTO_IPV6`.
const LEVEL_IP: u32 = 0;
const LEVEL_IPV6: u32 = 41;
/// `IPPROTO_UDP`, and its message.
const LEVEL_UDP: u32 = 17;
const UDP_SEGMENT: u32 = 103;
/// Control messages of the two: `IP_TOS`, `IP_TTL`, `IP_PKTINFO`; `IPV6_PKTINFO`, `IPV6_HOPLIMIT`, `IPV6_TCLASS`.
const IP_TOS: u32 = 1;
const IP_TTL: u32 = 2;
const IP_PKTINFO: u32 = 8;
const IP_RECVERR: u32 = 11;
const IPV6_RECVERR: u32 = 25;
const IPV6_PKTINFO: u32 = 50;
const IPV6_HOPLIMIT: u32 = 52;
const IPV6_TCLASS: u32 = 67;
const IPV6_DONTFRAG: u32 = 62;
/// Bytes of `in_pktinfo`, and of `in6_pktinfo`.
const INFO_BYTES_V4: usize = 12;
const INFO_BYTES_V6: usize = 20;
/// `SO_TIMESTAMPING`, of old and of new: nothing is measured.
const TIMESTAMPING: [u32; 2] = [37, 65];

/// What a sender's control messages say of how it is to go. `EINVAL`: no message that there is, or no such value.
/// `ENODEV`: no such interface. `EPERM`.
pub(super) fn read_way(
    context: &Context<'_>,
    socket: &Socket,
    target: Option<SocketAddr>,
    controls: &[Control<'_>],
) -> Result<Way> {
    let mut way = Way::default();
    if controls.is_empty() {
        return Ok(way);
    }
    let remote = target.or_else(|| socket.remote().ok()).map(|remote| remote.ip().to_canonical());
    let is_v4 = socket.family() == Family::V4 || remote.is_some_and(|remote| remote.is_ipv4());
    let is_stream = socket.protocol() == Protocol::Tcp;
    for control in controls {
        match (control.level, is_v4) {
            // As on Linux, where it is first looked at whether there is a connection.
            _ if is_stream && socket.remote().is_err() => {}
            (level, _) if u64::from(level) == SOL_SOCKET => check_common(context, control)?,
            _ if is_stream => {}
            (LEVEL_UDP, _) if socket.protocol() == Protocol::Udp => match (control.kind, control.data) {
                (UDP_SEGMENT, [low, high]) => way.segment_bytes = u16::from_le_bytes([*low, *high]),
                _ => return Err(Errno::EINVAL),
            },
            (LEVEL_IP, true) => read_v4(control, &mut way)?,
            (LEVEL_IPV6, true) if socket.family() == Family::V6 && control.kind == IPV6_PKTINFO => {
                let (source, interface) = read_info_v6(control)?;
                let mapped = source.to_ipv4_mapped().ok_or(Errno::EINVAL)?;
                way.interface = if interface == 0 { way.interface } else { interface };
                way.source = Some(IpAddr::V4(mapped));
            }
            (LEVEL_IPV6, false) => read_v6(control, &mut way)?,
            _ => {}
        }
    }
    if way.interface != 0 && NetworkView::of(&context.system.files.inet)?.by_index(way.interface).is_none() {
        return Err(Errno::ENODEV);
    }
    Ok(way)
}

/// A message of `SOL_SOCKET`: what concerns files alone is passed over, as on Linux.
fn check_common(context: &Context<'_>, control: &Control<'_>) -> Result<()> {
    match control.kind {
        SCM_RIGHTS | SCM_CREDENTIALS => Ok(()),
        kind if u64::from(kind) == SO_MARK && !context.can(Capability::NET_ADMIN) => Err(Errno::EPERM),
        kind if (u64::from(kind) == SO_MARK || TIMESTAMPING.contains(&kind)) && control.data.len() == 4 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// A number of four bytes.
fn number_of(control: &Control<'_>) -> Result<i32> {
    if control.data.len() == 4 { Ok(get::i32(control.data, 0)) } else { Err(Errno::EINVAL) }
}

fn read_v4(control: &Control<'_>, way: &mut Way) -> Result<()> {
    match control.kind {
        IP_PKTINFO => {
            let data: [u8; INFO_BYTES_V4] = control.data.try_into().map_err(|_| Errno::EINVAL)?;
            let source = Ipv4Addr::new(data[4], data[5], data[6], data[7]);
            way.interface = match get::u32(&data, 0) {
                0 => way.interface,
                index => index,
            };
            way.source = Some(IpAddr::V4(source)).filter(|_| !source.is_unspecified());
        }
        IP_TTL => {
            way.hop_limit = match number_of(control)? {
                value @ 1..=255 => Some(value as u8),
                _ => return Err(Errno::EINVAL),
            };
        }
        IP_TOS => {
            way.traffic_class = match control.data {
                [byte] => Some(*byte),
                _ => Some(u8::try_from(number_of(control)?).map_err(|_| Errno::EINVAL)?),
            };
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Address and interface of an `in6_pktinfo`.
fn read_info_v6(control: &Control<'_>) -> Result<(Ipv6Addr, u32)> {
    let data = control.data.get(..INFO_BYTES_V6).ok_or(Errno::EINVAL)?;
    let octets: [u8; 16] = core::array::from_fn(|index| data[index]);
    Ok((Ipv6Addr::from(octets), get::u32(data, 16)))
}

fn read_v6(control: &Control<'_>, way: &mut Way) -> Result<()> {
    match control.kind {
        IPV6_PKTINFO => {
            let (source, interface) = read_info_v6(control)?;
            way.interface = if interface == 0 { way.interface } else { interface };
            if source.is_unicast_link_local() && way.interface == 0 {
                return Err(Errno::EINVAL);
            }
            way.source = Some(IpAddr::V6(source)).filter(|_| !source.is_unspecified());
        }
        IPV6_HOPLIMIT => {
            way.hop_limit = match number_of(control)? {
                -1 => None,
                value => Some(u8::try_from(value).map_err(|_| Errno::EINVAL)?),
            };
        }
        IPV6_TCLASS => {
            way.traffic_class = match number_of(control)? {
                // As on Linux, where the number is cut to a byte later.
                -1 => Some(u8::MAX),
                value => Some(u8::try_from(value).map_err(|_| Errno::EINVAL)?),
            };
        }
        // Nothing is cut in pieces that need not be.
        IPV6_DONTFRAG if matches!(number_of(control)?, 0..=1) => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
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
    let is_v6 = socket.family() == Family::V6;
    if is_v6 && settings.is_on(Setting::ReceivePacketInfo6) {
        let octets = match to {
            IpAddr::V4(to) => to.to_ipv6_mapped().octets(),
            IpAddr::V6(to) => to.octets(),
        };
        let data = Encoder::new().raw(&octets).u32(arrival.interface).finish();
        let _ = controls.put(context, LEVEL_IPV6, IPV6_PKTINFO, &data);
    }
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
        IpAddr::V6(_) if is_v6 => {
            if settings.is_on(Setting::ReceiveHopLimit) {
                let _ = controls.put(context, LEVEL_IPV6, IPV6_HOPLIMIT, &number(i32::from(arrival.hop_limit)));
            }
            if settings.is_on(Setting::ReceiveTrafficClass) {
                let _ = controls.put(context, LEVEL_IPV6, IPV6_TCLASS, &number(i32::from(arrival.traffic_class)));
            }
        }
        IpAddr::V6(_) => {}
    }
}
