//! Two machines on a cable that loses, doubles and shuffles frames, and one machine against any frames at all.

mod unreachable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::interface::InterfaceAddress;
use super::super::settings::Setting;
use super::super::socket::switch;
use super::super::wire::{
    Carrier, Interface, InterfaceFull, InterfaceIdentity, NetworkConfiguration, Reception, Transmission,
};
use super::super::{Family, Inet, Protocol, Sending, Socket, Wants};
use super::checksum;
use super::counters::Counter;
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::transfer::Buffer;
use crate::platform::Kernel;
use crate::sync::Mutex;

mod room;

const SECOND: u64 = 1_000_000_000;

/// A card: what it was given, and what it has for the stack.
struct FakeCard {
    hardware: [u8; 6],
    incoming: Mutex<VecDeque<Vec<u8>>>,
    outgoing: Mutex<VecDeque<Vec<u8>>>,
    room: usize,
}

impl Interface for FakeCard {
    fn identity(&self) -> InterfaceIdentity {
        InterfaceIdentity {
            hardware_address: self.hardware,
            packet_bytes_max: 1500,
            fills_checksums: false,
            segmented_bytes_max: 0,
        }
    }

    fn is_up(&self) -> bool {
        true
    }

    fn send(&self, parts: &[&[u8]], _: Transmission) -> core::result::Result<(), InterfaceFull> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.len() >= self.room {
            return Err(InterfaceFull);
        }
        let frame = parts.concat();
        assert!(frame.len() <= 1514, "{} bytes", frame.len());
        outgoing.push_back(frame);
        Ok(())
    }

    fn has_room(&self, frame_count: usize) -> bool {
        self.outgoing.lock().len() + frame_count <= self.room
    }

    fn flush(&self) {}

    fn receive(&self, frame: &mut [u8]) -> Option<Reception> {
        let bytes = self.incoming.lock().pop_front()?;
        frame.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(Reception { byte_count: bytes.len(), is_checksum_valid: false })
    }

    fn ask_for_interrupt(&self) -> bool {
        !self.incoming.lock().is_empty()
    }

    fn dropped_count(&self) -> u64 {
        0
    }
}

struct FakeCarrier {
    card: Arc<FakeCard>,
    wake_ns: AtomicU64,
    open_count: AtomicU64,
}

impl Carrier for FakeCarrier {
    fn open(&self) -> Option<Arc<dyn Interface>> {
        self.open_count.fetch_add(1, Ordering::Relaxed);
        Some(self.card.clone())
    }

    fn wake_at(&self, deadline_ns: u64) {
        self.wake_ns.fetch_min(deadline_ns, Ordering::Relaxed);
    }
}

/// A machine with a card.
struct Machine {
    kernel: Arc<FakeMachine>,
    inet: Arc<Inet>,
    carrier: Arc<FakeCarrier>,
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn network(text: &str, prefix_bits: u8) -> InterfaceAddress {
    InterfaceAddress { address: ip(text), prefix_bits }
}

/// Machine `number` is 10.0.2.`number`; its card ends so, too.
fn configured(number: u8, change: impl FnOnce(&mut NetworkConfiguration)) -> Machine {
    let kernel = FakeMachine::new();
    let seam: Arc<dyn Kernel> = kernel.clone();
    let next = AtomicU64::new(1000);
    let inet = Inet::new(&seam, Box::new(move || next.fetch_add(1, Ordering::Relaxed)));
    let card = Arc::new(FakeCard {
        hardware: [2, 0, 0, 0, 0, number],
        incoming: Mutex::default(),
        outgoing: Mutex::default(),
        room: 64,
    });
    let (wake_ns, open_count) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
    let carrier = Arc::new(FakeCarrier { card, wake_ns, open_count });
    let own = InterfaceAddress { address: IpAddr::from([10, 0, 2, number]), prefix_bits: 24 };
    let mut configuration = NetworkConfiguration {
        addresses: vec![own],
        gateways: vec![ip("10.0.2.2")],
        ..NetworkConfiguration::default()
    };
    change(&mut configuration);
    inet.attach(configuration, carrier.clone());
    Machine { kernel, inet, carrier }
}

fn machine(number: u8) -> Machine {
    configured(number, |_| {})
}

impl Machine {
    fn udp(&self, family: Family, address: &str) -> Arc<Socket> {
        let socket = Socket::new(&self.inet, family, Protocol::Udp, 1, 0);
        socket.bind(at(address)).expect("the address is free");
        socket
    }

