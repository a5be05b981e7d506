//! Taps: what is told all frames as they go by ([`crate::net::packet`]), those that are sent and those that come in.
//!
//! Where nothing listens a frame costs one load. Taps are told with no lock held.
//!
//! Loopback has no frames. What goes over it as packets (datagrams, questions of ping, raw packets) is shown as Linux
//! shows it, made for that; connections there are queues of bytes, of which nothing is shown.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::super::interface::{ETHERNET_INDEX, LOOPBACK};
use super::super::wire::Transmission;
use super::ethernet::{self, BROADCAST, Header};
use super::state::{Card, Stack};
use crate::error::{Errno, Result};
use crate::reserve;
use crate::sync::Mutex;

/// Parts of a frame that a tap is shown.
const PART_COUNT_MAX: usize = 20;

/// Whose a frame is (`PACKET_*` of packet(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// For this machine.
    Host = 0,
    /// For all.
    Broadcast = 1,
    /// For a group.
    Group = 2,
    /// For another machine.
    Other = 3,
    /// From this machine.
    Outgoing = 4,
}

/// A frame that goes by.
#[derive(Clone, Copy, Debug)]
pub struct TappedFrame<'a> {
    /// All of it, one part after the other, the link's header first.
    pub parts: &'a [&'a [u8]],
    /// `ETH_P_*`.
    pub protocol: u16,
    /// Whose it is.
    pub kind: FrameKind,
    /// The interface's number.
    pub interface: u32,
    /// The sender's Ethernet address.
    pub source: [u8; 6],
    /// The transport's checksum is the card's to fill in.
    pub lacks_checksum: bool,
    /// The transport's checksum was looked at, or never mattered.
    pub is_checksum_valid: bool,
    /// The number of the packet socket that sent it.
    pub sender: Option<u64>,
}

/// What is told of frames.
pub trait Tap: Send + Sync {
    /// A frame goes by. Called on any processor, with no lock held.
    fn hear(&self, frame: &TappedFrame<'_>);
}

/// All taps, and how many of them want frames for others too.
#[derive(Default)]
pub struct Taps {
    members: Mutex<Vec<Weak<dyn Tap>>>,
    count: AtomicUsize,
    promiscuous_count: AtomicUsize,
}

impl Taps {
    /// Whether nothing listens.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds one.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, tap: &Arc<dyn Tap>) -> Result<()> {
        let mut members = self.members.lock();
        members.retain(|known| known.strong_count() > 0);
        reserve::reserve(&mut members, 1)?;
        members.push(Arc::downgrade(tap));
        self.count.store(members.len(), Ordering::Release);
        Ok(())
    }

    /// Takes away what is gone, and the one that lies at `place`.
    pub fn remove(&self, place: *const ()) {
        let mut members = self.members.lock();
        members.retain(|known| known.strong_count() > 0 && known.as_ptr().cast() != place);
        self.count.store(members.len(), Ordering::Release);
    }

