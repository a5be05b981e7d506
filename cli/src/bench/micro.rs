//! Suite `micro`: the rows of `bench/micro` on each system.
//!
//! Under `--icount` each system runs twice, and every row has to repeat to the digit. In wall
//! time the systems run in turn, so that what else happens on the host falls on all of them.
//!
//! A row that ends its machine does not take the others with it: a new machine goes on after it. The run
//! then counts as not to be trusted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Measured;
use super::failure::{Failure, last_line};
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits};
use super::options::BenchOptions;
use super::output::Output;
use super::progress;
use super::result::{Cell, Column, Mode, Row, Table, ratio};
use super::system::{Machines, System, shown};

/// No row is silent for so long, also on a slow host.
const LIMITS: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(1200) };
/// How the program is told to speak (`bench/micro/main.c`).
const QUIETLY: &str = "quietly";
const ALOUD: &str = "aloud";
/// Most rows of a system that may end their machine; more, and the system is broken.
const LOST_ROW_COUNT_MAX: usize = 6;
/// The row that is always measured, because it has to be equal.
const CONTROL: &str = "ctl_loop_1000iter";
/// Rows that have to be equal begin with this.
const CONTROL_PREFIX: &str = "ctl_";
/// How far they may be apart: in instructions, and in time on a shared host.
const CONTROL_WITHIN_ICOUNT: f64 = 0.02;
const CONTROL_WITHIN_WALL: f64 = 0.15;

/// Measures the rows that were asked for.
/// `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let Some(names) = names_to_measure(row_names(&machines.micro)?, filter) else {
        return Ok(None);
    };
    let mode = options.mode();
    let suite = Micro { machines, initramfs: machines.initramfs("micro.cpio", "init", &machines.micro)?, mode, names };
    let systems = machines.systems();
    let pairs = if mode == Mode::Icount { 1 } else { options.pairs };
    let mut doubts = Vec::new();
    let mut columns = vec![vec![Cell::NotAsked; suite.names.len()]; systems.len()];
    for pair in 1..=pairs {
        for (system, cells) in systems.iter().zip(&mut columns) {
            suite.progress(*system, &format!("run {pair} of {pairs}"));
            let (measured, lost) = suite.measure(*system)?;
            doubts.extend(lost);
            for (cell, value) in cells.iter_mut().zip(measured) {
                cell.merge(value);
            }
        }
    }
    if mode == Mode::Icount {
        for (system, cells) in systems.iter().zip(&columns) {
            suite.progress(*system, "once more");
            doubts.extend(suite.repeat(*system, cells)?);
        }
    }
    let table = suite.table(&systems, &columns);
    doubts.extend(unequal_controls(&table, mode));
    Ok(Some(Measured { tables: vec![table], doubts }))
}

/// The rows that the filter finds, and the control row; `None` if it finds nothing.
fn names_to_measure(mut names: Vec<String>, filter: &RowFilter) -> Option<Vec<String>> {
    names.retain(|name| filter.finds(name));
    if names.is_empty() {
        return None;
    }
    if !names.iter().any(|name| name == CONTROL) {
        names.push(CONTROL.into());
    }
    Some(names)
}

/// All rows of the program.
fn row_names(program: &Path) -> Result<Vec<String>, Failure> {
    let output = Command::new(program)
        .args(["--list", "."])
        .output()
        .map_err(|error| Failure::File("starting", program.into(), error))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect())
}

/// Whether the program has a row of this name.
pub(super) fn check_row_name(program: &Path, name: &str) -> Result<(), Failure> {
    if row_names(program)?.iter().any(|it| it == name) {
        return Ok(());
    }
    Err(Failure::Rows(format!("there is no row {name:?}")))
}

struct Micro<'a> {
    machines: &'a Machines,
    initramfs: PathBuf,
    mode: Mode,
    names: Vec<String>,
}

