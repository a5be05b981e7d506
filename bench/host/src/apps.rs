//! Suite `apps`: real programs of Debian from start to end, on each system from the same files.
//!
//! `rows` says which programs, `root` makes what they run in. Every run has a machine of its own, so that each program
//! finds a fresh system, and the systems run in turn, row by row, so that what else happens on the host falls on all of
//! them.
//!
//! The time is the guest's own: from just before `execve`, which the launcher (bench/apps/launch.c) says before it
//! becomes the program, to the program's end, which on Linux the first process sees in `wait` and on Aegis exos reports
//! with its statistics, by the same clock. Starting the machine is not in it. In wall time the host's clock has to
//! agree (`clocks_agree`). What the programs print has to be the same on all systems.

mod root;
mod rows;

use std::time::{Duration, Instant};

use serde_json::Value;

use super::failure::{Failure, last_line};
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::options::BenchOptions;
use super::progress;
use super::result::{Cell, Column, Measured, Mode, Row, Table};
use super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line, shown};
use super::tree_images::RootFiles;
use root::{LAUNCHER, Workshop};
use rows::{AppRow, ROOTS, ROWS};

/// Until the launcher speaks.
const LIMITS_START: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(120) };
/// Of one run. A program says nothing until its end, so silence is no sign.
const LIMITS_WALL: Limits = Limits { silence: Duration::from_secs(300), total: Duration::from_secs(300) };
/// Counting instructions takes about twice as long.
const LIMITS_ICOUNT: Limits = Limits { silence: Duration::from_secs(900), total: Duration::from_secs(900) };
/// How far two counts of the same row may be apart: the machine's devices have times of their own.
const REPEATS_WITHIN: f64 = 0.01;
/// By how much the guest's time may be below the host's: a share, and what ending a machine takes on a busy host.
const CLOCK_SHARE: f64 = 0.2;
const CLOCK_SLACK: Duration = Duration::from_secs(2);
/// A name in capitals for the command lines of reports.
const ANY_ROW: &str = "ROW";

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let asked: Vec<&AppRow> = ROWS.iter().filter(|row| filter.finds(row.name)).collect();
    if asked.is_empty() {
        return Ok(None);
    }
    progress::say("apps: making the roots");
    let workshop = Workshop::open(machines)?;
    let mut suite = Apps { machines, mode: options.mode(), doubts: Vec::new() };
    let systems = machines.systems();
    // All roots before the first machine, so that nothing is missing in the middle of the run.
    let mut roots = Vec::new();
    for root in ROOTS.iter().filter(|root| asked.iter().any(|row| row.root == root.name)) {
        roots.push((root.name, workshop.root(root)?));
    }
    let mut table_rows = Vec::new();
    for (index, row) in asked.iter().enumerate() {
        let found = roots.iter().find(|(name, _)| *name == row.root).map(|(_, files)| files);
        let cells = match found {
            Some(Ok(files)) => {
                let cells = suite.measure(row, files, &systems, options.pairs)?;
                if index == 0 && suite.mode == Mode::Icount {
                    suite.check_repeats(row, files, &systems, &cells)?;
                }
                cells
            }
            Some(Err(why)) => vec![Cell::NotAvailable(why.clone()); systems.len()],
            None => vec![Cell::NotAsked; systems.len()],
        };
        table_rows.push(Row { name: row.name.into(), cells, beside: None });
    }
    let table = suite.table(&systems, table_rows);
    Ok(Some(Measured { tables: vec![table], doubts: suite.doubts, ..Measured::default() }))
}

struct Apps<'a> {
    machines: &'a Machines,
    mode: Mode,
    doubts: Vec<String>,
}

/// What a run came to.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// It ended well: milliseconds, or millions of instructions, and what it printed.
    Ended(f64, Vec<String>),
    /// It cannot do it, for this reason.
    Failed(String),
    /// It took its machine with it, or the time limit ended both.
    Lost(String),
}

