//! Stand-ins for tests: a disk that records what was done to it and can crash in every way that a disk may
//! ([`Disk`]), and memory whose faults are taken by calls ([`Pages`]). They are public so that the tests of back ends
//! and of volumes use the same.
#![forbid(unsafe_code)]

mod disk;
mod draws;
mod pages;

pub use disk::{Disk, DiskCounts, DiskPart, Fate, Fault, Image, Operation};
pub use draws::Draws;
pub use pages::Pages;