    /// One more wants the frames for others, or one less.
    pub fn set_promiscuous(&self, is_more: bool) {
        if is_more {
            self.promiscuous_count.fetch_add(1, Ordering::Relaxed);
        } else {
            self.promiscuous_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tells all. What there is no memory for is not told.
    pub fn tell(&self, frame: &TappedFrame<'_>) {
        let mut taps = Vec::new();
        for tap in self.members.lock().iter().filter_map(Weak::upgrade) {
            if reserve::reserve(&mut taps, 1).is_err() {
                return;
            }
            taps.push(tap);
        }
        taps.iter().for_each(|tap| tap.hear(frame));
    }
}

impl Stack {
    /// Who listens.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// A frame came in: told before anything is made of it.
    #[cold]
    pub(super) fn tell_incoming(&self, card: &Card, bytes: &[u8], is_checksum_valid: bool) {
        let Some((header, _)) = Header::split(bytes) else { return };
        let kind = match header.destination {
            BROADCAST => FrameKind::Broadcast,
            group if ethernet::is_group(group) => FrameKind::Group,
            own if own == card.identity.hardware_address => FrameKind::Host,
            _ if self.taps.promiscuous_count.load(Ordering::Relaxed) == 0 => return,
            _ => FrameKind::Other,
        };
        self.taps.tell(&TappedFrame {
            parts: &[bytes],
            protocol: header.protocol,
            kind,
            interface: ETHERNET_INDEX,
            source: header.source,
            lacks_checksum: false,
            is_checksum_valid,
            sender: None,
        });
    }

    /// A frame was given to the card.
    #[cold]
    pub(super) fn tell_outgoing(&self, card: &Card, parts: &[&[u8]], lacks_checksum: bool, sender: Option<u64>) {
        let protocol = parts.first().and_then(|head| Header::split(head)).map_or(0, |(header, _)| header.protocol);
        self.taps.tell(&TappedFrame {
            parts,
            protocol,
            kind: FrameKind::Outgoing,
            interface: ETHERNET_INDEX,
            source: card.identity.hardware_address,
            lacks_checksum,
            is_checksum_valid: false,
            sender,
        });
    }

    /// Sends a frame as a program made it.
    ///
    /// # Errors
    /// `ENETDOWN`: there is no card. `ENOBUFS`: it has no room. `ECONNREFUSED`: it is for the host, and must not be.
    pub fn send_frame(&self, frame: &[u8], sender: u64) -> Result<()> {
        let card = self.opened().ok_or(Errno::ENETDOWN)?;
        self.check_frame(frame)?;
        self.give_parts(card, &[frame], Transmission::default(), Some(sender))?;
        card.interface.flush();
        Ok(())
    }

    /// Sends a packet as a program made it, on the way to `destination`.
    ///
    /// # Errors
    /// `ENETUNREACH`; `ECONNREFUSED`: it is for the host, and must not be; `ENOBUFS`.
    pub fn send_made(&self, destination: Ipv4Addr, packet: &[u8]) -> Result<()> {
        let hop = self.hop(destination.into())?;
        let card = self.card().ok_or(Errno::ENETUNREACH)?;
        let link = Header { destination: [0; 6], source: [0; 6], protocol: ethernet::IPV4 }.bytes();
        let mut frame = reserve::vector(link.len() + packet.len()).map_err(|_| Errno::ENOBUFS)?;
        frame.extend_from_slice(&link);
        frame.extend_from_slice(packet);
        self.check_frame(&frame)?;
        self.send_packet(card, hop.next, &[packet])?;
        card.interface.flush();
        Ok(())
    }

    /// Shows a packet that goes over loopback: as one that is sent and as one that comes in.
    #[cold]
    pub fn show_local(&self, (source, destination): (IpAddr, IpAddr), protocol: u8, hops: (u8, u8), payload: &[&[u8]]) {
        let payload_bytes = payload.iter().map(|part| part.len()).sum::<usize>();
        let (v4, v6);
        let (kind, header): (u16, &[u8]) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                v4 = super::ipv4_header(source, destination, protocol, hops, payload_bytes);
                (ethernet::IPV4, &v4)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                v6 = super::ipv6_header(source, destination, protocol, hops, payload_bytes);
                (ethernet::IPV6, &v6)
            }
            _ => return,
        };
        let link_header = Header { destination: [0; 6], source: [0; 6], protocol: kind };
        let link = link_header.bytes();
        let mut parts: [&[u8]; PART_COUNT_MAX] = [&[]; PART_COUNT_MAX];
        let count = 2 + payload.len().min(PART_COUNT_MAX - 2);
        (parts[0], parts[1]) = (&link, header);
        parts[2..count].copy_from_slice(&payload[..count - 2]);
        self.loop_back(&parts[..count], link_header, None);
    }

    /// A frame that a program sends over loopback. As taps alone are told it, so it goes nowhere else.
    pub fn send_local_frame(&self, frame: &[u8], sender: u64) {
        let Some((header, _)) = Header::split(frame) else { return };
        self.loop_back(&[frame], header, Some(sender));
    }

    fn loop_back(&self, parts: &[&[u8]], header: Header, sender: Option<u64>) {
        let kind = match header.destination {
            BROADCAST => FrameKind::Broadcast,
            group if ethernet::is_group(group) => FrameKind::Group,
            [0, 0, 0, 0, 0, 0] => FrameKind::Host,
            _ => FrameKind::Other,
        };
        let outgoing = TappedFrame {
            parts,
            protocol: header.protocol,
            kind: FrameKind::Outgoing,
            interface: LOOPBACK.index,
            source: header.source,
            lacks_checksum: true,
            is_checksum_valid: false,
            sender,
        };
        self.taps.tell(&outgoing);
        let incoming = TappedFrame { kind, is_checksum_valid: true, sender: None, ..outgoing };
        self.taps.tell(&incoming);
    }
}
