//! Recoverable memory: transactions on mapped segments. Begin, store, commit; a crash at any moment leaves exactly what
//! was committed.
//!
//! A *segment* is bytes on a [`Medium`]; a *region* maps pages of it into a program. What a transaction changed is
//! found by a [`Detector`], written to the [`log`] by one write, and made to last by one flush. The segment itself is
//! written when the log is truncated, or when memory is short.
//!
//! The same code runs in four worlds: on Linux (`linux`: `mprotect` and SIGSEGV), on Aegis by exos's native fault
//! interface, in the kernel extension, and on a fake in tests. They differ in [`Medium`] and [`Memory`] alone.
//!
//! The bytes on the medium are described in `FORMAT.md`. Neighbours: `exos/native` is the interface of the Aegis back
//! end; volumes will use [`log`].
#![no_std]

extern crate alloc;
#[cfg(any(test, target_os = "linux"))]
extern crate std;

mod bytes;
mod error;
pub mod fake;
pub mod heap;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod lock;
pub mod log;
pub mod medium;
pub mod memory;
pub mod store;

pub use error::Error;
pub use medium::{Medium, MediumError, Window};
pub use memory::{Access, Memory, MemoryError, PAGE_BYTES, Page, Touched};
pub use store::{Counters, Options, Outcome, OwnerId, Pending, RegionId, Report, Store, TransactionId};

/// How a transaction's changes are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// The program says before each store which bytes it will change (`set_range`). Their pages stay in memory.
    SetRange,
    /// The first store to a page is a fault; old page and new page are logged whole.
    Page,
    /// The first store to a page is a fault that copies it to a shadow; what differs at commit is logged.
    Diff,
    /// No fault: at commit the page table's dirty bits say which pages to compare with what was committed. For one
    /// address space alone, since nothing is locked.
    DirtyBits,
}

/// When a commit lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it returns.
    Flush,
    /// After the next commit that is flushed, or the next flush. A crash before leaves a prefix of such commits.
    Lazy,
}

/// What a transaction keeps for its abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// Old bytes are kept.
    Yes,
    /// The program hardly ever aborts: ranges that it sets are not copied, and an abort reads the pages again, from
    /// segment and log.
    No,
}
