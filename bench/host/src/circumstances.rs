//! What took part in a run and under which circumstances, as far as a reader of its figures has to know.
//!
//! Everything here is said for people and compared by nobody: what cannot be found out is left out.

use std::path::Path;
use std::process::{Command, Stdio};

use aegis_launch::machine::artifacts::Artifacts;

use super::compile;
use super::linux::{DEFAULT, TUNED};
use super::options::BenchOptions;
use super::result::Versions;
use super::system::Machines;

/// Names and versions, in the order in which they are shown.
pub(crate) fn versions(machines: &Machines, options: &BenchOptions, load_before: Option<String>) -> Versions {
    let mut versions: Vec<(String, String)> = Vec::new();
    let mut say = |name: &str, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            versions.push((name.into(), text));
        }
    };
    say("aegis", Some(env!("CARGO_PKG_VERSION").into()));
    say("commit", commit());
    say("qemu", first_line(Command::new(&machines.qemu).arg("--version")));
    say("gcc", compile::gcc_version().ok());
    if let Some(linux) = &machines.linux {
        say("linux", Some(linux.version.clone()));
        say("linux words", Some(TUNED.into()));
        say("linux default words", Some(DEFAULT.into()));
    }
    say("processor", Some(format!("{} (TCG)", super::system::PROCESSOR)));
    say("host", host());
    say("load before", load_before);
    say("load after", load());
    let suites: Vec<String> = options.suites().iter().map(|it| it.name().to_string()).collect();
    say("asked for", Some(format!("{} --rows '{}' --pairs {}", suites.join(" "), options.rows, options.pairs)));
    Versions(versions)
}

/// How busy the host is: processes that want to run, over 1, 5 and 15 minutes.
pub(crate) fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// The commit that the kernel and exos were built from, if they lie in a checkout.
fn commit() -> Option<String> {
    let kernel = Artifacts::find().kernel();
    let directory = kernel.parent()?;
    let git = |words: &[&str]| first_line(Command::new("git").arg("-C").arg(directory).args(words));
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
    Some(if changed { format!("{hash} with changes") } else { hash })
}

fn host() -> Option<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a processor", |(_, name)| name);
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kvm = if Path::new("/dev/kvm").exists() { "/dev/kvm not used" } else { "no /dev/kvm" };
    Some(format!("{model}, {count} processors, Linux {}, {kvm}", release.trim()))
}

/// The first line of what a program says; `None` if it fails or says nothing.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|_| output.status.success())?;
    Some(line.to_string())
}
