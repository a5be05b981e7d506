//! The host tool: starts unmodified Linux programs in a machine that runs the Aegis kernel and exos under
//! QEMU.
//!
//! `options` reads the command line, one module per verb does the work (`run`, `up`, `bench`, `compare`, `doctor`,
//! `remote` for a machine that runs), and this one turns the outcome into an exit status. What `up` reads from its
//! file (`up_file`) is what `run` has on its command line; each program is a `pod` for both, and `launch` starts the
//! machine. A pod goes through `program` (what the host knows of it), `root`, `closure`, `pack*` and `shares` (its
//! files), `boot` (the bundle), `accel` and `qemu` (the command line), `machine` (the process), `ports` with `side`,
//! `pump`, `marks`, `control` and `signals` (while it lives), `ending` and `stats` (what came of it). `profile` looks
//! on from a thread of its own.
//!
//! Invariants: one thread starts every process (`bench` and `profile` have others, which start none); the exit
//! status is always one of those in `errors` or the program's own; no QEMU outlives the tool.

mod accel;
mod artifacts;
mod bench;
mod boot;
mod cache;
mod closure;
mod closure_cache;
mod compare;
mod doctor;
mod domain;
mod ending;
mod errors;
mod json_text;
mod launch;
mod machine;
mod marks;
mod option_groups;
mod options;
mod pack;
mod pack_dir;
mod pack_host;
mod pack_image;
mod pack_tar;
mod pod;
mod ports;
mod profile;
mod program;
mod pump;
mod qemu;
mod remote;
mod root;
mod run;
mod shares;
mod side;
mod signals;
mod stats;
mod symbols;
mod terminal;
mod up;
mod up_currencies;
mod up_file;
mod values;

use std::process::ExitCode;
use std::time::Instant;

use options::{Command, Parsed};
use remote::{exec, verbs};

fn main() -> ExitCode {
    let start = Instant::now();
    let command = match options::parse(std::env::args_os()) {
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
        Command::Memory(options) => ended(verbs::memory(&options)),
        Command::Tickets(options) => ended(verbs::tickets(&options)),
        Command::Bench(options) => ExitCode::from(bench::bench(&options)),
        Command::Test(options) => ExitCode::from(compare::test(&options)),
        Command::Doctor => ExitCode::from(doctor::doctor()),
        Command::Draws => ExitCode::from(u8::from(!bench::measure_draws())),
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
