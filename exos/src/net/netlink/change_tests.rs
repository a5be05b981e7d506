//! Requests that change the network, and what groups are told, over a network that does what it is told.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::diagnosis::{Provider, SocketStatus, Wanted};
use super::super::message::{Requests, Writer, u16_at};
use super::super::route::kind;
use super::super::socket::protocol;
use super::super::{Address, Netlink, Sender, Socket};
use super::{CREATE, Change, EXCLUSIVE};
use crate::error::{Errno, Result};
use crate::fs::transfer::Buffer;
use crate::net::view::NetworkView;
use crate::net::view::tests::pod;
use crate::sync::Mutex;

struct Changing(Mutex<NetworkView>);

impl Provider for Changing {
    fn view(&self) -> Result<NetworkView> {
        Ok(self.0.lock().clone())
    }

    fn sockets(&self, _: Wanted) -> Result<Vec<SocketStatus>> {
        Ok(Vec::new())
    }

    fn change(&self, change: Change) -> Result<()> {
        let mut view = self.0.lock();
        match change {
            Change::Nothing => {}
            Change::AddAddress(own) => view.interfaces[1].addresses.push(own),
            Change::RemoveAddress(address) => view.interfaces[1].addresses.retain(|own| own.address != address),
            Change::AddRoute(route) => view.far_routes.push(route),
            Change::RemoveRoute(route) => view.far_routes.retain(|known| *known != route),
            Change::SetUp(is_up) => (view.interfaces[1].is_up, view.interfaces[1].is_running) = (is_up, is_up),
        }
        Ok(())
    }

    fn number(&self) -> fn(Errno) -> u32 {
        |error| error as u32
    }
}

const ROOT: Sender = Sender { process: 42, can_administer: true };

/// A socket that asks, and one that listens to all groups that there are.
fn world() -> (Arc<Netlink>, Arc<Socket>, Arc<Socket>) {
    let netlink = Netlink::new(Arc::new(Changing(Mutex::new(pod()))));
    let [asking, listening] = [1, 2].map(|number| Socket::new(&netlink, protocol::ROUTE, true, number));
    listening.bind(Address { port: 0, groups: 0x551 }, 7).expect("a port");
    (netlink, asking, listening)
}

fn receive(socket: &Socket) -> Option<(Vec<u8>, Address)> {
    let mut buffer = Buffer::with_limit(4096);
    socket.receive(&mut buffer, false).ok().map(|received| (buffer.bytes, received.from))
}

/// Kinds of the messages that wait, each with its group.
fn told(socket: &Socket) -> Vec<(u16, u32)> {
    core::iter::from_fn(|| receive(socket)).map(|(bytes, from)| (u16_at(&bytes, 4), from.groups)).collect()
}

/// What a request is answered with; `None`: it is done.
fn ask(socket: &Arc<Socket>, kind: u16, flags: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Option<u32> {
    let mut out = Writer::new();
    let begin = out.begin(kind, flags | 5, 7, 0);
    out.raw(fixed);
    attributes.iter().for_each(|(kind, value)| out.attribute(*kind, value));
    out.end(begin);
    socket.send(out.finish().expect("memory"), None, ROOT).expect("it is sent");
    let (answer, _) = receive(socket).expect("an acknowledgement");
    let error = i32::from_le_bytes(answer[16..20].try_into().expect("a number"));
    (error != 0).then_some(error.unsigned_abs())
}

#[test]
fn an_address_comes_and_goes_and_is_told() {
    let (_, asking, listening) = world();
    let (fixed, own) = ([2, 24, 0, 0, 2, 0, 0, 0], [(2, &[10, 9, 0, 7][..])]);
    assert_eq!(ask(&asking, kind::NEW_ADDRESS, CREATE | EXCLUSIVE, &fixed, &own), None);
    let (bytes, from) = receive(&listening).expect("an event");
    let event = Requests::new(&bytes).next().expect("a message");
    assert_eq!((event.kind, event.sequence, from.port, from.groups), (kind::NEW_ADDRESS, 0, 0, 0x10));
    assert_eq!((&event.body()[..2], event.attributes(8).find(1)), (&[2, 24][..], Some(&[10, 9, 0, 7][..])));
    // Its network, itself, and all of its network.
    assert_eq!(told(&listening), [(kind::NEW_ROUTE, 0x40); 3]);
    assert_eq!(ask(&asking, kind::NEW_ADDRESS, 0, &fixed, &own), Some(Errno::EEXIST as u32));
    let wrong = Some(Errno::EADDRNOTAVAIL as u32);
    assert_eq!(ask(&asking, kind::DELETE_ADDRESS, 0, &[2, 16, 0, 0, 2, 0, 0, 0], &own), wrong);
    assert_eq!(ask(&asking, kind::DELETE_ADDRESS, 0, &[2, 24, 0, 0, 9, 0, 0, 0], &own), Some(Errno::ENODEV as u32));
    assert_eq!(told(&listening), []);
    assert_eq!(ask(&asking, kind::DELETE_ADDRESS, 0, &fixed, &own), None);
    let gone = (kind::DELETE_ROUTE, 0x40);
    assert_eq!(told(&listening), [(kind::DELETE_ADDRESS, 0x10), gone, gone, gone]);
    let v6 = [(2, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..])];
    assert_eq!(ask(&asking, kind::NEW_ADDRESS, CREATE, &[10, 64, 0, 0, 2, 0, 0, 0], &v6), None);
    let events = told(&listening);
    assert_eq!((events[0], events[1]), ((kind::NEW_ADDRESS, 0x100), (kind::NEW_ROUTE, 0x400)));
    for fixed in [[2, 33, 0, 0, 2, 0, 0, 0], [2, 24, 0, 0, 9, 0, 0, 0], [2, 8, 0, 0, 1, 0, 0, 0]] {
        assert!(ask(&asking, kind::NEW_ADDRESS, CREATE, &fixed, &[(2, &[10, 9, 0, 8])]).is_some(), "{fixed:?}");
    }
}

