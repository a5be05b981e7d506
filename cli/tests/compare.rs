//! `aegis test` from outside: what a user reads when something is missing. The machines are compared by `make compare`,
//! which needs a kernel that apt fetches.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod host;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::{artifacts, can_run, has};

/// A scratch directory, with a cache of its own in it.
struct World(PathBuf);

impl World {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-compare-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("aegis")).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, list: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aegis"));
        command.args(["test", "--list"]).arg(self.0.join(list)).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", &self.0).env("AEGIS_ARTIFACTS", artifacts());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command fails as the tool fails, with one line on standard error that ends like this.
#[track_caller]
fn refused(command: &mut Command, end: &str) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert_eq!(output.stdout, b"");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("aegis: ") && errors.trim_end().ends_with(end), "{errors}");
}

#[test]
fn what_is_missing_is_one_line() {
    let world = World::new("missing");
    refused(Command::new(env!("CARGO_BIN_EXE_aegis")).arg("test").stdin(Stdio::null()), "--list <FILE|DIR>");
    refused(&mut world.command("list"), "No such file or directory (os error 2)");
    world.put("empty", "# nothing\n\n");
    refused(&mut world.command("empty"), "empty: no program in it");
    world.put("wrong", "/bin/sh\n./nothing\n");
    refused(&mut world.command("wrong"), "wrong:2: ./nothing: no such file");
    world.put("good", "/bin/sh -c true\n");
    let how = "on Debian and Ubuntu: sudo apt install qemu-system-x86";
    refused(world.command("good").env("AEGIS_QEMU", "/nonexistent/qemu"), how);
}

#[test]
fn without_a_network_and_a_cached_kernel_there_is_no_test() {
    if !(has("gcc") && can_run()) {
        eprintln!("skipped: no gcc, no QEMU or no artefacts");
        return;
    }
    let world = World::new("network");
    let script = world.put("apt-cache", "#!/bin/sh\nexit 100\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.put("good", "/bin/sh -c true\n");
    let search = format!("{}:{}", world.0.display(), std::env::var("PATH").unwrap());
    let output = world.command("good").env("PATH", search).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("aegis: test: Debian's kernel is not cached and could not be fetched: "), "{errors}");
}
