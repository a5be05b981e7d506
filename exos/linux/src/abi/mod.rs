//! Linux's binary interface on x86-64: numbers, constants and structures, as programs see them.
//!
//! Somebody else's contract, so it is kept apart from ours. Sources: the kernel's uapi headers and the x86-64 psABI.
//! Structures are written and read as bytes through [`bytes::Encoder`], never by pointer.
//! [`user_memory`] is the way to them: the memory of programs, as bytes that are copied.

pub mod bytes;
pub mod errno;
pub mod file;
pub mod inet;
pub mod linux;
pub mod listing;
pub mod poll;
pub mod shape;
pub mod socket;
pub mod time;
pub mod uring;
pub mod user_memory;
