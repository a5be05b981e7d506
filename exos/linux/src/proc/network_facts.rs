//! What netlink is told: the network, and which sockets there are.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::net::AnySocket;
use exos::net::inet::stack::Alteration;
use exos::net::inet::{Family, Protocol, Socket, TcpState};
use exos::net::netlink::change::Change;
use exos::net::netlink::diagnosis::{Provider, SocketKindStatus, SocketStatus, Wanted};
use exos::net::unix::address::Address;
use exos::net::unix::{self, SocketKind};
use exos::net::view::NetworkView;
use exos::reserve;

use super::ProcFacts;
use super::socket_list::sockets;
use crate::abi::errno;
use crate::call::inet_option::{information, state_number};

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// States of local sockets, as those of TCP are numbered.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
const LISTENING: u8 = 10;

impl Provider for ProcFacts {
    fn view(&self) -> Result<NetworkView> {
        NetworkView::of(&self.system()?.files.inet)
    }

    fn sockets(&self, wanted: Wanted) -> Result<Vec<SocketStatus>> {
        match wanted {
            Wanted::Unix => self.unix_sockets(),
            Wanted::Inet { is_v6, protocol } => {
                let family = if is_v6 { Family::V6 } else { Family::V4 };
                self.inet_sockets(family, if protocol == TCP { Protocol::Tcp } else { Protocol::Udp })
            }
        }
    }

    fn change(&self, change: Change) -> Result<()> {
        let alteration = match change {
            Change::Nothing => return Ok(()),
            Change::AddAddress(own) => Alteration::AddAddress(own),
            Change::RemoveAddress(address) => Alteration::RemoveAddress(address),
            Change::AddRoute(route) => Alteration::AddRoute(route.network, route.gateway),
            Change::RemoveRoute(route) => Alteration::RemoveRoute(route.network, route.gateway),
            Change::SetUp(is_up) => Alteration::SetUp(is_up),
        };
        self.system()?.files.inet.stack().change(alteration)
    }

    fn number(&self) -> fn(Errno) -> u32 {
        errno::number
    }
}

impl ProcFacts {
    fn unix_sockets(&self) -> Result<Vec<SocketStatus>> {
        let mut all = Vec::new();
        for socket in sockets(&self.listing.members())?.iter().filter_map(AnySocket::unix) {
            reserve::reserve(&mut all, 1)?;
            all.push(unix_status(socket));
        }
        Ok(all)
    }

    fn inet_sockets(&self, family: Family, protocol: Protocol) -> Result<Vec<SocketStatus>> {
        let system = self.system()?;
        let mut found: Vec<Arc<Socket>> = Vec::new();
        let mut outcome = Ok(());
        system.files.inet.for_each_socket(protocol, |socket| {
            if socket.family() == family && outcome.is_ok() {
                outcome = reserve::reserve(&mut found, 1);
                if outcome.is_ok() {
                    found.push(socket.clone());
                }
            }
        });
        outcome?;
        let mut all = Vec::new();
        for socket in &found {
            let state = socket.state();
            if protocol == Protocol::Tcp && state == TcpState::Close {
                continue;
            }
            reserve::reserve(&mut all, 1)?;
            all.push(inet_status(socket));
        }
        if protocol == Protocol::Tcp {
            system.files.inet.for_each_wait(|wait| {
                if wait.local.is_ipv4() == (family == Family::V4) && reserve::reserve(&mut all, 1).is_ok() {
                    all.push(wait_status(&wait));
                }
            });
        }
        Ok(all)
    }
}

fn unix_status(socket: &Arc<unix::Socket>) -> SocketStatus {
    let name = match socket.address().as_deref() {
        None => Vec::new(),
        Some(Address::Path(path)) => path.clone(),
        Some(Address::Abstract(name)) => [&[0], &name[..]].concat(),
    };
    let kind = match socket.kind() {
        SocketKind::Stream => 1,
        SocketKind::Datagram => 2,
        SocketKind::SeqPacket => 5,
    };
    let state = match (socket.is_listening(), socket.peer_address().is_ok()) {
        (true, _) => LISTENING,
        (false, true) => ESTABLISHED,
        (false, false) => CLOSED,
    };
    SocketStatus {
        state,
        number: socket.number(),
        uid: 0,
        receive_count: socket.readable_bytes().unwrap_or(0) as u32,
        send_count: socket.unreceived_bytes() as u32,
        kind: SocketKindStatus::Unix { kind, name, peer: None, shut: 0 },
    }
}

fn inet_status(socket: &Arc<Socket>) -> SocketStatus {
    let backlog = socket.backlog();
    let receive_count = backlog.map(|backlog| backlog.0).or(socket.readable_bytes().ok()).unwrap_or(0);
    let send_count = backlog.map(|backlog| backlog.1).or(socket.unreceived_bytes().ok()).unwrap_or(0);
    let is_tcp = socket.protocol() == Protocol::Tcp;
    SocketStatus {
        state: state_number(socket.state()),
        number: socket.number(),
        uid: socket.uid(),
        receive_count: receive_count as u32,
        send_count: send_count as u32,
        kind: SocketKindStatus::Inet {
            local: socket.local_shown(),
            remote: socket.remote().ok(),
            interface: socket.bound_interface(),
            is_v6_only: socket.is_v6_only(),
            left_cs: None,
            buffer_bytes: [socket.receive_buffer_bytes() as u32, socket.send_buffer_bytes() as u32],
            information: if is_tcp { information(socket) } else { Vec::new() },
        },
    }
}

fn wait_status(wait: &exos::net::inet::TimeWait) -> SocketStatus {
    const CENTISECOND_NS: u64 = 10_000_000;
    SocketStatus {
        state: state_number(TcpState::TimeWait),
        number: 0,
        uid: 0,
        receive_count: 0,
        send_count: 0,
        kind: SocketKindStatus::Inet {
            local: wait.local,
            remote: Some(wait.remote),
            interface: 0,
            is_v6_only: false,
            left_cs: Some((wait.left_ns / CENTISECOND_NS) as u32),
            buffer_bytes: [0; 2],
            information: Vec::new(),
        },
    }
}
