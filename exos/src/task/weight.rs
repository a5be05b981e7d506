//! Amounts of tickets for Linux's nice values: 1024 for 0, and a fourth more or a fifth less for each step.

use super::schedule::WEIGHT_DEFAULT;

/// Nice values from the most to the least favoured.
pub const NICE_MIN: i32 = -20;
/// See [`NICE_MIN`].
pub const NICE_MAX: i32 = 19;
/// What a task of `SCHED_IDLE` weighs.
pub const WEIGHT_IDLE: u64 = 3;

/// What a task with a nice value weighs; values beyond the ends count as these.
#[must_use]
pub fn of_nice(nice: i32) -> u64 {
    let nice = nice.clamp(NICE_MIN, NICE_MAX);
    let (four, five) = (4_u64.pow(nice.unsigned_abs()), 5_u64.pow(nice.unsigned_abs()));
    if nice < 0 { WEIGHT_DEFAULT * five / four } else { WEIGHT_DEFAULT * four / five }
}

/// The nice value whose weight is nearest.
#[must_use]
pub fn nice_of(weight: u64) -> i32 {
    (NICE_MIN..=NICE_MAX).min_by_key(|nice| of_nice(*nice).abs_diff(weight)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{NICE_MAX, NICE_MIN, nice_of, of_nice};

    #[test]
    fn steps_are_a_fourth() {
        assert_eq!([0, 5, 10, 19, -5, -20].map(of_nice), [1024, 335, 109, 14, 3125, 88_817]);
        assert_eq!((of_nice(100), of_nice(-100)), (of_nice(19), of_nice(-20)));
        for nice in NICE_MIN..=NICE_MAX {
            assert_eq!(nice_of(of_nice(nice)), nice);
            let ratio = of_nice(nice - 1) as f64 / of_nice(nice) as f64;
            assert!(nice == NICE_MIN || (1.2..1.31).contains(&ratio), "{nice}: {ratio}");
        }
    }
}
