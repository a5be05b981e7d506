//! `aegis bench` from outside: a real count of instructions on Aegis, and what a user reads when something is missing.
//!
//! The tests need gcc, and the real one QEMU and what `cargo xtask build` made; without them they say so and pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod host;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use host::{artifacts, can_run, has};

/// A scratch directory, with a cache of its own in it.
struct World(PathBuf);

impl World {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("aegis")).unwrap();
        Self(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aegis"));
        command.arg("bench").args(words).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", &self.0).env("AEGIS_ARTIFACTS", artifacts());
        command
    }

    /// A program of this world, as a script.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// What stands for Debian's kernel where QEMU is a script.
    fn fake_kernel(&self) {
        let directory = self.0.join("aegis/linux");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("vmlinuz"), vec![0; 1 << 20]).unwrap();
        std::fs::write(directory.join("version"), "linux-image-fake\n").unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Status 125, nothing on standard output, and one line that holds `words`.
fn assert_fails(output: &Output, words: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.starts_with("aegis: bench: ") && last.contains(words), "{errors}");
}

/// Runs until one repeats to the digit.
const TRIES_OF_A_BUSY_HOST: usize = 4;

#[test]
fn instructions_of_the_null_call_on_aegis() {
    if !can_run() {
        return;
    }
    let world = World::new("null");
    let words = ["--icount", "micro", "--rows", "^null", "--only", "aegis", "--json", "-"];
    let run = || {
        let output = world.command(&words).output().unwrap();
        let (json, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        (output.status.success(), json, errors)
    };
    // The host's interrupts come when they come, and a busy host's may fall into a row: the bench says so, and that it
    // says so is right. Not every time, though.
    let is_moved = |(_, _, errors): &(bool, String, String)| errors.contains("does not repeat under --icount");
    let mut tries = std::iter::repeat_with(run).take(TRIES_OF_A_BUSY_HOST);
    let (is_success, json, errors) = tries.find(|tried| !is_moved(tried)).expect("one that repeats");
    assert!(is_success, "{errors}");
    assert!(json.contains("\"mode\": \"icount\"") && json.contains("{\"name\": \"null_getppid_raw\", \"cells\": [["));
    // The control has no kernel in it: a thousand iterations of two instructions, whatever the kernel does.
    let control = json.split("\"ctl_loop_1000iter\", \"cells\": [[").nth(1).unwrap();
    let instructions: f64 = control.split(']').next().unwrap().parse().unwrap();
    assert!((2000.0..2040.0).contains(&instructions), "{instructions}");
    assert!(errors.contains("micro, instructions:"), "the table is on standard error beside JSON: {errors}");
}

#[test]
fn two_pods_share_by_their_tickets() {
    if !can_run() {
        return;
    }
    let world = World::new("lottery");
    let html = world.0.join("page.html");
    let words = ["lottery", "--quick", "--rows", "^fig05_2_to_1_in_8_s", "--only", "aegis", "--json", "-", "--html"];
    let output = world.command(&words).arg(&html).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let json = String::from_utf8(output.stdout).unwrap();
    let row = json.split("\"fig05_2_to_1_in_8_s\", \"cells\": [[2], [").nth(1).unwrap_or_else(|| panic!("{json}"));
    let ratios: Vec<f64> = row.split(']').next().unwrap().split(", ").map(|it| it.parse().unwrap()).collect();
    // Three windows of 80 slices; of 240 draws 160 are the first one's, and six standard deviations are 44.
    let share = ratios.iter().map(|ratio| ratio / (1.0 + ratio)).sum::<f64>() / ratios.len() as f64;
    assert!(ratios.len() == 3 && (0.48..0.85).contains(&share), "{ratios:?}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg class=\"plane\"") && page.contains("<polyline class=\"line a\""), "{page}");
}

#[test]
fn no_qemu() {
    let world = World::new("qemu");
    let output = world.command(&["micro"]).env("AEGIS_QEMU", "/nonexistent/qemu").output().unwrap();
    assert_fails(&output, "/nonexistent/qemu: not found");
}

#[test]
fn no_compiler() {
    let world = World::new("gcc");
    let output = linux_only(&world, "exit 0").env("PATH", "/nonexistent").output().unwrap();
    assert_fails(&output, "gcc: not found");
}

#[test]
fn no_kernel_and_no_network() {
    if !has("gcc") {
        return;
    }
    let world = World::new("fetch");
    world.script("apt-cache", "echo '  Depends: linux-image-6.1.0-1-cloud-amd64'");
    world.script("apt-get", "echo 'E: Could not resolve deb.debian.org' >&2; exit 100");
    let path = format!("{}:{}", world.0.display(), std::env::var("PATH").unwrap());
    let output = linux_only(&world, "exit 0").env("PATH", path).output().unwrap();
    assert_fails(&output, "could not be fetched: E: Could not resolve deb.debian.org");
    assert_eq!(std::fs::read_dir(world.0.join("aegis/linux")).unwrap().count(), 0, "nothing half is left");
}