impl Apps<'_> {
    /// A row on all systems, as often as asked for; once if instructions are counted, and once on Linux as it comes,
    /// which is not compared and would make the run longer by half.
    fn measure(
        &mut self,
        row: &AppRow,
        files: &RootFiles,
        systems: &[System],
        pairs: u8,
    ) -> Result<Vec<Cell>, Failure> {
        let pairs = if self.mode == Mode::Icount { 1 } else { pairs };
        let mut cells = vec![Cell::NotAsked; systems.len()];
        let mut said: Option<(System, Vec<String>)> = None;
        for pair in 1..=pairs {
            for (system, cell) in systems.iter().zip(&mut cells) {
                let is_enough = *system == System::LinuxDefault && pair > 1;
                if is_enough || matches!(cell, Cell::NotAvailable(_)) {
                    continue;
                }
                progress::say(&format!("apps: {} on {}, run {pair} of {pairs}", row.name, system.title()));
                match self.run_once(row, files, *system)? {
                    Outcome::Ended(value, output) => {
                        cell.merge(Cell::Values(vec![value]));
                        let (first, expected) = said.get_or_insert_with(|| (*system, output.clone()));
                        if *expected != output {
                            self.doubts.push(format!(
                                "{} printed something else on {} than on {}",
                                row.name,
                                system.title(),
                                first.title()
                            ));
                        }
                    }
                    Outcome::Failed(why) => cell.merge(Cell::NotAvailable(why)),
                    Outcome::Lost(why) => {
                        self.doubts.push(format!("{} ended the {} machine ({why})", row.name, system.title()));
                        cell.merge(Cell::NotAvailable(why));
                    }
                }
            }
        }
        Ok(cells)
    }

    /// Runs a row once more on each system and compares.
    fn check_repeats(
        &mut self,
        row: &AppRow,
        files: &RootFiles,
        systems: &[System],
        cells: &[Cell],
    ) -> Result<(), Failure> {
        for (system, cell) in systems.iter().zip(cells) {
            let Some(before) = cell.median() else { continue };
            progress::say(&format!("apps: {} on {}, once more", row.name, system.title()));
            let is_same = match self.run_once(row, files, *system)? {
                Outcome::Ended(after, _) => (after / before - 1.0).abs() <= REPEATS_WITHIN,
                Outcome::Failed(_) | Outcome::Lost(_) => false,
            };
            if !is_same {
                self.doubts.push(format!("{} does not repeat on {} under --icount", row.name, system.title()));
            }
        }
        Ok(())
    }

    fn run_once(&mut self, row: &AppRow, files: &RootFiles, system: System) -> Result<Outcome, Failure> {
        let limits = if self.mode == Mode::Icount { LIMITS_ICOUNT } else { LIMITS_WALL };
        let mut guest = Guest::start(&self.line(row.name, files, system), LIMITS_START)?;
        let mut heard = Transcript::default();
        let mut limit = None;
        while heard.end.is_none() {
            match guest.next() {
                Event::Line(line, _) => {
                    heard.push(&line);
                    if heard.begin.is_some() {
                        guest.set_limits(limits);
                    }
                }
                Event::End => break,
                Event::Limit(why) => {
                    limit = Some(why);
                    break;
                }
            }
        }
        let outcome = match (system, limit) {
            (_, Some(why)) => {
                let errors = guest.finish();
                let limits = if heard.begin.is_some() { limits } else { LIMITS_START };
                heard.lost(&format!("{why} after {} s", limits.total.as_secs()), &errors)
            }
            (System::Aegis, None) => {
                let ending = guest.finish_by_itself();
                heard.ended_on_aegis(ending.status, &ending.errors)
            }
            (_, None) => heard.ended_on_linux(&guest.finish()),
        };
        let outcome = outcome.map_err(|why| Failure::NotUp(system.title(), why))?;
        if let (Outcome::Ended(guest_ms, _), Mode::Wall) = (&outcome, self.mode) {
            let host = heard.since_begin();
            if !clocks_agree(Duration::from_secs_f64(guest_ms / 1e3), host) {
                self.doubts.push(format!(
                    "{} took {guest_ms:.0} ms by the clock of {} and {} ms by the host's",
                    row.name,
                    system.title(),
                    host.as_millis()
                ));
            }
        }
        Ok(outcome)
    }

    fn line(&self, name: &str, files: &RootFiles, system: System) -> Line {
        let shape = Shape { icount_shift: self.mode.icount_shift(), cpu_count: 1 };
        match (system, &self.machines.linux) {
            (System::Aegis, _) | (_, None) => {
                let image = files.image.to_string_lossy();
                let mut options = vec!["-M", "pc", "-q", "--stats=json", "--root", &*image];
                if shape.icount_shift.is_some() {
                    options.push("--icount");
                }
                aegis_line(&self.machines.tool, MEMORY_MIB, &options, vec![LAUNCHER.into(), name.into()])
            }
            (_, Some(kernel)) => LinuxLine {
                qemu: &self.machines.qemu,
                kernel: &kernel.image,
                initramfs: &files.initramfs,
                memory_mib: MEMORY_MIB + files.size_mib,
                append: format!("{} rdinit={LAUNCHER} -- --init {name}", system.kernel_words()),
                firmware: None,
                shape,
            }
            .build(),
        }
    }

    fn table(&self, systems: &[System], rows: Vec<Row>) -> Table {
        let any = RootFiles { image: "ROOT.erofs".into(), initramfs: "ROOT.cpio".into(), size_mib: 0 };
        let column = |system: &System| Column {
            key: system.key().into(),
            title: system.title().into(),
            command: shown(&self.line(ANY_ROW, &any, *system)),
        };
        let both = systems.starts_with(&[System::Aegis, System::LinuxTuned]);
        Table {
            suite: "apps".into(),
            unit: match self.mode {
                Mode::Icount => "million instructions",
                Mode::Wall => "ms",
            }
            .into(),
            columns: systems.iter().map(column).collect(),
            compared: both.then_some((0, 1)),
            rows,
        }
    }
}

