//! The tables in recoverable memory: arrays of records, each from a page on.
#![allow(unsafe_code, reason = "records are plain memory")]

use std::path::Path;

use rhino::linux::{Database, FileCounts, Mapping};
use rhino::{Counters, Detector, Durability, Error, PAGE_BYTES, Restore};

use super::bank::{AUDIT_BYTES, Engine, RECORD_BYTES, Tables, Work, amount, change};
use super::place::Place;

/// How a transaction loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// By plain loads and stores, found by faults.
    Plain,
    /// By calls.
    Call,
}

const LOG_BYTES: u64 = 16 << 20;

pub(crate) struct Recoverable {
    // In the order in which they end.
    mapping: Mapping,
    database: Database,
    style: Style,
    tables: Tables,
    /// Where each table begins, and the audit trail behind them.
    starts: Vec<usize>,
    /// What there was when the clock started.
    before: (Counters, FileCounts),
    _place: Place,
}

fn text(error: Error) -> String {
    format!("{error:?}")
}

impl Recoverable {
    pub(crate) fn new(
        path: &Path,
        tables: &Tables,
        (detector, style): (Detector, Style),
        frame_count_max: usize,
    ) -> Result<Self, Error> {
        let mut starts = Vec::new();
        let mut end = 0;
        let lengths = tables.record_counts.iter().map(|count| count * RECORD_BYTES);
        for length in lengths.chain([tables.audit_count * AUDIT_BYTES]) {
            starts.push(end);
            end = (end + length).next_multiple_of(PAGE_BYTES);
        }
        let page_count = end / PAGE_BYTES;
        let place = Place::new(path, page_count)?;
        let database = place.open(frame_count_max, LOG_BYTES)?;
        let mapping = database.map(0, page_count, detector, 0)?;
        let (tables, before) = (tables.clone(), (database.counters(), database.log_counts()));
        Ok(Self { mapping, database, style, tables, starts, before, _place: place })
    }

    fn slice<'a>(&self, offset: usize, length: usize) -> &'a mut [u8] {
        assert!(offset + length <= self.mapping.length());
        // SAFETY: inside the mapping, which is the transaction's alone; one slice is alive at a time.
        unsafe { core::slice::from_raw_parts_mut(self.mapping.address().add(offset), length) }
    }

    fn work(&self, work: &Work) -> Result<(), Error> {
        let transaction = self.database.begin(Restore::Yes)?;
        let mut record = [0; RECORD_BYTES];
        for &part in &work.changes {
            let offset = self.starts[part.table] + part.record * RECORD_BYTES;
            if self.style == Style::Call {
                transaction.read(&self.mapping, offset as u64, &mut record)?;
                change(&mut record, part, work.number);
                transaction.write(&self.mapping, offset as u64, &record)?;
            } else {
                transaction.set_range(&self.mapping, offset as u64, RECORD_BYTES as u64)?;
                change(self.slice(offset, RECORD_BYTES), part, work.number);
            }
        }
        let place = work.number % self.tables.audit_count;
        let offset = self.starts[self.tables.record_counts.len()] + place * AUDIT_BYTES;
        if self.style == Style::Call {
            transaction.write(&self.mapping, offset as u64, &work.audit())?;
        } else {
            transaction.set_range(&self.mapping, offset as u64, AUDIT_BYTES as u64)?;
            self.slice(offset, AUDIT_BYTES).copy_from_slice(&work.audit());
        }
        transaction.commit(Durability::Flush)
    }

    fn add(&self) -> Result<(Vec<i64>, i64), Error> {
        let transaction = self.database.begin(Restore::Yes)?;
        let sum = |start: usize, count: usize, bytes: usize, at: usize| -> i64 {
            (0..count).map(|index| amount(&self.slice(start + index * bytes, bytes)[at..])).sum()
        };
        let tables = self.tables.record_counts.iter().zip(&self.starts);
        let sums = tables.map(|(&count, &start)| sum(start, count, RECORD_BYTES, 0)).collect();
        let start = self.starts[self.tables.record_counts.len()];
        let audit = sum(start, self.tables.audit_count, AUDIT_BYTES, 8);
        transaction.commit(Durability::Flush)?;
        Ok((sums, audit))
    }
}

impl Engine for Recoverable {
    fn transact(&mut self, work: &Work) -> Result<(), String> {
        self.work(work).map_err(text)
    }

    fn sums(&mut self) -> Result<(Vec<i64>, i64), String> {
        self.add().map_err(text)
    }

    fn begin_count(&mut self) {
        self.before = (self.database.counters(), self.database.log_counts());
    }

    fn extra(&self) -> Vec<(&'static str, f64)> {
        let (counters, log) = (self.database.counters(), self.database.log_counts());
        let (before, log_before) = self.before;
        let commits = (counters.commit_count - before.commit_count).max(1) as f64;
        vec![
            ("log_writes_per_commit", (log.write_count - log_before.write_count) as f64 / commits),
            ("log_flushes_per_commit", (log.flush_count - log_before.flush_count) as f64 / commits),
            ("log_bytes_per_commit", (log.written_bytes - log_before.written_bytes) as f64 / commits),
            ("steals", (counters.steal_count - before.steal_count) as f64),
            ("fetches", (counters.fetch_count - before.fetch_count) as f64),
            ("truncations", (counters.truncation_count - before.truncation_count) as f64),
        ]
    }
}
