//! The host tool: starts unmodified Linux programs in a machine that runs the Aegis kernel and exos under
//! QEMU.
//!
//! | room | what |
//! |---|---|
//! | `options` | the command line, and the words in it and in `up`'s file that stand for values |
//! | `verb` | `run`, `up` with its file, `doctor`: one module per command |
//! | `start` | a program and what belongs to it, the machine that is made for one or several, its run and verdict |
//! | `relay` | while it lives: bytes, lines, signals, times; what came of it |
//! | `remote` | `ps`, `exec`, `stop` and the others, and the end of a running machine that answers them |
//! | `compose` | `compose.yaml` as `up` reads it |
//! | `oci` | `aegis-oci`: the same binary as the runtime of other people's engines |
//! | `profile` | looks on from a thread of its own and draws where the time goes |
//! | `aegis-launch` | root images, QEMU's command line and process (a crate, because benchmarks start machines too) |
//! | `aegis-bench` | `bench` and `test` |
//!
//! This file turns a command's outcome into an exit status.
//!
//! Invariants: one thread starts every process (`profile` has another, which starts none); the exit
//! status is always one of those in `errors` or the program's own; no QEMU outlives the tool.

mod compose;
mod oci;
mod options;
mod profile;
mod relay;
mod remote;
mod start;
mod verb;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use aegis_launch::errors;

use options::{Command, Parsed};
use remote::{exec, verbs, watching};
use verb::{doctor, images, manual, pool, run, up};

fn main() -> ExitCode {
    let start = Instant::now();
    let all: Vec<OsString> = std::env::args_os().collect();
    if let Some(words) = oci::words(&all) {
        return oci::main(words);
    }
    let command = match options::parse(all) {
        Ok(Parsed::Command(command)) => command,
        Ok(Parsed::Help(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Nothing(text)) => {
            eprint!("{text}");
            return ExitCode::from(errors::STATUS_TOOL);
        }
        Err(text) => {
            eprintln!("aegis: {text}");
            return ExitCode::from(errors::STATUS_TOOL);
        }
    };
    match command {
        Command::Run(options) => ended(run::run(&options, start)),
        Command::Up(options) => ended(up::up(&options, start)),
        Command::Ps(options) => ended(verbs::ps(&options)),
        Command::Top(options) => ended(verbs::top(&options)),
        Command::Logs(options) => ended(verbs::logs(&options)),
        Command::Exec(options) => ended(exec::exec(&options)),
        Command::Stop(options) => ended(verbs::stop(&options)),
        Command::Kill(options) => ended(verbs::kill(&options)),
        Command::Wait(options) => ended(watching::wait(&options)),
        Command::Stats(options) => ended(watching::stats(&options)),
        Command::Inspect(options) => ended(watching::inspect(&options)),
        Command::Events(options) => ended(watching::events(&options)),
        Command::Memory(options) => ended(verbs::memory(&options)),
        Command::Tickets(options) => ended(verbs::tickets(&options)),
        Command::Images(options) => ended(images::images(&options)),
        Command::Pool(options) => ended(pool::pool(&options)),
        Command::Bench(options) => ExitCode::from(aegis_bench::bench(&options)),
        Command::Test(options) => ExitCode::from(aegis_bench::compare::test(&options)),
        Command::Completion(options) => ended(manual::completion(&options)),
        Command::Man(options) => ended(manual::man(&options)),
        Command::Doctor => ExitCode::from(doctor::doctor()),
        Command::Draws => ExitCode::from(u8::from(!aegis_bench::measure_draws())),
        Command::Version => {
            println!("aegis {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

fn ended(outcome: Result<u8, errors::Error>) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("aegis: {error}");
            ExitCode::from(error.status())
        }
    }
}
