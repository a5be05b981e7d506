//! The client of DHCP (RFC 2131): an address, its network, routes (RFC 3442), name servers and how long packets may be,
//! from a server of the link, for a time.
//!
//! Asked by broadcast until a server offers something, at longer and longer intervals; what was given is asked for
//! again of its server at half of its time, of any at seven eighths, and given up at its end. Answers count that have
//! the number of the question and the card's address.
//!
//! It only reads and writes messages and knows when the next is due; [`super::lease`] sends and acts.

use core::net::Ipv4Addr;

use super::ethernet::HardwareAddress;

/// Bytes of a message before its options, and those that begin them.
const HEADER_BYTES: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Bytes of a message that is sent.
pub(super) const MESSAGE_BYTES: usize = 300;
/// Types of messages.
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACKNOWLEDGE: u8 = 5;
const REFUSE: u8 = 6;
/// First and longest time between two questions.
const RETRY_NS: u64 = 4_000_000_000;
const RETRY_NS_MAX: u64 = 64_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The least that a lease is taken to last: nobody can have this machine ask all the time.
const LEASE_SECONDS_MIN: u32 = 60;

/// Name servers and routes that are taken of a lease.
pub(super) const SERVER_COUNT_MAX: usize = 3;
pub(super) const ROUTE_COUNT_MAX: usize = 6;
/// No packet has to be shorter (RFC 791).
const PACKET_BYTES_MIN: u16 = 576;

/// A way to a network: its address and bits, and the router, no address if it is right there.
pub(super) type LeasedRoute = (Ipv4Addr, u8, Ipv4Addr);

/// What a server gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) address: Ipv4Addr,
    pub(super) prefix_bits: u8,
    pub(super) routes: [Option<LeasedRoute>; ROUTE_COUNT_MAX],
    pub(super) name_servers: [Option<Ipv4Addr>; SERVER_COUNT_MAX],
    /// Longest packet, if it was said.
    pub(super) packet_bytes_max: Option<u16>,
    pub(super) server: Option<Ipv4Addr>,
    pub(super) rebind_ns: u64,
    pub(super) until_ns: u64,
}

/// What a message brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing.
    Nothing,
    /// An offer, which is to be asked for now.
    Offer,
    /// An address.
    Lease(Lease),
    /// What was given is no more.
    Lost,
}

/// What the options of a message say.
#[derive(Clone, Copy, Default)]
struct Options {
    kind: u8,
    server: Option<Ipv4Addr>,
    mask: Option<Ipv4Addr>,
    router: Option<Ipv4Addr>,
    routes: Option<[Option<LeasedRoute>; ROUTE_COUNT_MAX]>,
    name_servers: [Option<Ipv4Addr>; SERVER_COUNT_MAX],
    packet_bytes_max: Option<u16>,
    lease_seconds: Option<u32>,
}

impl Options {
    /// The routes: those that were listed, else by the router.
    fn ways(&self) -> [Option<LeasedRoute>; ROUTE_COUNT_MAX] {
        self.routes.unwrap_or_else(|| {
            let mut ways = [None; ROUTE_COUNT_MAX];
            let router = self.router.filter(|router| is_usable(*router));
            ways[0] = router.map(|router| (Ipv4Addr::UNSPECIFIED, 0, router));
            ways
        })
    }
}

/// Routes as RFC 3442 writes them: a prefix in as many bytes as it needs, and a router. What is broken ends them.
fn read_routes(mut bytes: &[u8]) -> [Option<LeasedRoute>; ROUTE_COUNT_MAX] {
    let mut routes = [None; ROUTE_COUNT_MAX];
    for route in &mut routes {
        let Some((bits, rest)) = bytes.split_first().filter(|(bits, _)| **bits <= 32) else { break };
        let Some((prefix, rest)) = rest.split_at_checked(usize::from(*bits).div_ceil(8)) else { break };
        let Some((router, rest)) = rest.split_first_chunk::<4>() else { break };
        let mut octets = [0; 4];
        octets[..prefix.len()].copy_from_slice(prefix);
        let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
        let network = Ipv4Addr::from_bits(Ipv4Addr::from(octets).to_bits() & mask);
        let router = Ipv4Addr::from(*router);
        bytes = rest;
        if router.is_unspecified() || is_usable(router) {
            *route = Some((network, *bits, router));
        }
    }
    routes
}

