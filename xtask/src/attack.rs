//! `cargo xtask attack`: the programs of `tests/attacks` beside an honest one for long, on 1, 2 and 4 processors, 30
//! seeds of a greedy one, ten million random calls (`tests/tests/attacks.rs`), and a thousand pods that end with
//! requests in flight (`tests/tests/attack_dma.rs`).

use std::path::Path;

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// Builds all, then runs the tests that `make test` leaves out. Words are `--minutes N`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let minutes = match words {
        [] => "10",
        ["--minutes", minutes] => minutes,
        _ => return Err(Error::Usage),
    };
    build::build(root, Profile::Release)?;
    let mut cargo = build::host_cargo(root);
    cargo.args(["test", "--package", "aegis-tests", "--test", "attacks", "--test", "attack_dma", "--"]);
    cargo.args(["--include-ignored", "--nocapture", "--test-threads", "1"]);
    cargo.env("AEGIS_ARTIFACTS", build::artefact_dir(root)).env("AEGIS_ATTACK_MINUTES", minutes);
    process::run_loudly("the attacks", &mut cargo)
}
