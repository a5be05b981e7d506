//! Connections that are being made: what a `SYN` offers, what is agreed on, entries of those half open, cookies.
//!
//! A connection that comes in is [`HalfOpen`] until its third segment: an entry without a socket or an engine. Beyond
//! the listener's limit or the pod's there is no entry at all: the answer's own first number says all that is needed
//! (SYN cookies, RFC 4987, 3.6), and of the options what fits into the low bits of the answer's time.

use alloc::sync::Weak;
use core::net::SocketAddr;

use super::Terms;
use super::header::{HEADER_BYTES_MIN, Header, flag};
use super::host::Listener;
use super::table::{Appointment, Key, Tables};

/// How far own windows are shifted where both ends shift them, unless a smaller buffer was asked for.
const OWN_SHIFT: u8 = 7;
/// Payload that is assumed of an end that says nothing (RFC 9293, 3.7.1).
const SEGMENT_BYTES_DEFAULT: u16 = 536;
/// Least that is believed (`TCP_MIN_SND_MSS`).
const SEGMENT_BYTES_MIN: u16 = 48;
/// Bytes of the option that tells times, with what fills it up.
pub(super) const TIMES_BYTES: u16 = 12;
/// Times that a `SYN` or its answer is sent again from outside (`tcp_synack_retries`).
pub(super) const ANSWER_RETRY_COUNT_MAX: u32 = 5;
/// How long the first `SYN` is waited for.
pub(super) const FIRST_TIMEOUT_NS: u64 = 1_000_000_000;
/// Payloads that a cookie can tell.
const COOKIE_SEGMENT_BYTES: [u16; 8] = [536, 1220, 1300, 1420, 1440, 1452, 1460, 8940];
/// How long a cookie's clock stands still, and how many of its ticks a cookie holds.
const COOKIE_TICK_NS: u64 = 64_000_000_000;
const COOKIE_TICK_COUNT: u32 = 2;
/// How long cookies are believed after the last was given.
pub(super) const COOKIE_NS: u64 = COOKIE_TICK_NS * COOKIE_TICK_COUNT as u64;
/// Low bits of a time that tell options.
const COOKIE_TIME_MASK: u32 = 0x1f;
const COOKIE_NO_SHIFT: u32 = 0xf;

/// What a `SYN` offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) segment_bytes_max: u16,
    pub(super) window_shift: Option<u8>,
    pub(super) has_sack: bool,
    /// It can tell of congestion.
    pub(super) has_ecn: bool,
    /// Its time.
    pub(super) time: Option<u32>,
}

/// What this end is able to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    /// Longest payload that reaches the other end, without options.
    pub(super) segment_bytes_max: u16,
    pub(super) receive_bytes_max: usize,
    /// `SO_RCVBUF` was asked for.
    pub(super) is_receive_fixed: bool,
    /// What is added to this end's time in milliseconds.
    pub(super) time_offset: u32,
}

/// A connection from outside that is half open.
pub(super) struct HalfOpen {
    pub(super) listener: Weak<dyn Listener>,
    pub(super) own_first: u32,
    pub(super) other_first: u32,
    pub(super) offer: Offer,
    pub(super) own: Own,
    pub(super) sent_ns: u64,
    pub(super) retry_count: u32,
    /// The answer was sent again, so nothing is known of the round trip.
    pub(super) is_round_trip_unknown: bool,
    pub(super) answers_from_ns: u64,
    pub(super) appointment: Option<Appointment>,
    /// Answers that it is worth without data.
    pub(super) defer_count: u32,
    /// Its third segment came without data, and was not enough.
    pub(super) is_acknowledged: bool,
}

/// Longest payload of packets of a length, without options.
pub(super) fn segment_bytes_of(packet_bytes: usize, remote: SocketAddr) -> u16 {
    let ip_bytes = if remote.is_ipv4() { 20 } else { 40 };
    let bytes = packet_bytes.saturating_sub(ip_bytes + HEADER_BYTES_MIN);
    bytes.clamp(usize::from(SEGMENT_BYTES_MIN), usize::from(u16::MAX)) as u16
}

