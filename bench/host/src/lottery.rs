//! Suite `lottery`: the experiments of the paper on lottery scheduling (Waldspurger and Weihl, OSDI 1994, section 5) as
//! commands, each with what the tickets say, what came out, and what was published.
//!
//! On Aegis each contestant is a pod (`aegis up`), so that the kernel's lottery decides; on Linux it is a control group
//! with its tickets as `cpu.weight`. Where they share memory, a lock, or an administrator they are processes or threads
//! of one pod, and exos's lottery decides. Machines have one processor and count instructions, 32 ns for each: about
//! the speed of the paper's, so that its slices and durations mean what they meant, a run repeats to the digit, and
//! three minutes of the guest pass in twenty seconds. Chance differs between runs by `--seed`.
//!
//! `contest` runs a machine of pods, `one_machine` one of a single pod. `fairness` has figures 4 and 5, `inflation`
//! figure 6, `clients` 7, `decoders` 8, `insulation` 9, `locks` 11, `advantage` what contestants try in order to get
//! more, `overhead` section 5.6, `draws` what a draw costs, and `interrupt` how long a woken waiter waits. Whether a
//! lottery is fair is a matter of statistics, so a result is doubted only where chance alone would not make it once in
//! a thousand such suites.

mod advantage;
mod clients;
mod contest;
mod decoders;
mod draws;
mod fairness;
mod inflation;
mod insulation;
mod interrupt;
mod locks;
mod one_machine;
mod outcome;
mod overhead;

use super::compile;
use super::failure::Failure;
use super::filter::RowFilter;
use super::options::BenchOptions;
use super::result::{Column, Measured, Table};
use super::system::Machines;
use contest::Arena;
pub use draws::{VERB as DRAWS_VERB, measure as measure_draws};
use outcome::Found;

/// Runs the experiments that are asked for; `None` if none is.
pub(super) fn run(
    options: &BenchOptions,
    machines: &Machines,
    filter: &RowFilter,
) -> Result<Option<Measured>, Failure> {
    let arena = Arena::new(machines, compile::contest(&machines.cache)?, options.quick)?;
    let mut ratios = Found::default();
    ratios.add(fairness::ratios(&arena, filter)?);
    ratios.add(fairness::over_time(&arena, filter)?);
    ratios.add(inflation::run(&arena, filter)?);
    ratios.add(clients::run(&arena, filter)?);
    ratios.add(decoders::run(&arena, filter)?);
    ratios.add(insulation::run(&arena, filter)?);
    ratios.add(locks::run(&arena, filter)?);
    ratios.add(advantage::run(&arena, filter)?);
    let losses = overhead::run(&arena, filter)?;
    let draws = draws::run(&arena, filter)?;
    let interrupts = interrupt::run(&arena, filter)?;
    let tables = [
        ("ratio", ratios.rows),
        ("% lost", losses.rows),
        ("instructions", draws.rows),
        ("ns of guest time", interrupts.rows),
    ];
    let tables = tables.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(unit, rows)| Table {
        suite: "lottery".into(),
        unit: unit.into(),
        columns: columns(&arena),
        compared: None,
        rows,
    });
    let tables: Vec<Table> = tables.collect();
    let doubts = ratios.doubts.into_iter().chain(losses.doubts).chain(interrupts.doubts).collect();
    Ok((!tables.is_empty()).then_some(Measured { tables, figures: ratios.figures, doubts, ..Measured::default() }))
}

fn columns(arena: &Arena<'_>) -> Vec<Column> {
    let column = |key: &str, title: &str, command| Column { key: key.into(), title: title.into(), command };
    vec![
        column("due", "Due", "what the tickets say".into()),
        column("aegis", "Aegis", arena.aegis_command()),
        column("linux", "Linux", arena.linux_command()),
        column("published", "Paper", "Waldspurger and Weihl, OSDI 1994, section 5".into()),
    ]
}
