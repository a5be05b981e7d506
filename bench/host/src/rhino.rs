//! Suite `rhino`: recoverable memory, as the Rhino paper measured it, with what hears of touches in each placement.
//!
//! - The paper's eight rows: the whole, what of it is trap, and the rest; in time and in instructions of the guest (the
//!   plugin of `trace` counts them in machines of their own).
//! - The RVM benchmark over the size of the database (`rvm_DETECTOR_PERCENT` of the frames): time, or instructions with
//!   `--icount`, and pages that were read again; and transactions that store to every page (`whole_…`).
//! - Programs that say their results in the same form ([`WORKLOADS`]), if they were built.
//!
//! The programs are those of `rhino/examples`, built by `cargo xtask bench-programs`; what they say is in `line`.
//! `places` has the placements and their machines, `judge` what must come out, which is said whether or not it did.

mod grid;
mod judge;
mod line;
mod places;

use std::collections::BTreeSet;

use super::failure::Failure;
use super::filter::RowFilter;
use super::options::BenchOptions;
use super::progress;
use super::result::{Column, Figure, Measured, Series};
use super::system::{Machines, shown};
use super::trace::plugin::Plugin;
use super::trace::starter::read_file;
use grid::Grid;
use places::{Bench, KERNEL, LIBRARY, LINUX, Medium, Outcome, PLACEMENTS, Placement, Program};

/// The program of rows and sweeps.
const ROWS: &str = "rows";
const HOW: &str = "cargo xtask bench-programs builds it";
/// Rows of the paper's table, and whether parts of them are trap.
const MICRO: [(&str, bool); 9] = [
    ("null", false),
    ("begin", true),
    ("commit_read_only", true),
    ("commit_8_bytes", true),
    ("commit_8_bytes_lazy", true),
    ("read_fault_warm", true),
    ("write_fault_warm", true),
    ("read_fault_cold", true),
    ("write_fault_cold", true),
];
const DETECTORS: [(&str, &str); 4] =
    [("setrange", "set range"), ("page", "page-grain"), ("diff", "page-diff"), ("dirty", "dirty bits")];
const PERCENTS: [u32; 9] = [10, 25, 40, 50, 60, 75, 100, 125, 150];
const SWEEPS: [&str; 2] = ["rvm", "whole"];
/// Runs in instructions, at most.
const COUNTED_MAX: u8 = 3;
/// Transactions of a point, usually and with `--quick`.
const TRANSACTION_COUNTS: [u32; 2] = [4000, 400];
/// What is run besides: its name here, the program, its words, those with `--quick`, and what it works on.
const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "oo7_small",
        program: "oo7",
        words: &["small", "PATH"],
        quick_words: Some(&["small", "PATH"]),
        medium: Medium::Disk,
    },
    Workload {
        name: "oo7_medium-3",
        program: "oo7",
        words: &["medium-3", "PATH"],
        quick_words: None,
        medium: Medium::Disk,
    },
    Workload {
        name: "oo7_medium-9",
        program: "oo7",
        words: &["medium-9", "PATH"],
        quick_words: None,
        medium: Medium::Disk,
    },
    Workload {
        name: "tpca",
        program: "tpca",
        words: &["PATH"],
        quick_words: Some(&["PATH", "400"]),
        medium: Medium::Disk,
    },
    Workload {
        name: "peers",
        program: "peers",
        words: &["PATH"],
        quick_words: Some(&["PATH", "400"]),
        medium: Medium::Folder,
    },
];

/// A program that is run as it is, once on each placement.
#[derive(Debug)]
struct Workload {
    name: &'static str,
    program: &'static str,
    words: &'static [&'static str],
    /// `None`: it takes long however it is called.
    quick_words: Option<&'static [&'static str]>,
    medium: Medium,
}

