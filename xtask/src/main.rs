//! The chores of a developer: `cargo xtask build | test | fuzz | attack | compare | repeat | stress | tidy | count |
//! circles | toolchain`.
//!
//! Everything that the Makefile, `./aegis` and CI do with Rust goes through here, so that there is one place that
//! knows which toolchain builds the guest binaries and where the artefacts are put. It has no dependencies: it is the
//! first thing that is compiled on a new machine, before anything was fetched, and its user waits for it. That is
//! also why TOML and Rust are read by two small readers of our own (`toml`, `lexer`); the lints need comments and
//! macro bodies, which a syntax tree drops.

mod attack;
mod build;
mod circles;
mod compare;
mod count;
mod fuzz;
mod lexer;
mod modules;
mod process;
mod repeat;
mod source;
mod stress;
mod suite;
mod tidy;
mod toml;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  build [--profile release|dev]   guest binaries and the host tool, into target/aegis
  compare                         tests/linux/*.c on Aegis and on a Linux guest (`aegis test`); needs apt's network once
  attack [--minutes N]            the programs of tests/attacks beside an honest one, on 1, 2 and 4 processors
  fuzz [--calls N | --seconds S] [--seed N] [--input FILE]
                                  searches for calls of the kernel core that break something; ten seconds, if not told
  repeat [--times N] [--cpus LIST] [NAME…]
                                  tests/commands on Aegis, many times in a row, against the host; takes hours
  stress [--cpus LIST] [--seconds N] [--memory SIZE] [--limit SECONDS] [NAME…]
                                  the stressors of Debian's stress-ng on Aegis, one after another; half an hour
  test                            build, unit tests on the host, tidy, then the suites that boot QEMU
  tidy [--fast]                   style as a test: rustfmt, clippy (not with --fast), limits and laws of tidy.toml
  count                           lines per folder
  circles [FOLDER]                files that use each other in a loop; of one crate, with the names that tie them
  toolchain                       which compiler and linker build the guest binaries

environment: AEGIS_TOOLCHAIN=prebuilt|build-std forces how core and alloc come about; CARGO_TARGET_DIR is honoured
(artefacts are in target/aegis of the checkout all the same). See docs/building.md.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = checkout_root();
    let outcome = match words.as_slice() {
        ["build"] => build::build(&root, build::Profile::Release),
        ["build", "--profile", name] => build::Profile::parse(name).and_then(|profile| build::build(&root, profile)),
        ["test"] => suite::test(&root),
        ["fuzz", words @ ..] => fuzz::run(&root, words),
        ["attack", words @ ..] => attack::run(&root, words),
        ["compare"] => compare::run(&root),
        ["repeat", words @ ..] => repeat::run(&root, words),
        ["stress", words @ ..] => stress::run(&root, words),
        ["tidy"] => tidy::run(&root, tidy::Depth::Full),
        ["tidy", "--fast"] => tidy::run(&root, tidy::Depth::Fast),
        ["count"] => count::print(&root),
        ["circles"] => circles::print(&root, None),
        ["circles", folder] => circles::print(&root, Some(folder)),
        ["toolchain"] => toolchain::print(&root),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Error::Usage),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(if matches!(error, Error::Usage) { 2 } else { 1 })
        }
    }
}

/// The folder that holds the workspace's `Cargo.toml`.
fn checkout_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Why a chore did not end well. Each names what the developer can do something about.
#[derive(Debug)]
enum Error {
    /// The command line is none of those in [`USAGE`].
    Usage,
    /// A file or folder of the checkout could not be read or written.
    Io { what: PathBuf, error: std::io::Error },
    /// A program could not be started.
    Start { program: String, error: std::io::Error },
    /// A program ended with a failure; its own output has said why.
    Failed { what: String },
    /// No compiler can build the guest binaries; the text says what was looked at.
    Toolchain(String),
    /// The build ended well but did not make this binary.
    Artefact { name: String },
    /// `tidy.toml` or a `Cargo.toml` is not what the reader understands.
    Config { what: PathBuf, problem: String },
    /// So many findings were printed.
    Untidy { count: usize },
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Usage => write!(out, "not a command\n\n{USAGE}"),
            Error::Io { what, error } => write!(out, "{}: {error}", what.display()),
            Error::Start { program, error } => write!(out, "cannot start {program}: {error}"),
            Error::Failed { what } => write!(out, "{what} failed"),
            Error::Toolchain(problem) => write!(out, "{problem}"),
            Error::Artefact { name } => write!(
                out,
                "the build made no binary for {name}: is its [[bin]] name in Cargo.toml as docs/building.md says?"
            ),
            Error::Config { what, problem } => write!(out, "{}: {problem}", what.display()),
            Error::Untidy { count } => write!(out, "{count} finding(s)"),
        }
    }
}

impl Error {
    /// Wraps an input or output error with the file or folder it is about.
    fn io(what: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |error| Error::Io { what: what.to_path_buf(), error }
    }
}
