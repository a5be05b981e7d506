//! The difference between what a program did on two systems, for people.

use std::fmt::Write;

use super::transcript::{End, Outcome};

/// Most lines that are shown of either side of a difference.
const LINE_COUNT_MAX: usize = 12;
/// Most characters that are shown of a line.
const LINE_CHARACTERS_MAX: usize = 200;

/// Lines that say what differs.
pub(super) fn difference(aegis: &Outcome, linux: &Outcome) -> String {
    let mut text = String::new();
    if aegis.end != linux.end || !aegis.is_an_end() {
        let _ = writeln!(text, "  end: {} on Aegis, {} on Linux", shown(&aegis.end), shown(&linux.end));
    }
    lines(&mut text, "standard output", &aegis.output, &linux.output);
    lines(&mut text, "standard error", &aegis.errors, &linux.errors);
    text
}

fn shown(end: &End) -> String {
    match end {
        End::Exited(status) => format!("status {status}"),
        End::Killed(signal, false) => format!("signal {signal}"),
        End::Killed(signal, true) => format!("signal {signal} with a core file"),
        End::Late => "killed after its time".into(),
        End::Much => "killed for writing too much".into(),
        End::Lost(why) => format!("it took the machine with it ({why})"),
    }
}

/// The lines between the first and the last that differ.
fn lines(text: &mut String, name: &str, aegis: &[u8], linux: &[u8]) {
    if aegis == linux {
        return;
    }
    let split = |bytes: &[u8]| -> Vec<String> {
        bytes.split_inclusive(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    let (aegis, linux) = (split(aegis), split(linux));
    let start = aegis.iter().zip(&linux).take_while(|(left, right)| left == right).count();
    let rest = aegis[start..].iter().rev().zip(linux[start..].iter().rev());
    let end = rest.take_while(|(left, right)| left == right).count();
    let _ = writeln!(text, "  {name}, from line {} on:", start + 1);
    side(text, '-', "Linux", &linux[start..linux.len() - end]);
    side(text, '+', "Aegis", &aegis[start..aegis.len() - end]);
}

fn side(text: &mut String, mark: char, name: &str, lines: &[String]) {
    for line in lines.iter().take(LINE_COUNT_MAX) {
        let cut: String = line.trim_end_matches('\n').chars().take(LINE_CHARACTERS_MAX).collect();
        let note = if line.ends_with('\n') { "" } else { "  (without an end of line)" };
        let _ = writeln!(text, "  {mark} {name}: {}{note}", cut.escape_debug());
    }
    if lines.len() > LINE_COUNT_MAX {
        let _ = writeln!(text, "  {mark} {name}: and {} lines more", lines.len() - LINE_COUNT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::difference;
    use crate::compare::transcript::{End, Outcome};

    fn outcome(output: &str, end: End) -> Outcome {
        Outcome { output: output.into(), errors: Vec::new(), end }
    }

    #[test]
    fn only_what_differs_is_shown() {
        let aegis = outcome("a\nb\nc\nend\n", End::Exited(0));
        let linux = outcome("a\nB\nend\n", End::Killed(11, true));
        let expected = "  end: status 0 on Aegis, signal 11 with a core file on Linux\n  \
                        standard output, from line 2 on:\n  - Linux: B\n  + Aegis: b\n  + Aegis: c\n";
        assert_eq!(difference(&aegis, &linux), expected);
    }

    #[test]
    fn long_differences_are_cut_and_odd_ends_are_told() {
        let aegis = outcome(&"x\n".repeat(40), End::Late);
        let text = difference(&aegis, &outcome("y", End::Late));
        assert!(text.contains("killed after its time on Aegis") && text.contains("and 28 lines more"), "{text}");
        assert!(text.contains("- Linux: y  (without an end of line)"), "{text}");
    }
}
