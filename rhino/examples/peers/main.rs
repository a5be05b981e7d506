//! The transactions of the RVM paper on recoverable memory and on its peers: SQLite (WAL, `synchronous=FULL`), LMDB and
//! redb, each with its usual durability. A commit has lasted when it returns.
//!
//! `peers PATH [TRANSACTIONS [BYTES]]` makes the databases at PATH.*, does TPC-A (sequential, random, localized) and
//! the sweep's transactions, checks the sums, prints a line for each, and removes them. Nothing is limited: what an
//! engine keeps in memory by default it keeps.
#![allow(unsafe_code, reason = "modules here touch mapped memory, and call C")]

#[path = "../workload/bank.rs"]
mod bank;
#[path = "../workload/drive.rs"]
mod drive;
mod lmdb;
#[path = "../workload/place.rs"]
mod place;
#[path = "../workload/recoverable.rs"]
mod recoverable;
mod redb;
#[path = "../workload/report.rs"]
mod report;
mod sqlite;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rhino::Detector;

use bank::{Pattern, Tables};
use drive::{Entrant, drive};
use place::DETECTORS;
use recoverable::{Recoverable, Style};

const PATTERNS: [Pattern; 4] = [Pattern::Sequential, Pattern::Random, Pattern::Localized, Pattern::Sweep];
/// What the engines leave beside the file itself.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-lock"];

/// Files of an engine, removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(path: PathBuf) -> Self {
        let files = Self(path);
        files.remove();
        files
    }

    fn remove(&self) {
        for suffix in SUFFIXES {
            let mut name = self.0.as_os_str().to_owned();
            name.push(suffix);
            let _ = fs::remove_file(name);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The curves of recoverable memory.
fn recoverable(path: &Path, tables: &Tables) -> Result<Vec<(String, Recoverable)>, String> {
    let plain = DETECTORS.into_iter().take(3).map(|(name, detector)| (name, detector, Style::Plain));
    let curves = plain.chain([("calls", Detector::Diff, Style::Call)]);
    curves
        .map(|(name, detector, style)| {
            let engine = Recoverable::new(&path.with_extension(name), tables, (detector, style), usize::MAX);
            Ok((format!("rhino-{name}"), engine.map_err(|error| format!("{error:?}"))?))
        })
        .collect()
}

fn run(path: &Path, transaction_count: usize, bytes: usize) -> Result<bool, String> {
    let mut is_right = true;
    for pattern in PATTERNS {
        let tables = Tables::new(pattern, bytes);
        let files = ["sqlite", "lmdb", "redb"].map(|name| Files::new(path.with_extension(name)));
        let mut ours = recoverable(path, &tables)?;
        let mut lmdb = lmdb::Environment::new(&files[1].0, &tables)?;
        let mut redb = redb::Tree::new(&files[2].0, &tables)?;
        sqlite::with(&files[0].0, &tables, &mut |sqlite| {
            let ours = ours.iter_mut().map(|(series, engine)| Entrant { series: series.clone(), engine });
            let mut entrants: Vec<Entrant<'_>> = ours.collect();
            entrants.push(Entrant { series: "sqlite-wal".to_string(), engine: sqlite });
            entrants.push(Entrant { series: "lmdb".to_string(), engine: &mut lmdb });
            entrants.push(Entrant { series: "redb".to_string(), engine: &mut redb });
            let param = format!("{} {}", pattern.name(), bytes >> 10);
            is_right &= drive(entrants, (&tables, pattern), transaction_count, ("peers", &param))?;
            Ok(())
        })?;
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize, usual: usize| match arguments.get(place) {
        Some(word) => word.parse().ok(),
        None => Some(usual),
    };
    let (Some(path), Some(transaction_count), Some(bytes)) = (arguments.first(), number(1, 4000), number(2, 4 << 20))
    else {
        eprintln!("usage: peers PATH [TRANSACTIONS [BYTES]]");
        return ExitCode::from(2);
    };
    match run(Path::new(path), transaction_count, bytes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("peers: sums are wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}
