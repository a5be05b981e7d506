//! From a device's interrupt to the first instruction of its waiter, by the guest's clock, which counts instructions.
//! The case is in `tests/guest/src/s13_latency.rs`.
//!
//! On one processor: with `-icount` QEMU runs several by turns of milliseconds, and without it the host's load decides.
//! What several processors do is simulated (`kernel/core/src/tests/latency.rs`).

use std::time::Duration;

use aegis_tests::{Machine, MachineKind};

const CASES: [&str; 2] = ["interrupt_beside_ten_that_compute", "one_ring_wakes_all_processors"];

#[test]
fn on_pc() {
    let devices = ["-netdev", "hubport,id=a,hubid=0", "-device", "e1000,netdev=a,addr=4,romfile=,mitigation=off"];
    let machine = Machine::new().machine(MachineKind::Pc).devices(&devices).slice_ms(10).counting_instructions();
    let outcome = match machine.limit(Duration::from_secs(120)).suite("s13_latency").run() {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure}"),
    };
    let text = &outcome.log.text;
    let is_figure = |line: &&str| line.starts_with("interrupt to") || line.starts_with("a ring");
    text.lines().filter(is_figure).for_each(|line| println!("{line}"));
    if let Err(problem) = outcome.check(&CASES.map(|case| format!("s13_latency/{case}"))) {
        panic!("{problem}\n--- the machine said ({}) ---\n{text}", outcome.end());
    }
}
