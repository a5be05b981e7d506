//! What a workload prints: a line of JSON for each result, which `aegis bench rhino` reads.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::time::Duration;

/// A result.
pub(crate) struct Line<'a> {
    /// Which experiment.
    pub(crate) row: &'a str,
    /// Which curve of it: a system, and how it finds changes.
    pub(crate) series: &'a str,
    /// Where on the curve.
    pub(crate) param: String,
    /// What was counted.
    pub(crate) operations: u64,
    pub(crate) time: Duration,
    /// Whatever else there is to say, by name.
    pub(crate) extra: &'a [(&'a str, f64)],
}

impl Line<'_> {
    /// Names are the workload's own, and need no escapes.
    fn text(&self) -> String {
        let mut extra = String::new();
        for (place, (name, value)) in self.extra.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // A number that is none is no JSON.
            let value = if value.is_finite() { *value } else { 0.0 };
            let _ = write!(extra, "{comma}\"{name}\":{value}");
        }
        format!(
            "{{\"row\":\"{}\",\"series\":\"{}\",\"param\":\"{}\",\"operations\":{},\"seconds\":{:.6},\
             \"instructions\":null,\"extra\":{{{extra}}}}}",
            self.row,
            self.series,
            self.param,
            self.operations,
            self.time.as_secs_f64(),
        )
    }

    pub(crate) fn print(&self) {
        println!("{}", self.text());
    }
}
