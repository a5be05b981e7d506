//! Packet sockets over a card that keeps what it is given.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::{ALL_PROTOCOLS, Choice, Kind, LinkAddress, Membership, Received, RingRequest, Socket, Target};
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::readiness::Readiness;
use crate::fs::transfer::Buffer;
use crate::mem::frames::FramePool;
use crate::mem::source::PageSource;
use crate::net::filter::{Filter, Instruction};
use crate::net::inet;
use crate::net::inet::interface::InterfaceAddress;
use crate::net::inet::wire::{
    Carrier, Interface, InterfaceFull, InterfaceIdentity, NetworkConfiguration, Reception, Transmission,
};
use crate::net::inet::{Family, Inet, Protocol, Sending};
use crate::platform::{FrameBytes, Kernel};
use crate::sync::Mutex;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 15];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ARP: u16 = 0x0806;
const ETHERNET: u32 = 2;
const LOOPBACK: u32 = 1;

#[derive(Default)]
struct Card {
    incoming: Mutex<VecDeque<Vec<u8>>>,
    outgoing: Mutex<Vec<Vec<u8>>>,
}

impl Interface for Card {
    fn identity(&self) -> InterfaceIdentity {
        InterfaceIdentity {
            hardware_address: OWN,
            packet_bytes_max: 1500,
            fills_checksums: false,
            segmented_bytes_max: 0,
        }
    }

    fn is_up(&self) -> bool {
        true
    }

    fn send(&self, parts: &[&[u8]], _: Transmission) -> core::result::Result<(), InterfaceFull> {
        self.outgoing.lock().push(parts.concat());
        Ok(())
    }

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn flush(&self) {}

    fn receive(&self, frame: &mut [u8]) -> Option<Reception> {
        let bytes = self.incoming.lock().pop_front()?;
        frame.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(Reception { byte_count: bytes.len(), is_checksum_valid: false })
    }

    fn ask_for_interrupt(&self) -> bool {
        false
    }

    fn dropped_count(&self) -> u64 {
        0
    }
}

struct OneCard(Arc<Card>);

impl Carrier for OneCard {
    fn open(&self) -> Option<Arc<dyn Interface>> {
        Some(self.0.clone())
    }

    fn wake_at(&self, _: u64) {}
}

struct World {
    kernel: Arc<FakeMachine>,
    inet: Arc<Inet>,
    card: Arc<Card>,
}

impl World {
    fn new(has_host_access: bool) -> Self {
        let kernel = FakeMachine::new();
        let seam: Arc<dyn Kernel> = kernel.clone();
        let inet = Inet::new(&seam, Box::new(|| 1));
        let card = Arc::<Card>::default();
        let network = |text: &str| InterfaceAddress { address: text.parse().expect("an address"), prefix_bits: 24 };
        let configuration = NetworkConfiguration {
            addresses: vec![network("10.0.2.15")],
            host_networks: vec![network("10.0.2.0")],
            has_host_access,
            ..NetworkConfiguration::default()
        };
        inet.attach(configuration, Arc::new(OneCard(card.clone())));
        // What a machine says at first.
        inet.open();
        inet.poll(kernel.now_ns());
        card.outgoing.lock().clear();
        Self { kernel, inet, card }
    }

    fn socket(&self, kind: Kind, protocol: u16, interface: u32) -> Arc<Socket> {
        let socket = Socket::new(&self.inet, kind, (7, 0), Box::new(|| 5_000_000_006));
        socket.bind(protocol, interface).expect("the interface is there");
        socket
    }

    fn give(&self, frame: &[u8]) {
        self.card.incoming.lock().push_back(frame.to_vec());
        self.inet.poll(self.kernel.now_ns());
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.card.outgoing.lock())
    }
}

fn frame(to: [u8; 6], protocol: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &PEER, &protocol.to_be_bytes(), payload].concat()
}

/// Who has 10.0.2.15?
fn question() -> Vec<u8> {
    let bytes = [0, 1, 8, 0, 6, 4, 0, 1];
    frame([0xff; 6], ARP, &[&[0], &bytes[..], &PEER, &[10, 0, 2, 2], &[0; 6], &[10, 0, 2, 15]].concat()[1..])
}

