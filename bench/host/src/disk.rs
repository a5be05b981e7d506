//! Suite `disk`: what reading a disk past every cache costs (bench/disk/disk.c), on Aegis with the driver in each of
//! its placements and on Linux with its own: virtio, IDE by DMA, IDE by the processor.
//!
//! Four tables: the time of one operation, the part of it in which the machine's processor was not idle, the
//! instructions that the guest executes for it, and of a library OS that looks for a while before it sleeps those of
//! looks in vain, which are not in the third: they are as many as the host is late. The plugin of `trace` counts them
//! in machines of their own, whose clock is the count (`--icount`, which asks for these two tables alone). A figure
//! for each kind of disk has the throughput over the block's size, and one the processor's share: the paper's two.
//! `net::rule` judges the driver in the program's library beside Linux.
//!
//! Every machine reads the same file, whose pages the host has in memory: what is measured is the way there.

mod rows;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_launch::machine::artifacts::Artifacts;

use super::failure::Failure;
use super::filter::RowFilter;
use super::guest::{Event, Guest, Limits, Line};
use super::net::rule::{self, Judged, Load, Used};
use super::options::BenchOptions;
use super::result::{Cell, Column, Figure, Measured, Row, Series, Table, median};
use super::system::{LinuxLine, MEMORY_MIB, Machines, Shape, System, aegis_line, shown};
use super::trace::plugin::{Counts, Plugin};
use super::trace::starter::{Starter, read_file};
use super::{card, compile, progress};
use rows::{DiskRow, Kind, Model};

/// Until a row is done: the slowest is 64 MiB by the processor.
const LIMITS: Limits = Limits { silence: Duration::from_secs(180), total: Duration::from_secs(1800) };
/// Bytes of the disk: what the sequential rows read.
const DISK_BYTES: usize = 64 << 20;
/// The file that machines share.
const DISK_FILE: &str = "bench-disk.raw";
/// Another file, or the socket of a server such as `cargo xtask disk-model`.
const DISK_VARIABLE: &str = "AEGIS_BENCH_DISK";
/// How QEMU reads the file, the same as for `aegis run --disk`.
const NODE: &str = "discard=unmap,cache.direct=off,cache.no-flush=off";
/// An error of the host is one of the request, and stops no machine.
const ON_ERROR: &str = "werror=report,rerror=report";

/// Which driver serves the disk, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Of Aegis, with `--driver`'s word for it.
    Aegis(&'static str),
    Linux,
}

impl Place {
    const AEGIS: [Self; 3] = [Self::Aegis("library"), Self::Aegis("domain"), Self::Aegis("kernel")];

    const fn name(self) -> &'static str {
        match self {
            Self::Aegis(name) => name,
            Self::Linux => "linux",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Aegis("library") => "Aegis library",
            Self::Aegis("domain") => "Aegis domain",
            Self::Aegis(_) => "Aegis kernel",
            Self::Linux => "Linux",
        }
    }
}

/// What a row came to in a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    time_ns: f64,
    processor_ns: Option<f64>,
    load: Option<Load>,
}

/// Measures the rows that were asked for; `None` if there are none.
pub(super) fn run(
    options: &BenchOptions,
    machines: &mut Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let rows: Vec<DiskRow> = rows::all().into_iter().filter(|row| filter.finds(&row.name())).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let program = compile::disk(&machines.cache)?;
    let initramfs = program.with_extension("cpio");
    let cache = machines.cache.clone();
    if let Some(kernel) = &mut machines.linux {
        card::write_with_modules(&kernel.disk_modules(&cache)?, &program, &initramfs)?;
    }
    let medium = match std::env::var_os(DISK_VARIABLE) {
        Some(path) => path.into(),
        None => {
            let medium = cache.join(DISK_FILE);
            write_medium(&medium).map_err(|error| Failure::file("writing", medium.clone(), error))?;
            medium
        }
    };
    let plugin = Plugin::prepare(machines, &read_file(&program)?, 0)?;
    let mut places = Vec::new();
    if machines.has_aegis() {
        places.extend(Place::AEGIS);
    }
    if machines.linux.is_some() {
        places.push(Place::Linux);
    }
    let suite = Disk { machines, program, initramfs, medium, plugin };
    let mut results = Results::new(rows.len(), places.len());
    for model in Model::ALL {
        for (column, place) in places.iter().enumerate() {
            let mut take = |row, measure| results.take(row, column, measure);
            suite.measure(if options.icount { 0 } else { options.pairs }, *place, model, &rows, &mut take)?;
        }
    }
    Ok(Some(suite.report(&rows, &places, results, options.icount)))
}

