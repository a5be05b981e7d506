//! Hostile environments. The cases are in `tests/guest/src/s08_hostile.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "unknown_calls_are_unknown",
    "one_bad_slot_in_every_call",
    "pointers_outside_our_memory",
    "log_lengths_are_bounded",
    "batch_changes_while_it_is_read",
    "every_flag_at_a_kernel_call",
    "processor_starts_anywhere",
    "garbage_in_the_control_page",
    "two_environments_cannot_reach_each_other",
    "random_calls",
    "random_calls_on_two_processors",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s08_hostile", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s08_hostile", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s08_hostile", CASES);
}
