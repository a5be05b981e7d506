//! The Linux personality: system calls of unmodified x86-64 programs, as calls of exos's policies.
//!
//! This library is safe and runs on the host under test; the binary `exos` (`main.rs` and `glue/`) places it in a
//! program's address space. Rooms, from the ground up:
//!
//! | room | holds |
//! |---|---|
//! | [`abi`] | Linux's numbers and structures; the program's memory as bytes that are copied |
//! | [`task`] | processes and threads: memory, signals, begin and end |
//! | [`file`] | name spaces and descriptors; files that are Linux's own (epoll, timerfd, ...) |
//! | [`call`] | the system calls, one file a family: arguments decoded, answers encoded |
//! | [`proc`] | what `/proc` shows |
//! | [`entry`] | the table of all calls; the gate before it and the short ways past it |
//! | [`host`] | how a pod is made, and what it has of the host: ports, streams, directories, sessions |
//! | [`trace`] | `--trace`: a line for each call |
//! | `glue` | all that is unsafe (of the binary alone); [`spare_blocks`] and [`heap_chunks`] are its heap's |
#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(test, deny(unsafe_code))]

extern crate alloc;

pub mod abi;
pub mod call;
pub mod entry;
pub mod file;
pub mod heap_chunks;
pub mod host;
pub mod proc;
pub mod spare_blocks;
pub mod task;
#[cfg(test)]
mod testing;
pub mod trace;
