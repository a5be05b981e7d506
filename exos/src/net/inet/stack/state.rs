//! The stack itself: its card, its tables, and what they are asked from outside.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::super::interface::{
    ETHERNET_INDEX, ETHERNET_NAME, InterfaceAddress, InterfaceStatus, NeighbourStatus, Route, Traffic,
};
use super::super::wire::{Arrival, Carrier, IcmpError, Interface, InterfaceIdentity, NetworkConfiguration, Segment};
use super::counters::{Counter, Counters};
use super::dhcp::{Dhcp, SERVER_COUNT_MAX};
use super::discovery::solicited_group;
use super::ethernet::address_in;
use super::fragment::Fragments;
use super::host_guard::HostGuard;
use super::limit::Limits;
use super::local::{FOR_EVER_NS, Hop, Local, Origin, View};
use super::membership::Memberships;
use super::neighbour::Neighbours;
use super::path::Paths;
use super::tap::Taps;
use crate::error::{Errno, Result};
use crate::platform::Kernel;
use crate::sync::{Mutex, Once};

/// Most bytes of the network's headers, with that of a piece.
const HEADERS_BYTES: usize = 48;
/// Buckets of numbers for packets in pieces.
const IDENTIFICATION_COUNT: usize = 16;
/// Times that routers are asked to announce themselves (RFC 4861, section 10).
pub(super) const SOLICITATION_COUNT: u8 = 3;

/// What takes what comes in. Called with no lock held.
pub trait Transports {
    /// A transport packet of a protocol (`IPPROTO_*`) came in; false: there is nothing that takes it.
    fn arrive(&self, protocol: u8, arrival: &Arrival<'_>) -> bool;
    /// ICMP says something of a packet that was sent; false: of none that there is.
    fn complain(&self, error: &IcmpError<'_>) -> bool;
    /// No more comes now: what was put off until here is done.
    fn finish(&self) {}
}

/// The card that was found.
pub(super) struct Card {
    pub(super) interface: Arc<dyn Interface>,
    pub(super) identity: InterfaceIdentity,
}

/// Asking routers to announce themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solicitation {
    pub(super) left: u8,
    pub(super) at_ns: u64,
}

/// A change of what the interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// An address, and the route to its network.
    AddAddress(InterfaceAddress),
    /// It has it no more.
    RemoveAddress(IpAddr),
    /// A route to a network, by a router or right there.
    AddRoute(InterfaceAddress, Option<IpAddr>),
    /// It is no more.
    RemoveRoute(InterfaceAddress, Option<IpAddr>),
    /// It is up, or down.
    SetUp(bool),
}

/// The way to the network that a card is on.
pub struct Stack {
    kernel: Arc<dyn Kernel>,
    attached: Once<(NetworkConfiguration, Arc<dyn Carrier>)>,
    guard: Once<HostGuard>,
    card: Once<Option<Card>>,
    /// Held while the card is looked for.
    opening: Mutex<()>,
    pub(super) local: Mutex<Local>,
    pub(super) neighbours: Mutex<Neighbours>,
    pub(super) fragments: Mutex<Fragments>,
    pub(super) paths: Mutex<Paths>,
    pub(super) memberships: Mutex<Memberships>,
    /// Some path is shorter than the card's.
    pub(super) has_paths: AtomicBool,
    pub(super) limits: Mutex<Limits>,
    /// Where a frame is put that comes in; `None` while one is looked at.
    pub(super) frame: Mutex<Option<Vec<u8>>>,
    /// Somebody came to look at frames while another did.
    pub(super) is_asked_again: AtomicBool,
    pub(super) solicitation: Mutex<Solicitation>,
    pub(super) dhcp: Mutex<Dhcp>,
    /// Longest IPv6 packet that a router announced; 0: none did.
    pub(super) v6_bytes_max: AtomicU32,
    /// Longest IPv4 packet that a lease named; 0: none did.
    pub(super) v4_bytes_max: AtomicU32,
    /// Name servers that a lease named.
    pub(super) leased_servers: Mutex<[Option<Ipv4Addr>; SERVER_COUNT_MAX]>,
    /// When [`Stack::poll`] will be called, as far as that was asked for.
    poll_at_ns: AtomicU64,
    /// A table may have got an earlier time without having said so.
    has_changed: AtomicBool,
    identifications: [AtomicU32; IDENTIFICATION_COUNT],
    counters: Counters,
    pub(super) taps: Taps,
    /// What is called when addresses or routes have changed, and the change that it was called for.
    on_change: Once<Box<dyn Fn() + Send + Sync>>,
    told_change_count: AtomicU64,
}

