//! Compiles the programs of `bench/` with the host's gcc, once for each version of their sources.
//!
//! The sources are part of this tool, so it measures the same programs wherever it is started. Programs for machines
//! are static: the same file is the first process of the Linux machine and what `aegis run` starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_launch::cache::KeyHasher;

use super::failure::{Failure, last_line};

/// A program: its name, its files, and gcc's options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    flags: &'static [&'static str],
}

const EXOS_HEADER: (&str, &str) = ("exos.h", include_str!("../../../exos/native/include/exos.h"));
const LINUX_NETWORK: (&str, &str) = ("linux_network.h", include_str!("../../net/linux_network.h"));
const LOTTERY_COMMON: (&str, &str) = ("common.h", include_str!("../../lottery/common.h"));

/// The program of suite micro, with the options of the anchor's.
const MICRO: Source = Source {
    name: "micro",
    files: &[
        ("micro.h", include_str!("../../micro/micro.h")),
        ("main.c", include_str!("../../micro/main.c")),
        ("tables.c", include_str!("../../micro/tables.c")),
        ("rows_cpu.c", include_str!("../../micro/rows_cpu.c")),
        ("rows_memory.c", include_str!("../../micro/rows_memory.c")),
        ("rows_file.c", include_str!("../../micro/rows_file.c")),
        ("rows_process.c", include_str!("../../micro/rows_process.c")),
        ("rows_exos.c", include_str!("../../micro/rows_exos.c")),
        EXOS_HEADER,
    ],
    flags: &["-O2", "-static", "-pthread", "-w"],
};
/// The program of suite scale: its own rows, and what the programs have in common.
const SCALE: Source = Source {
    name: "scale",
    files: &[
        ("micro.h", include_str!("../../micro/micro.h")),
        ("main.c", include_str!("../../micro/main.c")),
        ("rows_cpu.c", include_str!("../../micro/rows_cpu.c")),
        ("tables.c", include_str!("../../scale/tables.c")),
        ("rows_names.c", include_str!("../../scale/rows_names.c")),
        ("rows_maps.c", include_str!("../../scale/rows_maps.c")),
        ("rows_descriptors.c", include_str!("../../scale/rows_descriptors.c")),
        ("rows_tasks.c", include_str!("../../scale/rows_tasks.c")),
        ("rows_pairs.c", include_str!("../../scale/rows_pairs.c")),
    ],
    flags: &["-O2", "-static", "-pthread", "-w"],
};
/// Starts a program of suite apps in a machine.
const LAUNCH: Source = Source {
    name: "launch",
    files: &[("launch.c", include_str!("../../apps/launch.c"))],
    flags: &["-O2", "-static", "-w"],
};
/// Runs the programs of `aegis test` in a machine.
const EACH: Source = Source {
    name: "each",
    files: &[("each.c", include_str!("../../compare/each.c"))],
    flags: &["-O2", "-static", "-w"],
};
/// Obeys the peer of `aegis test --frames` in a machine.
const AGENT: Source = Source {
    name: "agent",
    files: &[LINUX_NETWORK, ("agent.c", include_str!("../../exchange/agent.c"))],
    flags: &["-O2", "-static", "-w"],
};
/// The server of suite net.
const SERVER: Source = Source {
    name: "server",
    files: &[LINUX_NETWORK, ("server.c", include_str!("../../net/server.c"))],
    flags: &["-O2", "-static", "-w"],
};
/// The rows of suite disk.
const DISK: Source =
    Source { name: "disk", files: &[("disk.c", include_str!("../../disk/disk.c"))], flags: &["-O2", "-static", "-w"] };
/// The first process of Linux machines of suite rhino.
const RHINO_INIT: Source =
    Source { name: "init", files: &[("init.c", include_str!("../../rhino/init.c"))], flags: &["-O2", "-static", "-w"] };
