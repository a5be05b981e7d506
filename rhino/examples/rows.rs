//! The rows of the Rhino paper's table, its copy of the RVM benchmark, and the TPC-A variant of the RVM paper, on
//! whatever this runs on. `rows micro|rvm|tpca PATH`; files are made at PATH and removed.
//!
//! Each row is the median of rounds. `micro`: nanoseconds of one event. `rvm`: microseconds of a transaction, for a
//! database of so many percent of the frames and each detector. `tpca`: transactions in a second.
#![allow(unsafe_code, reason = "rows touch mapped memory")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, hint};

use rhino::fake::Draws;
use rhino::linux::{Database, Mapping, Settings};
use rhino::{Detector, Durability, Error, Options, PAGE_BYTES, Restore};

const ROUND_COUNT: usize = 15;
/// Pages that one round touches.
const BATCH: usize = 64;
const DETECTORS: [(&str, Detector); 3] =
    [("setrange", Detector::SetRange), ("page", Detector::Page), ("diff", Detector::Diff)];

/// A database in files that are removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(path: &Path, page_count: usize) -> Result<Self, Error> {
        let place = Self(path.with_extension("rows"));
        place.remove();
        Database::create(&place.0, (page_count * PAGE_BYTES) as u64)?;
        Ok(place)
    }

    fn open(&self, frame_count_max: usize, log_bytes: u64) -> Result<Database, Error> {
        let options = Options { frame_count_max, ..Options::default() };
        Database::open(&self.0, Settings { log_bytes, options })
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.0.with_extension("rows.log"));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

fn load(mapping: &Mapping, offset: usize) -> u8 {
    assert!(offset < mapping.length());
    // SAFETY: inside the mapping.
    unsafe { mapping.address().add(offset).read_volatile() }
}

fn store(mapping: &Mapping, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= mapping.length());
    // SAFETY: inside the mapping, which nothing else refers to.
    unsafe { mapping.address().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// The median of what `round` answers, for one of `count` events.
fn median(count: usize, mut round: impl FnMut() -> Result<Duration, Error>) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..ROUND_COUNT {
        times.push(round()?.as_nanos() as f64 / count as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUND_COUNT / 2])
}

fn timed(body: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let start = Instant::now();
    body()?;
    Ok(start.elapsed())
}

fn micro(path: &Path) -> Result<(), Error> {
    let place = Place::new(path, 4 * BATCH)?;
    let database = place.open(usize::MAX, 4 << 20)?;
    let mapping = database.map(0, 4 * BATCH, Detector::Diff, 0)?;
    let row = |name: &str, ns: f64| println!("{name} {ns:.0}");
    row(
        "null",
        median(1000, || {
            timed(|| {
                (0..1000).for_each(|_| {
                    hint::black_box(parent_of_this());
                });
                Ok(())
            })
        })?,
    );
    let empty =
        |count: usize| timed(|| (0..count).try_for_each(|_| database.begin(Restore::Yes)?.commit(Durability::Flush)));
    row("begin_and_commit_empty", median(200, || empty(200))?);
    // Everything is in memory after this.
    let touch = |is_store: bool| {
        for page in 0..BATCH {
            let offset = page * PAGE_BYTES;
            if is_store {
                store(&mapping, offset, &[1])
            } else {
                let _ = hint::black_box(load(&mapping, offset));
            }
        }
    };
    let warm = |is_store: bool| {
        let transaction = database.begin(Restore::Yes)?;
        let time = timed(|| {
            touch(is_store);
            Ok(())
        })?;
        transaction.abort()?;
        Ok(time)
    };
    warm(false)?;
    row("read_fault_warm", median(BATCH, || warm(false))?);
    row("write_fault_warm", median(BATCH, || warm(true))?);
    row(
        "commit_read_only",
        median(1, || {
            let transaction = database.begin(Restore::Yes)?;
            hint::black_box(load(&mapping, 0));
            timed(|| transaction.commit(Durability::Flush))
        })?,
    );
    let mut value = 0_u64;
    let mut commit = |durability| {
        let transaction = database.begin(Restore::Yes)?;
        value += 1;
        store(&mapping, 0, &value.to_le_bytes());
        timed(|| transaction.commit(durability))
    };
    row("commit_8_bytes", median(1, || commit(Durability::Flush))?);
    row("commit_8_bytes_lazy", median(1, || commit(Durability::Lazy))?);
    drop(mapping);
    cold(&database)
}

