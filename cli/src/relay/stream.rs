//! A socket that nobody waits for: what is to be sent is kept until there is room, what has come is taken as it is.
//!
//! The control port of a pod, the line to the manager, a pod's line of sessions and the clients of a running machine
//! are such sockets; each owner puts its own limit on what it sends.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::relay::pump::read_some;

/// The socket, and bytes for it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `None` behind its end.
    socket: Option<UnixStream>,
    out: Vec<u8>,
    is_deaf: bool,
}

impl Stream {
    /// Over a socket that is non-blocking.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket: Some(socket), out: Vec::new(), is_deaf: false }
    }

    /// The end has not been read.
    pub(crate) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// A write has failed: nothing that is sent is taken any more, but something may be left to read.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Bytes that wait to be sent.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Bytes that have come and were not read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.socket.as_ref().map_or(0, |socket| rustix::io::ioctl_fionread(socket).unwrap_or(0))
    }

    /// Sends bytes, now or when there is room.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.write();
    }

    /// Forgets what waits to be sent.
    pub(crate) fn clear(&mut self) {
        self.out.clear();
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn write(&mut self) {
        let Some(socket) = &mut self.socket else { return self.out.clear() };
        match socket.write(&self.out) {
            Ok(length) => drop(self.out.drain(..length)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                self.out.clear();
                self.is_deaf = true;
            }
        }
    }

    /// Reads once: `None` if nothing has come, 0 bytes at the end. An error is an end too.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(socket) = &mut self.socket else { return Ok(Some(0)) };
        match read_some(socket, buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Ok(length) if length > 0 => Ok(Some(length)),
            end => {
                self.socket = None;
                end.map(Some)
            }
        }
    }

    /// The descriptor to wait for before [`Stream::read`].
    pub(crate) fn wants_to_read(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The descriptor to wait for before [`Stream::write`].
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        if self.out.is_empty() { None } else { self.wants_to_read() }
    }
}

#[cfg(test)]
mod tests {
    use super::Stream;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_has_no_room_is_kept_and_what_was_sent_before_an_end_is_read() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        let mut stream = Stream::new(ours);
        let mut buffer = [0; 8];
        assert_eq!(stream.read(&mut buffer).expect("nothing yet"), None);
        let sent = vec![7; 4 << 20];
        stream.send(&sent);
        assert!(stream.pending_bytes() > 0 && stream.wants_to_write().is_some());
        let mut received = vec![0; 1 << 16];
        let mut count = 0;
        while count < sent.len() {
            count += theirs.read(&mut received).expect("there is more");
            stream.write();
        }
        assert!(stream.wants_to_write().is_none());
        theirs.write_all(b"last").expect("room");
        drop(theirs);
        stream.send(b"x");
        assert!(stream.is_deaf() && stream.is_open());
        assert_eq!(stream.read(&mut buffer).expect("sent before"), Some(4));
        assert_eq!(stream.read(&mut buffer).expect("the end"), Some(0));
        assert!(!stream.is_open() && stream.wants_to_read().is_none());
    }
}
