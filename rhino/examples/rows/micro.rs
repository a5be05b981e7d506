//! The eight rows of the paper's table, and a commit that does not wait for the disk.
//!
//! For each row the whole (`total`) and what is trap in it. A fault's trap is the way from the touch to the handler
//! (`trap`); that of a call is the crossings that it makes: nothing else enters the system between.
#![forbid(unsafe_code)]

use std::hint;
use std::path::Path;

use rhino::linux::{Database, Mapping};
use rhino::{Detector, Durability, Error, PAGE_BYTES, Restore};

use crate::meter::{Meter, Name, start, stop};
use crate::place::{LOG_BYTES, Place, load, store};
use crate::trap;

/// Events of a round.
pub(crate) const BATCH: usize = 64;
const NULL_COUNT: usize = 1000;
/// Pages from one cold page to the next.
const DISTANCE_PAGES: usize = 32;
/// Calls of the system in a commit: pages are closed; and the record is written, and flushed.
const CALLS_READ_ONLY: u64 = 1;
const CALLS_LAZY: u64 = 2;
const CALLS_FLUSHED: u64 = 3;

fn total(row: &str) -> Name<'_> {
    Name { row, series: "diff", param: "total" }
}

/// A cheap system call. (The identifier of the parent: libraries keep their own in memory.)
fn null() {
    hint::black_box(std::os::unix::process::parent_id());
}

/// Where the event of a number touches: neighbours are not touched one after another, and far from each other, so that
/// nothing that is read ahead is of use.
fn place_of(number: usize, distance_pages: usize) -> usize {
    number * 37 % BATCH * distance_pages * PAGE_BYTES
}

fn touch(mapping: &Mapping, is_store: bool, distance_pages: usize) {
    for offset in (0..BATCH).map(|number| place_of(number, distance_pages)) {
        if is_store {
            store(mapping, offset, &[1]);
        } else {
            hint::black_box(load(mapping, offset));
        }
    }
}

/// One fault for each page, whose transaction is begun and ended outside of the window.
fn faults(database: &Database, mapping: &Mapping, is_store: bool, distance_pages: usize) -> Result<(), Error> {
    let transaction = database.begin(Restore::Yes)?;
    start();
    touch(mapping, is_store, distance_pages);
    stop();
    transaction.abort()
}

pub(crate) fn run(meter: &mut Meter, path: &Path) -> Result<(), Error> {
    let place = Place::new(path, BATCH * DISTANCE_PAGES)?;
    let database = place.open(usize::MAX, LOG_BYTES)?;
    meter.row(total("null"), NULL_COUNT, &[], || {
        start();
        (0..NULL_COUNT).for_each(|_| null());
        stop();
        Ok(())
    })?;
    let mapping = database.map(0, BATCH, Detector::Diff, 0)?;
    meter.row(total("begin"), BATCH, &[("calls", 0)], || {
        for _ in 0..BATCH {
            start();
            let transaction = database.begin(Restore::Yes)?;
            stop();
            transaction.commit(Durability::Flush)?;
        }
        Ok(())
    })?;
    commits(meter, &database, &mapping)?;
    for (row, is_store) in [("read_fault_warm", false), ("write_fault_warm", true)] {
        meter.row(total(row), BATCH, &[], || faults(&database, &mapping, is_store, 1))?;
        trap::row(meter, row, is_store, true)?;
    }
    drop(mapping);
    drop(database);
    cold(meter, &place)
}

fn commits(meter: &mut Meter, database: &Database, mapping: &Mapping) -> Result<(), Error> {
    meter.row(total("commit_read_only"), BATCH, &[("calls", CALLS_READ_ONLY)], || {
        for _ in 0..BATCH {
            let transaction = database.begin(Restore::Yes)?;
            hint::black_box(load(mapping, 0));
            start();
            transaction.commit(Durability::Flush)?;
            stop();
        }
        Ok(())
    })?;
    let mut value = 0_u64;
    let kinds =
        [("commit_8_bytes", Durability::Flush, CALLS_FLUSHED), ("commit_8_bytes_lazy", Durability::Lazy, CALLS_LAZY)];
    for (row, durability, calls) in kinds {
        meter.row(total(row), BATCH, &[("calls", calls)], || {
            // A truncation is no part of a commit.
            database.checkpoint()?;
            for _ in 0..BATCH {
                let transaction = database.begin(Restore::Yes)?;
                value += 1;
                store(mapping, 0, &value.to_le_bytes());
                start();
                transaction.commit(durability)?;
                stop();
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Faults whose pages are read from the disk.
fn cold(meter: &mut Meter, place: &Place) -> Result<(), Error> {
    for (row, is_store) in [("read_fault_cold", false), ("write_fault_cold", true)] {
        meter.row(total(row), BATCH, &[], || {
            // Nothing of it is in memory then.
            let database = place.open(usize::MAX, LOG_BYTES)?;
            let mapping = database.map(0, BATCH * DISTANCE_PAGES, Detector::Diff, 0)?;
            faults(&database, &mapping, is_store, DISTANCE_PAGES)
        })?;
        trap::row(meter, row, is_store, false)?;
    }
    Ok(())
}
