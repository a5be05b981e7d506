//! Two pods' networks over a link that is made up: connections both ways, how they are made, refused, ended and
//! remembered, and their bytes over links that do anything.

mod torment;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};

use super::header::{Header, flag};
use super::input::Train;
use super::link::{Chance, Faults, Link};
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::Buffer;
use crate::net::Halves;
use crate::net::inet::tcp_input::{tcp_input, tcp_poll};
use crate::net::inet::wire::{Arrival, Segment, SegmentSender};
use crate::net::inet::{Family, Inet, Protocol, Sending, Socket, TcpState, Wants};
use crate::platform::Kernel;
use crate::sync::Mutex;

const SECOND_NS: u64 = 1_000_000_000;

type Sent = Vec<u8>;

/// The way out of one network: what is sent lies here until the world carries it.
struct Way {
    address: IpAddr,
    sent: Mutex<Vec<Sent>>,
    error: Mutex<Option<Errno>>,
    chance: Mutex<Chance>,
    full_per_mille: AtomicU64,
}

impl SegmentSender for Way {
    fn source_for(&self, _: IpAddr) -> Result<IpAddr> {
        Ok(self.address)
    }

    fn packet_bytes_max(&self, _: IpAddr) -> usize {
        1500
    }

    fn segmented_bytes_max(&self) -> usize {
        0
    }

    fn send_segment(&self, segment: &Segment<'_>) -> Result<()> {
        if let Some(error) = *self.error.lock() {
            return Err(error);
        }
        if self.chance.lock().happens(self.full_per_mille.load(Ordering::Relaxed)) {
            return Err(Errno::ENOBUFS);
        }
        assert_eq!(segment.source, self.address);
        let mut bytes = segment.header.to_vec();
        segment.payload.iter().for_each(|part| bytes.extend_from_slice(part));
        self.sent.lock().push(bytes);
        Ok(())
    }

    fn flush(&self) {}
}

/// Two networks and what is between them.
struct World {
    inets: [Arc<Inet>; 2],
    machines: [Arc<FakeMachine>; 2],
    ways: [Arc<Way>; 2],
    link: Link<Sent>,
    now_ns: u64,
}

