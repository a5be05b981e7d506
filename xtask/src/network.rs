//! `cargo xtask network`: the lines of `tests/linux/network.list`, all of them (`tests/tests/run_network_list.rs`).

use std::path::Path;

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// Builds all, then runs the lines, those too that `make test` leaves out for their time. Words are `--programs
/// FOLDERS`, for programs that this host lacks, and lines' names.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let mut names = Vec::new();
    let mut folders = "";
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--programs" => folders = rest.next().copied().ok_or(Error::Usage)?,
            name if !name.starts_with('-') => names.push(name),
            _ => return Err(Error::Usage),
        }
    }
    build::build(root, Profile::Release)?;
    let mut cargo = build::host_cargo(root);
    cargo.args(["test", "--package", "aegis-tests", "--test", "run_network_list", "--"]);
    cargo.args(["--include-ignored", "--nocapture", "--test-threads", "1"]);
    cargo.env("AEGIS_ARTIFACTS", build::artefact_dir(root)).env("AEGIS_LINES", names.join(","));
    cargo.env("AEGIS_PROGRAMS", folders);
    process::run_loudly("the lines of tests/linux/network.list", &mut cargo)
}
