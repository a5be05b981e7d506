//! What can go wrong, sorted by the side that is to blame.

use aegis_hal::{AccessError, DmaError, IrqError};

/// The card broke the protocol, or is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardFault {
    /// It did not come to rest within the number of looks allowed.
    ResetTimeout,
    /// Its registers read as ones: nothing answers there any more.
    Gone,
    /// Neither its registers nor its memory have the address of a single card.
    HardwareAddress,
    /// It says that it has written more than the buffer holds, or nothing.
    FrameLength {
        /// Bytes as it says.
        byte_count: u16,
    },
    /// It interrupts without end, and nothing has happened.
    Storm,
    /// After a reset it is another card.
    Changed,
}

/// Every error of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum E1000Error {
    /// The card's fault.
    Card(CardFault),
    /// The placement's: a window that is smaller than the registers.
    Window(AccessError),
    /// The caller's: a ring of a size that cannot be.
    RingSize,
    /// There was no memory.
    Memory(DmaError),
    /// The interrupt is not the driver's any more.
    Irq(IrqError),
}

impl From<CardFault> for E1000Error {
    fn from(fault: CardFault) -> Self {
        Self::Card(fault)
    }
}

impl From<AccessError> for E1000Error {
    fn from(error: AccessError) -> Self {
        Self::Window(error)
    }
}

impl From<DmaError> for E1000Error {
    fn from(error: DmaError) -> Self {
        Self::Memory(error)
    }
}

impl From<IrqError> for E1000Error {
    fn from(error: IrqError) -> Self {
        Self::Irq(error)
    }
}