/// Tables, in their order in the report.
const TIME: usize = 0;
const COUNT: usize = 1;
const SWEEP_TIME: usize = 2;
const SWEEP_COUNT: usize = 3;
const FETCHES: usize = 4;
const WORKLOAD: usize = 5;
const UNITS: [&str; 6] = [
    "ns",
    "instructions",
    "ns, over the size of the database",
    "instructions, over the size of the database",
    "pages read an operation",
    "ns an operation",
];

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &mut Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let rows = Program::find(ROWS).ok_or(Failure::Missing("rhino-rows", HOW))?;
    let wants_micro = MICRO.iter().any(|(name, _)| filter.finds(name));
    let sweeps: Vec<Sweep> = SWEEPS.iter().filter_map(|name| Sweep::wanted(name, filter)).collect();
    let workloads: Vec<&Workload> = WORKLOADS.iter().filter(|workload| filter.finds(workload.name)).collect();
    if !wants_micro && sweeps.is_empty() && workloads.is_empty() {
        return Ok(None);
    }
    let plugin = Plugin::prepare(machines, &read_file(&rows.path)?, 0)?;
    let bench = Bench::prepare(machines)?;
    let mut suite = Suite { options, bench, rows, plugin, grids: Grids::new(), notes: Vec::new() };
    if wants_micro {
        suite.micro()?;
        suite.grids.retain_micro(filter);
    }
    for sweep in &sweeps {
        suite.sweep(sweep)?;
    }
    for workload in workloads {
        suite.workload(workload)?;
    }
    suite.report().map(Some)
}

/// The points of a sweep that are wanted.
struct Sweep {
    name: &'static str,
    detectors: BTreeSet<&'static str>,
    percents: BTreeSet<u32>,
}

impl Sweep {
    fn wanted(name: &'static str, filter: &RowFilter) -> Option<Self> {
        let mut sweep = Self { name, detectors: BTreeSet::new(), percents: BTreeSet::new() };
        for (detector, _) in DETECTORS {
            for percent in PERCENTS.into_iter().filter(|percent| filter.finds(&format!("{name}_{detector}_{percent}")))
            {
                sweep.detectors.insert(detector);
                sweep.percents.insert(percent);
            }
        }
        (!sweep.percents.is_empty()).then_some(sweep)
    }
}

/// All tables.
struct Grids([Grid; UNITS.len()]);

impl Grids {
    fn new() -> Self {
        Self(UNITS.map(|unit| Grid::new(unit, PLACEMENTS.len())))
    }

    fn retain_micro(&mut self, filter: &RowFilter) {
        self.0[TIME].retain(|name| filter.finds(name));
        self.0[COUNT].retain(|name| filter.finds(name));
    }

    /// A row of the paper's table: the whole, the trap in it, and the rest.
    fn put_parts(&mut self, table: usize, column: usize, name: &str, parts: &Parts) {
        let grid = &mut self.0[table];
        grid.put(name, column, parts.total.clone());
        let Some(trap) = &parts.trap else { return };
        grid.put(&format!("{name}_trap"), column, trap.clone());
        let rest = parts.total.clone().and_then(|total| Ok(total - trap.clone()?));
        grid.put(&format!("{name}_rest"), column, rest);
    }
}

/// What a row came to.
struct Parts {
    total: Result<f64, String>,
    trap: Option<Result<f64, String>>,
}

/// The parts of each row in what the program said, by `value` of a result. In the kernel a warm fault is over without
/// the program's handler, which is what the program measures the way to.
fn parts_of(
    placement: &Placement,
    outcomes: &[Outcome],
    why: Option<&str>,
    value: impl Fn(&Outcome) -> Result<f64, String>,
) -> Vec<(&'static str, Parts)> {
    let find = |row: &str, param: &str| outcomes.iter().find(|it| it.line.row == row && it.line.param == param);
    let missing = || Err(why.unwrap_or("it said nothing of it").to_owned());
    let null = find("null", "total").map_or_else(missing, &value);
    MICRO
        .iter()
        .map(|(name, has_trap)| {
            let whole = find(name, "total");
            let total = whole.map_or_else(missing, &value);
            // A call's trap is the crossings that it makes.
            let calls = whole.and_then(|whole| whole.line.number("calls"));
            let is_out_of_sight = placement.key == KERNEL && name.ends_with("_fault_warm");
            let trap = match calls {
                _ if is_out_of_sight => Err("the page is opened in the kernel, and no handler entered".to_owned()),
                Some(calls) => null.clone().map(|null| null * calls),
                None => find(name, "trap").map_or_else(missing, &value),
            };
            (*name, Parts { total, trap: has_trap.then_some(trap) })
        })
        .collect()
}

