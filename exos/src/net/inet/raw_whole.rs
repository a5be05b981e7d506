//! Packets that programs send with the network's header (`IP_HDRINCL`, `IPPROTO_RAW`; raw(7)): as they are, but for
//! what Linux fills in.
//!
//! Neighbour: [`super::raw`], which has the rest of such sockets.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr};

use super::settings::{HEADER_INCLUDED, Level};
use super::socket::{Family, Protocol, Socket};
use super::stack::icmp_checksum;
use super::wire::Segment;
use crate::error::{Errno, Result};
use crate::fs::transfer::Source;
use crate::reserve;

/// Bytes of a header without options.
const HEADER_BYTES: usize = 20;

impl Socket {
    /// Whether its program makes headers.
    pub(super) fn makes_headers(&self) -> bool {
        let is_raw = matches!(self.protocol(), Protocol::Raw(_)) && self.family() == Family::V4;
        is_raw && self.settings().is_switched_on(Level::Ip, HEADER_INCLUDED)
    }

    /// Sends a packet to `remote`, whatever its header says.
    ///
    /// # Errors
    /// `EINVAL`: no header. `EMSGSIZE`: longer than gets through. As of a datagram.
    pub(super) fn send_whole(
        self: &Arc<Self>,
        source: &mut dyn Source,
        remote: Ipv4Addr,
        route_source: IpAddr,
    ) -> Result<usize> {
        let length = source.remaining();
        let stack = self.inet().stack();
        let is_own = remote.is_loopback() || stack.is_own(remote.into());
        let most = if is_own { usize::from(u16::MAX) } else { stack.packet_bytes_max(remote.into()) };
        if length > most {
            return Err(Errno::EMSGSIZE);
        }
        if length < HEADER_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut bytes = reserve::vector(length).map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        if source.take(&mut bytes) < length {
            return Err(Errno::EFAULT);
        }
        let header_bytes = usize::from(bytes[0] & 0xf) * 4;
        if header_bytes > length {
            return Err(Errno::EINVAL);
        }
        if header_bytes >= HEADER_BYTES {
            self.fill_header(&mut bytes, header_bytes, route_source);
        }
        if is_own {
            self.deliver_whole(&bytes, header_bytes)?;
        } else {
            stack.send_made(remote, &bytes)?;
        }
        Ok(length)
    }

    fn fill_header(&self, bytes: &mut [u8], header_bytes: usize, route_source: IpAddr) {
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[2..4].copy_from_slice(&length);
        if bytes[4..6] == [0, 0] {
            let number = (self.inet().random_number() as u16).max(1);
            bytes[4..6].copy_from_slice(&number.to_be_bytes());
        }
        if let (true, IpAddr::V4(own)) = (bytes[12..16] == [0; 4], route_source) {
            bytes[12..16].copy_from_slice(&own.octets());
        }
        bytes[10..12].fill(0);
        // As of any message that has no addresses in its sum.
        let sum = icmp_checksum(IpAddr::V4(Ipv4Addr::UNSPECIFIED), route_source, &bytes[..header_bytes]);
        bytes[10..12].copy_from_slice(&sum);
    }

    /// To this machine itself, as far as its header can be read.
    fn deliver_whole(&self, bytes: &[u8], header_bytes: usize) -> Result<()> {
        if bytes[0] >> 4 != 4 || header_bytes < HEADER_BYTES {
            return Ok(());
        }
        let address = |at: usize| IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        self.inet().answer_own(&Segment {
            source: address(12),
            destination: address(16),
            protocol: bytes[9],
            header: &[],
            checksum_offset_bytes: None,
            payload: &[&bytes[header_bytes..]],
            segment_bytes: 0,
            hop_limit: bytes[8],
            traffic_class: bytes[1],
            is_whole: true,
        })
    }
}
