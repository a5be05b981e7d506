//! TCP's header and its options (RFC 9293, 3.1 and 3.2; RFC 7323; RFC 2018), to and from bytes.
//!
//! What cannot be read ends the options, as on Linux: the header stands as far as it was read.

/// Bytes of a header without options.
pub(crate) const HEADER_BYTES_MIN: usize = 20;
/// Bytes of the longest header.
pub(crate) const HEADER_BYTES_MAX: usize = 60;
/// Blocks of a selective acknowledgement that are read and written.
pub(crate) const SACK_COUNT_MAX: usize = 4;
/// Where a header has its checksum.
pub(crate) const CHECKSUM_OFFSET_BYTES: u16 = 16;

/// Flags of a header.
pub(crate) mod flag {
    /// The sender has ended its half.
    pub(crate) const FIN: u8 = 1;
    /// Sequence numbers begin.
    pub(crate) const SYN: u8 = 2;
    /// The connection is over.
    pub(crate) const RST: u8 = 4;
    /// The receiver should be told at once.
    pub(crate) const PSH: u8 = 8;
    /// The acknowledgement counts.
    pub(crate) const ACK: u8 = 16;
    /// The urgent pointer counts.
    pub(crate) const URG: u8 = 32;
    /// Congestion was met on the way (RFC 3168); on a `SYN`, that it can be told.
    pub(crate) const ECE: u8 = 64;
    /// It was heard of, and less is sent.
    pub(crate) const CWR: u8 = 128;
}