    fn poll(&self) -> Option<u64> {
        self.carrier.wake_ns.store(u64::MAX, Ordering::Relaxed);
        let due_ns = self.inet.poll(self.kernel.now_ns());
        due_ns.into_iter().for_each(|due_ns| self.carrier.wake_at(due_ns));
        due_ns
    }

    /// When it wants to be looked at.
    fn wake_ns(&self) -> u64 {
        self.carrier.wake_ns.load(Ordering::Relaxed)
    }

    fn take_sent(&self) -> Vec<Vec<u8>> {
        self.carrier.card.outgoing.lock().drain(..).collect()
    }

    /// Takes in a frame; what is sent because of it.
    fn give(&self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.carrier.card.incoming.lock().push_back(frame.to_vec());
        self.poll();
        self.take_sent()
    }

    fn count(&self, counter: Counter) -> u64 {
        self.inet.stack().counters().get(counter)
    }
}

fn send_to(socket: &Arc<Socket>, target: SocketAddr, bytes: &[u8]) -> Result<usize> {
    socket.send(&mut &bytes[..], &Sending { target: Some(target), ..Sending::default() })
}

fn receive(socket: &Socket) -> Result<(Vec<u8>, SocketAddr)> {
    let mut buffer = Buffer::with_limit(70_000);
    let received = socket.receive(&mut buffer, Wants::default())?;
    Ok((buffer.bytes, received.from.expect("datagrams have senders")))
}

/// What the cable does to a frame.
type Fate<'a> = &'a mut dyn FnMut(&[u8]) -> Vec<Vec<u8>>;

/// Carries frames both ways until nothing moves.
fn carry(one: &Machine, other: &Machine, fate: Fate<'_>) {
    for _ in 0..1000 {
        let mut is_quiet = true;
        for (from, to) in [(one, other), (other, one)] {
            from.poll();
            for frame in from.take_sent() {
                is_quiet = false;
                to.carrier.card.incoming.lock().extend(fate(&frame));
            }
        }
        if is_quiet && one.carrier.card.incoming.lock().is_empty() && other.carrier.card.incoming.lock().is_empty() {
            return;
        }
    }
    panic!("the two never come to rest");
}

fn open_both(one: &Machine, other: &Machine) {
    assert!(one.inet.open() && other.inet.open());
}

fn whole(frame: &[u8]) -> Vec<Vec<u8>> {
    vec![frame.to_vec()]
}

/// Lets time go by on both, with all that is due.
fn pass(one: &Machine, other: &Machine, until_ns: u64, fate: Fate<'_>) {
    loop {
        carry(one, other, fate);
        let next = one.wake_ns().min(other.wake_ns()).min(until_ns);
        let now = one.kernel.now_ns().max(next);
        one.kernel.set_now_ns(now);
        other.kernel.set_now_ns(now);
        if next == until_ns {
            return carry(one, other, fate);
        }
    }
}

fn ethernet(to: [u8; 6], from: [u8; 6], protocol: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &protocol.to_be_bytes(), payload].concat()
}

/// A frame from 10.0.2.2 to 10.0.2.15.
fn v4_frame(protocol: u8, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 9];
    header.extend(flags.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 0, 2, 2, 10, 0, 2, 15]);
    header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    let sum = checksum::of(&header);
    header[10..12].copy_from_slice(&sum);
    header.extend(payload);
    ethernet([2, 0, 0, 0, 0, 15], [2, 0, 0, 0, 0, 2], 0x800, &header)
}

fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(rest);
    let sum = checksum::of(&bytes);
    bytes[2..4].copy_from_slice(&sum);
    bytes
}