#[test]
fn a_route_comes_and_goes_and_is_told() {
    let (_, asking, listening) = world();
    let fixed = [2, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    let by = |gateway: &'static [u8; 4]| [(1, &[192, 0, 2, 0][..]), (5, &gateway[..])];
    let add = CREATE | EXCLUSIVE;
    let unreachable = Some(Errno::ENETUNREACH as u32);
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &by(&[10, 7, 7, 7])), unreachable);
    assert_eq!(ask(&asking, kind::NEW_ROUTE, 0, &fixed, &by(&[10, 0, 2, 9])), Some(Errno::ENOENT as u32));
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &by(&[10, 0, 2, 9])), None);
    assert_eq!(told(&listening), [(kind::NEW_ROUTE, 0x40)]);
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &by(&[10, 0, 2, 9])), Some(Errno::EEXIST as u32));
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &[(1, &[198, 51, 100, 0])]), Some(Errno::ENODEV as u32));
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &[(1, &[198, 51, 100, 7])]), Some(Errno::EINVAL as u32));
    let direct = [(1, &[198, 51, 100, 0][..]), (4, &[2, 0, 0, 0][..])];
    assert_eq!(ask(&asking, kind::NEW_ROUTE, add, &fixed, &direct), None);
    assert_eq!(told(&listening), [(kind::NEW_ROUTE, 0x40)]);
    assert_eq!(ask(&asking, kind::DELETE_ROUTE, 0, &fixed, &by(&[10, 0, 2, 8])), Some(Errno::ESRCH as u32));
    assert_eq!(ask(&asking, kind::DELETE_ROUTE, 0, &fixed, &[(1, &[192, 0, 2, 0])]), None);
    assert_eq!(told(&listening), [(kind::DELETE_ROUTE, 0x40)]);
    let of_address = [2, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    let refused = Some(Errno::EOPNOTSUPP as u32);
    assert_eq!(ask(&asking, kind::DELETE_ROUTE, 0, &of_address, &[(1, &[10, 0, 2, 0])]), refused);
}

#[test]
fn an_interface_goes_down_and_up_and_is_told() {
    let (netlink, asking, listening) = world();
    let set = |flags: u8| [0, 0, 0, 0, 2, 0, 0, 0, flags, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(ask(&asking, kind::NEW_LINK, 0, &set(1), &[]), None);
    assert_eq!(told(&listening), []);
    assert_eq!(ask(&asking, kind::NEW_LINK, 0, &set(0), &[]), None);
    let (bytes, from) = receive(&listening).expect("an event");
    assert_eq!((u16_at(&bytes, 4), from.groups, bytes[24] & 1), (kind::NEW_LINK, 1, 0));
    assert!(told(&listening).iter().all(|(kind, _)| *kind == kind::DELETE_ROUTE));
    assert_eq!(ask(&asking, kind::SET_LINK, 0, &set(1), &[]), None);
    assert_eq!(told(&listening)[0], (kind::NEW_LINK, 1));
    // What is told while nobody listens is not kept.
    listening.close();
    netlink.tell_changes();
    assert_eq!(ask(&asking, kind::NEW_LINK, 0, &set(0), &[]), None);
    let late = Socket::new(&netlink, protocol::ROUTE, true, 3);
    late.bind(Address { port: 0, groups: 1 }, 9).expect("a port");
    netlink.tell_changes();
    assert_eq!(told(&late), []);
}

#[test]
fn a_listener_that_never_reads_is_told_so() {
    let (_, asking, listening) = world();
    listening.buffer_sizes().set_receive_bytes(0);
    let (fixed, own) = ([2, 24, 0, 0, 2, 0, 0, 0], [(2, &[10, 9, 0, 7][..])]);
    for _ in 0..20 {
        assert_eq!(ask(&asking, kind::NEW_ADDRESS, CREATE, &fixed, &own), None);
        assert_eq!(ask(&asking, kind::DELETE_ADDRESS, 0, &fixed, &own), None);
    }
    assert_eq!(listening.take_error(), Some(Errno::ENOBUFS));
    assert!(told(&listening).len() < 20 && listening.waiting().1 > 0);
}

#[test]
fn without_the_right_nothing_changes() {
    let (_, asking, listening) = world();
    let mut out = Writer::new();
    let begin = out.begin(kind::NEW_ADDRESS, 5, 7, 0);
    out.raw(&[2, 24, 0, 0, 2, 0, 0, 0]);
    out.attribute(2, &[10, 9, 0, 7]);
    out.end(begin);
    let nobody = Sender { process: 42, can_administer: false };
    asking.send(out.finish().expect("memory"), None, nobody).expect("it is sent");
    let (answer, _) = receive(&asking).expect("a refusal");
    assert_eq!(answer[16..20], (-(Errno::EPERM as i32)).to_le_bytes());
    assert_eq!(told(&listening), []);
}
