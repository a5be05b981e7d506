//! `aegis bench`: the same static program on Aegis and on Linux, in the same QEMU, in one run.
//!
//! `micro` and `boot` are the suites. They start machines through `system`, which knows the command lines;
//! `linux` gets Debian's kernel, `compile` makes the program, `cpio` packs it, `guest` runs a process within
//! limits and `output` reads what the program says. What was measured is a `result::Table`, which `report`
//! prints and `json` writes and reads back for `--baseline`. `trace` is `--trace-row`: where one row's instructions go.
//!
//! Aegis is measured by starting this tool again as `aegis run`, because that is what a user starts. Nothing
//! is printed on standard output before every machine has said everything, so a table is never partial.

mod boot;
mod compile;
mod cpio;
mod failure;
mod guest;
mod json;
mod json_parse;
mod linux;
mod micro;
mod options;
mod output;
mod report;
mod result;
mod system;
mod trace;

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::errors::STATUS_TOOL;
use failure::Failure;
pub(crate) use options::BenchOptions;
use options::Suite;
use result::{Report, Table};
use system::Machines;

/// Runs the suites; the answer is the exit status. Every failure is one line on standard error.
pub(crate) fn bench(options: &BenchOptions) -> u8 {
    match run(options) {
        Ok(true) => 0,
        Ok(false) => STATUS_TOOL,
        Err(failure) => {
            eprintln!("aegis: bench: {failure}");
            STATUS_TOOL
        }
    }
}

/// Measures and reports; false if what was measured is not to be trusted.
fn run(options: &BenchOptions) -> Result<bool, Failure> {
    options.check()?;
    if let Some(name) = &options.trace_row {
        print_all(&trace::run(options, name)?)?;
        return Ok(true);
    }
    let baseline = options.baseline.as_deref().map(read_report).transpose()?;
    let machines = Machines::prepare(options)?;
    let mut tables = Vec::new();
    let mut doubts = Vec::new();
    for suite in options.suites() {
        let measured = match suite {
            Suite::Micro => micro::run(options, &machines)?,
            Suite::Boot => boot::run(options, &machines)?,
        };
        doubts.extend(measured.doubts);
        tables.push(measured.table);
    }
    let report = Report { mode: options.mode(), date_unix_s: unix_time_s(), versions: machines.versions(), tables };
    publish(options, &report, baseline.as_ref())?;
    for doubt in &doubts {
        eprintln!("aegis: bench: not to be trusted: {doubt}");
    }
    Ok(doubts.is_empty())
}

/// A suite's table, and why it is not to be trusted, if so.
struct Measured {
    table: Table,
    doubts: Vec<String>,
}

fn publish(options: &BenchOptions, report: &Report, baseline: Option<&Report>) -> Result<(), Failure> {
    let json_to_output = options.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &options.json {
        let text = json::write(report);
        if json_to_output {
            print_all(&text)?;
        } else {
            std::fs::write(path, text).map_err(|error| Failure::file("writing", path.clone(), error))?;
        }
    }
    let mut text = report::render(report);
    if let Some(baseline) = baseline {
        text += &report::changes(baseline, report)?;
    }
    if json_to_output {
        eprint!("{text}");
        Ok(())
    } else {
        print_all(&text)
    }
}

fn print_all(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::Host("writing the report", error))
}

fn read_report(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path.into(), error))?;
    json::read(&text).map_err(|why| Failure::Baseline(path.into(), why))
}

fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