#[test]
fn a_machine_that_does_not_come_up() {
    if !has("gcc") {
        return;
    }
    let world = World::new("down");
    world.fake_kernel();
    let output = linux_only(&world, "echo 'qemu: no such machine' >&2; exit 1").output().unwrap();
    assert_fails(&output, "Linux did not come up: it ended; qemu: no such machine");
}

#[test]
fn half_of_a_table_is_none() {
    if !has("gcc") {
        return;
    }
    let world = World::new("half");
    world.fake_kernel();
    let output = linux_only(&world, "echo start null_getppid_raw; echo row null_getppid_raw 300 100").output();
    assert_fails(&output.unwrap(), "Linux: it ended");
}

#[test]
fn wrong_rows() {
    if !has("gcc") {
        return;
    }
    let world = World::new("rows");
    world.fake_kernel();
    for (regex, words) in [("[", "--rows: "), ("nosuchrow", "no row is found")] {
        let mut command = world.command(&["micro", "--only", "linux", "--rows", regex]);
        assert_fails(&command.env("AEGIS_QEMU", "/bin/true").output().unwrap(), words);
    }
}

#[test]
fn a_full_disk() {
    let world = World::new("full");
    // A file size limit stands for it: both make the first write fail.
    let tool = env!("CARGO_BIN_EXE_aegis");
    let script = format!("trap '' XFSZ; ulimit -f 0; exec {tool} bench micro --only linux");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).env("XDG_CACHE_HOME", &world.0).env("AEGIS_QEMU", "/bin/true");
    if has("gcc") {
        assert_fails(&command.output().unwrap(), "writing ");
    }
}

/// The null call on Linux alone, with a script in QEMU's place.
fn linux_only(world: &World, qemu: &str) -> Command {
    let qemu: PathBuf = world.script("qemu", qemu);
    let mut command = world.command(&["--icount", "micro", "--rows", "^null", "--only", "linux"]);
    command.env("AEGIS_QEMU", AsRef::<Path>::as_ref(&qemu));
    command
}

#[test]
fn a_row_that_ends_its_machine_does_not_take_the_others_with_it() {
    if !has("gcc") {
        return;
    }
    let world = World::new("lost");
    world.fake_kernel();
    let script = "case \"$*\" in
        *null_getppid_raw*aloud*) echo start null_getppid_raw ;;
        *aloud*) echo start ctl_loop_1000iter; echo row ctl_loop_1000iter 2005.5 2; echo done 1 ;;
        esac";
    let output = linux_only(&world, script).output().unwrap();
    let (table, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(errors.contains("not to be trusted: null_getppid_raw ended the Linux machine"), "{errors}");
    assert!(table.contains("null_getppid_raw") && table.contains("its machine ended"), "{table}");
    assert!(table.contains("2006"), "the row after it was measured: {table}");
}

/// A small file of `--json` with a row that won, one that lost and one that cannot run.
const FIGURES: &str = r#"{
"format": 1, "mode": "icount", "date_unix_s": 1795248600, "versions": {"qemu": "QEMU <7>"},
"suites": [{"suite": "micro", "unit": "instructions", "compared": [0, 1], "columns": [
{"key": "aegis", "title": "Aegis", "command": "aegis run 'a b'"},
{"key": "linux", "title": "Linux", "command": "qemu & more"}],
"rows": [
{"name": "won", "cells": [[156.125], [312]]},
{"name": "lost", "cells": [[14058.75], [3120.5]]},
{"name": "missing", "cells": ["fork: ENOSYS", [405300]]}]}]
}
"#;

#[test]
fn a_page_of_an_earlier_file_has_its_figures() {
    let world = World::new("page");
    let (figures, page) = (world.0.join("it.json"), world.0.join("it.html"));
    std::fs::write(&figures, FIGURES).unwrap();
    let paths = [figures.to_str().unwrap(), page.to_str().unwrap()];
    // Nothing is measured, so nothing is needed.
    let mut command = world.command(&["--from", paths[0], "--html", paths[1], "--history", paths[0]]);
    let output = command.env("AEGIS_QEMU", "/nonexistent").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 rows: 1 better, 0 equal, 1 worse, 1 not compared"));
    let text = std::fs::read_to_string(&page).unwrap();
    for expected in ["156.125", "312", "14058.75", "3120.5", "405300"] {
        assert!(text.contains(&format!("data-values=\"{expected}\"")), "{expected}");
    }
    assert!(text.contains("data-reason=\"fork: ENOSYS\"") && text.contains("id=\"history\""));
    assert!(text.contains("QEMU &lt;7&gt;") && text.contains("qemu &amp; more"));
    assert_eq!(text.matches("<tr data-row=\"missing\">").count(), 2, "in the table and in the history");
}

#[test]
fn what_is_not_a_file_of_figures_is_refused() {
    let world = World::new("refused");
    let (cut, page) = (world.0.join("cut.json"), world.0.join("cut.html"));
    std::fs::write(&cut, &FIGURES[..FIGURES.len() / 2]).unwrap();
    let paths = [cut.to_str().unwrap(), page.to_str().unwrap()];
    assert_fails(&world.command(&["--from", paths[0], "--html", paths[1]]).output().unwrap(), "not JSON: EOF");
    assert!(!page.exists(), "no page is left");
}

