//! Rewritten system-call sites: nothing that a program can see changes, and the kernel is not entered any more.

use aegis_tests::programs::{aegis, compile, compile_with, host};

const SHAPES: &str = include_str!("../linux/rewrite.c");

/// A counter of `--stats=json`, which is the last line on standard error.
fn counter(errors: &str, key: &str) -> u64 {
    let line = errors.lines().last().unwrap_or_default();
    let Some((_, rest)) = line.split_once(&format!("\"{key}\":")) else { return 0 };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number follows a key")
}

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
