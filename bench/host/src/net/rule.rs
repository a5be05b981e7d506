//! How a row of suites `net` and `disk` is judged.
//!
//! QEMU's devices, what uses them and the machine share the host's processors, so time alone says little about a system
//! that is fast: then everything waits for the host. A row passes if its throughput is at least Linux's, or if the host
//! is its limit and the guest executes at most half of Linux's instructions for a unit.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A guest that is idle for so much of the time waits for the host.
const IDLE_LEAST: f64 = 0.2;
/// A host whose processors are busy for so much of the time (1.9 of 2) is the limit.
const BUSY_LEAST: f64 = 0.95;
/// The share of Linux's instructions that counts where the host is the limit.
const INSTRUCTIONS_MOST: f64 = 0.5;
/// Throughput that is no less than Linux's.
const THROUGHPUT_LEAST: f64 = 1.0;

/// How busy guest and host were while a row was measured; shares of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) guest_idle: f64,
    pub(crate) host_busy: f64,
}

/// Which part of the rule let a row pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    Throughput,
    Instructions,
    Neither,
}

/// A row's figures beside Linux's: throughput and instructions as shares of Linux's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) throughput: f64,
    pub(crate) instructions: f64,
    pub(crate) load: Load,
}

impl Judged {
    pub(crate) fn is_limited_by_host(self) -> bool {
        self.load.guest_idle >= IDLE_LEAST || self.load.host_busy >= BUSY_LEAST
    }

    pub(crate) fn arm(self) -> Arm {
        if self.throughput >= THROUGHPUT_LEAST {
            Arm::Throughput
        } else if self.is_limited_by_host() && self.instructions <= INSTRUCTIONS_MOST {
            Arm::Instructions
        } else {
            Arm::Neither
        }
    }

    /// How many times better than Linux, by what decides: instructions where the host is the limit.
    pub(crate) fn factor(self) -> f64 {
        if self.is_limited_by_host() { self.throughput.max(1.0 / self.instructions) } else { self.throughput }
    }

    pub(crate) fn sentence(self, name: &str) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let limit = if self.is_limited_by_host() { "the host is the limit" } else { "the guest is the limit" };
        let verdict = match self.arm() {
            Arm::Throughput => "passes by throughput",
            Arm::Instructions => "passes by instructions",
            Arm::Neither => "below Linux",
        };
        format!(
            "{name}: {verdict}; throughput {:.2} and instructions {:.2} of Linux's; {limit} (guest idle {}, host busy \
             {})",
            self.throughput,
            self.instructions,
            percent(self.load.guest_idle),
            percent(self.load.host_busy),
        )
    }
}

/// The geometric means over rows: of throughput, of instructions, and of what decides.
pub(crate) fn means(rows: &[Judged]) -> Option<String> {
    let mean = |of: fn(&Judged) -> f64| {
        let logarithms: f64 = rows.iter().map(|row| of(row).ln()).sum();
        (logarithms / rows.len() as f64).exp()
    };
    let passed = rows.iter().filter(|row| row.arm() != Arm::Neither).count();
    (!rows.is_empty()).then(|| {
        format!(
            "{passed} of {} rows pass; geometric means: throughput {:.2} and instructions {:.2} of Linux's, {:.2} \
             times Linux by what decides",
            rows.len(),
            mean(|row| row.throughput),
            mean(|row| row.instructions),
            mean(|row| row.factor()),
        )
    })
}

/// What guest and host have used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    at: Instant,
    guest: Duration,
    /// Ticks of all processors together: busy ones, and all.
    host: (u64, u64),
}

impl Used {
    /// Of the machine that this process is or has started; `None` where the host does not say.
    pub(crate) fn now(process: u32) -> Option<Self> {
        let guest = processor_time(process)?;
        let host = host_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { at: Instant::now(), guest, host })
    }

    pub(crate) fn since(self, before: Self) -> Load {
        let wall = self.at.duration_since(before.at).as_secs_f64();
        let guest = self.guest.saturating_sub(before.guest).as_secs_f64();
        let ticks = |pair: (u64, u64), earlier: (u64, u64)| (pair.0 - earlier.0, pair.1 - earlier.1);
        let (busy, all) = ticks(self.host, before.host);
        Load { guest_idle: (1.0 - guest / wall).clamp(0.0, 1.0), host_busy: busy as f64 / all.max(1) as f64 }
    }
}

/// Time that the thread of the machine's processor was not idle, of a process or of one that it has started: the
/// busiest one beside a process's first.
fn processor_time(process: u32) -> Option<Duration> {
    let numbers = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_of_family = |one: &u32| *one == process || parent(*one) == Some(process);
    // This tool's threads do nothing while a machine runs; QEMU's first one is its main loop.
    numbers
        .filter(is_of_family)
        .filter_map(|one: u32| {
            let threads = fs::read_dir(format!("/proc/{one}/task")).ok()?.flatten();
            let others = threads.filter(|thread| thread.file_name().to_str() != Some(one.to_string().as_str()));
            others.filter_map(|thread| thread_time(&thread.path())).max()
        })
        .max()
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn thread_time(folder: &Path) -> Option<Duration> {
    time_of(&fs::read_to_string(folder.join("schedstat")).ok()?)
}

/// Time that a thread ran and that it waited for one of the host's processors: then its guest is not idle either.
fn time_of(schedstat: &str) -> Option<Duration> {
    let mut words = schedstat.split_whitespace().map_while(|word| word.parse().ok());
    Some(Duration::from_nanos(words.next()?) + Duration::from_nanos(words.next()?))
}

fn host_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let all: u64 = ticks.iter().take(8).sum();
    Some((all - ticks.get(3)? - ticks.get(4)?, all))
}

#[cfg(test)]
mod tests {
    use super::{Arm, Judged, Load, host_ticks, means, parent, time_of};

    fn row(throughput: f64, instructions: f64, guest_idle: f64, host_busy: f64) -> Judged {
        Judged { throughput, instructions, load: Load { guest_idle, host_busy } }
    }

    #[test]
    fn either_arm_lets_a_row_pass() {
        assert_eq!(row(1.0, 2.0, 0.0, 0.0).arm(), Arm::Throughput);
        assert_eq!(row(0.9, 0.5, 0.2, 0.0).arm(), Arm::Instructions);
        assert_eq!(row(0.9, 0.5, 0.0, 0.95).arm(), Arm::Instructions);
        assert_eq!(row(0.9, 0.5, 0.1, 0.9).arm(), Arm::Neither, "the guest is the limit");
        assert_eq!(row(0.9, 0.6, 0.5, 1.0).arm(), Arm::Neither);
    }

    #[test]
    fn means_are_of_what_decides() {
        let text = means(&[row(2.0, 0.5, 0.0, 0.5), row(0.9, 0.125, 0.5, 0.5)]).unwrap();
        assert!(text.starts_with("2 of 2 rows pass") && text.ends_with("4.00 times Linux by what decides"), "{text}");
        assert_eq!(means(&[]), None);
    }

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }

    #[test]
    fn ticks_of_the_host() {
        assert_eq!(host_ticks("cpu  10 1 2 80 3 4 0 0 9 9\ncpu0 1"), Some((17, 100)));
        assert_eq!(host_ticks("intr 1"), None);
    }

    #[test]
    fn waiting_for_a_processor_is_no_idleness() {
        assert_eq!(time_of("955476 2739518 1\n").map(|time| time.as_nanos()), Some(3_694_994));
        assert_eq!(time_of(""), None);
    }
}
