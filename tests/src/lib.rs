//! Runs suites in the machine and reads what they say: the host side of `tests/guest`.
//!
//! A [`Machine`] describes a QEMU run; [`Machine::run`] packs the guest program and the list of suites into a boot
//! bundle, starts QEMU with the kernel, and collects the kernel's log. The guest prints one line for each case and a
//! sum at the end; a run is good only if the cases that were run are exactly those that the caller expects, all
//! passed, the sum agrees and the machine went down by itself. QEMU ends with the test that started it (`setpriv
//! --pdeathsig`), and after the run's time limit at the latest.
//!
//! The artefacts come from `target/aegis`, where `cargo xtask build` puts them; `AEGIS_ARTIFACTS` names another
//! folder.

mod log;
mod machine;
pub mod programs;
pub mod up;

pub use log::{Case, Log};
pub use machine::{Failure, Machine, MachineKind, Outcome};

/// Runs one suite and panics, with the log, unless exactly `cases` ran and all passed.
///
/// # Panics
/// That is how a test fails.
pub fn expect_suite(machine: Machine, suite: &str, cases: &[&str]) {
    let outcome = match machine.suite(suite).run() {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure}"),
    };
    let expected: Vec<String> = cases.iter().map(|case| format!("{suite}/{case}")).collect();
    if let Err(problem) = outcome.check(&expected) {
        panic!("{problem}\n--- the machine said ({}) ---\n{}", outcome.end(), outcome.log.text);
    }
}