struct Suite<'a> {
    options: &'a BenchOptions,
    bench: Bench<'a>,
    rows: Program,
    plugin: Plugin,
    grids: Grids,
    notes: Vec<String>,
}

impl Suite<'_> {
    /// The placements that take part, and their columns.
    fn placements(&self) -> Vec<(usize, &'static Placement)> {
        PLACEMENTS.iter().enumerate().filter(|(_, placement)| self.bench.has(placement)).collect()
    }

    /// Runs the program of rows on the disk.
    fn rows(
        &mut self,
        placement: &Placement,
        words: &[String],
        is_counted: bool,
    ) -> Result<(Vec<Outcome>, Option<String>), Failure> {
        let counted = is_counted.then(|| "--counted".to_owned());
        let words: Vec<String> = counted.into_iter().chain(words.iter().cloned()).collect();
        let plugin = is_counted.then_some(&self.plugin);
        let (outcomes, why) = self.bench.run(placement, &self.rows, Medium::Disk, &words, plugin)?;
        if let Some(why) = &why {
            self.notes.push(format!("{}, rows {}: {why}", placement.title, words.join(" ")));
        }
        Ok((outcomes, why))
    }

    /// The paper's table: in time as often as asked for, then once in instructions.
    fn micro(&mut self) -> Result<(), Failure> {
        let words = ["micro", "PATH"].map(String::from);
        let pairs = if self.options.icount { 0 } else { self.options.pairs };
        for pair in 1..=pairs {
            for (column, placement) in self.placements() {
                progress::say(&format!("rhino: rows, {}, run {pair} of {pairs}", placement.title));
                let (outcomes, why) = self.rows(placement, &words, false)?;
                for (name, parts) in parts_of(placement, &outcomes, why.as_deref(), |it| it.line.time_ns()) {
                    self.grids.put_parts(TIME, column, name, &parts);
                }
            }
        }
        // While a disk is waited for, instructions are executed as well: the middle of some runs.
        for _ in 0..self.options.pairs.min(COUNTED_MAX) {
            for (column, placement) in self.placements() {
                progress::say(&format!("rhino: rows, {}, counting instructions", placement.title));
                let (outcomes, why) = self.rows(placement, &words, true)?;
                for (name, parts) in parts_of(placement, &outcomes, why.as_deref(), instructions_of) {
                    self.grids.put_parts(COUNT, column, name, &parts);
                }
            }
        }
        Ok(())
    }

    /// All points of a sweep, once on each placement.
    fn sweep(&mut self, sweep: &Sweep) -> Result<(), Failure> {
        let list = |words: Vec<String>| words.join(",");
        let percents = list(sweep.percents.iter().map(u32::to_string).collect());
        let is_counted = self.options.icount;
        for (column, placement) in self.placements() {
            // There are no dirty bits to be had but from exos, and they need no handler.
            let is_there = |detector: &str| detector != "dirty" || placement.key == LIBRARY;
            let detectors = list(sweep.detectors.iter().copied().filter(|it| is_there(it)).map(String::from).collect());
            if detectors.is_empty() {
                continue;
            }
            progress::say(&format!("rhino: {}, {}", sweep.name, placement.title));
            let mut words = vec![sweep.name.to_owned(), "PATH".into()];
            if sweep.name == "rvm" {
                words.push(TRANSACTION_COUNTS[usize::from(self.options.quick)].to_string());
            }
            words.extend([detectors, percents.clone()]);
            let (outcomes, _) = self.rows(placement, &words, is_counted)?;
            for outcome in outcomes {
                let name = outcome.line.name();
                let (table, value) = if is_counted {
                    (SWEEP_COUNT, instructions_of(&outcome))
                } else {
                    (SWEEP_TIME, outcome.line.time_ns())
                };
                self.grids.0[table].put(&name, column, value);
                let fetches =
                    outcome.line.missing().map_or_else(|| outcome.line.share("fetches").ok_or_else(String::new), Err);
                self.grids.0[FETCHES].put(&name, column, fetches);
            }
        }
        Ok(())
    }

    /// A program of its own, once on each placement.
    fn workload(&mut self, workload: &Workload) -> Result<(), Failure> {
        let name = workload.name;
        let Some(program) = Program::find(workload.program) else {
            self.notes.push(format!("{name} was not measured: rhino-{} is not built ({HOW})", workload.program));
            return Ok(());
        };
        let words = if self.options.quick { workload.quick_words } else { Some(workload.words) };
        let Some(words) = words else {
            self.notes.push(format!("{name} is not measured with --quick"));
            return Ok(());
        };
        let words: Vec<String> = words.iter().map(|word| String::from(*word)).collect();
        for (column, placement) in self.placements() {
            progress::say(&format!("rhino: {name}, {}", placement.title));
            let (outcomes, why) = self.bench.run(placement, &program, workload.medium, &words, None)?;
            for outcome in outcomes {
                self.grids.0[WORKLOAD].put(&outcome.line.name(), column, outcome.line.time_ns());
            }
            if let Some(why) = why {
                self.notes.push(format!("{}, {name}: {why}", placement.title));
            }
        }
        Ok(())
    }

    fn report(mut self) -> Result<Measured, Failure> {
        let place = self.bench.folder.path().display().to_string();
        self.notes.push(format!("the disk is a file in {place}: a flush costs what it costs there"));
        let mut figures = Vec::new();
        for name in SWEEPS {
            for (table, what) in [(SWEEP_TIME, "time"), (SWEEP_COUNT, "instructions"), (FETCHES, "fetches")] {
                figures.extend(figure(&self.grids.0[table], name, what));
            }
        }
        let micro = &self.grids.0;
        let goals = judge::goals(&micro[TIME], &micro[COUNT], &micro[SWEEP_TIME], &micro[SWEEP_COUNT], &micro[FETCHES]);
        let goals = goals.into_iter().chain(judge::workloads(&micro[WORKLOAD]));
        self.notes.extend(judge::sentences(&goals.collect::<Vec<_>>()));
        let words = ["micro", "PATH"].map(String::from);
        let mut columns = Vec::new();
        for placement in &PLACEMENTS {
            let line = self.bench.line(placement, &self.rows, Medium::Disk, &words)?;
            columns.push(Column { key: placement.key.into(), title: placement.title.into(), command: shown(&line) });
        }
        let column = |key: &str| PLACEMENTS.iter().position(|placement| placement.key == key);
        let is_compared = self.bench.machines.has_aegis() && self.bench.machines.linux.is_some();
        let compared = column(LIBRARY).zip(column(LINUX)).filter(|_| is_compared);
        let tables = self.grids.0.into_iter().filter_map(|grid| grid.table(columns.clone(), compared)).collect();
        Ok(Measured { tables, figures, notes: self.notes, doubts: Vec::new() })
    }
}

