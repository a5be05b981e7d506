//! `--stats`: what a run cost, as a table for people or as one line of JSON.
//!
//! The tool measures what only the host can see (wall times from its own start); exos counts the rest and
//! sends it over the control port. Keys are printed as exos names them, so a new counter needs no change
//! here.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Most counters that are kept; a guest that sends more is cut off here.
const COUNTER_COUNT_MAX: usize = 256;

/// Times that the host measured, all from the start of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// QEMU was started.
    pub(crate) machine_started: Option<Duration>,
    /// exos said `hello`.
    pub(crate) hello: Option<Duration>,
    /// The first byte of the program's output was written.
    pub(crate) first_output: Option<Duration>,
    /// The program's end was reported.
    pub(crate) ended: Option<Duration>,
    /// The tool was about to exit.
    pub(crate) wall: Duration,
}

/// What a run cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    /// The host's part.
    pub(crate) times: Times,
    /// `tcg` or `kvm`.
    pub(crate) accelerator: &'static str,
    /// The tool's exit status.
    pub(crate) status: u8,
    counters: Vec<(String, u64)>,
}

impl Stats {
    pub(crate) fn new(accelerator: &'static str) -> Self {
        Self { accelerator, ..Self::default() }
    }

    /// Takes a counter from exos; a key that is there already gets the new value.
    pub(crate) fn count(&mut self, key: String, value: u64) {
        if let Some((_, old)) = self.counters.iter_mut().find(|(known, _)| *known == key) {
            *old = value;
        } else if self.counters.len() < COUNTER_COUNT_MAX {
            self.counters.push((key, value));
        }
    }

    fn host_times(&self) -> Vec<(&'static str, Duration)> {
        let times = [
            ("machine_started_us", self.times.machine_started),
            ("hello_us", self.times.hello),
            ("first_output_us", self.times.first_output),
            ("program_ended_us", self.times.ended),
            ("wall_us", Some(self.times.wall)),
        ];
        times.into_iter().filter_map(|(key, time)| Some((key, time?))).collect()
    }

    /// One object on one line: integers only, times in microseconds from the start of the tool; `null` never
    /// appears.
    pub(crate) fn json(&self) -> String {
        let host = self.host_times().into_iter().map(|(key, time)| (key, time.as_micros() as u64)).collect();
        let written = Written { status: self.status, accelerator: self.accelerator, host, guest: &self.counters };
        // Neither does writing to memory fail, nor are there keys that are no strings.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Lines for people.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String, unit: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<28} {value:>14} {unit}");
        };
        for (name, time) in [
            ("start to machine started", self.times.machine_started),
            ("start to exos up", self.times.hello),
            ("start to first output", self.times.first_output),
            ("start to program ended", self.times.ended),
            ("wall time", Some(self.times.wall)),
        ] {
            if let Some(time) = time {
                row(name, format!("{:.1}", time.as_secs_f64() * 1e3), "ms");
            }
        }
        for (key, value) in &self.counters {
            match key.strip_suffix("_ns") {
                Some(name) => row(&spaced(name), format!("{:.3}", *value as f64 / 1e6), "ms"),
                None => row(&spaced(key), value.to_string(), ""),
            }
        }
        let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        format!("aegis: statistics ({}, status {})\n{lines}\n", self.accelerator, self.status)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    status: u8,
    accelerator: &'static str,
    #[serde(serialize_with = "in_order")]
    host: Vec<(&'static str, u64)>,
    #[serde(serialize_with = "in_order")]
    guest: &'a [(String, u64)],
}

/// Pairs as the members of an object.
fn in_order<K: Serialize, S: Serializer>(pairs: &[(K, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

fn spaced(key: &str) -> String {
    key.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::{COUNTER_COUNT_MAX, Stats, Times};
    use std::time::Duration;

    fn stats() -> Stats {
        let times =
            Times { hello: Some(Duration::from_micros(41_300)), wall: Duration::from_millis(60), ..Times::default() };
        let mut stats = Stats { times, accelerator: "tcg", status: 7, ..Stats::default() };
        stats.count("boot_ns".into(), 1);
        stats.count("page_faults".into(), 12);
        stats.count("boot_ns".into(), 2_500_000);
        stats
    }

    #[test]
    fn json_is_one_line_with_the_last_values() {
        assert_eq!(
            stats().json(),
            "{\"status\":7,\"accelerator\":\"tcg\",\"host\":{\"hello_us\":41300,\"wall_us\":60000},\
             \"guest\":{\"boot_ns\":2500000,\"page_faults\":12}}"
        );
    }

    #[test]
    fn the_table_names_units() {
        let table = stats().table();
        assert!(table.starts_with("aegis: statistics (tcg, status 7)\n"), "{table}");
        for expected in ["41.3 ms", "2.500 ms", "page faults                              12\n"] {
            assert!(table.contains(expected), "{expected:?} in {table}");
        }
    }

    #[test]
    fn keys_are_quoted_and_limited() {
        let mut stats = stats();
        stats.count("a\"\\b".into(), 1);
        assert!(stats.json().contains("\"a\\\"\\\\b\":1"));
        for n in 0..2 * COUNTER_COUNT_MAX {
            stats.count(n.to_string(), 0);
        }
        assert_eq!(stats.counters.len(), COUNTER_COUNT_MAX);
    }
}
