//! `cargo xtask test`: what must hold before a change is handed in, cheapest first.

use std::path::Path;

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::{fuzz, process, tidy};

/// The package whose tests boot QEMU; they need the artefacts and take the longest.
const MACHINE_TESTS: &str = "aegis-tests";

/// The build, unit tests on the host, a short search, tidy, then the suites in the machine. The build is first because
/// some tests of the host tool start a machine, and pass over that where there is none. All are run even if one fails,
/// so that one look shows everything; the first failure is the outcome.
pub(crate) fn test(root: &Path) -> Result<(), Error> {
    let built = step("build", || build::build(root, Profile::Release));
    let unit = cargo_test(root, "unit tests", &["--workspace", "--exclude", MACHINE_TESTS]);
    let search = step("a search of ten seconds", || fuzz::run(root, &["--seconds", "10"]));
    let tidy = step("tidy", || tidy::run(root, tidy::Depth::Full));
    let machine = match &built {
        Ok(()) => cargo_test(root, "suites in the machine", &["--package", MACHINE_TESTS]),
        Err(_) => Ok(()),
    };
    built.and(unit).and(search).and(tidy).and(machine)
}

/// Runs tests that find the artefacts.
fn cargo_test(root: &Path, name: &'static str, packages: &[&str]) -> Result<(), Error> {
    let mut cargo = build::host_cargo(root);
    cargo.args(["test", "--no-fail-fast"]).args(packages).env("AEGIS_ARTIFACTS", build::artefact_dir(root));
    step(name, || process::run_loudly(name, &mut cargo))
}

/// Says on standard error where a step begins and, at once, that it failed.
fn step(name: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    eprintln!("==> {name}");
    let outcome = work();
    if let Err(error) = &outcome {
        eprintln!("==> {name}: FAILED: {error}");
    }
    outcome
}
