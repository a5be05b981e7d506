//! `/proc/net`: interfaces, sockets and connections, and what is fixed of them below `sys/net`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use exos::error::Result;
use exos::fs::proc_fs::SystemText;
use exos::net::AnySocket;
use exos::net::inet::{Family, Inet, Protocol, Socket, TcpState, TimeWait};
use exos::net::packet::Kind;
use exos::net::unix::SocketKind;
use exos::net::unix::address::Address;
use exos::net::view::{NetworkView, RouteKind, RouteView, mask_of};
use exos::reserve;

use super::net_counter_text;
use super::socket_list::sockets as all_sockets;
use super::text::{Text, put};
use crate::call::inet_option::state_number;
use crate::task::listing::Member;

/// Columns of a line of `tcp` and of `udp`.
const TCP_COLUMNS: usize = 149;
const UDP_COLUMNS: usize = 127;
/// Nanoseconds of a jiffy as programs see it.
const JIFFY_NS: u64 = 10_000_000;

/// One of the texts. False: it is none of these.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn append(inet: &Inet, members: &[Member], text: SystemText, out: &mut Text<'_>) -> Result<bool> {
    match text {
        SystemText::NetDevices => devices(&NetworkView::of(inet)?, out),
        SystemText::NetAddresses6 => addresses_v6(&NetworkView::of(inet)?, out),
        SystemText::NetNeighbours => neighbours(&NetworkView::of(inet)?, out),
        SystemText::NetRoutes => routes(&NetworkView::of(inet)?, out)?,
        SystemText::NetRoutes6 => routes_v6(&NetworkView::of(inet)?, out)?,
        SystemText::NetGroups => groups(&NetworkView::of(inet)?, out),
        SystemText::NetGroups6 => groups_v6(&NetworkView::of(inet)?, out),
        SystemText::NetDeviceGroups => device_groups(&NetworkView::of(inet)?, out),
        SystemText::NetSimple => net_counter_text::simple(inet, out),
        SystemText::NetSimple6 => net_counter_text::simple_v6(inet, out),
        SystemText::NetStatistics => net_counter_text::more(inet, &NetworkView::of(inet)?, out),
        SystemText::NetProtocols => {
            let all = all_sockets(members)?;
            let count = |is: fn(&AnySocket) -> bool| all.iter().filter(|socket| is(socket)).count();
            let unix = count(|socket| socket.unix().is_some());
            let count = [unix, count(|socket| matches!(socket, AnySocket::Netlink(_)))];
            net_counter_text::protocols(inet, count, out);
        }
        SystemText::NetSocketCounts => socket_counts(inet, all_sockets(members)?.len(), out),
        SystemText::NetSocketCounts6 => socket_counts_v6(inet, out),
        SystemText::NetTcp => tcp(inet, Family::V4, out),
        SystemText::NetTcp6 => tcp(inet, Family::V6, out),
        SystemText::NetUdp => datagrams(inet, text, (Protocol::Udp, Family::V4), out),
        SystemText::NetUdp6 => datagrams(inet, text, (Protocol::Udp, Family::V6), out),
        SystemText::NetUdpLite => datagrams(inet, text, (Protocol::UdpLite, Family::V4), out),
        SystemText::NetUdpLite6 => datagrams(inet, text, (Protocol::UdpLite, Family::V6), out),
        SystemText::NetRaw => datagrams(inet, text, (Protocol::Raw(0), Family::V4), out),
        SystemText::NetRaw6 => datagrams(inet, text, (Protocol::Raw(0), Family::V6), out),
        SystemText::NetPing => datagrams(inet, text, (Protocol::Ping, Family::V4), out),
        SystemText::NetPing6 => datagrams(inet, text, (Protocol::Ping, Family::V6), out),
        SystemText::NetUnix => unix(&all_sockets(members)?, out),
        SystemText::NetPacket => packet(&all_sockets(members)?, out),
        SystemText::NetNetlink => netlink(&all_sockets(members)?, out),
        _ => return Ok(false),
    }
    Ok(true)
}

fn end_line(out: &mut Text<'_>, start: usize, columns: usize) {
    out.pad_to(start, columns);
    out.raw(b"\n");
}

