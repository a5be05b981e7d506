//! Options of TCP, IP and IPv6 (tcp(7), ip(7), ipv6(7)). [`super::socket_option`] has the calls and `SOL_SOCKET`.
//!
//! Most are numbers that a socket keeps ([`Settings`]), in a table with the values that Linux takes. What concerns only
//! packets on the way has nothing to act on over loopback and is told back. What is not here is `ENOPROTOOPT`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use exos::error::{Errno, Result};
use exos::net::inet::BACKLOG_MAX;
use exos::net::inet::interface::LOOPBACK;
use exos::net::inet::settings::{HEADER_INCLUDED, Level, Setting, Settings};
use exos::net::inet::udp_lite::kept_coverage;
use exos::net::inet::wire::SegmentSender;
use exos::net::inet::{Family, Protocol, Socket, TcpState};
use exos::net::view::NetworkView;
use exos::task::capability::Capability;

use crate::abi::bytes::{Encoder, get};
use crate::abi::user_memory::{read_array, read_exact, read_vec};
use crate::call::context::Context;

/// `IPPROTO_IP`, `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_IPV6`.
const LEVEL_IP: u64 = 0;
const LEVEL_TCP: u64 = 6;
const LEVEL_UDP: u64 = 17;
const LEVEL_IPV6: u64 = 41;
/// As [`LEVEL_UDP`], of either's sockets.
const LEVEL_UDP_LITE: u64 = 136;
const LEVEL_ICMPV6: u64 = 58;
const LEVEL_RAW: u64 = 255;

/// Options that are not numbers that a socket keeps, by level.
mod special {
    pub(super) const UDPLITE_SEND_CSCOV: u64 = 10;
    pub(super) const UDPLITE_RECV_CSCOV: u64 = 11;
    pub(super) const IP_OPTIONS: u64 = 4;
    pub(super) const IP_ROUTER_ALERT: u64 = 5;
    pub(super) const IP_MTU: u64 = 14;
    pub(super) const IP_TRANSPARENT: u64 = 19;
    pub(super) const IP_NODEFRAG: u64 = 22;
    pub(super) const IP_MULTICAST_IF: u64 = 32;
    pub(super) const IP_ADD_MEMBERSHIP: u64 = 35;
    pub(super) const IP_DROP_MEMBERSHIP: u64 = 36;
    pub(super) const IP_UNICAST_IF: u64 = 50;
    pub(super) const TCP_MAXSEG: u64 = 2;
    pub(super) const TCP_INFO: u64 = 11;
    pub(super) const TCP_CONGESTION: u64 = 13;
    pub(super) const TCP_THIN_DUPACK: u64 = 17;
    pub(super) const TCP_SAVED_SYN: u64 = 28;
    pub(super) const TCP_FASTOPEN_KEY: u64 = 33;
    pub(super) const TCP_FASTOPEN_NO_COOKIE: u64 = 34;
    pub(super) const TCP_ULP: u64 = 31;
    pub(super) const IPV6_MULTICAST_IF: u64 = 17;
    pub(super) const IPV6_MULTICAST_HOPS: u64 = 18;
    pub(super) const IPV6_ADD_MEMBERSHIP: u64 = 20;
    pub(super) const IPV6_DROP_MEMBERSHIP: u64 = 21;
    pub(super) const IPV6_ROUTER_ALERT: u64 = 22;
    pub(super) const IPV6_MTU: u64 = 24;
    pub(super) const IPV6_V6ONLY: u64 = 26;
    pub(super) const IPV6_TRANSPARENT: u64 = 75;
    pub(super) const IPV6_UNICAST_IF: u64 = 76;
}

/// A switch: any value but 0 is 1.
const SWITCH: (i32, i32) = (i32::MIN, 1);
/// A switch that is 0 or 1.
const STRICT: (i32, i32) = (0, 1);

/// An option that is a number: its level, its number, where it is kept, and the least and greatest value.
type Row = (u64, u64, Setting, (i32, i32));

