//! From a device's interrupt to the first instruction of its waiter, beside ten that compute with the same tickets.
//!
//! The program is `bench/native/src/interrupt.rs` on the kernel contract; the device is an e1000, and here a nanosecond
//! is an instruction. Each run has a key of its own for the draws and raises a hundred interrupts.

use std::time::Duration;

use super::super::failure::{Failure, last_line};
use super::super::filter::RowFilter;
use super::super::guest::{Guest, Limits};
use super::super::native::Program;
use super::super::progress;
use super::super::result::{Cell, Row};
use super::super::system::Shape;
use super::contest::Arena;
use super::outcome::Found;

/// What it is told.
const WORDS: &str = "interrupt";
const LIMITS: Limits = Limits { silence: Duration::from_secs(600), total: Duration::from_secs(600) };
const RUN_COUNT: u32 = 3;
const DEVICE: &str = "-netdev hubport,id=a,hubid=0 -device e1000,netdev=a,addr=4,romfile=,mitigation=off";
/// A row, the part in a hundred of the interrupts that waited no longer, and the nanoseconds that are too many.
const ROWS: [(&str, usize, f64); 2] =
    [("interrupt_median_ns", 50, 100_000.0), ("interrupt_99th_percentile_ns", 99, 2_000_000.0)];

/// Runs it with several keys.
pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    if !arena.has_aegis() || !ROWS.iter().any(|(name, ..)| filter.finds(name)) {
        return Ok(found);
    }
    progress::say("lottery: interrupts beside ten that compute");
    let runs: Vec<Vec<f64>> = (1..=arena.scaled(RUN_COUNT)).map(|seed| wait(arena, seed)).collect::<Result<_, _>>()?;
    for (name, part, too_many) in ROWS {
        let values: Vec<f64> = runs.iter().map(|times| at_most(times, part)).collect();
        found.doubts.extend(values.iter().filter(|value| **value > too_many).map(|value| format!("{name}: {value}")));
        let cells = vec![Cell::NotAsked, Cell::Values(values), Cell::NotAsked, Cell::NotAsked];
        found.rows.push(Row { name: name.into(), cells, beside: None });
    }
    Ok(found)
}

/// What so many of a hundred of these times, which are in order, do not exceed.
fn at_most(times: &[f64], part: usize) -> f64 {
    let place = (times.len() * part).div_ceil(100).saturating_sub(1);
    times.get(place).copied().unwrap_or(f64::INFINITY)
}

/// The times of one machine, in order.
fn wait(arena: &Arena<'_>, seed: u32) -> Result<Vec<f64>, Failure> {
    let (qemu, cache) = arena.places();
    let program = Program::find(qemu, cache)?;
    let bundle = program.bundle_with(WORDS.as_bytes())?;
    let mut line = program.line(Shape { icount_shift: Some(0), cpu_count: 1 });
    line.arguments.extend(DEVICE.split(' ').map(Into::into));
    line.arguments.extend(["-append".into(), format!("lottery={seed:032x}").into()]);
    let (lines, errors) = Guest::start(&line, LIMITS)?.lines();
    drop(bundle);
    let mut times = read(&lines);
    if times.is_empty() {
        let last = lines.last().map_or_else(|| last_line(&errors), |line| last_line(line));
        return Err(Failure::Broken("Aegis", last));
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// What the program prints.
fn read(lines: &[String]) -> Vec<f64> {
    lines.iter().filter_map(|line| line.strip_prefix("waited ")?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{at_most, read};

    #[test]
    fn of_a_hundred_the_fiftieth_and_the_last_but_one() {
        let times: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|part| at_most(&times, part)), [50.0, 99.0, 100.0]);
        assert_eq!((at_most(&times[..3], 50), at_most(&[], 50)), (2.0, f64::INFINITY));
    }

    #[test]
    fn only_whole_lines_of_times_count() {
        assert_eq!(read(&["waited 7", "waited", "wait 3", "waited x", "waited 12 "].map(String::from)), [7.0, 12.0]);
    }
}