/// Bytes that no host stores as a hole.
fn write_medium(path: &Path) -> std::io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|it| it.len() == DISK_BYTES as u64) {
        return Ok(());
    }
    let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = std::fs::File::create(&fresh)?;
    let block: Vec<u8> = (0..1u32 << 20).map(|place| (place * 31 + place / 253) as u8).collect();
    for _ in 0..DISK_BYTES / block.len() {
        file.write_all(&block)?;
    }
    std::fs::rename(&fresh, path)
}

/// One measurement of a row.
enum Measure {
    Time(Result<Timed, String>),
    Count(Result<Counted, String>),
}

/// Instructions of an operation, and besides those of looks in vain.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    instructions: f64,
    vain: f64,
}

/// What was measured: cells by row and place, and what the rule wants of the first place.
struct Results {
    times: Vec<Vec<Cell>>,
    processor: Vec<Vec<Cell>>,
    counts: Vec<Vec<Cell>>,
    vain: Vec<Vec<Cell>>,
    loads: Vec<Vec<Load>>,
}

impl Results {
    fn new(row_count: usize, place_count: usize) -> Self {
        let cells = vec![vec![Cell::NotAsked; place_count]; row_count];
        let loads = vec![Vec::new(); row_count];
        Self { times: cells.clone(), processor: cells.clone(), counts: cells.clone(), vain: cells, loads }
    }

    fn take(&mut self, row: usize, column: usize, measure: Measure) {
        match measure {
            Measure::Time(found) => {
                if let (Ok(Timed { load: Some(load), .. }), 0) = (&found, column) {
                    self.loads[row].push(*load);
                }
                if let Ok(Timed { processor_ns: Some(value), .. }) = &found {
                    self.processor[row][column].merge(Cell::Values(vec![*value]));
                }
                self.times[row][column].merge(cell(found.map(|timed| timed.time_ns)));
            }
            Measure::Count(found) => {
                if let Ok(Counted { vain, .. }) = found {
                    self.vain[row][column].merge(Cell::Values(vec![vain]));
                }
                self.counts[row][column].merge(cell(found.map(|counted| counted.instructions)));
            }
        }
    }
}

fn cell(value: Result<f64, String>) -> Cell {
    value.map_or_else(Cell::NotAvailable, |value| Cell::Values(vec![value]))
}

struct Disk<'a> {
    machines: &'a Machines,
    program: PathBuf,
    initramfs: PathBuf,
    medium: PathBuf,
    plugin: Plugin,
}

