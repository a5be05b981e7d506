//! What the first environment finds, on every machine type, with little and much memory, with one and many
//! processors. The cases are in `tests/guest/src/s00_boot.rs`; this list keeps one from vanishing.

use aegis_tests::{Machine, MachineKind, expect_suite};

const CASES: &[&str] = &[
    "boot_information_is_sane",
    "first_capabilities_are_where_the_contract_says",
    "memory_and_processors_are_what_the_host_gave",
    "system_page_tells_time",
    "control_page_names_itself",
    "own_page_tables_are_readable",
    "own_page_tables_are_not_writable",
    "kernel_pages_are_not_writable_by_us",
    "kernel_memory_is_out_of_reach",
    "null_pages_are_out_of_reach",
    "privileged_instructions_fault",
    "null_call_keeps_registers",
    "vector_state_is_each_processors_own",
    "new_processors_start_with_clean_vector_state",
    "fs_base_is_each_processors_own",
];

#[test]
fn on_microvm() {
    expect_suite(Machine::new(), "s00_boot", CASES);
}

#[test]
fn on_pc() {
    expect_suite(Machine::new().machine(MachineKind::Pc), "s00_boot", CASES);
}

#[test]
fn on_q35() {
    expect_suite(Machine::new().machine(MachineKind::Q35), "s00_boot", CASES);
}

#[test]
fn on_q35_with_four_gibibytes() {
    expect_suite(Machine::new().machine(MachineKind::Q35).memory_mib(4096), "s00_boot", CASES);
}

#[test]
fn on_microvm_with_four_gibibytes() {
    expect_suite(Machine::new().memory_mib(4096), "s00_boot", CASES);
}

#[test]
fn on_two_processors() {
    expect_suite(Machine::new().cpus(2), "s00_boot", CASES);
}

#[test]
fn on_eight_processors() {
    expect_suite(Machine::new().cpus(8), "s00_boot", CASES);
}

#[test]
fn on_eight_processors_of_a_pc() {
    expect_suite(Machine::new().machine(MachineKind::Pc).cpus(8), "s00_boot", CASES);
}
