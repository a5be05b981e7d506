//! The Linux personality: system calls of unmodified x86-64 programs, as calls of exos's policies.
//!
//! This library is safe and runs on the host under test; the binary `exos` (`main.rs` and `glue/`) places it in a
//! program's address space. One file per call family in [`call`]; [`table`] says of every call what state it is in.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(test, deny(unsafe_code))]

extern crate alloc;

pub mod abi;
pub mod boot;
pub mod call;
pub mod context;
pub mod deliver;
pub mod epoll;
pub mod events;
pub mod exception;
pub mod facts;
pub mod file_owner;
pub mod files;
pub mod gate;
pub mod host;
pub mod interruption;
pub mod jobs;
pub mod leaving;
pub mod lottery_programs;
pub mod memory;
pub mod native;
pub mod out_of_memory;
pub mod pause;
pub mod proc;
pub mod process;
pub mod process_file;
pub mod processes;
pub mod profile;
pub mod program;
pub mod queue_file;
pub mod quick;
pub mod report;
pub mod seen_descriptors;
pub mod sessions;
pub mod shares;
pub mod signal_file;
pub mod signal_frame;
pub mod spare_blocks;
mod standard_streams;
pub mod stream;
pub mod symbol;
pub mod system;
pub mod table;
pub mod timer_file;
pub mod trace;
pub mod traps;
pub mod used_time;
pub mod user;
pub mod vector_buffer;

#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod testing;
