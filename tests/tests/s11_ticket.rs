//! What environments and processors are funded with. The cases are in `tests/guest/src/s11_ticket.rs`; this list keeps
//! one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "amounts_are_read_and_changed",
    "bad_changes_are_refused",
    "an_environment_changes_its_processors_and_not_itself",
    "slices_follow_the_amounts",
    "others_pay_and_end",
    "payers_that_cannot_be_are_refused",
    "slices_follow_currencies",
    "without_funding_only_idle_time_is_left",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s11_ticket", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s11_ticket", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s11_ticket", CASES);
}