fn address(end: usize) -> IpAddr {
    if end == 0 { [10, 0, 2, 15].into() } else { [10, 0, 2, 2].into() }
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let machines = [FakeMachine::new(), FakeMachine::new()];
        let inets = [0, 1].map(|end: usize| {
            let kernel: Arc<dyn Kernel> = machines[end].clone();
            let next = AtomicU64::new(1000);
            Inet::new(&kernel, Box::new(move || next.fetch_add(1, Ordering::Relaxed)))
        });
        let ways = [0, 1].map(|end: usize| {
            let way = Arc::new(Way {
                address: address(end),
                sent: Mutex::default(),
                error: Mutex::default(),
                chance: Mutex::new(Chance::new(seed + end as u64)),
                full_per_mille: AtomicU64::new(0),
            });
            inets[end].engine.sender.call_once(|| way.clone() as Arc<dyn SegmentSender>);
            way
        });
        let mut world = Self { inets, machines, ways, link: Link::new(seed, faults, 1_000_000), now_ns: 0 };
        world.set_now(10 * SECOND_NS);
        world
    }

    fn good() -> Self {
        Self::new(1, Faults::default())
    }

    fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.machines.iter().for_each(|machine| machine.set_now_ns(now_ns));
    }

    fn deliver(&self, to: usize, bytes: &[u8]) {
        let arrival =
            Arrival { source: address(1 - to), destination: address(to), bytes, hop_limit: 64, traffic_class: 0 };
        let mut train = Train::default();
        tcp_input(&self.inets[to], &arrival, &mut train);
        train.finish();
    }

    fn collect(&mut self) {
        for end in 0..2 {
            let sent = core::mem::take(&mut *self.ways[end].sent.lock());
            for bytes in sent {
                self.link.carry(self.now_ns, 1 - end, bytes, |_, _| false);
            }
        }
    }

    /// What is due now; when more is.
    fn step(&mut self) -> Option<u64> {
        self.collect();
        for (to, bytes) in self.link.arrivals(self.now_ns) {
            self.deliver(to, &bytes);
        }
        let due = [0, 1].map(|end: usize| tcp_poll(&self.inets[end], self.now_ns));
        self.collect();
        due.into_iter().flatten().chain(self.link.deadline_ns()).min()
    }

    /// Lets time go on for so long, in as many steps as something is due.
    fn run(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        loop {
            let next_ns = self.step().unwrap_or(until_ns).max(self.now_ns + 1000);
            if next_ns >= until_ns {
                self.set_now(until_ns);
                self.step();
                return;
            }
            self.set_now(next_ns);
        }
    }

    fn tcp(&self, end: usize) -> Arc<Socket> {
        Socket::new(&self.inets[end], Family::V4, Protocol::Tcp, 1, 0)
    }

    fn listener(&self, end: usize, port: u16, backlog: u32) -> Arc<Socket> {
        let listener = self.tcp(end);
        listener.bind(SocketAddr::new([0, 0, 0, 0].into(), port)).expect("a free port");
        listener.listen(backlog).expect("nobody else is there");
        listener
    }

    fn connect(&self, end: usize, port: u16) -> Arc<Socket> {
        let client = self.tcp(end);
        assert_eq!(client.begin_connect(SocketAddr::new(address(1 - end), port)), Ok(true));
        client
    }

    /// A client of end 0 and its server at end 1.
    fn pair(&mut self) -> [Arc<Socket>; 2] {
        let listener = self.listener(1, 80, 5);
        let client = self.connect(0, 80);
        self.run(SECOND_NS / 10);
        assert_eq!(client.connect_outcome(), Ok(()));
        let server = listener.accept().expect("it is let in");
        listener.close();
        [client, server]
    }

    /// A segment from nowhere to end 1, and what it sends back at once.
    fn throw(&mut self, header: Header, payload: &[u8]) -> Vec<Header> {
        self.collect();
        let mut bytes = [0; 60];
        let length = header.emit(&mut bytes);
        let segment: Vec<u8> = bytes[..length].iter().chain(payload).copied().collect();
        self.deliver(1, &segment);
        let sent = core::mem::take(&mut *self.ways[1].sent.lock());
        sent.iter().filter_map(|bytes| Header::parse(bytes)).map(|parsed| parsed.0).collect()
    }
}

fn send(socket: &Arc<Socket>, bytes: &[u8]) -> Result<usize> {
    socket.send(&mut &bytes[..], &Sending::default())
}

fn receive(socket: &Arc<Socket>, limit: usize) -> Result<Vec<u8>> {
    let mut buffer = Buffer::with_limit(limit);
    socket.receive(&mut buffer, Wants::default())?;
    Ok(buffer.bytes)
}

fn syn(port: u16, sequence: u32) -> Header {
    Header {
        source_port: port,
        destination_port: 80,
        sequence,
        flags: flag::SYN,
        window: 60_000,
        segment_bytes_max: Some(1460),
        window_shift: Some(7),
        is_sack_permitted: true,
        times: Some((50_000, 0)),
        ..Header::default()
    }
}

#[test]
fn bytes_go_both_ways_and_both_ends_end() {
    let mut world = World::good();
    let [client, server] = world.pair();
    assert_eq!((client.state(), server.state()), (TcpState::Established, TcpState::Established));
    assert_eq!((client.remote().ok(), client.local()), (server.local(), server.remote().ok()));
    assert_eq!((client.readiness(), server.readiness()), (Readiness::WRITE, Readiness::WRITE));
    assert_eq!((send(&client, b"there"), send(&server, b"back")), (Ok(5), Ok(4)));
    assert_eq!(receive(&server, 9), Err(Errno::EAGAIN));
    world.run(SECOND_NS / 10);
    assert_eq!(server.readiness(), Readiness::WRITE | Readiness::READ);
    assert_eq!((receive(&server, 9), receive(&client, 9)), (Ok(b"there".to_vec()), Ok(b"back".to_vec())));
    client.shutdown(Halves { receiving: false, sending: true }).expect("it is connected");
    world.run(SECOND_NS / 10);
    assert_eq!((client.state(), server.state()), (TcpState::FinWait2, TcpState::CloseWait));
    assert_eq!(server.readiness(), Readiness::WRITE | Readiness::READ | Readiness::READ_HANG_UP);
    assert_eq!(receive(&server, 9), Ok(Vec::new()));
    assert_eq!(send(&server, b"more"), Ok(4));
    world.run(SECOND_NS / 10);
    assert_eq!(receive(&client, 9), Ok(b"more".to_vec()));
    server.close();
    world.run(SECOND_NS / 10);
    assert_eq!((client.state(), receive(&client, 9)), (TcpState::Close, Ok(Vec::new())));
    client.close();
    assert_eq!((world.inets[0].engine.counts(), world.inets[1].engine.counts()), ((0, 0, 1), (0, 0, 0)));
    assert_eq!(world.inets[0].connection_counts(), (0, 1));
    world.run(61 * SECOND_NS);
    assert_eq!((world.inets[0].engine.counts(), world.inets[0].connection_counts()), ((0, 0, 0), (0, 0)));
    assert_eq!(world.inets[0].engine.deadline_ns(), None, "nothing is due any more");
}