/// The guest's clock may be ahead of the host's view of it, never far behind: then it would flatter.
fn clocks_agree(guest: Duration, host: Duration) -> bool {
    guest + CLOCK_SLACK >= host.mul_f64(1.0 - CLOCK_SHARE)
}

/// What has been read of one machine.
#[derive(Debug, Default)]
struct Transcript {
    /// The launcher's clock, and when its line came.
    begin: Option<(u64, Instant)>,
    /// Linux: the clock at the end, and the status of wait.
    end: Option<(u64, i32)>,
    /// What the program printed.
    output: Vec<String>,
}

impl Transcript {
    fn push(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), self.begin) {
            (["begin", _, ns], None) => self.begin = ns.parse().ok().map(|ns| (ns, Instant::now())),
            (["end", _, ns, status], Some(_)) if ns.parse::<u64>().is_ok() => {
                self.end = ns.parse().ok().zip(status.parse().ok());
            }
            (_, Some(_)) => self.output.push(line.to_string()),
            _ => {}
        }
    }

    fn since_begin(&self) -> Duration {
        self.begin.map_or(Duration::ZERO, |(_, at)| at.elapsed())
    }

    /// The program's own words, in an order that does not depend on a directory's.
    fn sorted_output(&self) -> Vec<String> {
        let mut lines = self.output.clone();
        lines.sort_unstable();
        lines
    }

    /// A machine that went away; `Err` if it never came up.
    fn lost(&self, why: &str, errors: &str) -> Result<Outcome, String> {
        let said = if errors.trim().is_empty() { self.output.last().map_or("", |line| line) } else { errors };
        let text = if said.is_empty() { why.to_string() } else { format!("{why}; {}", last_line(said)) };
        if self.begin.is_some() { Ok(Outcome::Lost(text)) } else { Err(text) }
    }

    fn ended_on_linux(&self, errors: &str) -> Result<Outcome, String> {
        let (Some((begin_ns, _)), Some((end_ns, status))) = (self.begin, self.end) else {
            return self.lost("it ended", errors);
        };
        if status == 0 {
            return Ok(Outcome::Ended(millions(end_ns.saturating_sub(begin_ns)), self.sorted_output()));
        }
        let why = complaint(self.output.iter().map(String::as_str));
        Ok(Outcome::Failed(why.unwrap_or_else(|| format!("it ended with wait status {status}"))))
    }

    fn ended_on_aegis(&self, status: Option<i32>, errors: &str) -> Result<Outcome, String> {
        // The statistics are a line of their own among what the program and the tool said.
        let (figures, said): (Vec<&str>, Vec<&str>) = errors.lines().partition(|line| line.starts_with("{\"status\":"));
        let said = said.join("\n");
        let end_ns = figures.first().and_then(|line| run_ns(line));
        let Some((begin_ns, _)) = self.begin else {
            return Err(last_line(&said));
        };
        match (status, end_ns) {
            (Some(0), Some(end_ns)) => {
                Ok(Outcome::Ended(millions(end_ns.saturating_sub(begin_ns)), self.sorted_output()))
            }
            (Some(125) | None, _) => self.lost("it ended", &said),
            (Some(0), None) => Ok(Outcome::Lost("it did not say when it ended".into())),
            (Some(status), _) => {
                let why = complaint(said.lines()).unwrap_or_else(|| format!("it ended with status {status}"));
                Ok(Outcome::Failed(why))
            }
        }
    }
}

