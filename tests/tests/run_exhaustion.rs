//! Programs that make objects of one kind without end: each is refused with an error that Linux has for it, gives up
//! what it made and can make as many again, a process beside it lives, and the pod ends with the program's status.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile};

/// What a pod of each size is tried with. Kinds that stop at a limit of their own number are tried once.
const ALL: &[&str] = &[
    "symlinks",
    "entries",
    "directories",
    "pairs",
    "datagrams",
    "pipes",
    "large_pipes",
    "eventfds",
    "epolls",
    "timerfds",
    "signalfds",
    "opens",
    "sockets",
    "maps",
    "forks",
    "zombies",
    "threads",
    "files",
    "sparse_files",
    "memfds",
    "connections",
    "rights",
    "tcp",
    "udp",
];
/// What a small pod is tried with besides.
const MORE: &[&str] = &["segments", "queues", "terminals", "nested", "file_maps", "area_pieces", "long_starts"];
const ONCE: &[&str] = &["epoll_entries", "inotifies", "watches", "events", "locks", "signals", "timers", "attributes"];

fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("exhaustion/exhaust.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    compile("exhaust", &text, &["-O1", "-w", "-static", "-pthread"])
}

/// Each of `kinds` in a pod of its own.
fn each(memory: &str, kinds: &[&str]) {
    let Some(program) = program() else { return };
    let program = program.display().to_string();
    let mut wrong = Vec::new();
    for kind in kinds {
        let ended = aegis(&["-m", memory], &[&program, kind], b"");
        if ended.status != 0 {
            let output = String::from_utf8_lossy(&ended.output).into_owned();
            wrong.push(format!("{kind}: status {}\n{output}{}", ended.status, ended.errors));
        }
    }
    assert!(wrong.is_empty(), "with -m {memory}:\n{}", wrong.join("\n"));
}

#[test]
fn the_least_machine_runs_a_program() {
    // All of it: kernel, library OS, root image and program. The servers of the host's system want 5 MiB more.
    for (kind, memory) in [("microvm", "11520K"), ("pc", "11520K")] {
        let ended = aegis(&["--bare", "-M", kind, "--machine-memory", memory], &["busybox", "true"], b"");
        assert_eq!(ended.status, 0, "{kind}: {}", ended.errors);
    }
}

#[test]
fn the_smallest_pod() {
    each("8M", &["symlinks", "pipes", "opens", "maps", "sparse_files", "files"]);
}

#[test]
fn a_small_pod() {
    each("32M", ALL);
    each("32M", MORE);
}

#[test]
fn a_pod_of_64_mib() {
    each("64M", ALL);
    each("64M", ONCE);
}

/// What does not end at the number of descriptors, processes or areas takes longest.
#[test]
fn a_large_pod() {
    each("512M", &["pairs", "large_pipes", "eventfds", "forks", "maps", "files", "memfds"]);
}

/// Memory that programs had is memory of exos's again, and the other way round.
#[test]
fn memory_that_was_full_is_there_again() {
    let Some(program) = program() else { return };
    let program = program.display().to_string();
    let mut wrong = Vec::new();
    for (memory, kind, count) in [("256M", "threads", "400"), ("64M", "threads", "200"), ("64M", "forks", "60")] {
        let ended = aegis(&["-m", memory], &[&program, "after", kind, count], b"");
        if ended.status != 0 {
            let output = String::from_utf8_lossy(&ended.output).into_owned();
            wrong.push(format!("{kind} in {memory}: status {}\n{output}{}", ended.status, ended.errors));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What exos's heap took for objects that are gone is the programs' again, and the objects can be made once more.
#[test]
fn memory_that_objects_had_is_there_again() {
    let Some(program) = program() else { return };
    let program = program.display().to_string();
    for (kind, least_mib) in [("symlinks", 90), ("pairs", 90), ("entries", 75)] {
        let ended = aegis(&["-m", "128M"], &[&program, "after", kind], b"");
        let output = String::from_utf8_lossy(&ended.output).into_owned();
        assert_eq!(ended.status, 0, "{kind}: {output}{}", ended.errors);
        let left = output.lines().filter_map(|line| line.strip_prefix("left ")?.split_once(' ')?.0.parse::<u64>().ok());
        let left: Vec<_> = left.collect();
        assert!(left.len() == 2 && left.iter().all(|mib| *mib >= least_mib), "{kind}: {output}");
    }
}

/// One after the other in one pod: none leaves anything behind that the next would miss. Of each 3,000 at most, which
/// is more than there can be of most that take much.
#[test]
fn all_kinds_in_one_pod() {
    let Some(program) = program() else { return };
    let ended = aegis(&["-m", "64M", "--timeout", "300"], &[&program.display().to_string(), "all", "3000"], b"");
    assert_eq!(ended.status, 0, "{}{}", String::from_utf8_lossy(&ended.output), ended.errors);
}
