//! TCP and UDP: ports, connections, their ends, datagrams, and a connection's bytes against a model.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::settings::Setting;
use super::socket::switch;
use super::tcp_state::TcpState;
use super::{Family, Inet, Protocol, Sending, Socket, Wants};
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::Buffer;
use crate::net::Halves;
use crate::platform::Kernel;
use crate::reserve::{Level, set_level};

const SENDING: Halves = Halves { receiving: false, sending: true };
const BOTH: Halves = Halves { receiving: true, sending: true };

fn network() -> Arc<Inet> {
    let kernel: Arc<dyn Kernel> = FakeMachine::new();
    let next = AtomicU64::new(1000);
    Inet::new(&kernel, Box::new(move || next.fetch_add(1, Ordering::Relaxed)))
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn tcp(inet: &Arc<Inet>) -> Arc<Socket> {
    Socket::new(inet, Family::V4, Protocol::Tcp, 1, 0)
}

fn udp(inet: &Arc<Inet>) -> Arc<Socket> {
    Socket::new(inet, Family::V4, Protocol::Udp, 2, 0)
}

/// A listener, and where it is.
fn listener(inet: &Arc<Inet>, backlog: u32) -> (Arc<Socket>, SocketAddr) {
    let listener = tcp(inet);
    listener.bind(at("127.0.0.1:0")).expect("a free port");
    listener.listen(backlog).expect("nobody else is there");
    let address = listener.local().expect("it is bound");
    (listener, address)
}

fn connect(client: &Arc<Socket>, address: SocketAddr) -> Result<()> {
    client.begin_connect(address)?;
    client.connect_outcome()
}

fn pair(inet: &Arc<Inet>) -> [Arc<Socket>; 2] {
    let (listener, address) = listener(inet, 1);
    let client = tcp(inet);
    assert_eq!(connect(&client, address), Ok(()));
    let server = listener.accept().expect("it is let in");
    listener.close();
    [client, server]
}

fn send(socket: &Arc<Socket>, bytes: &[u8]) -> Result<usize> {
    socket.send(&mut &bytes[..], &Sending::default())
}

fn send_to(socket: &Arc<Socket>, target: SocketAddr, bytes: &[u8]) -> Result<usize> {
    socket.send(&mut &bytes[..], &Sending { target: Some(target), ..Sending::default() })
}

fn receive(socket: &Socket, limit: usize) -> Result<Vec<u8>> {
    let mut buffer = Buffer::with_limit(limit);
    socket.receive(&mut buffer, Wants::default())?;
    Ok(buffer.bytes)
}

#[test]
fn a_connection_has_two_ends_that_know_each_other() {
    let [client, server] = pair(&network());
    assert_eq!((client.local(), client.remote()), (server.remote().ok(), server.local().ok_or(Errno::ENOTCONN)));
    assert_eq!((client.state(), server.state()), (TcpState::Established, TcpState::Established));
    assert_eq!(client.readiness(), Readiness::WRITE);
    assert_eq!(send(&client, b"there"), Ok(5));
    assert_eq!(send(&server, b"back"), Ok(4));
    assert_eq!((receive(&server, 9), receive(&client, 9)), (Ok(b"there".to_vec()), Ok(b"back".to_vec())));
    assert_eq!(receive(&client, 9), Err(Errno::EAGAIN));
    assert_ne!(client.number(), server.number());
}

#[test]
fn nobody_is_refused_and_may_try_again() {
    let inet = network();
    let client = tcp(&inet);
    let (listener, address) = listener(&inet, 1);
    listener.close();
    assert_eq!(connect(&client, address), Err(Errno::ECONNREFUSED));
    assert_eq!(client.readiness(), Readiness::WRITE | Readiness::HANG_UP);
    assert_eq!(connect(&client, at("8.8.8.8:53")), Err(Errno::ENETUNREACH));
    let _listener = listener_again(&inet, address);
    assert_eq!(connect(&client, address), Ok(()));
    assert_eq!(client.begin_connect(address), Err(Errno::EISCONN));
}

fn listener_again(inet: &Arc<Inet>, address: SocketAddr) -> Arc<Socket> {
    let listener = tcp(inet);
    listener.bind(address).expect("it was given back");
    listener.listen(1).expect("nobody else is there");
    listener
}

#[test]
fn a_full_backlog_holds_one_more_and_lets_in_who_waits() {
    let inet = network();
    let (listener, address) = listener(&inet, 1);
    let clients = [(); 4].map(|()| tcp(&inet));
    assert_eq!([0, 1].map(|index| connect(&clients[index], address)), [Ok(()); 2]);
    assert_eq!([2, 3].map(|index| connect(&clients[index], address)), [Err(Errno::EAGAIN); 2]);
    assert_eq!(clients[2].state(), TcpState::SynSent);
    assert_eq!(send(&clients[2], b"x"), Err(Errno::EAGAIN));
    // One that gives up is passed over.
    clients[2].close();
    let accepted = [(); 2].map(|()| listener.accept().expect("two are in"));
    assert_eq!(clients[3].connect_outcome(), Ok(()));
    let last = listener.accept().expect("a third one");
    assert_eq!(last.remote().ok(), clients[3].local());
    assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
    drop(accepted);
    // Who still waits when the listener ends is refused; who was not accepted is reset.
    let others = [(); 3].map(|()| tcp(&inet));
    let outcomes = others.each_ref().map(|client| connect(client, address));
    assert_eq!(outcomes, [Ok(()), Ok(()), Err(Errno::EAGAIN)]);
    listener.close();
    assert_eq!(others[2].connect_outcome(), Err(Errno::ECONNREFUSED));
    assert_eq!(receive(&others[0], 1), Err(Errno::ECONNRESET));
}

#[test]
fn halves_end_one_after_the_other() {
    let [client, server] = pair(&network());
    assert_eq!(send(&client, b"last"), Ok(4));
    assert_eq!(client.shutdown(SENDING), Ok(()));
    assert_eq!((client.state(), server.state()), (TcpState::FinWait2, TcpState::CloseWait));
    assert_eq!(send(&client, b"x"), Err(Errno::EPIPE));
    assert_eq!(server.readiness(), Readiness::READ | Readiness::WRITE | Readiness::READ_HANG_UP);
    assert_eq!((receive(&server, 9), receive(&server, 9)), (Ok(b"last".to_vec()), Ok(Vec::new())));
    assert_eq!(send(&server, b"still"), Ok(5));
    server.close();
    assert_eq!((receive(&client, 9), receive(&client, 9)), (Ok(b"still".to_vec()), Ok(Vec::new())));
    assert_eq!((client.state(), client.remote()), (TcpState::Close, Err(Errno::ENOTCONN)));
    assert_eq!(client.shutdown(SENDING), Err(Errno::ENOTCONN));
}

#[test]
fn unread_bytes_and_no_time_to_linger_make_it_a_reset() {
    let inet = network();
    for lingers in [false, true] {
        let [client, server] = pair(&inet);
        send(&server, b"before").expect("there is room");
        if lingers {
            server.options().set_linger(1);
        } else {
            send(&client, b"unread").expect("there is room");
        }
        server.close();
        let all = Readiness::EVENTS.difference(Readiness::PRIORITY);
        assert_eq!(client.readiness(), all);
        assert_eq!(receive(&client, 9), Ok(b"before".to_vec()));
        assert_eq!(receive(&client, 9), Err(Errno::ECONNRESET));
        assert_eq!((receive(&client, 9), send(&client, b"x")), (Ok(Vec::new()), Err(Errno::EPIPE)));
        client.close();
    }
    assert_eq!(inet.connection_counts(), (0, 0), "nothing is remembered of a reset");
}

#[test]
fn bytes_for_nobody_come_back() {
    let inet = network();
    let [client, server] = pair(&inet);
    server.close();
    assert_eq!((send(&client, b"x"), client.take_error()), (Ok(1), Some(Errno::EPIPE)));
    assert_eq!(receive(&client, 1), Ok(Vec::new()));
    let [client, server] = pair(&inet);
    assert_eq!(client.shutdown(BOTH), Ok(()));
    assert_eq!(send(&server, b"x"), Ok(1));
    assert_eq!((client.take_error(), server.take_error()), (Some(Errno::ECONNRESET), Some(Errno::EPIPE)));
}

#[test]
fn the_first_to_end_leaves_its_port_taken_and_nothing_else() {
    let inet = network();
    let (listener, address) = listener(&inet, 1);
    let client = tcp(&inet);
    connect(&client, address).expect("it is let in");
    let server = listener.accept().expect("it is in");
    listener.close();
    server.close();
    client.close();
    assert_eq!(inet.connection_counts(), (0, 1));
    let again = tcp(&inet);
    assert_eq!(again.bind(address), Err(Errno::EADDRINUSE));
    again.options().set_on(switch::REUSE_ADDRESS, true);
    assert_eq!(again.bind(address), Err(Errno::EADDRINUSE), "the other did not");
    let [weak_client, weak_server] = [Arc::downgrade(&client), Arc::downgrade(&server)];
    drop((client, server));
    assert!(weak_client.upgrade().is_none() && weak_server.upgrade().is_none());
}

#[test]
fn remembered_ends_are_bounded() {
    let inet = network();
    let (listener, address) = listener(&inet, 1);
    for _ in 0..super::ports::TIME_WAIT_COUNT_MAX + 10 {
        let client = tcp(&inet);
        connect(&client, address).expect("there are ports");
        let server = listener.accept().expect("it is in");
        client.close();
        server.close();
    }
    assert_eq!(inet.connection_counts(), (0, super::ports::TIME_WAIT_COUNT_MAX));
}

#[test]
fn ports_are_shared_by_who_may() {
    let inet = network();
    let sockets = [(); 2].map(|()| tcp(&inet));
    sockets[0].bind(at("127.0.0.1:500")).expect("a free port");
    assert_eq!(sockets[1].bind(at("0.0.0.0:500")), Err(Errno::EADDRINUSE));
    assert_eq!(sockets[1].bind(at("10.1.1.1:500")), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(sockets[1].bind(at("127.0.0.2:500")), Ok(()));
    assert_eq!(sockets[1].bind(at("127.0.0.3:500")), Err(Errno::EINVAL));
    let six = |is_only: bool| {
        let socket = Socket::new(&inet, Family::V6, Protocol::Tcp, 3, 0);
        socket.settings().set(Setting::V6Only, i32::from(is_only));
        socket.bind(at("[::]:500"))
    };
    assert_eq!((six(false), six(true)), (Err(Errno::EADDRINUSE), Ok(())));
    let sharing = [7, 7, 8].map(|uid| Socket::new(&inet, Family::V4, Protocol::Tcp, 4, uid));
    let outcomes = sharing.each_ref().map(|socket| {
        socket.options().set_on(switch::REUSE_PORT, true);
        socket.bind(at("127.0.0.1:600"))
    });
    assert_eq!(outcomes, [Ok(()), Ok(()), Err(Errno::EADDRINUSE)]);
}

#[test]
fn ports_of_connections_run_out_and_come_back() {
    let inet = network();
    let (listener, address) = listener(&inet, super::BACKLOG_MAX);
    let mut ends = Vec::new();
    let error = loop {
        let client = tcp(&inet);
        match connect(&client, address) {
            Ok(()) => ends.push((client, listener.accept().expect("it is in"))),
            Err(error) => break error,
        }
    };
    let all = usize::from(super::EPHEMERAL_LAST - super::EPHEMERAL_FIRST) + 1;
    assert_eq!((error, ends.len()), (Errno::EADDRNOTAVAIL, all - 1), "the listener has one");
    for (client, server) in ends.drain(..) {
        server.options().set_linger(1);
        server.close();
        client.close();
    }
    assert_eq!(connect(&tcp(&inet), address), Ok(()));
}

#[test]
fn mapped_addresses_lead_to_the_same_place() {
    let inet = network();
    let listener = Socket::new(&inet, Family::V6, Protocol::Tcp, 3, 0);
    listener.bind(at("[::]:0")).expect("a free port");
    listener.listen(3).expect("nobody else is there");
    let port = listener.local().expect("it is bound").port();
    let client = tcp(&inet);
    assert_eq!(connect(&client, SocketAddr::new("127.0.0.1".parse().unwrap(), port)), Ok(()));
    let server = listener.accept().expect("it is in");
    let remote = server.remote().expect("it is connected");
    assert_eq!(server.shown(remote).ip(), "::ffff:127.0.0.1".parse::<core::net::IpAddr>().unwrap());
    let six = Socket::new(&inet, Family::V6, Protocol::Tcp, 3, 0);
    assert_eq!(connect(&six, SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), port)), Ok(()));
    assert!(six.local().is_some_and(|local| local.is_ipv4()));
    let only = Socket::new(&inet, Family::V6, Protocol::Tcp, 3, 0);
    only.settings().set(Setting::V6Only, 1);
    assert_eq!(connect(&only, at("[::ffff:127.0.0.1]:1")), Err(Errno::ENETUNREACH));
}

