//! Suite `micro`: the rows of `bench/micro` on each system; and what suite `scale` has in common with it.
//!
//! Under `--icount` each system runs twice, and every row has to repeat to the digit. In wall
//! time the systems run in turn, so that what else happens on the host falls on all of them.
//!
//! A row that ends its machine does not take the others with it: a new machine goes on after it. The run
//! then counts as not to be trusted.
//!
//! Rows run in groups, each in machines of its own: those of the C program and the native ones, on one processor and,
//! in wall time, on two (`NAME@same`: both sides on one of them; `NAME@diff`: on one each).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::failure::{Failure, last_line};
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits};
use super::native::{self, NativeRow};
use super::options::BenchOptions;
use super::output::Output;
use super::progress;
use super::result::{Cell, Column, Measured, Mode, Row, Table, ratio};
use super::system::{Machines, Shape, System, shown};

/// No row is silent for so long, also on a slow host.
const LIMITS: Limits = Limits { silence: Duration::from_secs(120), total: Duration::from_secs(1200) };
/// How the program is told to speak (`bench/micro/main.c`).
const QUIETLY: &str = "quietly";
const ALOUD: &str = "aloud";
/// Most rows of a system that may end their machine; more, and the system is broken.
const LOST_ROW_COUNT_MAX: usize = 6;
/// In the names of rows that need two processors.
pub(super) const TWO_PROCESSORS: char = '@';
/// The row that is always measured, because it has to be equal.
const CONTROL: &str = "ctl_loop_1000iter";
/// Rows that have to be equal begin with this.
const CONTROL_PREFIX: &str = "ctl_";
/// How far they may be apart: in instructions, and in time on a shared host.
const CONTROL_WITHIN_ICOUNT: f64 = 0.02;
const CONTROL_WITHIN_WALL: f64 = 0.15;

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let mut names = row_names(&machines.micro)?;
    if machines.has_aegis() {
        names.extend(bare_rows());
    }
    run_program(options, machines, filter, program(machines, "micro"), names)
}

/// As [`run`], of the rows of the kernel contract alone.
pub(super) fn run_native(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let names = if machines.has_aegis() { bare_rows().collect() } else { Vec::new() };
    run_program(options, machines, filter, program(machines, "native"), names)
}

fn bare_rows() -> impl Iterator<Item = String> {
    native::ROWS.iter().filter(|row| row.is_bare).map(|row| row.name.to_string())
}

fn program<'a>(machines: &'a Machines, suite: &'static str) -> Program<'a> {
    Program { suite, file: &machines.micro, batch_count: 3, limits: LIMITS }
}

/// A program of rows.
#[derive(Clone, Copy)]
pub(super) struct Program<'a> {
    /// The suite's name.
    pub(super) suite: &'static str,
    /// The executable.
    pub(super) file: &'a Path,
    /// Batches of a row, of which the median counts.
    pub(super) batch_count: u8,
    /// How long one of its machines may take.
    pub(super) limits: Limits,
}

