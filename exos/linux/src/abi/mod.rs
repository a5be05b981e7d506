//! Linux's binary interface on x86-64: numbers, constants and structures, as programs see them.
//!
//! Somebody else's contract, so it is kept apart from ours. Sources: the kernel's uapi headers and the x86-64 psABI.
//! Structures are written and read as bytes through [`bytes::Encoder`], never by pointer.

pub mod bytes;
pub mod errno;
pub mod file;
pub mod socket;
pub mod time;
