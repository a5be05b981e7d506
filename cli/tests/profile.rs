//! `aegis run --profile` from outside: the picture of a program whose proportions are known.
//!
//! The test needs gcc, QEMU and what `cargo xtask build` made; without them it says so and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod host;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use host::{artifacts, can_run};

/// Two functions that do the same, one of them three times as often.
const PROGRAM: &str = "
#include <stdint.h>
#include <unistd.h>
static volatile uint64_t sink;
#define SPIN(name, count) __attribute__((noinline)) static void name(void) { \\
    uint64_t x = 88172645463325252; \\
    for (int i = 0; i < count; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; } \\
    sink = x; }
SPIN(spin_long, 30000)
SPIN(spin_short, 10000)
__attribute__((noinline)) static void turn(void) { spin_long(); spin_short(); sink++; }
int main(void) { for (int i = 0; i < 4000; i++) turn(); return write(1, \"done\\n\", 5) != 5; }
";
/// Samples from which on the order of three to one is no luck: less than one chance in 10^7 of being wrong.
const SAMPLE_COUNT_MIN: u64 = 100;

/// A folder with the program in it.
fn world(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("aegis-profile-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("spin.c"), PROGRAM).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-static", "-o"]).args([folder.join("spin"), folder.join("spin.c")]);
    assert!(gcc.status().unwrap().success());
    folder
}

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aegis"));
    command.args(["run", "--accel", "tcg"]).args(words).arg(folder.join("spin")).stdin(Stdio::null());
    command.current_dir(folder).env("XDG_CACHE_HOME", folder).env("AEGIS_ARTIFACTS", artifacts()).output().unwrap()
}

/// Samples in the titles of all boxes of this name.
fn samples(svg: &str, name: &str) -> u64 {
    let titles = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next());
    let counts = titles.filter_map(|title| {
        let (function, rest) = title.rsplit_once(": ")?;
        let function = function.split(" (").next()?;
        (function == name).then(|| rest.split(' ').next()?.parse::<u64>().ok())?
    });
    counts.sum()
}

/// The numbers behind the domains' names.
fn sums(svg: &str) -> Vec<u64> {
    let number = |name: &str| {
        let rest = svg.split(&format!("\">{name} ")).nth(1).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    ["program", "exos", "driver", "kernel", "idle"].map(number).to_vec()
}

#[test]
fn a_program_of_known_proportions() {
    if !can_run() {
        return;
    }
    let folder = world("proportions");
    let output = run(&folder, &["--profile=flames.svg", "--profile-rate", "997"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"done\n"[..]), "{errors}");
    assert!(errors.contains("aegis: profile: ") && errors.trim_end().ends_with("written to flames.svg"), "{errors}");
    let svg = std::fs::read_to_string(folder.join("flames.svg")).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let all = samples(&svg, "all");
    let sums = sums(&svg);
    assert_eq!(sums.iter().sum::<u64>(), all, "{sums:?}");
    if all < SAMPLE_COUNT_MIN {
        println!("skipped: {all} samples say nothing");
        return;
    }
    let (long, short, turn) = (samples(&svg, "spin_long"), samples(&svg, "spin_short"), samples(&svg, "turn"));
    assert!(long > short, "{long} {short}");
    // They are called by it, the program does little else, and it is called by main. What interrupts it is exos's and
    // the kernel's, and on top of it all the same.
    let main = samples(&svg, "main");
    assert!(turn >= long + short && turn <= all - sums[4], "{turn} {sums:?}");
    assert!(main >= turn, "{main} {turn} {sums:?}");
    // On a busy host booting takes its time too: no part of the whole is certain, only that nothing else has more.
    assert!(sums[1..].iter().all(|other| *other < sums[0]), "{sums:?}");
}

#[test]
fn options_and_files_that_cannot_be() {
    if !can_run() {
        return;
    }
    let folder = world("options");
    for (words, why) in [
        (&["--profile=/nonexistent/x.svg"][..], "/nonexistent/x.svg: No such file"),
        (&["--profile", "--profile-rate", "0"], "--profile-rate"),
        (&["--profile", "--profile-rate", "1001"], "--profile-rate"),
        (&["--profile-rate", "100"], "--profile"),
    ] {
        let output = run(&folder, words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(output.stdout.is_empty() && errors.lines().count() == 1 && errors.contains(why), "{errors}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
