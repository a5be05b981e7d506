//! What must come out, and whether it did. A goal that was missed is said as plainly as one that was held.

use super::grid::Grid;
use super::places::{KERNEL, LIBRARY, LINUX, PLACEMENTS, SIGNALS};

/// A warm fault by a signal takes at least so many times as long (the paper's table).
const WRITE_FAULT_MIN: f64 = 3.4;
const READ_FAULT_MIN: f64 = 5.0;
/// Most that the library takes, beside the kernel.
const LIBRARY_MAX: f64 = 2.5;
/// Most that a commit of 8 bytes takes, beside Linux.
const COMMIT_MAX: f64 = 0.5;
/// What is read at 75 % beside 40 % of the frames shows a knee between them above this, none below.
const KNEE: f64 = 1.5;
/// Least transactions per second beside SQLite.
const SQLITE_MIN: f64 = 1.8;

/// A goal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Goal {
    /// What is compared.
    what: String,
    /// In words.
    needed: String,
    /// What came out, and whether that is it; `None`: it was not measured.
    found: Option<(f64, bool)>,
}

impl Goal {
    fn at_least(what: String, least: f64, found: Option<f64>) -> Self {
        Self { what, needed: format!("at least {least}"), found: found.map(|found| (found, found >= least)) }
    }

    fn at_most(what: String, most: f64, found: Option<f64>) -> Self {
        Self { what, needed: format!("at most {most}"), found: found.map(|found| (found, found <= most)) }
    }

    fn sentence(&self) -> String {
        match self.found {
            Some((found, is_held)) => {
                let word = if is_held { "held" } else { "NOT HELD" };
                format!("{word}: {} is {found:.2} ({})", self.what, self.needed)
            }
            None => format!("not measured: {} ({})", self.what, self.needed),
        }
    }
}

fn column(key: &str) -> Option<usize> {
    PLACEMENTS.iter().position(|placement| placement.key == key)
}

/// A row in one placement beside another.
fn ratio(grid: &Grid, row: &str, of: &str, to: &str) -> Option<f64> {
    let value = |key: &str| grid.median(row, column(key)?);
    Some(value(of)? / value(to)?).filter(|ratio| ratio.is_finite())
}

/// The goals of rows and sweeps.
pub(super) fn goals(time: &Grid, count: &Grid, sweep_time: &Grid, sweep_count: &Grid, fetches: &Grid) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (row, least) in [("write_fault_warm", WRITE_FAULT_MIN), ("read_fault_warm", READ_FAULT_MIN)] {
        for (key, title) in [(LINUX, "Linux's signals"), (SIGNALS, "Aegis's signals")] {
            for (grid, unit) in [(count, "instructions"), (time, "time")] {
                for (placement, name) in [(KERNEL, "kernel"), (LIBRARY, "library")] {
                    let what = format!("{row}, {title} : {name}, in {unit}");
                    goals.push(Goal::at_least(what, least, ratio(grid, row, key, placement)));
                }
            }
        }
    }
    let commit = ratio(count, "commit_8_bytes", LIBRARY, LINUX);
    goals.push(Goal::at_most("commit_8_bytes, library : Linux, in instructions".into(), COMMIT_MAX, commit));
    for row in ["begin", "commit_read_only", "commit_8_bytes", "read_fault_warm", "write_fault_warm"] {
        let found = ratio(count, row, LIBRARY, KERNEL);
        goals.push(Goal::at_most(format!("{row}, library : kernel, in instructions"), LIBRARY_MAX, found));
    }
    for sweep in ["rvm", "whole"] {
        goals.extend(knee(sweep_count, sweep, "instructions"));
        goals.extend(knee(sweep_time, sweep, "time"));
        goals.extend(knee_of_fetches(fetches, sweep));
    }
    goals
}

/// A detector's figure at 75 % beside that at 40 % of the frames.
fn growth(grid: &Grid, sweep: &str, detector: &str) -> Option<f64> {
    let value = |percent: u32| grid.median(&format!("{sweep}_{detector}_{percent}"), column(LIBRARY)?);
    Some(value(75)? / value(40)?).filter(|ratio| ratio.is_finite())
}

/// Page-diff has a knee at half of the frames, page-grain has none.
fn knee(grid: &Grid, sweep: &str, unit: &str) -> Vec<Goal> {
    let (diff, page) = (growth(grid, sweep, "diff"), growth(grid, sweep, "page"));
    if diff.is_none() && page.is_none() {
        return Vec::new();
    }
    let what = |detector: &str| format!("{sweep}, {detector}: 75 % : 40 % of the frames, in {unit}");
    vec![Goal::at_least(what("page-diff"), KNEE, diff), Goal::at_most(what("page-grain"), KNEE, page)]
}