impl Stack {
    /// No network.
    pub fn new(kernel: &Arc<dyn Kernel>) -> Self {
        Self {
            kernel: kernel.clone(),
            attached: Once::new(),
            guard: Once::new(),
            card: Once::new(),
            opening: Mutex::new(()),
            local: Mutex::default(),
            neighbours: Mutex::default(),
            fragments: Mutex::default(),
            paths: Mutex::default(),
            memberships: Mutex::default(),
            has_paths: AtomicBool::new(false),
            limits: Mutex::default(),
            frame: Mutex::new(None),
            is_asked_again: AtomicBool::new(false),
            solicitation: Mutex::new(Solicitation { left: 0, at_ns: FOR_EVER_NS }),
            dhcp: Mutex::default(),
            v6_bytes_max: AtomicU32::new(0),
            v4_bytes_max: AtomicU32::new(0),
            leased_servers: Mutex::default(),
            poll_at_ns: AtomicU64::new(FOR_EVER_NS),
            has_changed: AtomicBool::new(true),
            identifications: core::array::from_fn(|_| AtomicU32::new(0)),
            counters: Counters::default(),
            taps: Taps::default(),
            on_change: Once::new(),
            told_change_count: AtomicU64::new(0),
        }
    }

    /// Says which network there is and what carries it. Once; later calls change nothing.
    pub fn attach(&self, configuration: NetworkConfiguration, carrier: Arc<dyn Carrier>) {
        let mut keys = [0; 16];
        self.kernel.random(&mut keys);
        let hash_key = u128::from_le_bytes(keys);
        self.guard.call_once(|| HostGuard::new(&configuration, [hash_key as u64, (hash_key >> 64) as u64]));
        self.attached.call_once(|| (configuration, carrier));
    }

    /// What it was attached with.
    pub fn configuration(&self) -> Option<&NetworkConfiguration> {
        self.attached.get().map(|(configuration, _)| configuration)
    }

    /// Finds the card, if that was not done yet. Whether there is one.
    #[inline]
    pub fn open(&self) -> bool {
        self.card.get().map_or_else(|| self.find_card(), Option::is_some)
    }

    #[cold]
    fn find_card(&self) -> bool {
        let Some((configuration, carrier)) = self.attached.get() else { return false };
        // What else comes here meanwhile waits for the outcome.
        let opening = self.opening.lock();
        if self.card.get().is_none() {
            let card = carrier.open().and_then(|interface| self.begin(configuration, interface));
            self.card.call_once(|| card);
        }
        drop(opening);
        self.arm(self.now_ns());
        self.card().is_some()
    }