#[test]
fn a_reader_that_does_not_read_costs_its_buffer() {
    let [client, server] = pair(&network());
    let most = server.receive_buffer_bytes() / 2 + client.send_buffer_bytes();
    assert_eq!(send(&client, &alloc::vec![1; 1 << 20]), Ok(most));
    assert_eq!(send(&client, b"x"), Err(Errno::EAGAIN));
    assert!(!client.readiness().contains(Readiness::WRITE));
    assert_eq!(client.unreceived_bytes(), Ok(client.send_buffer_bytes()));
    // A third of the buffer has to be free.
    assert_eq!(receive(&server, client.send_buffer_bytes() / 3).map(|bytes| bytes.len()), Ok(21_845));
    assert!(!client.readiness().contains(Readiness::WRITE));
    assert_eq!(receive(&server, 1).map(|bytes| bytes.len()), Ok(1));
    assert!(client.readiness().contains(Readiness::WRITE));
}

#[test]
fn without_memory_nothing_is_sent_and_nothing_is_lost() {
    let inet = network();
    let [client, server] = pair(&inet);
    set_level(Level::Short);
    assert_eq!(send(&client, b"x"), Err(Errno::ENOBUFS));
    set_level(Level::Whole);
    assert_eq!(send(&client, b"y"), Ok(1));
    set_level(Level::Short);
    assert_eq!(receive(&server, 9), Ok(b"y".to_vec()));
    let sender = udp(&inet);
    assert_eq!(send_to(&sender, at("127.0.0.1:9"), b"x"), Err(Errno::ENOMEM));
    set_level(Level::Whole);
}

