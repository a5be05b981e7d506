//! Figure 11: eight threads of two groups, the first with twice the tickets, that compete for one lock
//! (`bench/lottery/locks.c`).
//!
//! On Aegis a thread that waits for such a lock lends its tickets to the holder, and the next one is drawn. On Linux
//! those of the same class of scheduling are served in the order in which they came.

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::{Cell, Figure};
use super::contest::{Arena, Loops};
use super::one_machine::Play;
use super::outcome::{Found, Outcome, is_off, series};

const NAMES: [&str; 2] = ["a", "b"];
const DURATION_S: u32 = 120;
/// Waits are counted by length, in hundreds of milliseconds; the number after these is the sum in microseconds.
const BUCKET_COUNT: usize = 40;
const BUCKET_MS: f64 = 100.0;
/// What was published: acquisitions of the first group by the second's, and mean waits the other way round.
const ROWS: [(&str, f64); 2] = [("fig11_acquisitions_a_to_b", 763.0 / 423.0), ("fig11_waits_b_to_a", 948.0 / 450.0)];
const DUE: f64 = 2.0;
/// Results further from what is due are doubted. Threads of the second group compute more slowly too, so that both
/// ratios lie a little beside it; a thousand draws have a deviation of 7 % besides.
const OFF_MAX: f64 = 0.3;

/// What a group came to.
struct Waits {
    count: f64,
    mean_ms: f64,
}

impl Waits {
    fn of(numbers: &[u64]) -> Self {
        let count = numbers[..BUCKET_COUNT].iter().sum::<u64>() as f64;
        Self { count, mean_ms: numbers[BUCKET_COUNT] as f64 / 1000.0 / count }
    }
}

fn ratios(loops: &Loops) -> [f64; 2] {
    let [a, b] = [&loops[0], &loops[1]].map(|numbers| Waits::of(numbers));
    [a.count / b.count, b.mean_ms / a.mean_ms]
}

pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    if !ROWS.iter().any(|(name, _)| filter.finds(name)) {
        return Ok(found);
    }
    let files = arena.root(&[], &[])?;
    let words = vec!["locks".into(), arena.scaled(DURATION_S).to_string()];
    let both = arena.within_both(&Play { files: &files, words, names: &NAMES, count: BUCKET_COUNT + 1, seed: 1 })?;
    let values = both.each_ref().map(|loops| loops.as_ref().map(ratios));
    for (index, (name, published)) in ROWS.into_iter().enumerate() {
        let [aegis, linux] = values.map(|pair| pair.map(|pair| pair[index]));
        if let Some(value) = aegis.filter(|value| is_off(*value, DUE, OFF_MAX)) {
            found.doubts.push(format!("{name}: {value:.2} instead of {DUE:.2}"));
        }
        let [aegis, linux] = [aegis, linux].map(Cell::of);
        found.rows.push(Outcome { due: DUE, aegis, linux, published: Some(published) }.row(name.into()));
    }
    let mut lines = Vec::new();
    for (system, loops) in ["Aegis", "Linux"].into_iter().zip(&both) {
        for (name, numbers) in NAMES.iter().zip(loops.iter().flatten()) {
            let point = |(bucket, count): (usize, &u64)| ((bucket as f64 + 0.5) * BUCKET_MS, *count as f64);
            let points = numbers[..BUCKET_COUNT].iter().enumerate().map(point).collect();
            lines.extend(series(&format!("{system}, group {name}"), true, points));
        }
    }
    found.figures.push(Figure {
        name: "fig11".into(),
        title: "Figure 11: how long eight threads of two groups, tickets 2:1, waited for a lock".into(),
        axes: ["ms".into(), "waits".into()],
        is_doubling: false,
        series: lines,
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{BUCKET_COUNT, ratios};

    #[test]
    fn counts_and_means() {
        let numbers = |count: u64, sum_us: u64| {
            let mut numbers = vec![0; BUCKET_COUNT + 1];
            numbers[3] = count - 1;
            numbers[BUCKET_COUNT - 1] = 1;
            numbers[BUCKET_COUNT] = sum_us;
            numbers
        };
        assert_eq!(ratios(&vec![numbers(20, 200_000), numbers(10, 300_000)]), [2.0, 3.0]);
    }
}