/// The client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dhcp {
    number: u32,
    /// When something is due; 0: it was never begun.
    at_ns: u64,
    retry_ns: u64,
    /// Address and server that are asked for.
    offer: Option<(Ipv4Addr, Ipv4Addr)>,
    lease: Option<Lease>,
}

fn address_of(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

fn read_options(mut bytes: &[u8]) -> Options {
    let mut options = Options::default();
    while let [kind, rest @ ..] = bytes {
        if *kind == 0 {
            bytes = rest;
            continue;
        }
        let Some((length, rest)) = rest.split_first().filter(|_| *kind != 255) else { break };
        let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        match kind {
            1 => options.mask = address_of(value),
            3 => options.router = address_of(value),
            6 => {
                for (place, octets) in options.name_servers.iter_mut().zip(value.chunks_exact(4)) {
                    *place = address_of(octets).filter(|server| is_usable(*server));
                }
            }
            26 => options.packet_bytes_max = value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)),
            51 => options.lease_seconds = address_of(value).map(Ipv4Addr::to_bits),
            53 => options.kind = value.first().copied().unwrap_or(0),
            54 => options.server = address_of(value),
            121 => options.routes = Some(read_routes(value)),
            _ => {}
        }
        bytes = rest;
    }
    options
}

fn is_usable(address: Ipv4Addr) -> bool {
    super::packet::is_sender(address.into())
}

impl Dhcp {
    /// Begins.
    pub(super) fn begin(&mut self, now_ns: u64) {
        *self = Self { at_ns: now_ns.max(1), retry_ns: RETRY_NS, ..Self::default() };
    }

