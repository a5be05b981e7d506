//! The benchmarks and the comparison with Linux, behind `aegis bench` and `aegis test`: the same static program on
//! Aegis and on Linux, in the same QEMU, in one run.
//!
//! `micro`, `scale`, `boot`, `apps`, `lottery`, `net`, `placement`, `disk`, `restart` and `rhino` are the suites;
//! `native` has the rows of `micro` that only Aegis can run. They start machines through `system`, which knows the
//! command lines; `linux` gets Debian's kernel, `compile` makes the programs of `bench/`, `cpio` packs them, `guest`
//! runs a process within limits and `output` reads what the program says. What was measured is a `result::Report`,
//! which `report` prints, `html` shows as a page, and `json` writes and reads back for `--baseline`, `--history` and
//! `--from`; `circumstances` adds what took part, `files` writes. `trace` is `--trace-row`: where one row's
//! instructions go. `compare` is `aegis test` and starts the same machines.
//!
//! Aegis is measured by starting the tool again as `aegis run`, because that is what a user starts. Nothing is printed
//! or written before every machine has said everything, so a table is never partial.

mod apps;
mod boot;
mod card;
mod circumstances;
pub mod compare;
mod compile;
mod cpio;
mod disk;
mod exchange;
mod failure;
mod files;
mod filter;
mod guest;
mod html;
mod json;
mod linux;
mod lottery;
mod micro;
mod native;
mod net;
mod options;
mod output;
mod placement;
mod progress;
mod report;
mod restart;
mod result;
mod rhino;
mod scale;
mod system;
mod trace;
mod tree_images;

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use aegis_launch::errors::STATUS_TOOL;

use failure::Failure;
use filter::RowFilter;
use html::Earlier;
pub use lottery::{DRAWS_VERB, measure_draws};
pub use options::BenchOptions;
use options::Suite;
use result::Report;
use system::Machines;

/// Runs the suites; the answer is the exit status. Every failure is one line on standard error.
pub fn bench(options: &BenchOptions) -> u8 {
    match run(options) {
        Ok(true) => 0,
        Ok(false) => STATUS_TOOL,
        Err(failure) => {
            progress::end();
            eprintln!("aegis: bench: {failure}");
            STATUS_TOOL
        }
    }
}

/// Measures, or reads what was measured, and reports; false if it is not to be trusted.
fn run(options: &BenchOptions) -> Result<bool, Failure> {
    options.check()?;
    if let Some(name) = &options.trace_row {
        print_all(&trace::run(options, name)?)?;
        return Ok(true);
    }
    let baseline = options.baseline.as_deref().map(|path| read_report("--baseline", path)).transpose()?;
    let earlier = options.history.iter().map(|path| read_earlier(path)).collect::<Result<Vec<_>, _>>()?;
    let written = options.json.iter().filter(|path| !is_output(path)).chain(&options.html);
    for path in written {
        files::try_place(path)?;
    }
    let report = match &options.from {
        Some(path) => read_report("--from", path)?,
        None => measure(options)?,
    };
    publish(options, &report, baseline.as_ref(), &earlier)?;
    for doubt in &report.doubts {
        eprintln!("aegis: bench: not to be trusted: {doubt}");
    }
    Ok(report.doubts.is_empty())
}

fn measure(options: &BenchOptions) -> Result<Report, Failure> {
    let load = circumstances::load();
    let filter = RowFilter::new(&options.rows)?;
    let mut machines = Machines::prepare(options)?;
    let mut tables = Vec::new();
    let mut figures = Vec::new();
    let mut doubts = Vec::new();
    let mut notes = Vec::new();
    for suite in options.suites() {
        let measured = match suite {
            Suite::Micro => micro::run(options, &machines, &filter)?,
            Suite::Native => micro::run_native(options, &machines, &filter)?,
            Suite::Boot => boot::run(options, &machines, &filter)?,
            Suite::Apps => apps::run(options, &machines, &filter)?,
            Suite::Scale => scale::run(options, &machines, &filter)?,
            Suite::Lottery => lottery::run(options, &machines, &filter)?,
            Suite::Net => net::run(options, &mut machines, &filter)?,
            Suite::Placement => placement::run(options, &machines, &filter)?,
            Suite::Restart => restart::run(options, &machines, &filter)?,
            Suite::Disk => disk::run(options, &mut machines, &filter)?,
            Suite::Rhino => rhino::run(options, &mut machines, &filter)?,
        };
        let Some(measured) = measured else { continue };
        doubts.extend(measured.doubts);
        notes.extend(measured.notes);
        tables.extend(measured.tables);
        figures.extend(measured.figures);
    }
    progress::end();
    if tables.is_empty() {
        return Err(filter.nothing_found());
    }
    let versions = circumstances::versions(&machines, options, load);
    Ok(Report { mode: options.mode(), date_unix_s: unix_time_s(), versions, tables, figures, notes, doubts })
}

/// Files first: what is printed says that they are there.
fn publish(
    options: &BenchOptions,
    report: &Report,
    baseline: Option<&Report>,
    earlier: &[Earlier],
) -> Result<(), Failure> {
    let mut text = report::render(report);
    if let Some(baseline) = baseline {
        text += &report::changes(baseline, report)?;
    }
    if let Some(path) = &options.html {
        files::replace(path, &html::page(report, earlier))?;
    }
    match &options.json {
        Some(path) if is_output(path) => {
            print_all(&json::write(report))?;
            eprint!("{text}");
            return Ok(());
        }
        Some(path) => files::replace(path, &json::write(report))?,
        None => {}
    }
    print_all(&text)
}

/// `-` is standard output.
fn is_output(path: &Path) -> bool {
    path == Path::new("-")
}

fn print_all(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::Host("writing the report", error))
}

fn read_report(option: &'static str, path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path.into(), error))?;
    json::read(&text).map_err(|why| Failure::Report(option, path.into(), why))
}

fn read_earlier(path: &Path) -> Result<Earlier, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Earlier { name, report: read_report("--history", path)? })
}

fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
