//! Urgent data as a receiver sees it (tcp(7), `MSG_OOB`): one byte of the stream is marked at a time, and is read apart
//! or among the others. What Linux does (`tcp_check_urg`, `tcp_recv_urg`) without its connection.
//!
//! A place is counted from the connection's first byte; what was received ends at one, what was read at another. An end
//! tells of a mark before the byte is there ([`Urgent::note`]), gives the byte when it is ([`Urgent::fill`]), asks how
//! far a reader may go ([`Urgent::reach`]), and says how far it went ([`Urgent::pass`]).
//!
//! Why apart: connections over loopback have their bytes, and those to other machines their numbers, elsewhere.

use crate::error::{Errno, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is no mark that was not read past.
    #[default]
    None,
    /// It was told of, and its byte is on its way.
    Awaited,
    /// The byte, which was not read apart.
    There(u8),
    /// It was.
    Read,
}

/// What is known of the last mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Urgent {
    state: State,
    place: u64,
    /// The byte is read among the others (`SO_OOBINLINE`).
    pub(super) is_inline: bool,
}

impl Urgent {
    /// There is no mark yet.
    pub(super) fn new(is_inline: bool) -> Self {
        Self { is_inline, ..Self::default() }
    }

    /// Whether there is a mark that was not read past.
    #[inline]
    pub(super) fn is_noted(&self) -> bool {
        self.state != State::None
    }

    /// The sender says that the byte at `place` is urgent. `None`: that is no news. Else the receiver's owner is told,
    /// and if it is true, the byte that is read next is lost: it was the urgent one before.
    pub(super) fn note(&mut self, place: u64, read: u64, received: u64) -> Option<bool> {
        if place < read || place < received || (self.is_noted() && place <= self.place) {
            return None;
        }
        let loses = self.is_at(read) && !self.is_inline && read != received;
        (self.state, self.place) = (State::Awaited, place);
        Some(loses)
    }

    /// The byte at the mark has come, if it is awaited.
    pub(super) fn fill(&mut self, byte: u8) {
        if self.state == State::Awaited {
            self.state = State::There(byte);
        }
    }

    /// The place of the mark whose byte is on its way.
    pub(super) fn awaited_place(&self) -> Option<u64> {
        (self.state == State::Awaited).then_some(self.place)
    }

    /// Whether the byte that is read next is the urgent one (`SIOCATMARK`).
    pub(super) fn is_at(&self, read: u64) -> bool {
        self.is_noted() && self.place == read
    }

    /// Whether the byte that is read next is passed over.
    pub(super) fn is_hole(&self, read: u64) -> bool {
        self.is_at(read) && !self.is_inline
    }

    /// How many of `byte_count` bytes from the next one on are read in a row.
    pub(super) fn reach(&self, read: u64, byte_count: usize) -> usize {
        if !self.is_noted() || self.place <= read {
            return byte_count;
        }
        usize::try_from(self.place - read).map_or(byte_count, |before| byte_count.min(before))
    }

    /// All before `read` was read.
    pub(super) fn pass(&mut self, read: u64) {
        if self.place < read {
            self.state = State::None;
        }
    }

    /// Bytes that are told to be there (`FIONREAD`) of those that are.
    pub(super) fn told_bytes(&self, read: u64, byte_count: usize) -> usize {
        let is_ahead = self.is_noted() && self.place >= read && self.place < read + byte_count as u64;
        if self.is_inline || !is_ahead { byte_count } else { (self.place - read) as usize }
    }

    /// Whether it can be read apart (`POLLPRI`).
    pub(super) fn is_there(&self) -> bool {
        matches!(self.state, State::There(_))
    }

    /// The byte, read apart. `None`: it is on its way.
    ///
    /// # Errors
    /// `EINVAL`: there is none, it was read, or it is to be read among the others.
    pub(super) fn take(&mut self, is_peek: bool) -> Result<Option<u8>> {
        match self.state {
            _ if self.is_inline => Err(Errno::EINVAL),
            State::None | State::Read => Err(Errno::EINVAL),
            State::Awaited => Ok(None),
            State::There(byte) => {
                if !is_peek {
                    self.state = State::Read;
                }
                Ok(Some(byte))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Urgent;
    use crate::error::Errno;

    /// `ab!c`, of which `!` is urgent, none of it read.
    fn marked() -> Urgent {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.note(2, 0, 2), Some(false));
        assert_eq!(urgent.take(false), Ok(None), "on its way");
        urgent.fill(b'!');
        urgent
    }

    #[test]
    fn a_byte_is_read_apart_once_and_a_reader_stops_before_it() {
        let mut urgent = marked();
        assert_eq!((urgent.reach(0, 4), urgent.told_bytes(0, 4), urgent.is_at(0)), (2, 2, false));
        assert_eq!((urgent.take(true), urgent.take(false)), (Ok(Some(b'!')), Ok(Some(b'!'))));
        assert_eq!((urgent.take(false), urgent.is_there()), (Err(Errno::EINVAL), false));
        assert!(urgent.is_at(2) && urgent.is_hole(2), "the mark stays until it is read past");
        urgent.pass(3);
        assert!(!urgent.is_noted());
    }

    #[test]
    fn a_byte_among_others_is_no_hole() {
        let mut urgent = Urgent { is_inline: true, ..marked() };
        assert_eq!((urgent.reach(0, 4), urgent.told_bytes(0, 4)), (2, 4));
        assert_eq!((urgent.take(false), urgent.is_hole(2), urgent.reach(2, 2)), (Err(Errno::EINVAL), false, 2));
    }

    #[test]
    fn a_newer_mark_takes_the_place_of_an_older_one() {
        let mut urgent = marked();
        assert_eq!((urgent.note(2, 0, 4), urgent.note(1, 0, 4)), (None, None), "known, or before what is there");
        assert_eq!(urgent.note(4, 1, 4), Some(false));
        let mut urgent = marked();
        assert_eq!(urgent.note(4, 2, 4), Some(true), "the old one is lost to a reader that stands before it");
    }
}
