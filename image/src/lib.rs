//! Root images, flat library OS images and boot bundles: the files that the host hands to the machine.
//!
//! Key modules: [`tree`] describes a file tree in memory; [`erofs`] writes it as an uncompressed EROFS image and reads
//! such images; [`flat`] turns a linked library OS into pages that the kernel maps where they lie; [`bundle`] puts the
//! parts into one file for the machine's loader; [`bytes`] reads numbers from what came from outside. What the files of
//! ours in a bundle say (the run configuration, the plan of pods) is `aegis-link`'s.
//!
//! The crate is `no_std` with `alloc` and has no features, because the same reader runs in the host tool and in the
//! library OS. It never touches a file system: output goes to a [`Sink`], file contents come from a
//! [`tree::FileData`], input is a byte slice. Walking host directories and tar files is the host tool's work.
//!
//! Invariants:
//! - INV-I1 No input makes a reader panic, overflow or loop without end; it gets an error that says what is wrong.
//! - INV-I2 Writers are deterministic: the same input gives the same bytes, whatever the host, the clock and the order
//!   in which a tree was filled.
//! - INV-I3 Everything that a reader accepted lies inside the slice that it was given.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bundle;
pub mod bytes;
pub mod erofs;
pub mod flat;
pub mod tree;

mod sink;

pub use sink::Sink;

/// Bytes in a page, a frame, an EROFS block and a bundle's alignment unit: one number, so that all of them can be
/// mapped.
pub const PAGE_BYTES: u64 = aegis_abi::layout::PAGE_SIZE;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