/// Has 10.0.2.15 know where 10.0.2.2 is.
fn introduced() -> Machine {
    let machine = machine(15);
    machine.inet.open();
    let mut ask = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 2, 2, 0, 0, 0, 0, 0, 0];
    ask.extend([10, 0, 2, 15]);
    let answers = machine.give(&ethernet([0xff; 6], [2, 0, 0, 0, 0, 2], 0x806, &ask));
    let answer = answers.iter().find(|frame| frame[12..14] == [8, 6]).expect("an answer");
    assert_eq!((&answer[..6], answer[21], &answer[28..32]), (&[2, 0, 0, 0, 0, 2][..], 2, &[10, 0, 2, 15][..]));
    machine
}

#[test]
fn the_card_is_looked_for_at_the_first_use_that_is_not_local() {
    let machine = machine(15);
    let opened = || machine.carrier.open_count.load(Ordering::Relaxed);
    let socket = machine.udp(Family::V4, "127.0.0.1:0");
    assert_eq!(send_to(&socket, socket.local().expect("it is bound"), b"hi"), Ok(2));
    let (_, from) = receive(&socket).expect("it came");
    assert_eq!(socket.connect_datagram(from), Ok(()));
    assert_eq!((opened(), machine.inet.poll(0)), (0, None));
    drop(machine.udp(Family::V4, "0.0.0.0:5000"));
    assert!(machine.inet.open() && machine.inet.interfaces().is_ok_and(|all| all.len() == 2));
    assert_eq!(opened(), 1);
}

#[test]
fn without_a_card_there_is_loopback_alone() {
    let kernel: Arc<dyn Kernel> = FakeMachine::new();
    let inet = Inet::new(&kernel, Box::new(|| 1));
    let socket = Socket::new(&inet, Family::V4, Protocol::Udp, 1, 0);
    assert_eq!(send_to(&socket, at("10.0.2.2:9"), b"x"), Err(Errno::ENETUNREACH));
    assert_eq!(inet.interfaces().map(|all| all.len()), Ok(1));
    assert_eq!(socket.join_group(ip("224.0.0.251")), Err(Errno::ENODEV));
}

#[test]
fn datagrams_go_both_ways() {
    let (one, other) = (machine(15), machine(16));
    for (family, mine, theirs) in [
        (Family::V4, "10.0.2.15:700", "10.0.2.16:800"),
        (Family::V6, "[fe80::ff:fe00:f]:700", "[fe80::ff:fe00:10]:800"),
    ] {
        open_both(&one, &other);
        let (client, server) = (one.udp(family, mine), other.udp(family, theirs));
        for size in [0, 1, 29, 1472, 1473, 9000, 65_000] {
            let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
            assert_eq!(send_to(&client, at(theirs), &bytes), Ok(size));
            carry(&one, &other, &mut whole);
            assert_eq!(receive(&server), Ok((bytes.clone(), at(mine))), "{size}");
            assert_eq!(send_to(&server, at(mine), &bytes), Ok(size));
            carry(&one, &other, &mut whole);
            assert_eq!(receive(&client), Ok((bytes, at(theirs))), "{size}");
        }
    }
    assert!(one.count(Counter::Ip4FragmentsSent) > 0 && other.count(Counter::Ip6ReassemblyDone) > 0);
}

#[test]
fn an_own_address_is_loopback() {
    let machine = machine(15);
    let socket = machine.udp(Family::V4, "10.0.2.15:700");
    machine.poll();
    machine.take_sent();
    assert_eq!(send_to(&socket, at("10.0.2.15:700"), b"me"), Ok(2));
    assert_eq!(receive(&socket), Ok((b"me".to_vec(), at("10.0.2.15:700"))));
    assert!(machine.take_sent().is_empty());
}