/// `net/dev`: what goes over loopback is not counted, as there are no packets.
fn devices(view: &NetworkView, out: &mut Text<'_>) {
    out.raw(b"Inter-|   Receive                                                |  Transmit\n");
    out.raw(b" face |bytes    packets errs drop fifo frame compressed multicast");
    out.raw(b"|bytes    packets errs drop fifo colls carrier compressed\n");
    for interface in &view.interfaces {
        let of = &interface.traffic;
        put!(out, "{:>6}: {:7} {:7} ", interface.name, of.received_bytes, of.received_packets);
        put!(out, "{:4} {:4} {:4} {:5} ", of.receive_errors, of.receive_drops, 0, 0);
        put!(out, "{:10} {:9} {:8} {:7} ", 0, of.multicast_packets, of.sent_bytes, of.sent_packets);
        put!(out, "{:4} {:4} {:4} {:5} {:7} {:10}\n", of.send_errors, of.send_drops, 0, 0, 0, 0);
    }
}

fn hex(octets: &[u8], out: &mut Text<'_>) {
    octets.iter().for_each(|byte| put!(out, "{byte:02x}"));
}

/// The octets of an IPv6 address; none of any other.
fn octets_v6(address: Option<IpAddr>) -> [u8; 16] {
    match address {
        Some(IpAddr::V6(v6)) => v6.octets(),
        _ => [0; 16],
    }
}

/// An IPv4 address as a word of the processor, in which it lies in the order of the network.
fn word_v4(address: Option<IpAddr>) -> u32 {
    match address {
        Some(IpAddr::V4(v4)) => u32::from_le_bytes(v4.octets()),
        _ => 0,
    }
}

/// `net/if_inet6`.
fn addresses_v6(view: &NetworkView, out: &mut Text<'_>) {
    /// `IFA_F_PERMANENT`.
    const PERMANENT: u32 = 0x80;
    for interface in &view.interfaces {
        for own in &interface.addresses {
            let IpAddr::V6(address) = own.address else { continue };
            // As Linux kept them from the first: of the machine, the link, the site, or of all.
            let scope = match address.segments()[0] {
                _ if address.is_loopback() => 0x10,
                _ if address.is_unicast_link_local() => 0x20,
                first if first & 0xffc0 == 0xfec0 => 0x40,
                _ => 0,
            };
            hex(&address.octets(), out);
            let (index, bits) = (interface.index, own.prefix_bits);
            put!(out, " {index:02x} {bits:02x} {scope:02x} {PERMANENT:02x} {:>8}\n", interface.name);
        }
    }
}

/// `net/arp`.
fn neighbours(view: &NetworkView, out: &mut Text<'_>) {
    /// `ATF_COM`: its address is known.
    const COMPLETE: u32 = 2;
    out.raw(b"IP address       HW type     Flags       HW address            Mask     Device\n");
    let Some(card) = view.by_index(view.card_index()) else { return };
    for told in view.neighbours.iter().filter(|told| told.address.is_ipv4()) {
        let flags = if told.hardware_address.is_some() { COMPLETE } else { 0 };
        put!(out, "{:<16} 0x{:<10x}0x{flags:<10x}", told.address, 1);
        let [a, b, c, d, e, f] = told.hardware_address.unwrap_or_default();
        put!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}     *        {}\n", card.name);
    }
}

