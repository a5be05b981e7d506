//! What the tests that start a machine need of the host.
//!
//! `cargo xtask test` has made everything before and says so by `AEGIS_ARTIFACTS`: then whatever is missing fails the
//! test. A plain `cargo test` has not, and a test that cannot run says why and passes.
#![allow(dead_code, reason = "each test program has its own copy and uses what it needs")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

const ARTIFACTS: &str = "AEGIS_ARTIFACTS";

/// Where the kernel is: `AEGIS_ARTIFACTS`, or where `cargo xtask build` puts it.
pub(crate) fn artifacts() -> PathBuf {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/aegis");
    std::env::var_os(ARTIFACTS).map_or(built.into(), Into::into)
}

/// Whether the host has a program.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    found || misses(&format!("this host has no {program}"))
}

/// Whether programs can be compiled and run in a machine.
pub(crate) fn can_run() -> bool {
    let kernel = artifacts().join("kernel.elf");
    has("gcc") && has("qemu-system-x86_64") && (kernel.is_file() || misses(&format!("no {}", kernel.display())))
}

fn misses(what: &str) -> bool {
    assert!(std::env::var_os(ARTIFACTS).is_none(), "{what}");
    println!("skipped: {what}");
    false
}
