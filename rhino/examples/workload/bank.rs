//! The transactions of the RVM paper that every engine does: records of 128 bytes are read and changed, 64 bytes are
//! appended to an audit trail that wraps around.
//!
//! TPC-A (Satyanarayanan et al., TOCS 1994): an account, its teller and branch; accounts in sequence, at random, or
//! localized: 70 % of the transactions on 5 % of the accounts, 25 % on another 15 %, and 5 % on the rest. The sweep of
//! RVM's benchmark: one record anywhere, two of a narrow part.
//!
//! Amounts add up: what is taken of accounts, tellers and branches is what the audit trail says, so an engine that
//! loses or doubles something is found out.
#![forbid(unsafe_code)]

use rhino::fake::Draws;

pub(crate) const RECORD_BYTES: usize = 128;
pub(crate) const AUDIT_BYTES: usize = 64;
/// Records of the narrow part.
const NARROW_COUNT: usize = 64;
const TELLER_COUNT: usize = 10;

/// How many records the tables have.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) record_counts: Vec<usize>,
    pub(crate) audit_count: usize,
}

impl Tables {
    /// What the transactions need in so many bytes. TPC-A: accounts, tellers and the branch, and half for the audit
    /// trail. The sweep: records in seven eighths.
    pub(crate) fn new(pattern: Pattern, bytes: usize) -> Self {
        if pattern == Pattern::Sweep {
            let record_count = (bytes / 8 * 7 / RECORD_BYTES).max(NARROW_COUNT);
            return Self { record_counts: vec![record_count], audit_count: (bytes / 8 / AUDIT_BYTES).max(1) };
        }
        let account_count = (bytes / 2 / RECORD_BYTES).max(2 * TELLER_COUNT);
        let audit_count = (bytes / 2 / AUDIT_BYTES).max(1);
        Self { record_counts: vec![account_count, TELLER_COUNT, 1], audit_count }
    }
}

/// A record that is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) table: usize,
    pub(crate) record: usize,
    pub(crate) amount: i64,
}

/// A transaction.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) number: usize,
    pub(crate) changes: Vec<Change>,
}

impl Work {
    /// What it appends: its number, the sum of its amounts, and what makes it as long as an entry is.
    pub(crate) fn audit(&self) -> [u8; AUDIT_BYTES] {
        let mut entry = [self.number as u8; AUDIT_BYTES];
        entry[..8].copy_from_slice(&(self.number as u64).to_le_bytes());
        let sum: i64 = self.changes.iter().map(|change| change.amount).sum();
        entry[8..16].copy_from_slice(&sum.to_le_bytes());
        entry
    }
}

/// The amount in a record's beginning, or an audit entry's at 8.
pub(crate) fn amount(bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    i64::from_le_bytes(word)
}

/// Changes a record: its amount, and all else in it.
pub(crate) fn change(record: &mut [u8], change: Change, number: usize) {
    let now = amount(record).wrapping_add(change.amount);
    record.fill(number as u8);
    record[..8].copy_from_slice(&now.to_le_bytes());
}

/// Something that keeps tables.
pub(crate) trait Engine {
    /// Does a transaction; it lasts when this returns.
    fn transact(&mut self, work: &Work) -> Result<(), String>;
    /// The sums of each table's amounts, and the audit trail's.
    fn sums(&mut self) -> Result<(Vec<i64>, i64), String>;
    /// The clock starts: what [`Engine::extra`] counts begins here.
    fn begin_count(&mut self) {}
    /// What else there is to say at the end, by name.
    fn extra(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// Which transactions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Sequential,
    Random,
    Localized,
    Sweep,
}

impl Pattern {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Localized => "localized",
            Self::Sweep => "sweep",
        }
    }
}

/// Draws transactions.
pub(crate) struct Client {
    tables: Tables,
    pattern: Pattern,
    draws: Draws,
    number: usize,
    sums: Vec<i64>,
    /// Sums of the audit entries that are not written over yet.
    audits: Vec<i64>,
}

impl Client {
    pub(crate) fn new(tables: &Tables, pattern: Pattern) -> Self {
        let (sums, audits) = (vec![0; tables.record_counts.len()], vec![0; tables.audit_count]);
        Self { tables: tables.clone(), pattern, draws: Draws::new(1), number: 0, sums, audits }
    }

    pub(crate) fn next(&mut self) -> Work {
        let amount = 1 + self.draws.below(100) as i64;
        let changes: Vec<Change> = if self.pattern == Pattern::Sweep {
            let records = [self.draws.below(self.tables.record_counts[0]), self.narrow(), self.narrow()];
            records.map(|record| Change { table: 0, record, amount }).to_vec()
        } else {
            let records = [self.account(), self.draws.below(TELLER_COUNT), 0];
            (0..3).zip(records).map(|(table, record)| Change { table, record, amount }).collect()
        };
        let work = Work { number: self.number, changes };
        self.number += 1;
        work
    }

    /// The engine has done it.
    pub(crate) fn is_done(&mut self, work: &Work) {
        work.changes.iter().for_each(|change| self.sums[change.table] += change.amount);
        let place = work.number % self.audits.len();
        self.audits[place] = work.changes.iter().map(|change| change.amount).sum();
    }

    /// What the engine's sums have to be.
    pub(crate) fn expected(&self) -> (Vec<i64>, i64) {
        (self.sums.clone(), self.audits.iter().sum())
    }

    fn narrow(&mut self) -> usize {
        self.draws.below(NARROW_COUNT)
    }

    fn account(&mut self) -> usize {
        let count = self.tables.record_counts[0];
        match self.pattern {
            Pattern::Sequential => self.number % count,
            Pattern::Random | Pattern::Sweep => self.draws.below(count),
            Pattern::Localized => {
                let (first, end) = match self.draws.below(100) {
                    0..70 => (0, 5),
                    70..95 => (5, 20),
                    _ => (20, 100),
                };
                let (first, end) = (count * first / 100, count * end / 100);
                first + self.draws.below(end - first)
            }
        }
    }
}
