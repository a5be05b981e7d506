//! Bells and wakeup predicates. The cases are in `tests/guest/src/s05_bell.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "ring_counts_and_take_empties",
    "rights_are_asked_for",
    "bells_have_a_limit",
    "sleep_that_holds_already_returns_at_once",
    "sleep_until_a_time",
    "sleep_until_a_bell",
    "sleep_until_a_word_changes",
    "word_operators_compare",
    "products_are_alternatives_of_conjunctions",
    "sleep_refuses_bad_predicates",
    "sleeping_pins_the_words_frame",
    "ring_at_rings_once_at_its_time",
    "ring_at_can_be_replaced_and_taken_back",
    "bell_upcall_interrupts_a_running_program",
    "pending_upcall_keeps_sleep_from_beginning",
    "bell_upcall_ends_a_sleep",
    "sleep_on_nothing_ends_by_upcall_only",
    "no_wakeup_is_lost_between_bells",
    "no_wakeup_is_lost_on_words",
    "a_dropped_bell_wakes_nobody_and_breaks_nothing",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s05_bell", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s05_bell", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s05_bell", CASES);
}