#[test]
fn datagrams_go_to_who_fits_best() {
    let inet = network();
    let (any, one, sender) = (udp(&inet), udp(&inet), udp(&inet));
    for socket in [&any, &one] {
        socket.options().set_on(switch::REUSE_ADDRESS, true);
    }
    any.bind(at("0.0.0.0:700")).expect("a free port");
    one.bind(at("127.0.0.1:700")).expect("both reuse it");
    assert_eq!(send_to(&sender, at("127.0.0.1:700"), b"one"), Ok(3));
    assert_eq!(send_to(&sender, at("127.0.0.2:700"), b"any"), Ok(3));
    assert_eq!((receive(&one, 9), receive(&any, 9)), (Ok(b"one".to_vec()), Ok(b"any".to_vec())));
    // One who talks to somebody else does not hear it.
    one.connect_datagram(at("127.0.0.1:701")).expect("there is a way");
    assert_eq!(send_to(&sender, at("127.0.0.1:700"), b"now any"), Ok(7));
    assert_eq!((receive(&one, 9), receive(&any, 9)), (Err(Errno::EAGAIN), Ok(b"now any".to_vec())));
}

#[test]
fn a_datagram_to_nobody_is_told_to_who_is_connected() {
    let inet = network();
    let (free, connected) = (udp(&inet), udp(&inet));
    assert_eq!(send(&free, b"x"), Err(Errno::EDESTADDRREQ));
    assert_eq!((send_to(&free, at("127.0.0.1:9"), b"x"), free.take_error()), (Ok(1), None));
    connected.connect_datagram(at("127.0.0.1:9")).expect("there is a way");
    assert_eq!(send(&connected, b"x"), Ok(1));
    assert_eq!(connected.readiness(), Readiness::WRITE | Readiness::ERROR);
    assert_eq!((receive(&connected, 1), receive(&connected, 1)), (Err(Errno::ECONNREFUSED), Err(Errno::EAGAIN)));
    assert_eq!(send(&connected, &[0; 65_508]), Err(Errno::EMSGSIZE));
    connected.disconnect().expect("it may");
    assert_eq!(connected.remote(), Err(Errno::ENOTCONN));
}

