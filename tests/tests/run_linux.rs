//! C programs that look closely (`tests/linux`), for glibc and musl, dynamic and static, position-independent and not.
//!
//! They check what Linux answers and print the same on every Linux, so the host is the oracle here too.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile_with, same};

/// A C library and a way to link that a program is tried with.
struct Build {
    name: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
}

const BUILDS: [Build; 5] = [
    Build { name: "pie", compiler: "gcc", options: &["-pie", "-fPIE"] },
    Build { name: "fixed", compiler: "gcc", options: &["-no-pie", "-fno-pie"] },
    Build { name: "static", compiler: "gcc", options: &["-static"] },
    Build { name: "musl", compiler: "musl-gcc", options: &[] },
    Build { name: "musl-static", compiler: "musl-gcc", options: &["-static"] },
];

fn build(program: &str, build: &Build) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux").join(program).with_extension("c");
    let text = std::fs::read_to_string(&source).expect("the program's source is in the tree");
    let options = [&["-O1", "-w"], build.options].concat();
    let folder = format!("{program}-{}", build.name);
    compile_with(build.compiler, &folder, &text, &options)
}

/// Does in the machine what it does on the host, in every build.
fn same_in_all_builds(program: &str) {
    for kind in &BUILDS {
        if let Some(path) = build(program, kind) {
            same(&[], &[&path.display().to_string()], b"");
        }
    }
}

/// Does in the machine what it does on the host, on one, two and four processors.
fn same_on_processors(program: &str) {
    let Some(path) = build(program, &BUILDS[0]) else { return };
    for count in ["1", "2", "4"] {
        same(&["--cpus", count], &[&path.display().to_string()], b"");
    }
}

#[test]
fn memory_calls() {
    same_in_all_builds("memory");
}

#[test]
fn large_pages_are_cut_up_and_shared() {
    same_on_processors("large_pages");
}

#[test]
fn file_calls() {
    same_in_all_builds("files");
}

#[test]
fn copies() {
    same_in_all_builds("copies");
}

#[test]
fn signals() {
    same_in_all_builds("signals");
}

#[test]
fn vector_state_in_signal_frames() {
    same_in_all_builds("signal_frame");
}

#[test]
fn local_sockets_and_named_pipes() {
    same_in_all_builds("sockets");
}

#[test]
fn connections_over_loopback() {
    same_in_all_builds("tcp");
}

#[test]
fn datagrams_over_loopback() {
    same_in_all_builds("udp");
}

#[test]
fn pseudo_terminals() {
    same_in_all_builds("terminal");
}

#[test]
fn clocks_limits_and_the_program_itself() {
    same_in_all_builds("misc");
}

#[test]
fn timers_keys_and_capabilities() {
    same_in_all_builds("timers");
}

#[test]
fn asynchronous_input_and_output() {
    same_on_processors("aio");
}

#[test]
fn rings_of_requests() {
    same_on_processors("uring");
}

#[test]
fn rings_of_garbage() {
    same_on_processors("uring_hostile");
}

#[test]
fn processes_as_descriptors_and_several_words() {
    same_in_all_builds("pidfds");
}

#[test]
fn calls_that_c_libraries_seldom_make() {
    same_in_all_builds("calls");
}

#[test]
fn policies_nodes_namespaces_and_hung_up_terminals() {
    same_in_all_builds("policies");
}

#[test]
fn the_memory_of_other_processes() {
    same_in_all_builds("process_memory");
}

#[test]
fn shared_memory_of_system_v() {
    same_on_processors("ipc_shm");
}

#[test]
fn semaphores_of_system_v() {
    same_on_processors("ipc_sem");
}

#[test]
fn message_queues_of_system_v() {
    same_on_processors("ipc_msg");
}

#[test]
fn message_queues_of_posix() {
    same_on_processors("mqueue");
}

#[test]
fn watched_files_and_directories() {
    same_in_all_builds("inotify");
}

#[test]
fn every_fault_ends_with_its_signal_and_one_line_that_says_where() {
    let Some(path) = build("faults", &BUILDS[0]) else { return };
    let path = path.display().to_string();
    for (wish, words) in [
        ("null", &["SIGSEGV", "store to 0x0", "store_to_null+0x"][..]),
        ("illegal", &["SIGILL", "main+0x"]),
        ("divide", &["SIGFPE", "division", "main+0x"]),
        ("abort", &["SIGABRT"]),
        ("stack", &["SIGSEGV", "the stack is full", "overflow_stack+0x"]),
        ("breakpoint", &["SIGTRAP", "main+0x"]),
        ("single-step", &["SIGTRAP", "main+0x"]),
        ("privileged", &["SIGSEGV", "main+0x"]),
        ("port", &["SIGSEGV", "main+0x"]),
        ("noncanonical", &["SIGSEGV", "main+0x"]),
        ("kernel", &["SIGSEGV", "store to 0xffffffff80000000"]),
        ("library", &["SIGSEGV", "store to 0xffff800000000000"]),
        ("text", &["SIGSEGV", "does not allow it"]),
        ("execute", &["SIGSEGV", "jump to"]),
        ("jump", &["SIGSEGV", "jump to 0x12345", "main+0x"]),
        ("bus", &["SIGBUS", "behind the end of the mapped file"]),
        ("stack-pointer", &["SIGSEGV", "main+0x"]),
        ("segv-blocked", &["SIGSEGV", "store_to_null+0x"]),
        ("segv-ignored", &["SIGSEGV", "store_to_null+0x"]),
    ] {
        let command = [path.as_str(), wish];
        same(&[], &command, b"");
        let errors = aegis(&[], &command, b"").errors;
        assert!(errors.lines().count() == 1 && words.iter().all(|word| errors.contains(word)), "{wish}: {errors}");
    }
}

#[test]
fn default_actions_of_signals_are_linuxs() {
    let Some(path) = build("faults", &BUILDS[2]) else { return };
    for number in ["1", "2", "9", "10", "13", "14", "15", "16", "17", "18", "23", "24", "28", "31", "34", "64"] {
        same(&[], &[&path.display().to_string(), "raise", number], b"");
    }
}
