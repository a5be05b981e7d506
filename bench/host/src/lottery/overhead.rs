//! Section 5.6: what sharing a processor costs the programs that share it.
//!
//! The paper compares iterations of three and of eight tasks under its lottery with the same under the system's own
//! scheduler. Here the measure is one that runs alone: what all of several did together, beside what it did in the same
//! time. And threads within a pod are compared as in the paper: with nice 0 they have turns in rounds, with nice 1, all
//! of them, the same turns by lot (`bench/lottery/spinners.c`); and so are a server and its clients (`server.c`).

use super::super::failure::Failure;
use super::super::filter::RowFilter;
use super::super::result::Cell;
use super::contest::{Arena, Contest, Contestant, totals};
use super::one_machine::Play;
use super::outcome::{Found, Outcome};

/// Tasks, and the per cent that the paper lost.
const COUNTS: [(u32, f64); 2] = [(3, 2.7), (8, 0.8)];
const DURATION_S: u32 = 200;
/// Queries of each of the server's clients, and the per cent that the paper lost: 1135.5 s instead of 1155.5.
const QUERY_COUNT: u32 = 20;
const SERVER_PUBLISHED: f64 = -1.7;
/// Slices: the paper's and Aegis's.
const SLICES_MS: [u8; 2] = [100, 10];

fn contest(arena: &Arena<'_>, count: u32, slice_ms: u8) -> Contest {
    let one = |number| Contestant::spinning(&format!("t{number}"), 100);
    let contestants = (0..count).map(one).collect();
    Contest { contestants, slice_ms, window_count: arena.scaled(DURATION_S), window_ms: 1000, seed: 1 }
}

/// An experiment within a pod that is run with one nice value and with another.
struct Pair {
    row: String,
    /// Its words with a nice value.
    words: Box<dyn Fn(u32) -> Vec<String>>,
    /// Whether its number is a time, or else what was done in a time.
    is_time: bool,
    published: f64,
}

fn pairs(arena: &Arena<'_>) -> Vec<Pair> {
    let duration_s = arena.scaled(DURATION_S).to_string();
    let threads = |(count, published): (u32, f64)| {
        let duration_s = duration_s.clone();
        Pair {
            row: format!("overhead_lots_to_rounds_{count}_threads"),
            words: Box::new(move |nice| {
                vec!["spinners".into(), count.to_string(), nice.to_string(), duration_s.clone()]
            }),
            is_time: false,
            published,
        }
    };
    let query_count = arena.scaled(QUERY_COUNT).to_string();
    let server = Pair {
        row: "overhead_lots_to_rounds_server".into(),
        words: Box::new(move |nice| vec!["server".into(), nice.to_string(), query_count.clone()]),
        is_time: true,
        published: SERVER_PUBLISHED,
    };
    COUNTS.into_iter().map(threads).chain([server]).collect()
}

/// What is lost by lots, beside rounds.
fn by_lot(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let mut found = Found::default();
    for pair in pairs(arena).into_iter().filter(|pair| filter.finds(&pair.row)) {
        let files = arena.root(&[], &[])?;
        let number = |nice: u32| -> Result<[Option<f64>; 2], Failure> {
            let play = Play { files: &files, words: (pair.words)(nice), names: &["all"], count: 1, seed: 1 };
            Ok(arena.within_both(&play)?.map(|loops| loops.map(|it| totals(&it).iter().sum())))
        };
        let [rounds, lots] = [number(0)?, number(1)?];
        let lost = |system: usize| {
            let ratio = lots[system]? / rounds[system]?;
            Some(if pair.is_time { ratio - 1.0 } else { 1.0 - ratio } * 100.0)
        };
        let [aegis, linux] = [0, 1].map(|system| Cell::of(lost(system)));
        found.rows.push(Outcome { due: 0.0, aegis, linux, published: Some(pair.published) }.row(pair.row));
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
