//! SQLite with a write-ahead log that each commit flushes; statements are compiled once.
#![forbid(unsafe_code)]

use std::path::Path;

use rusqlite::{Connection, Error, Statement, params};

use super::bank::{AUDIT_BYTES, Engine, RECORD_BYTES, Tables, Work, amount, change};

struct Session<'a> {
    connection: &'a Connection,
    loads: Vec<Statement<'a>>,
    stores: Vec<Statement<'a>>,
    append: Statement<'a>,
    begin: Statement<'a>,
    commit: Statement<'a>,
    tables: Tables,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Makes the tables, full of zeros, and calls `body` with the engine.
pub(crate) fn with(
    path: &Path,
    tables: &Tables,
    body: &mut dyn FnMut(&mut dyn Engine) -> Result<(), String>,
) -> Result<(), String> {
    let connection = Connection::open(path).map_err(text)?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(text)?;
    if mode != "wal" {
        return Err(format!("SQLite has no write-ahead log here, but {mode}"));
    }
    connection.execute_batch("PRAGMA synchronous=FULL").map_err(text)?;
    fill(&connection, tables).map_err(text)?;
    let mut session = Session::new(&connection, tables).map_err(text)?;
    body(&mut session)
}

fn fill(connection: &Connection, tables: &Tables) -> Result<(), Error> {
    connection.execute_batch("BEGIN")?;
    let names = (0..tables.record_counts.len()).map(|table| format!("records{table}"));
    let counts = tables.record_counts.iter().map(|count| (*count, RECORD_BYTES));
    let all = names.zip(counts).chain([("audit".to_string(), (tables.audit_count, AUDIT_BYTES))]);
    for (name, (count, bytes)) in all {
        connection.execute_batch(&format!("CREATE TABLE {name} (id INTEGER PRIMARY KEY, entry BLOB NOT NULL)"))?;
        let mut insert = connection.prepare(&format!("INSERT INTO {name} VALUES (?1, ?2)"))?;
        for id in 0..count {
            insert.execute(params![id as i64, vec![0_u8; bytes]])?;
        }
    }
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
}

impl<'a> Session<'a> {
    fn new(connection: &'a Connection, tables: &Tables) -> Result<Self, Error> {
        let prepare = |text: &str| -> Result<Vec<Statement<'a>>, Error> {
            let numbers = 0..tables.record_counts.len();
            numbers.map(|table| connection.prepare(&text.replace("TABLE", &format!("records{table}")))).collect()
        };
        Ok(Self {
            connection,
            loads: prepare("SELECT entry FROM TABLE WHERE id = ?1")?,
            stores: prepare("UPDATE TABLE SET entry = ?2 WHERE id = ?1")?,
            append: connection.prepare("REPLACE INTO audit VALUES (?1, ?2)")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            tables: tables.clone(),
        })
    }

    fn work(&mut self, work: &Work) -> Result<(), Error> {
        self.begin.execute([])?;
        for &part in &work.changes {
            let id = part.record as i64;
            let mut record: Vec<u8> = self.loads[part.table].query_row([id], |row| row.get(0))?;
            change(&mut record, part, work.number);
            self.stores[part.table].execute(params![id, record])?;
        }
        let place = (work.number % self.tables.audit_count) as i64;
        self.append.execute(params![place, &work.audit()[..]])?;
        self.commit.execute([]).map(|_| ())
    }

    fn sum(&self, table: &str, at: usize) -> Result<i64, Error> {
        let mut statement = self.connection.prepare(&format!("SELECT entry FROM {table}"))?;
        let amounts = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
        amounts.map(|entry| Ok(amount(&entry?[at..]))).sum()
    }
}

impl Engine for Session<'_> {
    fn transact(&mut self, work: &Work) -> Result<(), String> {
        self.work(work).map_err(text)
    }

    fn sums(&mut self) -> Result<(Vec<i64>, i64), String> {
        let tables = 0..self.tables.record_counts.len();
        let sums: Result<Vec<i64>, Error> = tables.map(|table| self.sum(&format!("records{table}"), 0)).collect();
        Ok((sums.map_err(text)?, self.sum("audit", 8).map_err(text)?))
    }
}