const ROWS: &[Row] = &[
    (LEVEL_IP, 1, Setting::TypeOfService, (0, 255)),
    (LEVEL_IP, 2, Setting::TimeToLive, (-1, 255)),
    (LEVEL_IP, 8, Setting::ReceivePacketInfo, SWITCH),
    (LEVEL_IP, 10, Setting::MtuDiscover, (0, 5)),
    (LEVEL_IP, 11, Setting::ReceiveErrors, SWITCH),
    (LEVEL_IP, 12, Setting::ReceiveTimeToLive, SWITCH),
    (LEVEL_IP, 13, Setting::ReceiveTypeOfService, SWITCH),
    (LEVEL_IP, 15, Setting::FreeBind, SWITCH),
    (LEVEL_IP, 21, Setting::TimeToLiveMin, (0, 255)),
    (LEVEL_IP, 24, Setting::BindAddressNoPort, SWITCH),
    (LEVEL_IP, 26, Setting::ReceiveErrorsInFull, STRICT),
    (LEVEL_IP, 33, Setting::MulticastTimeToLive, (-1, 255)),
    (LEVEL_IP, 34, Setting::MulticastLoop, SWITCH),
    (LEVEL_TCP, 1, Setting::NoDelay, SWITCH),
    (LEVEL_TCP, special::TCP_MAXSEG, Setting::SegmentBytesMax, (88, 32_767)),
    (LEVEL_TCP, 3, Setting::Cork, SWITCH),
    (LEVEL_TCP, 4, Setting::KeepIdle, (1, 32_767)),
    (LEVEL_TCP, 5, Setting::KeepInterval, (1, 32_767)),
    (LEVEL_TCP, 6, Setting::KeepCount, (1, 127)),
    (LEVEL_TCP, 7, Setting::SynCount, (1, 127)),
    (LEVEL_TCP, 8, Setting::FinWait2Seconds, (i32::MIN, i32::MAX)),
    (LEVEL_TCP, 9, Setting::DeferAccept, (i32::MIN, i32::MAX)),
    (LEVEL_TCP, 10, Setting::WindowClamp, (i32::MIN, i32::MAX)),
    (LEVEL_TCP, 12, Setting::QuickAcknowledge, SWITCH),
    (LEVEL_TCP, 18, Setting::UserTimeout, (0, i32::MAX)),
    (LEVEL_TCP, 23, Setting::FastOpen, (0, i32::MAX)),
    (LEVEL_TCP, 30, Setting::FastOpenConnect, STRICT),
    (LEVEL_TCP, 25, Setting::NotSentLowWater, (i32::MIN, i32::MAX)),
    (LEVEL_UDP, 1, Setting::DatagramCork, SWITCH),
    (LEVEL_UDP, 101, Setting::NoChecksumSent6, SWITCH),
    (LEVEL_UDP, 102, Setting::NoChecksumReceived6, SWITCH),
    (LEVEL_UDP, 103, Setting::DatagramSegmentBytes, (0, 65_535)),
    (LEVEL_UDP, 104, Setting::DatagramReceiveOffload, SWITCH),
    (LEVEL_IPV6, 16, Setting::UnicastHops, (-1, 255)),
    (LEVEL_IPV6, 17, Setting::MulticastInterface6, (i32::MIN, i32::MAX)),
    (LEVEL_IPV6, 18, Setting::MulticastHops, (-1, 255)),
    (LEVEL_IPV6, 19, Setting::MulticastLoop6, STRICT),
    (LEVEL_IPV6, 23, Setting::MtuDiscover6, (0, 5)),
    (LEVEL_IPV6, 25, Setting::ReceiveErrors, SWITCH),
    (LEVEL_IPV6, special::IPV6_V6ONLY, Setting::V6Only, SWITCH),
    (LEVEL_IPV6, 49, Setting::ReceivePacketInfo6, SWITCH),
    (LEVEL_IPV6, 51, Setting::ReceiveHopLimit, SWITCH),
    (LEVEL_IPV6, 66, Setting::ReceiveTrafficClass, SWITCH),
    (LEVEL_IPV6, 31, Setting::ReceiveErrorsInFull, STRICT),
    (LEVEL_IPV6, 67, Setting::TrafficClass, (-1, 255)),
    (LEVEL_IPV6, 73, Setting::HopsMin, (0, 255)),
];

