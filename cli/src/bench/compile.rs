//! Compiles `bench/micro` with the host's gcc, once for each version of its sources.
//!
//! The sources are part of this tool, so it measures the same program wherever it is started. The program is
//! static: the same file is the first process of the Linux machine and the argument of `aegis run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::failure::{Failure, last_line};
use crate::cache::KeyHasher;

const SOURCES: [(&str, &str); 6] = [
    ("micro.h", include_str!("../../../bench/micro/micro.h")),
    ("main.c", include_str!("../../../bench/micro/main.c")),
    ("rows_cpu.c", include_str!("../../../bench/micro/rows_cpu.c")),
    ("rows_memory.c", include_str!("../../../bench/micro/rows_memory.c")),
    ("rows_file.c", include_str!("../../../bench/micro/rows_file.c")),
    ("rows_process.c", include_str!("../../../bench/micro/rows_process.c")),
];
/// What the anchor's program was compiled with.
const FLAGS: [&str; 4] = ["-O2", "-static", "-pthread", "-w"];
/// Makes the null call this many instructions longer: a slowdown for `--baseline` to find.
const SLOWDOWN_VARIABLE: &str = "AEGIS_BENCH_SLOWDOWN";

/// The compiled program, made if it is not in `cache` yet.
pub(crate) fn micro(cache: &Path) -> Result<PathBuf, Failure> {
    let slowdown = slowdown()?;
    let version = gcc_version()?;
    let directory = cache.join(format!("bench-{:032x}", key(&version, slowdown)));
    let program = directory.join("micro");
    if program.is_file() {
        return Ok(program);
    }
    let failed = |path: &Path, error| Failure::file("writing", path.into(), error);
    std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
    for (name, text) in SOURCES {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    // Another run may be compiling the same: the program appears by renaming.
    let fresh = directory.join(format!("micro.{}.tmp", std::process::id()));
    let output = Command::new("gcc")
        .args(FLAGS)
        .arg(format!("-DNULL_CALL_EXTRA={slowdown}"))
        .arg("-o")
        .arg(&fresh)
        .args(sources_in(&directory))
        .output()
        .map_err(|error| Failure::Host("starting gcc", error))?;
    if !output.status.success() {
        let _ = std::fs::remove_file(&fresh);
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Compile(last_line(&text)));
    }
    std::fs::rename(&fresh, &program).map_err(|error| failed(&program, error))?;
    Ok(program)
}

/// The first line of `gcc --version`.
pub(crate) fn gcc_version() -> Result<String, Failure> {
    let missing = Failure::Missing("gcc", "on Debian and Ubuntu: sudo apt install gcc libc6-dev");
    let output = Command::new("gcc").arg("--version").output();
    let text = output.map_err(|_| missing)?.stdout;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or("gcc").to_string())
}

fn slowdown() -> Result<u32, Failure> {
    match std::env::var(SLOWDOWN_VARIABLE) {
        Err(_) => Ok(0),
        Ok(text) => text.parse().map_err(|_| Failure::Usage("AEGIS_BENCH_SLOWDOWN: a number of instructions")),
    }
}

fn key(version: &str, slowdown: u32) -> u128 {
    let mut hasher = KeyHasher::new();
    hasher.add(version.as_bytes()).add_u64(slowdown.into());
    for text in SOURCES.iter().flat_map(|(name, text)| [name, text]).chain(&FLAGS) {
        hasher.add(text.as_bytes());
    }
    hasher.key()
}

fn sources_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let sources = SOURCES.iter().filter(|(name, _)| name.ends_with(".c"));
    sources.map(|(name, _)| directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn the_key_names_compiler_and_slowdown() {
        assert_eq!(key("12.2", 0), key("12.2", 0));
        assert_ne!(key("12.2", 0), key("12.3", 0));
        assert_ne!(key("12.2", 0), key("12.2", 100));
    }
}
