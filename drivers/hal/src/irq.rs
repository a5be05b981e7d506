//! Interrupts as the kernel delivers them: counted, and masked until the driver asks again.
//!
//! The order that loses nothing, for lines and for messages: clear the cause in the device,
//! [`Irq::unmask`], then look at the device's queues. What happens before the look is seen by the
//! look; what happens after it raises the interrupt again.

/// Why an interrupt operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqError {
    /// The right to the interrupt was revoked.
    Revoked,
}

/// One interrupt source.
pub trait Irq {
    /// Interrupts delivered since the source was bound; wraps. A difference of zero between two
    /// calls means that none came.
    fn count(&self) -> u64;

    /// Acknowledges what was delivered and lets the next one through.
    ///
    /// # Errors
    /// [`IrqError::Revoked`] if the source is no longer the caller's.
    fn unmask(&mut self) -> Result<(), IrqError>;
}
