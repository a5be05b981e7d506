//! Environments and virtual processors. The cases are in `tests/guest/src/s04_environment.rs`; this list keeps one
//! from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "create_and_destroy_give_everything_back",
    "create_refuses_what_cannot_pay",
    "quota_moves_and_comes_back",
    "quota_holds",
    "fields_are_read",
    "watcher_is_rung_also_late",
    "stopped_environment_starts_nothing",
    "processor_goes_through_its_states",
    "processor_create_refuses_bad_arguments",
    "processor_start_passes_its_arguments",
    "processor_pages_are_pinned",
    "reclaim_is_complied_with",
    "reclaim_is_ignored_and_frames_are_taken",
    "reclaim_refuses_bad_arguments",
    "destroyed_while_running",
    "destroyed_in_every_state",
    "destroyed_with_its_own_children",
    "nobody_destroys_what_it_lives_in",
    "many_children_one_after_another",
    "frames_of_a_dead_child_are_zero_for_the_next",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s04_environment", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s04_environment", CASES);
}

#[test]
fn on_four_processors() {
    expect_suite(Machine::new().cpus(4), "s04_environment", CASES);
}