#[test]
fn nobody_there_refuses_and_silence_times_out() {
    let mut world = World::good();
    let client = world.connect(0, 81);
    assert_eq!((client.connect_outcome(), client.state()), (Err(Errno::EAGAIN), TcpState::SynSent));
    assert_eq!(client.readiness(), Readiness::empty());
    world.run(SECOND_NS / 10);
    let refused = Readiness::EVENTS.difference(Readiness::PRIORITY);
    assert_eq!(client.readiness(), refused);
    assert_eq!(client.connect_outcome(), Err(Errno::ECONNREFUSED));
    assert_eq!(world.inets[0].connection_counts(), (0, 0));
    world.link.faults.lost = 1000;
    let client = world.connect(0, 81);
    world.run(126 * SECOND_NS);
    assert_eq!(client.connect_outcome(), Err(Errno::EAGAIN));
    world.run(2 * SECOND_NS);
    assert_eq!(client.take_error(), Some(Errno::ETIMEDOUT));
    client.close();
    *world.ways[0].error.lock() = Some(Errno::ENETUNREACH);
    let client = world.tcp(0);
    assert_eq!(client.begin_connect(SocketAddr::new(address(1), 81)), Err(Errno::ENETUNREACH));
    client.close();
    assert_eq!((world.inets[0].connection_counts(), world.inets[0].engine.counts()), ((0, 0), (0, 0, 0)));
}

#[test]
fn resets_are_told_after_what_came_before() {
    let mut world = World::good();
    let [client, server] = world.pair();
    assert_eq!((send(&client, b"unread"), send(&server, b"first")), (Ok(6), Ok(5)));
    world.run(SECOND_NS / 10);
    server.close();
    world.run(SECOND_NS / 10);
    assert_eq!(client.readiness(), Readiness::EVENTS.difference(Readiness::PRIORITY));
    assert_eq!(receive(&client, 9), Ok(b"first".to_vec()));
    assert_eq!(receive(&client, 9), Err(Errno::ECONNRESET));
    assert_eq!(receive(&client, 9), Ok(Vec::new()));
    assert_eq!(send(&client, b"x"), Err(Errno::EPIPE));
    assert_eq!(client.shutdown(Halves { receiving: true, sending: true }), Err(Errno::ENOTCONN));
    client.close();
    assert_eq!((world.inets[0].engine.counts(), world.inets[1].engine.counts()), ((0, 0, 0), (0, 0, 0)));
}

#[test]
fn bytes_for_a_closed_socket_are_refused() {
    let mut world = World::good();
    let [client, server] = world.pair();
    server.close();
    world.run(SECOND_NS / 10);
    assert_eq!((client.state(), send(&client, b"late")), (TcpState::CloseWait, Ok(4)));
    world.run(SECOND_NS / 10);
    assert_eq!((client.state(), client.take_error()), (TcpState::Close, Some(Errno::EPIPE)));
    assert_eq!(world.inets[1].engine.counts(), (0, 0, 0));
}

