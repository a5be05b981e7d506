//! Whether and when a pod that has ended is started again.
//!
//! Pure. The first start comes after [`BACK_OFF_FIRST`], each further one after twice as long as the one before, at
//! most [`BACK_OFF_MAX`]. A run of [`STEADY`] or longer counts as a success: what comes then begins anew. After
//! [`Restart::count_max`] starts in a row without one the pod is left as it is.

use std::time::Duration;

/// Before the first start.
pub(crate) const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
/// Before any.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// A run that is no failure to start.
pub(crate) const STEADY: Duration = Duration::from_secs(10);
/// Starts in a row, unless the file says how many.
const COUNT_DEFAULT: u32 = 10;
const COUNT_MAX: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    OnFailure,
    Always,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restart {
    when: When,
    /// Starts in a row.
    pub(crate) count_max: u32,
}

impl Restart {
    /// Never.
    pub(crate) const NO: Self = Self { when: When::Never, count_max: 0 };

    /// Reads `no`, `on-failure`, `always`, with `:N` for how often in a row.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"no\", \"on-failure\" or \"always\" is wanted, perhaps with :N, 1 to {COUNT_MAX}");
        let (word, count) = text.split_once(':').map_or((text, None), |(word, count)| (word, Some(count)));
        let count_max = match count {
            None => COUNT_DEFAULT,
            Some(count) => count.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or_else(wrong)?,
        };
        match (word, count) {
            ("no", None) => Ok(Self::NO),
            ("on-failure", _) => Ok(Self { when: When::OnFailure, count_max }),
            ("always", _) => Ok(Self { when: When::Always, count_max }),
            _ => Err(wrong()),
        }
    }

    /// Whether a pod of this kind is ever started again.
    pub(crate) fn is_ever(self) -> bool {
        self.when != When::Never
    }

    /// Whether one that ended with this status (none: it did not say) is.
    pub(crate) fn wants(self, status: Option<u8>) -> bool {
        match self.when {
            When::Never => false,
            When::OnFailure => status != Some(0),
            When::Always => true,
        }
    }

    /// How long to wait before start number `number`, from 0 on.
    pub(crate) fn back_off(number: u32) -> Duration {
        BACK_OFF_FIRST.saturating_mul(1_u32.checked_shl(number).unwrap_or(u32::MAX)).min(BACK_OFF_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{BACK_OFF_MAX, Restart};
    use std::time::Duration;

    #[test]
    fn what_the_file_says() {
        let on_failure = Restart::parse("on-failure").expect("known");
        assert_eq!((on_failure.count_max, on_failure.wants(Some(0)), on_failure.wants(Some(1))), (10, false, true));
        assert!(on_failure.wants(None), "one that did not say how it ended failed");
        let always = Restart::parse("always:3").expect("known");
        assert!(always.count_max == 3 && always.wants(Some(0)) && always.is_ever());
        assert_eq!(Restart::parse("no"), Ok(Restart::NO));
        assert!(!Restart::NO.is_ever() && !Restart::NO.wants(Some(1)));
        for wrong in ["", "never", "no:1", "always:0", "always:1001", "always:", "always:x", "on-failure:-1"] {
            assert!(Restart::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits: Vec<Duration> = (0..4).map(Restart::back_off).collect();
        assert_eq!(waits, [100, 200, 400, 800].map(Duration::from_millis));
        assert_eq!([7, 31, 32, u32::MAX].map(Restart::back_off), [BACK_OFF_MAX; 4]);
    }
}