#[test]
fn one_that_nobody_receives_is_refused() {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    let client = one.udp(Family::V4, "0.0.0.0:0");
    assert_eq!(client.connect_datagram(at("10.0.2.16:9")), Ok(()));
    assert_eq!(client.local().map(|local| local.ip()), Some(ip("10.0.2.15")));
    for _ in 0..20 {
        assert_eq!(send_to(&client, at("10.0.2.16:9"), b"x"), Ok(1));
        carry(&one, &other, &mut whole);
        let _ = client.take_error();
    }
    assert_eq!(other.count(Counter::Icmp4UnreachableSent), 6, "as many at once as Linux sends");
    pass(&one, &other, 2 * SECOND, &mut whole);
    assert_eq!(send_to(&client, at("10.0.2.16:9"), b"x"), Ok(1));
    carry(&one, &other, &mut whole);
    assert_eq!(receive(&client), Err(Errno::ECONNREFUSED));
}

#[test]
fn one_that_is_not_there_is_unreachable() {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    let client = one.udp(Family::V4, "0.0.0.0:0");
    client.settings().set(Setting::ReceiveErrors, 1);
    assert_eq!(send_to(&client, at("10.0.2.77:9"), b"x"), Ok(1));
    pass(&one, &other, 10 * SECOND, &mut whole);
    assert_eq!(receive(&client), Err(Errno::EHOSTUNREACH));
}

#[test]
fn all_are_reached_only_by_one_that_may() {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    let (client, server) = (one.udp(Family::V4, "0.0.0.0:700"), other.udp(Family::V4, "0.0.0.0:800"));
    for all in ["10.0.2.255:800", "255.255.255.255:800"] {
        assert_eq!(send_to(&client, at(all), b"x"), Err(Errno::EACCES));
        client.options().set_on(switch::BROADCAST, true);
        assert_eq!(send_to(&client, at(all), b"x"), Ok(1));
        carry(&one, &other, &mut whole);
        assert_eq!(receive(&server), Ok((b"x".to_vec(), at("10.0.2.15:700"))));
        client.options().set_on(switch::BROADCAST, false);
    }
}

#[test]
fn groups_reach_those_who_joined() {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    for (family, any, group) in
        [(Family::V4, "0.0.0.0:700", "224.0.0.251:700"), (Family::V6, "[::]:701", "[ff02::fb]:701")]
    {
        let (client, server) = (one.udp(family, any), other.udp(family, any));
        for joined in [false, true] {
            assert_eq!(send_to(&client, at(group), b"x"), Ok(1));
            carry(&one, &other, &mut whole);
            assert_eq!(receive(&server).is_ok(), joined);
            assert_eq!(receive(&client).is_ok(), joined, "what was joined here, too, comes back");
            if !joined {
                assert_eq!([&client, &server].map(|socket| socket.join_group(at(group).ip())), [Ok(()); 2]);
                assert_eq!(client.join_group(at(group).ip()), Err(Errno::EADDRINUSE));
            }
        }
        server.close();
        client.close();
        assert!(!one.inet.stack().has_joined(at(group).ip()));
    }
}

#[test]
fn the_host_is_refused_unless_it_is_allowed() {
    let refusing = |has_host_access| {
        configured(15, |configuration| {
            configuration.host_networks = vec![network("10.0.2.2", 32), network("fec0::", 64), network("fe80::", 64)];
            configuration.name_servers = vec![ip("10.0.2.3"), ip("fec0::3")];
            configuration.addresses.push(network("fec0::15", 64));
            configuration.has_host_access = has_host_access;
        })
    };
    for has_host_access in [false, true] {
        let machine = refusing(has_host_access);
        let expected = if has_host_access { Ok(()) } else { Err(Errno::ECONNREFUSED) };
        for (family, host) in [
            (Family::V4, "10.0.2.2:80"),
            (Family::V4, "10.0.2.2:53"),
            (Family::V6, "[fec0::2]:80"),
            (Family::V6, "[fe80::2]:80"),
            (Family::V6, "[::ffff:10.0.2.2]:80"),
        ] {
            let socket = Socket::new(&machine.inet, family, Protocol::Udp, 1, 0);
            assert_eq!(socket.connect_datagram(at(host)), Ok(()), "{host}");
            assert_eq!(send_to(&socket, at(host), b"x").map(|_| ()), expected, "{host}");
        }
        for (family, other) in [(Family::V4, "10.0.2.3:53"), (Family::V6, "[fec0::3]:53"), (Family::V4, "1.1.1.1:80")] {
            let socket = Socket::new(&machine.inet, family, Protocol::Udp, 1, 0);
            assert_eq!(send_to(&socket, at(other), b"x"), Ok(1), "{other}");
        }
    }
}

