//! The kernel's fixed tables, of which every environment has a share (`docs/abi.md`, Shares).

/// Number of tables that are shared out.
pub const TABLE_COUNT: usize = 6;

/// A table of the kernel that is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Table {
    /// Environments that it makes.
    Environments = 0,
    /// Address spaces, the home space aside.
    Spaces = 1,
    /// Virtual processors.
    Processors = 2,
    /// Bells.
    Bells = 3,
    /// Gates.
    Gates = 4,
    /// Ranges of frames that devices may reach.
    DmaRanges = 5,
}

/// All of them, in order.
pub const TABLES: [Table; TABLE_COUNT] =
    [Table::Environments, Table::Spaces, Table::Processors, Table::Bells, Table::Gates, Table::DmaRanges];

/// Entries of a share that an environment may use, with all that it makes: this plus the table's number is the field
/// of [`crate::call::EnvironmentRead`].
pub const FIELD_SHARE_FIRST: u32 = 16;
/// Entries that it uses by itself, in the same way.
pub const FIELD_USED_FIRST: u32 = 32;
