//! Where system calls come in: from a number to a handler, and the shorter ways past it.
//!
//! This stands above all of [`crate::call`]; the machine's part of it is `glue/entry.rs` and `glue/fast.rs`.
//!
//! | module | holds |
//! |---|---|
//! | [`table`] | every call: number, state, handler, shape |
//! | [`gate`] | which calls are refused while the reserve of memory is not whole |
//! | [`fast_path`] | the calls that programs make most, without a context |
//! | [`hot_sites`] | which `syscall` instructions are worth rewriting |

pub mod fast_path;
pub mod gate;
pub mod hot_sites;
pub mod table;