    /// When something is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        Some(self.at_ns).filter(|at_ns| *at_ns != 0)
    }

    /// The question that is due now, under a number that nobody knows.
    pub(super) fn question(
        &mut self,
        hardware: HardwareAddress,
        number: u32,
        now_ns: u64,
    ) -> Option<[u8; MESSAGE_BYTES]> {
        if self.at_ns == 0 || self.at_ns > now_ns {
            return None;
        }
        if self.lease.is_some_and(|lease| lease.until_ns <= now_ns) {
            self.lease = None;
        }
        // An offer that was not confirmed is not asked for again.
        let asks_again = self.lease.is_none() && self.offer.take().is_some();
        self.number = number;
        self.at_ns = now_ns.saturating_add(if asks_again { RETRY_NS } else { self.retry_ns });
        self.retry_ns = (self.retry_ns * 2).min(RETRY_NS_MAX);
        Some(self.message(hardware))
    }

    /// The message that asks for what is known to be there, or for anything.
    pub(super) fn message(&self, hardware: HardwareAddress) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        // A question, on Ethernet, whose answer goes to all.
        bytes[..3].copy_from_slice(&[1, 1, 6]);
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        // One that has an address is answered there.
        bytes[10] = if self.lease.is_some() { 0 } else { 0x80 };
        bytes[28..34].copy_from_slice(&hardware);
        bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&COOKIE);
        let mut at = HEADER_BYTES + 4;
        let mut put = |option: &[u8]| {
            bytes[at..at + option.len()].copy_from_slice(option);
            at += option.len();
        };
        let asks = self.offer.is_some() || self.lease.is_some();
        put(&[53, 1, if asks { REQUEST } else { DISCOVER }]);
        // Routes, mask, router, name servers, longest packet, lease.
        put(&[55, 6, 121, 1, 3, 6, 26, 51]);
        if let Some((address, server)) = self.offer {
            put(&[50, 4]);
            put(&address.octets());
            put(&[54, 4]);
            put(&server.octets());
        }
        put(&[255]);
        if let Some(lease) = self.lease {
            bytes[12..16].copy_from_slice(&lease.address.octets());
        }
        bytes
    }

    /// The lease, and the server that is asked for it again; `None`: all are asked.
    pub(super) fn renewal(&self, now_ns: u64) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let lease = self.lease.filter(|lease| now_ns < lease.rebind_ns)?;
        Some((lease.address, lease.server?))
    }

    /// Takes in a message.
    pub(super) fn hear(&mut self, bytes: &[u8], hardware: HardwareAddress, now_ns: u64) -> Heard {
        let is_ours = bytes.len() >= HEADER_BYTES + 4
            && bytes[..3] == [2, 1, 6]
            && bytes[4..8] == self.number.to_be_bytes()
            && bytes[28..34] == hardware
            && bytes[HEADER_BYTES..HEADER_BYTES + 4] == COOKIE;
        if self.at_ns == 0 || !is_ours {
            return Heard::Nothing;
        }
        let options = read_options(&bytes[HEADER_BYTES + 4..]);
        let address = address_of(&bytes[16..20]).filter(|address| is_usable(*address));
        match (options.kind, address, self.offer, self.lease) {
            (OFFER, Some(address), None, None) => {
                let Some(server) = options.server else { return Heard::Nothing };
                self.offer = Some((address, server));
                self.at_ns = now_ns.saturating_add(RETRY_NS);
                Heard::Offer
            }
            (ACKNOWLEDGE, Some(address), offer, lease) if offer.is_some() || lease.is_some() => {
                let is_same = |known: Ipv4Addr| known == address;
                if !offer.is_none_or(|(known, _)| is_same(known)) || !lease.is_none_or(|it| is_same(it.address)) {
                    return Heard::Nothing;
                }
                let seconds = options.lease_seconds.unwrap_or(LEASE_SECONDS_MIN).max(LEASE_SECONDS_MIN);
                let lasts_ns = u64::from(seconds) * SECOND_NS;
                let mask = options.mask.map_or(u32::MAX << 8, Ipv4Addr::to_bits);
                let lease = Lease {
                    address,
                    prefix_bits: mask.leading_ones() as u8,
                    routes: options.ways(),
                    name_servers: options.name_servers,
                    packet_bytes_max: options.packet_bytes_max.filter(|bytes| *bytes >= PACKET_BYTES_MIN),
                    server: options.server,
                    rebind_ns: now_ns.saturating_add(lasts_ns / 8 * 7),
                    until_ns: now_ns.saturating_add(lasts_ns),
                };
                (self.offer, self.lease, self.retry_ns) = (None, Some(lease), RETRY_NS);
                self.at_ns = now_ns.saturating_add(lasts_ns / 2);
                Heard::Lease(lease)
            }
            (REFUSE, _, offer, lease) if offer.is_some() || lease.is_some() => {
                self.begin(now_ns.saturating_add(RETRY_NS));
                Heard::Lost
            }
            _ => Heard::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::{Dhcp, Heard, Lease, RETRY_NS, ROUTE_COUNT_MAX, SECOND_NS};

    const CARD: [u8; 6] = [2, 0, 0, 0, 0, 15];

    fn answer(kind: u8, number: u32, seconds: u32) -> Vec<u8> {
        let mut bytes = std::vec![0; 236];
        bytes[..3].copy_from_slice(&[2, 1, 6]);
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        bytes[16..20].copy_from_slice(&[10, 1, 2, 3]);
        bytes[28..34].copy_from_slice(&CARD);
        bytes.extend([99, 130, 83, 99, 53, 1, kind, 54, 4, 10, 1, 0, 1, 1, 4, 255, 255, 0, 0, 3, 4, 10, 1, 0, 1]);
        bytes.extend([51, 4]);
        bytes.extend(seconds.to_be_bytes());
        bytes.push(255);
        bytes
    }

    #[test]
    fn an_address_is_asked_for_kept_and_given_up() {
        let mut dhcp = Dhcp::default();
        assert_eq!((dhcp.due_ns(), dhcp.question(CARD, 7, 0)), (None, None));
        dhcp.begin(0);
        let question = dhcp.question(CARD, 7, 1).expect("it is due");
        assert_eq!((question[242], dhcp.question(CARD, 8, 1)), (1, None));
        assert_eq!(dhcp.hear(&answer(2, 6, 1000), CARD, 2), Heard::Nothing, "another number");
        assert_eq!(dhcp.hear(&answer(5, 7, 1000), CARD, 2), Heard::Nothing, "nothing was asked for");
        assert_eq!(dhcp.hear(&answer(2, 7, 1000), CARD, 2), Heard::Offer);
        assert_eq!(dhcp.message(CARD)[242], 3);
        let until_ns = 2 + 1000 * SECOND_NS;
        let router = Ipv4Addr::new(10, 1, 0, 1);
        let mut lease = Lease {
            address: Ipv4Addr::new(10, 1, 2, 3),
            prefix_bits: 16,
            routes: [None; ROUTE_COUNT_MAX],
            name_servers: [None; 3],
            packet_bytes_max: None,
            server: Some(router),
            rebind_ns: 2 + 875 * SECOND_NS,
            until_ns,
        };
        lease.routes[0] = Some((Ipv4Addr::UNSPECIFIED, 0, router));
        assert_eq!(dhcp.hear(&answer(5, 7, 1000), CARD, 2), Heard::Lease(lease));
        assert_eq!(dhcp.renewal(501 * SECOND_NS), Some((lease.address, router)));
        assert_eq!(dhcp.renewal(876 * SECOND_NS), None, "now any server may answer");
        assert_eq!(dhcp.due_ns(), Some(2 + 500 * SECOND_NS));
        let again = dhcp.question(CARD, 9, 501 * SECOND_NS).expect("half of the time is over");
        assert_eq!((again[242], &again[12..16]), (3, &[10, 1, 2, 3][..]));
        assert!(matches!(dhcp.hear(&answer(5, 9, 1000), CARD, 502 * SECOND_NS), Heard::Lease(_)));
        let late = 5000 * SECOND_NS;
        assert_eq!(dhcp.question(CARD, 10, late).map(|question| question[242]), Some(1), "it is over");
        assert_eq!(dhcp.hear(&answer(2, 10, 1000), CARD, late), Heard::Offer);
        assert_eq!(dhcp.hear(&answer(6, 10, 1000), CARD, late), Heard::Lost);
        assert_eq!(dhcp.due_ns(), Some(late + RETRY_NS));
    }

    #[test]
    fn a_lease_says_more_than_an_address() {
        let mut dhcp = Dhcp::default();
        dhcp.begin(0);
        let _ = dhcp.question(CARD, 7, 1);
        assert_eq!(dhcp.hear(&answer(2, 7, 1000), CARD, 2), Heard::Offer);
        let mut message = answer(5, 7, 1000);
        message.pop();
        message.extend([6, 8, 10, 1, 0, 53, 10, 1, 0, 54, 26, 2, 5, 0x78]);
        // 10.7.0.0/16 by 10.1.0.9, all else by 10.1.0.8, 192.0.2.0/25 right there; then half of one.
        message.extend([121, 23, 16, 10, 7, 10, 1, 0, 9, 0, 10, 1, 0, 8, 25, 192, 0, 2, 127, 0, 0, 0, 0, 8, 10]);
        message.push(255);
        let Heard::Lease(lease) = dhcp.hear(&message, CARD, 2) else { panic!("it is a lease") };
        let at = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
        assert_eq!(lease.name_servers, [Some(at("10.1.0.53")), Some(at("10.1.0.54")), None]);
        assert_eq!(lease.packet_bytes_max, Some(1400));
        let routes = [("10.7.0.0", 16, "10.1.0.9"), ("0.0.0.0", 0, "10.1.0.8"), ("192.0.2.0", 25, "0.0.0.0")];
        let routes = routes.map(|(network, bits, router)| (at(network), bits, at(router)));
        assert!(lease.routes.iter().flatten().copied().eq(routes), "{:?}", lease.routes);
    }

    #[test]
    fn without_an_answer_it_asks_less_and_less() {
        let mut dhcp = Dhcp::default();
        dhcp.begin(0);
        let mut due = Vec::new();
        for _ in 0..8 {
            let now = dhcp.due_ns().expect("it goes on");
            assert!(dhcp.question(CARD, 1, now).is_some());
            due.push((dhcp.due_ns().expect("it goes on") - now) / SECOND_NS);
        }
        assert_eq!(due, [4, 8, 16, 32, 64, 64, 64, 64]);
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(mut bytes: Vec<u8>, at in 0..300usize, cut in 0..300usize, kind in 0..8u8) {
            let mut dhcp = Dhcp::default();
            dhcp.begin(0);
            let _ = dhcp.question(CARD, 7, 1);
            let _ = (dhcp.hear(&bytes, CARD, 1), dhcp.hear(&answer(2, 7, 9), CARD, 1));
            let mut message = answer(kind, 7, 9);
            message.truncate(cut);
            let at = at.min(message.len());
            message.splice(at.., bytes.drain(..));
            let _ = (dhcp.hear(&message, CARD, 1), dhcp.message(CARD));
        }
    }
}
