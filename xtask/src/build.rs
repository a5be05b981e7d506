//! `cargo xtask build`: the guest binaries and the host tool, put where everything else looks for them.
//!
//! Artefacts are in `target/aegis` of the checkout, whatever the build folders are: `kernel.elf`,
//! `kernel-extended.elf`, `exos.elf`, `exos-mini.elf`, `pods.elf`, `bench-native.elf`, `tests-guest*.elf` and `aegis`.
//! [`bench_programs`] adds `rhino-*`. They are replaced by renaming, and only when their bytes changed, so that a run
//! that has just opened one is not disturbed. One build at a time holds the lock; a second one waits and then finds
//! nothing to do.
//!
//! `target/aegis/.stamp` is as old as the start of the last build that succeeded. `./aegis` compares the sources with
//! it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::errors::Error;
use crate::process;
use crate::toolchain::Toolchain;

const KERNEL_PACKAGE: &str = "aegis-kernel";
/// The kernel with drivers in it (ADR 0075).
const EXTENDED_PACKAGE: &str = "aegis-extended";
/// What the kernel is compiled with besides: its backtraces follow frame pointers, and it lies where it is linked.
/// Neither is so of the others (ADR 0040), so the kernel has a build folder of its own.
const KERNEL_CONFIG: &str =
    "target.x86_64-unknown-none.rustflags=['-Cforce-frame-pointers=yes', '-Crelocation-model=static']";
/// It is a library and two binaries (ADR 0075), and compiled as one piece each.
const KERNEL_LTO: &str = "profile.release.lto='fat'";
/// The other packages that run in the machine. Cargo builds all in one go, so what they share is compiled once.
const USER_PACKAGES: [&str; 6] =
    ["exos-linux", "exos-mini", "aegis-pods", "aegis-domains", "aegis-bench-native", "aegis-tests-guest"];
const HOST_PACKAGE: &str = "aegis";
/// It is not what is measured: compiled in pieces, for which either processor does.
const HOST_CONFIG: [&str; 2] = ["profile.release.lto='off'", "profile.release.codegen-units=16"];
/// Programs of `aegis bench rhino`, and the package that builds them. That of the peers comes last: what it is measured
/// beside takes minutes to compile.
const RHINO_PROGRAMS: [(&str, &[&str], &str, &[&str]); 2] = [
    ("aegis-tests", &[], "--bin", &["rows", "oo7", "tpca"]),
    ("rhino", &["--features", "peers"], "--example", &["peers"]),
];
const RHINO_TARGET: &str = "x86_64-unknown-linux-gnu";
/// They run in machines that have no libraries, and at the addresses that their marks say.
const RHINO_CONFIG: &str =
    "target.x86_64-unknown-linux-gnu.rustflags=['-Ctarget-feature=+crt-static', '-Crelocation-model=static']";

/// Names under which the binaries of the guest packages are published; those of `aegis-tests-guest` get theirs by rule.
const GUEST_ARTEFACTS: [(&str, &str); 8] = [
    ("aegis-kernel", "kernel.elf"),
    ("aegis-kernel-extended", "kernel-extended.elf"),
    ("exos", "exos.elf"),
    ("exos-mini", "exos-mini.elf"),
    ("aegis-pods", "pods.elf"),
    ("aegis-disk-domain", "disk-domain.elf"),
    ("aegis-net-domain", "net-domain.elf"),
    ("aegis-bench-native", "bench-native.elf"),
];

/// Cargo's profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// What users run and what is measured.
    Release,
    /// With overflow checks and debug assertions.
    Dev,
}

impl Profile {
    /// The profile of that name.
    pub(crate) fn parse(name: &str) -> Result<Profile, Error> {
        match name {
            "release" => Ok(Profile::Release),
            "dev" => Ok(Profile::Dev),
            _ => Err(Error::Usage),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Dev => "dev",
        }
    }
}

