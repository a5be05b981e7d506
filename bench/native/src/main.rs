//! The native rows of suite micro: what the primitives of the kernel contract cost to a program that uses them itself.
//!
//! It is started as the first environment, in place of exos. The configuration part of the bundle is one line,
//! `NAME,NAME… TARGET_US BATCHES quietly|aloud`, and what it prints on the kernel's log is what `bench/micro/main.c`
//! describes, so that one reader serves both. What each row is compared with on Linux is a matter of the host side
//! (`cli/src/bench/native.rs`).
//!
//! With other words it runs the lottery's experiment with clients and a server instead ([`clients`]), or measures how
//! long one waits for an interrupt ([`interrupt`]).
//!
//! The rows run on a stack outside of the save area, as programs do, so that upcalls start at its top. The other side
//! of a row with two sides is an environment of its own ([`peer`]), never a thread: every transfer changes the
//! address space.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(
    target_os = "none",
    allow(unsafe_code, reason = "rows remap memory, start processors and fault on purpose")
)]

#[cfg(target_os = "none")]
mod clients;
#[cfg(target_os = "none")]
mod harness;
#[cfg(target_os = "none")]
mod interrupt;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod peer;
#[cfg(target_os = "none")]
mod ring;
#[cfg(target_os = "none")]
mod rows_call;
#[cfg(target_os = "none")]
mod rows_channel;
#[cfg(target_os = "none")]
mod rows_memory;
#[cfg(target_os = "none")]
mod rows_transfer;
#[cfg(target_os = "none")]
mod run;

#[cfg(target_os = "none")]
aegis_rt::entry!(run::start);

#[cfg(not(target_os = "none"))]
fn main() {}