impl Offer {
    pub(super) fn of(header: &Header) -> Self {
        let told = header.segment_bytes_max.filter(|bytes| *bytes > 0);
        Self {
            segment_bytes_max: told.map_or(SEGMENT_BYTES_DEFAULT, |bytes| bytes.max(SEGMENT_BYTES_MIN)),
            window_shift: header.window_shift,
            has_sack: header.is_sack_permitted,
            has_ecn: header.flags & (flag::ECE | flag::CWR) == flag::ECE | flag::CWR && header.congestion == 0,
            time: header.times.map(|times| times.0),
        }
    }
}

impl Own {
    pub(super) fn time(&self, now_ns: u64) -> u32 {
        ((now_ns / 1_000_000) as u32).wrapping_add(self.time_offset)
    }

    fn shift(&self) -> u8 {
        if !self.is_receive_fixed {
            return OWN_SHIFT;
        }
        (0..14).find(|shift| self.receive_bytes_max >> shift <= usize::from(u16::MAX)).unwrap_or(14)
    }

    /// The window of a `SYN`, which is not shifted: whole segments, as Linux has it.
    fn first_window(&self, segment_bytes: u16) -> u16 {
        let bytes = self.receive_bytes_max.min(usize::from(u16::MAX));
        let segment_bytes = usize::from(segment_bytes.max(1));
        if bytes < segment_bytes { bytes as u16 } else { (bytes / segment_bytes * segment_bytes) as u16 }
    }

    /// A `SYN`.
    pub(super) fn first_header(&self, own_first: u32, now_ns: u64) -> Header {
        Header {
            sequence: own_first,
            flags: flag::SYN,
            window: self.first_window(self.segment_bytes_max),
            segment_bytes_max: Some(self.segment_bytes_max),
            window_shift: Some(self.shift()),
            is_sack_permitted: true,
            times: Some((self.time(now_ns), 0)),
            ..Header::default()
        }
    }

    /// The answer to a `SYN`.
    pub(super) fn answer_header(&self, own_first: u32, other_first: u32, offer: &Offer, now_ns: u64) -> Header {
        let payload = self.segment_bytes_max - if offer.time.is_some() { TIMES_BYTES } else { 0 };
        Header {
            acknowledgement: other_first.wrapping_add(1),
            flags: flag::SYN | flag::ACK | if offer.has_ecn { flag::ECE } else { 0 },
            window: self.first_window(payload),
            window_shift: offer.window_shift.map(|_| self.shift()),
            is_sack_permitted: offer.has_sack,
            times: offer.time.map(|time| (self.time(now_ns), time)),
            ..self.first_header(own_first, now_ns)
        }
    }

    /// What is agreed on, once both have begun. `window_bytes` is the other end's.
    pub(super) fn terms(&self, (own_first, other_first): (u32, u32), offer: &Offer, window_bytes: u32) -> Terms {
        let payload = self.segment_bytes_max.min(offer.segment_bytes_max);
        let times_bytes = if offer.time.is_some() { TIMES_BYTES } else { 0 };
        Terms {
            send_next: own_first.wrapping_add(1),
            receive_next: other_first.wrapping_add(1),
            send_window_bytes: window_bytes,
            window_shifts: offer.window_shift.map(|other| (other, self.shift())),
            segment_bytes_max: payload.saturating_sub(times_bytes).max(SEGMENT_BYTES_MIN - TIMES_BYTES),
            has_sack: offer.has_sack,
            has_ecn: offer.has_ecn,
            times: offer.time.map(|time| (self.time_offset, time)),
            round_trip_ns: None,
        }
    }
}

impl HalfOpen {
    /// It is no more: its listener may have another.
    pub(super) fn uncount(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.count_half_open(false);
        }
    }

    /// The same without its appointment.
    pub(super) fn copy(&self) -> Self {
        Self { listener: self.listener.clone(), appointment: None, ..*self }
    }

    pub(super) fn answer_header(&self, now_ns: u64) -> Header {
        self.own.answer_header(self.own_first, self.other_first, &self.offer, now_ns)
    }
}

impl Tables {
    /// The first number of a connection (RFC 6528): keyed, and growing with time.
    pub(super) fn first_number(&self, key: &Key, now_ns: u64) -> u32 {
        let fixed = self.hash(key.local, key.remote, u64::from(u32::from_be_bytes(*b"ISN ")));
        (fixed as u32).wrapping_add((now_ns >> 6) as u32)
    }

