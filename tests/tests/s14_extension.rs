//! Hostile clients of a disk whose driver is in the kernel. The cases are in `tests/guest/src/s14_extension.rs`; this
//! list keeps one from vanishing.

use aegis_tests::{Machine, MachineKind, expect_suite};

const CASES: &[&str] = &[
    "without_a_session_nothing_is_done",
    "a_session_is_what_was_bound_for_the_disk",
    "a_forged_request_ends_its_session",
    "garbage_in_a_session_is_borne",
    "memory_that_was_taken_back_is_not_written",
];
/// A disk of zeros that takes 0.5 ms.
const DEVICES: [&str; 4] = [
    "-blockdev",
    "driver=null-co,node-name=disk,size=67108864,read-zeroes=on,latency-ns=500000",
    "-device",
    "virtio-blk-pci,drive=disk,disable-legacy=on,disable-modern=off",
];

fn machine(kind: MachineKind) -> Machine {
    Machine::new().machine(kind).devices(&DEVICES).extended("disk")
}

#[test]
fn on_pc() {
    expect_suite(machine(MachineKind::Pc), "s14_extension", CASES);
}

#[test]
fn on_q35_with_two_processors() {
    expect_suite(machine(MachineKind::Q35).cpus(2), "s14_extension", CASES);
}