fn receive(socket: &Socket) -> Result<(Vec<u8>, Received)> {
    let mut buffer = Buffer::with_limit(2000);
    socket.receive(&mut buffer, false).map(|received| (buffer.bytes, received))
}

fn kinds(socket: &Socket) -> Vec<u8> {
    core::iter::from_fn(|| receive(socket).ok()).map(|(_, received)| received.from.kind).collect()
}

fn filter(limit: u32) -> Arc<Filter> {
    Filter::new(vec![Instruction { code: 6, constant: limit, ..Instruction::default() }]).expect("a program")
}

#[test]
fn all_frames_are_shown_to_those_that_want_all() {
    let world = World::new(true);
    let (all, arp) = (world.socket(Kind::Raw, ALL_PROTOCOLS, 0), world.socket(Kind::Datagram, ARP, ETHERNET));
    let [other, local] = [world.socket(Kind::Raw, 0x0800, 0), world.socket(Kind::Raw, ALL_PROTOCOLS, LOOPBACK)];
    world.sent();
    kinds(&all);
    world.give(&question());
    let (bytes, received) = receive(&all).expect("the question");
    assert_eq!((bytes, received.from.kind, received.from.protocol), (question(), 1, ARP));
    assert_eq!((received.from.interface, &received.from.address[..6]), (ETHERNET, &PEER[..]));
    // And the answer to it, on its way out.
    let (bytes, received) = receive(&all).expect("the answer");
    assert_eq!((bytes, received.from.kind, &received.from.address[..6]), (world.sent().remove(0), 4, &OWN[..]));
    let (bytes, received) = receive(&arp).expect("the question");
    assert_eq!((&bytes[..], received.length_bytes), (&question()[14..], 28));
    assert!(!arp.readiness().contains(Readiness::READ), "what is sent is for those alone that want all");
    assert_eq!(receive(&other).err(), Some(Errno::EAGAIN));
    assert_eq!(receive(&local).err(), Some(Errno::EAGAIN));
    all.set_on(Choice::IgnoreOutgoing, true);
    world.give(&question());
    assert_eq!(kinds(&all), [1]);
    all.close();
    world.give(&question());
    assert_eq!(kinds(&all), []);
    drop((all, arp, other, local));
    assert!(!world.inet.stack().taps().is_empty(), "dropped without a word, they are found out later");
}

#[test]
fn a_filter_cuts_and_refuses() {
    let world = World::new(true);
    let socket = world.socket(Kind::Raw, ARP, 0);
    socket.options().set_filter(Some(filter(20))).expect("it is not locked");
    world.give(&question());
    let (bytes, received) = receive(&socket).expect("a part of the question");
    assert_eq!((&bytes[..], received.message_bytes, received.length_bytes), (&question()[..20], 20, 42));
    socket.options().set_filter(Some(filter(0))).expect("it is not locked");
    world.give(&question());
    assert_eq!(receive(&socket).err(), Some(Errno::EAGAIN));
    assert_eq!(socket.take_statistics(), (1, 0));
    socket.options().lock_filter(true).expect("for the first time");
    assert_eq!(socket.options().set_filter(None), Err(Errno::EPERM));
    assert_eq!(socket.options().lock_filter(false), Err(Errno::EPERM));
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let world = World::new(true);
    let socket = world.socket(Kind::Raw, ARP, 0);
    socket.buffer_sizes().set_receive_bytes(0);
    (0..10).for_each(|_| world.give(&question()));
    // Each counts 42 and 768 bytes, of 2304.
    assert_eq!(kinds(&socket).len(), 3);
    assert_eq!(socket.take_statistics(), (10, 7));
    assert_eq!(socket.take_statistics(), (0, 0));
}

