//! `cargo xtask test`: what must hold before a change is handed in, cheapest first.

use std::path::Path;

use crate::build::{self, Profile};
use crate::{Error, process, tidy};

/// The package whose tests boot QEMU; they need the artefacts and take the longest.
const MACHINE_TESTS: &str = "aegis-tests";

/// Unit tests on the host, tidy, the build, then the suites in the machine. All are run even if one fails, so that
/// one look shows everything; the first failure is the outcome.
pub(crate) fn test(root: &Path) -> Result<(), Error> {
    let mut unit = build::host_cargo(root);
    unit.args(["test", "--workspace", "--exclude", MACHINE_TESTS]);
    let unit = step("unit tests", || process::run_loudly("unit tests", &mut unit));
    let tidy = step("tidy", || tidy::run(root, tidy::Depth::Full));
    let built = step("build", || build::build(root, Profile::Release));
    let machine = built.and_then(|()| {
        let mut machine = build::host_cargo(root);
        machine.args(["test", "--package", MACHINE_TESTS]);
        machine.env("AEGIS_ARTIFACTS", build::artefact_dir(root));
        step("suites in the machine", || process::run_loudly("suites in the machine", &mut machine))
    });
    unit.and(tidy).and(machine)
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