#[test]
fn a_closed_socket_still_sends_what_it_was_given() {
    let mut world = World::good();
    let [client, server] = world.pair();
    let bytes: Vec<u8> = (0..60_000u32).map(|at| at as u8).collect();
    assert_eq!(send(&client, &bytes), Ok(60_000));
    client.close();
    world.run(2 * SECOND_NS);
    let received = receive(&server, 70_000).expect("it is there");
    assert!(received == bytes, "{} bytes came", received.len());
    server.close();
    world.run(SECOND_NS);
    assert_eq!((world.inets[0].engine.counts(), world.inets[1].engine.counts()), ((0, 0, 1), (0, 0, 0)));
}

#[test]
fn a_full_queue_is_silent_and_lets_in_later() {
    let mut world = World::good();
    let listener = world.listener(1, 80, 1);
    let clients = [world.connect(0, 80), world.connect(0, 80)];
    world.run(SECOND_NS / 10);
    assert!(clients.iter().all(|client| client.connect_outcome() == Ok(())));
    let third = world.connect(0, 80);
    world.run(SECOND_NS * 2);
    assert_eq!(third.connect_outcome(), Err(Errno::EAGAIN), "its first segments are dropped");
    assert!(listener.accept().is_ok());
    world.run(5 * SECOND_NS);
    assert_eq!(third.connect_outcome(), Ok(()));
    assert!(listener.accept().is_ok() && listener.accept().is_ok() && listener.accept().is_err());
}

#[test]
fn a_listener_that_ends_refuses_those_that_wait() {
    let mut world = World::good();
    let listener = world.listener(1, 80, 5);
    let client = world.connect(0, 80);
    world.run(SECOND_NS / 10);
    assert_eq!(client.connect_outcome(), Ok(()));
    listener.close();
    world.run(SECOND_NS / 10);
    assert_eq!(client.take_error(), Some(Errno::ECONNRESET));
    assert_eq!(world.inets[1].engine.counts(), (0, 0, 0));
}

#[test]
fn a_flood_keeps_nobody_out_and_costs_little() {
    let mut world = World::good();
    let listener = world.listener(1, 80, 128);
    for number in 0..20_000u32 {
        let answers = world.throw(syn(1024 + (number % 60_000) as u16, number.wrapping_mul(77)), &[]);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].flags, flag::SYN | flag::ACK);
    }
    assert_eq!(world.inets[1].engine.counts(), (0, 129, 0));
    let client = world.connect(0, 80);
    world.run(SECOND_NS / 2);
    assert_eq!(client.connect_outcome(), Ok(()));
    let server = listener.accept().expect("it is let in by its cookie");
    assert_eq!(send(&client, &[7; 5000]), Ok(5000));
    world.run(SECOND_NS / 2);
    assert_eq!(receive(&server, 9000).map(|bytes| bytes.len()), Ok(5000));
    world.run(70 * SECOND_NS);
    assert_eq!(world.inets[1].engine.counts().1, 0, "those that never came again are forgotten");
}

#[test]
fn segments_to_nobody_are_refused_as_the_rules_have_it() {
    let mut world = World::good();
    let closed = |flags, acknowledgement| Header {
        source_port: 9,
        destination_port: 99,
        sequence: 500,
        acknowledgement,
        flags,
        ..Header::default()
    };
    let (ack, fin, rst, first) = (flag::ACK, flag::FIN, flag::RST, flag::SYN);
    for (flags, expected) in [
        (first, Some((0, 501, rst | ack))),
        (ack, Some((77, 0, rst))),
        (first | ack, Some((77, 0, rst))),
        (fin | ack, Some((77, 0, rst))),
        (fin, Some((0, 501, rst | ack))),
        (rst, None),
        (rst | ack, None),
    ] {
        let answers = world.throw(closed(flags, 77), &[]);
        let shown = answers.first().map(|answer| (answer.sequence, answer.acknowledgement, answer.flags));
        assert_eq!((answers.len(), shown), (usize::from(expected.is_some()), expected), "{flags}");
    }
    let _listener = world.listener(1, 80, 5);
    let at_listener = |flags| Header { destination_port: 80, ..closed(flags, 77) };
    for (flags, count) in [(ack, 1), (first | ack, 1), (first | fin, 0), (fin, 0), (rst, 0), (0, 0)] {
        assert_eq!(world.throw(at_listener(flags), &[]).len(), count, "{flags}");
    }
}

