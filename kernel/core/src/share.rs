//! Shares of the kernel's tables: how many entries an environment, with all that it makes, may use.
//!
//! Invariants: shares only move between a creator and what it made, so that those of all environments sum up to the
//! tables and an entry that a share allows is always there: `TableFull` meets the environment that used its share up,
//! and no other (INV-2). What an environment uses never exceeds its share.

use aegis_abi::share::{TABLES, Table};

use crate::id::EnvironmentId;
use crate::{Machine, State};

/// A new environment gets this part of what its creator has left.
const DEFAULT_PART: u16 = 16;

impl<M: Machine> State<'_, M> {
    /// What a new environment gets of each table: of environments no more than that part, of the others at least one
    /// entry, if its creator has it.
    pub(crate) fn pass_default_share(&mut self, parent: EnvironmentId, child: EnvironmentId) {
        for table in TABLES {
            let left = self.environments[parent].entries_left(table);
            let is_environments = matches!(table, Table::Environments);
            let count = if is_environments { left / DEFAULT_PART } else { left.div_ceil(DEFAULT_PART) };
            self.move_share(parent, child, table, count);
        }
    }

    /// Moves entries from one share to another; the caller checked that they are there.
    pub(crate) fn move_share(&mut self, from: EnvironmentId, to: EnvironmentId, table: Table, count: u16) {
        let share = &mut self.environments[from].share[table as usize];
        debug_assert!(*share >= count, "they are there");
        *share -= count;
        self.environments[to].share[table as usize] += count;
    }
}