/// Switches that are kept and told back, and do nothing: of IP, of TCP, of IPv6.
///
/// What packets that came in say of themselves beyond what [`ROWS`] has (options, routing headers, the original
/// address) is never there to be told.
const KEPT: [(u64, Level, &[u64]); 3] = [
    (LEVEL_IP, Level::Ip, &[HEADER_INCLUDED, 6, 7, 18, special::IP_TRANSPARENT, 20, 23, 49]),
    (LEVEL_TCP, Level::Tcp, &[16, 27, 34]),
    (
        LEVEL_IPV6,
        Level::Ipv6,
        &[2, 3, 4, 5, 8, 11, 29, 30, 33, 53, 56, 58, 60, 62, 70, 74, special::IPV6_TRANSPARENT, 77, 78],
    ),
];
/// Those of them that are off where there is no whole number.
const UNMEASURED: [u64; 3] = [62, 70, 77];
/// Those of them that take 0 and 1 alone.
const STRICT_SWITCHES: [(u64, u64); 4] = [(LEVEL_IP, 49), (LEVEL_TCP, 16), (LEVEL_TCP, 27), (LEVEL_TCP, 34)];

/// What a hop limit is that was not set (`net.ipv4.ip_default_ttl`).
const HOPS: i32 = 64;
/// `TCP_MAXSEG` while there is no connection.
const SEGMENT_BYTES_UNCONNECTED: i32 = 536;
/// Bytes of the headers of a segment, with the time in it, of IPv4 and of IPv6.
const HEADER_BYTES_V4: i32 = 52;
const HEADER_BYTES_V6: i32 = 72;
/// Algorithms of congestion that are known by name; nothing is ever congested.
const CONGESTION: [&[u8]; 2] = [b"cubic", b"reno"];
/// Longest name of one (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_BYTES: usize = 16;
/// Longest time between two attempts (`TCP_RTO_MAX`), in seconds.
const STEP_SECONDS_MAX: i32 = 120;
/// Least that `TCP_WINDOW_CLAMP` keeps: half of the least receive buffer.
const WINDOW_BYTES_MIN: i32 = 1152;
/// What every way carries whole of IPv6 (`IPV6_MIN_MTU`).
const PACKET_BYTES_MIN_V6: i32 = 1280;
/// `net.ipv4.tcp_fin_timeout`.
const FIN_WAIT_2_SECONDS: i32 = 60;
/// `TCP_FIN_TIMEOUT_MAX`, in seconds.
const FIN_WAIT_2_SECONDS_MAX: i32 = 120;
/// Bytes of `struct tcp_info`.
const INFO_BYTES: usize = 232;

/// The row of an option. `ENOPROTOOPT`: there is none, or it is not this socket's.
fn row_of(socket: &Socket, level: u64, name: u64) -> Result<&'static Row> {
    check_level(socket, level)?;
    ROWS.iter().find(|row| (row.0, row.1) == (level, name)).ok_or(Errno::ENOPROTOOPT)
}

/// Headers are made by programs with raw sockets alone. `ENOPROTOOPT`.
fn check_header(socket: &Socket, level: u64, name: u64) -> Result<()> {
    let is_raw = matches!(socket.protocol(), Protocol::Raw(_));
    if (level, name) == (LEVEL_IP, HEADER_INCLUDED) && !is_raw { Err(Errno::ENOPROTOOPT) } else { Ok(()) }
}

fn check_level(socket: &Socket, level: u64) -> Result<()> {
    let is_own = match level {
        LEVEL_IP => true,
        LEVEL_TCP => socket.protocol() == Protocol::Tcp,
        LEVEL_UDP | LEVEL_UDP_LITE => matches!(socket.protocol(), Protocol::Udp | Protocol::UdpLite),
        LEVEL_IPV6 => socket.family() == Family::V6,
        _ => false,
    };
    if is_own { Ok(()) } else { Err(Errno::ENOPROTOOPT) }
}

/// Longest packet on the way of a socket that has one.
fn way_bytes(socket: &Socket) -> i32 {
    match socket.remote() {
        Ok(remote) if !socket.inet().is_local(remote.ip()) => socket.inet().packet_bytes_max(remote.ip()) as i32,
        _ => LOOPBACK.packet_bytes_max as i32,
    }
}

