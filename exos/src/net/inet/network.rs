//! The network at work: the card is looked at, what came in goes to sockets, what is due is done.
//!
//! Neighbours: [`super::stack`] below; `udp` and `tcp_input` above.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;

use super::Inet;
use super::engine::input::Train;
use super::interface::{InterfaceStatus, LOOPBACK, NeighbourStatus, Route, Traffic};
use super::raw::{ping_error, ping_input, raw_input};
use super::stack::Transports;
use super::tcp_input::{tcp_error, tcp_input, tcp_poll};
use super::udp_far::{udp_error, udp_input};
use super::wire::{Arrival, Carrier, IcmpError, NetworkConfiguration, Segment, SegmentSender};
use crate::error::Result;

/// `IPPROTO_ICMP`, `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_ICMPV6`.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Hands on what comes in at a time.
struct Sockets<'a> {
    inet: &'a Arc<Inet>,
    train: RefCell<Train>,
}

impl Transports for Sockets<'_> {
    fn arrive(&self, protocol: u8, arrival: &Arrival<'_>) -> bool {
        let is_taken = raw_input(self.inet, protocol, arrival);
        match protocol {
            TCP => {
                tcp_input(self.inet, arrival, &mut self.train.borrow_mut());
                true
            }
            UDP => udp_input(self.inet, arrival) || is_taken,
            ICMP | ICMP6 => ping_input(self.inet, arrival),
            _ => is_taken,
        }
    }

    fn complain(&self, error: &IcmpError<'_>) -> bool {
        match error.protocol {
            TCP => tcp_error(self.inet, error),
            UDP => udp_error(self.inet, error),
            ICMP | ICMP6 => ping_error(self.inet, error),
            _ => false,
        }
    }

    fn finish(&self) {
        self.train.borrow_mut().finish();
    }
}

impl Inet {
    /// Says which network there is and what carries it: once, before any socket. Without, there is loopback alone.
    pub fn attach(&self, configuration: NetworkConfiguration, carrier: Arc<dyn Carrier>) {
        self.stack().attach(configuration, carrier);
    }

    /// Finds the card, if that was not done yet: for what is about to reach others or be reached. Whether there is one.
    pub fn open(&self) -> bool {
        self.stack().open()
    }

    /// Takes in what the card has received, up to a bound, and does what is due at `now_ns`; when something is due
    /// next, which is `now_ns` if there is more. Called when the card interrupts, at the time that was told last or
    /// named to [`Carrier::wake_at`], and on the way; on any processor, with no lock held.
    pub fn poll(self: &Arc<Self>, now_ns: u64) -> Option<u64> {
        let above = Sockets { inet: self, train: RefCell::default() };
        let due = [self.stack().poll(now_ns, &above), tcp_poll(self, now_ns), self.tell_room(now_ns)];
        due.into_iter().flatten().min()
    }

    /// Where the card's address comes by DHCP, finds the card and waits until it has one, for so long at most: what is
    /// started next would be without an address, and know no name server. `now_ns` says how late it is, and may pause.
    pub fn await_lease(self: &Arc<Self>, limit_ns: u64, mut now_ns: impl FnMut() -> u64) {
        if !self.stack().configuration().is_some_and(|configuration| configuration.uses_dhcp) || !self.open() {
            return;
        }
        let end_ns = now_ns().saturating_add(limit_ns);
        while self.stack().awaits_lease() {
            let now_ns = now_ns();
            if now_ns >= end_ns {
                return;
            }
            self.poll(now_ns);
        }
    }

    /// Has [`Self::poll`] called at `deadline_ns`, or before: something has come to be due then.
    pub fn wake_at(&self, deadline_ns: u64) {
        self.stack().wake_at(deadline_ns);
    }

    /// Whether packets to `address` come back to this machine: over loopback, whichever interface has it.
    pub fn is_local(&self, address: IpAddr) -> bool {
        super::interface::is_local(address) || self.stack().is_own(address)
    }

    /// All interfaces by number, as they are now. Finds the card.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn interfaces(&self) -> Result<Vec<InterfaceStatus>> {
        let mut all = crate::reserve::vector(2)?;
        all.push(InterfaceStatus {
            index: LOOPBACK.index,
            name: LOOPBACK.name,
            is_loopback: true,
            is_up: true,
            is_running: true,
            packet_bytes_max: LOOPBACK.packet_bytes_max,
            hardware_address: [0; 6],
            addresses: crate::reserve::copy(LOOPBACK.addresses)?,
            traffic: Traffic::default(),
        });
        all.extend(self.stack().interface()?);
        Ok(all)
    }

    /// Routes, the card's.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn routes(&self) -> Result<Vec<Route>> {
        self.stack().routes()
    }

    /// Neighbours that are known or looked for.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn neighbours(&self) -> Result<Vec<NeighbourStatus>> {
        self.stack().neighbours()
    }
}

impl SegmentSender for Inet {
    fn source_for(&self, destination: IpAddr) -> Result<IpAddr> {
        if self.is_local(destination) {
            return super::interface::source_for(destination).or(Ok(destination));
        }
        self.stack().source_for(destination)
    }

    fn packet_bytes_max(&self, destination: IpAddr) -> usize {
        match self.stack().packet_bytes_max(destination) {
            0 => LOOPBACK.packet_bytes_max as usize,
            bytes => bytes,
        }
    }

    fn segmented_bytes_max(&self) -> usize {
        self.stack().segmented_bytes_max()
    }

    fn send_segment(&self, segment: &Segment<'_>) -> Result<()> {
        self.stack().send_segment(segment)
    }

    fn flush(&self) {
        self.stack().flush();
    }
}