/// The program of suite restart.
const RESTART: Source = Source {
    name: "restart",
    files: &[("restart.c", include_str!("../../disk/restart.c"))],
    flags: &["-O2", "-static", "-pthread", "-w"],
};
/// A contestant of the scheduling experiments.
const CONTEST: Source = Source {
    name: "contest",
    files: &[LOTTERY_COMMON, ("contest.c", include_str!("../../lottery/contest.c"))],
    flags: &["-O2", "-static", "-pthread", "-w"],
};
/// Those that share a processor within one system.
const TASKS: Source = Source {
    name: "tasks",
    files: &[
        LOTTERY_COMMON,
        EXOS_HEADER,
        ("tasks.h", include_str!("../../lottery/tasks.h")),
        ("tasks.c", include_str!("../../lottery/tasks.c")),
        ("monte_carlo.c", include_str!("../../lottery/monte_carlo.c")),
        ("decoders.c", include_str!("../../lottery/decoders.c")),
        ("locks.c", include_str!("../../lottery/locks.c")),
        ("spinners.c", include_str!("../../lottery/spinners.c")),
        ("server.c", include_str!("../../lottery/server.c")),
    ],
    flags: &["-O2", "-static", "-pthread", "-w"],
};
/// Writes on the host what the programs of suite apps work on.
const GENERATE: Source =
    Source { name: "generate", files: &[("generate.c", include_str!("../../apps/generate.c"))], flags: &["-O2", "-w"] };
/// Makes the null call this many instructions longer: a slowdown for `--baseline` to find.
const SLOWDOWN_VARIABLE: &str = "AEGIS_BENCH_SLOWDOWN";

/// The program of suite micro, compiled if it is not in `cache` yet.
pub(crate) fn micro(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &MICRO, &[format!("-DNULL_CALL_EXTRA={}", slowdown()?)])
}

/// The program of suite scale.
pub(crate) fn scale(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &SCALE, &[])
}

/// The launcher of suite apps.
pub(crate) fn launch(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &LAUNCH, &[])
}

/// The runner of `aegis test`.
pub(crate) fn each(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &EACH, &[])
}

/// The program behind scripted exchanges of frames.
pub(crate) fn agent(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &AGENT, &[])
}

/// The server of suite net.
pub(crate) fn server(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &SERVER, &[])
}

/// The program of suite disk.
pub(crate) fn disk(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &DISK, &[])
}

/// The first process of Linux machines of suite rhino.
pub(crate) fn rhino_init(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &RHINO_INIT, &[])
}

/// The program of suite restart.
pub(crate) fn restart(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &RESTART, &[])
}

/// The contestant of suite lottery.
pub(crate) fn contest(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &CONTEST, &[])
}

/// The experiments of suite lottery within one system.
pub(crate) fn tasks(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &TASKS, &[])
}

/// The generator of suite apps.
pub(crate) fn generate(cache: &Path) -> Result<PathBuf, Failure> {
    program(cache, &GENERATE, &[])
}

fn program(cache: &Path, source: &Source, more_flags: &[String]) -> Result<PathBuf, Failure> {
    let version = gcc_version()?;
    let directory = cache.join(format!("bench-{:032x}", key(&version, source, more_flags)));
    let program = directory.join(source.name);
    if program.is_file() {
        return Ok(program);
    }
    let failed = |path: &Path, error| Failure::file("writing", path.into(), error);
    std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
    for (name, text) in source.files {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    // Another run may be compiling the same: the program appears by renaming.
    let fresh = directory.join(format!("{}.{}.tmp", source.name, std::process::id()));
    let files = source.files.iter().filter(|(name, _)| name.ends_with(".c"));
    let output = Command::new("gcc")
        .args(source.flags)
        .args(more_flags)
        .arg("-o")
        .arg(&fresh)
        .args(files.map(|(name, _)| directory.join(name)))
        .arg("-lm")
        .output()
        .map_err(|error| Failure::Host("starting gcc", error))?;
    if !output.status.success() {
        let _ = std::fs::remove_file(&fresh);
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Compile(source.name, last_line(&text)));
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

fn key(version: &str, source: &Source, more_flags: &[String]) -> u128 {
    let mut hasher = KeyHasher::default();
    hasher.add(version.as_bytes()).add(source.name.as_bytes());
    for text in source.files.iter().flat_map(|(name, text)| [name, text]).chain(source.flags) {
        hasher.add(text.as_bytes());
    }
    for flag in more_flags {
        hasher.add(flag.as_bytes());
    }
    hasher.key()
}

#[cfg(test)]
mod tests {
    use super::{GENERATE, LAUNCH, MICRO, key};

    #[test]
    fn the_key_names_compiler_program_and_options() {
        let options = ["-DNULL_CALL_EXTRA=0".to_string()];
        assert_eq!(key("12.2", &MICRO, &options), key("12.2", &MICRO, &options));
        assert_ne!(key("12.2", &MICRO, &options), key("12.3", &MICRO, &options));
        assert_ne!(key("12.2", &MICRO, &options), key("12.2", &MICRO, &[]));
        assert_ne!(key("12.2", &LAUNCH, &[]), key("12.2", &GENERATE, &[]));
    }
}
