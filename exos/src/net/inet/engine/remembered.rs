//! A connection that has ended and is remembered (`TIME-WAIT`): a small entry that answers what is still under way.
//!
//! Why: segments of the old connection must not be taken for ones of a new connection between the same two ends, and a
//! last acknowledgement that was lost is sent again (RFC 9293, 3.4.3; RFC 6191; RFC 1337).

use super::header::{Header, distance, flag};

/// How long a connection is remembered.
pub(super) const REMEMBERED_NS: u64 = 60_000_000_000;

/// What is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) send_next: u32,
    pub(super) receive_next: u32,
    pub(super) window: u16,
    /// What is added to this end's time, and the last time of the other's.
    pub(super) times: Option<(u32, u32)>,
    pub(super) until_ns: u64,
    /// When an answer may be sent again.
    pub(super) answers_from_ns: u64,
}

/// What is done about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Drop,
    /// The acknowledgement is sent again.
    Answer,
    /// It is forgotten.
    Forget,
    /// A new connection begins, whose own first number is this.
    Renew(u32),
}

/// How often it answers.
const ANSWER_INTERVAL_NS: u64 = 500_000_000;

impl Remembered {
    /// What is done about a segment (`tcp_timewait_state_process` of Linux).
    pub(super) fn arrive(&mut self, header: &Header, payload_bytes: usize, now_ns: u64) -> Outcome {
        let start = distance(header.sequence, self.receive_next);
        let is_old_time = match (self.times, header.times) {
            (Some((_, recent)), Some((time, _))) => distance(time, recent) < 0,
            _ => false,
        };
        let is_newer_time = match (self.times, header.times) {
            (Some((_, recent)), Some((time, _))) => distance(time, recent) > 0,
            _ => false,
        };
        if header.has(flag::RST) {
            return if start == 0 { Outcome::Forget } else { Outcome::Drop };
        }
        let is_first = header.has(flag::SYN) && !header.has(flag::ACK);
        if is_first && !is_old_time && (start > 0 || is_newer_time) {
            let first = self.send_next.wrapping_add(65_535 + 2);
            return Outcome::Renew(if first == 0 { 1 } else { first });
        }
        if start == 0 && payload_bytes == 0 && !header.has(flag::SYN | flag::FIN) && !is_old_time {
            return Outcome::Drop;
        }
        if is_old_time || header.has(flag::ACK | flag::SYN) {
            if header.has(flag::ACK) && header.has(flag::FIN) && !is_old_time {
                // Its end again: from now on as long again.
                self.until_ns = now_ns + REMEMBERED_NS;
            }
            if now_ns < self.answers_from_ns {
                return Outcome::Drop;
            }
            self.answers_from_ns = now_ns + ANSWER_INTERVAL_NS;
            return Outcome::Answer;
        }
        Outcome::Drop
    }

    /// The acknowledgement that it answers with.
    pub(super) fn answer(&self, now_ns: u64) -> Header {
        Header {
            sequence: self.send_next,
            acknowledgement: self.receive_next,
            flags: flag::ACK,
            window: self.window,
            times: self.times.map(|(offset, recent)| (((now_ns / 1_000_000) as u32).wrapping_add(offset), recent)),
            ..Header::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Header, flag};
    use super::{Outcome, Remembered};

    #[test]
    fn each_segment_has_its_answer() {
        let fresh = || Remembered {
            send_next: 1000,
            receive_next: 5000,
            window: 9,
            times: Some((0, 70)),
            until_ns: 60,
            answers_from_ns: 0,
        };
        let segment = |flags, sequence, time: Option<u32>| Header {
            flags,
            sequence,
            times: time.map(|time| (time, 0)),
            ..Header::default()
        };
        let (ack, fin, syn, rst) = (flag::ACK, flag::FIN, flag::SYN, flag::RST);
        for (flags, sequence, time, bytes, expected) in [
            (ack, 5000, Some(71), 0, Outcome::Drop),
            (ack | fin, 4999, Some(71), 0, Outcome::Answer),
            (ack, 4000, Some(71), 100, Outcome::Answer),
            (rst, 5000, None, 0, Outcome::Forget),
            (rst, 5001, None, 0, Outcome::Drop),
            (syn, 5001, None, 0, Outcome::Renew(66_537)),
            (syn, 4000, Some(71), 0, Outcome::Renew(66_537)),
            (syn, 4000, None, 0, Outcome::Answer),
            (syn, 9000, Some(60), 0, Outcome::Answer),
            (fin, 5000, None, 0, Outcome::Drop),
        ] {
            let mut entry = fresh();
            assert_eq!(
                entry.arrive(&segment(flags, sequence, time), bytes, 1),
                expected,
                "{flags} {sequence} {time:?}"
            );
            if expected == Outcome::Answer {
                assert_eq!(entry.arrive(&segment(flags, sequence, time), bytes, 2), Outcome::Drop, "too soon");
            }
        }
    }
}
