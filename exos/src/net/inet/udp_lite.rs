//! UDP-Lite (RFC 3828), within the machine: datagrams whose checksum covers a part of them.
//!
//! Nothing is ever damaged on the way here, so what is left of the checksum is whether the receiver takes what its
//! sender covers. Its ports are apart from UDP's. To other machines it is not sent (`ENETUNREACH`), and packet sockets
//! are not shown it.

use alloc::sync::Arc;
use core::net::SocketAddr;

use super::interface::LOOPBACK;
use super::payload::Payload;
use super::settings::Setting;
use super::socket::{Family, Sending, Socket};
use super::udp::{BYTES_MAX_V4, BYTES_MAX_V6, Datagram, HEADER_BYTES, Udp, has_no_address};
use crate::error::{Errno, Result};
use crate::fs::transfer::Source;

/// A coverage that a program sets, as it is kept: 0 is everything, and the header is always covered.
pub fn kept_coverage(wanted: i32) -> i32 {
    match wanted {
        0 => 0,
        ..8 => HEADER_BYTES as i32,
        _ => wanted.min(i32::from(u16::MAX)),
    }
}

impl Socket {
    /// Bytes of a datagram, its header included, that the checksum covers; `None`: all of them.
    fn sent_coverage(&self, length: usize) -> Option<i32> {
        let whole = (length + HEADER_BYTES) as i32;
        Some(self.settings().get(Setting::SentCoverage)).filter(|covered| *covered != 0 && *covered < whole)
    }

    /// Whether a datagram is taken of which so much is covered.
    fn takes_coverage(&self, covered: Option<i32>) -> bool {
        match (covered, self.settings().get(Setting::ReceivedCoverage)) {
            // Everything is covered, or nothing was said.
            (None, _) | (_, ..0) => true,
            // Everything is to be covered.
            (Some(_), 0) => false,
            (Some(covered), wanted) => covered >= wanted,
        }
    }

    /// Sends one datagram of UDP-Lite.
    pub(super) fn send_lite(self: &Arc<Self>, udp: &Udp, source: &mut dyn Source, sending: &Sending) -> Result<usize> {
        // Parts of a datagram are not collected, and a sum of them is not cut.
        if sending.has_more || sending.way.segment_bytes != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let length = source.remaining();
        if self.family() == Family::V4 && length > usize::from(u16::MAX) {
            return Err(Errno::EMSGSIZE);
        }
        let remote = match sending.target {
            Some(target) => self.destination(target)?,
            None => udp.remote().ok_or(Errno::EDESTADDRREQ)?,
        };
        if remote.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if length > if remote.is_ipv4() { BYTES_MAX_V4 } else { BYTES_MAX_V6 } {
            return Err(Errno::EMSGSIZE);
        }
        udp.check_sending()?;
        let (route_source, next) = self.way_towards(remote.ip())?;
        if next.is_some() {
            return Err(Errno::ENETUNREACH);
        }
        let local = self.take_any_port(udp)?;
        let address = if has_no_address(local.ip()) { route_source } else { local.ip() };
        if address.is_ipv4() != remote.is_ipv4() {
            return Err(Errno::ENETUNREACH);
        }
        let from = SocketAddr::new(address, local.port());
        let bytes = Payload::take(source, length)?;
        let (inet, marks) = (self.inet(), self.marks(remote.ip(), &sending.way));
        let rank = |socket: &Self| socket.rank_datagram(from, LOOPBACK.index);
        let receiver = inet.udp_lite.find(remote, || inet.seed_for(Some(from)), rank);
        match receiver.as_ref().and_then(|receiver| Some((receiver, receiver.udp()?))) {
            Some((receiver, inbox)) if receiver.takes_coverage(self.sent_coverage(length)) => {
                receiver.take_in(inbox, Datagram::near(bytes, from, remote.ip(), marks))?;
            }
            Some(_) => {}
            None => self.note_unreachable(udp, udp.remote() == Some(remote), remote, &bytes),
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::kept_coverage;

    #[test]
    fn a_coverage_is_nothing_or_the_header_at_least() {
        let kept = [0, 3, -1, 8, 20, 100_000].map(kept_coverage);
        assert_eq!(kept, [0, 8, 8, 8, 20, 65_535]);
    }
}