impl Disk<'_> {
    /// The rows of a kind of disk in a place: in time as often as asked for, then once in instructions.
    fn measure(
        &self,
        pairs: u8,
        place: Place,
        model: Model,
        rows: &[DiskRow],
        take: &mut impl FnMut(usize, Measure),
    ) -> Result<(), Failure> {
        let wanted: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].model == model).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let words: Vec<String> = wanted.iter().map(|at| rows[*at].operation.word()).collect();
        for pair in 1..=pairs {
            progress::say(&format!("disk: {} with {}, run {pair} of {pairs}", place.title(), model.name()));
            let line = self.line(place, model, None, &words.join(","));
            let found = timed(&line, words.len())?;
            let is_there = found.iter().any(Result::is_ok);
            wanted.iter().zip(found).for_each(|(at, found)| take(*at, Measure::Time(found)));
            if !is_there {
                // It would not be there the next time, either.
                return Ok(());
            }
        }
        progress::say(&format!("disk: {} with {}, counting instructions", place.title(), model.name()));
        let system = if place == Place::Linux { System::LinuxTuned } else { System::Aegis };
        let output = self.plugin.output_file(system);
        let mut line = self.line(place, model, Some(0), &words.join(","));
        let starter = if place == Place::Linux { Starter::Qemu } else { Starter::Tool };
        // A domain has code of its own where exos has its marks, and nobody looks there.
        let plugin = match place {
            Place::Aegis("domain") | Place::Linux => &self.plugin,
            Place::Aegis(_) => &self.plugin.with_looks(&read_file(&Artifacts::find().library_os())?)?,
        };
        plugin.add_to(&mut line, starter, &output);
        let found = counted(&line, words.len(), &output)?;
        wanted.iter().zip(found).for_each(|(at, found)| take(*at, Measure::Count(found)));
        let _ = std::fs::remove_file(&output);
        Ok(())
    }

    /// A machine; one whose clock is the count of its instructions counts.
    fn line(&self, place: Place, model: Model, icount_shift: Option<u8>, rows: &str) -> Line {
        let verb = if icount_shift.is_some() { "counted" } else { "timed" };
        // A comma in a path is written twice in QEMU's options.
        let medium = self.medium.display().to_string().replace(',', ",,");
        match (place, &self.machines.linux) {
            (Place::Aegis(placement), _) => {
                let driver = format!("disk={placement}:{}", model.driver());
                let mut options = vec!["-M", "pc", "-q", "--disk", &medium, "--driver", &driver];
                options.extend(icount_shift.map(|_| "--icount"));
                let words = [self.program.as_os_str().into(), model.name().into(), verb.into(), rows.into()];
                aegis_line(&self.machines.tool, MEMORY_MIB, &options, words.to_vec())
            }
            (Place::Linux, Some(kernel)) => {
                let words = System::LinuxTuned.kernel_words();
                let mut line = LinuxLine {
                    qemu: &self.machines.qemu,
                    kernel: &kernel.image,
                    initramfs: &self.initramfs,
                    memory_mib: MEMORY_MIB,
                    append: format!("{words} -- --init {} {verb} {rows}", model.name()),
                    firmware: None,
                    shape: Shape { icount_shift, cpu_count: 1 },
                }
                .build();
                // As for Aegis's.
                let is_told_at_once = icount_shift.is_some() && model == Model::Virtio;
                let is_socket = std::fs::metadata(&self.medium).is_ok_and(|it| it.file_type().is_socket());
                let file = match is_socket {
                    true => format!("driver=nbd,server.type=unix,server.path={medium}"),
                    false => format!("driver=file,filename={medium}"),
                };
                let words = [
                    "-blockdev".into(),
                    format!("{file},node-name=disk0-file,{NODE}"),
                    "-blockdev".into(),
                    format!("driver=raw,node-name=disk0,{NODE},file=disk0-file"),
                    "-device".into(),
                    format!("{},{ON_ERROR}{}", model.device(), if is_told_at_once { ",ioeventfd=off" } else { "" }),
                ];
                line.arguments.extend(words.map(OsString::from));
                line
            }
            (Place::Linux, None) => Line { program: self.machines.qemu.clone(), arguments: Vec::new() },
        }
    }

    fn report(&self, rows: &[DiskRow], places: &[Place], results: Results, is_counted_alone: bool) -> Measured {
        let mut notes = notes(rows, places, &results);
        if std::env::var_os(DISK_VARIABLE).is_some() {
            notes.push(format!("the disk is {}: if it is a model, so is what was measured", self.medium.display()));
        }
        let figures = figures(rows, places, &results);
        let linux = places.iter().position(|place| *place == Place::Linux);
        let table = |unit: &str, cells: Vec<Vec<Cell>>| Table {
            suite: "disk".into(),
            unit: unit.into(),
            columns: places
                .iter()
                .map(|place| Column {
                    key: place.name().into(),
                    title: place.title().into(),
                    command: shown(&self.line(*place, Model::Virtio, is_counted_alone.then_some(0), "ROWS")),
                })
                .collect(),
            compared: linux.filter(|_| self.machines.has_aegis()).map(|linux| (0, linux)),
            rows: rows.iter().zip(cells).map(|(row, cells)| Row { name: row.name(), cells, beside: None }).collect(),
        };
        let counts = [table("instructions", results.counts), table("instructions in vain", results.vain)];
        let mut tables = Vec::new();
        if !is_counted_alone {
            tables.extend([table("ns", results.times), table("ns of the processor", results.processor)]);
        }
        tables.extend(counts);
        Measured { tables, figures, notes, ..Measured::default() }
    }
}

