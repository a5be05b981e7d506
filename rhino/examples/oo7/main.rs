//! The OO7 benchmark (Carey, DeWitt, Naughton: SIGMOD 1993) in recoverable memory: assemblies, composite parts, and the
//! graphs of atomic parts in them, in the heap of a segment.
//!
//! `oo7 small|medium-3|medium-9|tiny PATH [FRAMES [TRAVERSAL]]` makes a database at PATH, runs T1, T2A, T2B and T2C
//! with each detector, cold and hot, prints a line for each, and removes it. Cold is the first traversal of a database
//! that was just opened; hot the mean of the first three of four that follow, as in the Rhino paper. A traversal is one
//! transaction.
//!
//! What differs from the paper: x and y are increased, not swapped (a part that is swapped twice is as before, so that
//! differences would find nothing); indices are left out, which none of these traversals uses.
//!
//! It checks itself: how many atomic parts a traversal visits and changes is known, and after each detector the
//! database is opened again, and the sums of x and y have to be what was committed.
#![allow(unsafe_code, reason = "objects are plain memory")]

mod parts;
#[path = "../workload/place.rs"]
mod place;
#[path = "../workload/report.rs"]
mod report;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rhino::heap::HeapError;
use rhino::linux::{Database, Mapping};
use rhino::{Detector, Durability, Error, MemoryError, PAGE_BYTES, Restore};

use parts::{Builder, Configuration, Objects, Traversal};
use place::{DETECTORS, Place};
use report::Line;

/// Frames of the Rhino paper's machine: 47 MB for programs.
const PAPER_FRAME_COUNT: usize = 47_000_000 / PAGE_BYTES;
const HOT_COUNT: usize = 4;
const HOT_MEASURED_COUNT: usize = 3;

fn heap_error(error: HeapError) -> Error {
    match error {
        HeapError::Store(error) => error,
        HeapError::NotFormatted | HeapError::Full | HeapError::NoBlock => Error::NoMemory,
    }
}

fn map(database: &Database, detector: Detector) -> Result<Mapping, Error> {
    database.map(0, database.bytes() as usize / PAGE_BYTES, detector, 0)
}

/// Makes all objects, a composite part in each transaction.
fn build(place: &Place, configuration: &Configuration) -> Result<(), Error> {
    let database = place.open(usize::MAX, configuration.log_bytes())?;
    let mapping = map(&database, Detector::Diff)?;
    let mut builder = Builder::new(configuration);
    let mut is_whole = false;
    while !is_whole {
        let transaction = database.begin(Restore::Yes)?;
        let mut objects = Objects::new(&mapping, &transaction, Detector::Diff);
        is_whole = builder.go_on(&mut objects).map_err(heap_error)?;
        transaction.commit(Durability::Lazy)?;
    }
    database.checkpoint()
}

/// The traversals of a database, one after the other.
struct Runs<'a> {
    configuration: &'a Configuration,
    place: &'a Place,
    frame_count_max: usize,
    /// What those that were committed have added to each of x and y.
    changed_count: u64,
}

impl Runs<'_> {
    fn open(&self, detector: Detector) -> Result<(Database, Mapping), Error> {
        let database = self.place.open(self.frame_count_max, self.configuration.log_bytes())?;
        let mapping = map(&database, detector)?;
        Ok((database, mapping))
    }

    fn traverse(
        &mut self,
        (database, mapping): (&Database, &Mapping),
        detector: Detector,
        traversal: Traversal,
    ) -> Result<Duration, Error> {
        let start = Instant::now();
        let transaction = database.begin(Restore::Yes)?;
        let mut objects = Objects::new(mapping, &transaction, detector);
        let counts = parts::traverse(&mut objects, self.configuration, traversal)?;
        transaction.commit(Durability::Flush)?;
        let time = start.elapsed();
        assert_eq!(counts, self.configuration.expected(traversal), "{traversal:?}: parts visited, and changes");
        self.changed_count += counts.1;
        Ok(time)
    }

    /// The database as it was committed, after it was opened again.
    fn check(&self) -> Result<(), Error> {
        let (database, mapping) = self.open(Detector::Diff)?;
        let transaction = database.begin(Restore::Yes)?;
        let sums = parts::sums(&Objects::new(&mapping, &transaction, Detector::Diff), self.configuration);
        assert_eq!(sums, (self.changed_count, self.changed_count), "what was committed is there, and nothing else");
        transaction.commit(Durability::Flush)
    }

    fn cold_and_hot(&mut self, name: &str, detector: Detector, traversal: Traversal) -> Result<(), Error> {
        let (database, mapping) = self.open(detector)?;
        let before = database.counters();
        let cold = self.traverse((&database, &mapping), detector, traversal)?;
        let payload_bytes = database.counters().payload_bytes - before.payload_bytes;
        let mut hot = Duration::ZERO;
        for number in 0..HOT_COUNT {
            let time = self.traverse((&database, &mapping), detector, traversal)?;
            if number < HOT_MEASURED_COUNT {
                hot += time / HOT_MEASURED_COUNT as u32;
            }
        }
        let counters = database.counters();
        let (visited, _) = self.configuration.expected(traversal);
        for (kind, time) in [("cold", cold), ("hot", hot)] {
            let (series, extra) = (
                format!("rhino-{name}"),
                &[
                    ("payload_bytes", payload_bytes as f64),
                    ("fetches", counters.fetch_count as f64),
                    ("steals", counters.steal_count as f64),
                    ("database_bytes", database.bytes() as f64),
                ],
            );
            let param = format!("{} {traversal:?} {kind}", self.configuration.name);
            Line { row: "oo7", series: &series, param, operations: visited, time, extra }.print();
        }
        Ok(())
    }
}

fn run(
    path: &Path,
    configuration: &Configuration,
    frame_count_max: usize,
    traversals: &[Traversal],
) -> Result<(), Error> {
    let place = Place::new(path, configuration.page_count())?;
    build(&place, configuration)?;
    let mut runs = Runs { configuration, place: &place, frame_count_max, changed_count: 0 };
    for (name, detector) in DETECTORS {
        for &traversal in traversals {
            match runs.cold_and_hot(name, detector, traversal) {
                Err(Error::Memory(MemoryError::Unsupported)) if detector == Detector::DirtyBits => break,
                // Pages of set ranges stay in memory: more of them than frames are more than it can do.
                Err(Error::Memory(MemoryError::NoMemory)) if detector == Detector::SetRange => {
                    eprintln!("oo7: {name} {traversal:?}: more pages changed than there are frames");
                }
                result => result?,
            }
        }
        runs.check()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let configuration = arguments.first().and_then(|name| Configuration::named(name));
    let (Some(configuration), Some(path)) = (configuration, arguments.get(1)) else {
        eprintln!("usage: oo7 tiny|small|medium-3|medium-9 PATH [FRAMES [TRAVERSAL]]");
        return ExitCode::from(2);
    };
    let frame_count_max = arguments.get(2).and_then(|word| word.parse().ok()).unwrap_or(PAPER_FRAME_COUNT);
    let all = Traversal::ALL;
    let one = arguments.get(3).and_then(|name| all.iter().find(|traversal| format!("{traversal:?}") == *name));
    let traversals = one.map_or(&all[..], core::slice::from_ref);
    match run(Path::new(path), &configuration, frame_count_max, traversals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oo7: {error:?}");
            ExitCode::FAILURE
        }
    }
}