/// Instructions of an operation.
fn instructions_of(outcome: &Outcome) -> Result<f64, String> {
    if let Some(why) = outcome.line.missing() {
        return Err(why);
    }
    let sum = outcome.instructions.clone().unwrap_or_else(|| Err("nothing was counted".into()))?;
    Ok(sum / outcome.line.operations as f64)
}

/// The paper's curves: each detector in the best placement that was measured, and page-diff by the others.
fn figure(grid: &Grid, name: &str, what: &str) -> Option<Figure> {
    let mut series = Vec::new();
    for (column, placement) in PLACEMENTS.iter().enumerate() {
        for (detector, title) in DETECTORS {
            if placement.key != LIBRARY && detector != "diff" {
                continue;
            }
            let point = |percent: u32| {
                let value = grid.median(&format!("{name}_{detector}_{percent}"), column)?;
                Some((f64::from(percent), if what == "time" { value / 1000.0 } else { value }))
            };
            let points: Vec<(f64, f64)> = PERCENTS.into_iter().filter_map(point).collect();
            if !points.is_empty() {
                series.push(Series { title: format!("{title}, {}", placement.title), is_line: true, points });
            }
        }
    }
    let (subject, operation) = match name {
        "rvm" => ("The RVM benchmark", "a transaction"),
        _ => ("Transactions that store to every page", "a page"),
    };
    let axis = match what {
        "time" => format!("us {operation}"),
        "instructions" => format!("instructions {operation}"),
        _ => format!("pages read {operation}"),
    };
    (!series.is_empty()).then(|| Figure {
        name: format!("rhino_{name}_{what}"),
        title: format!("{subject}: {axis}, over the size of the database"),
        axes: ["% of the frames".into(), axis],
        is_doubling: false,
        series,
    })
}