/// Builds everything and publishes it.
pub(crate) fn build(root: &Path, profile: Profile) -> Result<(), Error> {
    let artefacts = artefact_dir(root);
    fs::create_dir_all(&artefacts).map_err(Error::io(&artefacts))?;
    let _lock = lock(&artefacts.join(".lock"))?;
    let fresh_stamp = artefacts.join(".stamp.new");
    File::create(&fresh_stamp).map_err(Error::io(&fresh_stamp))?;

    // Either leaves a processor idle for long, where its last crate is compiled.
    std::thread::scope(|scope| {
        let host = scope.spawn(|| build_host(root, profile, &artefacts));
        let guest = build_guest(root, profile, &artefacts);
        host.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(guest)
    })?;

    let stamp = artefacts.join(".stamp");
    fs::rename(&fresh_stamp, &stamp).map_err(Error::io(&stamp))
}

/// What runs in the machine.
fn build_guest(root: &Path, profile: Profile, artefacts: &Path) -> Result<(), Error> {
    let toolchain = Toolchain::find(root)?;
    let target_dir = toolchain.target_dir(&host_target_dir(root));
    let mut binaries = Vec::new();
    // Two builds, so that what the extended kernel wants of a crate does not become the kernel's.
    for (package, label) in
        [(KERNEL_PACKAGE, "building the kernel"), (EXTENDED_PACKAGE, "building the extended kernel")]
    {
        let mut kernel = toolchain.cargo(root, "build");
        kernel
            .args(["--config", KERNEL_CONFIG, "--config", KERNEL_LTO])
            .arg("--target-dir")
            .arg(target_dir.join("kernel"));
        packages(&mut kernel, &[package]);
        binaries.extend(run(&mut kernel, profile, label)?);
    }
    let mut user = toolchain.cargo(root, "build");
    user.arg("--target-dir").arg(target_dir);
    packages(&mut user, &USER_PACKAGES);
    binaries.extend(run(&mut user, profile, "building the library OS")?);
    publish_guest(&binaries, artefacts)
}

fn build_host(root: &Path, profile: Profile, artefacts: &Path) -> Result<(), Error> {
    let mut host = host_cargo(root);
    host.arg("build");
    HOST_CONFIG.iter().for_each(|config| _ = host.args(["--config", config]));
    packages(&mut host, &[HOST_PACKAGE]);
    let binaries = run(&mut host, profile, "building the host tool")?;
    publish(&binaries, HOST_PACKAGE, &artefacts.join(HOST_PACKAGE))
}

/// Builds the programs of `aegis bench rhino` and publishes them as `rhino-NAME`. They are no part of [`build`]: nobody
/// else needs them.
pub(crate) fn bench_programs(root: &Path) -> Result<(), Error> {
    let artefacts = artefact_dir(root);
    fs::create_dir_all(&artefacts).map_err(Error::io(&artefacts))?;
    for (package, features, kind, names) in RHINO_PROGRAMS {
        let mut cargo = host_cargo(root);
        cargo.args(["build", "--target", RHINO_TARGET, "--config", RHINO_CONFIG]).args(features);
        packages(&mut cargo, &[package]);
        names.iter().for_each(|name| _ = cargo.args([kind, name]));
        let binaries = run(&mut cargo, Profile::Release, "building the programs of suite rhino")?;
        for name in names {
            publish(&binaries, name, &artefacts.join(format!("rhino-{name}")))?;
        }
    }
    Ok(())
}

/// Where artefacts are published.
pub(crate) fn artefact_dir(root: &Path) -> PathBuf {
    root.join("target/aegis")
}

