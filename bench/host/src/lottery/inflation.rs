//! Figure 6: three Monte-Carlo tasks, each begun some time after the one before, that fund themselves by the square of
//! their relative error (`bench/lottery/monte_carlo.c`).
//!
//! The square of the error is as one over the trials, so a task with few gets much, and the later ones catch up. What
//! is due follows from that: with trials `n` and speeds as `1/n` the difference of two squares `n_i^2 - n_j^2` stays.

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::{Cell, Figure};
use super::contest::{Arena, Loops};
use super::one_machine::Play;
use super::outcome::{Found, Outcome, is_off, series};

const NAMES: [&str; 3] = ["t0", "t1", "t2"];
/// Windows between two beginnings, all windows, and how long one is.
const STAGGER_COUNT: u32 = 15;
const WINDOW_COUNT: u32 = 4 * STAGGER_COUNT;
const WINDOW_MS: u32 = 4000;
/// Results further from what is due are doubted: tens of thousands of turns were drawn for each.
const OFF_MAX: f64 = 0.1;

/// The later two's trials by those of the first, when four times as much as between two beginnings has passed.
fn due() -> [f64; 2] {
    // Trials of one that is alone until the next begins are 1. After as much again the two have 2 together, and their
    // squares differ by 1.
    let first = f64::midpoint(2.0, 0.5);
    let gaps = [1.0, first * first];
    let trials = |first: f64| gaps.map(|gap| (first * first - gap).sqrt());
    let (mut low, mut high) = (first, 4.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let sum = middle + trials(middle).iter().sum::<f64>();
        *(if sum < 4.0 { &mut low } else { &mut high }) = middle;
    }
    trials(low).map(|later| later / low)
}

pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    let rows = ["fig06_second_to_first", "fig06_third_to_first"];
    if !rows.iter().any(|name| filter.finds(name)) {
        return Ok(found);
    }
    let (windows, stagger) = (arena.scaled(WINDOW_COUNT), arena.scaled(STAGGER_COUNT));
    let windows = windows.max(4 * stagger);
    let files = arena.root(&[], &[])?;
    let words = ["monte-carlo".into(), windows.to_string(), WINDOW_MS.to_string(), stagger.to_string()].to_vec();
    let play = Play { files: &files, words, names: &NAMES, count: windows as usize, seed: 1 };
    let both = arena.within_both(&play)?;
    let mut lines = Vec::new();
    for (system, loops) in ["Aegis", "Linux"].into_iter().zip(&both) {
        for (task, trials) in loops.iter().flatten().enumerate() {
            let at_s = |window: usize| (window + 1) as f64 * f64::from(WINDOW_MS) / 1000.0;
            let points = trials.iter().enumerate().map(|(window, count)| (at_s(window), *count as f64 / 1e6));
            let points = points.filter(|(_, millions)| *millions > 0.0).collect();
            lines.extend(series(&format!("{system}, task {}", task + 1), true, points));
        }
    }
    found.figures.push(Figure {
        name: "fig06".into(),
        title:
            "Figure 6: three Monte-Carlo tasks, begun one after another, funded by the square of their relative error"
                .into(),
        axes: ["s of guest time".into(), "million trials".into()],
        is_doubling: false,
        series: lines,
    });
    for (index, (name, due)) in rows.into_iter().zip(due()).enumerate() {
        let [aegis, linux] = both.each_ref().map(|loops| loops.as_ref().and_then(|it| ratio(it, index + 1)));
        if let Some(value) = aegis.filter(|value| is_off(*value, due, OFF_MAX)) {
            found.doubts.push(format!("{name}: {value:.3} instead of {due:.3}"));
        }
        let [aegis, linux] = [aegis, linux].map(Cell::of);
        found.rows.push(Outcome { due, aegis, linux, published: None }.row(name.into()));
    }
    Ok(found)
}

/// The trials of a task by those of the first one, at the end.
fn ratio(loops: &Loops, task: usize) -> Option<f64> {
    Some(*loops.get(task)?.last()? as f64 / *loops.first()?.last()? as f64)
}

#[cfg(test)]
mod tests {
    use super::{due, ratio};

    #[test]
    fn what_is_due_is_what_small_steps_come_to() {
        let mut trials = [0.0_f64; 3];
        let steps = 100_000;
        for step in 0..4 * steps {
            let count = (step / steps + 1).min(3);
            let tickets = trials.map(|count| 1.0 / count.max(1e-6));
            let whole: f64 = tickets[..count].iter().sum();
            (0..count).for_each(|task| trials[task] += tickets[task] / whole / f64::from(steps as u32));
        }
        let [second, third] = due();
        assert!((trials[1] / trials[0] - second).abs() < 1e-3, "{trials:?} {second}");
        assert!((trials[2] / trials[0] - third).abs() < 1e-3, "{trials:?} {third}");
    }

    #[test]
    fn the_last_window_counts() {
        assert_eq!(ratio(&vec![vec![5, 10], vec![0, 8]], 1), Some(0.8));
        assert_eq!(ratio(&vec![vec![5, 10]], 1), None);
    }
}
