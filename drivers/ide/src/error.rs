//! Why a channel cannot go on.

use aegis_hal::{AccessError, DmaError, IrqError};

/// Why a channel, or a disk on it, cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdeError {
    /// No disk is there.
    Absent,
    /// What the device says of itself cannot be, or is not what this driver is for: no LBA, sectors of another size.
    Layout,
    /// It stays busy.
    Busy,
    /// It asks for data, or offers some, where there is none to move.
    Phase,
    /// The bus master says that it is done and has not moved the data.
    BusMaster,
    /// After a reset it is another disk.
    Changed,
    /// A range of ports is smaller than the driver's access, or no longer its own.
    Access(AccessError),
    /// There is no memory for tables.
    Memory(DmaError),
    /// The interrupt is no longer the driver's.
    Irq(IrqError),
}

impl From<AccessError> for IdeError {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl From<DmaError> for IdeError {
    fn from(error: DmaError) -> Self {
        Self::Memory(error)
    }
}

impl From<IrqError> for IdeError {
    fn from(error: IrqError) -> Self {
        Self::Irq(error)
    }
}