#[cfg(test)]
mod tests {
    use super::line::Line;
    use super::{DETECTORS, Grids, KERNEL, LIBRARY, Outcome, PERCENTS, PLACEMENTS, Sweep, TIME, figure, parts_of};
    use crate::filter::RowFilter;

    fn outcome(row: &str, param: &str, seconds: f64, extra: &str) -> Outcome {
        let text = format!(
            "{{\"row\":\"{row}\",\"series\":\"diff\",\"param\":\"{param}\",\"operations\":10,\"seconds\":{seconds},\
             \"extra\":{{{extra}}}}}"
        );
        Outcome { line: Line::parse(&text).unwrap(), instructions: None }
    }

    #[test]
    fn a_row_is_trap_and_rest() {
        let outcomes = [
            outcome("null", "total", 1e-6, ""),
            outcome("commit_8_bytes", "total", 1e-5, "\"calls\":3"),
            outcome("read_fault_warm", "total", 3e-6, ""),
            outcome("read_fault_warm", "trap", 1e-6, ""),
        ];
        let mut grids = Grids::new();
        for (column, placement) in PLACEMENTS.iter().enumerate() {
            for (name, parts) in parts_of(placement, &outcomes, Some("it ended"), |it| it.line.time_ns()) {
                grids.put_parts(TIME, column, name, &parts);
            }
        }
        let column_of = |key: &str| PLACEMENTS.iter().position(|placement| placement.key == key).unwrap();
        let read_trap = |key: &str| grids.0[TIME].median("read_fault_warm_trap", column_of(key));
        assert_eq!((read_trap(KERNEL), read_trap(LIBRARY).map(f64::round)), (None, Some(100.0)));
        let value = |name: &str| grids.0[TIME].median(name, column_of(LIBRARY)).map(f64::round);
        assert_eq!((value("null"), value("null_trap")), (Some(100.0), None));
        assert_eq!((value("commit_8_bytes_trap"), value("commit_8_bytes_rest")), (Some(300.0), Some(700.0)));
        assert_eq!((value("read_fault_warm_trap"), value("read_fault_warm_rest")), (Some(100.0), Some(200.0)));
        assert_eq!(value("write_fault_warm"), None);
    }

    #[test]
    fn points_that_are_asked_for() {
        let wanted = |text: &str| Sweep::wanted("rvm", &RowFilter::new(text).unwrap());
        let all = wanted(".").unwrap();
        assert_eq!((all.detectors.len(), all.percents.len()), (DETECTORS.len(), PERCENTS.len()));
        let some = wanted("^rvm_diff_(50|75)$").unwrap();
        assert_eq!((some.detectors.len(), some.percents.len()), (1, 2));
        assert!(wanted("^null$").is_none());
    }

    #[test]
    fn five_curves_and_one_for_each_other_placement() {
        let mut grids = Grids::new();
        for (detector, _) in DETECTORS {
            for percent in PERCENTS {
                (0..3).for_each(|column| grids.0[TIME].put(&format!("rvm_{detector}_{percent}"), column, Ok(2000.0)));
            }
        }
        let found = figure(&grids.0[TIME], "rvm", "time").unwrap();
        assert_eq!(found.series.len(), 6);
        assert_eq!(found.series[0].points[0], (10.0, 2.0));
        assert!(figure(&grids.0[TIME], "whole", "time").is_none());
    }
}
