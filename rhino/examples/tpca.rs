//! TPC-A as the RVM paper has it, in recoverable memory: transactions in a second, each flushed.
//!
//! `tpca PATH [TRANSACTIONS [PERCENT ...]]` makes databases at PATH.*, or one after the other on the disk that PATH is,
//! whose size is so many percent of the frames it may use (the paper's ratio of recoverable to physical memory), does
//! the transactions with accounts in sequence, at random and localized, with each detector, prints a line for each, and
//! removes them. `calls` is page-diff's region with loads and stores by call. After each the sums are checked.
#![allow(unsafe_code, reason = "modules here touch mapped memory")]

#[path = "workload/bank.rs"]
mod bank;
#[path = "workload/drive.rs"]
mod drive;
#[path = "workload/place.rs"]
mod place;
#[path = "workload/recoverable.rs"]
mod recoverable;
#[path = "workload/report.rs"]
mod report;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use rhino::{Detector, Error, MemoryError, PAGE_BYTES};

use bank::{Pattern, Tables};
use drive::{Entrant, drive};
use place::{DETECTORS, is_disk};
use recoverable::{Recoverable, Style};

const FRAME_COUNT: usize = 1024;
const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::Random, Pattern::Localized];

fn run(path: &Path, transaction_count: usize, percents: &[usize]) -> Result<bool, String> {
    let mut is_right = true;
    let plain = DETECTORS.map(|(name, detector)| (name, detector, Style::Plain));
    let curves: Vec<_> = plain.into_iter().chain([("calls", Detector::Diff, Style::Call)]).collect();
    for &percent in percents {
        for pattern in PATTERNS {
            let tables = Tables::new(pattern, FRAME_COUNT * PAGE_BYTES * percent / 100);
            // A disk has one database at a time.
            for turn in curves.chunks(if is_disk(path) { 1 } else { curves.len() }) {
                let mut engines = Vec::new();
                for &(name, detector, style) in turn {
                    let place = if is_disk(path) { path.to_path_buf() } else { path.with_extension(name) };
                    match Recoverable::new(&place, &tables, (detector, style), FRAME_COUNT) {
                        Err(Error::Memory(MemoryError::Unsupported)) => {}
                        result => engines.push((name, result.map_err(|error| format!("{error:?}"))?)),
                    }
                }
                let entrants =
                    engines.iter_mut().map(|(name, engine)| Entrant { series: format!("rhino-{name}"), engine });
                let param = format!("{} {percent}", pattern.name());
                is_right &= drive(entrants.collect(), (&tables, pattern), transaction_count, ("tpca", &param))?;
            }
        }
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = arguments.iter().skip(1).map(|word| word.parse().ok()).collect();
    let (Some(path), Some(numbers)) = (arguments.first(), numbers) else {
        eprintln!("usage: tpca PATH [TRANSACTIONS [PERCENT ...]]");
        return ExitCode::from(2);
    };
    let (transaction_count, percents) = match numbers.split_first() {
        Some((&count, [])) => (count, &[12, 50, 100, 150][..]),
        Some((&count, percents)) => (count, percents),
        None => (4000, &[12, 50, 100, 150][..]),
    };
    match run(Path::new(path), transaction_count, percents) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("tpca: sums are wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tpca: {error}");
            ExitCode::FAILURE
        }
    }
}
