//! Shares of the kernel's tables: how many entries an environment, with all that it makes, may use.
//!
//! Invariants: shares only move between a creator and what it made, so that those of all environments sum up to the
//! tables and an entry that a share allows is always there: `TableFull` meets who used its share up, and nobody else
//! (INV-2). What an environment uses never exceeds its share.

use aegis_abi::share::{TABLE_COUNT, TABLES, Table};
use aegis_abi::types::Status;

use crate::environment::Environment;
use crate::id::{
    BELL_COUNT_MAX, DMA_BINDING_COUNT_MAX, ENVIRONMENT_COUNT_MAX, EnvironmentId, GATE_COUNT_MAX, PROCESSOR_COUNT_MAX,
    SPACE_COUNT_MAX,
};
use crate::machine::Machine;
use crate::state::State;

/// Entries of each table, in the order of [`Table`].
pub(crate) type Counts = [u16; TABLE_COUNT];

/// All entries, but that of the first environment itself.
pub(crate) const WHOLE: Counts = [
    ENVIRONMENT_COUNT_MAX as u16 - 1,
    SPACE_COUNT_MAX as u16,
    PROCESSOR_COUNT_MAX as u16,
    BELL_COUNT_MAX as u16,
    GATE_COUNT_MAX as u16,
    DMA_BINDING_COUNT_MAX as u16,
];

/// A new environment gets this part of what its creator has left.
const DEFAULT_PART: u16 = 16;

impl Environment {
    /// Entries of a table that it may still use.
    pub(crate) fn entries_left(&self, table: Table) -> u16 {
        self.share[table as usize].saturating_sub(self.used[table as usize])
    }

    /// Refuses if it has used its share up.
    pub(crate) fn check_share(&self, table: Table) -> Result<(), Status> {
        if self.entries_left(table) == 0 { Err(Status::TableFull) } else { Ok(()) }
    }

    /// Counts an entry that it uses, or does not use any more.
    pub(crate) fn count_entry(&mut self, table: Table, is_used: bool) {
        let used = &mut self.used[table as usize];
        *used = if is_used { used.saturating_add(1) } else { used.saturating_sub(1) };
    }
}

impl<M: Machine> State<'_, M> {
    /// What a new environment gets of each table: of environments no more than that part, of the others at least one
    /// entry, if its creator has it.
    pub(crate) fn pass_default_share(&mut self, parent: EnvironmentId, child: EnvironmentId) {
        for table in TABLES {
            let left = self.environments[parent].entries_left(table);
            let is_environments = matches!(table, Table::Environments);
            self.move_share(
                parent,
                child,
                table,
                if is_environments { left / DEFAULT_PART } else { left.div_ceil(DEFAULT_PART) },
            );
        }
    }

    /// Moves entries from one share to another; the caller checked that they are there.
    pub(crate) fn move_share(&mut self, from: EnvironmentId, to: EnvironmentId, table: Table, count: u16) {
        self.environments[from].share[table as usize] -= count;
        self.environments[to].share[table as usize] += count;
    }
}