#[test]
fn echo_requests_are_answered() {
    let machine = introduced();
    let answers = machine.give(&v4_frame(1, 0x4000, &icmp(8, 0, &[0, 1, 0, 2, 9, 9, 9])));
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0][34..], icmp(0, 0, &[0, 1, 0, 2, 9, 9, 9]));
    assert!(checksum::is_right(&answers[0][14..34]));
    let raw = Socket::new(&machine.inet, Family::V4, Protocol::Raw(1), 1, 0);
    assert_eq!(machine.inet.note_raw(&raw), Ok(()));
    for (filter, is_told) in [(1 << 13, false), (!(1 << 13), true)] {
        raw.set_filter([filter, 0, 0, 0, 0, 0, 0, 0]);
        let answers = machine.give(&v4_frame(1, 0, &icmp(13, 0, &[0, 1, 0, 2, 9, 8, 7, 6, 0, 0, 0, 0, 0, 0, 0, 0])));
        assert_eq!((answers[0][34], answers[0].len(), &answers[0][42..46]), (14, 54, &[9, 8, 7, 6][..]));
        assert_eq!(receive(&raw).is_ok(), is_told);
    }
    let mut broken = v4_frame(1, 0, &icmp(8, 0, &[0, 1, 0, 2]));
    broken[40] ^= 1;
    assert!(machine.give(&broken).is_empty());
    assert_eq!(machine.count(Counter::Icmp4ChecksumErrors), 1);
}

#[test]
fn a_shorter_path_is_believed_of_packets_that_were_sent() {
    let machine = introduced();
    let client = machine.udp(Family::V4, "10.0.2.15:700");
    let quoted = |port: [u8; 2]| {
        let mut rest = vec![0, 0, 5, 120, 0x45, 0, 5, 220, 0, 0, 64, 0, 64, 17, 0, 0, 10, 0, 2, 15, 1, 2, 3, 4];
        rest.extend(port);
        rest.extend([0, 53, 5, 200, 0, 0]);
        icmp(3, 4, &rest)
    };
    machine.give(&v4_frame(1, 0, &quoted([9, 9])));
    assert_eq!(machine.inet.stack().packet_bytes_max(ip("1.2.3.4")), 1500);
    machine.give(&v4_frame(1, 0, &quoted(700u16.to_be_bytes())));
    assert_eq!(machine.inet.stack().packet_bytes_max(ip("1.2.3.4")), 1400);
    assert_eq!(client.take_error(), None);
    client.settings().set(Setting::MtuDiscover, 2);
    assert_eq!(send_to(&client, at("1.2.3.4:53"), &[0; 1373]), Err(Errno::EMSGSIZE));
    assert_eq!(send_to(&client, at("1.2.3.4:53"), &[0; 1372]), Ok(1372));
    machine.kernel.set_now_ns(700 * SECOND);
    assert_eq!(machine.inet.stack().packet_bytes_max(ip("1.2.3.4")), 1500);
}

