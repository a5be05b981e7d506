//! `librhino_c.a` for programs of C: nothing but the crate's functions for them.
//!
//! `cargo build -p rhino --example rhino_c` makes `target/debug/examples/librhino_c.a`. The header is
//! `include/rhino.h`.
use rhino as _;