/// The value of an option.
pub(super) fn value_of(socket: &Socket, level: u64, name: u64) -> Result<Vec<u8>> {
    // As on Linux, IPv4 knows a level that is not its own, but no way to ask it.
    let foreign = if socket.family() == Family::V4 { Errno::EOPNOTSUPP } else { Errno::ENOPROTOOPT };
    check_level(socket, level).map_err(|_| foreign)?;
    let level = if level == LEVEL_UDP_LITE { LEVEL_UDP } else { level };
    let number = match (level, name) {
        (LEVEL_IP, special::IP_OPTIONS) => return Ok(Vec::new()),
        (LEVEL_IP, special::IP_MTU) | (LEVEL_IPV6, special::IPV6_MTU) if socket.remote().is_err() => {
            return Err(Errno::ENOTCONN);
        }
        (LEVEL_IP, special::IP_MTU) | (LEVEL_IPV6, special::IPV6_MTU) => way_bytes(socket),
        (LEVEL_IP, special::IP_MULTICAST_IF | special::IP_UNICAST_IF) => 0,
        (LEVEL_IP, special::IP_ROUTER_ALERT | special::IP_NODEFRAG) => 0,
        (LEVEL_IPV6, special::IPV6_ROUTER_ALERT | special::IPV6_UNICAST_IF) => 0,
        (LEVEL_TCP, special::TCP_THIN_DUPACK) => 0,
        (LEVEL_TCP, special::TCP_SAVED_SYN | special::TCP_ULP | special::TCP_FASTOPEN_KEY) => return Ok(Vec::new()),
        (LEVEL_IPV6, 54 | 55 | 57 | 59) => return Ok(Vec::new()),
        (LEVEL_UDP, special::UDPLITE_SEND_CSCOV) => socket.settings().get(Setting::SentCoverage),
        (LEVEL_UDP, special::UDPLITE_RECV_CSCOV) => socket.settings().get(Setting::ReceivedCoverage).max(0),
        (LEVEL_TCP, special::TCP_MAXSEG) => segment_bytes(socket),
        (LEVEL_TCP, special::TCP_INFO) => return Ok(information(socket)),
        (LEVEL_TCP, special::TCP_CONGESTION) => {
            let place = socket.settings().get(Setting::Congestion) as usize;
            let name = CONGESTION.get(place).copied().unwrap_or(CONGESTION[0]);
            return Ok(Encoder::new().raw(name).zero_to(CONGESTION_NAME_BYTES).finish());
        }
        _ => {
            if let Some(kept) = kept_level(level, name) {
                return Ok(i32::from(socket.settings().is_switched_on(kept, name)).to_le_bytes().to_vec());
            }
            let setting = row_of(socket, level, name)?.2;
            match (setting, socket.settings().get(setting)) {
                (Setting::TimeToLive | Setting::UnicastHops, -1) => HOPS,
                (Setting::DeferAccept, count) => seconds_of(count),
                (Setting::FinWait2Seconds, 0) => FIN_WAIT_2_SECONDS,
                (_, value) => value,
            }
        }
    };
    Ok(number.to_le_bytes().to_vec())
}

