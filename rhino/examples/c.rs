//! `librhino.a` for programs of C: nothing but the crate's functions for them.
//!
//! `cargo build -p rhino --example c` makes `target/debug/examples/librhino.a`; the header is `include/rhino.h`.
pub use rhino::linux::*;
