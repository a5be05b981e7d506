//! Section 5.6: what sharing a processor costs those who share it.
//!
//! The paper compares iterations of three and of eight tasks under its lottery with the same under the system's own
//! scheduler. Here the measure is one that runs alone: what all of several did together, beside what it did in the same
//! time. And threads within a pod are compared as in the paper: with nice 0 they have turns in rounds, with nice 1, all
//! of them, the same turns by lot (`bench/lottery/spinners.c`).

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::Cell;
use super::contest::{Arena, Contest, Contestant, totals};
use super::within::Play;
use super::{Found, Outcome};

/// Tasks, and the per cent that the paper lost.
const COUNTS: [(u32, f64); 2] = [(3, 2.7), (8, 0.8)];
const DURATION_S: u32 = 200;
/// Slices: the paper's and Aegis's.
const SLICES_MS: [u8; 2] = [100, 10];

fn contest(arena: &Arena<'_>, count: u32, slice_ms: u8) -> Contest {
    let one = |number| Contestant::spinning(&format!("t{number}"), 100);
    let contestants = (0..count).map(one).collect();
    Contest { contestants, slice_ms, window_count: arena.scaled(DURATION_S), window_ms: 1000, seed: 1 }
}

/// What threads lose by lots, beside rounds.
fn by_lot(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    for (count, published) in COUNTS {
        let name = format!("overhead_lots_to_rounds_{count}_threads");
        if !filter.finds(&name) {
            continue;
        }
        let files = arena.root(&[], &[])?;
        let sum = |nice: u32| -> Result<[Option<f64>; 2], Failure> {
            let words = [count, nice, arena.scaled(DURATION_S)].map(|word| word.to_string());
            let words = ["spinners".into()].into_iter().chain(words).collect();
            let loops = arena.within_both(&Play { files: &files, words, names: &["all"], count: 1, seed: 1 })?;
            Ok(loops.map(|loops| loops.map(|it| totals(&it).iter().sum())))
        };
        let [[aegis, linux], lots] = [sum(0)?, sum(1)?];
        let lost = |rounds: Option<f64>, lots: Option<f64>| Some((1.0 - lots? / rounds?) * 100.0);
        let [aegis, linux] = [lost(aegis, lots[0]), lost(linux, lots[1])].map(Cell::of);
        found.rows.push(Outcome { due: 0.0, aegis, linux, published: Some(published) }.row(name));
    }
    Ok(found)
}

/// Runs them.
pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    for slice_ms in SLICES_MS {
        let name = |count: u32| format!("overhead_{count}_tasks_{slice_ms}_ms");
        if !COUNTS.iter().any(|(count, _)| filter.finds(&name(*count))) {
            continue;
        }
        let whole = |count| -> Result<[Option<f64>; 2], Failure> {
            let loops = arena.on_both(&contest(arena, count, slice_ms))?;
            Ok(loops.map(|loops| loops.map(|it| totals(&it).iter().sum())))
        };
        let alone = whole(1)?;
        for (count, published) in COUNTS {
            if !filter.finds(&name(count)) {
                continue;
            }
            let mut cells = [Cell::NotAsked, Cell::NotAsked];
            for ((cell, together), alone) in cells.iter_mut().zip(whole(count)?).zip(alone) {
                if let (Some(together), Some(alone)) = (together, alone) {
                    *cell = Cell::Values(vec![(1.0 - together / alone) * 100.0]);
                }
            }
            let [aegis, linux] = cells;
            let published = (slice_ms == 100).then_some(published);
            found.rows.push(Outcome { due: 0.0, aegis, linux, published }.row(name(count)));
        }
    }
    found.add(by_lot(arena, filter)?);
    Ok(found)
}