#[test]
fn a_half_open_connection_answers_as_the_rules_have_it() {
    let mut world = World::good();
    let listener = world.listener(1, 80, 5);
    let answer = world.throw(syn(9, 500), &[])[0];
    assert_eq!((answer.flags, answer.acknowledgement, answer.window), (flag::SYN | flag::ACK, 501, 65_160));
    assert_eq!((answer.segment_bytes_max, answer.window_shift, answer.is_sack_permitted), (Some(1460), Some(7), true));
    let again = world.throw(syn(9, 500), &[])[0];
    assert_eq!((again.flags, again.sequence), (answer.flags, answer.sequence), "the same again");
    let third = |flags, acknowledgement| Header {
        source_port: 9,
        destination_port: 80,
        sequence: 501,
        acknowledgement,
        flags,
        window: 500,
        times: Some((50_001, 0)),
        ..Header::default()
    };
    let wrong = world.throw(third(flag::ACK, answer.sequence), &[])[0];
    assert_eq!((wrong.flags, wrong.sequence), (flag::RST, answer.sequence));
    assert_eq!(world.inets[1].engine.counts(), (0, 1, 0), "it stays");
    assert!(world.throw(third(flag::RST, 0), &[]).is_empty());
    assert_eq!(world.inets[1].engine.counts(), (0, 0, 0), "it is gone");
    let refused = world.throw(third(flag::ACK, answer.sequence + 1), &[])[0];
    assert_eq!((refused.flags, refused.sequence), (flag::RST, answer.sequence + 1));
    let answer = world.throw(syn(10, 500), &[])[0];
    let bytes = world.throw(Header { source_port: 10, ..third(flag::ACK, answer.sequence + 1) }, b"with bytes");
    assert_eq!((bytes[0].flags, bytes[0].acknowledgement), (flag::ACK, 511));
    assert_eq!(receive(&listener.accept().expect("it is there"), 20), Ok(b"with bytes".to_vec()));
    world.throw(syn(11, 500), &[]);
    world.run(64 * SECOND_NS);
    assert_eq!(world.inets[1].engine.counts(), (1, 0, 0), "it was answered six times and forgotten");
}

#[test]
fn keep_alive_finds_out_that_nobody_is_there() {
    use crate::net::inet::settings::Setting;
    let mut world = World::good();
    let [client, server] = world.pair();
    client.settings().set(Setting::KeepIdle, 10);
    client.settings().set(Setting::KeepInterval, 2);
    client.settings().set(Setting::KeepCount, 3);
    client.options().set_on(crate::net::inet::socket::switch::KEEP_ALIVE, true);
    client.apply_settings();
    world.run(100 * SECOND_NS);
    assert_eq!((client.state(), server.state()), (TcpState::Established, TcpState::Established));
    world.link.faults.lost = 1000;
    world.run(15 * SECOND_NS);
    assert_eq!(client.state(), TcpState::Established);
    world.run(13 * SECOND_NS);
    assert_eq!((client.state(), client.take_error()), (TcpState::Close, Some(Errno::ETIMEDOUT)));
}

#[test]
fn two_ends_that_begin_at_the_same_time_meet() {
    let mut world = World::good();
    let ends = [0, 1].map(|end: usize| {
        let socket = world.tcp(end);
        socket.bind(SocketAddr::new([0, 0, 0, 0].into(), 5000)).expect("a free port");
        assert_eq!(socket.begin_connect(SocketAddr::new(address(1 - end), 5000)), Ok(true));
        socket
    });
    world.run(SECOND_NS);
    assert_eq!(ends.each_ref().map(|end| end.connect_outcome()), [Ok(()), Ok(())]);
    assert_eq!(send(&ends[0], b"met"), Ok(3));
    world.run(SECOND_NS);
    assert_eq!(receive(&ends[1], 9), Ok(b"met".to_vec()));
}

