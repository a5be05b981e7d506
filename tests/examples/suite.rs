//! Runs suites by hand and prints the log: `cargo run -p aegis-tests --example suite -- s01_capability --cpus 2
//! --pc`.

use std::process::ExitCode;

use aegis_tests::{Machine, MachineKind};

fn main() -> ExitCode {
    let mut machine = Machine::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|value| value.parse::<u32>().ok()).unwrap_or(1);
        machine = match argument.as_str() {
            "--cpus" => machine.cpus(number()),
            "--memory" => machine.memory_mib(u64::from(number())),
            "--limit" => machine.limit(std::time::Duration::from_secs(u64::from(number()))),
            "--icount" => machine.counting_instructions(),
            "--pc" => machine.machine(MachineKind::Pc),
            "--q35" => machine.machine(MachineKind::Q35),
            suite => machine.suite(suite),
        };
    }
    match machine.run() {
        Ok(outcome) => {
            print!("{}", outcome.log.text);
            println!("--- {}", outcome.end());
            let passed = outcome.log.sum.is_some_and(|(_, failed)| failed == 0);
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