#[test]
fn frames_go_out_as_they_are_made() {
    let world = World::new(true);
    let [raw, all] = [(); 2].map(|()| world.socket(Kind::Raw, ALL_PROTOCOLS, ETHERNET));
    let whole = frame(PEER, 0x88b5, b"experimental");
    world.sent();
    kinds(&all);
    assert_eq!(raw.send(&mut &whole[..], None), Ok(whole.len()));
    assert_eq!(world.sent(), core::slice::from_ref(&whole));
    // Both have the same number here, and the number says that it was sent by this one.
    assert_eq!(kinds(&all), []);
    assert_eq!(raw.send(&mut &whole[..13], None), Err(Errno::EINVAL));
    assert_eq!(raw.send(&mut &vec![0; 1515][..], None), Err(Errno::EMSGSIZE));
    let to = |interface, address| Some(Target { protocol: 0x88b5, interface, address });
    assert_eq!(raw.send(&mut &whole[..], to(9, None)), Err(Errno::ENXIO));
    let datagram = world.socket(Kind::Datagram, 0, 0);
    assert_eq!(datagram.send(&mut &b"x"[..], None), Err(Errno::ENXIO));
    assert_eq!(datagram.send(&mut &b"x"[..], to(ETHERNET, None)), Err(Errno::EINVAL));
    assert_eq!(datagram.send(&mut &b"x"[..], to(ETHERNET, Some(PEER))), Ok(1));
    assert_eq!(world.sent(), [[&PEER[..], &OWN, &[0x88, 0xb5], b"x"].concat()]);
    assert_eq!(datagram.send(&mut &vec![0; 1501][..], to(ETHERNET, Some(PEER))), Err(Errno::EMSGSIZE));
}

#[test]
fn what_is_for_others_is_shown_if_it_is_wanted() {
    let world = World::new(true);
    let socket = world.socket(Kind::Raw, ALL_PROTOCOLS, ETHERNET);
    kinds(&socket);
    let other = frame([2, 0, 0, 0, 0, 99], 0x88b5, &[1; 40]);
    world.give(&other);
    let promiscuous = Membership { interface: ETHERNET, kind: 1, address_bytes: 0, address: [0; 8] };
    socket.drop_membership(promiscuous);
    assert_eq!(socket.add_membership(Membership { interface: 9, ..promiscuous }), Err(Errno::ENODEV));
    assert_eq!(socket.add_membership(Membership { kind: 0, ..promiscuous }), Err(Errno::EINVAL));
    assert_eq!([socket.add_membership(promiscuous), socket.add_membership(promiscuous)], [Ok(()); 2]);
    socket.drop_membership(promiscuous);
    world.give(&other);
    assert_eq!(kinds(&socket), [3]);
    // With the socket its wish ends.
    let second = world.socket(Kind::Raw, ALL_PROTOCOLS, ETHERNET);
    socket.close();
    world.give(&other);
    assert_eq!(kinds(&second), []);
}

#[test]
fn datagrams_over_loopback_are_shown_both_ways() {
    let world = World::new(true);
    let socket = world.socket(Kind::Datagram, ALL_PROTOCOLS, LOOPBACK);
    let udp = inet::Socket::new(&world.inet, Family::V4, Protocol::Udp, 1, 0);
    let to: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    udp.send(&mut &b"hello"[..], &Sending { target: Some(to), ..Sending::default() }).expect("it is sent");
    for kind in [4, 0] {
        let (bytes, received) = receive(&socket).expect("it is shown");
        assert_eq!((received.from.kind, received.from.hardware_kind, bytes.len()), (kind, 772, 33));
        assert_eq!(
            (bytes[0], bytes[9], &bytes[12..20], &bytes[28..]),
            (0x45, 17, &[127, 0, 0, 1, 127, 0, 0, 1][..], &b"hello"[..])
        );
    }
}