impl Micro<'_> {
    /// A machine that runs these rows. A batch takes 4 ms of instructions, or 20 ms of time.
    fn start(&self, system: System, names: &[String], manner: &str) -> Result<Guest, Failure> {
        Guest::start(&self.line(system, &names.join(","), manner), LIMITS)
    }

    fn line(&self, system: System, names: &str, manner: &str) -> super::guest::Line {
        let counts = self.mode == Mode::Icount;
        let target_us = if counts { 4_000 } else { 20_000 };
        let words = [names.to_string(), target_us.to_string(), "3".to_string(), manner.to_string()];
        self.machines.micro_line(system, &words, &self.initramfs, counts)
    }

    /// All rows on one system, in as many machines as it takes, and which rows ended one.
    fn measure(&self, system: System) -> Result<(Vec<Cell>, Vec<String>), Failure> {
        let mut cells = Vec::new();
        let mut lost = Vec::new();
        let mut manner = QUIETLY;
        while cells.len() < self.names.len() {
            let names = &self.names[cells.len()..];
            let mut guest = self.start(system, names, manner)?;
            let (output, end) = read(&mut guest);
            let why = format!("{end}; {}", last_line(&guest.finish()));
            if manner == QUIETLY && !output.is_whole && output.problem.is_none() {
                // Once more, to hear how far it gets.
                manner = ALOUD;
                continue;
            }
            if let Some(problem) = output.problem {
                return Err(Failure::Broken(system.title(), problem));
            }
            let in_order = output.rows.iter().zip(names).all(|((got, _), name)| got == name);
            if !in_order {
                return Err(Failure::Broken(system.title(), "rows came in another order".into()));
            }
            let has_rows = !output.rows.is_empty();
            cells.extend(output.rows.into_iter().map(|(_, cell)| cell));
            match output.running {
                _ if output.is_whole => {}
                Some(name) if lost.len() < LOST_ROW_COUNT_MAX => {
                    lost.push(format!("{name} ended the {} machine ({why})", system.title()));
                    cells.push(Cell::NotAvailable("its machine ended".into()));
                }
                None if !has_rows && cells.is_empty() => {
                    return Err(Failure::NotUp(system.title(), why));
                }
                _ => return Err(Failure::Broken(system.title(), why)),
            }
        }
        Ok((cells, lost))
    }

    /// Runs the same again and compares to the digit. Systems that lost rows have been doubted already.
    fn repeat(&self, system: System, cells: &[Cell]) -> Result<Option<String>, Failure> {
        let mut guest = self.start(system, &self.names, QUIETLY)?;
        let (output, _) = read(&mut guest);
        let again = output.rows.iter().map(|(_, cell)| cell);
        let changed = self.names.iter().zip(cells.iter().zip(again));
        let changed = changed.filter(|(_, (before, after))| before != after);
        let changed: Vec<&str> = changed.map(|(name, _)| name.as_str()).collect();
        let is_same = output.is_whole && changed.is_empty();
        let title = system.title();
        Ok((!is_same).then(|| format!("{title} does not repeat under --icount: {}", changed.join(", "))))
    }

    fn table(&self, systems: &[System], columns: &[Vec<Cell>]) -> Table {
        let rows = self.names.iter().enumerate().map(|(index, name)| Row {
            name: name.clone(),
            cells: columns.iter().map(|cells| cells[index].clone()).collect(),
        });
        let column = |system: &System| Column {
            key: system.key().into(),
            title: system.title().into(),
            command: shown(&self.line(*system, "ROWS", QUIETLY)),
        };
        let both = systems.starts_with(&[System::Aegis, System::LinuxTuned]);
        Table {
            suite: "micro".into(),
            unit: match self.mode {
                Mode::Icount => "instructions",
                Mode::Wall => "ns",
            }
            .into(),
            columns: systems.iter().map(column).collect(),
            compared: both.then_some((0, 1)),
            rows: rows.collect(),
        }
    }

    fn progress(&self, system: System, what: &str) {
        progress::say(&format!("micro on {}, {what}", system.title()));
    }
}

/// Reads until the output is whole, or there is no more; the words say why it ended.
fn read(guest: &mut Guest) -> (Output, &'static str) {
    let mut output = Output::default();
    loop {
        match guest.next() {
            Event::Line(line, _) => output.push(&line),
            Event::End => return (output, "it ended"),
            Event::Limit(why) => return (output, why),
        }
        if output.is_whole || output.problem.is_some() {
            return (output, "");
        }
    }
}

/// Controls that should be equal on every system and are not.
fn unequal_controls(table: &Table, mode: Mode) -> Vec<String> {
    let within = match mode {
        Mode::Icount => CONTROL_WITHIN_ICOUNT,
        Mode::Wall => CONTROL_WITHIN_WALL,
    };
    let mut doubts = Vec::new();
    for row in table.rows.iter().filter(|row| row.name.starts_with(CONTROL_PREFIX)) {
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            if cell.median().is_none() {
                doubts.push(format!("{} has no figure on {}", row.name, column.title));
                continue;
            }
            let Some(ratio) = ratio(cell, &row.cells[0]) else { continue };
            if (ratio - 1.0).abs() > within {
                doubts.push(format!(
                    "{} should be equal and is {:.1} % off on {}",
                    row.name,
                    (ratio - 1.0) * 100.0,
                    column.title
                ));
            }
        }
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, Mode, Row, RowFilter, Table, names_to_measure, unequal_controls};

    fn table(control: [f64; 2]) -> Table {
        let column = |key: &str| Column { key: key.into(), title: key.into(), command: String::new() };
        let row = |name: &str, values: [f64; 2]| Row {
            name: name.into(),
            cells: values.map(|value| Cell::Values(vec![value])).to_vec(),
        };
        Table {
            suite: "micro".into(),
            unit: "instructions".into(),
            columns: vec![column("a"), column("b")],
            compared: None,
            rows: vec![row("ctl_loop", control), row("null", [1.0, 9.0])],
        }
    }

    #[test]
    fn the_control_is_always_measured() {
        let names = |regex: &str| {
            let all = ["null", "ctl_loop_1000iter", "read"].map(String::from).to_vec();
            names_to_measure(all, &RowFilter::new(regex).unwrap())
        };
        assert_eq!(names("null").unwrap(), ["null", "ctl_loop_1000iter"]);
        assert_eq!(names("r").unwrap(), ["ctl_loop_1000iter", "read"]);
        assert!(names("fork").is_none());
    }

    #[test]
    fn controls_have_to_be_equal() {
        assert!(unequal_controls(&table([2000.0, 2039.0]), Mode::Icount).is_empty());
        let doubts = unequal_controls(&table([2000.0, 2100.0]), Mode::Icount);
        assert_eq!(doubts, ["ctl_loop should be equal and is 5.0 % off on b"]);
        assert!(unequal_controls(&table([2000.0, 2100.0]), Mode::Wall).is_empty());
    }

    #[test]
    fn a_control_without_a_figure_is_a_doubt() {
        let mut it = table([1.0, 1.0]);
        it.rows[0].cells[1] = Cell::NotAvailable("x".into());
        assert_eq!(unequal_controls(&it, Mode::Icount).len(), 1);
    }
}