/// Bytes that a segment of a connection may have.
fn segment_bytes(socket: &Socket) -> i32 {
    let asked = socket.settings().get(Setting::SegmentBytesMax);
    match socket.remote() {
        Err(_) if asked != 0 => asked,
        Err(_) => SEGMENT_BYTES_UNCONNECTED,
        Ok(remote) => {
            let header_bytes = if remote.is_ipv4() { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
            let most = way_bytes(socket).min(i32::from(u16::MAX)) - header_bytes;
            if asked == 0 { most } else { most.min(asked) }
        }
    }
}

/// `struct tcp_info`. Fields without a name here are 0: probes, times since something came, what kept the
/// sender waiting.
pub(crate) fn information(socket: &Socket) -> Vec<u8> {
    /// `TCPI_OPT_TIMESTAMPS`, `TCPI_OPT_SACK`, `TCPI_OPT_WSCALE`.
    const OPTIONS: [u8; 3] = [1, 2, 4];
    /// `tcpi_reordering` before anything came out of order.
    const REORDERING: u32 = 3;
    let told = socket.information().unwrap_or_default();
    let state = socket.state();
    let is_open = matches!(state, TcpState::Established | TcpState::CloseWait | TcpState::FinWait2);
    let flags = [told.has_times, told.has_sack, told.window_shifts.is_some()];
    let options = OPTIONS.iter().zip(flags).filter(|(_, is_so)| *is_so && is_open).fold(0, |all, (flag, _)| all | flag);
    let scales = told.window_shifts.filter(|_| is_open).map_or(0, |(other, own)| other & 0xf | own << 4);
    let way = segment_bytes(socket) as u32;
    let (sent_segment, received_segment) = told.segment_bytes.unwrap_or((way, SEGMENT_BYTES_UNCONNECTED as u32));
    let [under_way, sacked, lost, resent] = told.segments;
    let (waiting, backlog) = socket.backlog().unwrap_or((under_way as usize, sacked as usize));
    // state, ca_state, retransmits, probes, backoff.
    let encoder = Encoder::new().u8(state_number(state)).u8(0).u8(told.backoff_count.min(255) as u8).u8(0);
    let encoder = encoder.u8(told.backoff_count.min(255) as u8).u8(options).u8(scales).u8(0);
    // rto, ato, snd_mss, rcv_mss; unacked, sacked, lost, retrans, fackets; last_data_sent.
    let encoder = encoder.u32(told.retransmit_timeout_us).u32(0).u32(sent_segment).u32(received_segment);
    let encoder = encoder.u32(waiting as u32).u32(backlog as u32).u32(lost).u32(resent).u32(0).u32(told.sent_ago_ms);
    // pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, cwnd, advmss, reordering.
    let encoder = encoder.zero_to(60).u32(way_bytes(socket) as u32).u32(told.window_bytes.1);
    let encoder = encoder.u32(told.round_trip_us.0).u32(told.round_trip_us.1).u32(told.slow_start_segments);
    let encoder = encoder.u32(told.congestion_window_segments).u32(way).u32(REORDERING);
    // rcv_rtt, rcv_space, total_retrans; pacing rates; bytes acknowledged and received.
    let encoder = encoder.u32(0).u32(told.window_bytes.1).u32(told.retransmit_count).u64(u64::MAX).u64(u64::MAX);
    let encoder = encoder.u64(told.acknowledged_bytes).u64(told.received_bytes);
    // segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out.
    let encoder = encoder.u32(told.segment_counts.0).u32(told.segment_counts.1).u32(told.unsent_bytes);
    let encoder = encoder.u32(told.round_trip_min_us).u32(told.segment_counts.1).u32(told.segment_counts.0);
    // bytes_sent; snd_wnd.
    let encoder = encoder.zero_to(200).u64(told.sent_bytes);
    encoder.zero_to(228).u32(told.window_bytes.0).zero_to(INFO_BYTES).finish()
}

/// Linux's number of a state.
pub(crate) fn state_number(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Close => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Listen => 10,
        TcpState::Closing => 11,
    }
}

/// Words of a filter of ICMP messages, where an option is one: `ICMP_FILTER`, `ICMPV6_FILTER`.
fn filter_words(socket: &Socket, level: u64, name: u64) -> Option<usize> {
    match (socket.protocol(), level, name) {
        (Protocol::Raw(1), LEVEL_RAW, 1) => Some(1),
        (Protocol::Raw(58), LEVEL_ICMPV6, 1) => Some(8),
        _ => None,
    }
}

/// Sets it: what is not told is as it was, as on Linux.
fn set_filter(context: &Context<'_>, socket: &Socket, word_count: usize, (address, length): (u64, u64)) -> Result<()> {
    let bytes = read_vec(context.memory, address, length.min(word_count as u64 * 4), word_count * 4)?;
    let mut filter = socket.filter();
    for (word, told) in filter.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = get::u32(told, 0);
    }
    socket.set_filter(filter);
    Ok(())
}

