//! Netlink sockets as programs use them: ports, requests and what is received.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::change::Change;
use super::super::diagnosis::{Provider, SocketKindStatus, SocketStatus, Wanted};
use super::super::message::Writer;
use super::{Address, Netlink, Sender, Socket, protocol, switch};
use crate::error::{Errno, Result};
use crate::fs::readiness::Readiness;
use crate::fs::transfer::Destination;
use crate::net::view::NetworkView;
use crate::net::view::tests::pod;

struct Buffer {
    room: usize,
    taken: Vec<u8>,
}

impl Destination for Buffer {
    fn remaining(&self) -> usize {
        self.room - self.taken.len()
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        self.taken.extend_from_slice(bytes);
        bytes.len()
    }
}

struct Known;

impl Provider for Known {
    fn view(&self) -> Result<NetworkView> {
        Ok(pod())
    }

    fn sockets(&self, _: Wanted) -> Result<Vec<SocketStatus>> {
        let socket = |port: u16| SocketStatus {
            state: 10,
            number: u64::from(port) + 100,
            uid: 5,
            receive_count: 0,
            send_count: 128,
            kind: SocketKindStatus::Inet {
                local: ([127, 0, 0, 1], port).into(),
                remote: None,
                interface: 0,
                is_v6_only: false,
                left_cs: None,
                buffer_bytes: [131_072, 16_384],
                information: vec![0; 232],
            },
        };
        Ok((1..=300).map(socket).collect())
    }

    fn change(&self, _: Change) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn number(&self) -> fn(Errno) -> u32 {
        |error| if error == Errno::EBUSY { 16 } else { 22 }
    }
}

const PROGRAM: Sender = Sender { process: 42, can_administer: false };

fn netlink() -> Arc<Netlink> {
    Netlink::new(Arc::new(Known))
}

fn socket(netlink: &Arc<Netlink>, protocol: u8) -> Arc<Socket> {
    Socket::new(netlink, protocol, true, 9)
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Writer::new();
    let begin = out.begin(kind, flags, 7, 0);
    out.raw(body);
    out.end(begin);
    out.finish().expect("memory")
}

fn receive(socket: &Socket, room: usize, is_peek: bool) -> Result<(Vec<u8>, usize)> {
    let mut buffer = Buffer { room, taken: Vec::new() };
    let received = socket.receive(&mut buffer, is_peek)?;
    Ok((buffer.taken, received.message_bytes))
}

#[test]
fn the_first_socket_has_the_process_as_its_port_and_others_less_than_nothing() {
    let netlink = netlink();
    let all: Vec<_> = (0..3).map(|_| socket(&netlink, protocol::ROUTE)).collect();
    all.iter().for_each(|socket| socket.bind(Address::default(), 42).expect("a port"));
    let ports: Vec<i32> = all.iter().map(|socket| socket.local().port as i32).collect();
    assert_eq!(ports, [42, -4097, -4098]);
    let other = socket(&netlink, protocol::ROUTE);
    assert_eq!(other.bind(Address { port: 42, groups: 0 }, 42), Err(Errno::EADDRINUSE));
    assert_eq!(other.bind(Address { port: 43, groups: 1 }, 42), Ok(()));
    assert_eq!(other.local(), Address { port: 43, groups: 1 });
    assert_eq!(other.bind(Address::default(), 42), Err(Errno::EINVAL), "it has another");
    all[0].close();
    let next = socket(&netlink, protocol::ROUTE);
    next.bind(Address::default(), 42).expect("a port");
    assert_eq!(next.local().port, 42);
    assert_eq!(socket(&netlink, protocol::DIAGNOSIS).bind(Address { port: 42, groups: 0 }, 1), Ok(()));
}

