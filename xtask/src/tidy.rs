//! `cargo xtask tidy`: style and the laws of the architecture, as a test.
//!
//! Limits, allow-lists and ratchets are in `tidy.toml`; each lint is a function from text to findings, with tests
//! that show it failing. The same lints, without rustfmt and clippy, run as a unit test of this crate, so that `cargo
//! test` alone sees them.

mod arrows;
mod circles;
mod comments;
mod commits;
mod config;
mod dead;
mod dialect;
mod finding;
mod limits;
mod manuals;
mod rooms;
mod unsafety;
mod words;

use std::path::Path;
use std::process::Command;

use crate::errors::Error;
use crate::toolchain::Toolchain;
use crate::{build, process};
use crate::{modules, source};
use config::Config;
use finding::Finding;

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only our own lints: under a second.
    Fast,
    /// rustfmt, and clippy for the host and for the guest target, too.
    Full,
}

/// Prints findings to standard error; the number of them, with that of failed tools, is the error.
pub(crate) fn run(root: &Path, depth: Depth) -> Result<(), Error> {
    let findings = lint(root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    let mut count = findings.len();
    if depth == Depth::Full {
        for (tool, mut command) in tools(root)? {
            if let Err(error) = process::run_quietly(tool, &mut command) {
                eprintln!("tidy: {error}");
                count += 1;
            }
        }
    }
    if count == 0 { Ok(()) } else { Err(Error::Untidy { count }) }
}

/// All our own lints over the checkout, in order of place.
fn lint(root: &Path) -> Result<Vec<Finding>, Error> {
    let config = Config::read(root)?;
    let sources = source::read_all(root)?;
    let mut findings = limits::check(&sources, &config);
    findings.extend(unsafety::check(&sources, &config));
    findings.extend(words::check(&sources, &config));
    findings.extend(dialect::check(&sources, &config));
    findings.extend(comments::check(&sources));
    findings.extend(arrows::check(&sources, &config));
    findings.extend(manuals::check(&sources, &config));
    findings.extend(circles::check(&modules::graphs(&sources), &config));
    findings.extend(dead::check(&sources));
    findings.extend(rooms::check(&sources, &config));
    findings.extend(commits::check(root, &config));
    findings.sort();
    Ok(findings)
}

/// rustfmt and clippy, where they are installed and are those of the pinned toolchain: other versions have other
/// opinions, and a machine that builds with Debian's compiler should not fail for them.
fn tools(root: &Path) -> Result<Vec<(&'static str, Command)>, Error> {
    let mut format = build::host_cargo(root);
    format.args(["fmt", "--all", "--check"]);
    let mut host = build::host_cargo(root);
    host.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    let toolchain = Toolchain::find(root)?;
    let mut guest = toolchain.cargo(root, "clippy");
    build::guest_packages(&mut guest);
    guest.arg("--target-dir").arg(toolchain.target_dir(&build::host_target_dir(root)));
    guest.args(["--", "-D", "warnings"]);

    let pinned = config::pinned_toolchain(root)?;
    let all = [
        ("cargo fmt --check", "fmt", format),
        ("clippy for the host", "clippy", host),
        ("clippy for the guest target", "clippy", guest),
    ];
    let mut tools = Vec::new();
    for (label, subcommand, command) in all {
        match why_not(&command, subcommand, &pinned) {
            None => tools.push((label, command)),
            Some(reason) => eprintln!("tidy: {label} was not run: {reason}"),
        }
    }
    Ok(tools)
}

/// Asks the cargo of `command`, in the same surroundings, for its version and whether it has the subcommand.
fn why_not(command: &Command, subcommand: &str, pinned: &str) -> Option<String> {
    let ask = |arguments: &[&str]| {
        let mut question = Command::new(command.get_program());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => question.env(name, value),
                None => question.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            question.current_dir(folder);
        }
        process::answer(question.args(arguments))
    };
    let Some(version) = ask(&["--version"]) else {
        return Some("cargo does not answer".to_string());
    };
    if !version.starts_with(&format!("cargo {pinned} ")) {
        return Some(format!("{version} is not the pinned {pinned}"));
    }
    let is_installed = ask(&[subcommand, "--version"]).is_some();
    (!is_installed).then(|| format!("cargo {subcommand} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let findings = lint(&crate::checkout_root()).unwrap();
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{} finding(s)\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn a_tool_that_is_missing_or_of_another_version_is_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let cargo = std::env::temp_dir().join(format!("xtask-cargo-{}", std::process::id()));
        let script = "#!/bin/sh\ncase $1 in --version) echo 'cargo 1.95.0 (x)';; fmt) ;; *) exit 1;; esac";
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
        let reason = |subcommand, pinned| why_not(&Command::new(&cargo), subcommand, pinned);
        assert_eq!(reason("fmt", "1.95.0"), None);
        assert_eq!(reason("clippy", "1.95.0").unwrap(), "cargo clippy is not installed");
        assert_eq!(reason("fmt", "1.96.0").unwrap(), "cargo 1.95.0 (x) is not the pinned 1.96.0");
        std::fs::remove_file(&cargo).unwrap();
        assert_eq!(reason("fmt", "1.95.0").unwrap(), "cargo does not answer");
    }
}