/// How each row with the driver in the library is judged beside Linux, if both were measured.
fn notes(rows: &[DiskRow], places: &[Place], results: &Results) -> Vec<String> {
    let Some(linux) = places.iter().position(|place| *place == Place::Linux).filter(|at| *at > 0) else {
        return Vec::new();
    };
    let mut judged = Vec::new();
    let mut notes = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let share = |cells: &[Cell]| Some(cells[0].median()? / cells[linux].median()?);
        let middle = |of: fn(&Load) -> f64| median(&results.loads[at].iter().map(of).collect::<Vec<_>>());
        let (Some(time), Some(instructions)) = (share(&results.times[at]), share(&results.counts[at])) else {
            continue;
        };
        let Some(guest_idle) = middle(|load| load.guest_idle) else { continue };
        let Some(host_busy) = middle(|load| load.host_busy) else { continue };
        let one = Judged { throughput: 1.0 / time, instructions, load: Load { guest_idle, host_busy } };
        notes.push(one.sentence(&row.name()));
        judged.push(one);
    }
    notes.extend(rule::means(&judged));
    notes
}

/// Throughput and the processor's share over the size of a block, for each kind of disk.
fn figures(rows: &[DiskRow], places: &[Place], results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for model in Model::ALL {
        let sequential = |row: &DiskRow| match (row.model == model, row.operation.kind()) {
            (true, Kind::Sequential(bytes)) => Some(bytes as f64),
            _ => None,
        };
        let series = |value: &dyn Fn(usize, usize, f64) -> Option<f64>| {
            let of_place = |(column, place): (usize, &Place)| Series {
                title: place.title().into(),
                is_line: true,
                points: (0..rows.len())
                    .filter_map(|at| {
                        let bytes = sequential(&rows[at])?;
                        Some((bytes, value(at, column, bytes)?))
                    })
                    .collect(),
            };
            places.iter().enumerate().map(of_place).filter(|series| !series.points.is_empty()).collect::<Vec<_>>()
        };
        let throughput = series(&|at, column, bytes| Some(bytes * 1e3 / results.times[at][column].median()?));
        let share = series(&|at, column, _| {
            Some(100.0 * results.processor[at][column].median()? / results.times[at][column].median()?)
        });
        let all = [("throughput", "MB/s", throughput), ("processor", "% of the time", share)];
        for (what, unit, series) in all {
            if series.is_empty() {
                continue;
            }
            figures.push(Figure {
                name: format!("disk_{}_{what}", model.name()),
                title: format!("{}, 64 MiB one block after another: {what} over the size of a block", model.title()),
                axes: ["bytes of a block".into(), unit.into()],
                is_doubling: true,
                series,
            });
        }
    }
    figures
}

/// What a row's line says: operations and nanoseconds.
fn parse(line: &str, word: &str) -> Option<Result<(f64, f64), String>> {
    let mut words = line.splitn(4, ' ');
    match (words.next()?, words.next()? == word, words.next()?, words.next()) {
        ("row", true, count, Some(time)) => Some(Ok((count.parse().ok()?, time.parse().ok()?))),
        ("no", true, first, rest) => Some(Err([first, rest.unwrap_or_default()].join(" ").trim().into())),
        _ => None,
    }
}

/// Runs a machine; what its rows came to, in their order, by `take`, which is given the row's line and whether it has
/// begun only.
fn rows_of(
    line: &Line,
    row_count: usize,
    mut take: impl FnMut(&str, u32) -> Option<String>,
) -> Result<Vec<String>, Failure> {
    let mut guest = Guest::start(line, LIMITS)?;
    let process = guest.process_id();
    let mut said = Vec::new();
    let mut why = String::from("it ended early");
    while said.len() < row_count {
        match guest.next() {
            Event::Line(line, _) => {
                said.extend(take(&line, process));
                if line.starts_with("disk: ") {
                    why = line;
                }
            }
            Event::End => break,
            Event::Limit(limit) => {
                why = limit.into();
                break;
            }
        }
    }
    let errors = guest.finish();
    if let (true, Some(last)) = (said.len() < row_count, errors.lines().last().filter(|line| !line.is_empty())) {
        why = last.into();
    }
    said.resize(row_count, format!("no - {why}"));
    Ok(said)
}