/// Faults whose pages are read from the file.
fn cold(database: &Database) -> Result<(), Error> {
    for (name, is_store) in [("read_fault_cold", false), ("write_fault_cold", true)] {
        let ns = median(BATCH, || {
            // What was unmapped is read from the file again.
            let mapping = database.map(0, BATCH, Detector::Diff, 0)?;
            let transaction = database.begin(Restore::Yes)?;
            let time = timed(|| {
                for offset in (0..BATCH).map(|page| page * PAGE_BYTES) {
                    if is_store {
                        store(&mapping, offset, &[1]);
                    } else {
                        hint::black_box(load(&mapping, offset));
                    }
                }
                Ok(())
            })?;
            transaction.abort()?;
            Ok(time)
        })?;
        println!("{name} {ns:.0}");
    }
    Ok(())
}

/// A cheap system call. (The identifier of the parent: libraries keep their own in memory.)
fn parent_of_this() -> u32 {
    std::os::unix::process::parent_id()
}

/// Three blocks of 128 bytes are changed, one anywhere and two in a narrow part, and 64 bytes are appended.
fn rvm(path: &Path, transaction_count: usize) -> Result<(), Error> {
    const FRAME_COUNT: usize = 1024;
    for percent in [10, 25, 40, 50, 60, 75, 100, 125, 150] {
        let page_count = FRAME_COUNT * percent / 100;
        for (name, detector) in DETECTORS {
            let place = Place::new(path, page_count)?;
            let database = place.open(FRAME_COUNT, 16 << 20)?;
            let mapping = database.map(0, page_count, detector, 0)?;
            let mut draws = Draws::new(percent as u64);
            let (block_count, narrow) = (mapping.length() / 128 * 7 / 8, 64);
            let tail = block_count * 128;
            let start = Instant::now();
            for number in 0..transaction_count {
                let transaction = database.begin(Restore::Yes)?;
                let blocks = [draws.below(block_count), draws.below(narrow), draws.below(narrow)];
                for offset in blocks.map(|block| block * 128) {
                    transaction.set_range(&mapping, offset as u64, 128)?;
                    store(&mapping, offset, &[load(&mapping, offset).wrapping_add(1); 128]);
                }
                let offset = tail + number * 64 % (mapping.length() - tail);
                transaction.set_range(&mapping, offset as u64, 64)?;
                store(&mapping, offset, &[7; 64]);
                transaction.commit(Durability::Flush)?;
            }
            let us = start.elapsed().as_secs_f64() * 1e6 / transaction_count as f64;
            println!("rvm_{name}_{percent} {us:.1} steals {}", database.counters().steal_count);
        }
    }
    Ok(())
}

/// TPC-A of the RVM paper: an account of 128 bytes, its teller and branch, and 64 bytes of audit trail.
fn tpca(path: &Path, transaction_count: usize) -> Result<(), Error> {
    let page_count = 2048;
    for (name, detector) in DETECTORS {
        let place = Place::new(path, page_count)?;
        let database = place.open(usize::MAX, 16 << 20)?;
        let mapping = database.map(0, page_count, detector, 0)?;
        let mut draws = Draws::new(1);
        let account_count = mapping.length() / 128 / 2;
        let start = Instant::now();
        for number in 0..transaction_count {
            let transaction = database.begin(Restore::Yes)?;
            let account = PAGE_BYTES + draws.below(account_count - 32) * 128;
            let audit = mapping.length() / 2 + number * 64 % (mapping.length() / 2);
            for (offset, length) in [(account, 128), (draws.below(10) * 128, 8), (2048, 8), (audit, 64)] {
                transaction.set_range(&mapping, offset as u64, length as u64)?;
                store(&mapping, offset, &vec![number as u8; length]);
            }
            transaction.commit(Durability::Flush)?;
        }
        println!("tpca_{name} {:.0}", transaction_count as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let count = words.get(2).and_then(|word| word.parse().ok());
    let result = match words[..] {
        ["micro", path, ..] => micro(Path::new(path)),
        ["rvm", path, ..] => rvm(Path::new(path), count.unwrap_or(4000)),
        ["tpca", path, ..] => tpca(Path::new(path), count.unwrap_or(4000)),
        _ => {
            eprintln!("usage: rows micro|rvm|tpca PATH [TRANSACTIONS]");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = result {
        eprintln!("rows: {error:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
