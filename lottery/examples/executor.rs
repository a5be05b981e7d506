//! A proportional-share executor on stock Linux: tasks that compute in pieces, on one thread, each with the share that
//! its tickets say.
//!
//! `cargo run -p aegis-lottery --release --example executor [SEED]`
//!
//! Two currencies have equal funding. `batch` has three tasks, `live` two, of which one works in pieces a tenth as long
//! as the others' and so is compensated. Afterwards each task's share of the time is printed beside what its tickets
//! ask for.

use std::time::{Duration, Instant};

use aegis_lottery::random::Keyed;
use aegis_lottery::{CurrencyId, Error, Lottery, Policy, Used};

const SLICE: Duration = Duration::from_micros(500);
const RUN: Duration = Duration::from_millis(1500);

/// Work that goes on for ever, in pieces.
struct Task {
    name: &'static str,
    due: f64,
    client: CurrencyId,
    piece: Duration,
    used: Duration,
    number: u64,
}

impl Task {
    /// Computes for one piece.
    fn poll(&mut self) {
        let start = Instant::now();
        while start.elapsed() < self.piece {
            for _ in 0..200 {
                self.number = self.number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
        }
    }
}

struct Executor {
    lottery: Box<Lottery<16, 32>>,
    random: Keyed,
    tasks: Vec<Task>,
}

impl Executor {
    fn currency(&mut self, amount: u64) -> Result<CurrencyId, Error> {
        let currency = self.lottery.create_currency(0)?;
        self.lottery.transfer(CurrencyId::BASE, currency, amount)?;
        Ok(currency)
    }

    fn spawn(
        &mut self,
        name: &'static str,
        currency: CurrencyId,
        tickets: u64,
        due: f64,
        piece: Duration,
    ) -> Result<(), Error> {
        let client = self.lottery.create_client(1, 0)?;
        self.lottery.transfer(currency, client, tickets)?;
        self.lottery.set_ready(client, true);
        self.tasks.push(Task { name, due, client, piece, used: Duration::ZERO, number: 1 });
        Ok(())
    }

    fn run(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            let Some(client) = self.lottery.choose(&mut self.random) else { return };
            let Some(task) = self.tasks.iter_mut().find(|task| task.client == client) else { return };
            let begin = Instant::now();
            task.poll();
            let used = begin.elapsed();
            task.used += used;
            let used = Used { used_ns: used.as_nanos() as u64, slice_ns: SLICE.as_nanos() as u64 };
            self.lottery.charge(client, used);
        }
    }
}

fn main() -> Result<(), Error> {
    let seed = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut executor = Executor { lottery: Box::new(Lottery::new()), random: Keyed::new([seed, 0]), tasks: Vec::new() };
    let batch = executor.currency(1000)?;
    let live = executor.currency(1000)?;
    executor.spawn("batch/index", batch, 100, 1.0 / 12.0, SLICE)?;
    executor.spawn("batch/encode", batch, 200, 2.0 / 12.0, SLICE)?;
    executor.spawn("batch/report", batch, 300, 3.0 / 12.0, SLICE)?;
    executor.spawn("live/serve", live, 2, 4.0 / 12.0, SLICE / 10)?;
    executor.spawn("live/check", live, 1, 2.0 / 12.0, SLICE)?;
    executor.run(RUN);
    let all: Duration = executor.tasks.iter().map(|task| task.used).sum();
    println!("task          due   got");
    for task in &executor.tasks {
        let got = task.used.as_secs_f64() / all.as_secs_f64();
        println!("{:<12} {:>4.1}% {:>4.1}%", task.name, 100.0 * task.due, 100.0 * got);
    }
    Ok(())
}
