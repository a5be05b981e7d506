//! Device functions. The cases are in `tests/guest/src/s09_device.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, MachineKind, expect_suite};

const CASES: &[&str] = &[
    "functions_describe_themselves",
    "read_refuses_bad_fields",
    "configuration_space_is_readable_on_pci",
    "ports_are_checked",
    "regions_are_mapped_where_asked",
    "map_refuses_bad_arguments",
    "read_only_capability_maps_read_only",
    "interrupts_are_bound_to_bells",
    "memory_for_the_device_is_pinned",
    "dma_refuses_bad_ranges",
    "revoked_device_leaves_nothing_behind",
    "request_goes_all_the_way",
];

#[test]
fn on_microvm() {
    expect_suite(Machine::new(), "s09_device", CASES);
}

#[test]
fn on_pc() {
    expect_suite(Machine::new().machine(MachineKind::Pc), "s09_device", CASES);
}

#[test]
fn on_q35() {
    expect_suite(Machine::new().machine(MachineKind::Q35), "s09_device", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s09_device", CASES);
}