/// What a program or the tool said of its failure: the last line that names something, else the last one.
fn complaint<'a>(lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let naming = lines.iter().rev().find(|line| line.contains(": "));
    let line = naming.or(lines.last())?;
    Some(line.strip_prefix("aegis: ").unwrap_or(line).chars().take(200).collect())
}

fn millions(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// The clock at the program's end, in a line of `--stats=json`.
fn run_ns(line: &str) -> Option<u64> {
    serde_json::from_str::<Value>(line).ok()?["guest"]["run_ns"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Transcript, clocks_agree};
    use std::time::Duration;

    fn heard(text: &str) -> Transcript {
        let mut heard = Transcript::default();
        text.lines().for_each(|line| heard.push(line));
        heard
    }

    fn ended(value: f64, output: &[&str]) -> Result<Outcome, String> {
        Ok(Outcome::Ended(value, output.iter().map(ToString::to_string).collect()))
    }

    const STATS: &str = "{\"status\":0,\"host\":{},\"guest\":{\"boot_ns\":1,\"run_ns\":5000000}}\n";

    #[test]
    fn the_time_is_from_the_launcher_to_the_end() {
        let linux = heard("[    1.0] noise\nbegin row 2000000\nb\na\nend row 9500000 0\n");
        assert_eq!(linux.ended_on_linux(""), ended(7.5, &["a", "b"]));
        let aegis = heard("begin row 2000000\nb\na\n");
        assert_eq!(aegis.ended_on_aegis(Some(0), STATS), ended(3.0, &["a", "b"]));
    }

    #[test]
    fn what_cannot_run_says_why() {
        let failed = |why: &str| Ok(Outcome::Failed(why.into()));
        let linux = heard("begin row 1\nsh: Cannot fork\nend row 2 512\n");
        assert_eq!(linux.ended_on_linux(""), failed("sh: Cannot fork"));
        assert_eq!(heard("begin row 1\nend row 2 256").ended_on_linux(""), failed("it ended with wait status 256"));
        let aegis = heard("begin row 1\n");
        let errors = format!("/bench/forks.sh: 4: Cannot fork\n{STATS}");
        assert_eq!(aegis.ended_on_aegis(Some(2), &errors), failed("/bench/forks.sh: 4: Cannot fork"));
        assert_eq!(aegis.ended_on_aegis(Some(139), "aegis: killed by SIGSEGV\n"), failed("killed by SIGSEGV"));
        assert_eq!(aegis.ended_on_aegis(Some(3), STATS), failed("it ended with status 3"));
        let errors = "gcc: fatal error: vfork: no\ncompilation terminated.\n";
        assert_eq!(aegis.ended_on_aegis(Some(1), errors), failed("gcc: fatal error: vfork: no"));
    }

    #[test]
    fn a_machine_that_goes_away_is_lost_or_never_came_up() {
        let lost = |why: &str| Ok(Outcome::Lost(why.into()));
        let begun = heard("begin row 1\n");
        assert_eq!(
            begun.ended_on_aegis(Some(125), "aegis: the kernel stopped\n"),
            lost("it ended; aegis: the kernel stopped")
        );
        assert_eq!(begun.ended_on_linux(""), lost("it ended"));
        assert_eq!(begun.lost("the time limit was reached", ""), lost("the time limit was reached"));
        assert_eq!(begun.ended_on_aegis(Some(0), ""), lost("it did not say when it ended"));
        let silent = heard("Kernel panic\n");
        assert_eq!(silent.ended_on_linux("qemu: no memory"), Err("it ended; qemu: no memory".into()));
        assert_eq!(silent.ended_on_aegis(Some(125), "aegis: no root\n"), Err("aegis: no root".into()));
    }

    #[test]
    fn a_clock_that_flatters_is_found() {
        let ms = Duration::from_millis;
        assert!(clocks_agree(ms(100), ms(180)) && clocks_agree(ms(10_000), ms(10_300)));
        assert!(clocks_agree(ms(10_000), ms(9_000)));
        assert!(!clocks_agree(ms(1_000), ms(10_000)));
    }
}
