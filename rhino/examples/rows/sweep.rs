//! The RVM benchmark over sizes of the database, and transactions that store to all of it.
//!
//! - `rvm`: three blocks of 128 bytes are read and changed, one anywhere and two in a narrow part, and 64 bytes are
//!   appended.
//! - `whole`: 128 bytes of every page are changed. This is where a copy of each page that is stored to costs as much
//!   memory again.
#![forbid(unsafe_code)]

use std::path::Path;

use rhino::fake::Draws;
use rhino::linux::{Database, Mapping};
use rhino::{Counters, Detector, Durability, Error, PAGE_BYTES, Restore};

use crate::meter::{Meter, Name, say, say_none, start, stop};
use crate::place::{LOG_BYTES, Place, load, store};

/// Frames that the database may have in memory.
const FRAME_COUNT: usize = 1024;
/// The same for `whole`, whose transactions are as long as the database.
const WHOLE_FRAME_COUNT: usize = 256;
const BLOCK_BYTES: usize = 128;
const APPENDED_BYTES: usize = 64;
/// Blocks of the narrow part.
const NARROW_COUNT: usize = 64;
/// Transactions of `whole`, the first of which is not measured.
const WHOLE_COUNT: usize = 4;

/// A detector and its name.
pub(crate) type Named = (&'static str, Detector);

fn change(database: &Database, mapping: &Mapping, draws: &mut Draws, number: usize) -> Result<(), Error> {
    let block_count = mapping.length() / BLOCK_BYTES * 7 / 8;
    let tail = block_count * BLOCK_BYTES;
    let transaction = database.begin(Restore::Yes)?;
    let blocks = [draws.below(block_count), draws.below(NARROW_COUNT), draws.below(NARROW_COUNT)];
    for offset in blocks.map(|block| block * BLOCK_BYTES) {
        transaction.set_range(mapping, offset as u64, BLOCK_BYTES as u64)?;
        store(mapping, offset, &[load(mapping, offset).wrapping_add(1); BLOCK_BYTES]);
    }
    let offset = tail + number * APPENDED_BYTES % (mapping.length() - tail);
    transaction.set_range(mapping, offset as u64, APPENDED_BYTES as u64)?;
    store(mapping, offset, &[7; APPENDED_BYTES]);
    transaction.commit(Durability::Flush)
}

fn change_all(database: &Database, mapping: &Mapping, number: usize) -> Result<(), Error> {
    let transaction = database.begin(Restore::Yes)?;
    for offset in (0..mapping.length()).step_by(PAGE_BYTES) {
        transaction.set_range(mapping, offset as u64, BLOCK_BYTES as u64)?;
        store(mapping, offset, &[number as u8 + 1; BLOCK_BYTES]);
    }
    transaction.commit(Durability::Flush)
}

/// Measures `count` of `body`, those from `first` on, and says what they came to, `parts` operations each.
fn measure(
    meter: &Meter,
    name: Name<'_>,
    database: &Database,
    (first, count, parts): (usize, usize, usize),
    mut body: impl FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let result = (0..first).try_for_each(&mut body).and_then(|()| {
        let before = database.counters();
        let seconds = meter.once(|| {
            start();
            let result = (first..count).try_for_each(&mut body);
            stop();
            result
        })?;
        Ok((before, seconds))
    });
    match result {
        Ok((before, seconds)) => {
            let after = database.counters();
            let grown = |of: fn(&Counters) -> u64| of(&after) - of(&before);
            let extra = [
                ("fetches", grown(|counters| counters.fetch_count)),
                ("evictions", grown(|counters| counters.evict_count)),
                ("steals", grown(|counters| counters.steal_count)),
                ("logged_bytes", grown(|counters| counters.payload_bytes)),
            ];
            say(name, (count - first) * parts, seconds, &extra);
        }
        Err(error) => say_none(name, error),
    }
    Ok(())
}

/// The RVM benchmark. Counted, all but the last tenth only fill the memory.
pub(crate) fn rvm(
    meter: &mut Meter,
    path: &Path,
    count: usize,
    detectors: &[Named],
    percents: &[usize],
) -> Result<(), Error> {
    let most = FRAME_COUNT * percents.iter().max().unwrap_or(&0) / 100;
    let place = Place::new(path, most)?;
    let first = if meter.is_counted { count - count / 10 } else { 0 };
    for percent in percents {
        for (series, detector) in detectors {
            let database = place.open(FRAME_COUNT, LOG_BYTES)?;
            let name = Name { row: "rvm", series, param: &percent.to_string() };
            let mapping = match database.map(0, FRAME_COUNT * percent / 100, *detector, 0) {
                Ok(mapping) => mapping,
                Err(error) => {
                    say_none(name, error);
                    continue;
                }
            };
            let mut draws = Draws::new(*percent as u64);
            measure(meter, name, &database, (first, count, 1), |number| {
                change(&database, &mapping, &mut draws, number)
            })?;
            drop(mapping);
            database.checkpoint()?;
        }
    }
    Ok(())
}

/// Transactions that store to every page; an operation is a page.
pub(crate) fn whole(meter: &mut Meter, path: &Path, detectors: &[Named], percents: &[usize]) -> Result<(), Error> {
    let most = WHOLE_FRAME_COUNT * percents.iter().max().unwrap_or(&0) / 100;
    let place = Place::new(path, most)?;
    for percent in percents {
        let page_count = WHOLE_FRAME_COUNT * percent / 100;
        for (series, detector) in detectors {
            let database = place.open(WHOLE_FRAME_COUNT, LOG_BYTES)?;
            let name = Name { row: "whole", series, param: &percent.to_string() };
            let mapping = match database.map(0, page_count, *detector, 0) {
                Ok(mapping) => mapping,
                Err(error) => {
                    say_none(name, error);
                    continue;
                }
            };
            measure(meter, name, &database, (1, WHOLE_COUNT, page_count), |number| {
                change_all(&database, &mapping, number)
            })?;
            drop(mapping);
            database.checkpoint()?;
        }
    }
    Ok(())
}
