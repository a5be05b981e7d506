//! Rewritten system-call sites: nothing that a program can see changes, and the kernel is not entered any more.

use aegis_tests::programs::{aegis, compile, compile_with, counter, host};

const SHAPES: &str = include_str!("../linux/rewrite.c");

#[test]
fn sites_of_every_shape_do_what_they_do_on_the_host() {
    let builds = [
        ("pie", "gcc", &["-O1", "-w", "-pie", "-fPIE"][..]),
        ("fixed", "gcc", &["-O1", "-w", "-no-pie", "-fno-pie"]),
        ("static", "gcc", &["-O1", "-w", "-static"]),
        ("musl", "musl-gcc", &["-O1", "-w"]),
        ("musl-static", "musl-gcc", &["-O1", "-w", "-static"]),
    ];
    for (name, compiler, options) in builds {
        let Some(path) = compile_with(compiler, &format!("rewrite-{name}"), SHAPES, options) else { continue };
        let path = path.display().to_string();
        let expected = host(&[&path], b"");
        let found = aegis(&["--stats=json"], &[&path], b"");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!((found.status, text(&found.output)), (expected.status, text(&expected.output)), "{name}");
        assert!(counter(&found.errors, "sites_patched") >= 8, "{name}: {}", found.errors);
        assert!(counter(&found.errors, "syscalls_rewritten") > 200, "{name}: {}", found.errors);
        let trapped = aegis(&["--stats=json", "--no-rewrite"], &[&path], b"");
        assert_eq!((trapped.status, &trapped.output), (expected.status, &expected.output), "{name}");
        assert_eq!(counter(&trapped.errors, "syscalls_rewritten"), 0);
    }
}

#[test]
fn a_million_calls_through_the_c_library_enter_the_kernel_less_than_a_hundred_times() {
    const SOURCE: &str = "#include <unistd.h>\n#include <stdio.h>\nint main(void) { long sum = 0;\n\
        for (int i = 0; i < 1000000; i++) sum += getppid();\n printf(\"%ld\\n\", sum); return 0; }";
    let Some(path) = compile("getppid-million", SOURCE, &["-O2"]) else { return };
    let found = aegis(&["--stats=json"], &[&path.display().to_string()], b"");
    assert_eq!((found.status, found.output.as_slice()), (0, &b"0\n"[..]), "{}", found.errors);
    let trapped = counter(&found.errors, "syscalls_trapped");
    assert!(trapped > 0 && trapped < 100, "{}", found.errors);
    assert!(counter(&found.errors, "syscalls_rewritten") > 999_900, "{}", found.errors);
}

#[test]
fn a_trace_shows_rewritten_calls_too() {
    const SOURCE: &str = "#include <unistd.h>\nint main(void) { for (int i = 0; i < 50; i++) getppid(); return 0; }";
    let Some(path) = compile("getppid-traced", SOURCE, &["-O2"]) else { return };
    let found = aegis(&["--trace"], &[&path.display().to_string()], b"");
    assert_eq!(found.errors.matches("getppid()").count(), 50, "{}", found.errors);
}

/// Calls many functions of the C library that are a system call each, sixty times.
const MANY_SITES: &str = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <sched.h>\n#include <stdio.h>\n\
    #include <sys/file.h>\n#include <sys/resource.h>\n#include <sys/stat.h>\n#include <sys/times.h>\n\
    #include <unistd.h>\n\
    int main(void) { long sum = 0; char byte; struct stat status; struct tms ticks;\n\
    for (int i = 0; i < 60; i++) { sum += getppid() > 1; sum += getuid() - geteuid(); sum += getgid() - getegid();\n\
    sum += getpgid(0) > 0; sum += getsid(0) > 0; umask(022); sched_yield(); times(&ticks); getpriority(0, 0);\n\
    sum += read(-1, &byte, 1) + write(-1, &byte, 1) + lseek(-1, 0, 0) + dup(-1) + close(-1) + fsync(-1);\n\
    sum += ftruncate(-1, 0) + fchmod(-1, 0) + fchdir(-1) + access(\"/no/such\", 0) + chdir(\"/no/such\");\n\
    sum += unlink(\"/no/such\") + rmdir(\"/no/such\") + flock(-1, 0) + fchown(-1, 0, 0) + alarm(0); }\n\
    printf(\"%ld\\n\", sum); return 0; }";

#[test]
fn what_one_process_patched_does_not_trap_in_the_next() {
    let Some(path) = compile("many-sites", MANY_SITES, &["-O1"]) else { return };
    let program = path.display().to_string();
    let runs = |options: &[&str], count: usize| {
        let script = vec![program.as_str(); count].join("; ");
        let options = [options, &["--stats=json", "--with", &program]].concat();
        let found = aegis(&options, &["busybox", "sh", "-c", &script], b"");
        assert_eq!(found.status, 0, "{}", found.errors);
        let lines: Vec<String> = String::from_utf8_lossy(&found.output).lines().map(str::to_string).collect();
        assert!(lines.len() == count && lines.iter().all(|line| *line == lines[0]), "{lines:?}");
        found.errors
    };
    let (once, nine_times) = (runs(&[], 1), runs(&[], 9));
    let (first, all) = (counter(&once, "syscalls_trapped"), counter(&nine_times, "syscalls_trapped"));
    assert!((all - first) / 8 < first / 2, "{first} traps with one run, {all} with nine");
    assert_eq!(counter(&once, "sites_shared"), 0, "{once}");
    assert!(counter(&nine_times, "sites_shared") >= 8 * 20, "{nine_times}");
    let patched = (counter(&once, "sites_patched"), counter(&nine_times, "sites_patched"));
    assert!(patched.1 < 2 * patched.0, "sites are patched once for all: {patched:?}");
    assert_eq!(counter(&runs(&["--no-rewrite"], 2), "sites_shared"), 0);
}
