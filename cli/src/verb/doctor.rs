//! `aegis doctor`: what a run needs, what of it is here, and how to get the rest.
//!
//! One line for each thing, in the order in which a run needs it. Only what stops a run makes the status 1;
//! what makes runs slower or less comfortable is a note.

use std::process::Command;

use aegis_launch::cache::Cache;
use aegis_launch::machine::accel::{KVM_DEVICE, NESTED, is_nested, open_device};
use aegis_launch::machine::artifacts::{Artifacts, find_qboot, find_qemu};
use aegis_launch::machine::network::has_user_network;
use aegis_launch::machine::qemu::Driver;

use crate::verb::up::confinement;

/// Exit status when something that every run needs is missing.
const STATUS_INCOMPLETE: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fine,
    Note,
    Missing,
}

struct Finding {
    state: State,
    name: &'static str,
    text: String,
}

fn finding(state: State, name: &'static str, text: impl Into<String>) -> Finding {
    Finding { state, name, text: text.into() }
}

/// Prints the findings; the answer is the exit status.
pub(crate) fn doctor() -> u8 {
    let mut findings = qemu();
    findings.extend([network(), artifacts(), isolation(), kvm(), qboot(), cache(), memory()]);
    for Finding { state, name, text } in &findings {
        let mark = match state {
            State::Fine => "ok     ",
            State::Note => "note   ",
            State::Missing => "MISSING",
        };
        println!("{mark} {name:<18} {text}");
    }
    if findings.iter().any(|finding| finding.state == State::Missing) {
        println!("\nSomething is missing: do what the lines above say, then run aegis doctor again.");
        return STATUS_INCOMPLETE;
    }
    println!("\nEverything is here. Try: aegis run busybox echo hello");
    0
}

fn qemu() -> Vec<Finding> {
    let path = match find_qemu() {
        Ok(path) => path,
        Err(error) => return vec![finding(State::Missing, "QEMU", error.to_string())],
    };
    let output = |arguments: &[&str]| {
        let output = Command::new(&path).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(version) = output(&["--version"]) else {
        let text = format!("{} does not start", path.display());
        return vec![finding(State::Missing, "QEMU", text)];
    };
    let version = version.lines().next().unwrap_or_default();
    let version = version.trim_start_matches("QEMU emulator version ");
    let mut list = vec![finding(State::Fine, "QEMU", format!("{version} ({})", path.display()))];
    let machines = output(&["-M", "help"]).unwrap_or_default();
    let has_microvm = machines.lines().any(|line| line.starts_with("microvm"));
    list.push(if has_microvm {
        finding(State::Fine, "machine type", "microvm (pc and q35 with -M)")
    } else {
        let text = "this QEMU has no microvm: use -M pc or -M q35, or another QEMU";
        finding(State::Note, "machine type", text)
    });
    list
}

fn network() -> Finding {
    match find_qemu() {
        Ok(path) if !has_user_network(&path, Cache::open().as_ref()) => finding(
            State::Note,
            "network",
            "this QEMU has no user network (libslirp): only --network tap and none work",
        ),
        _ => finding(State::Fine, "network", "QEMU's user network; -p leads ports of this host to a program"),
    }
}

fn artifacts() -> Finding {
    let artifacts = Artifacts::find();
    match artifacts.check() {
        Ok(()) => match artifacts.flat_library_os() {
            Ok(_) => finding(
                State::Fine,
                "kernel and exos",
                format!("{}, {}", artifacts.kernel().display(), artifacts.library_os().display()),
            ),
            Err(error) => finding(State::Missing, "kernel and exos", error.to_string()),
        },
        Err(error) => finding(State::Missing, "kernel and exos", error.to_string()),
    }
}

/// What keeps pods from each other's memory: it needs nothing of the host, so it is always there.
fn isolation() -> Finding {
    finding(State::Fine, "isolation", confinement(Driver::Guard))
}

fn kvm() -> Finding {
    match open_device() {
        Ok(()) if is_nested() => finding(State::Note, "KVM", format!("{NESTED}; TCG is used, which is slower")),
        Ok(()) => {
            finding(State::Fine, "KVM", format!("{KVM_DEVICE} can be opened; --accel auto tries it once and remembers"))
        }
        Err(why) => finding(State::Note, "KVM", format!("{why}; TCG is used, which is slower")),
    }
}

fn qboot() -> Finding {
    match find_qboot() {
        Some(path) => finding(State::Fine, "qboot", path.display().to_string()),
        None => finding(State::Note, "qboot", "not found: -M pc and -M q35 start 50 ms later"),
    }
}

fn cache() -> Finding {
    match Cache::open() {
        Some(cache) => {
            let (bytes, count) = cache.root_usage();
            let text =
                format!("{} ({count} root images, {} MiB; can be deleted)", cache.directory().display(), bytes >> 20);
            finding(State::Fine, "cache", text)
        }
        None => finding(
            State::Note,
            "cache",
            "neither XDG_CACHE_HOME nor HOME names a place that can be written; every run packs its root",
        ),
    }
}

fn memory() -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available_mib(&text) {
        Some(mib) if mib < 512 => finding(State::Note, "memory", format!("{mib} MiB available; -m 64M may help")),
        Some(mib) => finding(State::Fine, "memory", format!("{mib} MiB available")),
        None => finding(State::Note, "memory", "/proc/meminfo does not say"),
    }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::available_mib;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:  100 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(available_mib(text), Some(2048));
        assert_eq!(available_mib("MemTotal: 1 kB\n"), None);
        assert_eq!(available_mib("MemAvailable: lots\n"), None);
    }
}
