//! The guest side of the suites: a library OS whose only purpose is to try every corner of the kernel contract.
//!
//! It is started as the first environment. The configuration part of the bundle holds the names of the suites to run,
//! one a line (all if empty). Each case prints one line to the kernel's log; the last line is `N passed, N failed`.
//! The host side is `tests/src`. It is also the second library OS besides exos: nothing of exos's policy is needed to
//! use the contract.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(
    target_os = "none",
    allow(unsafe_code, reason = "suites remap memory, start processors and fault on purpose")
)]

#[cfg(target_os = "none")]
mod child;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod probe;
#[cfg(target_os = "none")]
mod s00_boot;
#[cfg(target_os = "none")]
mod s01_capability;
#[cfg(target_os = "none")]
mod s02_memory;
#[cfg(target_os = "none")]
mod s03_routines;
#[cfg(target_os = "none")]
mod s03_upcall;
#[cfg(target_os = "none")]
mod s04_environment;
#[cfg(target_os = "none")]
mod s05_bell;
#[cfg(target_os = "none")]
mod s06_gate;
#[cfg(target_os = "none")]
mod s07_slice;
#[cfg(target_os = "none")]
mod s08_arguments;
#[cfg(target_os = "none")]
mod s08_hostile;
#[cfg(target_os = "none")]
mod s08_random;
#[cfg(target_os = "none")]
mod s09_device;
#[cfg(target_os = "none")]
mod s10_space;
#[cfg(target_os = "none")]
mod s11_ticket;
#[cfg(target_os = "none")]
mod s12_drivers;
#[cfg(target_os = "none")]
mod s13_latency;
#[cfg(target_os = "none")]
mod s14_extension;
#[cfg(target_os = "none")]
mod suite;
#[cfg(target_os = "none")]
mod thread;
#[cfg(target_os = "none")]
mod vector;
#[cfg(target_os = "none")]
mod wait;

#[cfg(target_os = "none")]
aegis_rt::entry!(suite::start);

#[cfg(not(target_os = "none"))]
fn main() {}