#[test]
fn a_dump_comes_in_pieces_and_ends_alone() {
    let socket = socket(&netlink(), protocol::ROUTE);
    socket.send(request(18, 0x301, &[0]), None, PROGRAM).expect("sent");
    assert_eq!(socket.readiness(), Readiness::WRITE | Readiness::READ);
    let (_, whole) = receive(&socket, 0, true).expect("peeked");
    assert!(whole > 1000);
    let (links, told) = receive(&socket, 32_768, false).expect("links");
    assert_eq!((links.len(), told), (whole, whole));
    assert_eq!(links[12..16], 42_u32.to_le_bytes());
    let (end, _) = receive(&socket, 32_768, false).expect("an end");
    assert_eq!((end.len(), end[4]), (20, 3));
    assert_eq!(receive(&socket, 10, false), Err(Errno::EAGAIN));
    assert_eq!(socket.readiness(), Readiness::WRITE);
}

#[test]
fn pieces_are_as_large_as_the_buffer_that_it_is_read_with() {
    let socket = socket(&netlink(), protocol::DIAGNOSIS);
    let mut body = vec![2, 6, 0, 0];
    body.extend(u32::MAX.to_le_bytes());
    body.resize(56, 0);
    socket.send(request(20, 0x301, &body), None, PROGRAM).expect("sent");
    let busy = request(20, 0x301, &body);
    socket.send(busy, None, PROGRAM).expect("sent");
    let first = receive(&socket, 16_384, false).expect("some").0;
    assert!((3000..=3776).contains(&first.len()), "{}", first.len());
    let refused = receive(&socket, 16_384, false).expect("a refusal").0;
    assert_eq!((refused[4], refused[16]), (2, 240), "busy");
    let mut count = first.len();
    loop {
        let piece = receive(&socket, 16_384, false).expect("some").0;
        if piece[4] == 3 {
            break;
        }
        assert!(piece.len() <= 16_384);
        count += piece.len();
    }
    assert_eq!(count, 300 * 96);
}

#[test]
fn answers_that_nobody_reads_are_lost_once_there_is_no_room() {
    let socket = socket(&netlink(), protocol::ROUTE);
    socket.buffer_sizes().set_receive_bytes(5000);
    for _ in 0..20 {
        socket.send(request(18, 5, &[0; 16]), None, PROGRAM).expect("sent");
    }
    assert_eq!(receive(&socket, 100, false), Err(Errno::ENOBUFS));
    assert!(receive(&socket, 100, false).is_ok());
    socket.set_on(switch::NO_OVERRUN, true);
    for _ in 0..40 {
        socket.send(request(18, 5, &[0; 16]), None, PROGRAM).expect("sent");
    }
    assert!(receive(&socket, 100, false).is_ok());
}

#[test]
fn programs_speak_with_each_other_where_they_may() {
    let netlink = netlink();
    let (one, two) = (socket(&netlink, protocol::USER), socket(&netlink, protocol::USER));
    two.bind(Address { port: 7, groups: 0 }, 42).expect("a port");
    assert_eq!(one.send(b"hello".to_vec(), Some(Address { port: 7, groups: 0 }), PROGRAM), Ok(5));
    assert_eq!(receive(&two, 3, false), Ok((b"hel".to_vec(), 5)));
    assert_eq!(one.send(b"x".to_vec(), Some(Address { port: 8, groups: 0 }), PROGRAM), Err(Errno::ECONNREFUSED));
    assert_eq!(one.send(b"x".to_vec(), None, PROGRAM), Err(Errno::ECONNREFUSED));
    assert_eq!(one.send(Vec::new(), None, PROGRAM), Err(Errno::ENODATA));
    let route = socket(&netlink, protocol::ROUTE);
    assert_eq!(route.send(b"x".to_vec(), Some(Address { port: 7, groups: 0 }), PROGRAM), Err(Errno::EPERM));
}

proptest! {
    #[test]
    fn any_bytes_may_be_sent(
        protocol in proptest::sample::select(&protocol::ALL[..]),
        pieces in proptest::collection::vec(
            (0u16..130, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..70)), 1..6),
        noise in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let socket = socket(&netlink(), protocol);
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|(kind, flags, body)| request(*kind, *flags, body)).collect();
        bytes.extend(noise);
        let sender = Sender { can_administer: true, ..PROGRAM };
        let _ = socket.send(bytes, None, sender);
        let mut count = 0;
        while receive(&socket, 4096, false).is_ok() {
            count += 1;
            prop_assert!(count < 1000);
        }
    }
}
