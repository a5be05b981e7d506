//! With guest time counting guest instructions, a run is the same every time, to the last instruction, whatever the
//! host does meanwhile.

use std::process::{Command, Stdio};
use std::time::Duration;

use aegis_tests::programs::{compile_with, tool};
use aegis_tests::{Machine, Outcome};

/// The suites that look at the clock most.
fn run() -> Outcome {
    let machine = Machine::new().suite("s05_bell").suite("s07_slice").counting_instructions();
    match machine.run() {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn two_runs_print_the_same() {
    let (first, second) = (run(), run());
    assert!(first.log.sum.is_some_and(|(passed, failed)| passed > 0 && failed == 0), "{first:?}");
    assert_eq!(first.log.text, second.log.text);
}

/// Says when it starts, when its empty input has ended, and then now and then what the time is. What it writes makes
/// the host speak with the machine: its own lines, and those of exos about a call that is missing.
const CLOCK: &str = r#"
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}
int main(void) {
    char byte;
    long start = now(), length = read(0, &byte, 1), ended = now();
    dprintf(1, "start %ld, read %ld until %ld\n", start, length, ended);
    for (int round = 1; round <= 8; round++) {
        if (round == 4) syscall(399);
        while (now() - start < round * 10000000L) {
        }
        dprintf(round % 2 + 1, "%d at %ld\n", round, now());
    }
}
"#;

/// One run; the tool, which takes the machine's lines and answers them, rests for a while after so many milliseconds.
fn clock(program: &str, machine: &str, rests_after_ms: Option<u64>) -> String {
    let mut run = tool(&["-M", machine, "--icount", "-q"], &[program]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = run.spawn().expect("the tool starts");
    if let Some(after_ms) = rests_after_ms {
        std::thread::sleep(Duration::from_millis(after_ms));
        let signal = |name: &str| Command::new("kill").args([name, &child.id().to_string()]).status();
        signal("-STOP").expect("kill is there");
        std::thread::sleep(Duration::from_millis(150));
        signal("-CONT").expect("kill is there");
    }
    let output = child.wait_with_output().expect("the tool ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_program_sees_the_same_clock_however_slow_the_host_is() {
    let Some(program) = compile_with("gcc", "deterministic_clock", CLOCK, &["-O1", "-static", "-w"]) else { return };
    let program = program.display().to_string();
    for machine in ["pc", "microvm"] {
        let first = clock(&program, machine, None);
        assert!(first.contains("read 0 until") && first.contains("8 at "), "{first}");
        for rests_after_ms in (0..240).step_by(30) {
            assert_eq!(clock(&program, machine, Some(rests_after_ms)), first, "rested after {rests_after_ms} ms");
        }
    }
}
