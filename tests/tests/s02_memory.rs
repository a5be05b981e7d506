//! Frames and mappings. The cases are in `tests/guest/src/s02_memory.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "allocated_frames_are_zero_and_ours",
    "allocate_takes_the_frames_it_is_told",
    "allocate_aligns",
    "allocate_refuses_bad_arguments",
    "large_allocations_come_in_steps",
    "free_waits_for_the_last_mapping",
    "split_cuts",
    "donate_feeds_tables",
    "map_needs_a_capability_that_covers",
    "map_refuses_addresses_outside_the_windows",
    "bind_refuses_malformed_entries",
    "write_rights_are_enforced",
    "execute_rights_are_enforced",
    "write_and_execute_together_are_as_asked",
    "protect_changes_and_keeps_within_rights",
    "mapping_over_a_mapping_replaces_it",
    "unmapping_takes_effect_at_once",
    "accessed_and_dirty_bits_are_seen_and_cleaned",
    "program_half_is_mapped_like_the_window",
    "large_pages_work",
    "large_and_small_pages_do_not_overlap",
    "a_batch_of_512_entries_is_a_few_calls",
    "a_batch_stops_at_the_entry_that_fails",
    "long_batches_answer_again",
    "one_frame_is_mapped_many_times",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s02_memory", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s02_memory", CASES);
}
