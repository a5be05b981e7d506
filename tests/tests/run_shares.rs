//! Nice values and control groups decide who gets how much of a processor (`tests/linux/shares.c`).
//!
//! With guest time counting instructions a run is the same every time. The draws are judged by an interval that one of
//! 15,000 fair runs leaves, so that a change elsewhere, which makes other draws, does not fail here by chance; narrower
//! ones, over many keys, are judged on the host (`exos/src/task/share_tests.rs`).

use std::path::Path;

use aegis_tests::programs::{aegis, compile_with};

/// Slices in 800 ms.
const DRAWS: f64 = 200.0;
const DEVIATIONS: f64 = 4.0;

fn check_part(thousandths: f64, chance: f64) {
    let deviation = (chance * (1.0 - chance) / DRAWS).sqrt();
    let part = thousandths / 1000.0;
    assert!((part - chance).abs() <= DEVIATIONS * deviation, "{part} is not {chance}");
}

#[test]
fn shares_are_those_of_nice_values_weights_and_limits() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/shares.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    let Some(program) = compile_with("gcc", "shares-static", &text, &["-O1", "-static", "-w"]) else { return };
    let found = aegis(&["--icount"], &[&program.display().to_string()], b"");
    let output = String::from_utf8_lossy(&found.output);
    assert!(found.status == 0 && output.ends_with("end\n"), "{output}{}", found.errors);
    let part = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).expect("each experiment has a line");
        line.trim().parse::<f64>().expect("a number")
    };
    assert_eq!(output.lines().count(), 5, "{output}");
    check_part(part("nice"), 1024.0 / (1024.0 + 335.0));
    check_part(part("weight"), 0.25);
    check_part(part("fifty"), 0.5);
    let limited = part("limit");
    assert!((180.0..=220.0).contains(&limited), "{limited}");
}