    /// What is added to this end's times.
    pub(super) fn time_offset(&self, key: &Key) -> u32 {
        self.hash(key.local, key.remote, u64::from(u32::from_be_bytes(*b"time"))) as u32
    }

    fn cookie_part(&self, key: &Key, other_first: u32, tick: u32) -> u32 {
        self.hash(key.local, key.remote, u64::from(other_first) << 32 | u64::from(tick | 1 << 31)) as u32
    }

    /// A first number that tells a listener later what it needs to know.
    pub(super) fn cookie(&self, key: &Key, other_first: u32, offer: &Offer, now_ns: u64) -> u32 {
        let tick = (now_ns / COOKIE_TICK_NS) as u32;
        let index = COOKIE_SEGMENT_BYTES.iter().rposition(|bytes| *bytes <= offer.segment_bytes_max).unwrap_or(0);
        let low = self.cookie_part(key, other_first, tick).wrapping_add(index as u32) & 0x00ff_ffff;
        self.cookie_part(key, other_first, u32::MAX).wrapping_add(tick << 24).wrapping_add(low)
    }

    /// The payload that a cookie tells, if it is one that was given here not long ago.
    pub(super) fn read_cookie(&self, key: &Key, cookie: u32, other_first: u32, now_ns: u64) -> Option<u16> {
        let tick = (now_ns / COOKIE_TICK_NS) as u32;
        let rest = cookie.wrapping_sub(self.cookie_part(key, other_first, u32::MAX));
        let age = tick.wrapping_sub(rest >> 24) & 0xff;
        if age >= COOKIE_TICK_COUNT {
            return None;
        }
        let part = self.cookie_part(key, other_first, tick.wrapping_sub(age));
        COOKIE_SEGMENT_BYTES.get((rest.wrapping_sub(part) & 0x00ff_ffff) as usize).copied()
    }
}

/// A time not after `time` whose low bits tell an offer's options.
pub(super) fn time_with_options(time: u32, offer: &Offer) -> u32 {
    let shift = offer.window_shift.map_or(COOKIE_NO_SHIFT, u32::from);
    let options = shift | u32::from(offer.has_sack) << 4;
    let told = time & !COOKIE_TIME_MASK | options;
    if told > time { told.wrapping_sub(COOKIE_TIME_MASK + 1) } else { told }
}

/// The options that an answered time tells.
pub(super) fn options_of_time(time: u32) -> (Option<u8>, bool) {
    let shift = time & COOKIE_NO_SHIFT;
    (Some(shift as u8).filter(|_| shift <= 14), time & 0x10 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::table::Tables;
    use super::{COOKIE_TICK_NS, Offer, options_of_time, time_with_options};

    #[test]
    fn a_cookie_is_read_by_its_maker_alone_and_not_for_ever() {
        let (tables, others) = (Tables::new([1, 2]), Tables::new([1, 3]));
        let key = tables.key("10.0.2.15:80".parse().unwrap(), "10.0.2.2:999".parse().unwrap());
        let now_ns = 7 * COOKIE_TICK_NS + 5;
        for (told, kept) in [(536, 536), (1460, 1460), (1459, 1452), (100, 536), (9000, 8940)] {
            let offer = Offer { segment_bytes_max: told, ..Offer::default() };
            let cookie = tables.cookie(&key, 77, &offer, now_ns);
            assert_eq!(tables.read_cookie(&key, cookie, 77, now_ns + COOKIE_TICK_NS), Some(kept));
            assert_eq!(tables.read_cookie(&key, cookie, 78, now_ns), None);
            assert_eq!(others.read_cookie(&key, cookie, 77, now_ns), None);
            assert_eq!(tables.read_cookie(&key, cookie, 77, now_ns + 2 * COOKIE_TICK_NS), None);
        }
    }

    #[test]
    fn options_are_told_by_a_time() {
        for window_shift in [None, Some(0), Some(7), Some(14)] {
            for has_sack in [false, true] {
                let offer = Offer { window_shift, has_sack, ..Offer::default() };
                let time = time_with_options(1_000_003, &offer);
                assert!(time <= 1_000_003 && time > 1_000_003 - 64);
                assert_eq!(options_of_time(time), (window_shift, has_sack));
            }
        }
    }
}
