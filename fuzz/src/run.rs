//! A search that is told by the environment how long to go on, and says how it goes.
//!
//! | variable | means |
//! |---|---|
//! | `AEGIS_FUZZ_CALLS` | steps after which it ends |
//! | `AEGIS_FUZZ_SECONDS` | or seconds; with neither, ten of them |
//! | `AEGIS_FUZZ_SEED` | where the random numbers begin; 1 if it is not set |
//! | `AEGIS_FUZZ_CORPUS` | a folder: inputs in it are run first, those that do something new are put there |
//! | `AEGIS_FUZZ_INPUT` | one input, to be run alone |

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Failure, InputShape, Progress, Search};

/// How often the progress is told.
const REPORT_EVERY: Duration = Duration::from_secs(10);

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("AEGIS_FUZZ_{name}")).ok()
}

fn number(name: &str) -> Option<u64> {
    let text = variable(name)?;
    Some(text.replace('_', "").parse().unwrap_or_else(|_| panic!("AEGIS_FUZZ_{name} is not a number: {text}")))
}

/// Searches as the environment says, beginning with some inputs.
///
/// # Panics
///
/// If an input breaks something; the input was written to where the message says.
pub fn run(target: impl FnMut(&[u8]) -> u64, shape: InputShape, first: &[Vec<u8>]) {
    if let Some(input) = variable("INPUT") {
        let bytes = std::fs::read(&input).unwrap_or_else(|error| panic!("{input}: {error}"));
        let mut target = target;
        println!("{} steps", target(&bytes));
        return;
    }
    let seed = number("SEED").unwrap_or(1);
    let mut search = Search::new(target, shape, seed);
    // Panics are findings: one line each, not a backtrace for every try to make the input shorter.
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = go_on(&mut search, first);
    drop(std::panic::take_hook());
    if let Err(failure) = outcome {
        let place = save(&out_folder(), "found", &failure.input);
        panic!("{}\nafter {}\nthe input is {}", failure.message, Line(search.progress(), None), place.display());
    }
}

fn out_folder() -> PathBuf {
    variable("CORPUS").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn go_on<T: FnMut(&[u8]) -> u64>(search: &mut Search<T>, first: &[Vec<u8>]) -> Result<(), Failure> {
    let (steps, seconds) = (number("CALLS"), number("SECONDS"));
    let seconds = if steps.is_none() { seconds.or(Some(10)) } else { seconds };
    let corpus = variable("CORPUS").map(PathBuf::from);
    for input in first.iter().cloned().chain(corpus.iter().flat_map(|folder| read_all(folder))) {
        search.run_one(&input)?;
    }
    let begin = Instant::now();
    let mut report = begin + REPORT_EVERY;
    loop {
        let progress = search.progress();
        let now = Instant::now();
        let is_over = steps.is_some_and(|steps| progress.steps >= steps)
            || seconds.is_some_and(|seconds| now - begin >= Duration::from_secs(seconds));
        if is_over || now >= report {
            println!("{}", Line(progress, Some(now - begin)));
            report = now + REPORT_EVERY;
        }
        if is_over {
            return Ok(());
        }
        if let Some(input) = search.step()?
            && let Some(folder) = &corpus
        {
            let input = input.to_vec();
            save(folder, "kept", &input);
        }
    }
}

/// The progress in one line.
struct Line(Progress, Option<Duration>);

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Progress { steps, inputs, kept, edges_taken, edges } = self.0;
        write!(out, "{steps} calls in {inputs} inputs, {kept} kept, {edges_taken} of {edges} edges")?;
        match self.1 {
            Some(time) => {
                write!(out, ", {:.0} s, {:.0} calls/s", time.as_secs_f64(), steps as f64 / time.as_secs_f64())
            }
            None => Ok(()),
        }
    }
}

fn read_all(folder: &Path) -> Vec<Vec<u8>> {
    let mut places: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    places.sort();
    places.retain(|place| place.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kept-")));
    places.iter().filter_map(|place| std::fs::read(place).ok()).collect()
}

/// Writes an input under a name that follows from its bytes.
fn save(folder: &Path, kind: &str, input: &[u8]) -> PathBuf {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let place = folder.join(format!("{kind}-{hash:016x}"));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&place, input));
    if let Err(error) = written {
        eprintln!("{}: {error}", place.display());
    }
    place
}
