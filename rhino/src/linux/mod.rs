//! The back end for Linux as it is: files as media, `mprotect` for access, SIGSEGV for faults. It is what the Rhino
//! paper compares itself with. On Aegis the same program finds the native interface, and is told of touches without
//! either.
//!
//! A database is a file, and a log beside it (`NAME.log`), or a disk with both. One process has it open at a time
//! ([`Database`]), or a [`Service`] that others talk to ([`Client`]).
//!
//! # Invariants
//!
//! - LINUX-1 The store never touches a region through the program's mapping: it has one of its own, always open. So a
//!   fault is the program's, and the store's lock is not held by the thread that takes it.
//! - LINUX-2 A fault without a transaction, or in memory that is no region, goes to whoever handled SIGSEGV before.
//! - LINUX-3 After a failure (deadlock, full log) the transaction is aborted at once, and what the program does until
//!   it ends goes to private copies of the pages, which are dropped. `commit` tells.

mod c;
mod client;
mod database;
mod file;
mod kernel;
mod layout;
mod memory;
mod native;
mod service;
mod signal;
mod wire;

pub use c::*;
pub use client::Client;
pub use database::{Database, Mapping, Transaction};
pub use file::{FileCounts, FileMedium};
pub use layout::Settings;
pub use memory::Mapped;
pub use service::Service;
