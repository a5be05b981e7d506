//! Clock arithmetic: from time-stamp ticks to nanoseconds and back, without division on the way.
//!
//! `ns = base_ns + ((tsc - base_tsc) * multiplier >> shift)` with a 128-bit product, the formula that user space
//! repeats from the system page. The multiplier has at least 31 significant bits, so rounding costs less than half a
//! nanosecond per second.

/// Nanoseconds in a second.
pub const NS_PER_SECOND: u64 = 1_000_000_000;

/// How far a measured frequency may be from 1 GHz and still be taken for exactly 1 GHz, in parts per million.
///
/// With `-icount` the time-stamp counter counts nanoseconds exactly; the measurement is a few instructions off.
const NOMINAL_TOLERANCE_PPM: u64 = 500;

/// The conversion of time-stamp ticks to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockScale {
    /// The tick at `base_ns`.
    pub base_tsc: u64,
    /// Nanoseconds at `base_tsc`.
    pub base_ns: u64,
    /// Nanoseconds per tick, times 2^shift.
    pub multiplier: u64,
    /// See `multiplier`.
    pub shift: u32,
    /// Ticks per second.
    pub tsc_hz: u64,
}

impl ClockScale {
    /// The scale of a counter of `tsc_hz` ticks per second (1 MHz to 100 GHz; values outside are clamped).
    #[must_use]
    pub fn new(tsc_hz: u64, base_tsc: u64) -> ClockScale {
        let tsc_hz = tsc_hz.clamp(1_000_000, 100_000_000_000);
        let mut shift = 32;
        let scaled = |shift: u32| ((u128::from(NS_PER_SECOND) << shift) + u128::from(tsc_hz / 2)) / u128::from(tsc_hz);
        while scaled(shift) < 1 << 31 {
            shift += 1;
        }
        // At most 1000 ns per tick << 32 < 2^42: the cast cannot lose bits.
        ClockScale { base_tsc, base_ns: 0, multiplier: scaled(shift) as u64, shift, tsc_hz }
    }

    /// Nanoseconds at `tsc`; ticks before the base count as the base.
    #[must_use]
    pub fn ns_at(&self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.base_tsc);
        self.base_ns + ((u128::from(ticks) * u128::from(self.multiplier)) >> (self.shift % 64)) as u64
    }
}

/// One reading of both clocks of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    /// Time-stamp counter, midway between the readings around `reference_ns`.
    pub tsc: u64,
    /// The reference clock, counting up.
    pub reference_ns: u64,
}

/// The counter's frequency from two samples; `None` if the reference did not move.
///
/// `counts_ns_plausible` says that the monitor may run the counter at exactly 1 GHz.
#[must_use]
pub fn tsc_hz(start: ClockSample, end: ClockSample, counts_ns_plausible: bool) -> Option<u64> {
    let elapsed_ns = end.reference_ns.checked_sub(start.reference_ns).filter(|&elapsed| elapsed != 0)?;
    let ticks = end.tsc.checked_sub(start.tsc)?;
    let hz = u64::try_from(u128::from(ticks) * u128::from(NS_PER_SECOND) / u128::from(elapsed_ns)).ok()?;
    let nominal = hz.abs_diff(NS_PER_SECOND) <= NS_PER_SECOND / 1_000_000 * NOMINAL_TOLERANCE_PPM;
    Some(if nominal && counts_ns_plausible { NS_PER_SECOND } else { hz })
}

/// The counter's frequency from a paravirtual clock's scale: ns = (ticks << shift) * multiplier >> 32.
#[must_use]
pub fn tsc_hz_of_scale(multiplier: u32, shift: i8) -> Option<u64> {
    let hz = (u128::from(NS_PER_SECOND) << 32) / u128::from(core::num::NonZeroU32::new(multiplier)?.get());
    let hz = if shift >= 0 { hz >> shift.min(63) } else { hz << shift.unsigned_abs().min(63) };
    u64::try_from(hz).ok().filter(|&hz| hz != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_day_at_any_frequency() {
        for hz in [1_000_000, 24_000_000, 999_999_937, 1_000_000_000, 2_445_434_000, 5_700_000_001_u64] {
            let scale = ClockScale::new(hz, 12_345);
            let day = 86_400 * NS_PER_SECOND;
            let error = scale.ns_at(12_345 + hz * 86_400).abs_diff(day);
            assert!(error < 86_400, "{hz}: {error} ns off after a day");
            assert_eq!(scale.ns_at(0), 0);
        }
        assert_eq!(ClockScale::new(NS_PER_SECOND, 0).ns_at(777), 777);
    }

    #[test]
    fn frequencies_come_from_samples() {
        let start = ClockSample { tsc: 1000, reference_ns: 5 };
        let at = |tsc, reference_ns| ClockSample { tsc, reference_ns };
        assert_eq!(tsc_hz(start, at(1000 + 2_450_000, 1_000_005), true), Some(2_450_000_000));
        assert_eq!(tsc_hz(start, at(1000 + 1_000_400, 1_000_005), true), Some(NS_PER_SECOND));
        assert_eq!(tsc_hz(start, at(1000 + 1_000_400, 1_000_005), false), Some(1_000_400_000));
        assert_eq!(tsc_hz(start, at(2000, 5), true), None);
        assert_eq!(tsc_hz(start, at(500, 50), true), None);
    }

    #[test]
    fn paravirtual_scales_give_the_frequency() {
        assert_eq!(tsc_hz_of_scale(1 << 31, 1), Some(NS_PER_SECOND));
        assert_eq!(tsc_hz_of_scale(3_435_973_837, -1).map(|hz| hz / 1000), Some(2_499_999));
        assert_eq!(tsc_hz_of_scale(0, 0), None);
    }
}
