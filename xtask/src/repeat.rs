//! `cargo xtask repeat`: the commands of `tests/commands` many times in a row (`tests/tests/commands.rs`).

use std::path::Path;

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// Builds all, then runs the test that `make test` leaves out. Words are `--times N`, `--cpus LIST`, and files' names.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let mut names = Vec::new();
    let mut settings = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let variable = match *word {
            "--times" => "AEGIS_REPEAT_TIMES",
            "--cpus" => "AEGIS_REPEAT_CPUS",
            name if !name.starts_with('-') => {
                names.push(name);
                continue;
            }
            _ => return Err(Error::Usage),
        };
        settings.push((variable, rest.next().copied().ok_or(Error::Usage)?));
    }
    build::build(root, Profile::Release)?;
    let mut cargo = build::host_cargo(root);
    cargo.args(["test", "--package", "aegis-tests", "--test", "commands", "--", "--ignored", "--nocapture"]);
    cargo.env("AEGIS_ARTIFACTS", build::artefact_dir(root)).env("AEGIS_REPEAT_ONLY", names.join(",")).envs(settings);
    process::run_loudly("the commands of tests/commands", &mut cargo)
}
