//! Figures 4 and 5: what two that compute get of a processor, by their tickets, altogether and over time.

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::{Cell, Figure, Series};
use super::contest::{Arena, Contest, Contestant, totals};
use super::outcome::{Found, Outcome, series};

/// Runs of a ratio.
const RUN_COUNT: u32 = 3;
/// Tickets of the one for one of the other; how long a run is; what was published, where the text says it.
const RATIOS: [(u32, u32, Option<f64>); 11] = [
    (1, 60, None),
    (2, 60, None),
    (3, 60, None),
    (4, 60, None),
    (5, 60, None),
    (6, 60, None),
    (7, 60, None),
    (8, 60, None),
    (9, 60, None),
    (10, 60, Some(13.42)),
    (20, 180, Some(19.08)),
];
/// The paper's slice.
const SLICE_MS: u8 = 100;
/// Windows of figure 5, and the slices and lengths of the two times that it is made.
const WINDOW_COUNT: u32 = 25;
const SPEEDS: [(&str, u8, u32); 2] = [("fig05_2_to_1_in_8_s", 100, 8000), ("fig05_2_to_1_in_0.8_s", 10, 800)];
/// Tickets are multiples of it, as small weights are rounded on Linux.
const TICKETS: u32 = 100;

fn pair(ratio: u32, slice_ms: u8, windows: (u32, u32), seed: u64) -> Contest {
    Contest {
        contestants: vec![Contestant::spinning("a", ratio * TICKETS), Contestant::spinning("b", TICKETS)],
        slice_ms,
        window_count: windows.0,
        window_ms: windows.1,
        seed,
    }
}

/// Figure 4.
pub(super) fn ratios(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut surprise = Surprise::default();
    let [mut due, mut aegis_points, mut linux_points, mut published_points] = [const { Vec::new() }; 4];
    for (ratio, duration_s, published) in RATIOS {
        let name = format!("fig04_{ratio}_to_1");
        if !filter.finds(&name) {
            continue;
        }
        let windows = (arena.scaled(duration_s), 1000);
        let (mut aegis, mut linux) = (Cell::NotAsked, Cell::NotAsked);
        for run in 0..arena.scaled(RUN_COUNT) {
            let contest = pair(ratio, SLICE_MS, windows, u64::from(ratio * 100 + run));
            if let Some(loops) = arena.on_aegis(&contest)? {
                let sums = totals(&loops);
                let due = f64::from(ratio) / f64::from(ratio + 1);
                surprise.note(due, sums[0] / (sums[0] + sums[1]), contest.slice_count());
                aegis_points.push((f64::from(ratio), sums[0] / sums[1]));
                aegis.merge(Cell::Values(vec![sums[0] / sums[1]]));
            }
        }
        // Nothing is left to chance there.
        if let Some(loops) = arena.on_linux(&pair(ratio, SLICE_MS, windows, 1))? {
            let sums = totals(&loops);
            linux_points.push((f64::from(ratio), sums[0] / sums[1]));
            linux = Cell::Values(vec![sums[0] / sums[1]]);
        }
        due.push((f64::from(ratio), f64::from(ratio)));
        published_points.extend(published.map(|value| (f64::from(ratio), value)));
        found.rows.push(Outcome { due: ratio.into(), aegis, linux, published }.row(name));
    }
    found.doubts.extend(surprise.doubt("figure 4"));
    if !due.is_empty() {
        found.figures.push(Figure {
            name: "fig04".into(),
            title: "Figure 4: two that compute, and the ratio of what they got by the ratio of their tickets; slices \
                    of 100 ms, 60 s each (20:1 three minutes)"
                .into(),
            axes: ["tickets, to 1".into(), "loops, to 1".into()],
            is_doubling: false,
            series: [
                series("due", true, due),
                series("Aegis", false, aegis_points),
                series("Linux", false, linux_points),
                series("paper, where it gives a number", false, published_points),
            ]
            .into_iter()
            .flatten()
            .collect(),
        });
    }
    Ok(found)
}

/// Figure 5.
pub(super) fn over_time(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    for (name, slice_ms, window_ms) in SPEEDS {
        if !filter.finds(name) {
            continue;
        }
        let contest = pair(2, slice_ms, (arena.scaled(WINDOW_COUNT), window_ms), 1);
        let at_s = |window: usize| (window + 1) as f64 * f64::from(window_ms) / 1000.0;
        let mut series = Vec::new();
        let mut cells = [Cell::NotAsked, Cell::NotAsked];
        let systems = ["Aegis", "Linux"].into_iter().zip(arena.on_both(&contest)?);
        for ((system, loops), cell) in systems.zip(&mut cells) {
            let Some(loops) = loops else { continue };
            let ratios = loops[0].iter().zip(&loops[1]).map(|(a, b)| *a as f64 / *b as f64);
            *cell = Cell::Values(ratios.collect());
            for (windows, contestant) in loops.iter().zip(&contest.contestants) {
                let rate = |count: &u64| *count as f64 * 1000.0 / f64::from(window_ms);
                series.push(Series {
                    title: format!("{system}, {} tickets", contestant.tickets),
                    is_line: true,
                    points: windows.iter().enumerate().map(|(window, count)| (at_s(window), rate(count))).collect(),
                });
            }
        }
        let [aegis, linux] = cells;
        found.rows.push(Outcome { due: 2.0, aegis, linux, published: None }.row(name.into()));
        found.figures.push(Figure {
            name: name.into(),
            title: format!(
                "Figure 5: 2:1 over time, windows of {} s, slices of {slice_ms} ms",
                f64::from(window_ms) / 1000.0
            ),
            axes: ["s of guest time".into(), "loops per s".into()],
            is_doubling: false,
            series,
        });
    }
    Ok(found)
}

/// How far results lie from what binomial chance makes likely.
#[derive(Debug, Default)]
pub(super) struct Surprise {
    squares: f64,
    count: u32,
}

impl Surprise {
    /// A run in which somebody was due this share of so many slices and got that share.
    pub(super) fn note(&mut self, due: f64, got: f64, slice_count: f64) {
        let variance = due * (1.0 - due) / slice_count;
        self.squares += (got - due).powi(2) / variance;
        self.count += 1;
    }

    /// What chance does less than once in a thousand times: the quantile of chi-square as Wilson and Hilferty
    /// approximate it.
    pub(super) fn doubt(&self, what: &str) -> Option<String> {
        let count = f64::from(self.count.max(1));
        let limit = count * (1.0 - 2.0 / (9.0 * count) + 3.09 * (2.0 / (9.0 * count)).sqrt()).powi(3);
        // What was never measured is no number, and is doubted, too.
        let is_doubted = self.squares.is_nan() || self.squares > limit;
        let (squares, count) = (self.squares, self.count);
        is_doubted.then(|| format!("{what}: chi-square {squares:.1} of {count} shares, limit {limit:.1}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Surprise;

    #[test]
    fn chance_is_believed_and_bias_is_not() {
        // 600 slices: a standard deviation of a half is 0.0204.
        let run = |shares: &[f64]| {
            let mut surprise = Surprise::default();
            shares.iter().for_each(|got| surprise.note(0.5, *got, 600.0));
            surprise.doubt("x")
        };
        assert_eq!(run(&[0.5, 0.52, 0.47, 0.53, 0.485]), None);
        assert!(run(&[0.55, 0.55, 0.55, 0.55]).is_some());
        assert_eq!(run(&[]), None);
    }
}
