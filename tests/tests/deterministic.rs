//! With guest time counting guest instructions, a run is the same every time, to the last instruction.

use aegis_tests::{Machine, Outcome};

/// The suites that look at the clock most.
fn run() -> Outcome {
    let machine = Machine::new().suite("s05_bell").suite("s07_slice").counting_instructions();
    match machine.run() {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn two_runs_print_the_same() {
    let (first, second) = (run(), run());
    assert!(first.log.sum.is_some_and(|(passed, failed)| passed > 0 && failed == 0), "{first:?}");
    assert_eq!(first.log.text, second.log.text);
}