#[test]
fn a_place_that_cannot_be_written_is_found_out_before_anything_is_measured() {
    let world = World::new("place");
    for option in ["--json", "--html"] {
        let mut command = world.command(&["micro", option, "/nonexistent/it"]);
        let output = command.env("AEGIS_QEMU", "/nonexistent").output().unwrap();
        assert_fails(&output, "writing /nonexistent/it: No such file");
    }
}

#[test]
fn files_of_figures_are_whole_or_as_they_were() {
    if !has("gcc") {
        return;
    }
    let world = World::new("whole");
    world.fake_kernel();
    let figures = world.0.join("it.json");
    std::fs::write(&figures, "before").unwrap();
    let mut command = linux_only(&world, "echo start null_getppid_raw; echo row null_getppid_raw 300 100");
    let output = command.arg("--json").arg(&figures).output().unwrap();
    assert_fails(&output, "Linux: it ended");
    assert_eq!(std::fs::read_to_string(&figures).unwrap(), "before");
    // The disk that fills up while the file is written: the file is larger than what may be written.
    std::fs::write(world.0.join("in.json"), FIGURES).unwrap();
    let tool = env!("CARGO_BIN_EXE_aegis");
    let script = format!("trap '' XFSZ; ulimit -f 8; exec {tool} bench --from in.json --html it.html");
    std::fs::write(world.0.join("it.html"), "before").unwrap();
    let output = Command::new("/bin/sh").args(["-c", &script]).current_dir(&world.0).output().unwrap();
    assert_fails(&output, "writing it.html: File too large");
    assert_eq!(std::fs::read_to_string(world.0.join("it.html")).unwrap(), "before");
    let names: Vec<_> = std::fs::read_dir(&world.0).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
}

/// Perl on Linux alone, with a script in QEMU's place.
fn perl_on_linux(world: &World, qemu: &str) -> Command {
    world.fake_kernel();
    let qemu: PathBuf = world.script("qemu", qemu);
    let mut command = world.command(&["apps", "--rows", "^perl_start$", "--only", "linux", "--pairs", "3"]);
    command.env("AEGIS_QEMU", qemu);
    command
}

#[test]
fn a_program_is_measured_between_its_marks() {
    if !has("gcc") || !has("/usr/bin/perl") {
        return;
    }
    let world = World::new("apps");
    let script = "echo '[ 1.0] noise'; echo begin perl_start 1000000; echo hello; echo end perl_start 4250000 0";
    let output = perl_on_linux(&world, script).output().unwrap();
    let (table, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert!(table.starts_with("apps, ms:") && table.contains("3.25 [3.25..3.25]"), "{table}");
}

#[test]
fn a_program_that_fails_is_a_row_with_a_reason() {
    if !has("gcc") || !has("/usr/bin/perl") {
        return;
    }
    let world = World::new("reason");
    let script = "echo begin perl_start 1000000; echo 'perl: no memory'; echo end perl_start 4250000 256";
    let output = perl_on_linux(&world, script).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("n/a") && table.contains("Linux: perl: no memory"), "{table}");
}

#[test]
fn a_linux_that_does_not_come_up_ends_every_suite() {
    if !has("gcc") || !has("/usr/bin/perl") || !has("busybox") {
        return;
    }
    let world = World::new("panic");
    let script = "echo 'Kernel panic - not syncing: no init'; echo 'qemu: terminating' >&2";
    let output = perl_on_linux(&world, script).output().unwrap();
    assert_fails(&output, "Linux did not come up: it ended; qemu: terminating");
    for rows in ["^command_to", "^kernel_entry", "^memory"] {
        let mut command = world.command(&["boot", "--rows", rows, "--only", "linux"]);
        let output = command.env("AEGIS_QEMU", world.0.join("qemu")).output().unwrap();
        assert_fails(&output, "qemu: terminating");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Linux pc did not come up: "));
    }
}

#[test]
fn a_disk_that_fills_up_under_the_programs_files() {
    if !has("gcc") {
        return;
    }
    let world = World::new("fills");
    world.fake_kernel();
    let tool = env!("CARGO_BIN_EXE_aegis");
    // Enough for the compiler, not for 64 MiB.
    let script = format!("trap '' XFSZ; ulimit -f 20000; exec {tool} bench apps --rows '^sha256sum' --only linux");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).env("XDG_CACHE_HOME", &world.0).env("AEGIS_QEMU", "/bin/true");
    assert_fails(&command.output().unwrap(), "could not be written: generate: File too large");
}

#[test]
fn a_program_of_this_host_on_aegis() {
    if !can_run() || !has("/usr/bin/perl") {
        return;
    }
    let world = World::new("perl");
    let output =
        world.command(&["apps", "--rows", "^perl_start$", "--only", "aegis", "--pairs", "1"]).output().unwrap();
    // How long it took, and so whether the clocks agree, is the host's affair.
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with("perl_start")).expect("its row");
    let figure: f64 = row.split_whitespace().nth(1).unwrap().parse().expect(row);
    assert!(figure > 0.0, "{}", String::from_utf8_lossy(&output.stderr));
}