#[test]
fn no_frame_reaches_the_host_that_a_packet_would_not() {
    let world = World::new(false);
    let socket = world.socket(Kind::Datagram, 0x0800, ETHERNET);
    let sent = |destination: &str, protocol: u8, flags: u8, port: u16| {
        let IpAddr::V4(destination) = destination.parse().expect("an address") else { return Err(Errno::EINVAL) };
        let mut packet = vec![0x45, 0, 0, 48, 0, 0, flags, 0, 64, protocol, 0, 0, 10, 0, 2, 15];
        packet.extend(destination.octets());
        packet.extend([0, 68]);
        packet.extend(port.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        let target = Target { protocol: 0x0800, interface: ETHERNET, address: Some(PEER) };
        socket.send(&mut &packet[..], Some(target)).map(|_| ())
    };
    for host in ["10.0.2.2", "10.0.2.77", "127.0.0.1", "0.0.0.0", "255.255.255.255"] {
        assert_eq!(sent(host, 6, 0, 22), Err(Errno::ECONNREFUSED), "{host}");
        assert_eq!(sent(host, 17, 0, 111), Err(Errno::ECONNREFUSED), "{host}");
        assert_eq!(sent(host, 17, 0x20, 67), Err(Errno::ECONNREFUSED), "a piece to {host}");
    }
    assert_eq!(sent("10.0.2.2", 1, 0, 0), Ok(()));
    assert_eq!(sent("255.255.255.255", 17, 0, 67), Ok(()));
    assert_eq!(sent("192.0.2.1", 6, 0, 22), Ok(()));
    let mut mapped = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
    mapped.extend([0; 16]);
    mapped.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
    mapped.extend([0; 20]);
    let v6 = Some(Target { protocol: 0x86dd, interface: ETHERNET, address: Some(PEER) });
    assert_eq!(socket.send(&mut &mapped[..], v6), Err(Errno::ECONNREFUSED));
}

/// A word, and what follows it, of a ring's page.
fn page_bytes(world: &World, memory: &dyn PageSource, index: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let page = memory.page(index, crate::mem::source::PageIntent::Read).expect("it is there");
    world.kernel.read(page.frame.frame(), 0, &mut bytes);
    bytes
}

#[test]
fn a_ring_is_filled_and_emptied() {
    let world = World::new(true);
    let pool = FramePool::new(world.kernel.clone(), world.kernel.clone(), 1 << 20);
    let socket = world.socket(Kind::Raw, ARP, ETHERNET);
    let request = RingRequest { block_bytes: 4096, block_count: 2, frame_bytes: 2048, frame_count: 4 };
    assert_eq!(socket.make_ring(&pool, request), Err(Errno::EINVAL), "the first version is not there");
    socket.set_ring(Some(1), None).expect("there is no ring yet");
    for wrong in [
        RingRequest { block_bytes: 4097, ..request },
        RingRequest { frame_bytes: 40, frame_count: 204, ..request },
        RingRequest { frame_bytes: 2056, ..request },
        RingRequest { frame_count: 5, ..request },
        RingRequest { block_count: 0, ..request },
        RingRequest { frame_bytes: 8192, ..request },
    ] {
        assert_eq!(socket.make_ring(&pool, wrong), Err(Errno::EINVAL), "{wrong:?}");
    }
    let large = RingRequest { block_count: 1 << 16, frame_count: 1 << 17, ..request };
    assert_eq!(socket.make_ring(&pool, large), Err(Errno::ENOMEM));
    assert_eq!(socket.make_ring(&pool, request), Ok(()));
    assert_eq!([socket.make_ring(&pool, request), socket.set_ring(Some(1), None)], [Err(Errno::EBUSY); 2]);
    let memory = socket.ring_memory().expect("there is a ring");
    assert!(!socket.readiness().contains(Readiness::READ));
    (0..5).for_each(|_| world.give(&question()));
    assert!(socket.readiness().contains(Readiness::READ));
    assert_eq!(socket.take_statistics(), (5, 1));
    let page = page_bytes(&world, &*memory, 1);
    let number = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    assert_eq!([0, 4, 8, 12, 16, 20].map(number), [1, 42, 42, 66 | 80 << 16, 5, 6]);
    assert_eq!(&page[66..66 + 42], &question()[..]);
    let from = LinkAddress {
        protocol: ARP,
        interface: 2,
        hardware_kind: 1,
        kind: 1,
        address_bytes: 6,
        address: [2, 0, 0, 0, 0, 2, 0, 0],
    };
    assert_eq!(&page[32..52], &from.bytes());
    // The program gives its first frame back, which is then filled again.
    let first = memory.page(0, crate::mem::source::PageIntent::Read).expect("it is there").frame;
    world.kernel.write(first.frame(), 0, &[0; 4]);
    world.give(&question());
    world.give(&question());
    assert_eq!(socket.take_statistics(), (2, 1));
    assert_eq!(socket.make_ring(&pool, RingRequest::default()), Ok(()));
    world.give(&question());
    assert_eq!(kinds(&socket), [1]);
    drop((memory, first));
    assert_eq!(pool.statistics().held - pool.statistics().free, 0, "its memory is back");
}
