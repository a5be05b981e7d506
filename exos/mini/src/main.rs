//! A second, tiny library OS: it uses the kernel contract without anything of exos.
//!
//! It keeps the contract honest. One program, memory on demand by its own page-fault upcall, a self-check of what it
//! sees, one line on the kernel's log, power off. `aegis doctor` and the KVM probe boot it because it is the smallest
//! thing that shows that a machine works: it prints `mini: ok` only if demand paging, the clock and resume from user
//! space all did.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod mini;

#[cfg(target_os = "none")]
aegis_rt::entry!(mini::start);

#[cfg(not(target_os = "none"))]
fn main() {}