/// Congestion in the IP header (RFC 3168, 5).
pub(crate) mod ecn {
    /// The bits.
    pub(crate) const MASK: u8 = 3;
    /// It can be told.
    pub(crate) const CAPABLE: u8 = 2;
    /// It was met.
    pub(crate) const MET: u8 = 3;
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The sender's port.
    pub(crate) source_port: u16,
    /// The receiver's port.
    pub(crate) destination_port: u16,
    /// Number of the first byte, or of `SYN`.
    pub(crate) sequence: u32,
    /// Number of the next byte that is expected.
    pub(crate) acknowledgement: u32,
    /// [`flag`].
    pub(crate) flags: u8,
    /// Bytes that may come, shifted.
    pub(crate) window: u16,
    /// How far behind the first number what is urgent ends (`URG` only).
    pub(crate) urgent: u16,
    /// The two bits of the IP header that tell of congestion ([`ecn`]), as it came or as it is to be sent. Neither read
    /// nor written here.
    pub(crate) congestion: u8,
    /// Longest segment that the sender takes (`SYN` only).
    pub(crate) segment_bytes_max: Option<u16>,
    /// How far its windows are shifted (`SYN` only).
    pub(crate) window_shift: Option<u8>,
    /// It understands selective acknowledgements (`SYN` only).
    pub(crate) is_sack_permitted: bool,
    /// The sender's time, and the time of the receiver that it answers.
    pub(crate) times: Option<(u32, u32)>,
    /// It has a signature (RFC 2385). Read only.
    pub(crate) is_signed: bool,
    /// It asks for a cookie that lets data go with the first segment (RFC 7413). Written only.
    pub(crate) asks_cookie: bool,
    /// What came in behind a gap: first and one past the last number.
    pub(crate) sack: [Option<(u32, u32)>; SACK_COUNT_MAX],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

impl Header {
    /// Whether a flag is set.
    #[must_use]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Numbers that the segment takes with so many bytes.
    #[must_use]
    pub(crate) fn length(&self, payload_bytes: usize) -> u32 {
        payload_bytes as u32 + u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN))
    }

    /// Reads a segment: its header and what it carries.
    #[must_use]
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let header_bytes = usize::from(*bytes.get(12)? >> 4) * 4;
        if header_bytes < HEADER_BYTES_MIN {
            return None;
        }
        let payload = bytes.get(header_bytes..)?;
        let mut header = Self {
            source_port: half(bytes, 0)?,
            destination_port: half(bytes, 2)?,
            sequence: word(bytes, 4)?,
            acknowledgement: word(bytes, 8)?,
            flags: bytes[13],
            window: half(bytes, 14)?,
            urgent: half(bytes, 18)?,
            ..Self::default()
        };
        header.read_options(bytes.get(HEADER_BYTES_MIN..header_bytes)?);
        Some((header, payload))
    }

    fn read_options(&mut self, mut options: &[u8]) {
        while let Some(&kind) = options.first() {
            let length = match kind {
                0 => return,
                1 => 1,
                _ => match options.get(1) {
                    Some(&length) if length >= 2 => usize::from(length),
                    _ => return,
                },
            };
            let Some(option) = options.get(..length) else { return };
            self.read_option(kind, option);
            options = &options[length..];
        }
    }

    fn read_option(&mut self, kind: u8, option: &[u8]) {
        let is_first = self.has(flag::SYN);
        match (kind, option.len()) {
            (2, 4) if is_first => self.segment_bytes_max = half(option, 2),
            (3, 3) if is_first => self.window_shift = Some(option[2].min(14)),
            (4, 2) if is_first => self.is_sack_permitted = true,
            (5, 10 | 18 | 26 | 34) => {
                for (index, block) in self.sack.iter_mut().enumerate() {
                    *block = word(option, 2 + 8 * index).zip(word(option, 6 + 8 * index));
                }
            }
            (19, 18) => self.is_signed = true,
            (8, 10) => self.times = word(option, 2).zip(word(option, 6)),
            _ => {}
        }
    }

    /// Writes the header, its checksum zero. How long it is.
    pub(crate) fn emit(&self, into: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let mut at = HEADER_BYTES_MIN;
        let mut put = |bytes: &[u8]| {
            if let Some(place) = into.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
                at += bytes.len();
            }
        };
        if let Some(bytes) = self.segment_bytes_max {
            let [high, low] = bytes.to_be_bytes();
            put(&[2, 4, high, low]);
        }
        match (self.is_sack_permitted, self.times.is_some()) {
            (true, true) => put(&[4, 2]),
            (true, false) => put(&[1, 1, 4, 2]),
            (false, true) => put(&[1, 1]),
            (false, false) => {}
        }
        if let Some((own, other)) = self.times {
            put(&[8, 10]);
            put(&own.to_be_bytes());
            put(&other.to_be_bytes());
        }
        if let Some(shift) = self.window_shift {
            put(&[1, 3, 3, shift]);
        }
        if self.asks_cookie {
            put(&[34, 2, 1, 1]);
        }
        let room = (HEADER_BYTES_MAX - HEADER_BYTES_MIN) / 8 - usize::from(self.times.is_some()) * 2;
        let blocks = self.sack.iter().flatten().take(room.min(SACK_COUNT_MAX));
        let count = blocks.clone().count();
        if count > 0 {
            put(&[1, 1, 5, 2 + 8 * count as u8]);
            for (first, end) in blocks {
                put(&first.to_be_bytes());
                put(&end.to_be_bytes());
            }
        }
        into[..2].copy_from_slice(&self.source_port.to_be_bytes());
        into[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        into[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        into[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        (into[12], into[13]) = ((at as u8 / 4) << 4, self.flags);
        into[14..16].copy_from_slice(&self.window.to_be_bytes());
        into[16..18].fill(0);
        into[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        at
    }
}

/// How far `later` is behind `earlier`; negative: before it (RFC 9293, 3.4).
#[must_use]
pub(crate) fn distance(later: u32, earlier: u32) -> i32 {
    later.wrapping_sub(earlier) as i32
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::{HEADER_BYTES_MAX, Header, distance, flag};

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in any::<(u16, u16, u32, u32, u16, u16)>(),
            flags in any::<u8>(),
            (mss, shift, sack) in any::<(Option<u16>, Option<u8>, bool)>(),
            times in any::<Option<(u32, u32)>>(),
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..3),
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let is_first = flags & flag::SYN != 0;
            let mut header = Header {
                source_port: numbers.0,
                destination_port: numbers.1,
                sequence: numbers.2,
                acknowledgement: numbers.3,
                flags,
                window: numbers.4,
                urgent: numbers.5,
                segment_bytes_max: mss.filter(|_| is_first),
                window_shift: shift.filter(|_| is_first).map(|shift| shift.min(14)),
                is_sack_permitted: sack && is_first,
                times,
                ..Header::default()
            };
            if !is_first {
                header.sack.iter_mut().zip(&blocks).for_each(|(place, block)| *place = Some(*block));
            }
            let mut bytes = [0xff; HEADER_BYTES_MAX];
            let length = header.emit(&mut bytes);
            let segment: Vec<u8> = bytes[..length].iter().chain(&payload).copied().collect();
            prop_assert_eq!(Header::parse(&segment), Some((header, &payload[..])));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some((header, payload)) = Header::parse(&bytes) {
                prop_assert!(payload.len() + 20 <= bytes.len());
                prop_assert!(header.window_shift.is_none_or(|shift| shift <= 14));
            }
        }
    }

    #[test]
    fn numbers_go_round() {
        assert_eq!((distance(1, u32::MAX), distance(u32::MAX, 1), distance(7, 7)), (2, -2, 0));
    }
}
