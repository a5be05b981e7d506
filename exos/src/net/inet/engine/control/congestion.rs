//! How many segments may be under way: slow start and CUBIC (RFC 5681, RFC 9438) in whole numbers.
//!
//! Windows are counted in segments as on Linux. Neighbour: `recovery`, which says when something was lost.

/// Segments at first (RFC 6928).
pub(super) const FIRST_COUNT: u32 = 10;
/// Segments at most.
const COUNT_MAX: u32 = 4096;
/// What a loss leaves, of 1024 (Linux's `beta`).
const LEFT_PER_1024: u64 = 717;
/// Thousandths of a segment, in which the curve is counted.
const UNIT: u64 = 1000;
/// How far from its turn the curve is followed, in ms.
const CURVE_MS_MAX: i64 = 200_000;

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Congestion {
    /// Segments that may be under way.
    pub(super) window_count: u32,
    /// From where on it grows slowly.
    pub(super) threshold_count: u32,
    /// Where the last loss was, in thousandths of a segment.
    last_max: u64,
    /// When the curve began; 0: it has not.
    epoch_ns: u64,
    /// When the curve is where it was before the loss, in ms from its begin, and how high that is.
    turn_ms: i64,
    turn: u64,
    /// What a Reno window would be by now, in thousandths.
    reno: u64,
    /// Segments that were acknowledged and not yet counted, in thousandths.
    credit: u64,
}

/// The whole cube root.
fn cube_root(of: u64) -> u64 {
    let mut root = 0u64;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        if next.checked_pow(3).is_some_and(|cube| cube <= of) {
            root = next;
        }
    }
    root
}

impl Congestion {
    pub(super) fn new() -> Self {
        Self {
            window_count: FIRST_COUNT,
            threshold_count: u32::MAX,
            last_max: 0,
            epoch_ns: 0,
            turn_ms: 0,
            turn: 0,
            reno: 0,
            credit: 0,
        }
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.window_count < self.threshold_count
    }

    /// Something was lost: the window that is left, which is the threshold from now on.
    pub(super) fn note_loss(&mut self) {
        let window = u64::from(self.window_count) * UNIT;
        // Others may be coming: one that loses below where it lost last leaves them more.
        self.last_max = if window < self.last_max { window * (1024 + LEFT_PER_1024) / 2048 } else { window };
        self.threshold_count = ((window * LEFT_PER_1024 / 1024 / UNIT) as u32).max(2);
        self.epoch_ns = 0;
    }

    /// `count` segments were acknowledged while the window was what held back.
    pub(super) fn note_acknowledged(&mut self, count: u32, round_trip_ns: u64, now_ns: u64) {
        let mut left = count;
        if self.is_slow_start() {
            let step = left.min(self.threshold_count - self.window_count);
            self.window_count = (self.window_count + step).min(COUNT_MAX);
            left -= step;
        }
        if left > 0 {
            self.follow_curve(left, round_trip_ns, now_ns);
        }
    }

    fn follow_curve(&mut self, count: u32, round_trip_ns: u64, now_ns: u64) {
        let window = u64::from(self.window_count) * UNIT;
        if self.epoch_ns == 0 {
            (self.epoch_ns, self.reno, self.credit) = (now_ns.max(1), window, 0);
            self.turn = window.max(self.last_max);
            // 0.4 t^3 segments of t in seconds: of t in ms, t^3 / 2.5e6 thousandths.
            self.turn_ms = cube_root((self.turn - window).min(u64::from(COUNT_MAX) * UNIT) * 2_500_000) as i64;
        }
        let at_ms = (now_ns.saturating_sub(self.epoch_ns) + round_trip_ns) / 1_000_000;
        let from_turn_ms = ((at_ms.min(i64::MAX as u64)) as i64 - self.turn_ms).clamp(-CURVE_MS_MAX, CURVE_MS_MAX);
        let offset = from_turn_ms.pow(3) / 2_500_000;
        let curve = self.turn.saturating_add_signed(offset);
        // 3 (1 - beta) / (1 + beta) of a segment for each round trip.
        let reno_step = u64::from(count) * 3 * (1024 - LEFT_PER_1024) * UNIT * UNIT / (1024 + LEFT_PER_1024);
        self.reno += reno_step / window.max(1);
        let target = curve.max(self.reno).min(window * 3 / 2);
        if target > window {
            self.credit += u64::from(count) * UNIT * (target - window) / window;
        } else {
            // Hardly at all.
            self.credit += u64::from(count) * UNIT / (100 * u64::from(self.window_count));
        }
        let step = (self.credit / UNIT) as u32;
        self.credit %= UNIT;
        self.window_count = (self.window_count + step).min(COUNT_MAX);
    }

    /// What was taken for a loss was none: all is as it was.
    pub(super) fn restore(&mut self, window_count: u32, threshold_count: u32) {
        self.window_count = self.window_count.max(window_count);
        self.threshold_count = self.threshold_count.max(threshold_count);
    }

    /// Nothing was sent for some time: the window shrinks towards what it was at first (RFC 2861).
    pub(super) fn note_idle(&mut self, timeout_count: u64) {
        let first = self.window_count.min(FIRST_COUNT);
        self.window_count = (self.window_count >> timeout_count.min(31)).max(first);
        self.epoch_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Congestion, cube_root};

    const MS: u64 = 1_000_000;

    #[test]
    fn roots_are_right() {
        for root in [0u64, 1, 2, 3, 10, 999, 12_345, 2_000_000] {
            assert_eq!(cube_root(root.pow(3)), root);
            assert_eq!(cube_root(root.pow(3) + 1).max(1), root.max(1));
            if root > 1 {
                assert_eq!(cube_root(root.pow(3) - 1), root - 1);
            }
        }
    }

    /// Windows after each round trip of 100 ms.
    fn grow(congestion: &mut Congestion, trips: u64, begun_ms: u64) -> alloc::vec::Vec<u32> {
        (0..trips)
            .map(|trip| {
                congestion.note_acknowledged(congestion.window_count, 100 * MS, (begun_ms + trip * 100) * MS);
                congestion.window_count
            })
            .collect()
    }

    #[test]
    fn it_begins_by_doubling() {
        assert_eq!(grow(&mut Congestion::new(), 4, 1), [20, 40, 80, 160]);
    }

    #[test]
    fn after_a_loss_it_comes_back_along_the_curve() {
        let mut congestion = Congestion::new();
        congestion.window_count = 100;
        congestion.note_loss();
        assert_eq!(congestion.threshold_count, 70);
        congestion.window_count = congestion.threshold_count;
        // K = cbrt(30 / 0.4) = 4.2 s.
        let windows = grow(&mut congestion, 80, 1000);
        assert!(windows.is_sorted());
        assert!((95..=100).contains(&windows[38]), "{windows:?}");
        assert!((98..=102).contains(&windows[45]), "{windows:?}");
        assert!(windows[79] > 115, "{windows:?}");
    }

    #[test]
    fn short_round_trips_grow_as_reno() {
        let mut congestion = Congestion::new();
        (congestion.window_count, congestion.threshold_count, congestion.last_max) = (10, 10, 10_000);
        for trip in 0..100u64 {
            congestion.note_acknowledged(congestion.window_count, MS, (1000 + trip) * MS);
        }
        assert!((40..=70).contains(&congestion.window_count), "{congestion:?}");
    }
}