    /// Makes the tables for a card that was found; `None`: there is no memory for that.
    fn begin(&self, configuration: &NetworkConfiguration, interface: Arc<dyn Interface>) -> Option<Card> {
        let identity = interface.identity();
        let packet_bytes = u32::from(identity.packet_bytes_max).max(identity.segmented_bytes_max) as usize;
        let mut frame = crate::reserve::vector(packet_bytes + 32).ok()?;
        frame.resize(packet_bytes + 32, 0);
        *self.frame.lock() = Some(frame);
        for identification in &self.identifications {
            identification.store(self.random_number(), Ordering::Relaxed);
        }
        let now_ns = self.now_ns();
        let mut local = self.local.lock();
        let link_local = address_in(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), identity.hardware_address);
        let link_local = InterfaceAddress { address: IpAddr::V6(link_local), prefix_bits: 64 };
        for address in configuration.addresses.iter().chain([&link_local]) {
            local.add_address(*address, Origin::Fixed, FOR_EVER_NS, now_ns);
        }
        for gateway in &configuration.gateways {
            let any = if gateway.is_ipv4() { ANY_V4 } else { ANY_V6 };
            local.add_way(any, Some(*gateway), Origin::Fixed, FOR_EVER_NS);
        }
        drop(local);
        for address in configuration.addresses.iter().chain([&link_local]) {
            if let IpAddr::V6(own) = address.address {
                self.memberships.lock().join(IpAddr::V6(solicited_group(own)), now_ns);
            }
        }
        *self.solicitation.lock() = Solicitation { left: SOLICITATION_COUNT, at_ns: now_ns };
        if configuration.uses_dhcp {
            self.dhcp.lock().begin(now_ns);
        }
        Some(Card { interface, identity })
    }

    /// The card, if it was found.
    pub(super) fn card(&self) -> Option<&Card> {
        self.card.get().and_then(Option::as_ref)
    }

    /// The card, which is looked for if that was not done yet.
    pub(super) fn opened(&self) -> Option<&Card> {
        if self.open() { self.card() } else { None }
    }

    /// A number that nobody can foresee.
    pub(in super::super) fn random_number(&self) -> u32 {
        let mut bytes = [0; 4];
        self.kernel.random(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The time.
    pub(super) fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }

    /// Has [`Self::poll`] called at `deadline_ns`, or before.
    pub fn wake_at(&self, deadline_ns: u64) {
        self.attached.get().into_iter().for_each(|(_, carrier)| carrier.wake_at(deadline_ns));
    }

    /// The same for what is due in the tables, unless it will be called by then in any case.
    pub(super) fn arm(&self, deadline_ns: u64) {
        if deadline_ns < self.poll_at_ns.fetch_min(deadline_ns, Ordering::Relaxed) {
            self.wake_at(deadline_ns);
        }
    }

    /// Something that came in may have brought an earlier time to some table.
    pub(super) fn note_change(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// When the tables want [`Self::poll`] called, as far as they have said so.
    pub(super) fn poll_at_ns(&self) -> u64 {
        self.poll_at_ns.load(Ordering::Relaxed)
    }

    /// It is being called, and does what is due: the tables are asked anew by [`Self::note_armed`]. False: nothing is.
    pub(super) fn disarm(&self, now_ns: u64) -> bool {
        let is_due = self.poll_at_ns() <= now_ns || self.has_changed.load(Ordering::Relaxed);
        if is_due {
            self.has_changed.store(false, Ordering::Relaxed);
            self.poll_at_ns.store(FOR_EVER_NS, Ordering::Relaxed);
        }
        is_due
    }

    /// It will be called then.
    pub(super) fn note_armed(&self, deadline_ns: u64) {
        self.poll_at_ns.fetch_min(deadline_ns, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn count(&self, counter: Counter) {
        self.counters.add(counter);
    }

    /// A number for a packet in pieces; those to one destination follow each other.
    pub(super) fn next_identification(&self, destination: IpAddr) -> u32 {
        let folded = match destination {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => (address.to_bits() >> 64 ^ address.to_bits()) as u32,
        };
        let bucket = (folded ^ folded >> 16 ^ folded >> 8) as usize % IDENTIFICATION_COUNT;
        self.identifications[bucket].fetch_add(1, Ordering::Relaxed)
    }

    /// Whether packets to `address` come back to this machine.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.view(address).is_some_and(|view| view.is_own())
    }

    /// All that the tables say of an address; `None`: there is no card.
    #[inline]
    pub(in super::super) fn view(&self, address: IpAddr) -> Option<View> {
        self.open().then(|| self.local.lock().view(address))
    }

    /// Whether `address` means all machines of the network.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        self.view(address).is_some_and(|view| view.is_broadcast)
    }

    /// How a packet to another machine goes.
    ///
    /// # Errors
    /// `ENETUNREACH`.
    pub(super) fn hop(&self, destination: IpAddr) -> Result<Hop> {
        self.view(destination).and_then(|view| view.hop).ok_or(Errno::ENETUNREACH)
    }

    /// The address that packets to `destination` are sent from.
    ///
    /// # Errors
    /// `ENETUNREACH`.
    pub fn source_for(&self, destination: IpAddr) -> Result<IpAddr> {
        self.hop(destination).map(|hop| hop.source)
    }

    /// Whether a program may connect there ([`HostGuard`]).
    ///
    /// # Errors
    /// `ECONNREFUSED`: it may not, as if nothing listened.
    pub fn check_access(&self, destination: IpAddr, port: u16) -> Result<()> {
        self.refused_unless(self.guard.get().is_none_or(|guard| guard.admits_connection(destination, port)))
    }

    /// Whether a segment may go out.
    ///
    /// # Errors
    /// As those of [`Self::check_access`].
    pub(super) fn check_segment(&self, segment: &Segment<'_>) -> Result<()> {
        self.refused_unless(self.guard.get().is_none_or(|guard| guard.admits(segment)))
    }

    /// Whether a frame that a program made may go out.
    ///
    /// # Errors
    /// As those of [`Self::check_access`].
    pub(super) fn check_frame(&self, frame: &[u8]) -> Result<()> {
        self.refused_unless(self.guard.get().is_none_or(|guard| guard.admits_frame(frame)))
    }

    fn refused_unless(&self, is_admitted: bool) -> Result<()> {
        if is_admitted {
            return Ok(());
        }
        self.count(Counter::HostRefused);
        Err(Errno::ECONNREFUSED)
    }

    /// A transport packet came in: where the host asked, it may be answered.
    pub(super) fn note_arrival(&self, protocol: u8, arrival: &Arrival<'_>) {
        self.guard.get().into_iter().for_each(|guard| guard.note(protocol, arrival));
    }

    /// Longest packet that reaches `destination` in one piece, as far as is known; 0: there is no network.
    pub fn packet_bytes_max(&self, destination: IpAddr) -> usize {
        let Some(card) = self.card() else { return 0 };
        let own = usize::from(card.identity.packet_bytes_max);
        let announced = match destination {
            IpAddr::V6(_) => self.v6_bytes_max.load(Ordering::Relaxed) as usize,
            IpAddr::V4(_) => self.v4_bytes_max.load(Ordering::Relaxed) as usize,
        };
        let own = if announced == 0 { own } else { own.min(announced) };
        if !self.has_paths.load(Ordering::Relaxed) {
            return own;
        }
        let known = self.paths.lock().bytes_max(destination, self.now_ns());
        known.map_or(own, |known| own.min(usize::from(known)))
    }

    /// Longest TCP packet that the card cuts; 0: it cuts none.
    pub fn segmented_bytes_max(&self) -> usize {
        self.card().map_or(0, |card| card.identity.segmented_bytes_max as usize)
    }

    /// Whether the card has room for a transport packet of so many bytes, in pieces if it has to be.
    #[inline]
    pub(in super::super) fn has_room(&self, destination: IpAddr, packet_bytes: usize) -> bool {
        let whole = self.packet_bytes_max(destination).saturating_sub(HEADERS_BYTES);
        self.has_frame_room(if packet_bytes <= whole { 1 } else { packet_bytes.div_ceil(whole.max(8) & !7) })
    }

    /// Whether the card has room for so many frames.
    pub(in super::super) fn has_frame_room(&self, frame_count: usize) -> bool {
        self.card().is_none_or(|card| card.interface.has_room(frame_count))
    }

    /// Tells the card of all that it was given.
    pub fn flush(&self) {
        self.card().into_iter().for_each(|card| card.interface.flush());
    }

    /// Joins a group for a socket.
    ///
    /// # Errors
    /// `ENODEV`: there is no card. `ENOBUFS`: too many groups.
    pub fn join(&self, group: IpAddr) -> Result<()> {
        if !self.open() {
            return Err(Errno::ENODEV);
        }
        let is_first = !self.has_joined(group);
        if !self.local.lock().join(group) {
            return Err(Errno::ENOBUFS);
        }
        if is_first {
            self.tell_routers(group, true);
        }
        Ok(())
    }

    /// Whether a socket has joined a group.
    pub fn has_joined(&self, group: IpAddr) -> bool {
        self.local.lock().has_joined(group)
    }

    /// Leaves a group that [`Self::join`] joined.
    pub fn leave(&self, group: IpAddr) {
        let is_last = {
            let mut local = self.local.lock();
            local.leave(group);
            !local.has_joined(group)
        };
        if is_last {
            self.tell_routers(group, false);
        }
    }

    /// Has `action` called whenever addresses or routes have changed, with no lock held. Once.
    pub fn on_change(&self, action: impl Fn() + Send + Sync + 'static) {
        self.on_change.call_once(|| Box::new(action));
    }

    /// Addresses and routes have changed so often.
    pub(super) fn note_changes(&self, change_count: u64) {
        if self.told_change_count.swap(change_count, Ordering::Relaxed) != change_count
            && let Some(action) = self.on_change.get()
        {
            action();
        }
    }

    /// Changes what the interface has, as a program asks for it. The caller has looked whether it may be.
    ///
    /// # Errors
    /// `ENODEV`: there is no card. `ENOBUFS`: there is no room. `EADDRNOTAVAIL`, `ESRCH`: there is no such address or
    /// route.
    pub fn change(&self, change: Alteration) -> Result<()> {
        if !self.open() {
            return Err(Errno::ENODEV);
        }
        let now_ns = self.now_ns();
        let mut local = self.local.lock();
        let (has_address_room, has_route_room) = local.has_room();
        let (is_done, error) = match change {
            Alteration::AddAddress(own) => {
                let is_done = has_address_room && has_route_room;
                (is_done && local.add_address(own, Origin::Fixed, FOR_EVER_NS, now_ns), Errno::ENOBUFS)
            }
            Alteration::RemoveAddress(address) => (local.remove_address(address), Errno::EADDRNOTAVAIL),
            Alteration::AddRoute(network, gateway) => {
                if has_route_room {
                    local.add_way(network, gateway, Origin::Fixed, FOR_EVER_NS);
                }
                (has_route_room, Errno::ENOBUFS)
            }
            Alteration::RemoveRoute(network, gateway) => (local.remove_way(network, gateway), Errno::ESRCH),
            Alteration::SetUp(is_up) => {
                local.set_up(is_up);
                (true, Errno::EIO)
            }
        };
        drop(local);
        if let (true, Alteration::AddAddress(InterfaceAddress { address: IpAddr::V6(own), .. })) = (is_done, change) {
            self.tell_routers(IpAddr::V6(solicited_group(own)), true);
        }
        if is_done { Ok(()) } else { Err(error) }
    }

    /// The card's interface as it is now; `None`: there is none.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn interface(&self) -> Result<Option<InterfaceStatus>> {
        let Some(card) = self.opened() else { return Ok(None) };
        let (addresses, is_up) = {
            let local = self.local.lock();
            (local.addresses()?, local.is_up())
        };
        let count = |counter| self.counters.get(counter);
        let traffic = Traffic {
            received_packets: count(Counter::ReceivedFrames),
            received_bytes: count(Counter::ReceivedBytes),
            receive_errors: count(Counter::BadFrames),
            receive_drops: card.interface.dropped_count() + count(Counter::OtherFrames),
            multicast_packets: count(Counter::GroupFrames),
            sent_packets: count(Counter::SentFrames),
            sent_bytes: count(Counter::SentBytes),
            send_errors: 0,
            send_drops: count(Counter::SendFull),
        };
        Ok(Some(InterfaceStatus {
            index: ETHERNET_INDEX,
            name: ETHERNET_NAME,
            is_loopback: false,
            is_up,
            is_running: is_up && card.interface.is_up(),
            packet_bytes_max: u32::from(card.identity.packet_bytes_max),
            hardware_address: card.identity.hardware_address,
            addresses,
            traffic,
        }))
    }

    /// Routes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn routes(&self) -> Result<Vec<Route>> {
        self.open();
        self.local.lock().routes()
    }

    /// Neighbours that are known or looked for.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn neighbours(&self) -> Result<Vec<NeighbourStatus>> {
        self.neighbours.lock().statuses()
    }
}

/// Every address of a family.
pub(super) const ANY_V4: InterfaceAddress =
    InterfaceAddress { address: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), prefix_bits: 0 };
/// See [`ANY_V4`].
pub(super) const ANY_V6: InterfaceAddress =
    InterfaceAddress { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_bits: 0 };