/// Sets an option to what `length` bytes at `address` say.
pub(super) fn set(
    context: &Context<'_>,
    socket: &Arc<Socket>,
    (level, name): (u64, u64),
    (address, length): (u64, u64),
) -> Result<()> {
    if let Some(word_count) = filter_words(socket, level, name) {
        return set_filter(context, socket, word_count, (address, length));
    }
    check_level(socket, level)?;
    let level = if level == LEVEL_UDP_LITE { LEVEL_UDP } else { level };
    check_header(socket, level, name)?;
    refuse(context, socket, (level, name), length)?;
    match (level, name) {
        (LEVEL_TCP, special::TCP_CONGESTION) => return set_congestion(context, socket, address, length),
        (LEVEL_IP, special::IP_MULTICAST_IF) => return set_group_interface(context, socket, address, length),
        // No connection that comes in begins with data, so no key is ever asked for.
        (LEVEL_TCP, special::TCP_FASTOPEN_KEY) => {
            return if matches!(length, 16 | 32) { Ok(()) } else { Err(Errno::EINVAL) };
        }
        // Without options packets go as they are.
        (LEVEL_IP, special::IP_OPTIONS) => return if length == 0 { Ok(()) } else { Err(Errno::EINVAL) },
        (LEVEL_IP, special::IP_ADD_MEMBERSHIP) | (LEVEL_IPV6, special::IPV6_ADD_MEMBERSHIP) => {
            return socket.join_group(read_group(context, level, address, length)?);
        }
        (LEVEL_IP, special::IP_DROP_MEMBERSHIP) | (LEVEL_IPV6, special::IPV6_DROP_MEMBERSHIP) => {
            return socket.leave_group(read_group(context, level, address, length)?);
        }
        (LEVEL_IPV6, name) if length < 4 && UNMEASURED.contains(&name) => {
            socket.settings().switch(Level::Ipv6, name, false);
            return Ok(());
        }
        _ => {}
    }
    let is_short = (level != LEVEL_IP && length < 4) || length == 0;
    let value = if is_short { Err(Errno::EINVAL) } else { read_value(context, level, address, length) };
    if let Some(kept) = kept_level(level, name) {
        let value = value?;
        if STRICT_SWITCHES.contains(&(level, name)) && !(0..=1).contains(&value) {
            return Err(Errno::EINVAL);
        }
        socket.settings().switch(kept, name, value != 0);
        return Ok(());
    }
    if let Some(outcome) = check_only(context, (level, name), length, value) {
        return outcome;
    }
    // These say so of what is too short before they look what it is.
    let value = if level == LEVEL_TCP || level == LEVEL_UDP { Ok(value?) } else { value };
    if level == LEVEL_UDP && matches!(name, special::UDPLITE_SEND_CSCOV | special::UDPLITE_RECV_CSCOV) {
        return set_coverage(socket, name, value?);
    }
    let row = row_of(socket, level, name)?;
    let value = value?;
    if row.2 == Setting::MulticastInterface6 && value != 0 && !interface_exists(context, value as u32)? {
        return Err(Errno::ENODEV);
    }
    keep(socket, row, value)
}

/// How much of a datagram a checksum covers. `ENOPROTOOPT`: UDP's cover everything.
fn set_coverage(socket: &Socket, name: u64, value: i32) -> Result<()> {
    if socket.protocol() != Protocol::UdpLite {
        return Err(Errno::ENOPROTOOPT);
    }
    let is_sent = name == special::UDPLITE_SEND_CSCOV;
    let setting = if is_sent { Setting::SentCoverage } else { Setting::ReceivedCoverage };
    socket.settings().set(setting, kept_coverage(value));
    Ok(())
}

