//! `cargo xtask compare`: the programs of `tests/linux` on Aegis and on a Linux guest, by `aegis test`, and the
//! scripted exchanges of frames of `tests/frames`.
//!
//! Each is compiled statically, with gcc and, where it is there, with musl-gcc. It is no part of `cargo xtask test`:
//! the Linux guest is Debian's kernel, which apt has to fetch once, and CI has no network for that.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// Programs and the arguments that they run with; what is not named here needs others beside it (`faults` ends by a
/// signal for each of its arguments) or has its own test.
const PROGRAMS: [(&str, &[&str]); 17] = [
    ("copies", &[]),
    ("files", &[]),
    ("inotify", &[]),
    ("memory", &[]),
    ("misc", &[]),
    ("pidfds", &[]),
    ("signals", &[]),
    ("sockets", &[]),
    ("tcp", &[]),
    ("terminal", &[]),
    ("timers", &[]),
    ("udp", &[]),
    ("faults", &["null"]),
    ("faults", &["divide"]),
    ("faults", &["stack"]),
    ("faults", &["abort"]),
    ("faults", &["raise", "15"]),
];

/// Compilers and what their builds are called.
const COMPILERS: [(&str, &str); 2] = [("gcc", "glibc"), ("musl-gcc", "musl")];

/// Builds all, compiles the programs into `target/aegis/compare`, writes the list, and runs it.
pub(crate) fn run(root: &Path) -> Result<(), Error> {
    build::build(root, Profile::Release)?;
    let directory = build::artefact_dir(root).join("compare");
    std::fs::create_dir_all(&directory).map_err(|error| Error::Io { what: directory.clone(), error })?;
    let mut lines = String::new();
    for (compiler, name) in COMPILERS {
        let is_there = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there {
            eprintln!("==> {compiler} is not there: its builds are left out");
            continue;
        }
        for (program, arguments) in PROGRAMS {
            let file = compile(root, &directory, compiler, name, program)?;
            lines.push_str(&format!("./{file} {}\n", arguments.join(" ")));
        }
    }
    let list = directory.join("list");
    std::fs::write(&list, lines).map_err(|error| Error::Io { what: list.clone(), error })?;
    let tool = || Command::new(build::artefact_dir(root).join("aegis"));
    process::run_loudly("aegis test", tool().args(["test", "--list"]).arg(&list))?;
    process::run_loudly("aegis test", tool().args(["test", "--frames"]).arg(root.join("tests/frames")))
}

/// The file's name in `directory`.
fn compile(root: &Path, directory: &Path, compiler: &str, name: &str, program: &str) -> Result<String, Error> {
    let file = format!("{program}-{name}");
    let source: PathBuf = root.join("tests/linux").join(program).with_extension("c");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-static", "-pthread", "-o"]).arg(directory.join(&file)).arg(source).arg("-lm");
    process::run_loudly(compiler, &mut command)?;
    Ok(file)
}
