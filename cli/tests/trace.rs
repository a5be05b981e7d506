//! `aegis bench --trace-row` from outside: a row's instructions add up to what the clock counted.
//!
//! The tests need gcc, and the real ones QEMU and what `cargo xtask build` made; without them they say so and pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod host;

use std::process::{Command, Output, Stdio};

use host::{artifacts, can_run};

/// A trace on Aegis, in a cache of its own.
fn trace(test: &str, words: &[&str]) -> Output {
    let cache = std::env::temp_dir().join(format!("aegis-trace-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&cache).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_aegis"));
    command.args(["bench", "--only", "aegis", "--trace-row"]).args(words).stdin(Stdio::null());
    let output = command.env("XDG_CACHE_HOME", &cache).env("AEGIS_ARTIFACTS", artifacts()).output().unwrap();
    let left = std::fs::read_dir(cache.join("aegis")).into_iter().flatten().filter_map(Result::ok);
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().ends_with("tmp")).collect();
    std::fs::remove_dir_all(cache).unwrap();
    assert!(left.is_empty(), "{left:?}");
    output
}

#[test]
fn the_last_of_several_rows_is_traced() {
    if !can_run() {
        return;
    }
    let output = trace("several", &["ctl_loop_1000iter,null_getppid_raw"]);
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    assert!((5.0..1000.0).contains(&number(&text, " instructions an operation")), "the loop has 2,005: {text}");
    let output = trace("unknown", &["no_such_row,null_getppid_raw"]);
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("no_such_row"));
}

/// The number that begins the line that holds `words`.
fn number(text: &str, words: &str) -> f64 {
    let line = text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words:?} in {text}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_null_call_adds_up_to_its_figure() {
    if !can_run() {
        return;
    }
    let output = trace("null", &["null_getppid_raw", "--trace-path", "--trace-inlined"]);
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    let figure = number(&text, " instructions an operation");
    let sum = number(&text, " sum");
    // The figure has one digit here; nothing in this row faults.
    assert!((figure - sum).abs() < 0.1, "{text}");
    assert!((5.0..1000.0).contains(&figure), "{text}");
    // Each line once; the second table has the part of the kernel and exos again.
    let (text, inlined) = text.split_once(" by inlined function\n").unwrap();
    assert!(number(inlined, " in all") < figure && number(inlined, " in all") > 1.0, "{inlined}");
    let functions = text.lines().filter(|line| line.contains('%'));
    let parts = functions.filter_map(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let parts: f64 = parts.sum::<f64>() + number(text, "functions with less than");
    assert!((parts - sum).abs() < 1.0, "{parts} {text}");
    assert!(text.contains(" exos     "), "{text}");
    // The path begins and ends in the row's loop, and is one operation long.
    let path = inlined.split("one operation in its order, ").nth(1).unwrap();
    let steps: f64 = path.lines().skip(1).filter_map(|it| it.split_whitespace().next()?.parse::<f64>().ok()).sum();
    assert!((steps - sum).abs() < 0.6 && path.contains("program  getppid_raw"), "{text}");
}

#[test]
fn what_faults_is_begun_and_not_counted() {
    if !can_run() {
        return;
    }
    let output = trace("fault", &["trap_segv_skip"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (figure, sum) = (number(&text, " instructions an operation"), number(&text, " sum"));
    // One instruction of each operation faults.
    assert!((sum - figure - 1.0).abs() < 0.2 && text.contains("+1.00 to what the clock counted"), "{text}");
}

#[test]
fn a_native_row_adds_up_too() {
    if !can_run() {
        return;
    }
    let output = trace("native", &["native_null_call"]);
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{errors}");
    let (figure, sum) = (number(&text, " instructions an operation"), number(&text, " sum"));
    assert!((figure - sum).abs() < 0.2 && text.contains("kernel   syscall_entry"), "{text}");
    assert!(!text.contains("exos"), "a native row has no exos: {text}");
}

#[test]
fn what_is_no_row() {
    if !can_run() {
        return;
    }
    for name in ["nosuchrow", "a|b", "native_nosuchrow", "native_bell_rt@diff"] {
        let output = trace("none", &[name]);
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("aegis: bench: --"));
    }
}
