//! A call that takes long keeps nobody else waiting, and ends for a signal (`tests/linux/long_calls.c`,
//! `docs/adr/0036-long-calls-have-preemption-points.md`).
//!
//! Time is the guest's, which counts instructions, so a run is the same every time and on every host.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile_with};

/// Variants that are run in one machine.
const GROUPS: [&[&str]; 5] = [
    &[
        "getrandom",
        "read_zero",
        "read_urandom",
        "write_urandom",
        "read_file",
        "write_file",
        "overwrite_file",
        "append_file",
        "pread_file",
        "pwrite_file",
        "readv_file",
        "writev_file",
        "read_hole",
    ],
    &[
        "write_pipe",
        "read_pipe",
        "write_socket",
        "read_mem",
        "write_mem",
        "sendfile",
        "copy_file_range",
        "splice",
        "tee",
        "vmsplice",
    ],
    &[
        "populate",
        "munmap",
        "munmap_shared",
        "mincore_vast",
        "munmap_stripes",
        "mprotect",
        "mprotect_stripes",
        "mremap",
        "madvise",
        "mlock",
        "msync",
        "mincore",
        "process_vm_readv",
        "maps",
        "smaps",
        "pagemap",
    ],
    &[
        "fork",
        "fork_stripes",
        "exit",
        "exec",
        "fallocate",
        "punch",
        "truncate",
        "unlink",
        "fsync",
        "getdents",
        "symlinks",
        "components",
    ],
    &["poll", "select", "epoll", "close_range", "exit_files", "futex_wake", "futex_requeue", "kill_group"],
];

fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/long_calls.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    compile_with("gcc", "long_calls", &text, &["-O1", "-static", "-w", "-pthread"])
}

/// Runs variants in a machine with so many processors; no tick is later than `late_ms`, and each ends within `ends_ms`.
fn check(cpus: &str, variants: &[&str], late_ms: &str, ends_ms: &str) {
    let Some(program) = program() else { return };
    let program = program.display().to_string();
    let command = [&[program.as_str(), late_ms, ends_ms], variants].concat();
    let found = aegis(&["--icount", "-m", "512M", "--cpus", cpus], &command, b"");
    let expected: String = variants.iter().map(|variant| format!("{variant} ok\n")).collect();
    let output = String::from_utf8_lossy(&found.output);
    assert!(found.status == 0 && output == expected, "{output}{}", found.errors);
}

#[test]
fn bytes_from_files_and_devices() {
    check("1", GROUPS[0], "20", "20");
}

#[test]
fn bytes_through_pipes_sockets_and_from_file_to_file() {
    check("1", GROUPS[1], "20", "20");
}

#[test]
fn memory() {
    check("1", GROUPS[2], "20", "20");
}

#[test]
fn processes_files_and_names() {
    check("1", GROUPS[3], "20", "20");
}

#[test]
fn tables_of_descriptors_threads_and_processes() {
    check("1", GROUPS[4], "20", "20");
}

/// With `-icount` QEMU runs one processor at a time, and another one only when that one's next timer is due: one that
/// sleeps and is told of work starts as late as that, whatever the guest does. So the bound is not the guest's own: a
/// few instructions more or less in the kernel made the latest tick 42 or 211 ms late, while without `-icount` it was
/// 4. It tells a call that is done in pieces from one that is not, which took seconds.
#[test]
fn on_two_processors() {
    let some = [
        "getrandom",
        "write_file",
        "write_pipe",
        "read_pipe",
        "write_socket",
        "sendfile",
        "populate",
        "munmap",
        "fork",
        "exit",
        "maps",
        "getdents",
        "poll",
    ];
    check("2", &some, "500", "500");
}
