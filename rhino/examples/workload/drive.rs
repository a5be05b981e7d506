//! Has engines do transactions, checks what they kept, and prints a line for each.
//!
//! Engines take turns, a batch of transactions each: a disk that is slow for a while is slow for all of them.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::bank::{Client, Engine, Pattern, Tables};
use super::report::Line;

/// Transactions before the clock starts: files and caches are what they will be.
const WARM_UP_COUNT: usize = 50;
/// Transactions of a turn.
const BATCH_COUNT: usize = 50;

/// An engine, and what it is called.
pub(crate) struct Entrant<'a> {
    pub(crate) series: String,
    pub(crate) engine: &'a mut dyn Engine,
}

/// An engine at work.
struct Runner<'a> {
    entrant: Entrant<'a>,
    client: Client,
    /// How long each batch took, for one of its transactions.
    times: Vec<f64>,
    total: Duration,
}

impl Runner<'_> {
    fn run(&mut self, count: usize) -> Result<Duration, String> {
        let start = Instant::now();
        for _ in 0..count {
            let work = self.client.next();
            self.entrant.engine.transact(&work).map_err(|error| format!("{}: {error}", self.entrant.series))?;
            self.client.is_done(&work);
        }
        Ok(start.elapsed())
    }

    /// Prints the line; true if the sums are right.
    fn end(mut self, row: &str, param: &str, transaction_count: usize) -> Result<bool, String> {
        self.times.sort_by(f64::total_cmp);
        let median = self.times.get(self.times.len() / 2).copied().unwrap_or(0.0);
        let mut extra = vec![
            ("transactions_per_second", transaction_count as f64 / self.total.as_secs_f64()),
            ("median_us", median * 1e6),
        ];
        extra.extend(self.entrant.engine.extra());
        let is_right = self.entrant.engine.sums()? == self.client.expected();
        extra.push(("sums_are_right", f64::from(u8::from(is_right))));
        let (series, operations) = (&self.entrant.series, transaction_count as u64);
        Line { row, series, param: param.to_string(), operations, time: self.total, extra: &extra }.print();
        Ok(is_right)
    }
}

/// Has each engine do so many transactions; true if all sums are right afterwards.
pub(crate) fn drive(
    entrants: Vec<Entrant<'_>>,
    (tables, pattern): (&Tables, Pattern),
    transaction_count: usize,
    (row, param): (&str, &str),
) -> Result<bool, String> {
    let start = |entrant| {
        let client = Client::new(tables, pattern);
        let mut runner = Runner { entrant, client, times: Vec::new(), total: Duration::ZERO };
        runner.run(WARM_UP_COUNT)?;
        runner.entrant.engine.begin_count();
        Ok::<Runner<'_>, String>(runner)
    };
    let mut runners = entrants.into_iter().map(start).collect::<Result<Vec<_>, String>>()?;
    let mut left = transaction_count;
    while left > 0 {
        let count = left.min(BATCH_COUNT);
        for runner in &mut runners {
            let time = runner.run(count)?;
            runner.total += time;
            runner.times.push(time.as_secs_f64() / count as f64);
        }
        left -= count;
    }
    runners.into_iter().try_fold(true, |all, runner| Ok(runner.end(row, param, transaction_count)? && all))
}
