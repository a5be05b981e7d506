//! Address spaces of one environment. The cases are in `tests/guest/src/s10_space.rs`; this list keeps one from
//! vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "each_space_has_its_own_program_half",
    "the_window_is_in_every_space",
    "each_space_sees_its_own_tables",
    "large_pages_work_in_spaces",
    "the_kernel_reads_through_the_current_space",
    "processors_are_in_spaces_of_their_own",
    "a_window_change_reaches_other_spaces_that_run",
    "a_program_change_reaches_who_runs_there",
    "gates_lead_into_the_space_of_the_callee",
    "a_space_gives_back_what_it_cost",
    "a_space_in_use_is_busy",
    "a_capability_goes_from_every_space",
    "revocation_reaches_the_spaces_of_others",
    "an_environment_ends_with_its_spaces",
    "spaces_have_a_limit",
    "spaces_stay_in_their_environment",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s10_space", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s10_space", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s10_space", CASES);
}
