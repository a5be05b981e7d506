//! What a draw costs among few and among many, in instructions, beside stride scheduling and taking turns.
//!
//! The schedulers are the crate that the kernel and exos use, compiled into this tool; so this tool runs itself in a
//! machine that counts instructions, and reads the clock there. Each operation is made so often that reading the clock
//! does not matter.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use aegis_lottery::random::Keyed;
use aegis_lottery::{COMPENSATION_ONE, CurrencyId, Lottery, Policy, RoundRobin, Stride, Used};

use super::super::failure::{Failure, last_line};
use super::super::filter::RowFilter;
use super::super::guest::{Guest, Limits};
use super::super::progress;
use super::super::result::{Cell, Row};
use super::super::system::aegis_line;
use super::contest::Arena;
use super::outcome::Found;

/// The hidden verb of this tool that measures.
pub const VERB: &str = "measure-draws";
/// Clients that are ready.
const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// Room for the most clients, and for the base currency.
const CLIENT_COUNT_MAX: usize = 10_000;
/// Operations of each measurement.
const OPERATIONS: u32 = 20_000;
/// Amounts of tickets, in turn.
const AMOUNTS: [u64; 7] = [100, 200, 300, 500, 800, 1300, 2100];
const MEMORY_MIB: u32 = 64;
const LIMITS: Limits = Limits { silence: Duration::from_secs(300), total: Duration::from_secs(600) };

type Table = Lottery<{ CLIENT_COUNT_MAX + 1 }, CLIENT_COUNT_MAX>;

/// The names of the operations, in the order of what is measured for a number of clients.
const OPERATION_NAMES: [&str; 4] = ["draw", "block_and_wake", "stride", "turn"];

/// Measures in this process, and prints a line `NAME CLIENTS NANOSECONDS` for each; false if the tables are full.
pub fn measure() -> bool {
    let is_measured = COUNTS.iter().all(|count| measure_among(*count).is_some());
    turns::<10>();
    turns::<100>();
    turns::<1_000>();
    turns::<10_000>();
    is_measured
}

/// A ring holds exactly its clients: those that are not ready would be passed over one by one.
fn turns<const COUNT: usize>() {
    let mut random = Keyed::new([1, 2]);
    let mut turns = Box::new(RoundRobin::<COUNT>::new());
    (0..COUNT).for_each(|number| turns.set_ready(number, true));
    say("turn", COUNT, |_| {
        black_box(turns.choose(&mut random));
    });
}

fn measure_among(count: usize) -> Option<()> {
    let mut random = Keyed::new([1, 2]);
    let mut lottery = Box::new(Table::new());
    let mut clients = Vec::new();
    for number in 0..count {
        let client = lottery.create_client(1000, number as u32).ok()?;
        let ticket = lottery.issue(CurrencyId::BASE, AMOUNTS[number % AMOUNTS.len()]).ok()?;
        lottery.fund(ticket, client).ok()?;
        lottery.set_client(client, true, COMPENSATION_ONE).ok()?;
        clients.push(client);
    }
    let used = Used { used_ns: 10_000_000, slice_ns: 10_000_000 };
    say("draw", count, |_| {
        let client = lottery.choose(&mut random);
        client.into_iter().for_each(|client| lottery.charge(client, used));
    });
    say("block_and_wake", count, |index| {
        let client = clients[(index as usize * 7919) % count];
        lottery.set_ready(client, false);
        lottery.set_ready(client, true);
    });
    let mut stride = Box::new(Stride::<CLIENT_COUNT_MAX>::new());
    for number in 0..count {
        stride.set_tickets(number, AMOUNTS[number % AMOUNTS.len()] as u32).ok()?;
        stride.set_ready(number, true);
    }
    say("stride", count, |_| {
        let client = stride.choose(&mut random);
        client.into_iter().for_each(|client| stride.charge(client, used));
    });
    Some(())
}

/// Makes an operation, and prints how long one took.
fn say(name: &str, count: usize, mut operation: impl FnMut(u32)) {
    let start = Instant::now();
    for index in 0..OPERATIONS {
        operation(index);
    }
    let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS);
    println!("{name} {count} {nanoseconds:.1}");
}

fn row_name(name: &str, count: usize) -> String {
    format!("{name}_among_{count}")
}

/// Has it measured in a machine.
pub(super) fn run(arena: &Arena<'_>, filter: &RowFilter) -> Result<Found, Failure> {
    let names = || OPERATION_NAMES.iter().flat_map(|name| COUNTS.map(|count| row_name(name, count)));
    if !arena.has_aegis() || !names().any(|name| filter.finds(&name)) {
        return Ok(Found::default());
    }
    progress::say("lottery: draws");
    let tool: &Path = arena.tool();
    let program = vec![tool.into(), VERB.into()];
    let line = aegis_line(tool, MEMORY_MIB, &["-q", "--icount"], program);
    let (lines, errors) = Guest::start(&line, LIMITS)?.lines();
    let mut found = Found::default();
    for name in names().filter(|name| filter.finds(name)) {
        let value = lines.iter().find_map(|line| figure(line, &name));
        let value = value.ok_or_else(|| Failure::Broken("Aegis", format!("no {name}; {}", last_line(&errors))))?;
        let cells = vec![Cell::NotAsked, Cell::Values(vec![value]), Cell::NotAsked, Cell::NotAsked];
        found.rows.push(Row { name, cells, beside: None });
    }
    Ok(found)
}

/// The figure of a line, if it is this row's.
fn figure(line: &str, row: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    let name = row_name(words.next()?, words.next()?.parse().ok()?);
    let value = words.next()?.parse().ok()?;
    (name == row).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{figure, measure_among};

    #[test]
    fn tables_have_room_for_the_most() {
        // In a build without optimisation the tables are made on the stack first.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(|| measure_among(10_000).is_some());
        assert!(thread.unwrap().join().unwrap());
    }

    #[test]
    fn lines_name_their_rows() {
        assert_eq!(figure("draw 10 312.5", "draw_among_10"), Some(312.5));
        assert_eq!(figure("draw 100 312.5", "draw_among_10"), None);
        assert_eq!(figure("aegis: x", "draw_among_10"), None);
    }
}
