//! `/proc/net`: interfaces, sockets and connections, and what is fixed of them below `sys/net`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use exos::fs::proc_fs::SystemText;
use exos::net::inet::interface::INTERFACES;
use exos::net::inet::{Family, Inet, Protocol, Socket, TcpState, TimeWait};
use exos::reserve;

use super::text::{Text, put};
use crate::call::inet_option::state_number;

/// Columns of a line of `tcp` and of `udp`.
const TCP_COLUMNS: usize = 149;
const UDP_COLUMNS: usize = 127;
/// Nanoseconds of a jiffy as programs see it.
const JIFFY_NS: u64 = 10_000_000;

/// One of the texts.
pub(super) fn append(inet: &Inet, text: SystemText, out: &mut Text<'_>) {
    match text {
        SystemText::NetDevices => devices(out),
        SystemText::NetAddresses6 => addresses_v6(out),
        SystemText::NetRoutes => {
            let start = out.len();
            out.raw(b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT");
            end_line(out, start, UDP_COLUMNS);
        }
        SystemText::NetSocketCounts => socket_counts(inet, out),
        SystemText::NetTcp => tcp(inet, Family::V4, out),
        SystemText::NetTcp6 => tcp(inet, Family::V6, out),
        SystemText::NetUdp => udp(inet, Family::V4, out),
        SystemText::NetUdp6 => udp(inet, Family::V6, out),
        _ => {}
    }
}

fn end_line(out: &mut Text<'_>, start: usize, columns: usize) {
    out.pad_to(start, columns);
    out.raw(b"\n");
}

/// `net/dev`: what goes over loopback is not counted, as there are no packets.
fn devices(out: &mut Text<'_>) {
    out.raw(b"Inter-|   Receive                                                |  Transmit\n");
    out.raw(b" face |bytes    packets errs drop fifo frame compressed multicast");
    out.raw(b"|bytes    packets errs drop fifo colls carrier compressed\n");
    for interface in INTERFACES {
        put!(out, "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9}", interface.name, 0, 0, 0, 0, 0, 0, 0, 0);
        put!(out, " {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}\n", 0, 0, 0, 0, 0, 0, 0, 0);
    }
}

/// `net/if_inet6`.
fn addresses_v6(out: &mut Text<'_>) {
    /// `RT_SCOPE_HOST` and `IFA_F_PERMANENT` as they are told here.
    const SCOPE_HOST: u32 = 0x10;
    const PERMANENT: u32 = 0x80;
    for interface in INTERFACES {
        for own in interface.addresses {
            let IpAddr::V6(address) = own.address else { continue };
            address.octets().iter().for_each(|byte| put!(out, "{byte:02x}"));
            let (index, bits) = (interface.index, own.prefix_bits);
            put!(out, " {index:02x} {bits:02x} {SCOPE_HOST:02x} {PERMANENT:02x} {:>8}\n", interface.name);
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

fn udp(inet: &Inet, family: Family, out: &mut Text<'_>) {
    let start = out.len();
    match family {
        Family::V4 => {
            out.raw(b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout ");
            out.raw(b"inode ref pointer drops");
            end_line(out, start, UDP_COLUMNS);
        }
        Family::V6 => {
            out.raw(b"  sl  local_address                         remote_address                        st tx_queue ");
            out.raw(b"rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n");
        }
    }
    for (line, socket) in sockets(inet, Protocol::Udp, family).iter().enumerate() {
        let start = out.len();
        put!(out, "{line:5}: ");
        end(family, socket.local_shown(), out);
        end(family, socket.remote().unwrap_or(none(family)), out);
        let state = state_number(socket.state());
        put!(out, "{state:02X} 00000000:{:08X} 00:00000000 00000000 ", socket.readable_bytes().unwrap_or(0));
        put!(out, "{:5} {:8} {} 2 0000000000000000 {}", socket.uid(), 0, socket.number(), socket.lost_count());
        end_line(out, start, if family == Family::V4 { UDP_COLUMNS } else { 0 });
    }
}

/// `net/sockstat`.
fn socket_counts(inet: &Inet, out: &mut Text<'_>) {
    let count = |protocol| {
        let mut count = 0;
        inet.for_each_socket(protocol, |_| count += 1);
        count
    };
    let (tcp, udp) = (count(Protocol::Tcp), count(Protocol::Udp));
    let (_, waiting) = inet.connection_counts();
    put!(out, "sockets: used {}\n", tcp + udp);
    put!(out, "TCP: inuse {tcp} orphan 0 tw {waiting} alloc {tcp} mem 0\n");
    put!(out, "UDP: inuse {udp} mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n");
}

/// What is always the same below `sys/net`.
pub(super) fn fixed(text: SystemText) -> Option<&'static [u8]> {
    Some(match text {
        SystemText::SomaxConn => b"4096\n",
        SystemText::NetReceiveMax | SystemText::NetSendMax => b"212992\n",
        SystemText::NetPortRange => b"32768\t60999\n",
        SystemText::NetTcpReceive => b"4096\t131072\t425984\n",
        SystemText::NetTcpSend => b"4096\t16384\t425984\n",
        SystemText::NetCongestions => b"reno cubic\n",
        SystemText::NetNoIpv6 => b"0\n",
        _ => return None,
    })
}