/// The same where pages are read again, which no busy host changes: none, or some.
fn knee_of_fetches(grid: &Grid, sweep: &str) -> Vec<Goal> {
    let more = |detector: &str| {
        let value = |percent: u32| grid.median(&format!("{sweep}_{detector}_{percent}"), column(LIBRARY)?);
        Some(value(75)? - value(40)?)
    };
    let (diff, page) = (more("diff"), more("page"));
    if diff.is_none() && page.is_none() || sweep == "rvm" {
        return Vec::new();
    }
    let what = |detector: &str| format!("{sweep}, {detector}: pages read an operation, 75 % less 40 % of the frames");
    vec![Goal::at_least(what("page-diff"), 0.1, diff), Goal::at_most(what("page-grain"), 0.1, page)]
}

/// The goals of other programs: OO7 by detector, and transactions a second beside other systems of storage on Linux.
pub(super) fn workloads(grid: &Grid) -> Vec<Goal> {
    let value = |name: &str, key: &str| grid.median(name, column(key)?);
    let mut goals = Vec::new();
    for (size, best, other) in [("small", "diff", "page"), ("medium-9", "page", "diff")] {
        for traversal in ["T2A", "T2B", "T2C"] {
            let of = |detector: &str| value(&format!("oo7_rhino-{detector}_{size}_{traversal}_hot"), LIBRARY);
            let found = of(best).zip(of(other)).map(|(best, other)| best / other);
            goals.push(Goal::at_most(format!("oo7 {size} {traversal} hot, time, {best} : {other}"), 1.0, found));
        }
    }
    // The tables of both are of 4 MiB.
    for pattern in ["sequential", "random", "localized"] {
        for (peer, least) in [("sqlite-wal", SQLITE_MIN), ("lmdb", 1.0), ("redb", 1.0)] {
            let own = value(&format!("tpca_rhino-diff_{pattern}_100"), LIBRARY);
            let other = value(&format!("peers_{peer}_{pattern}_4096"), LINUX);
            let what = format!("tpca {pattern}, transactions a second, library on the disk : {peer} on Linux's ext4");
            goals.push(Goal::at_least(what, least, own.zip(other).map(|(own, other)| other / own)));
        }
    }
    goals
}

/// A line for each, and one for all.
pub(super) fn sentences(goals: &[Goal]) -> Vec<String> {
    let count = |wanted: Option<bool>| goals.iter().filter(|goal| goal.found.map(|found| found.1) == wanted).count();
    let mut sentences: Vec<String> = goals.iter().map(Goal::sentence).collect();
    let (held, missed, unknown) = (count(Some(true)), count(Some(false)), count(None));
    sentences.push(format!("what must hold: {held} held, {missed} NOT HELD, {unknown} not measured"));
    sentences
}

#[cfg(test)]
mod tests {
    use super::{Goal, KERNEL, LIBRARY, LINUX, PLACEMENTS, SIGNALS, column, goals, sentences};
    use crate::rhino::grid::Grid;

    fn grid(rows: &[(&str, &str, f64)]) -> Grid {
        let mut grid = Grid::new("instructions", PLACEMENTS.len());
        rows.iter().for_each(|(name, key, value)| grid.put(name, column(key).expect("a placement"), Ok(*value)));
        grid
    }

    #[test]
    fn what_was_missed_is_said() {
        let goals = [
            Goal::at_least("a".into(), 2.0, Some(1.5)),
            Goal::at_most("b".into(), 2.0, Some(1.5)),
            Goal::at_most("c".into(), 2.0, None),
        ];
        assert_eq!(
            sentences(&goals),
            [
                "NOT HELD: a is 1.50 (at least 2)",
                "held: b is 1.50 (at most 2)",
                "not measured: c (at most 2)",
                "what must hold: 1 held, 1 NOT HELD, 1 not measured",
            ]
        );
    }

    #[test]
    fn ratios_are_of_placements() {
        let empty = grid(&[]);
        let count = grid(&[
            ("write_fault_warm", KERNEL, 2000.0),
            ("write_fault_warm", LIBRARY, 3000.0),
            ("write_fault_warm", SIGNALS, 6000.0),
            ("write_fault_warm", LINUX, 15000.0),
            ("commit_8_bytes", LIBRARY, 8000.0),
            ("commit_8_bytes", LINUX, 20000.0),
        ]);
        let sweep =
            grid(&[("rvm_diff_40", LIBRARY, 10.0), ("rvm_diff_75", LIBRARY, 20.0), ("rvm_page_40", LIBRARY, 10.0)]);
        let found = sentences(&goals(&empty, &count, &empty, &sweep, &empty)).join("\n");
        for line in [
            "held: write_fault_warm, Linux's signals : library, in instructions is 5.00",
            "NOT HELD: write_fault_warm, Aegis's signals : library, in instructions is 2.00",
            "held: write_fault_warm, Linux's signals : kernel, in instructions is 7.50",
            "held: write_fault_warm, library : kernel, in instructions is 1.50",
            "held: commit_8_bytes, library : Linux, in instructions is 0.40",
            "held: rvm, page-diff: 75 % : 40 % of the frames, in instructions is 2.00",
            "not measured: rvm, page-grain: 75 % : 40 %",
        ] {
            assert!(found.contains(line), "{line}\n{found}");
        }
    }
}
