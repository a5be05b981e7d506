//! Whether a pod gets more than its tickets say by what it does, and whether the others keep their ratio.
//!
//! Three compete with tickets 3:2:1, and the first one tries something. What it got is what the others did not, by
//! their loops beside those of a contest in which all three only compute.

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::Cell;
use super::contest::{Arena, Contest, Contestant, Loops, totals};
use super::outcome::{Found, Outcome};

/// What is tried. The first one is what the others are compared with.
const KINDS: [&str; 6] = ["spin", "forks", "threads", "yields", "calls", "sleeps"];
const DURATION_S: u32 = 60;
const SLICE_MS: u8 = 10;
const SHARES: [u32; 3] = [300, 200, 100];
/// Standard deviations beyond which a gain is not chance: once in a thousand suites.
const DEVIATIONS_MAX: f64 = 3.6;

fn contest(arena: &Arena<'_>, kind: &'static str) -> Contest {
    let [a, b, c] = SHARES;
    Contest {
        contestants: vec![Contestant::new("a", a, kind), Contestant::spinning("b", b), Contestant::spinning("c", c)],
        slice_ms: SLICE_MS,
        window_count: arena.scaled(DURATION_S),
        window_ms: 1000,
        seed: 1,
    }
}

/// Runs each of them.
pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    let rows = |kind: &str| [format!("gain_{kind}"), format!("rest_{kind}")];
    if !KINDS.iter().flat_map(|kind| rows(kind)).any(|name| filter.finds(&name)) {
        return Ok(found);
    }
    let plain = arena.on_both(&contest(arena, KINDS[0]))?;
    let wholes = plain.each_ref().map(|loops| loops.as_ref().map(|it| totals(it).iter().sum::<f64>()));
    for kind in KINDS {
        let names = rows(kind);
        if !names.iter().any(|name| filter.finds(name)) {
            continue;
        }
        let contest = contest(arena, kind);
        let loops = if kind == KINDS[0] { plain.clone() } else { arena.on_both(&contest)? };
        let [mut gains, mut rests] = [const { [Cell::NotAsked, Cell::NotAsked] }; 2];
        for (system, (loops, whole)) in loops.iter().zip(wholes).enumerate() {
            let (Some(loops), Some(whole)) = (loops, whole) else { continue };
            let got = Got::of(loops, whole);
            (gains[system], rests[system]) = (Cell::of(Some(got.gain)), Cell::of(Some(got.rest)));
            let deviations = got.gain_deviations(&contest);
            if system == 0 && (deviations.is_nan() || deviations > DEVIATIONS_MAX) {
                found.doubts.push(format!("{}: {:.3} of what it is due", names[0], got.gain));
            }
        }
        let [gain_name, rest_name] = names;
        for (name, due, [aegis, linux]) in [(gain_name, 1.0, gains), (rest_name, 2.0, rests)] {
            found.rows.push(Outcome { due, aegis, linux, published: None }.row(name));
        }
    }
    Ok(found)
}

struct Got {
    /// The first one's part of the processor, by what it is due.
    gain: f64,
    /// The ratio of the second to the third.
    rest: f64,
}

impl Got {
    fn of(loops: &Loops, whole: f64) -> Self {
        let sums = totals(loops);
        let due = f64::from(SHARES[0]) / f64::from(SHARES.iter().sum::<u32>());
        Self { gain: (1.0 - (sums[1] + sums[2]) / whole) / due, rest: sums[1] / sums[2] }
    }

    /// How unlikely the gain is, in standard deviations.
    fn gain_deviations(&self, contest: &Contest) -> f64 {
        let due = f64::from(SHARES[0]) / f64::from(SHARES.iter().sum::<u32>());
        (self.gain - 1.0) * due / (due * (1.0 - due) / contest.slice_count()).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::Got;

    #[test]
    fn what_the_others_lost_was_gained() {
        let got = Got::of(&vec![vec![1], vec![100], vec![50]], 300.0);
        assert_eq!((got.gain, got.rest), (1.0, 2.0));
        let got = Got::of(&vec![vec![1], vec![60], vec![60]], 300.0);
        assert!((got.gain - 1.2).abs() < 1e-9 && got.rest == 1.0);
    }
}