#[test]
fn a_router_gives_an_address_and_a_way() {
    let machine = machine(15);
    machine.inet.open();
    machine.poll();
    let sent = machine.take_sent();
    let kinds: Vec<u8> = sent.iter().map(|frame| frame[54]).collect();
    assert_eq!(kinds, [135, 133], "whether the address is free, and whether a router is there");
    assert_eq!(machine.inet.stack().source_for(ip("2001:db8::1")), Err(Errno::ENETUNREACH));
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 2];
    message.extend([3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let IpAddr::V6(prefix) = ip("fec0::") else { panic!("an IPv6 address") };
    message.extend(prefix.octets());
    let frame = |hops: u8| {
        let (source, group) = (ip("fe80::2"), ip("ff02::1"));
        let mut bytes = vec![0x60, 0, 0, 0, 0, message.len() as u8, 58, hops];
        let (IpAddr::V6(from), IpAddr::V6(to)) = (source, group) else { panic!("IPv6 addresses") };
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        let mut sum = checksum::Checksum::of_addresses(source, group, 58, message.len());
        sum.add(&message);
        let mut filled = message.clone();
        filled[2..4].copy_from_slice(&sum.finish());
        bytes.extend(filled);
        ethernet([0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 0x86dd, &bytes)
    };
    machine.give(&frame(254));
    assert_eq!(machine.inet.stack().source_for(ip("2001:db8::1")), Err(Errno::ENETUNREACH), "it came from afar");
    let sent = machine.give(&frame(255));
    assert_eq!(machine.inet.stack().source_for(ip("2001:db8::1")), Ok(ip("fec0::ff:fe00:f")));
    assert_eq!(sent.iter().map(|frame| frame[54]).collect::<Vec<_>>(), [135]);
    machine.kernel.set_now_ns(1801 * SECOND);
    machine.poll();
    assert_eq!(machine.inet.stack().source_for(ip("2001:db8::1")), Err(Errno::ENETUNREACH), "it is a router no more");
}

#[test]
fn a_server_gives_an_address() {
    let machine = configured(15, |configuration| {
        (configuration.addresses, configuration.gateways) = (Vec::new(), Vec::new());
        configuration.uses_dhcp = true;
    });
    machine.inet.open();
    machine.kernel.set_now_ns(1);
    machine.poll();
    let is_question = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[36..38] == [0, 67];
    let question = machine.take_sent().iter().find(is_question).expect("it asks").clone();
    assert_eq!((&question[..6], &question[26..34]), (&[0xff; 6][..], &[0, 0, 0, 0, 255, 255, 255, 255][..]));
    assert_eq!(machine.inet.stack().source_for(ip("1.1.1.1")), Err(Errno::ENETUNREACH));
    let answer = |kind: u8| {
        let mut bytes = vec![0, 67, 0, 68, 0, 0, 0, 0];
        bytes.extend(&question[42..278]);
        bytes[8] = 2;
        bytes[24..28].copy_from_slice(&[10, 0, 2, 15]);
        bytes.extend([99, 130, 83, 99, 53, 1, kind, 54, 4, 10, 0, 2, 2, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2]);
        bytes.extend([51, 4, 0, 0, 1, 0, 255]);
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[4..6].copy_from_slice(&length);
        let mut frame = v4_frame(17, 0, &bytes);
        frame[..6].fill(0xff);
        frame[30..34].fill(0xff);
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum);
        frame
    };
    let request = machine.give(&answer(2)).iter().find(is_question).expect("it asks for that").clone();
    assert_eq!(request[284], 3);
    machine.give(&answer(5));
    assert_eq!(machine.inet.stack().source_for(ip("1.1.1.1")), Ok(ip("10.0.2.15")));
    machine.kernel.set_now_ns(300 * SECOND);
    machine.poll();
    assert_eq!(machine.inet.stack().source_for(ip("1.1.1.1")), Err(Errno::ENETUNREACH), "its time is over");
}

#[test]
fn pieces_that_do_not_come_in_time_are_told_of() {
    let machine = introduced();
    machine.give(&v4_frame(17, 0x2000, &[0; 16]));
    machine.kernel.set_now_ns(31 * SECOND);
    machine.poll();
    let told: Vec<_> = machine.take_sent().into_iter().filter(|frame| frame[12..14] == [8, 0]).collect();
    assert_eq!(told.iter().map(|frame| (frame[34], frame[35])).collect::<Vec<_>>(), [(11, 1)]);
}

#[test]
fn questions_are_answered_here_and_there() {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    for (family, targets) in [
        (Family::V4, ["127.0.0.1:0", "10.0.2.15:0", "10.0.2.16:0"]),
        (Family::V6, ["[::1]:0", "[fe80::ff:fe00:f]:0", "[fe80::ff:fe00:10]:0"]),
    ] {
        let [request, reply] = if family == Family::V4 { [8, 0] } else { [128, 129] };
        for target in targets {
            let ping = Socket::new(&one.inet, family, Protocol::Ping, 1, 0);
            let raw = Socket::new(&one.inet, family, Protocol::Raw(if family == Family::V4 { 1 } else { 58 }), 1, 0);
            assert_eq!(one.inet.note_raw(&raw), Ok(()));
            assert_eq!(send_to(&ping, at(target), &[reply, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::EINVAL));
            assert_eq!(send_to(&ping, at(target), &[request, 0, 0, 0, 7, 7, 0, 3, 42]), Ok(9));
            carry(&one, &other, &mut whole);
            let (answer, from) = receive(&ping).expect("an answer");
            let number = ping.local().expect("it has one").port().to_be_bytes();
            assert_eq!((answer[0], &answer[4..], from), (reply, &[number[0], number[1], 0, 3, 42][..], at(target)));
            let head = if family == Family::V4 { 20 } else { 0 };
            let told = core::iter::from_fn(|| receive(&raw).ok()).map(|(bytes, _)| bytes).collect::<Vec<_>>();
            assert_eq!(told.last().map(|bytes| &bytes[head..]), Some(&answer[..]), "{target}");
            raw.close();
            ping.close();
        }
    }
    assert!(one.inet.raw.is_empty());
}

#[test]
fn a_protocol_that_nothing_takes_is_told_of() {
    let machine = introduced();
    let answers = machine.give(&v4_frame(99, 0, &[1, 2, 3]));
    assert_eq!(answers.iter().map(|frame| (frame[34], frame[35])).collect::<Vec<_>>(), [(3, 2)]);
    let raw = Socket::new(&machine.inet, Family::V4, Protocol::Raw(99), 1, 0);
    assert_eq!(machine.inet.note_raw(&raw), Ok(()));
    raw.set_filter([2; 8]);
    assert!(machine.give(&v4_frame(99, 0, &[1, 2, 3])).is_empty());
    assert_eq!(receive(&raw).map(|(bytes, _)| bytes[20..].to_vec()), Ok(vec![1, 2, 3]));
}

/// The frames of a short conversation of two machines, in order.
fn real_frames() -> Vec<Vec<u8>> {
    let (one, other) = (machine(15), machine(16));
    open_both(&one, &other);
    let mut all = Vec::new();
    let mut note = |frame: &[u8]| {
        all.push(frame.to_vec());
        whole(frame)
    };
    for (family, mine, theirs) in [
        (Family::V4, "10.0.2.15:700", "10.0.2.16:800"),
        (Family::V6, "[fe80::ff:fe00:f]:700", "[fe80::ff:fe00:10]:800"),
    ] {
        let (client, server) = (one.udp(family, mine), other.udp(family, theirs));
        let _ = (send_to(&client, at(theirs), &[7; 3000]), send_to(&server, at(mine), &[7; 20]));
        let mut closed = at(theirs);
        closed.set_port(9);
        let _ = send_to(&client, closed, b"nobody");
        carry(&one, &other, &mut note);
    }
    all.push(v4_frame(1, 0, &icmp(8, 0, &[1; 40])));
    all.push(v4_frame(6, 0, &[0; 20]));
    all
}

/// Changes a frame by `random`, and has its checksums right as often as not.
fn mutate(frame: &mut Vec<u8>, random: &mut dyn FnMut() -> u64) {
    for _ in 0..random() % 4 {
        let at = random() as usize % frame.len().max(1);
        match random() % 4 {
            0 => frame.iter_mut().skip(at).take(1).for_each(|byte| *byte = random() as u8),
            1 => frame.truncate(at.max(14)),
            2 => frame.extend_from_within(at..),
            _ => frame.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (random() % 8)),
        }
        frame.truncate(1514);
    }
    let header_bytes = frame.get(14).map_or(0, |first| usize::from(first & 0xf) * 4);
    if random().is_multiple_of(2)
        && frame.len() >= 14 + header_bytes.max(20)
        && frame[14] >> 4 == 4
        && header_bytes >= 20
    {
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..14 + header_bytes]);
        frame[24..26].copy_from_slice(&sum);
    }
}

