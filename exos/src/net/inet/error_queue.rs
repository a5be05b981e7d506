//! What ICMP said of datagrams that a socket sent, one by one, for those that ask (`IP_RECVERR`, `MSG_ERRQUEUE`).
//!
//! Each entry has the datagram's begin, where it was sent to and who complained. Anybody can make entries for another's
//! socket by sending ICMP, so they are few and short: [`COUNT_MAX`] of [`QUOTED_BYTES_MAX`], and what does not fit is
//! lost.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::wire::IcmpError;
use crate::error::Errno;
use crate::reserve;

/// Most entries that wait.
const COUNT_MAX: usize = 64;
/// Most bytes of a datagram that are kept: what ICMP quotes of one over IPv4.
const QUOTED_BYTES_MAX: usize = 520;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError {
    /// The datagram's begin.
    pub quoted: Vec<u8>,
    /// Where it was sent to.
    pub destination: SocketAddr,
    /// What it means.
    pub error: Errno,
    /// Type of the message, of ICMP or ICMPv6 as [`Self::reporter`] is.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// Longest packet that gets through, if it says so, else 0.
    pub packet_bytes_max: u32,
    /// Who said so.
    pub reporter: IpAddr,
}

impl SendError {
    /// What another machine says.
    pub(super) fn reported(of: &IcmpError<'_>, destination: SocketAddr) -> Self {
        let packet_bytes_max = of.packet_bytes_max.map_or(0, u32::from);
        let (error, kind, code, reporter) = (of.errno, of.kind, of.code, of.reporter);
        Self { quoted: Vec::new(), destination, error, kind, code, packet_bytes_max, reporter }
    }

    /// Nobody is where a datagram within the machine was sent to: port unreachable.
    pub(super) fn nobody(destination: SocketAddr) -> Self {
        let (kind, code) = if destination.is_ipv4() { (3, 3) } else { (1, 4) };
        let (error, reporter) = (Errno::ECONNREFUSED, destination.ip());
        Self { quoted: Vec::new(), destination, error, kind, code, packet_bytes_max: 0, reporter }
    }
}

/// The entries of a socket.
#[derive(Debug, Default)]
pub(super) struct SendErrors(VecDeque<SendError>);

impl SendErrors {
    /// Adds an entry about a datagram with those bytes, if there is room.
    pub(super) fn add(&mut self, entry: SendError, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(QUOTED_BYTES_MAX)];
        if self.0.len() >= COUNT_MAX || reserve::reserve_queue(&mut self.0, 1).is_err() {
            return;
        }
        if let Ok(quoted) = reserve::copy(bytes) {
            self.0.push_back(SendError { quoted, ..entry });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first entry; with the error that the socket has then, as on Linux that of the next.
    pub(super) fn take(&mut self) -> Option<(SendError, Option<Errno>)> {
        let first = self.0.pop_front()?;
        Some((first, self.0.front().map(|next| next.error)))
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNT_MAX, QUOTED_BYTES_MAX, SendError, SendErrors};
    use crate::error::Errno;

    #[test]
    fn entries_are_few_and_short_and_each_leaves_the_error_of_the_next() {
        let mut errors = SendErrors::default();
        for port in 0..100 {
            errors.add(SendError::nobody(([127, 0, 0, 1], port).into()), &[7; 2000]);
        }
        let (first, next) = errors.take().expect("one");
        assert_eq!((first.quoted.len(), first.kind, first.code), (QUOTED_BYTES_MAX, 3, 3));
        assert_eq!((first.destination.port(), next), (0, Some(Errno::ECONNREFUSED)));
        let mut count = 1;
        let mut last = next;
        while let Some((_, next)) = errors.take() {
            (count, last) = (count + 1, next);
        }
        assert_eq!((count, last, errors.is_empty()), (COUNT_MAX, None, true));
    }
}
