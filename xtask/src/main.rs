//! The chores of a developer: `cargo xtask build | bench-programs | test | fuzz | attack | compare | images | network |
//! repeat | stress | suites | tidy | count | circles | toolchain | disk-model`.
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
mod disk_model;
mod errors;
mod fuzz;
mod images;
mod lexer;
mod modules;
mod network;
mod process;
mod real_suites;
mod repeat;
mod source;
mod stress;
mod suite;
mod tidy;
mod toml;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use errors::{Error, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = checkout_root();
    let outcome = match words.as_slice() {
        ["build"] => build::build(&root, build::Profile::Release),
        ["build", "--profile", name] => build::Profile::parse(name).and_then(|profile| build::build(&root, profile)),
        ["bench-programs"] => build::bench_programs(&root),
        ["test"] => suite::test(&root),
        ["fuzz", words @ ..] => fuzz::run(&root, words),
        ["attack", words @ ..] => attack::run(&root, words),
        ["compare"] => compare::run(&root),
        ["images", names @ ..] => images::run(&root, names),
        ["network", words @ ..] => network::run(&root, words),
        ["disk-model", file, socket] => disk_model::run(file, socket),
        ["repeat", words @ ..] => repeat::run(&root, words),
        ["stress", words @ ..] => stress::run(&root, words),
        ["suites", words @ ..] => real_suites::run(&root, words),
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