/// Measures those of a program's rows that were asked for; `None` if there are none.
pub(super) fn run_program(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
    program: Program<'_>,
    names: Vec<String>,
) -> Result<Option<Measured>, Failure> {
    let mode = options.mode();
    let Some(groups) = groups(names, filter, mode) else { return Ok(None) };
    let initramfs = machines.rows_initramfs(program.file)?;
    let has_native = groups.iter().any(|group| group.is_native);
    let native = has_native.then(|| native::Program::find(&machines.qemu, &machines.cache)).transpose()?;
    let suite = Micro { machines, program, initramfs, native, mode, groups };
    let systems = machines.systems();
    let pairs = if mode == Mode::Icount { 1 } else { options.pairs };
    let mut doubts = Vec::new();
    let mut columns = vec![vec![Cell::NotAsked; suite.names().count()]; systems.len()];
    for pair in 1..=pairs {
        for (system, cells) in systems.iter().zip(&mut columns) {
            suite.progress(*system, &format!("run {pair} of {pairs}"));
            for group in suite.groups_on(*system) {
                let (measured, lost) = suite.measure(*system, group)?;
                doubts.extend(lost);
                for (cell, value) in cells[group.first..].iter_mut().zip(measured) {
                    cell.merge(value);
                }
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
    Ok(Some(Measured { tables: vec![table], doubts, ..Measured::default() }))
}

/// What is measured: the rows that the filter finds, what stands beside native ones, and the control row. `None` if it
/// finds nothing.
fn groups(mut names: Vec<String>, filter: &RowFilter, mode: Mode) -> Option<Vec<Group>> {
    names.retain(|name| filter.finds(name) && (mode == Mode::Wall || !name.contains(TWO_PROCESSORS)));
    if names.is_empty() {
        return None;
    }
    let beside: Vec<&str> = names.iter().filter_map(|name| native::find(name)).map(|row| row.beside).collect();
    for name in beside.into_iter().chain([CONTROL]) {
        if !names.iter().any(|it| it == name) {
            names.push(name.into());
        }
    }
    let group = |is_native, cpu_count| {
        let is_in = |name: &&String| {
            native::find(name).is_some_and(|row| row.is_bare) == is_native
                && name.contains(TWO_PROCESSORS) == (cpu_count == 2)
        };
        Group { is_native, cpu_count, first: 0, names: names.iter().filter(is_in).cloned().collect() }
    };
    let mut groups = vec![group(false, 1), group(true, 1), group(false, 2), group(true, 2)];
    groups.retain(|group| !group.names.is_empty());
    let mut first = 0;
    for group in &mut groups {
        group.first = first;
        first += group.names.len();
    }
    Some(groups)
}

/// All rows of the program.
pub(super) fn row_names(program: &Path) -> Result<Vec<String>, Failure> {
    let output = Command::new(program)
        .args(["--list", "."])
        .output()
        .map_err(|error| Failure::File("starting", program.into(), error))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect())
}

/// Rows that run in one machine.
struct Group {
    /// They are rows of `bench/native`.
    is_native: bool,
    /// Processors of the machine.
    cpu_count: u8,
    /// Place of its first row in the table.
    first: usize,
    names: Vec<String>,
}

struct Micro<'a> {
    machines: &'a Machines,
    program: Program<'a>,
    initramfs: PathBuf,
    /// If there are native rows.
    native: Option<native::Program<'a>>,
    mode: Mode,
    groups: Vec<Group>,
}

/// A machine, and the file that it was started from.
struct Started {
    guest: Guest,
    _bundle: Option<native::BundleFile>,
}

impl Micro<'_> {
    /// All rows, group by group.
    fn names(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().flat_map(|group| &group.names)
    }

    /// What runs on a system.
    fn groups_on(&self, system: System) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| !group.is_native || system == System::Aegis)
    }

    /// A machine that runs these rows.
    fn start(&self, system: System, group: &Group, names: &[String], manner: &str) -> Result<Started, Failure> {
        let words = self.words(&names.join(","), manner);
        let bundle = match &self.native {
            Some(native) if group.is_native => Some(native.bundle(&words)?),
            _ => None,
        };
        Ok(Started { guest: Guest::start(&self.line(system, group, &words), self.program.limits)?, _bundle: bundle })
    }

    /// What the program is told. A batch takes 4 ms of instructions, or 20 ms of time.
    fn words(&self, names: &str, manner: &str) -> [String; 4] {
        let target_us = if self.mode == Mode::Icount { 4_000 } else { 20_000 };
        [names.to_string(), target_us.to_string(), self.program.batch_count.to_string(), manner.to_string()]
    }

    fn line(&self, system: System, group: &Group, words: &[String; 4]) -> super::guest::Line {
        let shape = Shape { icount_shift: self.mode.icount_shift(), cpu_count: group.cpu_count };
        match &self.native {
            Some(native) if group.is_native => native.line(shape),
            _ => self.machines.rows_line(system, self.program.file, words, &self.initramfs, shape),
        }
    }

    /// All rows of a group on one system, in as many machines as it takes, and which rows ended one.
    fn measure(&self, system: System, group: &Group) -> Result<(Vec<Cell>, Vec<String>), Failure> {
        let mut cells = Vec::new();
        let mut lost = Vec::new();
        let mut manner = QUIETLY;
        while cells.len() < group.names.len() {
            let names = &group.names[cells.len()..];
            let mut machine = self.start(system, group, names, manner)?;
            let (output, end) = read(&mut machine.guest);
            let why = format!("{end}; {}", last_line(&machine.guest.finish()));
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
        let mut is_whole = true;
        let mut changed: Vec<&str> = Vec::new();
        for group in self.groups_on(system) {
            let mut machine = self.start(system, group, &group.names, QUIETLY)?;
            let (output, _) = read(&mut machine.guest);
            is_whole &= output.is_whole;
            let again = output.rows.iter().map(|(_, cell)| cell);
            let pairs = group.names.iter().zip(cells[group.first..].iter().zip(again));
            let differ = pairs.filter(|(_, (before, after))| before != after);
            changed.extend(differ.map(|(name, _)| name.as_str()));
        }
        let is_same = is_whole && changed.is_empty();
        let title = system.title();
        Ok((!is_same).then(|| format!("{title} does not repeat under --icount: {}", changed.join(", "))))
    }

    /// The row at a place of the table. Beside a native row stands what the other systems have for the same purpose.
    fn row(&self, name: &str, index: usize, systems: &[System], columns: &[Vec<Cell>]) -> Row {
        let native = native::find(name);
        let beside = native.and_then(|native| self.names().position(|it| it == native.beside));
        let cell = |(system, cells): (&System, &Vec<Cell>)| match (native, beside) {
            (Some(native), Some(beside)) if *system != System::Aegis => cells[beside].divided(native.parts),
            _ => cells[index].clone(),
        };
        Row {
            name: name.into(),
            cells: systems.iter().zip(columns).map(cell).collect(),
            beside: native.map(NativeRow::shown),
        }
    }

    /// The command lines of a system's machines, those of the native rows behind a `;`.
    fn command(&self, system: System) -> String {
        let words = self.words("ROWS", QUIETLY);
        let lines = self.groups_on(system).map(|group| shown(&self.line(system, group, &words)));
        lines.collect::<Vec<_>>().join(" ; ")
    }

    fn table(&self, systems: &[System], columns: &[Vec<Cell>]) -> Table {
        let rows = self.names().enumerate().map(|(index, name)| self.row(name, index, systems, columns));
        let column = |system: &System| Column {
            key: system.key().into(),
            title: system.title().into(),
            command: self.command(*system),
        };
        let both = systems.starts_with(&[System::Aegis, System::LinuxTuned]);
        Table {
            suite: self.program.suite.into(),
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
        progress::say(&format!("{} on {}, {what}", self.program.suite, system.title()));
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
    use super::{Cell, Column, Mode, Row, RowFilter, Table, groups, unequal_controls};

    fn table(control: [f64; 2]) -> Table {
        let column = |key: &str| Column { key: key.into(), title: key.into(), command: String::new() };
        let row = |name: &str, values: [f64; 2]| Row {
            name: name.into(),
            cells: values.map(|value| Cell::Values(vec![value])).to_vec(),
            beside: None,
        };
        Table {
            suite: "micro".into(),
            unit: "instructions".into(),
            columns: vec![column("a"), column("b")],
            compared: None,
            rows: vec![row("ctl_loop", control), row("null", [1.0, 9.0])],
        }
    }

    fn names_of(regex: &str, mode: Mode) -> Vec<Vec<String>> {
        let all = ["null_getppid_raw", "ctl_loop_1000iter", "read", "pipe@diff", "native_null_call"];
        let found = groups(all.map(String::from).to_vec(), &RowFilter::new(regex).unwrap(), mode);
        found.unwrap_or_default().into_iter().map(|group| group.names).collect()
    }

    #[test]
    fn the_control_is_always_measured() {
        assert_eq!(names_of("^null", Mode::Icount), [["null_getppid_raw", "ctl_loop_1000iter"]]);
        assert_eq!(names_of("r", Mode::Icount)[0], ["null_getppid_raw", "ctl_loop_1000iter", "read"]);
        assert!(names_of("fork", Mode::Wall).is_empty());
    }

    #[test]
    fn what_stands_beside_is_measured_too() {
        let expected = [vec!["null_getppid_raw", "ctl_loop_1000iter"], vec!["native_null_call"]];
        assert_eq!(names_of("^native", Mode::Icount), expected);
    }

    #[test]
    fn rows_of_two_processors_have_machines_of_their_own_and_no_counts() {
        assert_eq!(names_of("pipe", Mode::Wall), [["ctl_loop_1000iter"], ["pipe@diff"]]);
        assert!(names_of("pipe", Mode::Icount).is_empty());
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
