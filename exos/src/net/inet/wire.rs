//! What the parts of the network owe each other: the card and the stack ([`Interface`]), the stack and TCP
//! ([`Segment`], [`SegmentSender`]), the run's configuration and all of them ([`NetworkConfiguration`]).
//!
//! Invariant: nothing here knows which card there is, where its driver is placed, or which engine speaks TCP.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::interface::InterfaceAddress;
use crate::error::{Errno, Result};

/// Bytes of an Ethernet header.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// What a card is, as the stack has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceIdentity {
    /// Its Ethernet address.
    pub hardware_address: [u8; 6],
    /// Longest packet, in bytes, without the Ethernet header.
    pub packet_bytes_max: u16,
    /// The card fills in transport checksums ([`Transmission::checksum`]).
    pub fills_checksums: bool,
    /// Longest TCP packet that the card cuts into segments ([`Transmission::segment_bytes`]); 0: it cuts none.
    pub segmented_bytes_max: u32,
}

/// Where the card puts a transport checksum: the sum of the bytes from `start_bytes` on, `offset_bytes` behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumPlace {
    /// First byte that is summed, from the begin of the frame.
    pub start_bytes: u16,
    /// Where the sum goes, from `start_bytes` on.
    pub offset_bytes: u16,
}

/// What a frame needs of the card beyond being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmission {
    /// A checksum to fill in; only if the card says that it can.
    pub checksum: Option<ChecksumPlace>,
    /// Payload bytes of each TCP segment that the frame is cut into; 0: it is sent as it is.
    pub segment_bytes: u16,
    /// Of a frame that is cut, that it is IPv6.
    pub is_ipv6: bool,
}

/// A frame that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Its bytes.
    pub byte_count: usize,
    /// The card or the host has looked at the transport checksum, or it never left the host.
    pub is_checksum_valid: bool,
}

/// The card has no place for a frame now. It was not sent; the wait for room is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceFull;

/// A card: whole Ethernet frames out and in. Calls come from any processor and do not wait.
///
/// A card that breaks or lies ends as one that is not up: it swallows frames and gives none.
pub trait Interface: Send + Sync {
    /// What it is. Never changes.
    fn identity(&self) -> InterfaceIdentity;
    /// Whether frames reach anybody.
    fn is_up(&self) -> bool;
    /// Takes a frame, whose bytes are those of `parts` one after another. It may lie until [`Self::flush`].
    ///
    /// # Errors
    /// [`InterfaceFull`].
    fn send(&self, parts: &[&[u8]], transmission: Transmission) -> core::result::Result<(), InterfaceFull>;
    /// Whether there is room for so many frames, or for as many as there ever is. If not, and where that was asked, it
    /// interrupts when there is more.
    fn has_room(&self, frame_count: usize) -> bool;
    /// Tells the card of all frames that it was given since the last time: one notification.
    fn flush(&self);
    /// Copies the next frame that came in to `frame`; a longer one is dropped and counted. `None`: there is none now.
    fn receive(&self, frame: &mut [u8]) -> Option<Reception>;
    /// Asks for an interrupt at the next frame that comes in. `true`: one is there already, so look again first.
    fn ask_for_interrupt(&self) -> bool;
    /// Frames that the driver dropped: too long, broken, or without room.
    fn dropped_count(&self) -> u64;
}

/// What carries a pod's network: where its card comes from, and who calls [`super::Inet::poll`].
pub trait Carrier: Send + Sync {
    /// The card, which is started now: at the first use that is not local. `None`: there is none, or it does not work,
    /// for good.
    fn open(&self) -> Option<Arc<dyn Interface>>;
    /// Has [`super::Inet::poll`] called at `deadline_ns`, or before: something is due then.
    fn wake_at(&self, deadline_ns: u64);
}

/// A TCP segment or other transport packet, on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The address it is sent from.
    pub source: IpAddr,
    /// The address it is sent to.
    pub destination: IpAddr,
    /// `IPPROTO_*`.
    pub protocol: u8,
    /// Transport header, its checksum zero.
    pub header: &'a [u8],
    /// Where in the header the checksum goes, if it has one.
    pub checksum_offset_bytes: Option<u16>,
    /// What it carries: the bytes of these one after another.
    pub payload: &'a [&'a [u8]],
    /// Payload bytes of each segment that the card is to cut it into; 0: it fits a packet.
    pub segment_bytes: u16,
    /// `IP_TTL`, hop limit.
    pub hop_limit: u8,
    /// `IP_TOS`, traffic class.
    pub traffic_class: u8,
    /// It must not be fragmented.
    pub is_whole: bool,
}

/// A transport packet that came in: checksum looked at, addresses canonical.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// Which of the pod's addresses it was sent to.
    pub destination: IpAddr,
    /// Transport header and what follows.
    pub bytes: &'a [u8],
    /// `IP_TTL`, hop limit.
    pub hop_limit: u8,
    /// `IP_TOS`, traffic class.
    pub traffic_class: u8,
}

/// What ICMP or ICMPv6 says of a packet that was sent from here. Anybody can send such a message, with anything in it.
#[derive(Clone, Copy, Debug)]
pub struct IcmpError<'a> {
    /// Which of the pod's addresses the packet was sent from.
    pub source: IpAddr,
    /// Where it was sent to.
    pub destination: IpAddr,
    /// `IPPROTO_*`.
    pub protocol: u8,
    /// Its transport header, and what followed as far as it is told: at least 8 bytes.
    pub quoted: &'a [u8],
    /// The machine that says so.
    pub reporter: IpAddr,
    /// Type of the message, of ICMP or ICMPv6 as the addresses are.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// What Linux tells programs.
    pub errno: Errno,
    /// That it ends what the packet was a part of, where it is believed; else programs are told if they ask for it.
    pub is_hard: bool,
    /// Longest packet that gets through, if that is what it says.
    pub packet_bytes_max: Option<u16>,
}

/// The way of transports to other machines.
pub trait SegmentSender: Send + Sync {
    /// Address that packets to `destination` are sent from.
    ///
    /// # Errors
    /// `ENETUNREACH`: no way leads there.
    fn source_for(&self, destination: IpAddr) -> Result<IpAddr>;
    /// Longest packet (IP header and all) that reaches `destination` in one piece, as far as is known.
    fn packet_bytes_max(&self, destination: IpAddr) -> usize;
    /// Longest TCP packet that may be handed over to be cut; 0: none.
    fn segmented_bytes_max(&self) -> usize;
    /// Sends a segment, at once or once its next hop is known. It may lie until [`Self::flush`].
    ///
    /// # Errors
    /// `ENETUNREACH`, `EHOSTUNREACH`; `EMSGSIZE`: too long to go whole; `ENOBUFS`: there is no room now.
    fn send_segment(&self, segment: &Segment<'_>) -> Result<()>;
    /// Tells the card.
    fn flush(&self);
}

/// The network that a run asks for, but for what the card says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfiguration {
    /// Addresses of the card's interface, `eth0`.
    pub addresses: Vec<InterfaceAddress>,
    /// Routers of the default route: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub name_servers: Vec<IpAddr>,
    /// Addresses are asked for by DHCP.
    pub uses_dhcp: bool,
    /// Networks in which the host itself answers, as QEMU's user network has them.
    pub host_networks: Vec<InterfaceAddress>,
    /// Programs may open connections to the host there (`--host-access`); its name server may be asked in any case.
    pub has_host_access: bool,
}
