//! Placeholder.
use crate::suite::Suite;
pub(crate) const SUITE: Suite = Suite {
    name: "s09_device",
    cases: &[],
};
