//! An interrupt line that a test raises by hand.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::Cell;

use crate::{Irq, IrqError};

/// State shared by the clones of a [`FakeIrq`].
#[derive(Debug, Default)]
struct Line {
    count: Cell<u64>,
    asserted: Cell<bool>,
    masked: Cell<bool>,
    revoked: Cell<bool>,
}

/// A level-triggered line that is masked on delivery, as the kernel does it. Clones share the line.
#[derive(Clone, Debug, Default)]
pub struct FakeIrq {
    line: Rc<Line>,
}

impl FakeIrq {
    /// A quiet line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the level of the line; delivers if it is high and not masked.
    pub fn set_level(&self, asserted: bool) {
        self.line.asserted.set(asserted);
        self.deliver();
    }

    /// Whether an interrupt was delivered and not yet unmasked.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        self.line.masked.get()
    }

    /// Takes the line from the driver.
    pub fn revoke(&self) {
        self.line.revoked.set(true);
    }

    fn deliver(&self) {
        if self.line.asserted.get() && !self.line.masked.get() {
            self.line.count.set(self.line.count.get() + 1);
            self.line.masked.set(true);
        }
    }
}

impl Irq for FakeIrq {
    fn count(&self) -> u64 {
        self.line.count.get()
    }

    fn unmask(&mut self) -> Result<(), IrqError> {
        if self.line.revoked.get() {
            return Err(IrqError::Revoked);
        }
        self.line.masked.set(false);
        self.deliver();
        Ok(())
    }
}