/// Gives a machine many frames that real ones were made into; none of them may break it.
fn torment(seed: u64, rounds: usize) {
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    };
    let real = real_frames();
    let machine = introduced();
    let sockets = [machine.udp(Family::V4, "0.0.0.0:700"), machine.udp(Family::V6, "[::]:800")];
    for round in 0..rounds {
        let mut frame = real[random() as usize % real.len()].clone();
        mutate(&mut frame, &mut random);
        machine.give(&frame);
        if round % 64 == 0 {
            machine.kernel.set_now_ns(machine.kernel.now_ns() + random() % (4 * SECOND));
        }
        if round % 1024 == 0 {
            for socket in &sockets {
                let _ = send_to(socket, at("10.0.2.16:9"), &[1; 100]);
                while receive(socket).is_ok() {}
            }
        }
    }
    // It still works.
    machine.kernel.set_now_ns(machine.kernel.now_ns() + 100 * SECOND);
    (0..100).for_each(|_| {
        machine.poll();
        machine.take_sent();
    });
    let answers = machine.give(&v4_frame(1, 0, &icmp(8, 0, &[0, 1, 0, 2])));
    assert!(!answers.is_empty() || machine.wake_ns() != u64::MAX);
}

#[test]
fn any_frames_do_no_harm() {
    let rounds = std::env::var("AEGIS_FRAME_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    torment(rounds as u64 ^ 0x1234_5678_9abc, rounds);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_that_are_no_frames_do_no_harm(frames in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..200), 1..50,
    )) {
        let machine = introduced();
        for mut frame in frames {
            if frame.len() > 14 {
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 15]);
                frame[12] = if frame[12] % 2 == 0 { 8 } else { 0x86 };
                frame[13] = if frame[12] == 8 { [0, 6][usize::from(frame[13] % 2)] } else { 0xdd };
            }
            machine.give(&frame);
        }
    }

    #[test]
    fn a_bad_cable_loses_datagrams_whole(
        seed in any::<u64>(),
        sizes in proptest::collection::vec(1usize..5000, 1..30),
    ) {
        let mut state = seed | 1;
        let mut held: Option<Vec<u8>> = None;
        let mut fate = move |frame: &[u8]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match state >> 60 {
                0 => Vec::new(),
                1 => vec![frame.to_vec(), frame.to_vec()],
                2 | 3 => core::iter::once(frame.to_vec()).chain(held.take()).collect(),
                4 => {
                    let before = held.replace(frame.to_vec());
                    before.into_iter().collect()
                }
                _ => vec![frame.to_vec()],
            }
        };
        let (one, other) = (machine(15), machine(16));
        let (client, server) = (one.udp(Family::V4, "10.0.2.15:700"), other.udp(Family::V4, "10.0.2.16:800"));
        for (number, size) in sizes.iter().enumerate() {
            let bytes = vec![number as u8; *size];
            prop_assert_eq!(send_to(&client, at("10.0.2.16:800"), &bytes), Ok(*size));
            carry(&one, &other, &mut fate);
        }
        while let Ok((bytes, from)) = receive(&server) {
            prop_assert_eq!(from, at("10.0.2.15:700"));
            prop_assert_eq!(bytes.len(), sizes[usize::from(bytes[0])]);
            prop_assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        }
        // Whatever was lost, it goes on.
        pass(&one, &other, 60 * SECOND, &mut whole);
        while receive(&server).is_ok() {}
        prop_assert_eq!(send_to(&client, at("10.0.2.16:800"), b"still there"), Ok(11));
        pass(&one, &other, 70 * SECOND, &mut whole);
        prop_assert!(receive(&server).is_ok_and(|(bytes, _)| bytes == b"still there"));
    }
}
