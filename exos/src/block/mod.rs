//! Disks: requests, their order, and what stands behind `/dev/vda`.
//!
//! From below to above:
//! - [`disk`]: what a disk is, wherever its driver is placed.
//!
//! Invariants:
//! - INV-B1 No lock of this module is held while an owner is told, a waiter is woken, or bytes go to or from a program.
//! - INV-B2 Every request that was taken ends once, whatever the disk does: with success, or with one error.
//! - INV-B3 Time is an argument.

pub mod disk;
