//! `cargo xtask fuzz`: a search for calls of the kernel core that break something (`kernel/core/src/tests/fuzz.rs`).
//!
//! The core and its tests are built once more, with the compiler's counters of edges, in a folder of their own. The
//! flags are those that every fuzzer of Rust passes; they are stable, and `fuzz/` is the runtime that they need.

use std::path::Path;
use std::process::Command;

use crate::errors::Error;
use crate::{build, process};

/// What has the compiler count edges.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters";
const TEST: &str = "tests::fuzz::search";

/// Words are `--calls N`, `--seconds S`, `--seed N`, and `--input FILE` for one input alone.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let mut settings = Vec::new();
    for pair in words.chunks(2) {
        let [word, value] = pair else {
            return Err(Error::Usage);
        };
        let variable = match *word {
            "--calls" => "AEGIS_FUZZ_CALLS",
            "--seconds" => "AEGIS_FUZZ_SECONDS",
            "--seed" => "AEGIS_FUZZ_SEED",
            "--input" => {
                let place = std::path::absolute(value).map_err(Error::io(Path::new(value)))?;
                settings.push(("AEGIS_FUZZ_INPUT", place.into_os_string()));
                continue;
            }
            _ => return Err(Error::Usage),
        };
        settings.push((variable, value.into()));
    }
    let folder = build::host_target_dir(root).join("fuzz");
    let mut cargo = build::host_cargo(root);
    cargo.args(["test", "--quiet", "--profile", "fuzz", "--package", "aegis-kernel-core", "--lib"]);
    // With a target named, the flags are not for build scripts, which have no such runtime.
    cargo.args(["--target", &host(root)?]).arg("--target-dir").arg(&folder);
    cargo.args([TEST, "--", "--exact", "--ignored", "--nocapture"]);
    cargo.env("RUSTFLAGS", FLAGS).env("AEGIS_FUZZ_CORPUS", folder.join("inputs")).envs(settings);
    process::run_loudly("the search", &mut cargo)
}

/// The host's target, as the compiler names it.
fn host(root: &Path) -> Result<String, Error> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let answer = process::answer(rustc.arg("-vV").current_dir(root)).unwrap_or_default();
    let host = answer.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| Error::Toolchain("rustc -vV names no host".to_string()))
}
