//! A world for host tests: registers, DMA memory and interrupts without hardware, with room for a
//! hostile device.
//!
//! The fakes record what a real machine would not forgive as [`Violation`]s, and carry on: a test
//! asserts at its end that there are none, and a device model can misbehave on purpose without the
//! world falling over. The memory fake gives out device addresses that no processor address equals,
//! so that a driver that mixes them up is found; memory that is released is poisoned and no longer
//! reachable for the device.
//!
//! Shared state is behind `Rc<RefCell<…>>`: driver side and device side of a test live on one
//! thread.

extern crate alloc;

mod disk;
mod irq;
mod memory;
mod registers;

pub use disk::{CompletionOrder, FakeClientMemory, FakeDisk, FakeDiskBroken, TakenRequest, fake_limits};
pub use irq::FakeIrq;
pub use memory::{FakeBuffer, FakeBus, FakeDma, POISON_FREED, POISON_FRESH, Violation};
pub use registers::{FakeMmio, FakePort, Registers};