/// The build folder of the host.
pub(crate) fn host_target_dir(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// The cargo that runs this, for the host.
pub(crate) fn host_cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// The packages that run in the machine, as arguments.
pub(crate) fn guest_packages(command: &mut Command) {
    packages(command, &[KERNEL_PACKAGE, EXTENDED_PACKAGE]);
    packages(command, &USER_PACKAGES);
}

fn packages(command: &mut Command, names: &[&str]) {
    for name in names {
        command.args(["--package", name]);
    }
}

/// Runs a cargo build; returns the executables that belong to it, whether or not they had to be made anew.
fn run(command: &mut Command, profile: Profile, label: &str) -> Result<Vec<PathBuf>, Error> {
    command.args(["--profile", profile.name(), "--message-format=json-render-diagnostics"]);
    let messages = process::run_quietly(label, command)?;
    Ok(executables(&String::from_utf8_lossy(&messages)))
}

/// Paths of executables in cargo's messages, one JSON object per line. Reading one string field does not need a JSON
/// reader; a path with a quote or a backslash in it is not understood and will be missed loudly.
fn executables(messages: &str) -> Vec<PathBuf> {
    const FIELD: &str = "\"executable\":\"";
    messages
        .lines()
        .filter_map(|line| line.split_once(FIELD)?.1.split_once('"'))
        .map(|(executable, _)| PathBuf::from(executable))
        .collect()
}

fn publish_guest(binaries: &[PathBuf], artefacts: &Path) -> Result<(), Error> {
    for (binary, artefact) in GUEST_ARTEFACTS {
        publish(binaries, binary, &artefacts.join(artefact))?;
    }
    for binary in binaries.iter().filter_map(|path| path.file_name()?.to_str()) {
        if GUEST_ARTEFACTS.iter().all(|(name, _)| *name != binary) {
            publish(binaries, binary, &artefacts.join(test_artefact(binary)))?;
        }
    }
    Ok(())
}

/// `aegis-tests-guest` is `tests-guest.elf`; any other binary of that package is `tests-guest-NAME.elf`.
fn test_artefact(binary: &str) -> String {
    let name = binary.strip_prefix("aegis-").unwrap_or(binary);
    match name.strip_prefix("tests-guest") {
        Some(rest) => format!("tests-guest{rest}.elf"),
        None => format!("tests-guest-{name}.elf"),
    }
}

fn publish(binaries: &[PathBuf], name: &str, to: &Path) -> Result<(), Error> {
    let from = binaries
        .iter()
        .find(|path| path.file_name().is_some_and(|file_name| file_name == name))
        .ok_or_else(|| Error::Artefact { name: name.to_string() })?;
    let bytes = fs::read(from).map_err(Error::io(from))?;
    if fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let fresh = to.with_extension("new");
    // Copied, not written: the copy keeps the permission to execute.
    fs::copy(from, &fresh).map_err(Error::io(&fresh))?;
    fs::rename(&fresh, to).map_err(Error::io(to))
}

/// Held until dropped. Says so when it has to wait, as the other build may take a while.
fn lock(path: &Path) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            eprintln!("waiting for another build of this checkout ...");
            file.lock().map_err(Error::io(path))?;
            Ok(file)
        }
        Err(fs::TryLockError::Error(error)) => Err(Error::io(path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"abi"},"executable":null,"fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"exos"},"executable":"/t/release/exos","fresh":false}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executables(messages), [PathBuf::from("/t/release/exos")]);
    }

    #[test]
    fn test_binaries_are_named_by_rule() {
        assert_eq!(test_artefact("aegis-tests-guest"), "tests-guest.elf");
        assert_eq!(test_artefact("tests-guest-calls"), "tests-guest-calls.elf");
        assert_eq!(test_artefact("spin"), "tests-guest-spin.elf");
    }

    #[test]
    fn publishing_replaces_only_what_changed_and_names_what_is_missing() {
        let folder = std::env::temp_dir().join(format!("xtask-publish-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("exos"), folder.join("exos.elf"));
        fs::write(&from, "one").unwrap();
        publish(std::slice::from_ref(&from), "exos", &to).unwrap();
        let before = fs::metadata(&to).unwrap().modified().unwrap();
        publish(std::slice::from_ref(&from), "exos", &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), before);
        fs::write(&from, "two").unwrap();
        publish(&[from], "exos", &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"two");
        let error = publish(&[], "exos", &to).unwrap_err();
        assert!(matches!(error, Error::Artefact { name } if name == "exos"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