fn timed(line: &Line, row_count: usize) -> Result<Vec<Result<Timed, String>>, Failure> {
    let mut before: Option<Used> = None;
    let mut loads = Vec::new();
    let said = rows_of(line, row_count, |line, process| {
        if line.starts_with("begin ") {
            before = Used::now(process);
            return None;
        }
        let is_row = line.starts_with("row ") || line.starts_with("no ");
        is_row.then(|| {
            loads.push(before.take().zip(Used::now(process)).map(|(before, after)| after.since(before)));
            line.into()
        })
    })?;
    loads.resize(row_count, None);
    Ok(said
        .iter()
        .zip(loads)
        .map(|(line, load)| of_line(line).map(|(count, time)| Timed::new(count, time, load)))
        .collect())
}

impl Timed {
    fn new(count: f64, time_ns: f64, load: Option<Load>) -> Self {
        let time_ns = time_ns / count;
        Self { time_ns, processor_ns: load.map(|load| (1.0 - load.guest_idle) * time_ns), load }
    }
}

/// A row's line, whichever row it is of.
fn of_line(line: &str) -> Result<(f64, f64), String> {
    let word = line.split(' ').nth(1).unwrap_or_default();
    parse(line, word).unwrap_or_else(|| Err(format!("it said {line:?}")))
}

fn counted(line: &Line, row_count: usize, output: &Path) -> Result<Vec<Result<Counted, String>>, Failure> {
    let mut taken = Vec::new();
    let said = rows_of(line, row_count, |line, _| {
        let is_row = line.starts_with("row ") || line.starts_with("no ");
        is_row.then(|| {
            // At once, before the next row's is there; to read it takes longer than that row may.
            let target = output.with_extension(format!("{}.tmp", taken.len()));
            taken.push(std::fs::rename(output, &target).map(|()| target));
            line.into()
        })
    })?;
    let mut sums: Vec<Result<Counted, String>> = taken.into_iter().map(|file| sum_of(file.as_deref())).collect();
    sums.resize(row_count, Err("nothing was counted".into()));
    let one = |(line, sum): (&String, Result<Counted, String>)| {
        let (count, _) = of_line(line)?;
        let Counted { instructions, vain } = sum?;
        Ok(Counted { instructions: instructions / count, vain: vain / count })
    };
    Ok(said.iter().zip(sums).map(one).collect())
}

/// The instructions of a row, whose file is taken away.
fn sum_of(file: Result<&Path, &std::io::Error>) -> Result<Counted, String> {
    let file = file.map_err(|error| format!("what the plugin counted: {error}"))?;
    let counts = Counts::read(file);
    let _ = std::fs::remove_file(file);
    let counts = counts.map_err(|failure| failure.to_string())?;
    let sum: u64 = counts.executions.iter().map(|(_, executions)| executions).sum();
    let instructions = (sum + counts.lost).saturating_sub(counts.vain) as f64;
    Ok(Counted { instructions, vain: counts.vain as f64 })
}

#[cfg(test)]
mod tests {
    use super::{Timed, of_line, parse};
    use crate::net::rule::Load;

    #[test]
    fn rows_say_what_they_came_to() {
        assert_eq!(parse("row seq_1024 64 128000", "seq_1024"), Some(Ok((64.0, 128_000.0))));
        assert_eq!(parse("no rand_4 Function not implemented", "rand_4"), Some(Err("Function not implemented".into())));
        assert_eq!(parse("row seq_1024 64 128000", "seq_2048"), None);
        assert_eq!(of_line("no - it ended early"), Err("it ended early".into()));
        assert!(of_line("row a b c").is_err());
    }

    #[test]
    fn the_processors_part_of_an_operation() {
        let load = Load { guest_idle: 0.75, host_busy: 0.5 };
        assert_eq!(Timed::new(10.0, 1000.0, Some(load)).processor_ns, Some(25.0));
    }
}
