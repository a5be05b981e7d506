//! Processor time. The cases are in `tests/guest/src/s07_slice.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "busy_environments_share_evenly",
    "a_sleeper_does_not_lose_its_turn",
    "slice_end_and_slice_begin_are_told",
    "slice_end_that_yields_in_time_is_not_stopped",
    "spinner_in_slice_end_is_stopped",
    "masked_slice_end_cannot_be_ignored",
    "directed_yield_goes_where_it_says",
    "yield_refuses_bad_targets",
    "processors_run_in_parallel",
    "passing_the_slice_on_does_not_stretch_it",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s07_slice", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s07_slice", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s07_slice", CASES);
}
