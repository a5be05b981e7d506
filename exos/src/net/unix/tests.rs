//! Sockets: connections, names, messages, descriptors on the way, ends and errors.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flight::Rights;
use super::{Identity, Received, Sending, Socket, SocketKind, UnixDomain, Wants};
use crate::error::{Errno, Result};
use crate::fs::description::{Description, StatusFlags};
use crate::fs::permission::Owner;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::{Buffer, SliceDestination};
use crate::fs::{TEST_NOW as NOW, TestWorld as World};
use crate::net::{AnySocket, Halves, SocketFile};
use crate::reserve::{Level, set_level};

pub(super) const ME: Identity = Identity { pid: 7, uid: 1, gid: 2 };
const LISTENER: Identity = Identity { pid: 8, uid: 3, gid: 4 };
const BOTH: Halves = Halves { receiving: true, sending: true };
const SENDING: Halves = Halves { receiving: false, sending: true };
const RECEIVING: Halves = Halves { receiving: true, sending: false };

/// A socket that closes when this goes, as with its file.
struct End(Arc<Socket>);

impl End {
    fn socket(&self) -> &Arc<Socket> {
        &self.0
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A pair with its files, which close the sockets when they go.
fn pair(kind: SocketKind) -> [End; 2] {
    Socket::pair(&Arc::default(), kind, [1, 2], ME).map(End)
}

pub(super) fn send(socket: &Socket, bytes: &[u8]) -> Result<usize> {
    socket.send(&mut &bytes[..], &mut Sending { identity: Some(ME), ..Sending::default() })
}

fn receive_with(socket: &Socket, length: usize, wants: &mut Wants) -> Result<(Vec<u8>, Received)> {
    let mut buffer = Buffer::with_limit(length);
    let mut received = socket.receive(&mut buffer, wants)?;
    let (identity, rights) = wants.take_gathered();
    received.identity = received.identity.or(identity);
    received.rights = received.rights.take().or(rights);
    Ok((buffer.bytes, received))
}

pub(super) fn receive(socket: &Socket, length: usize) -> Result<Vec<u8>> {
    receive_with(socket, length, &mut Wants::default()).map(|(bytes, _)| bytes)
}

fn send_nofault(socket: &Socket, bytes: &[u8]) -> Option<usize> {
    socket.send_nofault(&mut &bytes[..])
}

fn receive_nofault(socket: &Socket, length: usize) -> Option<Result<Vec<u8>>> {
    let mut bytes = alloc::vec![0; length];
    let outcome = socket.receive_nofault(&mut SliceDestination::new(&mut bytes))?;
    Some(outcome.map(|count| bytes[..count].to_vec()))
}

#[test]
fn one_copy_does_where_nothing_is_special() {
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    assert_eq!(receive_nofault(right, 4), Some(Err(Errno::EAGAIN)));
    assert_eq!((send_nofault(left, b"one"), send(left, b"two")), (Some(3), Ok(3)));
    assert_eq!(
        (receive_nofault(right, 4), receive_nofault(right, 9)),
        (Some(Ok(b"onet".to_vec())), Some(Ok(b"wo".to_vec())))
    );
    assert_eq!((send_nofault(left, b""), receive_nofault(right, 0)), (None, None));
    // More than there is room for is sent in parts.
    left.set_send_buffer_bytes(0);
    let limit = left.send_buffer_bytes();
    let many = alloc::vec![7; limit];
    assert_eq!((send_nofault(left, &many), send_nofault(left, b"1")), (Some(limit), None));
    let told = left.endpoint.queue.told_count();
    assert_eq!(receive_nofault(right, limit), Some(Ok(many)));
    // A waiter for room is told.
    assert_eq!((left.endpoint.queue.told_count(), left.unreceived_bytes()), (told + 1, 0));
}

#[test]
fn one_copy_does_not_where_something_is() {
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    // A sender that the receiver wants to know.
    right.set_wants_identity(true);
    assert_eq!((send_nofault(left, b"1"), send(left, b"12")), (None, Ok(2)));
    assert_eq!(receive_nofault(right, 2), None);
    right.set_wants_identity(false);
    // Bytes of several senders.
    assert_eq!(send_nofault(left, b"3"), Some(1));
    assert_eq!((receive_nofault(right, 3), receive_nofault(right, 2)), (None, Some(Ok(b"12".to_vec()))));
    assert_eq!(receive_nofault(right, 2), Some(Ok(b"3".to_vec())));
    // The end, and what nobody receives any more.
    left.shutdown(SENDING);
    assert_eq!((receive_nofault(right, 1), send_nofault(left, b"1")), (None, None));
    assert_eq!((receive(right, 1), send(left, b"1")), (Ok(Vec::new()), Err(Errno::EPIPE)));
    let [left, right] = pair(SocketKind::SeqPacket);
    assert_eq!((send_nofault(left.socket(), b"1"), receive_nofault(right.socket(), 1)), (None, None));
}

#[test]
fn a_stream_has_no_borders_and_messages_have() {
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    assert_eq!((send(left, b"one"), send(left, b"two")), (Ok(3), Ok(3)));
    assert_eq!((receive(right, 4), receive(right, 9)), (Ok(b"onet".to_vec()), Ok(b"wo".to_vec())));
    assert_eq!(receive(right, 1), Err(Errno::EAGAIN));
    for kind in [SocketKind::Datagram, SocketKind::SeqPacket] {
        let [left, right] = pair(kind);
        let (left, right) = (left.socket(), right.socket());
        assert_eq!((send(left, b"one"), send(left, b""), send(left, b"two")), (Ok(3), Ok(0), Ok(3)));
        assert_eq!(right.readable_bytes(), Ok(if kind == SocketKind::Datagram { 3 } else { 6 }));
        let (bytes, received) = receive_with(right, 2, &mut Wants::new(true)).unwrap();
        assert_eq!((bytes, received.message_bytes), (b"on".to_vec(), 3));
        let (bytes, received) = receive_with(right, 2, &mut Wants::default()).unwrap();
        assert_eq!((bytes, received.message_bytes), (b"on".to_vec(), 3));
        assert_eq!((receive(right, 9), receive(right, 9)), (Ok(Vec::new()), Ok(b"two".to_vec())));
        assert_eq!(receive(right, 1), Err(Errno::EAGAIN));
    }
}

#[test]
fn the_senders_buffer_is_the_limit() {
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    left.set_send_buffer_bytes(5000);
    assert_eq!(left.send_buffer_bytes(), 10_000);
    assert_eq!(send(left, &[1; 20_000]), Ok(10_000));
    assert_eq!(send(left, b"x"), Err(Errno::EAGAIN));
    assert_eq!(left.readiness(), Readiness::empty());
    assert_eq!(left.unreceived_bytes(), 10_000);
    assert_eq!(receive(right, 7_499).map(|bytes| bytes.len()), Ok(7_499));
    assert!(!left.readiness().contains(Readiness::WRITE), "a quarter is still on the way");
    assert_eq!(receive(right, 1).map(|bytes| bytes.len()), Ok(1));
    assert!(left.readiness().contains(Readiness::WRITE));
    let [left, right] = pair(SocketKind::Datagram);
    let (left, right) = (left.socket(), right.socket());
    assert_eq!(send(left, &[0; 212_961]), Err(Errno::EMSGSIZE));
    let mut count = 0;
    while send(left, b"x").is_ok() {
        count += 1;
    }
    assert_eq!(count, 277, "as many as Linux's overhead lets through, one more or less");
    receive(right, 1).unwrap();
    assert_eq!(send(left, b"x"), Ok(1));
}

#[test]
fn closing_ends_the_other_side_and_unread_bytes_reset_it() {
    let [left, right] = pair(SocketKind::Stream);
    send(left.socket(), b"last").unwrap();
    drop(left);
    let right = right.socket();
    let all = Readiness::ALWAYS | Readiness::HANG_UP | Readiness::READ_HANG_UP;
    assert_eq!(right.readiness(), all);
    assert_eq!(send(right, b"x"), Err(Errno::EPIPE));
    assert_eq!((receive(right, 9), receive(right, 9)), (Ok(b"last".to_vec()), Ok(Vec::new())));
    for kind in [SocketKind::Stream, SocketKind::SeqPacket] {
        let [left, right] = pair(kind);
        send(right.socket(), b"unread").unwrap();
        send(left.socket(), b"read").unwrap();
        drop(left);
        assert_eq!(right.socket().readiness(), all | Readiness::ERROR);
        assert_eq!(receive(right.socket(), 4), Ok(b"read".to_vec()));
        assert_eq!(receive(right.socket(), 4), Err(Errno::ECONNRESET));
        assert_eq!(receive(right.socket(), 4), Ok(Vec::new()));
        assert_eq!(send(right.socket(), b"x"), Err(Errno::EPIPE));
    }
    let [left, right] = pair(SocketKind::Datagram);
    drop(left);
    assert_eq!(send(right.socket(), b"x"), Err(Errno::ECONNREFUSED));
    assert_eq!(send(right.socket(), b"x"), Err(Errno::ENOTCONN));
}

#[test]
fn halves_end_apart() {
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    send(left, b"a").unwrap();
    left.shutdown(SENDING);
    assert_eq!(send(left, b"b"), Err(Errno::EPIPE));
    assert_eq!(right.readiness(), Readiness::ALWAYS | Readiness::READ_HANG_UP);
    assert_eq!(left.readiness(), Readiness::WRITE, "what was sent is still on the way");
    assert_eq!((receive(right, 9), receive(right, 9)), (Ok(b"a".to_vec()), Ok(Vec::new())));
    assert_eq!((send(right, b"c"), receive(left, 9)), (Ok(1), Ok(b"c".to_vec())));
    left.shutdown(RECEIVING);
    assert_eq!(send(right, b"d"), Err(Errno::EPIPE));
    assert!(left.readiness().contains(Readiness::HANG_UP) && right.readiness().contains(Readiness::HANG_UP));
    let alone = Socket::new(&Arc::default(), SocketKind::Stream, 1);
    assert_eq!(alone.readiness(), Readiness::WRITE | Readiness::HANG_UP);
    alone.shutdown(BOTH);
    assert!(alone.readiness().contains(Readiness::READ | Readiness::READ_HANG_UP));
    assert_eq!((send(&alone, b"x"), receive(&alone, 1)), (Err(Errno::ENOTCONN), Err(Errno::EINVAL)));
}

#[test]
fn a_listener_gives_connections_in_order_and_has_a_backlog() {
    let domain = Arc::default();
    let listener = Socket::new(&domain, SocketKind::Stream, 1);
    let client = |number| Socket::new(&domain, SocketKind::Stream, number);
    assert_eq!(listener.listen(1, LISTENER), Err(Errno::EINVAL));
    listener.bind_abstract(Some(b"name".to_vec())).unwrap();
    assert_eq!(listener.bind_abstract(Some(b"other".to_vec())), Err(Errno::EINVAL));
    let found = domain.find_abstract(SocketKind::Stream, b"name").unwrap();
    assert_eq!(client(2).connect(&found, 3, ME), Err(Errno::ECONNREFUSED));
    assert_eq!(listener.accept().err(), Some(Errno::EINVAL));
    listener.listen(1, LISTENER).unwrap();
    assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
    assert_eq!(listener.readiness(), Readiness::empty());
    let clients: Vec<_> = (0..3).map(|index| client(10 + index)).collect();
    assert_eq!(clients[0].connect(&found, 20, ME), Ok(()));
    assert_eq!(clients[1].connect(&found, 21, ME), Ok(()));
    assert_eq!(clients[2].connect(&found, 22, ME), Err(Errno::EAGAIN));
    assert_eq!(clients[0].connect(&found, 23, ME), Err(Errno::EAGAIN), "no place is told first, as on Linux");
    assert_eq!(listener.readiness(), Readiness::READ);
    send(&clients[0], b"early").unwrap();
    let accepted = listener.accept().unwrap();
    assert_eq!(receive(&accepted, 9), Ok(b"early".to_vec()));
    assert_eq!((accepted.peer_identity(), clients[0].peer_identity()), (Some(ME), Some(LISTENER)));
    assert_eq!(clients[0].connect(&found, 23, ME), Err(Errno::EISCONN));
    assert_eq!(clients[0].peer_address().unwrap(), listener.address());
    assert_eq!(clients[2].connect(&found, 22, ME), Ok(()));
    let wrong = Socket::new(&domain, SocketKind::SeqPacket, 30);
    assert_eq!(wrong.connect(&found, 31, ME), Err(Errno::EPROTOTYPE));
    listener.close();
    assert_eq!(receive(&clients[2], 1), Err(Errno::ECONNRESET));
    assert!(domain.find_abstract(SocketKind::Stream, b"name").is_none());
    assert_eq!(send(&clients[0], b"still there"), Ok(11));
}

#[test]
fn names_are_taken_once_and_automatic_ones_differ() {
    let domain = Arc::default();
    let [first, second, third] = [1, 2, 3].map(|number| Socket::new(&domain, SocketKind::Datagram, number));
    first.bind_abstract(Some(b"a".to_vec())).unwrap();
    assert_eq!(second.bind_abstract(Some(b"a".to_vec())), Err(Errno::EADDRINUSE));
    second.bind_abstract(None).unwrap();
    third.bind_abstract(None).unwrap();
    assert!(second.address() != third.address() && second.address().is_some());
    first.close();
    let again = Socket::new(&domain, SocketKind::Datagram, 4);
    assert_eq!(again.bind_abstract(Some(b"a".to_vec())), Ok(()));
}

#[test]
fn datagrams_find_their_receiver_and_a_slow_one_stops_strangers() {
    let domain: Arc<UnixDomain> = Arc::default();
    let [server, client, other] = [1, 2, 3].map(|number| Socket::new(&domain, SocketKind::Datagram, number));
    server.bind_abstract(Some(b"server".to_vec())).unwrap();
    client.bind_abstract(Some(b"client".to_vec())).unwrap();
    let sending = || Sending { target: Some(&server), ..Sending::default() };
    assert_eq!(client.send(&mut &b"hello"[..], &mut sending()), Ok(5));
    let (bytes, received) = receive_with(&server, 9, &mut Wants::default()).unwrap();
    assert_eq!((bytes, received.from), (b"hello".to_vec(), client.address()));
    let mut count = 0;
    while client.send(&mut &b"x"[..], &mut sending()).is_ok() {
        count += 1;
    }
    assert_eq!(count, 11);
    client.connect_datagram(Some(&server)).unwrap();
    assert!(!client.readiness().contains(Readiness::WRITE));
    receive(&server, 1).unwrap();
    assert!(client.readiness().contains(Readiness::WRITE));
    server.connect_datagram(Some(&client)).unwrap();
    assert_eq!(other.send(&mut &b"x"[..], &mut sending()), Err(Errno::EPERM));
    assert_eq!(other.connect_datagram(Some(&server)), Err(Errno::EPERM));
    server.connect_datagram(None).unwrap();
    assert_eq!(client.take_error(), Some(Errno::ECONNRESET), "what was on the way is lost");
}

#[test]
fn bytes_of_different_senders_are_kept_apart_only_if_asked() {
    let other = Identity { pid: 9, ..ME };
    let send_as = |socket: &Socket, bytes: &[u8], identity| {
        socket.send(&mut &bytes[..], &mut Sending { identity: Some(identity), ..Sending::default() }).unwrap();
    };
    let [left, right] = pair(SocketKind::Stream);
    let (left, right) = (left.socket(), right.socket());
    send_as(left, b"a", ME);
    right.set_wants_identity(true);
    send_as(left, b"b", ME);
    send_as(left, b"c", other);
    let (bytes, received) = receive_with(right, 9, &mut Wants::default()).unwrap();
    assert_eq!((bytes, received.identity), (b"a".to_vec(), None), "sent before anybody asked");
    let (bytes, received) = receive_with(right, 9, &mut Wants::default()).unwrap();
    assert_eq!((bytes, received.identity), (b"b".to_vec(), Some(ME)));
    send_as(left, b"d", ME);
    right.set_wants_identity(false);
    assert_eq!(receive(right, 9), Ok(b"cd".to_vec()));
}

/// Sockets as a program has them.
struct Sockets {
    world: World,
    domain: Arc<UnixDomain>,
}

impl Sockets {
    fn new() -> Self {
        Self { world: World::tmpfs(), domain: Arc::default() }
    }

    fn pair(&self, kind: SocketKind) -> [Arc<Description>; 2] {
        let numbers = [self.world.namespace.number(), self.world.namespace.number()];
        let sockets = Socket::pair(&self.domain, kind, numbers, ME);
        sockets.map(|socket| {
            let number = socket.endpoint.number;
            self.world.namespace.socket(
                number,
                SocketFile::new(AnySocket::Unix(socket)),
                StatusFlags::empty(),
                Owner::default(),
                NOW,
            )
        })
    }

    fn pass(&self, through: &Description, bytes: &[u8], what: &[&Arc<Description>]) -> Result<usize> {
        let what = what.iter().map(|description| (*description).clone()).collect();
        let rights = Some(Rights::new(&self.domain, what)?);
        socket_of(through).send(&mut &bytes[..], &mut Sending { rights, ..Sending::default() })
    }
}

fn socket_of(description: &Description) -> &Arc<Socket> {
    SocketFile::unix_of(description).unwrap()
}

#[test]
fn descriptions_travel_with_their_bytes() {
    let sockets = Sockets::new();
    for kind in [SocketKind::Stream, SocketKind::Datagram] {
        let [left, right] = sockets.pair(kind);
        let carried = sockets.world.create("/f");
        let weak_carried = Arc::downgrade(&carried);
        sockets.pass(&left, b"ab", &[&carried]).unwrap();
        send(socket_of(&left), b"cd").unwrap();
        drop(carried);
        assert!(weak_carried.upgrade().is_some(), "it is on the way");
        let (bytes, received) = receive_with(socket_of(&right), 9, &mut Wants::new(true)).unwrap();
        assert_eq!((bytes, received.rights.unwrap().descriptions().len()), (b"ab".to_vec(), 1));
        let (bytes, received) = receive_with(socket_of(&right), 9, &mut Wants::default()).unwrap();
        assert_eq!(bytes, b"ab");
        assert_eq!(received.rights.unwrap().descriptions()[0].number(), weak_carried.upgrade().unwrap().number());
        assert!(weak_carried.upgrade().is_none());
        let (bytes, received) = receive_with(socket_of(&right), 9, &mut Wants::default()).unwrap();
        assert_eq!((bytes, received.rights.is_none()), (b"cd".to_vec(), true));
    }
    assert_eq!(sockets.domain.in_flight_count(), 0);
}

#[test]
fn a_stream_joins_what_came_before_the_rights_but_nothing_behind_them() {
    let sockets = Sockets::new();
    let [left, right] = sockets.pair(SocketKind::Stream);
    let file = sockets.world.create("/f");
    send(socket_of(&left), b"before").unwrap();
    sockets.pass(&left, b"with", &[&file]).unwrap();
    send(socket_of(&left), b"behind").unwrap();
    let (bytes, received) = receive_with(socket_of(&right), 8, &mut Wants::default()).unwrap();
    assert_eq!((bytes, received.rights.is_some()), (b"beforewi".to_vec(), true));
    assert_eq!(receive(socket_of(&right), 20), Ok(b"thbehind".to_vec()));
}

#[test]
fn what_is_never_received_goes_with_the_queue() {
    let sockets = Sockets::new();
    let [left, right] = sockets.pair(SocketKind::Stream);
    let carried = sockets.world.create("/f");
    let weak_carried = Arc::downgrade(&carried);
    sockets.pass(&left, b"x", &[&carried]).unwrap();
    drop((carried, right));
    assert!(weak_carried.upgrade().is_none());
    assert_eq!(receive(socket_of(&left), 1), Err(Errno::ECONNRESET));
}

#[test]
fn sockets_that_lie_in_each_other_are_found() {
    let sockets = Sockets::new();
    for kind in [SocketKind::Stream, SocketKind::SeqPacket] {
        let [left, right] = sockets.pair(kind);
        let [other_left, other_right] = sockets.pair(kind);
        let carried = sockets.world.create("/f");
        let weak_carried = Arc::downgrade(&carried);
        // Each pair's right end lies in the other's queue, and one end lies in its own.
        sockets.pass(&left, b"x", &[&other_right, &carried]).unwrap();
        sockets.pass(&other_left, b"x", &[&right]).unwrap();
        sockets.pass(&left, b"x", &[&right]).unwrap();
        drop((carried, left, right, other_left));
        assert!(weak_carried.upgrade().is_some(), "one end can still be read");
        let (_, received) = receive_with(socket_of(&other_right), 1, &mut Wants::default()).unwrap();
        let again = received.rights.unwrap();
        assert!(receive_with(socket_of(&again.descriptions()[0]), 1, &mut Wants::default()).is_ok());
        drop((again, other_right));
        assert!(weak_carried.upgrade().is_none());
        assert_eq!(sockets.domain.in_flight_count(), 0);
    }
}

#[test]
fn a_ring_without_a_way_in_is_emptied_by_the_next_close() {
    let sockets = Sockets::new();
    let [left, right] = sockets.pair(SocketKind::Stream);
    let carried = sockets.world.create("/f");
    let weak_carried = Arc::downgrade(&carried);
    sockets.pass(&left, b"x", &[&left, &right, &carried]).unwrap();
    drop((left, right, carried));
    // The last descriptors went without closing a socket, because both lie in a queue.
    drop(sockets.pair(SocketKind::Stream));
    assert!(weak_carried.upgrade().is_none());
    assert_eq!(sockets.domain.in_flight_count(), 0);
}

#[test]
fn closing_needs_no_memory_and_a_later_close_finds_the_ring() {
    let sockets = Sockets::new();
    let carried = sockets.world.create("/f");
    let weak_carried = Arc::downgrade(&carried);
    let [left, right] = sockets.pair(SocketKind::Stream);
    sockets.pass(&left, b"x", &[&left, &right, &carried]).unwrap();
    drop((left, right, carried));
    // A queue of many, which nobody receives.
    let [left, right] = sockets.pair(SocketKind::Stream);
    let [other, end] = sockets.pair(SocketKind::SeqPacket);
    for _ in 0..100 {
        sockets.pass(&left, b"x", &[&other, &end]).unwrap();
        sockets.pass(&other, b"x", &[&left]).unwrap();
    }
    set_level(Level::Short);
    drop((left, right, other, end));
    let is_there = weak_carried.upgrade().is_some();
    let in_flight_count = sockets.domain.in_flight_count();
    set_level(Level::Whole);
    assert!(is_there && in_flight_count == 3, "nobody could search: {in_flight_count}");
    drop(sockets.pair(SocketKind::Stream));
    assert!(weak_carried.upgrade().is_none());
    assert_eq!(sockets.domain.in_flight_count(), 0);
}

#[test]
fn a_long_chain_of_sockets_in_each_other_needs_no_deep_stack() {
    let sockets = Sockets::new();
    let [mut outer, end] = sockets.pair(SocketKind::Stream);
    drop(end);
    for _ in 0..3000 {
        let [left, right] = sockets.pair(SocketKind::Stream);
        sockets.pass(&left, b"x", &[&outer]).unwrap();
        outer = right;
    }
    assert_eq!(sockets.domain.in_flight_count(), 3000);
    drop(outer);
    assert_eq!(sockets.domain.in_flight_count(), 0);
}

#[test]
fn too_many_on_the_way_are_refused() {
    let sockets = Sockets::new();
    let file = sockets.world.create("/f");
    let too_many = alloc::vec![file.clone(); super::flight::RIGHTS_COUNT_MAX + 1];
    assert_eq!(Rights::new(&sockets.domain, too_many).err(), Some(Errno::EINVAL));
    let mut kept = Vec::new();
    let outcome = loop {
        match Rights::new(&sockets.domain, alloc::vec![file.clone(); 128]) {
            Ok(rights) => kept.push(rights),
            Err(error) => break error,
        }
    };
    assert_eq!((outcome, kept.len()), (Errno::ETOOMANYREFS, 128));
    drop(kept);
    assert_eq!(sockets.domain.in_flight_count(), 0);
}