#[test]
fn a_receiver_that_does_not_read_loses_datagrams() {
    let inet = network();
    let (receiver, sender) = (udp(&inet), udp(&inet));
    receiver.bind(at("127.0.0.1:0")).expect("a free port");
    receiver.set_receive_buffer_bytes(4096);
    let target = receiver.local().expect("it is bound");
    for _ in 0..20 {
        assert_eq!(send_to(&sender, target, &[7; 100]), Ok(100));
    }
    assert_eq!(receiver.lost_count(), 11, "as many come in as on Linux");
    assert_eq!((receiver.readable_bytes(), receive(&receiver, 10)), (Ok(100), Ok(alloc::vec![7; 10])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn bytes_come_as_they_were_sent(
        steps in prop::collection::vec((any::<bool>(), 1_usize..30_000), 1..80),
        buffer in 1_usize..100_000,
    ) {
        let [client, server] = pair(&network());
        client.set_send_buffer_bytes(buffer);
        server.set_receive_buffer_bytes(buffer);
        let most = server.receive_buffer_bytes() / 2 + client.send_buffer_bytes();
        let (mut model, mut next) = (VecDeque::new(), 0_u8);
        for (is_send, count) in steps {
            if is_send {
                let bytes: Vec<u8> = (0..count).map(|index| next.wrapping_add(index as u8)).collect();
                let room = most - model.len();
                match send(&client, &bytes) {
                    Ok(sent) => {
                        prop_assert_eq!(sent, count.min(room));
                        model.extend(&bytes[..sent]);
                        next = next.wrapping_add(sent as u8);
                    }
                    Err(error) => prop_assert_eq!((error, room), (Errno::EAGAIN, 0)),
                }
            } else {
                match receive(&server, count) {
                    Ok(bytes) => {
                        prop_assert_eq!(bytes.len(), count.min(model.len()));
                        prop_assert!(bytes.iter().copied().eq(model.drain(..bytes.len())));
                    }
                    Err(error) => prop_assert_eq!((error, model.len()), (Errno::EAGAIN, 0)),
                }
            }
            prop_assert_eq!(server.readable_bytes(), Ok(model.len()));
        }
        client.close();
        let mut rest = Vec::new();
        while let Ok(bytes) = receive(&server, 1 << 20) {
            if bytes.is_empty() {
                break;
            }
            rest.extend(bytes);
        }
        prop_assert!(rest.iter().copied().eq(model));
    }
}

#[test]
fn a_client_that_tries_something_else_is_not_let_in_where_it_waited() {
    let inet = network();
    let ((first, first_address), (_second, second_address)) = (listener(&inet, 0), listener(&inet, 0));
    let _in_the_way = [first_address, second_address].map(|address| {
        let client = tcp(&inet);
        assert_eq!(connect(&client, address), Ok(()));
        client
    });
    let client = tcp(&inet);
    assert_eq!(connect(&client, first_address), Err(Errno::EAGAIN));
    assert_eq!(client.disconnect(), Ok(()));
    assert_eq!(connect(&client, second_address), Err(Errno::EAGAIN));
    assert!(first.accept().is_ok());
    assert_eq!(first.accept().err(), Some(Errno::EAGAIN));
    assert_eq!(client.connect_outcome(), Err(Errno::EAGAIN));
}

#[test]
fn clients_that_gave_up_do_not_stay_at_a_full_listener() {
    let inet = network();
    let (full, address) = listener(&inet, 0);
    let _in_the_way = tcp(&inet).begin_connect(address);
    let patient = tcp(&inet);
    assert_eq!(connect(&patient, address), Err(Errno::EAGAIN));
    for _ in 0..10_000 {
        let client = tcp(&inet);
        assert_eq!(connect(&client, address), Err(Errno::EAGAIN));
        client.close();
        assert_eq!(connect(&patient, address), Err(Errno::EAGAIN));
        assert_eq!(patient.disconnect(), Ok(()));
    }
    assert!(full.waiting_room().is_some_and(|room| room < 100), "{:?}", full.waiting_room());
}

#[test]
fn a_reset_after_a_part_is_told_by_the_next_call() {
    let inet = network();
    let [client, server] = pair(&inet);
    assert!(server.send(&mut &b"abc"[..], &Sending::default()).is_ok());
    server.options().set_linger(1);
    server.close();
    let mut buffer = Buffer::with_limit(2);
    assert!(client.receive(&mut buffer, Wants::default()).is_ok());
    assert_eq!(client.take_error(), Some(Errno::ECONNRESET));
    client.keep_error(Errno::EPIPE);
    assert_eq!(client.take_error(), None);
    client.keep_error(Errno::ECONNRESET);
    assert_eq!(client.send(&mut &b"x"[..], &Sending::default()), Err(Errno::ECONNRESET));
    assert_eq!(client.send(&mut &b"x"[..], &Sending::default()), Err(Errno::EPIPE));
}

#[test]
fn a_receiver_waits_for_no_more_than_can_come_in() {
    let inet = network();
    let [client, server] = pair(&inet);
    server.set_low_water_bytes(100_000);
    assert_eq!((server.options().low_water_bytes(), server.receive_buffer_bytes()), (100_000, 200_000));
    client.set_receive_buffer_bytes(30_000);
    client.set_low_water_bytes(100_000);
    assert_eq!((client.options().low_water_bytes(), client.receive_buffer_bytes()), (30_000, 60_000));
    let bytes = [0; 30_000];
    assert_eq!(server.send(&mut &bytes[..], &Sending::default()), Ok(30_000));
    assert!(client.readiness().contains(Readiness::READ));
}
