//! Capabilities. The cases are in `tests/guest/src/s01_capability.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, expect_suite};

const CASES: &[&str] = &[
    "derived_rights_and_range_only_shrink",
    "derive_refuses_bad_arguments",
    "depth_has_a_limit",
    "read_tells_type_rights_and_range",
    "drop_wants_no_descendants",
    "drop_of_a_living_environment_is_refused",
    "grant_needs_rights_on_both_sides",
    "read_only_capability_maps_read_only",
    "revoke_reaches_grandchildren_and_their_mappings",
    "revoke_keeps_the_source_and_its_mapping",
    "revoke_of_thousands_comes_to_an_end",
    "drop_breaks_mappings_of_its_environment",
    "table_grows_to_its_limit",
    "child_starts_with_itself_only",
];

#[test]
fn on_one_processor() {
    expect_suite(Machine::new(), "s01_capability", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s01_capability", CASES);
}
