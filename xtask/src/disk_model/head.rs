//! Where the head of the modelled disk is, and how long it takes to somewhere else.
//!
//! A platter turns 7,200 times a minute, tracks of 256 KiB lie side by side, and a seek takes 0.8 ms and up to 15 ms
//! more with the root of its distance. A request waits for the seek, then until its first byte comes by, then for its
//! bytes to pass. There is no cache and no reading ahead: what is asked for next to what was just read is under the
//! head only if the question comes in time.

/// Bytes of a track.
const TRACK_BYTES: u64 = 256 << 10;
/// One turn.
const TURN_NS: u64 = 60_000_000_000 / 7200;
/// To the next track.
const SEEK_LEAST_NS: u64 = 800_000;
/// Added over the whole disk.
const SEEK_MOST_NS: f64 = 15_000_000.0;

/// The head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    track_count: u64,
    track: u64,
    /// When it has nothing to do any more.
    free_ns: u64,
}

impl Head {
    /// At the first track of a disk of so many bytes.
    pub(super) fn new(byte_count: u64) -> Self {
        Self { track_count: byte_count.div_ceil(TRACK_BYTES).max(1), track: 0, free_ns: 0 }
    }

    /// When a request that comes at `now_ns` is done.
    pub(super) fn serve(&mut self, now_ns: u64, offset: u64, byte_count: u64) -> u64 {
        let track = offset / TRACK_BYTES;
        let distance = track.abs_diff(self.track);
        let seek_ns = match distance {
            0 => 0,
            _ => SEEK_LEAST_NS + (SEEK_MOST_NS * (distance as f64 / self.track_count as f64).sqrt()) as u64,
        };
        let there_ns = now_ns.max(self.free_ns) + seek_ns;
        let place_ns = offset % TRACK_BYTES * TURN_NS / TRACK_BYTES;
        let wait_ns = (place_ns + TURN_NS - there_ns % TURN_NS) % TURN_NS;
        self.track = offset.saturating_add(byte_count) / TRACK_BYTES;
        self.free_ns = there_ns + wait_ns + byte_count * TURN_NS / TRACK_BYTES;
        self.free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, TRACK_BYTES, TURN_NS};

    const DISK: u64 = 1 << 30;

    /// When the last of 64 reads of 4 KiB within 1 MiB is done, if all are there at once.
    fn last(places: impl Iterator<Item = u64>) -> u64 {
        let mut head = Head::new(DISK);
        places.map(|place| head.serve(0, place, 4096)).last().unwrap()
    }

    #[test]
    fn order_is_worth_what_it_is_on_a_disk() {
        let mut places: Vec<u64> = (0..64u64).map(|index| index * 89 % 256 * 4096).collect();
        let fifo = last(places.iter().copied());
        places.sort_unstable();
        let elevator = last(places.iter().copied());
        assert!(fifo > 3 * elevator, "{fifo} ns and {elevator} ns");
    }

    #[test]
    fn what_follows_at_once_needs_no_turn() {
        let mut head = Head::new(DISK);
        let first = head.serve(0, 8192, 4096);
        assert_eq!(head.serve(0, 12_288, 4096) - first, 4096 * TURN_NS / TRACK_BYTES);
        let late = head.serve(first + TURN_NS / 2, 16_384, 4096);
        assert!(late > first + TURN_NS, "it has gone by");
    }

    #[test]
    fn far_is_longer_than_near() {
        let seek = |offset| Head::new(DISK).serve(0, offset, 0);
        assert!(seek(TRACK_BYTES) >= 800_000 && seek(DISK - TRACK_BYTES) >= 15_000_000);
    }
}
