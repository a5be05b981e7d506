//! A coverage-guided search for inputs that break something.
//!
//! The compiler counts how often each edge of the program under test is taken (`coverage`; `cargo xtask fuzz` says how
//! that is switched on with a stable compiler). An input that takes an edge in a new order of magnitude is kept, and
//! later inputs are changed copies of those that were kept (`mutate`). Without the counters the search is blind, which
//! a test of a second affords.
//!
//! Everything follows from the seed, so a run can be repeated; how long it goes on is the caller's business. There is
//! no dependency on a fuzzer of others: docs/dependencies.md says why.

mod coverage;
mod mutate;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use mutate::Random;
pub use run::run;

use coverage::Coverage;
use mutate::Mutator;

/// Inputs kept at most; then a new one takes the place of an old one.
const KEPT_COUNT_MAX: usize = 20_000;
/// Runs that making a failing input shorter may take.
const SHORTEN_RUN_COUNT_MAX: usize = 2_000;

/// What an input consists of.
#[derive(Clone, Copy, Debug)]
pub struct InputShape {
    /// Bytes of one record; changes keep records whole.
    pub record_bytes: usize,
    /// Records of the longest input.
    pub record_count_max: usize,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// What the target said it did, summed.
    pub steps: u64,
    /// Inputs run.
    pub inputs: u64,
    /// Inputs kept because they did something new.
    pub kept: usize,
    /// Edges of the program that some input took.
    pub edges_taken: usize,
    /// Edges in all; 0: the program was built without counters.
    pub edges: usize,
}

/// An input that broke something, made as short as was found quickly, and what it said.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input that broke it, made short.
    pub input: Vec<u8>,
    /// The panic's message.
    pub message: String,
}

/// A search over inputs of one target.
#[derive(Debug)]
pub struct Search<T> {
    target: T,
    shape: InputShape,
    mutator: Mutator,
    coverage: Coverage,
    kept: Vec<Vec<u8>>,
    progress: Progress,
}

impl<T: FnMut(&[u8]) -> u64> Search<T> {
    /// A search over `target`, which runs an input, says how many steps that were, and panics if something is broken.
    pub fn new(target: T, shape: InputShape, seed: u64) -> Self {
        let mutator = Mutator::new(shape, seed);
        Self { target, shape, mutator, coverage: Coverage::new(), kept: Vec::new(), progress: Progress::default() }
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Runs an input as it is. True: it did something new and was kept.
    pub fn run_one(&mut self, input: &[u8]) -> Result<bool, Failure> {
        self.coverage.begin();
        let outcome = attempt(&mut self.target, input);
        let is_new = self.coverage.end();
        self.progress.inputs += 1;
        match outcome {
            Ok(steps) => self.progress.steps += steps,
            Err(message) => return Err(self.shorten(input.to_vec(), message)),
        }
        if is_new {
            self.keep(input.to_vec());
        }
        self.progress.edges = self.coverage.edge_count();
        self.progress.edges_taken = self.coverage.taken_count();
        self.progress.kept = self.kept.len();
        Ok(is_new)
    }

    fn keep(&mut self, input: Vec<u8>) {
        if self.kept.len() < KEPT_COUNT_MAX {
            self.kept.push(input);
        } else {
            let index = self.mutator.random.below(self.kept.len());
            self.kept[index] = input;
        }
    }

    /// Runs one more input; what was kept of it.
    pub fn step(&mut self) -> Result<Option<&[u8]>, Failure> {
        let input = self.mutator.next(&self.kept);
        let is_new = self.run_one(&input)?;
        Ok(if is_new { self.kept.last().map(Vec::as_slice) } else { None })
    }

    /// Leaves records out of a failing input as long as it fails.
    fn shorten(&mut self, mut input: Vec<u8>, mut message: String) -> Failure {
        let mut runs = 0;
        let mut chunk = (input.len() / self.shape.record_bytes).next_power_of_two();
        while chunk != 0 {
            let bytes = chunk * self.shape.record_bytes;
            let mut at = 0;
            while at < input.len() && runs < SHORTEN_RUN_COUNT_MAX {
                let mut shorter = input.clone();
                shorter.drain(at..(at + bytes).min(input.len()));
                runs += 1;
                match attempt(&mut self.target, &shorter) {
                    Err(now) => (input, message) = (shorter, now),
                    Ok(_) => at += bytes,
                }
            }
            chunk /= 2;
        }
        Failure { input, message }
    }
}

/// Runs an input; the message of its panic.
fn attempt(target: &mut impl FnMut(&[u8]) -> u64, input: &[u8]) -> Result<u64, String> {
    catch_unwind(AssertUnwindSafe(|| target(input))).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::{InputShape, Search};

    const INPUT_SHAPE: InputShape = InputShape { record_bytes: 2, record_count_max: 16 };

    #[test]
    fn a_failing_input_is_made_short() {
        let target = |input: &[u8]| {
            let is_bad = |record: &[u8]| record[0] % 16 == 3;
            assert!(input.chunks_exact(2).filter(|record| is_bad(record)).count() < 2, "two threes");
            1
        };
        let mut search = Search::new(target, INPUT_SHAPE, 7);
        let failure = (0..10_000).find_map(|_| search.step().err()).expect("it is found by chance");
        assert_eq!(failure.input.len(), 4, "{:?}", failure.input);
        assert_eq!(failure.message, "two threes");
    }

    #[test]
    fn a_seed_says_it_all() {
        let all = |seed| {
            let mut sum = 0u64;
            let mut search = Search::new(
                |input: &[u8]| {
                    sum = input.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                    1
                },
                INPUT_SHAPE,
                seed,
            );
            (0..100).for_each(|_| assert!(search.step().is_ok()));
            drop(search);
            sum
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }
}
