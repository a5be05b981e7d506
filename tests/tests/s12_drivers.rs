//! Drivers of real functions: e1000, IDE, AHCI. The cases are in `tests/guest/src/s12_drivers.rs`; this list keeps one
//! from vanishing.

use std::time::Duration;

use aegis_tests::{Machine, MachineKind, expect_suite};

const CASES: &[&str] = &[
    "ports_and_registers_have_places",
    "ide_reads_and_interrupts_by_its_own_line",
    "a_frame_comes_back_and_interrupts_by_line",
    "functions_on_one_line_do_not_wait_for_each_other",
    "ahci_interrupts_by_message",
    "an_interrupt_goes_where_it_is_sent",
    "a_function_is_reset_on_demand",
    "environments_end_with_receive_buffers_out",
    "environments_end_with_disk_reads_under_way",
];

/// A disk that takes 0.3 ms, on the machine's own controller, and two network functions on one wire and one line.
const DEVICES: [&str; 12] = [
    "-blockdev",
    "driver=null-co,node-name=disk,size=67108864,read-zeroes=on,latency-ns=300000",
    "-device",
    "ide-hd,bus=ide.0,drive=disk",
    "-netdev",
    "hubport,id=a,hubid=0",
    "-netdev",
    "hubport,id=b,hubid=0",
    "-device",
    "e1000,netdev=a,addr=4,romfile=,mitigation=off",
    "-device",
    "e1000,netdev=b,addr=8,romfile=,mitigation=off",
];
/// A function behind a port of PCI Express: it has a function level reset.
const BEHIND_A_PORT: [&str; 4] =
    ["-device", "pcie-root-port,id=behind,chassis=1,addr=10", "-device", "virtio-rng-pci,bus=behind"];

fn machine(kind: MachineKind) -> Machine {
    Machine::new().machine(kind).devices(&DEVICES).limit(Duration::from_secs(300))
}

#[test]
fn on_pc() {
    expect_suite(machine(MachineKind::Pc), "s12_drivers", CASES);
}

#[test]
fn on_pc_with_four_processors() {
    expect_suite(machine(MachineKind::Pc).cpus(4), "s12_drivers", CASES);
}

#[test]
fn on_pc_with_full_firmware() {
    expect_suite(machine(MachineKind::Pc).full_firmware(), "s12_drivers", CASES);
}

/// `qboot` does not come to its end on this machine with an e1000 in it.
#[test]
fn on_q35() {
    let machine = machine(MachineKind::Q35).devices(&BEHIND_A_PORT).full_firmware().cpus(2);
    expect_suite(machine, "s12_drivers", CASES);
}