/// `net/route`: the table `main` of IPv4.
fn routes(view: &NetworkView, out: &mut Text<'_>) -> Result<()> {
    const UP: u32 = 1;
    const BY_ROUTER: u32 = 2;
    const TO_HOST: u32 = 4;
    let start = out.len();
    out.raw(b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT");
    end_line(out, start, UDP_COLUMNS);
    for route in view.routes(true)?.iter().filter(|route| route.kind == RouteKind::Unicast) {
        let start = out.len();
        let by_router = if route.gateway.is_some() { BY_ROUTER } else { 0 };
        let flags = UP | by_router | if route.prefix_bits == 32 { TO_HOST } else { 0 };
        let name = view.by_index(route.index).map_or("*", |interface| interface.name);
        let mask = word_v4(Some(IpAddr::V4(mask_of(route.prefix_bits))));
        put!(out, "{name}\t{:08X}\t{:08X}\t", word_v4(Some(route.destination)), word_v4(route.gateway));
        put!(out, "{flags:04X}\t0\t0\t{}\t{mask:08X}\t0\t0\t0", route.metric);
        end_line(out, start, UDP_COLUMNS);
    }
    Ok(())
}

/// `net/ipv6_route`: all tables, and the end of them, where nothing is.
fn routes_v6(view: &NetworkView, out: &mut Text<'_>) -> Result<()> {
    const UP: u32 = 1;
    const BY_ROUTER: u32 = 2;
    const OWN: u32 = 0x8020_0000;
    const NOWHERE: u32 = 0x0020_0200;
    let mut line = |destination: [u8; 16], bits: u8, gateway: [u8; 16], metric: u32, flags: u32, name: &str| {
        hex(&destination, out);
        put!(out, " {bits:02x} {:032x} 00 ", 0);
        hex(&gateway, out);
        put!(out, " {metric:08x} {:08x} {:08x} {flags:08x} {name:>8}\n", 1, 0);
    };
    let flags_of = |route: &RouteView| match (route.kind, route.gateway) {
        (RouteKind::Local, _) => UP | OWN,
        (_, Some(_)) => UP | BY_ROUTER,
        _ => UP,
    };
    for route in view.routes(false)? {
        let name = view.by_index(route.index).map_or("*", |interface| interface.name);
        let (destination, gateway) = (octets_v6(Some(route.destination)), octets_v6(route.gateway));
        line(destination, route.prefix_bits, gateway, route.metric, flags_of(&route), name);
    }
    line([0; 16], 0, [0; 16], u32::MAX, NOWHERE, "lo");
    Ok(())
}

/// `net/igmp`: each interface is in the group of all.
fn groups(view: &NetworkView, out: &mut Text<'_>) {
    out.raw(b"Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n");
    for interface in &view.interfaces {
        put!(out, "{}\t{:<10}: {:5} {:>7}\n", interface.index, interface.name, 1, "V3");
        put!(out, "\t\t\t\t{:08X} {:5} 0:{:08X}\t\t0\n", 0x0100_00e0, 1, 0);
    }
}

/// `net/igmp6`: each interface is in the groups of all, of the link and of the interface.
fn groups_v6(view: &NetworkView, out: &mut Text<'_>) {
    for interface in &view.interfaces {
        for (scope, flags) in [(2, 0xc), (1, 8)] {
            put!(out, "{:<4} {:<15} ff{scope:02x}{:028x} {:5} ", interface.index, interface.name, 1, 1);
            put!(out, "{flags:08X} 0\n");
        }
    }
}

/// `net/dev_mcast`: the groups that cards listen to.
fn device_groups(view: &NetworkView, out: &mut Text<'_>) {
    for interface in view.interfaces.iter().filter(|interface| !interface.is_loopback) {
        for group in ["333300000001", "01005e000001"] {
            put!(out, "{:<4} {:<15} {:<5} {:<5} {group}\n", interface.index, interface.name, 1, 0);
        }
    }
}

/// The sockets of a protocol and a family that have a port. They are looked at when the table is not locked any more.
fn sockets(inet: &Inet, protocol: Protocol, family: Family) -> Vec<Arc<Socket>> {
    let mut found: Vec<Arc<Socket>> = Vec::new();
    inet.for_each_socket(protocol, |socket| {
        if socket.family() == family && reserve::reserve(&mut found, 1).is_ok() {
            found.push(socket.clone());
        }
    });
    found
}

/// An address and a port: the address as words of the processor, in which it lies in the order of the network.
fn end(family: Family, address: SocketAddr, out: &mut Text<'_>) {
    let mut words = |octets: &[u8]| {
        for word in octets.chunks_exact(4) {
            put!(out, "{:08X}", u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        }
    };
    match (family, address.ip()) {
        (Family::V4, IpAddr::V4(v4)) => words(&v4.octets()),
        (Family::V4, IpAddr::V6(_)) => words(&[0; 4]),
        (Family::V6, IpAddr::V6(v6)) => words(&v6.octets()),
        (Family::V6, IpAddr::V4(v4)) => words(&v4.to_ipv6_mapped().octets()),
    }
    put!(out, ":{:04X} ", address.port());
}

/// No address of a family.
fn none(family: Family) -> SocketAddr {
    match family {
        Family::V4 => SocketAddr::from(([0; 4], 0)),
        Family::V6 => SocketAddr::from(([0; 16], 0)),
    }
}

fn tcp(inet: &Inet, family: Family, out: &mut Text<'_>) {
    let start = out.len();
    match family {
        Family::V4 => {
            out.raw(
                b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            );
            end_line(out, start, TCP_COLUMNS);
        }
        Family::V6 => {
            out.raw(b"  sl  local_address                         remote_address                        st tx_queue ");
            out.raw(b"rx_queue tr tm->when retrnsmt   uid  timeout inode\n");
        }
    }
    let mut line = 0;
    for socket in sockets(inet, Protocol::Tcp, family) {
        let state = socket.state();
        if state == TcpState::Close {
            continue;
        }
        let start = out.len();
        put!(out, "{line:4}: ");
        end(family, socket.local_shown(), out);
        end(family, socket.remote().unwrap_or(none(family)), out);
        let waiting = socket.backlog().map(|(waiting, _)| waiting);
        let readable = waiting.or(socket.readable_bytes().ok()).unwrap_or(0);
        let unsent = socket.unreceived_bytes().unwrap_or(0);
        put!(out, "{:02X} {unsent:08X}:{readable:08X} 00:00000000 00000000 ", state_number(state));
        let (timeout, window) = if waiting.is_some() { (100, "10 0") } else { (20, "10 -1") };
        put!(out, "{:5} {:8} {} 1 0000000000000000 {timeout} 0 0 {window}", socket.uid(), 0, socket.number());
        end_tcp_line(family, out, start);
        line += 1;
    }
    inet.for_each_wait(|wait| {
        if wait.local.is_ipv4() == (family == Family::V4) {
            wait_line(family, line, &wait, out);
            line += 1;
        }
    });
}

fn wait_line(family: Family, line: usize, wait: &TimeWait, out: &mut Text<'_>) {
    let start = out.len();
    put!(out, "{line:4}: ");
    end(family, wait.local, out);
    end(family, wait.remote, out);
    let state = state_number(TcpState::TimeWait);
    put!(out, "{state:02X} 00000000:00000000 03:{:08X} 00000000 ", wait.left_ns / JIFFY_NS);
    put!(out, "{:5} {:8} 0 3 0000000000000000", 0, 0);
    end_tcp_line(family, out, start);
}

/// Lines of IPv6 are as long as they are.
fn end_tcp_line(family: Family, out: &mut Text<'_>, start: usize) {
    end_line(out, start, if family == Family::V4 { TCP_COLUMNS } else { 0 });
}

/// The first line of `net/udp` and its like.
fn datagram_head(text: SystemText, family: Family, out: &mut Text<'_>) {
    let start = out.len();
    match family {
        Family::V4 => {
            let is_narrow = matches!(text, SystemText::NetRaw | SystemText::NetPing);
            out.raw(if is_narrow { b"  sl " } else { b"   sl " });
            out.raw(b" local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout ");
            out.raw(b"inode ref pointer drops");
            if text == SystemText::NetRaw {
                return out.raw(b"\n");
            }
            end_line(out, start, UDP_COLUMNS);
        }
        Family::V6 => {
            out.raw(b"  sl  local_address                         remote_address                        st tx_queue ");
            out.raw(b"rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n");
        }
    }
}

/// `net/udp`, and `net/raw` and `net/icmp`, which have the same lines. A raw socket's port is its protocol.
fn datagrams(inet: &Inet, text: SystemText, (protocol, family): (Protocol, Family), out: &mut Text<'_>) {
    datagram_head(text, family, out);
    for (line, socket) in sockets(inet, protocol, family).iter().enumerate() {
        let start = out.len();
        let mut local = socket.local_shown();
        match socket.protocol() {
            Protocol::Raw(number) => {
                put!(out, "{number:4}: ");
                local.set_port(number.into());
            }
            _ => put!(out, "{line:5}: "),
        }
        end(family, local, out);
        end(family, socket.remote().unwrap_or(none(family)), out);
        let state = state_number(socket.state());
        put!(out, "{state:02X} 00000000:{:08X} 00:00000000 00000000 ", socket.readable_bytes().unwrap_or(0));
        put!(out, "{:5} {:8} {} 2 0000000000000000 {}", socket.uid(), 0, socket.number(), socket.lost_count());
        // Those of raw sockets are as long as they are.
        let is_filled = family == Family::V4 && text != SystemText::NetRaw;
        end_line(out, start, if is_filled { UDP_COLUMNS } else { 0 });
    }
}

fn count_of(inet: &Inet, protocol: Protocol, family: Family) -> usize {
    let mut count = 0;
    inet.for_each_socket(protocol, |socket| count += usize::from(socket.family() == family));
    count
}

/// `net/sockstat`.
fn socket_counts(inet: &Inet, all: usize, out: &mut Text<'_>) {
    let (tcp, udp) = (count_of(inet, Protocol::Tcp, Family::V4), count_of(inet, Protocol::Udp, Family::V4));
    let (_, waiting) = inet.connection_counts();
    let allocated = tcp + count_of(inet, Protocol::Tcp, Family::V6);
    put!(out, "sockets: used {all}\n");
    put!(out, "TCP: inuse {tcp} orphan 0 tw {waiting} alloc {allocated} mem 0\n");
    put!(out, "UDP: inuse {udp} mem 0\nUDPLITE: inuse 0\n");
    put!(out, "RAW: inuse {}\nFRAG: inuse 0 memory 0\n", count_of(inet, Protocol::Raw(0), Family::V4));
}

/// `net/sockstat6`.
fn socket_counts_v6(inet: &Inet, out: &mut Text<'_>) {
    let (tcp, udp) = (count_of(inet, Protocol::Tcp, Family::V6), count_of(inet, Protocol::Udp, Family::V6));
    let raw = count_of(inet, Protocol::Raw(0), Family::V6);
    put!(out, "TCP6: inuse {tcp}\nUDP6: inuse {udp}\nUDPLITE6: inuse 0\n");
    put!(out, "RAW6: inuse {raw}\nFRAG6: inuse 0 memory 0\n");
}

/// `net/packet`.
fn packet(all: &[AnySocket], out: &mut Text<'_>) {
    out.raw(b"sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
    for socket in all {
        let AnySocket::Packet(socket) = socket else { continue };
        let ((protocol, interface, waiting), kind) = (socket.bound(), if socket.kind() == Kind::Raw { 3 } else { 2 });
        put!(out, "{:016x} {:<6} {kind:<4} {protocol:04x}   {interface:<5} ", 0, 3);
        put!(out, "{} {waiting:<6} {:<6} {:<6}\n", i32::from(protocol != 0), socket.uid(), socket.number());
    }
}

/// `net/netlink`.
fn netlink(all: &[AnySocket], out: &mut Text<'_>) {
    out.raw(b"sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n");
    for socket in all {
        let AnySocket::Netlink(socket) = socket else { continue };
        let (local, (waiting, lost), is_dumping) = (socket.local(), socket.waiting(), i32::from(socket.is_dumping()));
        put!(out, "{:016x} {:<3} {:<10} {:08x} ", 0, socket.protocol(), local.port, local.groups);
        put!(out, "{waiting:<8} {:<8} {is_dumping:<5} {:<8} {lost:<8} {:<8}\n", 0, 2, socket.number());
    }
}

/// `net/unix`.
fn unix(all: &[AnySocket], out: &mut Text<'_>) {
    const LISTENS: u32 = 0x1_0000;
    const UNCONNECTED: u32 = 1;
    const CONNECTED: u32 = 3;
    out.raw(b"Num       RefCount Protocol Flags    Type St Inode Path\n");
    for socket in all.iter().filter_map(AnySocket::unix) {
        let kind = match socket.kind() {
            SocketKind::Stream => 1,
            SocketKind::Datagram => 2,
            SocketKind::SeqPacket => 5,
        };
        let is_connected = socket.peer_address().is_ok();
        let (users, state) = if is_connected { (3, CONNECTED) } else { (2, UNCONNECTED) };
        let flags = if socket.is_listening() { LISTENS } else { 0 };
        put!(out, "{:016x}: {users:08X} {:08X} {flags:08X} {kind:04X} {state:02X} {:5}", 0, 0, socket.number());
        match socket.address().as_deref() {
            None => {}
            Some(Address::Path(path)) => {
                out.raw(b" ");
                out.raw(path);
            }
            Some(Address::Abstract(name)) => {
                out.raw(b" @");
                name.iter().for_each(|byte| out.raw(&[if *byte == 0 { b'@' } else { *byte }]));
            }
        }
        out.raw(b"\n");
    }
}