/// Says what is wrong with an option before its value is looked at.
fn refuse(context: &Context<'_>, socket: &Socket, (level, name): (u64, u64), length: u64) -> Result<()> {
    let is_stream = is_stream(socket);
    match (level, name) {
        (LEVEL_TCP, special::TCP_FASTOPEN_NO_COOKIE)
            if !matches!(socket.state(), TcpState::Close | TcpState::Listen) =>
        {
            Err(Errno::EINVAL)
        }
        (LEVEL_TCP, special::TCP_ULP) if length > 0 => Err(Errno::ENOENT),
        (LEVEL_IP, special::IP_TRANSPARENT) | (LEVEL_IPV6, special::IPV6_TRANSPARENT)
            if !context.can(Capability::NET_ADMIN) =>
        {
            Err(Errno::EPERM)
        }
        (LEVEL_IP, special::IP_ADD_MEMBERSHIP | special::IP_DROP_MEMBERSHIP) if is_stream => Err(Errno::EPROTO),
        (LEVEL_IPV6, special::IPV6_MULTICAST_IF | special::IPV6_MULTICAST_HOPS) if is_stream => Err(Errno::ENOPROTOOPT),
        (LEVEL_IP, special::IP_ROUTER_ALERT) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Takes an option whose value is looked at, and then does nothing. `None`: it is none of these.
fn check_only(context: &Context<'_>, option: (u64, u64), length: u64, value: Result<i32>) -> Option<Result<()>> {
    Some(match (option, value) {
        ((LEVEL_TCP, special::TCP_THIN_DUPACK), Ok(0..=1)) => Ok(()),
        ((LEVEL_TCP, special::TCP_THIN_DUPACK), Ok(_)) => Err(Errno::EINVAL),
        // The longest packet that is sent whole.
        ((LEVEL_IPV6, special::IPV6_MTU), Ok(0 | PACKET_BYTES_MIN_V6..)) => Ok(()),
        ((LEVEL_IPV6, special::IPV6_MTU), Ok(_)) => Err(Errno::EINVAL),
        ((LEVEL_IP, special::IP_UNICAST_IF) | (LEVEL_IPV6, special::IPV6_UNICAST_IF), _) if length != 4 => {
            Err(Errno::EINVAL)
        }
        ((LEVEL_IP, special::IP_UNICAST_IF) | (LEVEL_IPV6, special::IPV6_UNICAST_IF), Ok(value)) => {
            // The number of an interface, as it goes over the network.
            match value == 0 || interface_exists(context, u32::from_be(value as u32)).unwrap_or(false) {
                true => Ok(()),
                false => Err(Errno::EADDRNOTAVAIL),
            }
        }
        (
            (LEVEL_TCP, special::TCP_THIN_DUPACK)
            | (LEVEL_IPV6, special::IPV6_MTU | special::IPV6_UNICAST_IF)
            | (LEVEL_IP, special::IP_UNICAST_IF),
            Err(error),
        ) => Err(error),
        _ => return None,
    })
}

/// The group of an `ip_mreq`, `ip_mreqn` or `ipv6_mreq`: whichever interface it names, only the card's has groups.
fn read_group(context: &Context<'_>, level: u64, address: u64, length: u64) -> Result<IpAddr> {
    if level == LEVEL_IPV6 {
        let bytes: [u8; 20] =
            if length < 20 { return Err(Errno::EINVAL) } else { read_array(context.memory, address)? };
        let group: [u8; 16] = core::array::from_fn(|index| bytes[index]);
        return Ok(IpAddr::from(group));
    }
    let bytes: [u8; 8] = if length < 8 { return Err(Errno::EINVAL) } else { read_array(context.memory, address)? };
    Ok(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// A number; at the level of IP a byte is one too.
fn read_value(context: &Context<'_>, level: u64, address: u64, length: u64) -> Result<i32> {
    if length < 4 {
        if level != LEVEL_IP || length == 0 {
            return Err(Errno::EINVAL);
        }
        let mut byte = [0];
        read_exact(context.memory, address, &mut byte)?;
        return Ok(i32::from(byte[0]));
    }
    let mut bytes = [0; 4];
    read_exact(context.memory, address, &mut bytes)?;
    Ok(get::i32(&bytes, 0))
}

fn keep(socket: &Arc<Socket>, &(_, _, setting, range): &Row, value: i32) -> Result<()> {
    let is_stream = is_stream(socket);
    let value = match (setting, value) {
        (Setting::V6Only, _) if socket.has_port() => return Err(Errno::EINVAL),
        (Setting::MulticastTimeToLive, _) if is_stream => return Err(Errno::EINVAL),
        (Setting::DeferAccept, seconds) => count_of(seconds),
        // At least half of the least buffer; no limit only of a socket without a connection.
        (Setting::WindowClamp, 0) if socket.remote().is_ok() => return Err(Errno::EINVAL),
        (Setting::WindowClamp, value) if value != 0 => value.max(WINDOW_BYTES_MIN),
        (Setting::FastOpenConnect, _) if socket.state() != TcpState::Close => return Err(Errno::EINVAL),
        (Setting::FastOpen, 0..) if !matches!(socket.state(), TcpState::Close | TcpState::Listen) => {
            return Err(Errno::EINVAL);
        }
        (Setting::SegmentBytesMax, 0) => 0,
        (Setting::FinWait2Seconds, ..0) => -1,
        (Setting::FinWait2Seconds, value) => value.min(FIN_WAIT_2_SECONDS_MAX),
        (Setting::TimeToLive, 0) => return Err(Errno::EINVAL),
        (Setting::MulticastTimeToLive | Setting::MulticastHops | Setting::TrafficClass, -1) => {
            Settings::default_of(setting)
        }
        // As on Linux, it is the low byte, and of a stream the bits of congestion are not the program's.
        (Setting::TypeOfService, value) => value & if is_stream { 0xfc } else { 0xff },
        (Setting::TrafficClass, value @ 0..=255) if is_stream => value & 0xfc,
        (Setting::FastOpen, value @ 0..) => value.min(BACKLOG_MAX as i32),
        (_, value) if range == SWITCH => i32::from(value != 0),
        (_, value) if (range.0..=range.1).contains(&value) => value,
        _ => return Err(Errno::EINVAL),
    };
    socket.settings().set(setting, value);
    socket.apply_settings();
    if matches!(setting, Setting::DatagramCork | Setting::DatagramSegmentBytes) { socket.apply_parts() } else { Ok(()) }
}

/// Whether it is a TCP socket.
fn is_stream(socket: &Socket) -> bool {
    socket.protocol() == Protocol::Tcp
}

/// Where a switch is kept that does nothing.
fn kept_level(level: u64, name: u64) -> Option<Level> {
    KEPT.iter().find(|kept| kept.0 == level && kept.2.contains(&name)).map(|kept| kept.1)
}

/// Whether there is an interface with that number. `ENOMEM`.
fn interface_exists(context: &Context<'_>, index: u32) -> Result<bool> {
    Ok(NetworkView::of(&context.system.files.inet)?.by_index(index).is_some())
}

/// How often an answer is sent again within so many seconds, a second after the first time and twice as long each time
/// (`secs_to_retrans` of Linux).
fn count_of(seconds: i32) -> i32 {
    const COUNT_MAX: i32 = 255;
    let (mut count, mut step, mut period) = (1, 1, 1);
    if seconds <= 0 {
        return 0;
    }
    while seconds > period && count < COUNT_MAX {
        count += 1;
        step = (step * 2).min(STEP_SECONDS_MAX);
        period += step;
    }
    count
}

/// The reverse (`retrans_to_secs`).
fn seconds_of(count: i32) -> i32 {
    let (mut step, mut period) = (1, i32::from(count > 0));
    for _ in 1..count {
        step = (step * 2).min(STEP_SECONDS_MAX);
        period += step;
    }
    period
}

/// `IP_MULTICAST_IF`: an address, a group and an address, or both and an interface. `EADDRNOTAVAIL`: none has it.
fn set_group_interface(context: &Context<'_>, socket: &Socket, address: u64, length: u64) -> Result<()> {
    if is_stream(socket) || length < 4 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 12];
    let count = if length >= 12 {
        12
    } else if length >= 8 {
        8
    } else {
        4
    };
    read_exact(context.memory, address, &mut bytes[..count])?;
    let own = if count == 4 { &bytes[..4] } else { &bytes[4..8] };
    let index = get::u32(&bytes, 8);
    let view = NetworkView::of(&context.system.files.inet)?;
    let has = |octets: &[u8]| {
        let mut all = view.interfaces.iter().flat_map(|interface| &interface.addresses);
        all.any(|own| matches!(own.address, core::net::IpAddr::V4(v4) if v4.octets() == *octets))
    };
    let is_known = if index != 0 { view.by_index(index).is_some() } else { own == [0; 4] || has(own) };
    if is_known { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
}

/// Takes the name of an algorithm that is known.
fn set_congestion(context: &Context<'_>, socket: &Socket, address: u64, length: u64) -> Result<()> {
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(CONGESTION_NAME_BYTES as u64 - 1);
    let bytes = read_vec(context.memory, address, length, CONGESTION_NAME_BYTES)?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let place = CONGESTION.iter().position(|known| *known == name).ok_or(Errno::ENOENT)?;
    socket.settings().set(Setting::Congestion, place as i32);
    Ok(())
}
