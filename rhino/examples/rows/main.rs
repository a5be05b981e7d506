//! The rows of the Rhino paper's table and its copy of the RVM benchmark, on whatever this runs on; for `aegis bench
//! rhino`, and by hand.
//!
//! - `rows micro PATH [ROWS]`: the paper's eight rows, what is trap in them, and a lazy commit.
//! - `rows rvm PATH [COUNT [DETECTORS [PERCENTS]]]`: so many transactions of the RVM benchmark for each detector, and
//!   each size of the database in percent of the frames.
//! - `rows whole PATH [DETECTORS [PERCENTS]]`: transactions that store to every page of such a database.
//!
//! A database is made at PATH and removed; PATH may be a disk. If `--counted` stands first, what is measured lies
//! between marks of the plugin of `aegis bench` (bench/trace/trace.c), once.
//!
//! A result is a line of JSON: `row`, `series` (the detector), `param`, `operations`, `seconds` (of all operations),
//! `instructions` (null: they are counted from outside), `extra`.

#[path = "../workload/place.rs"]
mod database;
mod meter;
mod micro;
mod place;
mod sweep;
mod trap;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use rhino::Error;

use database::DETECTORS;
use meter::Meter;

/// Sizes of a database in percent of the frames.
const PERCENTS: [usize; 9] = [10, 25, 40, 50, 60, 75, 100, 125, 150];
const TRANSACTION_COUNT: usize = 4000;

/// A list of words with commas; without it, all that there are.
fn chosen<T: Copy>(word: Option<&&str>, all: &[T], is_meant: impl Fn(&T, &str) -> bool) -> Vec<T> {
    let words: Vec<&str> = word.map(|word| word.split(',').collect()).unwrap_or_default();
    all.iter().filter(|it| words.is_empty() || words.iter().any(|word| is_meant(it, word))).copied().collect()
}

fn run(words: &[&str], is_counted: bool) -> Result<bool, Error> {
    let mut meter = Meter::new(is_counted);
    let detectors = |word: Option<&&str>| chosen(word, &DETECTORS, |(name, _), word| *name == word);
    let percents = |word: Option<&&str>| chosen(word, &PERCENTS, |percent, word| percent.to_string() == word);
    match *words {
        ["micro", path, ref rows @ ..] => {
            meter.rows = rows.iter().flat_map(|list| list.split(',')).map(String::from).collect();
            micro::run(&mut meter, Path::new(path))?;
        }
        ["rvm", path, ..] => {
            let count = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(TRANSACTION_COUNT);
            sweep::rvm(&mut meter, Path::new(path), count, &detectors(words.get(3)), &percents(words.get(4)))?;
        }
        ["whole", path, ..] => {
            sweep::whole(&mut meter, Path::new(path), &detectors(words.get(2)), &percents(words.get(3)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_counted = words.first() == Some(&"--counted");
    if is_counted {
        words.remove(0);
    }
    match run(&words, is_counted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("usage: rows [--counted] micro|rvm|whole PATH ...");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("rows: {error:?}");
            ExitCode::FAILURE
        }
    }
}
