//! The Linux personality: system calls of unmodified x86-64 programs, as calls of exos's policies.
//!
//! This library is safe and runs on the host under test; the binary `exos` (`main.rs` and `glue/`) places it in a program's
//! address space. One file per call family in [`call`]; [`table`] says of every call what state it is in.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod abi;
pub mod signal_frame;
pub mod user;
