//! Figure 9: what is issued in a currency is felt in it alone.
//!
//! Two currencies with equal funding; A1 and A2 compete with 100 and 200 tickets of the one, B1 and B2 with as many of
//! the other. In the middle of the run B3 begins with 300 tickets more of theirs: B1 and B2 go on at half their pace,
//! and A1 and A2 do not notice. On Linux a currency is a control group around those of its contestants.

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::{Cell, Figure, Series};
use super::contest::{Arena, Contest, Contestant, Loops};
use super::fairness::Surprise;
use super::outcome::{Found, Outcome, series};

/// The paper's slice, and lotteries.
const SLICE_MS: u8 = 100;
const RUN_COUNT: u32 = 3;
/// Windows of a second before and after B3 begins.
const HALF_WINDOW_COUNT: u32 = 150;
/// Rows, what is due, and what was published.
const ROWS: [(&str, f64, Option<f64>); 7] = [
    ("fig09_a_to_b_before", 1.0, Some(1.01)),
    ("fig09_a_to_b_after", 1.0, Some(1.00)),
    ("fig09_a1_after", 1.0, None),
    ("fig09_a2_after", 1.0, None),
    ("fig09_b1_after", 0.5, None),
    ("fig09_b2_after", 0.5, None),
    ("fig09_b3_to_b1", 3.0, None),
];

fn contest(half_window_count: u32, seed: u64) -> Contest {
    let spinning = Contestant::spinning;
    Contest {
        contestants: vec![
            spinning("a1", 100).within("a"),
            spinning("a2", 200).within("a"),
            spinning("b1", 100).within("b"),
            spinning("b2", 200).within("b"),
            Contestant::new("b3", 300, "late").within("b"),
        ],
        slice_ms: SLICE_MS,
        window_count: 2 * half_window_count,
        window_ms: 1000,
        seed,
    }
}

pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    if !ROWS.iter().any(|(name, ..)| filter.finds(name)) {
        return Ok(found);
    }
    let mut cells = [const { [Cell::NotAsked, Cell::NotAsked] }; ROWS.len()];
    let mut surprise = Surprise::default();
    let half = arena.scaled(HALF_WINDOW_COUNT);
    for run in 0..arena.scaled(RUN_COUNT) {
        let contest = contest(half, u64::from(900 + run));
        if let Some(loops) = arena.on_aegis(&contest)? {
            let got = Got::of(&loops);
            got.note(&mut surprise, contest.slice_count() / 2.0);
            for (cells, value) in cells.iter_mut().zip(got.values()) {
                cells[0].merge(Cell::Values(vec![value]));
            }
            if run == 0 {
                found.figures.push(figure("fig09", "Aegis", &contest, &loops));
            }
        }
    }
    // Nothing is left to chance there.
    let contest = contest(half, 1);
    if let Some(loops) = arena.on_linux(&contest)? {
        for (cells, value) in cells.iter_mut().zip(Got::of(&loops).values()) {
            cells[1] = Cell::Values(vec![value]);
        }
        found.figures.push(figure("fig09_linux", "Linux", &contest, &loops));
    }
    for ((name, due, published), [aegis, linux]) in ROWS.into_iter().zip(cells) {
        if filter.finds(name) {
            found.rows.push(Outcome { due, aegis, linux, published }.row(name.into()));
        }
    }
    found.doubts.extend(surprise.doubt("figure 9"));
    Ok(found)
}

/// How far each came by when.
fn figure(name: &str, system: &str, contest: &Contest, loops: &Loops) -> Figure {
    let line = |(windows, it): (&Vec<u64>, &Contestant)| {
        let mut sum = 0;
        let points = windows.iter().enumerate().map(|(window, count)| {
            sum += count;
            ((window + 1) as f64, sum as f64)
        });
        let title = format!("{}, {}.{}", it.name.to_uppercase(), it.tickets, it.currency.unwrap_or_default());
        series(&title, true, points.collect())
    };
    let series: Vec<Series> = loops.iter().zip(&contest.contestants).filter_map(line).collect();
    Figure {
        name: name.into(),
        title: format!(
            "Figure 9 on {system}: currencies insulate. A and B have equal funding; after {} s B3 begins with 300.B, \
             and only B1 and B2 slow down",
            contest.window_count / 2
        ),
        axes: ["s of guest time".into(), "loops".into()],
        is_doubling: false,
        series,
    }
}

/// Loops of each before and after B3 began.
struct Got {
    before: Vec<f64>,
    after: Vec<f64>,
}

impl Got {
    fn of(loops: &Loops) -> Self {
        let half = loops.first().map_or(0, |windows| windows.len() / 2);
        let sums = |windows: fn(&[u64], usize) -> &[u64]| {
            loops.iter().map(|all| windows(all, half).iter().sum::<u64>() as f64).collect()
        };
        Self { before: sums(|all, half| &all[..half]), after: sums(|all, half| &all[half..]) }
    }

    /// In the order of [`ROWS`].
    fn values(&self) -> [f64; ROWS.len()] {
        let a_to_b = |sums: &[f64]| (sums[0] + sums[1]) / sums[2..].iter().sum::<f64>();
        let kept = |index: usize| self.after[index] / self.before[index];
        let b3_to_b1 = self.after[4] / self.after[2];
        [a_to_b(&self.before), a_to_b(&self.after), kept(0), kept(1), kept(2), kept(3), b3_to_b1]
    }

    /// Notes the divisions that were made by chance: of all between A and B, and of each among its own.
    fn note(&self, surprise: &mut Surprise, slice_count: f64) {
        for sums in [&self.before, &self.after] {
            let all: f64 = sums.iter().sum();
            let mut divide = |of: &[usize], due: f64, part: &[usize]| {
                let sum = |of: &[usize]| of.iter().map(|index| sums[*index]).sum::<f64>();
                surprise.note(due, sum(part) / sum(of), slice_count * sum(of) / all);
            };
            divide(&[0, 1, 2, 3, 4], 0.5, &[0, 1]);
            divide(&[0, 1], 1.0 / 3.0, &[0]);
            divide(&[2, 3], 1.0 / 3.0, &[2]);
        }
        let b: f64 = self.after[2..].iter().sum();
        surprise.note(0.5, self.after[4] / b, slice_count * b / self.after.iter().sum::<f64>());
    }
}

#[cfg(test)]
mod tests {
    use super::{Got, Surprise, contest};

    #[test]
    fn what_is_due_is_no_surprise_and_a_leak_is() {
        let due = vec![vec![100, 100], vec![200, 200], vec![100, 50], vec![200, 100], vec![0, 150]];
        let got = Got::of(&due);
        assert_eq!(got.values(), [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 3.0]);
        let doubt = |got: &Got| {
            let mut surprise = Surprise::default();
            got.note(&mut surprise, 1500.0);
            surprise.doubt("x")
        };
        assert_eq!(doubt(&got), None);
        // B3 takes from everybody, as without currencies.
        let leak = vec![vec![100, 67], vec![200, 133], vec![100, 67], vec![200, 133], vec![0, 200]];
        assert!(doubt(&Got::of(&leak)).is_some());
    }

    #[test]
    fn it_is_the_papers_setup() {
        let text = contest(150, 1).words();
        assert_eq!(text, "--init 300 1000 a1=100=spin=a a2=200=spin=a b1=100=spin=b b2=200=spin=b b3=300=late=b");
    }
}
