//! The library OS: everything that a monolithic kernel would decide, as safe code over the kernel contract.
//!
//! The policies live here and are tested on the host against the fakes of [`fake`]; the Linux personality
//! (`exos/linux`) turns system calls into calls of these modules, and its glue implements the two traits of
//! [`platform`] over `aegis-rt`.
//!
//! State is written as for many processes from the start: what a pod shares is reached through `Arc` and locked with
//! [`sync`]; nothing is a global here.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod block;
pub mod error;
pub mod fake;
pub mod fs;
pub mod ipc;
pub mod load;
pub mod mem;
pub mod net;
pub mod platform;
pub mod preempt;
pub mod reserve;
pub mod rewrite;
pub mod sync;
pub mod task;
