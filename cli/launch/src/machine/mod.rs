//! A machine: its parts, its command line, its process.
//!
//! [`artifacts`] are found, [`boot`] puts them with the configuration into one file, [`accel`] decides what executes
//! the instructions, [`mounts`] are directories that QEMU serves, [`network`] is a pod's card and what it is
//! connected to, [`qemu`] is the command line as a pure function of all that, and [`process`] starts it (and, by
//! `backlog`, sees to it that clients that come at once find room).

pub mod accel;
pub mod artifacts;
mod backlog;
pub mod boot;
pub mod disks;
mod file_links;
pub mod mounts;
pub mod network;
pub mod process;
pub mod qemu;
