//! From a program on the host to a running machine: what the tool and its benchmarks both need for it.
//!
//! - [`root`]: a program with the libraries it needs, a directory, an archive or an image becomes a root image.
//! - [`machine`]: kernel and library OS are found and bundled, the accelerator is chosen, QEMU's command line is made
//!   and its process started.
//! - [`images`]: images of containers, found, checked and laid flat.
//! - [`pool`]: an image of which several pods have a part each.
//! - [`cache`] keeps root images and notes between runs; [`symbols`] and [`domain`] say which function of which part an
//!   address is; [`errors`] is everything that can go wrong before a machine runs, with the exit status that says so.
//!
//! What a machine says while it runs is not this crate's: the tool relays it, the benchmarks read lines.

pub mod cache;
pub mod domain;
pub mod errors;
pub mod images;
pub mod machine;
pub mod pool;
pub mod root;
pub mod symbols;
