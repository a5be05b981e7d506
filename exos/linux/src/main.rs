//! exos: the library OS that runs Linux programs, placed in a program's own address space.
//!
//! Everything that decides is in the library (`lib.rs`) and in `exos`; here is the order of a run, and in `glue` what
//! touches the machine.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod glue;

#[cfg(target_os = "none")]
aegis_rt::entry!(glue::run::start);

#[cfg(not(target_os = "none"))]
fn main() {}
