//! Placeholder.
use crate::suite::Suite;
pub(crate) const SUITE: Suite = Suite { name: "s08_hostile", cases: &[] };
