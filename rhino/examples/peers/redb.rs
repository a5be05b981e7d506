//! redb: copy-on-write trees, flushed by each commit.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::bank::{AUDIT_BYTES, Engine, RECORD_BYTES, Tables, Work, amount, change};

const NAMES: [&str; 3] = ["records0", "records1", "records2"];
const AUDIT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit");

pub(crate) struct Tree {
    database: Database,
    tables: Tables,
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn definition(table: usize) -> TableDefinition<'static, u64, &'static [u8]> {
    TableDefinition::new(NAMES[table])
}

impl Tree {
    /// Tables full of zeros.
    pub(crate) fn new(path: &Path, tables: &Tables) -> Result<Self, String> {
        let database = Database::create(path).map_err(text)?;
        let transaction = database.begin_write().map_err(text)?;
        let counts = tables.record_counts.iter().enumerate();
        let records = counts.map(|(table, count)| (definition(table), *count, RECORD_BYTES));
        for (definition, count, bytes) in records.chain([(AUDIT, tables.audit_count, AUDIT_BYTES)]) {
            let mut table = transaction.open_table(definition).map_err(text)?;
            for key in 0..count as u64 {
                table.insert(key, &vec![0_u8; bytes][..]).map_err(text)?;
            }
        }
        transaction.commit().map_err(text)?;
        Ok(Self { database, tables: tables.clone() })
    }

    fn sum(&self, definition: TableDefinition<'_, u64, &[u8]>, at: usize) -> Result<i64, String> {
        let transaction = self.database.begin_read().map_err(text)?;
        let table = transaction.open_table(definition).map_err(text)?;
        let mut sum = 0;
        for entry in table.iter().map_err(text)? {
            sum += amount(&entry.map_err(text)?.1.value()[at..]);
        }
        Ok(sum)
    }
}

impl Engine for Tree {
    fn transact(&mut self, work: &Work) -> Result<(), String> {
        let transaction = self.database.begin_write().map_err(text)?;
        for &part in &work.changes {
            let mut table = transaction.open_table(definition(part.table)).map_err(text)?;
            let key = part.record as u64;
            let mut record = [0; RECORD_BYTES];
            record.copy_from_slice(table.get(key).map_err(text)?.ok_or("a record is missing")?.value());
            change(&mut record, part, work.number);
            table.insert(key, &record[..]).map_err(text)?;
        }
        let mut table = transaction.open_table(AUDIT).map_err(text)?;
        let place = work.number % self.tables.audit_count;
        table.insert(place as u64, &work.audit()[..]).map_err(text)?;
        drop(table);
        transaction.commit().map_err(text)
    }

    fn sums(&mut self) -> Result<(Vec<i64>, i64), String> {
        let tables = 0..self.tables.record_counts.len();
        let sums: Result<Vec<i64>, String> = tables.map(|table| self.sum(definition(table), 0)).collect();
        Ok((sums?, self.sum(AUDIT, 8)?))
    }
}