#[test]
fn urgent_bytes_go_to_another_machine() {
    let mut world = World::good();
    let ends = world.pair();
    let urgent = Sending { is_urgent: true, ..Sending::default() };
    assert_eq!(ends[0].send(&mut &b"ab!"[..], &urgent), Ok(3));
    assert_eq!(send(&ends[0], b"cd"), Ok(2));
    world.run(SECOND_NS);
    assert!(ends[1].readiness().contains(Readiness::READ | Readiness::PRIORITY));
    assert_eq!(ends[1].readable_bytes(), Ok(2));
    assert_eq!(receive(&ends[1], 9), Ok(b"ab".to_vec()));
    assert!(ends[1].is_at_mark());
    assert_eq!((ends[1].urgent_byte(true), ends[1].urgent_byte(false)), (Ok(Some(b'!')), Ok(Some(b'!'))));
    assert_eq!(ends[1].urgent_byte(false), Err(Errno::EINVAL));
    assert_eq!(receive(&ends[1], 9), Ok(b"cd".to_vec()));
    assert!(!ends[1].readiness().contains(Readiness::PRIORITY));
}

/// Sends and receives at both ends until all is through; how long it took.
fn exchange(world: &mut World, seed: u64, ends: &[Arc<Socket>; 2], total: usize) -> u64 {
    let mut chance = Chance::new(seed);
    let byte =
        |end: usize, at: usize| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(end as u32).to_be_bytes()[0];
    let (mut given, mut taken, mut is_shut) = ([0; 2], [0; 2], [false; 2]);
    let mut has_end = [false; 2];
    let begun_ns = world.now_ns;
    while has_end != [true; 2] {
        for end in 0..2 {
            let wanted = (total - given[end]).min(1 + chance.below(20_000) as usize);
            let bytes: Vec<u8> = (given[end]..given[end] + wanted).map(|at| byte(end, at)).collect();
            match send(&ends[end], &bytes) {
                _ if wanted == 0 => {}
                Ok(count) => given[end] += count,
                Err(Errno::EAGAIN) => {}
                Err(error) => panic!("seed {seed}: end {end} at {given:?} {taken:?}: {error:?}"),
            }
            if given[end] == total && !is_shut[end] {
                is_shut[end] = true;
                ends[end].shutdown(Halves { receiving: false, sending: true }).expect("it is connected");
            }
            match receive(&ends[end], 1 + chance.below(20_000) as usize) {
                Ok(bytes) if bytes.is_empty() => has_end[end] = true,
                Ok(bytes) => {
                    for (at, received) in (taken[end]..).zip(&bytes) {
                        assert_eq!(*received, byte(1 - end, at), "seed {seed}: end {end} at {at}");
                    }
                    taken[end] += bytes.len();
                }
                Err(Errno::EAGAIN) => {}
                Err(error) => panic!("seed {seed}: end {end}: {error:?}"),
            }
        }
        world.run(1 + chance.below(3_000_000));
        let took_ns = world.now_ns - begun_ns;
        assert!(took_ns < 600 * SECOND_NS, "seed {seed}: stalled at {given:?} {taken:?}");
    }
    assert_eq!(taken, [total; 2]);
    world.now_ns - begun_ns
}

#[test]
fn bytes_come_through_links_that_do_anything() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let faults = Faults {
            lost: chance.below(60),
            repeated: chance.below(60),
            late: chance.below(150),
            spoiled: chance.below(20),
        };
        let mut world = World::good();
        let ends = world.pair();
        world.link = Link::new(seed, faults, 1 + chance.below(20_000_000));
        world.ways.iter().for_each(|way| way.full_per_mille.store(chance.below(40), Ordering::Relaxed));
        let total = 1 + chance.below(50_000) as usize;
        exchange(&mut world, seed, &ends, total);
        ends.iter().for_each(|end| end.close());
        world.link.faults = Faults::default();
        world.run(700 * SECOND_NS);
        assert_eq!([0, 1].map(|end: usize| world.inets[end].engine.counts()), [(0, 0, 0); 2], "seed {seed}");
        assert_eq!([0, 1].map(|end: usize| world.inets[end].connection_counts()), [(0, 0); 2], "seed {seed}");
        assert_eq!([0, 1].map(|end: usize| world.inets[end].engine.deadline_ns()), [None; 2], "seed {seed}");
    }
}
